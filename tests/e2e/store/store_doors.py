#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is said of --store before a run begins: plan, train and train --resume give one answer, at
once, before the table, and nothing is made or changed.

store_doors.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import fcntl
import os
import re
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
    ('step-4', os.mkdir, 616, 2, 'step-4 is a kept copy of a version, and no file of its store is'),
    ('step-4.new', os.mkdir, 616, 2, 'step-4.new is a kept copy of a version'),
    ('step-04', os.mkdir, 616, 2, "step-04 is not a store's"),
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
    ('none/below', 105, 1, 'cannot be created'),
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
        given = {option.split('=')[0] for option in more}
        line = [option for option in line if option.split('=')[0] not in given]
        if verb == 'train':
            line += [f'--data={MODEL}/tokens.bin', '--durability=step']
            line += [] if '--steps' in given else ['--steps=2']
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

    def test_a_store_of_another_run_is_told_with_all_differences_before_the_table(self):
        self.good('train', 's', '--steps=4', '--warmup=30%')
        self.good('train', 'l', '--steps=4', '--warmup=30%', '--schedule=linear')
        resume = ('--resume', '--steps=8', '--warmup=30%')
        for store, more, then, now, fix in (
                ('s', resume, "'warmup 2'", "'warmup 3' (30% of --steps 8)",
                 'the --steps of that run, or --warmup 2, or --allow-config-change.'),
                ('l', (*resume, '--schedule=linear'), "'steps 4', 'warmup 2'",
                 "'steps 8', 'warmup 3' (30% of --steps 8)",
                 '--steps 4 --warmup 2, or --allow-config-change.'),
                ('s', (*resume, '--seed=9', '--lr=1e-3'), "'seed 0', 'lr 1e-05', 'warmup 2'",
                 "'seed 9', 'lr 0.001', 'warmup 3' (30% of --steps 8)",
                 'the --steps of that run, or --seed 0 --lr 1e-05 --warmup 2, or another --store.'),
                ('s', (*resume, '--batch-tokens=96', '--clip=3'),
                 'batch-tokens 48, grain 48, clip 1', 'batch-tokens 96, grain 96, clip 3',
                 '--batch-tokens 48 --grain 48 --clip 1, or another --store')):
            with self.subTest(then=then):
                line = self.refuse(615, 2, 'the store was trained with ', 'train', store, *more)
                self.assertTrue(line.endswith(
                    f'was trained with {then}, this run has {now}. Fix: {fix}'), line)

    def test_another_model_is_told_as_that_where_it_does_not_fit_either(self):
        self.good('train', 's')
        for budget in ('--dram=1M', '--nvme=20M'):
            with self.subTest(budget=budget):
                line = self.refuse(615, 2, 'was trained with parameters 134592 (', 'train', 's',
                                   '--resume', f'--model={OTHER}', budget)
                self.assertIn('this run has parameters 54768 (', line)
        done = self.run_it('train', 's', '--resume', '--dram=1M')  # its own model is no other
        self.assertIn('error[E302] ', done.stderr)

    def test_a_path_that_is_not_there_is_no_silent_start(self):
        done = self.good('train', 'mispelt', '--resume', '--quiet')
        self.assertIn("warning[W622] nothing was there to resume: 'mispelt' did not exist, and a "
                      'new store is made', done.stderr)
        os.mkdir(self.path('empty'))
        done = self.good('train', 'empty', '--resume', '--quiet')
        self.assertIn('warning[W622] the store holds no version yet', done.stderr)
        done = self.good('train', 'mispelt', '--resume', '--quiet', '--steps=3')
        self.assertNotIn('W622', done.stderr)

    def test_what_is_waited_for_is_told(self):
        """A version that another process has, and what a killed start left."""
        self.good('train', 's')
        for name in (FILE, FILE + '.new'):
            with self.subTest(name=name):
                if name != FILE:
                    os.rename(self.path('s', FILE), self.path('s', name))
                lock = os.open(self.path('s', name), os.O_RDWR | os.O_CLOEXEC)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                line = self.line('train', 's', '--resume', '--quiet', '--steps=3')
                child = subprocess.Popen(line, cwd=self.folder, stderr=subprocess.PIPE, text=True)
                said = ''
                while 'W611' not in said:
                    said = child.stderr.readline()
                    self.assertNotEqual(said, '')
                self.assertRegex(said, r'\Awarning\[W611\] s/' + re.escape(name) + ' is in use by '
                                 r'another process: waiting for it, (29|30) s at most')
                os.close(lock)
                child.communicate(timeout=60)
                self.assertEqual(child.returncode, 0)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
