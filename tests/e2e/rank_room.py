#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A file system that is full for one rank alone: that rank says so, all end, nothing is left half
made, and with more room the run comes to the bytes of one that was left alone.

    rank_room.py PROGRAM PROGRAM_WITH_ENDS SOURCE_ROOT PLUGIN_FOLDER [TEST...]
"""
import os
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402
from rank_lives import KINDS, End, Programs, Run, alone, all_of  # noqa: E402
from short import by_turns, some  # noqa: E402

PROGRAMS = Programs(*sys.argv[1:5])
ON_DRIVES, SCRATCH_TOO = KINDS[0], KINDS[2]
LEFT = '--place=states=nvme,weights=nvme'  # what is on drives beside gradients and activations
PLENTY = 'size=100m,nr_inodes=1000'

load_tests = by_turns


class Mounted(Run):
    """A run that sees a small file system, which nobody else does, in a directory of its folder."""
    MOUNT = 'mount -t tmpfs -o "mode=700,$1" none "$2"'

    def __init__(self, kind, name, options='', **more):
        super().__init__(PROGRAMS, kind, 2, **more)
        self.place, self.size = name, options

    def __enter__(self):
        super().__enter__()
        folder = self.path(self.place)
        os.mkdir(folder, 0o700)
        self.holder = subprocess.Popen(
            ['unshare', '-m', 'sh', '-c', f'{self.MOUNT} && echo there && exec sleep 600', 'sh',
             self.size, folder], stdout=subprocess.PIPE)
        if self.holder.stdout.readline() != b'there\n':
            self.__exit__()
            raise unittest.SkipTest('no mount of its own can be made (unshare -m)')
        return self

    def __exit__(self, *_):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()
        super().__exit__()

    def inside(self):
        return ['nsenter', '-m', f'--wd={os.getcwd()}', '-t', str(self.holder.pid)]

    def begin(self, *more, end=None):
        return self.start('--resume', *more, end=end,
                          launcher=[*self.inside(), *mpi.launcher(self.ranks)])

    def there(self, *words):
        """Runs a command that sees it. -> what it says"""
        done = subprocess.run([*self.inside(), *words], capture_output=True, text=True, check=True,
                              timeout=30)
        return done.stdout

    def has_now(self, options):
        self.there('mount', '-o', f'remount,{options}', self.path(self.place))

    def lies_there(self):
        return sorted(self.there('ls', '-A', self.path(self.place)).split())

    def sums_there(self):
        """Of the files of an export."""
        told = self.there('sh', '-c', 'cd "$0/export" && sha256sum *', self.path(self.place))
        return {name: digest for digest, name in (line.split() for line in told.splitlines())}


class Exporting(Mounted):
    """Where no room can be reserved, so that others may take it while the run goes on."""
    MOUNT = ('truncate -s 16M "$2.ext4" && mkfs.ext4 -q -O ^extent,^64bit,^has_journal "$2.ext4" '
             '&& mount -o loop "$2.ext4" "$2" && rmdir "$2/lost+found"')

    def options(self, *more, limit_s=None):
        words = super().options(*more, limit_s=limit_s)
        words[words.index('--export') + 1] = os.path.join(self.path(self.place), 'export')
        return words

    def fill(self):
        self.there('sh', '-c', 'cat /dev/zero > "$0/filler" || true', self.path(self.place))

    def free(self):
        self.there('rm', os.path.join(self.path(self.place), 'filler'))


class Full(unittest.TestCase):
    maxDiff = None

    def lives(self, run, status=0, *more):
        """-> what was said by a life with that status."""
        got = run.wait_until_gone(run.begin(*more), time.monotonic(), 60)
        told = run.read('stderr')
        self.assertEqual(got, status, told)
        return told

    def told_once(self, told, rank, words):
        who = '' if rank == 0 else rf'rank {rank} \([^)]+\): '
        self.assertRegex(told, rf'(?m)^{who}error\[E301\] {words}')
        self.assertEqual(len(mpi.errors_of(told)), 1, told)

    def begins(self, rank, kind, options, words, *more, teller=None):
        """A first life that has too little room, and one that has more."""
        with Mounted(kind, f'store{rank}', options, apart=True) as run:
            told = self.lives(run, 1, *more)
            self.told_once(told, rank if teller is None else teller, words)
            self.assertEqual(run.lies_there(), [])
            run.has_now(PLENTY)
            self.lives(run, 0, *more)
            self.assertEqual(run.came_to(), alone(PROGRAMS, kind))

    def test_a_store_that_has_no_place_on_one_rank(self):
        """What all see in their plan rank 0 tells, with the rank's number."""
        rows = []
        for rank in (1, 0):
            rows += [
                (rank, SCRATCH_TOO, 'size=100m,nr_inodes=2', rf'[^\n]*/store{rank}/r0000{rank}.d0'
                 r'\.scratch cannot have [^\n]*: No space left on device'),
                (rank, ON_DRIVES, 'size=100m,nr_inodes=1', rf'store directory [^\n]*/store{rank} '
                 'has no room for the few MiB of the I/O probe'),
                (rank, ON_DRIVES, 'size=1m', rf'--nvme is 50.0 MiB for the node.s 2 ranks, '
                 rf'25.0 MiB for each, but [^\n]*/store{rank} has 1.0 MiB free for it',
                 '--nvme=50M'),
            ]
        all_of(self, self.begins, some(rows, 3))
        for rank in some((1, 0), 2):
            self.begins(rank, ON_DRIVES, 'size=256k', 'the store needs [^\n]* for the node.s 2 '
                        rf'ranks, its budget is [\d.]+ KiB \(rank {rank} has the least\)',
                        teller=0)

    def goes_on(self, rank):
        """A resume wants more than there was, and finds a drive that others have filled."""
        with Mounted(SCRATCH_TOO, f'store{rank}', PLENTY, apart=True) as run:
            all_steps, run.steps = run.steps, 2
            run.kind = (SCRATCH_TOO[0], LEFT)
            self.lives(run)
            run.steps, run.kind = all_steps, SCRATCH_TOO
            run.has_now('size=100m,nr_inodes=2')  # it has both by now
            self.told_once(self.lives(run, 1), rank, rf'store directory [^\n]*/store{rank} has no '
                           'room for the few MiB of the I/O probe: No space left on device')
            self.assertEqual(run.lies_there(), [f'r0000{rank}.d0.blk'])
            run.has_now(PLENTY)
            self.assertIn('going on after step 2', self.lives(run))
            self.assertEqual(run.came_to(), alone(PROGRAMS, SCRATCH_TOO))

    def test_a_resume_that_has_no_room_on_one_rank_changes_nothing(self):
        all_of(self, self.goes_on, [(rank,) for rank in some((1, 0), 2)])

    def test_an_export_that_has_no_room_ends_all_with_what_was_committed(self):
        with Exporting(ON_DRIVES, 'out') as run:
            child = run.begin(end=End('stop', 0, 'agree', 3))
            run.wait_for_mark(child)
            process, = run.processes()[:1]
            run.fill()
            os.kill(process, signal.SIGCONT)
            status = run.wait_until_gone(child, time.monotonic(), 60)
            told = run.read('stderr')
            self.assertEqual(status, 1, told)
            self.told_once(told, 0, r'[^\n]*/export: model.safetensors cannot be written: No ')
            self.assertEqual(run.committed(), run.steps)
            self.assertEqual(run.lies_there(), ['filler'])
            run.free()
            self.lives(run)
            self.assertEqual(run.lies_there(), ['export'])
            self.assertEqual(run.sums_there(), alone(PROGRAMS, ON_DRIVES)[1])

    def test_an_export_that_has_none_at_once_is_refused_before_the_first_step(self):
        with Exporting(ON_DRIVES, 'out') as run:
            run.fill()
            told = self.lives(run, 1)
            self.told_once(told, 0, r'[^\n]*/export: the export needs [\d.]+ KiB, the disk has ')
            self.assertEqual(run.lines('step'), [])


if __name__ == '__main__':
    if PROGRAMS.missing():
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    if os.geteuid() != 0:
        print('file systems are mounted by root alone')
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
