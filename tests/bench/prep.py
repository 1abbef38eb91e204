#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast prep is, beside tokenizers' own encode_batch on the same texts and cores.

    prep.py [MEBIBYTES]

Texts, chats of one assistant turn and chats of eight, so many MiB (default 8) each, of the words of
docs/. encode_batch is given the rendered texts, without reading, rendering, masks or writing. Each
pair runs one after the other, three times; printed are the median rates, in MiB of rendered text a
second, and their ratio. A tokenizer is trained first; what it costs to start is not counted.
"""
import json
import os
import random
import statistics
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, 'tests', 'python'), os.path.join(ROOT, 'python')]
import support  # noqa: E402

support.need()

from hoistway import model as models, options, prep, source  # noqa: E402
from hoistway.pool import in_order  # noqa: E402
from hoistway.template import Template  # noqa: E402
from hoistway.tokenfile import TokenFile  # noqa: E402
from hoistway.worker import Worker  # noqa: E402

SEED, RUNS, CHARACTERS = 1, 3, 2200


def words(draw, text, characters):
    at = draw.randrange(len(text) - characters)
    return ' '.join(text[at:at + characters].split())


def chat(draw, text, turns):
    each = CHARACTERS // (2 * turns)
    return {'messages': [{'role': role, 'content': words(draw, text, each)}
                         for _ in range(turns) for role in ('user', 'assistant')]}


def encode_batch(backend, texts):
    begun = time.monotonic()
    for i in range(0, len(texts), 1024):
        backend.encode_batch(texts[i:i + 1024], add_special_tokens=False)
    return time.monotonic() - begun


def prepare(given, model):
    begun = time.monotonic()
    template = Template(model.tokenizer, model.name)
    work = Worker(model, template, prep.settings_of(given, model, template))
    with TokenFile(given.out, model.vocab) as file:
        for result in in_order(work, source.chunks([given.data]), given.processes):
            assert not result.bad and not result.controlled, result
            file.add(result.ids, result.mask, result.lengths)
        file.finish({})
    return time.monotonic() - begun


def main(mebibytes):
    draw, text = random.Random(SEED), '\n'.join(support.corpus())
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
        directory = os.path.join(folder, 'model')
        tok = support.model(directory, vocab=8000)
        model = models.load(directory)
        count = (mebibytes << 20) // CHARACTERS
        print(f'{options.cores()} cores; {json.dumps(support.versions())}', flush=True)
        for name, rows in (
                ('text', [{'text': words(draw, text, CHARACTERS)} for _ in range(count)]),
                ('chats of 1 turn', [chat(draw, text, 1) for _ in range(count)]),
                ('chats of 8 turns', [chat(draw, text, 8) for _ in range(count)])):
            data = support.write_rows(os.path.join(folder, 'rows.jsonl'), rows)
            texts = [row['text'] if 'text' in row else
                     tok.apply_chat_template(row['messages'], tokenize=False) for row in rows]
            given = options.parse(['--model', directory, '--data', data, '--out',
                                   os.path.join(folder, 'out.safetensors'), '--control', 'keep'])
            size = sum(map(len, texts)) / 2**20
            pairs = []
            for _ in range(RUNS):
                os.environ['TOKENIZERS_PARALLELISM'] = 'false'  # before processes are forked
                ours = prepare(given, model)
                os.environ['TOKENIZERS_PARALLELISM'] = 'true'
                pairs.append((ours, encode_batch(model.backend, texts)))
            ours, theirs = (statistics.median(pair[i] for pair in pairs) for i in range(2))
            ratios = sorted(b / a for a, b in pairs)
            print(f'{name}: prep {size / ours:.2f} MiB/s, encode_batch {size / theirs:.2f} MiB/s, '
                  f'ratio {ratios[1]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})', flush=True)


if __name__ == '__main__':
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
