#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole program against float64 PyTorch: losses and gradient norms of twelve AdamW steps
(tests/golden).

golden.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ROOT = sys.argv[1:3]
TOLERANCE = 2e-5  # relative, of fp32


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
    return golden['steps'], steps


def worst(golden, steps):
    """The greatest relative difference of any loss or norm."""
    return max(
        abs(s[key] / g[key] - 1) for g, s in zip(golden, steps) for key in ('loss', 'grad_norm')
    )


class Golden(unittest.TestCase):
    def check(self, fixture, *more):
        golden, steps = train(fixture, *more)
        self.assertEqual(len(steps), 12)
        self.assertGreater(max(s['grad_norm'] for s in golden), 0)
        self.assertLess(worst(golden, steps), TOLERANCE)

    def test_tied_grouped_query_llama_in_ram(self):
        self.check('tied-gqa', '--place', 'states=dram,weights=dram')

    def test_tied_grouped_query_llama_from_disk(self):
        self.check('tied-gqa', '--place', 'states=nvme,weights=nvme')

    def test_untied_multi_head_llama_in_ram(self):
        self.check('untied-mha', '--place', 'states=dram,weights=dram')

    def test_untied_multi_head_llama_from_disk(self):
        self.check('untied-mha', '--place', 'states=nvme,weights=nvme')

    def test_without_clipping_the_results_differ(self):
        golden, steps = train('untied-mha', clip=0)
        self.assertGreater(worst(golden, steps), 100 * TOLERANCE)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
