#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/coverage.py tells of a tree with one file, of which a program has run a part."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'coverage.py')
SOURCE = """int never(void)
{
    return 1;
}
int often(int i)
{
    if (i > 9)
        return 2;
    return 3;
}
"""


@unittest.skipUnless(shutil.which('gcc') and shutil.which('gcov'), 'gcc and gcov are not here')
class Coverage(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = scratch.name
        for folder in ('tests', 'aio', 'build'):
            os.mkdir(os.path.join(self.root, folder))
        shutil.copy(SCRIPT, os.path.join(self.root, 'tests'))
        for name, text in (('aio/part.c', SOURCE), ('main.c', 'int often(int);\n'
                                                    'int main(void) { return often(1) - 3; }\n')):
            with open(os.path.join(self.root, name), 'w', encoding='ascii') as file:
                file.write(text)

    def told(self, *arguments):
        return subprocess.run([sys.executable, os.path.join(self.root, 'tests', 'coverage.py'),
                               'build', *arguments], cwd=self.root, capture_output=True, text=True,
                              check=False)

    def test_lines_and_functions_that_ran_are_told_by_folder(self):
        self.assertIn('no object that gcov can read', self.told().stderr)
        for command in (['gcc', '--coverage', '-c', '../aio/part.c', '-o', 'part.o'],
                        ['gcc', '--coverage', 'part.o', '../main.c', '-o', 'program'],
                        ['./program']):
            subprocess.run(command, cwd=os.path.join(self.root, 'build'), check=True)
        done = self.told()  # of the opening lines of both, of three returns and of the question
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[2:], ['| aio | 6 | 50.0 % | 1 |',
                                                        '| all | 6 | 50.0 % | 1 |'])
        self.assertEqual(self.told('--functions', 'aio').stdout, 'aio/part.c:1: never\n')


if __name__ == '__main__':
    unittest.main()
