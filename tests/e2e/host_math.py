#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bits depend on: kept in log and store, compared by a resume, pinned by --host-math.

host_math.py PATH_OF_HOISTWAY SOURCE_ROOT [FOLDER_OF_THE_CUDA_DOUBLE]
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from short import by_turns  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
DOUBLE = sys.argv[3] if len(sys.argv) > 3 else ''
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
PLAIN = {k: v for k, v in os.environ.items() if k not in ('OPENBLAS_CORETYPE',
                                                          'NVIDIA_TF32_OVERRIDE')}


class Math(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def train(self, store, *more, steps=2, device='host', status=0, **variables):
        """One run in a store of that name. -> what it said on stderr."""
        done = subprocess.run(
            [PROGRAM, 'train', '--device', device, '--model', MODEL, '--data',
             os.path.join(MODEL, 'tokens.bin'), '--steps', str(steps), '--seq-len', '24',
             '--batch-tokens', '48', '--threads', '2', '--durability', 'step', '--store',
             os.path.join(self.folder, store), '--log', self.log(store), *more],
            env={**PLAIN, **variables}, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def log(self, store):
        return os.path.join(self.folder, store + '.jsonl')

    def maths(self, store):
        """Of each run line of its log."""
        with open(self.log(store), encoding='utf-8') as log:
            return [line['math'] for line in map(json.loads, log) if line['kind'] == 'run']

    def export(self, name, *options, **variables):
        """A hash of the model after three steps."""
        out = os.path.join(self.folder, name + '-model')
        named = variables.pop('host_math', None)
        more = (*options, '--host-math', named) if named else options
        self.train(name, '--export', out, '--export-dtype=fp32', *more, steps=3, **variables)
        with open(os.path.join(out, 'model.safetensors'), 'rb') as file:
            return hashlib.sha256(file.read()).hexdigest()

    @staticmethod
    def refused(math):
        """What is said where --host-math names what cannot be had; else nothing."""
        done = subprocess.run(
            [PROGRAM, 'plan', '--model', 'llama-3-8b', '--device', 'host', '--host-math', math],
            env=PLAIN, capture_output=True, text=True, timeout=60, check=False)
        return done.stderr if 'error[E204]' in done.stderr else ''

    def needs(self, *cores):
        for core in cores:
            if self.refused(core):
                self.skipTest(f'{core} cannot be had: {self.refused(core)}')

    def test_the_log_names_version_and_core(self):
        self.needs('Haswell')
        self.train('run', OPENBLAS_CORETYPE='Haswell')
        self.assertRegex(self.maths('run')[0], r'^OpenBLAS \d+\.\d+\.\d+ Haswell, glibc \d')
        self.train('run', '--resume', steps=3, OPENBLAS_CORETYPE='Nehalem')
        self.assertRegex(self.maths('run')[1], r'^OpenBLAS \d+\.\d+\.\d+ Nehalem, glibc \d')

    def test_a_resume_under_another_core_says_so_and_goes_on(self):
        self.needs('Haswell')
        self.assertNotIn('W624', self.train('run', OPENBLAS_CORETYPE='Haswell'))
        self.assertNotIn('W624', self.train('run', '--resume', steps=3,
                                            OPENBLAS_CORETYPE='Haswell'))
        told = self.train('run', '--resume', '--quiet', steps=4, OPENBLAS_CORETYPE='Nehalem')
        line = [x for x in told.splitlines() if 'W624' in x]
        self.assertEqual(len(line), 1, told)
        self.assertRegex(line[0], r"^warning\[W624\] .*'OpenBLAS [\d.]+ Nehalem.*"
                         r"'OpenBLAS [\d.]+ Haswell.* Fix: ")
        # what goes on under it has it from then on
        self.assertNotIn('W624', self.train('run', '--resume', steps=5,
                                            OPENBLAS_CORETYPE='Nehalem'))
        self.assertIn('W624', self.train('run', '--resume', '--host-math', 'haswell', steps=6))

    def test_who_makes_gemms_of_bf16_is_kept_and_compared(self):
        bf16 = ('--precision', 'bf16')
        self.train('widened', *bf16, '--host-math', 'blas')
        self.assertNotIn('bf16', self.maths('widened')[0])
        told = self.train('widened', *bf16, '--resume', steps=3)
        if 'own GEMMs of bf16' not in self.maths('widened')[1]:
            self.assertNotIn('W624', told)
            self.skipTest('this processor has no AVX-512')
        self.assertRegex(told, r"warning\[W624\] .*'own GEMMs of bf16( by AMX)?, .*' now, "
                         r"on 'glibc ")
        told = self.train('widened', *bf16, '--resume', '--host-math', 'fma', steps=4)
        if 'by AMX' in self.maths('widened')[1]: # a store of AMX, where AMX is not
            self.assertRegex(told, r"warning\[W624\] .*'own GEMMs of bf16, .*' now, on "
                             r"'own GEMMs of bf16 by AMX, .* Fix: ")
            told = self.train('widened', *bf16, '--resume', '--host-math', 'fma', steps=5)
        self.assertNotIn('W624', told)
        told = self.train('widened', *bf16, '--resume', '--host-math', 'blas', steps=6)
        self.assertIn('W624', told)

    def test_a_store_of_before_amx_goes_on_with_its_bytes(self):
        """By --host-math fma, as the warning's page says; that is no difference then."""
        bf16 = ('--precision', 'bf16')
        if self.refused('amx'):
            self.skipTest('AMX cannot be had')
        whole = self.export('whole', *bf16, host_math='fma')
        self.train('before', *bf16, '--host-math', 'fma')
        told = self.train('before', *bf16, '--resume', '--host-math', 'fma', '--export',
                          os.path.join(self.folder, 'out'), '--export-dtype=fp32', steps=3)
        self.assertNotIn('W624', told)
        with open(os.path.join(self.folder, 'out', 'model.safetensors'), 'rb') as file:
            self.assertEqual(hashlib.sha256(file.read()).hexdigest(), whole)
        told = self.train('before', *bf16, '--resume', steps=4)
        self.assertRegex(told, r"W624\] .*'own GEMMs of bf16 by AMX, .*' now, on "
                         r"'own GEMMs of bf16, ")

    def test_kernels_of_bf16_have_the_same_bytes_and_fp32_does_not_depend_on_them(self):
        bf16, seen = ('--precision', 'bf16'), {}
        for kernel in ('blas', 'fma', 'vdpbf16ps', 'amx'):
            told = self.refused(kernel)
            if told:
                self.assertRegex(told, 'needs .*, which this processor has not got|to be amx, w')
                continue
            seen[kernel] = (self.export(kernel, *bf16, host_math=kernel),
                            self.export(kernel + '-fp32', host_math=kernel),
                            self.maths(kernel + '-fp32'))
        self.assertEqual(len({fp32 for _, fp32, _ in seen.values()}), 1)
        self.assertEqual({math[0].count('bf16') for _, _, math in seen.values()}, {0})
        own = {seen[k][0] for k in ('fma', 'vdpbf16ps') if k in seen}
        self.assertLessEqual(len(own), 1)
        own |= {seen[k][0] for k in ('amx',) if k in seen}
        self.assertEqual(len(own), ('fma' in seen) + ('amx' in seen)) # AMX has other bytes
        self.assertNotIn(seen['blas'][0], own)

    def test_cores_with_the_same_bytes_are_no_difference(self):
        self.needs('Haswell', 'Zen')
        self.train('run', OPENBLAS_CORETYPE='Haswell')
        same = self.maths('run')[0].startswith('OpenBLAS 0.3.21 ')
        told = self.train('run', '--resume', steps=3, OPENBLAS_CORETYPE='Zen')
        self.assertEqual('W624' not in told, same, told)

    def test_a_core_that_is_named_gives_its_bytes_whatever_openblas_would_take(self):
        self.needs('Haswell', 'Nehalem')
        haswell = self.export('as-named-to-openblas', OPENBLAS_CORETYPE='Haswell')
        nehalem = self.export('as-another', OPENBLAS_CORETYPE='Nehalem')
        self.assertNotEqual(haswell, nehalem)
        self.assertEqual(haswell, self.export('pinned', host_math='Haswell'))
        self.assertEqual(haswell, self.export('pinned-over-another', host_math='haswell',
                                              OPENBLAS_CORETYPE='Nehalem'))
        self.assertEqual(self.maths('pinned'), self.maths('as-named-to-openblas'))

    def test_a_gpu_s_card_libraries_and_environment_are_what_its_bits_depend_on(self):
        if not DOUBLE:
            self.skipTest('no double of the CUDA device in this build')
        double = {'device': 'cuda', 'HOISTWAY_PLUGIN_PATH': DOUBLE, 'HOISTWAY_CUDA_PATH': DOUBLE}
        self.train('run', '--precision', 'fp32', **double)
        told = self.train('run', '--precision', 'fp32', '--resume', steps=3,
                          NVIDIA_TF32_OVERRIDE='0', **double)
        self.assertRegex(told, r'warning\[W624\] .*NVIDIA_TF32_OVERRIDE=0')
        first, second = self.maths('run')
        self.assertRegex(first, r', \d+\.\d+, \d+ SMs, driver.* \(CUDA \d+\.\d+\), runtime \d+\.'
                         r'\d+, cuBLASLt \d.*, its first proposals, attention ')
        self.assertEqual(second, first + ', NVIDIA_TF32_OVERRIDE=0')
        told = self.train('run', '--precision', 'fp32', '--resume', steps=4, HOISTWAY_MATMUL='own',
                          **double)
        self.assertRegex(told, r"warning\[W624\] .*'own products, .*'cuBLASLt \d")
        self.assertNotIn('cuBLASLt', self.maths('run')[2])
        told = self.train('run', '--precision', 'fp32', '--resume', steps=5, HOISTWAY_MATMUL='own',
                          **double)
        self.assertNotIn('W624', told)
        line = self.train('other', '--host-math', 'Haswell', status=2, **double)
        self.assertIn('error[E402] --host-math is for the host', line)


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
