#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds cpu_adam and its tests once more, in other ways, and runs them.

    variants.py compilers SOURCE_ROOT FLAGS   gcc and clang, -O2 and -O3, on this machine
    variants.py neon SOURCE_ROOT FLAGS        Debian's aarch64 cross compiler, run by qemu-user

FLAGS is JSON, {cpu family: {instruction set: flags}}, as in cpu_adam/meson.build. Every way must
pass all tests, and give the same digest: the same results to the bit on any compiler and machine.

exit 0: holds; 1: does not; 77: could not be tried, with the reason.
"""
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

SEED = '20261121'
COMMON = ['-std=c11', '-D_GNU_SOURCE', '-ffp-contract=off', '-fno-math-errno', '-Wno-unused']
TESTS = ['update', 'into', 'adamw', 'others', 'codes', 'noise', 'coef', 'convert', 'norm']
CROSS, EMULATOR = 'aarch64-linux-gnu-gcc', 'qemu-aarch64'


def skip(why):
    print(f'skipped: {why}')
    sys.exit(77)


class Way:
    """One way to build everything: a compiler, its flags, what runs the programs."""

    def __init__(self, name, source, folder, compiler, isas, runner=()):
        self.name, self.source, self.folder, self.isas = name, source, folder, isas
        self.compiler, self.runner = compiler, list(runner)
        self.tests = os.path.join(source, 'tests', 'cpu_adam')
        self.leaf = os.path.join(source, 'cpu_adam')
        os.makedirs(folder)

    def compile(self, path, output, *flags):
        includes = ['-I', os.path.join(self.leaf, 'include'), '-I', self.leaf,
                    '-I', os.path.join(self.tests, 'alone')]
        command = [*self.compiler, *COMMON, *includes, *flags, '-c', path, '-o', output]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f'{self.name}: {" ".join(command)}\n{done.stderr}')
        return output

    def object(self, name):
        return os.path.join(self.folder, name + '.o')

    def build(self, tests):
        kernels = [self.compile(os.path.join(self.leaf, 'kernels.c'),
                                self.object('kernels_' + isa), f'-DISA={isa}',
                                *(f for f in flags if not f.startswith('-O')))
                   for isa, flags in self.isas.items()]
        shared = [self.compile(os.path.join(self.leaf, n + '.c'), self.object(n))
                  for n in ('coef', 'dispatch', 'into', 'update')]
        shared += [self.compile(os.path.join(self.tests, n + '.c'), self.object(n))
                   for n in ('support', 'operations', 'problem')]
        for test in tests:
            own = self.compile(os.path.join(self.tests, f'test_{test}.c'),
                               self.object('test_' + test))
            subprocess.run([*self.compiler, own, *kernels, *shared, '-static', '-lm', '-o',
                            os.path.join(self.folder, test)], check=True)

    def run(self, test, *arguments):
        command = [*self.runner, os.path.join(self.folder, test), *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def passes(self, test, *arguments):
        done = self.run(test, *arguments)
        if done.returncode:
            print(f'{self.name}: {test} {" ".join(arguments)}: exit {done.returncode}\n'
                  f'{done.stdout[-2000:]}{done.stderr[-2000:]}')
        return done.returncode == 0

    def digests(self):
        """Digest of each instruction set that the machine has; None where a test failed."""
        found = {}
        for isa in self.isas:
            done = self.run('isa', isa, '--seed', SEED, '--digest')
            digest = re.search(r'^digest (\w+)$', done.stdout, re.M)
            if done.returncode != 77:
                found[isa] = digest.group(1) if done.returncode == 0 and digest else None
            print(f'{self.name}: {isa}: {found.get(isa, "not on this machine")}')
        return found


def try_ways(ways):
    """Runs every test in every way. Returns whether all passed with one digest."""
    good, digests = True, set()
    for way in ways:
        way.build(['isa', *TESTS])
        good &= all([way.passes(test, '--seed', SEED) for test in TESTS])
        digests |= set(way.digests().values())
    if len(digests) > 1 or None in digests:
        print('the results differ, or a test failed')
    return good and len(digests) == 1 and None not in digests


def compilers(source, flags, folder):
    found = [c for c in ('gcc', 'clang') if shutil.which(c)]
    if not found:
        skip('neither gcc nor clang is installed')
    for missing in {'gcc', 'clang'} - set(found):
        print(f'{missing} is not installed: only {found[0]} is tried')
    isas = flags[platform.machine()]
    ways = [Way(f'{c} {o}', source, os.path.join(folder, c + o), [c, o], isas)
            for c in found for o in ('-O2', '-O3')]
    return try_ways(ways)


def neon(source, flags, folder):
    for program, package in ((CROSS, 'gcc-aarch64-linux-gnu'), (EMULATOR, 'qemu-user')):
        if not shutil.which(program):
            skip(f'{program} is not installed (Debian: {package})')
    if platform.machine() == 'aarch64':
        skip('this machine has NEON itself: cpu_adam/isa-neon')
    here = flags[platform.machine()]
    ways = [Way('aarch64 ' + o, source, os.path.join(folder, 'aarch64' + o), [CROSS, o],
                flags['aarch64'], [EMULATOR]) for o in ('-O2', '-O3')]
    ways.append(Way('here', source, os.path.join(folder, 'here'), ['cc', '-O2'], here))
    return try_ways(ways)


if __name__ == '__main__':
    jobs = {'compilers': compilers, 'neon': neon}
    if len(sys.argv) != 4 or sys.argv[1] not in jobs:
        sys.exit(__doc__)
    if sys.argv[1] != 'neon' and platform.machine() not in json.loads(sys.argv[3]):
        skip(f'{platform.machine()} has the plain table alone')
    with tempfile.TemporaryDirectory() as scratch:
        held = jobs[sys.argv[1]](os.path.realpath(sys.argv[2]), json.loads(sys.argv[3]), scratch)
    sys.exit(0 if held else 1)
