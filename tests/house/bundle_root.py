#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bundle in a bare Debian 13 without a driver: one line says all that is missing.

    bundle_root.py SOURCE_ROOT BUILD_FOLDER

The system is made by debootstrap, with no Python in it at first. HOISTWAY_ROOT13_BASE names a
directory with such a system to copy in place of making one. Needs root and a Debian mirror; exits
with 77, and says why, where it has not.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
del sys.argv[1:]
sys.dont_write_bytecode = True
sys.path += [os.path.join(SOURCE, 'tests', 'gpu'), os.path.join(SOURCE, 'tests', 'house')]
import make_bundle  # noqa: E402
import roots  # noqa: E402

ABSENT = ("no NVIDIA driver: the system's loader finds no libcuda.so.1. Fix: install "
          "NVIDIA's driver")


class Bare(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix='hoistway-bare-')
        cls.addClassCleanup(subprocess.run, ['rm', '-rf', '--one-file-system', folder], check=False)
        os.chmod(folder, 0o755)
        given = os.environ.get('HOISTWAY_ROOT13_BASE')
        base = roots.make_base(folder, 'trixie', given)
        cls.root = os.path.join(folder, 'root')
        subprocess.run(['cp', '-a', base, cls.root], check=True)
        make_bundle.main(BUILD, os.path.join(folder, 'bundle'))
        shutil.move(os.path.join(folder, 'bundle'), cls.root + '/srv/bundle')

    def inside(self, line):
        return subprocess.run(
            ['unshare', '--mount', '--pid', '--fork', '--kill-child', 'bash', '-c',
             roots.ENTER.replace('{more}', roots.TMPFS), 'enter', self.root, 'root', line],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600)

    def test_1_without_python_one_line_names_it_and_the_driver(self):
        self.assertNotEqual(self.inside('command -v python3').returncode, 0)
        done = self.inside('cd /srv/bundle && ./run gpu')
        print(done.stderr, end='')
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count('\n'), 1, done.stderr)
        self.assertTrue(done.stderr.startswith('run: python3 is missing, which runs the GPU suite '
                                               '(Debian: apt install python3); and cuda:0 cannot '
                                               f'be used: {ABSENT}'), done.stderr)
        self.assertEqual(done.stdout, '')

    def test_2_the_program_trains_there(self):
        done = self.inside('cd /srv/bundle && ./run demo')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_3_with_python_one_line_names_the_driver_and_the_report_has_the_facts(self):
        done = self.inside(
            'apt-get -q update && apt-get -qy install --no-install-recommends python3')
        if done.returncode:
            roots.skip(f'apt-get does not work in the new system: {done.stderr}')
        done = self.inside('cd /srv/bundle && ./run gpu')
        print(done.stderr, end='')
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count('\n'), 1, done.stderr)
        self.assertTrue(done.stderr.startswith(f'gpu: cuda:0 cannot be used: {ABSENT}'),
                        done.stderr)
        with open(self.root + '/srv/bundle/gpu-report/report.json', encoding='utf-8') as file:
            told = json.load(file)
        self.assertTrue(told['concerns'][0].startswith('cuda:0 cannot be used: '), told)
        self.assertIn('trixie', told['machine']['system'])
        self.assertEqual(told['facts']['libcublasLt.so.13'], 'not found')


if __name__ == '__main__':
    roots.need_root('debootstrap', 'unshare', 'chroot', 'patchelf', 'strip', 'ldd')
    unittest.main()
