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
ONLY = {'fp32': 'fp32', 'bf16': 'bf16', 'bf16-moments': 'bf16, bf16 moments',
        '8-bit-moments': 'bf16, 8-bit moments', 'fp16': 'fp16'}
# bytes that lie in memory for an element, scales of codes left out
HELD = {'fp32': 16, 'bf16': 14, 'bf16, bf16 moments': 10, 'bf16, 8-bit moments': 8, 'fp16': 16,
        'bf16, lion': 10, 'bf16, sgd': 10, 'bf16, adagrad': 10}
NULLS = ['null', 'null, prefetching', 'null, into the second cache']
NORM_BLOCK = 4096
FORMATS = {'fp32': 28, 'bf16': 26, 'bf16, bf16 moments': 18, 'bf16, 8-bit moments': 14, 'fp16': 28,
           'bf16, lion': 18, 'bf16, sgd': 18, 'bf16, adagrad': 18}


def bench(*args, elements=20000, rounds=2):
    return subprocess.run([PROGRAM, 'bench', 'adam', '--elements', str(elements),
                           '--rounds', str(rounds), *args],
                          capture_output=True, text=True, timeout=120)


def rows(*args, **more):
    done = bench('--json', *args, **more)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def half_of_cache():
    """Half of the second-level cache as the system tells it, which may tell none."""
    told = subprocess.run(['getconf', 'LEVEL2_CACHE_SIZE'], capture_output=True, text=True).stdout
    return max(int(told) if told.strip().isdigit() else 0, 256 << 10) // 2


class BenchAdam(unittest.TestCase):
    def test_each_format_stands_beside_null_kernels_of_its_own_traffic(self):
        found = rows('--threads', '2')
        for name, size in FORMATS.items():
            for threads in (1, 2):
                group = {r['case'].split(': ')[1]: r for r in found
                         if r['case'].split(': ')[0] == name and r['threads'] == threads}
                self.assertEqual({r['bytes_per_element'] for r in group.values()}, {size})
                self.assertIsNone(group['null']['over_null'])
                self.assertEqual([name for name in group if name.startswith('null')], NULLS)
                for other in (*NULLS[1:], 'not prefetching'):
                    self.assertIsNotNone(group[other]['over_null'])
                most = max(group[null]['value'] for null in NULLS)
                self.assertEqual({r['ceiling'] for r in group.values()}, {most})
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

    def test_an_update_stands_beside_itself_in_the_cache(self):
        for row in rows('--threads', '2', '--peer', GOOD_PEER):
            group, name = row['case'].split(': ')
            other = 'null' in name or 'peer' in name
            self.assertEqual(row['cached_ns_per_element'] is None, other, row['case'])
            self.assertEqual(row['over_larger'] is None, other, row['case'])
            most = half_of_cache() // HELD[group]
            self.assertEqual(row['cached_elements'], 0 if other else most - most % NORM_BLOCK)

    def test_the_larger_of_null_and_cache_is_that_of_a_round(self):
        found = rows('--threads', '2', rounds=1)
        nulls = {(row['case'].split(': ')[0], row['threads']): row['ns_per_element'][1]
                 for row in found if row['case'].endswith(': null')}
        larger = set()
        for row in found:
            if row['over_larger']:
                null = nulls[row['case'].split(': ')[0], row['threads']]
                cached = row['cached_ns_per_element'][1]
                self.assertAlmostEqual(
                    row['over_larger'][1] * max(null, cached) / row['ns_per_element'][1], 1, 6)
                larger.add(null > cached)
        self.assertIn(False, larger)  # plain C computes for longer than anything is moved

    def test_a_turn_in_the_cache_counts_each_repetition(self):
        for row in rows('--threads', '1', '--only', '8-bit-moments', elements=2000000, rounds=9):
            if row['cached_elements'] and row['cached_elements'] < 200000 and not row['note']:
                # ten times or more, and no slower than beyond the cache
                self.assertLess(row['cached_ns_per_element'][0], 3 * row['ns_per_element'][0])

    def test_one_format_is_measured_alone(self):
        for only, group in ONLY.items():
            found = {row['case'].split(': ')[0] for row in rows('--threads', '1', '--only', only)}
            self.assertEqual(found, {group})
        found = {row['case'].split(': ')[0] for row in rows('--threads', '1', '--only', 'others')}
        self.assertEqual(found, {'bf16, lion', 'bf16, sgd', 'bf16, adagrad'})
        done = bench('--only', 'fp33')
        self.assertEqual((done.returncode, done.stdout), (2, ''))
        self.assertIn('error[E402]', done.stderr)

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
        self.assertRegex(done.stdout,
                         r'(?m)^  not prefetching .* ns in cache .* of null .* of larger \[')

    def test_a_peer_that_computes_something_else_is_refused(self):
        for path, why in ((WRONG_PEER, 'does not compute AdamW'), ('/nowhere.so', 'opened'),
                          ('libm.so.6', 'does not export')):
            done = bench('--peer', path)
            self.assertEqual((done.returncode, done.stdout), (2, ''))
            self.assertIn('error[E402] --peer', done.stderr)
            self.assertIn(why, done.stderr)


if __name__ == '__main__':
    unittest.main()
