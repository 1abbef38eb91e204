#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes one check at a time out of the code, and shows that a test fails without it.

    mutations.py [--only TEXT] [--into FOLDER] [--fit]

The rows are in mutations/rows*.py: a file, what is taken out of it, and the tests of which one must
fail. They are tried in a copy of the sources under FOLDER (default: build/mutations), which has a
build of its own and is kept, so that a second run is fast. --only tries the rows whose file or
words hold TEXT. --fit tries none: it tells which rows do not fit the code any more.

exit 0: every row was caught; 1: a mutation survived, or a row does not fit the code any more;
77: nothing could be tried, with the reason.
"""
import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'mutations')
sys.path.insert(0, FOLDER)
for name in sorted(os.listdir(FOLDER)):
    if name.startswith('rows_') and name.endswith('.py'):
        importlib.import_module(name[:-3])  # adds its rows
from rows import ROWS  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIPPED = 77


def read(path):
    with open(path, 'rb') as f:
        return f.read()


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as f:
        f.write(content)


def copy_sources(copy):
    """What git knows, or would add, as it is now. What has not changed keeps its time."""
    listed = subprocess.run(['git', '-C', ROOT, 'ls-files', '-z', '--cached', '--others',
                             '--exclude-standard'], capture_output=True, check=False)
    if listed.returncode:
        print('skipped: not a git checkout, so that what belongs to the sources is not known')
        sys.exit(SKIPPED)
    for name in listed.stdout.decode().strip('\0').split('\0'):
        source, target = os.path.join(ROOT, name), os.path.join(copy, name)
        if not os.path.isfile(source):
            continue
        if not os.path.exists(target) or read(source) != read(target):
            write(target, read(source))
            os.chmod(target, os.stat(source).st_mode)


def packages():
    """What ./run prep-install has made here, which the copy does not have."""
    made = {'HOISTWAY_PYTHON': os.path.join(ROOT, 'build', 'venv', 'bin', 'python'),
            'HOISTWAY_TRL': os.path.join(ROOT, 'build', 'trl')}
    return {name: path for name, path in made.items() if os.path.exists(path)}


class Build:
    """The copy, its build, and the tests as `meson test` would run them."""

    def __init__(self, folder):
        self.source, self.folder = os.path.join(folder, 'source'), os.path.join(folder, 'build')
        copy_sources(self.source)
        if not os.path.exists(os.path.join(self.folder, 'build.ninja')):
            self.must(['meson', 'setup', self.folder, self.source, '-Dcuda=disabled'])
        self.must(['ninja', '-C', self.folder, 'build.ninja'])
        targets = {t['id']: t['filename'] for t in self.introspect('--targets')}
        self.tests = {t['name']: t for t in self.introspect('--tests')}
        for test in self.tests.values():
            test['files'] = [os.path.relpath(f, self.folder)
                             for t in test['depends'] for f in targets[t]]

    def must(self, command):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f'{" ".join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}')
        return done.stdout

    def introspect(self, what):
        return json.loads(self.must(['meson', 'introspect', what, self.folder]))

    def whole(self, name):
        """A test with all of its rows: where it has a short form, the other one."""
        return name + '-whole' if name + '-whole' in self.tests else name

    def compile(self, tests):
        """What the compiler said where it failed; None where all is built."""
        files = sorted({f for name in tests for f in self.tests[name]['files']})
        if not files:  # of Python alone
            return None
        done = subprocess.run(['ninja', '-C', self.folder, f'-j{os.cpu_count()}', *files],
                              capture_output=True, text=True, check=False)
        return done.stdout[-4000:] if done.returncode else None

    def run(self, name, scratch):
        """The exit status of a test, -SIGKILL where it did not end; and its output."""
        test = self.tests[name]
        env = {**packages(), **os.environ, 'MALLOC_PERTURB_': '165', 'TMPDIR': scratch,
               **test['env']}
        with tempfile.TemporaryFile() as output:
            with subprocess.Popen(test['cmd'], env=env, cwd=test['workdir'] or self.folder,
                                  stdout=output, stderr=output, start_new_session=True) as child:
                try:
                    child.wait(test['timeout'])
                except subprocess.TimeoutExpired:
                    pass
                try:
                    os.killpg(child.pid, signal.SIGKILL)  # and what it left running
                except ProcessLookupError:
                    pass
            output.seek(0)
            return child.returncode, output.read().decode(errors='replace')


def check_unmutated(build, rows):
    """Builds all that the rows need. Returns the seconds of each test that can be run here."""
    wanted = sorted({build.whole(t) for row in rows for t in row.tests})
    unknown = [t for t in wanted if t not in build.tests]
    if unknown:
        sys.exit(f'a row names tests that this build does not have: {unknown}')
    said = build.compile(wanted)
    if said:
        sys.exit(f'the sources as they are do not compile:\n{said}')
    seconds = {}
    for name in wanted:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            status, output = build.run(name, scratch)
        if status not in (0, SKIPPED):
            sys.exit(f'{name} fails on the sources as they are: exit {status}\n{output[-4000:]}')
        if status == 0:
            seconds[name] = time.monotonic() - begin
    return seconds


def try_row(build, row, seconds):
    """How the row went: caught, survived, untried, stale, broken; and a few words on it."""
    tests = sorted((t for t in map(build.whole, row.tests) if t in seconds), key=seconds.get)
    if not tests:
        return 'untried', f'{", ".join(row.tests)} cannot be run here'
    path = os.path.join(build.source, row.file)
    whole = read(path)
    found = whole.count(row.old.encode())
    if found != 1:
        return 'stale', f'DOES NOT APPLY: its text is there {found} times:\n{row.old}'
    write(path, whole.replace(row.old.encode(), row.new.encode()))
    try:
        said = build.compile(tests)
        if said:
            return 'broken', f'DOES NOT COMPILE\n{said}'
        for name in tests:
            with tempfile.TemporaryDirectory() as scratch:
                status, _ = build.run(name, scratch)
            if status:
                how = ', which did not end' if status == -signal.SIGKILL else ''
                return 'caught', f'caught by {name}{how}'
    finally:
        write(path, whole)
    return 'survived', f'SURVIVED {", ".join(tests)}'


def check_fit(rows):
    """A row's text occurs once in its file, or taking it out would be another mutation."""
    paths = {row.file: os.path.join(ROOT, row.file) for row in rows}
    texts = {file: read(path) if os.path.exists(path) else b'' for file, path in paths.items()}
    stale = [(row, texts[row.file].count(row.old.encode())) for row in rows
             if texts[row.file].count(row.old.encode()) != 1]
    for row, found in stale:
        print(f'{row.file}: {row.words}: its text is there {found} times: {row.old!r}')
    print(f'{len(rows)} rows, {len(stale)} do not fit the code')
    return 1 if stale else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--fit', action='store_true')
    parser.add_argument('--only', default='')
    parser.add_argument('--into', default=os.path.join(ROOT, 'build', 'mutations'))
    arguments = parser.parse_args()
    rows = [r for r in ROWS if arguments.only in r.file or arguments.only in r.words]
    if not rows:
        sys.exit(f'no row has {arguments.only} in its file or words')
    if arguments.fit:
        sys.exit(check_fit(rows))
    begin = time.monotonic()
    build = Build(os.path.abspath(arguments.into))
    seconds = check_unmutated(build, rows)
    counts = {}
    for row in rows:
        result, words = try_row(build, row, seconds)
        print(f'{row.file}: {row.words}: {words}', flush=True)
        counts.setdefault(row.file.rsplit('/', 1)[0], []).append(result)
    for folder, results in counts.items():
        print(f'{folder}: {", ".join(f"{results.count(r)} {r}" for r in sorted(set(results)))}')
    print(f'{len(rows)} mutations in {time.monotonic() - begin:.0f} s')
    results = {r for folder in counts.values() for r in folder}
    if results == {'untried'}:
        print('skipped: none of their tests can be run here')
        sys.exit(SKIPPED)
    sys.exit(1 if results & {'survived', 'stale', 'broken'} else 0)


if __name__ == '__main__':
    main()
