#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What starting a run takes, as `hoistway plan` and `train` tell it, at made-up rates.

    start_up.py PATH_OF_HOISTWAY [StartUp.test_name]

HOISTWAY_PLUGIN_PATH holds the device that HST_DEVICE names: cuda, on its double, or else far, which
has the flags of a GPU.
"""
import json
import os
import re
import unittest

from plan_case import NOTHING, Case, by_turns, machine

GPU = '--device=' + os.environ.get('HST_DEVICE', 'far')


class StartUp(Case):
    def test_what_starting_takes_is_told(self):
        rates = self.write('rates', machine(**{'page-lock': 1e6, 'read': 1e5, 'write': 2e5,
                                               'h2d': 1e9, 'd2h': 1e9}))
        options = ('--rates', rates, '--store', self.path('store'))
        told = self.plan(*options, '--place=weights=dram,states=nvme', '--durability=none',
                         '--update=deferred', device=GPU)
        sizes, parts = told['memory'], told['start_up']
        self.assertEqual(parts['lock_bytes'], sizes['total']['dram'])
        self.assertEqual(parts['write_bytes'], sizes['states']['nvme'])
        self.assertEqual(parts['read_bytes'], told['parameters'] * 4)  # of config.json's dtype
        for name, rate in (('lock', 1e6), ('read', 1e5), ('write', 2e5)):
            self.assertAlmostEqual(parts[name + '_s'], parts[name + '_bytes'] / rate, places=5)
        self.assertAlmostEqual(told['predicted_start_up_s'], sum(
            parts[name + '_s'] for name in ('lock', 'read', 'write')), places=5)
        text = self.run_plan(*options, device=GPU).stdout
        self.assertRegex(text, r'(?m)^starting takes \S+ s: page-locking \S+ \S+ \S+ s, '
                               r'reading \S+ \S+ \S+ s, writing \S+ \S+ \S+ s$')
        # the host locks no pages; versions are of everything, wherever it lives
        told = self.plan(*options)
        self.assertEqual((told['start_up']['lock_bytes'], told['start_up']['lock_s']), (0, 0))
        kept = told['memory']['weights']['dram'] + told['memory']['states']['dram']
        self.assertAlmostEqual(told['start_up']['write_bytes'] / kept, 1, places=2)
        self.assertNotIn('page-locking', self.run_plan(*options).stdout)

    def test_what_of_starting_is_not_known_is_named(self):
        rates = self.write('rates', machine(**{'page-lock': 1e6, 'read': 0, 'h2d': 1e9,
                                               'd2h': 1e9}))
        options = ('--rates', rates, '--place=weights=dram,states=dram')
        told = self.plan(*options, device=GPU)
        self.assertGreater(told['start_up']['lock_s'], 0)
        self.assertEqual((told['start_up']['read_s'], told['predicted_start_up_s']), (None, None))
        self.assertRegex(self.run_plan(*options, device=GPU).stdout,
                         r'(?m)^starting takes .*; reading is not counted, its rate is not known')
        rates = self.write('rates', NOTHING)
        self.assertNotIn('starting', self.run_plan('--rates', rates).stdout)

    def test_train_tells_before_it_begins_where_starting_takes_long(self):
        options = ('--place=weights=dram,states=dram', '--durability=none',
                   '--store', self.path('store'))
        told = self.plan(*options, '--probe', device=GPU)
        self.assertGreater(told['rates']['page-lock'], 0)
        for seconds, is_told in ((9, False), (11, True)):
            self.rewrite({'page-lock': told['start_up']['lock_bytes'] / seconds})
            done = self.run_train(*options, '--log', self.path('log'), device=GPU)
            self.assertEqual(done.returncode, 0, done.stderr)
            note = re.search(r'(?m)^note\[I312\] starting takes (\S+) s: page-locking .* (\S+) s$',
                             done.stderr)
            self.assertEqual(bool(note), is_told, done.stderr)
            with open(self.path('log'), encoding='utf-8') as f:
                run = json.loads(f.readline())
            self.assertAlmostEqual(run['predicted_start_up_s'], seconds, delta=0.01)
            self.assertGreater(run['start_up_s'], 0)  # what it took, and no forecast
            self.assertNotAlmostEqual(run['start_up_s'], seconds, delta=0.01)
        self.assertEqual(note.groups(), ('11', '11'))  # random weights are not read
        self.assertLess(done.stderr.index('I312'), done.stderr.index('[I201] device: '))


load_tests = by_turns

if __name__ == '__main__':
    unittest.main()
