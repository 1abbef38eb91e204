#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which layers keep their activations from the forward to the backward, as plan and train tell it.

    activations.py PATH_OF_HOISTWAY [Class.test_name]
"""
import json
import unittest

import case
from plan_case import Case, machine


class Activations(Case):
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
            done = self.run_train(budget, *scratch, '--export', self.path(f'{saved}'))
            self.assertEqual(done.returncode, 0, done.stderr)
            note = f'note[I309] activations of {saved} of 4 units are kept'
            self.assertEqual(note in done.stderr, saved in (1, 3), done.stderr)
            self.assertEqual(f'\nactivations of {saved} of 4 layers are kept for the backward' in
                             self.run_plan(budget, *scratch).stdout, saved > 0)
            with open(self.path(f'{saved}', 'model.safetensors'), 'rb') as f:
                weights[saved] = f.read()
        self.assertEqual(set(weights.values()), {weights[0]})
        self.assertEqual(self.plan('--place=acts=nvme', '--nvme=1G')['saved_units'], 0)

    def test_activations_are_kept_before_units_where_that_is_faster(self):
        self.config({**case.CONFIG, 'hidden_size': 256, 'intermediate_size': 1024,
                     'num_hidden_layers': 8})
        def told(products, *more):
            rates = self.write('rates', machine(products=products, h2d=1e9, d2h=1e9,
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


if __name__ == '__main__':
    unittest.main()
