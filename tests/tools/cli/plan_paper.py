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
GPT = 12  # squares of a layer's hidden size
# What each source prints, typed once more: the figure, whether it is that, a most or a least, its
# unit, where it stands; and what its own bytes of a parameter make of it, which is computed here.
PUBLISHED = {
    'zero-1': [(120, 'is', 'GB', 'figure 1', 16 * 7.5),
               (31.4, 'is', 'GB', 'figure 1', 4 * 7.5 + 12 * 7.5 / 64),
               (16.6, 'is', 'GB', 'figure 1', 2 * 7.5 + 14 * 7.5 / 64),
               (1.9, 'is', 'GB', 'figure 1', 16 * 7.5 / 64),
               (15.6, 'is', 'GB', 'table 1', 16e3 / 1024)],
    'offload-2': [(32, 'at most', 'GB', 'abstract', 2 * 13)],  # a V100
    'infinity-1': [(30, 'at most', 'TB', 'abstract', 20),  # the drives of a DGX-2
                   (30, 'at most', 'TB', 'section 8.2', 20 * 32 / 32)],
    'infinity-2a': [(800 * 0.032, 'at most', 'TB', 'abstract', 20),
                    (8000 * 0.032, 'at most', 'TB', 'slides, SC21', 200),
                    (30, 'at most', 'TB', 'section 5.1.1', 2000 / 96)],
    'infinity-3': [(50, 'at least', '%', 'section 4', 100 / (1 + 70e12 / (1024 * 70e9))),
                   (90, 'is', '%', 'section 4', 100 / (1 + 70e12 / (1024 * 2 / 4 * 1.5e12))),
                   (50, 'at least', '%', 'section 4', 100 / (1 + 70e12 / (24 * 2048 * 2e9)))],
    't-nlg-1': [(17, 'is', 'B', 'announcement', GPT * 78 * 4256 ** 2 / 1e9)],
    'bloom-1': [(176.247271424, 'is', 'B', 'table 3',
                 (GPT * 70 * 14336 + 250880) * 14336 / 1e9),
                (329, 'is', 'GiB', 'its page', 2 * 176.247271424e9 / 2 ** 30),
                (2.3, 'is', 'TiB', 'its page', (2 + 12) * 176.247271424e9 / 2 ** 40)],
    'mt-nlg-1': [(530, 'is', 'B', 'abstract', GPT * 105 * 20480 ** 2 / 1e9),
                 (10, 'at least', 'TB', 'section 2.1', 20 * 0.53),
                 (16.9, 'is', 'TB', 'section 2.1', 2 * 1920 * 2048 * 20480 * 105 / 1e12),
                 (8.8, 'is', 'GB', 'section 2.1', 2 * 2048 * 20480 * 105 / 1e9)],
}
# The cells that a run here, or their own bytes, are more than 2 % off.
MARKED = {('zero-1', 0), ('zero-1', 3), ('zero-1', 4), ('infinity-3', 1), ('bloom-1', 2),
          ('mt-nlg-1', 1)}
NAMES = ('zero-1', 'offload-2', 'infinity-1', 'infinity-2a', 'infinity-3', 't-nlg-1', 'bloom-1',
         'mt-nlg-1')
ROUND = 'two digits'  # a cell that its own bytes do not meet, and why


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
        for name in NAMES:
            for cell in self.cells(name):
                off = self.is_off(cell, cell['by_its_bytes'])
                self.assertEqual(off, bool(cell['why']) and ROUND in cell['why'], cell)
                self.assertTrue(cell['from'], cell)

    def test_each_cell_is_what_its_source_prints(self):
        self.assertEqual(set(PUBLISHED), set(NAMES))
        for name, published in PUBLISHED.items():
            cells = self.cells(name)
            self.assertEqual(len(cells), len(published), name)
            for cell, (figure, says, unit, source, own) in zip(cells, published):
                self.assertAlmostEqual(cell['paper'], figure, delta=1e-5 * figure, msg=cell)
                self.assertEqual((cell['says'], cell['unit'], cell['from']), (says, unit, source))
                self.assertAlmostEqual(cell['by_its_bytes'], own, delta=1e-5 * own, msg=cell)

    def test_what_is_further_off_says_why(self):
        marked = set()
        for name in NAMES:
            cells = self.cells(name)
            text = self.run_verb('--paper', name).stdout
            for at, cell in enumerate(cells):
                off = self.is_off(cell, cell['here'])
                self.assertEqual(bool(cell['why']), off, cell)
                line = next(line for line in text.split('\n') if line.startswith(cell['what']))
                self.assertEqual('*' in line, off, line)
                self.assertRegex(line, rf' {cell["by_its_bytes"]:.4g}[ *]')
                if off:
                    marked.add((name, at))
                    self.assertIn('\n* more than 2 % off: ' + cell['why'] + '\n', text)
        self.assertEqual(marked, MARKED)

    def test_the_list_has_all_papers(self):
        done = self.run_verb('--paper', 'list')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertEqual(tuple(line.split()[0] for line in done.stdout.splitlines()), NAMES)

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
        for cell, held in zip(self.cells('infinity-2a'), (20, 200, 2000 / 96)):
            self.assertAlmostEqual(cell['by_its_bytes'], held, places=5)

    def test_gpts_have_as_many_parameters_as_their_papers_say(self):
        sizes = {name: self.cells(name)[0] for name in ('t-nlg-1', 'bloom-1', 'mt-nlg-1')}
        for (name, cell), (layers, hidden, vocab) in zip(
                sizes.items(), ((78, 4256, 0), (70, 14336, 250880), (105, 20480, 0))):
            params = hidden * (12 * layers * hidden + vocab) / 1e9
            self.assertAlmostEqual(cell['by_its_bytes'], params, places=5, msg=name)
        moved = self.cells('mt-nlg-1')[2:]
        each = 2 * 2048 * 20480 * 105
        self.assertAlmostEqual(moved[0]['here'], 1920 * each / 1e12, places=6)
        self.assertAlmostEqual(moved[1]['here'], each / 1e9, places=6)

    def accounted(self, *args, status=0, wide=0, narrow='in bf16'):
        """wide: the ways of a node's sum, which cross in f32; 0: they cross as narrow says."""
        done = self.run_verb('--json', '--accounting=paper', *args)
        note = f'note[I508] sums of gradients cross nodes in f32, not {narrow}: they are of ' \
            f'{wide} ways, and --hop is 8. Other numbers and fewer bytes: --hop {wide}\n'
        self.assertEqual((done.returncode, done.stderr), (status, note if wide else ''))
        return json.loads(done.stdout)

    def test_a_plan_is_accounted_for_as_zero_does(self):
        """The stand-ins have parameters as the papers' models, to a hundredth."""
        given = ('--model=7.5B', '--world=64', '--machine=dgx-2')
        told = self.accounted(*given, wide=16)
        stages = told['accounting']['stages']
        params = told['parameters']
        for stage, paper in zip(stages, ZERO):
            self.assertLess(abs(stage['zero_bytes'] / 1e9 / paper - 1), 0.02, stage)
            self.assertAlmostEqual(stage['infinity_bytes'] - stage['zero_bytes'],
                                   4 * params / (64 if stage['stage'] else 1), delta=params / 1e6)
            sent = 6 if stage['stage'] == 3 else 4
            self.assertAlmostEqual(stage['zero_sent_bytes'], sent * params, delta=params / 1e6)
            # four nodes hand each other sums in f32
            self.assertAlmostEqual(stage['here_sent_bytes'], (sent * 63 + 2 * 3) / 64 * params,
                                   delta=params / 1e6)
        self.assertAlmostEqual(stages[0]['here_bytes'], 14 * params, delta=params / 1e6)
        self.assertAlmostEqual(told['accounting']['flops_per_s'], 8 * params * told['tok_s'] / 64,
                               delta=1e-6 * told['tok_s'] * params)
        plain = json.loads(self.run_verb('--json', *given).stdout)
        self.assertIsNone(plain['accounting'])
        self.assertEqual({**told, 'accounting': None}, plain)
        text = self.run_verb('--accounting=paper', *given).stdout
        self.assertRegex(text, r'(?m)^3 +1\.867 +2\.334 +1\.633 ')
        alone = self.accounted('--model=8B', '--machine=h200')['accounting']['stages']
        self.assertEqual([(stage['zero_sent_bytes'], stage['here_sent_bytes']) for stage in alone],
                         [(0, 0)] * 4)
        most = self.accounted('--model=1T', '--world=1024', '--machine=dgx-h100', status=3)
        last = most['accounting']['stages'][3]
        self.assertLess(abs(last['zero_bytes'] / 1e9 / ZERO[4] - 1), 0.02)
        self.assertIsNone(most['accounting']['flops_per_s'])

    def test_what_a_node_keeps_is_held_and_gathered_within_it(self):
        """ZeRO++, section 3.2, of 8 ranks on 2 nodes."""
        given = ('--model=7.5B', '--world=8', '--nodes=2', '--device=host', '--secondary=node')
        for gather, sent in (('plain', 2), ('int8', 1 + 4 / 512)):
            told = self.accounted(*given, f'--gather={gather}', '--precision=bf16',
                                  '--machine=dgx-2', wide=4)
            params, last = told['parameters'], told['accounting']['stages'][3]
            self.assertAlmostEqual(last['here_bytes'], (14 / 8 + 2 / 4) * params,
                                   delta=params / 1e6)
            self.assertAlmostEqual(last['here_sent_bytes'],
                                   ((2 + sent) * 7 / 8 + 2 / 8 + 2 * 3 / 4) * params,
                                   delta=params / 1e6)
            between = [stage['here_between_bytes'] for stage in told['accounting']['stages']]
            for crossed, each in zip(between, (6, 6, 6, 4 + sent)):
                self.assertAlmostEqual(crossed, each / 8 * params, delta=params / 1e6)
        told = self.accounted(*given[:-1], '--precision=bf16', '--machine=dgx-2', '--hop=4')
        self.assertAlmostEqual(told['accounting']['stages'][3]['here_between_bytes'],
                               6 / 8 * told['parameters'], delta=told['parameters'] / 1e6)

    def test_gradients_that_are_integers_are_sent_as_such(self):
        given = ('--model=7.5B', '--world=8', '--nodes=2', '--device=host', '--precision=bf16',
                 '--machine=dgx-2', '--hop=4')
        for reduce, handed in (('grads', 2), ('f32', 4), ('int8', 1 + 4 / 512),
                               ('int4', 0.5 + 4 / 512)):
            told = self.accounted(*given, f'--reduce={reduce}')
            params, stages = told['parameters'], told['accounting']['stages']
            for stage, weights in enumerate((2, 2, 2, 4)):
                self.assertAlmostEqual(stages[stage]['here_sent_bytes'],
                                       (weights + handed) * 7 / 8 * params, delta=params / 1e6)
                self.assertAlmostEqual(stages[stage]['here_between_bytes'],
                                       (weights + handed) / 8 * params, delta=params / 1e6)

    def test_what_crosses_nodes_is_a_part_of_what_is_sent(self):
        """64 nodes of two, whose sums cross in f32, and a group's part in integers."""
        for reduce, handed, narrow in (('int8', 1 + 4 / 512, 'as integers'),
                                       ('int4', 0.5 + 4 / 512, 'as integers'),
                                       ('grads', 2, 'in bf16')):
            told = self.accounted('--model=7.5B', '--world=128', '--nodes=64', '--device=host',
                                  '--precision=bf16', '--machine=dgx-2', f'--reduce={reduce}',
                                  wide=2, narrow=narrow)
            params, last = told['parameters'], told['accounting']['stages'][3]
            for name, gathers, exchange in (('sent', 127, 64 * handed + 63 * 4),
                                            ('between', 63, 63 * 4)):
                self.assertAlmostEqual(last[f'here_{name}_bytes'],
                                       (4 * gathers + exchange) / 128 * params,
                                       delta=params / 1e6, msg=(reduce, name))

    def test_512_v100_are_predicted_beside_the_paper(self):
        """ZeRO-Infinity tells 49 TFLOPS of each for models that do not fit here (docs/plan.md)."""
        given = ('--world=512', '--machine=dgx-2', '--seq-len=1024', '--batch-tokens=2097152')
        self.accounted('--model=1T', *given, status=3, wide=16)
        told = self.accounted('--model=70B', *given, wide=16)['accounting']['flops_per_s']
        self.assertAlmostEqual(told / 1e12, 66.7, delta=0.1)
        told = self.accounted('--model=70B', *given, '--comm=mpi', wide=16)
        self.assertAlmostEqual(told['accounting']['flops_per_s'] / 1e12, 61.3, delta=0.1)

    def test_what_is_refused(self):
        self.assert_refused(self.run_verb('--paper=infinity-2'), 402, 2,
                            f'Fix: {", ".join(NAMES[:-1])} or {NAMES[-1]}.')
        self.assert_refused(self.run_verb('--compare=a,b', '--accounting=paper'), 402, 2,
                            '--accounting out')
        self.assert_refused(self.run_verb('--model=8B', '--world=2', '--accounting=paper',
                                          '--freeze=lm_head.weight'), 402, 2, '--freeze')
        for more in ('--model=8B', '--html=page', '--save-rates=rates', '--probe', '--tokens=5',
                     '--accounting=paper', '--world=2', '--dram=1G', '--seq-len=16',
                     '--options=file'):
            done = self.run_verb('--paper=zero-1', more)
            self.assert_refused(done, 402, 2, f'{more.split("=")[0]} changes nothing in the table')
            self.assertEqual(done.stdout, '')
        self.assert_refused(self.run_verb('--json'), 403, 2, '--model')


if __name__ == '__main__':
    unittest.main()
