#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What floors.py has to find, planted."""
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import floors  # noqa: E402


class Breaches(unittest.TestCase):
    def found(self, symbols=(), headers=(), twice=()):
        return list(floors.breaches(dict.fromkeys(symbols, 'name'), dict.fromkeys(headers, 'name'),
                                    dict(twice)))

    def test_what_is_below_may_be_used(self):
        self.assertEqual(self.found([('engine/exec/loop.c', 'engine/base/clock.c'),
                                     ('engine/exec/loop.c', 'engine/exec/moves.c'),
                                     ('engine/plan/graph/walk.c', 'engine/plan/layout/layout.c'),
                                     ('tools/main.c', 'tools/verbs/plan.c')]), [])

    def test_an_arrow_upward_is_found_by_symbol_and_by_header(self):
        up = ('engine/base/clock.c', 'engine/session/step.c')
        self.assertRegex(self.found([up])[0], 'engine/base uses engine/session')
        self.assertRegex(self.found([], [up])[0], 'engine/base uses engine/session')

    def test_a_room_on_the_same_floor_is_not_used(self):
        self.assertEqual(len(self.found([('tools/data/data.c', 'tools/model/units.c')])), 1)
        self.assertEqual(len(self.found([('aio/wait.c', 'cpu_adam/coef.c')])), 1)

    def test_only_the_header_that_is_named_is_handed_down(self):
        self.assertEqual(self.found([], [('engine/exec/loop.c', 'engine/session/engine_state.h')]),
                         [])
        for other in ('engine/session/predict.h', 'engine/session/step.c'):
            self.assertEqual(len(self.found([('engine/exec/loop.c', other)])), 1)
        self.assertEqual(len(self.found([], [('engine/tier/hbm.c',
                                              'engine/session/engine_state.h')])), 1)

    def test_a_new_folder_needs_a_floor(self):
        self.assertRegex(self.found([('engine/new/a.c', 'engine/base/clock.c')])[0], 'no floor')

    def test_a_circle_of_more_files_than_three_is_found(self):
        files = [f'engine/exec/{name}.c' for name in 'abcd']
        for most in (3, 4):
            ring = list(zip(files[:most], files[1:most] + files[:1]))
            self.assertEqual(len(self.found(ring)), most - 3)

    def test_a_name_that_is_defined_twice_is_found(self):
        self.assertRegex(self.found(twice=[('f', {'a.c', 'b.c'})])[0], 'a.c and in b.c')


if __name__ == '__main__':
    unittest.main()
