#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OpenBLAS is opened when a host device is, gives the bytes of the linked one, and never hangs.

    blas.py BLAS_BYTES BLAS_BYTES_LINKED HOISTWAY LIBHOISTWAY
"""
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from short import some, whole_alone  # noqa: E402

BYTES, LINKED, PROGRAM, LIBRARY = (os.path.abspath(p) for p in sys.argv[1:5])
del sys.argv[1:5]
CORES = ('Prescott', 'Nehalem', 'Sandybridge', 'Haswell', 'Zen', 'SkylakeX', 'Cooperlake')
PLAN = ('plan', '--model', 'llama-3-8b', '--device', 'host', '--host-math')
SONAME = 'libopenblas.so.0'
WITHOUT = {k: v for k, v in os.environ.items()
           if k not in ('OPENBLAS_CORETYPE', 'HOISTWAY_BLAS_PATH')}


def table(*command, core=None, **variables):
    """(file, core, lines) of a program that prints the bytes of products."""
    named = {'OPENBLAS_CORETYPE': core} if core else {}
    done = subprocess.run(command, env={**WITHOUT, **named, **variables}, capture_output=True,
                          text=True, check=True)
    first, *lines = done.stdout.splitlines()
    return (*first.rsplit(' ', 1), lines)


def can_run():
    """The cores that this processor has the instructions for: others are refused."""
    for core in CORES:
        done = subprocess.run([BYTES], env={**WITHOUT, 'OPENBLAS_CORETYPE': core},
                              capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.split('\n')[0].endswith(' ' + core):
            yield core
        elif done.returncode:
            assert done.returncode == 1 and 'which this processor has not got' in done.stderr, done


class Blas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp(prefix='hoistway-blas-')
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        cls.can = list(can_run())
        cls.cores = some(cls.can, 4)
        cls.tables = {core: table(LINKED, core=core) for core in cls.cores}

    def program(self, *arguments, limit=None, timeout=60, **variables):
        """The program, under a limit of address space in KiB as `ulimit -v` sets it."""
        def limited():
            resource.setrlimit(resource.RLIMIT_AS, (limit << 10, limit << 10))
        done = subprocess.run([PROGRAM, *arguments], env={**WITHOUT, **variables},
                              capture_output=True, text=True, timeout=timeout, cwd=self.scratch,
                              preexec_fn=limited if limit else None)
        if 'Sanitizer' in done.stderr:
            self.skipTest('sanitizers need more address space than the limit leaves')
        return done

    def folder(self, name, write):
        """A folder with an OpenBLAS of a kind."""
        path = os.path.join(self.scratch, name)
        os.makedirs(path)
        write(os.path.join(path, SONAME))
        return path

    def compiled(self, text):
        def write(path):
            subprocess.run([os.environ.get('CC', 'cc'), '-shared', '-fPIC', '-x', 'c', '-', '-o',
                            path, '-Wl,-soname,' + SONAME], input=text, text=True, check=True)
        return write

    # ---- bytes

    def test_the_library_that_is_opened_gives_the_bytes_of_the_one_that_is_linked(self):
        self.assertTrue(self.cores)
        for core in self.cores:
            file, runs, lines = table(BYTES, core=core)
            self.assertEqual(runs, core)
            self.assertEqual(os.path.realpath(file), os.path.realpath(self.tables[core][0]))
            self.assertGreater(len(lines), 10000)
            self.assertEqual(lines, self.tables[core][2], core)

    @whole_alone
    def test_haswell_and_zen_have_the_same_bytes_in_0_3_21_and_others_have_not(self):
        text = self.program('doctor').stdout
        if 'OpenBLAS 0.3.21 ' not in text or not {'Haswell', 'Zen', 'SkylakeX'} <= {*self.cores}:
            self.skipTest('another OpenBLAS, or a processor without AVX-512')
        of = {core: told[2] for core, told in self.tables.items()}
        self.assertEqual(of['Haswell'], of['Zen'])
        for core in set(of) - {'Haswell', 'Zen'}:
            self.assertNotEqual(of['Haswell'], of[core], core)
        if 'Cooperlake' in of:
            self.assertNotEqual(of['SkylakeX'], of['Cooperlake'])

    # ---- when it is opened

    def test_neither_program_nor_library_needs_it_to_start(self):
        for path in (PROGRAM, LIBRARY):
            told = subprocess.run(['readelf', '-d', path], capture_output=True, text=True,
                                  check=True).stdout
            needed = re.findall(r'NEEDED.*\[(.*)\]', told)
            self.assertTrue(any(name.startswith('libc.so') for name in needed))
            self.assertFalse([n for n in needed if re.match('lib(openblas|blas|gomp)', n)], path)

    def test_what_only_prints_does_not_load_it(self):
        for arguments in (['--version'], ['--help'], ['train', '--help'], ['explain', 'E201']):
            done = self.program(*arguments, LD_DEBUG='files')
            self.assertEqual(done.returncode, 0)
            self.assertIn('libhwloc', done.stderr)
            self.assertNotIn('openblas', done.stderr)
        self.assertIn('openblas', self.program('doctor', LD_DEBUG='files').stderr)

    def test_what_only_prints_ends_at_once_under_a_limit_of_address_space(self):
        for limit in (100000, 300000, 400000):
            for arguments in (['--version'], ['--help'], ['explain', 'E201']):
                done = self.program(*arguments, limit=limit, timeout=20)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout)

    def test_a_host_device_is_refused_where_it_would_wait_for_ever(self):
        for limit in (200000, 400000):
            done = self.program('demo', limit=limit, timeout=30)  # one that waits for ever fails
            self.assertEqual(done.returncode, 2, done.stderr)
            refused = [x for x in done.stderr.splitlines() if x.startswith('error')]
            self.assertEqual(len(refused), 1, done.stderr)
            self.assertRegex(refused[0], r'^error\[E302\] .*OpenBLAS maps \d+ MiB .*ulimit -v')
            done = self.program('doctor', limit=limit)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stdout, r'(?m)^fail  blas +OpenBLAS maps \d+ MiB ')

    def test_doctor_ends_under_any_limit(self):
        for limit in (470000, 600000):
            self.assertIn(self.program('doctor', limit=limit).returncode, (0, 1))

    # ---- which one

    def refused(self, code, *arguments, **variables):
        done = self.program(*arguments, **variables)
        self.assertEqual(done.returncode, 2 if code in (204, 302) else 1)
        line = done.stderr.splitlines()[-1]
        self.assertTrue(line.startswith(f'error[E{code}] '), done.stderr)
        return line

    def test_a_library_that_can_not_be_used_is_refused_with_the_package_to_install(self):
        empty = self.folder('text', lambda path: shutil.copy(__file__, path))
        other = self.folder('other', self.compiled('int cblas_sgemm = 1;'))
        serial = self.folder('serial', self.compiled(
            'void cblas_sgemm(void) {} char *openblas_get_config(void) { return "OpenBLAS 9"; }'
            'char *openblas_get_corename(void) { return "X"; }'
            'int openblas_get_parallel(void) { return 0; }'
            'void openblas_set_num_threads(int n) { (void)n; }'))
        for folder, why in ((empty, 'does not load'), (other, 'is not OpenBLAS'),
                            (serial, 'serial flavour')):
            line = self.refused(201, 'demo', HOISTWAY_BLAS_PATH=folder)
            self.assertIn(why, line)
            self.assertIn('apt install libopenblas0-openmp', line)
        file, _, _ = table(BYTES, HOISTWAY_BLAS_PATH='relative:' + os.path.join(empty, 'none'))
        self.assertIn('openblas', file)

    def test_a_missing_library_is_refused_with_the_package_to_install(self):
        covers = [os.path.dirname(table(BYTES)[0])]
        script = ' && '.join(f'mount -t tmpfs none "{c}"' for c in covers)
        hide = ['unshare', '-rm', 'sh', '-c', script + ' && exec "$@"', 'sh']
        if subprocess.run([*hide, 'true'], capture_output=True).returncode:
            self.skipTest('no mount namespace can be had')
        if subprocess.run([*hide, 'sh', '-c', f'ldconfig -p | grep -q {SONAME}']).returncode == 0:
            again = subprocess.run([*hide, BYTES], env=WITHOUT, capture_output=True, text=True)
            if again.returncode == 0:
                self.skipTest('there is another OpenBLAS among the system\'s libraries')
        done = subprocess.run([*hide, PROGRAM, 'demo'], env=WITHOUT, capture_output=True, text=True)
        line = done.stderr.splitlines()[-1]
        self.assertRegex(line, r'^error\[E201\] .*no libopenblas\.so\.0 in: .*openblas-openmp')
        self.assertIn('apt install libopenblas0-openmp', line)
        self.assertEqual(subprocess.run([*hide, PROGRAM, '--version'], capture_output=True,
                                        env=WITHOUT).returncode, 0)

    # ---- a core that is named

    def test_a_core_that_can_not_be_had_is_refused_before_it_runs(self):
        line = self.refused(204, *PLAN, 'pentium')
        self.assertIn('Haswell, Zen, SkylakeX', line)
        for core in ('SapphireRapids', *CORES):
            if core not in self.can:
                line = self.refused(204, *PLAN, core)
                self.assertRegex(line, 'which this processor has not got|in its place')
                done = self.program('doctor', OPENBLAS_CORETYPE=core)
                self.assertGreaterEqual(done.returncode, 0, 'ended by a signal')

    def test_a_name_of_the_environment_that_is_not_known_is_refused(self):
        """OpenBLAS passes over a misspelt one, and runs Bulldozer's kernels until they trap."""
        for core in ('Haswel', 'Haswell,Zen', 'Bulldozer', 'Excavator', 'Opteron', 5000 * 'x'):
            line = self.refused(204, *PLAN[:-1], OPENBLAS_CORETYPE=core)
            self.assertIn('which is no core that is known here', line)
        self.assertNotIn('E204', self.program(*PLAN[:-1], OPENBLAS_CORETYPE='').stderr)


if __name__ == '__main__':
    unittest.main()
