#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole program against float64 PyTorch: losses and gradient norms of twelve AdamW steps
(tests/golden).

golden.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ROOT = sys.argv[1:3]
TOLERANCE = 2e-5  # relative, of fp32
TOLERANCE_FP16 = 2e-3


def train(fixture, *more, clip=None):
    folder = os.path.join(ROOT, 'tests', 'golden', fixture)
    with open(os.path.join(folder, 'golden.json')) as file:
        golden = json.load(file)
    with tempfile.TemporaryDirectory() as scratch:
        log = os.path.join(scratch, 'log.jsonl')
        subprocess.run(
            [
                PROGRAM,
                'train',
                '--device',
                'host',
                '--quiet',
                '--model',
                folder,
                '--data',
                os.path.join(folder, 'tokens.bin'),
                '--durability',
                'none',
                '--store',
                os.path.join(scratch, 'store'),
                '--log',
                log,
                '--steps',
                str(len(golden['steps'])),
                '--seq-len',
                str(golden['seq_len']),
                '--batch-tokens',
                str(golden['batch_tokens']),
                '--grain',
                str(golden['grain_tokens']),
                '--lr',
                str(golden['lr']),
                '--betas',
                '{},{}'.format(*golden['betas']),
                '--eps',
                str(golden['eps']),
                '--weight-decay',
                str(golden['weight_decay']),
                '--clip',
                str(golden['clip'] if clip is None else clip),
                '--order',
                golden['order'],
                *more,
            ],
            check=True,
            timeout=120,
        )
        with open(log) as file:
            steps = [line for line in map(json.loads, file) if line['kind'] == 'step']
    return golden, steps


def worst(golden, steps):
    """The greatest relative difference of any loss or norm; skipped steps have none."""
    return max(
        abs(s[key] / g[key] - 1)
        for g, s in zip(golden, steps)
        for key in ('loss', 'grad_norm')
        if g[key] is not None
    )


class Golden(unittest.TestCase):
    def check(self, fixture, *more):
        golden, steps = train(fixture, *more)
        self.assertEqual(len(steps), 12)
        self.assertGreater(max(s['grad_norm'] for s in golden['steps']), 0)
        self.assertLess(worst(golden['steps'], steps), TOLERANCE)

    def test_tied_grouped_query_llama_in_ram(self):
        self.check('tied-gqa', '--place', 'states=dram,weights=dram')

    def test_tied_grouped_query_llama_from_disk(self):
        self.check('tied-gqa', '--place', 'states=nvme,weights=nvme')

    def test_untied_multi_head_llama_in_ram(self):
        self.check('untied-mha', '--place', 'states=dram,weights=dram')

    def test_untied_multi_head_llama_from_disk(self):
        self.check('untied-mha', '--place', 'states=nvme,weights=nvme')

    def test_normed_heads_in_ram(self):
        self.check('qk-norm', '--place', 'states=dram,weights=dram')

    def test_normed_heads_from_disk(self):
        self.check('qk-norm', '--place', 'states=nvme,weights=nvme')

    def test_biases_in_ram(self):
        self.check('qkv-bias', '--place', 'states=dram,weights=dram')

    def test_biases_from_disk(self):
        self.check('qkv-bias', '--place', 'states=nvme,weights=nvme')

    def test_sequences_as_long_as_the_window(self):
        self.check('windowed', '--place', 'states=dram,weights=nvme')

    def test_rows_for_padding(self):
        self.check('pad-tied', '--place', 'states=dram,weights=nvme')
        self.check('pad-untied', '--place', 'states=nvme,weights=nvme')

    def test_an_end_of_text_is_inside_of_the_sequences(self):
        """So that the references, which know of none, show that it ends nothing."""
        for fixture in sorted(os.listdir(os.path.join(ROOT, 'tests', 'golden'))):
            folder = os.path.join(ROOT, 'tests', 'golden', fixture)
            if not os.path.isdir(folder) or fixture.startswith('_'):
                continue
            with open(os.path.join(folder, 'config.json')) as file:
                ends = json.load(file)['eos_token_id']
            with open(os.path.join(folder, 'golden.json')) as file:
                length = json.load(file)['seq_len']
            with open(os.path.join(folder, 'tokens.bin'), 'rb') as file:
                raw = file.read()
            count = struct.unpack('<3i', raw[:12])[2]
            row = struct.unpack(f'<{count}{"H" if len(raw) == 1024 + 2 * count else "I"}',
                                raw[1024:])
            ends = ends if isinstance(ends, list) else [ends]
            self.assertTrue(any(row[i] in ends and 0 < i % length < length - 1
                                for i in range(count - 1)), fixture)

    def test_without_clipping_the_results_differ(self):
        golden, steps = train('untied-mha', clip=0)
        self.assertGreater(worst(golden['steps'], steps), 100 * TOLERANCE)

    def test_groups_of_tensors_are_those_of_pytorch(self):
        with open(os.path.join(ROOT, 'tests', 'golden', 'untied-mha', 'golden.json')) as file:
            groups = json.load(file)['groups']
        words = [f'--group={g["glob"]}:' + ','.join(
            f'{key}={value}' + 'x' * (key == 'lr') for key, value in g.items() if key != 'glob')
            for g in groups]
        golden, steps = train('untied-mha', '--place', 'states=nvme,weights=nvme', *words)
        self.assertEqual(len(steps), 12)
        self.assertLess(worst(golden['group_steps'], steps), TOLERANCE)
        self.assertGreater(worst(golden['steps'], steps), 100 * TOLERANCE)

    def test_frozen_tensors_are_those_of_pytorch(self):
        for fixture, place in (('untied-mha', 'states=nvme,weights=nvme'),
                               ('tied-gqa', 'states=dram,weights=dram')):
            with open(os.path.join(ROOT, 'tests', 'golden', fixture, 'golden.json')) as file:
                only = json.load(file)['train_only']
            words = [f'--train-only={glob}' for glob in only]
            golden, steps = train(fixture, '--place', place, *words)
            self.assertEqual(len(steps), 12)
            self.assertLess(worst(golden['train_only_steps'], steps), TOLERANCE)
            self.assertGreater(worst(golden['steps'], steps), 100 * TOLERANCE)

    def test_fp16_with_the_default_loss_scale(self):
        for fixture in ('tied-gqa', 'untied-mha', 'qk-norm', 'qkv-bias'):
            golden, steps = train(fixture, '--precision', 'fp16')
            self.assertFalse(any(step['skipped'] for step in steps))
            self.assertEqual({step['loss_scale'] for step in steps}, {65536})
            self.assertLess(worst(golden['steps'], steps), TOLERANCE_FP16)

    def test_fp16_skips_what_overflows_and_nothing_else(self):
        for fixture in ('tied-gqa', 'untied-mha', 'qk-norm', 'qkv-bias'):
            folder = os.path.join(ROOT, 'tests', 'golden', fixture)
            with open(os.path.join(folder, 'golden.json')) as file:
                scale = json.load(file)['loss_scale']
            golden, steps = train(fixture, '--precision', 'fp16', '--loss-scale', str(scale))
            skipped = [step['grad_norm'] is None for step in golden['scaled_steps']]
            self.assertEqual([step['skipped'] for step in steps], skipped)
            self.assertEqual([step['grad_norm'] is None for step in steps], skipped)
            self.assertEqual(
                [step['loss_scale'] for step in steps],
                [scale / 2 ** sum(skipped[:i]) for i in range(len(steps))],
            )
            self.assertLess(worst(golden['scaled_steps'], steps), TOLERANCE_FP16)
            made = [i for i, skips in enumerate(skipped) if not skips]
            without = worst([golden['steps'][i] for i in made], [steps[i] for i in made])
            self.assertGreater(without, 10 * TOLERANCE_FP16)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
