#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of two nodes that mpirun starts and NCCL joins: nodes are namespaces of networks
(../comm/ranks.py), which need root, NCCL and the GPUs are doubles.

    nodes_nccl.py PROGRAM SOURCE_ROOT MPI_FOLDER CUDA_FOLDER NCCL_FOLDER REFUSING_FOLDER [TEST...]
"""
import json
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'comm'))
import ranks  # noqa: E402: that of ../comm, of which this folder has another one
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rank_gpus  # noqa: E402
import rank_nccl  # noqa: E402

HANDED = ('HOISTWAY_CUDA_PATH', 'HOISTWAY_MATMUL', 'HST_FAKE_CUDA')
PLACED = 'HST_FAKE_NCCL=host=$(hostname),in-progress=1 exec "$@"'  # as NCCL tells nodes apart


class Nodes(ranks.Nodes):
    def environment(self):
        return {**rank_nccl.environment(2), **rank_gpus.products(rank_nccl.BF16),
                'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}

    def command(self, ranks_, *command):
        *launcher, _ = super().command(ranks_)
        return [*launcher, *(word for name in HANDED for word in ('-x', name)),
                'sh', '-c', PLACED, 'sh', *command]


class TwoNodes(unittest.TestCase):
    def trains(self, nodes, numbers, places):
        want = rank_nccl.alone('untied-mha', numbers)
        with rank_nccl.Run() as run:
            done = nodes.mpirun((2, 2), *run.command('untied-mha', *numbers, *places, steps=2,
                                                     device='cuda', comm='auto'))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(run.came_to(), want)
            with open(run.path('log'), encoding='utf-8') as file:
                lines = [json.loads(text) for text in file]
        start = next(line for line in lines if line['kind'] == 'run')
        self.assertEqual((start['ranks'], start['nodes']), (4, 2))
        self.assertIn('NCCL 2.28.9, Open MPI', start['transport'])
        return [line['bytes']['net_between'] for line in lines if line['kind'] == 'step']

    def test_ranks_have_the_bytes_of_one(self):
        """Of four ways two add up on a node: as integers of 4 bits, with a row that the node keeps,
        far less crosses than of values."""
        told = []
        with Nodes(self) as nodes:
            for numbers, places in (((*rank_nccl.BF16, '--hop=2'), (rank_nccl.ON_NVME,)),
                                    (rank_nccl.ALL_THREE, (rank_nccl.NEAR,))):
                with self.subTest(numbers=numbers):
                    told.append(self.trains(nodes, numbers, places))
        self.assertGreater(min(told[0]), 2 * max(told[1]))
        self.assertGreater(min(told[1]), 0)


if __name__ == '__main__':
    if ranks.mpi.missing(sys.argv[3]):
        print('no mpirun, or the transport was not built')
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[7:]])
