#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a report holds of programs that fail, where libraries are found, and which parts have time:
with programs of our own and a clock that the test moves.

    test_runner.py
"""
import argparse
import os
import stat
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

import conformance
import machine
import parts
import place
import report
import runner as runner_module
from runner import Runner

# A program of the suite: HOW says what becomes of each function. `dies` takes the device with it.
SUITE = '''\
#!{python}
import fnmatch, os, signal, sys, time
how = {how!r}
if os.environ.get('HST_SUITE_LIST'):
    print('\\n'.join(how))
    sys.exit(0)
only, dead, failed = os.environ.get('HST_SUITE_ONLY'), False, 0
print('[==========] Running some test(s).', flush=True)
for name, fate in how.items():
    if only and not fnmatch.fnmatch(name, only):
        continue
    print('[ RUN      ]', name, flush=True)
    if fate == 'hangs':
        time.sleep(600)
    if fate == 'killed':
        os.kill(os.getpid(), signal.SIGSEGV)
    dead |= fate == 'dies'
    bad = dead or fate == 'fails'
    if bad:
        print('case 7 of this function, alone; tensors: bf16[448] f32[112]')
    if dead:
        print('the device: GPU 0: enqueued last: rope: cudaErrorIllegalAddress', flush=True)
    if bad:
        print('[  ERROR   ] --- 0x1 != 0', '[   LINE   ] --- suite.c:282: error: Failure!',
              sep='\\n', file=sys.stderr, flush=True)
    print({{True: '[  FAILED  ]', False: '[       OK ]'}}[bad], name, flush=True)
    failed += bad
print('[==========] some test(s) run.')
sys.exit(failed)
'''
HOISTWAY = '''\
#!/bin/sh
echo "$*" >>{calls}
for folder in $(echo "$HOISTWAY_CUDA_PATH" | tr : ' '); do
    [ ! -e "$folder/libcublasLt.so.13" ] || exit 0
done
[ -z "$OWN" ] || [ "$HOISTWAY_MATMUL" = cublaslt ] || exit 0  # by own products
echo 'error[E201] libcublasLt.so.13 was not found: not in HOISTWAY_CUDA_PATH' >&2
exit 1
'''


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.out = folder.name, os.path.join(folder.name, 'out')
        options = argparse.Namespace(device='cuda:0', smoke=False, out=self.out)
        self.runner = Runner(options, folder.name, {'kept': {}, 'machine': {'nvidia-smi': {}}})
        self.part = self.runner.begin('suite', 60)

    def program(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        os.chmod(path, stat.S_IRWXU)
        return path

    def suite(self, settings={}, **how):
        path = self.program('test_kernels_x', SUITE.format(python=sys.executable, how=how))
        with mock.patch.object(conformance, 'sanitizer', lambda: None):
            conformance.run_program(self.runner, 'kernels/x', path, settings)
        return {t['name'].removeprefix('kernels/x').removeprefix(', '): t
                for t in self.part['tests']}

    def results(self, rows):
        return {name: row['result'] for name, row in rows.items()}

    def logs(self):
        folder, told = os.path.join(self.out, 'logs'), {}
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding='utf-8') as file:
                told[name] = file.read()
        return told


class Failures(Programs):
    def test_a_program_that_ends_well_is_one_row_and_one_process(self):
        rows = self.suite(one='ok', two='ok')
        self.assertEqual(self.results(rows), {'': 'passed'})
        self.assertEqual(len(self.part['commands']), 1)

    def test_a_dead_device_is_told_whole_and_the_rest_runs_in_processes_of_its_own(self):
        rows = self.suite(one='ok', two='dies', three='ok', four='fails')
        self.assertEqual(self.results(rows), {'': 'failed', 'three': 'passed', 'four': 'failed',
                                              'two, launches block': 'failed'})
        for word in ('two: ', 'case 7', 'bf16[448]', 'rope', 'cudaErrorIllegalAddress', '0x1 != 0',
                     'suite.c:282', 'logs/suite-01.txt'):
            self.assertIn(word, rows['']['why'])
        self.assertIn('CUDA_LAUNCH_BLOCKING=1 HST_SUITE_ONLY=two', self.part['commands'][-1])
        self.assertEqual(self.runner.end()['result'], 'failed')

    def test_what_a_pattern_leaves_out_is_not_run_for_a_dead_device_either(self):
        rows = self.suite({'HST_SUITE_ONLY': 't*'}, one='ok', two='dies', three='ok', four='ok')
        self.assertEqual(self.results(rows), {'': 'failed', 'three': 'passed',
                                              'two, launches block': 'failed'})

    def test_a_failed_assertion_alone_costs_no_more_processes(self):
        rows = self.suite(one='fails', two='ok', three='fails')
        self.assertEqual(self.results(rows), {'': 'failed', 'three': 'failed'})
        self.assertNotIn('the device', rows['']['why'])
        self.assertEqual(len(self.part['commands']), 2)  # the second lists the functions

    def test_a_signal_and_a_hang_are_failures_of_the_function_that_ran(self):
        rows = self.suite(one='ok', two='killed', three='ok')
        self.assertEqual(self.results(rows), {'': 'failed', 'three': 'passed',
                                              'two, launches block': 'failed'})
        self.assertIn('two: it said nothing; exit -11', rows['']['why'])
        self.part['tests'].clear()
        self.runner.deadline = runner_module.time.monotonic() + 1.5
        rows = self.suite(one='hangs', two='ok')
        self.assertIn('not finished after', rows['']['why'])
        self.assertEqual(self.results(rows), {'': 'failed', 'two': 'skipped',
                                              'one, launches block': 'skipped'})

    def test_every_command_s_whole_output_is_kept(self):
        self.suite(one='dies', two='ok')
        told = self.logs()
        self.assertEqual(len(told), len(self.part['commands']))
        self.assertRegex(told['suite-01.txt'], r'(?s)\A\$ .*test_kernels_x cuda:0\n\[=+\] Running.*'
                         r'cudaErrorIllegalAddress\n\[  ERROR.*\n---- exit 2, \d+\.\d s\n\Z')
        self.runner.end()
        self.runner.begin('suite', 60)  # run anew: nothing of before is left
        self.assertEqual(self.logs(), {})

    def test_a_card_for_one_process_gets_one_at_a_time(self):
        self.assertEqual(parts.processes(self.runner), min(4, os.cpu_count()))
        self.runner.report['machine']['nvidia-smi']['compute_mode'] = 'Exclusive_Process'
        self.assertEqual(parts.processes(self.runner), 1)


class Libraries(Programs):
    def setUp(self):
        super().setUp()
        self.calls = os.path.join(self.folder, 'calls')
        self.program('hoistway', HOISTWAY.format(calls=self.calls))
        self.packages = os.path.join(self.folder, 'site-packages')
        self.addCleanup(setattr, place, 'python_folders', '')
        for patched in (mock.patch.object(place, 'program', lambda name: self.folder + '/' + name),
                        mock.patch.object(sys, 'path', ['relative', self.packages])):
            patched.start()
            self.addCleanup(patched.stop)
        os.environ.pop('HOISTWAY_CUDA_PATH', None)

    def put(self, folder):
        path = os.path.join(self.packages, folder)
        os.makedirs(path)
        open(os.path.join(path, 'libcublasLt.so.13'), 'w', encoding='ascii').close()
        return path

    def test_python_s_packages_are_found_and_named(self):
        folder = self.put('nvidia/cu13/lib')
        self.put('other/cu13/lib')
        self.assertIsNone(parts.why_absent(self.runner))
        self.assertEqual(place.environment()['HOISTWAY_CUDA_PATH'], folder)
        self.assertEqual(machine.files_of('libcublasLt.so.13', place.environment())[0],
                         folder + '/libcublasLt.so.13')

    def test_they_are_looked_for_where_a_device_opens_without_them(self):
        with mock.patch.dict(os.environ, {'OWN': '1'}):
            self.assertIsNone(parts.why_absent(self.runner))
            self.assertEqual(place.python_folders, '')
            folder = self.put('nvidia/cu13/lib')
            self.assertIsNone(parts.why_absent(self.runner))
        self.assertEqual(place.environment()['HOISTWAY_CUDA_PATH'], folder)

    def test_without_them_the_reason_is_told(self):
        self.assertIn('libcublasLt.so.13 was not found', parts.why_absent(self.runner))
        self.assertEqual(place.python_folders, '')

    def test_folders_that_the_user_names_are_not_added_to(self):
        self.put('nvidia/cu13/lib')
        with mock.patch.dict(os.environ, {'HOISTWAY_CUDA_PATH': '/nowhere'}):
            self.assertIn('was not found', parts.why_absent(self.runner))
            self.assertEqual(place.environment()['HOISTWAY_CUDA_PATH'], '/nowhere')


class Clock:
    """Stands for time: parts take as long as the test says."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


class Order(Programs):
    def call(self, seconds, takes):
        """Names of the parts that are begun in a call, and the seconds at which each is told."""
        clock, told = Clock(), {}
        with mock.patch.object(runner_module, 'time', clock):
            for name in report.lacking({'parts': []}):
                def run(runner, name=name):
                    clock.now += min(takes(name, report.PARTS[name][1]), runner.left_s())
                with mock.patch.dict(report.PARTS, {name: (run, report.PARTS[name][1])}):
                    part = report.run_part(self.runner, name, seconds - (clock.now - 1000), seconds)
                if part['result'] != 'skipped':
                    told[name] = clock.now - 1000
        return told

    def test_what_is_worth_most_comes_first(self):
        told = self.call(540, lambda name, limit_s: limit_s)  # every part takes all that it may
        self.assertEqual(list(told)[:9], ['facts', 'doctor', 'triage', 'suite', 'losses', 'kernels',
                                          'gemm', 'attention', 'layer'])
        self.assertLessEqual(told['facts'], 10)
        self.assertLessEqual(max(told.values()), 540)
        self.assertTrue(set(report.OWN_CALL).isdisjoint(told))

    def test_what_fails_at_once_leaves_its_time_to_the_others(self):
        told = self.call(540, lambda name, limit_s: 1)
        self.assertEqual(list(told), report.lacking({'parts': []}))

    def test_a_part_that_overruns_takes_its_own_limit_and_no_more(self):
        told = self.call(540, lambda name, limit_s: 1e9 if name == 'suite' else 1)
        self.assertEqual(told['losses'] - told['suite'], 1)
        self.assertEqual(told['suite'] - told['triage'], report.PARTS['suite'][1])

    def test_peers_run_where_they_are_asked_for(self):
        self.assertEqual(report.chosen(['peer']), ['peer-1b', 'peer-3b'])
        self.assertEqual({report.PARTS[name][1] for name in report.OWN_CALL}, {240})
        self.assertTrue(all(name in report.PARTS for name in report.OWN_CALL))


class Parsing(unittest.TestCase):
    def test_lists_at_the_end_are_not_taken_for_results(self):
        told = conformance.read(textwrap.dedent('''\
            [==========] Running 2 test(s).
            [ RUN      ] one
            [       OK ] one
            [ RUN      ] two
            [  ERROR   ] --- not so
            [  FAILED  ] two
            [==========] 2 test(s) run.
            [  FAILED  ] 1 test(s), listed below:
            [  FAILED  ] one
            '''))
        self.assertEqual([(name, t.result, t.said) for name, t in told.items()],
                         [('one', 'OK', []), ('two', 'FAILED', ['not so'])])


if __name__ == '__main__':
    unittest.main()
