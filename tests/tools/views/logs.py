# SPDX-License-Identifier: Apache-2.0
"""What the tests of views share: logs of our own making, and a reader of TensorBoard's files that
knows nothing of the writer."""
import json
import math
import struct

FILE = 'events.out.tfevents.hoistway'
GROUPS = ('stall_s', 'bytes', 'peak')
SCALARS = ('loss', 'grad_norm', 'lr', 'tokens', 'seconds', 'tok_s', 'bound_s', 'loss_scale',
           'hbm_free')


def step(number, **more):
    """A step's record, as the program writes it."""
    return {'kind': 'step', 'step': number, 'loss': 3 - number / 100, 'grad_norm': 1.5,
            'lr': 1e-5 * number, 'tokens': 48, 'seconds': 0.25, 'tok_s': 192.0,
            'stall_s': {'nvme': 0.125, 'copy': 0, 'update': 0.0625, 'net': 0},
            'bytes': {'nvme_read': 1048576 * number, 'nvme_write': 2048, 'h2d': 0, 'd2h': 0,
                      'net': 4096 * number, 'net_between': 1024},
            'peak': {'hbm': 0, 'dram': 4128768, 'nvme': 25165824}, 'bound_s': None,
            'update': 'deferred', **more}


def run(**more):
    return {'kind': 'run', 'version': '0.1.0', 'began': 1700000000, 'model': 'models/one',
            'data': 'a.bin', 'store': 'S', 'device': 'host', 'precision': 'bf16', 'steps': 40,
            'batch_tokens': 48, **more}


def evaluation(number, loss, best=None):
    return {'kind': 'eval', 'step': number, 'loss': loss,
            'perplexity': None if loss is None else math.exp(loss), 'targets': 96,
            'seconds': 0.125, **({'best_step': best} if best else {})}


def write(path, records):
    with open(path, 'w', encoding='utf-8') as file:
        for record in records:
            file.write(json.dumps(record, separators=(',', ':')) + '\n')
    return path


def records(path, kind='step'):
    with open(path, encoding='utf-8') as file:
        return [record for record in map(json.loads, file) if record['kind'] == kind]


def scalars_of(record):
    """{tag: value} of the record of a step or an evaluation."""
    if record['kind'] == 'eval':
        return {f'eval/{name}': record[name] for name in ('loss', 'perplexity')
                if record[name] is not None}
    flat = {name: record.get(name) for name in SCALARS}
    for group in GROUPS:
        flat.update({f'{group}/{name}': value for name, value in record[group].items()})
    return {name: value for name, value in flat.items() if value is not None}


# ---- events, by the formats' own texts: TFRecord, protobuf's wire format, event.proto ----

def masked(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7f) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """[(field, value)] of a message."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            size = {1: 8, 5: 4}[key & 7]
            value, at = data[at:at + size], at + size
        found.append((key >> 3, value))
    assert at == len(data)
    return found


def events(path):
    """[(time, step or None, version or None, {tag: value})]"""
    with open(path, 'rb') as file:
        raw = file.read()
    at, found = 0, []
    while at < len(raw):
        length, crc = struct.unpack_from('<QI', raw, at)
        assert crc == masked(raw[at:at + 8]), 'the length has another checksum'
        data = raw[at + 12:at + 12 + length]
        assert struct.unpack_from('<I', raw, at + 12 + length) == (masked(data),), 'an event, too'
        at += length + 16
        event, values = dict(fields(data)), {}
        for field, value in fields(event.get(5, b'')):
            assert field == 1
            scalar = dict(fields(value))
            values[scalar[1].decode()] = struct.unpack('<f', scalar[2])[0]
        found.append((struct.unpack('<d', event[1])[0], event.get(2),
                      event.get(3, b'').decode() or None, values))
    return found
