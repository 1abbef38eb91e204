# SPDX-License-Identifier: Apache-2.0
"""The folder of a report: whether it can be written, and the report of an earlier call in it."""
import contextlib
import errno
import json
import os
import tempfile

FULL = (errno.ENOSPC, errno.EDQUOT)


class Unusable(Exception):
    """One line: what, where, why, and one thing to do. It ends the call."""


@contextlib.contextmanager
def writing(path):
    try:
        yield
    except OSError as error:
        fix = 'make room there' if error.errno in FULL else 'make that a folder of your own'
        raise Unusable(f'{path} cannot be written: {error.strerror}. Fix: {fix}, or name another '
                       'with --out') from error


def prepare(folder):
    """Makes it; a call that could not keep what it measures is not begun."""
    with writing(folder):
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 16))


def unlike(value, pattern, name='it'):
    """What of `pattern` is not in `value`; '' nothing. None stands for all values, a list with a
    pattern for any number of such; a number is as good as another."""
    if pattern is None:
        return ''
    if isinstance(pattern, float) and type(value) in (int, float):
        return ''
    if type(value) is not type(pattern):
        return f'{name} is no {type(pattern).__name__}'
    inner = ()
    if isinstance(pattern, dict):
        if not pattern.keys() <= value.keys():
            return f'{name} has no {min(pattern.keys() - value.keys())}'
        inner = ((value[key], part, key) for key, part in pattern.items())
    elif isinstance(pattern, list) and pattern:
        inner = ((item, pattern[0], f'one of {name}') for item in value)
    return next(filter(None, (unlike(*one) for one in inner)), '')


def unusable_report(path, why):
    return Unusable(f'{path} cannot be gone on from: {why}. Fix: leave --continue out, and a new '
                    'report takes its place, or name another folder with --out')


def load(path):
    """The report of an earlier call, which may be of another commit and hold other things."""
    try:
        with open(path, encoding='utf-8') as file:
            report = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise unusable_report(path, error) from error
    lacks = unlike(report, {'commit': '', 'smoke': False, 'machine': {}})
    if lacks:
        raise unusable_report(path, f'it is no report of ./run gpu, {lacks}')
    return report


def check(path, report, pattern):
    """Of one that is of this commit: whether all is there that will be read of it."""
    lacks = unlike(report, pattern)
    if lacks:
        raise unusable_report(path, f'it is damaged, {lacks}')
