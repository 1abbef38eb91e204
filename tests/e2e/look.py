#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `inspect` tells of what this project and its models leave, on one screen.

look.py PATH_OF_HOISTWAY SOURCE_ROOT PATH_OF_NVME_BENCH
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from short import by_turns  # noqa: E402

PROGRAM, ROOT, NVME_BENCH = sys.argv[1:4]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
TOKENS = os.path.join(MODEL, 'tokens.bin')


class Look(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def run_it(self, *words):
        env = dict(os.environ, XDG_CACHE_HOME=os.path.abspath(self.path('cache')))
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False,
                              env=env)

    def good(self, *words):
        done = self.run_it(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def train(self, *more, steps=3):
        self.good(PROGRAM, 'train', '--device=host', '--model', MODEL, '--data', TOKENS,
                  '--steps', str(steps), '--seq-len=24', '--batch-tokens=48', '--quiet',
                  '--store', self.path('store'), *more)

    def seen(self, path, *more):
        """-> what a terminal of 24 lines of 80 columns shows, all of which fits."""
        text = self.good(PROGRAM, 'inspect', path, *more)
        lines = text.split('\n')
        self.assertEqual(lines.pop(), '')
        self.assertLessEqual(sum(max(1, -(-len(line) // 80)) for line in lines), 23, text)
        return text

    def told(self, path):
        return json.loads(self.good(PROGRAM, 'inspect', path, '--json'))

    def put(self, name, content):
        with open(self.path(name), 'wb') as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def tensors(self, *names):
        """A file of tensors of 4 bytes."""
        header = {n: {'dtype': 'F32', 'shape': [1], 'data_offsets': [4 * i, 4 * i + 4]}
                  for i, n in enumerate(names)}
        text = json.dumps(header).encode()
        return self.put('weights.safetensors',
                        struct.pack('<Q', len(text)) + text + bytes(4 * len(names)))

    def test_tensors_of_layers_are_one_row(self):
        text = self.seen(MODEL)
        self.assertRegex(text, r'(?m)^  layers\.0\.\.2\.self_attn\.q_proj +3 × \[64, 64\] BF16, ')
        self.assertRegex(text, r'(?m)^  lm_head +\[160, 64\] BF16, 20\.0 KiB$')
        self.assertIn('\n  30 tensors, 134.6k parameters, ', text)
        self.assertEqual(len(re.findall(r'(?m)^  .* BF16, ', text)), 12)
        self.assertTrue(all(len(line) <= 80 for line in text.split('\n')[1:]))
        every = self.good(PROGRAM, 'inspect', MODEL, '--all')
        for tensor in self.told(MODEL)['tensors']:
            self.assertRegex(every, rf'(?m) {re.escape(tensor["name"])}$')
            self.assertNotIn(tensor['name'] + '\n', text)

    def test_what_has_no_room_on_the_screen_is_counted(self):
        many = self.tensors(*(f'{chr(97 + i % 26)}{"x" * (i // 26)}' for i in range(90)))
        self.assertRegex(self.seen(many),
                         r'\n  and 70 more like these; --all tells every tensor\n\Z')
        every = self.good(PROGRAM, 'inspect', many, '--all')
        self.assertEqual(len(re.findall(r'(?m)^  F32 ', every)), 90)
        self.assertNotIn('more like these', every)
        just = self.tensors(*(f'{chr(97 + i)}' for i in range(21)))
        self.assertEqual(len(re.findall(r'(?m)^  \w  ', self.seen(just))), 21)
        self.assertIn('\n  1 tensor, 1 parameter, 4 B in 1 file\n', self.seen(self.tensors('a')))
        long = 'transformer.' + 'block.' * 30 + 'weight'
        self.assertRegex(self.seen(self.tensors(long, 'b')), r'(?m)^  transformer\.[block.]+\.\.  ')

    def test_a_model_says_in_what_it_would_train_and_come_back(self):
        self.assertIn('\n  would train in fp32, the default on host, and be exported in bf16\n',
                      self.seen(MODEL))
        told = self.told(MODEL)
        self.assertEqual((told['device'], told['precision'], told['export_dtype']),
                         ('host', 'fp32', 'bf16'))
        self.assertIn('can be trained: 3 layers, hidden 64', self.seen(MODEL))
        os.mkdir(self.path('bare'))
        shutil.copy(os.path.join(MODEL, 'config.json'), self.path('bare'))
        text = self.seen(self.path('bare'))
        for part in ('config.json alone, no weights: plan needs no more, and train --init random '
                     'begins with random ones\n', 'can be trained: 3 la', 'would train in fp32'):
            self.assertIn(part, text)
        told = self.told(self.path('bare'))
        self.assertEqual((told['trainable'], told['files'], told['tensors']), (True, 0, []))
        self.assertEqual(self.seen(self.path('bare', 'config.json')), text)
        with open(self.path('bare', 'config.json'), 'w', encoding='ascii') as file:
            file.write('{}')
        text = self.seen(self.path('bare'))
        self.assertIn('config.json alone, no weights\n  cannot be trained: ', text)
        self.train('--durability=none', '--export', self.path('out'))
        self.assertIn('in 1 file, exported by hoistway\n', self.seen(self.path('out')))
        self.assertEqual([self.told(p)['exported'] for p in (self.path('out'), MODEL)],
                         [True, False])

    def test_a_log_tells_how_far_its_run_came(self):
        log = self.path('run.jsonl')
        self.train('--log', log, '--precision=bf16')
        with open(log, encoding='ascii') as file:
            lines = file.read()
        steps = [line for line in map(json.loads, lines.split('\n')[:-1]) if line['kind'] == 'step']
        text = self.seen(log)
        for part in (f'model {MODEL}', 'trains in bf16 on host, 48 tokens a step', 'step 3 of 3, ',
                     f'loss {steps[0]["loss"]:.4f} -> {steps[-1]["loss"]:.4f}\n',
                     'the last version is that of step 3\n', '\n  ended: '):
            self.assertIn(part, text)
        told = self.told(log)
        self.assertEqual((told['kind'], told['step'], told['steps'], told['committed']),
                         ('log', 3, 3, 3))
        self.assertEqual((told['complete'], told['runs'], told['odd_lines']), (True, 1, 0))
        self.assertEqual([told['first_loss'], told['last_loss']],
                         [steps[0]['loss'], steps[-1]['loss']])
        self.train('--log', log, '--precision=bf16', '--resume', steps=5)
        self.assertIn('resumed 1 time\n', self.seen(log))
        self.assertEqual(self.told(log)['step'], 5)
        cut = self.put('cut.jsonl', lines[:lines.index('{"kind":"summary"') + 10])
        for part in ('not ended: the run goes on, was stopped or was killed',
                     '1 line is no whole line of a log'):
            self.assertIn(part, self.seen(cut))
        again = self.put('again.jsonl', lines + lines[:lines.index('\n') + 1])  # and was killed
        self.assertIn('not ended: ', self.seen(again))
        self.assertEqual((self.told(again)['runs'], self.told(again)['complete']), (2, False))
        first = self.put('first.jsonl', lines[:lines.index('\n') + 1] + 'x' * 200000 + '\n{}\n')
        self.assertIn('no step of 3 yet', self.seen(first))
        self.assertEqual(self.told(first)['odd_lines'], 2)
        odd = self.put('odd.jsonl', '{"kind":"run","model":"\\u001b[31m","steps":"x"}\n')
        self.assertNotIn('\x1b', self.seen(odd))

    def test_a_trace_tells_its_events_and_whether_it_is_whole(self):
        trace = self.path('trace.json')
        self.train('--trace', trace, '--durability=none', steps=100)
        with open(trace, encoding='ascii') as file:
            whole = file.read()
        self.assertGreater(len(whole), 3 * 65536)  # several windows
        events = [e for e in json.loads(whole)['traceEvents'] if e['ph'] == 'X']
        told = self.told(trace)
        self.assertEqual((told['kind'], told['events'], told['complete']),
                         ('trace', len(events), True))
        steps = [e['args']['step'] for e in events]
        self.assertEqual((told['first_step'], told['last_step']), (min(steps), max(steps)))
        self.assertIn(f'{len(events)} events of steps {min(steps)} to {max(steps)}\n',
                      self.seen(trace))
        self.assertIn('cut short', self.seen(self.put('cut.json', whole[:-100])))
        head, tail = '{"hoistway":"0","traceEvents":[', ']}\n'
        one = '{"ph":"X","args":{"step":7}}'
        for events, said in (([one], '1 event of step 7'), ([one, one], '2 events of step 7'),
                             ([], 'no event of any step')):
            text = self.seen(self.put('few.json', head + ','.join(events) + tail))
            self.assertIn(f'\n  {said}\n', text)
        bare = len(head + one + tail)
        for size in (65535, 65536, 65537, 65600):  # of a window, and around it
            few = self.put('few.json', head + ' ' * (size - bare) + one + tail)
            self.assertIn('\n  1 event of step 7\n', self.seen(few))

    def test_rates_and_results_are_known(self):
        rates = self.path('here.rates')
        self.good(PROGRAM, 'plan', '--model', MODEL, '--seq-len=24', '--batch-tokens=48',
                  '--device=host', '--probe', '--save-rates', rates)
        text = self.seen(rates)
        self.assertRegex(text, r'(?m)^  update-fp32 +\S+ elements/s$')
        self.assertRegex(text, r'(?m)^  \d+ others were not measured$')
        told = self.told(rates)
        self.assertEqual(told['kind'], 'rates')
        self.assertGreater(told['rates']['update-fp32'], 0)
        self.assertIsNone(told['rates']['h2d'])
        with open(rates, 'rb') as file:
            done = self.run_it(PROGRAM, 'inspect', self.put('cut.rates', file.read()[:-20]))
        self.assertRegex(done.stderr, r'error\[E423\] .*begins like rates of a machine')
        result = self.run_it(NVME_BENCH, 'sim:read=7G,write=5G', 'sim:read=3G,write=2G', '--json',
                             '--quick', '--plan', '8B', '--gpu-tflops', '150').stdout
        bench = json.loads(result)
        there = self.put('bench.json', result)
        told = self.told(there)
        self.assertEqual((told['kind'], told['cases'], told['verdict']),
                         ('nvme-bench', len(bench['cases']), bench['plan']['verdict']))
        for number, drive in enumerate(told['drives']):
            for kind in ('read', 'write', 'mixed'):
                mine = [c for c in bench['cases'] if (c['drive'], c['kind']) == (number, kind)]
                steady = [c['value'] for c in mine if c['phase'] == 'steady']
                best = steady[-1] if steady else max(c['value'] for c in mine)
                self.assertEqual(drive[kind], best)
        text = self.seen(there)
        self.assertIn(f'\n  2 drives, {len(bench["cases"])} cases\n', text)
        self.assertIsNone(told['date'])
        dated = self.put('dated.json', result.replace('"date":null', '"date":"2026-01-02"', 1))
        self.assertIn('\n  2026-01-02, 2 drives, ', self.seen(dated))
        self.assertEqual(self.told(dated)['date'], '2026-01-02')
        self.assertIn(bench['plan']['verdict'], text)
        done = self.run_it(PROGRAM, 'inspect', self.put('cut.json', result[:-20]))
        self.assertRegex(done.stderr, r'error\[E423\] .*a result of nvme-bench, and is not whole')

    def test_a_file_of_a_store_names_its_directory(self):
        self.train(steps=1)
        file = self.path('store', 'r00000.d0.blk')
        self.assertIn('\n  rank 0, drive 0, ', self.seen(file))
        told = self.told(file)
        self.assertEqual((told['kind'], told['rank'], told['drive'], told['directory']),
                         ('store file', 0, 0, self.path('store')))
        shutil.copy(file, self.path('copy'))
        self.assertNotIn('rank', self.told(self.path('copy')))
        self.assertIn('in fp32, 1 rank, 1 drive, ', self.seen(self.path('store')))

    def test_a_store_of_many_versions_is_one_screen(self):
        for step in range(1, 26):  # each waits for its copy
            self.train('--keep=30', '--keep-every=1', '--resume', steps=step)
        kept = [v for v in self.told(self.path('store'))['versions'] if v['kind'] == 'kept']
        self.assertGreater(len(kept), 22)
        text = self.seen(self.path('store'))
        self.assertIn(f'\n{len(kept) - 18} older versions are kept, too: hoistway ckpt list\n',
                      text)
        self.assertIn(f'{kept[-1]["step"]:8}  kept', text)
        for words in (('ckpt', 'list'), ('inspect', '--all')):
            every = self.good(PROGRAM, *words, self.path('store'))
            self.assertEqual(len(re.findall(r'(?m)^ +\d+  kept ', every)), len(kept))

    def test_what_is_unknown_stays_unknown_with_what_was_looked_for(self):
        for content in ('{"train_batch_size": 8}', 'hoistway', '{"kind":"step"}'):
            done = self.run_it(PROGRAM, 'inspect', self.put('some.json', content))
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r'error\[E420\] .*no safetensors, llm\.c tokens, file of '
                             r'a store, log, trace, rates or result of nvme-bench, and not named')


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1], verbosity=2)
