#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--config FILE, row by row of the table of keys: what is refused, what is not, and options.

    ds_rows.py PATH_OF_HOISTWAY docs/deepspeed.md

The page has the table that the program goes by (test tools/config_page), so no row is left out.
"""
import json
import os
import re
import sys
import unittest

from program import Folder, run
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'views'))
from logs import FILE, events  # noqa: E402

PAGE = os.path.abspath(sys.argv.pop(1))
HARMLESS = re.compile(r' \(not refused: (.*)\)$')
# Values that a refused row takes no matter of, by the type that the page says.
REFUSED = {'true or false': (True, False), 'a whole number': (7, 2), 'a number': (7, 0.5),
           'a text': ('sum', 'fp8')}
TREES = {'tensor_parallel': ({'autotp_size': 2}, {'autotp_size': 8, 'preset_model': 'llama'})}
# The part of a file that a key needs beside it to be understood.
BESIDE = {'optimizer': {'type': 'SGD'},
          'scheduler': {'type': 'WarmupLR', 'params': {'warmup_num_steps': 4}}}


def rows():
    """(path, type, values that are not refused) of each row whose verdict is refused."""
    with open(PAGE, encoding='utf-8') as f:
        for line in f:
            cells = [cell.strip() for cell in line.strip().strip('|').split(' | ')]
            if line.startswith('| `') and cells[4] == 'refused':
                harmless = HARMLESS.search(cells[5])
                yield (re.match('`([^`]+)`', cells[0])[1], cells[1],
                       harmless[1].split(' or ') if harmless else [])


def value_of(text):
    """The page calls these not refused: false, -1, mean, enabled: false, no autotp_size."""
    if text.startswith('no '):
        return {}
    name, colon, value = text.rpartition(': ')
    plain = json.loads(value) if re.match(r'(true|false|-?[\d.]+)$', value) else value
    return {name: plain} if colon else plain


def file_of(path, value):
    """Gives a configuration that value, and what its section cannot do without."""
    first, *keys = path.split('.')
    config = json.loads(json.dumps({first: BESIDE.get(first, {})} if keys else {}))
    at = config
    for key in [first, *keys][:-1]:
        at = at.setdefault(key, {})
    at[path.split('.')[-1]] = value
    return config


class Rows(Folder):
    def put(self, config):
        with open(self.path('ds.json'), 'w', encoding='utf-8') as f:
            f.write(config if isinstance(config, str) else json.dumps(config))
        return self.path('ds.json')

    def plan(self, config, *args):
        done = run('plan', '--model', self.path('model'), '--device=host', '--seq-len=32',
                   '--config', self.put(config), *args)
        self.assertEqual(done.returncode, 0, (config, done.stderr))
        return done.stderr

    def explained(self, config, verb='train'):
        done = run(verb, '--explain-config', '--seq-len=32', '--config', self.put(config))
        self.assertEqual((done.returncode, done.stderr), (0, ''), config)
        return {line.split()[0]: ' '.join(line.split()[1:]) for line in done.stdout.splitlines()}

    def test_each_row_that_is_refused_is_refused_by_its_path(self):
        found = list(rows())
        self.assertGreater(len(found), 30)
        for path, kind, harmless in found:
            values = [v for v in REFUSED.get(kind, ()) if v not in map(value_of, harmless)]
            if kind == 'anything':
                values = TREES.get(path, ({'enabled': True}, {'x': [1]}, 3))
            self.assertTrue(values, path)
            for value in values:
                with self.subTest(path, value=value):
                    done = run('train', '--explain-config', '--config',
                               self.put(file_of(path, value)))
                    shown = '{...}' if isinstance(value, dict) else json.dumps(value)
                    self.assert_refused(done, 405, 2, f': {path} {shown}: ')
                    self.assertIn('Fix: ', done.stderr)

    def test_each_value_that_is_not_refused_makes_no_difference(self):
        tried = 0
        for path, _, harmless in rows():
            for value in map(value_of, harmless):
                with self.subTest(path, value=value):
                    self.assertIn(' - no difference: ',
                                  self.explained(file_of(path, value))[path])
                    tried += 1
        self.assertGreater(tried, 25)

    def test_options_of_keys_that_are_rare(self):
        zero = 'zero_optimization'
        for config, told in (
                ({'bf16': {'enabled': True, 'bf16_optimizer_states': True}},
                 '--precision bf16, --state bf16'),
                ({'bf16': {'enabled': True, 'bf16_optimizer_states': False}}, '--precision bf16'),
                ({'activation_checkpointing': {'cpu_checkpointing': True}}, '--place acts=dram'),
                ({zero: {'cpu_offload': True}}, '--zero-stage 0, --place states=dram'),
                ({zero: {'cpu_offload_param': True}}, '--zero-stage 0, --place weights=dram'),
                ({zero: {'cpu_offload': True, 'cpu_offload_param': True},
                  'activation_checkpointing': {'cpu_checkpointing': True}},
                 '--zero-stage 0, --place states=dram,weights=dram,acts=dram')):
            self.assertIn(f'ds.json says --clip 1.0, {told}\n', self.plan(config))

    def test_a_csv_of_the_file_is_written(self):
        config = {'csv_monitor': {'enabled': True, 'output_path': self.folder, 'job_name': 'x'}}
        row = self.explained(config)['csv_monitor.enabled']
        self.assertEqual(row, f'true --csv {self.folder}/x.csv')
        done = self.train('--config', self.put(config))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(os.path.exists(self.path('x.csv')))

    def test_the_events_of_the_file_are_written(self):
        """Its folder is made, and two monitors of one run do not meet in it."""
        monitor = {'enabled': True, 'output_path': f'{self.folder}/logs', 'job_name': 'x'}
        os.mkdir(self.path('logs'))
        for name, more in (('x', {}), ('DeepSpeedJobName', {'job_name': None})):
            config = {'tensorboard': {**monitor, **more}, 'csv_monitor': {**monitor, **more}}
            where = f'{self.folder}/logs/{name}'
            row = self.explained(config)['tensorboard.enabled']
            self.assertEqual(row, f'true --tfevents {where}')
            done = self.train('--config', self.put(config))
            self.assertEqual(done.returncode, 0, done.stderr)
            head, *seen = events(os.path.join(where, FILE))
            self.assertEqual((head[2], [step for _, step, _, _ in seen]),
                             ('brain.Event:2', [1, 2, 3]))
            with open(f'{where}.csv', encoding='ascii') as f:
                self.assertEqual(len(f.readlines()), 4)
        self.assertEqual(len(os.listdir(self.path('logs'))), 4)

    def test_a_monitor_that_is_off_writes_nothing(self):
        off = {'enabled': False, 'output_path': self.path('logs')}
        done = self.train('--config', self.put({'tensorboard': off, 'csv_monitor': off}))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(os.path.exists(self.path('logs')))

    def test_a_number_with_an_exponent_is_whole_as_it_stands(self):
        told = self.plan('{"train_batch_size": 4e0, "fp16": {"enabled": true, '
                         '"initial_scale_power": 1e1}, "zero_optimization": {"stage": 3e0, '
                         '"reduce_bucket_size": 5e8, "sub_group_size": 1E+9}}')
        self.assertIn('says --batch-tokens 128, --clip 1.0, --precision fp16, --loss-scale 1024, '
                      '--zero-stage 3\n', told)
        for text in ('5e-1', '1.5', '1e-8'):
            done = run('train', '--explain-config', '--config', self.put(
                f'{{"zero_optimization": {{"reduce_bucket_size": {text}}}}}'))
            self.assert_refused(done, 405, 2, f'reduce_bucket_size {text}: want a whole number')


if __name__ == '__main__':
    unittest.main()
