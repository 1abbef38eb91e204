#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that compute on GPUs, which are the CUDA device's double: the bytes of one rank on one GPU.

    rank_gpus.py PROGRAM SOURCE_ROOT MPI_FOLDER CUDA_FOLDER [TEST...]
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402
from short import by_turns, part, some  # noqa: E402

PROGRAM, ROOT, FOLDER, CUDA = sys.argv[1:5]
GOLDEN = os.path.join(ROOT, 'tests', 'golden')
ON_NVME = '--place=states=nvme,weights=nvme,grads=nvme'
# Ranks measure what their budgets leave of memory and drives: of a whole machine's that takes them
# a fourth of a run's time, and how much memory is free would decide what a run does.
BUDGETS = ('--dram=32M', '--nvme=512M')

# ranks, model, the numbers' options, what must not change them
ROWS = [
    (2, 'untied-mha', ('--precision=bf16',), ()),
    (4, 'tied-gqa', ('--precision=bf16',), ('--place=acts=nvme',)),
    (2, 'untied-mha', ('--precision=fp32',), (ON_NVME, '--update=optimistic')),
    (2, 'tied-gqa', ('--precision=fp16', '--loss-scale=64'), ('--gpu-update=0.5',)),
    (4, 'untied-mha', ('--precision=bf16',), ('--zero-stage=2', '--gpu-update=1')),
    (2, 'tied-gqa', ('--precision=bf16',), ('--zero-stage=1', '--update=optimistic')),
    (4, 'untied-mha', ('--precision=bf16', '--reduce=f32'), ('--zero-stage=1',)),
    (2, 'untied-mha', ('--precision=bf16',), ('--zero-stage=0', '--place=states=nvme')),
    (4, 'tied-gqa', ('--precision=bf16', '--clip=0'), ('--place=weights=nvme',)),
    (2, 'untied-mha', ('--precision=bf16', '--optimizer=lion'), ('--gpu-update=0.5',)),
    (2, 'untied-mha', ('--precision=bf16', '--state=bf16'), ('--activations=recompute',)),
    (2, 'tied-gqa', ('--precision=bf16', '--state=8bit'), ('--gpu-update=0.5',)),
    (4, 'untied-mha', ('--precision=bf16', '--hop=2'), (ON_NVME,)),
    (2, 'untied-mha', ('--precision=bf16', '--gather=int8'), ()),
    (4, 'tied-gqa', ('--precision=bf16', '--gather=int8'), (ON_NVME,)),
    (2, 'tied-gqa', ('--precision=fp32', '--gather=int8'), ('--gpu-update=0.5',)),
    (2, 'untied-mha', ('--precision=bf16', '--reduce=int8'), ()),
    (4, 'tied-gqa', ('--precision=bf16', '--reduce=int4', '--hop=2'), (ON_NVME,)),
    (4, 'tied-gqa', ('--precision=fp32', '--reduce=int4'), ('--zero-stage=1',)),
    (2, 'untied-mha', ('--precision=bf16', '--reduce=int8', '--gather=int8'), ('--gpu-update=1',)),
]


def environment(gpus):
    return {**mpi.environment(f'{FOLDER}:{CUDA}'), 'HOISTWAY_MATMUL': 'own',
            'HOISTWAY_CUDA_PATH': CUDA, 'HST_FAKE_CUDA': f'devices={gpus},model=Fake GPU'}


def products(options):
    """Those of f32 are cuBLASLt's: with the plugin's own the double took up to twenty times as long
    for a run. tests/simt and bit_identity-own have these."""
    return {'HOISTWAY_MATMUL': 'cublaslt'} if '--precision=fp32' in options else {}


class Run:
    """Runs in a folder of their own, for the time of a `with`."""

    def __enter__(self):
        self.folder = os.path.abspath(tempfile.mkdtemp(prefix='hst-gpus-', dir='.'))
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, model, *options, steps, device, comm):
        """device '': none is named. comm: not `auto`, which would find a machine's own NCCL, and
        that knows no double of a card."""
        model = os.path.join(GOLDEN, model)
        return [PROGRAM, 'train', *([f'--device={device}'] if device else []),
                '--model', model, '--data', os.path.join(model, 'tokens.bin'), '--lr=1e-3',
                f'--steps={steps}', '--seq-len=12', '--batch-tokens=48', '--ways=4', '--threads=1',
                '--store', self.path('store'), '--log', self.path('log'), '--export',
                self.path('export'), '--export-dtype=fp32', f'--comm={comm}', *BUDGETS, *options]

    def train(self, ranks, model, *options, gpus=None, steps=2, device='cuda', comm='mpi',
              env=None):
        return subprocess.run(
            [*(mpi.launcher(ranks) if ranks > 1 else []),
             *self.command(model, *options, steps=steps, device=device, comm=comm)],
            capture_output=True, text=True, timeout=240,
            env={**(env or environment(gpus or ranks)), **products(options)}, check=False)

    def came_to(self):
        """Each step's loss and norm, and the exported bytes."""
        with open(self.path('log'), encoding='utf-8') as file:
            lines = [json.loads(text) for text in file if '"kind":"step"' in text]
        sums = {}
        for name in sorted(os.listdir(self.path('export'))):
            with open(os.path.join(self.path('export'), name), 'rb') as file:
                sums[name] = hashlib.sha256(file.read()).hexdigest()
        return [(line['step'], line['loss'], line['grad_norm']) for line in lines], sums


GUARD, BUSY = threading.Lock(), {}


def alone(model, numbers):
    """What one rank on one GPU comes to: the oracle of all, which rows side by side make once."""
    with GUARD:
        busy = BUSY.setdefault((model, numbers), threading.Lock())
    with busy:
        return trained_alone(model, numbers)


@functools.lru_cache(maxsize=None)
def trained_alone(model, numbers):
    with Run() as run:
        done = run.train(1, model, *numbers)
        if done.returncode:
            raise AssertionError(f'one rank, {" ".join(numbers)}: {done.stderr}')
        return run.came_to()


def differs(row):
    ranks, model, numbers, places = row
    want = alone(model, numbers)
    with Run() as run:
        done = run.train(ranks, model, *numbers, *places)
        if done.returncode:
            return f'{row}: {done.stderr}'
        return None if run.came_to() == want else f'{row}: {run.came_to()}, and one rank: {want}'


class Gpus(unittest.TestCase):
    maxDiff = None

    def test_ranks_have_the_bytes_of_one(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            self.assertEqual([w for w in pool.map(differs, some(part(ROWS, 6), 3)) if w], [])

    def test_each_rank_of_a_node_has_a_gpu_of_its_own(self):
        with Run() as run:
            done = run.train(2, 'untied-mha', '--precision=bf16', gpus=1)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, r'rank 1 \(\S+\): error\[E201\] device "cuda:1" cannot '
                                          'be opened: no GPU 1: the driver reports 1, ')

    def test_ranks_that_are_given_one_gpu_share_it(self):
        with Run() as run:
            done = run.train(2, 'untied-mha', '--precision=bf16', gpus=1, device='cuda:0')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(run.came_to(), alone('untied-mha', ('--precision=bf16',)))
            self.assertIn('ranks of a node read each other', done.stderr)

    def test_ranks_that_are_told_of_no_device_have_gpus(self):
        with Run() as run:
            done = run.train(2, 'untied-mha', '--precision=bf16', device='')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(run.came_to(), alone('untied-mha', ('--precision=bf16',)))
            self.assertIn('device: cuda:0 (Fake GPU)', done.stderr)
        with Run() as run:
            done = run.train(2, 'untied-mha', '--precision=bf16', gpus=1, device='')
            self.assertRegex(done.stderr, r"E503\] ranks do not agree: the device is 'cuda' for "
                                          "rank 0 and 'host' for rank 1")

    def test_ranks_with_gpus_of_another_model_are_refused(self):
        with Run() as run:
            command = run.command('untied-mha', '--precision=bf16', steps=1, device='cuda',
                                  comm='mpi')
            words = 'HST_FAKE_CUDA=devices=2,model='
            done = subprocess.run(
                [*mpi.launcher(1), 'env', f'{words}A Card', *command, ':', *mpi.launcher(1)[-2:],
                 'env', f'{words}B Card', *command],
                capture_output=True, text=True, timeout=120, env=environment(2), check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, r"E503\] ranks do not agree: the kernels of products is "
                                          r"'A Card[^\n]*' for rank 0 and 'B Card[^\n]*' for")
            self.assertEqual(os.listdir(run.folder), [])

    def test_ranks_go_on_where_one_gpu_was(self):
        """And one GPU where ranks were."""
        with Run() as run:
            for ranks, steps in ((1, 1), (2, 2)):
                done = run.train(ranks, 'untied-mha', '--precision=bf16', '--durability=step',
                                 *(['--resume'] if steps > 1 else []), steps=steps)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(run.came_to()[1], alone('untied-mha', ('--precision=bf16',))[1])

    def test_a_plan_has_a_gpu_for_each_rank(self):
        """Each rank has a part of a unit: on the host where ranks meet there, else in HBM."""
        for comm, home, other, resident in (('mpi', 'dram', 'hbm', 0), ('auto', 'hbm', 'dram', 6)):
            done = subprocess.run(
                [PROGRAM, 'plan', '--model', os.path.join(GOLDEN, 'untied-mha'), '--world=4',
                 '--device=cuda', '--precision=bf16', '--seq-len=12', '--batch-tokens=48',
                 f'--comm={comm}', '--json'],
                capture_output=True, text=True, env=environment(1), timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            plan = json.loads(done.stdout)
            memory = plan['memory']
            self.assertEqual((plan['ranks'], plan['resident_units']), (4, resident))
            for what in ('weights', 'grads', 'states'):
                self.assertEqual(memory[what][other], 0)
                self.assertGreater(memory[what][home], 0)
            for tier in ('hbm', 'dram'):
                self.assertEqual(memory['node_total'][tier], 4 * memory['total'][tier])


load_tests = by_turns

if __name__ == '__main__':
    if mpi.missing(FOLDER):
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
