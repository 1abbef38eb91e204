#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The part about ranks on the double of the CUDA device, and what it says where ranks cannot be
started or come to other bytes.

    test_ranks.py FOLDER_OF_THE_DOUBLE FOLDER_OF_MPI_S_PLUGIN
"""
import argparse
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import offload
import parts
import place
import ranks
import report
import training
from runner import Runner

sys.path.insert(0, os.path.join(place.HERE, '..'))
import mpi  # noqa: E402
from short import whole_alone  # noqa: E402

DOUBLE, MPI = sys.argv[1:3]
del sys.argv[1:3]
TEST = '2 ranks of one GPU'
# In mpirun's place: one rank alone, of another seed.
OTHER = '''\
#!/bin/sh
while [ "$1" != -n ]; do shift; done
shift 2
[ "$2" != -c ] || exit 0
exec "$@" --seed 7
'''


def program(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, 'w', encoding='ascii') as file:
        file.write(text)
    os.chmod(path, stat.S_IRWXU)
    return path


class OnTheDouble(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def report(self, **more):
        settings = {'HOISTWAY_PLUGIN_PATH': f'{DOUBLE}:{MPI}', 'HOISTWAY_CUDA_PATH': DOUBLE, **more}
        out = os.path.join(self.folder, 'out')
        done = subprocess.run(
            [sys.executable, os.path.join(place.HERE, 'report.py'), '--smoke', '--seconds=3000',
             '--out', out, 'ranks'], capture_output=True, text=True,
            env={**mpi.environment(MPI), **settings}, check=False)
        with open(os.path.join(out, 'report.json'), encoding='utf-8') as file:
            return done, json.load(file)['parts'][0]

    def test_two_ranks_have_the_bytes_of_one_and_each_kernel_has_a_figure(self):
        done, part = self.report()
        self.assertEqual((done.returncode, part['result']), (0, 'ran'), done.stdout + done.stderr)
        told = {figure['name']: figure for figure in part['figures'] if figure['unit'] == 'B/s'}
        for name in ('sum of 2, bf16', 'sum of 2, f32', 'sum of 8, bf16', 'sum of 8, f32',
                     'sum of 8, rounded to int4', 'quantise bf16 to int8',
                     'dequantise int4 to f32'):
            self.assertTrue(told[name]['fraction'], told[name])
            self.assertEqual((told[name]['goal'], told[name]['ceiling_name']),
                             (0.85, 'a copy inside the device of as many bytes'))
        self.assertEqual(len(told), 15)
        if mpi.missing(MPI):
            self.assertEqual([t['result'] for t in part['tests']], ['skipped'])
            return
        self.assertEqual([(t['name'].partition(',')[0], t['result']) for t in part['tests']],
                         [(f'{name}: {TEST}', 'passed') for name in ('bf16', 'integers')])
        started = [c for c in part['commands'] if c.startswith('mpirun ') and ' train ' in c]
        self.assertEqual(len(started), 2)
        for command in started:
            self.assertRegex(command, r' -n 2 .* --device cuda:0 .* --ways 2 .*--comm mpi$')

    @whole_alone
    def test_other_bytes_are_a_failure(self):
        program(self.folder, 'mpirun', OTHER)
        done, part = self.report(PATH=f'{self.folder}:{os.environ["PATH"]}')
        self.assertEqual((done.returncode, part['result']), (1, 'failed'), done.stdout)
        self.assertEqual([t['result'] for t in part['tests']], ['failed', 'failed'])
        self.assertIn('these differ: model.safetensors', part['tests'][0]['why'])


class Told(unittest.TestCase):
    """With kernels that nobody measures."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        options = argparse.Namespace(device='cuda', smoke=True, out=os.path.join(self.folder, 'o'))
        self.runner = Runner(options, self.folder, {'kept': {}, 'concerns': [], 'machine': {}})
        self.part = self.runner.begin('ranks', 60)
        for name, value in ((place, 'program'), (place, 'plugin')):
            self.patch(name, value, lambda name: '/here/' + name)
        self.patch(parts, 'run_json', lambda *_: [])
        self.patch(training, 'make_model', lambda *_: None)

    def patch(self, *what):
        patched = mock.patch.object(*what)
        patched.start()
        self.addCleanup(patched.stop)

    def told(self, **environment):
        with mock.patch.dict(os.environ, environment):
            ranks.ranks(self.runner)
        return [(t['name'], t['result'], t['why']) for t in self.part['tests']]

    def test_what_is_missing_is_named(self):
        (name, result, why), = self.told(PATH=self.folder)
        self.assertEqual((name, result), (TEST, 'skipped'))
        self.assertIn('no mpirun in PATH', why)

    def test_a_build_without_the_plugin_names_it(self):
        self.patch(place, 'plugin', lambda name: None)
        (_, _, why), = self.told()
        self.assertEqual(why, 'this build has no libhoistway-mpi.so')

    def test_a_launcher_that_loads_no_open_mpi_is_told_with_its_words(self):
        program(self.folder, 'mpirun', '#!/bin/sh\necho "no option --oversubscribe" >&2\nexit 3\n')
        (_, result, why), = self.told(PATH=f'{self.folder}:{os.environ["PATH"]}')
        self.assertEqual(result, 'skipped')
        self.assertRegex(why, r'loads libmpi\.so\.40: exit 3: no option --oversubscribe')

    def test_what_differs_is_named(self):
        self.patch(ranks, 'why_no_ranks', lambda runner: None)
        self.patch(offload, 'exported', lambda *words: {'a': 1, 'b': len(words)})
        self.assertEqual([(result, why) for _, result, why in self.told()],
                         2 * [('failed', 'these differ: b')])

    def test_ranks_of_a_card_are_told_its_number(self):
        self.assertEqual([training.card(name) for name in ('cuda', 'cuda:3')], ['cuda:0', 'cuda:3'])

    def test_the_part_is_short_and_comes_before_what_takes_minutes(self):
        names = list(report.PARTS)
        self.assertLessEqual(report.PARTS['ranks'][1], 90)
        self.assertEqual(names[names.index('ranks') - 1], 'train-3b')
        self.assertTrue(all(limit_s <= 90 for _, limit_s in list(report.PARTS.values())[
            :names.index('ranks')]))


if __name__ == '__main__':
    unittest.main()
