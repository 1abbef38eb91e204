#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All of `./run gpu --smoke` on the double of the CUDA device, and what it does where parts fail.

    test_report.py FOLDER_OF_THE_DOUBLE FOLDER_OF_MPI_S_PLUGIN
"""
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

import place

DOUBLE, MPI = sys.argv[1:3]
del sys.argv[1:3]
SCRIPT = os.path.join(place.HERE, 'report.py')


def report(out, *arguments, **settings):
    on_double = {'HOISTWAY_PLUGIN_PATH': f'{DOUBLE}:{MPI}', 'HOISTWAY_CUDA_PATH': DOUBLE,
                 'HST_FAKE_BLASLT_SPLIT': '1'}
    done = subprocess.run(
        [sys.executable, SCRIPT, '--smoke', '--out', out, *arguments], capture_output=True,
        text=True, timeout=800, env={**os.environ, **on_double, **settings})
    path = os.path.join(out, 'report.json')
    if not os.path.exists(path):
        return done, None
    with open(path, encoding='utf-8') as file:
        return done, json.load(file)


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, 'out')

    def test_every_part_runs_on_the_double(self):
        done, told = report(self.out)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = {part['name']: part['result'] for part in told['parts']}
        for name in ('doctor', 'triage', 'suite', 'kernels', 'gemm', 'attention', 'layer',
                     'train-1b', 'train-3b', 'ranks'):
            self.assertEqual(results[name], 'ran', told)
        kernels = next(part for part in told['parts'] if part['name'] == 'kernels')
        self.assertEqual([f['unit'] for f in kernels['figures'] if f['name'].startswith('layer ')],
                         ['s', 'tokens'] * 2)
        waits = [f['name'] for f in kernels['figures'] if 'the thread' in f['name']]
        self.assertEqual([name.split(':')[0] for name in waits], ['block', 'block', 'spin', 'spin'])
        for part in told['parts']:
            if part['result'] == 'skipped':
                self.assertTrue(part['why'], part)
            for figure in part['figures']:
                self.assertTrue(figure['command'] or part['name'] == 'predictions', figure)
                self.assertIsNone(figure['met'], figure)  # a smoke run measures nothing
                self.assertTrue(figure['value'] or figure['note'], figure)
        tests = [t for part in told['parts'] for t in part['tests']]
        self.assertGreaterEqual(len([t for t in tests if t['result'] == 'passed']), 3)
        with open(os.path.join(self.out, 'report.md'), encoding='utf-8') as file:
            page = file.read()
        for part in told['parts']:
            self.assertIn(f"## {part['name']}: ", page)
        self.assertIn(told['commit'], page)

    def test_a_part_that_fails_does_not_stop_the_others(self):
        done, told = report(self.out, 'attention', 'kernels', HOISTWAY_PLUGIN_PATH=self.broken())
        self.assertEqual(done.returncode, 77, done.stdout)  # no device at all
        self.assertEqual([part['name'] for part in told['parts']], ['facts'])
        self.assertIn('cuda:0 cannot be used: ', told['concerns'][0])
        self.assertIn('libcublasLt.so.13', told['facts'])
        done, told = report(self.out, 'peer-1b', 'kernels', HOISTWAY_TORCH_PYTHON='/bin/false')
        results = {part['name']: part['result'] for part in told['parts']}
        self.assertEqual(results, {'peer-1b': 'failed', 'kernels': 'ran'})
        self.assertEqual(done.returncode, 1)

    def test_a_card_that_dies_is_told_with_operation_and_shape_and_the_rest_runs(self):
        done, told = report(self.out, 'triage', '--seconds=780',
                            HST_FAKE_CUDA='fail=launch:30+:700')
        self.assertEqual(done.returncode, 1, done.stdout)
        tests = {t['name'].removeprefix('kernels/triage'): t for t in told['parts'][0]['tests']}
        self.assertEqual([name for name, t in tests.items() if t['result'] == 'failed'], [''])
        self.assertRegex(tests['']['why'], r'^(\w+)_small_(f32|bf16|f16): operands: '
                         r'.*\2\[\d+ x \d+\].*; the device: GPU 0: stream "triage"; '
                         r'enqueued last: \1, .*cudaErrorIllegalAddress')
        listed = subprocess.run([place.program('test_kernels_triage')], capture_output=True,
                                env={**os.environ, 'HST_SUITE_LIST': '1'}, text=True, check=True)
        small = [name for name in listed.stdout.split() if '_small' in name]
        died = next(i for i, name in enumerate(small) if tests['']['why'].startswith(name + ':'))
        alone = [name for name in small[died + 1:] if tests[f', {name}']['result'] == 'passed']
        self.assertEqual(alone, small[died + 1:])
        self.assertGreater(len(alone), 10)

    def broken(self):
        folder = os.path.dirname(self.out)
        path = os.path.join(folder, 'libhoistway-cuda.so')
        with open(path, 'w', encoding='ascii') as file:
            file.write('not a library')
        os.chmod(path, stat.S_IRWXU)
        return folder

    def test_a_part_without_time_is_told(self):
        done, told = report(self.out, 'kernels', 'train', '--seconds', '0')
        self.assertEqual({part['result'] for part in told['parts']}, {'skipped'})
        self.assertEqual({part['why'] for part in told['parts']}, {'no time was left'})
        self.assertEqual(done.returncode, 0)

    def test_an_unknown_part_is_refused(self):
        done, _ = report(self.out, 'kernel')
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown part 'kernel'", done.stderr)


if __name__ == '__main__':
    unittest.main()
