#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What engine/probe/digest.py says of a tree of sources: the same wherever it lies, and another
text for any change that kernels may have."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'engine', 'probe',
                      'digest.py')


class Digest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = scratch.name
        self.write('one/leaf/kernels.c', 'a kernel')
        self.write('one/leaf/deep/ops.cu', 'another')

    def path(self, *names):
        return os.path.join(self.root, *names)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), 'w', encoding='utf-8') as file:
            file.write(text)

    def read(self, name):
        with open(self.path(name), encoding='utf-8') as file:
            return file.read()

    def digest(self, tree='one', how='gcc'):
        subprocess.run([sys.executable, SCRIPT, self.path('code.h'), self.path('code.d'), how,
                        self.path(tree, 'leaf')], check=True)
        return re.search(r'^#define PROBE_CODE "([0-9a-f]{16})"$', self.read('code.h'), re.M)[1]

    def test_the_same_tree_has_the_same_wherever_it_lies(self):
        shutil.copytree(self.path('one'), self.path('two'))
        self.write('two/leaf/README.md', 'no source')
        self.assertEqual(self.digest('one'), self.digest('two'))

    def test_each_change_is_seen(self):
        seen = [self.digest(), self.digest(how='clang')]
        self.write('one/leaf/kernels.c', 'A kernel')
        seen.append(self.digest())
        self.write('one/leaf/deep/ops.cu', 'another one')
        seen.append(self.digest())
        self.write('one/leaf/more.h', '')
        seen.append(self.digest())
        os.rename(self.path('one', 'leaf', 'more.h'), self.path('one', 'leaf', 'less.h'))
        seen.append(self.digest())
        self.assertEqual(len(set(seen)), len(seen))

    def test_it_is_made_anew_when_a_file_or_a_folder_changes(self):
        self.digest()
        target, names = self.read('code.d').replace('\\\n', '').split(':')
        self.assertEqual(target, self.path('code.h'))
        self.assertEqual(set(names.split()),
                         {self.path('one', 'leaf', *rest) for rest in
                          ((), ('kernels.c',), ('deep',), ('deep', 'ops.cu'))})

    def test_a_folder_without_sources_is_a_mistake(self):
        os.makedirs(self.path('none', 'leaf'))
        done = subprocess.run([sys.executable, SCRIPT, self.path('code.h'), self.path('code.d'), '',
                               self.path('none', 'leaf')], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn('no source in ', done.stderr)


if __name__ == '__main__':
    unittest.main()
