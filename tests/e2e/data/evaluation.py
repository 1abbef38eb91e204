#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that evaluate: when, on what, what it tells, that it changes nothing, and the best version.

evaluation.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import hashlib
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from short import by_turns, some  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
TOKENS = os.path.join(MODEL, 'tokens.bin')


class Evaluation(unittest.TestCase):
    def setUp(self):
        self.rate = '1e-3'
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.store, self.log, self.out = (
            os.path.join(self.folder, name) for name in ('store', 'log.jsonl', 'out'))

    def command(self, *more, steps=6, data=TOKENS, store=None, batch=48):
        return [
            PROGRAM, 'train', '--device', 'host', '--model', MODEL, '--data', data,
            '--steps', str(steps), '--seq-len', '24', '--batch-tokens', str(batch), '--lr',
            self.rate, '--store', store or self.store, '--log', self.log, '--export', self.out,
            *more,
        ]  # fmt: skip

    def run_it(self, *more, code=0, **kind):
        done = subprocess.run(
            self.command(*more, **kind), capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def lines(self, kind):
        with open(self.log, encoding='ascii') as log:
            return [line for line in map(json.loads, log) if line['kind'] == kind]

    def losses(self):
        return {line['step']: line['loss'] for line in self.lines('eval')}

    def exported(self):
        digest = hashlib.sha256()
        for name in sorted(os.listdir(self.out)):
            with open(os.path.join(self.out, name), 'rb') as file:
                digest.update(file.read())
        return digest.hexdigest()

    def kept(self):
        return sorted(name for name in os.listdir(self.store) if name.startswith('step-'))

    def again(self):
        for path in (self.store, self.out):
            shutil.rmtree(path, ignore_errors=True)
        os.remove(self.log)

    def write_tokens(self, name, ids):
        path = os.path.join(self.folder, name)
        with open(path, 'wb') as file:
            file.write(struct.pack('<256i', 20240801, 7, len(ids), *[0] * 253))
            file.write(struct.pack(f'<{len(ids)}I', *ids))
        return path

    def vocab(self):
        with open(os.path.join(MODEL, 'config.json'), encoding='ascii') as file:
            return json.load(file)['vocab_size']

    # ---- what it changes, and tells

    def test_a_run_that_evaluates_exports_the_bytes_of_one_that_does_not(self):
        for more in some(((), ('--place', 'states=nvme,weights=nvme'), ('--precision', 'bf16'),
                          ('--update', 'optimistic', '--durability', 'step')), 3):
            self.run_it(*more)
            without = self.exported()
            self.again()
            done = self.run_it(*more, '--eval', TOKENS, '--eval-every', '2')
            self.assertEqual(self.exported(), without, more)
            self.assertIn('evaluated after step 4/6: loss ', done.stderr)
            self.assertIn('evaluated 4 times in ', done.stdout)
            self.assertEqual(list(self.losses()), [0, 2, 4, 6])
            self.again()

    def test_losses_do_not_depend_on_where_bytes_live(self):
        seen = set()
        for place in ('states=dram,weights=dram', 'states=nvme,weights=nvme',
                      'states=nvme,weights=nvme,grads=nvme,acts=nvme'):
            self.run_it('--place', place, '--eval', TOKENS, '--eval-every', '3')
            seen.add(tuple(self.losses().items()))
            self.again()
        self.assertEqual(len(seen), 1)

    def test_an_evaluation_of_one_batch_is_the_loss_of_the_step_that_trains_it(self):
        with open(TOKENS, 'rb') as file:
            ids = list(struct.unpack('<49I', file.read()[1024:1024 + 4 * 49]))
        batch = self.write_tokens('batch.bin', ids)
        self.run_it('--eval', batch, '--eval-every', '1', '--order', 'sequential',
                    data=batch)
        steps = {line['step']: line['loss'] for line in self.lines('step')}
        for step, loss in self.losses().items():
            if step < 6:
                self.assertEqual(loss, steps[step + 1])
        for line in self.lines('eval'):
            self.assertEqual(line['targets'], 48)
            self.assertAlmostEqual(line['perplexity'] / math.exp(line['loss']), 1, places=6)

    def test_a_sweep_that_is_not_full_counts_its_own_targets_alone(self):
        ids = [i * 7 % self.vocab() for i in range(24 * 3 + 1)]
        parts = [self.write_tokens(f'part{i}.bin', ids[24 * i:24 * (i + 1) + 1]) for i in range(3)]
        sums = []
        for name in (*parts, self.write_tokens('all.bin', ids)):
            self.run_it('--eval', name, '--eval-every', '100')
            sums.append(self.losses()[6] * self.lines('eval')[-1]['targets'])
            self.again()
        self.assertAlmostEqual(sum(sums[:3]), sums[3], delta=1e-6)

    def test_by_default_it_is_before_step_1_after_each_pass_and_at_the_end(self):
        ids = [i * 5 % self.vocab() for i in range(24 * 4 + 1)]  # 2 steps are a pass
        self.run_it('--eval', TOKENS, steps=5, data=self.write_tokens('data.bin', ids))
        self.assertEqual(list(self.losses()), [0, 2, 4, 5])
        self.again()
        self.run_it('--eval', TOKENS, '--eval-every', '40%', steps=5)
        self.assertEqual(list(self.losses()), [0, 2, 4, 5])

    # ---- the best version

    def turn(self):
        """Data on which training makes the evaluated loss worse. -> data, eval"""
        self.rate = '0.05'
        data = self.write_tokens('data.bin', [i % 2 for i in range(24 * 8 + 1)])
        return data, self.write_tokens('eval.bin', [3 + i % 9 for i in range(24 * 2 + 1)])

    def test_the_best_version_is_kept_and_exported(self):
        data, evaluated = self.turn()
        worse = ('--eval', evaluated, '--eval-every', '2')
        self.run_it('--eval', evaluated, steps=2, data=data)
        best = self.exported()
        self.again()
        done = self.run_it(*worse, '--keep-best', data=data)
        losses = self.losses()
        self.assertLess(losses[2], min(losses[4], losses[6]))
        self.assertEqual(self.exported(), best)
        self.assertEqual(self.kept(), ['step-2'])
        self.assertIn('weights of step 2, the best that was evaluated, to ', done.stdout)
        # where each is better than the one before the last one is it, and the others are gone
        self.again()
        done = self.run_it('--eval', TOKENS, '--eval-every', '2', '--keep-best')
        losses = self.losses()
        self.assertLess(losses[6], losses[4])
        self.assertEqual(self.kept(), ['step-6'])
        self.assertIn('weights of step 6, the best that was evaluated, to ', done.stdout)

    def test_patience_ends_a_run_and_so_it_does_one_that_goes_on(self):
        data, evaluated = self.turn()
        more = ('--eval', evaluated, '--eval-every', '1', '--patience', '2')
        done = self.run_it(*more, steps=40, data=data)
        steps = [line['step'] for line in self.lines('step')]
        losses = self.losses()
        least = min((loss, step) for step, loss in losses.items() if step > 0)[1]
        self.assertEqual(steps[-1], least + 2)
        self.assertIn(f'ended after step {least + 2} of 40: 2 evaluations in a row were no better',
                      done.stdout)
        before = self.exported()
        done = self.run_it(*more, '--resume', steps=40, data=data)
        self.assertIn(f'trained nothing: the store is at step {least + 2} of 40', done.stdout)
        self.assertEqual(self.exported(), before)
        self.assertEqual(self.losses(), losses)
        self.assertEqual(len(self.lines('eval')), len(losses))

    def test_a_run_that_is_killed_and_goes_on_has_the_same_best_and_ends_alike(self):
        data, evaluated = self.turn()
        more = ('--eval', evaluated, '--eval-every', '2', '--keep-best',
                '--patience', '3', '--durability', 'step')
        self.run_it(*more, steps=40, data=data)
        whole, losses, best = self.exported(), self.losses(), self.kept()
        last = self.lines('step')[-1]['step']
        for stop in some(range(1, last), 3):
            self.again()
            child = subprocess.Popen(
                self.command(*more, steps=40, data=data), stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL, text=True)
            for _ in child.stderr:
                if not os.path.exists(self.log):
                    continue
                with open(self.log, encoding='ascii') as log:
                    if f'"kind":"step","step":{stop},' in log.read():
                        break
            child.send_signal(signal.SIGKILL)
            child.communicate()
            self.run_it(*more, '--resume', steps=40, data=data)
            self.assertEqual((self.exported(), self.losses(), self.kept()), (whole, losses, best))
            self.assertEqual(len(self.lines('eval')), len(losses))

    def test_other_data_is_not_compared_with(self):
        data, evaluated = self.turn()
        self.run_it('--eval', evaluated, '--eval-every', '1', steps=4, data=data)
        done = self.run_it('--eval', TOKENS, '--resume', data=data)
        self.assertIn('warning[W424] the run was evaluated on other data before: step ',
                      done.stderr)
        told = [(line['step'], line['loss']) for line in self.lines('eval')]
        self.assertEqual([step for step, _ in told], [0, 1, 2, 3, 4, 4, 6])
        self.assertNotEqual(told[4], told[5])  # the one of either data

    def test_a_best_that_was_not_kept_is_none_to_keep_best(self):
        data, evaluated = self.turn()
        self.run_it('--eval', evaluated, '--eval-every', '1', steps=4, data=data)
        done = self.run_it('--eval', evaluated, '--keep-best', '--resume', data=data)
        self.assertRegex(done.stderr, r'warning\[W424\] step \d, the best so far, was not kept')
        losses = self.losses()  # of what it went on from, once more
        self.assertEqual(self.kept(), ['step-4' if losses[4] <= losses[6] else 'step-6'])

    def test_a_copy_that_is_compared_no_more_goes_with_the_next_one(self):
        data, evaluated = self.turn()
        self.run_it('--eval', evaluated, '--eval-every', '1', '--keep-best', steps=4, data=data)
        before = self.kept()
        self.run_it('--eval', TOKENS, '--keep-best', '--resume', data=data)
        self.assertEqual((len(before), len(self.kept())), (1, 1))

    def test_a_run_whose_last_version_is_its_best_goes_on_without_a_warning(self):
        options = ('--eval', TOKENS, '--eval-every', '1', '--keep-best')
        self.run_it(*options, steps=4)
        self.assertEqual(self.kept(), ['step-4'])
        done = self.run_it(*options, '--resume')
        self.assertNotIn('W424', done.stderr)
        self.assertEqual(self.kept(), ['step-6'])

    def test_a_longer_run_compares_with_the_last_version_of_the_one_before(self):
        data, evaluated = self.turn()
        self.run_it('--eval', evaluated, '--keep-best', steps=2, data=data)
        first = self.exported()
        self.run_it('--eval', evaluated, '--keep-best', '--resume', data=data)
        self.assertLess(self.losses()[2], self.losses()[6])
        self.assertEqual((self.kept(), self.exported()), (['step-2'], first))

    def test_a_plan_tells_what_evaluations_take(self):
        done = subprocess.run(
            [PROGRAM, 'plan', '--model', MODEL, '--seq-len', '24', '--batch-tokens', '48',
             '--device', 'host', '--eval', TOKENS, '--keep-best', '--json', '--store', self.store,
             '--probe'],
            capture_output=True, text=True, timeout=120, check=True)
        told = json.loads(done.stdout)
        self.assertEqual(told['sweeps'], 16)  # 31 sequences, two each
        share = told['predicted_sweep_s'] / told['predicted_step_s']
        self.assertTrue(0 < share < 1, share)
        self.assertEqual(told['keep_best_bytes'], 12 * told['parameters'])

    # ---- a part of the data

    def test_a_split_trains_on_the_rest(self):
        ids = [i * 5 % self.vocab() for i in range(24 * 10 + 1)]
        whole = self.write_tokens('whole.bin', ids)
        rest = self.write_tokens('rest.bin', ids[:24 * 8 + 1])
        last = self.write_tokens('last.bin', ids[24 * 8:])
        self.run_it('--eval', last, data=rest)
        apart, losses = self.exported(), self.losses()
        self.again()
        self.run_it('--eval-split', '0.2', data=whole)
        self.assertEqual((self.exported(), self.losses()), (apart, losses))

    def test_another_split_is_another_run(self):
        def goes_on(*more, code=2, steps=8):
            return self.run_it('--resume', *more, steps=steps, data=whole, code=code).stderr

        whole = self.write_tokens('whole.bin', [i * 5 % self.vocab() for i in range(24 * 10 + 1)])
        self.run_it('--eval-split', '0.2', data=whole)
        was, fix = "trained with 'eval-split 0.2', this run ", 'Fix: --eval-split 0.2, or --allow-'
        for more, now in ((('--eval-split', '0.3'), "has 'eval-split 0.3'"),
                          ((), 'splits nothing'), (('--eval-split', '0'), 'splits nothing')):
            told = goes_on(*more)
            self.assertIn(f'error[E615] the store was {was}{now}: ', told)
            self.assertIn(fix, told)
        # 0.21 of 10 sequences are 2 as well: the same run, and the other share is told
        told = goes_on('--eval-split', '0.21', code=0)
        self.assertIn("goes on with 'eval-split 0.21' where it had 'eval-split 0.2'", told)
        told = goes_on('--allow-config-change', code=0, steps=9)
        self.assertIn("goes on without 'eval-split 0.21', which it had", told)
        self.assertIn('the --data of that run, split as it was (--eval-split), or --allow-',
                      goes_on('--eval-split', '0.2', steps=10))

    # ---- documents and masks

    def write_rows(self, name, count=40):
        """Documents of 5 to 13 tokens, of which the first half is not learned."""
        path = os.path.join(self.folder, name)
        with open(path, 'w', encoding='ascii') as file:
            for row in range(count):
                ids = [(row * 7 + at * 3) % self.vocab() for at in range(5 + row * 5 % 9)]
                half = len(ids) // 2
                line = {'input_ids': ids, 'labels': [-100] * half + ids[half:]}
                file.write(json.dumps(line) + '\n')
        return path

    def learned(self, path):
        with open(path, encoding='ascii') as file:
            return sum(label >= 0 for line in file for label in json.loads(line)['labels'])

    def test_packed_evaluation_gives_the_bits_of_any_placement(self):
        data, seen = self.write_rows('rows.jsonl'), set()
        for place in ('states=dram,weights=dram', 'states=nvme,weights=nvme',
                      'states=nvme,weights=nvme,grads=nvme,acts=nvme'):
            self.run_it('--place', place, '--eval-split', '0.3', '--eval-every', '2', data=data)
            seen.add((self.exported(), *self.losses().items()))
            self.again()
        self.assertEqual(len(seen), 1)

    def test_a_packed_evaluation_is_the_mean_over_what_is_learned(self):
        data = self.write_rows('rows.jsonl')
        self.run_it('--eval', data, data=data)
        targets = {line['targets'] for line in self.lines('eval')}
        self.assertEqual(targets, {self.learned(data)})
        # A step that is a pass has the loss of the evaluation before it.
        rows = self.lines('run')[0]['rows']
        self.again()
        self.run_it('--eval', data, '--order', 'sequential', steps=1, data=data, batch=24 * rows)
        self.assertEqual(self.losses()[0], self.lines('step')[0]['loss'])

    def test_packed_and_plain_data_are_evaluated_on_side_by_side(self):
        rows = self.write_rows('rows.jsonl')
        found = []
        for data, evaluated in ((rows, rows), (TOKENS, rows), (TOKENS, TOKENS), (rows, TOKENS)):
            self.run_it(data=data)
            without = self.exported()
            self.again()
            self.run_it('--eval', evaluated, data=data)
            self.assertEqual(self.exported(), without)
            found.append(self.losses()[0])
            self.again()
        self.assertEqual((found[0], found[2]), (found[1], found[3]))
        self.assertNotEqual(found[0], found[2])

    def test_a_split_of_documents_is_the_same_when_a_run_goes_on_inside_a_pass(self):
        data = self.write_rows('rows.jsonl', 80)
        more = ('--eval-split', '0.2', '--eval-every', '2', '--durability', 'step')
        self.run_it(*more, data=data)
        rows = self.lines('run')[0]['rows']
        self.assertGreater(rows, 3 * 2)
        whole, losses = self.exported(), self.losses()
        self.again()
        self.run_it(*more, steps=3, data=data)
        self.run_it(*more, '--resume', data=data)
        self.assertEqual(self.exported(), whole)
        self.assertEqual({s: loss for s, loss in self.losses().items() if s != 3}, losses)
        done = self.run_it(*more[2:], '--eval-split', '0.3', '--resume', steps=8, data=data,
                           code=2)
        self.assertIn("error[E615] the store was trained with 'eval-split 0.2'", done.stderr)

    def test_how_documents_become_rows_is_no_matter_to_data_without_documents(self):
        data = self.write_rows('rows.jsonl')
        self.run_it('--pack', 'off', '--long', 'split', '--eval', TOKENS, data=data)
        self.assertEqual(self.lines('eval')[0]['targets'], 31 * 24)

    # ---- what is refused

    def refuse(self, code, part, *more, **kind):
        done = subprocess.run(
            self.command(*more, **kind), capture_output=True, text=True, timeout=60, check=False)
        self.assertIn(f'error[E{code}] ', done.stderr)
        self.assertIn(part, done.stderr)
        self.assertFalse(os.path.exists(self.store))

    def test_data_that_can_not_be_evaluated_on_is_refused(self):
        other = self.write_tokens('other.bin', [self.vocab() + i for i in range(100)])
        empty, short = self.write_tokens('empty.bin', []), self.write_tokens('short.bin', [1] * 24)
        self.refuse(422, f'{other}: token id', '--eval', other)
        self.refuse(421, empty, '--eval', empty)
        self.refuse(421, f'{short}: 24 tokens, fewer than one sequence', '--eval', short)
        self.refuse(420, 'nothing.bin', '--eval', 'nothing.bin')
        ids = self.write_tokens('ids.bin', [1] * 73)  # 3 sequences
        self.refuse(421, 'leaves 0 of 73 tokens to evaluate on', '--eval-split', '0.1', data=ids)
        self.refuse(421, 'leaves 0 of 73 tokens to train on', '--eval-split', '0.9', data=ids)

    def test_options_that_contradict_are_refused(self):
        self.refuse(402, 'both say what to evaluate on', '--eval', TOKENS, '--eval-split', '0.1')
        for idle in (('--keep-best',), ('--patience', '2'), ('--eval-every', '3')):
            self.refuse(402, f'{idle[0]} is for a run that evaluates', *idle)
        self.refuse(402, '--durability none makes none', '--eval', TOKENS, '--keep-best',
                    '--durability', 'none')
        self.refuse(402, '--keep-best and --keep 2', '--eval', TOKENS, '--keep-best', '--keep', '2')


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
