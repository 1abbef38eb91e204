#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hoistway bench comm`: what it prints, not how fast anything is.

    bench.py HOISTWAY PLUGIN_FOLDER [TEST...]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, FOLDER = sys.argv[1:3]
CASES = ['exchange f32, shared memory', 'exchange f32, messages', 'exchange bf16, messages',
         'gather, shared memory', 'gather, messages']
KEYS = {'bench', 'case', 'value', 'unit', 'ceiling', 'fraction', 'ceiling_name', 'ratio',
        'ratio_least', 'ratio_most', 'ranks', 'nodes', 'bytes', 'transport'}


def run(*options, ranks=0, verb=('bench', 'comm'), **variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(('OMPI_', 'PMI'))}
    root = ['--allow-run-as-root'] if os.geteuid() == 0 else []
    mpirun = ['mpirun', *root, '--oversubscribe', '--bind-to', 'none', '-n', str(ranks)]
    return subprocess.run(
        [*(mpirun if ranks else []), PROGRAM, *verb, *options], capture_output=True, text=True,
        timeout=100, env={**kept, 'HOISTWAY_PLUGIN_PATH': FOLDER, **variables})


class Bench(unittest.TestCase):
    def needs_mpi(self):
        if not shutil.which('mpirun') or not os.path.exists(f'{FOLDER}/libhoistway-mpi.so'):
            self.skipTest('Open MPI is not installed, or its transport was not built')

    def test_each_case_is_one_object(self):
        self.needs_mpi()
        done = run('--json', '--size', '100K', '--pairs', '3', ranks=3)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([row['case'] for row in rows], CASES)
        for row in rows:
            self.assertEqual(set(row), KEYS)
            self.assertEqual((row['bench'], row['ranks'], row['nodes']), ('comm', 3, 1))
            self.assertEqual(row['bytes'], 3 * 3 * 16384)  # blocks of 4,096 f32 for each rank
            self.assertTrue(row['ratio_least'] <= row['ratio'] <= row['ratio_most'])
            self.assertGreater(row['value'], 0)
            self.assertGreater(row['ceiling'], 0)

    def test_rank_0_prints_a_table(self):
        self.needs_mpi()
        done = run('--size', '1M', '--pairs', '1', ranks=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r'^comm: 2 ranks on 1 node, 1\.0 MiB of f32, Open MPI v')
        self.assertEqual([line[:28].rstrip() for line in lines[2:]], CASES)

    def test_its_rates_are_those_that_a_plan_reads(self):
        self.needs_mpi()
        with tempfile.TemporaryDirectory() as folder:
            rates = os.path.join(folder, 'net.rates')
            done = run('--size', '1M', '--pairs', '1', '--save-rates', rates, ranks=2)
            self.assertEqual(done.returncode, 0, done.stderr)
            plan = subprocess.run(
                [PROGRAM, 'plan', '--model', '1B', '--world', '2', '--net-rates', rates,
                 '--dram', '64G', '--rates', rates, '--json'],
                capture_output=True, text=True, timeout=100)
            self.assertEqual(plan.returncode, 0, plan.stderr)
            told = json.loads(plan.stdout)
            self.assertIn("the computation's rates", told['why'])
            for name in ('net-gather', 'net-exchange', 'net-operations'):
                self.assertGreater(told['rates'][name], 0)
                self.assertTrue(0 <= told['rate_ages_s'][name] < 1000, told['rate_ages_s'])
            self.assertIsNone(told['rates']['net-between'])
            other = os.path.join(folder, 'other')
            with open(other, 'w', encoding='ascii') as file:
                file.write('mine')
            done = run('--size', '1M', '--pairs', '1', '--save-rates', other, ranks=2)
            self.assertIn('E107', done.stderr)
            with open(other, encoding='ascii') as file:
                self.assertEqual(file.read(), 'mine')

    def test_what_can_not_be_joined_is_told(self):
        for code, status, why, variables in (
                (502, 1, 'one rank has nobody', {}),
                (501, 2, 'OMPI_COMM_WORLD_RANK is not set', {'OMPI_COMM_WORLD_SIZE': '2'}),
                (501, 2, 'torchrun started 2 ranks, which MPI does not know of',
                 {'WORLD_SIZE': '2', 'RANK': '0', 'LOCAL_RANK': '0'}),
                (502, 1, 'ranks cannot be joined: [^\n]* PMI_SIZE is 2: this process was not ',
                 {'PMI_SIZE': '2', 'PMI_RANK': '0'}),
                (502, 1, 'ranks cannot be joined: no libhoistway-mpi.so in',
                 {'PMI_SIZE': '2', 'PMI_RANK': '0', 'HOISTWAY_PLUGIN_PATH': '/nonexistent'})):
            with self.subTest(why=why):
                if 'PMI_SIZE' in why:
                    self.needs_mpi()
                if 'no lib' in why and os.path.exists(os.path.join(
                        os.path.dirname(PROGRAM), '../engine/libhoistway-mpi.so')):
                    continue  # it is found beside the library
                done = run(**variables)
                self.assertEqual((done.returncode, done.stdout), (status, ''))
                self.assertRegex(done.stderr, rf'^error\[E{code}\] .*{why}')
                self.assertEqual(done.stderr.count('Fix: '), 1)

    def test_doctor_of_ranks_that_cannot_be_joined_tells_the_same(self):
        for code, status, why, variables in (
                (501, 2, 'OMPI_COMM_WORLD_RANK is not set', {'OMPI_COMM_WORLD_SIZE': '2'}),
                (501, 2, 'torchrun started 2 ranks, which MPI does not know of',
                 {'WORLD_SIZE': '2', 'RANK': '0', 'LOCAL_RANK': '0'})):
            with self.subTest(why=why):
                done = run(verb=('doctor',), **variables)
                self.assertEqual((done.returncode, done.stdout), (status, ''))
                self.assertRegex(done.stderr, rf'^error\[E{code}\] .*{why}')

    def test_options(self):
        for option in ('--pairs=0', '--pairs=102', '--size=2GiB'):
            self.assertIn('E402', run(option).stderr)
        self.assertIn('--size', run('--help').stdout)


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
