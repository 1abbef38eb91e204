#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disks that are full, limited, or gone in the middle of a run: what is said, the code it ends
with, and that the last committed version is resumed to the same bytes. On small ext4 file systems
in files, which need root.

disks.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import ctypes
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

E2E = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [E2E, os.path.dirname(E2E)]
from sandbox import CLONE_NEWNS, LIBC, MS_PRIVATE, MS_REC  # noqa: E402
from short import by_turns  # noqa: E402
from store_bytes import Store, file_name  # noqa: E402
from watch import wait_until  # noqa: E402

PROGRAM, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
PR_CAPBSET_DROP, CAP_SYS_RESOURCE = 24, 24  # who has it is above quotas
FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR, PROJECT_INHERIT = 0x801C581F, 0x401C5820, 0x200
FS_IOC_SHUTDOWN, SHUTDOWN_AS_IT_IS, SHUTDOWN_AND_LOSE = 0x8004587D, 0, 2
SET_PROJECT_QUOTA, BLOCK_LIMITS = (0x800008 << 8) | 2, 1
ENOUGH = 100000  # steps that no test waits for
MIB = 1 << 20


EVERYTHING = '--place=states=nvme,weights=nvme,grads=nvme,acts=nvme'


def command(store, *more, steps=4):
    place = [] if EVERYTHING in more else ['--place=states=nvme,weights=nvme']
    return [
        PROGRAM, 'train', '--device=host', '--model', MODEL, '--data',
        os.path.join(MODEL, 'tokens.bin'), '--seq-len=24', '--batch-tokens=48', '--lr=1e-3',
        *place, '--durability=step', '--precision=bf16', '--store', store, '--steps', str(steps),
        *more,
    ]  # fmt: skip


def train(store, *more, steps=4, **popen):
    return subprocess.run(command(store, *more, steps=steps), capture_output=True, text=True,
                          timeout=120, check=False, **popen)


def drop_privilege_over_quotas():
    if LIBC.prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0):
        os._exit(99)


def limit_files(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def run_quietly(*line):
    return subprocess.run(line, capture_output=True, text=True, check=False)


class Disks(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.abspath(scratch.name)
        self.disk, self.log = self.path('disk'), self.path('log.jsonl')
        self.store = os.path.join(self.disk, 'store')
        os.mkdir(self.disk)

    def path(self, name):
        return os.path.join(self.folder, name)

    # ---- disks ----

    def must(self, *line):
        done = run_quietly(*line)
        if done.returncode:
            self.skipTest(f'{line[0]} does not work here: {done.stderr.strip()}')

    def mount(self, *options):
        self.must('mount', '-o', ','.join(('loop', *options)), self.path('image'), self.disk)
        self.addCleanup(run_quietly, 'umount', '-l', self.disk)

    def make_disk(self, mib, *features, mount=()):
        """ext4 in a file: all its blocks are anybody's."""
        with open(self.path('image'), 'wb') as file:
            file.truncate(mib * MIB)
        self.must('mkfs.ext4', '-q', '-m', '0', *features, self.path('image'))
        self.mount(*mount)

    def mount_again(self):
        """As after the machine was restarted."""
        self.must('umount', self.disk)
        self.mount()

    def room(self):
        status = os.statvfs(self.disk)
        return status.f_bavail * status.f_frsize

    def fill(self):
        """To the last block. What a running program has removed may become free a moment later."""
        until = time.monotonic() + 20
        with open(os.path.join(self.disk, 'filler'), 'wb', buffering=0) as file:
            while time.monotonic() < until:
                for size in (MIB, 4096, 1):
                    try:
                        while file.write(bytes(size)):
                            pass
                    except OSError:
                        pass
                if self.room() < 8192:
                    break
        self.assertLess(self.room(), 8192)

    def empty(self):
        for name in os.listdir(self.disk):
            path = os.path.join(self.disk, name)
            if name == 'filler':
                os.remove(path)
            elif name != 'lost+found':
                shutil.rmtree(path)

    # ---- runs ----

    def start(self, *more):
        return subprocess.Popen(command(self.store, '--log', self.log, *more, steps=ENOUGH),
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def committed(self):
        """Of the log."""
        steps = [0]
        if os.path.exists(self.log):
            with open(self.log, encoding='ascii') as file:
                steps += [json.loads(line)['step'] for line in file
                          if line.startswith('{"kind":"commit"') and line.endswith('\n')]
        return steps[-1]

    def wait_for_commits(self, child, count):
        """So many more. The run ends by itself only where it fails."""
        until = self.committed() + count
        wait_until(lambda: self.committed() >= until, self.folder, child)

    def assert_ends(self, child, code):
        told = child.communicate(timeout=120)[1]
        self.assertEqual(child.returncode, 1, told)
        errors = [line for line in told.splitlines() if line.startswith('error[')]
        self.assertEqual(len(errors), 1, told)
        self.assertRegex(errors[0], rf'^error\[E({code})\] ')
        self.assertIn('Fix: ', errors[0])
        return errors[0]

    def assert_refused(self, done, code, part):
        self.assertEqual(done.returncode, 1, done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith('error[')]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertTrue(errors[0].startswith(f'error[E{code}] '), errors[0])
        self.assertIn(part, errors[0])
        self.assertNotIn('step 1/', done.stderr)

    def assert_resumes_alike(self, *more):
        """From the last version that the log knows of, at least, to what a run without a break
        ends with."""
        known = self.committed()
        done = train(self.store, '--resume', '--log', self.log, *more, steps=known + 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        after = re.search(r'going on after step (\d+) of ', done.stderr)
        self.assertIn(int(after[1]), range(known, known + 3), done.stderr)
        alone = self.path('alone')
        shutil.rmtree(alone, ignore_errors=True)
        self.assertEqual(train(alone, steps=known + 3).returncode, 0)
        self.assertEqual(Store(self.store).trained(), Store(alone).trained())

    # ---- full ----

    def test_a_disk_that_fills_up_in_a_run_does_not_end_it(self):
        """All space was taken when the store was made."""
        self.make_disk(64)
        child = self.start()
        self.wait_for_commits(child, 2)
        self.fill()
        self.wait_for_commits(child, 5)
        child.send_signal(signal.SIGTERM)
        told = child.communicate(timeout=60)[1]
        self.assertEqual(child.returncode, 75, told)
        self.assert_resumes_alike()  # without a byte of room

    def test_gradients_and_activations_have_their_room_in_the_store(self):
        """Also after a kill, which frees what has no name."""
        self.make_disk(64)
        child = self.start(EVERYTHING)
        self.wait_for_commits(child, 2)
        self.fill()
        self.wait_for_commits(child, 5)
        child.kill()
        child.communicate(timeout=60)
        self.fill()
        self.assert_resumes_alike(EVERYTHING)
        self.assert_resumes_alike()  # and one that needs none keeps it
        self.assert_resumes_alike(EVERYTHING)

    def files_there(self):
        found = {}
        for name in os.listdir(self.store):
            with open(os.path.join(self.store, name), 'rb') as file:
                found[name] = file.read()
        return found

    def test_a_store_gets_room_where_there_is_some_and_is_left_as_it_was_where_not(self):
        self.make_disk(64)
        self.assertEqual(train(self.store, '--log', self.log, steps=2).returncode, 0)
        self.fill()
        before = self.files_there()
        done = train(self.store, '--resume', '--log', self.log, EVERYTHING)
        self.assert_refused(done, 301, 'Fix: free space')
        self.assertEqual(self.files_there(), before)
        self.assert_resumes_alike()
        os.unlink(os.path.join(self.disk, 'filler'))
        self.assert_resumes_alike(EVERYTHING)
        self.fill()
        self.assert_resumes_alike(EVERYTHING)

    def test_two_disks_without_room_are_resumed_too(self):
        self.make_disk(256)
        stores = ','.join(os.path.join(self.disk, name) for name in 'ab')
        self.assertEqual(train(stores, EVERYTHING, steps=2).returncode, 0)
        self.fill()
        for steps, *more in ((3, EVERYTHING), (4,)):
            done = train(stores, '--resume', *more, steps=steps)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(train(self.path('alone')).returncode, 0)
        both = Store(*stores.split(','))
        self.assertEqual(both.trained(), Store(self.path('alone')).trained())

    def test_a_disk_without_room_for_the_tables_is_refused_by_the_plan(self):
        """Weights and states would fit, twice: headers and manifests count too."""
        self.make_disk(64)
        with open(os.path.join(self.disk, 'filler'), 'wb') as file:
            status = os.statvfs(self.disk)
            os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - 20 * MIB)
        done = train(self.store)
        self.assert_refused(done, 301, 'MiB')
        self.assertNotIn('cannot be made', done.stderr)

    def kill_while_it_is_made(self, stores, *published):
        """What a start leaves that is killed then: files under their first names, but for those
        of some drives, which have got theirs."""
        self.assertEqual(train(','.join(stores), steps=1).returncode, 0)
        for drive, store in enumerate(stores):
            file = os.path.join(store, file_name(drive))
            if drive not in published:
                os.rename(file, file + '.new')

    def assert_starts_anew(self, stores, *more):
        done = train(','.join(stores), *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        for drive, store in enumerate(stores):
            self.assertEqual(os.listdir(store), [file_name(drive)])

    def test_what_a_killed_start_left_is_not_counted_against_the_next(self):
        self.make_disk(48)
        for more in (('--resume',), ()):
            self.kill_while_it_is_made([self.store])
            self.assert_starts_anew([self.store], *more)
            self.empty()
            self.kill_while_it_is_made([self.store])
            self.fill()  # not even the I/O probe has room beside it
            self.assert_starts_anew([self.store], *more)
            self.empty()

    def test_drives_that_a_killed_start_filled_are_used_again(self):
        self.make_disk(128)
        stores = [os.path.join(self.disk, name) for name in 'ab']
        for published in ((), (1,)):
            self.kill_while_it_is_made(stores, *published)
            self.fill()
            self.assert_starts_anew(stores, '--resume')
            self.empty()

    def test_a_disk_can_be_unmounted_when_a_verb_that_used_it_has_ended(self):
        self.make_disk(64)
        self.assertEqual(train(self.store).returncode, 0)
        for verb in (('ckpt', 'list'), ('ckpt', 'verify'), ('inspect',),
                     ('ckpt', 'export', '--model', MODEL, '--export', self.path('export'))):
            done = run_quietly(PROGRAM, *verb, self.store)
            self.assertEqual(done.returncode, 0, done.stderr)
            unmounted = run_quietly('umount', self.disk)
            self.assertEqual((unmounted.returncode, unmounted.stderr), (0, ''), verb)
            self.mount()
        self.assertEqual(train(self.store, '--resume', steps=5).returncode, 0)
        self.assertEqual(run_quietly('umount', self.disk).returncode, 0)

    def filled_before_the_export(self, *more):
        """Once the first step is told the disk of the export is full. -> the run, its export."""
        export = os.path.join(self.disk, 'export')
        child = subprocess.Popen(
            command(self.path('store'), f'--export={export}', '--export-dtype=fp32', *more,
                    steps=30),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in child.stderr:
            if line.startswith('step '):
                break
        child.send_signal(signal.SIGSTOP)
        self.fill()
        child.send_signal(signal.SIGCONT)
        return child, export

    def finish(self, child):
        told = child.stderr.read()
        child.stderr.close()
        return child.wait(timeout=60), told

    def test_the_export_has_its_room_before_the_first_step(self):
        self.make_disk(64)
        child, export = self.filled_before_the_export()
        code, told = self.finish(child)
        self.assertEqual(code, 0, told)
        alone = self.path('export')
        self.assertEqual(train(self.path('alone'), f'--export={alone}', '--export-dtype=fp32',
                               steps=30).returncode, 0)
        for name in os.listdir(alone):
            with open(os.path.join(alone, name), 'rb') as one, \
                    open(os.path.join(export, name), 'rb') as other:
                self.assertEqual(one.read(), other.read(), name)

    def test_room_that_nobody_can_promise_is_waited_for_until_a_signal(self):
        self.make_disk(64, '-O', '^extent,^64bit')  # without extents no room is kept
        for stopped in (True, False):
            child, export = self.filled_before_the_export('--resume')
            for line in child.stderr:
                if line.startswith('warning[W301] '):
                    break
            self.assertIn('the export waits for room, until', line)
            if stopped:
                child.send_signal(signal.SIGTERM)
            os.remove(os.path.join(self.disk, 'filler'))
            code, told = self.finish(child)
            self.assertEqual(code, 75 if stopped else 0, told)
            left = [name for name in os.listdir(self.disk) if 'export' in name]
            self.assertEqual(left, [] if stopped else ['export'])
            shutil.rmtree(self.path('store'))

    # ---- limits ----

    def set_quota(self, mib):
        """On what is below the disk's root."""
        quota = struct.pack('<8QI4x', mib * 1024, 0, 0, 0, 0, 0, 0, 0, BLOCK_LIMITS)
        device = run_quietly('findmnt', '-n', '-o', 'SOURCE', self.disk).stdout.strip()
        if LIBC.quotactl(SET_PROJECT_QUOTA, device.encode(), 7, quota):
            self.skipTest(f'quotactl: {os.strerror(ctypes.get_errno())}')

    def make_disk_with_quota(self, mib):
        self.make_disk(128, '-O', 'quota,project', '-E', 'quotatype=prjquota',
                       mount=('prjquota',))
        fd = os.open(self.disk, os.O_RDONLY)
        try:
            attributes = bytearray(28)
            fcntl.ioctl(fd, FS_IOC_FSGETXATTR, attributes)
            flags, = struct.unpack_from('<I', attributes)
            struct.pack_into('<I', attributes, 0, flags | PROJECT_INHERIT)
            struct.pack_into('<I', attributes, 12, 7)
            fcntl.ioctl(fd, FS_IOC_FSSETXATTR, bytes(attributes))
        finally:
            os.close(fd)
        self.set_quota(mib)

    def test_a_quota_is_found_before_training_and_a_store_that_fills_it_is_resumed(self):
        self.make_disk_with_quota(16)
        held = {'preexec_fn': drop_privilege_over_quotas}
        self.assert_refused(train(self.store, **held), 301, 'Fix: ')
        self.assertFalse(os.path.exists(self.store) and os.listdir(self.store))
        self.set_quota(100)
        done = train(self.store, '--log', self.log, steps=2, **held)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.set_quota(1)
        done = train(self.store, '--resume', '--log', self.log, steps=3, **held)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_resumes_alike()

    def test_a_limit_of_file_size_is_told_and_leaves_the_store(self):
        self.assert_refused(train(self.store, preexec_fn=limit_files(16 * MIB)), 105, 'ulimit -f')
        self.assertFalse(os.path.exists(self.store) and os.listdir(self.store))
        self.assertEqual(train(self.store, '--log', self.log, steps=2).returncode, 0)
        with open(os.path.join(self.store, file_name(0)), 'rb') as file:
            before = file.read()
        done = train(self.store, '--resume', '--log', self.log,
                     preexec_fn=limit_files(16 * MIB))
        self.assert_refused(done, 105, 'ulimit -f')
        with open(os.path.join(self.store, file_name(0)), 'rb') as file:
            self.assertEqual(file.read(), before)
        self.assert_resumes_alike()

    # ---- gone ----

    def shut_down(self, how):
        """What is asked of the file system from now on fails, as on a device that is gone."""
        fd = os.open(self.disk, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack('<I', how))
        except OSError as error:
            self.skipTest(f'a file system cannot be shut down here: {error}')
        finally:
            os.close(fd)

    def test_a_disk_that_vanishes_ends_the_run_and_its_last_version_is_there(self):
        for how in (SHUTDOWN_AS_IT_IS, SHUTDOWN_AND_LOSE):
            self.make_disk(64)
            child = self.start()
            self.wait_for_commits(child, 3)
            self.shut_down(how)
            told = self.assert_ends(child, '106|107')
            self.assertIn('Input/output error', told)
            self.assertIn(self.store, told)
            self.mount_again()
            self.assert_resumes_alike()
            self.must('umount', self.disk)
            os.unlink(self.log)


load_tests = by_turns

if __name__ == '__main__':
    if os.geteuid() != 0:
        print('small file systems need root')
        sys.exit(77)
    if LIBC.unshare(CLONE_NEWNS) or LIBC.mount(None, b'/', None, MS_REC | MS_PRIVATE, None):
        print('this sandbox does not allow mounts')
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
