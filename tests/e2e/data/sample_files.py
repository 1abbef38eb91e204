# SPDX-License-Identifier: Apache-2.0
"""Token files with prompts, for the tests of samples: an id's bytes are itself in brackets."""

import json
import random
import re
import struct

LETTERS = {'U32': 'I', 'U8': 'B', 'U64': 'Q'}


def starts(pieces):
    at = [0]
    for piece in pieces:
        at.append(at[-1] + len(piece))
    return at


def token_file(path, parts):
    """parts: {name: (dtype, values)}."""
    header, data = {'__metadata__': {'format': 'hoistway.tokens.1'}}, b''
    for name, (dtype, values) in parts.items():
        packed = struct.pack(f'<{len(values)}{LETTERS[dtype]}', *values)
        header[name] = {'dtype': dtype, 'shape': [len(values)],
                        'data_offsets': [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + data)
    return path


def draw_prompts(seed, count, vocab, longest):
    rng = random.Random(seed)
    return [[rng.randrange(vocab) for _ in range(rng.randrange(1, longest + 1))]
            for _ in range(count)]


def write(path, vocab, prompts, documents=None, ids=None, spelt=True):
    """Documents, or one row of tokens; with prompts, and what ids stand for."""
    parts = {'tokens': ('U32', ids if documents is None else sum(documents, []))}
    if documents is not None:
        parts['documents'] = ('U64', starts(documents))
    if prompts:
        parts['prompts'] = ('U32', sum(prompts, []))
        parts['prompt_offsets'] = ('U64', starts(prompts))
    if spelt:
        words = [f'<{i}>'.encode() for i in range(vocab)]
        parts['bytes'] = ('U8', list(b''.join(words)))
        parts['byte_offsets'] = ('U64', starts(words))
    return token_file(path, parts)


def ids_of(text):
    return [int(word) for word in re.findall(r'<(\d+)>', text)]
