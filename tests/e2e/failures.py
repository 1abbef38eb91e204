#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the machine can refuse a run: disk space, O_DIRECT, io_uring, permission; and a run that is
killed.

failures.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import errno
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from watch import wait_until  # noqa: E402
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from sandbox import (ALLOW, IF_ANY_BIT, IF_EQUAL, IO_URING_SETUP, LIBC, LOAD, NUMBER,  # noqa: E402
                     REFUSE_WITH, RETURN, THIRD_ARGUMENT, forbid, forbid_io_uring, forbid_o_direct,
                     install_filter, mount_tmpfs)
from short import by_turns  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
MADV_DONTFORK, MADV_DONTDUMP = 10, 16
MADVISE, FCHMOD, PRLIMIT = (28, 91, 302) if platform.machine() == 'x86_64' else (233, 52, 261)
OPENAT, COPY_FILE_RANGE = (257, 326) if platform.machine() == 'x86_64' else (56, 285)
OPENAT2, UNAME26 = 437, 0x20000


def command(store, *more, steps=2, batch=48, model=MODEL, durability='none'):
    return [
        PROGRAM,
        'train',
        '--device',
        'host',
        '--model',
        model,
        '--data',
        os.path.join(MODEL, 'tokens.bin'),
        '--store',
        store,
        '--durability',
        durability,
        '--steps',
        str(steps),
        '--seq-len',
        '24',
        '--batch-tokens',
        str(batch),
        '--place',
        'states=nvme,weights=nvme',
        *more,
    ]


def train(store, *more, model=MODEL, durability='none', **popen):
    return subprocess.run(
        command(store, *more, model=model, durability=durability),
        capture_output=True,
        text=True,
        timeout=60,
        **popen,
    )


def gvisor(tmpfile):
    """What that sandbox has not got, on a kernel of old: io_uring, O_TMPFILE, openat2 and copies
    between files by the kernel."""
    def install():
        refused = ((IO_URING_SETUP, errno.ENOSYS), (OPENAT2, errno.ENOSYS),
                   (COPY_FILE_RANGE, errno.ENOSYS))
        steps = [(LOAD, 0, 0, NUMBER)]
        for call, code in refused:
            steps += [(IF_EQUAL, 0, 1, call), (RETURN, 0, 0, REFUSE_WITH | code)]
        steps += [
            (IF_EQUAL, 0, 3, OPENAT),
            (LOAD, 0, 0, THIRD_ARGUMENT),
            (IF_ANY_BIT, 0, 1, os.O_TMPFILE & ~os.O_DIRECTORY),
            (RETURN, 0, 0, REFUSE_WITH | tmpfile),
            (RETURN, 0, 0, ALLOW),
        ]
        LIBC.personality(UNAME26)  # uname tells a kernel 2.6
        install_filter(*steps)
    return install


class Failures(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir=os.getcwd())  # a drive
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.store = os.path.join(scratch.name, 'store')

    def assert_refused(self, done, code, status):
        self.assertEqual(done.returncode, status, done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith('error[')]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertTrue(errors[0].startswith(f'error[E{code}] '), errors[0])
        self.assertIn('Fix:', errors[0])

    def needs_root(self):
        if os.geteuid() != 0:
            self.skipTest('mounting a small file system needs root')

    def mounted(self, size, *more):
        self.needs_root()
        os.mkdir(self.store)
        done = train(self.store, *more, preexec_fn=mount_tmpfs(self.store, size))
        if done.returncode == 99:
            self.skipTest('this sandbox does not allow mounts')
        return done

    def test_a_disk_that_is_too_small_is_refused_before_training(self):
        done = self.mounted('256k')
        self.assert_refused(done, 301, 1)
        self.assertNotIn('step 1/', done.stderr)

    def test_a_second_drive_that_is_full_is_refused_before_training(self):
        self.needs_root()
        second = os.path.join(self.folder, 'second')
        os.mkdir(second)
        for size, missing in (('1m', 'the I/O probe'), ('16m', 'its rate is measured')):
            done = train(f'{self.store},{second}', preexec_fn=mount_tmpfs(second, size))
            if done.returncode == 99:
                self.skipTest('this sandbox does not allow mounts')
            self.assert_refused(done, 301, 1)
            self.assertIn(f'store directory {second} has no room', done.stderr)
            self.assertIn(missing, done.stderr)
            self.assertNotIn('step 1/', done.stderr)

    def test_an_export_that_would_not_fit_is_refused_before_training(self):
        self.needs_root()
        target = os.path.join(self.folder, 'target')
        os.mkdir(target)
        done = train(
            self.store,
            '--export',
            os.path.join(target, 'model'),
            '--export-dtype=fp32',
            preexec_fn=mount_tmpfs(target, '300k'),
        )
        if done.returncode == 99:
            self.skipTest('this sandbox does not allow mounts')
        self.assert_refused(done, 301, 1)
        self.assertIn('the export needs', done.stderr)
        self.assertNotIn('step 1/', done.stderr)
        self.assertFalse(os.path.exists(self.store))

    def test_a_store_in_ram_works_and_is_warned_about(self):
        done = self.mounted('64m')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('warning[W105]', done.stderr)

    @unittest.skipIf(
        platform.machine() not in ('x86_64', 'aarch64'),
        'the filter reads the number where these two keep it',
    )
    def test_where_io_uring_is_forbidden_threads_take_over_and_say_so(self):
        done = train(self.store, preexec_fn=forbid_io_uring)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count('warning[W101]'), 1, done.stderr)
        self.assertIn('seccomp', done.stderr)

    @unittest.skipIf(
        platform.machine() not in ('x86_64', 'aarch64'),
        'the filter reads the number where these two keep it',
    )
    def test_in_a_sandbox_like_gvisor_threads_take_over_and_one_line_says_so(self):
        def weights(**popen):
            shutil.rmtree(self.store, ignore_errors=True)
            out = self.store + '.out'
            done = train(self.store, '--export', out, durability='step', **popen)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(out, 'model.safetensors'), 'rb') as file:
                return done.stderr, file.read()
        _, usual = weights()
        for tmpfile in (errno.EOPNOTSUPP, errno.EISDIR):
            told, bytes_of_export = weights(preexec_fn=gvisor(tmpfile))
            self.assertEqual(bytes_of_export, usual)
            warnings = [line for line in told.split('\n') if line.startswith('warning')]
            self.assertEqual(len(warnings), 1, told)
            self.assertRegex(warnings[0], r'^warning\[W101\] going on with threads: io_uring is '
                             r'missing \(ENOSYS at .*\): the kernel is older than 5\.1, or a '
                             r'sandbox such as gVisor\. Fix: --io threads ')
            doctor = subprocess.run(
                [PROGRAM, 'doctor', '--store', os.path.dirname(self.store), '--json'],
                capture_output=True, text=True, timeout=60, preexec_fn=gvisor(tmpfile))
            self.assertEqual(doctor.returncode, 0, doctor.stdout)
            rows = {check['name']: check for check in json.loads(doctor.stdout)['checks']}
            self.assertIn('a sandbox such as gVisor', rows['io_uring']['found'])
            self.assertIn('threads', rows['store']['found'])

    @unittest.skipIf(
        platform.machine() not in ('x86_64', 'aarch64'),
        'the filter reads the number where these two keep it',
    )
    def test_without_o_direct_the_page_cache_takes_over_and_it_is_said(self):
        done = train(self.store, preexec_fn=forbid_o_direct)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count('warning[W104] '), 1, done.stderr)
        self.assertNotIn('W104', train(self.store).stderr)

    @unittest.skipIf(
        platform.machine() not in ('x86_64', 'aarch64'),
        'the filter reads the number where these two keep it',
    )
    def test_io_uring_that_was_demanded_is_not_replaced(self):
        self.assert_refused(train(self.store, '--io', 'uring', preexec_fn=forbid_io_uring), 101, 1)

    @unittest.skipIf(
        platform.machine() not in ('x86_64', 'aarch64'),
        'the filter reads the number where these two keep it',
    )
    def test_a_call_that_a_sandbox_refuses_is_named_or_does_not_matter(self):
        for code in (errno.EPERM, errno.ENOSYS):
            for advice in (MADV_DONTFORK, MADV_DONTDUMP):
                refused = forbid(MADVISE, code, (THIRD_ARGUMENT, advice))
                done = train(self.store, preexec_fn=refused)
                self.assert_refused(done, 105, 1)
                self.assertIn(f'a sandbox refuses madvise ({os.strerror(code)})', done.stderr)
                self.assertIn('seccomp profile that allows madvise', done.stderr)
            for call in (FCHMOD, PRLIMIT):
                done = train(self.store, durability='step', preexec_fn=forbid(call, code))
                if 'Sanitizer' in done.stderr:
                    self.skipTest('sanitizers need the calls themselves')
                self.assertEqual(done.returncode, 0, done.stderr)
                shutil.rmtree(self.store)

    def test_a_limit_of_file_size_below_what_the_probe_needs_is_told_as_one(self):
        for stores in (self.store, f'{self.store},{self.store}2'):
            for limit in (1 << 20, 12 << 20):
                done = train(stores, durability='step', preexec_fn=lambda limit=limit: (
                    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
                self.assert_refused(done, 105, 1)
                self.assertRegex(done.stderr, r'a file of [\d.]+ MiB is needed, and ulimit -f '
                                 rf'allows files of {limit >> 20}\.0 MiB\. Fix: ulimit -f unl')
                self.assertNotIn('check the drive', done.stderr)
        done = train(self.store, preexec_fn=lambda: (
            resource.setrlimit(resource.RLIMIT_FSIZE, (6 << 20, 6 << 20))))
        self.assertEqual(done.returncode, 0, done.stderr)  # what little it needs without versions

    def test_a_store_directory_without_permission_is_refused(self):
        if os.geteuid() == 0:
            os.mkdir(self.store, 0o700)
            os.chmod(self.folder, 0o755)
            try:
                done = train(self.store, user=65534, group=65534, extra_groups=[])
            except PermissionError:
                self.skipTest('the program lies where an ordinary user cannot read it')
            if done.returncode in (126, 127):  # the loader's or the shell's, not the program's
                self.skipTest('the program lies where an ordinary user cannot read it')
        else:
            os.mkdir(self.store, 0o500)
            done = train(self.store)
        self.assert_refused(done, 105, 1)

    @unittest.skipIf(os.geteuid() != 0, 'needs another user, whom the limit holds')
    def test_buffers_over_memlock_go_unregistered_and_say_so(self):
        os.mkdir(self.store)
        os.chown(self.store, 65534, 65534)
        os.chmod(self.folder, 0o755)
        limit = 256 << 10
        try:
            done = train(self.store, user=65534, group=65534, extra_groups=[],
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK,
                                                               (limit, limit)))
        except PermissionError:
            self.skipTest('the program lies where an ordinary user cannot read it')
        if done.returncode in (126, 127):
            self.skipTest('the program lies where an ordinary user cannot read it')
        self.assertEqual(done.returncode, 0, done.stderr)
        if ': io_uring, ' not in done.stderr:
            self.skipTest('io_uring is refused here')
        self.assertIn('ulimit -l is 256.0 KiB', done.stderr)

    def test_a_limit_of_address_space_is_refused_where_threads_would_starve(self):
        """OpenBLAS waits for ever for memory that it cannot have: so it must not come to that."""
        for limit in (450 << 20, 600 << 20):
            done = train(
                self.store,
                '--threads',
                '2',
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            )
            if 'Sanitizer' in done.stderr:
                self.skipTest('sanitizers need more address space than the limit leaves')
            self.assert_refused(done, 302, 2)
            self.assertIn('ulimit -v', done.stderr)

    def test_a_killed_run_leaves_no_file_behind(self):
        os.mkdir(self.store)
        child = subprocess.Popen(
            command(self.store, steps=1000000),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for line in child.stderr:
            if line.startswith('step '):
                break
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stderr.close()
        self.assertEqual(os.listdir(self.store), [])

    def interrupt_after(self, lines, *signals, batch=48):
        """Signals once so many lines were told; several of them all at once, in the first step. ->
        exit code, all lines."""
        child = subprocess.Popen(
            command(self.store, '--export', self.export, '--log', self.log, steps=12,
                    batch=batch),
            stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
        told = [child.stdout.readline() for _ in range(lines)]
        if len(signals) > 1:
            wait_until(lambda: os.path.exists(self.log) and os.path.getsize(self.log) > 0,
                       self.folder, child)
            child.send_signal(signal.SIGSTOP)
        for number in signals:
            child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        told += child.stdout.readlines()
        child.stdout.close()
        return child.wait(), ''.join(told)

    def test_an_interrupt_in_any_phase_ends_the_run_and_leaves_nothing(self):
        self.export = os.path.join(self.folder, 'export')
        self.log = os.path.join(self.folder, 'log.jsonl')
        steps_done, lines, code = set(), 1, None
        while code != 0:
            code, told = self.interrupt_after(lines, signal.SIGINT)
            lines += 1
            self.assertIn(code, (0, 130), told)
            self.assertFalse(os.path.exists(self.store) and os.listdir(self.store))
            left = [name for name in os.listdir(self.folder) if 'export' in name]
            self.assertEqual(left, ['export'] if code == 0 else [], told)
            if os.path.exists(self.log):
                with open(self.log, encoding='ascii') as log:
                    self.assertTrue(all(json.loads(line) for line in log))  # whole lines
            if code == 130:
                done = re.search(r'stopped \(Interrupt\) after (\d+) of 12 steps', told)
                self.assertIsNotNone(done, told)
                steps_done.add(int(done[1]))
        self.assertIn(0, steps_done)

    def test_a_second_interrupt_does_not_wait(self):
        self.export = os.path.join(self.folder, 'export')
        self.log = os.path.join(self.folder, 'log.jsonl')
        code, told = self.interrupt_after(12, signal.SIGINT, signal.SIGTERM, batch=48000)
        self.assertEqual(code, 130, told)
        self.assertNotIn('stopped', told)
        self.assertEqual(os.listdir(self.store) if os.path.exists(self.store) else [], [])

    def test_what_is_odd_about_a_model_is_told(self):
        model = shutil.copytree(MODEL, os.path.join(self.folder, 'model'))
        for name, old, new in (
            ('config.json', '"bfloat16"', '"float32"'),
            ('model.safetensors.index.json', '"total_size": ', '"total_size": 1'),
        ):
            path = os.path.join(model, name)
            with open(path, encoding='ascii') as file:
                text = file.read()
            self.assertIn(old, text)
            with open(path, 'w', encoding='ascii') as file:
                file.write(text.replace(old, new))
        done = train(self.store, model=model)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('warning[W411] ', done.stderr)
        self.assertIn('note[I415] config.json says float32', done.stderr)
        done = train(self.store, '--quiet', model=model)
        self.assertIn('warning[W411] ', done.stderr)
        self.assertNotIn('note[', done.stderr)

    def test_weights_that_are_not_finite_stop_the_run_with_the_step_named(self):
        model = shutil.copytree(MODEL, os.path.join(self.folder, 'model'))
        with open(os.path.join(model, 'model-00002-of-00002.safetensors'), 'r+b') as file:
            file.seek(-2, os.SEEK_END)
            file.write(bytes([0xC0, 0x7F]))  # a NaN in bf16
        done = train(self.store, '--quiet', model=model)
        self.assertRegex(
            done.stderr, r'warning\[W415\] .* not a number \(1, the first in [a-z_.]+\): '
        )
        self.assert_refused(done, 701, 1)
        self.assertIn('step 1', done.stderr)
        with open(os.path.join(model, 'model-00002-of-00002.safetensors'), 'r+b') as file:
            file.seek(-2, os.SEEK_END)
            file.write(bytes([0x80, 0x47]))  # 65536 in bf16
        fp16 = ('--precision=fp16', '--loss-scale=1')
        done = train(self.store, '--quiet', *fp16, model=model)
        self.assertRegex(done.stderr, r'warning\[W415\] .* beyond 65504\) or not a number \(1, ')
        self.assert_refused(done, 701, 1)
        self.assertRegex(done.stderr, 'step 1 is .* at a loss scale of 1')
        self.assertNotIn('W415', train(self.store, '--quiet', model=model).stderr)


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
