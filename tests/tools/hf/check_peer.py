#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the same safetensors files taken and refused as by the safetensors package's own reader?

    check_peer.py HF_VERDICT SEEDS [--rounds N] [--seed N]

HF_VERDICT is the program of hf_verdict.c, SEEDS a folder of files. They, and N files made from
them and from models of random tensors by damage of all kinds, are read by both. What both take has
the same tensors. Where one takes what the other refuses, DIFFERENCES must say why; and each of its
rows must have been seen.

Needs safetensors (PyPI); exits 77 where it is missing.
"""
import argparse
import json
import math
import os
import random
import re
import struct
import subprocess
import sys

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TESTS, 'hostile'))
from folder import DTYPES  # noqa: E402

try:
    import safetensors
except ImportError as missing:
    print(f'skipped: {missing}; pip install safetensors')
    sys.exit(77)

# Files that the package takes and we refuse: our words (TWICE: whatever they are), why, and one
# such file. There are none that we take and it refuses. Its JSON is read by serde, which is
# lenient where the format's page is silent or says otherwise.
E = '{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
TWICE = 'a tensor stands there twice'
DIFFERENCES = {
    TWICE: (
        'the page forbids the same key twice; the package never looks at the first',
        '{"a":%s,"a":%s}' % (E, E)),
    r'has unknown key': (
        'the page names three keys; what another one would mean is not known',
        '{"a":{"x":1,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'),
    r'__metadata__ has a key.*twice': (
        'as above', '{"__metadata__":{"x":"1","x":"2"},"a":%s}' % E),
    r'__metadata__ is not an object': (
        'the package takes null for none', '{"__metadata__":null,"a":%s}' % E),
    r'value of tensor \S* is not an object': (
        'serde takes a struct as an array of its fields, too', '{"a":["U8",[4],[0,4]]}'),
    r'unknown dtype \{': (
        'serde takes an enum as an object with its name as the key, too',
        '{"a":{"dtype":{"U8":null},"shape":[4],"data_offsets":[0,4]}}'),
    r'a NUL in a string': (
        'a name with NUL would be cut short in C', '{"a\\u0000":%s}' % E),
    r'more than 8 numbers': (
        'tensors here have at most 8 dimensions',
        '{"a":{"dtype":"U8","shape":[4,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}}'),
    r'name has \d+ bytes, at most 1024': (
        'names here have at most 1 KiB', '{"%s":%s}' % ('n' * 1025, E)),
    r'want whole numbers from 0 to 2\^63-1': (
        'no file has an offset beyond 2^63; beside a 0 the product is small all the same',
        '{"z":{"dtype":"U8","shape":[9223372036854775808,0],"data_offsets":[0,0]},"a":%s}' % E),
}

NUMBERS = (0, 1, 2, 4, 7, 8, -1, 1.0, 4.5, 1e3, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63,
           2**64 - 1, 2**64, 4194305, 211106198978564, True, None, '4', [], {})
PIECES = ('{', '}', '[', ']', ',', ':', '"', '\\', '\\u0000', '\\ud800', '\\ud83d\\ude00', '\x00',
          '\xff', '\xc3\xa9', '\xed\xa0\x80', '\xef\xbb\xbf', '-1', '1e5', '01', '1.5', '-0',
          'null', 'true', '"a":1,', '{"a":{}}', '[' * 20, ' ', '\n', '\t', '"dtype":"F32",',
          '"shape":[4],', '"data_offsets":[0,4],', '"__metadata__":{"x":"y"},')


def file_of(text, data_bytes):
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack('<Q', len(text)) + text + bytes(data_bytes)


def some_model(r):
    """A header that both take, as an object, and the bytes of its data."""
    header, at = {}, 0
    if r.random() < 0.3:
        header['__metadata__'] = {'format': 'pt', 'n': str(r.random())}
    for i in range(r.randrange(5)):
        dtype = r.choice(list(DTYPES))
        shape = [r.choice((0, 1, 2, 3, 4, 8)) for _ in range(r.randrange(4))]
        bits = math.prod(shape) * DTYPES[dtype]
        if bits % 8:
            shape, bits = [8], 8 * DTYPES[dtype]
        header[r.choice(('t%d', 'm.%d.\u00e9', '../%d', '\n%d')) % i] = {
            'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + bits // 8]}
        at += bits // 8
    names = list(header)
    r.shuffle(names)
    return {name: header[name] for name in names}, at


def damage_values(r, header):
    """Another value somewhere in the object."""
    tensors = [n for n in header if n != '__metadata__']
    if not tensors or r.random() < 0.2:
        header[r.choice(('__metadata__', 'new'))] = r.choice(NUMBERS + ({'x': 1}, {'x': 'y'}))
        return
    entry = header[r.choice(tensors)]
    key = r.choice(('dtype', 'shape', 'data_offsets'))
    what = r.random()
    if what < 0.1:
        del entry[key]
    elif what < 0.2:
        entry[r.choice(('x', 'Dtype', 'offsets'))] = r.choice(NUMBERS)
    elif what < 0.35 or key == 'dtype':
        entry[key] = r.choice(NUMBERS + tuple(DTYPES) + ('f32', 'F128', {'F32': None}))
    else:
        values = entry[key] = list(entry[key])
        place = r.randrange(len(values) + 1)
        values[place:place + r.randrange(2)] = [r.choice(NUMBERS)]


def damage_bytes(r, text):
    text = bytearray(text)
    for _ in range(1 + r.randrange(3)):
        at = r.randrange(len(text) + 1)
        what = r.randrange(4)
        if what == 0:
            text[at:at] = r.choice(PIECES).encode('latin-1')
        elif what == 1:
            del text[at:at + 1 + r.randrange(8)]
        elif what == 2 and at < len(text):
            text[at] ^= 1 << r.randrange(8)
        else:
            begin = r.randrange(len(text) + 1)
            text[at:at] = text[begin:begin + r.randrange(60)]
    return bytes(text)


def damaged(r, seeds):
    """One file: a seed or a model, with values, bytes or lengths changed."""
    if r.random() < 0.2:
        file = damage_bytes(r, r.choice(seeds))
        if r.random() < 0.7 and len(file) > 8:
            file = struct.pack('<Q', max(file.rfind(b'}') - 7, 0)) + file[8:]
        return file
    header, data_bytes = some_model(r)
    if r.random() < 0.6:
        damage_values(r, header)
    text = json.dumps(header, ensure_ascii=r.random() < 0.5).encode()
    if r.random() < 0.4:
        text = damage_bytes(r, text)
    if r.random() < 0.1:
        data_bytes = max(0, data_bytes + r.choice((-1, 1, 8)))
    return file_of(text, data_bytes)


def reference(file):
    """What the package makes of it: its tensors, or None and its words."""
    try:
        tensors = safetensors.deserialize(file)
    except Exception as refused:  # pylint: disable=broad-except
        return None, str(refused)
    return sorted(f"{name.encode().hex()}:{t['dtype']}:{','.join(map(str, t['shape']))}:"
                  f"{len(t['data'])}" for name, t in tensors), ''


def ours(program, files):
    stream = b''.join(struct.pack('<I', len(file)) + file for file in files)
    done = subprocess.run([program], input=stream, capture_output=True, check=True)
    lines = done.stdout.decode('utf-8', 'surrogateescape').split('\n')[:-1]
    assert len(lines) == len(files), (len(lines), len(files))
    for line in lines:
        verdict, _, rest = line.partition(' ')
        yield (sorted(rest.split()), '') if verdict == 'accepted' else (None, rest)


def names_twice(file):
    """Whether the header's object, which the package has read, has a key twice."""
    pairs = json.loads(file[8:8 + struct.unpack('<Q', file[:8])[0]],
                       object_pairs_hook=lambda pairs: pairs)
    return len({name for name, _ in pairs}) < len(pairs)


def explain(file, message, seen):
    rows = [TWICE] if names_twice(file) else [row for row in DIFFERENCES if re.search(row, message)]
    for row in rows:
        seen[row] = seen.get(row, 0) + 1
    return len(rows) == 1


def compare(file, mine, theirs, seen):
    """What is wrong, or None."""
    if mine[0] is not None and theirs[0] is not None:
        same = mine[0] == theirs[0]
        return None if same else f'other tensors: {mine[0]}, the package: {theirs[0]}'
    if mine[0] is None and theirs[0] is None:
        return None
    if mine[0] is None and explain(file, mine[1], seen):
        return None
    return f'ours: {mine[1] or "accepted"}; the package: {theirs[1] or "accepted"}: {file[:600]!r}'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program')
    parser.add_argument('seeds')
    parser.add_argument('--rounds', type=int, default=20000)
    parser.add_argument('--seed', type=int, default=1)
    arguments = parser.parse_args()
    r = random.Random(arguments.seed)
    seeds = []
    for name in sorted(os.listdir(arguments.seeds)):
        with open(os.path.join(arguments.seeds, name), 'rb') as f:
            seeds.append(f.read())
    files = seeds + [file_of(text, 4) for _, text in DIFFERENCES.values()]
    files += [damaged(r, seeds) for _ in range(arguments.rounds)]
    seen, wrong, both = {}, [], 0
    for file, mine in zip(files, ours(arguments.program, files)):
        theirs = reference(file)
        both += mine[0] is not None and theirs[0] is not None
        problem = compare(file, mine, theirs, seen)
        if problem:
            wrong.append(problem)
    unseen = [row for row in DIFFERENCES if row not in seen]
    print(f'safetensors {safetensors.__version__}, seed {arguments.seed}: {len(files)} files, '
          f'{both} taken by both, {sum(seen.values())} differences that are explained')
    for problem in wrong[:20]:
        print(f'not explained: {problem}')
    for row in unseen:
        print(f'a difference that is none any more: {row}')
    assert both > len(files) // 20, 'too few good files: the comparison says little'
    return 1 if wrong or unseen else 0


sys.exit(main())
