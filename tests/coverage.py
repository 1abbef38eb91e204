#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tells which lines of the sources the tests have run, by gcov.

    coverage.py BUILD [--functions TEXT]

BUILD: a build with -Db_coverage=true in which tests have run (`./run coverage` makes one). Prints a
table of folders: lines that can run, those that did, and functions that never did. A line has run
where it did in any object that it was compiled into. --functions: instead, each function that never
ran of the files whose path holds TEXT, as file:line: name.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys

FOLDERS = ('aio', 'cpu_adam', 'kernels', 'engine', 'tools')


def objects(build):
    """What gcov reads: the notes of each object. Those of a test's own sources are left out."""
    for folder, _, names in os.walk(build):
        for name in sorted(names):
            own = '/tests/' in folder and name.startswith('test_')
            if name.endswith('.gcno') and not own:
                yield os.path.join(folder, name)


def read_object(build, notes):
    """gcov's answer for one object: what each source file has of lines and functions."""
    done = subprocess.run(['gcov', '--json-format', '--stdout', os.path.relpath(notes, build)],
                          cwd=build, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f'gcov cannot read {notes}: {done.stderr.strip()}')
    return [json.loads(line) for line in done.stdout.splitlines() if line]


class Coverage:
    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.lines, self.functions = {}, {}

    def add(self, answer):
        where = answer['current_working_directory']
        for file in answer['files']:
            path = os.path.relpath(os.path.join(where, file['file']), self.root)
            if path.split(os.sep)[0] not in FOLDERS:
                continue
            for line in file['lines']:
                at = path, line['line_number']
                self.lines[at] = self.lines.get(at, 0) + line['count']
            for function in file['functions']:
                at = path, function['start_line']
                count = self.functions.get(at, ('', 0))[1] + function['execution_count']
                self.functions[at] = function['demangled_name'], count

    def read(self):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for answers in pool.map(lambda notes: read_object(self.build, notes),
                                    objects(self.build)):
                for answer in answers:
                    self.add(answer)

    def never(self):
        """(file, line, name) of each function that never ran."""
        return [(path, line, name) for (path, line), (name, count) in
                sorted(self.functions.items()) if count == 0]

    def rows(self):
        """{folder: [lines, lines that ran, functions that never did]}, and of all of them."""
        rows = {}
        for (path, _), count in self.lines.items():
            row = rows.setdefault(os.path.dirname(path), [0, 0, 0])
            row[0], row[1] = row[0] + 1, row[1] + (count > 0)
        for path, _, _ in self.never():
            rows[os.path.dirname(path)][2] += 1
        total = [sum(row[i] for row in rows.values()) for i in range(3)]
        return [*sorted(rows.items()), ('all', total)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('build')
    parser.add_argument('--functions')
    arguments = parser.parse_args()
    coverage = Coverage(arguments.build)
    coverage.read()
    if not coverage.lines:
        sys.exit(f'{arguments.build} has no object that gcov can read: want a build by '
                 'meson setup -Db_coverage=true')
    if arguments.functions is not None:
        for path, line, name in coverage.never():
            if arguments.functions in path:
                print(f'{path}:{line}: {name}')
        return
    print('| folder | lines | run | functions never run |\n|---|---|---|---|')
    for folder, (lines, run, never) in coverage.rows():
        print(f'| {folder} | {lines} | {100 * run / lines:.1f} % | {never} |')


if __name__ == '__main__':
    main()
