#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Samples against the greedy generate of Hugging Face transformers: the same ids, before the first
step and behind the last one.

    samples_transformers.py PATH_OF_HOISTWAY SOURCE_ROOT

Needs torch and transformers (PyPI); exits 77 where they are missing.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from sample_files import draw_prompts, ids_of, write  # noqa: E402

# This folder has a file of the package's name.
sys.path = [p for p in sys.path if os.path.abspath(p or '.') != HERE]
try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f'skipped: {missing}; pip install torch transformers')
    sys.exit(77)

PROGRAM, ROOT = sys.argv[1:3]
T, NEW, PROMPTS = 32, 12, 7
FIXTURES = ('tied-gqa', 'untied-mha', 'qk-norm', 'qkv-bias', 'windowed')


def texts(model, data, scratch):
    """Of the first evaluation and of the last: each sample's ids."""
    log = os.path.join(scratch, 'log')
    subprocess.run(
        [PROGRAM, 'train', '--device=host', '--quiet', '--precision=fp32', '--model', model,
         '--data', data, '--seq-len', str(T), '--batch-tokens', str(4 * T), '--steps=6',
         '--lr=1e-3', '--durability=none', '--place=states=nvme,weights=nvme', '--store',
         os.path.join(scratch, 'store'), '--log', log, '--export', os.path.join(scratch, 'out'),
         '--export-dtype=fp32', '--eval', data, '--samples', str(PROMPTS), '--sample-tokens',
         str(NEW)],
        check=True)  # fmt: skip
    found = {}
    with open(log, encoding='ascii') as file:
        for line in map(json.loads, file):
            if line['kind'] == 'sample':
                found.setdefault(line['step'], []).append(ids_of(line['text']))
    return [found[0], found[6]]


def generated(model, prompts):
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ends = network.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
    found = []
    for prompt in prompts:
        row = torch.tensor([prompt])
        out = network.generate(row, attention_mask=torch.ones_like(row), do_sample=False,
                               max_new_tokens=NEW)[0, len(prompt):].tolist()  # fmt: skip
        found.append(out[:-1] if out[-1] in ends else out)
    return found


def with_ends(path, ids, written):
    """A copy of a model whose config.json has these ends, and its generation_config.json this text
    (None: it has no such file)."""
    model = shutil.copytree(os.path.join(ROOT, 'tests', 'golden', 'tied-gqa'), path)
    with open(os.path.join(model, 'config.json'), encoding='ascii') as file:
        config = json.load(file)
    with open(os.path.join(model, 'config.json'), 'w', encoding='ascii') as file:
        json.dump({**config, 'eos_token_id': ids}, file)
    if written is not None:
        with open(os.path.join(model, 'generation_config.json'), 'w', encoding='ascii') as file:
            file.write(written)
    return model


def compare_ends():
    """Which of the two files names the ends. An end is the fourth id that the first prompt gets."""
    vocab, status = 272, 0
    prompts = draw_prompts(4, PROMPTS, vocab, 12)
    with tempfile.TemporaryDirectory() as scratch:
        model = with_ends(os.path.join(scratch, 'free'), None, None)
        whole = generated(model, prompts)
        end, other = whole[0][3], whole[1][3]
        data = write(os.path.join(scratch, 'data.safetensors'), vocab, prompts,
                     ids=[i % vocab for i in range(400)])
        for name, written in (('missing', None), ('without ends', '{"do_sample": false}'),
                              ('null', '{"eos_token_id": null}'), ('no JSON', '{"eos'),
                              ('others', json.dumps({'eos_token_id': [other]}))):
            with tempfile.TemporaryDirectory() as folder:
                model = with_ends(os.path.join(folder, 'model'), end, written)
                ours, theirs = texts(model, data, folder)[0], generated(model, prompts)
            ended = name in ('missing', 'no JSON', 'others')
            good = ours == theirs and (theirs != whole) == ended
            print(f'generation_config.json {name}:',
                  'equal' if good else f'\n{ours}\n{theirs}\nDIFFER')
            status |= not good
    return status


def main():
    status = compare_ends()
    for fixture in FIXTURES:
        model = os.path.join(ROOT, 'tests', 'golden', fixture)
        with open(os.path.join(model, 'config.json'), encoding='ascii') as file:
            vocab = json.load(file)['vocab_size']
        chance = random.Random(11)
        prompts = draw_prompts(4, PROMPTS, vocab, 12)
        documents = [[chance.randrange(vocab) for _ in range(chance.randrange(2, T))]
                     for _ in range(40)]
        for kind in ({'documents': documents}, {'ids': sum(documents, [])}):
            with tempfile.TemporaryDirectory() as scratch:
                data = write(os.path.join(scratch, 'data.safetensors'), vocab, prompts, **kind)
                ours = texts(model, data, scratch)
                theirs = [generated(path, prompts)
                          for path in (model, os.path.join(scratch, 'out'))]
            good = ours == theirs
            different = len(set(sum(ours[0] + ours[1], [])))
            print(f'{fixture} {next(iter(kind))}: {sum(map(len, ours[0] + ours[1]))} ids,',
                  f'{different} different ones,',
                  'equal' if good else f'\n{ours}\n{theirs}\nDIFFER')
            status |= not good
    return status


if __name__ == '__main__':
    sys.exit(main())
