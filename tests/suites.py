#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `meson test` and tells how it goes on.

    suites.py LABEL ARGUMENT...

LABEL: of the build, as summary.py has it; each ARGUMENT goes to `meson test`. Where NAME and
NAME-whole would run, NAME is left out. Prints a line for each test, with how many there are, and
lines that begin with "==> ": for each suite when its last test has ended, and for each test that
fails when it does. How the tests went is told by meson's
testlog.json alone: exits 0 wherever tests ran, else with all that meson said.
"""
import re
import signal
import subprocess
import sys

from summary import PASSED, short_name

# `  12/213 hoistway:aio / aio/uring      OK        0.52s`: what meson tells a pipe
RESULT = re.compile(r'\s*\d+/\d+\s+(\S.*?)\s+([A-Z]{2,})\s+([\d.]+)\s?s\b')


class Suite:
    def __init__(self):
        self.left, self.seconds, self.counts = 0, 0.0, {'passed': 0, 'failed': 0, 'skipped': 0}

    def add(self, result, seconds):
        kind = 'passed' if result in PASSED else 'skipped' if result == 'SKIP' else 'failed'
        self.left, self.seconds = self.left - 1, self.seconds + seconds
        self.counts[kind] += 1
        return kind

    def __str__(self):
        told = [f'{n} {kind}' for kind, n in self.counts.items() if n]
        return f'{", ".join(told)}, {self.seconds:.1f} s'


def suite_of(name):
    return name.split('/')[0]


def listed(arguments):
    """-> the names of what `meson test` would run."""
    done = subprocess.run(['meson', 'test', '--list', *arguments], capture_output=True, text=True,
                          check=False)
    return [short_name({'name': line.strip()}) for line in done.stdout.splitlines()
            if ' / ' in line]


def once(arguments, names):
    """-> both without the short forms of what runs whole; meson takes names or suites."""
    kept = [name for name in names if f'{name}-whole' not in names]
    if len(kept) == len(names):
        return arguments, names
    options = [word for before, word in zip(['', *arguments], arguments)
               if not word.startswith('--no-suite') and before != '--no-suite']
    return [*options, *kept], kept


def planned(names):
    """{suite: Suite} of what will run, with how many tests each has."""
    suites = {}
    for name in names:
        suites.setdefault(suite_of(name), Suite()).left += 1
    return suites


class Progress:
    def __init__(self, label, suites):
        self.label, self.suites = label, suites
        self.total, self.done = sum(suite.left for suite in suites.values()), 0

    def heard(self, line):
        match = RESULT.match(line)
        if not match:
            return
        name, result = short_name({'name': match[1]}), match[2]
        suite = self.suites.setdefault(suite_of(name), Suite())
        kind = suite.add(result, float(match[3]))
        self.done += 1
        if kind == 'failed':
            print(f'==> {self.label}: FAILED {name} ({result}); its output is told at the end')
        if suite.left == 0:
            print(f'==> {self.label}: {suite_of(name)}: {suite}')
        print(f'{self.done} of {max(self.total, self.done)} tests: {name}: {kind}', flush=True)


def main(label, arguments):
    arguments, names = once(arguments, listed(arguments))
    progress, said = Progress(label, planned(names)), []
    with subprocess.Popen(['meson', 'test', *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace') as child:
        try:
            for line in child.stdout:
                said.append(line)
                progress.heard(line)
        except KeyboardInterrupt:  # meson has heard it too; ends as what is interrupted ends
            child.wait()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
    if progress.done == 0:
        print(''.join(said), end='')
        return child.returncode or 1
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], sys.argv[2:]) if len(sys.argv) > 2 else __doc__)
