# SPDX-License-Identifier: Apache-2.0
"""The short form of a test that takes long: `./run test` has that one, with HST_TEST_SHORT set, and
`NAME-whole` in suite `all` has each row, but where `part` says otherwise. What is left out changes
from day to day: TURN. `./run test` takes the day of the commit, so that a commit is always tested
by the same rows. With HST_TEST_SHORT=2, as sanitizers have it, a third to a half of that is
taken."""
import os
import time
import unittest

SHORT = int(os.environ.get('HST_TEST_SHORT') or 0)
CASES = 6  # of those of `by_turns` one in so many runs
TURN = int(os.environ.get('HST_TEST_TURN', time.time() // 86400))
SEED = int(os.environ.get('HST_TEST_SEED', TURN))  # of what a test draws, in either form
if SHORT:
    print(f'the same rows again: HST_TEST_SHORT={SHORT} HST_TEST_TURN={TURN}')

whole_alone = unittest.skipIf(SHORT, 'in the whole alone')


def in_turn(number, of):
    """A test that the short form has one day in so many; others of its kind have other numbers."""
    return unittest.skipIf(SHORT and TURN % of != number, "in another day's short form")


def some(rows, every):
    """One row in so many in the short form, others on the next day; all of them in the whole."""
    rows = list(rows)
    every = min(every * SHORT, len(rows))
    return rows[_rows_turn % every::every] if SHORT else rows


def part(rows, count, shift=0):
    """So many of rows also where all is run, others on the next days: where a row says little that
    others do not, and all of them take long. shift: of those of one list that stands several
    times, from where each begins."""
    rows = list(rows)
    at = _rows_turn * count + shift
    return [rows[(at + i) % len(rows)] for i in range(min(count, len(rows)))]


_rows_turn = TURN


def every_day(test):
    """A case of `by_turns` that has its turn on all days."""
    test.every_day = True
    return test


def _flat(cases):
    for case in cases:
        yield from _flat(case) if isinstance(case, unittest.TestSuite) else (case,)


def by_turns(_loader, cases, _pattern):
    """A module of many cases has this as its `load_tests`: the short form takes one in CASES of
    those that it would run, others on the next days. One that is asked for by name runs. A case
    comes again after as many days, with other rows. One of `every_day` is left out by sanitizers
    alone."""
    global _rows_turn
    if not SHORT:
        return cases
    runs = [case for case in _flat(cases)
            if not any(getattr(skipped, '__unittest_skip__', False)
                       for skipped in (case, getattr(case, case._testMethodName)))]
    always = [case for case in runs if SHORT == 1 and
              hasattr(getattr(case, case._testMethodName), 'every_day')]
    chosen = unittest.TestSuite([*always, *some([c for c in runs if c not in always], CASES)])
    _rows_turn = TURN // (CASES * SHORT)
    return chosen
