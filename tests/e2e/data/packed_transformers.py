#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packed, masked training against a loop over documents in Hugging Face transformers, in float64:
the losses and gradient norms of ten steps.

    packed_transformers.py PATH_OF_HOISTWAY SOURCE_ROOT

Needs torch and transformers (PyPI); exits 77 where they are missing. Which documents stand in
which row is `hoistway inspect --row`'s to say: what a row means is what is compared. The loop has
each piece of a document by itself, without padding, and divides by the step's learned targets.
"""

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest

# This folder has a file of the package's name.
sys.path = [
    p for p in sys.path if os.path.abspath(p or '.') != os.path.dirname(os.path.abspath(__file__))
]
try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f'skipped: {missing}; pip install torch transformers')
    sys.exit(77)

PROGRAM, ROOT = sys.argv[1:3]
T, ROWS, STEPS = 32, 4, 10  # rows of a step
LR, BETAS, EPS, DECAY, CLIP = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0
TOLERANCE = 2e-6


def write_documents(path, vocab):
    chance = random.Random(7)
    with open(path, 'w', encoding='ascii') as file:
        for _ in range(150):
            ids = [chance.randrange(vocab) for _ in range(chance.randrange(2, 2 * T))]
            mask = [chance.randrange(2) for _ in ids]
            mask[-1] = 1
            file.write(json.dumps({'input_ids': ids, 'mask': mask}) + '\n')


def hoistway(model, data, scratch):
    """-> (loss, norm) of each step."""
    log = os.path.join(scratch, 'log')
    subprocess.run(
        [PROGRAM, 'train', '--device=host', '--quiet', '--precision=fp32', '--model', model,
         '--data', data, '--long=split', '--order=sequential', '--seq-len', str(T),
         '--batch-tokens', str(T * ROWS), '--grain', str(2 * T), '--steps', str(STEPS),
         '--lr', str(LR), '--betas', '{},{}'.format(*BETAS), '--eps', str(EPS),
         '--weight-decay', str(DECAY), '--clip', str(CLIP), '--durability=none',
         '--store', os.path.join(scratch, 'store'), '--log', log],
        check=True)  # fmt: skip
    with open(log, encoding='ascii') as file:
        return [(line['loss'], line['grad_norm']) for line in map(json.loads, file)
                if line['kind'] == 'step']


def pieces_of(data, row):
    """(inputs, targets) of each document of a row; a target that is not learned is -100."""
    told = json.loads(subprocess.run(
        [PROGRAM, 'inspect', data, '--seq-len', str(T), '--long', 'split', '--json', '--row',
         str(row + 1)], capture_output=True, check=True).stdout)['row']
    ends = [i for i in range(1, T) if told['first'][i] != told['first'][i - 1]] + [T]
    begin = 0
    for end in ends:
        targets = [-100 if t is None else t for t in told['targets'][begin:end]]
        if any(t >= 0 for t in targets):
            yield told['inputs'][begin:end], targets
        begin = end


def in_float64(network, config):
    """transformers computes angles and norms in float32 whatever the model's dtype is."""
    d = getattr(config, 'head_dim', None) or config.hidden_size // config.num_attention_heads
    inverse = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)

    def rotary(_, position_ids=None, **__):
        angle = position_ids.double()[..., None] * torch.cat((inverse, inverse))
        return angle.cos(), angle.sin()

    network.model.rotary_emb.forward = rotary
    for module in network.modules():
        if type(module).__name__.endswith('RMSNorm'):
            module.forward = lambda x, m=module: m.weight * (
                x * torch.rsqrt((x * x).mean(-1, keepdim=True) + m.variance_epsilon))


def loop_of_transformers(model, data):
    network = AutoModelForCausalLM.from_pretrained(model, torch_dtype=torch.float64).train()
    in_float64(network, network.config)
    weights = list(network.parameters())
    optimizer = torch.optim.AdamW(
        [{'params': [w for w in weights if w.dim() >= 2], 'weight_decay': DECAY},
         {'params': [w for w in weights if w.dim() < 2], 'weight_decay': 0.0}],
        lr=LR, betas=BETAS, eps=EPS)  # fmt: skip
    for step in range(STEPS):
        pieces = [p for row in range(step * ROWS, (step + 1) * ROWS) for p in pieces_of(data, row)]
        learned = sum(t >= 0 for _, targets in pieces for t in targets)
        optimizer.zero_grad()
        total = 0.0
        for inputs, targets in pieces:
            logits = network(torch.tensor([inputs])).logits[0]
            loss = torch.nn.functional.cross_entropy(
                logits, torch.tensor(targets), reduction='sum', ignore_index=-100) / learned
            loss.backward()
            total += loss.item()
        norm = math.sqrt(sum((w.grad * w.grad).sum().item() for w in weights))
        for w in weights:
            w.grad.mul_(min(1.0, CLIP / (norm + 1e-6)))
        optimizer.step()
        yield total, norm


class PackedTransformers(unittest.TestCase):
    def test_losses_and_norms_are_those_of_a_loop_over_documents(self):
        torch.set_num_threads(1)
        model = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')  # default rope, theta 10000
        worst = 0.0
        with tempfile.TemporaryDirectory() as scratch:
            data = os.path.join(scratch, 'documents.jsonl')
            write_documents(data, 160)
            ours = hoistway(model, data, scratch)
            self.assertEqual(len(ours), STEPS)
            for step, (mine, other) in enumerate(zip(ours, loop_of_transformers(model, data))):
                apart = max(abs(a / b - 1) for a, b in zip(mine, other))
                worst = max(worst, apart)
                print(f'step {step + 1}: hoistway {mine[0]:.8f} {mine[1]:.7f}, transformers '
                      f'{other[0]:.8f} {other[1]:.7f}, {apart:.1e} relative')
        print(f'{worst:.1e} relative at most, {TOLERANCE:.0e} allowed')
        self.assertLessEqual(worst, TOLERANCE)


if __name__ == '__main__':
    del sys.argv[1:]
    unittest.main()
