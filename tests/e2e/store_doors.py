#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is said of --store before a run begins: plan, train and train --resume give one answer, at
once, before the table, and nothing is made or changed.

store_doors.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ROOT = (os.path.abspath(path) for path in sys.argv[1:3])
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
OTHER = os.path.join(ROOT, 'tests', 'golden', 'tied-gqa')
FILE = 'r00000.d0.blk'


def content(data):
    def make(path):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), 'wb') as file:
            file.write(data)
    return make


def link_to(target):
    return lambda path: os.symlink(target, path)


def tree(folder):
    return sorted((os.path.join(at, name), os.lstat(os.path.join(at, name)).st_mode,
                   os.lstat(os.path.join(at, name)).st_size)
                  for at, folders, names in os.walk(folder) for name in folders + names)


# what stands in the place of a store's file; its code; exit code; a part of the line
IN_ITS_PLACE = (
    (FILE, content(b''), 612, 1, 'it is too short'),
    (FILE, content(b'garbage' * 5000), 612, 1, 'no file of a store'),
    (FILE, os.mkfifo, 610, 1, 'is a FIFO'),
    (FILE, os.mkdir, 610, 1, 'is a directory, where a store has a file'),
    (FILE, link_to('elsewhere'), 610, 1, 'is a symbolic link'),
    (FILE + '.new', content(b'garbage'), 616, 2, "has the name of a store's file and is none"),
    ('r00000.d0.scratch', content(b'garbage'), 616, 2, "has the name of a store's file"),
    ('config.json', content(b'{}'), 616, 2, "config.json is not a store's"),
)  # fmt: skip

# a --store that is none; its code; exit code; a part of the line
NO_DIRECTORIES = (
    ('dangling', 105, 1, 'is a symbolic link that leads to nothing'),
    ('loop', 105, 1, 'is a symbolic link that leads to nothing'),
    ('link', 610, 1, 'is a symbolic link'),
    ('file', 105, 1, 'is a file'),
    ('file/', 105, 1, 'Not a directory'),
    ('fifo', 105, 1, 'is no directory'),
    ('fifo/', 105, 1, 'Not a directory'),
    ('n' * 300, 105, 1, 'File name too long'),
    ('none/below', 105, 1, 'can not be created'),
    ('s,s/in', 616, 2, 'the store directory s/in would be in the store directory s,'),
    ('s/in,./s', 616, 2, 'the store directory s/in would be in the store directory ./s,'),
    ('s,./s/', 402, 2, 'names the directory ./s/ twice'),
    ('empty,link/../empty', 402, 2, 'twice'),
    ('open', 616, 2, 'holds no file of a store, and config.json is there'),
)  # fmt: skip


class Doors(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.abspath(scratch.name)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def line(self, verb, store, *more):
        line = [PROGRAM, verb, '--device=host', f'--model={MODEL}',
                '--seq-len=24', '--batch-tokens=48', f'--store={store}']
        if verb == 'train':
            line += [f'--data={MODEL}/tokens.bin', '--durability=step']
            line += [] if any(m.startswith('--steps') for m in more) else ['--steps=2']
        return line + list(more)

    def run_it(self, verb, store, *more):
        return subprocess.run(self.line(verb, store, *more), cwd=self.folder, capture_output=True,
                              text=True, timeout=120, check=False)

    def good(self, verb, store, *more):
        done = self.run_it(verb, store, *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refuse(self, code, status, part, verb, store, *more):
        """-> the line of the error; before it there is neither a table nor a change."""
        before = tree(self.folder)
        done = self.run_it(verb, store, *more)
        errors = [line for line in done.stderr.splitlines() if line.startswith('error[')]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertTrue(errors[0].startswith(f'error[E{code}] '), errors[0])
        self.assertIn(part, errors[0])
        self.assertIn('Fix: ', errors[0])
        self.assertEqual(done.returncode, status)
        self.assertEqual(done.stdout, '')
        self.assertEqual(tree(self.folder), before)
        return errors[0]

    def refuse_all(self, code, status, part, store):
        lines = {self.refuse(code, status, part, verb, store, *more)
                 for verb, *more in (('plan',), ('train',), ('train', '--resume'))}
        self.assertEqual(len(lines), 1, lines)
        self.assertNotIn('--resume', lines.pop())

    def test_what_has_the_name_of_a_stores_file_is_told_as_what_it_is(self):
        for count, (name, make, code, status, part) in enumerate(IN_ITS_PLACE):
            with self.subTest(name=name, part=part):
                os.mkdir(self.path(f's{count}'), 0o700)
                make(self.path(f's{count}', name))
                self.refuse_all(code, status, part, f's{count}')

    def test_what_can_be_no_directory_of_a_store_is_told_before_one_is_made(self):
        os.symlink('nothing', self.path('dangling'))
        os.symlink('loop', self.path('loop'))
        os.mkfifo(self.path('fifo'))
        content(b'')(self.path('file'))
        for name in ('empty', 'open'):
            os.mkdir(self.path(name), 0o755)
        os.symlink('empty', self.path('link'))
        content(b'{}')(self.path('open', 'config.json'))
        for store, code, status, part in NO_DIRECTORIES:
            with self.subTest(store=store):
                self.refuse_all(code, status, part, store)

    def test_a_committed_store_is_told_before_the_table(self):
        self.good('train', 's')
        self.refuse(616, 2, 'holds a committed version', 'train', 's')
        self.good('plan', 's')
        self.good('train', 's', '--resume', '--steps=3')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
