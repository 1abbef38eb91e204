#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run and a plan tell of a --config FILE: what it says, loses and asks for in vain.

    ds_told.py PATH_OF_HOISTWAY
"""
import json
import os
import re
import sys
import unittest

from ds_case import BATCH, Config
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *['..'] * 2))
from short import by_turns  # noqa: E402


class Told(Config):
    def test_a_section_whose_precision_is_overruled_yields_with_it(self):
        """Its loss scale, or the type of its states, is neither taken nor a reason to refuse."""
        fp16 = {'enabled': True, 'loss_scale': 128, 'initial_scale_power': 4}
        bf16 = {'enabled': True, 'bf16_optimizer_states': True}
        scale = '--loss-scale 128, --loss-scaling static'
        for config, own, says, lost, idle in (
                ({'fp16': fp16}, 'bf16', '', ['fp16.enabled', 'fp16.loss_scale',
                                              'fp16.initial_scale_power'], []),
                ({'fp16': fp16}, 'fp32', '', ['fp16.enabled', 'fp16.loss_scale',
                                              'fp16.initial_scale_power'], []),
                ({'fp16': fp16, 'bf16': {'enabled': False}}, 'fp16', scale, ['fp16.enabled'],
                 ['fp16.initial_scale_power']),
                ({'bf16': bf16}, 'fp16', '', ['bf16.enabled', 'bf16.bf16_optimizer_states'], []),
                ({'bf16': bf16}, 'bf16', '--state bf16', ['bf16.enabled'], []),
                ({'bf16': bf16, 'fp16': {**fp16, 'enabled': False}}, 'fp16', '',
                 ['bf16.enabled', 'bf16.bf16_optimizer_states'],
                 ['fp16.loss_scale', 'fp16.initial_scale_power']),
                ({'bf16': {'enabled': 'auto'}, 'fp16': {**fp16, 'enabled': 'auto'}}, 'fp16',
                 scale, [], ['fp16.initial_scale_power']),
                ({'bf16': {'enabled': 'auto'}, 'fp16': {'enabled': False}}, 'fp16', '',
                 ['fp16.enabled'], []),
                ({'bf16': {'enabled': 'auto'}, 'fp16': {**fp16, 'enabled': 'auto'}}, 'bf16', '',
                 [], ['fp16.loss_scale', 'fp16.initial_scale_power'])):
            with self.subTest(config, own=own):
                done = self.plan(json.dumps(config), f'--precision={own}')
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f'says --clip 1.0{", " * bool(says)}{says}\n', done.stderr)
                for what, keys in (('the command line wins over [^ ]+', [
                        f'{key} (--precision)' for key in lost]),
                        ('of no effect here, as --explain-config tells', idle)):
                    told = re.findall(f'(?m)^note.I405. {what}: (.*)$', done.stderr)
                    self.assertEqual(told, [', '.join(keys)] * bool(keys))
        self.assertEqual(
            self.weights('--precision=bf16', '--config', self.put(json.dumps({'fp16': fp16}))),
            self.weights('--precision=bf16', '--clip=1'))

    def test_every_key_that_the_command_line_wins_over_is_named(self):
        moments = {'type': 'AdamW', 'params': {'betas': [0.9, 0.95], 'weight_decay': 0.1}}
        offload = {'stage': 3, **{f'offload_{what}': {'device': 'nvme', 'nvme_path': self.path('s')}
                                  for what in ('optimizer', 'param')}}
        acts = {'activation_checkpointing': {'cpu_checkpointing': True}}
        batch = {'train_batch_size': 4, 'train_micro_batch_size_per_gpu': 2,
                 'gradient_accumulation_steps': 2}
        for config, own, lost in (
                ({'optimizer': moments}, '--optimizer=adamw', [
                    f'optimizer.{key}' for key in ('type', 'params.betas', 'params.weight_decay')]),
                ({'zero_optimization': offload, **acts}, '--place=states=dram', [
                    'zero_optimization.offload_optimizer.device',
                    'zero_optimization.offload_param.device',
                    'activation_checkpointing.cpu_checkpointing']),
                ({'zero_optimization': offload}, f'--store={self.path("other")}', [
                    'zero_optimization.offload_optimizer.nvme_path',
                    'zero_optimization.offload_param.nvme_path']),
                (batch, '--batch-tokens=128', list(batch)),
                ({'fp16': {'enabled': True, 'loss_scale': 128}}, '--loss-scale=256',
                 ['fp16.loss_scale']),
                ({**batch, 'gradient_clipping': 'auto'}, '--clip=2', [])):
            with self.subTest(own):
                done = self.plan(json.dumps(config), own)
                self.assertEqual(done.returncode, 0, done.stderr)
                told = re.findall('(?m)^note.I405. the command line wins over [^ ]+: (.*)$',
                                  done.stderr)
                option = own.split('=')[0]
                self.assertEqual(told, [', '.join(f'{key} ({option})' for key in lost)]
                                 * bool(lost))

    def test_all_keys_of_no_effect_are_named_in_as_many_notes_as_they_need(self):
        keys = ['overlap_comm', 'contiguous_gradients', 'reduce_scatter', 'allgather_partitions',
                'round_robin_gradients']
        sizes = ['reduce_bucket_size', 'allgather_bucket_size', 'sub_group_size',
                 'stage3_max_live_parameters', 'stage3_max_reuse_distance',
                 'stage3_prefetch_bucket_size', 'stage3_param_persistence_threshold']
        aio = {'block_size': 4096, 'queue_depth': 4, 'thread_count': 2, 'single_submit': True}
        zero = {'stage': 3, **dict.fromkeys(keys, True), **dict.fromkeys(sizes, 7)}
        told = self.plan(json.dumps({'zero_optimization': zero, 'aio': aio})).stderr
        notes = re.findall('(?m)^note.I405. of no effect here, [^:]*: (.*)$', told)
        self.assertGreater(len(notes), 1, told)
        paths = [f'zero_optimization.{key}' for key in (*keys, *sizes)]
        self.assertEqual(', '.join(notes), ', '.join(paths + [f'aio.{key}' for key in aio]))

    def test_the_command_line_wins_and_says_so(self):
        text = '{"gradient_clipping": 0.25, "bf16": {"enabled": "true"}, "steps_per_print": 1}'
        done = self.plan(text, '--clip=0.5')
        self.assertIn('ds.json says --precision bf16\n', done.stderr)
        self.assertIn(': gradient_clipping (--clip)\n', done.stderr)
        self.assertIn('warning[W405] ', done.stderr)
        self.assertIn('which count without them: bf16.enabled in line 1 is "true"\n', done.stderr)
        self.assertEqual(self.weights('--clip=0.001', '--config', self.put(
            '{"gradient_clipping": 0.25}')), self.weights('--clip=0.001'))

    def test_all_words_in_quotes_are_named(self):
        done = self.plan('{"bf16": {"enabled": "true"},\n"fp16": {"enabled": "false", '
                         '"auto_cast": "false"}}')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count('warning[W405]'), 1, done.stderr)
        self.assertIn('without them: bf16.enabled in line 1 is "true", fp16.enabled in line 2 is '
                      '"false", fp16.auto_cast in line 2 is "false"\n', done.stderr)
        keys = ('contiguous_gradients', 'reduce_scatter', 'use_multi_rank_bucket_allreduce',
                'allgather_partitions', 'overlap_comm', 'compute_grad_norm', 'parameter_alignment',
                'memory_efficient_linear')
        told = self.plan(json.dumps({'zero_optimization': dict.fromkeys(keys, 'true')})).stderr
        lines = re.findall('(?m)^warning.W405. .* without them: (.*)$', told)
        self.assertGreater(len(lines), 1, told)
        self.assertEqual(', '.join(lines), ', '.join(
            f'zero_optimization.{key} in line 1 is "true"' for key in keys))

    def told_idle(self, config, *args):
        """A plan names it as of no effect; --explain-config says the same of it."""
        done = self.plan(json.dumps(config), *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = re.findall(r'(?m)of no effect here, as --explain-config tells: (.*)$', done.stderr)
        names = found[0].split(', ') if found else []
        rows = dict(self.explain(config, *args, verb='plan'))
        for name in names:
            self.assertRegex(rows[name], '^[^ ]+ (- |.* an option of train alone$)')
        return names

    def test_an_option_that_decides_nothing_is_named(self):
        zero = 'zero_optimization'
        offload = f'{zero}.offload_optimizer'
        for config, idle in (
                ({zero: {'offload_optimizer': {'device': 'cpu', 'nvme_path': '/d'}}},
                 [f'{offload}.nvme_path']),
                ({zero: {'offload_optimizer': {'device': 'none'}, 'cpu_offload': True}},
                 [f'{zero}.cpu_offload']),
                ({zero: {'offload_optimizer': {'device': 'auto'}, 'cpu_offload': True}},
                 [f'{zero}.cpu_offload']),
                ({'fp16': {'enabled': False, 'loss_scale': 128}}, ['fp16.loss_scale']),
                ({'fp16': {'enabled': True, 'loss_scale': 128, 'initial_scale_power': 12}},
                 ['fp16.initial_scale_power']),
                ({'fp16': {'enabled': True, 'loss_scale': 0, 'initial_scale_power': 12}}, []),
                ({'tensorboard': {'enabled': True, 'output_path': 'a', 'job_name': 'b'}},
                 [f'tensorboard.{key}' for key in ('enabled', 'output_path', 'job_name')]),
                ({'csv_monitor': {'enabled': True, 'output_path': 'a'}},
                 ['csv_monitor.enabled', 'csv_monitor.output_path']),
                ({'csv_monitor': {'enabled': False, 'output_path': 'a'}},
                 ['csv_monitor.output_path']),
                ({zero: {'zero_hpz_partition_size': 1}}, [f'{zero}.zero_hpz_partition_size']),
                ({'optimizer': {'type': 'Adam', 'params': {'torch_adam': True,
                                                           'weight_decay': 0.1}}},
                 ['optimizer.params.torch_adam']),
                ({'scheduler': {'type': 'WarmupLR', 'params': {
                    'warmup_num_steps': 4, 'total_num_steps': 9, 'cos_min_ratio': 0.5}}},
                 ['scheduler.params.total_num_steps', 'scheduler.params.cos_min_ratio']),
                ({**json.loads('{' + BATCH + '"seed": 3}'), 'gradient_clipping': 0.5,
                  'train_micro_batch_size_per_gpu': 2, 'gradient_accumulation_steps': 2,
                  'bf16': {'enabled': False}, 'fp16': {'enabled': 'auto'},
                  'tensorboard': {'enabled': False},
                  'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-3, 'torch_adam': False}},
                  zero: {'stage': 2, 'offload_param': {'device': 'none'}, 'cpu_offload': False,
                         'zero_quantized_weights': False}}, [])):
            with self.subTest(config):
                self.assertEqual(self.told_idle(config), idle)
        both = {'optimizer': {'type': 'AdamW', 'params': {'betas': [0.9, 0.99]}},
                'scheduler': {'type': 'WarmupLR', 'params': {'warmup_num_steps': 4}}}
        self.assertEqual(self.told_idle(both, '--optimizer=sgd', '--schedule=constant'), [])


load_tests = by_turns

if __name__ == '__main__':
    unittest.main()
