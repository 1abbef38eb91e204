#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hoistway prep before Python runs: which one it is, where the package is, what is missing.

    test_verb.py PATH_OF_HOISTWAY
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
TELLS = """#!/bin/sh
printf '%s\\n' "$0" "$@" "path $PYTHONPATH" "safe $PYTHONSAFEPATH"
"""

class Verb(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.realpath(scratch.name)
        # a build folder beside the package, as in a clone, but without the libraries' rpath
        self.package = os.path.join(self.folder, 'python')
        os.makedirs(os.path.join(self.package, 'hoistway'))
        open(os.path.join(self.package, 'hoistway', 'prep.py'), 'w', encoding='ascii').close()
        self.python('run')
        self.program = os.path.join(self.folder, 'build', 'tools', 'hoistway')
        os.makedirs(os.path.dirname(self.program))
        shutil.copy(PROGRAM, self.program)
        library = os.path.join(os.path.dirname(os.path.dirname(PROGRAM)), 'engine')
        self.around = {'PATH': os.path.join(self.folder, 'bin') + ':/usr/bin:/bin',
                       'LD_LIBRARY_PATH': library}

    def python(self, *parts, text=TELLS):
        path = os.path.join(self.folder, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def prep(self, *words, **around):
        return subprocess.run([self.program, 'prep', *words], capture_output=True, text=True,
                              env={**self.around, **around}, check=False)

    def assert_runs(self, path, **around):
        done = self.prep('--model', 'a b', **around)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[:5],
                         [path, '-m', 'hoistway.prep', '--model', 'a b'])
        return done.stdout

    def test_python_is_the_users_then_the_builds_then_the_environments_then_that_of_path(self):
        last = self.python('bin', 'python3')
        self.assert_runs(last)
        venv = self.python('venv', 'bin', 'python')
        around = {'VIRTUAL_ENV': os.path.join(self.folder, 'venv')}
        self.assert_runs(venv, **around)
        built = self.python('build', 'venv', 'bin', 'python')
        found = self.assert_runs(f'{self.package}/../build/venv/bin/python', **around)
        self.assertTrue(os.path.samefile(found.splitlines()[0], built))
        named = self.python('named')
        self.assert_runs(named, HOISTWAY_PYTHON=named, **around)

    def test_the_package_is_found_first_and_the_working_directory_is_not_looked_at(self):
        self.python('bin', 'python3')
        told = self.assert_runs(os.path.join(self.folder, 'bin', 'python3'), PYTHONPATH='/x')
        self.assertIn(f'path {self.package}:/x\nsafe 1\n', told)

    def test_an_installed_program_finds_what_is_installed(self):
        self.python('bin', 'python3')
        installed = os.path.join(self.folder, 'usr', 'share', 'hoistway', 'python')
        os.makedirs(os.path.dirname(installed))
        os.rename(self.package, installed)
        os.makedirs(os.path.join(self.folder, 'usr', 'bin'))
        self.program = shutil.move(self.program, os.path.join(self.folder, 'usr', 'bin'))
        told = self.assert_runs(os.path.join(self.folder, 'bin', 'python3'))
        self.assertIn(f'path {installed}\n', told)

    def assert_refused(self, done, *words):
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count('\n'), 1, done.stderr)
        self.assertTrue(done.stderr.startswith('error[E428] '), done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_what_is_missing_is_told_in_one_line_with_the_command(self):
        self.assert_refused(self.prep(HOISTWAY_PYTHON='/no/python'), '/no/python',
                            './run prep-install')
        self.assert_refused(self.prep(PATH='/no'), 'python3 cannot be run', './run prep-install')
        os.unlink(os.path.join(self.folder, 'run'))  # as of one that is installed
        for done in (self.prep(HOISTWAY_PYTHON='/no/python'), self.prep(PATH='/no')):
            self.assert_refused(done, "ENV/bin/pip install 'transformers>=4.57' tokenizers jinja2 "
                                'numpy, and then HOISTWAY_PYTHON=ENV/bin/python')
            self.assertNotIn('./run', done.stderr)
        shutil.rmtree(self.package)
        self.assert_refused(self.prep(), 'package of prep is not beside this program')

    def test_a_python_without_the_packages_is_told_with_the_command(self):
        bare = self.python('bare', text='#!/bin/sh\nexec python3 -S -s "$@"\n')
        done = subprocess.run([PROGRAM, 'prep', '--model', 'a', '--data', 'b', '--out', 'c'],
                              capture_output=True, text=True, check=False,
                              env={**os.environ, 'HOISTWAY_PYTHON': bare,
                                   'PYTHONDONTWRITEBYTECODE': '1'})
        self.assert_refused(done, 'transformers, tokenizers, jinja2, numpy', './run prep-install')

    def test_help_lists_it(self):
        done = subprocess.run([PROGRAM, '--help'], capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, r'\n  prep +make a token file')


if __name__ == '__main__':
    unittest.main()
