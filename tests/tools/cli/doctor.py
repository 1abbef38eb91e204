#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""doctor as a user meets it: what it says of a store, what it measures, and what it leaves.

    doctor.py PATH_OF_HOISTWAY [FOLDER_OF_THE_DOUBLE]

The double of the CUDA device has what is told of a GPU; its rates are a processor's.
"""
import json
import os
import resource
import sys
import unittest

from program import Folder, run

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from short import by_turns, in_turn, some, whole_alone  # noqa: E402

DOUBLE = os.path.abspath(sys.argv.pop()) if os.path.isdir(sys.argv[-1]) else ''


class Doctor(Folder):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path('drive'))
        self.store = self.path('drive')

    @in_turn(0, 3)
    def test_a_good_store_is_ready(self):
        done = run('doctor', '--store', self.store)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout.split('\n')[-2],
                         rf'^ready: (host engine|cuda:\d .*), NVMe tier on {self.store} \(')
        self.assertEqual(os.listdir(self.store), [])

    @in_turn(1, 3)
    def test_a_store_that_is_missing_would_be_created(self):
        store = self.path('store')
        done = run('doctor', '--store', store)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r'(?m)^\w+ +store +.*, would be created$')
        self.assertRegex(done.stdout, r'(?m)^\w+ +disk +.* free$')
        self.assertFalse(os.path.exists(store))

    def test_json_holds_the_same_checks_the_room_and_the_rates(self):
        told = json.loads(run('doctor', '--store', self.store, '--json').stdout)
        self.assertTrue(told['ready'])
        names = {check['name'] for check in told['checks']}
        self.assertLessEqual({'cores', 'memory', 'store', 'gpu', 'dram', 'update', 'prefetch',
                              'products', 'drive'}, names)
        self.assertLessEqual({c['status'] for c in told['checks']}, {'ok', 'warn'})
        self.assertEqual(os.listdir(self.store), [])
        self.check_room(told['room'])
        self.check_rates(told['rates'])

    def check_room(self, rows):
        """What is free, in bytes."""
        room = {(row['tier'], row['of']): row for row in rows}
        self.assertLessEqual({('dram', 'host'), ('nvme', self.store)}, set(room))
        for row in rows:
            self.assertLessEqual(0 < row['free_bytes'], row['total_bytes'])
        disk = os.statvfs(self.store)
        self.assertEqual(room['nvme', self.store]['total_bytes'], disk.f_blocks * disk.f_frsize)
        with open('/proc/meminfo', encoding='ascii') as file:
            physical = 1024 * int(file.readline().split()[1])
        self.assertLessEqual(room['dram', 'host']['total_bytes'], physical)

    def check_rates(self, rows):
        rates = {(rate['of'], rate['name']): rate for rate in rows}
        for name in ('dram', 'dram-copy', 'update-fp32', 'update-bf16', 'norm-fp32', 'norm-bf16',
                     'compute'):
            self.assertGreater(rates['host', name]['value'], 0)
        for name in ('read', 'write', 'mixed'):
            rate = rates[self.store, name]
            self.assertLessEqual(0 < rate['least'] <= rate['value'], rate['most'])
            self.assertEqual(rate['unit'], 'B/s')

    @unittest.skipUnless(DOUBLE, 'no double of a CUDA device was built')
    def test_of_a_gpu_it_tells_how_fast_memory_is_locked(self):
        done = run('doctor', '--json', env={**os.environ, 'HOISTWAY_PLUGIN_PATH': DOUBLE,
                                            'HOISTWAY_CUDA_PATH': DOUBLE})
        self.assertEqual(done.returncode, 0, done.stdout)
        told = json.loads(done.stdout)
        check = next(c for c in told['checks'] if c['name'] == 'page-locking')
        rate = r'(\d+\.\d GB/s, let go at \d+\.\d|the system gives no huge pages)'
        self.assertEqual(check['status'], 'ok')
        self.assertRegex(check['found'], rf'^4 KiB pages: {rate}; huge pages: {rate}; '
                                         rf"the device's own: {rate}$")
        own = next(r for r in told['rates'] if (r['of'], r['name']) == ('cuda:0', 'page-lock'))
        self.assertLessEqual(0 < own['least'] <= own['value'], own['most'])

    def smi(self, clocks, reasons):
        """An environment with the double, and an nvidia-smi that says so."""
        tools = self.path('tools')
        os.makedirs(tools, exist_ok=True)
        with open(os.path.join(tools, 'nvidia-smi'), 'w', encoding='ascii') as file:
            file.write('#!/bin/sh\ncase $1 in\n'
                       f'*clocks.sm*) echo "{clocks}" ;;\n*reasons*) echo {reasons} ;;\nesac\n')
        os.chmod(file.name, 0o700)
        return {**os.environ, 'HOISTWAY_PLUGIN_PATH': DOUBLE, 'HOISTWAY_CUDA_PATH': DOUBLE,
                'PATH': f"{tools}:{os.environ['PATH']}"}

    @unittest.skipUnless(DOUBLE, 'no double of a CUDA device was built')
    def test_a_capped_clock_is_told_once_with_both_numbers(self):
        at = r'(?m)^%s +clock +multiprocessors at %d MHz under load, at most 1980; held by the '
        for clocks, reasons, times, row in some((
                ('705, 1980', '0x0000000000000024', 1, at % ('warn', 705) +
                 r'limit of power, heat\n +fix: nvidia-smi -rgc'),
                ('1755, 1980', '0x0000000000000004', 1, at % ('ok', 1755) + r'limit of power$'),
                ('[N/A], [N/A]', '[N/A]', 0, r'\A')), 3):  # and no card was loaded for it
            told = run('doctor', env=self.smi(clocks, reasons)).stdout
            self.assertRegex(told, row)
            self.assertEqual(told.count(' clock '), times, told)

    @unittest.skipUnless(DOUBLE, 'no double of a CUDA device was built')
    @whole_alone
    def test_a_card_that_others_have_half_of_is_told(self):
        env = {**os.environ, 'HOISTWAY_PLUGIN_PATH': DOUBLE, 'HOISTWAY_CUDA_PATH': DOUBLE}
        told = run('doctor', env={**env, 'HST_FAKE_CUDA': 'memory=1G,overhead=600M'}).stdout
        self.assertRegex(told, r'(?m)^warn +gpu 0 +Fake GPU 0, 1\.0 GiB, 424\.0 MiB free, .*\n'
                               r' +fix: end what else uses the GPU \(nvidia-smi\)$')

    @unittest.skipUnless(DOUBLE, 'no double of a CUDA device was built')
    def test_what_keeps_a_card_away_is_told_with_its_fix(self):
        env = {**os.environ, 'HOISTWAY_PLUGIN_PATH': DOUBLE, 'HOISTWAY_CUDA_PATH': DOUBLE}
        for variables, status, found, fix in some((
                ({'CUDA_VISIBLE_DEVICES': 'nonsense'}, 'warn', 'is "nonsense", which names none',
                 'unset CUDA_VISIBLE_DEVICES'),
                ({'CUDA_VISIBLE_DEVICES': '-1'}, 'ok', 'is "-1", which hides all', 'nvidia-smi -L'),
                ({'HST_FAKE_CUDA': 'compute-mode=exclusive'}, 'warn', 'Exclusive_Process',
                 'nvidia-smi -c DEFAULT')), 3):
            told = json.loads(run('doctor', '--json', env={**env, **variables}).stdout)
            row = next(check for check in told['checks'] if check['name'] == 'gpu')
            self.assertEqual(row['status'], status, row)
            self.assertIn(found, row['found'])
            self.assertIn(fix, row['fix'])

    @in_turn(0, 3)
    def test_the_reason_against_a_store_is_the_real_one(self):
        done = run('doctor', '--store', '/proc/store')
        reason = ("'/proc' is on a file system that takes no files" if os.geteuid() == 0
                  else 'Permission denied')  # which is what an ordinary user is told first
        self.assertIn(reason, done.stdout)

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        done = run('doctor', '--store', self.store, preexec_fn=limit)
        self.assertEqual(done.returncode, 1)
        self.assertIn('RLIMIT_FSIZE', done.stdout)

    @in_turn(1, 3)
    def test_a_bad_store_is_a_failure_with_a_fix(self):
        for store in (self.data, self.path('no', 'parent')):
            done = run('doctor', '--store', store)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stdout, r'(?m)^fail +store +E105 ')
            self.assertIn('not ready', done.stdout.split('\n')[-2])

    @in_turn(2, 3)
    def test_what_train_would_not_take_for_its_store_is_told(self):
        os.symlink('drive', self.path('link'))
        done = run('doctor', '--store', self.path('link'))
        self.assertRegex(done.stdout, r'(?m)^fail +store +E610 .*is a symbolic link')
        self.assertEqual(done.returncode, 1)

    @in_turn(2, 3)
    def test_a_drive_is_tried_where_other_things_are(self):
        done = run('doctor', '--store', self.path('model'))
        self.assertRegex(done.stdout, r'(?m)^warn +contents .*E616 .*holds no file of a store')
        self.assertRegex(done.stdout, r'(?m)^\w+ +drive .*/s')
        self.assertEqual(done.returncode, 0, done.stdout)


load_tests = by_turns

if __name__ == '__main__':
    unittest.main()
