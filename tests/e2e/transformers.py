#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trained export, loaded by Hugging Face transformers: is its loss on a batch the one hoistway
computes?

    transformers.py PATH_OF_HOISTWAY SOURCE_ROOT

Needs torch and transformers (PyPI); exits 77 where they are missing. Trains each fixture of
tests/golden twelve steps with weights and states on disk, exports, and compares the loss of the
next step, computed by hoistway from the export, with the loss of AutoModelForCausalLM on the
same tokens: two programs, one set of weights.
"""

import json
import os
import subprocess
import sys
import tempfile

# This file's own name must not hide the package.
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
TOLERANCE = {'fp32': 2e-6, 'bf16': 2e-3, 'fp16': 2.5e-4}  # logits are rounded at 2^-9 and 2^-12


def train(model, data, scratch, *more):
    log = os.path.join(scratch, 'log.jsonl')
    subprocess.run(
        [
            PROGRAM,
            'train',
            '--device',
            'host',
            '--quiet',
            '--model',
            model,
            '--data',
            data,
            '--durability',
            'none',
            '--store',
            os.path.join(scratch, 'store'),
            '--place',
            'states=nvme,weights=nvme',
            '--seq-len',
            '24',
            '--batch-tokens',
            '96',
            '--order',
            'sequential',
            '--lr',
            '1e-3',
            '--log',
            log,
            *more,
        ],
        check=True,
    )
    with open(log) as file:
        return [line['loss'] for line in map(json.loads, file) if line['kind'] == 'step']


def tokens(path, count):
    with open(path, 'rb') as file:
        header = int.from_bytes(file.read(4), 'little')
        width = 2 if header == 20240520 else 4
        file.seek(1024)
        raw = file.read(count * width)
    return [int.from_bytes(raw[i : i + width], 'little') for i in range(0, len(raw), width)]


def loss_of_transformers(model, data):
    row = torch.tensor(tokens(data, 97))
    network = AutoModelForCausalLM.from_pretrained(model, torch_dtype='auto')
    with torch.no_grad():
        logits = network(torch.stack([row[i * 24 : i * 24 + 24] for i in range(4)])).logits
    return torch.nn.functional.cross_entropy(logits.double().reshape(96, -1), row[1:97]).item()


def main():
    status = 0
    for fixture in (
        'tied-gqa', 'untied-mha', 'qk-norm', 'qkv-bias', 'windowed', 'pad-tied', 'pad-untied',
    ):
        for precision, tolerance in TOLERANCE.items():
            folder = os.path.join(ROOT, 'tests', 'golden', fixture)
            data = os.path.join(folder, 'tokens.bin')
            with tempfile.TemporaryDirectory() as scratch:
                export = os.path.join(scratch, 'export')
                train(
                    folder,
                    data,
                    scratch,
                    '--steps',
                    '12',
                    '--export',
                    export,
                    '--precision',
                    precision,
                    '--export-dtype',
                    precision,
                )
                ours = train(export, data, scratch, '--steps', '1', '--precision', precision)[0]
                theirs = loss_of_transformers(export, data)
            difference = abs(ours / theirs - 1)
            good = difference < tolerance
            print(
                f'{fixture} {precision}: hoistway {ours:.7f}, transformers {theirs:.7f},',
                f'{difference:.1e} relative',
                'ok' if good else 'TOO FAR',
            )
            status |= not good
    return status


if __name__ == '__main__':
    sys.exit(main())
