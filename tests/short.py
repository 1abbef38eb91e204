# SPDX-License-Identifier: Apache-2.0
"""The short form of a test that takes long: `./run test` has that one, with HST_TEST_SHORT set, and
`NAME-whole` in suite `all` has each row. What is left out changes from day to day: TURN."""
import os
import time
import unittest

SHORT = 'HST_TEST_SHORT' in os.environ
TURN = int(os.environ.get('HST_TEST_TURN', time.time() // 86400))
if SHORT:
    print(f'the same rows again: HST_TEST_SHORT=1 HST_TEST_TURN={TURN}')

whole_alone = unittest.skipIf(SHORT, 'in the whole alone')


def in_turn(number, of):
    """A test that the short form has one day in so many; others of its kind have other numbers."""
    return unittest.skipIf(SHORT and TURN % of != number, "in another day's short form")


def some(rows, every):
    """One row in so many in the short form, others on the next day; all of them in the whole."""
    rows = list(rows)
    return rows[TURN % min(every, len(rows))::every] if SHORT else rows
