#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nobody reads what a run tells: it waits, and ends with 75 all the same when a signal asks it to.
Before the signal nothing that it tells is lost.

unread.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import tty
import unittest

PROGRAM, ROOT = sys.argv[1:3]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
PIPE_BYTES, END_S = 4096, 20


def fill(fd):
    """Until it takes no byte more. Whoever shares the descriptor still waits at it."""
    other = os.open(f'/proc/self/fd/{fd}', os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    for size in (1024, 1):  # to the last byte
        try:
            while os.write(other, b'.' * size):
                pass
        except BlockingIOError:
            pass
    os.close(other)


def pipe():
    """-> the end to read, the end to write; it holds as little as a pipe can."""
    end, other = os.pipe()
    fcntl.fcntl(other, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return end, other


def terminal():
    try:
        end, other = pty.openpty()
    except OSError as error:  # /dev/pts is not mounted
        raise unittest.SkipTest(f'there are no pseudo-terminals here: {error}')
    tty.setraw(other)
    return end, other


def catches_signals(pid):
    with open(f'/proc/{pid}/status', encoding='ascii', errors='replace') as status:
        caught = int(re.search(r'(?m)^SigCgt:\s+([0-9a-f]+)$', status.read())[1], 16)
    return caught >> (signal.SIGTERM - 1) & 1


class Unread(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.store, self.log = (os.path.join(scratch.name, name) for name in ('store', 'log'))

    def start(self, *more, steps=1000000, **where):
        child = subprocess.Popen(
            [PROGRAM, 'train', '--device=host', '--threads=1', '--model', MODEL, '--data',
             os.path.join(MODEL, 'tokens.bin'), '--steps', str(steps), '--seq-len=24',
             '--batch-tokens=48', '--store', self.store, '--log', self.log, *more],
            env={**os.environ, 'HOISTWAY_SILENCE': '0.05'},
            **{'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL, **where})
        self.addCleanup(child.kill)
        while not catches_signals(child.pid):
            time.sleep(0.01)
        return child

    def end(self, child):
        child.send_signal(signal.SIGTERM)
        try:
            self.assertEqual(child.wait(END_S), 75)
        except subprocess.TimeoutExpired:
            self.fail('a run does not end that nobody reads')

    def steps_logged(self):
        with open(self.log, encoding='ascii') as log:
            return log.read().count('"step"')

    def wait_until_it_stands_still(self):
        steps, still = -1, 0
        while still < 10:
            time.sleep(0.1)
            now = self.steps_logged() if os.path.exists(self.log) else 0
            still = still + 1 if now == steps else 0
            steps = now

    def test_from_its_start_on_whatever_the_stream_is(self):
        for name, make in (('stderr', pipe), ('stdout', pipe), ('stderr', terminal)):
            with self.subTest(name, make=make.__name__):
                end, other = make()
                fill(other)
                child = self.start(**{name: other})
                time.sleep(0.5)  # time to come to its first line
                self.end(child)
                os.close(end)
                os.close(other)

    def test_while_it_trains_and_the_step_at_hand_is_committed(self):
        end, other = pipe()
        child = self.start(stderr=other)
        told = b''
        while b'\nstep ' not in told:
            told += os.read(end, PIPE_BYTES)
        fill(other)
        self.wait_until_it_stands_still()
        self.end(child)
        os.close(end)
        os.close(other)
        with open(self.log, encoding='ascii') as log:
            last = json.loads(log.readlines()[-1])
        self.assertEqual(last['kind'], 'commit')
        listed = subprocess.run([PROGRAM, 'ckpt', 'list', self.store, '--json'],
                                capture_output=True, check=True).stdout
        self.assertEqual(json.loads(listed)['versions'][-1]['step'], last['step'])
        self.assertEqual(self.start('--resume', steps=last['step'] + 1).wait(), 0)

    def test_until_it_is_asked_to_end_it_waits_and_nothing_is_lost(self):
        end, other = pipe()
        fill(other)
        child = self.start(steps=2, stderr=other)
        os.close(other)
        time.sleep(2)  # longer than it would wait after a signal
        self.assertIsNone(child.poll())
        with os.fdopen(end, 'rb') as stream:
            told = stream.read().decode()
        self.assertEqual(child.wait(), 0)
        for part in ('note[I201] device: host', '\nstep 1/2 ', '\nstep 2/2 '):
            self.assertIn(part, told)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
