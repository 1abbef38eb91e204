#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--config and --options on several ranks: the batch of a file is divided by the ranks that there
are, and the bytes are those of the same options, and of one rank with the same ways.

    rank_config.py PROGRAM SOURCE_ROOT PLUGIN_FOLDER [TEST...]
"""
import json
import os
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from ranks import GOLDEN, PROGRAM, Case, environment, sums_of  # noqa: E402

import mpi  # noqa: E402
from short import by_turns  # noqa: E402

LENGTH = 24


class Configured(Case):
    def config(self, **keys):
        with open(self.path('ds.json'), 'w', encoding='ascii') as file:
            json.dump({'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-3}},
                       'gradient_clipping': 0.5,
                       'zero_optimization': {'stage': 3, 'offload_optimizer': {'device': 'cpu'}},
                       **keys}, file)
        return ['--config', self.path('ds.json')]

    def start(self, ranks, *more):
        """A run for which the arguments say all but where things are."""
        for name in ('store', 'out'):
            shutil.rmtree(self.path(name), ignore_errors=True)
        model = os.path.join(GOLDEN, 'untied-mha')
        command = [PROGRAM, 'train', '--model', model, '--data', os.path.join(model, 'tokens.bin'),
                   '--store', self.path('store'), '--export', self.path('out'), *more]
        return subprocess.run([*(mpi.launcher(ranks) if ranks > 1 else []), *command],
                              capture_output=True, text=True, env=environment(), timeout=120)

    def bytes_of(self, ranks, *more):
        done = self.start(ranks, *more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return sums_of(self.path('out')), done.stderr

    RUN = ['--device', 'host', '--steps', '3', '--seq-len', str(LENGTH), '--threads', '1',
           '--grain', str(2 * LENGTH)]

    def test_a_batch_of_all_ranks_is_that_of_one_with_the_same_ways(self):
        config = self.config(train_batch_size=8, train_micro_batch_size_per_gpu=1,
                             gradient_accumulation_steps=2)
        log = ['--log', self.path('log.jsonl')]
        four, told = self.bytes_of(4, *config, *self.RUN, *log)
        self.assertEqual(told.count('note[I405]'), 1, told)
        self.assertIn(f'says --batch-tokens {8 * LENGTH}, --clip 0.5, ', told)
        options = [*self.RUN, '--batch-tokens', str(8 * LENGTH), '--clip', '0.5', '--lr', '1e-3',
                   '--weight-decay', '0', '--place', 'states=dram']
        self.assertEqual(four, self.bytes_of(4, *options)[0])
        self.assertEqual(four, self.bytes_of(1, *options, '--ways', '4')[0])
        self.assertNotEqual(four, self.bytes_of(1, *options)[0])
        # the log of four ranks makes their bytes again, on four and on one
        again = ['--options', self.path('log.jsonl')]
        self.assertEqual(four, self.bytes_of(4, *again)[0])
        self.assertEqual(four, self.bytes_of(1, *again)[0])

    def test_a_micro_batch_counts_once_for_each_rank(self):
        config = self.config(train_micro_batch_size_per_gpu=2, gradient_accumulation_steps=2)
        for ranks in (1, 2):
            _, told = self.bytes_of(ranks, *config, *self.RUN)
            self.assertIn(f'says --batch-tokens {4 * ranks * LENGTH}, ', told)

    def test_a_batch_of_other_ranks_is_refused_by_its_place(self):
        config = self.config(train_batch_size=8, train_micro_batch_size_per_gpu=1,
                             gradient_accumulation_steps=2)
        done = self.start(2, *config, *self.RUN)
        self.refused_once(done, r'^error\[E405\] \S*ds\.json:1:\d+: train_batch_size 8: it is '
                                r'not the product 4, .* and 2 ranks\. Fix: 4, or other')

    def refused_once(self, done, line):
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(mpi.errors_of(done.stderr)), 1, done.stderr)
        self.assertRegex(done.stderr, '(?m)' + line)
        self.assertFalse(os.path.exists(self.path('store')))

    def test_what_is_wrong_on_all_ranks_is_told_once(self):
        """By rank 0, whether it is wrong in the command line or with what ranks cannot do; then a
        directory that they made is gone, and nobody misses it."""
        self.refused_once(self.start(4, *self.RUN, '--lr', 'much'), r'^error\[E402\] --lr: .*much')
        whole = ('--lr', '1e-3', '--batch-tokens', str(8 * LENGTH), '--zero-stage', '2', '--place',
                 'weights=nvme,states=nvme')
        self.refused_once(self.start(4, *self.RUN, *whole), r'^error\[E402\] 4 ranks have all '
                          r'weights each in memory')
        for verb in (('ckpt', 'list'), ('bench', 'comm', '--pairs', 'some'),
                     ('doctor', '--time', 'all')):
            done = subprocess.run([*mpi.launcher(4), PROGRAM, *verb], capture_output=True,
                                  text=True, env=environment(), timeout=120)
            self.refused_once(done, r'^error\[E40\d\] ')

    def test_what_is_wrong_on_one_rank_that_one_tells(self):
        model = os.path.join(GOLDEN, 'untied-mha')
        line = [PROGRAM, 'train', '--model', model, '--data', os.path.join(model, 'tokens.bin'),
                *self.RUN, '--batch-tokens', str(8 * LENGTH), '--store', self.path('store'), '--lr']
        done = subprocess.run([*mpi.launcher(1), *line, '1e-3', ':', '-n', '1', *line, 'much'],
                              capture_output=True, text=True, env=environment(), timeout=120)
        self.refused_once(done, r'^rank 1 \(.*\): error\[E402\] --lr: .*much')

    def test_options_are_printed_once(self):
        done = self.start(2, '--lr', '1e-3', '--print-options')
        self.assertEqual((done.returncode, done.stdout.count('"lr":0.001')), (0, 1), done.stderr)


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
