#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hoistway bench adam` on a few thousand parameters: what it prints, not how fast it is.

    adam.py PATH_OF_HOISTWAY GOOD_PEER.so WRONG_PEER.so
"""
import json
import subprocess
import sys
import unittest

WRONG_PEER, GOOD_PEER, PROGRAM = sys.argv.pop(), sys.argv.pop(), sys.argv.pop()
FORMATS = {'fp32': 28, 'bf16': 26, 'bf16, bf16 moments': 18, 'bf16, 8-bit moments': 14, 'fp16': 28,
           'bf16, lion': 18, 'bf16, sgd': 18, 'bf16, adagrad': 18}


def bench(*args):
    return subprocess.run([PROGRAM, 'bench', 'adam', '--elements', '20000', '--rounds', '2', *args],
                          capture_output=True, text=True, timeout=120)


def rows(*args):
    done = bench('--json', *args)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class BenchAdam(unittest.TestCase):
    def test_each_format_stands_beside_null_kernels_of_its_own_traffic(self):
        found = rows('--threads', '2')
        for name, size in FORMATS.items():
            for threads in (1, 2):
                group = {r['case'].split(': ')[1]: r for r in found
                         if r['case'].split(': ')[0] == name and r['threads'] == threads}
                self.assertEqual({r['bytes_per_element'] for r in group.values()}, {size})
                self.assertIsNone(group['null']['over_null'])
                self.assertIsNotNone(group['null, prefetching']['over_null'])
                self.assertIsNotNone(group['not prefetching']['over_null'])
                self.assertEqual(max(group['null']['fraction'],
                                     group['null, prefetching']['fraction']), 1)
                self.assertEqual('c' in group, threads == 2)
        self.assertIn('fp32: arrays at multiples of 4 KiB', [r['case'] for r in found])

    def test_a_row_is_what_its_numbers_say(self):
        for row in rows('--threads', '1'):
            self.assertEqual(row['bench'], 'adam')
            self.assertEqual(row['unit'], 'B/s')
            least, median, most = row['ns_per_element']
            self.assertTrue(0 < least <= median <= most)
            self.assertAlmostEqual(row['value'] * median * 1e-9 / row['bytes_per_element'], 1, 6)
            self.assertAlmostEqual(row['fraction'], row['value'] / row['ceiling'], 6)
            self.assertIsNone(row['over_peer'])

    def test_a_peer_is_compared_with(self):
        found = {(r['case'], r['threads']): r for r in rows('--threads', '2', '--peer', GOOD_PEER)}
        self.assertIn(('fp32: peer', 2), found)
        self.assertIn(('bf16: cast, peer, cast', 2), found)
        for (case, threads), row in found.items():
            compared = threads == 2 and case.startswith(('fp32', 'bf16:')) and not (
                'null' in case or 'peer' in case)
            self.assertEqual(row['over_peer'] is not None, compared, case)

    def test_without_a_peer_it_says_so(self):
        done = bench('--threads', '1')
        self.assertEqual(done.returncode, 0)
        self.assertIn('peer: not measured', done.stdout)
        self.assertIn('fp16, 1 thread, 28 bytes per parameter', done.stdout)

    def test_a_peer_that_computes_something_else_is_refused(self):
        for path, why in ((WRONG_PEER, 'does not compute AdamW'), ('/nowhere.so', 'opened'),
                          ('libm.so.6', 'does not export')):
            done = bench('--peer', path)
            self.assertEqual((done.returncode, done.stdout), (2, ''))
            self.assertIn('error[E402] --peer', done.stderr)
            self.assertIn(why, done.stderr)


if __name__ == '__main__':
    unittest.main()
