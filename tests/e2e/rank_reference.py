#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses and norms of a batch in ways beside float64: of one rank with all of them, and of as many
ranks.

    rank_reference.py PROGRAM SOURCE_ROOT PLUGIN_FOLDER [TEST...]
"""
import json
import os
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from ranks import FOLDER, GOLDEN, PROGRAM, TOLERANCE, Case, environment  # noqa: E402

import mpi  # noqa: E402
from short import some  # noqa: E402


def golden_of(name):
    with open(os.path.join(GOLDEN, name, 'golden.json'), encoding='utf-8') as file:
        return json.load(file)


class Reference(Case):
    def reference(self, name, ways, *more, before=(), shared=False):
        """-> the steps of the float64 reference, and those of a run that trains the same. shared:
        with as many sequences a step as 1, 2 and 3 ranks can share."""
        golden = golden_of(name)
        if shared:
            golden.update(steps=golden['shared_steps'],
                          batch_tokens=golden['shared_sequences'] * golden['seq_len'])
        command = [*before, PROGRAM, 'train', '--device', 'host', '--quiet', '--model',
                   os.path.join(GOLDEN, name), '--data', os.path.join(GOLDEN, name, 'tokens.bin'),
                   '--durability', 'none', '--store', self.path(name), '--log',
                   self.path('log.jsonl'), '--order', golden['order'], '--ways', str(ways),
                   *(word for option, value in (
                       ('steps', len(golden['steps'])), ('seq-len', golden['seq_len']),
                       ('batch-tokens', golden['batch_tokens']),
                       ('grain', golden['grain_tokens']), ('lr', golden['lr']),
                       ('betas', '{},{}'.format(*golden['betas'])), ('eps', golden['eps']),
                       ('weight-decay', golden['weight_decay']), ('clip', golden['clip']))
                     for word in (f'--{option}', str(value))), *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120,
                              env=environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        return golden['steps'], self.lines('step')

    def assert_trains_as(self, golden, steps):
        self.assertEqual(len(steps), len(golden))
        for is_, was in zip(steps, golden):
            for key in ('loss', 'grad_norm'):
                self.assertLess(abs(is_[key] / was[key] - 1), TOLERANCE, key)

    def test_a_sequence_a_way_trains_as_the_reference(self):
        for name, ways in (('tied-gqa', 5), ('untied-mha', 7)):
            with self.subTest(name):
                self.assert_trains_as(*self.reference(name, ways))

    def test_a_sequence_a_rank_trains_as_the_reference(self):
        if mpi.missing(FOLDER):
            self.skipTest('no mpirun, or no libhoistway-mpi.so')
        for name, ranks in some((('tied-gqa', 5), ('untied-mha', 7)), 2):
            with self.subTest(name):
                self.assert_trains_as(*self.reference(name, ranks, before=mpi.launcher(ranks)))

    def test_one_two_and_three_ranks_train_as_the_reference(self):
        """The same batch, in as many ways: their sums are rounded in another order."""
        if mpi.missing(FOLDER):
            self.skipTest('no mpirun, or no libhoistway-mpi.so')
        for name in ('tied-gqa', 'untied-mha'):
            for ranks in (1, 2, 3):
                with self.subTest(name, ranks=ranks):
                    self.assert_trains_as(*self.reference(
                        name, ranks, before=mpi.launcher(ranks), shared=True))
                    run, = self.lines('run')
                    self.assertEqual((run['ranks'], run['ways']), (ranks, ranks))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
