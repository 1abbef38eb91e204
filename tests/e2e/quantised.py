#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run on text whose weights, or gradients, are integers on their way learns as one where they are
not: its loss falls as far, within the bounds below. A kernel that takes a neighbour's scale fails
this (tests/mutations).

    quantised.py PROGRAM SOURCE_ROOT [TEST...]
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ROOT = sys.argv[1:3]
STEPS, FIRST, LAST = 300, 5, 30  # losses are means of the first few steps, and of the last ones
MODEL = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': 128,
         'intermediate_size': 256, 'num_hidden_layers': 2, 'num_attention_heads': 4,
         'num_key_value_heads': 4, 'head_dim': 32, 'vocab_size': 256,
         'max_position_embeddings': 64, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0,
         'hidden_act': 'silu', 'tie_word_embeddings': False}
WAYS = ('--ways', '4', '--hop', '2')
BOUNDS = {('--gather', 'int8'): 0.03,  # of the fall of the loss, relative
          (*WAYS, '--reduce', 'int8'): 0.1,
          (*WAYS, '--reduce', 'int4', '--gather', 'int8', '--secondary', 'node'): 0.1}


class Text(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        os.mkdir(self.path('model'))
        with open(self.path('model', 'config.json'), 'w', encoding='ascii') as file:
            json.dump(MODEL, file)
        with open(self.path('text'), 'wb') as text:
            for name in sorted(glob.glob(os.path.join(ROOT, 'docs', '*.md'))):
                with open(name, 'rb') as file:
                    text.write(file.read())

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def fall(self, *more):
        done = subprocess.run(
            [PROGRAM, 'train', '--device', 'host', '--quiet', '--model', self.path('model'),
             '--init', 'random', '--data', self.path('text'), '--data-format', 'bytes', '--steps',
             str(STEPS), '--seq-len', '64', '--batch-tokens', '1024', '--grain', '512', '--lr',
             '2e-3', '--warmup', '20', '--precision', 'bf16', '--durability', 'none', '--store',
             self.path('store'), '--log', self.path('log'), *more],
            capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path('log'), encoding='utf-8') as file:
            losses = [line['loss'] for line in map(json.loads, file) if line['kind'] == 'step']
        os.remove(self.path('log'))
        self.assertEqual(len(losses), STEPS)
        return sum(losses[:FIRST]) / FIRST - sum(losses[-LAST:]) / LAST

    def test_the_loss_falls_as_far(self):
        exact = self.fall()
        self.assertGreater(exact, 1.5)
        for options, bound in BOUNDS.items():
            with self.subTest(options):
                fall = self.fall(*options)
                print(f'{" ".join(options)}: the loss falls by {fall:.4f}, exactly by {exact:.4f}')
                self.assertLess(abs(fall / exact - 1), bound)


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
