#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hoistway bench layer` on a tiny layer: what it prints, not how fast anything is. With a double
of the CUDA device also what is told of a GPU: its clock, as an nvidia-smi that is made here has it.

    layer.py PATH_OF_HOISTWAY [FOLDER_OF_THE_DOUBLE]
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

DOUBLE = os.path.abspath(sys.argv.pop()) if len(sys.argv) > 2 else ''
PROGRAM = os.path.abspath(sys.argv.pop())
BUDGET = "budget of the GPU's memory: the usual --hbm"
SMI = '#!/bin/sh\nprintf "%s\\n" "$*" >>"$0.asked"\n'


def bench(*args, env=None):
    if DOUBLE:
        env = {'HOISTWAY_PLUGIN_PATH': DOUBLE, 'HOISTWAY_CUDA_PATH': DOUBLE, **(env or {})}
    return subprocess.run([PROGRAM, 'bench', 'layer', *args], capture_output=True, text=True,
                          timeout=120, check=False, env={**os.environ, **(env or {})})


def rows(*args, env=None):
    done = bench('--smoke', '--json', *args, env=env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def phases(told):
    found = []
    for row in told:
        at = (row['phase'], row['seq'])
        if at not in found:
            found.append(at)
    return found


class BenchLayer(unittest.TestCase):
    def check_rows(self, told):
        self.assertEqual(len({row['case'] for row in told}), len(told))
        for row in told:
            self.assertEqual(row['bench'], 'layer')
            self.assertEqual(row['timed_by'], 'events of the device')
            self.assertTrue(row['least_s'] <= row['seconds'] <= row['most_s'], row)
            if row['operation'] is None:
                self.assertEqual(row['unit'], 's')
                self.assertEqual(row['value'], row['seconds'])
                ratio = row['ceiling'] / row['value']
            else:
                amount = row['flops'] if row['unit'] == 'FLOP/s' else row['bytes']
                self.assertAlmostEqual(row['value'] * row['seconds'] / amount, 1, 6)
                ratio = row['value'] / row['ceiling']
            self.assertAlmostEqual(row['fraction'] / ratio, 1, 6)
        for phase in phases(told):
            mine = [row for row in told if (row['phase'], row['seq']) == phase]
            self.assertEqual([row['operation'] is None for row in mine],
                             [False] * (len(mine) - 1) + [True])
            for key in ('times', 'bytes', 'flops'):
                self.assertEqual(sum(row[key] for row in mine[:-1]), mine[-1][key])

    def test_each_phase_has_its_operations_and_their_sum(self):
        told = rows('--device', 'host')
        self.assertEqual(phases(told), [('forward', 16), ('backward', 16), ('forward', 64),
                                        ('backward', 64), ('head', None)])
        self.check_rows(told)
        first = [row['operation'] for row in told if row['phase'] == 'forward' and row['seq'] == 16]
        self.assertEqual(first, [
            'rmsnorm 64x64', 'product 64x128x64', 'product 64x64x64, 2 at once', 'rope 64x2x64',
            'rope 64x1x64', 'attention 4x16, heads 2/1 of 64', 'product 64x64x128',
            'rmsnorm, residual 64x64', 'product 64x96x64, 2 at once', 'swiglu 6144',
            'product 64x64x96', 'add 4096', None])
        products = {row['operation']: row['times'] for row in told
                    if row['phase'] == 'backward' and row['seq'] == 16
                    and 'product' in (row['operation'] or '')}
        self.assertEqual(sum(times for name, times in products.items() if ', dX' not in name), 9)
        self.assertEqual(sum(products.values()), 16)

    def test_tokens_and_sequences_are_those_asked_for(self):
        told = rows('--device', 'host', '--tokens', '24', '--seq', '12,3,24', '--precision', 'fp32')
        self.assertEqual([seq for phase, seq in phases(told) if phase == 'forward'], [12, 3, 24])
        self.assertIn('attention 8x3, heads 2/1 of 64', [row['operation'] for row in told])
        self.assertEqual({row['operation'] for row in told if 'cast' in (row['operation'] or '')},
                         set())

    def test_a_model_has_the_operations_of_its_kind(self):
        named = {model: sum(row['times'] for row in rows('--device', 'host', '--model', model)
                            if (row['operation'] or '').startswith('rmsnorm '))
                 for model in ('8b', 'qwen3-14b')}
        self.assertEqual(named['qwen3-14b'] - named['8b'], 2 * (2 + 4))

    def test_text_is_told_in_lines_below_a_heading(self):
        done = bench('--smoke', '--device', 'host')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        lines = done.stdout.splitlines()
        self.assertIn("device host, a tiny layer: these figures measure nothing", lines[0])
        self.assertIn("seconds by the device's events", lines[0])
        self.assertEqual([line for line in lines[1:] if not line.startswith('  ')],
                         ['forward, sequences of 16', 'backward, sequences of 16',
                          'forward, sequences of 64', 'backward, sequences of 64', 'head'])
        self.assertNotIn('clock', done.stdout)

    def test_what_makes_no_sense_is_refused(self):
        for args, words in ((('--seq', '7'), 'no whole sequences of --seq 7'),
                            (('--seq', '16,'), 'no list'), (('--seq', '0'), 'no list'),
                            (('--seq', '-16'), 'no list'), (('--seq', '16;32'), 'no list'),
                            (('--seq', ','.join(['16'] * 9)), 'no list'),
                            (('--seq', '99999999999999999999999'), 'no list'),
                            (('--model', '9b'), 'no known model'),
                            (('--precision', 'fp8'), 'bf16')):
            done = bench('--smoke', '--device', 'host', *args)
            self.assertEqual((done.returncode, done.stdout), (2, ''), args)
            self.assertRegex(done.stderr, rf'^error\[E402\] .*{re.escape(words)}')
            self.assertEqual(done.stderr.count('\n'), 1)
        done = bench('--smoke', '--device', 'nothing')
        self.assertEqual(done.returncode, 1)
        self.assertIn('error[E201] device "nothing" cannot be opened', done.stderr)


@unittest.skipUnless(DOUBLE, 'no double of a CUDA device was built')
class OnTheDouble(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.smi = os.path.join(self.folder.name, 'nvidia-smi')

    def put(self, script):
        with open(self.smi, 'w', encoding='utf-8') as file:
            file.write(SMI + script)
        os.chmod(self.smi, 0o755)
        return {'PATH': self.folder.name + os.pathsep + os.environ['PATH']}

    def told(self, env):
        told = rows('--device', 'cuda:0', '--tokens', '16', '--seq', '16', env=env)
        clocks = [row for row in told if row['unit'] == 'Hz']
        self.assertEqual([told[1], told[-1]], clocks)
        self.assertEqual([row['case'] for row in clocks], ['SM clock before', 'SM clock after'])
        self.assertEqual((told[0]['case'], told[0]['unit']), (BUDGET, 'B'))
        return told[2:-1], clocks

    def test_attention_is_timed_with_the_budget_that_training_has(self):
        for free_gib, budget_gib in ((32, 28.8), (4, 3.5)):  # nine tenths; all but 512 MiB
            env = {'HST_FAKE_CUDA': f'memory={free_gib}G'}
            usual = round(budget_gib * 2**30)
            told = rows('--device', 'cuda:0', '--tokens', '16', '--seq', '16', env=env)[0]
            self.assertEqual(told['case'], BUDGET)
            self.assertAlmostEqual(told['value'] / usual, 1, 6)
            done = subprocess.run(
                [PROGRAM, 'bench', 'kernels', '--smoke', '--json', '--device', 'cuda:0', '--only',
                 'attention'], capture_output=True, text=True, timeout=120, check=True,
                env={**os.environ, 'HOISTWAY_PLUGIN_PATH': DOUBLE, 'HOISTWAY_CUDA_PATH': DOUBLE,
                     **env})
            told = [row for row in map(json.loads, done.stdout.splitlines())
                    if row['case'] == BUDGET]
            self.assertEqual([(row['group'], row['unit']) for row in told], [('attention', 'B')])
            self.assertAlmostEqual(told[0]['value'] / usual, 1, 6)

    def test_what_is_beyond_that_budget_is_refused_though_the_card_has_it(self):
        env = {'HST_FAKE_CUDA': 'memory=64M'}  # of which 32 are the budget
        done = bench('--smoke', '--device', 'cuda:0', '--tokens', '8192', '--seq', '16', env=env)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn('budget of the GPU\'s memory: 32.0 MiB, the usual --hbm', done.stdout)
        self.assertRegex(done.stderr, r'^error\[E201\] .*No space left')  # not the card's word

    def test_a_gpu_tells_the_same_operations_and_its_clock(self):
        told, clocks = self.told(self.put('echo 345, 1980\n'))
        BenchLayer.check_rows(self, told)
        host = rows('--device', 'host', '--tokens', '16', '--seq', '16')
        self.assertEqual([row['case'] for row in told], [row['case'] for row in host])
        self.assertEqual([row['flops'] for row in told], [row['flops'] for row in host])
        for row in clocks:
            self.assertEqual((row['value'], row['ceiling'], row['note']), (345e6, 1980e6, None))
        with open(self.smi + '.asked', encoding='utf-8') as file:
            asked = file.read().splitlines()
        self.assertEqual(len(asked), 2)
        self.assertRegex(asked[0], r'clocks\.sm,clocks\.max\.sm .*-i [0-9a-f:.]+$')

    def test_a_clock_that_is_not_told_is_not_known(self):
        for script in ('echo "[N/A], [N/A]"\n', 'exit 9\n', 'echo 345\n'):
            clocks = self.told(self.put(script))[1]
            for row in clocks:
                self.assertEqual((row['value'], row['fraction'], row['note']),
                                 (None, None, 'not known'), script)
        done = bench('--smoke', '--device', 'cuda:0', '--tokens', '16', '--seq', '16',
                     env=self.put('exit 1\n'))
        self.assertIn('\nSM clock before: not known\n', done.stdout)


if __name__ == '__main__':
    unittest.main()
