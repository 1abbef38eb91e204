#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hoistway plan` as a user meets it, held against what train does with the same options.

    plan.py PATH_OF_HOISTWAY [Class.test_name]

Every test has a cache of rates of its own, with what was measured once before the first of them.
"""
import json
import os
import re
import shutil
import unittest

import case
from plan_case import KEYS, MIB, NOTHING, Case, in_turn, machine, sealed, some, whole_alone
from plan_case import by_turns as load_tests  # noqa: F401: unittest looks for it


class Fits(Case):
    def test_it_needs_a_config_alone_and_leaves_nothing(self):
        before = sorted(os.listdir(self.folder))
        done = self.run_plan('--dram=256M')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertRegex(done.stdout, r'(?m)^weights +\S+ KiB')
        self.assertRegex(done.stdout, r'(?m)^fits: a step takes \S+ s \(\S+ tok/s\), at least '
                                      r'\S+ s on these rates in any order \(\d+ % of that\); '
                                      r'bounded by ')
        self.assertRegex(done.stdout, r'(?m)^  cores twice as fast: \S+ s, 2\.00 times as fast$')
        self.assertIn('a step of 64 tokens in 1 micro-batch of 64', done.stdout)
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        self.assertEqual(os.listdir(self.path('model')), ['config.json'])

    def test_the_object_adds_up(self):
        told = self.plan('--dram=256M', '--grain=16')
        memory = told['memory']
        for tier in ('hbm', 'dram', 'nvme'):
            classes = sum(sizes[tier] for name, sizes in memory.items()
                          if name not in ('total', 'budget'))
            self.assertLessEqual(abs(memory['total'][tier] - classes), 4096 * 16)
        self.assertEqual(memory['budget'], {'hbm': 0, 'dram': 256 * MIB, 'nvme': 0})
        self.assertEqual((told['micro_batches'], told['grain_tokens'], told['smallest']),
                         (4, 16, {}))
        self.assertEqual((told['update'], told['precision'], told['why']),
                         ('deferred', 'fp32', None))
        self.assertAlmostEqual(told['tok_s'] * told['predicted_step_s'], 64, places=4)
        self.assertLessEqual(told['bound_s'], told['predicted_step_s'] * (1 + 1e-6))
        self.assertAlmostEqual(told['bound_fraction'],
                               told['bound_s'] / told['predicted_step_s'], places=6)
        self.assertGreater(told['rates']['compute'], 0)
        self.assertIsNone(told['rates']['read'])
        self.assertEqual([row['what'] for row in told['twice_as_fast']], ['cores'])

    def test_the_update_is_told(self):
        self.assertEqual(self.plan('--clip=0')['update'], 'early')
        self.assertEqual(self.plan('--update=optimistic', '--nvme=1G')['update'], 'optimistic')

    def test_second_slots_on_drives_are_told(self):
        options = ('--durability=none', '--place=states=nvme,weights=nvme', '--nvme=1G')
        once, twice = (self.plan(*options, f'--update={update}')['memory']
                       for update in ('deferred', 'optimistic'))
        for name in ('weights', 'states'):
            self.assertEqual(twice[name]['nvme'] / once[name]['nvme'], 2)

    def test_train_plans_and_predicts_the_same(self):
        options = ('--dram=256M', '--durability=none', '--place=states=dram,weights=dram',
                   '--store', self.path('store'))
        self.forget()  # else rates of a probe that others disturb would not be kept
        table = self.run_plan('--probe', *options).stdout
        planned = self.plan(*options)  # on what is in the cache, as train
        self.assertFalse(os.path.exists(self.path('store')))
        done = self.run_train(*options, '--log', self.path('log'), steps=3)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(table.startswith(done.stdout.split('budget ')[0]), done.stdout)
        with open(self.path('log'), encoding='utf-8') as f:
            run = json.loads(f.readline())
        for key in set(run) & KEYS - {'predicted_start_up_s'}:  # random weights are not read
            self.assertEqual(run[key], planned[key], key)
        self.assertLessEqual({'update', 'homes', 'slices', 'late_share', 'predicted_step_s'},
                             set(run) & KEYS)

    def test_what_goes_to_drives_is_where_train_puts_it(self):
        self.check_drives('--place=states=nvme,weights=nvme,acts=nvme')
        self.check_drives('--place=states=nvme', '--durability=none', '--update=optimistic')

    def check_drives(self, *more):
        options = ('--dram=256M', *more, '--store', f'{self.path("a")},{self.path("b")}')
        table = self.run_plan(*options).stdout
        done = self.run_train(*options)
        self.assertEqual(done.returncode, 0, done.stderr)
        tables = [re.findall(r'(?m)^(weights|states|grads|acts|carry|buffers|total) .*$', text)
                  for text in (table, done.stdout)]
        self.assertEqual(len(tables[0]), 7)
        lines = [[line for line in text.split('\n') if line.split(' ')[0] in tables[0]]
                 for text in (table, done.stdout)]
        self.assertEqual(lines[0], lines[1])


class Homes(Case):
    """Homes chosen by simulation: the same by plan and train, and no bit depends on them."""

    def slow_drives(self, compute=1e12):
        """The cache has drives of 1 MB/s, in turns, and computation as fast as that."""
        self.rewrite({'read': 1e6, 'write': 1e6, 'mixed': 1e6, 'compute': compute})

    def test_where_nothing_else_fits_layers_are_computed_again(self):
        self.config({**case.CONFIG, 'num_hidden_layers': 4})
        memory = self.plan('--activations=recompute')['memory']
        each = memory['acts']['dram'] // 5  # of four layers and the final norm
        budget = f'--dram={memory["total"]["dram"] - each}'
        planned = self.plan(budget)
        self.assertEqual((planned['checkpoint_every'], planned['memory']['acts']['dram']),
                         (2, 3 * each))
        self.assertEqual(planned['saved_units'], 0)
        self.assertEqual(self.plan()['checkpoint_every'], 1)
        text = self.run_plan(budget).stdout
        self.assertIn('checkpoint of one layer in 2 is kept', text)
        refused = self.plan(budget, '--place=acts=dram', status=3)
        self.assertIsNone(refused['checkpoint_every'])
        done = self.run_train('--place=weights=dram,states=dram,grads=dram', budget, '--nvme=4K',
                              '--store', self.path('store'), '--durability=none')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('note[I303]', done.stderr)

    def test_drives_without_a_name_keep_versions_too(self):
        """Whoever sizes drives has no directory on them yet."""
        budgets = ('--dram=1G', '--nvme=1G', '--place=states=nvme,weights=nvme')
        named = self.plan(*budgets, '--store', self.path('store'))
        self.assertEqual(self.plan(*budgets)['memory'], named['memory'])
        once = self.plan(*budgets, '--durability=none')['memory']
        self.assertEqual(named['memory']['states']['nvme'], 2 * once['states']['nvme'])
        self.plan('--dram=1G', '--durability=step', '--nvme=1G')

    @in_turn(0, 2)
    def test_what_does_not_fit_as_a_whole_is_used_in_slices(self):
        self.config({**case.CONFIG, 'hidden_size': 64, 'vocab_size': 40000,
                     'max_position_embeddings': 64})
        scratch = ('--durability=none', '--store', self.path('store'))
        whole = self.plan(*scratch)
        self.assertEqual(whole['slices'], 0)
        least = self.plan('--dram=64K', *scratch, status=3)['smallest']['dram']
        planned = self.plan(f'--dram={least}', *scratch)
        self.assertGreater(planned['slices'], 2)
        self.assertLess(planned['memory']['buffers']['dram'], whole['memory']['buffers']['dram'])
        said = f'2 units are used in {planned["slices"]} slices of their rows'
        self.assertIn(f'\n{said}\n', self.run_plan(f'--dram={least}', *scratch).stdout)
        done = self.run_train(f'--dram={least}', *scratch, '--data-format=bytes')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'note[I306] 2 of {case.CONFIG["num_hidden_layers"] + 3} units are used '
                      f'in {planned["slices"]} slices of their rows\n', done.stderr)

    def test_slices_are_taken_where_what_they_leave_is_worth_more(self):
        """Than logits twice: where states come from slow drives, and not where the head is dear."""
        self.config({**case.CONFIG, 'hidden_size': 64, 'vocab_size': 40000,
                     'max_position_embeddings': 64})
        scratch = ('--durability=none', '--store', self.path('store'))
        tight = f'--dram={self.plan(*scratch)["memory"]["total"]["dram"] * 7 // 10}'
        slow = {'read': 1e7, 'write': 1e7, 'mixed': 1e7}
        for rates, some in ((NOTHING, False), (machine(**slow, compute=1e13), True),
                            (machine(**slow, compute=1e7), False)):
            told = self.plan(tight, *scratch, '--rates', self.write('rates', rates))
            self.assertEqual(told['slices'] > 0, some, told['homes'])
            self.assertEqual(told['homes'].endswith('; large units in slices'), some)

    @in_turn(1, 2)
    def test_a_gpu_keeps_as_many_units_as_it_has_room_for(self):
        self.config({**case.CONFIG, 'num_hidden_layers': 4})
        far = {'device': '--device=far'}
        whole = self.plan('--hbm=64M', '--activations=recompute', **far)
        self.assertEqual(whole['resident_units'], 7)  # embedding, layers, norm, head
        budget = f'--hbm={whole["memory"]["total"]["hbm"] - 4096}'
        usual = (budget, '--place=acts=hbm', '--rates', self.write('rates', NOTHING))
        some = self.plan(*usual, **far)  # whatever is fastest on a machine like this one
        self.assertIn(some['resident_units'], range(1, 7))
        for name in ('weights', 'grads', 'states'):
            self.assertGreater(some['memory'][name]['hbm'], 0)
            self.assertGreater(some['memory'][name]['dram'], 0)
        text = self.run_plan(*usual, device='--device=far').stdout
        self.assertIn(f'\n{some["resident_units"]} of 7 units are at home in HBM, where', text)
        none = self.plan('--hbm=64M', '--place=weights=dram', **far)
        self.assertEqual((none['resident_units'], none['memory']['states']['hbm']), (0, 0))
        text = self.run_plan('--hbm=64M', '--place=weights=dram', device='--device=far').stdout
        self.assertIn('\n0 of 7 units are at home in HBM, where', text)
        self.assertEqual(self.plan()['resident_units'], 0)

    def test_a_gpu_updates_a_share_of_what_is_in_dram_where_that_is_faster(self):
        slow = {'update-fp32': 1e4, 'update-bf16': 1e4, 'h2d': 1e9, 'd2h': 1e9, 'copy-both': 2e9}
        known = {'device-update-fp32': 1e9, 'device-update-bf16': 1e9, 'memory-shared': 1e12}
        options = ('--place=weights=dram', '--update=deferred', '--hbm=64M', '--rates')
        far = {'device': '--device=far'}
        rates = self.write('rates', machine(**slow, **known))
        told = self.plan(*options, rates, **far)
        self.assertIn(told['streamed_tiles'], range(1, told['tiles_in_dram'] + 1))
        self.assertTrue(told['homes'].endswith('; the GPU updates a share of DRAM'), told['homes'])
        alone = self.plan(*options, rates, '--gpu-update=0', **far)
        self.assertEqual((alone['streamed_tiles'], alone['tiles_in_dram']),
                         (0, told['tiles_in_dram']))
        self.assertLess(2 * told['predicted_step_s'], alone['predicted_step_s'])
        text = self.run_plan(*options, rates, device='--device=far').stdout
        self.assertIn(f'\nof the tiles at home in DRAM the GPU updates {told["streamed_tiles"]} of '
                      f'{told["tiles_in_dram"]}\n', text)
        # what both asked of memory says nothing of what it carries; what is less does
        def predicted(carried):
            rates = self.write('carried', machine(**slow, **{**known, 'memory-shared': carried}))
            return self.plan(*options, rates, '--gpu-update=1', **far)['predicted_step_s']
        self.assertEqual(predicted(26 * 1e4 + 2e9), predicted(1e12))
        self.assertGreater(predicted(3e8), 2 * predicted(1e12))
        for name in known:  # where one is not known the host updates
            some = self.write('some', machine(**slow, **{**known, name: 0}))
            missing = 'bf16' in name or 'memory' in name
            self.assertEqual(self.plan(*options, some, **far)['streamed_tiles'] == 0, missing)

    def test_the_next_forward_has_a_share_of_an_update_that_need_not_wait(self):
        far = {'device': '--device=far'}
        self.config({**case.CONFIG, 'hidden_size': 256, 'intermediate_size': 1024,
                     'num_hidden_layers': 8})
        # an update of 8 million parameters, as long as 64 tokens of all products
        rates = self.write('rates', machine(**{'update-fp32': 2e6, 'update-bf16': 2e6},
                                            compute=1e9, h2d=1e9, d2h=1e9))
        options = ('--place=weights=dram', '--hbm=64M', '--rates', rates)
        told = self.plan(*options, '--clip=0', **far)
        self.assertEqual(told['update'], 'early')
        self.assertIn(told['late_share'], (0.125, 0.25, 0.375, 0.5))
        text = self.run_plan(*options, '--clip=0', device='--device=far').stdout
        self.assertIn('\nupdate in the backward: nothing has to be waited for\n  but for '
                      f'{100 * told["late_share"]:g} % of the tiles that can wait, which the next '
                      'forward hides\n', text)
        waits = self.plan(*options, '--update=deferred', **far)
        self.assertEqual((waits['update'], waits['late_share']), ('deferred', 0))
        self.assertLess(told['predicted_step_s'], 0.9 * waits['predicted_step_s'])

    @whole_alone
    def test_fewer_threads_update_where_memory_carries_no_more(self):
        self.config({**case.CONFIG, 'hidden_size': 256, 'intermediate_size': 1024,
                     'num_hidden_layers': 8})
        options = ('--place=weights=dram', '--hbm=64M', '--clip=0', '--durability=none',
                   '--store', self.path('store'))
        far = {'device': '--device=far', 'threads': '--threads=16'}
        self.plan(*options, '--probe', **far)
        # the update alone takes all that memory carries from copies, which a step waits for
        self.rewrite({'compute': 1e12, 'h2d': 4e6, 'd2h': 4e6, 'copy-both': 8e6,
                      'update-fp32': 2e6, 'update-bf16': 2e6, 'memory-shared': 49.4e6,
                      'update-half-fp32': 1e6, 'update-half-bf16': 1e6})
        told = self.plan(*options, **far)
        self.assertIn(told['update_threads'], range(8, 16))
        text = self.run_plan(*options, **far).stdout
        self.assertIn(f'  by {told["update_threads"]} of 16 threads, which leaves host memory to '
                      'drives and copies\n', text)
        done = self.run_train(*options, **far)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'note[I308] {told["update_threads"]} of 16 threads update: ', done.stderr)
        # half of them do more than half, or that is not known
        self.rewrite({'update-half-fp32': 1.8e6, 'update-half-bf16': 1.8e6})
        fewer = self.plan(*options, '--save-rates', self.path('here'), **far)
        self.assertLess(fewer['update_threads'], told['update_threads'])
        with open(self.path('here'), encoding='utf-8') as f:
            known = f.read()
        unknown = sealed(re.sub('update-half.*\n|end .*\n', '', known))
        for text, expected in ((known, fewer), (unknown, told)):
            again = self.plan(*options, '--rates', self.write('there', text), **far)
            self.assertEqual(again['update_threads'], expected['update_threads'])
        self.rewrite({'memory-shared': 1e9})
        self.assertEqual(self.plan(*options, **far)['update_threads'], 16)
        self.assertNotIn('I308', self.run_train(*options, **far).stderr)

    def test_a_bound_counts_what_each_step_writes_for_its_version(self):
        rates = self.write('rates', machine(write=1e3, mixed=4e9))
        told = self.plan('--store', self.path('store'), '--durability=step', '--rates', rates)
        kept = told['memory']['weights']['dram'] + told['memory']['states']['dram']
        self.assertGreater(told['bound_s'], 0.9 * kept / 1e3)
        self.assertGreater(told['bound_fraction'], 0.95)

    @in_turn(0, 2)
    def test_train_takes_the_homes_that_plan_names(self):
        self.config({**case.CONFIG, 'hidden_size': 256, 'intermediate_size': 512,
                     'num_hidden_layers': 4})
        options = ('--store', self.path('store'), '--clip=0')
        most = self.plan('--probe', *options)['memory']['total']['dram']
        self.slow_drives()
        options += (f'--dram={most * 3 // 4}',)
        planned = self.plan(*options)
        self.assertIn('what leaves memory: ', planned['homes'])
        note = f'note[I302] {planned["homes"]}: '
        resident = options[:-1]
        runs = (('chosen', options, 3), ('resident', resident, 3), ('begun', resident, 2),
                ('resumed', (*options, '--resume'), 3))
        weights = {}
        for name, args, steps in runs:
            known = args is not resident
            self.cache = 'cache' if known else 'another'
            if name != 'resumed':
                shutil.rmtree(self.path('store'), ignore_errors=True)
            done = self.run_train(*args, '--export', self.path(name), '--export-dtype=fp32',
                                  steps=steps)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(note in done.stderr, known, done.stderr)
            self.assertEqual('I302' in done.stderr, known, done.stderr)
            with open(self.path(name, 'model.safetensors'), 'rb') as f:
                weights[name] = f.read()
        self.assertEqual(weights['chosen'], weights['resident'])
        self.assertEqual(weights['resumed'], weights['resident'])
        self.assertNotEqual(weights['begun'], weights['resident'])

    @whole_alone
    def test_train_leaves_the_share_that_plan_names(self):
        self.config({**case.CONFIG, 'hidden_size': 256, 'intermediate_size': 512,
                     'num_hidden_layers': 16})
        options = ('--store', self.path('store'), '--clip=0', '--dram=110M')
        self.plan('--probe', *options)
        self.slow_drives(compute=3e7)  # computation takes a bit longer
        share = self.plan(*options)['late_share']
        self.assertGreater(share, 0)
        weights = {}
        for name, args in (('late', options), ('memory', options[:-1])):
            shutil.rmtree(self.path('store'), ignore_errors=True)
            done = self.run_train(*args, '--export', self.path(name), '--export-dtype=fp32',
                                  steps=3)
            self.assertEqual(done.returncode, 0, done.stderr)
            told = ('note[I307] of the tiles that can wait in an update '
                    f'{8 * share:.0f} in 8 are left to the next forward')
            self.assertEqual(told in done.stderr, name == 'late', done.stderr)
            with open(self.path(name, 'model.safetensors'), 'rb') as f:
                weights[name] = f.read()
        self.assertEqual(weights['late'], weights['memory'])

    def test_train_measures_for_a_large_model_what_is_not_known(self):
        self.forget()
        store = ('--store', self.path('store'), '--durability=none')
        refused = self.run_train(*store, '--dram=64K')
        self.assert_refused(refused, 302, 2)
        self.assertEqual(os.listdir(self.path('cache')), [])
        self.config({**case.CONFIG, 'hidden_size': 4096, 'intermediate_size': 16384,
                     'num_hidden_layers': 5})
        self.assert_refused(self.run_train(*store, '--dram=64K'), 302, 2)
        told = self.plan(*store, '--dram=64K', status=3)
        self.assertGreater(told['parameters'], 1e9)
        self.assertGreater(told['rates']['read'], 0)  # plan measures no drive
        self.assertFalse(os.path.exists(self.path('store')))


class Rates(Case):
    def test_rates_of_drives_come_from_the_cache_or_a_probe(self):
        drives = ('--dram=256M', '--place=states=nvme', '--store', self.path('store'))
        told = self.plan(*drives)
        self.assertIsNone(told['predicted_step_s'])
        self.assertRegex(told['why'], "the drives' rates are not known.*--probe")
        self.assertEqual(told['twice_as_fast'], [])
        text = self.run_plan(*drives)
        self.assertEqual(text.returncode, 0)
        self.assertRegex(text.stdout, r'(?m)^fits: how long a step takes is not known: ')
        self.forget()  # what other tests disturb would take no place of what they did not
        probed = self.plan('--probe', *drives)
        self.assertGreater(probed['predicted_step_s'], 0)
        self.assertEqual({row['what'] for row in probed['twice_as_fast']} - {'cores', 'drives'},
                         set())
        again = self.plan(*drives)
        for key, value in probed['rates'].items():  # the cache has whole numbers
            if value:
                self.assertAlmostEqual(again['rates'][key] / value, 1, places=6)
        self.assertAlmostEqual(again['predicted_step_s'] / probed['predicted_step_s'], 1, places=6)
        self.assertFalse(os.path.exists(self.path('store')))

    def test_saved_rates_plan_elsewhere(self):
        saved = self.path('rates')
        here = self.plan('--dram=256M', '--save-rates', saved)
        there = self.plan('--dram=256M', '--rates', saved)
        for key, value in here['rates'].items():  # the file has whole numbers
            if value:
                self.assertAlmostEqual(there['rates'][key] / value, 1, places=6)
        self.assertAlmostEqual(there['predicted_step_s'] / here['predicted_step_s'], 1, places=6)
        self.run_plan('--save-rates', saved)  # replaces its own kind

    def test_another_machines_budgets_are_taken_as_given(self):
        rates = self.write('rates', machine())
        told = self.plan('--rates', rates, '--dram=4000T')
        self.assertEqual(told['memory']['budget']['dram'], 4000 << 40)
        told = self.plan('--rates', rates, '--nvme=4000T', '--place=states=nvme',
                         '--store=/is/not/here,/nor/here')
        self.assertGreater(told['predicted_step_s'], 0)
        self.assertGreater(told['memory']['states']['nvme'], 0)

    def test_attention_and_norms_are_measured_too(self):
        file = self.path('rates')
        self.plan('--dram=256M', '--probe', f'--save-rates={file}')
        with open(file, encoding='ascii') as f:
            lines = f.read().splitlines()
        self.assertEqual([line.split(' ', 6)[6].split(' ')[0] for line in lines
                          if line.startswith('operation ')], ['attention', 'a', 'softmax'])
        self.assertTrue(any(re.fullmatch(r'compute .* 16 products and 3 operations on host', line)
                            for line in lines), lines)

    def test_a_step_takes_what_its_computation_takes(self):
        rates = self.write('rates', machine(compute=1e6))
        slow = self.plan('--rates', rates, '--dram=256M')
        rates = self.write('rates', machine(compute=2e6))
        fast = self.plan('--rates', rates, '--dram=256M')
        self.assertAlmostEqual(slow['predicted_step_s'] / fast['predicted_step_s'], 2, places=2)
        self.assertEqual(slow['bound_by'], 'compute')
        again = self.plan('--rates', rates, '--dram=256M', '--activations=recompute')
        # 6 operations per parameter and token, 8 where it is recomputed, the embedding's but
        # looked up, and attention's
        layers, head = 2 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 64), 256 * 32
        for told, rate, each in ((slow, 1e6, 6), (again, 2e6, 8)):
            least = 64 * (each * layers + 6 * head)
            self.assertGreater(told['predicted_step_s'] * rate, least)
            self.assertLess(told['predicted_step_s'] * rate, 1.25 * least)

    def test_the_update_that_training_would_choose_is_the_faster_one(self):
        args = ('--rates', self.write('rates', machine(compute=1.2e7, read=1e6, write=1e6,
                                                       mixed=1e6)),
                '--dram=256M', '--nvme=1G', '--store=/is/not/here',
                '--place=states=nvme,weights=nvme')
        chosen, deferred = self.plan(*args), self.plan(*args, '--update=deferred')
        self.assertEqual((chosen['update'], deferred['update']), ('optimistic', 'deferred'))
        self.assertLess(chosen['predicted_step_s'], 0.9 * deferred['predicted_step_s'])
        args = ('--rates', self.write('rates', machine(compute=1e6)), *args[2:])
        self.assertEqual(self.plan(*args)['update'], 'deferred')

    def test_a_rate_that_is_missing_is_named(self):
        for name, whose in (('compute', "computation's"), ('update-fp32', "update's"),
                            ('norm-fp32', "norm's")):
            rates = self.write('rates', machine(**{name: 0}))
            self.assertIn(f'the {whose} rates are not known',
                          self.plan('--rates', rates, '--dram=256M')['why'])
        rates = self.write('rates', machine(mixed=0))
        self.assertIn("the drives' rates are not known", self.plan(
            '--rates', rates, '--dram=256M', '--nvme=1G', '--place=states=nvme')['why'])

    def test_without_a_store_the_fix_is_to_name_one(self):
        why = self.plan('--dram=256M', '--nvme=1G', '--place=states=nvme')['why']
        self.assertIn('without --store no drives are named. Fix: --store DIR', why)
        none = {f'{what}-{dtype}': 0 for what in ('update', 'norm') for dtype in ('fp32', 'bf16')}
        told = self.plan('--hbm=64M', '--rates', self.write('rates', machine(**none)),
                         device='--device=far')
        self.assertIsNone(told['why'])  # a GPU that holds everything updates it
        rates = self.write('rates', machine(**{'norm-bf16': 0, 'h2d': 1e10, 'd2h': 1e10}))
        told = self.plan('--place=weights=dram', '--rates', rates, device='--device=far')
        self.assertIsNone(told['why'])  # and knows the norm of what it does not hold

    @whole_alone
    def test_models_known_by_name(self):
        rates = self.write('rates', machine())
        for name in ('8B', 'llama-3-8b'):
            done = self.run_verb('plan', '--model', name, '--rates', rates, '--dram=64G',
                                 '--nvme=2T', '--device=host', '--json')
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            told = json.loads(done.stdout)
            self.assertEqual(told['parameters'], 8030261248)
            self.assertGreater(told['predicted_step_s'], 4096 * 7.5e9 * 6 / 1e12)

    def test_files_that_are_no_rates_are_refused(self):
        whole = machine()
        body = whole[:whole.index('end ')]
        bad = {
            'garbage': 'hello\n', 'empty': '', 'cut': whole[:-30], 'more': whole + 'x',
            'zero': whole + '\0', 'unsealed': body + 'end 0000000000000000\n',
            'negative': sealed(body + 'h2d -1 -1 -1 1 told\n'),
            'nan': sealed(body + 'h2d nan nan nan 1 told\n'),
            'huge': sealed(body + 'h2d 1e300 1e300 1e300 1 told\n'),
            'digits': sealed(body + f'h2d {"9" * 18} 1 {"9" * 18} 1 told\n'),
            'unknown': sealed(body + 'warp 9 9 9 1 told\n'), 'long': 'x' * 40000}
        for name, text in bad.items():
            done = self.run_plan('--rates', self.write(f'{name}.rates', text))
            with self.subTest(name):
                self.assert_refused(done, 402, 2, 'no file of rates')
        for path in (self.folder, self.path('missing'), '/dev/zero'):
            self.assert_refused(self.run_plan('--rates', path), 402, 2, 'cannot be read')

    def test_a_cache_that_is_not_trusted_is_said(self):
        self.plan('--dram=256M')
        os.chmod(self.path('cache', 'hoistway'), 0o777)
        done = self.run_plan('--dram=256M')
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r'\Awarning\[W106\] the cache .* others may write to it\n\Z')

    def test_a_file_for_rates_replaces_no_other(self):
        self.forget()
        mine = self.write('mine', 'my data')
        self.assert_refused(self.run_plan('--probe', '--save-rates', mine), 107, 1)
        self.assertEqual(os.listdir(self.path('cache')), [])  # told before anything is measured
        rates = self.write('rates', machine())
        self.assert_refused(self.run_plan('--rates', rates, '--save-rates', mine), 402, 2)
        self.assert_refused(self.run_plan('--rates', rates, '--probe'), 402, 2)
        with open(mine, encoding='utf-8') as f:
            self.assertEqual(f.read(), 'my data')


class DoesNotFit(Case):
    def assert_smallest_works(self, tier, *args):
        """Its smallest budget works, and a little less does not."""
        told = self.plan(*args, f'--{tier}=64K', status=3)
        self.assertEqual(set(told['smallest']), {tier})
        self.assertEqual(told['smallest'][tier], told['memory']['total'][tier])
        self.assertIsNone(told['predicted_step_s'])
        self.assertIsNone(told['update'])
        self.assertIn(f'--{tier}', told['why'])
        enough = told['smallest'][tier]
        fits = self.plan(*args, f'--{tier}={enough}')
        self.assertLessEqual(fits['memory']['total'][tier], enough)
        self.plan(*args, f'--{tier}={enough - 65536}', status=3)
        text = self.run_plan(*args, f'--{tier}=64K')
        self.assertEqual((text.returncode, text.stderr), (3, ''))
        self.assertRegex(text.stdout, r'(?m)^does not fit: ')
        words = re.search(r'(?m)^the smallest that would do: (--\S+) (\d+[KMG]|\d\.\d\d?[KMG]|'
                          r'\d\d\.\d[KMG])$', text.stdout)
        self.plan(*args, f'{words[1]}={words[2]}')

    def test_too_little_dram(self):
        for more in some(((), ('--nvme=1G',)), 2):
            self.assert_smallest_works('dram', *more)

    def test_too_little_nvme(self):
        drives = '--place=states=nvme,weights=nvme'
        for args in some(((drives,), ('--store', self.path('store'), '--dram=256M'),
                          (drives, '--durability=none', '--update=optimistic')), 3):
            self.assert_smallest_works('nvme', *args)

    @whole_alone
    def test_the_smallest_budget_of_a_large_model_is_short_and_suffices(self):
        done = self.run_verb('plan', '--model', '70B', '--device=host', '--dram=64M', '--json')
        needed = json.loads(done.stdout)['smallest']['dram']
        done = self.run_verb('plan', '--model', '70B', '--device=host', '--dram=64M')
        number, unit = re.search(r'(?m)^the smallest that would do: --dram ([\d.]{1,4})([GT])(?:; '
                                 r'no more than .* are free here)?$', done.stdout).groups()
        typed = float(number) * {'G': 1 << 30, 'T': 1 << 40}[unit]
        self.assertGreaterEqual(typed, needed)
        self.assertLess(typed, 1.06 * needed)

    def test_too_little_hbm(self):
        told = self.plan('--hbm=64K', device='--device=far', status=3)
        self.assertEqual((set(told['smallest']), told['device']), ({'hbm'}, 'far'))
        enough = told['smallest']['hbm']
        fits = self.plan(f'--hbm={enough}', device='--device=far')
        self.assertLessEqual(fits['memory']['total']['hbm'], enough)
        self.assertGreater(fits['predicted_step_s'], 0)
        self.assertGreater(fits['rates']['h2d'], 0)

    def test_two_budgets_at_once(self):
        told = self.plan('--dram=64K', '--nvme=64K', status=3)
        self.assertEqual(set(told['smallest']), {'dram', 'nvme'})
        self.plan(*(f'--{tier}={size}' for tier, size in told['smallest'].items()))
        text = self.run_plan('--dram=64K', '--nvme=64K').stdout
        words = re.search(r'(?m)^the smallest that would do: (--dram \S+ --nvme \S+)$', text)
        self.plan(*words[1].split())

    def test_train_refuses_it_in_the_same_words(self):
        store = ('--dram=64K', '--store', self.path('store'))
        self.assert_refused(self.run_train(*store), 302, 2, self.plan(*store, status=3)['why'])


class Refused(Case):
    def refuse(self, code, status, *args, part=''):
        before = sorted(os.listdir(self.folder))
        self.assert_refused(self.run_plan(*args), code, status, part)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_models(self):
        for name in ('9B', 'missing', 'llama-2-8b'):
            done = self.run_verb('plan', '--model', name)
            self.assert_refused(done, 402, 2, 'no file, no directory and no known model (1B, ')
        for name, near in (('9B', '8B, 13B'), ('llama-2-8b', '7.5B, 8B'), ('0.5B', '1B')):
            told = self.run_verb('plan', '--model', name).stderr
            self.assertIn(f'; near it: {near}). Fix: the directory', told)
            self.assertNotIn('Fix: --model', told)
        self.assert_refused(self.run_verb('plan', '--model', self.path('cache')), 412, 1)
        self.config({**case.CONFIG, 'architectures': ['GPT2LMHeadModel']})
        self.refuse(414, 2)
        self.config({**case.CONFIG, 'hidden_size': 0})
        self.refuse(413, 2)
        self.assert_refused(self.run_verb('plan'), 403, 2, '--model')

    def test_values(self):
        self.refuse(402, 2, '--batch-tokens=65', part='twice')
        done = self.run_verb('plan', '--model', self.path('model'), '--batch-tokens=65',
                             '--seq-len=16')
        self.assert_refused(done, 402, 2, 'not a multiple')
        self.refuse(402, 2, '--place=weights=hbm')
        self.refuse(402, 2, '--hbm=1G')
        self.refuse(402, 2, '--dram=lots')
        self.refuse(402, 2, '--state=bf16', part='Fix: add --precision bf16.')
        self.refuse(402, 2, '--state=bf16', '--precision=fp16', part='or leave --state out.')
        for option in ('init', 'resume'):
            self.refuse(401, 2, f'--{option}=x', part=f'unknown option --{option} of plan: it is '
                        'an option of train. Fix: leave it out.')
        self.refuse(401, 2, '--output_dir=x', part='Did you mean --store?')

    def test_budgets_that_this_machine_does_not_have(self):
        self.refuse(302, 2, '--dram=4000T')
        self.refuse(301, 1, '--nvme=4000T', '--store', self.path('store'))

    def test_directories(self):
        self.refuse(105, 1, '--store', self.path('no', 'store'), part='create its parent')
        self.refuse(105, 1, '--store', self.path('model', 'config.json'))
        self.refuse(105, 1, '--store', self.path('model', 'config.json', 'store'))
        for name in ('model', 'store'):
            self.refuse(402, 2, '--store', f'{self.path(name)},{self.path(name)}')


if __name__ == '__main__':
    unittest.main()
