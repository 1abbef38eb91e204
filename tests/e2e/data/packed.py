#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on documents and masks: packed rows are learned as their documents one by one are, the
same bytes come out wherever the model lives, and a run goes on inside a pass; with evaluations
on, which are the same, too.

packed.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(sys.path[0]))
from short import by_turns  # noqa: E402
from store_bytes import Store  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'tied-gqa')
VOCAB = 272
T = 32
PLACES = (
    ('--threads=1',),
    ('--place=states=nvme,weights=nvme', '--threads=2'),
    ('--place=states=nvme,weights=nvme,grads=nvme,acts=nvme', '--io=threads'),
    ('--device=far', '--place=weights=dram,acts=dram', '--threads=2'),
    ('--device=far', '--place=states=nvme,weights=nvme,grads=nvme,acts=nvme'),
)


def draw(seed, count, longest):
    """Documents, and of each of their tokens whether it is learned: at least one of the targets."""
    rng = random.Random(seed)
    documents = [[rng.randrange(VOCAB) for _ in range(rng.randrange(2, longest + 1))]
                 for _ in range(count)]
    masks = [[rng.randrange(2) for _ in document] for document in documents]
    for mask in masks:
        mask[-1] = 1
    return documents, masks


def json_rows(documents, masks):
    return ''.join(json.dumps({'input_ids': d, 'mask': m}) + '\n'
                   for d, m in zip(documents, masks))


class Packed(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        documents, masks = draw(1, 90, T + 1)
        self.data = self.put('data.jsonl', json_rows(documents, masks))
        self.inputs = sum(len(d) - 1 for d in documents)

    def put(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)
        return path

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, *more, name='run', data=None, length=T):
        device = () if any(word.startswith('--device') for word in more) else ('--device=host',)
        return [PROGRAM, 'train', '--model', MODEL, '--data', data or self.data,
                '--seq-len', str(length), '--lr', '1e-3', '--store', self.path(name + '.store'),
                '--log', self.path(name + '.jsonl'), *device, *more]

    def run_it(self, *more, **kind):
        return subprocess.run(self.command(*more, **kind), capture_output=True, text=True,
                              timeout=120, check=False)

    def train(self, *more, **kind):
        done = self.run_it(*more, **kind)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def log(self, name='run'):
        with open(self.path(name + '.jsonl'), encoding='ascii') as file:
            return [json.loads(line) for line in file]

    def steps(self, name='run'):
        return [(line['step'], line['loss'], line['grad_norm']) for line in self.log(name)
                if line['kind'] == 'step']

    def evaluations(self, name='run'):
        return [(line['step'], line['loss'], line['targets']) for line in self.log(name)
                if line['kind'] == 'eval']

    def exported(self, name):
        with open(self.path(os.path.join(name, 'model.safetensors')), 'rb') as file:
            return hashlib.sha256(file.read()).hexdigest()

    def test_epochs_count_packed_rows(self):
        done = self.train('--epochs=2', '--batch-tokens=128', '--durability=none')
        run = self.log()[0]
        self.assertEqual(run['documents'], 90)
        self.assertAlmostEqual(run['fill'], self.inputs / (run['rows'] * T), places=6)
        self.assertGreater(run['fill'], 0.9)
        self.assertEqual(run['steps'], -(-2 * run['rows'] // 4))
        self.assertEqual(len(self.steps()), run['steps'])
        full = f'{100 * self.inputs / (run["rows"] * T):.2f} % full'
        self.assertIn(f'note[I423] 90 documents are packed into {run["rows"]} rows of {T}, {full}.',
                      done.stderr)
        plan = [PROGRAM, 'plan', '--model', MODEL, '--data', self.data, '--seq-len', str(T),
                '--batch-tokens', '128', '--epochs', '2', '--device', 'host', '--dram', '64M']
        told = subprocess.run(plan, capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertIn(f'a pass over the data is {run["rows"]} rows of {T}, {full}, 4 a step: '
                      f'{run["steps"]} steps are 2', told)
        told = json.loads(subprocess.run([*plan, '--json'], capture_output=True, text=True,
                                         timeout=60, check=True).stdout)
        self.assertEqual([told[key] for key in ('rows', 'documents', 'steps')],
                         [run['rows'], 90, run['steps']])
        self.assertAlmostEqual(told['fill'], run['fill'])
        without = [word for word in plan if word not in ('--epochs', '2')]
        told = subprocess.run(without, capture_output=True, text=True, timeout=60, check=True)
        self.assertIn(f'{full}, 4 a step\n', told.stdout)

    def test_packed_documents_are_learned_as_one_by_one(self):
        """Each step is a pass: of all documents, side by side in rows and one a row."""
        documents, masks = draw(2, 14, 40)
        data = self.put('few.jsonl', json_rows(documents, masks))
        found = {}
        for pack in ('on', 'off'):
            rows = 14
            if pack == 'on':
                look = subprocess.run([PROGRAM, 'inspect', data, '--seq-len', '64', '--json'],
                                      capture_output=True, text=True, timeout=60, check=True)
                rows = json.loads(look.stdout)['packing']['rows']
                self.assertLess(rows, 8)
            self.train('--steps=4', f'--batch-tokens={64 * rows}', '--pack', pack, '--precision',
                       'fp32', '--durability=none', name=pack, data=data, length=64)
            found[pack] = self.steps(pack)
        self.assertEqual(len(found['on']), 4)
        for on, off in zip(found['on'], found['off']):
            self.assertLess(abs(on[1] / off[1] - 1), 1e-6, (on, off))
            self.assertLess(abs(on[2] / off[2] - 1), 1e-5, (on, off))

    def test_the_same_bytes_wherever_the_model_lives(self):
        for precision in ('fp32', 'bf16'):
            sums, losses = set(), set()
            for i, place in enumerate(PLACES):
                name = f'{precision}{i}'
                self.train('--steps=5', '--batch-tokens=128', '--grain=64', '--durability=none',
                           '--precision', precision, '--export', self.path(name + '.export'),
                           '--export-dtype=fp32', '--eval-split=0.2', '--eval-every=2', *place,
                           name=name)
                sums.add(self.exported(name + '.export'))
                losses.add((*self.steps(name), *self.evaluations(name)))
                self.assertEqual([step for step, *_ in self.evaluations(name)], [0, 2, 4, 5])
            self.assertEqual((len(sums), len(losses)), (1, 1), precision)

    def test_a_run_that_is_killed_inside_a_pass_goes_on_there(self):
        whole = ('--steps=40', '--batch-tokens=128', '--place=states=nvme,weights=nvme',
                 '--eval-split=0.1', '--eval-every=3')
        self.train(*whole, '--export', self.path('alone.export'), name='alone')
        rows = self.log('alone')[0]['rows']
        with subprocess.Popen(self.command(*whole), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as child:
            for line in child.stderr:
                if line.startswith('step 7 '):
                    break
            child.send_signal(signal.SIGKILL)
        done = self.train(*whole, '--resume', '--export', self.path('run.export'))
        began = int(done.stderr.split('going on after step ')[1].split()[0])
        self.assertGreater(began * 4 % rows, 0, 'the pass had ended')
        self.assertEqual(self.steps(), self.steps('alone'))
        self.assertEqual(self.evaluations(), self.evaluations('alone'))
        self.assertEqual(len(self.evaluations()), 1 + 40 // 3 + 1)
        self.assertEqual(self.exported('run.export'), self.exported('alone.export'))

    def test_another_packing_is_another_run(self):
        documents, masks = draw(3, 60, 60)
        data = self.put('long.jsonl', json_rows(documents, masks))
        common = ('--batch-tokens=128', '--long=split')
        self.train(*common, '--steps=2', data=data)
        for more, was, now in ((('--long=cut',), 'long split', 'long cut'),
                               (('--long=split', '--pack=off'), 'pack on', 'pack off')):
            done = self.run_it('--batch-tokens=128', '--steps=4', '--resume', *more, data=data)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"error[E615] the store was trained with '{was}', this run has '{now}'. "
                          f'Fix: --{was}, or --allow-config-change.', done.stderr)
        done = self.train(*common, '--steps=3', '--resume', data=data)
        self.assertNotIn('W622', done.stderr)
        done = self.train('--batch-tokens=128', '--long=cut', '--steps=4', '--resume',
                          '--allow-config-change', data=data)
        self.assertIn("goes on with 'long cut' where it had 'long split'", done.stderr)

    def test_a_store_from_before_packing_is_gone_on_from_on_purpose_alone(self):
        self.train('--batch-tokens=128', '--steps=2')
        Store(self.path('run.store')).forge_client_cursor(
            lambda cursor: re.sub(rb'pack on\nrows \d+\n', b'', cursor))
        done = self.run_it('--batch-tokens=128', '--steps=3', '--resume')
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn('error[E615] the store was trained on the documents of --data', done.stderr)
        done = self.train('--batch-tokens=128', '--steps=3', '--resume', '--allow-config-change')
        self.assertIn('W622', done.stderr)
        done = self.train('--batch-tokens=128', '--steps=4', '--resume')
        self.assertNotIn('W622', done.stderr)

    def test_long_documents_of_a_mask_are_refused_unless_it_is_said_what_to_do(self):
        done = self.run_it('--batch-tokens=64', '--steps=1', length=16)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r'error\[E402\] .*data.jsonl: document \d+ has \d+ inputs, '
                         r'more than --seq-len 16. Fix: --long split, cut or drop')
        for how in ('split', 'cut', 'drop'):
            done = self.train('--batch-tokens=64', '--steps=1', '--durability=none', '--long', how,
                              name=how, length=16)
            self.assertRegex(done.stderr, rf'; \d+ longer ones \(--long {how}\), \d+ inputs? left')


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
