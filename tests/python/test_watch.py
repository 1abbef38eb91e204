#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hoistway watch: what Weights & Biases is given, told by a module in its place.

    test_watch.py PATH_OF_HOISTWAY
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
FAKE = '''
import json, os, sys
def put(*what):
    with open(os.environ['WATCHED'], 'a') as file:
        file.write(json.dumps(what) + '\\n')
class Run:
    class summary:
        update = staticmethod(lambda values: put('summary', values))
    log = staticmethod(lambda values, step: put('log', step, values))
    finish = staticmethod(lambda: put('finish'))
def init(project, name, config):
    put('init', project, name, config['model'])
    return Run()
'''
RUN = {'kind': 'run', 'model': 'm', 'steps': 3}
END = {'kind': 'summary', 'steps': 3, 'measured_step_s': 0.5}


def step(number):
    return {'kind': 'step', 'step': number, 'loss': 2 / number, 'grad_norm': None,
            'stall_s': {'nvme': 0.25}, 'update': 'deferred'}


class Watch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.log = os.path.join(self.folder, 'run.jsonl')
        os.mkdir(os.path.join(self.folder, 'modules'))
        with open(os.path.join(self.folder, 'modules', 'wandb.py'), 'w', encoding='ascii') as file:
            file.write(FAKE)
        self.around = {**os.environ, 'HOISTWAY_PYTHON': sys.executable,
                       'PYTHONDONTWRITEBYTECODE': '1', 'WATCHED': self.log + '.sent',
                       'PYTHONPATH': os.path.join(self.folder, 'modules')}

    def write(self, *records, mode='w', end='\n'):
        with open(self.log, mode, encoding='ascii') as file:
            file.write(''.join(json.dumps(r, separators=(',', ':')) + '\n' for r in records)[:-1]
                       + end)

    def start(self, *words):
        child = subprocess.Popen([PROGRAM, 'watch', *words], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, env=self.around)
        self.addCleanup(child.kill)
        return child

    def watch(self, *words):
        child = self.start(*words)
        out, told = child.communicate(timeout=60)
        return child.returncode, out, told

    def sent(self):
        if not os.path.exists(self.log + '.sent'):
            return []
        with open(self.log + '.sent', encoding='ascii') as file:
            return [json.loads(line) for line in file if line.endswith('\n')]

    def steps(self):
        return [what[1] for what in self.sent() if what[0] == 'log']

    def wait_for(self, child, steps):
        while child.poll() is None and self.steps() != steps:
            pass
        self.assertEqual(self.steps(), steps)

    def test_each_number_of_each_step_is_sent(self):
        self.write(RUN, step(1), step(2), {'kind': 'commit', 'step': 2}, step(3), END)
        done = self.watch(self.log, '--wandb', '--project', 'p', '--name', 'n')
        self.assertEqual(done, (0, f'{self.log}: sent up to step 3\n', ''))
        self.assertEqual(self.sent(), [
            ['init', 'p', 'n', 'm'], ['log', 1, {'loss': 2, 'stall_s/nvme': 0.25}],
            ['log', 2, {'loss': 1, 'stall_s/nvme': 0.25}],
            ['log', 3, {'loss': 2 / 3, 'stall_s/nvme': 0.25}],
            ['summary', {'steps': 3, 'measured_step_s': 0.5}], ['finish']])

    def test_each_evaluation_is_sent_once_as_a_series_of_its_own(self):
        def told(number, loss):
            return {'kind': 'eval', 'step': number, 'loss': loss, 'perplexity': 2, 'targets': 9,
                    'seconds': 1, 'best_step': number}
        self.write(RUN, told(0, 3), step(1), step(2), told(2, None), step(3), told(3, 1),
                   RUN, step(2), told(2, 4), step(3), told(3, 1), END)  # resumed in between
        self.assertEqual(self.watch(self.log, '--wandb')[0], 0)
        self.assertEqual([what[1:] for what in self.sent() if what[0] == 'log' and
                          'loss' not in what[2]],
                         [[0, {'eval/loss': 3, 'eval/perplexity': 2}], [2, {'eval/perplexity': 2}],
                          [3, {'eval/loss': 1, 'eval/perplexity': 2}]])

    def test_of_two_evaluations_of_one_step_the_last_is_shown_and_said(self):
        def told(loss):
            return {'kind': 'eval', 'step': 1, 'loss': loss, 'perplexity': 2}
        self.write(RUN, step(1), told(3), RUN, told(3), told(4), step(2), told(5), END)
        out = self.watch(self.log, '--wandb')[1]
        self.assertEqual([what[1:] for what in self.sent() if what[0] == 'log'],
                         [[1, {'loss': 2, 'stall_s/nvme': 0.25}],
                          [1, {'eval/loss': 3, 'eval/perplexity': 2}],
                          [1, {'eval/loss': 4, 'eval/perplexity': 2}],
                          [2, {'loss': 1, 'stall_s/nvme': 0.25}]])
        self.assertEqual(out, f'{self.log}: sent up to step 2\n1 evaluation of a step took the '
                              'place of one before, on other data: the last is shown\n')

    def test_a_log_that_grows_is_followed_past_a_resume_to_its_end(self):
        self.write(RUN, step(1), step(2), step(3), end='')
        child = self.start(self.log, '--wandb')
        self.wait_for(child, [1, 2])
        self.write({}, mode='a')  # the third line is whole, and none of a log
        self.wait_for(child, [1, 2])
        self.write(RUN, step(1), RUN, step(2), step(3))  # resumed after the first step
        self.wait_for(child, [1, 2, 3])
        self.write(END, mode='a')
        self.assertEqual(child.communicate(timeout=60)[1], '')
        self.assertEqual(child.returncode, 0)
        self.assertEqual([what[0] for what in self.sent()].count('init'), 1)

    def test_once_ends_where_the_log_ends(self):
        self.write(RUN, step(1))
        self.assertEqual(self.watch(self.log, '--wandb', '--once')[0], 0)
        self.assertEqual(self.steps(), [1])

    def refuse(self, code, status, part, *words):
        got, out, told = self.watch(*words)
        self.assertEqual((got, out), (status, ''), told)
        self.assertRegex(told, r'\Aerror\[E%d\] [^\n]*\n\Z' % code)
        self.assertIn(part, told)

    def test_what_can_not_be_watched_is_refused(self):
        self.write(RUN)
        self.refuse(403, 2, '--wandb', self.log)
        self.refuse(402, 2, 'unrecognized arguments: --wandbb', self.log, '--wandb', '--wandbb')
        self.refuse(420, 1, 'No such file', self.log + 'x', '--wandb')
        os.remove(os.path.join(self.folder, 'modules', 'wandb.py'))
        self.around['PYTHONPATH'] = ''
        with open(self.log + 'y', 'w', encoding='ascii') as file:
            file.write('{"kind":"other"}\n')
        self.refuse(420, 1, 'is not the log of a run', self.log + 'y', '--wandb')

    def test_without_wandb_the_line_that_installs_it_is_told(self):
        self.write(RUN)
        with open(os.path.join(self.folder, 'modules', 'sitecustomize.py'), 'w',
                  encoding='ascii') as file:
            file.write("import importlib.util as u\nold = u.find_spec\n"
                       "u.find_spec = lambda name, *a: old(name, *a) if name != 'wandb' else None"
                       "\n")
        self.refuse(428, 2, '-m pip install wandb', self.log, '--wandb')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1], verbosity=2)
