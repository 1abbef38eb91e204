#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--config FILE: a DeepSpeed configuration in the place of options.

    ds_config.py PATH_OF_HOISTWAY
"""
import base64
import json
import os
import re
import sys
import unittest

from ds_case import BATCH, Config
from malformed import KEYS, LATE, LATE_OUTPUTS, TEXTS
from program import run, tree
from published import NO_WARMUP, PUBLISHED, TRAINED
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *['..'] * 2))
from short import by_turns  # noqa: E402

RATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'config', 'rates.txt')


class Configured(Config):
    def refuse_text(self, code, text, part, *args):
        path = self.put(text)
        before = tree(self.folder)
        done = self.train('--config', path, *args, without=('--batch-tokens',))
        self.assert_refused(done, code, 2, f'ds.json{part}' if part[0] == ':' else part)
        self.assertRegex(done.stderr, r'ds\.json:\d+:\d+: |it has more than 1 MiB')
        self.assertEqual(tree(self.folder), before)

    def refuse_each(self, code, texts):
        for text, part in texts:
            with self.subTest(text[:80]):
                self.refuse_text(code, text, part)

    def test_a_text_that_is_no_hjson_is_refused_by_its_place(self):
        self.refuse_each(404, TEXTS)

    def test_keys_that_are_unknown_or_refused_name_what_to_do(self):
        self.refuse_each(405, KEYS)
        self.refuse(405, 2, '--config', self.put('{' + BATCH + '}'), part='Fix: --seq-len',
                    without=('--seq-len', '--batch-tokens'))
        self.refuse(402, 2, '--explain-config', part='--config FILE')

    def test_what_is_no_file_of_text_is_refused(self):
        os.mkfifo(self.path('pipe'))
        with open(self.path('large'), 'wb') as f:
            f.truncate(64 << 20)
        refused = {self.folder: 'not a regular file', self.path('pipe'): 'not a regular file',
                   '/dev/zero': 'not a regular file', self.path('large'): 'more than 1 MiB',
                   self.path('none'): 'no such file',
                   'nosuchfile12': 'no such file',  # which could be base64
                   'a\nerror[E999]': 'a\\x0aerror'}
        for path, part in refused.items():
            self.assert_refused(self.train('--config', path), 404, 2, part)
        self.assertEqual(len(TEXTS) + len(KEYS) + len(refused), 100)

    def refuse_late(self, case, verb):
        """By one line that has the place in the file, and before anything is written."""
        text, more, code, line = (part.replace('FOLDER', '.') if isinstance(part, str) else part
                                  for part in case)
        more = [arg.replace('FOLDER', '.') for arg in more]
        path, data = self.put(text), ['--data', self.data, '--steps=3', '--init=random']
        if 'nvme_path' not in text:
            more.append('--store=store')
        before = tree(self.folder)
        done = run(verb, '--model', self.path('model'), '--device=host', '--seq-len=32', '--config',
                   os.path.basename(path), *more, *data * (verb == 'train'), cwd=self.folder)
        last = [told for told in done.stderr.splitlines() if told.startswith('error')]
        self.assertEqual(len(last), 1, done.stderr)
        self.assertTrue(last[0].startswith(f'error[E{code}] ds.json{line}'), last[0])
        self.assertRegex(last[0], r'Fix: \S')
        self.assertEqual(tree(self.folder), before)

    def test_a_value_that_is_refused_later_is_told_by_its_place(self):
        for case in LATE:
            for verb in ('train', 'plan'):
                with self.subTest(case[:2], verb=verb):
                    self.refuse_late(case, verb)
        for case in LATE_OUTPUTS:
            with self.subTest(case[:2]):
                self.refuse_late(case, 'train')

    def test_what_the_command_line_says_is_told_without_a_place(self):
        for text, more in (('{"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}', '--lr=0'),
                           ('{"zero_optimization": {"stage": 3}}', '--decay=3')):
            done = self.plan(text, more)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, r'(?m)^error\[E402\] --(lr|decay) ')

    def test_of_two_plans_each_has_its_own_configuration(self):
        """The first one's stays open while the second one is planned."""
        ds = self.put('{"zero_optimization": {"stage": 1}}')
        first = self.put(json.dumps({'config': ds}), 'a.json')
        for second, origin in (
                ({'zero-stage': '1', 'gather': 'int8'},
                 ':1:21: gather "int8", zero-stage "1": --gather int8 is'),
                ({'config': ds, 'gather': 'int8'},
                 f':1:{16 + len(ds)}: gather "int8", {ds}:1:24: zero_optimization.stage 1 '
                 '(--zero-stage 1): --gather int8 is')):
            both = f'{first},{self.put(json.dumps(second), "b.json")}'
            done = run('plan', '--model', self.path('model'), '--device=host', '--seq-len=32',
                       '--compare', both)
            told = done.stderr.splitlines()[-1]
            self.assertEqual(done.returncode, 2)
            self.assertTrue(told.startswith(f'error[E402] {self.path("b.json")}{origin}'), told)

    def test_what_is_switched_off_or_null_is_no_reason_to_refuse(self):
        done = self.plan('{"autotuning": {"enabled": false, "x": [1, {"y": 2}]}, "_a": {"b": 1}, '
                         '"bf16": null, "amp": {"enabled": false}, '
                         '"zero_optimization": {"mics_shard_size": -1, '
                         '"zero_quantized_nontrainable_weights": false}, '
                         '"gradient_clipping": 0}')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('no effect here, as --explain-config tells: autotuning, _a, amp, '
                      'zero_optimization.mics_shard_size, '
                      'zero_optimization.zero_quantized_nontrainable_weights\n', done.stderr)
        self.assertIn('ds.json says --clip 0, --zero-stage 0\n', done.stderr)

    def test_a_tensor_parallel_of_one_rank_is_no_reason_to_refuse(self):
        for inner in ({'autotp_size': 0}, {'autotp_size': 1}, {}, {'preset_model': 'llama'}):
            done = self.plan(json.dumps({'tensor_parallel': inner}))
            self.assertEqual(done.returncode, 0, (inner, done.stderr))
            self.assertIn('no effect here, as --explain-config tells: tensor_parallel\n',
                          done.stderr)
            self.assertEqual(dict(self.explain({'tensor_parallel': inner}))['tensor_parallel'],
                             '{...} - no difference: hoistway has data parallelism alone.')
        self.refuse_each(405, [(json.dumps({'tensor_parallel': inner}), 'tensor_parallel')
                               for inner in ({'autotp_size': 2}, {'autotp_size': 'auto'},
                                             {'autotp_size': True}, {'a': {'autotp_size': 1},
                                                                     'autotp_size': 4}, 1, [])])
        self.refuse_each(405, [(json.dumps({'autotuning': value}), 'autotuning')
                               for value in ('enabled', 'enabled: false', {'enabled': 0}, {})])

    def test_what_zeropp_has_of_weights_has_options(self):
        done = self.plan('{"zero_optimization": {"stage": 3, "zero_quantized_weights": true, '
                         '"zero_hpz_partition_size": 8}}')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr,
                         r'--zero-stage 3, --gather int8, --secondary node|'
                         r'--zero-stage 3, --secondary node, --gather int8')

    def test_a_secondary_partition_that_is_no_nodes_ranks_is_noted(self):
        for size, noted in ((1, False), (4, True), (8, False), (16, True)):
            text = f'{{"zero_optimization": {{"stage": 3,\n "zero_hpz_partition_size": {size}}}}}'
            place = f'note[I405] {self.path("ds.json")}:2:2: zero_optimization.zero_hpz_partition'
            done = self.plan(text, '--world=16', '--nodes=2', '--batch-tokens=512')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual('--secondary node' in done.stderr, size > 1)
            self.assertEqual(f'{place}_size {size}: a node has 8 ranks, ' in done.stderr, noted)
            self.assertEqual(done.stderr.count('a node has'), noted)
            for more in (('--world=16', '--nodes=2', '--secondary=none'), ()):
                told = self.plan(text, '--batch-tokens=512', *more).stderr
                self.assertNotIn('a node has', told)

    def test_what_zeropp_has_of_gradients_has_an_option(self):
        """Of one way it is refused, and the option takes the file's wish back."""
        for on, more, told in (('false', (), None), ('true', (), 'refused'),
                               ('true', ('--reduce=grads',), None),
                               ('true', ('--ways=2',), '--reduce int4')):
            done = self.plan('{"zero_optimization": {"stage": 2, "zero_quantized_gradients": '
                             f'{on}}}}}', *more)
            self.assertEqual(done.returncode, 2 if told == 'refused' else 0, done.stderr)
            if told == 'refused':
                self.assertIn('this run has one way', done.stderr)
            else:
                self.assertEqual('--reduce int4' in done.stderr, told is not None, done.stderr)

    def test_a_loss_scale_that_is_given_stays(self):
        for scale, told in ((128, '--loss-scale 128, --loss-scaling static'),
                            (0, '--loss-scale 1024')):
            done = self.plan(f'{{"fp16": {{"enabled": true, "loss_scale": {scale}, '
                             '"initial_scale_power": 10}}')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f'says --clip 1.0, --precision fp16, {told}\n', done.stderr)

    def test_auto_of_precision_is_what_trainer_takes(self):
        """Its arguments bf16 and fp16 are false where nobody gives them (fill_match)."""
        for config, key, here in (
                ({'bf16': {'enabled': 'auto'}}, 'bf16', 'fp32'),
                ({'fp16': {'enabled': 'auto'}}, 'fp16', 'fp32'),
                ({'bf16': {'enabled': 'auto'}, 'fp16': {'enabled': 'auto'}}, 'bf16', 'fp32'),
                ({'bf16': {'enabled': False}, 'fp16': {'enabled': 'auto'}}, 'fp16', 'fp32'),
                ({'bf16': {}, 'fp16': {'enabled': 'auto'}}, 'fp16', 'fp32')):
            rows = dict(self.explain(config))
            self.assertEqual(rows[f'{key}.enabled'],
                             f'"auto" --precision {here} "auto": what Trainer takes', config)
            self.assertIn(f'--precision {here}\n', self.plan(json.dumps(config)).stderr)
            rows = dict(self.explain(config, f'--precision={key}'))
            self.assertEqual(rows[f'{key}.enabled'], '"auto" --precision of the command line '
                             '"auto": the command line says it')
            told = self.plan(json.dumps(config), f'--precision={key}').stderr
            self.assertNotIn('wins over', told)

    def test_optimizers_have_the_numbers_of_deepspeeds_classes(self):
        told = {'Lion': 'lion, --betas 0.9,0.999, --weight-decay 0, --lr 1e-3',
                'AdaGrad': 'adagrad, --eps 1e-10, --weight-decay 0, --lr 1e-2',
                'SGD': 'sgd, --momentum 0, --weight-decay 0, --lr 1e-3'}
        for name, numbers in told.items():
            done = self.plan(f'{{"optimizer": {{"type": "{name}"}}}}')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f'--optimizer {numbers}', done.stderr)
        done = self.plan('{"optimizer": {"type": "AdamW", "params": {"eps": 1e-6}}}',
                         '--optimizer=sgd')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn('--eps', done.stderr)
        self.refuse_each(405, (('{"optimizer": {"type": "sgd"}}', 'Lion, Adagrad and SGD'),
                               ('{"optimizer": {"type": "Lion", "params": {"eps": 1e-8}}}',
                                'has no such number'),
                               ('{"optimizer": {"type": "Lion", "params": {"torch_adam": true}}}',
                                'optimizer.type is not Adam'),
                               ('{"optimizer": {"type": "SGD", "params": {"nesterov": true}}}',
                                'does not look ahead'),
                               ('{"optimizer": {"params": {"freeze_step": 4}, "type": '
                                '"OneBitAdam"}}',
                                'optimizer.type "OneBitAdam": hoistway has AdamW, Adam, Lion, '
                                'Adagrad and SGD, and none of them has the freeze_step of line 1'),
                               ('{"optimizer": {"type": "Lamb", "params": {"bias_correction": '
                                'false}}}', 'optimizer.type "Lamb": hoistway has')))

    def test_published_configurations_run_or_are_refused(self):
        self.assertEqual(len(PUBLISHED), 32)
        for name, (config, told) in PUBLISHED.items():
            text = config if isinstance(config, str) else json.dumps(config, indent=2)
            with self.subTest(name):
                if not told.startswith('--'):
                    self.assert_refused(self.plan(text), 405, 2, told)
                    continue
                warmup = ['--warmup=10'] * ('the rates of' in told)
                if warmup:
                    self.assert_refused(self.plan(text), 405, 2, NO_WARMUP)
                done = self.plan(text, *warmup)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, r'(?m)^note\[I405\] .*ds.json says (.*)$')
                self.assertIn(f'ds.json says {told}\n', done.stderr)

    def trained(self, steps, *args, without=()):
        """The weights of a run, and what it told."""
        out = self.path('out')
        done = self.train(f'--export={out}', '--export-dtype=fp32', '--threads=1',
                          f'--steps={steps}', *args, without=without)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, rf'(?m)^trained {steps} steps?, ')
        with open(os.path.join(out, 'model.safetensors'), 'rb') as f:
            return f.read(), done.stderr

    def test_a_published_configuration_of_each_origin_trains_what_its_options_do(self):
        """A scheduler's first two steps have a rate of 0: the third trains."""
        auto = {'warmup_min_lr': 0, 'warmup_max_lr': 5e-5, 'warmup_num_steps': 2}
        self.assertEqual(len({name.split(' ')[0] for name in TRAINED}), 6)
        for name, steps in TRAINED.items():
            with self.subTest(name):
                config, told = PUBLISHED[name]
                told = told.replace('/local_nvme', self.path('drive'))
                text = json.dumps(config).replace('/local_nvme', self.path('drive'))
                *given, last = told.split(', ')
                rates = last.startswith('the rates of ') and last.rpartition(' ')[2]
                got, notes = self.trained(
                    steps, '--config', self.put(text), *['--warmup=2'] * bool(rates),
                    without=('--batch-tokens', *['--store'] * ('/drive' in text)))
                self.assertIn(f'ds.json says {told}\n', notes)
                if rates:
                    total = {'total_num_steps': steps} if rates == 'WarmupDecayLR' else {}
                    given += ['--config ' + self.put(json.dumps(
                        {'scheduler': {'type': rates, 'params': {**auto, **total}}}), 'own.json')]
                else:
                    given.append(last)
                words = [word for option in given for word in option.split(' ', 1)]
                self.assertEqual(self.trained(steps, *words)[0], got)
                self.assertNotEqual(self.trained(steps - 1, *words)[0], got)

    def test_a_text_of_base64_is_a_configuration(self):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            for text in ('{"gradient_clipping": 0.25}', '{gradient_clipping: 0.25}',
                         '{"gradient_clipping": 0.25, "_": "\u00ff\u00fe?>~\u00fb\u00ef"}'):
                code = encode(text.encode()).decode()
                done = run('plan', '--model', self.path('model'), '--device=host', '--config',
                           code)
                self.assertIn('base64 text of --config says --clip 0.25\n', done.stderr)

    def test_a_configuration_and_its_options_train_the_same_bytes(self):
        store = self.path('other')
        text = json.dumps({
            'train_batch_size': 4, 'train_micro_batch_size_per_gpu': 2,
            'gradient_accumulation_steps': 2, 'gradient_clipping': 0.1,
            'optimizer': {'type': 'Adam', 'params': {'lr': 1e-3, 'betas': [0.8, 0.95]}},
            'bf16': {'enabled': True},
            'zero_optimization': {
                'stage': 3, 'offload_optimizer': {'device': 'nvme', 'nvme_path': store},
                'offload_param': {'device': 'nvme', 'nvme_path': store}}})
        out = self.path('out')
        done = self.train(f'--export={out}', '--export-dtype=fp32', '--threads=1', '--config',
                          self.put(text), without=('--batch-tokens', '--store'))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'--store {store}\n', done.stderr)
        self.assertRegex(done.stdout, r'(?m)^weights .* nvme|dram +nvme')
        with open(os.path.join(out, 'model.safetensors'), 'rb') as f:
            configured = f.read()
        options = ('--lr=1e-3', '--betas=0.8,0.95', '--weight-decay=0', '--precision=bf16',
                   '--place=states=nvme,weights=nvme')
        self.assertEqual(self.weights('--clip=0.1', *options), configured)
        self.assertNotEqual(self.weights('--clip=0', *options), configured)

    def rates(self, params, kind, *args, **more):
        """The learning rates of a run with that scheduler, and what it told."""
        log = self.path('run.jsonl')
        done = self.train(f'--log={log}', '--config', self.put(json.dumps(
            {'scheduler': {'type': kind, 'params': params}})), *args, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(log, encoding='ascii') as f:
            lines = [json.loads(line) for line in f]
        return [line['lr'] for line in lines if line['kind'] == 'step'], done.stderr

    def test_schedulers_have_the_rates_of_deepspeeds_classes(self):
        golden = {}
        with open(RATES, encoding='ascii') as f:
            for line in f:
                *case, step, rate = line.split()
                if case[0] != '#' and case[2] == '7':
                    golden.setdefault((case[0], case[1], float(case[4])), []).append(float(rate))
        self.assertEqual(len(golden), 12)
        for (kind, word, begin), wanted in golden.items():
            cosine = kind == 'WarmupCosineLR'
            params = {'warmup_num_steps': 7, 'warmup_type': word,
                      'warmup_min_ratio' if cosine else 'warmup_min_lr': begin}
            if cosine:
                params['cos_min_ratio'] = 0.1
            else:
                params['warmup_max_lr'] = 3e-4
            if kind != 'WarmupLR':
                params['total_num_steps'] = 30
            got, told = self.rates(params, kind, '--steps=30', *['--lr=3e-4'] * cosine)
            self.assertIn(f'the rates of {kind}\n', told)
            for step, (rate, want) in enumerate(zip(got, wanted)):
                self.assertAlmostEqual(rate, want, delta=1e-12, msg=(kind, word, step))
            self.assertEqual(len(got), 30)

    def test_a_scheduler_leaves_auto_to_the_command_line_and_yields_to_a_schedule(self):
        auto = {'warmup_min_lr': 'auto', 'warmup_max_lr': 'auto', 'warmup_num_steps': 'auto',
                'total_num_steps': 'auto'}
        whole = {'warmup_max_lr': 5e-5, 'warmup_num_steps': 4, 'total_num_steps': 20}
        got, _ = self.rates(auto, 'WarmupDecayLR', '--steps=20', '--warmup=20%')
        self.assertEqual(got, self.rates(whole, 'WarmupDecayLR', '--steps=20')[0])
        self.assertEqual(max(got), 5e-5)
        got, told = self.rates(whole, 'WarmupDecayLR', '--schedule=constant', '--warmup=2',
                               '--lr=1e-3')
        self.assertEqual(got, [5e-4, 1e-3, 1e-3])
        self.assertIn(': scheduler.type (--schedule), ', told)
        self.refuse(405, 2, '--warmup=2', '--config', self.path('ds.json'),
                    part='scheduler.params.warmup_num_steps 4: its warmup has 4 steps')
        for option, fix in (('--lr-end=1e-6', 'cosine'), ('--decay=2', 'wsd')):
            self.refuse(402, 2, option, '--quiet', '--config', self.path('ds.json'),
                        part=f'has a scheduler of its own, and {option.split("=")[0]} is a part of '
                             f'another one. Fix: --schedule {fix}')

    def test_a_resume_has_the_scheduler_of_its_store(self):
        keep = ('--durability=step', '--lr=1e-4')
        first = {'warmup_num_steps': 4, 'warmup_type': 'linear'}
        self.rates(first, 'WarmupLR', '--steps=3', *keep)
        got, _ = self.rates(first, 'WarmupLR', '--steps=5', '--resume', *keep)
        self.assertEqual(got[-2:], [5e-5, 7.5e-5])
        self.put(json.dumps({'scheduler': {'type': 'WarmupLR'}}))
        for args in (('--config', self.path('ds.json')), ()):
            done = self.train('--steps=6', '--resume', *keep, *args)
            self.assert_refused_whole(done, 615, 'a --config with that scheduler, or --allow')

    def assert_refused_whole(self, done, code, part):
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f'error[E{code}]', done.stderr)
        self.assertIn(part, done.stderr)

    def test_what_becomes_of_each_key_is_explained(self):
        done = run('train', '--explain-config', '--clip=1', '--seq-len=32', '--config', self.put(
            '{' + BATCH + '"gradient_clipping": 2, "optimizer": {"type": "AdamW", "params": '
            '{"lr": "auto"}}, "steps_per_print": 9, "_note": [], '
            '"tensorboard": {"enabled": true, "output_path": "logs"}}'))
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        rows = {line.split()[0]: ' '.join(line.split()[1:]) for line in done.stdout.splitlines()}
        self.assertEqual(rows['train_batch_size'], '4 --batch-tokens 128')
        self.assertEqual(rows['gradient_clipping'],
                         '2 --clip of the command line the command line wins')
        self.assertEqual(rows['optimizer.params.lr'], '"auto" --lr 5e-5 "auto": what Trainer takes')
        self.assertEqual(rows['optimizer.params.eps'], "absent --eps 1e-8 DeepSpeed's default")
        self.assertEqual(rows['tensorboard.enabled'], 'true --tfevents logs/DeepSpeedJobName')
        self.assertEqual(rows['_note'], '[...] - its name begins with _')
        self.assertRegex(rows['steps_per_print'], '^9 - hoistway tells')

    def test_all_options_of_a_key_are_explained_and_all_keys_of_an_option(self):
        drive = {'device': 'nvme', 'nvme_path': '/d'}
        rows = self.explain({
            'train_micro_batch_size_per_gpu': 2, 'gradient_accumulation_steps': 4,
            'fp16': {'enabled': True, 'loss_scale': 128}, 'bf16': {'enabled': False},
            'zero_optimization': {'stage': 3, 'offload_optimizer': drive, 'offload_param': drive},
            'tensorboard': {'enabled': True, 'output_path': 'logs', 'job_name': 'x'}})
        homes = '--place states=nvme,weights=nvme'
        for key, row in (
                ('train_micro_batch_size_per_gpu', '2 --batch-tokens 256'),
                ('gradient_accumulation_steps',
                 '4 --batch-tokens 256 see train_micro_batch_size_per_gpu'),
                ('fp16.loss_scale', '128 --loss-scale 128'),
                ('fp16.loss_scale', '128 --loss-scaling static'),
                ('bf16.enabled', 'false --precision fp16 see fp16.enabled'),
                ('zero_optimization.offload_optimizer.device', f'"nvme" {homes}'),
                ('zero_optimization.offload_param.device',
                 f'"nvme" {homes} see zero_optimization.offload_optimizer.device'),
                ('zero_optimization.offload_param.nvme_path',
                 '"/d" --store /d see zero_optimization.offload_optimizer.nvme_path'),
                ('tensorboard.job_name', '"x" --tfevents logs/x see tensorboard.enabled')):
            self.assertIn((key, row), rows)

    def test_a_section_without_its_key_has_the_default(self):
        """Precision is fp32 where no section that is there says another, or leaves it open."""
        for config, key, row in (
                ({'bf16': {}}, 'bf16', "absent --precision fp32 DeepSpeed's default"),
                ({'fp16': {}}, 'fp16', "absent --precision fp32 DeepSpeed's default"),
                ({'fp16': {'hysteresis': 2}}, 'fp16',
                 "absent --precision fp32 DeepSpeed's default"),
                ({'bf16': {}, 'fp16': {}}, 'bf16', "absent --precision fp32 DeepSpeed's default"),
                ({'bf16': {}, 'fp16': {'enabled': False}}, 'fp16', 'false --precision fp32'),
                ({'bf16': {}, 'fp16': {'enabled': True}}, 'fp16', 'true --precision fp16'),
                ({'bf16': {'enabled': True}, 'fp16': {}}, 'bf16', 'true --precision bf16')):
            rows = [r for r in self.explain(config) if '--precision' in r[1]]
            self.assertEqual(rows, [(f'{key}.enabled', row)], config)
            self.assertIn(('gradient_clipping', "absent --clip 1.0 DeepSpeed's default"),
                          self.explain(config))
        rows = ' '.join(row for _, row in self.explain({'bf16': None}))
        self.assertNotIn('--precision', rows)
        self.assertIn('says --clip 1.0, --precision fp32\n', self.plan('{"fp16": {}}').stderr)

    def test_the_rates_of_a_scheduler_are_explained(self):
        config = {'optimizer': {'type': 'AdamW', 'params': {'lr': 3e-4, 'betas': 'auto'}},
                  'bf16': {'enabled': 'auto'},
                  'scheduler': {'type': 'WarmupDecayLR', 'params': {
                      'warmup_max_lr': 'auto', 'warmup_num_steps': 'auto',
                      'total_num_steps': 'auto'}}}
        rows = dict(self.explain(config, '--steps=50', '--warmup=10%'))
        self.assertEqual(rows['scheduler.type'][:42],
                         '"WarmupDecayLR" the rates of WarmupDecayLR')
        more = dict(self.explain({'fp16': {'fp16_master_weights_and_grads': False}, 'scheduler': {
            'type': 'WarmupLR', 'params': {'warmup_num_steps': 9}}}))
        self.assertEqual(more['fp16.fp16_master_weights_and_grads'],
                         'false - no difference: hoistway keeps master weights exact.')
        self.assertEqual(more['scheduler.params.warmup_num_steps'], '9 9 steps')
        for key, row in (('params.warmup_max_lr', '"auto" --lr 0.0003 see optimizer.params.lr'),
                         ('params.warmup_num_steps', '"auto" 5 steps "auto": --warmup'),
                         ('params.warmup_type', "absent log DeepSpeed's default"),
                         ('params.warmup_min_lr', "absent 0 DeepSpeed's default")):
            self.assertEqual(rows[f'scheduler.{key}'], row)
        self.assertRegex(rows['scheduler.params.total_num_steps'], '^"auto" 50 steps ')
        rows = dict(self.explain(config, '--optimizer=sgd', '--schedule=constant', '--lr=1e-3'))
        wins = 'the command line wins, which has its own'
        self.assertEqual(rows['scheduler.type'], f'"WarmupDecayLR" - {wins}')
        self.assertEqual(rows['optimizer.params.betas'], f'"auto" - {wins}')
        self.assertEqual(rows['optimizer.params.lr'],
                         '0.0003 --lr of the command line the command line wins')


load_tests = by_turns

if __name__ == '__main__':
    unittest.main()
