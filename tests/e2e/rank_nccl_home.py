#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks joined by NCCL that have weights, gradients and states at home in the memory of their GPUs,
which are doubles: what passes no link, what runs whenever it may, stores that homes elsewhere go on
with, and what is refused. rank_nccl.py has such homes among its rows, and its arguments.
"""
import functools
import itertools
import os
import re
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rank_nccl import (BF16, IN_DRAM, IN_HBM, INTEGERS, ON_NVME, Run, environment,  # noqa: E402
                       step_bytes, train)
from short import in_turn, part, whole_alone  # noqa: E402

MODEL, STEPS = 'tied-gqa', 3
EACH = '--durability=step'
STREAMS = ('late', 'early:1', 'h2d-early', 'random:1', 'random:2')
SOME = '--hbm=1130K'  # has room for some units


@functools.lru_cache(maxsize=None)
def alone(numbers):
    """What one rank on one GPU comes to."""
    with Run() as run:
        done = run.train(1, MODEL, *numbers, steps=STEPS)
        if done.returncode:
            raise AssertionError(done.stderr)
        return run.came_to()


class Home(unittest.TestCase):
    maxDiff = None

    def trains(self, run, ranks, numbers, *places, **settings):
        done = train(run, ranks, MODEL, *numbers, *places, **{'steps': STEPS, **settings})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    @whole_alone
    def test_nothing_passes_a_link_but_partials(self):
        """Nor do rows of weights or gradients that a stage has whole, which meet in HBM, too."""
        with Run() as run:
            self.trains(run, 2, BF16, IN_DRAM)
            from_dram = step_bytes(run)
        for stage in (3, 2, 0):
            with self.subTest(stage=stage), Run() as run:
                calls = run.path('calls')
                self.trains(run, 2, BF16, IN_HBM, f'--zero-stage={stage}', nccl=f'log={calls}')
                moved = step_bytes(run)
                self.assertEqual(moved['h2d'], 0)
                self.assertTrue(0 < moved['d2h'] < from_dram['d2h'] / 100, moved)
                with open(f'{calls}.0', encoding='utf-8') as file:
                    made = file.read().split('\n')
                self.assertTrue({'ncclAllGather', 'ncclAlltoAll'} <= set(made), set(made))
                if stage == 3:
                    self.assertEqual(moved['net'], from_dram['net'])
                self.assertEqual(run.came_to(), alone(BF16))

    @whole_alone
    def test_whatever_of_the_device_runs_early(self):
        """Each step is a version, so that tiles are copied beside updates."""
        unclipped = (*BF16, '--clip=0')
        cases = [(numbers, (IN_HBM, f'--zero-stage={stage}'))
                 for stage in (3, 2, 0) for numbers in (BF16, unclipped)]
        cases += [((*INTEGERS, '--clip=0'), (IN_HBM,)), (unclipped, (SOME,)),
                  (BF16, (SOME, '--update=optimistic')), (('--precision=fp16',), (SOME,))]
        for streams, (numbers, places) in part(itertools.product(STREAMS, cases), 7):
            env = environment(2, 'in-progress=2')
            env['HST_FAKE_CUDA'] += f',streams={streams}'
            with self.subTest(streams=streams, numbers=numbers, places=places), Run() as run:
                done = run.train(2, MODEL, *numbers, *places, EACH, steps=STEPS, comm='nccl',
                                 env=env)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(run.came_to(), alone(numbers))

    @whole_alone
    def test_whatever_else_a_run_has(self):
        """Steps that are skipped, tensors that are frozen, and copies that are kept."""
        cases = ((('--precision=fp16',), ()), ((*BF16, '--freeze=model.embed*'), ()),
                 ((*BF16, '--freeze=*.layers.0.*', '--clip=0'), ()),
                 (BF16, (EACH, '--keep=2', '--keep-every=1')))
        for stage, (numbers, more) in part(itertools.product((3, 2, 0), cases), 4):
            with self.subTest(numbers=numbers, more=more, stage=stage), Run() as run:
                self.trains(run, 2, numbers, IN_HBM, f'--zero-stage={stage}', *more)
                self.assertEqual(run.came_to(), alone(numbers))

    @whole_alone
    def test_homes_change_from_run_to_run(self):
        """With as many ranks and with others; what was stored from HBM is read from drives."""
        with Run() as run:
            for ranks, steps, place in ((2, 1, IN_HBM), (4, 2, ON_NVME), (2, 3, IN_HBM)):
                self.trains(run, ranks, BF16, place, EACH, *(['--resume'] if steps > 1 else []),
                            steps=steps)
            self.assertEqual(run.came_to()[1], alone(BF16)[1])

    @whole_alone
    def test_some_units_are_at_home(self):
        """HBM has room for some; others are in DRAM beside them."""
        counts = set()
        for hbm in (1050, 1130, 1200):
            for more in ((), ('--update=optimistic',)):
                with self.subTest(hbm=hbm, more=more), Run() as run:
                    told = self.trains(run, 2, BF16, f'--hbm={hbm}K', EACH, *more)
                    counts.update(re.findall(r'I304\] (\d+) of \d+ units (?:is|are) at home', told))
                    self.assertEqual(run.came_to(), alone(BF16))
        self.assertTrue(counts - {'0'}, counts)

    @in_turn(3, 4)
    def test_an_evaluation_is_computed_from_there(self):
        data = os.path.join(sys.argv[2], 'tests', 'golden', MODEL, 'tokens.bin')
        said = []
        for ranks, place in ((1, ()), (2, (IN_HBM,))):
            with Run() as run:
                settings = dict(comm='nccl') if ranks > 1 else dict(comm='mpi')
                self.trains(run, ranks, BF16, *place, f'--eval={data}', '--eval-every=1',
                            **settings)
                with open(run.path('log'), encoding='utf-8') as file:
                    said.append([re.search(r'"loss":[^,}]+', line)[0] for line in file
                                 if '"kind":"eval"' in line])
        self.assertGreaterEqual(len(said[0]), STEPS)
        self.assertEqual(said[0], said[1])

    @whole_alone
    def test_what_meets_in_dram_has_no_home_in_hbm(self):
        for settings, why in (({'comm': 'mpi'}, r'ranks that meet in dram \(--comm mpi\)'),
                              ({'stage': 1}, 'at ZeRO stage 1, whose ranks meet in dram')):
            with self.subTest(why=why), Run() as run:
                stage = settings.pop('stage', 3)
                done = train(run, 2, MODEL, *BF16, IN_HBM, f'--zero-stage={stage}', **settings)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, r'error\[E402\][^\n]*' + why)
                self.assertFalse(os.path.exists(run.path('store')))


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[7:]])
