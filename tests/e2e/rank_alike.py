#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ranks must have alike, and what is each rank's own: one that was started otherwise, or finds
other files under the same names, ends all of them before a store is made.

    rank_alike.py PROGRAM SOURCE_ROOT PLUGIN_FOLDER OTHER_VERSION [TEST...]

OTHER_VERSION is what a program is of where that is preloaded (other_version.c).
"""
import json
import os
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from ranks import FOLDER, GOLDEN, PROGRAM, Case, environment  # noqa: E402

import mpi  # noqa: E402
from short import by_turns  # noqa: E402

HEADER, TOKEN = 1024, 4  # bytes of a file of llm.c, and of one of its tokens
OTHER_VERSION = os.path.abspath(sys.argv[4])
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
        for name in ('store', 'log', 'log.jsonl', 'export', 'out'):
            self.assertFalse(os.path.exists(self.path(name)), name)

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

    def test_ranks_of_another_version_are_refused(self):
        command = self.command('--ways', '2')
        other = ['env', f'LD_PRELOAD={OTHER_VERSION}',
                 'ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0', *command]
        self.refused(self.two(command, other), 'the version of hoistway', r'\d+\.\d+\.\d+',
                     r'0\.0\.7')

    def test_ranks_with_stores_of_other_numbers_of_directories_are_refused(self):
        first, second = self.command('--ways', '2'), self.command('--ways', '2')
        second[second.index('--store') + 1] += ',' + self.path('more')
        self.refused(self.two(first, second), 'the number of directories of --store', '1', '2')
        self.assertFalse(os.path.exists(self.path('more')))

    def test_threads_and_budgets_are_each_ranks_own(self):
        first = self.command('--ways', '2', '--world', '2', '--rank', '0', '--dram', '64M')
        second = self.command('--ways', '2', '--dram=60M', '--world', '2', '--rank', '1')
        second[second.index('--threads') + 1] = '2'
        done = self.two(first, second)
        self.assertEqual(done.returncode, 0, done.stderr)


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
