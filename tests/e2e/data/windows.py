#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sequences longer than a model's sliding window: losses are those of Hugging Face transformers in
float64, the same bytes come out wherever the model lives, and a run does not go on with another
window.

windows.py PATH_OF_HOISTWAY SOURCE_ROOT

What needs torch and transformers (PyPI) is left out where they are missing, and says so.
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

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..'))
from short import some  # noqa: E402

# This folder has a file of the package's name.
sys.path = [p for p in sys.path if os.path.abspath(p or '.') != HERE]
try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    torch = None
    print(f'without transformers: {missing}; pip install torch transformers')

PROGRAM, ROOT = sys.argv[1:3]
T = 96
QWEN = {'use_sliding_window': True, 'sliding_window': 40}
# Each with what it changes of its fixture's config.json: windows of no whole tiles, some below a
# tile of 64, some above; all layers, the last ones, every second one.
MODELS = {
    'mistral': ('windowed', {'sliding_window': 33}),
    'mistral of 80': ('windowed', {'sliding_window': 80}),
    'mistral of 1': ('windowed', {'sliding_window': 1}),
    'qwen2, the last layer': ('qkv-bias', {**QWEN, 'max_window_layers': 1, 'layer_types': None}),
    'qwen3, the first layer': (
        'qk-norm', {**QWEN, 'layer_types': ['sliding_attention', 'full_attention']}),
}  # fmt: skip
PLACES = ('states=dram,weights=dram', 'states=nvme,weights=nvme',
          'states=nvme,weights=nvme,grads=nvme,acts=nvme')  # fmt: skip
TOLERANCE = 2e-6


class Windows(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def model(self, which, **more):
        fixture, changes = MODELS[which]
        model = self.path('model')
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(os.path.join(ROOT, 'tests', 'golden', fixture), model)
        with open(os.path.join(model, 'config.json'), encoding='ascii') as file:
            config = json.load(file)
        config.update(max_position_embeddings=2 * T, **{**changes, **more})
        self.vocab, layers = config['vocab_size'], config['num_hidden_layers']
        if 'layer_types' in changes and changes['layer_types']:
            wanted = config['layer_types']
            config['layer_types'] = [wanted[i % len(wanted)] for i in range(layers)]
        if 'max_window_layers' in changes:
            config['max_window_layers'] = layers - 1
        with open(os.path.join(model, 'config.json'), 'w', encoding='ascii') as file:
            json.dump(config, file)
        return model

    def documents(self, model):
        rng = random.Random(3)
        documents = [[rng.randrange(self.vocab) for _ in range(rng.randrange(2, T))]
                     for _ in range(30)]
        with open(self.path('rows.jsonl'), 'w', encoding='ascii') as file:
            for ids in documents:
                file.write(json.dumps({'input_ids': ids}) + '\n')
        return documents, self.path('rows.jsonl')

    def train(self, model, data, *more, code=0, steps=1, export=None, length=T):
        command = [PROGRAM, 'train', '--device', 'host', '--quiet', '--model', model, '--data',
                   data, '--seq-len', str(length), '--batch-tokens', str(3 * T), '--grain',
                   str(2 * T), '--steps', str(steps), '--lr', '1e-3', '--store',
                   self.path('store'), '--log', self.path('log'),
                   *(('--export', export) if export else ()), *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        if code:
            return done.stderr
        with open(self.path('log'), encoding='ascii') as log:
            lines = [json.loads(line) for line in log]
        return [(s['loss'], s['grad_norm']) for s in lines if s['kind'] == 'step']

    def again(self):
        for name in ('store', 'out'):
            shutil.rmtree(self.path(name), ignore_errors=True)

    @unittest.skipUnless(torch, 'transformers is missing')
    def test_losses_and_norms_are_those_of_transformers(self):
        kinds = [(which, longest) for longest in (T, 2 * T) for which in MODELS]
        for which, longest in some(kinds, 3):  # of documents by themselves, and of whole rows
            model = self.model(which)
            documents, data = self.documents(model)
            if longest > T:
                documents = [sum(documents, [])[:3 * T + 1]]
                data = self.path('rows.bin')
                with open(data, 'wb') as file:
                    for ids in documents:
                        for i in ids:
                            file.write(i.to_bytes(4, 'little'))
                more = ('--order=sequential', '--token-dtype', 'u32')
                rows = [documents[0][i * T:i * T + T + 1] for i in range(3)]
            else:
                with open(data, 'w', encoding='ascii') as file:
                    for ids in documents[:3]:
                        file.write(json.dumps({'input_ids': ids}) + '\n')
                more, rows = ('--order=sequential', '--pack=off'), documents[:3]
            ((loss, norm),) = self.train(model, data, '--precision', 'fp32', *more)
            network = AutoModelForCausalLM.from_pretrained(
                model, dtype=torch.float64, attn_implementation='eager')
            total, count = 0, sum(len(row) - 1 for row in rows)
            for row in rows:
                row = torch.tensor(row)
                logits = network(row[None, :-1]).logits[0]
                total = total + torch.nn.functional.cross_entropy(
                    logits, row[1:], reduction='sum') / count
            total.backward()
            wanted = sum(float((p.grad ** 2).sum()) for p in network.parameters()) ** 0.5
            print(f'{which}, {len(rows)} rows of {len(rows[0])}: {loss / total.item() - 1:.1e}',
                  f'{norm / wanted - 1:.1e}')
            self.assertLess(abs(loss / total.item() - 1), TOLERANCE)
            self.assertLess(abs(norm / wanted - 1), 10 * TOLERANCE)
            self.again()

    def test_a_window_gives_the_bits_of_any_placement(self):
        for which in some(('mistral', 'qwen2, the last layer', 'qwen3, the first layer'), 3):
            model, seen = self.model(which), set()
            _, data = self.documents(model)
            for place in PLACES:
                for threads in ('1', '2'):
                    steps = self.train(model, data, '--place', place, '--threads', threads,
                                       steps=3, export=self.path('out'))
                    with open(self.path('out/model.safetensors'), 'rb') as file:
                        seen.add((hashlib.sha256(file.read()).hexdigest(), str(steps)))
                    self.again()
            self.assertEqual(len(seen), 1)

    def test_a_window_changes_losses_and_only_those_of_longer_sequences(self):
        model = self.model('mistral')
        documents, data = self.documents(model)
        found = [self.train(self.model('mistral', sliding_window=window), data, steps=2)
                 for window in (33, T, None) if not self.again()]
        self.assertNotEqual(found[0], found[1])
        self.assertEqual(found[1], found[2])

    def refuse(self, data, then, now, told, **kind):
        """A store that was begun with one window, gone on with by another."""
        self.again()
        which = kind.pop('which', 'mistral')
        self.train(self.model(which, **then), data)
        words = self.train(self.model(which, **now), data, '--resume', steps=2, code=2)
        self.assertIn('error[E615] the store was trained with ' + told, words)
        self.assertNotIn('--window', words)

    def test_a_run_does_not_go_on_with_another_window(self):
        _, data = self.documents(self.model('mistral'))
        of, none = 'sliding_window {}'.format, f'no sliding_window below --seq-len {T}'
        for then, now, was, here in some(((33, 34, of(33), of(34)), (33, None, of(33), none),
                                          (None, 33, none, of(33)), (33, T, of(33), none),
                                          (T, 33, none, of(33))), 3):
            self.refuse(data, {'sliding_window': then}, {'sliding_window': now},
                        f'{was}, this run has {here}. Fix: the --model of that run, with {was}, '
                        'or another --store.')
        types = ['sliding_attention', 'full_attention']
        _, data = self.documents(self.model('qwen3, the first layer'))
        self.refuse(data, {}, {'layer_types': types[::-1]},
                    f'{of(40)}, this run has {of(40)} in other layers. Fix: the --model of that '
                    'run, with the layer_types that it had', which='qwen3, the first layer')

    def test_windows_that_sequences_fit_into_are_one(self):
        _, data = self.documents(self.model('mistral'))
        for windows in ((33, 33), (T, None, T + 1)):
            self.again()
            for i, window in enumerate(windows):
                self.train(self.model('mistral', sliding_window=window), data,
                           *(('--resume',) if i else ()), steps=i + 1)

    def test_another_length_is_told_as_that(self):
        _, data = self.documents(model := self.model('mistral'))
        self.train(model, data, length=32)
        told = self.train(model, data, '--resume', steps=2, code=2)
        self.assertIn("'seq-len 32'", told)
        self.assertIn('--seq-len 32', told)

    def test_the_config_is_exported_as_it_was(self):
        model = self.model('qwen3, the first layer')
        _, data = self.documents(model)
        self.train(model, data, export=self.path('out'))
        kept = []
        for folder in (model, self.path('out')):
            with open(os.path.join(folder, 'config.json'), encoding='ascii') as file:
                config = json.load(file)
            kept.append([config[key] for key in
                         ('sliding_window', 'use_sliding_window', 'layer_types')])
        self.assertEqual(kept[0], kept[1])


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
