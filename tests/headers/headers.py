#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may see whom, and what the library shows to others.

    headers.py CHECK SOURCE_ROOT BUILD_ROOT

    dag        each folder can include what it is built on and nothing else: tried with the compiler
               and the very include path of each target, then looked up in the sources
    alone-c    each public header compiles alone, and twice, as strict C11
    alone-cxx  ... and as C++
    exports    libhoistway.so exports every function that a public header declares, and nothing else
    silence    leaves and engine do not print and do not exit
    installed  programs elsewhere, one of them cpu_adam's example, compile, link and run with what
               `meson install` leaves

exit 0: holds; 1: breaches, one per line; 77: could not be tried, with the reason.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

# The house: folder -> public headers that its code may include. All else is out of its sight.
ALLOWED = {
    'aio': {'aio'},
    'cpu_adam': {'cpu_adam'},
    'kernels': {'kernels', 'measure', 'operations', 'plugin', 'plugin_load', 'quantise', 'ways'},
    'engine': {'ckpt', 'config', 'error', 'hoistway', 'machine', 'options', 'plan', 'predict',
               'ranks', 'units', 'aio', 'cpu_adam', 'kernels', 'measure', 'operations', 'plugin',
               'plugin_load', 'quantise', 'ways'},
    'tools': {'ckpt', 'config', 'error', 'hoistway', 'machine', 'options', 'plan', 'predict',
              'ranks', 'units', 'aio', 'cpu_adam', 'kernels', 'measure', 'operations', 'plugin',
              'plugin_load', 'quantise', 'ways'},
}
HEADERS = {'aio': 'aio', 'cpu_adam': 'cpu_adam', 'kernels': 'kernels', 'measure': 'kernels',
           'operations': 'kernels', 'plugin': 'kernels', 'plugin_load': 'kernels',
           'quantise': 'kernels', 'ways': 'kernels',
           'config': 'engine', 'hoistway': 'engine', 'machine': 'engine', 'options': 'engine',
           'plan': 'engine', 'predict': 'engine', 'ckpt': 'engine', 'ranks': 'engine',
           'units': 'engine', 'error': 'engine'}

# What a silent library never uses. `stdout` and `stderr` stand for all that is printed with them.
NOISE = re.compile(r'^(stdout|stderr|(__)?v?printf(_chk)?|puts|putchar|perror|(v)?syslog(_chk)?'
                   r'|exit|_exit|_Exit|quick_exit|err|errx|warn|warnx|error)$')


def header_path(source, header):
    return os.path.join(source, HEADERS[header], 'include', 'hoistway', header + '.h')


def targets_of(source, build, folder):
    """(name, compiler, arguments) of each target that compiles C in a folder, as meson does it."""
    path = os.path.join(build, 'meson-info', 'intro-targets.json')
    with open(path, encoding='utf-8') as f:
        targets = json.load(f)
    home = os.path.join(source, folder) + os.sep
    for target in targets:
        if not target['defined_in'].startswith(home):
            continue
        for group in target['target_sources']:
            if group.get('language') == 'c' and group['sources'] + group['generated_sources']:
                yield target['name'], group['compiler'], group['parameters']


def compiles(build, compiler, arguments, text, language='c'):
    command = [*compiler, *arguments, '-fdiagnostics-color=never', '-fsyntax-only']
    run = subprocess.run([*command, '-x', language, '-'], input=text, capture_output=True,
                         text=True, cwd=build)
    return run.returncode == 0, run.stderr


def private_headers(source, folder):
    """Headers of a folder that are not public, as its own files and as others would name them."""
    for path in glob.glob(os.path.join(source, folder, '**', '*.h'), recursive=True):
        inside = os.path.relpath(path, os.path.join(source, folder))
        if not inside.startswith('include' + os.sep):
            yield inside
            yield os.path.join(folder, inside)


def visible(build, compiler, arguments, names):
    """Those of `names` that the compiler finds: one run for all, an #error for each found."""
    text = ''.join(f'#if __has_include("{n}")\n#error "found:{n}:"\n#endif\n' for n in names)
    return re.findall(r'#error "found:(.*):"', compiles(build, compiler, arguments, text)[1])


def dag_by_compiler(source, build):
    """With a target's own include path, an allowed header is found and any other is not."""
    for folder, allowed in ALLOWED.items():
        targets = list(targets_of(source, build, folder))
        if not targets:
            yield f'{folder}: no target compiles a C file there'
        for name, compiler, arguments in targets:
            where = f'{folder} (target {name})'
            public = {f'hoistway/{header}.h': header for header in HEADERS}
            seen = {public[path] for path in visible(build, compiler, arguments, public)}
            for header in sorted(seen - allowed):
                yield f'{where}: can include <hoistway/{header}.h>, which it must not see'
            for header in sorted(allowed - seen):
                yield f'{where}: cannot include <hoistway/{header}.h>'
            unseen = set().union(*(private_headers(source, f) for f in set(ALLOWED) - {folder}))
            for private in visible(build, compiler, arguments,
                                   unseen - set(private_headers(source, folder))):
                yield f'{where}: can include "{private}", a private header of another folder'


def dag_by_reading(source):
    """What the include path cannot forbid: a quoted path that climbs out of its folder."""
    for folder, allowed in ALLOWED.items():
        paths = glob.glob(os.path.join(source, folder, '**', '*.[ch]'), recursive=True)
        for path in sorted(paths):
            with open(path, encoding='utf-8') as f:
                text = f.read()
            shown = os.path.relpath(path, source)
            for name in re.findall(r'^\s*#\s*include\s*[<"]hoistway/(\w+)\.h', text, re.M):
                if name not in allowed:
                    yield f'{shown}: includes <hoistway/{name}.h>, which {folder} must not see'
            for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.M):
                if '..' in name.split('/') or name.startswith('/'):
                    yield f'{shown}: includes "{name}", a path out of its folder'


def check_dag(source, build):
    return list(dag_by_reading(source)) + list(dag_by_compiler(source, build))


def check_alone(source, build, compiler, standard, language):
    for header, folder in HEADERS.items():
        folders = sorted({HEADERS[h] for h in ALLOWED[folder]})
        arguments = [f'-I{os.path.join(source, f, "include")}' for f in folders]
        arguments += [standard, '-pedantic-errors', '-Wall', '-Wextra', '-Werror']
        include = f'#include <hoistway/{header}.h>\n'
        good, why = compiles(build, [compiler], arguments, include + include, language)
        if not good:
            yield f'<hoistway/{header}.h> does not compile alone ({compiler} {standard}):\n{why}'


def check_alone_c(source, build):
    return list(check_alone(source, build, os.environ.get('CC', 'cc'), '-std=c11', 'c'))


def check_alone_cxx(source, build):
    compiler = os.environ.get('CXX') or shutil.which('g++') or shutil.which('clang++')
    if not compiler:
        print('there is no C++ compiler (g++, clang++)')
        sys.exit(77)
    return list(check_alone(source, build, compiler, '-std=c++11', 'c++'))


def declared_functions(text):
    """Names of the functions that a header declares: what is left at file scope without bodies."""
    text = re.sub(r'/\*.*?\*/|//[^\n]*', ' ', text, flags=re.S)
    text = re.sub(r'^\s*#(?:[^\n]*\\\n)*[^\n]*$', '', text, flags=re.M)
    text = re.sub(r'extern\s*"C"\s*\{', '', text)
    while re.search(r'\{[^{}]*\}', text):
        text = re.sub(r'\{[^{}]*\}', ' ', text)
    for declaration in text.split(';'):
        name = re.search(r'(\w+)\s*\(', declaration)
        if name and not re.search(r'\btypedef\b|\bstatic\b', declaration):
            yield name.group(1)


def difference(left, left_name, right, right_name):
    for name in sorted(set(left) - set(right)):
        yield f'{name}: in {left_name}, not in {right_name}'
    for name in sorted(set(right) - set(left)):
        yield f'{name}: in {right_name}, not in {left_name}'


def check_exports(source, build):
    declared = []
    for header in HEADERS:
        with open(header_path(source, header), encoding='utf-8') as f:
            declared += declared_functions(f.read())
    with open(os.path.join(source, 'engine', 'hoistway.map'), encoding='utf-8') as f:
        body = re.sub(r'/\*.*?\*/', ' ', f.read(), flags=re.S)
    mapped = re.findall(r'(\w+)\s*;', re.search(r'global:(.*)local:', body, re.S).group(1))
    library = os.path.join(build, 'engine', 'libhoistway.so')
    nm = subprocess.run(['nm', '-D', '--defined-only', library], capture_output=True, text=True,
                        check=True)
    symbols = [line.split() for line in nm.stdout.splitlines()]
    exported = [s[-1].split('@')[0] for s in symbols if s[-2] != 'A']
    return [*difference(declared, 'the public headers', mapped, 'engine/hoistway.map'),
            *difference(declared, 'the public headers', exported, 'libhoistway.so')]


def check_silence(source, build):
    breaches = []
    for folder in ('aio', 'cpu_adam', 'kernels', 'engine'):
        archive = os.path.join(build, folder, f'lib{folder}.a')
        nm = subprocess.run(['nm', '-A', '-u', archive], capture_output=True, text=True, check=True)
        for line in nm.stdout.splitlines():
            where, symbol = line.split(' U ')[0], line.split()[-1].split('@')[0]
            if NOISE.match(symbol):
                breaches.append(f'{os.path.relpath(where.strip(": "), build)}: uses {symbol}')
        if not nm.stdout:
            breaches.append(f'{archive}: holds no object that uses anything')
    return breaches


INSTALLED_PROGRAM = """
#include <hoistway/aio.h>
#include <hoistway/cpu_adam.h>
#include <hoistway/hoistway.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", HST_VERSION_MAJOR, HST_VERSION_MINOR,
             HST_VERSION_PATCH);
    printf("header %s, library %s\\n", version, hst_version());
    return strcmp(version, hst_version()) != 0 || hst_norm2_sum(NULL, 0) != 0.0;
}
"""


def run_step(what, command, **options):
    """Nothing, or the breach that the command failed."""
    run = subprocess.run(command, capture_output=True, text=True, **options)
    return [] if run.returncode == 0 else [f'{what} failed: {run.stdout}{run.stderr}']


def try_installed(source, root):
    found = glob.glob(os.path.join(root, '**', 'hoistway.pc'), recursive=True)
    if not found:
        return ['no hoistway.pc is installed']
    settings = {**os.environ, 'PKG_CONFIG_SYSROOT_DIR': root,
                'PKG_CONFIG_PATH': os.path.dirname(found[0])}
    flags = subprocess.run(['pkg-config', '--cflags', '--libs', 'hoistway'], env=settings,
                           capture_output=True, text=True)
    if flags.returncode:
        return [f'pkg-config failed: {flags.stderr}']
    with open(os.path.join(source, 'tests', 'cpu_adam', 'example.c'), encoding='utf-8') as f:
        example = f.read()
    folder = os.path.dirname(glob.glob(os.path.join(root, '**', 'libhoistway.so.0'),
                                       recursive=True)[0])
    settings = {**os.environ, 'LD_LIBRARY_PATH': folder}
    broken = []
    for name, text in (('the program', INSTALLED_PROGRAM), ('tests/cpu_adam/example.c', example)):
        program = os.path.join(root, 'program')
        command = [os.environ.get('CC', 'cc'), '-x', 'c', '-', '-o', program,
                   *flags.stdout.split(), '-lm']
        broken += (run_step(f'compiling and linking {name}', command, input=text) or
                   run_step(name, [program], env=settings))
    return broken


def check_installed(source, build):
    with tempfile.TemporaryDirectory() as root:
        install = ['meson', 'install', '-C', build, '--no-rebuild', '--destdir', root]
        return run_step('meson install', install) or try_installed(source, root)


if __name__ == '__main__':
    checks = {'dag': check_dag, 'alone-c': check_alone_c, 'alone-cxx': check_alone_cxx,
              'exports': check_exports, 'silence': check_silence, 'installed': check_installed}
    if len(sys.argv) != 4 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    found = checks[sys.argv[1]](os.path.realpath(sys.argv[2]), os.path.realpath(sys.argv[3]))
    print('\n'.join(found))
    sys.exit(1 if found else 0)
