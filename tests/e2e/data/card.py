#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Samples, and a model with a sliding window, on the double of a CUDA device: the same ids and the
same weights wherever bytes live, and near the host's.

card.py PATH_OF_HOISTWAY SOURCE_ROOT FOLDER_OF_THE_DOUBLE
"""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from sample_files import draw_prompts, ids_of, write  # noqa: E402

PROGRAM, ROOT, DOUBLE = sys.argv[1:4]
PLACES = ('states=hbm,weights=hbm', 'states=dram,weights=dram',
          'states=nvme,weights=nvme,grads=nvme,acts=nvme')  # fmt: skip

# What the samples below say in fp32. Without them whatever is the same everywhere would do, as what
# is in the host's memory where no logit comes to it.
IDS = [[46] * 5, [184] * 5, [128, 128, 95, 95, 95]]


class Card(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        rng = random.Random(5)
        self.documents = [[rng.randrange(140) for _ in range(rng.randrange(2, 70))]
                          for _ in range(12)]

    def path(self, name):
        return os.path.join(self.folder, name)

    def model(self, fixture, **changes):
        model = self.path('model')
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(os.path.join(ROOT, 'tests', 'golden', fixture), model)
        with open(os.path.join(model, 'config.json'), encoding='ascii') as file:
            config = json.load(file)
        with open(os.path.join(model, 'config.json'), 'w', encoding='ascii') as file:
            json.dump({**config, **changes}, file)
        return model

    def train(self, device, model, seq_len, *more):
        """-> (weights, the log's lines)"""
        for name in ('store', 'out'):
            shutil.rmtree(self.path(name), ignore_errors=True)
        done = subprocess.run(
            [PROGRAM, 'train', '--device', device, '--quiet', '--model', model, '--data',
             self.path('data.safetensors'), '--seq-len', str(seq_len), '--batch-tokens',
             str(2 * seq_len), '--grain', str(seq_len), '--lr', '1e-3', '--steps', '2', '--store',
             self.path('store'), '--log', self.path('log'), '--export', self.path('out'),
             '--threads', '1', *more],
            capture_output=True, text=True, timeout=250, check=False,
            env={**os.environ, 'HOISTWAY_PLUGIN_PATH': DOUBLE,
                 'HOISTWAY_CUDA_PATH': DOUBLE})  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path('log'), encoding='utf-8') as log:
            lines = [json.loads(line) for line in log]
        with open(self.path('out/model.safetensors'), 'rb') as file:
            return hashlib.sha256(file.read()).hexdigest(), lines

    def samples(self, device, precision, *more):
        weights, lines = self.train(
            device, self.path('model'), 24, '--precision', precision, '--init', 'random',
            '--samples', '3', '--sample-tokens', '5', *more)
        return weights, [ids_of(line['text']) for line in lines if line['kind'] == 'sample']

    def test_samples_are_those_of_any_placement(self):
        """A row of 271 logits mostly begins where no operation's data may, which is fetched from a
        place before it."""
        self.model('tied-gqa', vocab_size=271)
        write(self.path('data.safetensors'), 271, draw_prompts(2, 3, 271, 4),
              [document[:20] for document in self.documents])
        for precision in ('fp32', 'bf16', 'fp16'):
            found = [self.samples('cuda', precision, '--place', place) for place in PLACES]
            self.assertEqual(found.count(found[0]), len(PLACES), (precision, found))
            ids = found[0][1]
            self.assertEqual(len(ids), 3)
            self.assertGreater(len(set(sum(ids, []))), 2)
            if precision == 'fp32':
                self.assertEqual(ids, IDS)
                self.assertEqual(ids, self.samples('host', precision)[1])

    def window(self, device, model, *more):
        weights, lines = self.train(device, model, 72, '--precision', 'fp32', *more)
        return weights, [(s['loss'], s['grad_norm']) for s in lines if s['kind'] == 'step']

    def test_a_window_has_the_bytes_of_any_placement_and_losses_near_the_hosts(self):
        write(self.path('data.safetensors'), 144, [], self.documents)
        found = {}
        for window in (33, None):
            model = self.model('windowed', sliding_window=window)
            found[window] = [self.window('cuda', model, '--place', place) for place in PLACES]
            self.assertEqual(found[window].count(found[window][0]), len(PLACES))
            for ours, host in zip(found[window][0][1], self.window('host', model)[1], strict=True):
                for one, other in zip(ours, host, strict=True):
                    self.assertLess(abs(one / other - 1), 2e-5)
        self.assertNotEqual(found[33][0][1], found[None][0][1])


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
