#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The type of an export: which one, rounded how, and what else says so.

export.py PATH_OF_HOISTWAY SOURCE_ROOT

The masters are put together from a store's bytes, and rounded with Python's own arithmetic.
"""

import array
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from short import by_turns  # noqa: E402
from store_bytes import Store  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')  # bf16, in two files
TOKENS = os.path.join(MODEL, 'tokens.bin')
NAMES = {'fp32': ('F32', 'float32'), 'bf16': ('BF16', 'bfloat16'), 'fp16': ('F16', 'float16')}
NEEDS = 'exported {}; --export-dtype fp32 gives the exact master\n'
UNCHANGED = '--lr=1e-30'  # far less than half the last bit of any weight


def tensors(folder):
    """-> {name: (dtype, bytes)} of all files."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith('.safetensors'):
            continue
        with open(os.path.join(folder, name), 'rb') as file:
            data = file.read()
        size = 8 + struct.unpack('<Q', data[:8])[0]
        for tensor, told in json.loads(data[8:size]).items():
            if tensor != '__metadata__':
                begin, end = told['data_offsets']
                found[tensor] = told['dtype'], data[size + begin:size + end]
    return found


def words(data, code):
    out = array.array(code)
    out.frombytes(data)
    return out


def bf16_to_even(data):
    bits = words(data, 'I')
    return array.array('H', ((b + 0x7fff + (b >> 16 & 1)) >> 16 for b in bits)).tobytes()


def bf16_ties_away(data):
    return array.array('H', ((b + 0x8000) >> 16 for b in words(data, 'I'))).tobytes()


def f16_to_even(data):
    values = words(data, 'f')
    return struct.pack(f'<{len(values)}e', *values)


def masters(store, precision):
    """All of a version, one tile after another: f32 bits."""
    told = Store(store)
    entries = [e for e in told.entries() if not e.flags & 2]
    states = {e.tile: told.extent(e) for e in entries if e.kind == 1}
    if precision == 'fp16':  # an f32 master begins the record; the size follows from 12 B each
        return b''.join(states[t] for t in sorted(states))
    weights = {e.tile: told.extent(e) for e in entries if e.kind == 0}
    if precision == 'fp32':
        return b''.join(weights[t] for t in sorted(weights))
    out = array.array('I')
    for tile in sorted(weights):
        high = words(weights[tile], 'H')
        low = words(states[tile][:2 * len(high)], 'h')
        out.extend([(h << 16) + r & 0xffffffff for h, r in zip(high, low)])
    return out.tobytes()


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def command(self, *more, model=MODEL, steps=3):
        return [
            PROGRAM, 'train', '--device=host', '--model', model, '--data', TOKENS, '--steps',
            str(steps), '--seq-len=24', '--batch-tokens=48', '--store', self.path('store'), *more,
        ]  # fmt: skip

    def run_it(self, *words):
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    def good(self, *words):
        """-> stdout."""
        done = self.run_it(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def train(self, *more, **kind):
        return self.good(*self.command(*more, **kind))

    def later(self, out, *more, model=MODEL):
        return self.good(PROGRAM, 'ckpt', 'export', self.path('store'), '--model', model,
                         '--export', self.path(out), *more)

    def typed(self, folder, name):
        """That all that tells the type says this one. -> the tensors' bytes."""
        there = tensors(folder)
        self.assertEqual({dtype for dtype, _ in there.values()}, {NAMES[name][0]})
        with open(os.path.join(folder, 'config.json'), encoding='ascii') as file:
            config = json.load(file)
        self.assertEqual({config[k] for k in ('dtype', 'torch_dtype') if k in config},
                         {NAMES[name][1]})
        return {tensor: data for tensor, (_, data) in there.items()}

    def config(self, **changed):
        """A copy of the model with these keys, None: left out."""
        folder = self.path('model')
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(MODEL, folder)
        with open(os.path.join(folder, 'config.json'), encoding='ascii') as file:
            told = {**json.load(file), **changed}
        with open(os.path.join(folder, 'config.json'), 'w', encoding='ascii') as file:
            json.dump({key: value for key, value in told.items() if value is not None}, file)
        return folder

    def test_a_model_comes_back_in_the_type_that_it_came_in(self):
        for changed, name in (({}, 'bf16'), ({'torch_dtype': 'float16'}, 'fp16'),
                              ({'torch_dtype': 'float32'}, 'fp32'),
                              ({'dtype': 'float16'}, 'fp16'),  # the newer key goes first
                              ({'torch_dtype': None}, 'bf16'),  # the files' own
                              ({'torch_dtype': 'auto'}, 'bf16')):
            with self.subTest(changed):
                model = self.config(**changed)
                shutil.rmtree(self.path('store'), ignore_errors=True)
                out = self.train('--export', self.path('out'), model=model, steps=1)
                here = self.typed(self.path('out'), name)
                self.assertEqual(NEEDS.format(name) in out, name != 'fp32', out)
                out = self.later('late', model=model)
                self.assertEqual(self.typed(self.path('late'), name), here)
                self.assertEqual(NEEDS.format(name) in out, name != 'fp32', out)
                self.assertEqual(self.later('late', '--quiet', model=model), '')
        bare = self.config(torch_dtype=None)  # nothing there tells one: that of the training
        for name in os.listdir(bare):
            if 'safetensors' in name:
                os.remove(os.path.join(bare, name))
        shutil.rmtree(self.path('store'))
        self.train('--init=random', '--precision=fp16', '--export', self.path('bare'), model=bare)
        self.typed(self.path('bare'), 'fp16')

    def test_fp32_is_the_master_and_all_else_is_rounded_from_it_once(self):
        for precision in NAMES:
            with self.subTest(precision):
                shutil.rmtree(self.path('store'), ignore_errors=True)
                self.train(f'--precision={precision}', '--lr=1e-3', '--export', self.path('out'),
                           '--export-dtype=fp32')
                exact = self.typed(self.path('out'), 'fp32')
                there = masters(self.path('store'), precision)
                for name, data in exact.items():
                    self.assertIn(data, there, name)
                low = sum(b & 0xffff != 0 for b in words(exact['lm_head.weight'], 'I'))
                self.assertGreater(low, 160 * 64 // 2)  # else nothing is rounded
                for name, rounded in (('fp32', bytes), ('fp16', f16_to_even),
                                      ('bf16', bf16_ties_away if precision == 'bf16'
                                       else bf16_to_even)):
                    self.later(name, f'--export-dtype={name}')
                    self.assertEqual(self.typed(self.path(name), name),
                                     {tensor: rounded(data) for tensor, data in exact.items()})

    def test_a_tie_goes_away_from_zero_in_what_was_trained_and_to_even_in_the_rest(self):
        """Weights that lie between two of bf16, and a step that changes none."""
        self.train('--precision=fp32', UNCHANGED, '--export', self.path('ties'),
                   '--export-dtype=fp32', steps=1)
        file = self.path('ties', 'model.safetensors')
        with open(file, 'r+b') as f:
            data = bytearray(f.read())
            at = 8 + struct.unpack('<Q', data[:8])[0]
            data[at:at + 4] = struct.pack('<I', 0x3f808000)  # 1 and half a bf16: even is below
            f.seek(0)
            f.write(data)
        for precision, first in (('bf16', 0x3f81), ('fp32', 0x3f80)):
            shutil.rmtree(self.path('store'), ignore_errors=True)
            self.train(f'--precision={precision}', UNCHANGED, '--export', self.path('out'),
                       '--export-dtype=bf16', model=self.path('ties'), steps=1)
            with open(self.path('out', 'model.safetensors'), 'rb') as f:
                data = f.read()
            at = 8 + struct.unpack('<Q', data[:8])[0]
            self.assertEqual(struct.unpack('<H', data[at:at + 2])[0], first, precision)

    def test_what_train_exports_is_what_is_exported_later_wherever_it_lived(self):
        places = ('states=dram,weights=dram', 'states=nvme,weights=dram',
                  'states=nvme,weights=nvme')
        for precision in NAMES:
            for dtype in NAMES:
                seen = set()
                for place in places:
                    shutil.rmtree(self.path('store'), ignore_errors=True)
                    self.train(f'--precision={precision}', '--lr=1e-3', '--export',
                               self.path('out'), f'--export-dtype={dtype}', f'--place={place}',
                               '--durability=2', '--quiet', steps=2)
                    self.later('late', f'--export-dtype={dtype}')
                    for out in ('out', 'late'):
                        seen.add(str(self.typed(self.path(out), dtype)))
                self.assertEqual(len(seen), 1, (precision, dtype))

    def test_training_goes_on_from_an_exact_export(self):
        self.train('--precision=bf16', '--lr=1e-3', '--export', self.path('first'),
                   '--export-dtype=fp32')
        shutil.rmtree(self.path('store'))
        self.train('--precision=bf16', UNCHANGED, '--export', self.path('again'),
                   '--export-dtype=fp32', model=self.path('first'), steps=1)
        self.assertEqual(self.typed(self.path('first'), 'fp32'),
                         self.typed(self.path('again'), 'fp32'))

    def test_weights_beyond_fp16_are_counted_and_told(self):
        self.train('--precision=fp32', UNCHANGED, '--export', self.path('wide'),
                   '--export-dtype=fp32', steps=1)
        file = self.path('wide', 'model.safetensors')
        for count, told in ((1, '1 weight is infinite in the export, in lm_head.weight: '),
                            (2, '2 weights are infinite in the export, the first in lm_head.we')):
            with open(file, 'r+b') as f:
                data = bytearray(f.read())
                at = 8 + struct.unpack('<Q', data[:8])[0]
                values = [70000.0, -65520.0][:count] + [65519.0]
                data[at:at + 4 * len(values)] = struct.pack(f'<{len(values)}f', *values)
                f.seek(0)
                f.write(data)
            shutil.rmtree(self.path('store'))
            done = self.run_it(*self.command(
                '--precision=fp32', UNCHANGED, '--quiet', '--export', self.path('out'),
                '--export-dtype=fp16', model=self.path('wide'), steps=1))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r'\Awarning\[W430\] ' + re.escape(told))
            self.assertIn('fp16 ends at 65504. Fix: --export-dtype bf16 or fp32.', done.stderr)
            first = words(self.typed(self.path('out'), 'fp16')['lm_head.weight'], 'H')
            self.assertEqual([b & 0x7fff for b in first[:count + 1]], [0x7c00] * count + [0x7bff])
            done = self.run_it(PROGRAM, 'ckpt', 'export', self.path('store'), '--model', MODEL,
                               '--export', self.path('late'), '--export-dtype=fp16', '--quiet')
            self.assertIn('warning[W430] ' + told, done.stderr)

    def test_room_is_taken_for_the_type_of_the_export(self):
        child = subprocess.Popen(
            self.command('--precision=bf16', '--export', self.path('out'), '--export-dtype=fp32',
                         steps=100000), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(child.stderr.close)
        for line in child.stderr:
            if line.startswith(b'step '):
                break
        part, = [n for n in os.listdir(self.folder) if n.startswith('.out.tmp-')]
        there = os.stat(self.path(part, 'model.safetensors'))
        child.send_signal(signal.SIGTERM)
        child.wait()
        self.assertGreaterEqual(there.st_size, 4 * 134592)
        self.assertGreaterEqual(there.st_blocks * 512, 4 * 134592)

    def test_another_type_is_refused_with_those_that_there_are(self):
        export = ('--export', self.path('out'), '--export-dtype=f32')
        for words in (self.command(*export),
                      [PROGRAM, 'ckpt', 'export', self.path('store'), '--model', MODEL, *export]):
            done = self.run_it(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, r"error\[E402\] .*'f32'.*model, fp32, bf16.* fp16")


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1], verbosity=2)
