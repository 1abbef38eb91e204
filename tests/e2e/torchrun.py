#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that torch's own torchrun starts, whose GPUs and NCCL are doubles: they train and resume
what one rank does, and stop where one of them, or torchrun, is told to. rank_nccl.py has all else
of such ranks, by torchrun's variables alone.

    torchrun.py PROGRAM SOURCE_ROOT MPI_FOLDER CUDA_FOLDER NCCL_FOLDER REFUSING_FOLDER [TEST...]

torchrun stands beside the Python that HOISTWAY_PYTHON names, in PATH or in build/venv/bin.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rank_nccl  # noqa: E402
from rank_nccl import BF16, PORTS, Run, alone, mpi, step_lines  # noqa: E402
from rank_gpus import PROGRAM, ROOT  # noqa: E402

MODEL, RANKS = 'untied-mha', 2
GONE_S = 120  # torchrun's end, at most; it kills ranks 30 s after it was told to end
LONG = 2000   # steps: a run that is told to stop long before


def torchrun():
    python = os.environ.get('HOISTWAY_PYTHON')
    own = os.path.join(ROOT, 'build', 'venv', 'bin')
    beside = python and shutil.which('torchrun', path=os.path.dirname(os.path.abspath(python)))
    return beside or shutil.which('torchrun') or shutil.which('torchrun', path=own)


def environment():
    env = rank_nccl.environment(RANKS, 'in-progress=0')
    return {**env, 'HST_FAKE_CUDA': env['HST_FAKE_CUDA'] + ',streams=late', 'OMP_NUM_THREADS': '1'}


class Torchrun(unittest.TestCase):
    maxDiff = None

    def end_ranks(self, run):
        """Of a test that failed: those of a torchrun that was killed go on."""
        for process in mpi.processes(PROGRAM, run.path('store')):
            os.kill(process, signal.SIGKILL)

    def start(self, run, *options, steps):
        port = next(PORTS)
        child = subprocess.Popen(
            [torchrun(), '--no-python', f'--nproc-per-node={RANKS}', f'--master-port={port}', '--',
             *run.command(MODEL, *BF16, '--durability=step', *options, steps=steps, device='cuda',
                          comm='auto')],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(child.wait)
        self.addCleanup(self.end_ranks, run)
        self.addCleanup(child.kill)
        return child

    def trains(self, run, *options, steps):
        child = self.start(run, *options, steps=steps)
        _, told = child.communicate(timeout=GONE_S)
        self.assertEqual(child.returncode, 0, told)
        self.assertIn(', NCCL 2.28.9', told)
        return told

    def test_they_train_and_resume_what_one_rank_does(self):
        with Run() as run:
            self.trains(run, steps=1)
            told = self.trains(run, '--resume', steps=2)
            self.assertIn('going on after step 1', told)
            self.assertEqual(run.came_to()[1], alone(MODEL, BF16)[1])

    def stops(self, signal_of):
        """-> what torchrun told. signal_of: the signal is sent by it, to one of those"""
        with Run() as run:
            child = self.start(run, steps=LONG)
            until = time.monotonic() + GONE_S
            while not (os.path.exists(run.path('log')) and step_lines(run)[1:]):
                self.assertLess(time.monotonic(), until)
                self.assertIsNone(child.poll())
                time.sleep(0.02)
            ranks = mpi.processes(PROGRAM, run.path('store'))
            self.assertEqual(len(ranks), RANKS)
            signal_of(child, ranks)
            _, told = child.communicate(timeout=GONE_S)
            self.assertEqual(child.returncode, 1, told)
            self.assertEqual(mpi.processes(PROGRAM, run.path('store')), [])
            stopped = step_lines(run)[-1]['step']
            self.assertIn(f' after {stopped} of {LONG} steps: the store holds step {stopped},',
                          told)
            self.assertIn(f'going on after step {stopped}',
                          self.trains(run, '--resume', steps=stopped + 2))
            went = run.came_to()[1]
        with Run() as run:
            done = run.train(1, MODEL, *BF16, steps=stopped + 2)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(run.came_to()[1], went)
        return told

    def test_all_stop_and_commit_where_one_rank_is_told_to(self):
        """Each ends with 75, or with 130 where torchrun has told it to end meanwhile."""
        told = self.stops(lambda _, ranks: os.kill(ranks[-1], signal.SIGUSR1))
        statuses = re.findall(r'exitcode +: (\d+)', told)
        self.assertIn('75', statuses, told)
        self.assertLessEqual(set(statuses), {'75', '130'}, told)

    def test_all_stop_and_commit_where_torchrun_is_told_to_end(self):
        self.assertIn('SIGTERM', self.stops(lambda child, _: child.terminate()).upper())


if __name__ == '__main__':
    if not torchrun():
        print('no torchrun, beside the Python that HOISTWAY_PYTHON names, in PATH or in '
              'build/venv/bin (pip: torch)')
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[7:]])
