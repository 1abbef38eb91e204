#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""On a drive that is slow, the program is never silent for more than 5 seconds on a terminal, and
leaves that clean; in a pipe a line comes from time to time.

silence.py HOISTWAY HOISTWAY_SLOW NVME_BENCH_SLOW SOURCE_ROOT

Silence is counted in looks at the terminal, a tenth of a second apart: on a machine that stands
still nobody looks. All programs wait for their drives at the same time, so that it does not take
long.
"""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(sys.path[0]))
from short import by_turns  # noqa: E402
from watch import wait_until  # noqa: E402

PROGRAM, SLOW, SLOW_BENCH, ROOT = sys.argv[1:5]
TOKENS = os.path.join(ROOT, 'tests', 'golden', 'untied-mha', 'tokens.bin')
LOOK_S, LOOKS = 0.1, 50
CONFIG = {
    'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu',
    'hidden_size': 192, 'intermediate_size': 512, 'num_hidden_layers': 8,
    'num_attention_heads': 6, 'num_key_value_heads': 3, 'max_position_embeddings': 64,
    'rms_norm_eps': 1e-5, 'rope_theta': 1e4, 'tie_word_embeddings': False,
    'torch_dtype': 'float32', 'vocab_size': 256,
}  # fmt: skip
# weights 13 MB, optimizer states 26 MB: how fast a drive takes 6 seconds for them
STATE, WEIGHTS, FAST = 6500000, 2200000, 10**9


class Run(threading.Thread):
    """A slow program on a terminal of its own, watched until it ends."""

    def __init__(self, arguments, read=FAST, write=FAST, on_sight=(), program=SLOW):
        super().__init__()
        self.shown, self.silence, self.longest = '', 0, (0, '')
        self.on_sight = list(on_sight)  # (pattern, signal): sent when it is first seen
        master, terminal = pty.openpty()
        self.master = master
        self.child = subprocess.Popen(
            [program, *arguments], stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal,
            env={**os.environ, 'HOISTWAY_DRIVE': f'sim:read={read},write={write}'},
            start_new_session=True)
        os.close(terminal)
        self.start()

    def run(self):
        while True:
            if not select.select([self.master], [], [], LOOK_S)[0]:
                self.silence += 1
                self.longest = max(self.longest, (self.silence, self.shown[-200:]))
                if self.silence > 3 * LOOKS:
                    self.child.kill()
                continue
            try:
                part = os.read(self.master, 4096)
            except OSError:  # EIO: nobody has the terminal open any more
                break
            if not part:
                break
            self.silence, self.shown = 0, self.shown + part.decode()
            while self.on_sight and re.search(self.on_sight[0][0], self.shown):
                self.child.send_signal(self.on_sight.pop(0)[1])
        os.close(self.master)
        self.child.wait()


class Silence(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            for fd in pty.openpty():
                os.close(fd)
        except OSError as error:
            raise unittest.SkipTest(f'there are no pseudo-terminals here: {error}')
        cls.scratch = tempfile.TemporaryDirectory(dir='.')
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = os.path.abspath(cls.scratch.name)
        os.mkdir(cls.path('bare'))
        with open(cls.path('bare', 'config.json'), 'w', encoding='ascii') as file:
            json.dump(CONFIG, file)
        made = subprocess.run([PROGRAM, *cls.train(
            'bare', '--init=random', '--steps=1', '--quiet', '--durability=none', '--store',
            cls.path('first'), '--export', cls.path('model'))], check=False)
        assert made.returncode == 0
        cls.make_killed()

    @classmethod
    def path(cls, *names):
        return os.path.join(cls.folder, *names)

    @classmethod
    def train(cls, model, *more):
        return ['train', '--device=host', '--threads=1', '--model', cls.path(model), '--data',
                TOKENS, '--seq-len=24', '--batch-tokens=48', '--lr=1e-4', *more]

    @classmethod
    def endless(cls, *more):
        return cls.train('bare', '--init=random', '--steps=1000000', '--schedule=constant',
                         '--durability=step', '--place=states=dram,weights=dram', *more)

    @classmethod
    def make_killed(cls):
        """A store whose run was killed: all of it is read and compared before one goes on."""
        log = cls.path('log')
        with subprocess.Popen([PROGRAM, *cls.endless(
                '--store', cls.path('store'), '--log', log, '--quiet')]) as child:
            def committed():
                if not os.path.exists(log):
                    return False
                with open(log, encoding='ascii') as file:
                    return '"commit"' in file.read()
            assert wait_until(committed, cls.folder, child)
            child.kill()

    def made(self, name):
        os.mkdir(self.path(name))
        return self.path(name)

    def store(self, name):
        shutil.copytree(self.path('store'), self.path(name))
        return self.path(name)

    def check(self, run, status, *seen):
        run.join()
        self.assertEqual(run.child.returncode, status, run.shown)
        self.assertLessEqual(run.longest[0], LOOKS, f'silence after {run.longest[1]!r}')
        for pattern in seen:
            self.assertRegex(run.shown, pattern)

    def test_on_a_terminal_no_silence_is_long(self):
        size = r'[\d.]+ \w+ of [\d.]+ MiB \d+% \| [\d.]+ \w+/s \| eta \d+s'
        ends = '(?s)going on after step.*step '
        runs = {
            'loads and exports': Run(
                self.train('model', '--steps=1', '--durability=none', '--store',
                           self.path('none'), '--export', self.path('exported')),
                read=WEIGHTS, write=WEIGHTS),
            'initialises': Run(
                self.train('bare', '--init=random', '--steps=1', '--durability=step', '--store',
                           self.path('new'), '--place=states=nvme,weights=nvme', '--dram=40M'),
                write=STATE),
            'resumes': Run(
                self.endless('--resume', '--store', self.store('resumed')), read=STATE,
                on_sight=[(ends, signal.SIGINT)]),
            'verifies': Run(['ckpt', 'verify', self.store('verified')], read=STATE),
            'exports': Run(['ckpt', 'export', self.store('saved'), '--model', self.path('bare'),
                            '--export', self.path('version')], write=WEIGHTS),
            'measures': Run([self.made('drive'), '--quick', '--size=256M'], write=1000000,
                            program=SLOW_BENCH,
                            on_sight=[('filling scratch files 0:05', signal.SIGINT)]),
            'reshards': Run(['ckpt', 'reshard', self.store('one'), '--world=2', '--out',
                             self.path('two')], write=STATE),
        }  # fmt: skip
        seen = {
            'loads and exports': (rf'\rloading the weights 0:0[45] \| {size}',
                                  rf'\rexporting 0:0[45] \| {size}'),
            'initialises': (rf'\rinitialising the weights 0:0[45] \| {size}',
                            r'\r(step 1|finishing the last update) 0:0[45]'),
            'resumes': (rf'\rresuming 0:0[45] \| {size}', r'stopped \(Interrupt\)',
                        rf'\rresuming: reading into memory 0:0[45] \| {size}'),
            'verifies': (rf'\rverify step \d+ 0:0[45] \| {size}',
                         r'\r\x1b\[Kstep \d+: every byte of [\d.]+ MiB is as it was written\r\n\Z'),
            'exports': (rf'\rexporting 0:0[45] \| {size}',),
            'measures': (r'filling scratch files 0:0[45]\x1b\[K',
                         r'\r\x1b\[Kstopped: nothing is reported[^\n]*\n\Z'),
            'reshards': (rf'\rresharding 0:0[45] \| {size}',),
        }  # fmt: skip
        for name, run in runs.items():
            with self.subTest(name):
                self.check(run, 75 if name in ('resumes', 'measures') else 0, *seen[name])
        self.assertNotRegex(runs['verifies'].shown, r'verify step \d+ 0:00')  # short as yet

    def test_what_is_ended_leaves_no_line_behind(self):
        ticks = r'0:01[^\n]*\x1b\[K'
        runs = {
            'asked': Run(['ckpt', 'verify', self.store('ended')], read=STATE,
                         on_sight=[(ticks, signal.SIGINT)]),
            'asked twice': Run(
                self.train('model', '--steps=1', '--durability=none', '--store', self.path('no')),
                read=100, on_sight=[(ticks, signal.SIGINT), (r'0:02', signal.SIGINT)]),
            'killed': Run(['doctor', '--store', self.path('tried')], write=1000,
                          on_sight=[(ticks, signal.SIGTERM)]),
        }
        for name, status in (('asked', 130), ('asked twice', 130), ('killed', -signal.SIGTERM)):
            with self.subTest(name):
                self.check(runs[name], status, r'\r\x1b\[K\Z')

    def test_in_a_pipe_a_line_comes_from_time_to_time(self):
        def verify(name, *more, **environment):
            return subprocess.Popen(
                [SLOW, 'ckpt', 'verify', self.store(name), *more], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
                env={**os.environ, 'HOISTWAY_DRIVE': f'sim:read={2 * STATE},write={FAST}',
                     **environment})
        told, quiet, brief = (verify('told', HOISTWAY_SILENCE='1'),
                              verify('hushed', '--quiet', HOISTWAY_SILENCE='1'), verify('brief'))
        out, err = told.communicate()
        self.assertRegex(err, r'\A(verify step \d+ 0:0\d[^\r\n]*\n){2,}\Z')
        self.assertRegex(err, r'\n[^\r\n]* of [\d.]+ MiB \d+% \| [^\r\n]*/s \| eta \d+s\n')
        self.assertRegex(out, r'\Astep \d+: every byte of [^\n]*\n\Z')
        for child in (quiet, brief):  # 3 seconds are no silence yet
            self.assertEqual((child.communicate()[1], child.returncode), ('', 0))


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
