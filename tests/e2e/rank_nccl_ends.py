#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks joined by NCCL, of which one goes wrong: one that hangs or stops is told by all
others in time, and what is not finite on one rank is so for all. rank_nccl.py has the calls that
fail, rank_ends.py ranks that end or stop without GPUs.

    rank_nccl_ends.py PROGRAM SOURCE_ROOT MPI_FOLDER CUDA_FOLDER NCCL_FOLDER REFUSING_FOLDER
                      PROGRAM_THAT_ENDS [TEST...]

Long: with the limit that a run has by itself; a test is skipped without that name.
"""
import concurrent.futures
import functools
import itertools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rank_gpus  # noqa: E402
from rank_gpus import GOLDEN, PROGRAM, Run, mpi  # noqa: E402
from rank_nccl import BF16, IN_DRAM, environment, start, step_lines, train  # noqa: E402
from short import SHORT, by_turns, part, some  # noqa: E402

LIMIT_S = 15 if SHORT > 1 else 5  # --peer-timeout: sanitizers are slow
LIMIT = f'--peer-timeout={LIMIT_S}'
GONE_S = LIMIT_S + 25      # all have ended by then: some of it is a busy machine's
ENDS = sys.argv[7]         # ends.c
LONG = 2000                # steps: of a run that does not come to its end
ALL_GONE_S = 70            # with the limit of 60 s that a run has by itself
TOLD = r'error\[E504\] [^\n]*waited \d+ s'
WAITS, LOADS = TOLD + r' [^\n]*in step \d+', TOLD + r'(?![^\n]*in step)'


def place_of(ranks):
    """Two have all at home in HBM, where it fits; four do not."""
    return (IN_DRAM,) if ranks > 2 else ()


class Ends(unittest.TestCase):
    maxDiff = None

    def by_mpirun(self, run, ranks):
        return [subprocess.Popen(
            [*mpi.launcher(ranks), *run.command('untied-mha', *BF16, LIMIT, *place_of(ranks),
                                                steps=LONG, device='cuda', comm='nccl')],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(ranks))]

    def kill(self, run, children):
        """What is left of them, also where a test fails."""
        for child in children:
            child.kill()
        for process in mpi.processes(PROGRAM, run.path('store')):
            os.kill(process, signal.SIGKILL)
        for child in children:
            child.communicate()

    def stop_one(self, run, children, ranks):
        """-> the rank that is stopped, once there are two steps"""
        until = time.monotonic() + 120
        while not (os.path.exists(run.path('log')) and step_lines(run)[1:]):
            self.assertLess(time.monotonic(), until)
            self.assertIsNone(children[0].poll())
            time.sleep(0.01)
        processes = [child.pid for child in children]
        if len(processes) < ranks:
            processes = mpi.processes(PROGRAM, run.path('store'))
        self.assertEqual(len(processes), ranks)
        os.kill(processes[-1], signal.SIGSTOP)
        return ranks - 1

    def test_a_rank_that_stops_is_named_where_mpi_knows_it(self):
        for ranks in some((2, 4), 2):
            with self.subTest(ranks=ranks), Run() as run:
                children = self.by_mpirun(run, ranks)
                self.addCleanup(self.kill, run, children)
                late, begun = self.stop_one(run, children, ranks), time.monotonic()
                _, told = children[0].communicate(timeout=GONE_S + LIMIT_S)
                self.assertLess(time.monotonic() - begun, GONE_S)
                self.assertEqual(children[0].returncode, 1, told)
                self.assertRegex(told, rf'error\[E504\] rank {late} has not ')
                self.assertEqual(len(mpi.errors_of(told)), 1, told)

    def all_wait(self, children, but, words=WAITS):
        """All ranks but one end with E504, and say where they wait."""
        begun = time.monotonic()
        for rank, child in enumerate(children):
            if rank != but:
                _, told = child.communicate(timeout=GONE_S)
                self.assertEqual(child.returncode, 1, told)
                self.assertRegex(told, words)
        self.assertLess(time.monotonic() - begun, GONE_S)

    def test_a_rank_that_stops_is_waited_for_by_each_other_one(self):
        """Without MPI, on one node and on two."""
        for ranks, nodes in some(((2, 1), (4, 2)), 2):
            with self.subTest(ranks=ranks), Run() as run:
                children = start(run, ranks, LIMIT, *place_of(ranks), steps=LONG, nodes=nodes)
                self.addCleanup(self.kill, run, children)
                self.all_wait(children, self.stop_one(run, children, ranks))

    def hangs(self, ranks, nodes, call, words):
        """All say that they wait, that rank as well whose GPU it is: its process waits, too."""
        with Run() as run:
            children = start(run, ranks, LIMIT, *place_of(ranks), steps=LONG, nodes=nodes,
                             nccl=f'rank=1,fail={call}')
            self.addCleanup(self.kill, run, children)
            begun = time.monotonic()
            for child in children:
                _, told = child.communicate(timeout=120)
                self.assertEqual(child.returncode, 1, told)
                self.assertRegex(told, words)
            self.assertLess(time.monotonic() - begun, 70)

    def test_a_collective_that_hangs_on_one_rank_is_told_by_all(self):
        rows = [(2, 1, 'ncclAllGather:178:hang'), (4, 2, 'ncclAllGather:178:hang'),
                (2, 1, 'ncclAlltoAll:20:hang')]
        for ranks, nodes, call in some(rows, 3):
            with self.subTest(ranks=ranks, call=call):
                self.hangs(ranks, nodes, call, WAITS)

    def test_a_collective_that_hangs_while_ranks_load_is_told_by_all(self):
        """In what they agree on, and in a sign of life or a meeting, where who reads may be an hour
        late."""
        for call in some(('ncclAllGather:60:hang', 'ncclAllReduce:4:hang',
                          'ncclAllReduce:60:hang'), 3):
            with self.subTest(call=call):
                self.hangs(2, 1, call, LOADS)

    def test_a_rank_at_work_is_waited_for_behind_the_limit(self):
        """One that loads, and one whose drive is slow when the last version is made."""
        for place in some(('load,1', 'sync,2'), 2):
            with self.subTest(place=place), Run() as run:
                mark = run.path('mark')
                children = start(run, 2, LIMIT, program=ENDS, more={
                    'HOISTWAY_END': f'long,1,{place}', 'HOISTWAY_END_MARK': mark})
                self.addCleanup(self.kill, run, children)
                for child in children:
                    _, told = child.communicate(timeout=120)
                    self.assertEqual(child.returncode, 0, told)
                self.assertTrue(os.path.exists(mark))

    def test_a_rank_that_dies_while_they_load_is_waited_for_by_each_other_one(self):
        """Nothing but signs of life tells them."""
        for ranks, nodes in some(((2, 1), (4, 2)), 2):
            with self.subTest(ranks=ranks), Run() as run:
                children = start(run, ranks, LIMIT, nodes=nodes,
                                 nccl='rank=1,fail=ncclAllReduce:60:die')
                self.addCleanup(self.kill, run, children)
                children[1].communicate(timeout=60)
                self.assertEqual(children[1].returncode, -signal.SIGKILL)
                self.all_wait(children, 1, LOADS)


@unittest.skipUnless('Long' in sys.argv, 'by its name, in the soak')
class Long(unittest.TestCase):
    """With the limit that a run has by itself, in real time, and by NCCL alone. Rows wait side by
    side: who waits takes no processor."""
    maxDiff = None
    # the call of rank 1, of which number, what becomes of it, and what ranks say
    FAULTS = (('ncclCommInitRankConfig', 1, 'hang', 2 * [TOLD]),
              ('ncclCommInitRankConfig', 1, 'hang,fail=ncclCommAbort:1:hang', 2 * [TOLD]),
              ('ncclAllReduce', 60, 'hang', 2 * [LOADS]),
              ('ncclAllGather', 178, 'hang', 2 * [WAITS]),
              ('ncclAlltoAll', 20, 'hang', 2 * [WAITS]),
              ('ncclAllGather', 190, 'hang,fail=ncclCommAbort:1:hang', 2 * [WAITS]),
              ('ncclAllGather', 178, 'async=6', [WAITS, r'error\[E50[47]\]']))

    def struck(self, run, call, number):
        """Whether rank 1 has made that call."""
        if not os.path.exists(run.path('calls.1')):
            return False
        with open(run.path('calls.1'), encoding='utf-8') as file:
            return file.read().split('\n').count(call) >= number

    def ended(self, children, has_struck):
        """-> seconds of each between the fault and its end, whose time is that of the ranks"""
        begun, ends = None, {}
        until = time.monotonic() + 60 + 3 * ALL_GONE_S
        while len(ends) < len(children) and time.monotonic() < until:
            if begun is None and has_struck():
                begun = time.monotonic()
            for rank, child in enumerate(children):
                if rank not in ends and child.poll() is not None:
                    ends[rank] = time.monotonic()
            time.sleep(0.02)
        return {rank: end - begun for rank, end in ends.items()} if begun else {}

    def wrong_of(self, fault):
        call, number, what, words = fault
        with Run() as run:
            children = start(run, 2, steps=LONG, nccl=f'rank=1,fail={call}:{number}:{what},'
                             f'log={run.path("calls")}')
            try:
                seconds = self.ended(children, lambda: self.struck(run, call, number))
            finally:
                self.kill_all(children)
            told = [child.communicate()[1] for child in children]
        if len(seconds) < 2 or max(seconds.values()) > ALL_GONE_S:
            return f'{fault}: all have not ended within {ALL_GONE_S} s: {seconds}: {told}'
        print(f'{call}:{number}:{what}: ended after {sorted(seconds.values())}', flush=True)
        wrong = [text for rank, text in enumerate(told)
                 if children[rank].returncode != 1 or not re.search(words[rank], text)]
        return f'{fault}: {wrong}' if wrong else None

    def kill_all(self, children):
        for child in children:
            if child.poll() is None:
                child.kill()

    def test_whatever_hangs_all_have_ended_in_time(self):
        with concurrent.futures.ThreadPoolExecutor(len(self.FAULTS)) as pool:
            self.assertEqual([w for w in pool.map(self.wrong_of, self.FAULTS) if w], [])


# ---- what is not finite --------------------------------------------------------------------------

BLOCK, HIDDEN, TOKENS = 512, 64, 160
RARE = TOKENS - BLOCK // HIDDEN  # from here on tokens' rows share a block of integers with the last
INFINITY = 0x7f80                # in bf16
EMBEDDING = 'model.embed_tokens.weight'


def poisoned(folder, at):
    """-> a model where one token's embedding is infinite, and data with that token at one place and
    with none whose rows that makes infinite where they are integers."""
    model = os.path.join(folder, 'poisoned')
    shutil.copytree(os.path.join(GOLDEN, 'untied-mha'), model)
    with open(os.path.join(model, 'model.safetensors.index.json'), encoding='utf-8') as file:
        tensors = os.path.join(model, json.load(file)['weight_map'][EMBEDDING])
    with open(tensors, 'r+b') as file:
        size, = struct.unpack('<Q', file.read(8))
        begins = json.loads(file.read(size))[EMBEDDING]['data_offsets'][0]
        file.seek(8 + size + begins + (TOKENS - 1) * HIDDEN * 2)
        file.write(struct.pack('<H', INFINITY))
    with open(os.path.join(model, 'tokens.bin'), 'r+b') as file:
        head, data = file.read(1024), file.read()
        ids = [min(token, RARE - 1) for token, in struct.iter_unpack('<I', data)]
        ids[at] = TOKENS - 1
        file.seek(len(head))
        file.write(struct.pack(f'<{len(ids)}I', *ids))
    return model


class NotFinite(unittest.TestCase):
    """In the second step, of one way of four and so of one rank."""
    maxDiff = None
    AT = 12 * (4 + 2) + 5  # in the third sequence of that step
    KINDS = (BF16, (*BF16, '--gather=int8'), (*BF16, '--reduce=int8'),
             (*BF16, '--gather=int8', '--reduce=int8'),
             (*BF16, '--gather=int8', '--reduce=int4', '--hop=2'))
    ROWS = [(numbers, *world) for world, numbers in itertools.product((
        (2, ()), (4, (IN_DRAM,)), (2, (rank_gpus.ON_NVME,)), ((2, 2), ()),
        ((2, 2), ('--secondary=node', '--hbm=780K'))), KINDS)]

    def ended(self, ranks, numbers, *options):
        """-> status, what was told, which steps were skipped, and what it came to."""
        with Run() as run:
            model = poisoned(run.folder, self.AT)
            options = ('--order=sequential', *options)
            if isinstance(ranks, tuple):
                children = start(run, sum(ranks), *options, model=model, precision=numbers, steps=3,
                                 nodes=len(ranks))
                told = [child.communicate(timeout=120)[1] for child in children]
                statuses = {child.returncode for child in children}
            else:
                how = {'comm': 'nccl'} if ranks > 1 else {'comm': 'mpi'}
                done = train(run, ranks, model, *numbers, *options, steps=3, **how)
                told, statuses = [done.stderr], {done.returncode}
            steps = step_lines(run)
            came = run.came_to() if os.path.exists(run.path('export')) else None
            self.assertEqual(len(statuses), 1, told)
            return (statuses.pop(), ''.join(told),
                    [line['step'] for line in steps if line.get('skipped')], len(steps), came)

    def test_all_ranks_stop_where_one_has_a_gradient_without_number(self):
        one = [(numbers, 1, ()) for numbers in self.KINDS]
        for numbers, ranks, more in some(part(one, 1) + part(self.ROWS, 4), 4):
            with self.subTest(numbers=numbers, ranks=ranks, more=more):
                status, told, _, steps, came = self.ended(ranks, numbers, *more)
                self.assertEqual((status, steps, came), (1, 1, None), told)
                self.assertRegex(told, r'error\[E701\] [^\n]* norm of step 2 is nan')

    def test_all_ranks_skip_its_step_as_one_does(self):
        alone = functools.cache(lambda numbers: self.ended(1, numbers, '--skip-nonfinite')[2:])
        for numbers, ranks, more in some(part(self.ROWS, 4, 2), 4):
            with self.subTest(numbers=numbers, ranks=ranks, more=more):
                status, told, *went = self.ended(ranks, numbers, *more, '--skip-nonfinite')
                self.assertEqual((status, went[:2]), (0, [[2], 3]), told)
                self.assertEqual(tuple(went), alone(numbers))


def tearDownModule():
    """Ranks that were killed while they met have left their places."""
    for name in os.listdir('/dev/shm'):
        found = re.match(rf'hst-nccl-{os.geteuid()}-(\d+)-\d', name)
        if found and not os.path.exists(f'/proc/{found[1]}'):
            os.unlink(f'/dev/shm/{name}')


load_tests = by_turns

if __name__ == '__main__':
    if mpi.missing(rank_gpus.FOLDER):
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[8:]])
