#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The papers' cells, as they print them, are what `hoistway plan --paper` has.

    plan_paper.py PATH_OF_HOISTWAY [Class.test_name]
"""
import json
import os
import subprocess
import sys
import unittest

import case

PROGRAM = os.path.abspath(sys.argv.pop(1))
ZERO = [120, 31.4, 16.6, 1.9, 15.6]  # GB: stages 0 to 3 of 7.5B on 64 GPUs, 1T on 1,024


class Papers(case.Case):
    def run_verb(self, *args):
        return subprocess.run([PROGRAM, 'plan', *args], capture_output=True, text=True, timeout=30)

    def cells(self, name):
        done = self.run_verb('--paper', name, '--json')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        told = json.loads(done.stdout)
        self.assertEqual(told['paper'], name)
        return told['cells']

    def is_off(self, cell, value):
        return {'is': abs(value - cell['paper']) > 0.02 * cell['paper'],
                'at most': value > cell['paper'], 'at least': value < cell['paper']}[cell['says']]

    def test_zero_s_cells_are_the_paper_s_by_its_bytes(self):
        cells = self.cells('zero-1')
        self.assertEqual([cell['paper'] for cell in cells], ZERO)
        for cell in cells:
            self.assertLess(abs(cell['by_its_bytes'] - cell['paper']), 0.06)
        ours = [14 * 7.5, 4 * 7.5 + 10 * 7.5 / 64, 2 * 7.5 + 12 * 7.5 / 64, 14 * 7.5 / 64,
                14e3 / 1024]
        for cell, here in zip(cells, ours):
            self.assertAlmostEqual(cell['here'], here, places=6)

    def test_each_paper_is_met_by_its_own_bytes(self):
        for name in ('zero-1', 'offload-2', 'infinity-1', 'infinity-3', 'bloom-1'):
            for cell in self.cells(name):
                self.assertFalse(self.is_off(cell, cell['by_its_bytes']), cell)

    def test_what_is_further_off_says_why(self):
        marked = 0
        for name in ('zero-1', 'offload-2', 'infinity-1', 'infinity-3', 'bloom-1'):
            cells = self.cells(name)
            text = self.run_verb('--paper', name).stdout
            for cell in cells:
                off = self.is_off(cell, cell['here'])
                self.assertEqual(bool(cell['why']), off, cell)
                line = next(line for line in text.split('\n') if line.startswith(cell['what']))
                self.assertEqual('*' in line, off, line)
                self.assertIn(f' {cell["by_its_bytes"]:.4g} ', line)
                marked += off
                if off:
                    self.assertIn('\n* more than 2 % off: ' + cell['why'] + '\n', text)
        self.assertEqual(marked, 4)

    def test_bandwidth_gives_the_efficiency_that_the_paper_asks_for(self):
        weights, states, activations = self.cells('infinity-3')
        for cell, flop_per_byte, rate in ((weights, 1024, 70e9), (states, 512, 1.5e12),
                                          (activations, 24 * 2048, 2e9)):
            fed = flop_per_byte * rate
            self.assertAlmostEqual(cell['by_its_bytes'], 100 * fed / (fed + 70e12), places=5)
        here = 8 * 2 * 1024 / (2 * 14) * 1.5e12  # states, weights, gradients in bf16, each way
        self.assertAlmostEqual(states['here'], 100 * here / (here + 70e12), places=5)
        self.assertIn('14 bytes each way, not 16', states['why'])

    def test_drives_hold_twenty_bytes_of_a_parameter(self):
        for cell in self.cells('infinity-1'):
            self.assertEqual((cell['by_its_bytes'], cell['here']), (20, 14))
        self.assertEqual([cell['by_its_bytes'] for cell in self.cells('offload-2')], [26])

    def test_what_is_refused(self):
        self.assert_refused(self.run_verb('--paper=infinity-2a'), 402, 2,
                            'Fix: zero-1, offload-2, infinity-1, infinity-3 or bloom-1')
        for more in ('--model=8B', '--html=page', '--save-rates=rates', '--probe', '--tokens=5',
                     '--world=2', '--dram=1G', '--seq-len=16', '--options=file'):
            done = self.run_verb('--paper=zero-1', more)
            self.assert_refused(done, 402, 2, f'{more.split("=")[0]} changes nothing in the table')
            self.assertEqual(done.stdout, '')
        self.assert_refused(self.run_verb('--json'), 403, 2, '--model')


if __name__ == '__main__':
    unittest.main()
