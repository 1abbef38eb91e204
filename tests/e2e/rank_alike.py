#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ranks must have alike, and what is each rank's own: one that was started otherwise, or finds
other files under the same names, ends all of them before a store is made.

    rank_alike.py PROGRAM SOURCE_ROOT PLUGIN_FOLDER OTHER_VERSION OTHER_PLUGIN SLOW_RMDIR
                  [TEST...]

OTHER_VERSION is what a program is of where that is preloaded (other_version.c); OTHER_PLUGIN is a
plugin of MPI of another version (other_plugin.c). SLOW_RMDIR, preloaded, makes a rank the
last to end (slow_rmdir.c).
"""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from ranks import FOLDER, GOLDEN, PROGRAM, Case, environment  # noqa: E402

import mpi  # noqa: E402
from short import by_turns  # noqa: E402

HEADER, TOKEN = 1024, 4  # bytes of a file of llm.c, and of one of its tokens
OTHER_VERSION, OTHER_PLUGIN, SLOW_RMDIR = map(os.path.abspath, sys.argv[4:7])
MPI = 'libhoistway-mpi.so'
MODEL = os.path.join(GOLDEN, 'untied-mha')


def other_layers(folder):
    edit(folder, num_hidden_layers=2)


def other_rope(folder):
    edit(folder, rope_theta=77777.0)


def edit(folder, **keys):
    path = os.path.join(folder, 'model', 'config.json')
    with open(path, encoding='utf-8') as file:
        config = {**json.load(file), **keys}
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(config, file)


def other_token(folder):
    with open(os.path.join(folder, 'model', 'tokens.bin'), 'r+b') as file:
        file.seek(HEADER + 8 * TOKEN)
        file.write((7).to_bytes(TOKEN, 'little'))


def fewer_tokens(folder):
    with open(os.path.join(folder, 'model', 'tokens.bin'), 'r+b') as file:
        count = (file.seek(0, os.SEEK_END) - HEADER) // TOKEN - 100
        file.truncate(HEADER + count * TOKEN)
        file.seek(8)
        file.write(count.to_bytes(4, 'little'))


def with_preloaded(library, command):
    return ['env', f'LD_PRELOAD={library}', 'ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0',
            *command]


class Alike(Case):
    def setUp(self):
        super().setUp()
        if mpi.missing(FOLDER):
            self.skipTest('no mpirun, or no libhoistway-mpi.so')

    def two(self, first, second, within=('.', '.')):
        """Each with its own command, in its own folder."""
        of_second = mpi.launcher(1)[-2:]
        return subprocess.run(
            [*mpi.launcher(1), '-wdir', os.path.abspath(within[0]), *first, ':', *of_second,
             '-wdir', os.path.abspath(within[1]), *second],
            capture_output=True, text=True, env=environment(), timeout=120)

    def command_there(self):
        """Each rank finds a model and data in the folder where it begins."""
        command = self.command('--ways', '2')
        command[0] = os.path.abspath(PROGRAM)
        for option in ('--store', '--log', '--export'):
            command[command.index(option) + 1] = os.path.abspath(self.path(option[2:]))
        command[command.index('--model') + 1] = 'model'
        command[command.index('--data') + 1] = 'model/tokens.bin'
        return command

    def refused(self, done, what, first, second):
        """It names what differs and both values; nothing was made."""
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, rf"error\[E503\] [^\n]*: {what} is '{first}' for rank 0 and "
                                      rf"'{second}' for rank 1\. Fix: start all of them alike")
        self.nothing_was_made()

    def test_ranks_of_other_options_are_refused(self):
        first, second = self.command('--ways', '2'), self.command('--ways', '2')
        second[second.index('--lr') + 1] = '2e-3'
        self.refused(self.two(first, second), r'argument \d+ \(of --lr\)', '1e-3', '2e-3')

    def test_ranks_that_find_another_model_or_other_data_are_refused(self):
        folders = [self.path(name) for name in ('first', 'second')]
        for folder in folders:
            shutil.copytree(MODEL, os.path.join(folder, 'model'))
        command, trained = self.command_there(), 'what is trained, and on what'
        for change, what, *values in (
                (other_layers, 'the model', r'\d+ units \(\w{16}\)', r'\d+ units \(\w{16}\)'),
                (other_rope, trained, 'model [^\n]*,10000,[^\n]*', 'model [^\n]*,77777,[^\n]*'),
                (other_token, trained, r'data \w{16} \w{16}', r'data \w{16} \w{16}'),
                (fewer_tokens, trained, 'tokens 745', 'tokens 645')):
            with self.subTest(change.__name__):
                shutil.rmtree(folders[1])
                shutil.copytree(folders[0], folders[1])
                change(folders[1])
                self.refused(self.two(command, command, folders), what, *values)
        shutil.rmtree(folders[1])
        shutil.copytree(folders[0], folders[1])
        done = self.two(command, command, folders)  # which they do where the files are alike
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_ranks_whose_products_are_computed_by_other_kernels_are_refused(self):
        command = self.command('--ways', '2')
        ranks = [['env', f'OPENBLAS_CORETYPE={core}', *command] for core in ('Haswell', 'Nehalem')]
        self.refused(self.two(*ranks), 'the kernels of products', '[^\n]*Haswell[^\n]*',
                     '[^\n]*Nehalem[^\n]*')

    def test_ranks_whose_gemms_of_bf16_are_made_by_other_instructions_are_refused(self):
        words = {'amx': '[^\n]*, own GEMMs of bf16 by AMX, [^\n]*',
                 'fma': '[^\n]*, own GEMMs of bf16, [^\n]*', 'blas': '[^\n,]*, glibc [^\n]*'}
        ran = 0
        for pair in (('amx', 'fma'), ('fma', 'blas')):
            told = subprocess.run([PROGRAM, 'plan', '--model', 'llama-3-8b', '--device', 'host',
                                   '--host-math', pair[0]], capture_output=True, text=True,
                                  timeout=60).stderr
            if 'error[E204]' in told:
                continue
            ran += 1
            ranks = [self.command('--ways', '2', '--precision', 'bf16', '--host-math', kernel)
                     for kernel in pair]
            self.refused(self.two(*ranks), 'the kernels of products',
                         *(words[kernel] for kernel in pair))
        if not ran:
            self.skipTest('neither AMX nor AVX-512 can be had')

    def test_ranks_of_another_version_are_refused(self):
        command = self.command('--ways', '2')
        other = with_preloaded(OTHER_VERSION, command)
        self.refused(self.two(command, other), 'the version of hoistway', r'\d+\.\d+\.\d+',
                     r'0\.0\.7')

    def test_ranks_with_stores_of_other_numbers_of_directories_are_refused(self):
        first, second = self.command('--ways', '2'), self.command('--ways', '2')
        second[second.index('--store') + 1] += ',' + self.path('more')
        second = with_preloaded(SLOW_RMDIR, second)  # the other one must not end it before
        self.refused(self.two(first, second), 'the number of directories of --store', '1', '2')
        self.assertFalse(os.path.exists(self.path('more')))

    # ---- what MPI cannot join, and what ranks cannot share out ----

    def nothing_was_made(self):
        for name in ('store', 'log', 'log.jsonl', 'export', 'out'):
            self.assertFalse(os.path.exists(self.path(name)), name)

    def told_once(self, done, status, words):
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertRegex(done.stderr, rf'(?m)^(rank 1[^\n]*: )?error\[{words}')
        self.assertEqual(len(mpi.errors_of(done.stderr)), 1, done.stderr)
        self.assertEqual(done.stderr.count('Fix: '), 1, done.stderr)
        self.nothing_was_made()

    def plugin(self, name):
        """-> its path in a folder of its own."""
        os.mkdir(self.path(name))
        return os.path.abspath(os.path.join(self.path(name), MPI))

    def test_a_plugin_that_cannot_join_is_told(self):
        """That of all ranks, and of one alone."""
        whole = os.path.join(FOLDER, MPI)
        cut, text, other = map(self.plugin, ('cut', 'text', 'other'))
        with open(whole, 'rb') as file, open(cut, 'wb') as part:
            part.write(file.read(os.path.getsize(whole) // 2))
        with open(text, 'w', encoding='ascii') as file:
            file.write('not a library\n')
        shutil.copy(OTHER_PLUGIN, other)
        fifo = self.plugin('fifo')
        os.mkfifo(fifo)
        command = self.command('--ways', '2')
        for path, why in ((cut, 'cannot be used: it is cut short: a copy that did not finish'),
                          (other, r'cannot be used: it is of version 0\.0\.7, this library of '),
                          (text, 'does not load: '),
                          (fifo, 'cannot be used: it is not a regular file')):
            broken = ['env', f'HOISTWAY_PLUGIN_PATH={os.path.dirname(path)}', *command]
            for first in (broken, command):
                with self.subTest(why, all=first is broken):
                    self.told_once(self.two(first, broken), 1,
                                   rf'E502\] [^\n]*{re.escape(path)} {why}')

    def test_a_step_that_cannot_be_shared_out_is_refused(self):
        for words, *more in (
                (r'E402\] [^\n]*Fix: 1 or 3 ranks, or --ways 2 or 4', '--ways', '3'),
                (r'E402\] --batch-tokens 100 is not a multiple of --seq-len 24', '--ways', '2',
                 '--batch-tokens', '100'),
                (r'E402\] --batch-tokens 264 is not a multiple of --seq-len 24', '--ways', '2',
                 '--batch-tokens', '264')):
            command = self.command(*more)
            with self.subTest(more):
                if '--batch-tokens' in more:
                    at = command.index('--batch-tokens')
                    del command[at:at + 2]
                self.told_once(self.two(command, command), 2, words)

    def test_threads_and_budgets_are_each_ranks_own(self):
        first = self.command('--ways', '2', '--world', '2', '--rank', '0', '--dram', '64M')
        second = self.command('--ways', '2', '--dram=60M', '--world', '2', '--rank', '1')
        second[second.index('--threads') + 1] = '2'
        done = self.two(first, second)
        self.assertEqual(done.returncode, 0, done.stderr)


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[7:])
