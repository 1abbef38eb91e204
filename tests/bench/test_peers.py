#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peers.py, whose rows nobody reads until they are published: its `--smoke` beside a peer that
tells a time and trains nothing, and where there is none.

    test_peers.py PATH_OF_HOISTWAY
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.abspath(sys.argv.pop(1))
PEER = """#!/bin/sh
case $* in
*importlib.metadata*) echo '{"torch": "9.8.7"}' ;;
*deepspeed-fp32*) echo 'no module named deepspeed' >&2; exit 1 ;;
*) echo 'a word before'; echo '{"step_s": 1e-3}' ;;
esac
"""


class Peers(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.abspath(scratch.name)

    def path(self, name):
        return os.path.join(self.folder, name)

    def rows(self, python):
        """-> {name: row} of the file, and what is printed."""
        done = subprocess.run([sys.executable, os.path.join(HERE, 'peers.py'), PROGRAM, python,
                               '--smoke', '--folder', self.folder, '--json', self.path('rows')],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ''), done.stdout)
        with open(self.path('rows'), encoding='utf-8') as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual(os.listdir(self.folder).count('rows'), 1)
        self.assertEqual([row['row'] for row in rows],
                         ['fp32', 'bf16', 'bf16-own', 'nvme', '1.1b'])
        for row in rows:  # whoever ran in it
            self.assertRegex(row['hoistway'], r'^\d+\.\d+\.\d+$')
            self.assertRegex(row['commit'] or '', r'^([0-9a-f]{8,}\+?)?$')
            self.assertRegex(row['date'], r'^\d{4}-\d\d-\d\d$')
            self.assertGreaterEqual(row['load'], 0)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith('hst-')], [])
        return {row['row']: row for row in rows}, done.stdout

    def test_each_row_has_versions_and_times(self):
        with open(self.path('peer'), 'w', encoding='utf-8') as file:
            file.write(PEER)
        os.chmod(self.path('peer'), 0o755)
        rows, text = self.rows(self.path('peer'))
        for row in rows.values():
            self.assertEqual((row['torch'], row['deepspeed']), ('9.8.7', None), row)
        for name in ('fp32', 'bf16'):
            row = rows[name]
            self.assertEqual((row['pairs'], row['other_step_s']), (1, 1e-3))
            self.assertAlmostEqual(row['ratio'], row['step_s'] / 1e-3)
            self.assertRegex(text, rf'(?m)^{name} .* beside torch 9\.8\.7$')
        self.assertRegex(text, r'(?m)^bf16-own .* beside fp32 of ours$')
        self.assertGreater(rows['bf16-own']['other_step_s'], 0)
        self.assertIn('deepspeed-fp32 does not run: no module named', rows['nvme']['skipped'])
        self.assertGreater(rows['1.1b']['predicted_step_s'], 0)

    def test_without_peers_rows_that_need_them_are_left_out(self):
        rows, text = self.rows(self.path('nowhere'))
        for name, row in rows.items():
            self.assertEqual((row['torch'], row['deepspeed']), (None, None))
            self.assertEqual('skipped' in row, name in ('fp32', 'bf16', 'nvme'))
        self.assertEqual(len(re.findall('skipped: .*nowhere does not run', text)), 3)


if __name__ == '__main__':
    unittest.main()
