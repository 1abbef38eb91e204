#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All of `./run gpu --smoke` on the double of the CUDA device, and what it does where parts fail.

    test_report.py FOLDER_OF_THE_DOUBLE
"""
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

import place

DOUBLE = sys.argv.pop(1)
SCRIPT = os.path.join(place.HERE, 'report.py')


def report(out, *arguments, **settings):
    on_double = {'HOISTWAY_PLUGIN_PATH': DOUBLE, 'HOISTWAY_CUDA_PATH': DOUBLE,
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
                     'train-1b', 'train-3b'):
            self.assertEqual(results[name], 'ran', told)
        kernels = next(part for part in told['parts'] if part['name'] == 'kernels')
        self.assertEqual([f['unit'] for f in kernels['figures'] if f['name'].startswith('layer ')],
                         ['s', 'tokens'] * 2)
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
        self.assertEqual((done.returncode, told), (77, None), done.stdout)  # no device at all
        done, told = report(self.out, 'peer-1b', 'kernels', HOISTWAY_TORCH_PYTHON='/bin/false')
        results = {part['name']: part['result'] for part in told['parts']}
        self.assertEqual(results, {'peer-1b': 'failed', 'kernels': 'ran'})
        self.assertEqual(done.returncode, 1)

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
