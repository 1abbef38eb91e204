#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks whose GPUs are joined by NCCL, both of which are doubles: the bytes of one rank on one GPU,
whatever comes together in the GPUs' memory; and an end in time where something goes wrong.

    rank_nccl.py PROGRAM SOURCE_ROOT MPI_FOLDER CUDA_FOLDER NCCL_FOLDER REFUSING_FOLDER [TEST...]
"""
import concurrent.futures
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rank_gpus  # noqa: E402
from rank_gpus import ON_NVME, Run, alone, mpi  # noqa: E402
from short import SHORT, in_turn, part, some, whole_alone  # noqa: E402

CUDA, NCCL, REFUSING = sys.argv[4:7]
JOINED = ', NCCL 2.28.9, Open MPI'
BF16 = ('--precision=bf16',)
INTEGERS = (*BF16, '--gather=int8')
NEAR = '--secondary=node'
ALL_THREE = (*INTEGERS, '--hop=2', '--reduce=int4')

IN_HBM = '--place=weights=hbm,grads=hbm,states=hbm'
IN_DRAM = '--place=weights=dram,grads=dram,states=dram'
# of each stage of ZeRO: where classes have their homes, and what else must change no bit
PLACES = {
    3: (('--hbm=1200K',), (IN_HBM,), (IN_DRAM,), (IN_HBM + ',acts=nvme',),
        ('--place=states=nvme',), (ON_NVME,), ('--place=acts=nvme',), (IN_DRAM, '--gpu-update=0.5'),
        ('--activations=recompute',), (ON_NVME, '--update=optimistic'),
        ('--place=weights=nvme', '--gpu-update=1')),
    2: ((IN_HBM,), (IN_DRAM,), ('--place=states=nvme,grads=nvme',), (IN_DRAM, '--gpu-update=1'),
        ('--place=acts=nvme',), (IN_DRAM, '--update=optimistic')),
    1: ((), ('--place=states=nvme',), ('--gpu-update=0.5',)),
    0: ((IN_HBM,), (IN_DRAM,), ('--place=states=nvme',),
        (IN_DRAM, '--gpu-update=0.5', '--activations=recompute')),
}
# ranks (of each node, where there are two), model, the numbers' options, what must not change them
ROWS = [(ranks, ('untied-mha', 'tied-gqa')[(ranks // 2 + i) % 2], BF16,
         (f'--zero-stage={stage}', *place))
        for ranks in (2, 4) for stage, places in PLACES.items() for i, place in enumerate(places)]
ROWS += [
    (2, 'tied-gqa', ('--precision=fp32',), (ON_NVME,)),
    (4, 'untied-mha', ('--precision=bf16', '--reduce=f32'), (IN_DRAM,)),
    (2, 'untied-mha', ('--precision=bf16', '--reduce=f32'), ('--zero-stage=2',)),
    (4, 'tied-gqa', ('--precision=bf16', '--hop=2'), (ON_NVME,)),
    (2, 'tied-gqa', ('--precision=bf16', '--clip=0'), ('--place=weights=nvme',)),
    (4, 'tied-gqa', ('--precision=bf16', '--clip=0'), (IN_HBM,)),
    (2, 'untied-mha', ('--precision=bf16', '--clip=0'), (IN_HBM, '--zero-stage=2')),
    (2, 'tied-gqa', ('--precision=bf16', '--clip=0'), (IN_HBM, '--zero-stage=0')),
    (2, 'untied-mha', ('--precision=fp32',), (IN_HBM,)),
    (2, 'tied-gqa', ('--precision=fp16', '--loss-scale=64'), (IN_HBM,)),
    (2, 'tied-gqa', ('--precision=bf16', '--state=8bit'), (IN_HBM,)),
    (4, 'untied-mha', ('--precision=bf16', '--clip=0'), (IN_DRAM, '--zero-stage=2')),
    (2, 'untied-mha', ('--precision=fp16', '--loss-scale=64'), (IN_DRAM, '--gpu-update=0.5')),
    (4, 'untied-mha', ('--precision=bf16', '--optimizer=lion'), (IN_DRAM,)),
    (2, 'untied-mha', INTEGERS, (IN_HBM,)),
    (4, 'tied-gqa', (*INTEGERS, '--clip=0'), (IN_HBM,)),
    (4, 'tied-gqa', INTEGERS, (ON_NVME,)),
    (2, 'tied-gqa', INTEGERS, ('--place=states=nvme', '--gpu-update=0.5')),
    (4, 'untied-mha', (*INTEGERS, '--clip=0'), ('--place=weights=nvme',)),
    (2, 'untied-mha', ('--precision=fp32', '--gather=int8'), (ON_NVME, '--update=optimistic')),
    (2, 'untied-mha', (*BF16, '--reduce=int8'), ()),
    (4, 'tied-gqa', (*BF16, '--reduce=int4'), (ON_NVME,)),
    (4, 'untied-mha', (*BF16, '--reduce=int8', '--hop=2'),
     (IN_DRAM, '--zero-stage=2', '--gpu-update=1')),
    (2, 'tied-gqa', (*BF16, '--reduce=int4', '--hop=2', '--clip=0'),
     (IN_DRAM, '--gpu-update=0.5')),
    (4, 'untied-mha', (*BF16, '--reduce=int4'), ('--zero-stage=1',)),
    (2, 'untied-mha', (*BF16, '--reduce=int8'), (IN_DRAM, '--zero-stage=0')),
    (2, 'tied-gqa', ('--precision=fp16', '--loss-scale=64', '--reduce=int8'),
     (IN_DRAM, '--update=optimistic')),
    (4, 'tied-gqa', (*INTEGERS, '--reduce=int4'), ('--place=states=nvme',)),
    ((2, 2), 'untied-mha', BF16, (ON_NVME,)),
    ((2, 2), 'tied-gqa', (*BF16, '--hop=2'), (IN_HBM,)),
    ((2, 2), 'untied-mha', BF16, (IN_HBM, NEAR)),
    ((2, 2), 'untied-mha', (*BF16, '--reduce=int8', '--hop=2'), (ON_NVME,)),
    ((2, 2), 'tied-gqa', (*BF16, '--reduce=int4'), ('--place=states=nvme',)),
]
# What a node keeps, alone and beside integers. HBM has no room for rows that a step gathers twice.
TIGHT = {'untied-mha': '--hbm=780K', 'tied-gqa': '--hbm=560K'}
ROWS += [((2, 2), model, numbers, (NEAR, TIGHT[model], *place)) for model, numbers, place in (
    ('untied-mha', BF16, ()),
    ('tied-gqa', BF16, (ON_NVME,)),
    ('untied-mha', (*BF16, '--hop=2'), ('--place=acts=nvme',)),
    ('untied-mha', INTEGERS, (ON_NVME,)),
    ('tied-gqa', INTEGERS, ('--place=weights=nvme', '--gpu-update=0.5')),
    ('untied-mha', (*INTEGERS, '--clip=0'), ('--activations=recompute',)),
    ('untied-mha', ALL_THREE, ()),
    ('untied-mha', ALL_THREE, (ON_NVME, '--update=optimistic')),
    ('tied-gqa', (*INTEGERS, '--hop=2', '--reduce=int8'), ('--place=states=nvme',)),
)]


def environment(gpus, nccl='', plugin=NCCL):
    env = rank_gpus.environment(gpus)
    env.pop('NCCL_COMM_ID', None)
    return {**env, 'HOISTWAY_PLUGIN_PATH': f'{env["HOISTWAY_PLUGIN_PATH"]}:{plugin}',
            'HOISTWAY_CUDA_PATH': f'{CUDA}/nccl:{CUDA}', 'HST_FAKE_NCCL': nccl}


def train(run, ranks, model, *options, gpus=None, nccl='', plugin=NCCL, **settings):
    return run.train(ranks, model, *options, env=environment(gpus or ranks, nccl, plugin),
                     **{'comm': 'nccl', **settings})


PORTS = itertools.count(20000 + os.getpid() * 64 % 20000, 2)  # of torchrun; NCCL's is the next
PORTS_USED = set()


def start(run, ranks, *options, model='untied-mha', precision=BF16, steps=2, device='cuda', nodes=1,
          gpus=None, stores=None, streams='late', nccl='in-progress=0', port=None, plain=None,
          place=None, program=None, more=None):
    """As torchrun starts ranks: by their variables alone. -> the processes
    port: where the run before was; plain: each rank's --world, in place of variables; place:
    NCCL_COMM_ID; program: in the place of the usual one; more: of its environment"""
    port, locals_ = port or next(PORTS), ranks // nodes
    PORTS_USED.add(port)
    base = {**environment(gpus or locals_), **rank_gpus.products(precision), **(more or {})}
    base['HST_FAKE_CUDA'] += f',streams={streams}'
    command = run.command(model, *precision, *options, steps=steps, device=device, comm='auto')
    store = command.index('--store') + 1
    command[0] = program or command[0]
    return [subprocess.Popen(
        [*command[:store], stores[rank] if stores else command[store], *command[store + 1:],
         *([f'--world={plain[rank]}', f'--rank={rank}'] if plain else [])],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**base, **({} if plain else {
            'WORLD_SIZE': str(ranks), 'RANK': str(rank),
            'LOCAL_RANK': str(rank % locals_), 'LOCAL_WORLD_SIZE': str(locals_),
            'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}),
            **({'NCCL_COMM_ID': place} if place else {}),
            'HST_FAKE_NCCL': f'host=node{rank // locals_},{nccl}'})
        for rank in range(ranks)]


def nodes_wrong(run, ranks, model, numbers, places):
    """Two of them, on this machine. -> what is wrong, or nothing"""
    children = start(run, sum(ranks), *places, model=model, precision=numbers, nodes=len(ranks))
    try:
        told = [child.communicate(timeout=120) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    errors = ''.join(words for _, words in told)
    if any(child.returncode for child in children) or 'keeps nothing' in errors:
        return errors
    moved = step_bytes(run)
    return None if 0 < moved['net_between'] < moved['net'] else f'moved {moved}'


def differs(row):
    ranks, model, numbers, places = row
    want = alone(model, numbers)
    with Run() as run:
        if isinstance(ranks, tuple):
            wrong = nodes_wrong(run, ranks, model, numbers, places)
        else:
            done = train(run, ranks, model, *numbers, *places)
            wrong = done.stderr if done.returncode or JOINED not in done.stderr else None
        if not wrong and run.came_to() != want:
            wrong = f'{run.came_to()}, and one rank: {want}'
        return f'{row}: {wrong}' if wrong else None


def step_lines(run):
    """Of steps that the log has whole."""
    with open(run.path('log'), encoding='utf-8') as file:
        return [json.loads(text) for text in file
                if '"kind":"step"' in text and text.endswith('\n')]


# Elements of what is gathered of untied-mha, and how often a step does so where HBM is small.
SMALL = '--hbm=1200K'
UNITS, VISITS = (160 * 64, *3 * [38016], 64, 160 * 64), (1, 2, 2, 1, 1, 1)


def shard(ranks, elements):
    return mpi.shard_bytes(ranks, [elements]) // 4


def step_bytes(run):
    """What the last step has moved."""
    return step_lines(run)[-1]['bytes']


class Nccl(unittest.TestCase):
    maxDiff = None

    def test_ranks_have_the_bytes_of_one(self):
        rows = some(ROWS, 15) if SHORT else part(ROWS, 40)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            self.assertEqual([w for w in pool.map(differs, rows) if w], [])

    @whole_alone
    def test_whatever_of_the_device_runs_early(self):
        for streams in ('early:1', 'h2d-early', 'random:1'):
            with self.subTest(streams=streams), Run() as run:
                env = environment(2, 'in-progress=2')
                env['HST_FAKE_CUDA'] += f',streams={streams}'
                done = run.train(2, 'untied-mha', *BF16, ON_NVME, comm='nccl', env=env)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(run.came_to(), alone('untied-mha', BF16))
            with self.subTest(integers=streams), Run() as run:
                numbers = ('--gather=int8', '--reduce=int4', '--hop=2')
                for child, _, errors in self.torchrun(run, 4, *numbers, NEAR, '--hbm=800K', nodes=2,
                                                      streams=streams, nccl='in-progress=2'):
                    self.assertEqual(child.returncode, 0, errors)
                self.assertEqual(run.came_to(), alone('untied-mha', (*BF16, *numbers)))

    def calls(self, stage):
        """Of rank 0, with the bytes that its last step has moved."""
        with Run() as run:
            done = train(run, 2, 'untied-mha', *BF16, f'--zero-stage={stage}', IN_DRAM,
                         nccl=f'log={run.path("calls")}')
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(run.path('calls.0'), encoding='utf-8') as file:
                calls = file.read().split('\n')
            return [calls.count(c) for c in ('ncclAllGather', 'ncclAlltoAll')], step_bytes(run)

    @whole_alone
    def test_what_meets_in_the_memory_of_gpus(self):
        """In DRAM rows of weights are whole with stage 2, those of gradients too with stage 1."""
        with Run() as run:
            done = train(run, 2, 'untied-mha', *BF16, IN_DRAM, comm='mpi')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn('NCCL', done.stderr)
            by_host = step_bytes(run)
        (gathers, exchanges), by_nccl = self.calls(3)
        self.assertTrue(gathers > 0 and exchanges > 0)
        self.assertEqual(by_nccl['net'], by_host['net'])
        for way in ('h2d', 'd2h'):  # a shard of two passes
            self.assertLess(by_nccl[way], 0.7 * by_host[way])
        (gathers, exchanges), _ = self.calls(2)
        self.assertEqual(gathers, 0)
        self.assertGreater(exchanges, 0)
        self.assertEqual(self.calls(1)[0], [0, 0])
        self.assertEqual(self.calls(0)[0][0], 0)

    @in_turn(0, 4)
    def test_ranks_choose_nccl_where_all_can(self):
        with Run() as run:
            done = train(run, 2, 'untied-mha', *BF16, comm='auto')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(JOINED, done.stderr)
            self.assertEqual(run.came_to(), alone('untied-mha', BF16))

    @whole_alone
    def test_what_an_older_nccl_lacks_is_told(self):
        with Run() as run:
            done = train(run, 2, 'untied-mha', *BF16, nccl='version=21903')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count('note[I505] NCCL 2.19.3 has no ncclAlltoAll: '), 1)
            self.assertEqual(run.came_to(), alone('untied-mha', BF16))

    @whole_alone
    def test_ranks_meet_in_dram_where_one_cannot(self):
        for gpus, device, settings, why in (
                (2, 'cuda', {'nccl': 'version=21805'},
                 'is NCCL 2.18.5, of which 2.19.3 is the least'),
                (1, 'cuda:0', {}, 'ranks share GPUs, of which NCCL joins one rank'),
                (2, 'cuda', {'plugin': REFUSING}, 'this plugin joins no devices')):
            with self.subTest(why=why), Run() as run:
                done = train(run, 2, 'untied-mha', *BF16, gpus=gpus, device=device, comm='auto',
                             **settings)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, r'I505\] what GPUs of ranks gather and exchange '
                                              rf'meets in DRAM, by MPI: [^\n]*{why}')
                self.assertEqual(run.came_to(), alone('untied-mha', BF16))

    @whole_alone
    def test_ranks_go_on_where_others_were(self):
        """From DRAM to NCCL, from two ranks to four, and back to one GPU."""
        with Run() as run:
            for ranks, steps, comm in ((2, 1, 'mpi'), (4, 2, 'nccl'), (1, 3, 'auto')):
                done = train(run, ranks, 'untied-mha', *BF16, '--durability=step',
                             *(['--resume'] if steps > 1 else []), steps=steps, comm=comm)
                self.assertEqual(done.returncode, 0, done.stderr)
            went = run.came_to()[1]
        with Run() as run:
            done = run.train(1, 'untied-mha', *BF16, '--durability=step', steps=3)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(run.came_to()[1], went)

    # ---- without MPI ---------------------------------------------------------------------------

    def start(self, *started, **how):
        """They are killed with the test."""
        children = start(*started, **how)
        for child in children:
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)
        return children

    def torchrun(self, *started, **how):
        """Status and words of each."""
        return [(child, *child.communicate(timeout=120)) for child in self.start(*started, **how)]

    @whole_alone
    def test_ranks_of_torchrun_stop_where_one_is_told_to(self):
        """Long before the steps that are asked for; some more follow."""
        with Run() as run:
            children = self.start(run, 2, '--durability=step', steps=1000)
            until = time.monotonic() + 120
            while not (os.path.exists(run.path('log')) and step_lines(run)[1:]):
                self.assertLess(time.monotonic(), until)
                self.assertIsNone(children[0].poll())
                time.sleep(0.01)
            children[1].send_signal(signal.SIGUSR1)
            for child in children:
                _, errors = child.communicate(timeout=120)
                self.assertEqual(child.returncode, 75, errors)
            steps = step_lines(run)[-1]['step'] + 2
            for child, _, errors in self.torchrun(run, 2, '--durability=step', '--resume',
                                                  steps=steps):
                self.assertEqual(child.returncode, 0, errors)
            went = run.came_to()[1]
        with Run() as run:
            done = run.train(1, 'untied-mha', *BF16, steps=steps)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(run.came_to()[1], went)

    @in_turn(3, 4)
    def test_ranks_of_torchrun_train_and_go_on(self):
        with Run() as run:
            for steps, more in ((1, ()), (2, ('--resume',))):
                for child, _, errors in self.torchrun(run, 2, '--durability=step', *more,
                                                      steps=steps):
                    self.assertEqual(child.returncode, 0, errors)
            self.assertEqual(run.came_to()[1], alone('untied-mha', BF16)[1])

    # ---- where they meet -----------------------------------------------------------------------

    def left(self, run):
        """Which kinds of files there are."""
        return {'answer' if '.' not in name else 'call' if name.endswith('.rank1') else 'part'
                for name in os.listdir(run.path('meet'))}

    @in_turn(2, 4)
    def test_ranks_meet_where_they_are_told(self):
        """What the option says holds against a variable of NCCL's, which here names no place."""
        with Run() as folder:
            os.mkdir(folder.path('meet'))
            ways = (f'file:{folder.path("meet")}', f'tcp:of-{os.getpid()}:{next(PORTS) + 1}')
            for way, plain in some([(w, p) for w in ways for p in (None, (2, 2))], 2):
                with self.subTest(way=way, plain=plain), Run() as run:
                    for child, _, errors in self.torchrun(run, 2, f'--rendezvous={way}',
                                                          plain=plain, place='nowhere'):
                        self.assertEqual(child.returncode, 0, errors)
                    self.assertEqual(run.came_to(), alone('untied-mha', BF16))
                    self.assertEqual(os.listdir(folder.path('meet')), [])

    @whole_alone
    def test_runs_meet_side_by_side_in_one_directory(self):
        with Run() as one, Run() as other:
            os.mkdir(one.path('meet'))
            way = f'--rendezvous=file:{one.path("meet")}'
            children = [child for run in (one, other) for child in self.start(run, 2, way)]
            for child in children:
                _, errors = child.communicate(timeout=120)
                self.assertEqual(child.returncode, 0, errors)
            for run in (one, other):
                self.assertEqual(run.came_to(), alone('untied-mha', BF16))
            self.assertEqual(os.listdir(one.path('meet')), [])

    @whole_alone
    def test_ranks_meet_where_a_killed_run_has_left_its_files(self):
        with Run() as run:
            os.mkdir(run.path('meet'))
            way = f'--rendezvous=file:{run.path("meet")}'
            children = self.start(run, 2, way, plain=(4, 4))  # and no others
            until = time.monotonic() + 120
            while not {'answer', 'call'} <= self.left(run):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            for child in children:
                child.kill()
                child.communicate(timeout=120)
            self.assertNotEqual(os.listdir(run.path('meet')), [])
            for child, _, errors in self.torchrun(run, 2, way, plain=(2, 2)):
                self.assertEqual(child.returncode, 0, errors)
            self.assertEqual(run.came_to(), alone('untied-mha', BF16))
            self.assertEqual(os.listdir(run.path('meet')), [])

    @whole_alone
    def test_rank_0_dies_once_all_have_its_file(self):
        with Run() as run:
            os.mkdir(run.path('meet'))
            way, port = f'--rendezvous=file:{run.path("meet")}', next(PORTS)
            _, (child, _, errors) = self.torchrun(
                run, 2, way, '--peer-timeout=20', port=port,
                nccl='rank=0,fail=ncclCommInitRankConfig:1:die')
            self.assertEqual(child.returncode, 1, errors)
            self.assertRegex(errors, r'error\[E504\] [^\n]*waited \d+ s in ncclCommInitRankConfig')
            for child, _, errors in self.torchrun(run, 2, way, port=port):
                self.assertEqual(child.returncode, 0, errors)
            self.assertEqual(run.came_to(), alone('untied-mha', BF16))

    @whole_alone
    def test_ranks_that_do_not_meet(self):
        with Run() as run:
            os.mkdir(run.path('meet'))
            way = f'--rendezvous=file:{run.path("meet")}'
            (_, _, errors), = self.torchrun(run, 1, way + '/none', plain=(2,))
            self.assertRegex(errors, r'error\[E505\] [^\n]*/none cannot be opened: No such file or '
                                     r'directory\. Fix: make it')
            (_, _, errors), = self.torchrun(run, 1, way, '--peer-timeout=1', plain=(2,))
            self.assertRegex(errors, r'error\[E504\] [^\n]*: rank 1 has not come: rank 0 waited ')
            first, other = self.start(run, 2, way, plain=(2, 4))
            _, errors = other.communicate(timeout=120)
            self.assertEqual(other.returncode, 1, errors)
            self.assertRegex(errors, r'error\[E505\] [^\n]*rank 0 is one of 2, and rank 1 one of 4')
            first.kill()
            first.communicate(timeout=120)
            for child, _, errors in self.torchrun(
                    run, 2, '--rendezvous=tcp:taken:80', nccl='fail=ncclCommInitRankConfig:1:2'):
                self.assertEqual(child.returncode, 1, errors)
                self.assertRegex(errors, r'error\[E505\] [^\n]*unhandled system error[^\n]*Fix: '
                                         r'[^\n]*where taken:80 cannot be used, --rendezvous tcp:')

    # ---- weights as integers, and what a node keeps --------------------------------------------

    @whole_alone
    def test_integers_are_what_ranks_bring(self):
        """Of each shard an integer an element and a scale to 512, and numbers of their own."""
        moved = []
        for numbers in (BF16, INTEGERS):
            with Run() as run:
                done = train(run, 2, 'untied-mha', *numbers, SMALL)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(run.came_to(), alone('untied-mha', numbers))
                moved.append(step_bytes(run)['net'])
        self.assertNotEqual(alone('untied-mha', BF16), alone('untied-mha', INTEGERS))
        gathered = sum(times * shard(2, unit) for unit, times in zip(UNITS, VISITS))
        self.assertEqual(moved[0] - moved[1], 2 * gathered - gathered * 129 // 128)

    @whole_alone
    def test_integers_of_gradients_are_what_ranks_bring(self):
        """Of four ranks each brings two shards within its node, and one, of a sum, from the other:
        one of f32, or integers and a scale to 512. ZeRO++ has 0.5 M between nodes of gathers by
        integers, which is 129/256 here, and 0.25 M of an exchange by integers of 4 bits, which is
        65/256. The embedding, a layer of the model, the norm and the head are all alike in that."""
        elements, moved = sum(shard(4, unit) for unit in UNITS), {}
        for reduce in ('f32', 'int8', 'int4'):
            numbers = ('--gather=int8', '--hop=2', f'--reduce={reduce}')
            with self.subTest(reduce=reduce), Run() as run:
                for child, _, errors in self.torchrun(run, 4, *numbers, NEAR, nodes=2):
                    self.assertEqual(child.returncode, 0, errors)
                self.assertEqual(run.came_to(), alone('untied-mha', (*BF16, *numbers)))
                moved[reduce] = step_bytes(run)
        for reduce, bits in (('int8', 8), ('int4', 4)):
            saved = [moved['f32'][key] - moved[reduce][key] for key in ('net', 'net_between')]
            each = 4 * elements - elements * bits // 8 - elements // 128
            self.assertEqual(saved, [3 * each, each])
        gathered = 2 * (elements + elements // 128)  # two ranks of the other node have a shard each
        self.assertEqual(moved['int4']['net_between'],
                         gathered + elements // 2 + elements // 128)

    @whole_alone
    def test_what_a_node_keeps_crosses_nodes_once(self):
        """Of four ranks two are on the other node, and each has a fourth of a row. In the backward
        a rank takes the half that the other one of its node has kept, in the weights' own type, and
        copies no shard. HBM has room for that and for one layer: all three come again."""
        again = 3 * shard(4, UNITS[1])
        for gather, size in (('plain', 2 * again), ('int8', again * 129 // 128)):
            moved = []
            for more in (('--hbm=600K',), ('--hbm=760K', NEAR)):
                with self.subTest(gather=gather, more=more), Run() as run:
                    for child, _, errors in self.torchrun(run, 4, f'--gather={gather}', *more,
                                                          nodes=2):
                        self.assertEqual(child.returncode, 0, errors)
                    self.assertEqual(run.came_to(),
                                     alone('untied-mha', (*BF16, f'--gather={gather}')))
                    moved.append(step_bytes(run))
            saved = {key: moved[0][key] - moved[1][key] for key in ('h2d', 'net', 'net_between')}
            self.assertEqual(saved, {'h2d': 2 * again, 'net': 3 * size - 2 * 2 * again,
                                     'net_between': 2 * size})

    @whole_alone
    def test_what_ranks_of_torchrun_cannot(self):
        for options, device, words in (
                ((), 'host', r'error\[E501\] torchrun has started this as one of 2'),
                (('--zero-stage=2',), 'cuda', r'error\[E402\] torchrun has started 2 ranks, which '
                                              'MPI does not know of')):
            with self.subTest(words=words), Run() as run:
                for child, _, errors in self.torchrun(run, 2, *options, device=device)[:1]:
                    self.assertEqual(child.returncode, 2, errors)
                    self.assertRegex(errors, words)

    @whole_alone
    def test_a_rank_of_torchrun_without_a_gpu(self):
        """It tells it itself: the other one has a GPU, and waits."""
        with Run() as run:
            (_, _, waits), (child, _, errors) = self.torchrun(run, 2, '--peer-timeout=5', device='',
                                                              gpus=1)
        self.assertEqual(child.returncode, 2, errors)
        self.assertRegex(errors, r'rank 1 [^\n]*error\[E501\] [^\n]* of which rank 1 has none: ')
        self.assertRegex(waits, r'error\[E504\] ')

    @whole_alone
    def test_nodes_of_torchrun_in_another_order(self):
        """Each has a store of its own, and no rank waits for one that has ended."""
        with Run() as run:
            stores = [run.path('store0'), run.path('store1')]
            for child, _, errors in self.torchrun(run, 2, '--durability=step', ON_NVME, steps=1,
                                                  nodes=2, stores=stores):
                self.assertEqual(child.returncode, 0, errors)
            for child, _, errors in self.torchrun(run, 2, '--resume', ON_NVME, nodes=2,
                                                  stores=stores[::-1]):
                self.assertEqual(child.returncode, 1, errors)
                self.assertRegex(errors, r'error\[E613\] rank 0 finds the files of rank 1: '
                                         r'[^\n]*torchrun[^\n]*Fix: start the nodes in the order')
            for child, _, errors in self.torchrun(run, 2, '--resume', ON_NVME, nodes=2,
                                                  stores=stores):
                self.assertEqual(child.returncode, 0, errors)
            self.assertEqual(run.came_to()[1], alone('untied-mha', BF16)[1])

    # ---- what is refused, and what goes wrong --------------------------------------------------

    def fails(self, words, *options, status=None, seconds=70, ranks=2, **settings):
        begun = time.monotonic()
        with Run() as run:
            done = train(run, ranks, 'untied-mha', *BF16, *options, **settings)
        self.assertNotEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, words)
        self.assertLess(time.monotonic() - begun, seconds)
        if status:
            self.assertEqual(done.returncode, status, done.stderr)

    @whole_alone
    def test_what_is_refused(self):
        self.fails(r'error\[E402\] --comm nccl joins the memory of GPUs, which device "host" has '
                   r'not\. Fix: --device cuda', device='host', status=2)
        self.fails(r'error\[E402\] --comm nccl joins', device='host', status=2, ranks=1)
        self.fails(r'error\[E402\] 2 of 2 ranks share a GPU with another one, and NCCL joins GPUs '
                   r'of one rank each\. Fix: --comm mpi', gpus=1, device='cuda:0',
                   status=2)
        self.fails(r'error\[E302\] [^\n]*--hbm', '--hbm=200K', status=2)
        self.fails(r'error\[E505\] ranks cannot be joined: [^\n]*is NCCL 2.18.5, of which 2.19.3 '
                   r'is the least\. Fix: NCCL 2.19.3 or later [^\n]*, or --comm mpi',
                   nccl='version=21805')

    @in_turn(1, 4)
    def test_a_rank_that_hangs_while_they_join(self):
        self.fails(r'error\[E504\] [^\n]*waited \d+ s in ncclCommInitRankConfig',
                   '--peer-timeout=5', nccl='rank=1,fail=ncclCommInitRankConfig:1:hang')

    @in_turn(2, 4)
    def test_a_rank_that_hangs_in_a_collective(self):
        for call in some(('ncclAllGather:3:hang', 'ncclAlltoAll:2:hang'), 2):
            with self.subTest(call=call):
                self.fails(r'error\[E504\] [^\n]*waited \d+ s in the (gather|exchange) of \S+ by '
                           r'NCCL, in step 1', '--peer-timeout=5',
                           nccl=f'rank=1,fail={call}')

    @whole_alone
    def test_calls_that_fail(self):
        for call, code, words in (
                ('ncclAllGather:2:3', 507, 'ncclAllGather failed: internal error'),
                ('ncclAlltoAll:2:1', 507, 'ncclAlltoAll failed: unhandled cuda error'),
                ('ncclMemAlloc:1:1', 505, 'ncclMemAlloc of [0-9]+ bytes of device memory failed'),
                ('ncclAllGather:2:async=6', 504,
                 'an operation of NCCL failed: remote process exited')):
            with self.subTest(call=call):
                self.fails(rf'error\[E{code}\] [^\n]*{words}', '--peer-timeout=5',
                           nccl=f'fail={call}', status=1)

    @whole_alone
    def test_a_rank_that_dies(self):
        self.fails('rank 1', '--peer-timeout=5', nccl='rank=1,fail=ncclAllGather:2:die')

    def tearDown(self):
        """Ranks that were killed while they met have left their places."""
        for name in os.listdir('/dev/shm'):
            found = re.match(rf'hst-nccl-{os.geteuid()}-(?:127.0.0.1:(\d+)|(\d+)-\d)', name)
            if found and (found[1] and int(found[1]) - 1 in PORTS_USED or
                          found[2] and not os.path.exists(f'/proc/{found[2]}')):
                os.unlink(f'/dev/shm/{name}')


if __name__ == '__main__':
    if mpi.missing(rank_gpus.FOLDER):
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[7:]])
