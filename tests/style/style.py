#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House style that a program can check, over every file of the source tree.

    style.py rules ROOT     the rules below; prints each breach as file:line: what
    style.py format ROOT    clang-format over .c, .cpp, .cu (exit 77 where it is not installed)
    style.py sources ROOT   prints the .c files, for other programs

Headers are laid out by hand (tables of fields with prose beside them), so clang-format and the
column limit leave them alone. Tables may be longer than a function: only functions are measured.
"""
import os
import re
import shutil
import subprocess
import sys

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 600
MAX_COLUMNS = 100
CLANG_FORMAT_MAJOR = 14  # Debian 12's: other versions lay out some lines differently

SOURCE_SUFFIXES = ('.c', '.cpp', '.h', '.cu', '.cuh', '.py', '.sh', '.map')
SOURCE_NAMES = ('meson.build', 'meson_options.txt', 'run')
COLUMN_SUFFIXES = ('.c', '.cpp', '.h', '.cu', '.py', '.sh')
FOLDERS_WITH_README = ('.', 'aio', 'cpu_adam', 'kernels', 'engine', 'tools', 'tests', 'docs',
                       'python')


def walk(root):
    """The project's own files, relative to root: what git does not ignore; in a tree without git
    (or without the program), all but build folders and hidden ones."""
    try:
        git = subprocess.run(['git', 'ls-files', '-z', '-c', '-o', '--exclude-standard'], cwd=root,
                             capture_output=True, text=True, check=True)
        return sorted(p for p in git.stdout.split('\0') if os.path.isfile(os.path.join(root, p)))
    except (OSError, subprocess.CalledProcessError):
        return walk_folders(root)


def walk_folders(root):
    found = []
    for folder, folders, files in os.walk(root):
        top = os.path.samefile(folder, root)
        folders[:] = sorted(d for d in folders if d == '.ci' or not (
            d.startswith('.') or d == '__pycache__' or (top and d.startswith('build'))))
        found += [os.path.relpath(os.path.join(folder, f), root) for f in sorted(files)]
    return found


def is_source(path):
    return path.endswith(SOURCE_SUFFIXES) or os.path.basename(path) in SOURCE_NAMES


def read_text(root, path):
    with open(os.path.join(root, path), encoding='utf-8', newline='') as f:
        return f.read()


def long_functions(lines):
    """(first line, name, length) of functions beyond the limit: `{` alone on a line opens one."""
    for i, line in enumerate(lines):
        if line != '{':
            continue
        first = i
        while first > 0 and lines[first - 1] and not re.search(r'[;}/]$|^#', lines[first - 1]):
            first -= 1
        last = next((j for j in range(i, len(lines)) if lines[j] == '}'), len(lines) - 1)
        length = last - first + 1
        if length > MAX_FUNCTION_LINES:
            name = re.search(r'(\w+)\s*\(', ' '.join(lines[first:i]))
            yield first + 1, name.group(1) if name else '?', length


def check_source(path, text):
    lines = text.split('\n')
    if not any('SPDX-License-Identifier: Apache-2.0' in line for line in lines[:3]):
        yield 1, 'no line "SPDX-License-Identifier: Apache-2.0" among the first three'
    if len(lines) - 1 > MAX_FILE_LINES:
        yield 1, f'{len(lines) - 1} lines; a file has at most {MAX_FILE_LINES}'
    for number, line in enumerate(lines, 1):
        if line != line.rstrip() or '\t' in line:
            yield number, 'tab, carriage return or blanks at the end of the line'
        if path.endswith(COLUMN_SUFFIXES) and 'golden_' not in path and len(line) > MAX_COLUMNS:
            yield number, f'{len(line)} columns; a line has at most {MAX_COLUMNS}'
        if re.search(r'\b(TO' r'DO|FIX' r'ME|XX' r'X)\b', line):
            yield number, 'unfinished: do it or delete it'
    if not text.endswith('\n'):
        yield len(lines), 'no newline at the end of the file'
    if path.endswith(('.c', '.cpp', '.h', '.cu', '.cuh')):
        for number, name, length in long_functions(lines):
            yield number, f'{name}: {length} lines; a function has at most {MAX_FUNCTION_LINES}'


def check_links(root, path, text):
    """Links of a page to files of the tree."""
    for number, line in enumerate(text.split('\n'), 1):
        for target in re.findall(r'\]\(([^)#\s]+)[^)]*\)', line):
            local = os.path.normpath(os.path.join(root, os.path.dirname(path), target))
            if '://' not in target and not os.path.exists(local):
                yield number, f'link to {target}, which does not exist'


def check_codes(root):
    """Every code that a message can carry has a row in docs/errors.md."""
    page = 'docs/errors.md'
    rows = re.findall(r'^\| (\d{3}) \|', read_text(root, page), re.M)
    for path in walk(root):
        found = []
        if path.endswith('.h'):
            codes = r'\b((?:FAIL|CLI|HST_E)_\w+) = (\d{3}),'
            found = re.findall(codes, read_text(root, path))
        elif path == 'python/hoistway/errors.py':
            found = re.findall(r'^([A-Z_]+) = (\d{3})$', read_text(root, path), re.M)
        elif path.endswith('.c') and path.startswith(('engine/', 'tools/')):
            found = re.findall(r'"([EWI])(\d{3}) ', read_text(root, path))
        for name, code in found:
            if code not in rows:
                yield page, 1, f'no row for {code} ({name} in {path})'


def command_rules(root):
    breaches = list(check_codes(root))
    for path in walk(root):
        if is_source(path):
            breaches += [(path, *b) for b in check_source(path, read_text(root, path))]
        elif path.endswith('.md'):
            breaches += [(path, *b) for b in check_links(root, path, read_text(root, path))]
    for folder in FOLDERS_WITH_README:
        if not os.path.exists(os.path.join(root, folder, 'README.md')):
            breaches.append((folder, 1, 'the folder has no README.md'))
    for path, number, what in breaches:
        print(f'{path}:{number}: {what}')
    return 1 if breaches else 0


def find_clang_format():
    for name in (f'clang-format-{CLANG_FORMAT_MAJOR}', 'clang-format'):
        program = shutil.which(name)
        if program:
            version = subprocess.run([program, '--version'], capture_output=True, text=True).stdout
            if f'version {CLANG_FORMAT_MAJOR}.' in version:
                return program
    return None


def command_format(root):
    program = find_clang_format()
    if not program:
        print(f'clang-format {CLANG_FORMAT_MAJOR} is not installed (./run lint installs it)')
        return 77
    sources = [p for p in walk(root) if p.endswith(('.c', '.cpp', '.cu'))]
    return subprocess.run([program, '--dry-run', '-Werror', *sources], cwd=root).returncode


def command_sources(root):
    print('\n'.join(p for p in walk(root) if p.endswith('.c')))
    return 0


if __name__ == '__main__':
    commands = {'rules': command_rules, 'format': command_format, 'sources': command_sources}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    sys.exit(commands[sys.argv[1]](sys.argv[2]))
