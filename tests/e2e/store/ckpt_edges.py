#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `ckpt` says of a store whose files are none, and how much memory it takes for one that is
large.

ckpt_edges.py PATH_OF_HOISTWAY SOURCE_ROOT [large]      large: the memory for a large store alone
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ckpt import MODEL, PROGRAM, TOKENS, Case, extents  # noqa: E402
from store_bytes import Store  # noqa: E402

LARGE = sys.argv[3:] == ['large']


class Places(Case):
    def test_what_is_no_file_in_the_place_of_one_is_told_as_what_it_is(self):
        store, file = self.path('store'), self.path('store/r00000.d0.blk')
        self.train(store)
        os.rename(file, self.path('file'))
        at = os.getcwd()

        def make_socket():
            os.chdir(store)  # the name of a socket is short
            try:
                with socket.socket(socket.AF_UNIX) as one:
                    one.bind('r00000.d0.blk')
            finally:
                os.chdir(at)
        for make, kind in ((lambda: os.mkfifo(file), 'FIFO'), (make_socket, 'socket'),
                           (lambda: os.mkdir(file), 'directory')):
            make()
            for what in (['list'], ['verify'],
                         ['export', '--model', MODEL, '--export', self.path('e')],
                         ['reshard', '--world=2', '--out', self.path('r')]):
                with self.subTest(what=what[0], kind=kind):
                    done = self.run_it('ckpt', *what, store)
                    self.assertRegex(done.stderr, r'\Aerror\[E610\] ' +
                                     re.escape(f'{file} is a {kind}, where a store has a file. '
                                               'Fix: remove it') + '[^\n]*\n\Z')
                    self.assertEqual(done.returncode, 1)
            (os.rmdir if kind == 'directory' else os.unlink)(file)
        os.rename(self.path('file'), file)
        os.symlink('store', self.path('link'))
        for behind in ('', '/', '/./'):
            self.refuse(1, 610, 'is a symbolic link', 'ckpt', 'list', self.path('link') + behind)
        self.good('ckpt', 'list', store + '//')

    def test_words_that_no_run_knows_are_refused_as_by_a_run(self):
        for verb in ('list', 'verify'):
            self.refuse(2, 402, '{foo}', 'ckpt', verb, self.path('nvme{foo}'))

    def test_a_last_version_without_tables_has_no_step(self):
        store = self.path('store')
        self.train(store, '--keep=1', '--keep-every=2', '--durability=step', steps=2)
        tables = Store(store)
        for slot in range(2):
            for copy in range(2):
                tables.damage(0, tables.superblock_at(slot, copy))
        done = self.run_it('ckpt', 'list', store)
        self.assertRegex(done.stdout, r'\n +\?  committed  damaged: .*\n +2  kept ')
        told = json.loads(self.run_it('ckpt', 'list', '--json', store).stdout)
        self.assertEqual([version['step'] for version in told['versions']], [None, 2])

    def test_each_of_the_replicas_is_verified(self):
        """Two files of one process say what those of two ranks of ZeRO stage 0 do."""
        store = self.path('store')
        self.train(store)
        _, offset, data = extents([store])[0, 0]
        shutil.copy(f'{store}/r00000.d0.blk', f'{store}/r00002.d0.blk')
        whole = self.good('ckpt', 'verify', store)
        self.assertEqual(whole.count('every byte of '), 2)
        self.assertRegex(whole, r'is as it was written\nstep 4: .* is as it was written '
                                r'\(replica 2\)\n\Z')
        with open(f'{store}/r00002.d0.blk', 'r+b') as file:
            file.seek(offset)
            file.write(bytes([data[0] ^ 1]))
        done = self.run_it('ckpt', 'verify', '--json', store)
        self.assertEqual(done.returncode, 65, done.stderr)
        first, other = json.loads(done.stdout)['versions']
        self.assertEqual((first['damaged'], 'replica' in first), ([], False))
        self.assertEqual(other['replica'], 2)
        self.assertEqual([block['file'] for block in other['damaged']], [f'{store}/r00002.d0.blk'])


# Runs a program and says how much memory it had at most. In a process of its own: what its parent
# had counts too.
PEAK = """
import os, sys
null = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[null])
_, status, usage = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10)
"""


class Memory(Case):
    def peak(self, *arguments):
        done = subprocess.run([sys.executable, '-c', PEAK, os.path.abspath(PROGRAM), *arguments],
                              capture_output=True, text=True, timeout=300, check=True)
        status, peak = map(int, done.stdout.split())
        self.assertEqual(status, 0, done.stderr)
        return peak

    def test_verify_takes_no_more_than_32_mib(self):
        """Whatever the store has: of these, sixteen extents alone would be as much."""
        with open(PROGRAM, 'rb') as file:
            if b'__asan_init' in file.read():
                self.skipTest('a sanitizer has memory of its own')
        model, store = self.path('model'), self.path('store')
        with open(os.path.join(MODEL, 'config.json'), encoding='utf-8') as file:
            config = json.load(file)
        config.update(hidden_size=512 if LARGE else 256, num_hidden_layers=12 if LARGE else 4,
                      intermediate_size=2048 if LARGE else 1024, vocab_size=4096,
                      num_attention_heads=4, num_key_value_heads=4)
        config.pop('head_dim', None)
        os.mkdir(model)
        with open(os.path.join(model, 'config.json'), 'w', encoding='utf-8') as file:
            json.dump(config, file)
        self.good('train', '--device=host', '--model', model, '--init=random', '--data', TOKENS,
                  '--steps=1', '--seq-len=24', '--batch-tokens=24', '--store', store, '--quiet',
                  '--place=states=nvme,weights=nvme')
        held = os.path.getsize(os.path.join(store, 'r00000.d0.blk'))
        self.assertGreater(held, (600 if LARGE else 100) << 20)
        self.assertLessEqual(self.peak('ckpt', 'verify', '--quiet', store), 32 << 20)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + LARGE * ['Memory'])
