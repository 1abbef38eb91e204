#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad inputs: the program refuses each with its code, its exit status and one line that helps.

    hostile.py PATH_OF_HOISTWAY

Every row of corpus.py is tried as root and as an ordinary user (where this is root), and in 6 GiB
of address space (where the program has no sanitizer, which needs more); in the short form in one of
these ways, in another one on the next day. Before each group and under the same limits the intact
files are accepted. A refusal leaves the folder as it was.
"""
import functools
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from corpus import ELSEWHERE, GROUPS, NOT_MET  # noqa: E402
from folder import Folder  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from short import SHORT, TURN  # noqa: E402

PROGRAM = sys.argv.pop(1)
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOBODY = 65534
ADDRESS_BYTES = 6 << 30
LAST_NUMBER = 58  # of corpus.py: stores of earlier runs have tests of their own
USAGE = (302, 401, 402, 403, 413, 414, 616)  # which end with status 2, the others with 1
EXPLAINED = (411, 412)  # whose line and `explain` give the same fix
FILE_CODES = range(410, 424)  # whose line names a file


def address_limit():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))


def run(args, **how):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=120,
                          check=False, errors='replace', **how)


@functools.cache
def explained(code):
    """What `explain` says is to be done: each without its condition."""
    told = ' '.join(run(['explain', f'E{code}']).stdout.split('Fix: ')[1].split())
    return [re.split(' (?:where|what) ', fix)[0] for fix in told.split('; ')]


def works(**how):
    """Why the program cannot be started so; None where it can."""
    try:
        done = run(['--version'], **how)
    except PermissionError:
        return 'it lies where an ordinary user cannot read it'
    return (done.stderr or f'exit {done.returncode}') if done.returncode else None


def ways():
    """How a row is run: words, and arguments of subprocess."""
    unlimited = {'as root' if os.geteuid() == 0 else 'as this user': {}}
    limited = {'in 6 GiB of address space': {'preexec_fn': address_limit}}
    user = {'as an ordinary user': {'user': NOBODY, 'group': NOBODY, 'extra_groups': []}}
    for words, how in {**unlimited, **limited, **(user if os.geteuid() == 0 else {})}.items():
        why = works(**how)
        if why:
            print(f'not tried {words}: {why.strip().splitlines()[0]}', file=sys.stderr)
        else:
            yield words, how


WAYS = list(ways())


def tree(folder):
    """Every path below, with type, size and time of change."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            st = os.lstat(os.path.join(at, name))
            found[os.path.join(at, name)] = (stat.S_IFMT(st.st_mode), st.st_size, st.st_mtime_ns)
    return found


class Hostile(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        # nobody must get there, and a TMPDIR may be its owner's alone
        self.base = tempfile.mkdtemp(prefix='hoistway-hostile-',
                                     dir='/tmp' if os.geteuid() == 0 else None)
        self.addCleanup(shutil.rmtree, self.base)
        os.chmod(self.base, 0o755)
        self.count = 0

    def folder(self, how):
        """An intact one, of the user who will use it."""
        self.count += 1
        path = os.path.join(self.base, str(self.count))
        os.mkdir(path)
        return Folder(path, os.geteuid() == 0 and 'user' not in how)

    def hand_over(self, folder, how):
        if 'user' not in how:
            return
        for at, _, files in os.walk(folder.folder):
            os.chown(at, NOBODY, NOBODY)
            for name in files:
                os.lchown(os.path.join(at, name), NOBODY, NOBODY)

    def train(self, folder, more, how):
        options = {'--model': folder.path('model'), '--data': folder.path('data.bin'),
                   '--store': folder.path('store'), '--steps': 1, '--seq-len': 8,
                   '--batch-tokens': 8, '--durability': 'none', '--device': 'host',
                   '--threads': 1}
        given = {a.split('=')[0] for a in more}
        fixed = [f'{name}={value}' for name, value in options.items() if name not in given]
        self.hand_over(folder, how)
        return run(['train', *fixed, *more], env={**os.environ, 'HOME': folder.folder,
                                                  'XDG_CACHE_HOME': folder.path('cache')}, **how)

    def accepted(self, done, pattern):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn('error[', done.stderr)
        self.assertRegex(done.stdout + done.stderr, pattern)
        self.assertLessEqual(done.stderr.count('[I415]'), 1)  # one note, however many tensors

    def refused(self, done, code, pattern, folder):
        errors = [line for line in done.stderr.split('\n') if line.startswith('error[')]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertEqual(done.stdout, '')
        self.assertRegex(errors[0], rf'\Aerror\[E{code}\] .*(?:{pattern})')
        self.assertEqual(done.returncode, 2 if code in USAGE else 1, done.stderr)
        self.assertRegex(errors[0], r"Fix: |Did you mean|See '|--help")
        if code in EXPLAINED:
            self.assertTrue(any(fix in errors[0] for fix in explained(code)), errors[0])
        if code in FILE_CODES:
            self.assertTrue(folder in errors[0] or '/dev/' in errors[0], errors[0])

    def try_group(self, name):
        for way, (words, how) in enumerate(WAYS):
            apart = 2 * len(WAYS) if SHORT else 1  # every second row, in one of the ways
            first = (2 * way + TURN) % apart
            with self.subTest(way=words, row='intact'):
                self.accepted(self.train(self.folder(how), [], how), 'trained 1 step')
            for number, row, change, code, pattern in GROUPS[name][first::apart]:
                with self.subTest(way=words, row=f'{number}: {row}'):
                    self.try_row(how, change, code, pattern)

    def try_row(self, how, change, code, pattern):
        folder = self.folder(how)
        more = list(change(folder) or [])
        before = tree(folder.folder)
        done = self.train(folder, more, how)
        if code is None:
            self.accepted(done, pattern)
        else:
            self.refused(done, code, pattern, folder.folder)
            self.assertEqual(tree(folder.folder), before)
        if '--durability=step' in more:
            self.plan_agrees(folder, more, how, code)
        shutil.rmtree(folder.folder)

    def plan_agrees(self, folder, more, how, code):
        """On the store that is named."""
        done = run(['plan', f'--model={folder.path("model")}', '--seq-len=8', '--batch-tokens=8',
                    '--device=host', '--threads=1', *(m for m in more if m != '--quiet')],
                   env={**os.environ, 'XDG_CACHE_HOME': folder.path('cache')}, **how)
        self.assertEqual(re.findall(r'^error\[E(\d+)\]', done.stderr, re.M),
                         [str(code)] if code else [], done.stderr)

    def test_other_data_than_the_store_was_trained_on(self):
        folder = self.folder({})
        self.accepted(self.train(folder, ['--durability=step'], {}), 'trained 1 step')
        with open(folder.path('data.bin'), 'r+b') as f:
            f.seek(8)
            f.write(b'\x27')
            f.truncate(1024 + 2 * 39)
        done = self.train(folder, ['--durability=step', '--steps=2', '--resume'], {})
        self.assertRegex(done.stderr, r"error\[E615\] .*'tokens 40'.*'tokens 39'.*Fix: ")
        self.assertEqual(done.returncode, 2)
        with open(folder.path('data.bin'), 'r+b') as f:
            f.seek(8)
            f.write(b'\x28')
            f.seek(1024 + 2 * 39)
            f.write(b'\x26\0')
        done = self.train(folder, ['--durability=step', '--steps=2', '--resume'], {})
        self.assertRegex(done.stderr, r'error\[E615\] .* other data than .*as many tokens.*Fix: ')
        self.assertEqual(done.returncode, 2)

    def test_files_are_parsed_before_a_device_is_asked_for(self):
        folder = self.folder({})
        os.mkdir(folder.path('plugins'))
        folder.put('no library', 'plugins', 'libhoistway-cuda.so')
        env = {**os.environ, 'HOISTWAY_PLUGIN_PATH': folder.path('plugins')}
        args = ['train', '--model', folder.path('model'), '--data', folder.path('data.bin'),
                '--store', folder.path('store'), '--steps', '1', '--seq-len', '8',
                '--batch-tokens', '8', '--durability', 'none']
        self.assertIn('warning[W201]', run(args, env=env).stderr)
        folder.config['vocab_size'] = 65
        folder.save()
        self.assertRegex(run(args, env=env).stderr, r'\Aerror\[E415\] [^\n]*\n\Z')
        folder.put_weights(b'')
        self.assertRegex(run(args, env=env).stderr, r'\Aerror\[E410\] [^\n]*\n\Z')

    def test_inspect_says_of_a_model_what_train_would(self):
        folder = self.folder({})
        self.assertIn('can be trained: 1 layer, ', run(['inspect', folder.path('model')]).stdout)
        folder.config['vocab_size'] = 65
        folder.save()
        self.assertRegex(run(['inspect', folder.path('model')]).stdout,
                         r'cannot be trained: .*embed_tokens.weight has shape \[64, 8\]')
        folder.put('no suffix', 'data')
        self.assertRegex(run(['inspect', folder.path('data')]).stderr,
                         r'\Aerror\[E420\] .*Fix: .*--token-dtype u16')

    def test_every_number_of_the_table_is_tried_or_has_its_reason(self):
        tried = {row[0] for rows in GROUPS.values() for row in rows}
        self.assertEqual(tried & set(ELSEWHERE), set())
        self.assertEqual((tried | set(ELSEWHERE)) & set(NOT_MET), set())
        self.assertEqual(tried | set(ELSEWHERE) | set(NOT_MET), set(range(1, LAST_NUMBER + 1)))
        for path, test in ELSEWHERE.values():
            with open(os.path.join(TESTS, path), encoding='utf-8') as f:
                self.assertTrue(re.search(rf'\b{test}\(', f.read()), (path, test))


def add_group(name):
    setattr(Hostile, f'test_{name}', lambda self: self.try_group(name))


for group in GROUPS:
    add_group(group)

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
