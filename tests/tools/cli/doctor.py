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

DOUBLE = os.path.abspath(sys.argv.pop()) if os.path.isdir(sys.argv[-1]) else ''


class Doctor(Folder):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path('drive'))
        self.store = self.path('drive')

    def test_a_good_store_is_ready(self):
        done = run('doctor', '--store', self.store)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout.split('\n')[-2],
                         rf'^ready: (host engine|cuda:\d .*), NVMe tier on {self.store} \(')
        self.assertEqual(os.listdir(self.store), [])

    def test_a_store_that_is_missing_would_be_created(self):
        store = self.path('store')
        done = run('doctor', '--store', store)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r'(?m)^\w+ +store +.*, would be created$')
        self.assertRegex(done.stdout, r'(?m)^\w+ +disk +.* free$')
        self.assertFalse(os.path.exists(store))

    def test_json_holds_the_same_checks(self):
        told = json.loads(run('doctor', '--store', self.store, '--json').stdout)
        self.assertTrue(told['ready'])
        names = {check['name'] for check in told['checks']}
        self.assertLessEqual({'cores', 'memory', 'store', 'gpu'}, names)
        self.assertLessEqual({c['status'] for c in told['checks']}, {'ok', 'warn'})

    def test_json_holds_what_is_free_in_bytes(self):
        told = json.loads(run('doctor', '--store', self.store, '--json').stdout)
        room = {(row['tier'], row['of']): row for row in told['room']}
        self.assertLessEqual({('dram', 'host'), ('nvme', self.store)}, set(room))
        for row in told['room']:
            self.assertLessEqual(0 < row['free_bytes'], row['total_bytes'])
        disk = os.statvfs(self.store)
        self.assertEqual(room['nvme', self.store]['total_bytes'], disk.f_blocks * disk.f_frsize)
        with open('/proc/meminfo', encoding='ascii') as file:
            physical = 1024 * int(file.readline().split()[1])
        self.assertLessEqual(room['dram', 'host']['total_bytes'], physical)

    def test_rates_are_measured_and_leave_nothing(self):
        told = json.loads(run('doctor', '--store', self.store, '--json').stdout)
        rates = {(rate['of'], rate['name']): rate for rate in told['rates']}
        for name in ('dram', 'dram-copy', 'update-fp32', 'update-bf16', 'norm-fp32', 'norm-bf16',
                     'compute'):
            self.assertGreater(rates['host', name]['value'], 0)
        for name in ('read', 'write', 'mixed'):
            rate = rates[self.store, name]
            self.assertLessEqual(0 < rate['least'] <= rate['value'], rate['most'])
            self.assertEqual(rate['unit'], 'B/s')
        names = {check['name'] for check in told['checks']}
        self.assertLessEqual({'dram', 'update', 'products', 'drive'}, names)
        self.assertEqual(os.listdir(self.store), [])

    @unittest.skipUnless(DOUBLE, 'no double of a CUDA device was built')
    def test_of_a_gpu_it_tells_how_fast_memory_is_locked(self):
        done = run('doctor', env={**os.environ, 'HOISTWAY_PLUGIN_PATH': DOUBLE,
                                  'HOISTWAY_CUDA_PATH': DOUBLE})
        self.assertEqual(done.returncode, 0, done.stdout)
        rate = r'(\d+\.\d GB/s, let go at \d+\.\d|the system gives no huge pages)'
        self.assertRegex(done.stdout, rf'(?m)^ok +page-locking +4 KiB pages: {rate}; huge pages: '
                                      rf"{rate}; the device's own: {rate}$")

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

    def test_a_bad_store_is_a_failure_with_a_fix(self):
        for store in (self.data, self.path('no', 'parent')):
            done = run('doctor', '--store', store)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stdout, r'(?m)^fail +store +E105 ')
            self.assertIn('not ready', done.stdout.split('\n')[-2])

    def test_what_train_would_not_take_for_its_store_is_told(self):
        os.symlink('drive', self.path('link'))
        done = run('doctor', '--store', self.path('link'))
        self.assertRegex(done.stdout, r'(?m)^fail +store +E610 .*is a symbolic link')
        self.assertEqual(done.returncode, 1)

    def test_a_drive_is_tried_where_other_things_are(self):
        done = run('doctor', '--store', self.path('model'))
        self.assertRegex(done.stdout, r'(?m)^warn +contents .*E616 .*holds no file of a store')
        self.assertRegex(done.stdout, r'(?m)^\w+ +drive .*/s')
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == '__main__':
    unittest.main()
