#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the demo says: what it trains, the same bytes, and no path of what it has removed.

    demo.py PATH_OF_HOISTWAY
"""
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


class Demo(unittest.TestCase):
    def test_it_says_what_it_trains_and_names_nothing_that_is_gone(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([PROGRAM, 'demo', '--dir', folder], capture_output=True,
                                  text=True, timeout=280, check=False)
            self.assertEqual((done.returncode, os.listdir(folder)), (0, []), done.stderr)
        first = ' '.join(done.stdout.split('\n\n')[0].split())
        for part in ('a Llama of 3.3 M parameters', 'random weights', 'licence', '30 steps'):
            self.assertIn(part, first)
        self.assertIn('bit-identical to the all-in-RAM run: yes', done.stdout)
        notes = [line for line in done.stderr.splitlines() if not line.startswith('warning[')]
        self.assertNotIn(folder, done.stdout + '\n'.join(notes))


if __name__ == '__main__':
    unittest.main()
