#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with attention by cuDNN, on the double of CUDA and a cuDNN that evaluates its graphs.

cudnn.py PATH_OF_HOISTWAY SOURCE_ROOT FOLDER_OF_THE_DOUBLE_WITH_CUDNN PATH_OF_TEST_KERNELS_ATTENTION
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from short import by_turns, some  # noqa: E402

PROGRAM, ROOT, DOUBLE, SUITE = sys.argv[1:5]
LIBRARIES = f'{DOUBLE}:{os.path.dirname(DOUBLE)}'
GROUPED = 'tied-gqa'
ALONE = 'untied-mha'


class Training(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix='hst-cudnn-')
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def environment(self, attention, fake, fault):
        environment = dict(os.environ, HOISTWAY_PLUGIN_PATH=DOUBLE, HOISTWAY_CUDA_PATH=LIBRARIES,
                           HST_FAKE_CUDA=fault, HST_FAKE_CUDNN=fake,
                           XDG_CACHE_HOME=self.path('cache'))
        environment.pop('HOISTWAY_ATTENTION', None)
        if attention:
            environment['HOISTWAY_ATTENTION'] = attention
        return environment

    def train(self, model, *more, attention='cudnn', fake='must-run=1', fault='', batch=48):
        """The finished run; its export and log are read by the next two."""
        folder = os.path.join(ROOT, 'tests', 'golden', model)
        for old in ('store', 'out', 'log'):
            shutil.rmtree(self.path(old), ignore_errors=True)
        command = [PROGRAM, 'train', '--model', folder,
                   '--data', os.path.join(folder, 'tokens.bin'), '--device=cuda',
                   '--precision=bf16', '--durability=none', '--store', self.path('store'),
                   '--steps=3', '--seq-len=24', f'--batch-tokens={batch}', '--lr=1e-3',
                   '--order=sequential', '--log', self.path('log.jsonl'),
                   '--export', self.path('out'), '--export-dtype=fp32', *more]
        if os.path.exists(self.path('log.jsonl')):
            os.unlink(self.path('log.jsonl'))
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                              env=self.environment(attention, fake, fault))

    def weights(self, *arguments, **settings):
        done = self.train(*arguments, **settings)
        self.assertEqual(done.returncode, 0, (arguments, settings, done.stderr))
        with open(self.path('out/model.safetensors'), 'rb') as file:
            return file.read()

    def log(self):
        with open(self.path('log.jsonl'), encoding='ascii') as file:
            return [json.loads(line) for line in file]

    def test_it_trains_as_own_attention_does(self):
        for model in (GROUPED, ALONE):
            runs = {}
            for attention in ('cudnn', 'own'):
                fake = 'must-run=1' if attention == 'cudnn' else ''
                self.weights(model, attention=attention, fake=fake)
                lines = self.log()
                self.assertIn('attention by cuDNN' if fake else 'attention of its own',
                              lines[0]['math'])
                runs[attention] = [line for line in lines if line['kind'] == 'step']
            self.assertEqual(len(runs['own']), 3)
            for ours, theirs in zip(runs['own'], runs['cudnn']):
                for what in ('loss', 'grad_norm'):  # bf16 rounds by 2^-8
                    self.assertAlmostEqual(ours[what] / theirs[what], 1, delta=4e-3)

    def test_its_bytes_are_the_same_each_time_and_in_every_placement(self):
        places = ('states=hbm', 'states=dram', 'states=nvme', 'weights=dram,states=nvme,acts=dram',
                  'weights=nvme,states=nvme,grads=nvme,acts=nvme')
        near = self.weights(GROUPED)
        self.assertEqual(self.weights(GROUPED), near)
        self.assertNotEqual(self.weights(GROUPED, attention='own', fake=''), near)
        for place in some(places, 3):
            self.assertEqual(self.weights(GROUPED, f'--place={place}'), near, place)
        self.assertEqual(self.weights(GROUPED, '--activations=recompute'), near)
        near = self.weights(ALONE)
        self.assertEqual(self.weights(ALONE, '--place=states=nvme'), near)

    def test_its_bytes_are_the_same_in_every_order_of_streams(self):
        near = self.weights(GROUPED)
        for order in some(('h2d-early', 'early:2', 'random:1'), 3):
            self.assertEqual(self.weights(GROUPED, '--place=weights=dram,states=nvme,acts=dram',
                                          fault=f'streams={order}'), near, order)

    def test_every_generation_of_cards_has_its_engines(self):
        for compute in some(('8.0', '9.0', '10.0', '12.0'), 2):
            self.weights(GROUPED, fault=f'cc={compute}')
            self.assertIn('attention by cuDNN', self.log()[0]['math'])

    def test_one_that_can_not_be_used_is_told_and_own_attention_serves(self):
        own = self.weights(GROUPED, attention='own', fake='')
        file = os.path.join(DOUBLE, 'libcudnn.so.9')
        for settings, why in some((
                ({'fake': 'version=90100'},
                 f'{file} is cuDNN 9.1.0; attention needs 9.16.0 or newer'),
                ({'fake': '', 'fault': 'fail=cudnnCreate:1+:1008'},
                 f'{file} is not whole: opening it: ')), 2):
            done = self.train(GROUPED, attention='', **settings)
            self.assertEqual(done.returncode, 0, done.stderr)
            told = [line for line in done.stderr.splitlines() if 'cuDNN' in line]
            self.assertEqual(len(told), 1, done.stderr)
            self.assertRegex(told[0], r'^note\[I201\] device: cuda \(Fake GPU 0\); not used: ')
            self.assertIn(why, told[0])
            with open(self.path('out/model.safetensors'), 'rb') as export:
                self.assertEqual(export.read(), own)
            doctor = subprocess.run(
                [PROGRAM, 'doctor', '--store', self.directory, '--json'], capture_output=True,
                text=True, timeout=60, check=False,
                env=self.environment('', settings['fake'], settings.get('fault', '')))
            found = next(c for c in json.loads(doctor.stdout)['checks']
                         if c['name'] == 'libraries')
            self.assertEqual(found['status'], 'warn')
            self.assertIn('libcublasLt.so.13; not used: ', found['found'])
            self.assertIn(why, found['found'])
            self.assertIn('HOISTWAY_ATTENTION=own', found['fix'])
            done = self.train(GROUPED, **settings)
            self.assertEqual(done.returncode, 1, done.stderr)
            errors = [line for line in done.stderr.splitlines() if line.startswith('error')]
            self.assertEqual(len(errors), 1, done.stderr)
            self.assertTrue(errors[0].startswith('error[E201] '), errors)
            self.assertIn(why, errors[0])

    def test_one_that_is_not_whole_is_told_at_the_first_plan(self):
        """Own attention would have other bits than the log says."""
        for number in (1002, 1008):
            for attention in ('', 'cudnn'):
                done = self.train(GROUPED, fault=f'fail=cudnnBackendFinalize:30+:{number}', fake='',
                                  attention=attention)
                self.assertEqual(done.returncode, 1, done.stderr)
                errors = [line for line in done.stderr.splitlines() if line.startswith('error')]
                self.assertEqual(len(errors), 1, done.stderr)
                self.assertTrue(errors[0].startswith('error[E201] '), errors)
                self.assertIn(f'{os.path.join(DOUBLE, "libcudnn.so.9")} is not whole: ', errors[0])
                self.assertIn(f' ({number}): ', errors[0])
                self.assertIn('HOISTWAY_ATTENTION=own', errors[0])

    def test_a_plan_that_has_no_memory_ends_a_run_before_anything_is_planned(self):
        done = self.train(GROUPED, fault='fail=cudnnBackendFinalize:30:4003', fake='')
        self.assertEqual(done.returncode, 1, done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith('error')]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertRegex(errors[0], r"^error\[E202\] preparing a layer's operations failed on "
                                    r'device "cuda": cuDNN: .* \(4003\)')
        self.assertIn('lower --hbm', errors[0])

    def test_plans_are_built_before_the_first_step_and_counted(self):
        for batch, plans in ((48, 2), (120, 4)):  # of 48, and of what is left, 24
            done = self.train(GROUPED, '--grain=48', batch=batch)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, rf'(?m)^note\[I201\] attention by cuDNN: {plans} plans '
                                          r'built in [\d.]+ s, none is left to a step$')
            run, summary = (next(line for line in self.log() if line['kind'] == kind)
                            for kind in ('run', 'summary'))
            self.assertEqual(run['plans']['count'], plans)
            self.assertGreater(run['plans']['seconds'], 0)
            self.assertEqual(summary['plans'], run['plans'])
        self.train(GROUPED, attention='own', fake='')
        self.assertNotIn('plans', self.log()[0])

    def long(self, *more):
        """One sequence, so long that its backward is the budget's choice; it ends in its first
        attention, and leaves a version. -> (what it says, what its bits depend on)"""
        folder = self.path('model')
        shutil.copytree(os.path.join(ROOT, 'tests', 'golden', GROUPED), folder, dirs_exist_ok=True)
        with open(os.path.join(folder, 'config.json'), 'r+', encoding='ascii') as file:
            text = file.read().replace('_embeddings": 256', '_embeddings": 8192')
            file.seek(0)
            file.write(text)
        with open(self.path('tokens'), 'wb') as file:
            file.write(bytes(2 * 8193))
        done = subprocess.run(
            [PROGRAM, 'train', '--model', folder, '--data', self.path('tokens'), '--data-format',
             'tokens', '--token-dtype=u16', '--device=cuda', '--precision=bf16', '--store',
             self.path('long'), '--durability=step', '--steps=2', '--seq-len=8192',
             '--batch-tokens=8192', '--log', self.path('log.jsonl'), *more],
            capture_output=True, text=True, timeout=120, check=False,
            env=self.environment('cudnn', '', 'memory=32G,fail=cudnnBackendExecute:1:5000'))
        self.assertIn('CUDNN_STATUS_EXECUTION_FAILED', done.stderr)
        return done.stderr, [line for line in self.log() if line['kind'] == 'run'][-1]['math']

    def test_the_budget_decides_who_makes_a_long_backward_and_a_resume_says_so(self):
        _, math = self.long('--hbm=8G')
        self.assertRegex(math, 'attention by cuDNN with 25[78] MiB for a backward, of documents '
                               'its own$')
        for budget, told in (('16G', False), ('4G', True)):
            said, other = self.long('--resume', f'--hbm={budget}')
            self.assertEqual('W624' in said, told, said)
            self.assertEqual(other != math, told)
        self.assertRegex(other, 'attention by cuDNN, of documents its own$')
        self.assertRegex(said, "'attention by cuDNN, of documents its own' now, on 'attention by "
                               'cuDNN with .* its --hbm')

    def test_the_suite_ends_with_own_kernels_where_plans_take_too_long(self):
        environment = self.environment('cudnn', 'must-run=1', '')
        environment.update(HST_SUITE_ONLY='huge_scores_match', HST_SUITE_MUST_OPEN='1')
        def suite(**settings):
            done = subprocess.run([SUITE, 'cuda'], capture_output=True, text=True, timeout=120,
                                  check=True, env={**environment, **settings})
            return re.findall('(?m)^plans of cuDNN: .*', done.stdout + done.stderr)
        whole, bounded = suite(HST_SUITE_PLANS_S='1e9'), suite(HST_SUITE_PLANS_S='0')
        self.assertEqual((len(whole), len(bounded)), (1, 2))
        self.assertEqual(bounded[0], "plans of cuDNN: more than 0 s: the plugin's own kernels "
                                     'serve from here on')
        fewer, all_of_them = (int(lines[-1].split()[3]) for lines in (bounded, whole))
        self.assertTrue(0 < fewer < all_of_them, (bounded, whole))

    def test_one_that_fails_while_it_runs_ends_the_run_with_one_line(self):
        done = self.train(GROUPED, fault='fail=cudnnBackendExecute:3:5000', fake='')
        self.assertEqual(done.returncode, 1, done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith('error')]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertTrue(errors[0].startswith('error[E203] '), errors)
        self.assertIn('cuDNN: attention: CUDNN_STATUS_EXECUTION_FAILED (5000)', errors[0])


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
