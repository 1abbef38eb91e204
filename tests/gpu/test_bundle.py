#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bundle, moved elsewhere and run with nothing of this machine but its C library.

    test_bundle.py BUILD_FOLDER

77 where patchelf, which makes it, is missing.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import bundle_blas
import make_bundle
import place

sys.path.insert(0, os.path.join(place.HERE, '..'))
import mpi  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))
BARE = {'PATH': '/usr/bin:/bin', 'LANG': 'C'}


def hidden():
    """What runs a command where the build folder and OpenBLAS's are empty; [] where it cannot."""
    covers = [BUILD, '/usr/lib/x86_64-linux-gnu/openblas-openmp']
    script = ' && '.join(f'mount -t tmpfs none "{c}"' for c in covers if os.path.isdir(c))
    command = ['unshare', '-rm', 'sh', '-c', script + ' && exec "$@"', 'sh']
    tried = subprocess.run([*command, 'true'], capture_output=True)
    return command if tried.returncode == 0 else []


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp(prefix='hoistway-bundle-')
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        made = os.path.join(cls.scratch, 'made')
        make_bundle.main(BUILD, made, archived=True)
        cls.folder = os.path.join(cls.scratch, 'moved elsewhere')
        os.rename(made, cls.folder)
        cls.wrap = hidden()

    def run_bare(self, *command, **more):
        return subprocess.run([*self.wrap, *command], cwd=self.folder, env=BARE, text=True,
                              capture_output=True, timeout=240, **more)

    def binaries(self):
        for part in ('bin', 'lib', make_bundle.BLAS_FOLDER):
            for name in os.listdir(os.path.join(self.folder, part)):
                path = os.path.join(self.folder, part, name)
                if os.path.isfile(path):
                    yield path

    def test_no_run_path_leaves_the_bundle(self):
        count = 0
        for path in self.binaries():
            told = subprocess.run(['readelf', '-d', path], capture_output=True, text=True).stdout
            paths = re.findall(r'(?:RUNPATH|RPATH).*\[(.*)\]', told)
            self.assertIn(paths, (['$ORIGIN/../lib'], ['$ORIGIN'], ['$ORIGIN/..']), path)
            count += 1
        self.assertGreater(count, 10)

    def test_every_library_is_the_bundle_s_or_the_c_library_s(self):
        for path in self.binaries():
            told = subprocess.run(['ldd', path], env=BARE, capture_output=True, text=True).stdout
            self.assertNotIn('not found', told, path)
            for name, target in re.findall(r'^\s*(\S+) => (.*) \(', told, re.M):
                inside = os.path.realpath(target).startswith(os.path.realpath(self.folder) + '/')
                self.assertNotEqual(bool(make_bundle.FOREIGN.match(name)), inside,
                                    f'{path}: {name} => {target}')

    def test_its_ranks_are_joined_by_the_machine_s_open_mpi(self):
        plugin = os.path.join(self.folder, make_bundle.RANKS_FOLDER, place.RANKS_PLUGIN)
        if mpi.missing(os.path.join(BUILD, 'engine/comm/mpi')):
            self.skipTest('Open MPI is not installed (mpirun), or the transport was not built')
        told = subprocess.run(['readelf', '-d', plugin], capture_output=True, text=True).stdout
        needed = re.findall(r'NEEDED.*\[(.*)\]', told)
        self.assertEqual([n for n in needed if not make_bundle.FOREIGN.match(n)], ['libmpi.so.40'])
        done = self.run_bare('env', f'HOISTWAY_PLUGIN_PATH={os.path.dirname(plugin)}',
                             *mpi.launcher(2), 'bin/hoistway', 'bench', 'comm', '--size', '1MiB',
                             '--pairs', '1')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn('2 ranks', done.stdout + done.stderr)

    def test_no_library_of_nvidia_is_in_it(self):
        for path in self.binaries():
            self.assertNotRegex(os.path.basename(path), 'cublas|cudnn|cudart|libcuda')

    def test_the_archive_holds_it_whole(self):
        with tarfile.open(os.path.join(self.scratch, 'made.tar.xz')) as file:
            packed = {m.name: (m.size, m.mode & 0o111 != 0) for m in file if m.isfile()}
        here = {}
        for folder, _, files in os.walk(self.folder):
            for name in files:
                path = os.path.join(folder, name)
                here['made/' + os.path.relpath(path, self.folder)] = (
                    os.path.getsize(path), os.stat(path).st_mode & 0o111 != 0)
        self.assertEqual(packed, here)

    def test_of_openblas_only_kernels_of_other_precisions_are_left_out(self):
        told = ('libopenblas.a:setparam_ZEN.o:                 U _GLOBAL_OFFSET_TABLE_\n'
                'libopenblas.a:setparam_ZEN.o:                 U dgemm_kernel_ZEN\n'
                'libopenblas.a:setparam_ZEN.o:                 U idamax_k_ZEN\n'
                'libopenblas.a:setparam_ZEN.o:                 U isamax_k_ZEN\n'
                'libopenblas.a:setparam_ZEN.o:                 U sgemm_kernel_ZEN\n'
                'libopenblas.a:setparam_ZEN.o:                 U stderr\n'
                'libopenblas.a:zgemm.o:                 U zgemm_kernel_ZEN\n')
        self.assertEqual(bundle_blas.left_out(told), ['dgemm_kernel_ZEN', 'idamax_k_ZEN'])

    def test_it_names_its_commit(self):
        with open(os.path.join(self.folder, 'bundle.json'), encoding='utf-8') as file:
            self.assertRegex(json.load(file)['commit'], r'^[0-9a-f]{40}\+?$|^unknown$')

    def test_the_program_runs(self):
        done = self.run_bare('bin/hoistway', 'doctor', '--store', self.scratch)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn('\nready: ', done.stdout)
        done = self.run_bare('./run', 'demo')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_its_openblas_is_the_one_that_is_opened_and_gives_the_linked_one_s_bytes(self):
        """Over a table of shapes, for each core that this processor has the instructions for."""
        linked = os.path.join(BUILD, 'tests/kernels/blas_bytes_linked')
        count = 0
        for core in ('Prescott', 'Nehalem', 'Haswell', 'Zen', 'SkylakeX', 'Cooperlake'):
            done = self.run_bare('env', 'OPENBLAS_CORETYPE=' + core, 'bin/blas_bytes')
            if 'which this processor has not got' in done.stderr:
                continue
            self.assertEqual(done.returncode, 0, done.stderr)
            first, *lines = done.stdout.splitlines()
            self.assertEqual(os.path.realpath(first.rpartition(' ')[0]), os.path.realpath(
                os.path.join(self.folder, make_bundle.BLAS_FOLDER, make_bundle.BLAS)))
            was, *expected = subprocess.run(
                [linked], env={**BARE, 'OPENBLAS_CORETYPE': core}, capture_output=True,
                text=True, check=True).stdout.splitlines()
            self.assertEqual(first.rpartition(' ')[2], was.rpartition(' ')[2])
            self.assertGreater(len(lines), 10000)
            self.assertEqual(lines, expected, core)
            count += 1
        self.assertGreater(count, 0)

    def test_the_suite_s_programs_run(self):
        done = self.run_bare('bin/test_kernels_device', 'host')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_gpu_job_runs_or_says_why_not(self):
        done = self.run_bare('./run', 'gpu', 'doctor', '--out', os.path.join(self.scratch, 'out'))
        if done.returncode == 77:
            self.assertRegex(done.stderr, r'(?m)^gpu: cuda:0 cannot be used: .')
        else:
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_other_jobs_are_refused(self):
        done = self.run_bare('./run', 'build')
        self.assertEqual(done.returncode, 2)
        self.assertIn('bundle', done.stderr)


if __name__ == '__main__':
    for tool in ('patchelf', 'strip', 'ldd'):
        if not shutil.which(tool):
            print(f'skipped: no {tool}; apt install {tool}')
            sys.exit(77)
    unittest.main()
