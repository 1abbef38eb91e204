#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `inspect` and `ckpt` make of what runs have left, and that they change none of it.

ckpt.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import fcntl
import filecmp
import glob
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

E2E = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [E2E, os.path.dirname(E2E)]
from short import by_turns  # noqa: E402
from watch import wait_until  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
TOKENS = os.path.join(MODEL, 'tokens.bin')


def number(data, at, size):
    return int.from_bytes(data[at:at + size], 'little')


def content(file):
    with open(file, 'rb') as f:
        return f.read()


def extents(folders):
    """Of the version that all files of a store hold -> {(kind, tile): (file, offset, bytes)}."""
    found = {}
    for first in sorted(glob.glob(os.path.join(folders[0], 'r*.d0.blk'))):
        name = os.path.basename(first)
        files = [os.path.join(f, name.replace('.d0.', f'.d{d}.')) for d, f in enumerate(folders)]
        data = [content(file) for file in files]
        align, count = number(data[0], 68, 4), number(data[0], 76, 4)
        blocks = [data[0][align * (1 + s):align * (1 + s) + 4096] for s in (0, 1)]
        newest = max((b for b in blocks if b[:8] == b'HSTSUPER'), key=lambda b: number(b, 56, 8))
        manifest = 3 * align + number(newest, 128, 4) * number(data[0], 88, 8)
        for i in range(count):
            tile, kind, drive, slot, flags, offset, size = struct.unpack_from(
                '<IBBBBQI', data[0], manifest + 4096 + 32 * i)
            if flags & 2 == 0:  # what is derived has no bytes
                offset += slot * number(data[drive], 96, 8)
                assert (kind, tile) not in found
                found[kind, tile] = (files[drive], offset, data[drive][offset:offset + size])
    return found


def sums(folder):
    """Of everything in a folder: names, bytes, times."""
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(path, name)
            with open(file, 'rb') as f:
                found[file] = (hashlib.sha256(f.read()).hexdigest(), os.stat(file).st_mtime_ns)
    return found


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_it(self, *arguments, **more):
        return subprocess.run(
            [PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False, **more)

    def good(self, *arguments, **more):
        """-> stdout."""
        done = self.run_it(*arguments, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refuse(self, exit_code, code, part, *arguments, **more):
        """Refused, with nothing written at all."""
        before = sums(self.folder)
        done = self.run_it(*arguments, **more)
        self.assertIn(f'error[E{code}] ', done.stderr)
        self.assertIn(part, done.stderr)
        self.assertRegex(done.stderr, 'Fix: |See ')
        self.assertEqual(done.returncode, exit_code, done.stderr)
        self.assertEqual(before, sums(self.folder))
        return done

    def command(self, store, *more, steps=4):
        return [
            'train', '--device', 'host', '--model', MODEL, '--data', TOKENS, '--steps', str(steps),
            '--seq-len', '24', '--batch-tokens', '48', '--lr', '1e-3', '--store', store,
            '--place', 'states=nvme,weights=nvme', '--quiet', *more,
            *(('--export-dtype=fp32',) if '--export' in more else ()),
        ]  # fmt: skip

    def train(self, store, *more, **kind):
        return self.good(*self.command(store, *more, **kind))

    def same(self, one, other):
        names = sorted(os.listdir(one))
        self.assertEqual(names, sorted(os.listdir(other)))
        for name in names:
            self.assertTrue(
                filecmp.cmp(os.path.join(one, name), os.path.join(other, name), False), name)


class Look(Case):
    def test_inspect_tells_what_a_path_is_by_what_is_in_it(self):
        store = self.path('store')
        self.train(store, '--export', self.path('export'))
        with open(self.path('a.txt'), 'w', encoding='ascii') as file:
            file.write('text')
        before = sums(self.folder)
        for path, kind in ((MODEL, 'model'), (TOKENS, 'tokens'), (store, 'store'),
                           (self.path('export'), 'model'), (self.path('a.txt'), 'text'),
                           (self.path('export/model.safetensors'), 'safetensors')):
            told = json.loads(self.good('inspect', path, '--json'))
            self.assertEqual(told['kind'], kind)
            self.assertIn(path, self.good('inspect', path))
        self.assertEqual(before, sums(self.folder))
        told = json.loads(self.good('inspect', self.path('export'), '--json'))
        self.assertEqual((told['trainable'], told['layers'], told['vocab']), (True, 3, 160))
        tensor = [t for t in told['tensors'] if t['name'] == 'model.norm.weight'][0]
        self.assertEqual((tensor['dtype'], tensor['shape'], tensor['bytes']), ('F32', [64], 256))
        self.assertEqual(told['bytes'], sum(t['bytes'] for t in told['tensors']))

    def test_inspect_refuses_what_it_does_not_know(self):
        os.mkdir(self.path('empty'))
        self.refuse(1, 420, 'neither a model', 'inspect', self.path('empty'))
        self.refuse(1, 420, 'No such file', 'inspect', self.path('nowhere'))
        with open(self.path('cut.safetensors'), 'wb') as file:
            file.write(b'\xff\0\0\0\0\0\0\0{"a"')
        self.refuse(1, 410, 'cut.safetensors', 'inspect', self.path('cut.safetensors'))
        with open(self.path('raw.bin'), 'wb') as file:
            file.write(bytes(10))
        with open(self.path('other.json'), 'w', encoding='ascii') as file:
            file.write('{"hidden_size": 64}')
        for path in (self.path('raw.bin'), self.path('other.json')):
            self.refuse(1, 420, 'is nothing that is known', 'inspect', path)
        told = self.good('inspect', self.path('raw.bin'), '--token-dtype', 'u16', '--json')
        raw = json.loads(told)
        self.assertEqual((raw['kind'], raw['dtype'], raw['tokens']), ('tokens', 'u16', 5))
        with open(self.path('none.bin'), 'wb'):
            pass
        self.refuse(1, 421, 'is empty', 'inspect', self.path('none.bin'))
        self.assertIn('5 tokens', self.good('inspect', self.path('raw.bin'), '--token-dtype=u16'))
        os.mkfifo(self.path('pipe.bin'))
        done = self.run_it('inspect', self.path('pipe.bin'))
        self.assertIn('error[E420]', done.stderr)
        os.remove(self.path('pipe.bin'))
        self.refuse(2, 401, 'no store', 'inspect', MODEL, MODEL)
        self.refuse(2, 403, 'nothing is named to inspect', 'inspect')

    def test_a_model_that_can_not_be_trained_is_shown_all_the_same(self):
        other = shutil.copytree(MODEL, self.path('model'))
        with open(os.path.join(other, 'config.json'), 'w', encoding='ascii') as file:
            file.write('{"architectures": ["Mystery"], "model_type": "mystery"}')
        told = json.loads(self.good('inspect', other, '--json'))
        self.assertEqual((told['trainable'], len(told['tensors'])), (False, 30))
        self.assertIn('cannot be trained: ', self.good('inspect', other))

    def test_list_tells_versions_and_who_has_the_store(self):
        store = self.path('store')
        self.train(store, '--precision=fp16', '--loss-scale=1024', steps=3)
        told = json.loads(self.good('ckpt', 'list', '--json', store))
        self.assertEqual((told['world'], told['drives'], told['precision'], told['state']),
                         (1, 1, 'fp16', 'clean'))
        version, = told['versions']
        self.assertEqual((version['step'], version['kind'], version['loss_scale']),
                         (3, 'committed', 1024))
        self.assertEqual((version['sequences'], version['sequences_of_a_pass']), (6, 31))
        self.assertEqual((version['weights_bytes'], version['updates']), (0, 3))
        self.assertGreater(version['states_bytes'], 12 * 134592)
        self.assertRegex(version['model'], '^[0-9a-f]{16}$')
        before = sums(self.folder)
        with open(os.path.join(store, 'r00000.d0.blk'), 'rb') as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            told = json.loads(self.good('ckpt', 'list', '--json', store))
            self.assertEqual(told['state'], 'in use')
            self.assertIn('in use', self.good('inspect', store))
            self.refuse(1, 611, 'in use', 'ckpt', 'verify', store)
            os.mkdir(os.path.join(store, 'step-2'), mode=0o700)  # a copy that the run removes
            self.assertEqual(json.loads(self.good('ckpt', 'list', '--json', store)), told)
        self.refuse(1, 617, 'step-2 holds no', 'ckpt', 'list', store)
        os.rmdir(os.path.join(store, 'step-2'))
        self.assertEqual(before, sums(self.folder))

    def test_a_name_can_not_write_lines_or_colours_of_its_own(self):
        store = self.path('one\ntwo\x1b[31m')
        self.train(store, steps=1)
        for verb in (('ckpt', 'list'), ('inspect',)):
            text = self.good(*verb, store)
            self.assertNotIn('\x1b', text)
            self.assertRegex(text, r'\Astore .*one.*two.*: .* elements')
        self.assertEqual(json.loads(self.good('ckpt', 'list', '--json', store))['store'], store)

    def test_a_store_that_was_not_closed_in_order_is_told_apart(self):
        store = self.path('store')
        child = subprocess.Popen(
            [PROGRAM, *self.command(store, '--log', self.path('log'), steps=100000)],
            stderr=subprocess.DEVNULL)
        log = self.path('log')
        self.assertTrue(wait_until(lambda: os.path.exists(log) and b'"step":9' in content(log),
                                   self.folder, child))
        told = json.loads(self.good('ckpt', 'list', '--json', store))
        self.assertEqual(told['state'], 'in use')
        child.kill()
        child.wait()
        self.good('ckpt', 'verify', store)  # waits for the dead one's last requests
        told = json.loads(self.good('ckpt', 'list', '--json', store))
        self.assertEqual(told['state'], 'not closed')


class Verify(Case):
    def damage(self, place, at=100):
        file, offset, _ = place
        with open(file, 'r+b') as f:
            f.seek(offset + at)
            byte = f.read(1)[0]
            f.seek(offset + at)
            f.write(bytes([byte ^ 1]))

    def test_every_damaged_block_is_told_with_its_tensor_and_place(self):
        folders = [self.path('a'), self.path('b')]
        self.train(','.join(folders), '--precision=bf16')
        before = sums(self.folder)
        self.good('ckpt', 'verify', *folders)
        told = json.loads(self.good('ckpt', 'verify', '--json', *folders))
        self.assertEqual((told['damaged_blocks'], told['complete']), (0, True))
        self.assertEqual(before, sums(self.folder))
        there = extents(folders)
        self.damage(there[0, 0])          # the embedding
        self.damage(there[1, 2], 90000)   # moments of the second layer
        before = sums(self.folder)
        done = self.run_it('ckpt', 'verify', '--json', '--model', MODEL, *folders)
        self.assertEqual(done.returncode, 65, done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual(told['damaged_blocks'], 2)
        weights, states = told['versions'][0]['damaged']
        self.assertEqual((weights['file'], weights['offset']), there[0, 0][:2])
        self.assertEqual(weights['tensor'], 'model.embed_tokens.weight')
        self.assertEqual((states['file'], states['offset']), there[1, 2][:2])
        self.assertEqual((states['what'], states['tile']), ('optimizer states', 2))
        self.assertIn('layers.1', states['unit'])
        done = self.run_it('ckpt', 'verify', *folders)
        self.assertEqual(done.returncode, 65)
        self.assertEqual(done.stdout.count('damaged: '), 2)
        self.assertIn('not those that were written', done.stdout)
        self.assertEqual(before, sums(self.folder))
        # what needs the bytes refuses them, and leaves nothing behind
        self.refuse(1, 614, 'weights of tile 0', 'ckpt', 'export', *folders, '--model', MODEL,
                    '--export', self.path('e'))
        self.refuse(1, 614, 'of tile', 'ckpt', 'reshard', *folders, '--world=2', '--out',
                    self.path('r'))
        self.assertEqual(sorted(os.listdir(self.folder)), ['a', 'b'])

    def test_damaged_tables_and_missing_copies_are_not_passed_over(self):
        store = self.path('store')
        self.train(store, '--keep=2', '--keep-every=4', steps=9)
        first, second = self.steps_kept(store)
        os.unlink(os.path.join(store, f'step-{first}', 'r00000.d0.blk'))
        done = self.run_it('ckpt', 'verify', store)
        self.assertEqual(done.returncode, 65, done.stderr)
        self.assertIn('step 9: every byte', done.stdout)
        self.assertRegex(done.stdout, rf'step {second}: every byte of .* \(a kept copy\)\n')
        self.assertEqual(done.stdout.count('a kept copy'), 1)
        shutil.rmtree(os.path.join(store, f'step-{first}'))
        self.good('ckpt', 'verify', store)
        self.damage((os.path.join(store, 'r00000.d0.blk'), 0, None), 60)
        done = self.run_it('ckpt', 'verify', store)
        self.assertEqual(done.returncode, 65, done.stderr)
        self.assertIn(': 1 damaged copy of a table, with a good one\n', done.stdout)
        told = json.loads(self.run_it('ckpt', 'verify', '--json', store).stdout)
        self.assertEqual(told['versions'][0]['damaged_copies'], 1)
        self.assertFalse(told['complete'])

    def steps_kept(self, store):
        return sorted(int(n[5:]) for n in os.listdir(store) if n.startswith('step-'))

    def test_a_version_that_can_not_be_opened_does_not_hide_the_others(self):
        store = self.path('store')
        self.train(store, '--keep=2', '--keep-every=4', steps=9)
        kept = [name for name in sorted(os.listdir(store)) if name.startswith('step-')]
        self.assertGreater(len(kept), 0)
        file = os.path.join(store, 'r00000.d0.blk')
        data = bytearray(content(file))
        align = number(data, 68, 4)
        for at in (align, 2 * align, len(data) - 2 * align, len(data) - 3 * align):
            data[at:at + 4096] = bytes(4096)
        with open(file, 'wb') as f:
            f.write(data)
        done = self.refuse(65, 614, 'no superblock', 'ckpt', 'verify', store)
        self.assertEqual(done.stdout.count('every byte of '), len(kept))
        done = self.refuse(65, 614, 'no superblock', 'ckpt', 'verify', '--json', store)
        told = json.loads(done.stdout)
        self.assertEqual((told['complete'], [f'step-{v["step"]}' for v in told['versions']]),
                         (False, kept))
        self.refuse(1, 614, 'no superblock', 'ckpt', 'list', store)

    def test_damage_between_what_is_committed_is_none(self):
        store = self.path('store')
        self.train(store)
        file, offset, data = extents([store])[0, 1]
        slot = number(content(file), 96, 8)
        other = offset - slot if offset > slot + (8 << 20) else offset + slot
        self.damage((file, other, data))
        self.good('ckpt', 'verify', store)


class Refusals(Case):
    def test_what_is_no_store_of_this_kind_is_refused_by_all(self):
        store, file = self.path('store'), self.path('store/r00000.d0.blk')
        self.train(store)
        whole = content(file)
        header = bytearray(whole)
        header[12] = header[len(whole) - 4096 + 12] = 9
        swapped = bytearray(whole)
        swapped[8:12] = swapped[len(whole) - 4096 + 8:len(whole) - 4092] = b'\1\2\3\4'
        align = number(whole, 68, 4)
        empty = bytearray(whole)
        for at in (align, 2 * align, len(whole) - 2 * align, len(whole) - 3 * align):
            empty[at:at + 4096] = bytes(4096)
        rows = ((b'x' * len(whole), 612, 'no file of a store'), (header, 612, 'another version'),
                (swapped, 612, 'byte order'), (whole[:-4096], 613, 'its header says'),
                (empty, 614, 'no superblock'))
        for data, code, part in rows:
            with open(file, 'wb') as f:
                f.write(data)
            for what, exit_code in (
                    (['list'], 1), (['verify'], 65),
                    (['export', '--model', MODEL, '--export', self.path('e')], 1),
                    (['reshard', '--world=2', '--out', self.path('r')], 1)):
                with self.subTest(what=what[0], part=part):
                    self.refuse(exit_code, code, part, 'ckpt', *what, store)
        os.remove(file)
        done = self.refuse(1, 617, 'holds no version', 'ckpt', 'list', store)
        self.assertIn('Fix: name the directories of a store', done.stderr)
        os.chmod(store, 0o755)
        self.refuse(65, 617, 'holds no version', 'ckpt', 'verify', store)
        self.assertEqual(stat.S_IMODE(os.stat(store).st_mode), 0o755)
        with open(os.path.join(store, 'notes'), 'wb'):
            for mode in (0o755, 0o700):
                os.chmod(store, mode)
                self.refuse(65, 616, 'holds no file of a store', 'ckpt', 'verify', store)
                self.refuse(2, 616, 'holds no file of a store', 'ckpt', 'list', store)
        with open(file, 'wb'):
            os.chmod(store, 0o755)
            self.refuse(1, 610, 'its owner', 'ckpt', 'verify', store)

    def test_the_command_line_is_told_what_is_wrong_with_it(self):
        self.refuse(2, 401, 'ckpt list STORE', 'ckpt', 'lists')
        self.refuse(2, 401, 'list, verify, export and reshard', 'ckpt')
        self.refuse(2, 403, 'no store is named', 'ckpt', 'verify')
        self.refuse(2, 403, '--world', 'ckpt', 'reshard', 'x', '--out', 'y')
        self.refuse(2, 403, '--model', 'ckpt', 'export', 'x', '--export', 'y')
        self.refuse(1, 105, 'cannot be opened', 'ckpt', 'list', self.path('nowhere'))
        self.assertIn('verify', self.good('ckpt', '--help'))


class Export(Case):
    def test_what_train_exports_is_what_is_exported_later(self):
        for precision in ('fp32', 'bf16', 'fp16'):
            with self.subTest(precision=precision):
                store, late = self.path(precision), self.path(precision + '-late')
                self.train(store, '--precision', precision, '--export', self.path('soon'))
                before = sums(store)
                self.good('ckpt', 'export', '--export-dtype=fp32', store, '--model', MODEL,
                          '--export', late)
                self.same(self.path('soon'), late)
                self.assertEqual(before, sums(store))

    def test_a_config_that_computes_otherwise_is_refused(self):
        """Of the same shapes, and yet another model: not exported as the one that was trained."""
        store, other = self.path('store'), self.path('model')
        self.train(store)
        shutil.copytree(MODEL, other)
        with open(os.path.join(other, 'config.json'), encoding='ascii') as file:
            config = json.load(file)
        for key, value in (('rope_theta', 500.0), ('rms_norm_eps', 1e-2),
                           ('num_attention_heads', 2)):
            with open(os.path.join(other, 'config.json'), 'w', encoding='ascii') as file:
                json.dump({**config, key: value, 'num_key_value_heads': 2}
                          if key == 'num_attention_heads' else {**config, key: value}, file)
            for verb in (['export', '--export', self.path('e')], ['verify']):
                self.refuse(2, 615, "the store was trained with 'model heads ", 'ckpt', *verb,
                            store, '--model', other)

    def test_another_model_and_a_directory_that_is_not_an_export_are_refused(self):
        store, other = self.path('store'), self.path('model')
        self.train(store)
        shutil.copytree(os.path.join(ROOT, 'tests', 'golden', 'tied-gqa'), other)
        self.refuse(2, 615, 'another model', 'ckpt', 'export', store, '--model', other, '--export',
                    self.path('e'))
        self.refuse(1, 430, 'model', 'ckpt', 'export', store, '--model', MODEL, '--export', other)
        self.refuse(1, 617, 'no version of step 3', 'ckpt', 'export', store, '--model', MODEL,
                    '--export', self.path('e'), '--version=3')


class Reshard(Case):
    def test_there_and_back_is_the_same_in_every_byte(self):
        first, last = self.path('first'), [self.path('last-a'), self.path('last-b')]
        two, four = self.path('two'), [self.path('four-a'), self.path('four-b')]
        kind = ('--precision', 'bf16')
        self.train(first, *kind)
        before = sums(first)
        self.good('ckpt', 'reshard', first, '--world=2', '--out', two)
        self.good('ckpt', 'reshard', two, '--world=4', '--out', ','.join(four))
        self.good('ckpt', 'reshard', *four, '--world=1', '--out', ','.join(last))
        self.assertEqual(before, sums(first))
        told = json.loads(self.good('ckpt', 'list', '--json', *four))
        self.assertEqual((told['world'], told['versions'][0]['step']), (4, 4))
        self.good('ckpt', 'verify', *four)
        bytes_of = [{key: value[2] for key, value in extents(folders).items()}
                    for folders in ([first], last)]
        self.assertEqual(*bytes_of)
        # the middle one can be exported, and the last one trained on
        fp32 = ('--model', MODEL, '--export-dtype=fp32')
        self.good('ckpt', 'export', first, *fp32, '--export', self.path('e-one'))
        self.good('ckpt', 'export', *four, *fp32, '--export', self.path('e-four'))
        self.same(self.path('e-one'), self.path('e-four'))
        self.train(','.join(last), *kind, '--resume', '--export', self.path('x'), steps=6)
        self.train(first, *kind, '--resume', '--export', self.path('y'), steps=6)
        self.same(self.path('x'), self.path('y'))

    def test_what_does_not_go_is_refused_and_leaves_nothing(self):
        store, two = self.path('store'), self.path('two')
        self.train(store)
        self.good('ckpt', 'reshard', store, '--world=2', '--out', two)
        reshard = ('ckpt', 'reshard', store, '--out')
        self.refuse(2, 616, 'r00000.d0.blk is there', *reshard, two, '--world=2')
        self.refuse(2, 402, 'Fix: --world 1 to ', *reshard, self.path('new'), '--world=999')
        self.refuse(2, 402, '--world', *reshard, self.path('new'), '--world=0')
        self.refuse(1, 105, 'cannot be made', *reshard, self.path('a/b'), '--world=2')
        self.refuse(1, 105, '', *reshard, self.path('new'), '--world=2', preexec_fn=lambda:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, 16 << 20)))
        for out in (store, os.path.join(store, 'sub'), os.path.join(two, '..', 'store', 'sub')):
            self.refuse(2, 402, 'which holds its own files alone', *reshard, out, '--world=2')
            self.refuse(2, 402, 'which holds its own files alone', 'ckpt', 'export', store,
                        '--model', MODEL, '--export', out)
        self.refuse(2, 616, 'would be in a store', *self.command(os.path.join(store, 'sub')))
        os.rename(os.path.join(two, 'r00001.d0.blk'), self.path('kept'))
        done = self.refuse(1, 613, 'no rank finds r00001.d0.blk', *self.command(two, '--resume'))
        self.assertIn('is of 2 ranks', done.stderr)
        os.unlink(self.path('kept'))
        self.assertEqual(sorted(os.listdir(self.folder)), ['store', 'two'])

    def test_what_is_interrupted_leaves_nothing(self):
        store, new = self.path('store'), self.path('new')
        self.train(store)
        for _ in range(50):  # one that is over before the signal comes is another try
            child = subprocess.Popen([PROGRAM, 'ckpt', 'reshard', store, '--world=4', '--out', new],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            wait_until(lambda: os.path.exists(new), self.folder, child)
            child.send_signal(signal.SIGINT)
            told = child.communicate()[1]
            if child.returncode != 0:
                break
            shutil.rmtree(new)
        self.assertEqual((child.returncode, told), (130, b''))
        self.assertEqual(os.listdir(self.folder), ['store'])

    def test_what_was_killed_is_told_by_whoever_meets_it(self):
        store, new = self.path('store'), self.path('new')
        self.train(store)
        self.good('ckpt', 'reshard', store, '--world=2', '--out', new)
        os.rename(os.path.join(new, 'r00000.d0.blk'), os.path.join(new, 'r00000.d0.blk.new'))
        with open(os.path.join(new, 'reshard.unfinished'), 'wb'):
            pass
        told = f'{new} is what a ckpt reshard makes that has not ended'
        for verb in (self.command(new), self.command(new, '--resume'), ('inspect', new),
                     ('ckpt', 'list', new), ('ckpt', 'reshard', store, '--world=2', '--out', new)):
            done = self.refuse(1, 617, told, *verb)
            self.assertNotIn('W622', done.stderr)
            self.assertIn('Fix: wait for it; if it was killed, remove', done.stderr)
        self.refuse(65, 617, told, 'ckpt', 'verify', new)

    def test_ranks_have_to_be_there_and_in_their_places(self):
        store, two, other = self.path('store'), self.path('two'), self.path('other')
        self.train(store)
        for out in (two, other):
            self.good('ckpt', 'reshard', store, '--world=2', '--out', out)
        files = [os.path.join(two, f'r0000{r}.d0.blk') for r in (0, 1)]
        os.rename(files[1], self.path('kept'))
        self.refuse(65, 613, 'the file of rank 1 is not there', 'ckpt', 'verify', two)
        shutil.copy(os.path.join(other, 'r00001.d0.blk'), files[1])
        self.refuse(65, 613, 'another store', 'ckpt', 'verify', two)
        shutil.copy(files[0], files[1])
        self.refuse(65, 613, 'was written as rank 0', 'ckpt', 'verify', two)
        os.replace(self.path('kept'), files[1])
        self.good('ckpt', 'verify', two)


class Keep(Case):
    def steps(self, store, kind='kept'):
        told = json.loads(self.good('ckpt', 'list', '--json', store))
        return [v['step'] for v in told['versions'] if v['kind'] == kind]

    def test_the_newest_are_kept_and_are_what_a_run_of_so_many_steps_ends_with(self):
        folders = [self.path('a'), self.path('b')]
        self.train(','.join(folders), '--keep=2', '--keep-every=4', '--durability=2', steps=24)
        kept = self.steps(','.join(folders))
        self.assertEqual(len(kept), 2)
        self.assertEqual(self.steps(','.join(folders), 'committed'), [24])
        told = json.loads(self.good('ckpt', 'list', '--json', *folders))
        self.assertEqual({v['state'] for v in told['versions']}, {'clean'})
        for folder in folders:
            names = sorted(os.listdir(folder))
            self.assertEqual([n for n in names if n.startswith('step-')],
                             sorted(f'step-{s}' for s in kept))
        self.good('ckpt', 'verify', *folders)
        self.train(self.path('alone'), '--export', self.path('x'), steps=kept[0])
        before = sums(self.folder)
        self.good('ckpt', 'export', *folders, '--version', str(kept[0]), '--model', MODEL,
                  '--export', self.path('y'), '--export-dtype=fp32')
        self.same(self.path('x'), self.path('y'))
        shutil.rmtree(self.path('y'))
        self.assertEqual(before, sums(self.folder))
        # and one can be made a store of its own, that is trained on: as it is it is not
        self.refuse(2, 616, 'ckpt reshard', *self.command(
            ','.join(f'{folder}/step-{kept[0]}/' for folder in folders), '--resume'))
        self.good('ckpt', 'reshard', *folders, '--version', str(kept[0]), '--world=1', '--out',
                  self.path('again'))
        self.train(self.path('again'), '--resume', '--export', self.path('e'), steps=24)
        self.train(','.join(folders), '--resume', '--export', self.path('f'), steps=24)
        self.same(self.path('e'), self.path('f'))

    @staticmethod
    def copies_begun(store, whole):
        """One beside so many that have their names."""
        names = [n for n in os.listdir(store) if n.startswith('step-')]
        begun = [n for n in names if n.endswith('.new')]
        return len(begun) > 0 and len(names) - len(begun) >= whole

    def test_a_copy_that_was_cut_off_is_none(self):
        store = self.path('store')
        self.train(store, steps=2)
        for whole in range(4):  # copies that are there when the next one is cut off
            for name in glob.glob(os.path.join(store, 'step-*')):
                shutil.rmtree(name)
            child = subprocess.Popen(
                [PROGRAM, *self.command(store, '--keep=3', '--keep-every=1', '--resume',
                                        steps=100000)], stderr=subprocess.DEVNULL)
            self.assertTrue(wait_until(lambda: self.copies_begun(store, whole), store, child))
            child.send_signal(signal.SIGKILL)
            child.wait()
            self.good('ckpt', 'verify', store)  # every copy that has its name
        os.makedirs(os.path.join(store, 'step-7.new'), mode=0o700, exist_ok=True)
        last = self.steps(store, 'committed')[0]
        self.train(store, '--keep=1', '--keep-every=1', '--resume', steps=last + 3)
        self.assertEqual(sorted(n for n in os.listdir(store) if n.startswith('step-')),
                         [f'step-{self.steps(store)[0]}'])

    def test_a_disk_with_no_room_for_a_copy_is_told_and_the_run_goes_on(self):
        """There is room for one. It makes way where one is kept, and stays where two are."""
        mount = ['unshare', '--mount', '--map-root-user', 'sh', '-c']
        os.mkdir(self.path('small'))
        for count in (1, 2):
            done = subprocess.run(
                [*mount, 'mount -t tmpfs -o size=28m none "$0" && exec "$@"', self.path('small'),
                 PROGRAM, *self.command(self.path('small/store'), f'--keep={count}',
                                        '--keep-every=1', '--io=threads', '--export',
                                        self.path(f'e{count}'))],
                capture_output=True, text=True, timeout=60, check=False)
            if 'unshare' in done.stderr or 'mount:' in done.stderr:
                self.skipTest('no file system may be mounted here: ' + done.stderr)
            self.assertEqual(done.returncode, 0, done.stderr)
            told = re.findall(r'warning\[W623\] step \d+ was not kept: E301 .* free', done.stderr)
            self.assertEqual(len(told) > 0, count == 2, done.stderr)
            self.assertTrue(os.path.exists(self.path(f'e{count}/model.safetensors')))

    def test_it_is_refused_where_no_version_could_be_kept(self):
        self.refuse(2, 402, '--durability', *self.command(self.path('s'), '--keep=1',
                                                          '--durability=none'))
        self.refuse(2, 402, '--keep-every', *self.command(self.path('s'), '--keep-every=2'))
        self.refuse(2, 402, '--update deferred', *self.command(self.path('s'), '--keep=1',
                                                               '--update=optimistic'))


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
