#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that Slurm starts: on a cluster of one node, set up here and taken down again, they train
what one process trains, stop where one of them is told to, and go on behind one that was killed.
So do ranks on GPUs that NCCL joins, both of which are doubles.

    slurm.py PROGRAM SOURCE_ROOT MPI_FOLDER CUDA_FOLDER NCCL_FOLDER REFUSING_FOLDER [TEST...]

CUDA_FOLDER '': the doubles were not built.
"""
import getpass
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402
import rank_gpus  # noqa: E402
import rank_nccl  # noqa: E402
from rank_nccl import BF16, CUDA, step_lines  # noqa: E402
from ranks import FOLDER, PROGRAM, Case, environment, sums_of  # noqa: E402

DAEMONS = ('slurmctld', 'slurmd')
RANKS = 4
GONE_S = 60  # a launcher's end, at most
GPUS_GONE_S = 120  # where an interpreter takes the place of GPUs
LONG = 2000  # steps: a run that is told to stop long before
PAGE = os.path.join(sys.argv[2], 'docs', 'launch.md')


def free_port():
    with socket.socket() as one:
        one.bind(('', 0))
        return one.getsockname()[1]


def configuration(folder):
    host, user = socket.gethostname(), getpass.getuser()
    return f'''
ClusterName=one
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
SwitchType=switch/none
TaskPlugin=task/none
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
NodeName={host} CPUs={RANKS} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
'''


class Slurm(Case):
    @classmethod
    def setUpClass(cls):
        cls.cluster = os.path.abspath('slurm-cluster')
        shutil.rmtree(cls.cluster, ignore_errors=True)
        for name in ('spool', 'state'):
            os.makedirs(os.path.join(cls.cluster, name))
        path = os.path.join(cls.cluster, 'slurm.conf')
        with open(path, 'w', encoding='ascii') as file:
            file.write(configuration(cls.cluster))
        cls.environment = {**environment(), 'SLURM_CONF': path}
        cls.daemons = []
        for name in DAEMONS:
            with open(os.path.join(cls.cluster, f'{name}.log'), 'wb') as log:
                cls.daemons.append(subprocess.Popen([name, '-D'], env=cls.environment, stdout=log,
                                                    stderr=log))
        cls.wait_until_idle()

    @classmethod
    def wait_until_idle(cls):
        until = time.monotonic() + 60
        while subprocess.run(['sinfo', '-h', '-o', '%T'], env=cls.environment, capture_output=True,
                             text=True, check=False).stdout.strip() != 'idle':
            if time.monotonic() > until:
                cls.tearDownClass()
                raise AssertionError('the cluster does not come up: see slurm-cluster/*.log')
            time.sleep(0.2)

    @classmethod
    def tearDownClass(cls):
        for daemon in reversed(cls.daemons):
            daemon.terminate()
            daemon.wait(30)

    def srun(self, *more, under=('srun', '--mpi=pmix', f'--ntasks={RANKS}'), **kind):
        return subprocess.Popen([*under, *self.command('--ways', '4', *more, **kind)],
                                env=self.environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def trains(self, status, *more, **kind):
        child = self.srun(*more, **kind)
        told = child.communicate(timeout=GONE_S)[0]
        self.assertEqual(child.returncode, status, told)
        return told

    def pids(self):
        """Of the ranks, in their order."""
        found = {}
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                with open(f'/proc/{pid}/cmdline', 'rb') as file:
                    is_rank = file.read().split(b'\0')[0] == os.fsencode(PROGRAM)
                with open(f'/proc/{pid}/environ', 'rb') as file:
                    words = dict(word.split(b'=', 1) for word in file.read().split(b'\0')
                                 if b'=' in word)
            except OSError:
                continue
            if is_rank and b'SLURM_PROCID' in words:
                found[int(words[b'SLURM_PROCID'])] = int(pid)
        return [found[rank] for rank in sorted(found)]

    def wait_for_step(self, child, step):
        until = time.monotonic() + GONE_S
        while not os.path.exists(self.path('log.jsonl')) or \
                step not in [line['step'] for line in self.lines('step')]:
            self.assertIsNone(child.poll(), 'it has ended before')
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)

    def alone(self, steps):
        """What one process trains."""
        want = self.trained('--ways', '4', steps=steps)
        shutil.rmtree(self.path('store'))
        os.unlink(self.path('log.jsonl'))
        return want

    def test_they_train_what_one_process_trains(self):
        want = self.alone(3)
        told = self.trains(0)
        self.assertEqual((self.numbers(), sums_of(self.path('out'))), want)
        self.assertRegex(told, r'ranks: 4 on 1 node \(srun\)')
        self.assertEqual(self.lines('run')[0]['ranks'], RANKS)

    def test_a_step_without_pmi_is_refused(self):
        told = self.trains(2, under=('srun', '--mpi=none', f'--ntasks={RANKS}'))
        self.assertRegex(told, r'error\[E501\] [^\n]*--mpi=pmix')
        self.assertEqual(told.count('error[E501]'), 1, told)
        self.assertFalse(os.path.exists(self.path('store')))

    def test_the_batch_script_of_the_page_trains(self):
        """Its paths are others, and there is one node. It is queued again where it was stopped."""
        want = self.alone(3)
        with open(PAGE, encoding='utf-8') as page:
            script = re.search(r'```\n(#!/bin/bash\n#SBATCH .*?)```', page.read(), re.DOTALL)[1]
        command = re.search(r'hoistway train .*?--resume', script, re.DOTALL)[0]
        words = shlex.split(command.replace('\\\n', ' '))
        own = self.command('--ways', '4', '--resume')
        flags = {word for word in words if word.startswith('--')}
        self.assertLessEqual(flags, {word.split('=')[0] for word in own})
        script = script.replace(command, shlex.join(own)).replace('--nodes=2', '--nodes=1')
        with open(self.path('batch'), 'w', encoding='ascii') as file:
            file.write(script)
        done = subprocess.run(['sbatch', '--wait', '-o', self.path('told'), self.path('batch')],
                              env=self.environment, capture_output=True, text=True,
                              timeout=GONE_S)
        with open(self.path('told'), encoding='utf-8', errors='replace') as file:
            told = file.read()
        self.assertEqual(done.returncode, 0, done.stderr + told)
        self.assertRegex(told, r'ranks: 4 on 1 node \(srun\)')
        self.assertEqual((self.numbers(), sums_of(self.path('out'))), want)

    def test_all_stop_where_one_is_told_to_and_go_on(self):
        want = self.alone(400)
        child = self.srun(steps=400)
        self.wait_for_step(child, 2)
        os.kill(self.pids()[2], signal.SIGUSR1)
        told = child.communicate(timeout=GONE_S)[0]
        self.assertEqual(child.returncode, 75, told)
        stopped = self.lines('step')[-1]['step']
        self.assertLess(stopped, 400)
        self.trains(0, '--resume', steps=400)
        self.assertEqual(sums_of(self.path('out')), want[1])
        self.assertIn(stopped + 1, [line['step'] for line in self.lines('step')])

    def test_a_rank_that_is_killed_ends_all_and_the_run_goes_on(self):
        want = self.alone(400)
        child = self.srun('--peer-timeout=5', steps=400)
        self.wait_for_step(child, 2)
        ranks = self.pids()
        self.assertEqual(len(ranks), RANKS)
        os.kill(ranks[1], signal.SIGKILL)
        told = child.communicate(timeout=GONE_S)[0]
        self.assertNotEqual(child.returncode, 0, told)
        self.assertEqual(self.pids(), [])
        self.trains(0, '--resume', steps=400)
        self.assertEqual(sums_of(self.path('out')), want[1])

    # ---- on GPUs ---------------------------------------------------------------------------------

    def on_gpus(self, run, *options, steps):
        """-> srun's status and words; after two steps a rank is told to stop a LONG run."""
        env = rank_nccl.environment(RANKS, 'in-progress=0')
        child = subprocess.Popen(
            ['srun', '--mpi=pmix', f'--ntasks={RANKS}', *run.command(
                'untied-mha', *BF16, '--durability=step', *options, steps=steps, device='cuda',
                comm='nccl')],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**env, 'SLURM_CONF': self.environment['SLURM_CONF'],
                 'HST_FAKE_CUDA': env['HST_FAKE_CUDA'] + ',streams=late'})
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        until = time.monotonic() + GPUS_GONE_S
        while steps == LONG and not (os.path.exists(run.path('log')) and step_lines(run)[1:]):
            self.assertLess(time.monotonic(), until)
            self.assertIsNone(child.poll(), 'it has ended before')
            time.sleep(0.02)
        if steps == LONG:
            os.kill(self.pids()[-1], signal.SIGUSR1)
        told = child.communicate(timeout=GPUS_GONE_S)[0]
        return child.returncode, told

    @unittest.skipUnless(CUDA, 'the doubles of CUDA and NCCL were not built')
    def test_ranks_on_gpus_that_nccl_joins_stop_and_go_on_as_one_rank(self):
        with rank_gpus.Run() as run:
            status, told = self.on_gpus(run, steps=LONG)
            self.assertEqual(status, 75, told)
            self.assertRegex(told, r'ranks: 4 on 1 node \(srun\), 4 ways, NCCL 2\.28\.9, Open ')
            stopped = step_lines(run)[-1]['step']
            self.assertLess(stopped, LONG)
            status, told = self.on_gpus(run, '--resume', steps=stopped + 2)
            self.assertEqual(status, 0, told)
            self.assertIn(f'going on after step {stopped}', told)
            went = run.came_to()[1]
        with rank_gpus.Run() as run:
            done = run.train(1, 'untied-mha', *BF16, steps=stopped + 2)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(run.came_to()[1], went)


if __name__ == '__main__':
    for needed in (*DAEMONS, 'srun', 'sinfo'):
        if not shutil.which(needed):
            print(f'skipped: no {needed} (Debian: slurm-wlm)')
            sys.exit(77)
    if mpi.missing(FOLDER):
        print('skipped: Open MPI is not installed (mpirun), or the transport was not built')
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[7:]])
