#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What takes memory to make steps faster, as plan and train tell it: activations that layers keep
from the forward to the backward; second slots for an optimistic update.

    room.py PATH_OF_HOISTWAY [Class.test_name]
"""
import json
import unittest

import case
from plan_case import Case, in_turn, machine


class Activations(Case):
    @in_turn(0, 3)
    def test_layers_keep_their_activations_where_there_is_room(self):
        self.config({**case.CONFIG, 'num_hidden_layers': 4})
        scratch = ('--durability=none', '--store', self.path('store'))
        none = self.plan('--activations=recompute', *scratch)
        every = self.plan(*scratch)
        self.assertEqual((none['saved_units'], every['saved_units']), (0, 4))
        total = [told['memory']['total']['dram'] for told in (none, every)]
        each = (every['memory']['acts']['dram'] - none['memory']['acts']['dram']) // 4
        self.assertEqual(total[1] - total[0], 4 * each)
        self.assertGreater(each, 64 * 4 * (32 * 2 + 2 * 16 + 32 + 2 * 64))  # fp32, each token's
        weights = {}
        for saved in (0, 1, 3, 4):
            budget = f'--dram={total[0] + (saved + 1) * each - 1}'
            planned = self.plan(budget, *scratch)
            self.assertEqual((planned['saved_units'], planned['memory']['total']['nvme']),
                             (saved, 0))
            done = self.run_train(budget, *scratch, '--export', self.path(f'{saved}'),
                                  '--export-dtype=fp32')
            self.assertEqual(done.returncode, 0, done.stderr)
            note = f'note[I309] activations of {saved} of 4 units are kept'
            self.assertEqual(note in done.stderr, saved in (1, 3), done.stderr)
            self.assertEqual(f'\nactivations of {saved} of 4 layers are kept for the backward' in
                             self.run_plan(budget, *scratch).stdout, saved > 0)
            with open(self.path(f'{saved}', 'model.safetensors'), 'rb') as f:
                weights[saved] = f.read()
        self.assertEqual(set(weights.values()), {weights[0]})
        self.assertEqual(self.plan('--place=acts=nvme', '--nvme=1G')['saved_units'], 0)

    @in_turn(1, 3)
    def test_activations_are_kept_before_units_where_that_is_faster(self):
        self.config({**case.CONFIG, 'hidden_size': 256, 'intermediate_size': 1024,
                     'num_hidden_layers': 8})
        def told(products, *more):
            rates = self.write('rates', machine(compute=products, h2d=1e9, d2h=1e9,
                                                **{'copy-both': 2e9}))
            done = self.run_verb('plan', '--model', self.path('model'), '--rates', rates, '--json',
                                 '--seq-len=16', '--batch-tokens=4096', '--threads=1',
                                 '--device=far', '--update=deferred', '--gpu-update=0', *more)
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            return json.loads(done.stdout)
        room = told(1e9, '--activations=recompute', '--hbm=1G')['memory']['total']['hbm']
        every = told(1e14, f'--hbm={room}')  # the link is what is waited for
        self.assertEqual((every['saved_units'], every['resident_units']), (0, 11))
        for share in (6, 9, 10):
            budget = f'--hbm={room * share // 10}'
            bound = told(1e9, budget)
            self.assertIn('; activations before others', bound['homes'])
            self.assertGreater(bound['saved_units'], 0)
            self.assertLess(bound['resident_units'], 11)
            again = told(1e9, budget, '--activations=recompute')['predicted_step_s']
            less = (4 * 8 - bound['saved_units']) / (4 * 8)  # of four forwards of each layer
            self.assertAlmostEqual(bound['predicted_step_s'] / again, less, delta=0.03)
        near = told(1e9, '--place=weights=hbm', f'--hbm={room}')
        self.assertEqual((near['saved_units'], near['resident_units']), (0, 11))


class SecondSlots(Case):
    @in_turn(2, 3)
    def test_homes_make_room_for_an_optimistic_update_where_that_is_worth_it(self):
        """A step whose norm clips does not win by them, and may not lose more than others win."""
        self.config({**case.CONFIG, 'hidden_size': 256, 'intermediate_size': 1024,
                     'num_hidden_layers': 8})
        far = {'device': '--device=far'}
        options = ('--place=weights=dram', '--hbm=64M', '--durability=none', '--gpu-update=0',
                   '--activations=recompute', '--nvme=1G', '--store', self.path('store'))
        memory = self.plan('--probe', *options, '--update=deferred', **far)['memory']
        once, once_states = (memory[name]['dram'] for name in ('total', 'states'))
        slots = '; second slots for an optimistic update'

        def by_update(share, drives):
            # an update of 8 million parameters, as long as all products
            self.rewrite({'update-fp32': 4e6, 'update-bf16': 4e6, 'compute': 2e9, 'h2d': 1e9,
                          'd2h': 1e9, 'copy-both': 2e9, 'memory-shared': 1e12, 'read': drives,
                          'write': drives, 'mixed': drives})
            budget = f'--dram={once * share // 10}'
            return [self.plan(*options, budget, f'--update={update}', **far)
                    for update in ('deferred', 'optimistic', 'auto')]

        deferred, optimistic, auto = by_update(10, drives=5e7)
        self.assertLess(optimistic['predicted_step_s'], 0.95 * deferred['predicted_step_s'])
        same = ('homes', 'update', 'memory', 'predicted_step_s')
        self.assertEqual([auto[key] for key in same], [deferred[key] for key in same])

        # with versions now and then what is on drives has no second slot
        budget, now_and_then = f'--dram={once}', ('--durability=100', *options[:2], *options[3:])
        self.rewrite({'read': 1e8, 'write': 1e8, 'mixed': 1e8})
        self.assertIn('--durability=none', options[2:3])
        deferred, auto = (self.plan(*now_and_then, budget, f'--update={update}', **far)
                          for update in ('deferred', 'auto'))
        self.assertEqual([auto[key] for key in same], [deferred[key] for key in same])
        self.assertEqual(auto['memory']['states']['dram'], once_states)

        deferred, optimistic, auto = by_update(10, drives=1e8)
        self.assertLess(auto['predicted_step_s'], 0.7 * deferred['predicted_step_s'])
        self.assertEqual(auto['homes'], 'what leaves memory: states' + slots)
        text = self.run_plan(*options, f'--dram={once}', device='--device=far').stdout
        self.assertRegex(text, rf'(?m){auto["homes"]}: 1\.\d\d times as fast as the usual homes$')
        same = ('update', 'memory', 'predicted_step_s', 'late_share')
        self.assertEqual([auto[key] for key in same], [optimistic[key] for key in same])
        weights = {}
        for name, args, where in (('chosen', (*options, f'--dram={once}'), far),
                                  ('host', ('--precision=bf16', *options[-2:]), {})):
            done = self.run_train(*args, '--export', self.path(name), '--export-dtype=fp32',
                                  steps=8, **where)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(f'note[I302] {auto["homes"]}: ' in done.stderr, name == 'chosen')
            with open(self.path(name, 'model.safetensors'), 'rb') as f:
                weights[name] = f.read()
        self.assertEqual(weights['chosen'], weights['host'])


if __name__ == '__main__':
    unittest.main()
