#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An engine of several ranks under mpirun: the bytes of one rank with the same ways, whatever dies,
and refusals that name what is wrong.

    ranks.py PROGRAM PLUGIN_FOLDER [TEST...]

HST_TEST_SEED replays the random rows and ends of the whole form.
"""
import concurrent.futures
import functools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402
from short import SHORT, whole_alone  # noqa: E402

PROGRAM, FOLDER = sys.argv[1:3]
SEED = int(os.environ.get('HST_TEST_SEED', time.time_ns() // 1000 % 1000000))
AT_ONCE = 4       # runs beside one another: a rank's end is mostly waited for
ALL_VISITS = 9    # of a step: see ranks.c
UNITS = 5
NVME = 'place=states=nvme,weights=nvme,grads=nvme'


def environment():
    return {**mpi.environment(FOLDER), 'OMPI_MCA_odls_base_sigkill_timeout': '0'}


def run(ranks, options, timeout=100):
    under = mpi.launcher(ranks) if ranks > 1 else []
    return subprocess.run([*under, PROGRAM, *options], capture_output=True, text=True,
                          env=environment(), timeout=timeout)


def told(done):
    """All that the steps came to; what they received of others is the ranks' own."""
    return [line.split(' net')[0] for line in done.stdout.splitlines()]


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


def run_in_store(ranks, options):
    if not needs_store(options):
        return run(ranks, options)
    with Store() as store:
        return run(ranks, [*options, store.option])


@functools.lru_cache(maxsize=None)
def alone(options):
    """What one rank of so many ways tells: the oracle of all."""
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
    (4, 'ways=4', 'precision=bf16'),
    (3, 'ways=3', 'precision=fp16', 'hop=2'),
    (2, 'ways=4', 'precision=bf16', 'clip=0', 'eval=3,2'),
    (4, 'ways=4', 'precision=fp32', NVME),
    (2, 'ways=4', 'precision=fp16', NVME, 'clip=0'),
    (2, 'ways=4', 'precision=bf16', 'update=optimistic', 'place=states=nvme,weights=nvme'),
    (2, 'ways=8', 'precision=bf16', 'reduce=f32', 'threads=2'),
    (4, 'ways=8', 'precision=bf16', 'hop=2', 'update=optimistic'),
    (4, 'ways=4', 'steps=20', 'grain=5', 'eval=2,1', 'place=states=nvme,weights=nvme'),
    (4, 'ways=4', 'precision=bf16', 'zero-stage=2', 'eval=4,2'),
    (3, 'ways=6', 'precision=fp16', 'grain=3', 'place=acts=nvme,weights=nvme'),
]
WORLDS = [(2, 2), (2, 4), (2, 8), (3, 3), (3, 6), (3, 12), (4, 4), (4, 8), (6, 6)]
PLACES = [None, NVME, 'place=weights=nvme', 'place=states=nvme', 'place=grads=nvme',
          'place=acts=nvme,weights=nvme']


def some_row(rnd):
    ranks, ways = rnd.choice(WORLDS)
    place = rnd.choice(PLACES)
    row = [f'ways={ways}', f'precision={rnd.choice(["fp32", "bf16", "fp16"])}', place]
    row += [rnd.choice([None, 'clip=0', 'update=optimistic'])]
    row += [rnd.choice([None, None, 'reduce=f32']), rnd.choice([None, 'hop=1', 'hop=2', 'hop=4'])]
    row += [rnd.choice([None, None, 'grain=1', 'grain=3', 'grain=5'])]
    row += [rnd.choice([None, f'eval={rnd.randint(1, UNITS)},{rnd.randint(1, 3)}'])]
    row += [rnd.choice([None, 'threads=2'])]
    if not place or 'weights' not in place:
        row += [rnd.choice([None, 'zero-stage=2'])]
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
           ('precision=bf16', 'place=states=nvme')]
HOW = ('kill', 'segv', 'exit')


def some_end(rnd, how, ranks, step):
    return f'end={how},{rnd.randrange(ranks)},{step},{rnd.randint(0, ALL_VISITS + 1)}'


def some_ends(count, seed):
    """A rank that ends, from the fourth step on, where there is a version to go on from; or one and
    another one in the run that goes on, in a later step, which that comes to."""
    rnd = random.Random(seed)
    rows = []
    for i in range(count):
        ranks = rnd.choice([2, 2, 3, 4] if not SHORT else [2, 2, 2, 4])
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

    def test_ranks_have_the_bytes_of_one(self):
        self.same(ROWS)

    @whole_alone
    def test_any_ranks_and_options_have_the_bytes_of_one(self):
        rnd = random.Random(SEED)
        self.same([some_row(rnd) for _ in range(60 - len(ROWS))])

    def test_a_run_goes_on_behind_a_rank_that_ended(self):
        self.go_on(some_ends(12 if SHORT else 60, 1 if SHORT else SEED))

    # ---- refusals ----

    def refused(self, ranks, options, words):
        done = run(ranks, options)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stderr, words)
        self.assertEqual(told(done), [])

    def test_ranks_that_are_started_unlike_are_told_apart(self):
        self.each_is_refused((
            ('only=1,clip=0.5', r"E503 .*: --clip is '1' for rank 0 and '0\.5' for rank 1"),
            ('only=1,precision=bf16', "E503 .*: --precision is 'fp32' for rank 0 and 'bf16' for"),
            ('only=0,update=optimistic',
             "E503 .*: --update is 'optimistic' for rank 0 and 'auto' for rank 1")))

    def test_ways_that_do_not_fit_are_refused(self):
        self.each_is_refused((
            ('ways=3', 'E402 3 ways cannot be shared out among 2 ranks'),
            ('ways=5', 'E402 the 24 tokens of a step cannot be cut into 5 equal ways')))

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

    def test_a_rank_that_is_stopped_is_named(self):
        with Store() as store:
            mark = 'end=stop,1,2,4'
            begun = time.monotonic()
            done = run(3, ['ways=3', 'steps=5', 'durability=step', 'peer-timeout=2', store.option,
                           mark])
            took = time.monotonic() - begun
            self.assertEqual(mpi.processes(PROGRAM, store.option), [])
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r'rank [02]: E504 rank 1 has not answered')
        self.assertLess(took, 10 + 2 + 5)  # until it stops, the limit, a rank's own watchdog


if __name__ == '__main__':
    if not shutil.which('mpirun') or not os.path.exists(os.path.join(FOLDER, 'libhoistway-mpi.so')):
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    if not SHORT:
        print(f'the same rows again: HST_TEST_SEED={SEED}')
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
