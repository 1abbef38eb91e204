#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run trains on, for how long and at what rates, and what of the model it changes.

    trained.py PATH_OF_HOISTWAY
"""
import json
import unittest

from case import CONFIG
from program import Folder, run


class Lengths(Folder):
    def test_lengths_and_rates_that_can_not_be_are_refused(self):
        self.refuse(402, 2, '--epochs=1', part='--steps 3 and --epochs 1')
        self.refuse(402, 2, '--lr=0', part='nothing would be trained')
        self.refuse(402, 2, '--warmup=11', '--epochs=1', without=('--steps',),
                    part='Fix: --warmup 10 or less')
        self.refuse(402, 2, '--epochs=1e6', '--batch-tokens=32', '--seq-len=1', '--warmup=1e12',
                    without=('--steps',), part='Fix: --warmup 40281250 or less')
        with open(self.path('long.txt'), 'w', encoding='ascii') as f:
            f.write('x' * 1100001)
        self.refuse(402, 2, f'--data={self.path("long.txt")}', '--epochs=1e6', '--batch-tokens=1',
                    '--seq-len=1', without=('--steps',), part='1.1e+12 steps, more than 1e+12')
        with open(self.path('short.txt'), 'w', encoding='ascii') as f:
            f.write('x' * 31)
        self.refuse(402, 2, f'--data={self.path("short.txt")}', without=('--seq-len',),
                    part='longest sequence of the data\'s 31 tokens. Fix: --batch-tokens 150')

    def log_of(self, *args, **more):
        """-> the first line, and the steps', of a run that ends well."""
        log = self.path('run.jsonl')
        done = self.train(f'--log={log}', *args, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(log, encoding='ascii') as f:
            lines = [json.loads(line) for line in f]
        return lines[0], [line for line in lines if line['kind'] == 'step'], done.stderr

    def test_a_run_of_one_step_trains_with_every_schedule(self):
        for schedule in ('constant', 'linear', 'cosine', 'wsd'):
            _, steps, _ = self.log_of('--steps=1', f'--schedule={schedule}', '--lr=1e-3')
            self.assertEqual([step['lr'] for step in steps], [1e-3], schedule)
        one = self.weights('--steps=1', '--schedule=cosine', '--lr=1e-3')
        self.assertEqual(self.weights('--steps=1', '--lr=1e-3'), one)
        self.assertNotEqual(self.weights('--steps=1', '--lr=1e-30'), one)

    def test_rates_of_a_run_are_those_of_its_schedule(self):
        _, steps, _ = self.log_of('--schedule=wsd', '--steps=8', '--warmup=25%', '--decay=50%',
                                  '--lr-end=0.5', '--lr=1e-3')
        self.assertEqual([step['lr'] for step in steps], [5e-4] + 4 * [1e-3] + [
            8.75e-4, 7.5e-4, 6.25e-4])

    def test_epochs_are_passes_over_the_data_in_whole_steps(self):
        # 1,290 bytes are 40 sequences of 32, and 4 of them a step
        for epochs, count in (('0.05', 1), ('0.25', 3), ('1', 10), ('1.01', 11)):
            first, steps, _ = self.log_of(f'--epochs={epochs}', without=('--steps',))
            self.assertEqual((first['steps'], len(steps)), (count, count))
        _, steps, _ = self.log_of('--epochs=1', '--warmup=50%', '--lr=1e-3', without=('--steps',))
        self.assertEqual([step['lr'] for step in steps][3:6], [8e-4, 1e-3, 1e-3])

    def test_without_a_length_sequences_have_1024_tokens_or_what_there_is(self):
        self.config({**CONFIG, 'max_position_embeddings': 2048})
        every = ('--seq-len', '--batch-tokens', '--grain')
        first, _, told = self.log_of('--steps=1', without=every)
        self.assertEqual((first['seq_len'], first['batch_tokens']), (1024, 4096))
        first, _, _ = self.log_of('--steps=1', '--batch-tokens=512', without=every)
        self.assertEqual((first['seq_len'], first['batch_tokens']), (512, 512))
        with open(self.data, 'w', encoding='ascii') as f:
            f.write('x' * 300)
        first, _, told = self.log_of('--steps=1', without=every)
        self.assertEqual((first['seq_len'], first['batch_tokens']), (299, 3887))
        self.assertIn('note[I402] the data has 300 tokens: --seq-len is 299, '
                      '--batch-tokens 3887.\n', told)
        first, _, _ = self.log_of('--steps=1', '--batch-tokens=598', without=every)
        self.assertEqual((first['seq_len'], first['batch_tokens']), (299, 598))

    def test_a_plan_takes_what_says_how_long_and_is_none_the_other_for_it(self):
        self.config({**CONFIG, 'max_position_embeddings': 2048})
        plain = ('plan', '--model', self.path('model'), '--device=host', '--dram=1G',
                 '--json')

        def told(*args):
            done = run(*plain, *args)
            self.assertEqual(done.returncode, 0, done.stderr)
            return {key: json.loads(done.stdout)[key]
                    for key in ('memory', 'seq_len', 'batch_tokens', 'homes')}
        self.assertEqual(told()['seq_len'], 1024)
        self.assertEqual(told('--epochs=3', '--warmup=3%', '--schedule=wsd', '--decay=20%'), told())
        self.assertEqual(told('--batch-tokens=512')['seq_len'], 512)
        self.assert_refused(run(*plain, '--epochs=3', '--steps=4'), 402, 2, 'leave one of them out')
        self.assert_refused(run(*plain, '--batch-tokens=1536'), 402, 2, 'which was not given')

    def test_a_loss_that_stays_up_is_told_once(self):
        rising = ('--lr=1', '--clip=0', '--weight-decay=0', '--steps=45')
        _, steps, told = self.log_of('--quiet', *rising)
        losses = [step['loss'] for step in steps]
        self.assertRegex(told, r'\Awarning\[W702\] the loss has been more than 2 above that of '
                               r'step 1 \([\d.]+\) for 20 steps: [\d.]+ in step \d+\. Fix: '
                               r'[^\n]*\n\Z')
        since = max(i for i, loss in enumerate(losses) if loss <= losses[0] + 2) + 1
        self.assertIn(f' in step {since + 20}. ', told)
        _, _, told = self.log_of('--quiet', '--lr=1e-3', '--steps=45')
        self.assertEqual(told, '')


if __name__ == '__main__':
    unittest.main()
