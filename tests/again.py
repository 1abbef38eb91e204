#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what has failed beside other tests once more, alone.

    again.py LABEL BUILD_FOLDER ARGUMENT...

LABEL: of the build, as summary.py has it; each ARGUMENT goes to `meson test`. What passes alone,
with the same rows, is marked in testlog.json: summary.py tells of it, with its first output, and
counts it as passed. A test may fail so by the clock or the load of a machine. It may also show a
race of the product, so its cause is to be found. Not tried again are what a sanitizer has found,
crashes and hangs, as far as the output tells of them, and all tests where more than MOST failed.
"""
import json
import os
import re
import subprocess
import sys

from summary import PASSED, kind, output_lines, read_log, short_name

MOST = 3
FOUND = re.compile(r'Sanitizer|runtime error: |[Ss]egmentation fault|core dumped|Aborted|'
                   r'exited on signal|Assertion .* failed|TimeoutExpired|AssertionError: -\d+ != ')


def is_to_try(test):
    return test['result'] == 'FAIL' and 0 < test['returncode'] < 126 and \
        not FOUND.search('\n'.join(output_lines(test)))


def passes(folder, arguments, name):
    log = os.path.join(folder, 'meson-logs', 'again.json')
    if os.path.exists(log):
        os.remove(log)
    subprocess.run(['meson', 'test', '-C', folder, '--no-rebuild', '--num-processes', '1',
                    '--logbase', 'again', *arguments, name], capture_output=True, check=False)
    tests = read_log(folder, 'again.json')
    return [(short_name(test), test['result'] in PASSED) for test in tests] == [(name, True)]


def mark(folder, tests):
    with open(os.path.join(folder, 'meson-logs', 'testlog.json'), 'w', encoding='utf-8') as f:
        for test in tests:
            f.write(json.dumps(test) + '\n')


def main(label, folder, *arguments):
    tests = read_log(folder)
    failed = [test for test in tests if kind(test) == 'failed']
    if len(failed) > MOST:
        return
    for test in filter(is_to_try, failed):
        name = short_name(test)
        test['alone'] = passes(folder, arguments, name)
        print(f'==> {label}: {name} once more, alone: '
              f'{"passed" if test["alone"] else "failed again"}', flush=True)
    mark(folder, tests)


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 2 else __doc__)
