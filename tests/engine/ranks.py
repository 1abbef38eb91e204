#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An engine of several ranks under mpirun: the bytes of one rank with the same ways, whatever dies,
and refusals that name what is wrong.

    ranks.py PROGRAM PLUGIN_FOLDER FAR_FOLDER [TEST...]

HST_TEST_SEED replays the random rows and ends of the whole form.
"""
import concurrent.futures
import functools
import itertools
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
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402
from short import SEED, SHORT, by_turns, every_day, part, some, whole_alone  # noqa: E402

PROGRAM, FOLDER, FAR = sys.argv[1:4]
AT_ONCE = 4       # runs beside one another: a rank's end is mostly waited for
ALL_VISITS = 9    # of a step: see ranks.c
UNITS = 5
DRAWN = 40        # rows, beside those that are listed
NVME = 'place=states=nvme,weights=nvme,grads=nvme'


def environment():
    return mpi.environment(f'{FOLDER}:{FAR}')


def run(ranks, options, timeout=100, before=()):
    under = mpi.launcher(ranks) if ranks > 1 else []
    return subprocess.run([*before, *under, PROGRAM, *options], capture_output=True, text=True,
                          env=environment(), timeout=timeout)


def told(done):
    """All that the steps came to; what they received of others is the ranks' own."""
    return [line.split(' net')[0] for line in done.stdout.splitlines()]


def traffic(done):
    """Of each step, the bytes that it received of others, and those of all so far read in place."""
    found = re.findall(r' net (\d+), (\d+) so far in place', done.stdout)
    return [int(net) for net, _ in found], [int(in_place) for _, in_place in found]


def needs_store(options):
    return any('nvme' in option or option.startswith('durability') for option in options)


class Store:
    """A folder for a store, for the time of a `with`."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        self.option = f'store={self.folder}/s'
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)


def run_in_store(ranks, options, before=()):
    if not needs_store(options):
        return run(ranks, options, before=before)
    with Store() as store:
        return run(ranks, [*options, store.option], before=before)


OF_DEVICE = ('device=', 'hbm=', 'gpu-update=')


def alone(options):
    """What one rank of so many ways tells, on the host: the oracle of all."""
    return alone_on_host(tuple(o for o in options if not o.startswith(OF_DEVICE)))


@functools.lru_cache(maxsize=None)
def alone_on_host(options):
    done = run_in_store(1, list(options))
    if done.returncode:
        raise AssertionError(f'one rank, {options}: {done.stderr}')
    return told(done)


def all_of(work, rows):
    """Calls work(row) of all rows, some at once: what went wrong, in order."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return [wrong for wrong in pool.map(work, rows) if wrong]


# ---- rows: ranks, options ------------------------------------------------------------------------

ROWS = [
    (2, 'ways=4', 'precision=fp32', 'eval=5,1'),
    (4, 'ways=4', 'precision=bf16', 'group=*.norm:lr=3x,decay=0.2;?.w:beta1=0.8'),
    (3, 'ways=3', 'precision=fp16', 'hop=2'),
    (6, 'ways=6', 'precision=bf16', 'hop=2'),
    (2, 'ways=4', 'precision=bf16', 'clip=0', 'eval=3,2'),
    (4, 'ways=4', 'precision=fp32', NVME),
    (2, 'ways=4', 'precision=fp16', NVME, 'clip=0'),
    (2, 'ways=4', 'precision=bf16', 'update=optimistic', 'place=states=nvme,weights=nvme'),
    (2, 'ways=8', 'precision=bf16', 'reduce=f32', 'threads=2'),
    (4, 'ways=8', 'precision=bf16', 'hop=2', 'update=optimistic'),
    (4, 'ways=4', 'steps=20', 'grain=5', 'eval=2,1', 'place=states=nvme,weights=nvme'),
    (4, 'ways=4', 'precision=bf16', 'zero-stage=2', 'eval=4,2'),
    (3, 'ways=6', 'precision=fp16', 'grain=3', 'place=acts=nvme,weights=nvme'),
    (4, 'ways=4', 'precision=bf16', 'zero-stage=1', 'eval=4,2'),
    (2, 'ways=8', 'precision=bf16', 'zero-stage=1', 'reduce=f32', 'threads=2'),
    (3, 'ways=6', 'precision=fp16', 'zero-stage=1', 'clip=0', 'place=states=nvme,acts=nvme'),
    (4, 'ways=8', 'hop=2', 'zero-stage=1', 'update=optimistic', 'place=states=nvme', 'eval=3,1'),
    (3, 'ways=12', 'precision=bf16', 'zero-stage=2', 'eval=4,2'),
    (4, 'ways=4', 'precision=fp16', 'zero-stage=0', 'eval=4,2'),
    (2, 'ways=4', 'precision=bf16', 'zero-stage=0', 'clip=0', 'place=states=nvme,acts=nvme'),
    (3, 'ways=6', 'precision=bf16', 'zero-stage=0', 'hop=2', 'grain=3', 'update=optimistic'),
    (4, 'ways=4', 'precision=bf16', 'reduce=int8', 'eval=4,2'),
    (4, 'ways=8', 'precision=fp32', 'reduce=int4', 'hop=2', 'zero-stage=1', 'place=states=nvme'),
    (2, 'ways=2', 'precision=fp16', 'reduce=int8', 'zero-stage=1', 'update=optimistic'),
    (2, 'ways=8', 'precision=bf16', 'reduce=int4', 'zero-stage=0', 'clip=0'),
]
# The last rank's ways are a group shorter than a hop: it alone hands over sums in bf16 or fp16.
UNEVEN = [(3, 'ways=12', 'precision=bf16', 'zero-stage=1')]
# On a device with memory of its own, from which what ranks exchange is copied, and to which what
# they have gathered is.
APART = [(*row, 'device=far') for row in (
    (2, 'ways=4', 'precision=bf16', 'eval=4,2'),
    (4, 'ways=4', 'precision=fp32', NVME, 'update=optimistic'),
    (3, 'ways=6', 'precision=fp16', 'hop=2', 'grain=3', 'gpu-update=0.5'),
    (2, 'ways=4', 'precision=fp32', 'place=weights=nvme', 'clip=0', 'hbm=12m'),
    (4, 'ways=8', 'precision=bf16', 'zero-stage=2', 'eval=5,1', 'gpu-update=1'),
    (3, 'ways=12', 'precision=bf16', 'zero-stage=1', 'reduce=f32'),
    (3, 'ways=12', 'precision=bf16', 'zero-stage=1', 'place=states=nvme', 'update=optimistic'),
    (2, 'ways=4', 'precision=fp32', 'zero-stage=0', 'gpu-update=0.25'))]
PLACES = [None, NVME, 'place=weights=nvme', 'place=states=nvme', 'place=grads=nvme',
          'place=acts=nvme,weights=nvme']


# Buffers of gradients and of weights, homes of whole weights, and their second slots; of whole
# gradients, in buckets and of replicas.
SHARED = [(2, 'ways=2'), (4, 'ways=4', NVME), (2, 'ways=4', 'precision=bf16', 'zero-stage=2'),
          (2, 'ways=2', 'zero-stage=2', 'update=optimistic'),
          (2, 'ways=4', 'precision=bf16', 'zero-stage=1'), (4, 'ways=4', 'zero-stage=0'),
          (2, 'ways=4', 'precision=fp32', 'device=far')]


def some_world(rnd, uneven):
    """uneven: the last rank's ways are a group shorter than a hop, all others' are part of one."""
    ranks = rnd.choice((3, 5, 7) if uneven else (2, 3, 4, 5, 6, 7, 8))
    each = rnd.choice((2, 4, 8) if uneven else (1, 1, 2, 2, 4, 8, 16))
    ways, hop = ranks * each, 2 * each if uneven else rnd.choice((None, 1, 2, 4, 8, 16, 64))
    tokens = ways * rnd.choice((1, 2, 3))
    grain = min(rnd.choice((1, 3, 4, 5)), tokens)
    return ranks, [f'ways={ways}', hop and f'hop={hop}', f'batch-tokens={tokens}',
                   f'grain={grain}', 'dram=400m']


def some_row(rnd, uneven):
    ranks, row = some_world(rnd, uneven)
    place = rnd.choice(PLACES)
    precision = rnd.choice(['bf16', 'fp16'] if uneven else ['fp32', 'bf16', 'fp16'])
    row += [f'precision={precision}', place]
    if precision == 'fp16':  # with the usual one, gradients of many tokens are infinite
        row += [rnd.choice([None, 'loss-scale=1', 'loss-scale=1'])]
    row += [rnd.choice([None, 'clip=0', 'update=optimistic'])]
    reduce = rnd.choice([None, None, None if uneven else 'reduce=f32', 'reduce=int8',
                         'reduce=int4'])
    row += [reduce]
    row += [rnd.choice([None, f'eval={rnd.randint(1, UNITS)},{rnd.randint(1, 3)}'])]
    row += [rnd.choice([None, 'threads=2'])]
    optimizer = rnd.choice([None, None, None, 'sgd', 'lion', 'adagrad'])
    row += [optimizer and f'optimizer={optimizer}']
    if precision == 'bf16' and optimizer != 'adagrad':
        row += [rnd.choice([None, None, 'state=bf16'])]
    stages = [None]
    if not place or 'weights' not in place:
        stages += ['zero-stage=2']
        if not place or 'grads' not in place:
            stages += ['zero-stage=1', 'zero-stage=1', 'zero-stage=0']
    row += [rnd.choice(stages)]
    if rnd.random() < 0.3 and reduce in (None, 'reduce=f32'):
        row += ['device=far', 'state=bf16' not in row and rnd.choice([None, 'gpu-update=0.5'])]
    return (ranks, *(option for option in row if option))


def differs(row):
    ranks, options = row[0], row[1:]
    want, done = alone(options), run_in_store(ranks, options)
    if done.returncode == 0 and told(done) == want:
        return None
    return f'{ranks} ranks, {" ".join(options)}: {told(done)} {done.stderr}, and one rank: {want}'


# ---- ends: a run in which a rank ends, and one that goes on --------------------------------------

STEPS = 7
LASTING = [(), (NVME,), ('update=optimistic',), ('clip=0',),
           ('precision=bf16', 'place=states=nvme'), ('zero-stage=1', 'update=optimistic'),
           ('zero-stage=0', 'precision=fp16', 'place=states=nvme'),
           ('device=far', 'precision=fp32'), ('device=far', 'precision=bf16', NVME)]
HOW = ('kill', 'segv', 'exit')


def some_end(rnd, how, ranks, step):
    return f'end={how},{rnd.randrange(ranks)},{step},{rnd.randint(0, ALL_VISITS + 1)}'


def some_ends(count, seed):
    """A rank that ends, from the fourth step on, where there is a version to go on from; or one and
    another one in the run that goes on, in a later step, which that comes to."""
    rnd = random.Random(seed)
    rows = []
    for i in range(count):
        ranks = rnd.choice([2, 2, 3, 4])
        first = rnd.randint(3, STEPS - 2)
        ends = [some_end(rnd, HOW[i % 3], ranks, first)]
        if i % 6 == 5:
            ends.append(some_end(rnd, rnd.choice(HOW), ranks, rnd.randint(first + 1, STEPS - 1)))
        rows.append((ranks, LASTING[i % len(LASTING)], ends))
    return rows


def end_and_go_on(ranks, options, ends, store):
    for i, end in enumerate(ends):
        begun = time.monotonic()
        done = run(ranks, [*options, store, end, f'resume={int(i > 0)}'])
        took = time.monotonic() - begun
        if done.returncode == 0:
            return f'mpirun tells of no failure: {done.stdout} {done.stderr}'
        if took > 20:
            return f'the others went on for {took:.0f} s: {done.stderr}'
        if mpi.processes(PROGRAM, store):
            return f'processes are left: {mpi.processes(PROGRAM, store)}'
    done = run(ranks, [*options, store, 'resume=1'])
    if done.returncode:
        return f'it does not go on: {done.stderr}'
    want = alone(options)
    if told(done)[-1:] != want[-1:]:
        return f'it goes on to {told(done)[-1:]}, not to {want[-1:]}'
    return None


def does_not_go_on(row):
    ranks, lasting, ends = row
    ways = 3 if ranks == 3 else 4
    options = (f'ways={ways}', f'steps={STEPS}', 'durability=step', *lasting)
    with Store() as store:
        wrong = end_and_go_on(ranks, options, ends, store.option)
    return wrong and f'{ranks} ranks, {" ".join((*options, *ends))}: {wrong}'


class Ranks(unittest.TestCase):
    maxDiff = None

    def same(self, rows):
        self.assertEqual(all_of(differs, rows), [])

    def go_on(self, rows):
        self.assertEqual(all_of(does_not_go_on, rows), [])

    @every_day
    def test_ranks_have_the_bytes_of_one(self):
        self.same(UNEVEN + some(ROWS, 4) + some(APART, 6))

    @whole_alone
    def test_any_ranks_and_options_have_the_bytes_of_one(self):
        rnd = random.Random(SEED)
        self.same([some_row(rnd, i % 2) for i in range(DRAWN)])

    # ---- rates ----

    def plans(self, options):
        done = run_in_store(2, options)
        self.assertEqual(done.returncode, 0, done.stderr)
        told_plans = re.findall(r'^rank (\d) plans (.*)$', done.stderr, re.M)
        self.assertEqual(sorted(rank for rank, _ in told_plans), ['0', '1'], done.stderr)
        return dict(told_plans), told(done)

    def test_ranks_plan_by_the_least_of_their_rates(self):
        """The slower machine's, whichever rank has it; homes that were searched change no byte."""
        options = ('ways=2', 'clip=0', 'place=states=nvme')
        wants = {rate: self.plans([*options, f'rates={rate}'])[0]['0'] for rate in ('1e6', '1e9')}
        self.assertNotEqual(wants['1e6'], wants['1e9'])
        for slow in ('0', '1'):
            plans, numbers = self.plans([*options, 'rates=1e9', f'only={slow},rates=1e6'])
            self.assertEqual(plans, {'0': wants['1e6'], '1': wants['1e6']})
            self.assertEqual(numbers, alone(options))

    def test_what_one_rank_does_not_know_none_plans_by(self):
        plans, _ = self.plans(['ways=2', 'rates=1e9', 'only=1,rates=0'])
        self.assertEqual(plans['0'], plans['1'])
        self.assertIn('plans a step of 0x0p+0 s', 'plans ' + plans['0'])

    def test_ranks_whose_homes_were_searched_have_the_bytes_of_one(self):
        rows = some(part([*ROWS[1:], ROWS[0]], 10), 1)  # others than have homes that are given
        self.same([(*row, f'rates={rate}')
                   for row, rate in zip(rows, itertools.cycle(('1e6', '1e9')))])

    # ---- memory of a node that its ranks read ----

    def test_ranks_of_a_node_read_all_that_they_exchange_in_place(self):
        """And what the load gathers, of rows that are whole as a step begins."""
        for ranks, *options in SHARED:
            with self.subTest(ranks=ranks, options=options):
                done = run_in_store(ranks, options)
                self.assertEqual(told(done), alone(tuple(options)), done.stderr)
                net, in_place = traffic(done)
                self.assertGreater(net[0], 0)
                loaded = in_place[0] - net[0]
                self.assertEqual(loaded > 0, 'update=optimistic' in options)
                self.assertEqual(in_place, [loaded + n for n in itertools.accumulate(net)])
                self.assertNotIn('W506', done.stderr)

    def test_with_too_little_shared_memory_all_send_messages(self):
        small = mpi.small_memory(self, '1m')
        for ranks, *options in SHARED:
            with self.subTest(ranks=ranks, options=options):
                done = run_in_store(ranks, options, before=small)
                self.assertEqual(told(done), alone(tuple(options)), done.stderr)
                self.assertEqual(traffic(done)[1], [0, 0, 0])
                self.assertEqual(done.stderr.count('W506 '), 1, done.stderr)
                self.assertRegex(done.stderr, r"W506 [^\n]*: a node's /dev/shm is too small for ")

    def test_a_run_goes_on_behind_a_rank_whose_memory_was_read(self):
        """Behind its last visit, of the unit whose gradients the others read then."""
        self.go_on([(4, options, [f'end=kill,{rank},3,{ALL_VISITS}'])
                    for rank, options in enumerate(((), ('zero-stage=2',), ('zero-stage=1',)), 1)])

    @whole_alone
    def test_a_run_goes_on_behind_a_rank_that_ended(self):
        self.go_on(some_ends(30, SEED))  # the program has more of them (e2e/rank_ends.py)

    # ---- what ranks may take ----

    def within(self, ranks, stage, place):
        """With the least that a node's ranks can do with. Each of them looks at its own peak."""
        options = ['ways=4', f'zero-stage={stage}', f'place={place}']
        done = run_in_store(ranks, [*options, 'dram=1m'])
        least = re.search(r"E302 [^\n]* needs (\S+) MiB of DRAM [^\n]* node's", done.stderr)
        self.assertTrue(least, done.stderr)
        done = run_in_store(ranks, [*options, f'dram={least[1]}m'])
        self.assertEqual(told(done), alone(('ways=4',)), done.stderr)
        peaks = [int(peak) for peak in re.findall(r', peak (\d+)', done.stdout)]
        part = float(least[1]) * (1 << 20) / ranks
        self.assertGreater(min(peaks), 0.9 * part)
        self.assertLessEqual(max(peaks), part)

    def test_each_rank_stays_within_its_part_of_the_budget(self):
        rows = [(ranks, stage, place) for stage in range(4) for ranks in (2, 4)
                for place in ('states=dram', 'states=nvme')]
        for row in some(part(rows, 6), 3):
            with self.subTest(row):
                self.within(*row)

    # ---- refusals ----

    def refused(self, ranks, options, words):
        """With the status of a client that has an error of the engine (ranks.c), not by a signal.
        Which one the program has for a code is docs/errors.md's (e2e/rank_alike.py)."""
        done = run(ranks, options)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, words)
        self.assertEqual(told(done), [])

    def test_ranks_that_are_started_unlike_are_told_apart(self):
        self.each_is_refused((
            ('only=1,clip=0.5', r"E503 .*: --clip is '1' for rank 0 and '0\.5' for rank 1"),
            ('only=1,precision=bf16', "E503 .*: --precision is 'fp32' for rank 0 and 'bf16' for"),
            ('only=0,update=optimistic',
             "E503 .*: --update is 'optimistic' for rank 0 and 'auto' for rank 1"),
            ('swap=1', r"E503 .*: the plan of what ranks do together is '\d+ operations \(\w+\)' "
                       r"for rank 0 and '\d+ operations \(\w+\)' for rank 1")))

    def test_a_client_of_several_ranks_that_leaves_the_order_is_refused(self):
        """A client of one rank is served, and has the same bytes."""
        for step in ('0', '2'):
            self.assertEqual(alone(('ways=2', f'stray={step}')), alone(('ways=2',)))
            done = run(2, ['ways=2', f'stray={step}'])
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stderr, r'call refused: unit 0 was asked for out of the order of '
                                          r'hst_engine_visits, [^\n]*several ranks [^\n]* keep it')
            self.assertEqual(told(done), alone(('ways=2',))[:int(step)])

    def test_ways_that_do_not_fit_are_refused(self):
        rows = (('ways=3', 'E402 3 ways cannot be shared out among 2 ranks'),
                ('ways=5', 'E402 the 24 tokens of a step cannot be cut into 5 equal ways'))
        self.each_is_refused(rows)
        with Store() as store:  # nor is one made; who is killed may leave its directory
            for option, words in rows:
                self.refused(2, [option, 'durability=step', store.option], words)
            self.assertEqual([name for _, _, names in os.walk(store.folder) for name in names], [])

    def test_what_is_whole_is_in_memory(self):
        words = 'E402 2 ranks have all {} each in memory with ZeRO stages 0 {}, not on NVMe'
        weights, grads = words.format('weights', 'to 2'), words.format('gradients', 'and 1')
        with Store() as store:
            for stage, place, told_of in ((2, 'weights', weights), (1, 'weights', weights),
                                          (0, 'weights', weights), (1, 'grads', grads),
                                          (0, 'grads', grads)):
                self.refused(2, ['ways=2', f'zero-stage={stage}', f'place={place}=nvme',
                                 store.option], told_of)

    # ---- replicas ----

    def test_what_a_step_receives_does_not_depend_on_what_ranks_keep(self):
        """But for shards of all: their weights are gathered for each visit that reads them."""
        net = [traffic(run(4, ['ways=4', 'precision=bf16', f'zero-stage={stage}']))[0]
               for stage in range(4)]
        self.assertEqual([net[0], net[1]], [net[2], net[2]])
        self.assertGreater(net[3][0], net[2][0])
        self.assertGreater(net[2][0], 0)

    def test_a_replica_stands_for_all(self):
        """Of ranks that have all of all each file is the store: for another one, and alone."""
        options = ('ways=2', 'steps=5', 'durability=step', 'precision=bf16')
        replicas = ['zero-stage=0', *options]
        with Store() as store:
            first, second = (os.path.join(store.folder, 's', f'r0000{rank}.d0.blk')
                             for rank in range(2))
            done = run(2, [*replicas, 'steps=3', store.option])
            self.assertEqual(done.returncode, 0, done.stderr)
            shutil.copyfile(second, first)
            done = run(2, [*replicas, 'steps=4', 'resume=1', store.option])
            self.assertEqual(told(done)[:-1], alone(options)[3:4], done.stderr)
            shutil.copy2(second, store.folder + '/before')
            os.replace(second, first)
            done = run(1, [*options, 'resume=1', store.option])
            self.assertEqual(told(done), alone(options)[4:], done.stderr)
            os.replace(first, second)
            self.refused(1, [*options, 'resume=1', store.option], 'E613 .*one of several replicas')
            self.refused(2, [*replicas, 'resume=1', store.option],
                         r"E613 .* no rank finds r00000\.d0\.blk\. Fix: cp another rank's file")
            os.replace(store.folder + '/before', first)
            self.refused(2, [*replicas, 'resume=1', store.option],
                         'E613 .*files of different steps')

    def test_what_is_said_of_a_lost_replica_can_be_done(self):
        """Also where its directory was made as others are: then that is what is told next."""
        options = ['ways=2', 'steps=2', 'durability=step', 'precision=bf16', 'zero-stage=0']
        with Store() as store:
            options.append(f'store={store.folder}/{{rank}}')
            lost, other = (os.path.join(store.folder, str(rank)) for rank in (1, 0))
            self.assertEqual(run(2, options).returncode, 0)
            shutil.rmtree(lost)
            options += ['resume=1', 'steps=4']
            self.refused(2, options, r"E613 .* no rank finds r00001\.d0\.blk\. Fix: cp another "
                                     r"rank's file under that name, into a directory that is made "
                                     r"with mkdir -m 700")
            shutil.rmtree(lost, ignore_errors=True)  # of a rank that is killed before it removes it
            subprocess.run(['mkdir', '-m', '755', lost], check=True)
            subprocess.run(['cp', f'{other}/r00000.d0.blk', f'{lost}/r00001.d0.blk'], check=True)
            self.refused(2, options, r'E610 .*/1 has mode 0755 .* Fix: chmod 700 it')
            shutil.rmtree(lost)
            subprocess.run(['mkdir', '-m', '700', lost], check=True)
            subprocess.run(['cp', f'{other}/r00000.d0.blk', f'{lost}/r00001.d0.blk'], check=True)
            done = run(2, options)
            self.assertEqual(done.returncode, 0, done.stderr)

    def each_is_refused(self, rows):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for done in [pool.submit(self.refused, 2, [option], words) for option, words in rows]:
                done.result()

    def test_a_store_without_the_file_of_a_rank_is_refused(self):
        with Store() as store:
            options = ['ways=2', 'durability=step', store.option]
            self.assertEqual(run(2, options).returncode, 0)
            os.unlink(os.path.join(store.folder, 's', 'r00001.d0.blk'))
            kept = os.path.join(store.folder, 's', 'r00000.d0.blk')
            with open(kept, 'rb') as f:
                before = f.read()
            self.refused(2, [*options, 'resume=1'], 'E613 .*')
            with open(kept, 'rb') as f:
                self.assertTrue(f.read() == before, 'what is left of the store was written')


    def test_an_engine_is_destroyed_though_a_rank_does_not_leave(self):
        """It cannot tell, and keeps the memory that the other may still write to."""
        done = run(2, ['ways=2', 'peer-timeout=2', 'end=stop,1,3,0'])
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual([line for line in told(done) if line.startswith('weights')],
                         alone(('ways=2',))[-1:])
        self.assertNotIn('Assertion', done.stderr)


load_tests = by_turns

if __name__ == '__main__':
    if not shutil.which('mpirun') or not os.path.exists(os.path.join(FOLDER, 'libhoistway-mpi.so')):
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    if not SHORT:
        print(f'the same rows again: HST_TEST_SEED={SEED}')
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
