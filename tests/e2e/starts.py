#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A signal at any moment of a start, from the moment on that it is caught: the run ends with 75,
names the step that the store holds, and the store holds it.

starts.py PATH_OF_HOISTWAY SOURCE_ROOT [MOMENTS]      of each kind of start; 5, in the short form 2
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from short import SHORT, TURN  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
MOMENTS = int(sys.argv[3]) if len(sys.argv) > 3 else 2 if SHORT else 5
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
LAYERS = {'hidden_size': 256, 'intermediate_size': 512, 'num_hidden_layers': 6, 'vocab_size': 512}


def hangup_is_not_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup


def is_caught(pid, number):
    try:
        with open(f'/proc/{pid}/status', encoding='ascii', errors='replace') as status:
            caught = int(re.search(r'(?m)^SigCgt:\s+([0-9a-f]+)$', status.read())[1], 16)
    except (OSError, TypeError):
        return False
    return bool(caught >> (number - 1) & 1)


class Starts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.abspath(scratch.name)
        self.store = os.path.join(self.folder, 'store')
        self.cache = os.path.join(self.folder, 'cache')
        os.mkdir(os.path.join(self.folder, 'model'))
        with open(os.path.join(MODEL, 'config.json'), encoding='ascii') as file:
            config = {**json.load(file), **LAYERS}
        with open(os.path.join(self.folder, 'model', 'config.json'), 'w', encoding='ascii') as file:
            json.dump(config, file)

    def start(self, *more, store=None):
        shutil.rmtree(self.cache, ignore_errors=True)  # rates are measured in each start
        return subprocess.Popen(
            [PROGRAM, 'train', '--device', 'host', '--threads', '1', '--model',
             os.path.join(self.folder, 'model'), '--init', 'random', '--data',
             os.path.join(MODEL, 'tokens.bin'), '--steps', '1000000', '--seq-len', '24',
             '--batch-tokens', '24', '--store', store or self.store, *more],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, 'XDG_CACHE_HOME': self.cache}, preexec_fn=hangup_is_not_ignored)

    def seconds_to_a_step(self, *more, **where):
        begin = time.monotonic()
        with self.start(*more, **where) as child:
            for line in child.stderr:
                if line.startswith('step '):
                    break
            took = time.monotonic() - begin
            child.send_signal(signal.SIGTERM)
            child.stderr.read()
        self.assertEqual(child.returncode, 75)
        return took

    def version(self):
        """-> the step that the store holds; 0: no version."""
        if not os.path.exists(os.path.join(self.store, 'r00000.d0.blk')):
            return 0
        done = subprocess.run([PROGRAM, 'ckpt', 'list', self.store, '--json'],
                              capture_output=True, text=True, timeout=60, check=False)
        return json.loads(done.stdout)['versions'][-1]['step'] if done.returncode == 0 else 0

    def stop_at_moments(self, *more, **where):
        """-> what was told, each time."""
        took = self.seconds_to_a_step(*more, **where)
        told = []
        for moment in range(MOMENTS):
            number = SIGNALS[(moment + TURN) % len(SIGNALS)]
            with self.start(*more, **where) as child:
                while not is_caught(child.pid, number) and child.poll() is None:
                    time.sleep(0.001)
                time.sleep(took * (moment + 0.5) / MOMENTS)
                child.send_signal(number)
                said = child.stderr.read()
            self.assertEqual(child.returncode, 75, said)
            self.assertEqual(said.count('\nstopped (' + signal.strsignal(number) + ') ')
                             + said.startswith('stopped ('), 1, said)
            self.assertNotIn('error[', said)
            held = re.search(r'the store holds (?:step (\d+),|no version yet)', said)
            self.assertTrue(held, said)
            if not where:
                self.assertEqual(self.version(), int(held[1] or 0), said)
            told.append(said)
        return told

    def test_of_a_run_that_begins(self):
        self.stop_at_moments('--place=states=dram,weights=dram', '--durability=1000000',
                             '--resume')

    def test_of_a_run_whose_states_go_on_in_memory(self):
        homes = ('--place=states=dram,weights=dram', '--durability=1000000', '--resume')
        self.seconds_to_a_step(*homes)
        for said in self.stop_at_moments(*homes):
            self.assertNotIn('no version yet', said)

    def test_of_a_run_on_two_directories_whose_rates_are_measured(self):
        both = f'{self.store},{os.path.join(self.folder, "other")}'
        self.stop_at_moments('--place=states=nvme,weights=nvme', '--resume', store=both)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
