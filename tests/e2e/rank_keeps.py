#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What several ranks tell and keep beside their store, as one process does: samples, the best
version, copies of versions.

    rank_keeps.py PROGRAM SOURCE_ROOT PLUGIN_FOLDER [TEST...]
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'data'))
from ranks import FOLDER, GOLDEN, PROGRAM, Case, environment, mpi, sums_of  # noqa: E402
from sample_files import draw_prompts, write  # noqa: E402
from short import by_turns, some  # noqa: E402

MODEL = {'model': 'untied-mha'}
VOCAB = 160
WORSE = ('--eval-split', '0.3', '--eval-every', '2', '--keep-best')  # at a rate that spoils it
RATE = '0.5'


class Keeps(Case):
    def setUp(self):
        super().setUp()
        self.rate = '1e-3'
        if mpi.missing(FOLDER):
            self.skipTest('no mpirun, or no libhoistway-mpi.so')

    def command(self, *more, **kind):
        words = super().command(*more, **kind)
        words[words.index('--lr') + 1] = self.rate
        return words

    def run_it(self, *more, before=(), code=0, **kind):
        done = subprocess.run([*before, *self.command(*more, **kind)], capture_output=True,
                              text=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def again(self):
        for name in os.listdir(self.folder):
            if not name.endswith('.safetensors'):
                shutil.rmtree(self.path(name), ignore_errors=True)

    def kept(self, folder='store'):
        return sorted(name for name in os.listdir(self.path(folder)) if name.startswith('step-'))

    def same(self, look, *more, ranks, **kind):
        """look(done) of one process and of several ranks."""
        self.again()
        want = look(self.run_it('--ways', '4', *more, **kind))
        for n in ranks:
            with self.subTest(more, ranks=n):
                self.again()
                got = look(self.run_it('--ways', '4', *more, before=mpi.launcher(n), **kind))
                self.assertEqual(got, want)

    # ---- samples ----

    def data(self):
        """-> documents, and a row of tokens, both with prompts."""
        rng = random.Random(7)
        prompts = draw_prompts(2, 7, VOCAB, 9)
        documents = [[rng.randrange(VOCAB) for _ in range(rng.randrange(2, 24))]
                     for _ in range(120)]
        return (write(self.path('packed.safetensors'), VOCAB, prompts, documents),
                write(self.path('plain.safetensors'), VOCAB, prompts, ids=sum(documents, [])))

    def said(self, done):
        """All that is told of samples but for seconds, which one process may know from before;
        the log's lines, and what was trained."""
        told = [re.sub(r', about [\d.e+-]+ s\b', '', line) for line in done.stderr.splitlines()
                if 'sample' in line and 'a forward of the samples took' not in line]
        lines = [{key: value for key, value in line.items() if key not in ('time', 'seconds')}
                 for line in self.lines('sample')]
        self.assertTrue(lines)
        return told, lines, self.numbers(), sums_of(self.path('out'))

    def test_the_same_samples(self):
        packed, plain = self.data()
        nvme = ('--place', 'states=nvme,weights=nvme')
        rows = ((plain, (4,), ('--eval-split', '0.3', '--eval-every', '2')),
                (packed, (2,), ('--precision', 'bf16')),
                (plain, (2,), ('--zero-stage', '2', '--precision', 'bf16')),
                (packed, (2,), ('--zero-stage', '0', '--eval-split', '0.3')),
                (plain, (4,), ('--zero-stage', '1', '--precision', 'bf16')),
                (packed, (4,), ('--eval-split', '0.3', *nvme)),
                (plain, (2,), nvme))
        for data, ranks, more in some(rows, 3):
            self.same(self.said, '--samples', '7', '--sample-tokens', '4', *more, ranks=ranks,
                      data=data, **MODEL)

    # ---- the best version ----

    def best(self, folder):
        def look(done):
            """What was evaluated, kept and exported, and what is told of that."""
            told = re.findall(r'(?:exported|, best) .*', done.stdout)
            self.assertTrue(self.lines('eval'))
            return self.numbers(), self.kept(folder), told, sums_of(self.path('out'))
        return look

    def test_the_same_best_version_is_kept_and_exported(self):
        self.rate = RATE
        rows = (((2,), (), 'store'),
                ((4,), ('--precision', 'bf16'), 'store'),
                ((2,), ('--precision', 'fp16', '--place', 'states=nvme,weights=nvme'),
                 'store{rank}'),
                ((2,), ('--precision', 'bf16', '--zero-stage', '2'), 'store'),
                ((2,), ('--precision', 'bf16', '--zero-stage', '0'), 'store{rank}'))
        for ranks, more, store in some(rows, 2):
            self.same(self.best(store.format(rank=0)), *WORSE, *more, ranks=ranks, store=store,
                      steps=6)

    def test_it_is_another_one_than_the_last(self):
        self.rate = RATE
        done = self.run_it(*WORSE, '--ways', '2', before=mpi.launcher(2), steps=6)
        self.assertIn('weights of step 2, the best that was evaluated, to ', done.stdout)
        self.assertEqual(self.kept(), ['step-2'])
        best = sums_of(self.path('out'))
        self.assertEqual(sorted(os.listdir(self.path('store/step-2'))),
                         ['r00000.d0.blk', 'r00001.d0.blk'])
        self.export('store', 2)
        self.assertEqual(sums_of(self.path('exported')), best)

    def test_each_rank_keeps_its_own_and_one_that_goes_on_knows_them(self):
        """A copy that rank 0 has no more is none to all, and those of others go, of replicas when
        a better one is there."""
        for stage in some(('3', '0'), 2):
            with self.subTest(stage=stage):
                self.again()
                self.goes_on_with_copies(*WORSE, '--ways', '2', '--durability', 'step',
                                         '--zero-stage', stage)

    def goes_on_with_copies(self, *words):
        kind = {'store': 'store{rank}', 'before': mpi.launcher(2)}
        self.rate = RATE
        self.run_it(*words, steps=4, **kind)
        self.assertEqual([self.kept('store0'), self.kept('store1')], [['step-2']] * 2)
        done = self.run_it(*words, '--resume', '--allow-config-change', steps=6, **kind)
        self.assertNotIn('W424', done.stderr)
        self.assertIn('weights of step 2, the best', done.stdout)
        shutil.rmtree(self.path('store0/step-2'))
        done = self.run_it(*words, '--resume', '--allow-config-change', steps=8, **kind)
        self.assertEqual(done.stderr.count('warning[W424] step 2, the best so far, was not kept'),
                         1, done.stderr)
        self.assertEqual(self.kept('store0'), self.kept('store1'))
        self.assertEqual(len(self.kept('store0')), 1)
        self.assertNotEqual(self.kept('store0'), ['step-2'])

    def test_the_best_of_another_number_of_ranks_counts_as_lost(self):
        words = (*WORSE, '--ways', '2', '--durability', 'step')
        self.rate = RATE
        self.run_it(*words, steps=4, before=mpi.launcher(2))
        self.assertEqual(self.kept(), ['step-2'])
        done = self.run_it(*words, '--resume', '--allow-config-change', steps=8)
        self.assertEqual(done.stderr.count('warning[W424] step 2, the best so far, was not kept'),
                         1, done.stderr)
        best = re.search(r'weights of step (\d+), the best that was evaluated', done.stdout)
        self.export('store', int(best[1]) if best else 8)
        self.assertEqual(sums_of(self.path('exported')), sums_of(self.path('out')))

    def test_ranks_end_by_patience_alike(self):
        self.rate = RATE
        self.same(self.best('store'), *WORSE, '--patience', '2', ranks=(2,), steps=20)

    def spoil(self, name):
        with open(self.path(name), 'r+b') as file: # its tables are at both ends
            whole = bytearray(file.read())
            for at in range(TABLES, len(whole) - TABLES):
                whole[at] ^= whole[at] > 0
            file.seek(0)
            file.write(whole)

    def test_a_damaged_copy_of_one_rank_is_told_by_it(self):
        self.rate = RATE
        words = (*WORSE, '--ways', '2', '--durability', 'step')
        self.run_it(*words, before=mpi.launcher(2), steps=4)
        self.spoil('store/step-2/r00001.d0.blk')
        done = self.run_it(*words, '--resume', '--allow-config-change', before=mpi.launcher(2),
                           steps=6, code=1)
        self.assertRegex(done.stderr, r'(?m)^rank 1 \([^)]+\): error\[E614\] [^\n]*damaged')
        self.assertEqual(len(mpi.errors_of(done.stderr)), 1, done.stderr)

    # ---- copies ----

    def export(self, store, step):
        done = subprocess.run([PROGRAM, 'ckpt', 'export', self.path(store), '--version', str(step),
                               '--model', os.path.join(GOLDEN, MODEL['model']), '--export',
                               self.path('exported'), '--export-dtype', 'fp32'],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_each_copy_is_what_a_run_of_so_many_steps_has_trained(self):
        words = ('--ways', '4', '--durability', 'step')
        done = self.run_it(*words, '--keep', '2', '--keep-every', '2', before=mpi.launcher(2),
                           steps=7)
        self.assertEqual(re.findall(r'I623\] (step \d) is kept', done.stderr),
                         ['step 2', 'step 4', 'step 6'])
        one = self.run_it(*words, '--keep', '2', '--keep-every', '2', store='one', steps=2)
        sizes = [set(re.findall(r'is kept: ([\d.]+ MiB)', told.stderr)) for told in (one, done)]
        self.assertEqual(sizes[0], sizes[1])
        self.assertEqual(len(sizes[0]), 1)
        self.assertEqual(self.kept(), ['step-4', 'step-6'])
        for step in (4, 6):
            self.export('store', step)
            self.run_it('--ways', '4', store='other', steps=step)
            self.assertEqual(sums_of(self.path('exported')), sums_of(self.path('out')))
            shutil.rmtree(self.path('other'))

    def test_a_copy_that_is_made_after_going_back_stays(self):
        """Those of later steps are of the run that was left, and go first."""
        words = ('--ways', '2', '--durability', 'step', '--keep-every', '1')
        two = mpi.launcher(2)
        self.run_it(*words, '--keep', '3', before=two, steps=5)
        subprocess.run([PROGRAM, 'ckpt', 'reshard', self.path('store'), '--version', '3', '--world',
                        '2', '--out', self.path('back')], check=True, capture_output=True,
                       timeout=120)
        for rank in range(2):
            name = f'r0000{rank}.d0.blk'
            os.replace(self.path('back/' + name), self.path('store/' + name))
        done = self.run_it(*words, '--keep', '1', '--resume', before=two, steps=4)
        self.assertIn('step 4 is kept', done.stderr)
        self.assertEqual(self.kept(), ['step-4'])

    def verified(self, *before, store, code=0):
        done = subprocess.run([*before, PROGRAM, 'ckpt', 'verify', self.path(store)],
                              capture_output=True, text=True, timeout=120, env=environment())
        self.assertEqual((done.returncode, mpi.errors_of(done.stderr)), (code, set()), done.stderr)
        return done.stdout

    def test_each_of_the_replicas_keeps_copies_and_all_are_verified(self):
        """By one process in one directory, and by ranks in one of each."""
        words = ('--ways', '2', '--durability', 'step', '--zero-stage', '0', '--keep', '1',
                 '--keep-every', '2')
        for store in 'store', 'own{rank}':
            done = self.run_it(*words, before=mpi.launcher(2), steps=3, store=store)
            self.assertEqual(re.findall(r'I623\] (step \d) is kept', done.stderr), ['step 2'])
        self.assertEqual(sorted(os.listdir(self.path('store/step-2'))),
                         ['r00000.d0.blk', 'r00001.d0.blk'])
        whole = [r'step 3: every byte of \S+ \S+ is as it was written',
                 r'step 2: every byte of \S+ \S+ is as it was written \(a kept copy\)',
                 r'step 3: every byte of \S+ \S+ is as it was written \(replica 1\)',
                 r'step 2: every byte of \S+ \S+ is as it was written \(a kept copy, replica 1\)']
        two = mpi.launcher(2)
        for before, store in ((), 'store'), (two, 'store'), (two, 'own{rank}'):
            told = self.verified(*before, store=store)
            self.assertRegex(told, r'\A' + r'\n'.join(whole) + r'\n\Z')
        self.run_it('--ways', '2', store='other', steps=2)
        self.export('store', 2)
        self.assertEqual(sums_of(self.path('exported')), sums_of(self.path('out')))
        self.spoil('own1/step-2/r00001.d0.blk')
        told = self.verified(*two, store='own{rank}', code=65)
        self.assertRegex(told, r'\A' + r'\n'.join(whole[:3]) + r'\n(damaged: [^\n]*/own1/step-2/'
                               r'r00001\.d0\.blk, [^\n]*\n)+step 2: \d+ blocks? (is|are) damaged '
                               r'\(a kept copy, replica 1\)\n')

    def test_copies_of_replicas_are_verified_beside_a_store_of_shards(self):
        words = ('--ways', '2', '--durability', 'step')
        kind = {'store': 'own{rank}', 'before': mpi.launcher(2)}
        self.run_it(*words, '--zero-stage', '0', '--keep', '1', '--keep-every', '2', steps=3,
                    **kind)
        self.run_it(*words, '--resume', '--allow-config-change', steps=4, **kind)
        told = self.verified(*mpi.launcher(2), store='own{rank}')
        self.assertRegex(told, r'\Astep 4: [^\n]*\nstep 2: [^\n]* \(a kept copy\)\n'
                               r'step 2: [^\n]* \(a kept copy, replica 1\)\n\Z')
        self.spoil('own1/step-2/r00001.d0.blk')
        told = self.verified(*mpi.launcher(2), store='own{rank}', code=65)
        self.assertRegex(told, r'are damaged \(a kept copy, replica 1\)\n')

    def test_replicas_keep_theirs_where_rank_0_has_lost_its_own(self):
        """Its file is copied from another's, as E613 says, and its copies are gone. Each removes
        its own oldest."""
        words = ('--ways', '2', '--durability', 'step', '--zero-stage', '0', '--keep', '3',
                 '--keep-every', '2')
        kind = {'store': 'own{rank}', 'before': mpi.launcher(2)}
        self.run_it(*words, steps=5, **kind)
        before = sums_of(self.path('own1/step-4'))
        shutil.rmtree(self.path('own0'))
        os.mkdir(self.path('own0'), 0o700)
        shutil.copy(self.path('own1/r00001.d0.blk'), self.path('own0/r00000.d0.blk'))
        self.run_it(*words, '--resume', steps=6, **kind)
        self.assertEqual([self.kept('own0'), self.kept('own1')],
                         [['step-6'], ['step-2', 'step-4', 'step-6']])
        self.assertEqual(sums_of(self.path('own1/step-4')), before)
        self.run_it(*words, '--resume', steps=8, **kind)
        self.assertEqual([self.kept('own0'), self.kept('own1')],
                         [['step-6', 'step-8'], ['step-4', 'step-6', 'step-8']])

    def listed(self, *before, store, code=0):
        """-> the lines of kept copies, and what JSON has of them: step, state, who has none."""
        lines = []
        for more in (), ('--json',):
            done = subprocess.run([*before, PROGRAM, 'ckpt', 'list', self.path(store), *more],
                                  capture_output=True, text=True, timeout=120, env=environment())
            self.assertEqual(done.returncode, code, done.stderr)
            lines.append(done.stdout)
        return ([line.split() for line in lines[0].splitlines() if ' kept ' in line],
                [(row['step'], row['state'], row.get('replicas_without'))
                 for row in json.loads(lines[1])['versions'] if row['kind'] == 'kept'])

    def test_a_list_has_what_any_of_the_ranks_has(self):
        """Of replicas each copy is whole, and a step that all have is told from one that some
        have; of shards the rank is named whose part is missing, also where that is rank 0."""
        two = mpi.launcher(2)
        words = ('--ways', '2', '--durability', 'step', '--keep', '3', '--keep-every', '1')
        self.run_it(*words, '--zero-stage', '0', before=two, steps=3, store='own{rank}')
        self.run_it(*words, before=two, steps=3, store='part{rank}')
        for store in 'own', 'part':
            _, rows = self.listed(*two, store=store + '{rank}')
            self.assertEqual(rows, [(step, 'clean', None) for step in (1, 2, 3)])
            shutil.rmtree(self.path(store + '0/step-1'))
            shutil.rmtree(self.path(store + '1/step-2'))
        text, rows = self.listed(*two, store='own{rank}')
        self.assertEqual(rows, [(1, 'not on all ranks', [0]), (2, 'not on all ranks', [1]),
                                (3, 'clean', None)])
        for words, rank in zip(text, range(2)):
            self.assertIn(f'not on all ranks: replica {rank} has none', ' '.join(words))
        told = self.verified(*two, store='own{rank}')
        self.assertEqual([line.split(':')[0] + line[line.find(' ('):]
                          for line in told.splitlines() if 'kept' in line],
                         ['step 2 (a kept copy)', 'step 3 (a kept copy)',
                          'step 1 (a kept copy, replica 1)', 'step 3 (a kept copy, replica 1)'])
        text, rows = self.listed(*two, store='part{rank}', code=1)
        self.assertEqual(rows, [(1, 'not on all ranks', None), (2, 'not on all ranks', None),
                                (3, 'clean', None)])
        for words, rank in zip(text, range(2)):
            self.assertIn(f'not on all ranks: no rank finds r0000{rank}.d0.blk', ' '.join(words))
        done = subprocess.run([*two, *mpi.as_mpich(), PROGRAM, 'ckpt', 'list',
                               self.path('part{rank}')], capture_output=True, text=True,
                              timeout=120, env=environment())
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn('MPI_ABORT', done.stderr)  # what all know of ends nobody

    def exported(self, step, code=0):
        """By two ranks. -> sums, or what is told."""
        shutil.rmtree(self.path('weights'), ignore_errors=True)
        done = subprocess.run([*mpi.launcher(2), PROGRAM, 'ckpt', 'export',
                               self.path('part{rank}'), '--version', str(step), '--model',
                               os.path.join(GOLDEN, MODEL['model']), '--export',
                               self.path('weights')],
                              capture_output=True, text=True, timeout=120, env=environment())
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr if code else sums_of(self.path('weights'))

    def test_a_last_version_is_read_though_its_copy_is_in_part(self):
        """A rank that ends while a copy is made leaves such a one, of the last version."""
        two = mpi.launcher(2)
        self.run_it('--ways', '2', '--durability', 'step', '--keep', '2', '--keep-every', '1',
                    before=two, steps=2, store='part{rank}')
        want = self.exported(2)
        for rank in range(2):
            names = [self.path(f'part{rank}/step-{step}') for step in (1, 2)]
            for name in names:
                os.rename(name, name + '.away')
            self.assertEqual(self.exported(2), want)
            self.assertIn(f'error[E613] no rank finds r0000{rank}.d0.blk of the copy of step 1 ',
                          self.exported(1, code=1))
            _, rows = self.listed(*two, store='part{rank}', code=1)
            self.assertEqual(rows, [(1, 'not on all ranks', None), (2, 'not on all ranks', None)])
            for name in names:
                os.rename(name + '.away', name)

    def test_a_copy_in_part_is_not_told_beside_a_run(self):
        """It may be about to be whole, or to go."""
        two, words = mpi.launcher(2), ('--ways', '2', '--keep', '9')
        self.run_it(*words, '--durability', 'step', '--keep-every', '1', before=two, steps=2,
                    store='part{rank}')
        shutil.rmtree(self.path('part0/step-1'))
        run = subprocess.Popen([*two, *self.command(*words, '--durability', '1000000',
                                                    '--keep-every', '1000000', '--resume',
                                                    steps=1000000, store='part{rank}')],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env=environment())
        try:
            self.assertTrue(any('step 3/' in line for line in run.stderr))
            _, rows = self.listed(*two, store='part{rank}')
            self.assertIsNone(run.poll())
            self.assertEqual(rows, [(2, 'clean', None)])
        finally:
            run.terminate()
            run.communicate(timeout=60)
        _, rows = self.listed(*two, store='part{rank}', code=1)
        self.assertEqual(rows, [(1, 'not on all ranks', None), (2, 'clean', None)])

    def test_copies_change_nothing(self):
        want = self.trained('--ways', '4', '--durability', '2', steps=6)
        words = ('--ways', '4', '--durability', '2', '--keep', '1', '--keep-every', '1')
        for n in (2, 4):
            self.assertEqual(self.trained(*words, before=mpi.launcher(n), steps=6), want)
            self.assertEqual(self.kept(), ['step-6'])

    def drives(self, *sizes):
        """Two of their own; -> what a command is started by that has them."""
        mounts = ' && '.join(f'mkdir -p {self.path(f"drive{d}")} && '
                             f'mount -t tmpfs -o size={size} none {self.path(f"drive{d}")}'
                             for d, size in enumerate(sizes))
        after = f'; code=$?; ls -d {self.folder}/drive*/s/step-* >&2; exit $code'
        own = ['unshare', '--mount', 'sh', '-c', mounts + ' && "$@"' + after, 'sh']
        if subprocess.run([*own, 'true'], capture_output=True, check=False).returncode == 125:
            self.skipTest('no mount of its own can be made (unshare --mount)')
        return own

    def kept_on(self, drives, *more, code=0):
        """-> what was told, and which copies both have then."""
        done = self.run_it('--ways', '2', '--durability', 'step', '--nvme', '48M', *more,
                           before=[*drives, *mpi.launcher(2)], store='drive{local}/s', steps=6,
                           code=code)
        return done.stderr, re.findall(r'(drive\d)/s/(step-\S+)$', done.stderr, re.MULTILINE)

    def test_what_has_no_room_on_one_drive_is_kept_on_none(self):
        drives = self.drives('64m', ROOM_FOR_NONE)
        told, kept = self.kept_on(drives, '--keep', '2', '--keep-every', '3')
        self.assertEqual(kept, [])
        found = re.findall(r'(?m)^(rank 1 \([^)]+\): )?warning\[W623\] step (\d) was not kept: '
                           r'E301 \S+drive1/s has ', told)
        self.assertEqual([(bool(who), step) for who, step in found], [(True, '3'), (True, '6')])
        told, kept = self.kept_on(drives, '--eval-split', '0.3', '--eval-every', '3',
                                  '--keep-best', code=1)
        self.assertRegex(told, r'(?m)^rank 1 \([^)]+\): error\[E301\] \S+drive1/s has ')
        self.assertEqual(len(mpi.errors_of(told)), 1, told)
        self.assertEqual(kept, [])

    def test_the_oldest_makes_room_on_all_drives(self):
        told, kept = self.kept_on(self.drives('64m', ROOM_FOR_ONE), '--keep', '1', '--keep-every',
                                  '2')
        self.assertNotIn('W623', told)
        self.assertEqual(sorted(kept), [('drive0', 'step-6'), ('drive1', 'step-6')])


# A rank's file has 24 MiB, and a copy of it needs less than one.
ROOM_FOR_NONE, ROOM_FOR_ONE = '24800k', '27000k'
TABLES = 8 << 20

load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
