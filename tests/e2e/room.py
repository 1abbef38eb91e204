#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Room for gradients and activations beside a store's files: who takes it, who keeps it, and that
it is in no version.

room.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from store_bytes import sealed  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
FILE, ROOM = 'r00000.d0.blk', 'r00000.d0.scratch'
FP32 = '--export-dtype=fp32'  # where bytes are compared
STATES = 'states=nvme,weights=nvme,grads=dram,acts=dram'
GRADS = 'states=nvme,weights=nvme,grads=nvme,acts=dram'
ALL = 'states=nvme,weights=nvme,grads=nvme,acts=nvme'


class Room(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.store = self.path('store')

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_it(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60,
                              check=False)

    def good(self, *arguments):
        """-> stdout."""
        done = self.run_it(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def line(self, store, place, *more, steps):
        return ('train', '--device=host', f'--model={MODEL}', f'--data={MODEL}/tokens.bin',
                '--seq-len=24', '--batch-tokens=48', '--lr=1e-3', '--quiet', f'--store={store}',
                f'--place={place}', f'--steps={steps}', *more)

    def train(self, store, place, *more, steps):
        return self.good(*self.line(store, place, *more, steps=steps))

    def size(self, name):
        path = os.path.join(self.store, name)
        return os.path.getsize(path) if os.path.exists(path) else 0

    def sums_in(self, name):
        """Of an export, by the names of its files."""
        folder = self.path(name)
        return {os.path.relpath(path, folder): digest for path, digest in self.sums(folder).items()}

    def sums(self, folder):
        found = {}
        for path, _, names in os.walk(folder):
            for name in names:
                with open(os.path.join(path, name), 'rb') as file:
                    found[os.path.join(path, name)] = hashlib.sha256(file.read()).hexdigest()
        return found

    def test_it_grows_with_what_a_run_wants_and_stays_where_one_wants_less(self):
        wanted = ((STATES, 0), (GRADS, 1), (ALL, 2), (GRADS, 2), (STATES, 2), (ALL, 2))
        sizes, file_bytes = [], set()
        for steps, (place, _) in enumerate(wanted, 1):
            self.train(self.store, place, '--resume', steps=steps)
            sizes.append(self.size(ROOM))
            file_bytes.add(self.size(FILE))
            self.assertLessEqual(set(os.listdir(self.store)), {FILE, ROOM})
        self.assertEqual([sorted({0, *sizes}).index(size) for size in sizes],
                         [size for _, size in wanted])
        self.assertEqual(len(file_bytes), 1)
        self.train(self.store, ALL, '--resume', '--export', self.path('x'), FP32, steps=9)
        self.train(self.path('alone'), STATES, '--export', self.path('y'), FP32, steps=9)
        self.assertEqual(self.sums_in('x'), self.sums_in('y'))

    def test_on_several_drives_it_is_shared_out_as_it_was(self):
        """Whatever their rates are now: a disk that is full has no room for another share."""
        folders = [self.path(name) for name in 'ab']
        rooms = [os.path.join(folders[d], f'r00000.d{d}.scratch') for d in range(2)]
        sizes = []
        for steps in range(1, 5):
            if steps == 4:  # as if the run before had found the second drive slow
                for room in rooms:
                    with open(room, 'r+b') as file:
                        page = bytearray(file.read(4096))
                        self.assertEqual(struct.unpack_from('<II', page, 32), (2, 0))
                        page[40:56] = struct.pack('<2d', 15, 1)
                        file.seek(0)
                        file.write(sealed(page, 0))
            self.train(','.join(folders), ALL, '--resume', steps=steps)
            sizes.append([os.path.getsize(room) for room in rooms])
        self.assertEqual(sizes[0:2], sizes[1:3])
        self.assertGreater(sizes[3][0], sizes[2][0])
        self.assertEqual(sizes[3][1], sizes[2][1])

    def test_without_versions_nothing_is_left(self):
        self.train(self.store, ALL, '--durability=none', steps=2)
        self.assertFalse(os.path.exists(self.store) and os.listdir(self.store))

    def test_the_budget_counts_it_once_with_a_store_that_is_new_or_there(self):
        for place in (STATES, ALL):
            shutil.rmtree(self.store, ignore_errors=True)
            log = self.path(place)
            self.train(self.store, place, '--log', log, steps=1)
            with open(log, encoding='ascii') as lines:
                told, = {json.loads(line)['peak']['nvme'] for line in lines if '"peak"' in line}
            self.assertEqual(told, self.size(FILE) + self.size(ROOM))
        # what is there is counted in blocks of the file system
        there = os.stat(os.path.join(self.store, FILE)).st_blocks * 512 + self.size(ROOM)
        for store, resume, enough in ((self.path('new'), (), told),
                                      (self.store, ('--resume',), there)):
            few = self.run_it(*self.line(store, ALL, f'--nvme={enough - 1}', *resume, steps=2))
            self.assertIn('its budget is', few.stderr)
            self.assertNotEqual(few.returncode, 0)
            self.train(store, ALL, f'--nvme={enough}', *resume, steps=2)

    def test_it_is_in_no_version_and_no_copy(self):
        """Neither listed, nor copied, nor read."""
        self.train(self.store, ALL, '--keep=1', '--keep-every=1', '--durability=step', steps=4)
        kept = [name for name in os.listdir(self.store) if name.startswith('step-')]
        self.assertEqual(set(os.listdir(self.store)), {FILE, ROOM, *kept})
        for name in kept:
            self.assertEqual(os.listdir(os.path.join(self.store, name)), [FILE])
        before = self.sums(self.store)
        told = [self.good('ckpt', verb, '--json', self.store) for verb in ('list', 'verify')]
        self.assertEqual(json.loads(told[0])['file_bytes'], self.size(FILE))
        self.good('ckpt', 'export', self.store, '--model', MODEL, '--export', self.path('e'), FP32)
        again = self.path('again')
        self.good('ckpt', 'reshard', self.store, '--world=1', '--out', again)
        self.assertEqual(os.listdir(again), [FILE])
        self.assertEqual(before, self.sums(self.store))
        os.unlink(os.path.join(self.store, ROOM))
        self.assertEqual([self.good('ckpt', verb, '--json', self.store)
                          for verb in ('list', 'verify')], told)
        for store, export in ((self.store, 'x'), (again, 'y')):  # what has none gets some
            self.train(store, ALL, '--resume', '--export', self.path(export), FP32, steps=6)
            self.assertIn(ROOM, os.listdir(store))
        self.assertEqual(self.sums_in('x'), self.sums_in('y'))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
