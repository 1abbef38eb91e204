#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that end, stop or fail wherever a run is: the others end in time, the cause is told once,
and the run goes on to the bytes of one that was left alone.

    rank_ends.py PROGRAM PROGRAM_WITH_ENDS SOURCE_ROOT PLUGIN_FOLDER [TEST...]

HST_TEST_SEED replays what was drawn. rank_soak.py draws more of it, for as long as it is let.
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402
from rank_lives import (FIRST_PLACES, GONE_S, HOW, KINDS, LAST_PLACES, LATER_PLACES,  # noqa: E402
                        LIMIT_S, LOAD_PLACES, STEP_PLACES, STEPS, End, Programs, Row, Run,
                        alone, some_end, wrong_of, all_of, namespaces)
from data.sample_files import draw_prompts, write  # noqa: E402
from short import SEED, SHORT, by_turns, every_day, in_turn, part, some, whole_alone  # noqa: E402

PROGRAMS = Programs(*sys.argv[1:5])
IN_MEMORY, ON_DRIVES = KINDS[1], KINDS[0]


# ---- ends, dealt so that each place and each way to end has its turn ----------------------------

def dealt(rnd, cards):
    while True:
        for card in rnd.sample(sorted(cards), len(cards)):
            yield card


def some_rows(count, seed):
    """Each with three lives that end: one that begins, one in a step that leaves a version, and one
    that resumes, or is over but for its export."""
    rnd = random.Random(seed)
    how, kinds = dealt(rnd, HOW), dealt(rnd, range(len(KINDS)))
    first, step = dealt(rnd, (*FIRST_PLACES, *STEP_PLACES)), dealt(rnd, STEP_PLACES)
    last = dealt(rnd, (*LATER_PLACES, *LAST_PLACES))
    rows = []
    for i in range(count):
        ranks = 4 if i % 4 == 3 else 2
        kind, left = KINDS[next(kinds)], next(step)
        rows.append(Row(ranks, kind, [
            some_end(rnd, kind, ranks, next(how), next(first)),
            some_end(rnd, kind, ranks, next(how), left, LOAD_PLACES.get(left, 0) + 1),
            some_end(rnd, kind, ranks, next(how), next(last))]))
    return rows


def newest_superblock(run, rank):
    """Its number, in the rank's file (engine/store/format.c)."""
    with open(os.path.join(run.store, f'r{rank:05}.d0.blk'), 'rb') as file:
        return max(int.from_bytes(os.pread(file.fileno(), 8, (at << 20) + 56), 'little')
                   for at in (1, 2))


class Ends(unittest.TestCase):
    maxDiff = None

    def goes_on(self, row):
        self.assertIsNone(wrong_of(PROGRAMS, row))

    @every_day
    def test_a_run_goes_on_behind_ranks_that_ended(self):
        print(f'the same ends again: HST_TEST_SEED={SEED}')
        all_of(self, self.goes_on, [(row,) for row in some_rows(4 // SHORT if SHORT else 22, SEED)])

    def first_version(self, ranks, rank):
        with Run(PROGRAMS, IN_MEMORY, ranks) as run:
            child = run.start(end=End('stop', rank, 'publish'))
            run.wait_for_mark(child)
            names = [f'r{r:05}.d0.blk' for r in range(ranks) if r != rank]
            until = time.monotonic() + 20
            while not all(os.path.exists(os.path.join(run.store, name)) for name in names):
                self.assertLess(time.monotonic(), until, os.listdir(run.store))
                time.sleep(0.01)
            run.end_all()
            run.wait_until_gone(child, time.monotonic(), 10)
            run.tells_ways = False  # which the store knows, also of the rank without a name
            run.go_on()
            self.assertIn('going on after step 0', run.read('stderr'))

    def left_behind(self, kind, rank):
        """That rank stops before its superblock of the second step, which the other one writes."""
        with Run(PROGRAMS, kind, 2) as run:
            child = run.start(end=End('stop', rank, 'superblock', 5))
            run.wait_for_mark(child)
            until = time.monotonic() + 20
            while newest_superblock(run, 1 - rank) <= newest_superblock(run, rank):
                self.assertLess(time.monotonic(), until, run.read('stderr'))
                time.sleep(0.01)
            run.end_all()
            run.wait_until_gone(child, time.monotonic(), 10)
            run.go_on()
            told = run.read('stderr')
            self.assertIn('going on after step 1', told)
            self.assertEqual(told.count('; not all ranks have its newest version\n'), 1, told)
            self.assertNotIn('W614', told)

    def test_a_version_that_not_all_ranks_have_is_called_no_damage(self):
        """It is gone on from the one before, in all stages."""
        rows = [(kind, rank) for kind in (KINDS[5], KINDS[0], KINDS[4]) for rank in (1, 0)]
        all_of(self, self.left_behind, some(rows, 3))

    def test_a_first_version_that_all_have_voted_for_is_kept(self):
        """A rank is killed before its file has its name; others' have theirs by then."""
        all_of(self, self.first_version, some(((2, 0), (2, 1), (4, 2)), 3))


# ---- what is made beside the steps ---------------------------------------------------------------

SCRATCH = tempfile.TemporaryDirectory(dir='.')
ASKED = write(os.path.join(os.path.abspath(SCRATCH.name), 'asked.safetensors'), 160,
              draw_prompts(2, 7, 160, 9), ids=[i * i % 160 for i in range(700)])
LOOKS = ('--precision=bf16', '--place=states=nvme,weights=nvme', f'--data={ASKED}',
         '--eval-split=0.3', '--keep-best')
BETTER = (*LOOKS, '--eval-every=1')               # each evaluation is the best so far
WORSE = (*LOOKS, '--eval-every=2', '--lr=0.5', '--samples=7', '--sample-tokens=3')
COPIES = ('--precision=fp32', '--place=states=dram,weights=dram', '--keep=1', '--keep-every=1')


class Keeps(unittest.TestCase):
    """Ends while copies are made, samples, or an export of the best version."""

    def goes_on(self, kind, ranks, end, apart=False):
        with Run(PROGRAMS, kind, ranks, apart=apart) as run:
            self.assertTrue(run.end_early(end))
            run.go_on()
            self.assertEqual(len(run.kept()), 1)
            if not apart:
                done = subprocess.run([PROGRAMS.program, 'ckpt', 'verify', run.store],
                                      capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_copies_are_whole_or_none_wherever_a_rank_ends(self):
        """Two of them, the second of which takes the place of the first."""
        rnd, how = random.Random(SEED), dealt(random.Random(SEED), HOW)
        rows = [(kind, 4 if nth == 5 else 2, End(next(how), rnd.randrange(2), 'keep', nth), apart)
                for nth in (2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14)
                for kind, apart in ((BETTER, nth % 2 == 1), (COPIES, nth % 2 == 0))]
        rows += [((*COPIES, '--zero-stage=0'), 2, End(next(how), rank, 'keep', nth), apart)
                 for rank, nth, apart in ((1, 4, True), (0, 7, True), (1, 11, False))]
        rows += [(kind, 2, End(next(how), rank, 'name', nth), True)
                 for kind, nth in ((WORSE, 1), (BETTER, 3)) for rank in range(2)]
        all_of(self, self.goes_on, some(part(rows, 13), 4))

    def test_samples_and_the_export_of_the_best_version_are_made_again(self):
        rnd, how = random.Random(SEED + 1), dealt(random.Random(SEED), HOW)
        rows = [(WORSE, ranks, End(next(how), rnd.randrange(ranks), place, nth), apart)
                for place, nth in (('samples', 1), ('samples', 4), ('samples', 8), ('export', 1),
                                   ('export', 3), ('keep', 4))
                for ranks, apart in ((2, False), (4, True))]
        all_of(self, self.goes_on, some(part(rows, 6), 3))

    def test_a_signal_while_samples_are_made_stops_all(self):
        with Run(PROGRAMS, WORSE, 2) as run:
            child = run.start(end=End('stop', 1, 'samples', 8))
            run.wait_for_mark(child)
            process = run.processes()[1]
            os.kill(process, signal.SIGUSR1)
            os.kill(process, signal.SIGCONT)
            status = run.wait_until_gone(child, time.monotonic(), 60)
            told = run.read('stderr')
            self.assertEqual(status, 75, told)
            self.assertEqual(told.count('stopped ('), 1, told)
            self.assertIn(' after 2 of ', told)
            run.go_on()


class Stops(unittest.TestCase):
    """A rank that stops: it is waited for within the limit, and named behind it."""

    def stopped(self, run, place, nth):
        """-> mpirun of a run whose rank 1 has stopped there, which is a resume where it must be."""
        if place in LATER_PLACES:
            run.end_early(End('kill', 0, 'agree', 3))
        child = run.start('--resume', end=End('stop', 1, place, nth))
        run.wait_for_mark(child)
        return child

    def waited_for(self, place, nth, seconds=2.5, limit_s=LIMIT_S):
        with Run(PROGRAMS, ON_DRIVES, 2, limit_s=limit_s) as run:
            child = Stops.stopped(self, run, place, nth)
            process = run.processes()[1]
            time.sleep(seconds)
            os.kill(process, signal.SIGCONT)
            status = run.wait_until_gone(child, time.monotonic(), 60)
            self.assertEqual(status, 0, run.read('stderr'))
            self.assertEqual(run.came_to(), alone(PROGRAMS, ON_DRIVES))

    # C2 to C4, and places of a resume. Of either one day says what the next one does.
    COMMIT = (('manifest', 4), ('sync', 2), ('superblock', 4), ('superblock-sync', 2))
    RESUME = (('versions', 1), ('opened', 1))

    @in_turn(0, 2)
    def test_a_rank_that_goes_on_is_waited_for(self):
        places = (('exchange', 7), ('gather', 8), ('agree', 2), ('vote', 2), ('load', 1),
                  ('export', 2), ('close', 1), ('forward', 7), ('update', 2),
                  *part(self.COMMIT, 2), *part(self.RESUME, 1))
        all_of(self, self.waited_for, some(places, len(places)))

    def test_who_still_writes_what_all_have_trained_is_waited_for_beyond_the_limit(self):
        with Run(PROGRAMS, ON_DRIVES, 2, limit_s=2) as run:
            child = run.start(end=End('slow', 0, 'leave'))
            status = run.wait_until_gone(child, time.monotonic(), 60)
            self.assertEqual(status, 0, run.read('stderr'))
            self.assertEqual(run.came_to(), alone(PROGRAMS, ON_DRIVES))

    # What is said: in a step others may wait for what the rank had begun before.
    STEP = r'(gather|exchange|sum) of [^\n]*, in step [123]\. '
    PLACES = (('exchange', 7, STEP), ('export', 2, 'gather of '), ('close', 1, 'closing'),
              ('gather', 8, STEP), ('agree', 2, STEP), ('vote', 2, STEP),
              ('load', 1, 'sum of sums'), ('forward', 7, STEP), ('update', 2, STEP))

    def named(self, place, nth, words, limit_s=3):
        with Run(PROGRAMS, ON_DRIVES, 2, limit_s=limit_s) as run:
            told = run.told_late(Stops.stopped(self, run, place, nth), limit_s + GONE_S)
            self.assertRegex(told, r'error\[E504\] rank 1 has not answered: it is stopped or gone; '
                                   rf'waited \d+ s for it in the {words}')
            self.assertEqual(len(mpi.errors_of(told)), 1, told)
            run.go_on()

    def unlimited(self, place, nth, words):
        """A call of MPI waits for a rank as long as MPI likes. The limit of such calls is ten
        seconds at least."""
        with Run(PROGRAMS, IN_MEMORY, 2, limit_s=2) as run:
            child = run.start('--resume', end=End('stop', 1, place, nth))
            told = run.told_late(child, 10 + GONE_S)
            self.assertRegex(told, r'error\[E504\] (ranks cannot be joined: )?ranks have not '
                                   rf'answered for 1\d s: {words} by MPI')
            self.assertEqual(len(mpi.errors_of(told)), 1, told)
            run.go_on()

    @every_day
    def test_no_call_of_MPI_waits_for_ever(self):
        shared = "allocation of a node's shared memory"
        rows = (('number', 1, 'numbering of ranks'), ('window', 1, shared), ('window', 2, shared))
        all_of(self, self.unlimited, some(rows, 2))

    @in_turn(1, 2)
    def test_a_rank_that_does_not_is_named(self):
        """By E504, and by no other error."""
        places = (*self.PLACES, *((*place, self.STEP) for place in part(self.COMMIT, 2)),
                  *((*place, 'share of versions') for place in part(self.RESUME, 1)))
        all_of(self, self.named, some(places, len(places)))


def cut(test, place, nth, limit_s=3):
    """The link between two nodes is cut: MPI hears of nothing, and each rank ends by itself."""
    with namespaces(PROGRAMS)(test) as nodes, Run(PROGRAMS, ON_DRIVES, 4, limit_s=limit_s) as run:
        if place == 'versions':
            run.end_early(End('kill', 1, 'agree', 3))
        child = run.start('--resume', end=End('stop', 1, place, nth), nodes=nodes)
        run.wait_for_mark(child)
        test.assertTrue(nodes.link('down'))
        os.kill(run.processes()[1], signal.SIGCONT)
        begun = time.monotonic()
        while run.processes() and time.monotonic() - begun < limit_s + 15:
            time.sleep(0.05)
        left = run.processes()
        run.end_all()
        nodes.link('up') # mpirun itself waits for it
        status = child.wait(90)
        told = run.read('stderr')
        test.assertEqual(left, [], told)
        test.assertNotEqual(status, 0)
        test.assertIn('error[E504] ', told)
        run.go_on() # on one node


def stop_far(test, nth=9, limit_s=3):
    """The last rank of two on the second node stops. Who tells it first waits for what that rank
    sends, or for one that does."""
    with namespaces(PROGRAMS)(test) as nodes, Run(PROGRAMS, IN_MEMORY, 4, limit_s=limit_s) as run:
        child = run.start(end=End('stop', 3, 'exchange', nth), nodes=nodes)
        run.wait_for_mark(child)
        status = run.wait_until_gone(child, time.monotonic(), limit_s + GONE_S)
        told = run.read('stderr')
        test.assertEqual(status, 1, told)
        who = r'rank ([01] \(node1\)|[23] \(node2\))(, or one of its node that it waits for,)?'
        test.assertRegex(told, rf'error\[E504\] ({who} has not [^\n]*; waited \d+ s for it in the '
                               r'|ranks of node[12] have not answered for \d+ s: )'
                               r'(exchange|gather|sum) of [^\n]*, in step [123]\. ')
        test.assertNotRegex(told, r'rank [01][^\n]*ranks of node1 |rank [23][^\n]*ranks of node2 ')
        test.assertNotIn('error[E507]', told)
        run.go_on()


class Links(unittest.TestCase):
    PLACES = (('exchange', 9), ('gather', 12), ('agree', 2), ('vote', 2), ('sync', 3),
              ('export', 2), ('versions', 1))

    @whole_alone
    def test_a_rank_of_another_node_that_stops_is_named_with_its_node(self):
        stop_far(self)

    @whole_alone
    def test_with_the_link_cut_each_rank_ends_by_itself(self):
        """In a step, and where ranks have patience."""
        rnd = random.Random(SEED)
        for place, nth in (rnd.choice(self.PLACES[:5]), rnd.choice(self.PLACES[5:])):
            with self.subTest(place=place):
                cut(self, place, nth)


class Failures(unittest.TestCase):
    """What fails on one rank is told by that rank alone, and ends all."""

    def told_once(self, run, child, rank, words, status=1):
        got = run.wait_until_gone(child, time.monotonic(), 60)
        told = run.read('stderr')
        who = '' if rank == 0 else rf'rank {rank} \([^)]+\): '
        self.assertEqual(got, status, told)
        self.assertRegex(told, rf'(?m)^{who}error\[{words}')
        self.assertEqual(len(mpi.errors_of(told)), 1, told)
        if rank == 0: # another is ended by mpirun's SIGKILL
            self.assertEqual([name for name in os.listdir(run.folder) if '.tmp-' in name], [])

    def failed(self, rank, place, how):
        with Run(PROGRAMS, ON_DRIVES, 2) as run:
            child = run.start(end=End(how, rank, place, 3))
            self.told_once(run, child, rank, 'E107' if how == 'eio' else 'E301')
            run.go_on()

    @in_turn(0, 2)
    def test_a_drive_that_fails_on_one_rank_ends_all(self):
        places = ('manifest', 'sync', 'superblock', 'superblock-sync')
        rows = [(rank, place, how)
                for place in places for how in ('eio', 'full') for rank in (1, 0)]
        all_of(self, self.failed, some(part(rows, 5), 5))

    def broken(self, rank, place, what):
        with Run(PROGRAMS, IN_MEMORY, 2) as run:
            child = run.start(end=End('broken', rank, place, 3))
            self.told_once(run, child, rank, rf'E507\] rank {rank} failed in the {what} of [^\n]*, '
                                             r'in step [123]\. Fix: start all ranks again, with')
            run.go_on()

    @in_turn(1, 2)
    def test_what_joins_ranks_fails_on_one_that_is_there(self):
        rows = ((1, 'exchange', 'exchange'), (0, 'gather', 'gather'), (1, 'agree', 'sum'))
        all_of(self, self.broken, some(rows, len(rows)))

    @in_turn(1, 2)
    def test_a_rank_that_may_not_write_so_much_ends_all(self):
        with Run(PROGRAMS, ON_DRIVES, 2) as run:
            # 5 MiB: a file of Open MPI's has 4, the probe's 6
            child = run.start(last_rank=['sh', '-c', 'ulimit -f 10240; exec "$@"', 'sh'])
            self.told_once(run, child, 1, 'E')
            run.go_on()


class Tiles(unittest.TestCase):
    """A drive that fails to take or to give a rank's tile: that rank tells it, and all end."""

    told_once = Failures.told_once

    FIRST = 'writing an extent of the store in [^\n]*; no version was there yet.*, then start again'
    LATER = r'writing an extent of the store in [^\n]*; version \d+ is as it was.*, then --resume'
    WEIGHTS = r'reading weights, tile [^\n]*/r00001\.d0\.blk failed'
    STATES = r'reading optimizer states, tile [^\n]*/r00001\.d0\.blk failed'
    EITHER = f'({WEIGHTS}|{STATES})'
    SCRATCH = 'of (gradients|activation checkpoints), [^\n]* of the scratch file in [^\n]* failed'
    SCRATCH_TOO, WHOLE_WEIGHTS, REPLICAS, OF_8_BITS = KINDS[2], KINDS[3], KINDS[5], KINDS[6]
    # The rank, what for a tile is moved, the run, how often the rank surely comes there in three
    # steps, and what it says. Weights are read for a forward or a backward, states for an update.
    WRITES = ((1, 'load-write', ON_DRIVES, 8, FIRST), (1, 'load-write', IN_MEMORY, 8, FIRST),
              (1, 'weights-write', ON_DRIVES, 12, LATER), (1, 'states-write', ON_DRIVES, 12, LATER),
              (1, 'states-write', IN_MEMORY, 16, LATER), (1, 'states-write', REPLICAS, 24, LATER),
              (1, 'scratch-write', SCRATCH_TOO, 12, SCRATCH),
              (0, 'export-write', ON_DRIVES, 3, 'export: model.safetensors cannot be written'))
    READS = ((1, 'weights-read', ON_DRIVES, 16, WEIGHTS), (1, 'states-read', ON_DRIVES, 12, STATES),
             (1, 'states-read', WHOLE_WEIGHTS, 16, STATES),
             (1, 'states-read', OF_8_BITS, 12, STATES),
             (1, 'scratch-read', SCRATCH_TOO, 12, SCRATCH),
             (1, 'export-read', ON_DRIVES, 8, EITHER), (1, 'export-read', SCRATCH_TOO, 4, EITHER))

    def ends(self, run, end, words):
        """A life that ends so, in time, with one error: that rank's."""
        child = run.start('--resume', end=end)
        code = 'E106' if 'read' in end.place else 'E301' if end.how == 'full' else 'E107'
        cause = 'No space left on device' if end.how == 'full' else 'Input/output error'
        self.told_once(run, child, end.rank, rf'{code}\] [^\n]*{words}')
        self.assertLess(time.monotonic() - run.struck(), GONE_S)
        self.assertIn(f': {cause}', run.read('stderr'))

    def failed(self, end, kind, words):
        with Run(PROGRAMS, kind, 2) as run:
            self.ends(run, end, words)
            if end.place.startswith('export'):
                self.assertEqual(run.committed(), run.steps)
                self.assertFalse(os.path.exists(run.path('export')))
            run.go_on()

    @every_day
    def test_a_tile_that_a_drive_fails_to_move_ends_all(self):
        rnd, rows = random.Random(SEED), []
        for (rank, place, kind, most, words), hows in (
                *((row, ('eio', 'full')) for row in self.WRITES),
                *((row, ('eio',)) for row in self.READS)):
            rows += [(End(how, rank, place, rnd.randint(1, most)), kind, words) for how in hows]
        all_of(self, self.failed, some(rows, len(rows) // 2))

    def not_gone_on(self, kind, ranks, end, words):
        """What a resume reads or writes once its store has been found whole."""
        with Run(PROGRAMS, kind, 2) as run:
            run.steps = 2
            self.assertEqual(run.start().wait(60), 0, run.read('stderr'))
            run.steps, run.ranks = STEPS, ranks
            self.ends(run, end, words)
            run.go_on()
            self.assertIn('going on after step 2', run.read('stderr'))

    def test_a_tile_that_fails_in_a_resume_ends_all(self):
        """Also of one by other ranks, which make the store theirs."""
        moved = r'writing a tile of the store for 4 ranks in [^\n]* failed'
        rnd, rows = random.Random(SEED), []
        for kind, ranks, how, place, most, words in (
                (IN_MEMORY, 2, 'eio', 'load-read', 8, self.EITHER),
                (self.WHOLE_WEIGHTS, 2, 'eio', 'load-read', 4, self.EITHER),
                (ON_DRIVES, 4, 'eio', 'load-write', 4, moved),
                (ON_DRIVES, 4, 'full', 'load-write', 4, moved)):
            rows.append((kind, ranks, End(how, 1, place, rnd.randint(1, most)), words))
        all_of(self, self.not_gone_on, some(rows, 2))

    def stepped_back(self, kind, ranks, place):
        """Behind an end all bytes are compared: one that cannot be read is one that is damaged.
        The last two versions are whole there, as nobody has gone on behind them."""
        with Run(PROGRAMS, kind, 2) as run:
            run.end_early(End('kill', 1, 'close'))
            run.ranks = ranks
            child = run.start('--resume', end=End('eio', 1, place))
            status = run.wait_until_gone(child, time.monotonic(), 60)
            told = run.read('stderr')
            self.assertEqual(status, 0, told)
            self.assertIsNotNone(run.struck())
            self.assertEqual(told.count('warning[W614] the newest version of the store, '), 1, told)
            self.assertIn(f'going on after step {STEPS - 1} of', told)
            self.assertEqual(run.exported(), alone(PROGRAMS, kind)[1])

    def test_a_tile_that_cannot_be_compared_is_as_a_damaged_one(self):
        """All go on from the version before. Where ranks have other numbers ckpt's reader reads."""
        rows = ((ON_DRIVES, 2, 'load-read'), (IN_MEMORY, 2, 'load-read'),
                (ON_DRIVES, 4, 'store-read'))
        all_of(self, self.stepped_back, some(rows, len(rows)))


class Together(unittest.TestCase):
    """What one rank alone sees, all do the same about."""

    def asked(self, whom, number, status):
        """A signal while a rank is in the second step."""
        with Run(PROGRAMS, IN_MEMORY, 2, steps=100000) as run:
            # mpirun waits so long before it hands SIGTERM on, and again before SIGKILL
            patience_s = 3 if number == signal.SIGTERM else 0
            child = run.start(end=End('stop', 1, 'exchange', 9), patience_s=patience_s)
            run.wait_for_mark(child)
            ranks = run.processes()
            os.kill(child.pid if whom is None else ranks[whom], number)
            if patience_s == 0:
                os.kill(ranks[1], signal.SIGCONT)
            got = run.wait_until_gone(child, time.monotonic(), 60)
            told, step = run.read('stderr'), run.committed()
            self.assertEqual(told.count('stopped ('), 1, told)
            self.assertIn(f' after {step} of {run.steps} steps: the store holds step {step},', told)
            self.assertEqual(got, status, told)
            run.steps = step + 2
            run.go_on()

    def test_a_signal_stops_all_after_the_same_step(self):
        rows = ((None, signal.SIGUSR1, 75), (1, signal.SIGUSR1, 75), (None, signal.SIGTERM, 1),
                (0, signal.SIGUSR1, 75))
        all_of(self, self.asked, some(rows, len(rows)))

    def poisoned(self, ranks, rank, kind, *more):
        """One rank's gradient has no number in the second step. -> what came of it"""
        with Run(PROGRAMS, kind, ranks) as run:
            child = run.start(*more, end=End('nan', rank, 'exchange', 9))
            status = run.wait_until_gone(child, time.monotonic(), 60)
            told = run.read('stderr')
            if '--skip-nonfinite' in more:
                self.assertEqual(status, 0, told)
                skipped = [line['step'] for line in run.lines('step') if line.get('skipped')]
                return skipped, run.came_to()
            self.assertEqual(status, 1, told)
            self.assertRegex(told, r'(?m)^error\[E701\] ')
            self.assertEqual(len(mpi.errors_of(told)), 1, told)
            run.go_on()
            return None

    @in_turn(0, 2)
    def test_a_gradient_without_number_on_one_rank_stops_all(self):
        rows = ((2, 1, ON_DRIVES), (4, 3, IN_MEMORY), (2, 0, IN_MEMORY), (2, 0, ON_DRIVES))
        all_of(self, self.poisoned, some(rows, len(rows)))

    @in_turn(1, 2)
    def test_all_skip_its_step(self):
        """Whose gradient it is does not matter, nor how many ranks there are."""
        for kind in some([ON_DRIVES, IN_MEMORY], 2):
            with self.subTest(kind=kind):
                rows = [(2, 1), (2, 0)] if SHORT else [(2, 1), (2, 0), (4, 3)]
                came = [self.poisoned(*row, kind, '--skip-nonfinite') for row in rows]
                self.assertEqual(came[0][0], [2])
                for other in came[1:]:
                    self.assertEqual(other, came[0])


@unittest.skipUnless('Long' in sys.argv, 'by its name, in the soak')
class Long(unittest.TestCase):
    """With the limit that a run has by itself, in real time."""

    def test_a_rank_that_stops_for_half_a_minute_is_waited_for(self):
        Stops.waited_for(self, 'exchange', 7, seconds=30, limit_s=60)

    def test_a_rank_that_stops_for_longer_is_named(self):
        Stops.named(self, 'exchange', 7, Stops.STEP, limit_s=60)

    def test_with_the_link_cut_each_rank_ends_by_itself(self):
        cut(self, 'exchange', 9, limit_s=60)
        for place, nth in Links.PLACES:
            with self.subTest(place=place):
                cut(self, place, nth)


load_tests = by_turns

if __name__ == '__main__':
    if PROGRAMS.missing():
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
