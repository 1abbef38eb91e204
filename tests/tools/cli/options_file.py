#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--options FILE, --print-options, and the options in a run's log.

    options_file.py PATH_OF_HOISTWAY
"""
import json
import os
import re
import shutil
import unittest

from program import Folder, run, tree
from short import some

# What a file of options is written without: paths, --resume, and what ends or is a rank's own.
BESIDE = set('model data eval store export log trace csv tfevents html config options resume '
             'allow-config-change world rank rendezvous explain-config print-options'.split())
# One value of each of the others, as the command line and the file have it, to be the same.
VALUES = {
    'data-format': 'bytes', 'token-dtype': 'u16', 'allow-other-tokenizer': True, 'pack': 'off',
    'long': 'cut', 'init': 'random', 'steps': 7, 'epochs': 2.5, 'batch-tokens': 8192,
    'seq-len': 64, 'lr': 0.1 + 0.2, 'betas': '0.8,0', 'eps': 1e-9, 'weight-decay': 0, 'clip': 0,
    'schedule': 'wsd', 'lr-end': 0.1, 'warmup': '3.5%', 'decay': 20, 'seed': 2 ** 52,
    'order': 'sequential', 'precision': 'fp16', 'loss-scale': 128, 'loss-scaling': 'static',
    'skip-nonfinite': True,
    'state': 'bf16', 'grain': 64, 'hbm': 1 << 30, 'dram': 5 << 30, 'nvme': 1 << 40,
    'durability': 'step', 'update': 'deferred', 'activations': 'recompute', 'gpu-update': 0.25,
    'keep': 3, 'keep-every': 10, 'place': 'states=nvme,weights=dram', 'threads': 2,
    'device': 'host', 'layers': 'halves', 'host-math': 'Haswell', 'io': 'threads', 'ways': 4,
    'zero-stage': '2', 'reduce': 'f32', 'hop': 4, 'comm': 'mpi', 'gather': 'int8',
    'secondary': 'node',
    'peer-timeout': 30.5, 'export-dtype': 'fp32', 'quiet': True,
    'eval-split': 0.05, 'eval-every': '5%', 'keep-best': True, 'patience': 3, 'samples': 4,
    'sample-tokens': 16, 'optimizer': 'adamw', 'group': '*norm*:lr=0.5x;a:decay=0.0,lr=2.0x',
    'freeze': '*.1.*;*embed*', 'train-only': '*.[01].*',
}


# Values that are refused by what takes them, which knows no file: the file, more options, the code,
# and its line from the place on.
LATE = (
    ('{"lr": 0}', (), 402, ':1:2: lr 0: --lr 0 makes'),
    ('{"seed": 3,\n "state": "bf16", "precision": "fp32"}', (), 402,
     ':2:2: state "bf16", precision "fp32": --state bf16 goes with'),
    ('{"precision": "fp32"}', ('--state=bf16',), 402,
     ':1:2: precision "fp32": --state bf16 goes with'),
    ('{"loss-scale": 128, "precision": "bf16"}', (), 402,
     ':1:2: loss-scale 128, precision "bf16": --loss-scale is for'),
    ('{"schedule": "constant", "decay": "3%"}', (), 402,
     ':1:26: decay "3%", schedule "constant": --decay is a part'),
    ('{"warmup": 9,\n"steps": 3}', (), 402, ':1:2: warmup 9: --warmup 9 is longer'),
    ('{"batch-tokens": 128}', ('--ways=3',), 402, ':1:2: batch-tokens 128: --batch-tokens 128 is'),
    ('{"place": "states=hbm"}', (), 402, ':1:2: place "states=hbm": --place: states cannot'),
    ('{"freeze": "nothing*"}', (), 402, ':1:2: freeze "nothing*": --freeze \'nothing*\': no'),
    ('{"momentum": 0.5}', (), 402, ':1:2: momentum 0.5: --momentum is of other'),
    ('{"hop": 3}', (), 402, ':1:2: hop 3: --hop 3 is no power'),
    ('{"store": "none/x/y"}', (), 105, ':1:2: store "none/x/y": store directory'),
    ('{"state": "bf16"}', ('--config', '{"bf16": {"enabled": false}}'), 402,
     ':1:2: state "bf16", the text of --config:1:11: bf16.enabled false (--precision fp32): '
     '--state'),
    ('{"config": "none/x"}', (), 404, ':1:2: config "none/x": --config \'none/x\' cannot be read'),
)
# The same of what train alone does.
LATE_RUNS = (
    ('{"log": "none/x/y"}', (), 107, ':1:2: log "none/x/y": the log'),
    ('{"token-dtype": "u16"}', (), 402, ':1:2: token-dtype "u16": data.txt: --token-dtype does'),
    ('{"allow-config-change": true}', (), 402,
     ':1:2: allow-config-change true: --allow-config-change'),
)


def as_arguments(values):
    return [f'--{name}' if value is True else f'--{name}={value!r}'.replace("'", '')
            for name, value in values.items()]


class OptionsFile(Folder):
    def put(self, text, name='opts.json'):
        with open(self.path(name), 'wb') as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        return self.path(name)

    def printed(self, *args):
        done = run('train', '--print-options', *args)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertRegex(done.stdout, r'\A\{.*\}\n\Z')
        return done.stdout

    def exported(self, store, *args):
        """The weights of a run for which the arguments say all but the paths, and what it told."""
        out = self.path('out')
        shutil.rmtree(self.path(store), ignore_errors=True)
        done = run('train', '--model', self.path('model'), '--data', self.data, '--export', out,
                   '--store', self.path(store), *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(out, 'model.safetensors'), 'rb') as f:
            return f.read(), done.stderr

    def test_each_option_is_written_and_read_again(self):
        names = set(re.findall(r'^  --([a-z-]+)', run('train', '--help').stdout, re.M))
        self.assertEqual(names - BESIDE - {'momentum'}, set(VALUES))
        text = self.printed(*as_arguments(VALUES))
        self.assertEqual(json.loads(text), VALUES)
        self.assertEqual(self.printed('--options', self.put(text)), text)

    def test_numbers_of_the_optimizer_are_written_where_none_was_given(self):
        numbers = {'adamw': {'betas': '0.9,0.999', 'eps': 1e-8, 'weight-decay': 0.01},
                   'sgd': {'momentum': 0.9, 'weight-decay': 0},
                   'lion': {'betas': '0.9,0.99', 'weight-decay': 0.01},
                   'adagrad': {'eps': 1e-10, 'weight-decay': 0}}
        for name, own in numbers.items():
            text = self.printed('--optimizer', name)
            told = {key: value for key, value in json.loads(text).items()
                    if any(key in others for others in numbers.values())}
            self.assertEqual(told, own, name)
            self.assertEqual(self.printed('--options', self.put(text)), text)
        for args in (('--optimizer=sgd', '--betas=0.9,0.9'), ('--momentum=0.5',)):
            done = run('train', '--print-options', *args)
            self.assertEqual((done.returncode, done.stdout), (2, ''))
            self.assertRegex(done.stderr, r'\Aerror\[E402\] --(betas|momentum) is of other optim')

    def test_paths_and_what_goes_with_resume_are_left_out(self):
        paths = [f'--{name}=x' for name in BESIDE - {
            'resume', 'allow-config-change', 'world', 'rank', 'rendezvous', 'explain-config',
            'print-options', 'config', 'options'}]
        text = self.printed(*paths, '--resume', '--allow-config-change', '--world=1', '--rank=0',
                            '--rendezvous=file:x')
        self.assertEqual(text, self.printed())
        self.assertEqual(self.printed('--options', self.put(text)), text)
        got = json.loads(text)
        self.assertEqual((got['lr'], got['eps'], got['betas'], got['schedule'], got['clip']),
                         (1e-5, 1e-8, '0.9,0.999', 'constant', 1.0))
        for name in ('batch-tokens', 'seq-len', 'grain', 'precision', 'device', 'decay', 'dram'):
            self.assertNotIn(name, got)  # the data's and the machine's to decide

    def test_a_file_is_as_good_as_the_command_line_which_wins(self):
        given = {'lr': 1e-3, 'seed': 5, 'steps': 4, 'seq-len': 32, 'batch-tokens': 64,
                 'init': 'random', 'device': 'host', 'clip': 0.01, 'quiet': False}
        path = self.put(json.dumps(given))
        weights, told = self.exported('a', '--options', path, '--epochs=1', '--lr=1e-2')
        self.assertIn(f'note[I402] the command line wins over {path}: --lr, --steps\n', told)
        same = {name: value for name, value in given.items() if name not in ('quiet', 'steps')}
        self.assertEqual(weights, self.exported('b', '--epochs=1', *as_arguments(
            {**same, 'lr': 1e-2}))[0])
        self.assertNotEqual(weights, self.exported('c', '--options', path)[0])

    def repeats(self, *args):
        """A run, and the one that its log's first line makes on another store."""
        log = self.path('run.jsonl')
        first, _ = self.exported('first', '--log', log, *args)
        again, told = self.exported('again', '--options', log)
        self.assertEqual(first, again)
        with open(log, encoding='utf-8') as f:
            line = f.readline()
        self.assertEqual(first, self.exported('third', '--options', self.put(line))[0])
        return json.loads(line)['options'], told

    def test_a_log_makes_its_run_again_to_the_bit(self):
        with open(self.data, 'w', encoding='ascii') as f:
            f.write('To be, or not to be, that is the question.')
        got, told = self.repeats('--init=random', '--seed=3', '--epochs=2.5', '--lr=3e-3',
                                 '--warmup=20%', '--schedule=wsd', '--decay=30%', '--clip=0.02',
                                 '--betas=0.7,0.9', '--precision=bf16', '--state=bf16',
                                 '--ways=2', '--place=states=nvme', '--export-dtype=fp32')
        self.assertNotIn('I405', told)
        self.assertEqual(got['device'], 'host')
        self.assertEqual((got['ways'], got['decay'], got['warmup']), (2, '30%', '20%'))
        self.assertEqual(got['seq-len'] * 2, got['batch-tokens'])  # of the data, which is short
        self.assertGreater(got['steps'], 0)
        self.assertNotIn('epochs', got)
        self.assertEqual(set(got) & BESIDE, set())

    def test_a_log_has_groups_what_is_frozen_and_the_optimizer(self):
        """Each of them alone, and all that go together: without it other weights are trained."""
        common = ('--init=random', '--steps=4', '--seq-len=32', '--batch-tokens=64', '--lr=1e-3',
                  '--export-dtype=fp32', '--precision=bf16', '--seed=3')
        group = ('--group=*norm*:lr=0.5x', '--group=*embed*:decay=0.5,lr=3x')
        freeze = ('--freeze=*.1.*', '--freeze=*lm_head*')
        plain, _ = self.exported('plain', *common)
        rows = (group, freeze, ('--train-only=*.0.*',), ('--optimizer=lion',),
                ('--optimizer=sgd', '--momentum=0.5'), ('--optimizer=adagrad', '--eps=1e-6'),
                ('--state=8bit',), ('--optimizer=lion', '--state=bf16', *group, *freeze),
                ('--state=8bit', *group, *freeze))
        for more in some(rows, 3):
            with self.subTest(more):
                got, _ = self.repeats(*common, *more)
                for name in {option[2:].partition('=')[0] for option in more}:
                    values = [option.partition('=')[2] for option in more
                              if option.startswith(f'--{name}=')]
                    self.assertEqual(str(got[name]), ';'.join(values).replace('1e-6', '1e-06'))
                with open(self.path('out', 'model.safetensors'), 'rb') as f:
                    self.assertNotEqual(f.read(), plain)

    def test_a_log_of_a_run_that_evaluates_takes_what_on_as_it_takes_its_data(self):
        common = ('--init=random', '--steps=4', '--seq-len=16', '--batch-tokens=32', '--lr=3e-2')
        log, seen = self.path('run.jsonl'), ('--eval', self.data)
        first, _ = self.exported('first', '--log', log, *common, *seen, '--eval-every=2')
        weights, told = self.exported('again', '--options', log)
        self.assertEqual(weights, first)
        self.assertIn(f'note[I402] of no effect without --eval: --eval-every of {log}\n', told)
        weights, told = self.exported('again', '--options', log, *seen)
        self.assertEqual(weights, first)
        self.assertNotIn('of no effect', told)
        done = self.train('--options', log, '--eval-every=1', without=('--steps', '--seed'))
        self.assertEqual(done.returncode, 2)
        self.assertIn('--eval-every is for a run that evaluates, and nothing says on', done.stderr)
        for more in ('--keep-best', '--patience=1'):
            kept, _ = self.exported('first', '--log', log, *common, *seen, '--eval-every=2', more)
            done = self.train('--options', log, without=('--steps', '--seed'))
            self.assert_refused(done, 402, 2, 'run.jsonl:1:')
            self.assertRegex(done.stderr, more.partition('=')[0] + ': it is of a run that evaluates'
                             '.* Fix: --eval FILE, as')
            self.assertEqual(self.exported('again', '--options', log, *seen)[0], kept)

    def test_a_log_has_the_scheduler_of_a_configuration(self):
        for kind, more in (('WarmupLR', {'warmup_max_lr': 2e-3}),
                           ('WarmupDecayLR', {'warmup_max_lr': 2e-3, 'total_num_steps': 'auto'}),
                           ('WarmupCosineLR', {'total_num_steps': 9, 'cos_min_ratio': 0.3})):
            config = self.put(json.dumps({'scheduler': {
                'type': kind, 'params': {'warmup_num_steps': 'auto', **more}}}), 'ds.json')
            got, told = self.repeats('--init=random', '--steps=8', '--seq-len=32',
                                     '--batch-tokens=64', '--warmup=3', '--lr=1e-3',
                                     '--export-dtype=fp32', '--config', config)
            self.assertIn(f'the rates of {kind}\n', told)
            params = json.loads(got['config'])['scheduler']['params']
            self.assertEqual(params['warmup_num_steps'], 3)
            self.assertNotIn('schedule', got)
            text = self.printed('--config', config, '--warmup=3')
            self.assertEqual(self.printed('--options', self.put(text)), text)
            self.assertIn('"warmup":3', text)

    def test_plan_takes_what_it_has_a_use_for(self):
        path = self.put('{"init": "random", "seq-len": 32, "batch-tokens": 64, "quiet": true}')
        done = run('plan', '--model', self.path('model'), '--device=host', '--json', '--options',
                   path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)['batch_tokens'], 64)
        self.assertIn(f'note[I402] of no effect on a plan: --init, --quiet of {path}\n',
                      done.stderr)

    def test_what_is_wrong_is_refused_by_its_place(self):
        before = tree(self.folder)
        for code, text, part in (
                (401, '{"lr": 1,\n "wieght-decay": 1}',
                 'opts.json:2:2: unknown option --wieght-decay of train. Did you mean --weight-'),
                (401, '{"learning_rate": 1}', ':1:2: unknown option --learning_rate of train. '
                 'Did you mean --lr?'),
                (401, '{"' + 'x' * 400 + '": 1}', "'hoistway train --help' lists its options"),
                (402, '{"seed": -1}', ":1:2: --seed: not understood (got '-1'"),
                (402, '{"lr": 2}', ":1:2: --lr: out of range (got '2'"),
                (402, '{"quiet": "true"}', ':1:2: --quiet: want true or false'),
                (402, '{"place": true}', ':1:2: --place: want a number, or a text'),
                (402, '{"betas": [0.9, 0.99]}', ':1:2: --betas: want a number, or a text'),
                (402, '{"train-only": ["a"]}', ":1:2: --train-only: want a text, with ';' between"),
                (402, '{"lr": null}', ':1:2: --lr: want a number'),
                (402, '{"lr": {"lr": 1}}', ':1:2: --lr: want a number'),
                (402, '{"schedule": "cos"}', ":1:2: --schedule: not understood (got 'cos'"),
                (402, '{"options": "a"}', ':1:2: --options: a file of options names no other'),
                (402, '{"steps": 1, "epochs": 1}', '--steps 1 and --epochs 1 both say'),
                (404, '{"lr": 1e999}', ':1:8: the text has a number that is too great'),
                (404, '{"lr": 1, "lr": 1}', ":1:11: the text has 'lr' twice"),
                (404, b'\xef\xbb\xbf{}', ':1:1: the text has a byte order mark'),
                (404, '[' * 1000, 'no { at its begin'), (404, '', 'no { at its begin'),
                (404, b' ' * ((1 << 20) + 1), 'more than 1 MiB'),
                (404, '{"kind":"run","seed":1}', ':1:1: it is the log of a run, and has no opt'),
                (404, '{"kind":"run","options":3}\n{}\n', ':1:1: it is the log of a run')):
            done = self.train('--options', self.put(text), without=('--steps', '--seed'))
            self.assert_refused(done, code, 2, part)
            os.remove(self.path('opts.json'))
            self.assertEqual(tree(self.folder), before)
        os.mkfifo(self.path('pipe'))
        for path in (self.folder, self.path('pipe'), '/dev/zero'):
            self.assert_refused(self.train('--options', path), 404, 2, 'not a regular file')
        self.assert_refused(self.train('--options', self.path('none')), 404, 2, 'no such file')

    def told_late(self, verb, text, more):
        """The last line of what is refused before anything is written."""
        store = ['--store=store'] * ('"store"' not in text)
        data = ['--data', 'data.txt', '--init=random', *['--steps=3'] * ('"steps"' not in text)]
        self.put(text)
        before = tree(self.folder)
        done = run(verb, '--model', 'model', '--device=host', '--seq-len=32', '--options',
                   'opts.json', *store, *more, *data * (verb == 'train'), cwd=self.folder)
        self.assertIn(done.returncode, (1, 2), done.stderr)
        self.assertEqual(tree(self.folder), before)
        told = [line for line in done.stderr.splitlines() if line.startswith('error')]
        self.assertEqual(len(told), 1, done.stderr)
        return told[0]

    def test_a_value_that_is_refused_later_is_told_by_its_place(self):
        for text, more, code, line in LATE + LATE_RUNS:
            for verb in ('train', 'plan') if (text, more, code, line) in LATE else ('train',):
                told = self.told_late(verb, text, more)
                self.assertTrue(told.startswith(f'error[E{code}] opts.json{line}'), told)
                self.assertRegex(told, r'Fix: \S')

    def test_what_is_not_of_the_file_is_told_without_a_place(self):
        for text, more, line in (
                ('{"lr": 0.5, "seed": 3}', ('--lr=0',), '[E402] --lr 0 makes'),
                ('{"keep-best": false, "lr": 1}', ('--decay=3',), '[E402] --decay is a part'),
                ('{"seed": 1, "dram": 4096}', (), '[E302] no placement fits')):
            self.assertIn(f'error{line}', self.told_late('train', text, more))
        done = run('plan', '--options', self.put('{"seq-len": 32}'))
        self.assert_refused(done, 403, 2, 'error[E403] plan needs --model')

    def test_of_a_log_the_options_alone_count(self):
        line = '{"kind":"run","lr":0.5,"options":{"seed":3,"quiet":false},"more":{"lr":0.5}}'
        got = json.loads(self.printed('--options', self.put(f'{line}\n{{"kind":"step"}}\n')))
        self.assertEqual((got['seed'], got['lr']), (3, 1e-5))
        self.assertNotIn('quiet', got)

    def test_a_configuration_counts_behind_the_file(self):
        config = self.put('{"gradient_clipping": 0.25, "seed": 7}', 'ds.json')
        path = self.put(json.dumps({'clip': 0.5, 'config': config}))
        got = json.loads(self.printed('--options', path))
        self.assertEqual((got['clip'], got['seed']), (0.5, 7))
        text = '{"gradient_clipping": 0.25}'
        self.assertEqual(json.loads(self.printed('--config', text))['clip'], 0.25)
        done = run('train', '--print-options', '--config', '{"gradient_clipping": }')
        self.assert_refused(done, 404, 2, 'the text of --config:1:23: the text has something')


if __name__ == '__main__':
    unittest.main()
