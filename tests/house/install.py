#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/install.md: what `meson install` leaves is whole, and the page's example runs with it.

    install.py SOURCE_ROOT BUILD_ROOT

The installed program runs without a path to its library, and every public header is there. The
example is compiled as the page says, by pkg-config, and prints what the page prints.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
del sys.argv[1:3]
PAGE = os.path.join(SOURCE, 'docs', 'install.md')
MAX_LINES = 40


def command(*line, **how):
    done = subprocess.run(line, capture_output=True, text=True, check=False, **how)
    if done.returncode:
        raise AssertionError(f'{line}: {done.stdout}{done.stderr}')
    return done.stdout


def one(*parts):
    found = glob.glob(os.path.join(*parts), recursive=True)
    assert found, f'nothing is installed as {os.path.join(*parts)}'
    return found[0]


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(dir=os.getcwd())  # the example's store wants a drive
        cls.addClassCleanup(scratch.cleanup)
        cls.root = scratch.name
        command('meson', 'install', '-C', BUILD, '--no-rebuild', '--destdir', cls.root)
        with open(PAGE, encoding='utf-8') as file:
            cls.page = file.read()

    def test_programs_find_the_library_wherever_the_prefix_is(self):
        clean = {k: v for k, v in os.environ.items() if k != 'LD_LIBRARY_PATH'}
        for name in ('hoistway', 'nvme-bench'):
            program = one(self.root, '**', 'bin', name)
            self.assertRegex(command(program, '--version', env=clean), r'^\S+ \d+\.\d+')
            linked = command('ldd', program, env=clean)
            self.assertRegex(linked, rf'libhoistway\.so\.0 => {re.escape(self.root)}')

    def test_prep_finds_its_python_files(self):
        program = one(self.root, '**', 'bin', 'hoistway')
        named = {**os.environ, 'HOISTWAY_PYTHON': sys.executable, 'PYTHONDONTWRITEBYTECODE': '1'}
        self.assertIn('--split-turns', command(program, 'prep', '--help', env=named))
        installed = os.path.dirname(one(self.root, '**', 'share', 'hoistway', 'python', 'hoistway',
                                        'prep.py'))
        for path in glob.glob(os.path.join(SOURCE, 'python', 'hoistway', '*.py')):
            one(installed, os.path.basename(path))
        self.assertFalse(os.path.exists(os.path.join(installed, '__pycache__')))

    def test_every_public_header_is_installed(self):
        headers = glob.glob(os.path.join(SOURCE, '*', 'include', 'hoistway', '*.h'))
        self.assertGreater(len(headers), 5)
        for header in headers:
            one(self.root, '**', 'include', 'hoistway', os.path.basename(header))

    def test_the_example_is_built_with_pkg_config_and_prints_what_the_page_says(self):
        code = re.search(r'```c\n(.*?)```', self.page, re.S)[1]
        self.assertLessEqual(code.count('\n'), MAX_LINES)
        with open(os.path.join(self.root, 'example.c'), 'w', encoding='utf-8') as file:
            file.write(code)
        typed = re.search(r'```\n(cc example\.c .*)\n(\./example store)\n```', self.page)
        module = one(self.root, '**', 'hoistway.pc')
        where = {**os.environ, 'PKG_CONFIG_SYSROOT_DIR': self.root,
                 'PKG_CONFIG_PATH': os.path.dirname(module),
                 'LD_LIBRARY_PATH': os.path.dirname(os.path.dirname(module))}
        warnings = '-std=c11 -Wall -Wextra -Werror'
        command('bash', '-ec', f'{typed[1]} {warnings}', cwd=self.root, env=where)
        told = command('bash', '-ec', typed[2], cwd=self.root, env=where)
        self.assertEqual(told, re.search(r'the loss falls:\n\n```\n(.*?)```', self.page, re.S)[1])


if __name__ == '__main__':
    unittest.main()
