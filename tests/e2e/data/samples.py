#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Samples of a run: when they are made, what the log tells, and that they change nothing.

samples.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from sample_files import draw_prompts, ids_of, write  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from short import in_turn, some  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'tied-gqa')
VOCAB = 272
T = 32
LONG = 256
PLACES = ('states=dram,weights=dram', 'states=nvme,weights=nvme',
          'states=nvme,weights=nvme,grads=nvme,acts=nvme')  # fmt: skip


class Samples(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        rng = random.Random(5)
        self.prompts = draw_prompts(2, 5, VOCAB, 9)
        self.documents = [[rng.randrange(VOCAB) for _ in range(rng.randrange(2, 30))]
                          for _ in range(60)]
        self.packed = write(self.path('packed.safetensors'), VOCAB, self.prompts, self.documents)
        self.plain = write(self.path('plain.safetensors'), VOCAB, self.prompts,
                           ids=sum(self.documents, []))

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, *more, data=None, steps=4, model=MODEL, log=True, length=T):
        return [PROGRAM, 'train', '--device', 'host', '--model', model, '--data',
                data or self.packed, '--steps', str(steps), '--seq-len', str(length),
                '--batch-tokens', str(4 * length), '--grain', str(2 * length), '--lr', '1e-3',
                '--store', self.path('store'),
                *(('--log', self.path('log')) if log else ()), '--export', self.path('out'),
                *more]  # fmt: skip

    def run_it(self, *more, code=0, env=None, **kind):
        done = subprocess.run(self.command(*more, **kind), capture_output=True, text=True,
                              timeout=120, check=False, env=env)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def lines(self, kind):
        with open(self.path('log'), encoding='utf-8') as log:
            return [line for line in map(json.loads, log) if line['kind'] == kind]

    def texts(self):
        """Of each step, the texts of its samples."""
        found = {}
        for line in self.lines('sample'):
            found.setdefault(line['step'], []).append(line['text'])
            self.assertEqual(line['number'], len(found[line['step']]))
        return found

    def steps(self):
        return [(s['loss'], s['grad_norm'], s['lr']) for s in self.lines('step')]

    def exported(self):
        with open(self.path('out/model.safetensors'), 'rb') as file:
            return hashlib.sha256(file.read()).hexdigest()

    def again(self):
        for name in ('store', 'out'):
            shutil.rmtree(self.path(name), ignore_errors=True)

    def test_a_run_with_samples_trains_the_bytes_of_one_without(self):
        for data, more in some([(data, more) for more in (
                (), ('--precision', 'bf16'), ('--eval-split', '0.3'),
                ('--update', 'optimistic', '--durability', 'step'))
                for data in (self.packed, self.plain)], 3):
            self.run_it(*more, data=data)
            without = self.exported(), self.steps()
            self.assertEqual(self.lines('sample'), [])
            self.again()
            self.run_it(*more, '--samples', '3', '--sample-tokens', '4', data=data)
            self.assertEqual((self.exported(), self.steps()), without, (data, more))
            self.again()

    def test_samples_come_with_evaluations_and_without_them_at_the_end(self):
        done = self.run_it('--samples', '2', '--sample-tokens', '3')
        self.assertEqual(list(self.texts()), [4])
        self.assertRegex(done.stderr, r'note\[I429\] --samples 2 of the 5 prompts of .*packed\.'
                         r'safetensors: at the end up to 3 forwards over 1 sequence of 32')
        self.assertIn('sampled 1 time in ', done.stdout)
        self.assertIn(f'sample 2/2 after step 4/4: {self.texts()[4][1]}', done.stderr)
        self.again()
        done = self.run_it('--samples', '2', '--eval', self.plain, '--eval-every', '2')
        self.assertEqual(list(self.texts()), [0, 2, 4])
        most = max(T - len(prompt) + 1 for prompt in self.prompts[:2])
        self.assertIn(f'plain.safetensors: with each evaluation up to {most} forwards over 2 '
                      'sequences of 32', done.stderr)

    def test_a_line_of_the_log_tells_prompt_and_text(self):
        self.run_it('--samples', '5', '--sample-tokens', '6')
        for number, line in enumerate(self.lines('sample')):
            self.assertEqual(ids_of(line['prompt']), self.prompts[number])
            self.assertEqual((line['number'], line['count'], line['step']), (number + 1, 5, 4))
            self.assertEqual(len(ids_of(line['text'])), line['tokens'] - line['ended'])
            self.assertTrue(line['ended'] or line['tokens'] == 6)
            self.assertGreater(line['seconds'], 0)

    def test_texts_do_not_depend_on_where_bytes_live(self):
        for precision in some(('fp32', 'bf16', 'fp16'), 3):
            seen = set()
            for place in PLACES:
                self.run_it('--place', place, '--samples', '5', '--precision', precision)
                seen.add(str(self.texts()))
                self.again()
            self.assertEqual(len(seen), 1, precision)

    def test_texts_do_not_depend_on_slices_of_the_vocabulary(self):
        """The least memory, in which the embedding and the head are used in slices."""
        model, vocab = self.path('large'), 20000
        os.mkdir(model)
        with open(os.path.join(MODEL, 'config.json'), encoding='ascii') as file:
            config = json.load(file)
        with open(os.path.join(model, 'config.json'), 'w', encoding='ascii') as file:
            json.dump({**config, 'vocab_size': vocab, 'hidden_size': 96,
                       'tie_word_embeddings': False}, file)
        data = write(self.path('wide.safetensors'), vocab, draw_prompts(2, 3, vocab, 9),
                     self.documents)
        for precision in some(('bf16', 'fp16', 'fp32'), 3):  # not that of the test before
            more = ('--samples', '3', '--sample-tokens', '4', '--precision', precision, '--init',
                    'random', '--threads', '2', '--durability', 'none')
            self.run_it(*more, data=data, model=model, steps=2)
            whole = self.exported(), self.texts()
            self.again()
            plan = subprocess.run(
                [PROGRAM, 'plan', '--device', 'host', '--model', model, '--data', data, '--seq-len',
                 str(T), '--batch-tokens', str(4 * T), '--grain', str(2 * T), '--store',
                 self.path('store'), *more[:6], *more[8:], '--json', '--dram=1M'],
                capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
            self.assertEqual(plan.returncode, 3, plan.stderr)
            least = json.loads(plan.stdout)['smallest']['dram']
            done = self.run_it(*more, f'--dram={least}', data=data, model=model, steps=2)
            self.assertIn('slices of their rows', done.stderr)
            self.assertEqual((self.exported(), self.texts()), whole, precision)
            self.again()

    def test_prompts_that_share_a_row_are_answered_as_they_are_alone(self):
        """More prompts than a batch has rows: of the plain file in two batches."""
        prompts = draw_prompts(3, 9, VOCAB, 5)
        options = ('--samples', '9', '--sample-tokens', '6', '--eval', self.plain)
        found = []
        for kind in ({'documents': self.documents}, {'ids': sum(self.documents, [])}):
            data = write(self.path('more.safetensors'), VOCAB, prompts, **kind)
            evaluated = write(self.path('none.safetensors'), VOCAB, [], ids=[1] * 40)
            self.run_it(*options[:4], '--eval', evaluated, data=data)
            found.append(self.texts()[0])
            self.again()
        self.assertEqual(found[0], found[1])
        self.assertGreater(len(set(found[0])), 3)

    def test_an_end_of_the_model_ends_a_sample(self):
        self.run_it('--samples', '1', '--sample-tokens', '6')
        ids = ids_of(self.texts()[4][0])
        ends = next(i for i in ids if i != ids[0]) if len(set(ids)) > 1 else ids[0]
        model = self.path('model')
        shutil.copytree(MODEL, model)
        for name, written in (('generation_config.json', {'eos_token_id': [VOCAB - 1, ends]}),
                              ('config.json', {'eos_token_id': ends})):
            self.again()
            path = os.path.join(model, name)
            known = {}
            if os.path.exists(path):
                with open(path, encoding='ascii') as file:
                    known = json.load(file)
            with open(path, 'w', encoding='ascii') as file:
                json.dump({**known, **written}, file)
            self.run_it('--samples', '1', '--sample-tokens', '6', model=model)
            (line,) = self.lines('sample')
            self.assertEqual((ids_of(line['text']), line['ended'], line['tokens']),
                             (ids[:ids.index(ends)], True, ids.index(ends) + 1))
            if name == 'generation_config.json':
                os.remove(path)

    @in_turn(0, 3)
    def test_a_run_that_goes_on_tells_each_sample_once(self):
        more = ('--samples', '2', '--sample-tokens', '3', '--eval', self.plain, '--eval-every',
                '2', '--durability', 'step')
        self.run_it(*more)
        whole = self.texts()
        self.again()
        self.run_it(*more, steps=2)
        self.run_it(*more, '--resume')
        self.assertEqual(self.texts(), whole)

    @in_turn(1, 3)
    def test_what_is_asked_otherwise_is_told_beside_what_was(self):
        """A step that was sampled: with another number, other lengths, other prompts."""
        prompts = draw_prompts(3, 4, VOCAB, 9)
        other = write(self.path('other.safetensors'), VOCAB, prompts,
                      ids=sum(self.documents[1:], []))
        of = ('--eval', self.plain, '--eval-every', '1')
        self.run_it(*of, '--samples', '2', '--sample-tokens', '3')
        for more in ((*of, '--samples', '4', '--sample-tokens', '6'),
                     (*of, '--samples', '4', '--sample-tokens', '7'),
                     ('--eval', other, '--eval-every', '1', '--samples', '4',
                      '--sample-tokens', '7')):
            before = self.lines('sample')
            for count in (4, 0):
                self.run_it(*more, '--resume')
                added = self.lines('sample')[len(before):]
                self.assertEqual([(s['step'], s['number']) for s in added],
                                 [(4, i + 1) for i in range(count)])
                for line in added:
                    self.assertEqual(line['count'], 4)
                    self.assertTrue(line['ended'] or line['tokens'] == int(more[-1]))
                before += added
        self.assertEqual([ids_of(line['prompt']) for line in before[-4:]], prompts)
        self.assertEqual([line['step'] for line in self.lines('eval')], [0, 1, 2, 3, 4, 4])

    @in_turn(2, 3)
    def test_a_run_that_is_killed_and_goes_on_has_the_same_samples(self):
        more = ('--samples', '2', '--sample-tokens', '3', '--eval', self.plain, '--eval-every',
                '2', '--durability', 'step')
        self.run_it(*more, steps=12)
        whole = self.texts()
        self.again()
        os.remove(self.path('log'))
        with subprocess.Popen(self.command(*more, steps=12), stderr=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL) as child:
            while child.poll() is None:
                if os.path.exists(self.path('log')) and len(self.texts()) > 2:
                    child.send_signal(signal.SIGKILL)
                    break
        self.run_it(*more, '--resume', steps=12)
        self.assertEqual(self.texts(), whole)

    def test_a_stop_at_the_last_samples_ends_them_alone(self):
        """With nothing but the export to keep what was trained, and samples that take seconds."""
        for more, samples in some(((('--durability', 'none'), 0), (('--durability', 'step'), 0),
                                   (('--eval', self.plain, '--eval-every', '2'), 2)), 3):
            self.run_it(*more[:2] if samples == 0 else (), steps=2, length=LONG)
            wanted = self.exported()
            self.again()
            command = self.command(*more, '--samples', '5', '--sample-tokens', str(LONG), steps=2,
                                   length=LONG)
            with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  text=True) as child:
                while child.poll() is None and not os.path.exists(self.path('out')):
                    time.sleep(0.001)
                child.send_signal(signal.SIGTERM)
                told = child.stderr.read()
            self.assertEqual(child.returncode, 0, told)
            self.assertIn('warning[W429] no samples after step 2: the run was asked to stop (Termin'
                          'ated) when all else was done, and ends as without them', told)
            self.assertEqual(self.exported(), wanted)
            self.assertEqual({line['step'] for line in self.lines('sample')},
                             {0} if samples else set())
            self.assertEqual(len(self.lines('summary')), 1)
            self.again()

    def test_a_stop_at_other_samples_stops_the_run(self):
        command = self.command('--samples', '5', '--sample-tokens', str(LONG), '--eval',
                               self.plain, '--durability', 'step', length=LONG)
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              text=True) as child:
            while child.poll() is None and not (os.path.exists(self.path('log')) and
                                                self.lines('eval')):
                time.sleep(0.001)
            child.send_signal(signal.SIGTERM)
            told = child.stderr.read()
        self.assertEqual(child.returncode, 75, told)
        self.assertIn('stopped (Terminated) after 0 of 4 steps: ', told)
        self.assertEqual(self.lines('sample'), [])

    def plan(self, env, *more):
        command = [PROGRAM, 'plan', '--model', MODEL, '--data', self.packed, '--seq-len', str(T),
                   '--batch-tokens', str(4 * T), '--grain', str(2 * T), '--device', 'host',
                   '--store', self.path('store'), '--samples', '2', *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True,
                              env=env).stdout

    def test_what_samples_take_is_told_by_plan_and_by_train_each_time_and_for_the_run(self):
        """Before anything was measured behind the first forward, then before the first step."""
        cache = os.path.abspath(self.path('cache'))
        os.mkdir(cache, 0o700)
        env = {**os.environ, 'XDG_CACHE_HOME': cache}
        of = ('--eval', self.plain, '--durability', 'none')
        more = ('--samples', '2', '--sample-tokens', '3', '--eval-every', '2', *of)
        first, then = re.findall(r'note\[I429\] (.*)', self.run_it(*more, env=env).stderr)
        told = ('with each evaluation up to 3 forwards over 1 sequence of 32{}; in this run up to '
                '3 times, 9 forwards{}\\.$').format
        self.assertRegex(first, told('', ''))
        self.assert_times(then, r'a forward of the samples took (\S+) s: up to 3 each time, about '
                                r'(\S+) s, about (\S+) s in the 3 times of this run\.$', 3)
        most = max(T - len(prompt) + 1 for prompt in self.prompts[:2])
        self.assertRegex(self.plan(env, '--probe', *of), r'\nsamples take about \S+ s each time, '
                         f'for up to {most} sweeps\n')
        sweep = json.loads(self.plan(env, '--json', *of))
        self.assertEqual(sweep['sample_sweeps'], most)
        self.again()
        done = self.run_it(*more, env=env)
        (line,) = re.findall(r'note\[I429\] (.*)', done.stderr)
        about = r', about (\S+) s'
        seconds = self.assert_times(line, told('()' + about, about), 3)
        self.assertAlmostEqual(seconds / (3 * sweep['predicted_sweep_s']), 1, delta=0.01)

    def assert_times(self, line, pattern, times):
        """Seconds of one time, told of it and of so many; told of a forward first, or not."""
        self.assertRegex(line, pattern)
        one, each, whole = re.search(pattern, line).groups()
        self.assertAlmostEqual(float(whole) / float(each), times, delta=0.02 * times)
        if one:
            self.assertAlmostEqual(float(each) / float(one), 3, delta=0.06)
        return float(each)

    def test_where_no_logit_is_a_number_a_sample_ends(self):
        """The weights of the last norm are none, and so is all that comes of them."""
        model, name = self.path('model'), 'model.norm.weight'
        shutil.copytree(MODEL, model)
        with open(os.path.join(model, 'model.safetensors'), 'r+b') as file:
            header = int.from_bytes(file.read(8), 'little')
            begin, end = json.loads(file.read(header))[name]['data_offsets']
            file.seek(8 + header + begin)
            file.write(b'\xff' * (end - begin))
        done = self.run_it('--samples', '2', '--sample-tokens', '3', '--skip-nonfinite',
                           model=model)
        self.assertIn('after step 4/4:  (ends here: no logit of the next token is a number)',
                      done.stderr)
        for line in self.lines('sample'):
            self.assertEqual((line['text'], line['tokens'], line['ended'], line['nonfinite']),
                             ('', 0, False, True))
        self.again()
        self.run_it('--samples', '2')
        self.assertNotIn('nonfinite', self.lines('sample')[0])

    def test_an_id_without_bytes_is_told_as_one(self):
        """Of a file that has the bytes of five ids. An end is no part of a text."""
        few = write(self.path('few.safetensors'), 5, [[1, 2, 3]], self.documents)
        self.run_it('--samples', '1', '--sample-tokens', '6', data=few)
        (line,) = self.lines('sample')
        known = ids_of(line['text'])
        self.assertLess(len(known), line['tokens'])
        self.assertEqual(line['text'].count('\ufffd'),
                         line['tokens'] - line['ended'] - len(known))

    def refuse(self, words, *more, **kind):
        self.assertIn('error[E402] ', (done := self.run_it(*more, code=2, **kind)).stderr)
        self.assertIn(words, done.stderr)
        self.assertFalse(os.path.exists(self.path('store')))

    def test_what_can_not_be_sampled_is_refused(self):
        none = write(self.path('none.safetensors'), VOCAB, [], self.documents)
        mute = write(self.path('mute.safetensors'), VOCAB, self.prompts, self.documents,
                     spelt=False)
        long = write(self.path('long.safetensors'), VOCAB, [[1], [2] * (T + 1)], self.documents)
        self.refuse('--samples 2 needs prompts, and no file of --data has any', '--samples', '2',
                    data=none)
        self.refuse('neither --eval nor --data has any', '--samples', '2', '--eval', none,
                    data=none)
        self.refuse('mute.safetensors has prompts, but not the bytes', '--samples', '2', data=mute)
        few = write(self.path('few.safetensors'), 5, [[1], [4, 5]], self.documents)
        self.refuse(f'prompt 2 of {few} has the id 5, and its bytes are those of the ids below 5',
                    '--samples', '2', data=few)
        self.refuse('has 5 prompts. Fix: --samples 5.', '--samples', '6')
        self.refuse(f'prompt 2 of {long} has {T + 1} tokens', '--samples', '2', data=long)
        self.refuse('--sample-tokens is for a run with samples', '--sample-tokens', '2')
        self.refuse('--samples 2 with --quiet are shown nowhere', '--samples', '2', '--quiet',
                    log=False)
        self.run_it('--samples', '2', '--quiet')
        self.assertEqual(len(self.lines('sample')), 2)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
