#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A batch in ways, on one rank and on several: against float64, and the same bytes wherever things
live and however many ranks share the ways.

    ranks.py PROGRAM SOURCE_ROOT PLUGIN_FOLDER [TEST...]
"""
import functools
import hashlib
import itertools
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
from short import SEED, SHORT, by_turns, every_day, part, some, whole_alone  # noqa: E402

PROGRAM, ROOT, FOLDER = sys.argv[1:4]
GOLDEN = os.path.join(ROOT, 'tests', 'golden')
TOLERANCE = 2e-5  # relative, of fp32
ROWS_DRAWN = 12


def environment():
    return mpi.environment(FOLDER)


def sums_of(folder):
    """Of the files of an export, by name."""
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), 'rb') as file:
            found[name] = hashlib.sha256(file.read()).hexdigest()
    return found


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, *more, model='untied-mha', data=None, length=24, rows=12, steps=3,
                store='store', log='log.jsonl'):
        """Twelve sequences a step: of four ways each has a micro-batch of two and one of one. The
        export has the exact weights, which a model's own type would round."""
        usual = [word for option, value in (('--clip', '0.5'), ('--threads', '1'),
                                            ('--export-dtype', 'fp32'))
                 if option not in more for word in (option, value)]
        return [PROGRAM, 'train', '--device', 'host', '--model', os.path.join(GOLDEN, model),
                '--data', data or os.path.join(GOLDEN, model, 'tokens.bin'), '--steps', str(steps),
                '--seq-len', str(length), '--batch-tokens', str(rows * length), '--grain',
                str(2 * length), '--lr', '1e-3', *usual,
                '--store', self.path(store), '--log', self.path(log),
                '--export', self.path('out'), *more]

    def documents(self):
        """Masked ones, packed, for a model whose embedding is its head: how they are trained on."""
        rng, path = random.Random(29), self.path('data.jsonl')
        with open(path, 'w', encoding='ascii') as file:
            for _ in range(120):
                ids = [rng.randrange(272) for _ in range(rng.randrange(2, 33))]
                mask = [rng.randrange(2) for _ in ids[1:]] + [1]
                file.write(json.dumps({'input_ids': ids, 'mask': mask}) + '\n')
        return {'model': 'tied-gqa', 'data': path, 'length': 32}

    def lines(self, kind, log='log.jsonl'):
        with open(self.path(log), encoding='utf-8') as file:
            return [line for line in map(json.loads, file) if line['kind'] == kind]

    def numbers(self, log='log.jsonl'):
        """All that does not depend on time, as it was written."""
        return [[line[key] for key in ('step', 'loss', 'grad_norm', 'lr')]
                for line in self.lines('step', log)] + \
               [[line[key] for key in ('step', 'loss', 'targets')]
                for line in self.lines('eval', log)]

    def trained(self, *more, before=(), **kind):
        """-> numbers, and sums of the export, of a run that begins."""
        for name in (kind.get('store', 'store'), 'out'):
            shutil.rmtree(self.path(name), ignore_errors=True)
        done = subprocess.run([*before, *self.command(*more, **kind)], capture_output=True,
                              text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return self.numbers(kind.get('log', 'log.jsonl')), sums_of(self.path('out'))


class Ways(Case):
    """One rank."""

    def test_any_number_of_ways_trains_as_one(self):
        one, bytes_of_one = self.trained('--ways', '1')
        for ways in (2, 3, 4, 12):
            with self.subTest(ways=ways):
                some, exported = self.trained('--ways', str(ways))
                self.assertNotEqual(exported, bytes_of_one)
                for was, is_ in zip(one, some):
                    self.assertLess(abs(is_[1] / was[1] - 1), TOLERANCE)
                    self.assertLess(abs(is_[2] / was[2] - 1), TOLERANCE)

    def test_what_ways_are_rounded_to_decides_bits(self):
        """In bf16: in f32 nothing is rounded, and only the order counts."""
        kinds = [(), ('--reduce', 'f32'), ('--hop', '2')]
        bf16 = [self.trained('--precision', 'bf16', '--ways', '6', *kind)[1] for kind in kinds]
        self.assertEqual(len({str(sums) for sums in bf16}), len(kinds))
        fp32 = [self.trained('--ways', '6', *kind)[1] for kind in kinds]
        self.assertEqual(len({str(sums) for sums in fp32}), 1)

    PLACES = [('--place', 'states=dram,weights=dram'),
              ('--place', 'states=nvme,weights=nvme'),
              ('--place', 'states=nvme,weights=nvme,grads=nvme,acts=nvme'),
              ('--place', 'states=dram,weights=nvme', '--update', 'optimistic'),
              ('--update', 'deferred', '--activations', 'recompute')]

    def test_bytes_do_not_depend_on_where_things_live(self):
        for kind in (('--precision', 'fp32'), ('--precision', 'bf16')):
            want = None
            for place in self.PLACES:
                with self.subTest(kind + place):
                    got = self.trained('--ways', '4', *kind, *place)
                    want = want or got
                    self.assertEqual(got, want)

    def test_tied_weights_and_documents_have_ways(self):
        data = self.documents()
        one, _ = self.trained('--ways', '1', **data)
        four, exported = self.trained('--ways', '4', **data)
        for was, is_ in zip(one, four):
            self.assertLess(abs(is_[1] / was[1] - 1), TOLERANCE)
        places = ('--place', 'states=nvme,weights=nvme,grads=nvme,acts=nvme')
        self.assertEqual(self.trained('--ways', '4', *places, **data), (four, exported))

    def test_evaluations_are_of_all_rows(self):
        """Ways cut other micro-batches, and the sum of their losses is exact."""
        evaluated = ('--eval-split', '0.3', '--eval-every', '2')
        one, four = (self.trained('--ways', ways, *evaluated)[0] for ways in ('1', '4'))
        self.assertEqual([line[0] for line in one], [line[0] for line in four])
        for was, is_ in zip(one, four):
            self.assertLess(abs(is_[1] / was[1] - 1), TOLERANCE)
        before = self.lines('eval')[0]
        self.trained('--ways', '3', *evaluated, rows=3)  # so that nine rows are whole batches
        again = self.lines('eval')[0]
        self.assertEqual([line['targets'] for line in (before, again)], [9 * 24] * 2)
        self.assertLess(abs(again['loss'] / before['loss'] - 1), TOLERANCE)

    def test_a_resume_has_the_ways_of_its_store(self):
        want = self.trained('--ways', '4', steps=4)
        self.trained('--ways', '4', '--durability', 'step', steps=2)
        for ways, status in (((), 0), (('--ways', '2'), 2)):
            done = subprocess.run(self.command('--resume', '--durability', 'step', *ways, steps=4),
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, status, done.stderr)
            note = 'note[I622] --ways 4, as the store has it'
            self.assertEqual(done.stderr.count(note), 0 if ways else 1)
            if not ways:
                self.assertEqual((self.numbers(), sums_of(self.path('out'))), want)
        self.assertRegex(done.stderr, r'error\[E615\] .*ways 4.*ways 2.* Fix: --ways 4')

    def test_the_log_has_ranks_and_ways(self):
        self.trained('--ways', '4')
        run = self.lines('run')[0]
        self.assertEqual([run[key] for key in ('ranks', 'nodes', 'ways', 'transport')],
                         [1, 1, 4, 'self'])
        self.assertNotIn('zero_stage', run)


def some_world(rnd):
    """-> ranks, their ways and a hop."""
    ranks = rnd.choice((2, 3, 4))
    ways = ranks * rnd.choice((1, 2) if ranks == 3 else (1, 2, 4 // ranks))
    return ranks, ('--ways', str(ways), '--hop', str(rnd.choice((1, 2, 8))))


def some_kind(rnd, masked):
    """What may be drawn together of what changes bytes, and what changes none of them."""
    precision = rnd.choice(('fp32', 'bf16', 'fp16'))
    stage, update = rnd.randrange(4), rnd.choice(('deferred', 'optimistic'))
    homes = {'states': rnd.choice(('dram', 'nvme')), 'acts': rnd.choice(('dram', 'nvme')),
             'weights': rnd.choice(('dram', 'nvme')) if stage == 3 else 'dram',
             'grads': rnd.choice(('dram', 'nvme')) if stage > 1 else 'dram'}
    recompute = rnd.choice((False, False, True))
    if recompute:
        del homes['acts']
    bytes_of = ['--precision', precision, '--clip', rnd.choice(('0', '0.5'))]
    bytes_of += rnd.choice(([], ['--reduce', 'f32'])) if precision != 'fp32' else []
    bytes_of += rnd.choice(([], ['--pack', 'off'])) if masked else []
    bytes_of += rnd.choice(([], ['--eval-split', '0.3', '--eval-every', '2']))
    bytes_of += rnd.choice(([], ['--gather', 'int8'])) if stage == 3 else []
    free = ['--zero-stage', str(stage), '--update', update, '--threads', rnd.choice(('1', '2')),
            '--activations', 'recompute' if recompute else 'auto', '--place',
            ','.join(f'{of}={tier}' for of, tier in homes.items())]
    return bytes_of, free


# Each architecture, precision and clip, of two ranks and of four: a stage and a home by turns.
PRODUCT = [
    (*row, (i + i // 4) % 4, ('dram', 'nvme')[i // 3 % 2]) for i, row in enumerate(
        itertools.product(('tied-gqa', 'untied-mha'), ('fp32', 'bf16', 'fp16'), ('0.5', '0'),
                          (2, 4)))
]
# Each rank has a part of these at a stage of ZeRO, and they may be on drives.
IN_PARTS = {0: ('states',), 1: ('states',), 2: ('states', 'grads'),
            3: ('states', 'weights', 'grads')}


class Ranks(Case):
    """Several, under mpirun."""

    def setUp(self):
        super().setUp()
        if mpi.missing(FOLDER):
            self.skipTest('no mpirun, or no libhoistway-mpi.so')

    def same(self, *more, ranks=(2, 4), **kind):
        want = self.trained('--ways', '4', *more, **kind)
        for n in ranks:
            with self.subTest(more, ranks=n):
                self.assertEqual(self.trained('--ways', '4', *more, before=mpi.launcher(n), **kind),
                                 want)
                run = self.lines('run')[0]
                self.assertEqual([run[key] for key in ('ranks', 'nodes', 'ways')], [n, 1, 4])
                self.assertIn('MPI', run['transport'])
                stage = more[more.index('--zero-stage') + 1] if '--zero-stage' in more else '3'
                self.assertEqual(run['zero_stage'], int(stage))

    def test_the_same_bytes(self):
        self.same('--precision', 'bf16', '--place', 'states=dram,weights=dram')

    def test_the_same_bytes_of_three_and_six_ranks(self):
        for ranks in (3, 6):
            for precision in ('fp32', 'bf16'):
                more = ('--ways', str(ranks), '--precision', precision)
                with self.subTest(more):
                    self.assertEqual(self.trained(*more, before=mpi.launcher(ranks)),
                                     self.trained(*more))

    def test_the_same_bytes_in_fp32_from_drives(self):
        self.same('--place', 'states=nvme,weights=nvme', ranks=(2,))

    def test_the_same_bytes_with_whole_weights(self):
        self.same('--zero-stage', '2', '--place', 'states=nvme', ranks=(2,))

    def test_the_same_bytes_with_whole_gradients(self):
        self.same('--zero-stage', '1', '--precision', 'bf16', '--place', 'states=nvme')

    def test_the_same_bytes_of_replicas(self):
        self.same('--zero-stage', '0', '--precision', 'bf16', '--place', 'states=nvme', ranks=(2,))
        self.same('--zero-stage', '0', '--eval-split', '0.3', ranks=(2,),
                  **self.documents())

    def test_replicas_go_on_with_the_ways_of_their_stores(self):
        """Each in a directory of its own, which says what those of one rank do."""
        want = self.trained('--ways', '4', steps=4)[1]
        words, store = ('--zero-stage', '0', '--durability', 'step'), 'replica{rank}'
        self.trained('--ways', '4', *words, steps=2, store=store, before=mpi.launcher(2))
        done = subprocess.run(
            [*mpi.launcher(2), *self.command(*words, '--resume', store=store, steps=4)],
            capture_output=True, text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count('--ways 4, as the store has it'), 1)
        self.assertEqual(sums_of(self.path('out')), want)
        for more in ((), ('--resume',)):  # one process, beside the second rank's
            done = subprocess.run(self.command('--ways', '4', *more, store='replica1', log='new'),
                                  capture_output=True, text=True, timeout=120)
            self.assertIn(done.returncode, (1, 2), done.stderr)
            self.assertRegex(done.stderr, r'error\[E61[36]\] [^\n]*r00001\.d0\.blk')

    def test_the_same_evaluations(self):
        """There are nine rows, and so none for the last rank."""
        self.same('--eval-split', '0.3', '--eval-every', '2', ranks=(4,))
        self.assertTrue(self.lines('eval'))

    def test_the_same_bytes_of_documents(self):
        self.same('--eval-split', '0.3', '--precision', 'bf16', ranks=(2,), **self.documents())

    @every_day
    def test_the_same_bytes_of_each_architecture_precision_and_clip(self):
        """fp16 has a scale of the loss at which the tied model's first step overflows. The short
        form has twelve rows, sanitizers eight, of four runs of one process."""
        @functools.cache
        def of_one_process(model, *more):
            return self.trained('--ways', '4', *more, model=model)
        rows = some(PRODUCT, 2)
        if SHORT > 1:
            rows = [row for two in part(zip(PRODUCT[::2], PRODUCT[1::2]), 4) for row in two]
            self.assertEqual(len(rows), 8)
        print(f'{len(rows)} of {len(PRODUCT)} rows')
        for row in rows:
            model, precision, clip, ranks, stage, home = row
            more = ('--precision', precision, '--clip', clip,
                    *(('--loss-scale', '524288') if precision == 'fp16' else ()))
            place = ','.join(f'{part}={home}' for part in IN_PARTS[stage])
            with self.subTest(row):
                want = of_one_process(model, *more)
                self.assertEqual(self.trained(
                    '--ways', '4', *more, '--zero-stage', str(stage), '--place', place,
                    before=mpi.launcher(ranks), model=model), want)
                run, = self.lines('run')
                self.assertEqual((run['ranks'], run['zero_stage']), (ranks, stage))

    def test_a_step_takes_in_what_the_paper_says(self):
        """To the byte, with Ψ of the paper as ranks have it: each unit in as many shards of whole
        blocks. ZeRO's stages 0 to 2 move 2 Ψ, stage 3 moves 3: but for the weights of the last
        layer, the norm and the head, which are there still when their backwards begin, and of the
        embedding, whose backward needs none."""
        vocabulary, layers, norm = 160 * 64, [38016] * 3, 64
        psi = 2 * vocabulary + sum(layers) + norm
        print(f'elements that a step moves, of Ψ = {psi}:')
        rows = [(ranks, stage, clip) for clip in ('0.5', '0') for stage in (3, 0, 1, 2)
                for ranks in (2, 4)]
        for ranks, stage, clip in some(rows, 4):
            with self.subTest(ranks=ranks, stage=stage, clip=clip):
                times = 3 if stage == 3 else 2
                self.trained('--ways', '4', '--zero-stage', str(stage), '--clip', clip,
                             before=mpi.launcher(ranks))
                units = (vocabulary, *layers, norm, vocabulary)
                padded = mpi.shard_bytes(ranks, units) * ranks // 4
                once = mpi.shard_bytes(ranks, [vocabulary, layers[-1], norm, vocabulary])
                want = times * padded * 4 // ranks - (once if stage == 3 else 0)
                got = [line['bytes']['net'] for line in self.lines('step')]
                print(f'  {ranks} ranks, stage {stage}: {got[-1] // 4}, of padded Ψ = '
                      f'{padded}; the paper: {times * psi * (ranks - 1) // ranks}')
                early = stage in (1, 2) and clip == '0'
                # then the load has gathered the rows, if any, that a step leaves to the next one
                self.assertEqual(set(got[early:]), {want * (ranks - 1)})
                self.assertLessEqual(got[0], got[1])

    @whole_alone
    def test_any_kind_of_run_has_the_bytes_of_one(self):
        """Tied embeddings with masks, packed or not, or plain rows; kept activations or none. The
        engine's own test draws more ranks, optimizers and homes, of a client that has none of
        these."""
        print(f'the same rows again: HST_TEST_SEED={SEED}')
        for row in range(ROWS_DRAWN):
            rnd = random.Random(f'{SEED}/{row}')
            masked = row % 2 == 0
            ranks, world = some_world(rnd)
            bytes_of, free = some_kind(rnd, masked)
            kind = {**(self.documents() if masked else {}), 'rows': 24}  # of any number of ways
            with self.subTest(ranks=ranks, options=' '.join((*world, *bytes_of, *free))):
                want = self.trained(*world, *bytes_of, **kind)
                self.assertEqual(self.trained(*world, *bytes_of, *free,
                                              before=mpi.launcher(ranks), **kind), want)

    def test_rows_that_are_whole_before_a_step_ends(self):
        """Without a clip stages 1 and 2 gather them behind their updates: an evaluation, a drain
        and a run that goes on find them whole."""
        more = ('--clip', '0', '--eval-split', '0.3', '--eval-every', '2', '--durability', 'step')
        for stage, model in some((('2', 'tied-gqa'), ('1', 'untied-mha')), 2):
            kind = {**(self.documents() if model == 'tied-gqa' else {}), 'steps': 6}
            want = self.trained('--ways', '4', *more, **kind)
            with self.subTest(stage=stage, model=model):
                stages = ('--ways', '4', '--zero-stage', stage, *more)
                self.assertEqual(self.trained(*stages, before=mpi.launcher(2), **kind), want)
                self.trained(*stages, before=mpi.launcher(4), **{**kind, 'steps': 3})
                again = [*mpi.launcher(2), *self.command(*stages, '--resume', **kind)]
                done = subprocess.run(again, capture_output=True, text=True, env=environment(),
                                      timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(sums_of(self.path('out')), want[1])

    def test_a_rank_names_itself_where_the_cause_is_its_own(self):
        trace = self.path('trace.json')
        os.mkdir(trace + '.rank1')
        done = subprocess.run([*mpi.launcher(2), *self.command('--ways', '2', '--trace', trace)],
                              capture_output=True, text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r'(?m)^rank 1 \([^)]+\): error\[E107\] [^\n]*json.rank1')
        self.assertEqual(len(mpi.errors_of(done.stderr)), 1, done.stderr)
        os.rmdir(trace + '.rank1')
        self.trained('--ways', '2', '--trace', trace, before=mpi.launcher(2))
        for rank in range(2):
            with open(f'{trace}.rank{rank}', encoding='utf-8') as file:
                events = json.load(file)['traceEvents']
            self.assertEqual({event['pid'] for event in events}, {rank})

    def test_directories_of_each_rank(self):
        """{local}, as drives of a node, and {rank}, which is the same here, {node} being 0."""
        self.refused(402, '--store has {host}, and', store='{host}')
        os.mkdir(self.path('out0'))
        self.refused(402, 'is in --store', store='out{node}', log='out0/log.jsonl')
        for name in ('0', '1'):
            os.mkdir(self.path(f'drive{name}'))
        words = ('--durability', 'step')  # and no ways at the resume, which are the store's
        kind = {'store': 'drive{local}/node{node}-rank{rank}', 'before': mpi.launcher(2)}
        want = self.trained('--ways', '4', steps=4)[1]
        self.trained('--ways', '4', *words, steps=2, **kind)
        for name in ('0', '1'):
            folder = self.path(f'drive{name}/node0-rank{name}')
            self.assertEqual(os.listdir(folder), [f'r0000{name}.d0.blk'])
        done = subprocess.run(
            [*mpi.launcher(2), *self.command(*words, '--resume', store=kind['store'], steps=4)],
            capture_output=True, text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('after step 2', done.stderr)
        self.assertEqual(done.stderr.count('--ways 4, as the store has it'), 1)
        self.assertEqual(sums_of(self.path('out')), want)

    def test_ways_of_a_store_that_ranks_cannot_share_are_told(self):
        self.trained('--ways', '3', '--durability', 'step')
        done = subprocess.run([PROGRAM, 'ckpt', 'reshard', self.path('store'), '--world', '2',
                               '--out', self.path('two')], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.refused(402, 'the store has 3 ways, which 2 ranks cannot share: each has one way, or '
                     'a power of two of them. Fix: 1 or 3 ranks, or another --store.', '--resume',
                     '--durability', 'step', store='two', log='other.jsonl', steps=4)

    def test_budgets_are_those_of_a_node(self):
        """What a refusal names is enough, and the table tells what one rank and all may take."""
        command = self.command('--ways', '2', '--dram', '1M', '--durability', 'none', steps=1)
        run = functools.partial(subprocess.run, capture_output=True, text=True, env=environment(),
                                timeout=120)
        done = run([*mpi.launcher(2), *command])
        self.assertEqual(done.returncode, 2, done.stderr)
        named = re.search(r'error\[E302\] .* needs (\S+) MiB of DRAM \(and .*\) for the node.s 2 '
                          r'ranks, the budget is 1.0 MiB', done.stderr)
        self.assertTrue(named, done.stderr)
        command[command.index('1M')] = named[1] + 'M'
        done = run([*mpi.launcher(2), *command])
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {line[:10].strip(): line[10:].split()[0] for line in done.stdout.splitlines()
                if line.startswith(('total', 'node of 2', 'its budget'))}
        self.assertEqual(rows['its budget'], named[1])
        self.assertAlmostEqual(float(rows['node of 2']), 2 * float(rows['total']), delta=0.101)
        command = self.command('--ways', '2', '--nvme', '1M', steps=1)
        self.assertRegex(run([*mpi.launcher(2), *command]).stderr,
                         r'error\[E301\] .* for the node.s 2 ranks, its budget is 1.0 MiB')

    def test_doctor_tells_what_joins_ranks(self):
        """Once, with rates; of one process whether others could join it."""
        command = [PROGRAM, 'doctor', '--json', '--store', self.path('.')]

        def told(env, *before):
            done = subprocess.run([*before, *command], capture_output=True, text=True, env=env,
                                  timeout=120)
            told = json.loads(done.stdout)
            net, = [check for check in told['checks'] if check['name'] == 'net']
            return net, {rate['name']: rate['value'] for rate in told['rates']
                         if rate['of'] == 'net'}
        net, rates = told(environment(), *mpi.launcher(2))
        self.assertRegex(net['found'], r'^2 ranks on 1 node, Open MPI [^;]*; in a node [\d.]+ GB/s '
                                       r'gathered, [\d.]+ exchanged, \d+ us each$')
        self.assertTrue(rates and all(rate for rate in rates.values()), rates)
        net, rates = told(environment())
        self.assertIn('Open MPI and the transport are there: mpirun -n 2', net['found'])
        self.assertEqual((net['fix'], rates), (None, {}))
        net, _ = told({**environment(), 'PATH': '/nowhere'})
        self.assertIn('mpirun is not in PATH', net['found'])
        self.assertIn('apt install openmpi-bin', net['fix'])

    def test_a_refusal_leaves_no_empty_directory(self):
        """Neither one of all ranks nor each rank's, while mpirun lets these end by themselves."""
        for store in ('new', 'new{rank}'):
            command = self.command('--ways', '2', '--nvme', '1M', store=store, steps=1)
            done = subprocess.run([*mpi.launcher(2), *command], capture_output=True, text=True,
                                  env={**environment(), 'OMPI_MCA_odls_base_sigkill_timeout': '1'},
                                  timeout=120)
            self.assertIn('error[E301] ', done.stderr)
            self.assertEqual([name for name in os.listdir(self.path('.'))
                              if name.startswith('new')], [], store)

    def test_a_drive_is_divided_by_the_ranks_that_have_it(self):
        """A rank that has one to itself may fill it to nine tenths."""
        drives = [self.path('drive0'), self.path('drive1')]
        mounts = ' && '.join(f'mkdir -p {drive} && mount -t tmpfs -o size=64m none {drive}'
                             for drive in drives)
        own = ['unshare', '--mount', 'sh', '-c', mounts + ' && exec "$@"', 'sh']
        if subprocess.run([*own, 'true'], capture_output=True, check=False).returncode:
            self.skipTest('no mount of its own can be made (unshare --mount)')
        for store, budget in (('drive{local}/s', '57.6'), ('drive0/{local}', '28.8')):
            with self.subTest(store):
                done = subprocess.run(
                    [*own, *mpi.launcher(2), *self.command('--ways', '2', store=store, steps=1)],
                    capture_output=True, text=True, env=environment(), timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, rf'(?m)^budget .* {budget} MiB$')
                self.assertRegex(done.stdout,
                                 rf'(?m)^its budget .* {2 * float(budget):.1f} MiB$')

    def test_what_ranks_of_one_node_move_is_counted(self):
        """With whole weights each rank takes in the other's shard of each weight and gradient, once
        a step: half of the units' rows, which are two shards of whole blocks each. Replicas take
        in sums of gradients in place of weights. One process waits for no others."""
        for before, ranks, stage in (([], 1, 2), *((mpi.launcher(2), 2, s) for s in range(3))):
            self.trained('--ways', '2', '--zero-stage', str(stage), before=before)
            moved = [line['bytes'] for line in self.lines('step')]
            waited = [line['stall_s']['net'] for line in self.lines('step')]
            (self.assertGreater if ranks > 1 else self.assertEqual)(max(waited), 0, waited)
            shards = mpi.shard_bytes(ranks, (160 * 64, *3 * [38016], 64, 160 * 64))
            self.assertEqual([(line['net'], line['net_between']) for line in moved],
                             [(2 * (ranks - 1) * shards, 0)] * 3)

    def test_a_plan_of_two_ranks_is_what_they_take(self):
        """The table, of a rank and of the node, and its homes."""
        for options in (('--zero-stage', '2'), ('--place', 'states=nvme,weights=nvme')):
            with self.subTest(options=options):
                shutil.rmtree(self.path('store'), ignore_errors=True)
                command = self.command('--ways', '4', '--dram', '256M', '--nvme', '1G', *options)
                done = subprocess.run([*mpi.launcher(2), *command], capture_output=True, text=True,
                                      env=environment(), timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                shutil.rmtree(self.path('store'))
                left_out = ('--data', '--lr', '--log', '--export', '--export-dtype')
                plan = [PROGRAM, 'plan', '--world', '2',
                        *(word for at, word in enumerate(command[2:], 2)
                          if word not in left_out and command[at - 1] not in left_out)]
                planned = subprocess.run(plan, capture_output=True, text=True, env=environment(),
                                         timeout=120)
                self.assertEqual(planned.returncode, 0, planned.stderr)
                table = re.match(r'(?s).*?\nits budget [^\n]*\n', done.stdout)[0]
                self.assertIn('node of 2', table)
                self.assertTrue(planned.stdout.startswith(table), planned.stdout + done.stdout)

    def test_a_step_of_ranks_is_predicted(self):
        """As one of one rank is, from the third step on; a shorter run measures no network."""
        for stage in ('2', '3'):
            with self.subTest(stage=stage):
                shutil.rmtree(self.path('store'), ignore_errors=True)
                shutil.rmtree(self.path('out'), ignore_errors=True)
                command = self.command('--ways', '2', '--zero-stage', stage, steps=4)
                done = subprocess.run([*mpi.launcher(2), *command], capture_output=True, text=True,
                                      env=environment(), timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, r'(?m)^bounded by [a-z ]+: a step took \S+ s, \S+ s '
                                              r'predicted')
                summary, = self.lines('summary')
                bounds = [line['bound_s'] for line in self.lines('step')]
                self.assertEqual(bounds[:2], [None, None])
                self.assertEqual(len(set(bounds[2:])), 1)
                self.assertGreater(bounds[2], 0)
                self.assertGreaterEqual(summary['predicted_step_s'], bounds[2] * (1 - 1e-6))

    def test_rank_0_alone_tells(self):
        done = subprocess.run([*mpi.launcher(2), *self.command('--ways', '2')], capture_output=True,
                              text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('note[I501] ranks: 2 on 1 node (mpirun of Open MPI), 2 ways, ', done.stderr)
        self.assertRegex(done.stderr, r"note\[I506\] ranks of a node read each other's buffers in "
                                      r'place: [\d.]+ KiB of each are in shared memory\n')
        self.assertEqual(done.stdout.count('trained 3 steps'), 1)
        self.assertEqual(done.stderr.count('step 1/3'), 1)
        self.assertNotIn('rank 1', done.stderr)

    def told_of_little(self, size, words, *more):
        """One line of a quiet run with so much shared memory, whose results are the same."""
        want = self.trained('--ways', '2', *more)
        small = [*mpi.small_memory(self, size), *mpi.launcher(2)]
        done = subprocess.run(
            [*small, *self.command('--ways', '2', '--quiet', *more, store='other')],
            capture_output=True, text=True, timeout=120, env=environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, rf"\Awarning\[W506\] ranks of a node {words}: a node's "
                                      r'/dev/shm is too small for \d+ KiB of each of its ranks\. '
                                      r'[^\n]*\n\Z')
        self.assertEqual((self.numbers(), sums_of(self.path('out'))), want)
        helps = re.search(r'Fix: mount -o remount,size=(\d+m) /dev/shm on each node, or docker run '
                          r'--shm-size=\1\n', done.stderr)
        enough = [*mpi.small_memory(self, helps[1]), *mpi.launcher(2)]
        done = subprocess.run(
            [*enough, *self.command('--ways', '2', '--quiet', *more, store='enough')],
            capture_output=True, text=True, timeout=120, env=environment())
        self.assertEqual((done.returncode, done.stderr), (0, ''))

    def test_too_little_shared_memory_is_told_once(self):
        self.told_of_little('256k', r'send [^\n]*')

    def test_shared_memory_for_gradients_alone_is_told_once(self):
        self.told_of_little('2m', r'read only [\d.]+ KiB of each in place, and send '
                                  r'[^\n]*', '--zero-stage', '2')

    def refused(self, code, part, *more, status=2, **kind):
        """Told once, whoever found it."""
        done = subprocess.run([*mpi.launcher(2), *self.command(*more, **kind)],
                              capture_output=True, text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(len(mpi.errors_of(done.stderr)), 1, done.stderr)
        self.assertIn(f'error[E{code}] ', done.stderr)
        self.assertIn(part, done.stderr)
        self.assertFalse(os.path.exists(self.path(kind.get('log', 'log.jsonl'))))

    def test_what_ranks_cannot_do_is_refused_once(self):
        self.refused(402, 'Fix: 1 or 3 ranks, or --ways 2 or 4.', '--ways', '3')
        self.refused(420, 'nothing', '--eval', self.path('nothing'), status=1)


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
