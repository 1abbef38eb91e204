#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hoistway convert: files of other trainers, written anew with the keys of published ones. What it
prints prep and train take themselves.

    test_convert.py PATH_OF_HOISTWAY
"""
import contextlib
import dataclasses
import enum
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

from support import need

need('yaml')
from hoistway import convert, convert_kinds, options  # noqa: E402
from hoistway.errors import Refusal  # noqa: E402

PROGRAM = os.path.abspath(sys.argv.pop(1))
AXOLOTL = '''base_model: Org/model
datasets:
  - path: Org/chats
    type: chat_template
    split: train[:20%]
val_set_size: 0.1
output_dir: ./outputs/out
sequence_len: 2048
sample_packing: true
gradient_accumulation_steps: 8
micro_batch_size: 2
num_epochs: 3
optimizer: adamw_torch_fused
lr_scheduler: cosine
learning_rate: 2e-5
bf16: auto
tf32: false
gradient_checkpointing: true
logging_steps: 1
flash_attention: true
warmup_ratio: 0.1
evals_per_epoch: 2
saves_per_epoch: 1
weight_decay: 0.0
special_tokens:
  pad_token: "<|end_of_text|>"
wandb_project:
adapter:
load_in_8bit: false
'''
FACTORY = '''model_name_or_path: Org/model
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: full
deepspeed: ds_z3.json
dataset: identity
cutoff_len: 1024
preprocessing_num_workers: 16
output_dir: saves/full/sft
save_steps: 500
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_steps: 20
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
'''
ACCELERATE = '''compute_environment: LOCAL_MACHINE
deepspeed_config:
  gradient_accumulation_steps: 1
  gradient_clipping: 0.5
  offload_optimizer_device: nvme
  offload_param_device: cpu
  offload_optimizer_nvme_path: /nvme
  zero3_init_flag: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
mixed_precision: bf16
num_machines: 1
num_processes: 4
use_cpu: false
'''
ADAM = ['--betas', '0.9,0.999', '--eps', '1e-08', '--weight-decay']
GIVEN = ('--model', 'm', '--data', 'd.safetensors', '--seq-len', '64')


class Convert(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.realpath(scratch.name)

    def put(self, text, name='run.yml'):
        path = os.path.join(self.folder, name)
        with open(path, 'wb') as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def start(self, *words):
        return subprocess.run([PROGRAM, 'convert', *words], capture_output=True, text=True,
                              env={**os.environ, 'HOISTWAY_PYTHON': sys.executable},
                              timeout=60, cwd=self.folder, check=False)

    def commands(self, text, *words):
        """Those that are printed, of which prep and train take theirs; and what is told."""
        done = self.start(self.put(text), *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        made = [shlex.split(line) for line in done.stdout.splitlines()]
        export = made[-1][made[-1].index('--export') + 1] if '--export' in made[-1] else ''
        folder = ['mkdir', '-p', os.path.dirname(export)]  # before train
        self.assertEqual(made[-2:-1] == [folder], '/' in export.removeprefix('./'))
        made = [line for line in made if line != folder]
        for line in made:
            if line[:2] == ['hoistway', 'prep']:
                options.parse(line[2:])
        train = made[-1][made[-1].index('train') + 1:]
        taken = [word for word in train]
        if '--config' in taken:  # which is not here
            at = taken.index('--config')
            del taken[at:at + 2]
        tried = subprocess.run([PROGRAM, 'train', '--print-options', *taken], capture_output=True,
                               text=True, timeout=60, check=False)
        self.assertEqual((tried.returncode, tried.stderr), (0, ''))
        return made, done.stderr

    def refuse(self, text, part, *words, code=405):
        done = self.start(self.put(text), *words)
        self.assertEqual((done.returncode, done.stdout), (2, ''), done.stderr)
        self.assertRegex(done.stderr, rf'\Aerror\[E{code}\] [^\n]*\n\Z')
        self.assertIn(part, done.stderr)

    def test_axolotl(self):
        made, told = self.commands(AXOLOTL)
        self.assertEqual(made[0][:2] + made[0][3:],
                         ['python3', '-c', 'Org/chats', 'train[:20%]', 'chats.jsonl'])
        self.assertEqual(made[1], ['hoistway', 'prep', '--model', 'Org/model', '--data',
                                   'chats.jsonl', '--rows', 'messages', '--out',
                                   'data.safetensors'])
        self.assertEqual(made[2], [
            'hoistway', 'train', '--lr', '2e-05', *ADAM, '0.0', '--clip', '1.0', '--schedule',
            'cosine', '--warmup', '10%', '--epochs', '3', '--precision', 'bf16', '--seed', '42',
            '--store', './outputs/out.store', '--export', './outputs/out', '--seq-len', '2048',
            '--batch-tokens', '32768', '--eval-split', '0.1', '--model', 'Org/model', '--data',
            'data.safetensors', '--pack', 'on', '--long', 'drop'])
        self.assertEqual(told, 'note[I405] left out, as they change no number: evals_per_epoch, '
                               'flash_attention, gradient_checkpointing, load_in_8bit, '
                               'logging_steps, saves_per_epoch, special_tokens, tf32\n')

    def test_llama_factory(self):
        self.put('{"identity": {"file_name": "identity.json"}}', 'dataset_info.json')
        self.put_deepspeed()
        made, told = self.commands(FACTORY + 'dataset_dir: .\n')
        self.assertEqual(made[0], ['hoistway', 'prep', '--model', 'Org/model', '--data',
                                   './identity.json', '--rows', 'alpaca', '--out',
                                   'data.safetensors'])
        self.assertEqual(made[1], [
            'hoistway', 'train', '--lr', '1e-05', *ADAM, '0', '--clip', '1.0', '--schedule',
            'cosine', '--warmup', '20', '--epochs', '3.0', '--precision', 'bf16', '--seed', '42',
            '--store', 'saves/full/sft.store', '--export', 'saves/full/sft', '--config',
            'ds_z3.json', '--seq-len', '1024', '--batch-tokens', '2048', '--model', 'Org/model',
            '--data', 'data.safetensors', '--pack', 'off', '--long', 'refuse'])
        self.assertIn('ddp_timeout, do_train, preprocessing_num_workers, save_steps, trust_', told)
        self.refuse(FACTORY, 'run.yml:7:1: dataset: \'identity\' is not in data/dataset_info.json')
        made, _ = self.commands(FACTORY, '--data', 'other.json', '--rows', 'alpaca', '--ranks', '4')
        self.assertIn('other.json', made[0])
        self.assertEqual(made[1][:4], ['mpirun', '-n', '4', 'hoistway'])
        self.assertIn('8192', made[1])

    def put_deepspeed(self, **sections):
        """A configuration as published ones are, with other sections."""
        auto = {key: 'auto' for key in (
            'train_batch_size', 'train_micro_batch_size_per_gpu', 'gradient_accumulation_steps',
            'gradient_clipping')}
        self.put(json.dumps({**auto, 'bf16': {'enabled': 'auto'}, 'zero_optimization': {'stage': 3},
                             **sections}), 'ds_z3.json')

    def converted(self, text, **sections):
        """Options of train, which takes them beside the file; and what both tell."""
        self.put_deepspeed(**sections)
        made, told = self.commands(text, '--data', 'a.json', '--rows', 'alpaca')
        train = made[-1][made[-1].index('train') + 1:]
        tried = subprocess.run([PROGRAM, 'train', '--print-options', *train], capture_output=True,
                               text=True, timeout=60, check=False, cwd=self.folder)
        self.assertEqual(tried.returncode, 0, tried.stderr)
        self.assertNotIn('wins over', tried.stderr)
        return dict(zip(train[::2], train[1::2])), told

    def made_of(self, train):
        """The options that a run with these, and what their --config says, has."""
        done = subprocess.run([PROGRAM, 'train', '--print-options', *sum(train.items(), ())],
                              capture_output=True, text=True, timeout=60, check=True,
                              cwd=self.folder)
        return json.loads(done.stdout)

    def test_the_scheduler_of_a_deepspeed_file_counts(self):
        file = {'type': 'WarmupDecayLR', 'params': dict.fromkeys(
            ('warmup_min_lr', 'warmup_max_lr', 'warmup_num_steps', 'total_num_steps'), 'auto')}
        plain, told = self.converted(FACTORY)
        self.assertEqual((plain['--schedule'], plain['--warmup']), ('cosine', '20'))
        self.assertNotIn('scheduler counts', told)
        for arguments, warmup in ((FACTORY, '20'), (FACTORY.replace('cosine', 'polynomial'), '20'),
                                  (FACTORY.replace('warmup_steps: 20\n', ''), '1'),
                                  (FACTORY.replace('warmup_steps: 20', 'warmup_ratio: 0.1'), '10%'),
                                  (FACTORY.replace('cosine', 'constant'), '20')):
            train, told = self.converted(arguments, scheduler=file)
            self.assertEqual({'--schedule', '--lr-end'} & set(train), set())
            self.assertEqual((train['--warmup'], train['--lr']), (warmup, '1e-05'))
            self.assertIn('its scheduler counts', told)
            self.assertEqual({**train, '--schedule': 'cosine', '--warmup': '20'}, plain)
        file['params'].update(warmup_num_steps=20, warmup_max_lr=1e-5)
        train, _ = self.converted(FACTORY, scheduler=file)
        self.assertEqual({'--warmup', '--lr', '--schedule'} & set(train), set())
        for key, value, named in (('warmup_num_steps', 30, 'warmup_steps'),
                                  ('warmup_max_lr', 2e-5, 'learning_rate')):
            self.put_deepspeed(scheduler={**file, 'params': {**file['params'], key: value}})
            self.refuse(FACTORY, f': {named}: ds_z3.json says {value} (scheduler.params.{key}), '
                        'and Trainer ends', '--data', 'a.json')

    def test_moments_of_8_bits_go_with_bf16(self):
        text = FACTORY.replace('deepspeed: ds_z3.json\n', '')
        for name in ('adamw_8bit', 'adamw_bnb_8bit', 'paged_adamw_8bit'):
            made, _ = self.commands(f'{text}optim: {name}\n', '--data', 'a.json')
            self.assertEqual(made[-1][made[-1].index('--state') + 1], '8bit')
            self.assertNotIn('--optimizer', made[-1])
        self.refuse(text.replace('bf16: true\n', '') + 'optim: adamw_8bit\n',
                    ': optim: hoistway has moments of 8 bits with bf16 alone', '--data',
                    'a.json')

    def test_the_optimizer_of_a_deepspeed_file_counts(self):
        params = dict.fromkeys(('lr', 'betas', 'eps', 'weight_decay'), 'auto')
        file = {'type': 'AdamW', 'params': params}
        plain, _ = self.converted(FACTORY)
        for arguments in (FACTORY, FACTORY + 'optim: adamw_8bit\n'):
            train, _ = self.converted(arguments, optimizer=file)
            self.assertEqual(train, plain)
        train, _ = self.converted(FACTORY + 'optim: sgd\n', optimizer=file)
        self.assertEqual(train, plain)
        params.update(lr=1e-5, betas=[0.9, 0.999], weight_decay=0)
        del params['eps']
        train, _ = self.converted(FACTORY, optimizer=file)
        self.assertEqual({'--lr', '--betas', '--eps', '--weight-decay', '--optimizer'} & set(train),
                         set())
        params['betas'] = [0.9, 0.95]
        self.put_deepspeed(optimizer=file)
        self.refuse(FACTORY, ': adam_beta1: ds_z3.json says [0.9, 0.95]', '--data', 'a.json')

    def test_what_a_deepspeed_file_says_is_what_the_arguments_say(self):
        train, _ = self.converted(FACTORY)
        self.assertEqual(train['--clip'], '1.0')
        for argument in ('', 'max_grad_norm: 0.5\n', 'max_grad_norm: 0\n'):
            train, _ = self.converted(FACTORY + argument, gradient_clipping=None)
            self.assertNotIn('--clip', train)  # DeepSpeed has its default then
            self.assertEqual(self.made_of(train)['clip'], 1.0)
        for bf16, precision in (({'enabled': 'auto'}, 'bf16'), ({'enabled': True}, 'bf16'),
                                ({}, 'fp32')):
            train, _ = self.converted(FACTORY, bf16=bf16)
            self.assertEqual('--precision' in train, bf16 == {'enabled': 'auto'})
            self.assertEqual(self.made_of(train)['precision'], precision)
        for key, value, named in (('gradient_clipping', 0.5, 'max_grad_norm'),
                                  ('bf16', {'enabled': False}, 'bf16'),
                                  ('fp16', {'enabled': True}, 'fp16'),
                                  ('gradient_accumulation_steps', 4, 'gradient_accumulation_steps'),
                                  ('train_batch_size', 3, 'gradient_accumulation_steps')):
            with self.subTest(key):
                self.put_deepspeed(**{key: value})
                self.refuse(FACTORY, f': {named}: ds_z3.json says ', '--data', 'a.json')
        self.put_deepspeed(train_batch_size=8)
        self.assertEqual(self.commands(FACTORY, '--data', 'a.json', '--ranks', '4')[0][1][0],
                         'mpirun')
        for text, part in (('{"a": 1, "a": 2}', 'a key is there twice'), ('[]', 'has no keys'),
                           ('{"a": 1,}', 'is no JSON'), ('[' * 100000, 'is no JSON')):
            self.put(text, 'ds_z3.json')
            self.refuse(FACTORY, part, '--data', 'a.json', code=404)
        os.remove(os.path.join(self.folder, 'ds_z3.json'))
        self.refuse(FACTORY, "'ds_z3.json' cannot be read", '--data', 'a.json', code=404)

    def test_another_mean_of_the_loss_is_refused(self):
        factory = FACTORY.replace('deepspeed: ds_z3.json\n', '')
        data = ('--data', 'a.json')
        self.refuse(factory + 'ignore_pad_token_for_loss: false\n', ':20:1: ignore_pad_tok', *data)
        self.commands(factory + 'ignore_pad_token_for_loss: true\n', *data)
        apart = factory + 'average_tokens_across_devices: false\n'
        self.refuse(apart, ':20:1: average_tokens_across_devices: another loss', *data,
                    '--ranks', '2')
        self.commands(apart, *data)
        self.commands(apart.replace('false', 'true'), *data, '--ranks', '2')
        for text, key, args in ((AXOLOTL, 'ignore_pad_token_for_loss', ()),
                                (ACCELERATE, 'average_tokens_across_devices', GIVEN)):
            self.refuse(f'{text}{key}: true\n', f':1: {key}: convert does not know it', *args)
        for line in ('liger_use_token_scaling: true', 'liger_rope: true'):
            if 'scaling' in line:
                self.refuse(AXOLOTL + line, ': liger_use_token_scaling: another loss')
                line = line.replace('true', 'false')
            self.commands(AXOLOTL + line + '\n')

    def test_texts_that_see_each_other_are_refused(self):
        text = FACTORY.replace('stage: sft', 'stage: pt').replace('deepspeed: ds_z3.json\n', '')
        for packing in ('', 'packing: true\n', 'packing: true\nneat_packing: true\n'):
            self.refuse(text + packing, 'texts of stage pt are joined', '--data', 'a.json')
        made, _ = self.commands(text + 'packing: false\n', '--data', 'a.json', '--rows', 'text')
        self.assertEqual(made[1][-4:], ['--pack', 'off', '--long', 'cut'])

    def test_accelerate(self):
        made, told = self.commands(ACCELERATE, *GIVEN)
        self.assertIn('give train --steps or --epochs, --batch-tokens and --lr', told)
        self.assertEqual(made, [[
            'mpirun', '-n', '4', 'hoistway', 'train', '--precision', 'bf16', '--clip', '0.5',
            '--zero-stage', '3', '--store', '/nvme', '--place', 'states=nvme,weights=dram',
            '--model', 'm', '--data', 'd.safetensors', '--seq-len', '64']])
        self.refuse(ACCELERATE, '--model: the file names no model')
        self.refuse(ACCELERATE.replace('num_processes: 4', 'num_processes: 4.5'),
                    'run.yml:14:1: num_processes: want a whole number', *GIVEN)
        self.refuse(ACCELERATE.replace('bf16\n', 'fp8\n'), 'run.yml:12:1: mixed_precision: fp8',
                    *GIVEN)
        at = 'run.yml:5:3: deepspeed_config.offload_optimizer_device: '
        both = ACCELERATE.replace('gradient_', 'deepspeed_config_file: a.json\n  gradient_', 1)
        self.refuse(both, 'accelerate ends where deepspeed_config_file is there, too', *GIVEN)
        param = ACCELERATE.replace('param_device: cpu', 'param_device: nvme')
        for text, store, left in (
                (param + '', '/nvme', False),
                (param.replace('optimizer_nvme_path: /', 'param_nvme_path: /'), '/nvme', False),
                (ACCELERATE.replace('optimizer_nvme_path: /', 'param_nvme_path: /'), 'out.store',
                 True)):
            made, told = self.commands(text, *GIVEN)
            self.assertEqual(made[0][made[0].index('--store') + 1], store)
            self.assertEqual('offload_param_nvme_path' in told, left)
        self.refuse(param.replace('  zero3', '  offload_param_nvme_path: /b\n  zero3'),
                    'over all drives', *GIVEN)
        self.refuse(ACCELERATE.replace('optimizer_device: nvme', 'optimizer_device: disk'), at,
                    *GIVEN)

    def test_training_arguments_as_transformers_writes_them(self):
        from transformers import TrainingArguments
        dump = {}
        for one in dataclasses.fields(TrainingArguments):
            default = None if one.default is dataclasses.MISSING else one.default
            dump[one.name] = default.value if isinstance(default, enum.Enum) else default
        dump.update(output_dir='out', learning_rate=2e-5, bf16=True, warmup_steps=0.05,
                    gradient_accumulation_steps=4)
        made, told = self.commands(json.dumps(dump, indent=2), *GIVEN)
        self.assertEqual(made, [[
            'hoistway', 'train', '--lr', '2e-05', *ADAM, '0.0', '--clip', '1.0', '--schedule',
            'linear', '--warmup', '5%', '--epochs', '3.0', '--precision', 'bf16', '--seed', '42',
            '--store', 'out.store', '--export', 'out', '--seq-len', '64', '--batch-tokens', '2048',
            '--model', 'm', '--data', 'd.safetensors']])
        self.assertIn('logging_steps', told)
        made, _ = self.commands(json.dumps(dump), '--model', 'm', '--data', 'chats.jsonl', '--rows',
                                'messages', '--seq-len', '64')
        self.assertEqual(made[0], ['hoistway', 'prep', '--model', 'm', '--data', 'chats.jsonl',
                                   '--rows', 'messages', '--out', 'data.safetensors'])
        self.assertIn('data.safetensors', made[1])
        # what is not as Trainer has it by itself is refused
        for key, value in (('label_smoothing_factor', 0.1), ('neftune_noise_alpha', 5),
                           ('optim', 'adamw_bnb_8bit'), ('lr_scheduler_type', 'polynomial'),
                           ('optim_args', 'a=b'), ('tf32', True), ('data_seed', 3),
                           ('train_sampling_strategy', 'group_by_length'), ('adam_beta1', 1.5),
                           ('num_train_epochs', 0), ('learning_rate', 0)):
            with self.subTest(key):
                self.refuse(json.dumps({**dump, 'bf16': False, key: value}), f': {key}: ', *GIVEN)

    def test_what_changes_what_is_trained_is_refused_by_its_place(self):
        for line in ('adapter: lora', 'lora_r: 8', 'load_in_8bit: true', 'load_in_4bit: true',
                     'rl: dpo', 'reward_model: true', 'optimizer: lion_pytorch', 'unknown_key: 1',
                     'lr_scheduler: rex', 'chat_template: llama3', 'train_on_inputs: maybe',
                     'plugins: [a.b.C]', 'rope_scaling: {factor: 2}', 'neftune_noise_alpha: 5',
                     'val_set_size: 2000', 'max_grad_norm: -1', 'lr_groups: [{name: a}]',
                     'tokens: ["<a>"]', 'relora_steps: 10', 'pretraining_dataset: [{path: a}]'):
            key = line.partition(':')[0]
            rest = ''.join(one for one in AXOLOTL.splitlines(True)
                           if not one.startswith(f'{key}:'))
            at = rest.count('\n') + 1
            with self.subTest(line):
                self.refuse(rest + line, f'run.yml:{at}:1: {key}: ')
        for line in ('finetuning_type: lora', 'stage: dpo', 'quantization_bit: 4', 'packing: true',
                     'template: llama3', 'max_samples: 1000', 'pure_bf16: true', 'lora_rank: 8',
                     'use_galore: true', 'optim: adafactor', 'optim: lion_8bit'):
            key = line.partition(':')[0]
            rest = ''.join(one for one in FACTORY.splitlines(True)
                           if not one.startswith((f'{key}:', 'deepspeed:')))
            with self.subTest(line):
                self.refuse(rest + line, f': {key}: ', '--data', 'a.jsonl')
        self.put_deepspeed()
        self.refuse(FACTORY.replace('finetuning_type: full\n', ''), 'lora (absent)', '--data', 'a')
        for kind in ('alpaca', 'sharegpt', '{field: a}'):
            self.refuse(AXOLOTL.replace('type: chat_template', f'type: {kind}'),
                        'run.yml:4:5: datasets[0].type: ')
        self.refuse(AXOLOTL + 'lora_r: 8\nrl: kto\nadapter2: a\n', 'Refused are also: rl, adapter2')
        self.refuse(AXOLOTL + 'sequence_lenn: 8\nrl: kto\n',
                    'Did you mean sequence_len? Refused are also: rl')

    def test_what_a_file_leaves_to_its_program_is_told(self):
        self.refuse(AXOLOTL.replace('bf16: auto\n', ''), 'run.yml: bf16: it is not there')
        self.refuse(AXOLOTL.replace('learning_rate: 2e-5\n', ''), 'learning_rate: it is not there')
        made, told = self.commands(AXOLOTL.replace('warmup_ratio: 0.1\n', ''))
        self.assertIn('3%', made[2])
        self.assertIn('100 at most', told)

    def test_a_constant_rate_has_no_warmup(self):
        for name in ('constant', 'constant_with_warmup'):
            made, _ = self.commands(AXOLOTL.replace('cosine', name))
            self.assertEqual('--warmup' in made[2], name != 'constant')
            self.assertEqual(made[2][made[2].index('--schedule') + 1], 'constant')

    def test_own_template_is_the_users_word(self):
        named = AXOLOTL + 'chat_template: llama3\n'
        self.refuse(named, '--own-template says so')
        self.assertEqual(self.commands(named, '--own-template')[0], self.commands(AXOLOTL)[0])

    def test_what_is_no_such_file_is_refused(self):
        for text, part in (('{', ':1:2: neither YAML nor JSON'), ('- a\n', ':1:1: no keys'),
                           ('', ':1:1: no keys'), ('a: 1\n', 'no key tells what it is of'),
                           ('{"zero_optimization": {"stage": 3}}', 'Fix: --config of train'),
                           ('base_model: a\nbase_model: b\n', ':2:1: \'base_model\' is there twi'),
                           ('a: ' + '[' * 20 + ']' * 20, 'more than 16 levels'),
                           ('a: ' + '[' * 5000, 'neither YAML nor JSON'),
                           ('? [a]\n: b\n', 'a key that is no text'),
                           (b'a: \xff', 'cannot be read'),
                           (b'a: \x00', 'neither YAML nor JSON'),
                           (b'#' * ((1 << 20) + 1), 'more than 1 MiB')):
            with self.subTest(text[:40]):
                self.refuse(text, part, code=404)
        for path in (self.folder, os.path.join(self.folder, 'none')):
            self.assertIn('error[E404]', self.start(path).stderr)
        self.assertEqual(self.start('a', '--modle').returncode, 2)

    def model(self, layers, **more):
        folder = os.path.join(self.folder, f'm{layers}{len(more)}')
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as file:
            json.dump({'num_hidden_layers': layers, **more}, file)
        return '--model', folder

    def only(self, text, *words):
        """--train-only of the command line, or why there is none; in this process."""
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
            try:
                convert.run([self.put(text), *words])
            except Refusal as refusal:
                return refusal.text
        train = shlex.split(told.getvalue().splitlines()[-1])
        return [train[i + 1] for i, word in enumerate(train) if word == '--train-only']

    def test_parameters_that_axolotl_leaves_unfrozen(self):
        every = ['model.embed_tokens.weight', 'model.norm.weight', 'model.layers.[0-9].*',
                 'model.layers.[12][0-9].*', 'model.layers.3[01].*']
        for patterns, globs in (
                (['^lm_head.weight$', 'model.layers.3[01]+.'],
                 ['lm_head.weight', 'model.layers.3[01].*']),
                (['model.layers.2.', 'model.layers.(28|30|31).'],
                 ['model.layers.2.*', 'model.layers.28.*', 'model.layers.3[01].*']),
                (['model.'], every), (['.+head'], ['lm_head.weight']), (['model', 'lm'], [])):
            text = f'{AXOLOTL}unfrozen_parameters: {json.dumps(patterns)}\n'
            with self.subTest(patterns):
                self.assertEqual(self.only(text, *self.model(32)), globs)
        for patterns, why in ((['layers.3'], 'no tensor of the model would train'),
                              (['model.layers.3.mlp'], 'model.layers.3.mlp.gate_proj.weight and '
                                                       'not self_attn.q_proj.weight'),
                              (['.+weight'], 'q_proj.weight and not self_attn.q_proj.bias'),
                              (['^model.embed_tokens.weight$[:320]'], 'not some of its rows'),
                              (['('], 'no expression'), ([3], 'want a list'), ({'a': 1}, 'want a'),
                              ([f'model.layers.{n}{n}.' for n in range(1, 10)], '9 globs')):
            text = f'{AXOLOTL}unfrozen_parameters: {json.dumps(patterns)}\n'
            with self.subTest(patterns):
                self.assertRegex(self.only(text, *self.model(100)),
                                 f'unfrozen_parameters: .*{re.escape(why)}')
        head = AXOLOTL + 'unfrozen_parameters: [lm_head]\n'
        made, _ = self.commands(head, *self.model(2))  # train takes it
        self.assertIn('--train-only', made[-1])
        self.assertIn('no tensor', self.only(head, *self.model(2, tie_word_embeddings=True)))
        self.assertIn('fp16 has no frozen', self.only(head.replace('bf16: auto', 'fp16: true'),
                                                      *self.model(2)))
        self.refuse(head, 'Fix: --model DIR with its config.json')
        for layers in (0, True, 'many', 10**9):
            self.assertIn('num_hidden_layers', self.only(head, *self.model(layers)))

    def test_layers_that_llama_factory_freezes(self):
        full = FACTORY.replace('deepspeed: ds_z3.json\n', '')
        freeze = full.replace('finetuning_type: full', 'finetuning_type: freeze')
        data = ('--data', 'a.jsonl', '--rows', 'alpaca', *self.model(32))
        for more, globs in (('', ['model.layers.3[01].*']),
                            ('freeze_trainable_layers: 12', ['model.layers.2[0-9].*',
                                                             'model.layers.3[01].*']),
                            ('freeze_trainable_layers: -3', ['model.layers.[0-2].*']),
                            ('freeze_trainable_layers: 99', ['model.layers.[0-9].*',
                                                             'model.layers.[12][0-9].*',
                                                             'model.layers.3[01].*']),
                            ('freeze_trainable_layers: 1\nfreeze_extra_modules: lm_head',
                             ['lm_head.weight', 'model.layers.31.*'])):
            with self.subTest(more):
                self.assertEqual(self.only(freeze + more, *data), globs)
        for more, why in (('freeze_trainable_layers: 0', 'freeze_trainable_layers: want a whole'),
                          ('freeze_trainable_modules: mlp', 'freeze_trainable_modules: mlp: a l'),
                          ('freeze_extra_modules: norm', 'freeze_extra_modules: it trains mod'),
                          ('freeze_extra_modules: lm_heed',
                           'freeze_extra_modules: lm_heed is no module outside of the layers'),
                          ('use_llama_pro: true', 'use_llama_pro: ')):
            with self.subTest(more):
                self.assertIn(why, self.only(freeze + more, *data))
        self.assertIn('Fix: --model DIR with its', self.only(freeze, *data[:4]))
        made, told = self.commands(full + 'freeze_trainable_layers: 3', *data)
        self.assertNotIn('--train-only', made[-1])
        self.assertIn('freeze_trainable_layers', told)

    def test_a_key_of_a_table_is_in_one_of_them_alone(self):
        for kind in convert_kinds.KINDS:
            for key in kind.used:
                with self.subTest(kind.name, key=key):
                    self.assertIsNone(convert_kinds._in(key, kind.left))
                    self.assertEqual(len(kind.used), len(set(kind.used)))


if __name__ == '__main__':
    unittest.main()
