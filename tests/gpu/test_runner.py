#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a report holds of programs that fail, where libraries are found, and which parts have time:
with programs of our own and a clock that the test moves.

    test_runner.py UNIT...

UNIT: programs of the conformance suite that the build has, without test_kernels_.
"""
import argparse
import os
import stat
import subprocess
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

UNITS = sys.argv[1:]
del sys.argv[1:]

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
        self.report = {'kept': {}, 'concerns': [], 'machine': {'nvidia-smi': {}}}
        self.runner = Runner(options, folder.name, self.report)
        for name in ('CUDA_VISIBLE_DEVICES', 'HOISTWAY_MATMUL', 'HOISTWAY_ATTENTION'):
            os.environ.pop(name, None)
        self.addCleanup(place.chosen.clear)
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

    def test_what_a_command_wrote_is_kept_beside_its_log_until_the_part_runs_anew(self):
        done = self.runner.command(['true'])
        wrote = self.program('log.jsonl', '{}')
        self.runner.keep_beside(done, {'.jsonl': wrote, '.trace.json': wrote + '.not-there'})
        name = os.path.splitext(os.path.basename(done.log))[0]
        self.assertEqual(self.logs()[name + '.jsonl'], '{}')
        self.assertEqual(len(self.logs()), 2)
        self.runner.begin(self.runner.part['name'], 9)
        self.assertEqual(self.logs(), {})

    def test_plans_that_were_built_are_told(self):
        said = 'plans of cuDNN: more than 150 s: the rest is own\n[       OK ] one\n'
        said += 'plans of cuDNN: 9 in 155 s'
        path = self.program('test_kernels_x', f'#!/bin/sh\nprintf "{said}"')
        conformance.run_program(self.runner, 'kernels/x', path, {})
        (row,) = self.part['tests']
        self.assertEqual(row['result'], 'passed')
        self.assertEqual(row['why'], 'plans of cuDNN: more than 150 s: the rest is own; '
                                     'plans of cuDNN: 9 in 155 s')
        self.assertLess(parts.PLANS_S, report.PARTS['cudnn'][1])

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


DOCTOR = '''\
#!/bin/sh
cat <<TEXT
{"checks": [{"name": "memory", "status": "warn", "found": "little", "fix": "more"},
 {"name": "gpu", "status": "warn", "found": "using the host: GPU 0 is another's", "fix": "end it"},
 {"name": "gpu 1", "status": "warn", "found": "H100, 80 GiB, 9 GiB free", "fix": "end others"},
 {"name": "driver", "status": "ok", "found": "CUDA 13.0", "fix": null},
 {"name": "clock", "status": "warn", "found": "multiprocessors at 705 MHz under load, at most 1980",
  "fix": "nvidia-smi -rgc"}]}
TEXT
'''


class Doctor(Programs):
    def told(self, device):
        self.program('hoistway', DOCTOR)
        self.runner.device = device
        with mock.patch.object(place, 'program', lambda name: self.folder + '/' + name):
            parts.doctor(self.runner)
        return self.report['concerns']

    def test_what_it_warns_of_is_told_once_at_the_report_s_head(self):
        first = self.told('cuda:1')
        self.assertEqual(first, [
            "gpu: using the host: GPU 0 is another's. Fix: end it",
            'gpu 1: H100, 80 GiB, 9 GiB free. Fix: end others',
            'clock: multiprocessors at 705 MHz under load, at most 1980. Fix: nvidia-smi -rgc'])
        self.assertEqual(self.told('cuda:1'), first)
        self.assertEqual([row['name'] for row in self.report['doctor']],
                         ['gpu', 'gpu 1', 'driver', 'clock'])

    def test_memory_that_nvidia_smi_has_told_of_is_not_told_again(self):
        self.report['machine']['nvidia-smi']['memory.used'] = '70000 MiB'
        self.assertNotIn('H100', '\n'.join(self.told('cuda:1')))

    def test_a_card_that_it_does_not_name_is_a_failure(self):
        with self.assertRaisesRegex(parts.Failed, 'doctor names no gpu 0'):
            self.told('cuda:0')


BROKEN = '''\
#!/bin/sh
[ "$HOISTWAY_MATMUL" != own ] || exit {own}
echo 'error[E201] device "cuda:0" cannot be opened: cublasLtCreate of /x/libcublasLt.so.13: no' >&2
exit 1
'''


class GoingOn(Programs):
    """What a report does where a library is there and cannot be used."""

    def opening(self, own):
        self.program('hoistway', BROKEN.format(own=own))
        with mock.patch.object(place, 'program', lambda name: self.folder + '/' + name), \
                mock.patch.object(place, 'look_into_python', lambda: ''):
            return parts.why_absent(self.runner)

    def test_a_broken_cublaslt_leaves_own_products(self):
        self.assertIsNone(self.opening(own=0))
        self.assertEqual(place.environment()['HOISTWAY_MATMUL'], 'own')
        self.assertEqual(len(self.report['concerns']), 1)
        self.assertRegex(self.report['concerns'][0], r'^going on with HOISTWAY_MATMUL=own: '
                         r'cublasLtCreate of /x/libcublasLt\.so\.13: no \(all of it: logs/suite-01')

    def test_what_the_user_chose_stays(self):
        with mock.patch.dict(os.environ, {'HOISTWAY_MATMUL': 'cublaslt'}):
            self.assertIn('cublasLtCreate of /x', self.opening(own=0))
        self.assertEqual((place.chosen, self.report['concerns']), ({}, []))

    def test_a_card_that_does_not_open_without_it_either_is_absent(self):
        self.assertIn('cublasLtCreate of /x', self.opening(own=1))
        self.assertEqual((place.chosen, self.report['concerns']), ({}, []))

    def triage(self, **how):
        self.program('test_kernels_triage', SUITE.format(python=sys.executable, how=how))
        with mock.patch.object(place, 'program', lambda name: self.folder + '/' + name), \
                mock.patch.object(conformance, 'sanitizer', lambda: None), \
                mock.patch.object(parts, 'why_no_cudnn', lambda runner: None):
            parts.triage(self.runner)

    def test_after_a_wrong_cudnn_attention_is_our_own(self):
        self.triage(attention_small='ok')
        self.assertEqual(place.chosen, {})
        self.triage(attention_small='fails')
        self.assertEqual(place.environment()['HOISTWAY_ATTENTION'], 'own')
        self.assertRegex(self.report['concerns'][0], r'HOISTWAY_ATTENTION=own: kernels/triage, '
                         r'attention by cuDNN failed: attention_small: .*case 7')


WELL = {'name': 'H100', 'memory.total': '81559 MiB', 'memory.used': '1 MiB',
        'compute_mode': 'Default', 'mig.mode.current': 'Disabled',
        'ecc.errors.uncorrected.volatile.total': '0', 'retired_pages.pending': 'No'}


class Cards(unittest.TestCase):
    """What nvidia-smi says of a card that is not wholly ours, or not well."""

    def test_a_card_that_is_well_is_no_concern(self):
        self.assertEqual(machine.concerns(WELL), [])
        self.assertEqual(machine.concerns({}), [])
        self.assertEqual(machine.concerns(dict.fromkeys(WELL, '[N/A]')), [])

    def test_each_concern_is_a_line_with_value_place_and_fix(self):
        for field, value, words in (
                ('mig.mode.current', 'Enabled', ('slice', 'nvidia-smi -mig 0')),
                ('memory.used', '70000 MiB', ('70000 of 81559 MiB are in use',)),
                ('compute_mode', 'Exclusive_Process', ('Exclusive_Process', '-c DEFAULT')),
                ('ecc.errors.uncorrected.volatile.total', '3', ('3 uncorrected', '--gpu-reset')),
                ('retired_pages.pending', 'Yes', ('pending Yes', '--gpu-reset')),
                ('remapped_rows.pending', '1', ('remapped_rows.pending 1', '--gpu-reset'))):
            told = machine.concerns({**WELL, field: value})
            self.assertEqual(len(told), 1, (field, told))
            for word in ('H100', '. Fix: ', *words):
                self.assertIn(word, told[0])

    def test_an_nvidia_smi_that_hangs_is_asked_once_and_told(self):
        waited = subprocess.TimeoutExpired('nvidia-smi', 20)
        with mock.patch.object(machine.subprocess, 'run', side_effect=waited) as run:
            told = machine.nvidia_smi('cuda:0', {})
        self.assertEqual(run.call_count, 1)
        self.assertRegex(machine.concerns(told)[0],
                         r'^nvidia-smi was not done within 20 s: .* Fix: ')

    def test_what_it_does_not_know_leaves_what_it_does(self):
        def run(command, **_):
            if 'remapped' in command[1]:
                raise subprocess.CalledProcessError(2, command)
            return mock.Mock(stdout=', '.join('7' for _ in command[1].split(',')) + '\n')
        with mock.patch.object(machine.subprocess, 'run', run):
            told = machine.nvidia_smi('cuda:0', {})
        self.assertEqual(set(told), {*machine.SMI_FIELDS, *machine.SMI_ERRORS})

    def test_a_slice_has_no_nominal_rate(self):
        self.assertTrue(machine.is_slice({'mig.mode.current': 'Enabled'}))
        self.assertFalse(machine.is_slice(WELL) or machine.is_slice({}))

    def test_the_card_that_is_asked_for_is_the_one_that_cuda_counts(self):
        for device, visible, name in (('cuda', None, '0'), ('cuda:2', None, '2'),
                                      ('cuda:1', '3,5', '5'), ('cuda:0', 'GPU-ab,1', 'GPU-ab'),
                                      ('cuda:0', '', '0'), ('cuda:4', '1', '4')):
            settings = {} if visible is None else {'CUDA_VISIBLE_DEVICES': visible}
            self.assertEqual(machine.smi_name(device, settings), name, (device, visible))

    def test_cards_without_a_way_to_each_other_are_named(self):
        matrix = ' \tGPU0\tGPU1\tGPU2\t\n GPU0\tX\tOK\tNS\t\n GPU1\tOK\tX\tOK\t\n' \
                 ' GPU2\tNS\tOK\tX\t\n\nLegend:\n\n  X    = Self\n  NS   = Not supported\n'
        self.assertIn('not between GPU0-GPU2 NS (', machine.between_cards(matrix))
        self.assertIn('between all (', machine.between_cards(matrix.replace('NS\t', 'OK\t')))
        self.assertEqual(machine.between_cards(' \tGPU0\t\n GPU0\tX\t\n'), '')
        self.assertEqual(machine.between_cards(''), '')


class Nccl(unittest.TestCase):
    """Nothing uses it yet; what is there is told with its path."""

    def told(self, text, compiled=True):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'libnccl.so.2')
            with open(path if not compiled else folder + '/nccl.c', 'w', encoding='ascii') as file:
                file.write(text)
            if compiled:
                subprocess.run(['cc', '-shared', '-fPIC', '-o', path, folder + '/nccl.c'],
                               check=True)
            facts = machine.facts(folder, {'HOISTWAY_CUDA_PATH': folder})
            self.assertTrue(facts['libnccl.so.2'].startswith(path + ' ('), facts)
            return facts['libnccl.so.2'][len(path):]

    def test_its_version_is_told(self):
        self.assertEqual(self.told('int ncclGetVersion(int *v) { *v = 22809; return 0; }')
                         .partition(')')[0], ' (version 2.28.9')

    def test_one_that_is_not_there_is_not_found(self):
        with mock.patch.object(machine, 'files_of', lambda soname, settings: []):
            self.assertEqual(machine.facts('/', {})['libnccl.so.2'], 'not found')

    def test_one_that_loads_and_fails_is_told_with_what_fails(self):
        for text, words in (('int ncclGetVersion(int *v) { return *v = 1; }',
                             ' (its first call fails: ncclResult_t 1)'),
                            ('int other;', ' (not usable: undefined symbol: ncclGetVersion)'),
                            ('#include <stdlib.h>\nint ncclGetVersion(void) { abort(); }',
                             ' (a process that asks its version dies')):
            self.assertTrue(self.told(text).startswith(words), text)

    def test_one_that_is_no_library_is_told(self):
        self.assertRegex(self.told('not a library', compiled=False),
                         r'^ \(not usable: (file too short|invalid ELF header)\)')


class Clock:
    """Stands for time: parts take as long as the test says."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


class Whole(unittest.TestCase):
    def test_every_program_of_the_conformance_suite_runs_on_a_card(self):
        self.assertEqual({*parts.CONFORMANCE, 'triage'}, {*UNITS})
        self.assertLessEqual({unit for _, unit in parts.MEMCHECK}, {*parts.CONFORMANCE})

    def test_kernels_whose_threads_share_memory_are_checked_for_races(self):
        for unit in ('rmsnorm', 'tokens', 'blocks', 'attention', 'documents', 'ways'):
            self.assertIn(('racecheck', unit), parts.MEMCHECK)


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

    def test_a_part_of_a_smoke_run_has_the_time_of_the_call(self):
        self.runner.smoke = True
        told = self.call(540, lambda name, limit_s: 2 * limit_s if name == 'triage' else 1)
        self.assertEqual(told['triage'] - told['doctor'], 2 * report.PARTS['triage'][1])

    def test_peers_run_where_they_are_asked_for(self):
        self.assertEqual(report.chosen(['peer']), list(report.OWN_CALL))
        self.assertEqual(report.OWN_CALL[:2], ('peer-1b', 'peer-3b'))
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
