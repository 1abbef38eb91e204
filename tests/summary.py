#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tells how the tests went, from meson's machine-readable logs.

    summary.py [--some] LABEL=BUILD_FOLDER...

Prints the output of each test that failed, the reason of each that was skipped, the seconds of each
suite, and as the last line `N passed, N failed, N skipped`. What has failed, and passed when
again.py tried it alone, counts as passed and is told as well. Exits 1 where a test failed, and
where none ran: a log that is missing or empty is a failure, not a success without tests. --some:
tests were asked for by name, and not every build has them: one log must hold some.
"""
import json
import os
import sys

MAX_OUTPUT_LINES = 200  # of a failed test: its end; all of it is in meson-logs/testlog.txt
PASSED = ('OK', 'EXPECTEDFAIL')


def read_log(folder, name='testlog.json'):
    path = os.path.join(folder, 'meson-logs', name)
    if not os.path.exists(path):
        return []
    with open(path, encoding='utf-8', errors='replace') as f:
        return [json.loads(line) for line in f if line.strip()]


def short_name(test):
    """`aio/uring` of meson's `hoistway:aio / aio/uring`."""
    return test['name'].split(' / ')[-1]


def output_lines(test):
    return ((test.get('stdout') or '') + (test.get('stderr') or '')).rstrip().split('\n')


def kind(test):
    if test['result'] in PASSED or test.get('alone'):
        return 'passed'
    return 'skipped' if test['result'] == 'SKIP' else 'failed'


def print_failures(label, tests):
    for test in tests:
        if test.get('alone') or kind(test) == 'failed':
            lines = output_lines(test)
            how = f'{test["result"]}, exit {test["returncode"]}'
            how += '; alone it passed' if test.get('alone') else ''
            print(f'\n---- {short_name(test)} ({label}): {how}')
            if len(lines) > MAX_OUTPUT_LINES:
                print(f'({len(lines) - MAX_OUTPUT_LINES} lines before these)')
            print('\n'.join(lines[-MAX_OUTPUT_LINES:]))


def print_skips(label, tests):
    for test in tests:
        if kind(test) == 'skipped':
            print(f'skipped: {short_name(test)} ({label}): {output_lines(test)[-1]}')


def print_suites(logs):
    suites = {}
    for label, tests in logs:
        for test in tests:
            row = suites.setdefault(short_name(test).split('/')[0], {})
            count, seconds = row.get(label, (0, 0.0))
            row[label] = (count + 1, seconds + test['duration'])
    print('\n| suite | ' + ' | '.join(f'tests, {label} | seconds' for label, _ in logs) + ' |')
    print('|---|' + '---|---|' * len(logs))
    for suite in sorted(suites):
        cells = (suites[suite].get(label, (0, 0.0)) for label, _ in logs)
        print(f'| {suite} | ' + ' | '.join(f'{n} | {s:.1f}' for n, s in cells) + ' |')


def main(arguments):
    some = arguments[0] == '--some'
    logs = []
    for argument in arguments[some:]:
        label, folder = argument.split('=', 1)
        logs.append((label, read_log(folder)))
    if some:
        logs = [log for log in logs if log[1]] or logs
    for label, tests in logs:
        print_failures(label, tests)
    print()
    for label, tests in logs:
        print_skips(label, tests)
    print_suites(logs)
    kinds = [kind(test) for _, tests in logs for test in tests]
    empty = [label for label, tests in logs if not tests]
    for label in empty:
        print(f'\nno test ran: {label}')
    failed = kinds.count('failed') + len(empty)
    for label, tests in logs:
        for test in tests:
            if test.get('alone'):
                print(f'\nfailed beside others, passed alone: {short_name(test)} ({label})')
    print(f'\n{kinds.count("passed")} passed, {failed} failed, {kinds.count("skipped")} skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
