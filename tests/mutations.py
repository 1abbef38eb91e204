#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes one check at a time out of the code, and shows that a test fails without it.

    mutations.py [--only TEXT]... [--draw COUNT [--seed SEED]] [--into FOLDER] [--fit]

The rows are in mutations/rows*.py: a file, what is taken out of it, and the tests of which one must
fail. They are tried in a copy of the sources under FOLDER (default: build/mutations), which has a
build of its own and is kept, so that a second run is fast. --only tries the rows whose file or
words hold a TEXT, --draw so many of these by a seed, which is told. Of a test that has a short form
that one is tried first. --fit tries none: it tells which rows do not fit the code any more.

exit 0: every row was caught; 1: a mutation survived, or a row does not fit the code any more;
77: nothing could be tried, with the reason.
"""
import argparse
import importlib
import json
import os
import random
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


class Unmutated:
    """The sources as they are: all that the rows need is built, and a test that a row needs is run
    once before anything is taken out."""

    def __init__(self, build, rows):
        self.build, self.known = build, {}
        wanted = sorted({name for row in rows for names in stages(build, row) for name in names})
        unknown = [name for name in wanted if name not in build.tests]
        if unknown:
            print(f'not in this build, which has no plugin of CUDA: {", ".join(unknown)}')
        self.known.update(dict.fromkeys(unknown))
        self.must_compile([name for name in wanted if name not in unknown])

    def must_compile(self, names):
        said = self.build.compile(names)
        if said:
            sys.exit(f'the sources as they are do not compile:\n{said}')

    def seconds(self, name):
        """None: it cannot be run here."""
        if name not in self.known:
            self.must_compile([name])
            begin = time.monotonic()
            with tempfile.TemporaryDirectory() as scratch:
                status, output = self.build.run(name, scratch)
            if status not in (0, SKIPPED):
                sys.exit(f'{name} fails on the sources as they are: exit {status}\n'
                         f'{output[-4000:]}')
            self.known[name] = time.monotonic() - begin if status == 0 else None
        return self.known[name]


def stages(build, row):
    """Its tests as `./run test` has them; then those with all of their rows, which take longer."""
    whole = [build.whole(name) for name in row.tests]
    return [row.tests, [name for name in whole if name not in row.tests]]


def try_without(build, row, tests):
    """How it went with what the row takes out: caught, broken; None: no test failed."""
    path = os.path.join(build.source, row.file)
    whole = read(path)
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
    return None


def try_row(build, row, unmutated):
    """How the row went: caught, survived, untried, stale, broken; and a few words on it."""
    found = read(os.path.join(build.source, row.file)).count(row.old.encode())
    if found != 1:
        return 'stale', f'DOES NOT APPLY: its text is there {found} times:\n{row.old}'
    tried = []
    for names in stages(build, row):
        tests = sorted((t for t in names if unmutated.seconds(t) is not None),
                       key=unmutated.seconds)
        result = try_without(build, row, tests) if tests else None
        if result:
            return result
        tried += tests
    if not tried:
        return 'untried', f'{", ".join(row.tests)} cannot be run here'
    return 'survived', f'SURVIVED {", ".join(tried)}'


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
    parser.add_argument('--only', action='append')
    parser.add_argument('--draw', type=int)
    parser.add_argument('--seed', type=int, default=random.randrange(1 << 32))
    parser.add_argument('--into', default=os.path.join(ROOT, 'build', 'mutations'))
    arguments = parser.parse_args()
    texts = arguments.only or ['']
    rows = [row for row in ROWS if any(text in row.file or text in row.words for text in texts)]
    if not rows:
        sys.exit(f'no row has {" or ".join(texts)} in its file or words')
    if arguments.fit:
        sys.exit(check_fit(rows))
    if arguments.draw is not None:
        print(f'--draw {arguments.draw} --seed {arguments.seed}')
        rows = random.Random(arguments.seed).sample(rows, min(arguments.draw, len(rows)))
    begin = time.monotonic()
    build = Build(os.path.abspath(arguments.into))
    unmutated = Unmutated(build, rows)
    counts = {}
    for row in rows:
        result, words = try_row(build, row, unmutated)
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
