#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `hoistway plan` says to whoever has to decide: what helps, how long, how drives wear.

    plan_answer.py PATH_OF_HOISTWAY [Class.test_name]
"""
import json
import unittest

import case
from plan_case import by_turns as load_tests  # noqa: F401: unittest looks for it
from plan_case import HOST, THREADS, Given, lasts, machine

SLOW = {'read': 1e6, 'write': 1e6, 'mixed': 1e6}
DRIVES = ('--dram=1G', '--nvme=1G', '--place=states=nvme,weights=nvme', '--durability=none')


class Answer(Given):
    def setUp(self):
        super().setUp()
        self.config({**case.CONFIG, 'hidden_size': 256, 'intermediate_size': 768,
                     'num_hidden_layers': 4})

    def on(self, figures, *args, **more):
        return self.plan('--rates', self.write('rates', machine(**figures)), *args, **more)

    def helps(self, told):
        return {help['what']: help for help in told['would_help']}

    def test_another_drive_is_worth_what_a_plan_with_it_takes(self):
        told = self.on(SLOW, *DRIVES)
        help = self.helps(told)['drive']
        twice = self.on({name: 2 * rate for name, rate in SLOW.items()}, *DRIVES)
        self.assertEqual(help['amount'], 2)
        self.assertAlmostEqual(help['predicted_step_s'] / twice['predicted_step_s'], 1, places=2)
        self.assertAlmostEqual(help['times_tok_s'] * help['predicted_step_s'],
                               told['predicted_step_s'], places=6)
        three = self.helps(self.on(SLOW, *DRIVES, '--store=a,b,c'))['drive']
        self.assertEqual(three['amount'], 4)
        self.assertAlmostEqual(three['times_tok_s'], 4 / 3, places=2)
        quick = {name: 1e12 for name in SLOW}
        self.assertNotIn('drive', self.helps(self.on(quick, *DRIVES)))

    def test_a_gain_as_small_as_what_plans_are_off_is_not_told(self):
        for rate, least, most, is_told in ((2.989e10, 1.01, 1.02, False),
                                           (2.844e10, 1.03, 1.06, True)):
            told = self.on({name: rate for name in SLOW}, *DRIVES)
            twice = {help['what']: help['predicted_step_s'] for help in told['twice_as_fast']}
            gain = told['predicted_step_s'] / twice['drives']
            self.assertTrue(least < gain < most, gain)
            self.assertEqual('drive' in self.helps(told), is_told)

    def test_twice_the_memory_is_worth_what_a_plan_with_it_takes(self):
        least = self.on(SLOW, '--nvme=1G', '--durability=none')['memory']['total']['dram']
        tight = ('--nvme=1G', '--durability=none', f'--dram={3 * least // 5}')
        told = self.on(SLOW, *tight)
        help = self.helps(told)['dram']
        self.assertEqual(help['amount'], told['memory']['budget']['dram'] * 2)
        roomy = self.on(SLOW, *tight[:2], f'--dram={help["amount"]}')
        self.assertGreater(help['times_tok_s'], 2)
        self.assertAlmostEqual(help['predicted_step_s'] / roomy['predicted_step_s'], 1, places=1)
        self.assertNotIn('dram', self.helps(self.on(SLOW, '--dram=1G')))

    def test_states_in_less_are_told_where_they_would_be_less(self):
        """Each is worth what a plan with it takes."""
        told = self.on(SLOW, *DRIVES, '--precision=bf16')
        helps = self.helps(told)
        for what, state, least in (('state', 'bf16', 1.2), ('state_8bit', '8bit', 1.4)):
            there = self.on(SLOW, *DRIVES, '--precision=bf16', f'--state={state}')
            self.assertGreater(helps[what]['times_tok_s'], least)
            self.assertAlmostEqual(
                helps[what]['predicted_step_s'] / there['predicted_step_s'], 1, places=1)
        for other, left in ((('--precision=fp32',), set()),
                            (('--precision=bf16', '--state=bf16'), {'state_8bit'}),
                            (('--precision=bf16', '--state=8bit'), set()),
                            (('--precision=bf16', '--optimizer=lion'), set())):
            helps = self.helps(self.on(SLOW, *DRIVES, *other))
            self.assertEqual({what for what in helps if what.startswith('state')}, left, other)

    def of_batch(self, tokens):
        done = self.run_verb('plan', '--model', self.path('model'), '--seq-len=16', THREADS, HOST,
                             '--rates', self.path('rates'), '--dram=1G', '--json',
                             f'--batch-tokens={tokens}')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return json.loads(done.stdout)

    def test_so_many_tokens_keep_the_computation_busy(self):
        slow = {'update-fp32': 2e6, 'compute': 1e9}
        told = self.on(slow, '--dram=1G')
        help = self.helps(told)['tokens']
        self.assertLess(told['compute_fraction'], 0.9)
        self.assertGreaterEqual(help['compute_fraction'], 0.9)
        tokens = help['amount']
        at, less = (self.of_batch(tokens // part) for part in (1, 2))
        self.assertGreaterEqual(at['compute_fraction'], 0.9)
        self.assertLess(less['compute_fraction'], 0.9)
        self.assertAlmostEqual(help['times_tok_s'] * told['tok_s'] / at['tok_s'], 1, places=1)
        self.assertNotIn('tokens', self.helps(at))
        self.assertEqual([one['full_batch_tokens'] for one in (told, at)], [tokens, tokens])

    def test_where_no_step_keeps_it_busy_that_is_said(self):
        line = 'no step that fits is 90 % computation: up to 65536 tokens were tried\n'
        quick = {'compute': 1e15, 'update-fp32': 1e5}
        told = self.on(quick, '--dram=64G')
        text = self.run_plan('--rates', self.path('rates'), '--dram=64G').stdout
        self.assertIsNone(told['full_batch_tokens'])
        self.assertNotIn('tokens', self.helps(told))
        self.assertIn(line, text)
        self.on({'compute': 1e9}, '--dram=1G')
        text = self.run_plan('--rates', self.path('rates'), '--dram=1G').stdout
        self.assertNotIn('no step that fits', text)

    def test_days_are_those_of_the_tokens(self):
        told = self.on({}, '--dram=1G', '--tokens=1e12')
        self.assertEqual(told['tokens'], 10**12)
        self.assertAlmostEqual(told['days'] * told['tok_s'] * 86400 / 1e12, 1, places=6)
        text = self.run_plan('--rates', self.path('rates'), '--dram=1G', '--tokens=1e12').stdout
        self.assertIn(f'\n1.0T tokens take {told["days"]:.3g} days\n', text)
        self.assertEqual([self.on({}, '--dram=1G')[key] for key in ('tokens', 'days')],
                         [None, None])
        data = ('--data', self.write('data.txt', 'x' * 4096), '--dram=1G')
        for args, tokens in (((), 4080), (('--steps=3',), 192)):  # the last token has no target
            done = self.run_plan(*data, *args, '--rates', self.path('rates'))
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            count = '4.1k' if tokens > 1e3 else tokens
            self.assertRegex(done.stdout, rf'(?m)^{count} tokens take ')

    def test_drives_wear_by_what_a_step_writes(self):
        told = self.on(SLOW, *DRIVES, '--tbw=600')
        memory = told['memory']
        states = memory['states']['nvme'] + memory['weights']['nvme']
        self.assertTrue(1 <= told['written_step_bytes'] / states < 1.3, told['written_step_bytes'])
        a_day = told['written_step_bytes'] * 86400 / told['predicted_step_s']
        self.assertAlmostEqual(told['written_day_bytes'] / a_day, 1, places=6)
        self.assertAlmostEqual(told['drive_years'] * 365.25 * a_day / 600e12, 1, places=6)
        two = self.on(SLOW, *DRIVES, '--tbw=600', '--store=a,b')
        self.assertAlmostEqual(two['drive_years'] / told['drive_years'], 2, places=1)
        self.assertIsNone(self.on(SLOW, *DRIVES)['drive_years'])
        text = self.run_plan('--rates', self.path('rates'), *DRIVES, '--tbw=600').stdout
        self.assertIn(f'TB a day: 1 of 600 TBW lasts {lasts(told["drive_years"])}\n', text)
        none = self.on({}, '--dram=1G')
        self.assertEqual((none['written_step_bytes'], none['written_day_bytes']), (0, 0))

    def test_all_ranks_of_a_node_wear_its_drives(self):
        net = {'net-gather': 1e10, 'net-exchange': 5e9, 'net-operations': 20000}
        place = ('--place=states=nvme,weights=nvme', '--durability=none', '--dram=4G', '--nvme=4G')
        one = self.on({**SLOW, **net}, *place)
        two = self.on({**SLOW, **net}, *place, '--world=2')
        self.assertAlmostEqual(two['written_step_bytes'] / one['written_step_bytes'], 1, places=1)

    def test_twice_the_memory_is_a_node_s(self):
        figures = {**SLOW, 'net-gather': 1e10, 'net-exchange': 5e9, 'net-operations': 20000}
        ranks = ('--world=2', '--nvme=4G', '--durability=none')
        least = self.on(figures, *ranks)['memory']['total']['dram']
        dram = 2 * (3 * least // 5)
        told = self.on(figures, *ranks, f'--dram={dram}')
        self.assertEqual(told['memory']['budget']['dram'], dram // 2)
        self.assertEqual(self.helps(told)['dram']['amount'], 2 * dram)

    def test_what_gains_nothing_is_not_told(self):
        for figures, args in ((SLOW, DRIVES), (SLOW, (*DRIVES, '--precision=bf16')),
                              ({}, DRIVES), ({'compute': 1e8}, (*DRIVES, '--store=a,b'))):
            told = self.on(figures, *args)
            for help in told['would_help']:
                self.assertGreaterEqual(help['times_tok_s'], 1.01, help)
        told = self.on(SLOW, *DRIVES)
        self.assertGreater(told['memory']['states']['nvme'], 0)
        self.assertNotIn('dram', self.helps(told))  # --place keeps all of it on the drives

    def test_one_drive_more_and_drives_twice_as_fast_are_one_figure(self):
        told = self.on({'read': 1e8, 'write': 1e8, 'mixed': 1e8, 'compute': 1e9}, '--nvme=1G',
                       '--dram=24M', '--durability=none')
        twice = {help['what']: help['predicted_step_s'] for help in told['twice_as_fast']}
        self.assertEqual(self.helps(told)['drive']['predicted_step_s'], twice['drives'])

    def test_each_rank_of_a_node_may_have_a_drive(self):
        net = {'net-gather': 1e10, 'net-exchange': 5e9, 'net-operations': 20000,
               'net-between': 5e9, 'net-operations-between': 20000}
        ranks = (*DRIVES[2:], '--dram=4G', '--nvme=4G', '--tbw=600', '--world=4')
        for store, nodes, drives in (('/nvme{local}/x', 1, 4), ('/nvme{rank}/x', 2, 2),
                                     ('/n{node}/x', 1, 1), ('/n{local}/x,/all', 1, 5),
                                     ('/a,/b', 1, 2)):
            told = self.on({**SLOW, **net}, *ranks, f'--nodes={nodes}', '--store', store)
            years = drives * 600e12 / told['written_day_bytes'] / 365.25
            self.assertAlmostEqual(told['drive_years'] / years, 1, places=6, msg=store)
            self.assertEqual(self.helps(told)['drive']['amount'], drives + 1, store)

    def test_the_text_says_what_the_object_says(self):
        told = self.on(SLOW, *DRIVES)
        text = self.run_plan('--rates', self.path('rates'), *DRIVES).stdout
        for help in told['would_help']:
            self.assertIn(f': {help["predicted_step_s"]:.3g} s a step, {help["times_tok_s"]:.2f} '
                          'times as many tok/s\n', text)
        self.assertIn(f'computation alone is {100 * told["compute_fraction"]:.0f} % of a step; '
                      'simulated with homes of their own:\n', text)

    def test_what_is_not_predicted_has_no_answer(self):
        told = self.on({'compute': 0}, *DRIVES, '--tokens=1e9', '--tbw=1')
        self.assertEqual(told['would_help'], [])
        for key in ('compute_fraction', 'days', 'written_step_bytes', 'drive_years'):
            self.assertIsNone(told[key], key)
        self.assertIsNone(told['full_batch_tokens'])
        text = self.run_plan('--rates', self.path('rates'), *DRIVES, '--tbw=1').stdout
        self.assertIn("\nwithout a predicted step neither days nor the drives' wear are known\n",
                      text)
        self.on({}, '--dram=64K', '--tokens=1e9', status=3)

    def test_drives_that_a_step_does_not_write_last_as_versions_say(self):
        given = ('--dram=1G', '--nvme=1G', '--place=states=dram,weights=dram')
        for more, is_told in ((('--tbw=600',), True), ((), False)):
            text = self.run_plan('--rates', self.write('rates', machine(**SLOW)), *given,
                                 *more).stdout
            self.assertEqual('follows from the versions of the store alone, which are not counted\n'
                             in text, is_told)

    def test_what_is_refused(self):
        for option in ('--tokens=0', '--tokens=x', '--tbw=0', '--tbw=-1', '--tbw=nan'):
            self.assert_refused(self.run_plan(option), 402, 2, option.split('=')[0])


if __name__ == '__main__':
    unittest.main()
