#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each way in which a store can be bad, made from a good one: what a resumed run says, the code it
ends with, and that a refusal changes no byte.

bad_stores.py PATH_OF_HOISTWAY SOURCE_ROOT [all]      all: with what takes half a minute
"""

import fcntl
import hashlib
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), above)
                for above in ('..', '../..')]
from short import some  # noqa: E402
from store_bytes import BLOCK, PAGE, Store, file_name, sealed  # noqa: E402

PROGRAM, ROOT, ALL = sys.argv[1], sys.argv[2], len(sys.argv) > 3
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
STEPS = 3


class Case:
    """A copy of the good store, in its directories a and b."""

    def __init__(self, folder):
        self.folder = folder
        self.directories = [os.path.join(folder, name) for name in 'ab']
        self.named = self.directories
        self.options = []
        self.store = Store(*self.directories)

    def path(self, drive, name=None):
        return os.path.join(self.directories[drive], name or file_name(drive))

    def rename(self, drive, name):
        os.rename(self.path(drive), self.path(drive, name))

    def with_names(self, *drives):
        self.named = [self.directories[drive] for drive in drives]


def replace_with(content):
    def change(case):
        with open(case.path(0), 'wb') as file:
            file.write(content)
    return change


def forge_header(drive, field_at, form, *values):
    return lambda case: case.store.forge_header(drive, field_at, struct.pack(form, *values))


def forge_entry(index, name, value):
    def put(entry):
        setattr(entry, name, value(entry) if callable(value) else value)
    return lambda case: case.store.forge_entry(index, put)


def overlap(case):
    first = case.store.entries()[0]
    forge_entry(1, 'offset', first.offset)(case)


def forge_counts(case):
    def put(manifest):
        manifest[96:100] = struct.pack('<I', 0xfffffffe)
    case.store.forge_manifest(put)


def resize(drive, by):
    return lambda case: os.truncate(case.path(drive), os.path.getsize(case.path(drive)) + by)


def damage_superblocks(*places):
    """places: 'newest', 'other'; both copies of each."""
    def change(case):
        for place in places:
            slot = case.store.place ^ (place == 'other')
            for copy in range(2):
                case.store.damage(0, case.store.superblock_at(slot, copy))
    return change


def damage_version(case, *before):
    """A byte of states of the committed version (0), and of the one before (1)."""
    entry = case.store.entry('states', 1)
    for back in before:
        at = entry.offset + (entry.slot ^ back) * case.store.slot_bytes_of(entry.drive)
        case.store.damage(entry.drive, at + 5000, 1)


def killed(*changes):
    """A store that was not closed, and then changed."""
    def change(case):
        case.store.forge_kill()
        for each in changes:
            each(case)
    return change


def other_store(drive):
    """The same drive's file of another run with the same options."""
    def change(case):
        shutil.copyfile(os.path.join(case.folder, '..', 'other', 'ab'[drive], file_name(drive)),
                        case.path(drive))
    return change


def room_page(major=1, order='<', drives=2, behind=b''):
    page = struct.pack(order + '8sIHH16xII16x', b'HSTROOMS', 0x01020304, major, 0, drives, 0)
    return sealed((page + behind).ljust(PAGE, b'\0'), 0)


def room_of(drive, content, mode=0o600):
    """Something that has the name of a drive's room for scratch, and a run that wants room."""
    def change(case):
        case.options.append('--place=states=nvme,weights=nvme,grads=nvme,acts=nvme')
        path = case.path(drive, f'r00000.d{drive}.scratch')
        with open(path, 'wb') as file:
            file.write(content)
        os.chmod(path, mode)
    return change


def room_elsewhere(case):
    room_of(0, b'')(case)
    os.rename(case.path(0, 'r00000.d0.scratch'), case.path(0, 'thesis'))
    os.symlink('thesis', case.path(0, 'r00000.d0.scratch'))


def symlink_file(case):
    case.rename(0, 'real')
    os.symlink('real', case.path(0))


def symlink_directory(case):
    link = os.path.join(case.folder, 'link')
    os.symlink('a', link)
    case.named = [link, case.directories[1]]


def symlink_directory_and_slash(case):
    symlink_directory(case)
    case.named[0] += '/'


def in_its_place(make):
    def change(case):
        os.unlink(case.path(1))
        make(case.path(1))
    return change


def make_socket(path):
    at = os.getcwd()
    os.chdir(os.path.dirname(path))  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.basename(path))
    finally:
        os.chdir(at)


def make_device(path):
    if os.geteuid() != 0:
        raise unittest.SkipTest('only root can make a device')
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))


def give_away(case):
    if os.geteuid() != 0:
        raise unittest.SkipTest('only root can give a file away')
    os.chown(case.path(1), 12345, -1)


def options(*more):
    return lambda case: case.options.extend(more)


def never_committed(case):
    for drive in range(2):
        case.rename(drive, file_name(drive) + '.new')


def stranger(name):
    def change(case):
        never_committed(case)
        with open(case.path(0, name), 'wb') as file:
            file.write(b'somebody')
    return change


# number of the bad input, behind those of tests/hostile; what is done to the store; exit code;
# error code; part of the line
REFUSED = (
    (59, 'random bytes', replace_with(os.urandom(100000)), 1, 612, 'no file of a store'),
    (59, 'an empty file', replace_with(b''), 1, 612, 'too short'),
    (59, 'a file of zeros', replace_with(bytes(1 << 20)), 1, 612, 'no file of a store'),
    (59, 'a directory with something else', stranger('thesis.tex'), 2, 616,
     'thesis.tex is not a store'),
    (59, "a stranger's file with our name", stranger(file_name(0) + '.new'), 2, 616,
     'has the name of a store'),
    (59, "somebody's file with the name of room", room_of(1, b'somebody' * 600), 1, 612,
     'no room of a store'),
    (60, 'room of a newer format', room_of(0, room_page(2)), 1, 612, 'another version'),
    (61, 'room of the other byte order', room_of(1, room_page(order='>')), 1, 612,
     'the other byte order'),
    (60, 'room of which a bit was lost', room_of(0, room_page()[:-1] + b'\1'), 1, 612,
     'its checksum'),
    (65, 'room of nine drives', room_of(1, room_page(drives=9)), 1, 612, 'its number of drives'),
    (65, 'room with more in its page', room_of(1, room_page(behind=b'x')), 1, 612,
     'bytes behind its fields'),
    (68, 'room that others can read', room_of(0, room_page(), 0o644), 1, 610, 'mode 0644'),
    (68, 'a link in the place of room', room_elsewhere, 1, 610, 'symbolic link'),
    (60, 'a newer format', forge_header(1, 12, '<H', 2), 1, 612, 'another version'),
    (60, 'an older format', forge_header(0, 12, '<H', 0), 1, 612,
     'the version of hoistway that wrote it'),
    (60, 'an unknown feature', forge_header(0, 64, '<I', 1 << 31), 1, 612,
     'feature that this version does not know'),
    (61, 'the other byte order', forge_header(0, 8, '>I', 0x01020304), 1, 612,
     'the other byte order'),
    (62, 'another world size', forge_header(0, 48, '<5I', 0, 4, 0, 2, 1), 1, 613,
     'is of 4 ranks, and no rank finds'),
    (62, "another rank's file", forge_header(1, 48, '<5I', 1, 2, 1, 2, 1), 1, 613, 'rank 1 of 2'),
    (62, 'ranks that have whole tiles', forge_header(0, 52, '<I', 4), 1, 612,
     'its ranks have whole tiles'),
    (62, 'a file that is missing', lambda case: os.unlink(case.path(1)), 1, 613, 'is missing'),
    (62, 'files of two stores', other_store(1), 1, 613, 'of another store'),
    (62, 'one directory of two', lambda case: case.with_names(0), 1, 613, 'drive 0 of 2'),
    (62, 'the other directory of two', lambda case: case.with_names(1), 1, 613,
     'is named as directory 1 of 1, and holds r00000.d1.blk'),
    (63, 'the newest superblock, and the version before is not whole',
     killed(damage_superblocks('newest'), lambda case: damage_version(case, 1)), 1, 614,
     'no version that is whole (optimizer states of tile 1, at offset '),
    (63, 'both versions', killed(lambda case: damage_version(case, 0, 1)), 1, 614,
     'no version that is whole (optimizer states of tile 1, at offset '),
    (64, 'all superblocks', damage_superblocks('newest', 'other'), 1, 614,
     'no superblock that is whole'),
    (65, 'an extent outside its zone', forge_entry(0, 'offset', 1 << 40), 1, 614,
     'no manifest that is whole'),
    (65, 'an extent before its zone', forge_entry(0, 'offset', 0), 1, 614, 'no manifest'),
    (65, 'extents that overlap', overlap, 1, 614, 'no manifest'),
    (65, 'an extent of 4 GiB', forge_entry(2, 'bytes', 0xfffff000), 1, 614, 'no manifest'),
    (65, 'hashes of another extent', forge_entry(1, 'first_block', lambda e: e.first_block + 1),
     1, 614, 'no manifest'),
    (65, 'a third slot', forge_entry(1, 'slot', 2), 1, 614, 'no manifest'),
    (65, 'a drive that is not there', forge_entry(1, 'drive', 7), 1, 614, 'no manifest'),
    (65, 'a version to come', forge_entry(1, 'version', 1 << 62), 1, 614, 'no manifest'),
    (65, 'more extents than there are', forge_counts, 1, 614, 'no manifest'),
    (66, 'a file that was cut', resize(0, -PAGE), 1, 613, 'and its header says'),
    (66, "the second drive's file, cut", resize(1, -BLOCK), 1, 613, 'and its header says'),
    (66, 'a file that grew', resize(1, PAGE), 1, 613, 'and its header says'),
    (68, 'a link to a file', symlink_file, 1, 610, 'symbolic link'),
    (68, 'a link to the directory', symlink_directory, 1, 610, 'symbolic link'),
    (68, 'a second name', lambda case: os.link(case.path(0), os.path.join(case.folder, 'name')),
     1, 610, '2 names'),
    (68, 'a link to the directory, and a slash', symlink_directory_and_slash, 1, 610,
     'symbolic link'),
    (68, 'a FIFO', in_its_place(os.mkfifo), 1, 610, 'is a FIFO, where a store has a file'),
    (68, 'a socket', in_its_place(make_socket), 1, 610, 'is a socket, where a store has a file'),
    (68, 'a device', in_its_place(make_device), 1, 610, 'is a device, where a store has a file'),
    (68, 'a folder', in_its_place(os.mkdir), 1, 610, 'is a directory, where a store has a file'),
    (68, 'a file that others can read', lambda case: os.chmod(case.path(0), 0o644), 1, 610,
     'mode 0644'),
    (68, 'a directory that others can enter', lambda case: os.chmod(case.directories[1], 0o711),
     1, 610, 'mode 0711'),
    (68, "another user's file", give_away, 1, 610, 'user 12345'),
    (70, 'another precision', options('--precision=bf16'), 2, 615,
     'trained with precision fp32, this run has precision bf16.'),
    (70, 'another optimizer', options('--weight-decay=0.5'), 2, 615,
     'trained with weight-decay 0.01, this run has weight-decay 0.5.'),
    (70, 'another seed', options('--seed=7'), 2, 615, "'seed 0', this run has 'seed 7'"),
    (70, 'another learning rate', options('--lr=1e-4'), 2, 615, 'or --allow-config-change'),
    (70, 'another model', options(f'--model={ROOT}/tests/golden/tied-gqa'), 2, 615,
     'trained with parameters 134592 (digest '),
    (71, 'directories in the other order', lambda case: case.with_names(1, 0), 1, 613,
     'holds r00000.d1.blk, the file of directory 2'),
    (71, 'files in the other directories', lambda case: [
        os.rename(case.path(0), case.path(1, file_name(0))),
        os.rename(case.path(1), case.path(0, file_name(1)))], 1, 613,
     'in the order of their files (d0, d1, ...)'),
)  # fmt: skip

# row; what is done; the step that is gone on from; what is said
SURVIVED = (
    (59, 'leftovers of an unfinished format', never_committed, 0, 'holds no version yet'),
    (63, 'nothing, but it was killed', killed(), STEPS, 'note[I621] '),
    (63, 'the newest superblock', killed(damage_superblocks('newest')), STEPS - 1,
     'warning[W614] a superblock of the store is damaged'),
    (63, 'the superblock before', killed(damage_superblocks('other')), STEPS,
     'warning[W614] a superblock of the store is damaged'),
    (63, 'the mark of an orderly end', damage_superblocks('newest'), STEPS,
     'warning[W614] a superblock of the store is damaged'),
    (63, "the newest version's manifest", killed(lambda case: [
        case.store.damage(0, case.store.manifest_at(copy)) for copy in range(2)]), STEPS - 1,
     f'warning[W614] the newest version of the store, of step {STEPS}, is damaged: going on from '
     f'the one before, of step {STEPS - 1}, '),
    (63, 'the newest version', killed(lambda case: damage_version(case, 0)), STEPS - 1,
     f'warning[W614] the newest version of the store, of step {STEPS}, is damaged: going on from '
     f'the one before, of step {STEPS - 1}, '),
    (64, 'one copy of each superblock',
     lambda case: [case.store.damage(0, case.store.superblock_at(slot, slot))
                   for slot in range(2)], STEPS, 'going on after'),
    (65, 'one copy of the manifest',
     lambda case: case.store.damage(0, case.store.manifest_at(0)), STEPS, '1 damaged copies'),
    (60, 'one copy of a header', lambda case: case.store.damage(1, 0), STEPS, '1 damaged copies'),
)  # fmt: skip


def tree(folder):
    """Names, kinds, modes and bytes."""
    seen = {}
    for at, _, names in os.walk(folder):
        seen[at] = os.lstat(at).st_mode
        for name in names:
            path = os.path.join(at, name)
            status = os.lstat(path)
            seen[path] = (status.st_mode, status.st_size)
            if stat.S_ISREG(status.st_mode):
                with open(path, 'rb') as file:
                    seen[path] += (hashlib.sha256(file.read()).digest(),)
    return seen


def command(directories, export, *more, steps=STEPS, model=MODEL):
    names = [m.split('=')[0] for m in more]
    given = {'--model': model, '--lr': '1e-3', '--place': 'states=nvme,weights=nvme',
             '--store': ','.join(directories), '--export': export, '--export-dtype': 'fp32'}
    line = [PROGRAM, 'train', '--device=host', f'--data={MODEL}/tokens.bin', f'--steps={steps}',
            '--seq-len=24', '--batch-tokens=48', '--durability=step', '--quiet']
    return line + [f'{key}={value}' for key, value in given.items() if key not in names] + [*more]


class BadStores(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(dir='.')
        cls.addClassCleanup(cls.scratch.cleanup)
        for name, steps in (('good', STEPS), ('other', STEPS), ('later', STEPS + 2)):
            folder = os.path.join(cls.scratch.name, name)
            os.mkdir(folder)
            subprocess.run(
                command([os.path.join(folder, d) for d in 'ab'], os.path.join(folder, 'export'),
                        steps=steps), check=True, capture_output=True, timeout=60)

    def case(self):
        folder = tempfile.mkdtemp(dir=self.scratch.name)
        for name in 'ab':
            shutil.copytree(os.path.join(self.scratch.name, 'good', name),
                            os.path.join(folder, name))
        return Case(folder)

    def resume(self, case, steps, **popen):
        return subprocess.run(
            command(case.named, os.path.join(case.folder, 'export'), '--resume', *case.options,
                    steps=steps), capture_output=True, text=True, timeout=120, check=False,
            **popen)

    def refuse(self, row, what, change, status, code, part):
        case = self.case()
        with self.subTest(row=row, what=what):
            change(case)
            before = tree(case.folder)
            done = self.resume(case, STEPS + 2)
            errors = [line for line in done.stderr.splitlines() if line.startswith('error[')]
            self.assertEqual(len(errors), 1, done.stderr)
            self.assertTrue(errors[0].startswith(f'error[E{code}] '), errors[0])
            self.assertIn(part, errors[0])
            self.assertIn('Fix: ', errors[0])
            self.assertEqual(done.returncode, status)
            self.assertEqual(tree(case.folder), before)
        shutil.rmtree(case.folder)

    def test_what_is_bad_is_refused_and_left_as_it_was(self):
        for row in some(REFUSED, 8):
            self.refuse(*row)

    def assert_ended_alike(self, case):
        later = Store(*(os.path.join(self.scratch.name, 'later', name) for name in 'ab'))
        self.assertEqual(Store(*case.directories).trained(), later.trained())

    def test_what_can_be_made_good_again_ends_as_if_it_had_not_been(self):
        for row, what, change, step, said in some(SURVIVED, 4):
            case = self.case()
            with self.subTest(row=row, what=what):
                change(case)
                line = command(case.named, os.path.join(case.folder, 'export'), '--resume',
                               steps=STEPS + 2)
                line.remove('--quiet')
                done = subprocess.run(line, capture_output=True, text=True, timeout=60,
                                      check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(said, done.stderr)
                if step > 0:
                    self.assertIn(f'going on after step {step} of ', done.stderr)
                self.assert_ended_alike(case)
            shutil.rmtree(case.folder)

    def test_ckpt_tells_of_a_version_that_is_not_the_newest(self):
        case = self.case()
        case.store.forge_kill()
        for copy in range(2):
            case.store.damage(0, case.store.manifest_at(copy))

        def ckpt(verb, *more):
            return subprocess.run([PROGRAM, 'ckpt', verb, *case.named, *more], text=True,
                                  capture_output=True, timeout=60, check=False)
        out = os.path.join(case.folder, 'out')
        for verb, more, status in (
                ('verify', (), 65),
                ('export', ('--model', MODEL, '--export', out + 'e'), 0),
                ('reshard', ('--world=2', '--out', out), 0)):
            done = ckpt(verb, *more)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(f'warning[W614] the newest version of the store, of step {STEPS}, is '
                          f'damaged: this is the one before, of step {STEPS - 1}\n', done.stderr)
            self.assertIn(f'step {STEPS - 1}', done.stdout)
        told = json.loads(ckpt('verify', '--json').stdout)
        self.assertEqual((told['complete'], told['versions'][0]['stepped_back']), (False, True))
        self.assertEqual(json.loads(ckpt('list', '--json').stdout)['versions'][0]['state'],
                         'newest damaged')

    def test_damage_is_found_in_the_run_before_an_update_sees_it(self):
        """Row 67: the store was closed in order, so its bytes are compared as they are read."""
        case = self.case()
        damage_version(case, 0)
        entry = case.store.entry('states', 1)
        good = [case.store.extent(e) for e in case.store.entries()]
        done = self.resume(case, STEPS + 2)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr,
                         rf'error\[E614\] reading optimizer states, tile 1, at offset '
                         rf'{case.store.offset_of(entry)} .* of {case.path(entry.drive)} failed: ')
        self.assertEqual([case.store.extent(e) for e in case.store.entries()], good)
        self.assertEqual(Store(*case.directories).step, STEPS)
        self.refuse_again(case, entry)

    def refuse_again(self, case, entry):
        before = tree(case.folder)
        done = self.resume(case, STEPS + 2)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f'at offset {case.store.offset_of(entry)} of {file_name(entry.drive)}',
                      done.stderr)
        self.assertEqual(tree(case.folder), before)

    def start_beside_a_lock(self, case, drive):
        """-> the process, once it says that it waits for the store; the lock."""
        lock = os.open(case.path(drive), os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        line = command(case.named, os.path.join(case.folder, 'export'), '--resume',
                       steps=STEPS + 2)
        line.remove('--quiet')
        child = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = ''
        while 'warning[W611] ' not in said:
            said = child.stderr.readline()
            self.assertNotEqual(said, '')
        self.assertIn(f'{file_name(drive)} is in use by another process: waiting for it, ', said)
        return child, lock

    def test_what_a_killed_run_still_has_under_way_is_waited_for(self):
        """Row 69: its requests hold the lock until the drive has answered them."""
        for drive in range(2):
            case = self.case()
            child, lock = self.start_beside_a_lock(case, drive)
            os.close(lock)
            _, told = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 0, told)
            self.assert_ended_alike(case)

    @unittest.skipUnless(ALL, 'waits for the lock as long as a run does: half a minute')
    def test_a_run_beside_another_is_refused(self):
        """Row 69."""
        case = self.case()
        before = tree(case.folder)
        child, lock = self.start_beside_a_lock(case, 1)
        _, told = child.communicate(timeout=120)
        os.close(lock)
        self.assertEqual(child.returncode, 1, told)
        self.assertIn('error[E611] ', told)
        self.assertIn('is in use by another process', told)
        self.assertEqual(tree(case.folder), before)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
