#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run trains on, for how long and at what rates, and what of the model it changes.

    trained.py PATH_OF_HOISTWAY
"""
import json
import os
import struct
import subprocess
import sys
import unittest

from case import CONFIG
from program import PROGRAM, Folder, run
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *['..'] * 2))
from short import by_turns  # noqa: E402


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
                    part='the data\'s 31 tokens. Fix: --batch-tokens 120 or 150')

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

    def test_a_run_whose_reader_has_left_goes_on_to_its_end(self):
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, 'w') as nobody:
            done = subprocess.run(
                [PROGRAM, 'train', '--model', self.path('model'), '--data', self.data, '--init',
                 'random', '--store', self.path('store'), '--steps=3', '--seq-len=32',
                 '--batch-tokens=128', '--device=host', '--export', self.path('left')],
                stdout=subprocess.DEVNULL, stderr=nobody, timeout=60, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertIn('model.safetensors', os.listdir(self.path('left')))

    def test_one_of_anything_is_told_as_one(self):
        alone = ('--steps=1', '--seq-len=1', '--batch-tokens=1', '--threads=1', '--warmup=0')
        every = ('--steps', '--seq-len', '--batch-tokens', '--grain')
        done = self.train(*alone, without=every)
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in (' elements, 1 thread, I/O ', 'trained 1 step, 1 token in '):
            self.assertIn(part, done.stdout)
        self.assertIn('device: host (1 thread, ', done.stderr)
        plan = run('plan', '--model', self.path('model'), '--device=host', *alone[1:4])
        self.assertIn(' a step of 1 token in 1 micro-batch of 1\n', plan.stdout)
        with open(self.data, 'w', encoding='ascii') as f:
            f.write('xy')
        done = self.train('--steps=2', *alone[1:], without=every)
        self.assertIn('2 tokens are 1 sequence: the run passes over it 2.0 times.', done.stderr)
        self.refuse(402, 2, '--warmup=2', *alone[:4], without=every,
                    part='longer than the run of 1 step. Fix: --warmup 1 or less')

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
        with open(self.data, 'w', encoding='ascii') as f:
            f.write('x' * 4097)
        first, _, told = self.log_of('--steps=1', without=every)
        self.assertEqual((first['seq_len'], first['batch_tokens']), (1024, 4096))
        self.assertNotIn('I402', told)
        first, _, _ = self.log_of('--steps=1', '--batch-tokens=512', without=every)
        self.assertEqual((first['seq_len'], first['batch_tokens']), (512, 512))
        with open(self.data, 'w', encoding='ascii') as f:
            f.write('x' * 300)
        first, _, told = self.log_of('--steps=1', without=every)
        self.assertEqual((first['seq_len'], first['batch_tokens']), (299, 299))
        self.assertIn('note[I402] the data has 300 tokens: --seq-len is 299, '
                      '--batch-tokens 299.\n', told)
        first, _, _ = self.log_of('--steps=1', '--batch-tokens=598', without=every)
        self.assertEqual((first['seq_len'], first['batch_tokens']), (299, 598))

    def test_a_default_batch_has_no_sequence_twice_and_a_given_one_is_kept(self):
        every = ('--batch-tokens', '--grain')
        for count, batch in ((1, 32), (2, 32), (33, 32), (96, 64), (97, 96), (4096, 4064),
                             (4097, 4096), (9000, 4096)):
            with open(self.data, 'w', encoding='ascii') as f:
                f.write('x' * max(count, 33))
            first, _, told = self.log_of('--steps=1', without=every)
            self.assertEqual(first['batch_tokens'], batch, count)
            self.assertEqual(f'--seq-len is 32, --batch-tokens {batch}.\n' in told, batch < 4096)
            self.assertNotIn('I421', told)  # one step never goes beyond one pass
        with open(self.data, 'w', encoding='ascii') as f:
            f.write('x' * 33)
        first, _, _ = self.log_of('--steps=1', '--batch-tokens=4096', without=every)
        self.assertEqual(first['batch_tokens'], 4096)

    def test_a_resumed_run_has_the_default_batch_of_its_data(self):
        every = ('--batch-tokens', '--grain', '--durability')
        args = ('--durability=step',)
        with open(self.data, 'w', encoding='ascii') as f:
            f.write('x' * 97)
        self.log_of('--steps=1', *args, without=every)
        self.log_of('--steps=2', '--resume', *args, without=every)
        with open(self.data, 'a', encoding='ascii') as f:
            f.write('x' * 32)
        other = ('--steps=3', '--resume', '--allow-config-change', *args)
        done = self.train(*other, without=every)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn('error[E615]', done.stderr)
        self.assertIn('batch', done.stderr)
        self.log_of(*other, '--batch-tokens=96', without=every)

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
        above = [loss > losses[0] + 2 for loss in losses]
        told_in = next(i for i in range(20, 46) if all(above[i - 20:i]))  # steps count from 1
        self.assertIn(f' in step {told_in}. ', told)
        _, _, told = self.log_of('--quiet', '--lr=1e-3', '--steps=45')
        self.assertEqual(told, '')


class Ids(Folder):
    def test_ids_of_16_bits_are_told_where_they_can_not_name_all(self):
        raw, llmc = self.path('raw.bin'), self.path('llmc.bin')
        ids = b'\xff\xff' * 600
        with open(raw, 'wb') as f:
            f.write(ids)
        with open(llmc, 'wb') as f:
            f.write(struct.pack('<3I', 20240520, 1, 600).ljust(1024, b'\0') + ids)
        for vocab, told in ((65536, False), (65537, True)):
            self.config({**CONFIG, 'vocab_size': vocab, 'hidden_size': 2,
                         'num_attention_heads': 1})
            for args in ((f'--data={raw}', '--token-dtype=u16'), (f'--data={llmc}',)):
                done = self.train(*args)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(f"note[I422] the data's token ids have 16 bits, which cannot "
                                 f"name all of the model's {vocab} ids " in done.stderr, told,
                                 done.stderr)
                self.assertEqual('I422' in done.stderr, told, done.stderr)


class Trained(Folder):
    """docs/what-is-trained.md names these."""

    def tensors(self, *args):
        """Name -> shape and bytes, of what a run exports."""
        raw = self.weights(*args)
        start = 8 + struct.unpack('<Q', raw[:8])[0]
        return {name: (told['shape'], raw[start:][slice(*told['data_offsets'])])
                for name, told in json.loads(raw[8:start]).items() if name != '__metadata__'}

    def add_tensor(self, path):
        """To a file of safetensors one that no architecture uses."""
        with open(path, 'rb') as f:
            raw = f.read()
        start = 8 + struct.unpack('<Q', raw[:8])[0]
        header, data = json.loads(raw[8:start]), raw[start:]
        header['x'] = {'dtype': 'F32', 'shape': [2], 'data_offsets': [len(data), len(data) + 8]}
        text = json.dumps(header).encode()
        with open(path, 'wb') as f:
            f.write(struct.pack('<Q', len(text)) + text + data + bytes(8))

    def write(self, text):
        with open(self.data, 'w', encoding='ascii') as f:
            f.write(text)

    def test_tokens_behind_the_last_whole_sequence_are_left_over(self):
        whole = 'To be, or not to be, that is the question. ' * 6
        same = ('--steps=3', '--lr=1e-2')
        self.write(whole[:8 * 32 + 1])
        trained = self.weights(*same)
        self.write(whole[:8 * 32 + 1] + 31 * 'x')
        self.assertEqual(self.weights(*same), trained)
        self.write(whole[:8 * 32 + 1] + 32 * 'x')  # is a sequence more
        self.assertNotEqual(self.weights(*same), trained)
        self.write(whole[:8 * 32] + 'x')  # the last target is trained on
        self.assertNotEqual(self.weights(*same), trained)

    def test_an_end_of_text_is_a_token_like_any_other(self):
        trained = self.weights('--lr=1e-2')
        self.config({**CONFIG, 'eos_token_id': ord('o'), 'bos_token_id': ord('t')})
        self.assertEqual(self.weights('--lr=1e-2'), trained)

    def test_the_loss_of_a_step_is_that_of_the_weights_before_its_update(self):
        slow, fast = ([step['loss'] for step in Lengths.log_of(self, f'--lr={lr}')[1]]
                      for lr in ('1e-30', '1e-2'))
        self.assertEqual(slow[0], fast[0])
        self.assertNotEqual(slow[1], fast[1])

    def test_every_tensor_of_the_model_is_trained(self):
        for tied in (False, True):
            self.config({**CONFIG, 'tie_word_embeddings': tied})
            before, after = (self.tensors(f'--lr={lr}', '--weight-decay=0')
                             for lr in ('1e-30', '1e-2'))
            self.assertEqual(len(before), 2 * 9 + 2 + (not tied))
            for name in before:
                self.assertNotEqual(before[name], after[name], name)

    def test_decay_is_of_tensors_of_two_or_more_dimensions_alone(self):
        self.config({**CONFIG, 'architectures': ['Qwen2ForCausalLM'], 'model_type': 'qwen2'})
        # one step: the next would have other gradients
        without, decayed = (self.tensors('--steps=1', '--lr=1e-2', f'--weight-decay={decay}')
                            for decay in (0, 0.5))
        self.assertEqual(len([name for name in without if name.endswith('.bias')]), 6)
        for name, (shape, _) in without.items():
            self.assertEqual(without[name] == decayed[name], len(shape) < 2, name)

    def test_an_export_is_the_model_alone(self):
        names = set(self.tensors('--state=bf16', '--precision=bf16'))
        self.assertEqual(len(names), 2 * 9 + 3)  # no state, no master, nothing of the run
        self.assertEqual(sorted(os.listdir(self.path('out'))),
                         ['config.json', 'export.hoistway', 'model.safetensors'])

    def test_what_the_architecture_does_not_use_is_neither_trained_nor_exported(self):
        self.weights()
        os.rename(self.path('out'), self.path('given'))
        self.add_tensor(self.path('given', 'model.safetensors'))
        done = self.train(f'--model={self.path("given")}', f'--export={self.path("out")}',
                          without=('--init',))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("holds 'x', which its architecture does not use: it is neither trained nor "
                      'exported', done.stderr)
        with open(self.path('out', 'model.safetensors'), 'rb') as f:
            self.assertNotIn(b'"x"', f.read(8192))


load_tests = by_turns

if __name__ == '__main__':
    unittest.main()
