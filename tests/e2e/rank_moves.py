#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that come back as another number of them, or on nodes in another order: each finds its own
shares or gets them, and the run goes on to the bytes of one process, wherever a move was cut off.

    rank_moves.py PROGRAM PROGRAM_WITH_ENDS SOURCE_ROOT PLUGIN_FOLDER [TEST...]

HST_TEST_SEED replays what was drawn.
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
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402
from rank_lives import (GONE_S, KINDS as ALL_KINDS, STEPS, End, Programs, Run, Wrong,  # noqa: E402
                        all_of, alone, namespaces)
from store_bytes import Store  # noqa: E402
from short import SEED, by_turns, part, some  # noqa: E402

PROGRAMS = Programs(*sys.argv[1:5])
# Replicas are not cut anew: each goes on with its own file.
KINDS = [kind for kind in ALL_KINDS if '--zero-stage=0' not in kind]
LEFT = ('agree', 3)  # an end that leaves versions
# Where a move may end, and how often a rank surely comes there while it moves.
MOVE_PLACES = {'move': 6, 'manifest': 2, 'sync': 1, 'superblock': 2, 'superblock-sync': 1,
               'publish': 1, 'published': 1}


def sums_of(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), 'rb') as file:
            found[name] = hashlib.sha256(file.read()).hexdigest()
    return found


def files_of(ranks):
    return [f'r{rank:05}.d0.blk' for rank in range(ranks)]


def blocks_in(folder):
    return sorted(name for name in os.listdir(folder) if '.blk' in name)


def is_blank(path):
    with open(path, 'rb') as file:
        return not any(file.read(4096))


class Numbers(unittest.TestCase):
    """One node."""

    def moved(self, kind, numbers, seed):
        rnd = random.Random(seed)
        with Run(PROGRAMS, kind, numbers[0]) as run:
            for number in numbers[:-1]:
                run.ranks = number
                run.end_early(End('kill', rnd.randrange(number), *LEFT))
            run.ranks = numbers[-1]
            run.go_on()
            self.assertEqual(blocks_in(run.store), files_of(run.ranks))
            self.assertIn(f'I621] the store is of {numbers[-2]} rank', run.read('stderr'))

    def test_a_run_goes_on_with_another_number_of_ranks(self):
        changes = ((4, 2), (2, 1), (2, 4), (4, 2, 4), (4, 1))
        rows = [(kind, numbers, SEED + i) for i, kind in enumerate(KINDS)
                for numbers in part(changes, 2, shift=i)]
        all_of(self, self.moved, some(rows, 4))

    def test_copies_beside_a_store_are_no_reason_against_a_move(self):
        with Run(PROGRAMS, self.KEEPS, 4) as run:
            run.end_early(End('kill', 1, *LEFT))
            self.assertTrue([name for name in os.listdir(run.store) if name.startswith('step-')])
            run.ranks = 2
            run.go_on()
            self.assertNotIn('W623', run.read('stderr'))

    def test_copies_of_ranks_that_are_gone_are_told(self):
        with Run(PROGRAMS, self.KEEPS, 4, apart=True) as run:
            run.end_early(End('kill', 1, *LEFT))
            left = [name for name in os.listdir(run.path('store3')) if name.startswith('step-')]
            self.assertTrue(left)
            run.ranks = 2
            run.go_on()
            told = run.read('stderr')
            self.assertEqual(told.count('W623'), 2, told)
            for rank in (2, 3):
                folder = run.path(f'store{rank}')
                self.assertRegex(told, rf'W623\] copies of rank {rank} are left in {folder}, .*'
                                       rf"{left[0]}.* Fix: rm -r '{folder}'/step-\*; or")
            self.assertEqual(sorted(name for name in os.listdir(run.path('store3'))), sorted(left))

    def test_copies_that_are_left_are_told_of_each_drive(self):
        """What is to be removed is given to a shell as it is: a path that it would read otherwise,
        or that has no room in the line, is no part of the advice. What another rank has stays."""
        deep = 'd' * 140
        rows = (("it's {rank}", True), ('a b{rank}', False), (deep + '/{rank}', True),
                ('all', None))
        with Run(PROGRAMS, self.KEEPS, 2) as run:
            os.mkdir(run.path(deep))
            run.store = ','.join(run.path(name) for name, _ in rows)
            run.end_early(End('kill', 1, *LEFT))
            run.ranks = 1
            run.go_on()
            text = run.read('stderr')
            told = re.findall(r'W623\] copies of rank 1 are left in (.*), which no .*'
                              r' Fix: (.*); or', text)
            self.assertEqual(len(told), 3, text)
            for (path, fix), (name, odd) in zip(told, rows):
                want = run.path(name.format(rank=1))
                self.assertEqual(path, want)
                self.assertEqual(fix, 'remove them there' if odd else f"rm -r '{want}'/step-*")

    KEEPS = (*KINDS[0], '--update=deferred', '--keep=2', '--keep-every=1')

    def test_ranks_come_back_to_the_copies_that_they_left(self):
        """2, 1 and 2: a directory that nobody had in between holds copies, and no file."""
        with Run(PROGRAMS, self.KEEPS, 2, apart=True) as run:
            run.end_early(End('kill', 1, *LEFT))
            run.ranks = 1
            run.end_early(End('kill', 0, 'committed', 2))  # no version follows while a copy is made
            left = os.listdir(run.path('store1'))
            self.assertTrue(left)
            self.assertTrue(all(name.startswith('step-') for name in left), left)
            run.ranks = 2
            run.go_on()
            self.assertEqual(len(run.kept()), 2)

    def test_a_file_that_is_lost_is_named_beside_copies(self):
        with Run(PROGRAMS, self.KEEPS, 2, apart=True) as run:
            run.end_early(End('kill', 1, *LEFT))
            os.rename(run.path('store1/r00001.d0.blk'), run.path('lost'))
            for name in [name for name in os.listdir(run.path('store1')) if '.scratch' in name]:
                os.unlink(os.path.join(run.path('store1'), name))
            self.refused(run, r'error\[E613\] .* is of 2 ranks, and no rank finds r00001\.d0\.blk')
            os.rename(run.path('lost'), run.path('store1/r00001.d0.blk'))
            run.go_on()

    def test_a_file_of_another_moment_is_no_damage(self):
        """One that was copied before the run went on, and is found again."""
        with Run(PROGRAMS, KINDS[0], 2) as run:
            run.end_early(End('kill', 0, *LEFT))
            name = os.path.join(run.store, 'r00001.d0.blk')
            shutil.copy(name, run.path('old'))
            run.end_early(End('kill', 0, 'agree', 6))
            os.rename(name, run.path('new'))
            shutil.copy(run.path('old'), name)
            self.refused(run, r'error\[E613\] ranks have files of different moments')
            os.rename(run.path('new'), name)
            run.go_on()

    def named_by(self, run, words, numbers):
        """Each number of ranks is refused with these words, and no file changes."""
        folders = [run.store.format(rank=rank) for rank in range(2)]
        before = [sums_of(folder) for folder in folders]
        for run.ranks in numbers:
            self.refused(run, words, status=1)
            self.assertEqual([sums_of(folder) for folder in folders], before)
        run.ranks = 2

    def of_another_store(self, kind, apart, numbers):
        with Run(PROGRAMS, kind, 2, apart=apart) as run, Run(PROGRAMS, kind, 2) as other:
            for one in (run, other):
                one.end_early(End('kill', 1, *LEFT))
            name = os.path.join(run.store.format(rank=1), 'r00001.d0.blk')
            shutil.move(name, run.path('kept'))
            shutil.copy(os.path.join(other.store, 'r00001.d0.blk'), name)
            self.named_by(run, r'error\[E613\] .*, and no rank finds r00001\.d0\.blk.* of that '
                               r"store: the r00001\.d0\.blk that is there is another store's\. ",
                          numbers)
            shutil.move(run.path('kept'), name)
            run.go_on()

    def test_a_file_of_another_store_is_told_from_one_that_is_lost(self):
        rows = ((KINDS[0], False, (2, 1, 4)), (KINDS[1], True, (2, 4)),
                (ALL_KINDS[5], False, (2,)))
        all_of(self, self.of_another_store, some(rows, 3))

    def in_each_others_place(self, kind, apart, first, second, words):
        """Of a run without its log, which would tell of a version that is not there."""
        with Run(PROGRAMS, kind, 2, apart=apart) as run:
            run.end_early(End('kill', 0, *LEFT))
            os.rename(run.path('log.jsonl'), run.path('log'))
            own = [f'{run.store.format(rank=rank)}/r0000{rank}.d0.blk' for rank in range(2)]
            others = [run.path(first), run.path(second)]
            for names, to in ((own, others), (others, own)):
                for rank in range(2):
                    os.rename(names[rank], run.path(f'kept{rank}'))
                for rank in range(2):
                    os.rename(run.path(f'kept{rank}'), to[rank])
                if to is others:
                    self.named_by(run, rf'error\[E613\] {run.folder}/{words}', (2, 1, 4))
            os.rename(run.path('log'), run.path('log.jsonl'))
            run.go_on()

    def test_files_in_each_others_place_are_told(self):
        """In the directories of each other's ranks, or under each other's names."""
        moved = r"store([01])/r0000([01])\.d0\.blk is rank \2's file, in the directory of rank \1"
        named = r"store/r0000([01])\.d0\.blk has the name of rank \1's file, and is rank [01]'s"
        rows = ((KINDS[0], True, 'store1/r00000.d0.blk', 'store0/r00001.d0.blk', moved),
                (KINDS[1], False, 'store/r00001.d0.blk', 'store/r00000.d0.blk', named))
        all_of(self, self.in_each_others_place, some(rows, 2))

    def test_one_process_becomes_several(self):
        with Run(PROGRAMS, KINDS[0], 1, steps=5) as run:
            child = run.start(launcher=())
            self.assertEqual(child.wait(120), 0, run.read('stderr'))
            run.steps, run.ranks, run.tells_ways = 12, 2, False
            run.go_on()

    def cut_off(self, kind, numbers, end, last):
        """A move from one number to another ends there, and then the run goes on with a third."""
        with Run(PROGRAMS, kind, numbers[0]) as run:
            run.end_early(End('kill', 0, *LEFT))
            run.ranks = numbers[1]
            run.end_early(end)
            run.ranks = last
            run.go_on()
            # what had no header yet tells nobody whose it is; the next move there clears it
            left = [name for name in blocks_in(run.store)
                    if not (name.endswith('.new') and is_blank(os.path.join(run.store, name)))]
            self.assertEqual(left, files_of(last))

    def test_a_move_that_is_cut_off_leaves_one_store_or_the_other(self):
        print(f'the same ends again: HST_TEST_SEED={SEED}')
        rnd, rows = random.Random(SEED), []
        for place, most in MOVE_PLACES.items():
            for numbers in ((4, 2), (2, 4)):
                for last in part((*numbers, 1), 1, shift=len(rows)):
                    end = End(rnd.choice(('kill', 'segv', 'exit', 'fail')),
                              rnd.randrange(numbers[1]), place, rnd.randint(1, most))
                    rows.append((rnd.choice(KINDS), numbers, end, last))
        all_of(self, self.cut_off, some(rows, 5))

    def test_a_move_of_several_drives_that_is_cut_off(self):
        """The names of one rank's files change one after the other."""
        places = (('sync-name', 3), ('publish', 1), ('published', 1), ('sync-name', 4))
        rows = [(place, to, last) for i, place in enumerate(places)
                for to, last in part(((4, 1), (1, 2), (4, 2), (1, 1)), 2, shift=i)]
        all_of(self, self.cut_off_drives, some(rows, 4))

    def cut_off_drives(self, place, to, last):
        """Of one process nobody else goes on to its end."""
        with Run(PROGRAMS, KINDS[0], 2) as run:
            run.store = f'{run.path("a")},{run.path("b")}'
            run.end_early(End('kill', 0, *LEFT))
            run.ranks = to
            run.end_early(End('kill', to // 4, *place))
            run.ranks = last
            run.go_on()
            for folder, drive in (('a', 0), ('b', 1)):
                self.assertEqual(blocks_in(run.path(folder)),
                                 [f'r{rank:05}.d{drive}.blk' for rank in range(last)])

    def directories(self, place, numbers):
        """Of each rank its own, and no ways are told: the store's are found in any of them."""
        with Run(PROGRAMS, KINDS[1], numbers[0]) as run:
            run.store = run.path('run{rank}')
            run.end_early(End('kill', 1, *place))
            run.tells_ways = False
            for number in numbers[1:]:
                run.ranks = number
                if number != numbers[-1]:
                    run.end_early(End('kill', 0, *LEFT))
            run.go_on()

    def test_directories_of_each_rank(self):
        """A rank may be killed before its first file has its name, and others' have theirs."""
        all_of(self, self.directories, some(((LEFT, (4, 2)), (LEFT, (2, 4, 1))), 2))

    def test_a_file_without_a_name_tells_its_ways(self):
        with Run(PROGRAMS, KINDS[1], 2) as run:
            run.store = run.path('run{rank}')
            child = run.start(end=End('stop', 1, 'publish'))
            run.wait_for_mark(child)
            until = time.monotonic() + 20
            while not os.path.exists(run.path('run0/r00000.d0.blk')):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            run.end_all()
            run.wait_until_gone(child, time.monotonic(), 10)
            self.assertEqual(os.listdir(run.path('run1')), ['r00001.d0.blk.new'])
            run.tells_ways = False
            run.go_on()
            self.assertIn('going on after step 0', run.read('stderr'))

    def last(self, run):
        """-> step and weights of the last version, in bf16."""
        def ckpt(*words):
            return subprocess.run([PROGRAMS.program, 'ckpt', *words], capture_output=True,
                                  check=True, env=run.environment()).stdout
        ckpt('export', run.store, '--model', PROGRAMS.model, '--export', run.path('of-store'),
             '--export-dtype=bf16')
        with open(run.path('of-store/model.safetensors'), 'rb') as file:
            return json.loads(ckpt('list', '--json', run.store))['versions'][0]['step'], file.read()

    def spoil(self, run, file, weights):
        """One byte of them in a rank's file is another one then."""
        with open(os.path.join(run.store, file), 'r+b') as there:
            content = there.read()
            places = (content.find(weights[at:at + 64])
                      for at in range(len(weights) // 2, len(weights) - 64, 64))
            at = next(place for place in places if place > 0)
            there.seek(at)
            there.write(bytes([content[at] ^ 1]))

    def blocks(self, run):
        """What is in scratch means nothing."""
        return {name: sums for name, sums in sums_of(run.store).items() if '.blk' in name}

    STEPPING_BACK = ('--precision=bf16', '--place=states=nvme,weights=nvme,grads=nvme,acts=nvme')

    def two_versions(self, run):
        """The run's last two, both whole on all ranks: nobody goes on behind them. -> the step and
        the weights of the older one, the weights of the newer one."""
        run.end_early(End('kill', 0, 'committed', STEPS))
        before, old = self.last(run)
        run.end_early(End('kill', 0, 'close'))
        step, new = self.last(run)
        self.assertEqual((before, step), (STEPS - 1, STEPS))
        return before, old, new

    def steps_back(self, run, ranks, before):
        run.ranks = ranks
        child = run.start('--resume')
        self.assertEqual(run.wait_until_gone(child, time.monotonic(), 120), 0, run.read('stderr'))
        told = run.read('stderr')
        words = (f'W614] the newest version of the store, of step {STEPS}, is damaged: going on '
                 f'from the one before, of step {before}, ')
        self.assertEqual(told.count(words), 1, told)
        self.assertIn(f'going on after step {before}', told)
        self.assertEqual(sums_of(run.path('export')), alone(PROGRAMS, self.STEPPING_BACK)[1])
        self.assertEqual(blocks_in(run.store), files_of(ranks))

    def test_a_move_steps_back_from_a_damaged_version(self):
        """Its room for scratch is opened twice then."""
        with Run(PROGRAMS, self.STEPPING_BACK, 4) as run:
            before, old, new = self.two_versions(run)
            self.spoil(run, 'r00003.d0.blk', new)
            shutil.copytree(run.store, run.path('again'))
            self.steps_back(run, 2, before)
            shutil.rmtree(run.store)
            os.rename(run.path('again'), run.store)
            self.spoil(run, 'r00002.d0.blk', old)  # neither of the two is whole then
            left = self.blocks(run)
            self.refused(run, r"error\[E614\] rank [01]: the store's version is damaged: ")
            self.assertEqual(self.blocks(run), left)

    def test_a_step_back_from_a_damaged_table_is_told(self):
        """Both copies of one rank's newest manifest are: as many ranks go on, and others."""
        with Run(PROGRAMS, self.STEPPING_BACK, 4) as run:
            before, _, _ = self.two_versions(run)
            store = Store(run.store, rank=3)
            for copy in range(2):
                at = store.manifest_at(copy)
                byte = store.read(0, at + 64, 1)
                store.write(0, at + 64, bytes([byte[0] ^ 1]))
            shutil.copytree(run.store, run.path('again'))
            self.steps_back(run, 2, before)
            shutil.rmtree(run.store)
            os.rename(run.path('again'), run.store)
            self.steps_back(run, 4, before)

    # ---- refusals ----

    def refused(self, run, words, *more, nodes=None, status=None):
        child = run.start('--resume', *more, nodes=nodes,
                          launcher=() if run.ranks == 1 and not nodes else None)
        got = run.wait_until_gone(child, time.monotonic(), 60)
        told = run.read('stderr')
        self.assertNotEqual(got, 0, told)
        self.assertEqual(got, status or got, told)
        self.assertRegex(told, words)
        self.assertEqual(len(mpi.errors_of(told)), 1, told)

    # What of a store's run none that goes on may have otherwise, and an option that changes it.
    KEY = (('hop 8', '--hop=2'), ('reduce grads', '--reduce=f32'), ('grain 48', '--grain=24'),
           ('ways 4', '--ways=2'), ('precision bf16', '--precision=fp32'),
           ('gather plain', '--gather=int8'))

    def with_another_key(self, first, numbers):
        """A store of the first number of ranks, which so many would go on from."""
        kind = (*KINDS[0], '--batch-tokens=192', '--grain=48')
        with Run(PROGRAMS, kind, first) as run:
            run.end_early(End('kill', 0, 'committed', 3))
            before = sums_of(run.store)
            for was, option in some(self.KEY, 3):
                name, value = option.split('=')
                words = (rf'error\[E615\] the store was trained with {was}, this run has '
                         rf'{name[2:]} {value}\. Fix: --{was}, or another --store')
                run.kind = tuple(word for word in kind if not word.startswith(name + '='))
                run.tells_ways = name != '--ways'
                for run.ranks in numbers:
                    self.refused(run, words, option, status=2)
                    self.assertEqual(sums_of(run.store), before, f'{option}, {run.ranks} ranks')
            run.kind, run.tells_ways = kind, True
            run.go_on()

    def test_a_resume_with_another_key_is_refused_untouched(self):
        """By as many ranks, by one in their place, and by one process of its own store."""
        all_of(self, self.with_another_key, ((2, (2, 1)), (1, (1,))))

    def test_other_products_are_told_once_and_gone_on_with(self):
        """Who makes them is no part of the key: docs/resume.md."""
        with Run(PROGRAMS, ('--precision=fp32', '--place=states=nvme,weights=nvme'), 2) as run:
            for steps, core in ((2, 'Nehalem'), (4, 'Haswell'), (5, 'Haswell')):
                shutil.rmtree(run.path('export'), ignore_errors=True)
                run.steps = steps
                child = run.start('--resume', f'--host-math={core}')
                status, told = run.wait_until_gone(child, time.monotonic(), 60), run.read('stderr')
                if 'error[E204]' in told:
                    self.skipTest(f'this processor has not got what {core} needs')
                self.assertEqual(status, 0, told)
                found = re.findall(r"W624\] [^\n]* Haswell[^\n]*' now, on '[^\n]* Nehalem", told)
                self.assertEqual((len(found), told.count('W624')), (steps == 4,) * 2, told)

    def test_what_cannot_be_moved_is_refused_untouched(self):
        with Run(PROGRAMS, KINDS[0], 4) as run:
            run.end_early(End('kill', 0, *LEFT))
            before = sums_of(run.store)
            for ranks, words, more in (
                    (2, r'error\[E615\] .*betas .*0\.8', ('--betas=0.8,0.99',)),
                    (1, r'error\[E615\] .*ways 4.*ways 2', ('--ways=2',)),
                    (2, r'error\[E301\] the store is of 4 ranks, and .* Fix: a larger --nvme',
                     ('--nvme=100M',))):
                run.ranks, run.tells_ways = ranks, '--ways=2' not in more
                self.refused(run, words, *more)
                self.assertEqual(sums_of(run.store), before)
            run.ranks, run.kind = 4, (KINDS[0][0], '--place=states=nvme', '--zero-stage=0')
            self.refused(run, r'error\[E613\] .* is of 4 ranks that have a part of it each, and '
                              r'with --zero-stage 0 each has all\. Fix: --zero-stage 1, 2 or 3')
            self.assertEqual(sums_of(run.store), before)
            run.kind = KINDS[0]
            os.rename(os.path.join(run.store, 'r00002.d0.blk'), run.path('kept'))
            for ranks in (4, 2, 1):
                run.ranks = ranks
                self.refused(run, r'error\[E613\] the store in .* is of 4 ranks, and no rank finds '
                                  r'r00002\.d0\.blk\. Fix: ')
            os.rename(run.path('kept'), os.path.join(run.store, 'r00002.d0.blk'))
            self.assertEqual(sums_of(run.store), before)
            run.ranks = 2
            run.go_on()


class Slices(unittest.TestCase):
    """Ranks that have a large vocabulary whole, and come back with room for slices of it alone."""

    KIND = ('--precision=bf16', '--place=states=nvme,weights=nvme', '--init=random')

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        golden = PROGRAMS.model
        self.programs = Programs(*sys.argv[1:5])
        self.programs.model = os.path.abspath(scratch.name)
        shutil.copy(os.path.join(golden, 'tokens.bin'), scratch.name)
        with open(os.path.join(golden, 'config.json'), encoding='utf-8') as file:
            config = {**json.load(file), 'vocab_size': 20000}
        with open(os.path.join(scratch.name, 'config.json'), 'w', encoding='utf-8') as file:
            json.dump(config, file)

    def little(self, run):
        left_out = ('--data', '--lr', '--log', '--export', '--peer-timeout', '--init')
        words = run.options()[1:]
        plan = ['plan', '--world=2', '--dram=1M', *(
            word for at, word in enumerate(words)
            if not word.startswith(left_out) and words[at - 1] not in left_out)]
        done = subprocess.run([self.programs.program, *plan], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        return f"--dram={re.search(r'needs ([0-9.]+) MiB of DRAM', done.stdout)[1]}M"

    def cut_off(self, end):
        """A store of whole units becomes one of slices; that ends, and then the run goes on."""
        with Run(self.programs, self.KIND, 2, steps=6) as run:
            run.end_early(End('kill', 0, *LEFT))
            self.assertNotIn('I306', run.read('stderr'))
            run.kind = (*self.KIND, self.little(run))
            run.end_early(end)
            self.assertIn('I621] the store has large units whole', run.read('stderr'))
            run.go_on()
            self.assertIn('I306', run.read('stderr'))
            left = [name for name in blocks_in(run.store)
                    if not (name.endswith('.new') and is_blank(os.path.join(run.store, name)))]
            self.assertEqual(left, files_of(2))

    def test_a_store_that_becomes_one_of_slices_is_one_or_the_other(self):
        rnd = random.Random(SEED)
        rows = [(End(rnd.choice(('kill', 'segv', 'exit', 'fail')), rnd.randrange(2), place,
                     rnd.randint(1, most)),) for place, most in MOVE_PLACES.items()]
        all_of(self, self.cut_off, some(rows, 4))


class Nodes(unittest.TestCase):
    """Two, with a drive each that the other does not see."""

    refused = Numbers.refused

    def lives(self, kind, ranks=4):
        run = Run(PROGRAMS, kind, ranks)
        self.addCleanup(run.__exit__)
        run.__enter__()
        nodes = namespaces(PROGRAMS)(self, drive=run.store)
        self.addCleanup(nodes.__exit__)
        nodes.__enter__()
        return run, nodes

    def own(self, run, name):
        return blocks_in(f'{run.store}.{name}')

    def test_nodes_in_another_order_find_their_own(self):
        """Rank 0 is on the other node; who speaks and exports is the launcher's first one still."""
        run, nodes = self.lives(KINDS[SEED % len(KINDS)])
        run.end_early(End('kill', 1, *LEFT), nodes=nodes)
        self.assertEqual((self.own(run, '1'), self.own(run, '2')),
                         (files_of(4)[:2], files_of(4)[2:]))
        nodes.drives('2', '1')
        run.tells_ways = False
        run.go_on(f'--trace={run.path("trace")}', nodes=nodes)
        self.assertIn('I501] ranks have the numbers of the files that they find',
                      run.read('stderr'))
        for rank in range(4): # of the launcher, in the file's name and in it
            with open(run.path(f'trace.rank{rank}'), encoding='utf-8') as file:
                self.assertEqual({event['pid'] for event in json.load(file)['traceEvents']}, {rank})
        self.assertEqual((self.own(run, '1'), self.own(run, '2')),
                         (files_of(4)[:2], files_of(4)[2:]))

    def test_a_rank_that_stops_while_they_are_numbered_anew_is_not_waited_for(self):
        """By calls of MPI, which have no limit of their own. They are the second of two each."""
        run, nodes = self.lives(KINDS[1], ranks=2)
        run.end_early(End('kill', 1, *LEFT), nodes=nodes)
        nodes.drives('2', '1')
        run.limit_s = 2
        child = run.start('--resume', end=End('stop', 1, 'number', 3), nodes=nodes)
        told = run.told_late(child, 10 + GONE_S)
        self.assertRegex(told, r'error\[E504\] ranks have not answered for 1\d s: numbering of '
                               r'ranks by MPI')
        run.go_on(nodes=nodes)

    def test_shares_go_from_node_to_node(self):
        """4 ranks on two nodes, then 2 with the drives of each other, a move cut off between."""
        run, nodes = self.lives(KINDS[(SEED + 1) % len(KINDS)])
        run.end_early(End('kill', 1, *LEFT), nodes=nodes)
        nodes.drives('2', '1')
        run.ranks, run.tells_ways = 2, False
        run.end_early(End('kill', 1, 'publish'), nodes=nodes)
        nodes.drives('1', '2')
        run.end_early(End('kill', 0, *LEFT), nodes=nodes)
        run.ranks = 4
        run.go_on(nodes=nodes)
        self.assertEqual(self.own(run, '1') + self.own(run, '2'), files_of(4))

    def test_what_a_node_has_kept_goes_on_where_it_was_brought_to(self):
        run, nodes = self.lives(KINDS[(SEED + 2) % len(KINDS)])
        run.end_early(End('kill', 1, *LEFT), nodes=nodes)
        other = f'{run.store}.2'
        for name in self.own(run, '2'):
            shutil.move(os.path.join(other, name), f'{run.store}.1')
        kept, run.store = run.store, f'{run.store}.1'
        run.ranks = 2
        run.go_on() # on one node
        self.assertEqual(blocks_in(run.store), files_of(2))
        run.store = kept

    def test_a_lost_node_is_named_by_its_files(self):
        run, nodes = self.lives(KINDS[0])
        run.end_early(End('kill', 1, *LEFT), nodes=nodes)
        nodes.drives('1', 'new')
        self.refused(run, r'error\[E613\] .* is of 4 ranks, and no rank finds r00002\.d0\.blk, '
                          r'r00003\.d0\.blk\. Fix: ', nodes=nodes)
        shutil.copytree(f'{run.store}.1', f'{run.store}.twice')
        nodes.drives('1', 'twice')
        self.refused(run, r'no rank finds r00002\.d0\.blk, r00003\.d0\.blk, and two nodes find a '
                          r'file of rank 0\. Fix: ', nodes=nodes)
        nodes.drives('1', '2')
        run.go_on(nodes=nodes)


load_tests = by_turns

if __name__ == '__main__':
    if PROGRAMS.missing():
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
