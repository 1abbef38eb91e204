#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights and gradients that travel as integers (--gather int8, --reduce int8 or int4): one rank
has the bytes of several, and what messages carry is counted. What a node keeps of gathered weights
(--secondary node): nodes.py has its bytes. And rows that come together before the norm is known.

    rank_gathers.py PROGRAM SOURCE_ROOT PLUGIN_FOLDER [TEST...]
"""
import json
import os
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402
from ranks import FOLDER, GOLDEN, PROGRAM, Case, environment, sums_of  # noqa: E402
from short import by_turns  # noqa: E402

INTEGERS = ('--gather', 'int8')


class One(Case):
    def test_integers_decide_bits_and_places_do_not(self):
        places = (('--place', 'states=nvme,grads=nvme,acts=nvme,weights=dram'),
                  ('--place', 'states=nvme,grads=nvme,weights=nvme'),
                  ('--place', 'states=dram,weights=nvme', '--update', 'optimistic'))
        for kind in (('--precision', 'fp32'), ('--precision', 'bf16')):
            plain, exact = self.trained(*kind)
            coded, exported = self.trained(*INTEGERS, *kind)
            self.assertNotEqual(exported, exact)
            for was, is_ in zip(plain, coded):
                self.assertLess(abs(is_[1] / was[1] - 1), 2e-2)
            for place in places:
                with self.subTest(kind + place):
                    self.assertEqual(self.trained(*INTEGERS, *kind, *place), (coded, exported))

    def test_where_there_are_none_they_are_refused(self):
        done = subprocess.run(self.command(*INTEGERS, '--zero-stage', '2', store='other'),
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r'error\[E402\] --gather int8[^\n]*--zero-stage 2 keeps')

    def test_what_a_node_keeps_is_no_part_of_the_numbers(self):
        """And of one node nothing is kept, which is said."""
        want = self.trained(steps=4)
        self.trained('--durability', 'step', steps=2)
        done = subprocess.run(self.command('--resume', '--durability', 'step', '--secondary',
                                           'node', steps=4),
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count('note[I508] --secondary node keeps nothing'), 1)
        self.assertEqual((self.numbers(), sums_of(self.path('out'))), want)
        done = subprocess.run(
            self.command('--secondary', 'node', '--zero-stage', '1', store='other'),
            capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r'error\[E402\] --secondary node[^\n]*--zero-stage 1')

    def test_a_plan_has_what_a_node_keeps(self):
        """Of four ranks, two on a node, half of all rows that a backward gathers: it does without
        the embedding's. Of the homes a fourth."""
        held = []
        for secondary in ('none', 'node'):
            done = subprocess.run(
                [PROGRAM, 'plan', '--device', 'host', '--json', '--precision', 'fp32', '--model',
                 os.path.join(GOLDEN, 'untied-mha'), '--seq-len', '24', '--batch-tokens', '384',
                 '--world', '4', '--nodes', '2', '--secondary', secondary],
                capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            held.append(json.loads(done.stdout))
        rows = [mpi.shard_bytes(4, [n]) * 2 for n in (*3 * [38016], 64, 160 * 64)]
        weights = [plan['memory']['weights']['dram'] for plan in held]
        self.assertEqual(weights[1] - weights[0], sum(rows))

    def test_a_resume_gathers_as_its_store(self):
        want = self.trained(*INTEGERS, steps=4)
        self.trained(*INTEGERS, '--durability', 'step', steps=2)
        for more, status in (((), 2), (INTEGERS, 0)):
            done = subprocess.run(self.command('--resume', '--durability', 'step', *more, steps=4),
                                  capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            if status:
                self.assertRegex(done.stderr,
                                 r'error\[E615\] [^\n]*gather int8[^\n]* Fix: --gather int8')
        self.assertEqual((self.numbers(), sums_of(self.path('out'))), want)


    def refused(self, *options):
        done = subprocess.run(self.command(*options, store='other'), capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_integers_of_gradients_decide_bits_and_places_do_not(self):
        exact = self.trained('--ways', '4')
        for reduce, near in (('int8', 2e-2), ('int4', 0.2)):
            kind = ('--ways', '4', '--reduce', reduce)
            coded = self.trained(*kind)
            self.assertNotEqual(coded[1], exact[1])
            for was, is_ in zip(exact[0], coded[0]):
                self.assertLess(abs(is_[2] / was[2] - 1), near)
            place = ('--place', 'states=nvme,grads=nvme,weights=nvme', '--update', 'optimistic')
            self.assertEqual(self.trained(*kind, *place), coded)

    def test_gradients_that_nobody_sends_are_refused(self):
        for reduce in ('int8', 'int4'):
            self.assertRegex(self.refused('--reduce', reduce),
                             rf'error\[E402\] --reduce {reduce} [^\n]*this run has one way, of one '
                             r'rank\. Fix: --ways 2 or more, or --reduce grads')

    def test_a_resume_adds_as_its_store(self):
        kind = ('--reduce', 'int8')
        want = self.trained('--ways', '4', *kind, steps=4)
        self.trained('--ways', '4', *kind, '--durability', 'step', steps=2)
        for more, status in (((), 2), (('--reduce', 'int4'), 2), (kind, 0)):
            done = subprocess.run(self.command('--resume', '--durability', 'step', *more, steps=4),
                                  capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            if status:
                self.assertRegex(done.stderr,
                                 r'error\[E615\] [^\n]*reduce int8[^\n]* Fix: --reduce int8')
        self.assertEqual((self.numbers(), sums_of(self.path('out'))), want)


class Several(Case):
    def setUp(self):
        super().setUp()
        if mpi.missing(FOLDER):
            self.skipTest('no mpirun, or no libhoistway-mpi.so')

    def same(self, *more, ranks, **kind):
        want = self.trained('--ways', '4', *INTEGERS, *more, **kind)
        for n in ranks:
            with self.subTest(more, ranks=n):
                self.assertEqual(
                    self.trained('--ways', '4', *INTEGERS, *more, before=mpi.launcher(n), **kind),
                    want)

    def test_the_same_bytes(self):
        self.same('--precision', 'bf16', '--place', 'states=nvme,weights=dram', ranks=(2, 4))
        self.same('--eval-split', '0.3', ranks=(2,), **self.documents())
        self.same('--eval-split', '0.3', '--clip', '0', '--place', 'states=nvme,weights=nvme',
                  ranks=(2,), **self.documents())

    def test_integers_are_what_messages_carry(self):
        """Where no memory is shared: of each shard, an integer an element and a scale to 512. The
        first layers are gathered twice, the others once."""
        kind = ('--ways', '4', '--precision', 'bf16')
        want, told = self.trained(*kind, *INTEGERS), []
        before = (*mpi.small_memory(self, '300k'), *mpi.launcher(2))
        for gather in ((), INTEGERS):
            got = self.trained(*kind, *gather, before=before)
            told.append({line['bytes']['net'] for line in self.lines('step')})
        self.assertEqual(got, want)
        visits = zip((160 * 64, *3 * [38016], 64, 160 * 64), (1, 2, 2, 1, 1, 1))
        elements = sum(times * mpi.shard_bytes(2, [n]) // 4 for n, times in visits)
        plain, integers = (bytes_.pop() for bytes_ in told)
        self.assertEqual(plain - integers, 2 * elements - elements * 129 // 128)

    def test_the_same_bytes_of_gradients_as_integers(self):
        for kind, ranks in ((('--reduce', 'int8', '--precision', 'bf16'), (2, 4)),
                            (('--reduce', 'int4', '--hop', '2', '--zero-stage', '1'), (2,))):
            want = self.trained('--ways', '4', *kind)
            for n in ranks:
                with self.subTest(kind, ranks=n):
                    self.assertEqual(
                        self.trained('--ways', '4', *kind, before=mpi.launcher(n)), want)

    def test_integers_of_gradients_are_what_messages_carry(self):
        """Where no memory is shared; of two ranks each sends half of its rows, two ways and four
        that are one group of them."""
        before = (*mpi.small_memory(self, '300k'), *mpi.launcher(2))
        elements = sum(mpi.shard_bytes(2, [n]) // 4 for n in (160 * 64, *3 * [38016], 64, 160 * 64))
        told = []
        for reduce in ('grads', 'int8', 'int4'):
            kind = ('--ways', '4', '--hop', '2', '--precision', 'bf16', '--reduce', reduce)
            want = self.trained(*kind)
            self.assertEqual(self.trained(*kind, before=before), want)
            told.append({line['bytes']['net'] for line in self.lines('step')}.pop())
        self.assertEqual(told[0] - told[1], 2 * elements - elements * 129 // 128)
        self.assertEqual(told[0] - told[2], 2 * elements - elements * 65 // 128)

    def test_ranks_that_gather_otherwise_are_refused(self):
        for option, value in (('--gather', 'int8'), ('--secondary', 'node'), ('--reduce', 'int8')):
            other = f'test "$OMPI_COMM_WORLD_RANK" = 0 || set -- "$@" {option} {value}; exec "$@"'
            done = subprocess.run(
                [*mpi.launcher(2), 'sh', '-c', other, 'sh', *self.command(store='other')],
                capture_output=True, text=True, env=environment(), timeout=120, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, rf'error\[E503\] [^\n]*{option}[^\n]*{value}')

    def layers(self, model, count):
        """The golden model with more layers, so that whole ones come together in the backward."""
        os.mkdir(self.path('model'))
        with open(os.path.join(GOLDEN, model, 'config.json'), encoding='utf-8') as file:
            config = {**json.load(file), 'num_hidden_layers': count}
        with open(self.path('model/config.json'), 'w', encoding='ascii') as file:
            json.dump(config, file)
        return {'model': os.path.abspath(self.path('model')),
                'data': os.path.join(GOLDEN, model, 'tokens.bin')}

    def trained_early(self, *more, ranks, **kind):
        """Stages 1 and 2 gather rows in the backward, where the update is optimistic."""
        more = ('--ways', '4', '--update', 'optimistic', '--init', 'random', *more)
        want = self.trained(*more, **kind)
        self.assertEqual(self.trained(*more, before=mpi.launcher(ranks), **kind), want)

    def test_rows_come_together_once_more_behind_a_norm_that_clips(self):
        """Two layers of eight. An evaluation behind each step reads all rows, and counts with the
        next one."""
        model, told, norms = self.layers('untied-mha', 8), [], []
        for clip in ('0.1', None, '9'):
            clip = clip or str(sum(norms) / len(norms))
            self.trained_early('--zero-stage', '2', '--clip', clip, '--place', 'states=dram',
                               '--eval-split', '0.3', '--eval-every', '1', ranks=2, steps=4,
                               **model)
            lines = self.lines('step')
            norms = [line['grad_norm'] for line in lines]
            told += [(line['bytes']['net'], norm > float(clip))
                     for line, norm in zip(lines[1:], norms)]
        plain, again = min(told)[0], max(told)[0]
        self.assertEqual(again - plain, 2 * mpi.shard_bytes(2, [38016]))
        self.assertEqual([net for net, _ in told],
                         [again if clips else plain for _, clips in told])

    def test_a_skipped_step_leaves_rows_as_they_were(self):
        model = self.layers('tied-gqa', 8)
        self.trained_early('--zero-stage', '1', '--precision', 'fp16', '--loss-scale', '4194304',
                           ranks=4, steps=5, length=32, **model)
        skipped = [line['skipped'] for line in self.lines('step')]
        self.assertEqual((skipped[0], skipped[-1]), (True, False))


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
