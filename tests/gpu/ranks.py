# SPDX-License-Identifier: Apache-2.0
"""The part about ranks: what a GPU adds and rounds for them, and two of them on one GPU.

Ranks of one GPU meet in DRAM, by Open MPI: NCCL joins no two ranks of one GPU. A bundle has the
plugin for that, and no Open MPI of its own: the machine's mpirun and libmpi.so.40 are taken.
"""
import os
import shutil
import sys

import offload
import parts
import place
import training
from training import Skipped, need

RANKS, LIBRARY = 2, 'libmpi.so.40'
# They change the bytes, of one rank as of two: name, options.
NUMBERS = (('bf16', []), ('integers', ['--gather', 'int8', '--reduce', 'int8']))


def launcher():
    """On this machine alone, and by memory that processes share: no network is looked for."""
    root = ['--allow-run-as-root'] if os.geteuid() == 0 else []
    return ['mpirun', *root, '--oversubscribe', '--bind-to', 'none', '--mca', 'pml', 'ob1', '--mca',
            'btl', 'self,vader,tcp', '-n', str(RANKS)]


def why_no_ranks(runner):
    """None where ranks can be started, else what is missing, by name."""
    if not place.plugin(place.RANKS_PLUGIN):
        return f'this build has no {place.RANKS_PLUGIN}'
    if not shutil.which('mpirun'):
        return 'no mpirun in PATH, which Open MPI has (Debian: openmpi-bin)'
    done = runner.command([*launcher(), sys.executable, '-c',
                           f'import ctypes; ctypes.CDLL("{LIBRARY}")'], limit_s=20)
    return None if done.code == 0 else f'mpirun starts nothing that loads {LIBRARY}: {done.why()}'


def compare(runner, name, more, case):
    """Of as many ways: the gradient of each is a sum that the ways alone decide."""
    shape, model, tokens, steps = case
    more = ['--ways', str(RANKS), *more]
    alone = offload.exported(runner, model, f'{name}: one rank', tokens, steps, more)
    if not alone:
        return
    told = offload.exported(runner, model, f'{name}: {RANKS} ranks', tokens, steps,
                            [*more, '--comm', 'mpi'], launcher())
    if told:
        offload.tell_differences(
            runner, f'{name}: {RANKS} ranks of one GPU, {shape}, {steps} steps, the bytes of one '
            f'rank with --ways {RANKS}', told, alone)


def bytes_of_one(runner):
    absent = why_no_ranks(runner)
    if absent:
        runner.test(f'{RANKS} ranks of one GPU', 'skipped', 0, absent)
        return
    shape, seq, tokens, steps = offload.bytes_case(runner, 'small')
    case = (shape, training.make_model(runner, shape, seq), tokens, steps)
    for name, more in NUMBERS:
        compare(runner, name, more, case)


def ranks(runner):
    """Kernels first: what they tell needs no launcher."""
    program = need(place.program('bench_ranks'), 'bench_ranks')
    arguments = [program, '--device', runner.device, *parts.smoke_flag(runner)]
    parts.tell_rows(runner, parts.run_json(runner, arguments), goal=parts.GOALS['ranks'])
    try:
        bytes_of_one(runner)
    except Skipped as skipped:  # the figures are there all the same
        runner.test(f'{RANKS} ranks of one GPU', 'skipped', 0, str(skipped))
