#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A vocabulary that is too large as a whole, on several ranks: each has a shard of each slice. The
bytes are those of one process that has room for the whole.

    rank_slices.py PROGRAM SOURCE_ROOT PLUGIN_FOLDER [TEST...]
"""
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402
from short import SEED, by_turns, part, some, whole_alone  # noqa: E402

PROGRAM, ROOT, FOLDER = sys.argv[1:4]
TOKENS = os.path.join(ROOT, 'tests', 'golden', 'untied-mha', 'tokens.bin')
ROWS, WIDTH = 20000, 96  # two blocks of 8,192 rows and some of a third
CONFIG = {
    'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': WIDTH,
    'intermediate_size': 272, 'num_hidden_layers': 2, 'num_attention_heads': 6,
    'num_key_value_heads': 2, 'head_dim': 16, 'vocab_size': ROWS, 'max_position_embeddings': 64,
    'rms_norm_eps': 1e-5, 'rope_theta': 10000.0, 'hidden_act': 'silu',
}  # fmt: skip
SLICE = 8192 * WIDTH * 4  # bytes of f32
TOLD = r'note\[I306\] 2 of 5 units are used in 6 slices of their rows'
CHOSEN = r'note\[I302\] [^\n]*; large units in slices[;:]'


class Slices(unittest.TestCase):
    def setUp(self):
        if mpi.missing(FOLDER):
            self.skipTest('no mpirun, or no libhoistway-mpi.so')
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.model(False)

    def path(self, name):
        return os.path.join(self.folder, name)

    def model(self, tied):
        os.makedirs(self.path('model'), exist_ok=True)
        with open(self.path('model/config.json'), 'w', encoding='ascii') as file:
            json.dump({**CONFIG, 'tie_word_embeddings': tied}, file)

    def sizes(self, store):
        """Two micro-batches a way."""
        return ['--model', self.path('model'), '--seq-len', '16', '--batch-tokens', '128',
                '--grain', '16', '--threads', '1', '--ways', '4', '--device', 'host', '--store',
                self.path(store)]

    def run_it(self, command):
        return subprocess.run(command, capture_output=True, text=True, env=mpi.environment(FOLDER),
                              timeout=120, check=False)

    def least(self, ranks, *more):
        """The option for the least memory of a node that would do."""
        done = self.run_it([PROGRAM, 'plan', *self.sizes('none'), '--world', str(ranks),
                            '--dram', '1M', *more])
        self.assertEqual(done.returncode, 3, done.stderr)
        return '--dram', re.search(r'needs (\S+) MiB of DRAM', done.stdout)[1] + 'M'

    def train(self, ranks, *more, steps=2, store='store', sliced=None):
        """-> losses and norms, and the digest of the weights. sliced: units have to be; where they
        need not, by the machine's rates a step may be faster with slices, which is told."""
        if '--resume' not in more:
            shutil.rmtree(self.path(store), ignore_errors=True)
        shutil.rmtree(self.path('out'), ignore_errors=True)
        done = self.run_it([*(mpi.launcher(ranks) if ranks > 1 else []), PROGRAM, 'train',
                            *self.sizes(store), '--init', 'random', '--clip', '0.5', '--steps',
                            str(steps), '--log', self.path('log'), '--export', self.path('out'),
                            '--export-dtype', 'fp32',
                            *(() if '--data' in more else ('--data', TOKENS)), *more])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.told, self.chosen = done.stderr, re.search(CHOSEN, done.stderr)
        if sliced or (sliced is False and self.chosen):
            self.assertRegex(done.stderr, TOLD)
        elif sliced is False:
            self.assertNotRegex(done.stderr, TOLD)
        with open(self.path('out/model.safetensors'), 'rb') as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        with open(self.path('log'), encoding='ascii') as file:
            self.steps = [s for s in map(json.loads, file) if s['kind'] == 'step']
        return [(s['loss'], s['grad_norm']) for s in self.steps], digest

    ROWS_OF_BYTES = (
        (2, 'states=nvme,weights=nvme', 3, 'deferred'),
        (4, 'states=dram,weights=dram', 3, 'optimistic'),
        (2, 'states=nvme', 2, 'deferred'),
        (4, 'states=dram', 1, 'deferred'),
        (2, 'states=nvme', 0, 'optimistic'),
    )

    def test_the_same_bytes(self):
        kinds = [(tied, precision) for tied in (False, True)
                 for precision in ('fp32', 'bf16', 'fp16', 'bf16 --state 8bit')]
        for i, (tied, precision) in some(enumerate(kinds), len(kinds)):
            self.model(tied)
            kind = ('--precision', *precision.split(), '--durability', 'none')
            want = self.train(1, *kind, sliced=False)
            for ranks, place, stage, update in part(self.ROWS_OF_BYTES, 2, shift=i):
                with self.subTest(tied=tied, precision=precision, ranks=ranks, stage=stage):
                    more = (*kind, '--place', place, '--zero-stage', str(stage), '--update', update)
                    self.assertEqual(self.train(ranks, *more, *self.least(ranks, *more),
                                                sliced=True), want)

    def masked(self, rng):
        """-> documents with masks, of ids of all slices."""
        path = self.path('data.jsonl')
        with open(path, 'w', encoding='ascii') as file:
            for _ in range(80):
                ids = [rng.randrange(ROWS) for _ in range(rng.randrange(2, 17))]
                file.write(json.dumps({'input_ids': ids, 'mask': [
                    *(rng.randrange(2) for _ in ids[1:]), 1]}) + '\n')
        return path

    @whole_alone
    def test_any_kind_of_run_has_the_bytes_of_one(self):
        """Masks, packed or not, with kept activations or none, by either place of a vocabulary."""
        print(f'the same rows again: HST_TEST_SEED={SEED}')
        for row in range(6):
            rng = random.Random(f'{SEED}/{row}')
            self.model(row % 2 == 0)
            ranks, stage = rng.choice((2, 4)), rng.choice((3, 3, 2, 1, 0))
            same = ['--data', self.masked(rng), '--precision', rng.choice(('fp32', 'bf16', 'fp16')),
                    *rng.choice(([], ['--pack', 'off'])), '--durability', 'none',
                    *rng.choice(([], ['--eval-split', '0.3', '--eval-every', '1']))]
            weights = rng.choice(('dram', 'nvme')) if stage == 3 else 'dram'
            more = ['--zero-stage', str(stage), '--place', f'states=nvme,weights={weights}',
                    '--update', rng.choice(('deferred', 'optimistic')), '--activations',
                    rng.choice(('auto', 'recompute'))]
            little = self.least(ranks, '--precision', same[3], '--durability', 'none', *more)
            with self.subTest(tied=row % 2 == 0, ranks=ranks, options=' '.join((*same, *more))):
                want = self.train(1, *same, sliced=False)
                self.assertEqual(self.train(ranks, *same, *more, *little, sliced=True), want)

    def test_evaluations_and_best_versions(self):
        """The copy that is exported is read by each rank for itself, the rest in slices, too."""
        more = ('--eval-split', '0.3', '--eval-every', '1', '--keep-best', '--durability', 'step')
        want = self.train(1, *more, steps=3, sliced=False)
        self.assertEqual(self.train(2, *more, *self.least(2, '--durability', 'step'), steps=3,
                                    sliced=True), want)

    def test_no_gather_brings_more_than_a_slice(self):
        """What a step takes in is to the byte what its graph's gathers and exchanges bring."""
        for stage, times in ((3, None), (2, 2)):
            with self.subTest(stage=stage):
                more = ('--durability', 'none', '--zero-stage', str(stage), '--place',
                        'states=nvme', '--trace', self.path('trace'))
                self.train(2, *more, *self.least(2, *more[:-2]), steps=3, sliced=True)
                with open(self.path('trace.rank0'), encoding='ascii') as file:
                    events = [e for e in json.load(file)['traceEvents']
                              if e['name'] in ('gather', 'exchange')]
                moved = {s['step']: 0 for s in self.steps}
                for event in events:
                    self.assertLessEqual(event['args']['work'], SLICE / 2)
                    moved[event['args']['step']] += event['args']['work']
                self.assertEqual([s['bytes']['net'] for s in self.steps], list(moved.values()))
                if times:  # each once, of slices of 8,192 rows and the rest
                    rows = [8192 * WIDTH, 8192 * WIDTH, (ROWS - 2 * 8192) * WIDTH]
                    others = [103104, 103104, WIDTH]  # layers, norm
                    self.assertEqual(set(moved.values()),
                                     {times * mpi.shard_bytes(2, (*rows, *rows, *others))})

    def test_a_store_may_be_resumed_with_more_memory_or_less(self):
        """Units stay as the store has them where they fit; else the store is made another one."""
        place = ('--precision', 'bf16', '--place', 'states=nvme,weights=nvme')
        want = self.train(1, *place)
        little = {ranks: self.least(ranks, *place) for ranks in (1, 2, 4)}
        for first, then, sliced, told in some((
                ((2, True), (2, True), True, None),
                ((2, True), (2, False), True, None),
                ((2, False), (2, True), True, 'note[I621] the store has large units whole: it is '
                                              'made one of slices of large units,'),
                ((2, True), (4, True), True, 'note[I621] the store is of 2 ranks'),
                ((4, True), (2, False), False, 'note[I621] the store is of 4 ranks'),
                ((2, True), (1, False), False, 'note[I621] the store is of 2 ranks'),
                ((1, True), (2, True), True, 'note[I621] the store is of 1 rank:')), 3):
            with self.subTest(first=first, then=then):
                self.train(first[0], *place, *(little[first[0]] if first[1] else ()), steps=1,
                           sliced=first[1])
                if self.chosen and not first[1]:
                    continue  # there is no store of whole units where slices are faster
                got = self.train(then[0], *place, *(little[then[0]] if then[1] else ()),
                                 '--resume', sliced=sliced)
                self.assertEqual(got[1], want[1])
                self.assertEqual(re.findall('I621', self.told), ['I621'] if told else [])
                self.assertIn(told or '', self.told)

    def test_a_node_has_room_for_both_stores(self):
        place = ('--precision', 'bf16', '--place', 'states=nvme,weights=nvme')
        self.train(2, *place, steps=1, sliced=False)
        if self.chosen:
            self.skipTest('by the rates of this machine slices are faster: no store of whole units')
        before = {name: os.path.getsize(self.path(f'store/{name}'))
                  for name in os.listdir(self.path('store')) if name.endswith('.blk')}
        done = self.run_it([*mpi.launcher(2), PROGRAM, 'train', *self.sizes('store'), '--data',
                            TOKENS, '--init', 'random', '--clip', '0.5', '--steps', '2', *place,
                            *self.least(2, *place), '--nvme',
                            str(sum(before.values()) + (64 << 20)), '--resume'])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r'error\[E301\] the store has large units whole, and \S+ MiB '
                                      r'beside the \S+ MiB that it has are needed until it is one '
                                      r'of slices of large units; --nvme is ')
        self.assertEqual({name: os.path.getsize(self.path(f'store/{name}')) for name in before},
                         before)
        self.train(2, *place, '--resume', sliced=False)

    def test_commands_read_a_store_of_slices(self):
        place = ('--precision', 'bf16', '--place', 'states=nvme,weights=nvme')
        want = self.train(1, *place)[1]
        self.train(2, *place, *self.least(2, *place), steps=1, sliced=True)
        for source, ranks, to in (('store', 1, 'one'), ('one', 4, 'four')):
            done = self.run_it([PROGRAM, 'ckpt', 'reshard', self.path(source), '--world',
                                str(ranks), '--out', self.path(to)])
            self.assertEqual(done.returncode, 0, done.stderr)
        for store, ranks, more in (('store', 2, ()), ('one', 1, ()),
                                   ('four', 4, self.least(4, *place))):
            with self.subTest(store):
                done = self.run_it([PROGRAM, 'ckpt', 'verify', self.path(store), '--model',
                                    self.path('model')])
                self.assertEqual(done.returncode, 0, done.stderr)
                got = self.train(ranks, *place, *more, '--resume', store=store)[1]
                self.assertEqual(got, want)
                done = self.run_it([PROGRAM, 'ckpt', 'export', self.path(store), '--model',
                                    self.path('model'), '--export-dtype', 'fp32', '--export',
                                    self.path('exported')])
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(self.path('exported/model.safetensors'), 'rb') as file:
                    self.assertEqual(hashlib.sha256(file.read()).hexdigest(), want)
                shutil.rmtree(self.path('exported'))


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
