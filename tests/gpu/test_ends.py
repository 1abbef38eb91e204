#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How `./run gpu` ends that is told to, or whose folder cannot be used: in a bundle that the test
makes up, whose programs are scripts.

    test_ends.py
"""
import glob
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

import place
import stop

HANGS = '''\
#!/bin/sh
(trap '' TERM; exec sleep 600) &
echo "$$ $!" >{pids}.new
mv {pids}.new {pids}
wait
'''


def runs(pid):
    """One that has ended and that nobody waits for runs no more."""
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii') as file:
            return file.read().rpartition(')')[2].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def signals_are_ours():
    """A shell in the background may have left SIGINT ignored."""
    for number in stop.SIGNALS:
        signal.signal(number, signal.SIG_DFL)


class Bundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, self.out = folder.name, os.path.join(folder.name, 'out')
        self.scratch, self.pids = (os.path.join(self.root, name) for name in ('scratch', 'pids'))
        for name in ('bin', 'tests/gpu', 'scratch'):
            os.makedirs(os.path.join(self.root, name))
        for path in glob.glob(place.HERE + '/*.py'):
            shutil.copy(path, self.root + '/tests/gpu')
        shutil.copy(place.ROOT + '/run', self.root)
        with open(self.root + '/bundle.json', 'w', encoding='ascii') as file:
            json.dump({'commit': 'made up'}, file)
        self.program('hoistway', '#!/bin/sh\n')

    def program(self, name, text):
        path = os.path.join(self.root, 'bin', name)
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)
        os.chmod(path, stat.S_IRWXU)

    def begin(self, *arguments):
        return subprocess.Popen(
            ['./run', 'gpu', '--smoke', *(['--out', self.out] if '--out' not in arguments else []),
             *arguments], cwd=self.root, env={**os.environ, 'TMPDIR': self.scratch},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=signals_are_ours)

    def call(self, *arguments):
        process = self.begin(*arguments)
        self.said, self.err = process.communicate(timeout=120)
        return process.returncode

    def report(self):
        with open(self.out + '/report.json', encoding='utf-8') as file:
            return json.load(file)


class Signals(Bundle):
    def setUp(self):
        super().setUp()
        for name in ('device', 'stream'):
            self.program('test_kernels_' + name, HANGS.format(pids=f'{self.pids}-{name}'))

    def hanging(self):
        """A call within its second part, and what that runs: one of them is deaf to SIGTERM."""
        process, pids = self.begin('facts', 'suite'), []
        self.addCleanup(process.kill)
        for name in ('device', 'stream'):
            until = time.monotonic() + 60
            while not os.path.exists(f'{self.pids}-{name}'):
                self.assertLess(time.monotonic(), until)
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            with open(f'{self.pids}-{name}', encoding='ascii') as file:
                pids += map(int, file.read().split())
        self.assertEqual([runs(pid) for pid in pids], [True] * 4)
        return process, pids

    def test_a_signal_ends_all_that_runs_and_leaves_what_was_told(self):
        for number in stop.SIGNALS:
            with self.subTest(number.name):
                process, pids = self.hanging()
                process.send_signal(number)
                _, said = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 128 + number, said)
                self.assertEqual([pid for pid in pids if runs(pid)], [])
                self.assertEqual(os.listdir(self.scratch), [])
                self.assertEqual(said, f'gpu: ended by {number.name}; {self.out}/report.md has '
                                       'what was told. --continue goes on from there\n')
                told = [(part['name'], part['result'], part['why'], part['short_of_time'])
                        for part in self.report()['parts']]
                self.assertEqual(told, [('facts', 'ran', '', False),
                                        ('suite', 'skipped', f'ended by {number.name}', True)])
                for path in glob.glob(self.pids + '*'):
                    os.unlink(path)

    def test_before_the_first_part_nothing_is_written(self):
        self.program('hoistway', HANGS.format(pids=self.pids))
        process = self.begin('facts')
        while not os.path.exists(self.pids):
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        self.assertEqual((process.returncode, said), (
            143, 'gpu: ended by SIGTERM; no part was begun. --continue goes on from there\n'))
        self.assertFalse(os.path.exists(self.out + '/report.json'))

    def test_a_signal_that_is_held_is_raised_at_the_end(self):
        one = stop.Stop()
        with self.assertRaises(stop.Stopped):
            one.take(signal.SIGTERM, None)
        one.take(signal.SIGINT, None)  # the first one counts, and breaks off nothing again
        self.assertEqual(one.number, signal.SIGTERM)
        one, held = stop.Stop(), False
        with self.assertRaises(stop.Stopped):
            with one:
                one.take(signal.SIGHUP, None)
                held = True
        self.assertTrue(held)


class Folders(Bundle):
    def refused(self, why, fix, *arguments):
        self.assertEqual(self.call(*arguments), 2, self.err)
        self.assertRegex(self.err, rf'\Agpu: {why}\. Fix: {fix}[^\n]*\n\Z')
        self.assertEqual(os.listdir(self.scratch), [])

    def test_one_that_cannot_be_written_is_told_before_anything_runs(self):
        self.program('hoistway', '#!/bin/sh\ntouch ran\n')
        open(self.root + '/file', 'w', encoding='ascii').close()
        for name, why in (('/file', 'File exists'), ('/file/below', 'Not a directory')):
            self.refused(f'{self.root}{name} cannot be written: {why}', 'make that a folder of',
                         'facts', '--out', self.root + name)
        self.assertFalse(os.path.exists(self.root + '/ran'))

    def test_a_drive_that_gets_full_is_told(self):
        os.makedirs(self.out)
        os.symlink('/dev/full', self.out + '/report.json.new')
        self.refused(f'{self.out}/report.json cannot be written: No space left on device',
                     'make room there, or name another with --out', 'facts')

    def test_a_log_that_cannot_be_kept_is_no_failure_of_its_part(self):
        os.makedirs(self.out)
        open(self.out + '/logs', 'w', encoding='ascii').close()
        self.refused(rf'{self.out}/logs/opening-01\.txt cannot be written: File exists',
                     'make that a folder', 'facts')

    def test_a_report_that_is_damaged_or_another_s_is_not_gone_on_from(self):
        self.assertEqual(self.call('facts'), 0, self.err)
        whole = json.dumps(self.report())
        part = json.loads(whole)
        del part['parts'][0]['result']
        for text, why in ((whole[:99], '.*line 1 column.*'), ('', '.*line 1 column 1.*'),
                          ('[' * 100000, '.*recursion.*'), ('\xff', '.*codec.*'),
                          ('[1]', 'it is no report of ./run gpu, it is no dict'),
                          ('{"a": 1}', 'it is no report of ./run gpu, it has no commit'),
                          (json.dumps(part), 'it is damaged, one of parts has no result')):
            with open(self.out + '/report.json', 'w', encoding='latin-1') as file:
                file.write(text)
            self.refused(f'{self.out}/report.json cannot be gone on from: {why}',
                         'leave --continue out, and a new report', 'facts', '--continue')
            with open(self.out + '/report.json', encoding='latin-1') as file:
                self.assertEqual(file.read(), text)
        self.assertEqual(self.call('facts'), 0, self.err)  # as the line says
        self.assertEqual(self.call('facts', '--continue'), 0, self.err)


if __name__ == '__main__':
    unittest.main()
