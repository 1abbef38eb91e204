#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A vocabulary that is too large as a whole: the same weights, in less memory than it takes.

slices.py PATH_OF_HOISTWAY SOURCE_ROOT; HOISTWAY_PLUGIN_PATH holds libhoistway-far.so
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from short import by_turns, some  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
TOKENS = os.path.join(ROOT, 'tests', 'golden', 'untied-mha', 'tokens.bin')
ROWS = 20000  # two blocks of 8,192 and some of a third
CONFIG = {
    'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': 96,
    'intermediate_size': 272, 'num_hidden_layers': 2, 'num_attention_heads': 6,
    'num_key_value_heads': 2, 'head_dim': 16, 'vocab_size': ROWS, 'max_position_embeddings': 64,
    'rms_norm_eps': 1e-5, 'rope_theta': 10000.0, 'hidden_act': 'silu',
}  # fmt: skip
HOST = ('--device=host',)
FAR = ('--device=far',)


class Slices(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.count = 0

    def model(self, tied):
        folder = os.path.join(self.folder, f'model-{tied}')
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, 'config.json'), 'w', encoding='ascii') as file:
            json.dump({**CONFIG, 'tie_word_embeddings': tied}, file)
        self.sizes = ('--model', folder, '--seq-len', '32', '--batch-tokens', '96', '--grain', '64',
                      '--threads', '2')

    def train(self, *more, steps=2):
        """-> the digest of the weights, what stderr and the log said."""
        self.count += 1
        out, log = (os.path.join(self.folder, f'{name}-{self.count}') for name in ('out', 'log'))
        command = [PROGRAM, 'train', *self.sizes, '--data', TOKENS, '--init', 'random',
                   '--steps', str(steps), '--export', out, '--export-dtype=fp32', '--log', log,
                   *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(out, 'model.safetensors'), 'rb') as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        with open(log, encoding='ascii') as file:
            lines = [json.loads(line) for line in file]
        return digest, done.stderr, [line for line in lines if line['kind'] == 'step']

    def smallest(self, budget, *more):
        command = [PROGRAM, 'plan', *self.sizes, '--json', f'--{budget}=1M', *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        return json.loads(done.stdout)['smallest'][budget]

    def store(self, name):
        return '--store', os.path.join(self.folder, name)

    def check(self, device, budget, *more, place=()):
        """Losses, norms and weights of the smallest budget are those of a large one."""
        scratch = (*self.store('scratch'), '--durability=none')
        whole, told, steps = self.train(*scratch, *more, *HOST, '--place=states=dram,weights=dram')
        self.assertNotIn('I306', told)
        device = (*device, *place)
        small = self.smallest(budget, *scratch, *device, *more)
        cut, told, cut_steps = self.train(*scratch, *more, *device, f'--{budget}={small}')
        self.assertRegex(told, r'note\[I306\] 2 of 5 units are used in 6 slices of their rows')
        self.assertEqual(cut, whole)
        for a, b in zip(steps, cut_steps, strict=True):
            self.assertEqual((a['loss'], a['grad_norm']), (b['loss'], b['grad_norm']))
            self.assertLessEqual(b['peak'][budget], small)
        return small

    def test_frozen_slices_rest_or_pass_gradients_on(self):
        """The embedding has no backward; the head's slices have one, and no gradient."""
        self.model(tied=False)
        for device, budget in some(((HOST, 'dram'), (FAR, 'hbm')), 2):
            with self.subTest(device):
                self.check(device, budget, '--train-only=model.layers.1.*', '--precision=bf16',
                           '--eval-split=0.2', '--eval-every=1')
                self.check(device, budget, '--freeze=model.embed_tokens.weight',
                           '--precision=fp32')
        self.check(HOST, 'dram', '--train-only=lm_head.weight')  # its input's gradient is left out

    def test_the_weights_are_those_of_a_run_in_memory(self):
        for tied in some((False, True), 2):
            self.model(tied)
            for precision in ('fp32', 'bf16'):
                with self.subTest(tied=tied, precision=precision):
                    options = ('--precision', precision)
                    self.check(HOST, 'dram', *options)
                    self.check(FAR, 'hbm', *options)
                    self.check(FAR, 'hbm', *options, '--clip=0',
                               place=('--place=weights=nvme,states=nvme',))

    def test_short_moments_are_rounded_as_in_the_whole(self):
        self.model(True)
        for state, device, budget in some((('bf16', HOST, 'dram'), ('8bit', HOST, 'dram'),
                                           ('8bit', FAR, 'hbm')), 3):
            with self.subTest(state, device=device):
                self.check(device, budget, '--precision=bf16', f'--state={state}')

    def test_a_matrix_need_not_fit(self):
        """Weights, gradients and the sum of gradients of the whole would take 8 bytes a weight."""
        self.model(False)
        small = self.check(FAR, 'hbm', '--precision=bf16')
        self.assertLess(small, ROWS * CONFIG['hidden_size'] * 8)

    def test_a_store_may_be_resumed_with_more_memory_or_less(self):
        """Slices are also where a step is faster with them: with all memory either may be told."""
        self.model(False)
        place = ('--place=states=nvme,weights=nvme', *HOST)
        small = f'--dram={self.smallest("dram", *self.store("none"), *place)}'
        whole = self.train(*self.store('whole'), *place)[0]
        for budgets in some((((small,), ()), ((), (small,))), 2):
            store = self.store(f'store-{len(budgets[0])}')
            told = self.train(*store, *place, *budgets[0], steps=1)[1]
            self.assertIn('I306', told if budgets[0] else 'I306')
            digest, told, _ = self.train(*store, *place, *budgets[1], '--resume')
            self.assertIn('I306', told if budgets[1] else 'I306')
            self.assertEqual(digest, whole)


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
