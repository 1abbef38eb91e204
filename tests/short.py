# SPDX-License-Identifier: Apache-2.0
"""The short form of a test that takes long: `./run test` has that one, with HST_TEST_SHORT set, and
`NAME-whole` in suite `all` has each row. What is left out changes from day to day: TURN. `./run
test` takes the day of the commit, so that a commit is always tested by the same rows."""
import os
import time
import unittest

SHORT = 'HST_TEST_SHORT' in os.environ
CASES = 3  # of those of `by_turns` one in so many runs
TURN = int(os.environ.get('HST_TEST_TURN', time.time() // 86400))
SEED = int(os.environ.get('HST_TEST_SEED', TURN))  # of what a test draws, in either form
if SHORT:
    print(f'the same rows again: HST_TEST_SHORT=1 HST_TEST_TURN={TURN}')

whole_alone = unittest.skipIf(SHORT, 'in the whole alone')


def in_turn(number, of):
    """A test that the short form has one day in so many; others of its kind have other numbers."""
    return unittest.skipIf(SHORT and TURN % of != number, "in another day's short form")


def some(rows, every):
    """One row in so many in the short form, others on the next day; all of them in the whole."""
    rows = list(rows)
    return rows[_rows_turn % min(every, len(rows))::every] if SHORT else rows


_rows_turn = TURN


def _flat(cases):
    for case in cases:
        yield from _flat(case) if isinstance(case, unittest.TestSuite) else (case,)


def by_turns(_loader, cases, _pattern):
    """A module of many cases has this as its `load_tests`: the short form takes one in three of
    those that it would run, others on the next days. One that is asked for by name runs. A case
    comes again after three days, with other rows."""
    global _rows_turn
    if not SHORT:
        return cases
    runs = [case for case in _flat(cases)
            if not any(getattr(skipped, '__unittest_skip__', False)
                       for skipped in (case, getattr(case, case._testMethodName)))]
    chosen = unittest.TestSuite(some(runs, CASES))
    _rows_turn = TURN // CASES
    return chosen
