#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A batch in ways, on one rank and on several: against float64, and the same bytes wherever things
live and however many ranks share the ways.

    ranks.py PROGRAM SOURCE_ROOT PLUGIN_FOLDER [TEST...]
"""
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402

PROGRAM, ROOT, FOLDER = sys.argv[1:4]
GOLDEN = os.path.join(ROOT, 'tests', 'golden')
TOLERANCE = 2e-5  # relative, of fp32


def environment():
    return mpi.environment(FOLDER)


def golden_of(name):
    with open(os.path.join(GOLDEN, name, 'golden.json'), encoding='utf-8') as file:
        return json.load(file)


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
        """Twelve sequences a step: of four ways each has a micro-batch of two and one of one."""
        return [PROGRAM, 'train', '--device', 'host', '--model', os.path.join(GOLDEN, model),
                '--data', data or os.path.join(GOLDEN, model, 'tokens.bin'), '--steps', str(steps),
                '--seq-len', str(length), '--batch-tokens', str(rows * length), '--grain',
                str(2 * length), '--lr', '1e-3', '--clip', '0.5', '--threads', '1',
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

    def reference(self, name, ways, *more):
        golden = golden_of(name)
        command = [PROGRAM, 'train', '--device', 'host', '--quiet', '--model',
                   os.path.join(GOLDEN, name), '--data', os.path.join(GOLDEN, name, 'tokens.bin'),
                   '--durability', 'none', '--store', self.path(name), '--log',
                   self.path('log.jsonl'), '--order', golden['order'], '--ways', str(ways),
                   *(word for option, value in (
                       ('steps', len(golden['steps'])), ('seq-len', golden['seq_len']),
                       ('batch-tokens', golden['batch_tokens']),
                       ('grain', golden['grain_tokens']), ('lr', golden['lr']),
                       ('betas', '{},{}'.format(*golden['betas'])), ('eps', golden['eps']),
                       ('weight-decay', golden['weight_decay']), ('clip', golden['clip']))
                     for word in (f'--{option}', str(value))), *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return golden['steps'], self.lines('step')

    def test_a_sequence_a_way_trains_as_the_reference(self):
        for name, ways in (('tied-gqa', 5), ('untied-mha', 7)):
            with self.subTest(name):
                golden, steps = self.reference(name, ways)
                self.assertEqual(len(steps), len(golden))
                for is_, was in zip(steps, golden):
                    for key in ('loss', 'grad_norm'):
                        self.assertLess(abs(is_[key] / was[key] - 1), TOLERANCE, (name, key))

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

    def test_the_log_has_ranks_and_ways(self):
        self.trained('--ways', '4')
        run = self.lines('run')[0]
        self.assertEqual([run[key] for key in ('ranks', 'nodes', 'ways', 'transport')],
                         [1, 1, 4, 'self'])


class Ranks(Case):
    """Several, under mpirun."""

    def setUp(self):
        super().setUp()
        if not shutil.which('mpirun') or not os.path.exists(
                os.path.join(FOLDER, 'libhoistway-mpi.so')):
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

    def test_the_same_bytes(self):
        self.same('--precision', 'bf16', '--place', 'states=dram,weights=dram')

    def test_the_same_bytes_in_fp32_from_drives(self):
        self.same('--place', 'states=nvme,weights=nvme', ranks=(2,))

    def test_the_same_bytes_with_whole_weights(self):
        self.same('--zero-stage', '2', '--place', 'states=nvme', ranks=(2,))

    def test_the_same_evaluations(self):
        """There are nine rows, and so none for the last rank."""
        self.same('--eval-split', '0.3', '--eval-every', '2', ranks=(4,))
        self.assertTrue(self.lines('eval'))

    def test_the_same_bytes_of_documents(self):
        self.same('--eval-split', '0.3', '--precision', 'bf16', ranks=(2,), **self.documents())

    def test_a_rank_names_itself_where_the_cause_is_its_own(self):
        trace = self.path('trace.json')
        os.mkdir(trace + '.rank1')
        done = subprocess.run([*mpi.launcher(2), *self.command('--ways', '2', '--trace', trace)],
                              capture_output=True, text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r'(?m)^rank 1 \([^)]+\): error\[E107\] [^\n]*json.rank1')
        self.assertEqual(done.stderr.count('error['), 1, done.stderr)
        os.rmdir(trace + '.rank1')
        self.trained('--ways', '2', '--trace', trace, before=mpi.launcher(2))
        for rank in range(2):
            with open(f'{trace}.rank{rank}', encoding='utf-8') as file:
                events = json.load(file)['traceEvents']
            self.assertEqual({event['pid'] for event in events}, {rank})

    def test_rank_0_alone_tells(self):
        done = subprocess.run([*mpi.launcher(2), *self.command('--ways', '2')], capture_output=True,
                              text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('note[I501] ranks: 2 on 1 node (mpirun of Open MPI), 2 ways, ', done.stderr)
        self.assertEqual(done.stdout.count('trained 3 steps'), 1)
        self.assertEqual(done.stderr.count('step 1/3'), 1)
        self.assertNotIn('rank 1', done.stderr)

    def refused(self, code, part, *more, status=2):
        """Told once, whoever found it."""
        done = subprocess.run([*mpi.launcher(2), *self.command(*more)], capture_output=True,
                              text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stderr.count('error['), 1, done.stderr)
        self.assertIn(f'error[E{code}] ', done.stderr)
        self.assertIn(part, done.stderr)
        self.assertFalse(os.path.exists(self.path('log.jsonl')))

    def test_what_ranks_cannot_do_is_refused_once(self):
        self.refused(501, '--samples is for one process', '--samples', '2')
        self.refused(402, 'Fix: --ways 2 or 4.', '--ways', '3')
        self.refused(420, 'nothing', '--eval', self.path('nothing'), status=1)

    def test_ranks_of_other_options_are_refused(self):
        first, second = self.command('--ways', '2'), self.command('--ways', '2')
        second[second.index('--lr') + 1] = '2e-3'
        mpirun = mpi.launcher(1)
        done = subprocess.run([*mpirun, *first, ':', '-n', '1', *second], capture_output=True,
                              text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn('error[E503] ', done.stderr)
        self.assertIn('2e-3', done.stderr)

    def test_threads_and_budgets_are_each_ranks_own(self):
        first = self.command('--ways', '2', '--world', '2', '--rank', '0', '--dram', '64M')
        second = self.command('--ways', '2', '--dram=60M', '--world', '2', '--rank', '1')
        second[second.index('--threads') + 1] = '2'
        command = [*mpi.launcher(1), *first, ':', '-n', '1', *second]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(),
                              timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_rank_that_is_stopped_is_named(self):
        command = self.command('--ways', '2', '--peer-timeout', '5', steps=100000)
        with subprocess.Popen([*mpi.launcher(2), *command], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, env=environment()) as child:
            for line in child.stderr:
                if line.startswith('step '):
                    break
            os.kill(mpi.processes(PROGRAM, self.path('store'))[1], signal.SIGSTOP)
            told = child.stderr.read()
        self.assertEqual(child.returncode, 1, told)
        self.assertRegex(told, r'error\[E504\] rank 1 [^\n]*; waited 5 s for it in ')

    def test_a_signal_to_one_rank_stops_all_after_the_same_step(self):
        command = self.command('--ways', '2', '--durability', 'step', steps=100000)
        with subprocess.Popen([*mpi.launcher(2), *command], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, env=environment()) as child:
            for line in child.stderr:
                if line.startswith('step '):
                    break
            os.kill(mpi.processes(PROGRAM, self.path('store'))[1], signal.SIGUSR1)
            told = child.stderr.read()
        self.assertEqual(child.returncode, 75, told)
        self.assertIn('stopped (a signal to another rank) after ', told)
        self.assertEqual(told.count('stopped ('), 1, told)
        made = len(self.lines('step'))
        want = self.trained('--ways', '2', steps=made + 2, store='other', log='other.jsonl')[1]
        shutil.rmtree(self.path('out'))
        done = subprocess.run(
            [*mpi.launcher(2), *self.command('--ways', '2', '--resume', steps=made + 2)],
            capture_output=True, text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sums_of(self.path('out')), want)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
