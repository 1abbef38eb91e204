#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hoistway plan` of one rank of several, which starts none.

    plan_ranks.py PATH_OF_HOISTWAY [Class.test_name]
"""
import json
import os
import re
import resource
import unittest

import case
from plan_case import MIB, Case, by_turns, machine, sealed

SIZES = ('--batch-tokens=256', '--seq-len=16')  # each way of 16 has a sequence
NET = {'net-gather': 1e10, 'net-exchange': 5e9, 'net-between': 1e9, 'net-operations': 20000,
       'net-operations-between': 10000}
GIVEN = ('--net-node=1e9', '--net-latency=50', '--net-between=1e9')


class Ranks(Case):
    def setUp(self):
        super().setUp()
        self.config({**case.CONFIG, 'hidden_size': 256, 'intermediate_size': 768})  # many blocks

    def run_ranks(self, *args):
        return self.run_verb('plan', '--model', self.path('model'), *SIZES, '--dram=4G', *args)

    def ranks(self, *args, **figures):
        rates = self.write('rates', machine(**{**NET, **figures}))
        done = self.run_ranks('--json', '--rates', rates, '--device=host', *args)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return json.loads(done.stdout)

    def test_a_rank_has_its_shards_and_a_node_those_of_its_ranks(self):
        alone, told = self.ranks(), self.ranks('--world=8', '--nodes=2')
        self.assertEqual((alone['ranks'], alone['nodes']), (1, 1))
        self.assertEqual((told['ranks'], told['nodes']), (8, 2))
        self.assertLess(told['memory']['states']['dram'], alone['memory']['states']['dram'] / 3)
        self.assertEqual(told['memory']['node_total']['dram'],
                         4 * told['memory']['total']['dram'])
        self.assertEqual(told['memory']['budget']['dram'], 1024 * MIB)
        self.assertNotIn('node_total', alone['memory'])
        for same in (('--gpus=8',), ('--gpus=8', '--world=8')):
            again = self.ranks(*same, '--nodes=2')
            self.assertEqual({**again, 'rate_ages_s': told['rate_ages_s']}, told)

    def test_the_smallest_budgets_are_a_nodes(self):
        rates = self.write('rates', machine(**NET))
        for tier, more in (('dram', ()), ('nvme', ('--dram=4G', '--place=states=nvme'))):
            args = ('plan', '--model', self.path('model'), *SIZES, '--device=host', '--world=4',
                    '--nodes=2', '--rates', rates, *more)
            done = self.run_verb(*args, '--json', f'--{tier}=64K')
            self.assertEqual(done.returncode, 3, done.stderr)
            told = json.loads(done.stdout)
            least = told['smallest'][tier]
            self.assertEqual(least, told['memory']['node_total'][tier])
            for budget, status in ((least, 0), (least - 131072, 3)):
                done = self.run_verb(*args, f'--{tier}={budget}')
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)

    def test_rates_of_other_ranks_are_said(self):
        file = machine(**NET).rpartition('end ')[0]
        measured = {ranks: self.write(f'net{ranks}', sealed(re.sub(
            r'(?m)^(net-\S+ .*) told$', rf'\1 {ranks}, by messages', file)))
            for ranks in ('2 ranks on 1 node', '4 ranks on 1 node', '8 ranks on 2 nodes')}
        rates = self.write('rates', machine(**NET))
        for ranks, path in measured.items():
            for args, told in ((('--world=4',), ranks[0] == '2'), (
                    ('--world=8', '--nodes=2'), ranks[0] == '2'), (('--world=8',), True),
                    (('--world=2',), ranks[0] != '2')):
                done = self.run_ranks('--rates', rates, '--device=host', '--net-rates', path, *args)
                self.assertEqual(done.returncode, 0, done.stderr)
                said = f"warning[W402] --net-rates '{path}' was measured by {ranks}, and is taken "
                self.assertEqual(done.stderr.startswith(said), told, (ranks, args, done.stderr))
                self.assertEqual(done.stderr == '', not told)

    def test_with_stage_2_each_rank_has_all_weights(self):
        shard, whole = (self.ranks('--world=4', f'--zero-stage={stage}')['memory']
                        for stage in (3, 2))
        self.assertGreater(whole['weights']['dram'], 3 * shard['weights']['dram'])
        self.assertEqual(whole['states'], shard['states'])

    def test_the_batch_of_a_configuration_is_that_of_the_ranks_that_are_planned(self):
        config = self.write('ds.json', '{"train_micro_batch_size_per_gpu": 2, '
                                       '"gradient_accumulation_steps": 4}')
        for world in (1, 4):
            done = self.run_verb('plan', '--model', self.path('model'), '--seq-len=16',
                                 '--dram=4G', '--rates', self.write('rates', machine(**NET)),
                                 '--config', config, f'--world={world}')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f' {world * 128} tokens', done.stdout)

    def test_a_slower_network_makes_slower_steps(self):
        for name in NET:
            ranks = ('--world=8', '--nodes=2') if 'between' in name else ('--world=4',)
            with self.subTest(name=name):
                fast, slow = self.ranks(*ranks), self.ranks(*ranks, **{name: NET[name] / 1e4})
                self.assertGreater(slow['predicted_step_s'], 1.5 * fast['predicted_step_s'])
                self.assertEqual(slow['bound_by'], 'net')
                self.assertIn('network', [part['what'] for part in slow['twice_as_fast']])
                self.assertGreater(slow['bound_s'], 1.5 * fast['bound_s'])

    def test_ranks_of_a_node_share_its_cores(self):
        """As much computation on as many cores takes as long: here each rank has a quarter."""
        fast = {'net-gather': 1e15, 'net-exchange': 1e15, 'net-operations': 1e15}
        alone, told = self.ranks('--ways=4', **fast), self.ranks('--world=4', **fast)
        ratio = told['predicted_step_s'] / alone['predicted_step_s']
        self.assertTrue(0.9 < ratio < 1.3, ratio)

    def test_rates_that_are_given_count(self):
        none = {name: 0 for name in NET}
        told = self.ranks('--world=8', '--nodes=2', **none)
        self.assertIsNone(told['predicted_step_s'])
        self.assertRegex(told['why'], "the network's rates are not known: net-operations-between "
                                      'is in no file. Fix: --net-rates FILE')
        told = self.ranks('--world=8', '--nodes=2', *GIVEN, **none)
        self.assertEqual([told['rates'][name] for name in NET],
                         [1e9, 1e9, 1e9, 20000, 20000])
        self.assertGreater(told['predicted_step_s'], 0)
        other = self.write('net', machine(**NET))
        told = self.ranks('--world=8', '--nodes=2', '--net-rates', other, '--net-node=2e9', **none)
        self.assertEqual([told['rates'][name] for name in NET],
                         [2e9, 2e9, 1e9, 20000, 10000])
        ages = [told['rate_ages_s'][name] for name in NET]
        self.assertEqual(ages[:2], [None, None])  # of those that were given
        self.assertTrue(all(age > 1e9 for age in ages[2:]), ages)  # dated 1970

    def test_the_table_is_of_a_rank_and_of_a_node(self):
        rates = self.write('rates', machine(**NET))
        done = self.run_ranks('--rates', rates, '--world=8', '--nodes=2')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertRegex(done.stdout, r'(?m)^node of 4 ')
        self.assertRegex(done.stdout, r'(?m)^its budget  +4\.0 GiB$')
        self.assertRegex(done.stdout, r'(?m)^rank 0 of 8 on 2 nodes, 8 ways$')

    def test_a_trillion_parameters_on_512_ranks_take_seconds(self):
        self.config({**case.CONFIG, 'hidden_size': 25600, 'intermediate_size': 67584,
                     'num_hidden_layers': 128, 'num_attention_heads': 200, 'head_dim': 128,
                     'num_key_value_heads': 200, 'vocab_size': 51200,
                     'max_position_embeddings': 4096})
        rates = self.write('rates', machine(**NET))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = self.run_verb('plan', '--model', self.path('model'), '--rates', rates, '--json',
                             '--world=512', '--nodes=64', '--dram=2T', '--nvme=20T',
                             '--precision=bf16', '--seq-len=2048', '--batch-tokens=2097152')
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 5)
        self.assertTrue(re.search(r'"parameters":1\d{12},', done.stdout), done.stdout)
        self.assertIn('"ranks":512', done.stdout)

    def test_what_is_refused(self):
        for args, part in ((('--world=8', '--nodes=3'), 'Fix: --world 9'),
                           (('--nodes=2',), 'cannot be shared out among --nodes 2'),
                           (('--gpus=8', '--world=4'), '--gpus 8 and --world 4 are the same'),
                           (('--net-latency=3',), 'and one is planned. Fix: --world N'),
                           (('--world=4', '--ways=2'),
                            '--ways 2 cannot be shared by 4 ranks: each has one way, or a power of '
                            'two of them. Fix: 1 or 2 ranks, or --ways 4 or 8.'),
                           (('--world=4', '--ways=6'), 'Fix: 1, 3 or 6 ranks, or --ways 4 or 8.'),
                           (('--world=4', '--net-rates', self.path('model')), '--net-rates '),
                           (('--world=3',), 'Fix: --batch-tokens ')):
            with self.subTest(args=args):
                done = self.run_ranks(*args)
                self.assert_refused(done, 402, 2, part)

    def test_ranks_with_devices_have_homes_on_the_host(self):
        done = self.run_ranks('--json', '--world=4', '--device=far')
        self.assertEqual(done.returncode, 0, done.stderr)
        memory = json.loads(done.stdout)['memory']
        for what in ('weights', 'grads', 'states'):
            self.assertEqual(memory[what]['hbm'], 0)
            self.assertGreater(memory[what]['dram'], 0)
        done = self.run_ranks('--world=4', '--device=far', '--place=weights=hbm')
        self.assert_refused(done, 402, 2, 'not of several ranks that meet in dram (--comm mpi). '
                                          'Fix: name hbm for none of them')


load_tests = by_turns

if __name__ == '__main__':
    unittest.main()
