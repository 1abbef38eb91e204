#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ckpt by ranks, each of which reads the files that it finds: what it tells and writes is what one
process does that has all of them in one folder.

    rank_ckpt.py PROGRAM PROGRAM_WITH_ENDS SOURCE_ROOT PLUGIN_FOLDER [TEST...]
"""
import json
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
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402
from rank_lives import End, Programs, Run, namespaces  # noqa: E402
from short import by_turns  # noqa: E402
from store_bytes import Store  # noqa: E402

PROGRAMS = Programs(*sys.argv[1:5])
KIND = ('--place=states=nvme,weights=nvme',)
ROOM_FOR_ONE = "3m"
KEEPS = ('--keep=1', '--keep-every=1')
STEPS = 2


def files_in(folder):
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), 'rb') as file:
                found[os.path.relpath(os.path.join(root, name), folder)] = file.read()
    return found


class Done:
    def __init__(self, status, stdout, stderr):
        self.status, self.stdout = status, stdout
        self.stderr = re.sub(r'(?ms)^-{60,}$.*?^-{60,}$\n', '', stderr)  # mpirun's own words


class Case(unittest.TestCase):
    nodes = None

    def begin(self, *kind, apart=False, nodes=False, precision='fp32'):
        """A run of four ranks that has ended."""
        kind = (f'--precision={precision}', *KIND, *kind)
        self.run_ = Run(PROGRAMS, kind, 4, steps=STEPS, apart=apart)
        self.addCleanup(self.run_.__exit__)
        self.run_.__enter__()
        if nodes:
            self.nodes = namespaces(PROGRAMS)(self, drive=self.run_.store)
            self.addCleanup(self.nodes.__exit__)
            self.nodes.__enter__()
        child = self.run_.start(nodes=self.nodes)
        self.assertEqual(child.wait(120), 0, self.run_.read('stderr'))

    def path(self, name):
        return self.run_.path(name)

    def together(self, *folders):
        """The files of all ranks in one folder."""
        for folder in folders:
            shutil.copytree(folder, self.path('all'), dirs_exist_ok=True)
        os.chmod(self.path('all'), 0o700)
        return self.path('all')

    def start(self, ranks, *words, end=None, on_nodes=None):
        program = PROGRAMS.with_ends if end else PROGRAMS.program
        env, under = self.run_.environment(end, 1), mpi.launcher(ranks)
        if os.path.exists(self.run_.mark):
            os.unlink(self.run_.mark)
        if self.nodes:
            under = self.nodes.command(on_nodes or [ranks // 2] * 2)[:-1]
            under += [word for name in sorted(env) if name.startswith('HOISTWAY_END')
                      for word in ('-x', name)]
            env.update(self.nodes.environment(), OMPI_MCA_odls_base_sigkill_timeout='1')
        return subprocess.Popen([*under, program, 'ckpt', *words], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=env)

    def ranks(self, ranks, *words, **more):
        child = self.start(ranks, *words, **more)
        out, told = child.communicate(timeout=60)
        return Done(child.returncode, out, told)

    def alone(self, *words):
        done = subprocess.run([PROGRAMS.program, 'ckpt', *words], capture_output=True, text=True,
                              timeout=60, env=self.run_.environment(), check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def same(self, ranks, what, folder, *more, status=0, on_nodes=None):
        """What ranks tell is what one process does, but for the names of folders."""
        done = self.ranks(ranks, what, self.run_.store, *more, on_nodes=on_nodes)
        one = self.alone(what, folder, *more)
        self.assertEqual((done.status, one.status), (status, status), done.stderr + one.stderr)
        plain = re.sub(r'[\w-]+:' + re.escape(self.run_.folder) + r'/[^/ ]*/r', f'{folder}/r',
                       done.stdout).replace(self.run_.store, folder)
        self.assertEqual(plain, one.stdout)
        return done

    def exports(self, ranks, folder, *more, on_nodes=None):
        model = ('--model', PROGRAMS.model, *more)
        for out, done in (('x', self.ranks(ranks, 'export', self.run_.store, '--export',
                                           self.path('x'), *model, on_nodes=on_nodes)),
                          ('y', self.alone('export', folder, '--export', self.path('y'), *model))):
            self.assertEqual(done.status, 0, done.stderr)
            self.assertIn(f'to {self.path(out)}\n', done.stdout)
        self.assertEqual(files_in(self.path('x')), files_in(self.path('y')))
        shutil.rmtree(self.path('x'))
        shutil.rmtree(self.path('y'))

    def spoil(self, file):
        """One byte of the weights in a rank's file is another one then."""
        done = self.alone('export', self.path('all'), '--model', PROGRAMS.model, '--export',
                          self.path('whole'), '--export-dtype=fp32')
        self.assertEqual(done.status, 0, done.stderr)
        with open(os.path.join(self.path('whole'), 'model.safetensors'), 'rb') as whole:
            weights = whole.read()
        shutil.rmtree(self.path('whole'))
        with open(file, 'r+b') as there:
            content = there.read()
            places = (content.find(weights[at:at + 64]) for at in range(len(weights) // 2,
                                                                        len(weights) - 64, 64))
            at = next(place for place in places if place > 0)
            there.seek(at)
            there.write(bytes([content[at] ^ 1]))

    def refused(self, status, words, *more, **kind):
        done = self.ranks(*more, **kind)
        self.assertEqual(done.status, status, done.stderr)
        self.assertRegex(done.stderr, words)
        self.assertEqual(len(mpi.errors_of(done.stderr)), 1, done.stderr)
        return done


class Numbers(Case):
    """One node, with a directory of each rank's own."""

    def all(self):
        return self.together(*(self.path(f'store{rank}') for rank in range(4)))

    def test_what_ranks_tell_is_what_one_process_does(self):
        self.begin(*KEEPS, apart=True)
        folder = self.all()
        for ranks in (1, 2, 4):
            self.same(ranks, 'list', folder, '--json')
            self.same(ranks, 'verify', folder, '--json')
        self.same(3, 'verify', folder)
        self.exports(2, folder)
        self.exports(4, folder, '--export-dtype=bf16', f'--version={STEPS}')

    def test_damage_is_told_with_its_place(self):
        self.begin(apart=True)
        folder = self.all()
        self.spoil(self.path('store2/r00002.d0.blk'))
        shutil.copy(self.path('store2/r00002.d0.blk'), folder)
        model = ('--model', PROGRAMS.model)
        done = self.same(2, 'verify', folder, *model, status=65)
        self.assertRegex(done.stdout, r'damaged: weights of tile \d+ \(.*\): [\w-]+:/.*/store2/'
                                      r'r00002\.d0\.blk, offset ')
        done = self.same(4, 'verify', folder, '--json', *model, status=65)
        self.assertEqual(json.loads(done.stdout)['damaged_blocks'], 1)
        self.refused(1, r'E614\] .* damaged: weights of tile \d+, at offset \d+ of .*store2', 4,
                     'export', self.run_.store, *model, '--export', self.path('x'))
        self.assertEqual([n for n in os.listdir(self.run_.folder) if 'x' in n.split('.')], [])
        for out in 'x{rank}', 'x':
            self.refused(1, r'E614\] rank [12] .* damaged: weights of tile .*store2', 4, 'reshard',
                         self.run_.store, '--world=3', '--out', self.path(out))
            self.assertEqual([n for n in os.listdir(self.run_.folder) if n.startswith('x')], [])

    def test_what_is_wrong_is_told_once(self):
        self.begin(apart=True)
        verify = ('verify', self.run_.store)
        os.rename(self.path('store3'), self.path('kept'))
        self.refused(65, r'E613\] .* is of 4 ranks, and no rank finds r00003\.d0\.blk\. Fix: ', 4,
                     *verify)
        os.rename(self.path('kept'), self.path('store3'))
        for rank, file in ((3, 'store3/r00003.d0.blk'), (2, 'store2/r00002.d0.blk')):
            os.rename(self.path(file), self.path(f'store0/r0000{rank}.d0.blk'))
            self.refused(65, rf"E613\] .*/store0/r0000{rank}\.d0\.blk is rank {rank}'s file, in "
                             r'the directory of rank 0\. Fix: ', 2, *verify)
            os.rename(self.path(f'store0/r0000{rank}.d0.blk'), self.path(file))
        for rank in range(4):
            os.rename(self.path(f'store{rank}/r0000{rank}.d0.blk'), self.path(f'kept{rank}'))
        os.rename(self.path('kept3'), self.path('store0/r00003.d0.blk'))  # which is all there is
        self.refused(65, r"E613\] .*/store0/r00003\.d0\.blk is rank 3's file, in ", 2, *verify)
        os.rename(self.path('store0/r00003.d0.blk'), self.path('kept3'))
        for rank in range(4):
            os.rename(self.path(f'kept{rank}'), self.path(f'store{rank}/r0000{rank}.d0.blk'))
        self.refused(1, r'E617\] .* holds no version on any of 2 ranks', 2, 'list',
                     self.path('none{rank}'))
        self.refused(2, r'E402\] --store has \{name\}', 2, 'list', self.path('none{name}'))
        self.refused(2, r'E503\] ranks do not agree: what is asked is ', 1, *verify, ':', '-n', '1',
                     PROGRAMS.program, 'ckpt', 'list', self.run_.store)
        self.refused(65, r'E613\] rank 1 .*: the store has files in 1 directory, and .* names 2', 1,
                     *verify, ':', '-n', '1', PROGRAMS.program, 'ckpt', 'verify',
                     f'{self.run_.store},{self.run_.store}')
        alone = self.alone(*verify)
        self.assertEqual(alone.status, 2)
        self.assertRegex(alone.stderr, r'E402\] .*start a rank there: mpirun -n N')


    def test_a_store_for_as_many_ranks_or_fewer(self):
        """And back: what is in it is what one process makes of all files."""
        self.begin(apart=True)
        folder = self.all()
        for world in (3, 1):
            name = f'new{world}-' + '{rank}'
            done = self.ranks(3, 'reshard', self.run_.store, '--world', str(world), '--out',
                              self.path(name))
            self.assertEqual(done.status, 0, done.stderr)
            self.assertEqual(done.stdout, f'step {STEPS} of 4 ranks is in {self.path(name)} for '
                                          f'{world}\n')
            self.assertEqual(sorted(n for n in os.listdir(self.run_.folder) if n.startswith('new')),
                             [name.format(rank=rank) for rank in range(world)])
            for rank in range(world):
                self.assertEqual(os.listdir(self.path(name.format(rank=rank))),
                                 [f'r{rank:05}.d0.blk'])
            whole = self.path(f'whole{world}')
            os.mkdir(whole, 0o700)
            for rank in range(world):
                shutil.move(self.path(f'{name.format(rank=rank)}/r{rank:05}.d0.blk'), whole)
                os.rmdir(self.path(name.format(rank=rank)))
            self.assertEqual(self.alone('verify', whole).status, 0)
            self.exports(2, whole)
        one = self.alone('reshard', folder, '--world=1', '--out', self.path('one'))
        self.assertEqual(one.status, 0, one.stderr)
        before, after = (json.loads(self.alone('list', '--json', self.path(name)).stdout)
                         for name in ('one', 'whole1'))
        before.update(uuid='', store='')
        after.update(uuid='', store='')
        for told in (before, after):
            for version in told['versions']:
                version['commit_id'] = ''
        self.assertEqual(before, after)

    def test_a_copy_of_other_ranks_is_read(self):
        """As it is left by a run that went on with fewer: in directories that nobody has any more.
        What it lacks is told, and no other version is left out for that."""
        self.begin(*KEEPS, apart=True)
        folder, copy = self.all(), f'step-{STEPS}'
        done = self.alone('reshard', folder, '--world=2', '--out', self.path('two'))
        self.assertEqual(done.status, 0, done.stderr)
        for rank in range(4):
            os.unlink(self.path(f'store{rank}/r{rank:05}.d0.blk'))
            os.unlink(f'{folder}/r{rank:05}.d0.blk')
        for rank in range(2):
            shutil.copy(self.path(f'two/r{rank:05}.d0.blk'), folder)
            shutil.move(self.path(f'two/r{rank:05}.d0.blk'), self.path(f'store{rank}'))
        for ranks in (2, 4):
            self.same(ranks, 'list', folder)
            done = self.same(ranks, 'verify', folder)
            self.assertEqual(done.stdout.count('every byte of '), 2)
        self.exports(2, folder, f'--version={STEPS}')
        os.rename(self.path(f'store3/{copy}'), self.path('away'))
        done = self.refused(65, r'E613\] no rank finds r00003\.d0\.blk of the copy of step 2 in ',
                            2, 'verify', self.run_.store)
        self.assertEqual(done.stdout.count('every byte of '), 1)

    def test_a_store_that_cannot_be_made_is_refused(self):
        self.begin(apart=True)
        reshard = ('reshard', self.run_.store, '--out')
        before = sorted(os.listdir(self.run_.folder))
        self.refused(2, r'E402\] each of 2 ranks writes its own files', 2, *reshard,
                     self.path('new'), '--world=4')
        self.refused(2, r'E616\] (rank 1 .*: )?.*r00001\.d0\.blk is there', 2, *reshard,
                     self.path('store{rank}/../store1'), '--world=2')
        self.refused(2, r'E402\] .*/store1/new\' is in the store.s directory \'.*/store1\'', 2,
                     *reshard, self.path('store{local}/../store1/new'), '--world=2')
        for out in ('aa,aa', 'aa,./aa'):
            out = ','.join(self.path(name) for name in out.split(','))
            self.refused(2, r'E402\] .* are one directory', 2, *reshard, out, '--world=2')
            one = self.alone('reshard', self.all(), '--out', out, '--world=1')
            self.assertEqual(one.status, 2, one.stderr)
            self.assertIn('are one directory', one.stderr)
            shutil.rmtree(self.path('all'))
        self.assertEqual(sorted(os.listdir(self.run_.folder)), before)
        self.assertNotIn('new', os.listdir(self.path('store1')))

    def test_who_has_no_memory_for_an_export_ends_all(self):
        """It says so where all are asked whether they can begin. (A kernel is looked for twice:
        the first time for the model.)"""
        self.begin(precision='bf16')
        self.refused(2, r"(?m)^error\[E302\] rank 2 \([^)]+\): no memory for a tile's weights\. ",
                     4, 'export', self.run_.store, '--model', PROGRAMS.model, '--export',
                     self.path('x'), '--export-dtype=fp32', end=End('empty', 2, 'save', 2))
        self.assertFalse(os.path.exists(self.path('x')))

    def test_what_has_a_damaged_table_is_the_version_before(self):
        """On one rank, whose newest table is damaged in both copies: all ranks tell of it once."""
        self.begin()
        folder = self.run_.store
        for rank in range(4):
            Store(folder, rank=rank).forge_kill()
        store = Store(folder, rank=3)
        for copy in range(2):
            store.damage(0, store.manifest_at(copy))
        told = (rf'W614\] the newest version of the store, of step {STEPS}, is damaged: .*'
                rf'{STEPS - 1}\n')
        for ranks in (4, 2):
            for what, status in (('list', 0), ('verify', 65)):
                done = self.same(ranks, what, folder, status=status)
                self.assertEqual(len(re.findall(told, done.stderr)), what == 'verify', done.stderr)
        for ranks, out in ((4, 'four'), (3, 'three'), (1, 'one')):
            words = ('reshard', folder, '--world', '2', '--out', self.path(out))
            done = self.ranks(ranks, *words) if ranks > 1 else self.alone(*words)
            self.assertEqual(done.status, 0, done.stderr)
            self.assertEqual(len(re.findall(told, done.stderr)), 1, done.stderr)
            self.assertEqual(self.alone('verify', self.path(out)).stdout.count(
                f'step {STEPS - 1}: every byte of '), 1)
            self.assertEqual(self.weights(out), self.weights('four'))
        self.exports(4, folder)

    def weights(self, store):
        done = self.alone('export', self.path(store), '--model', PROGRAMS.model, '--export',
                          self.path('weights'))
        self.assertEqual(done.status, 0, done.stderr)
        found = files_in(self.path('weights'))
        shutil.rmtree(self.path('weights'))
        return found

    def test_room_is_that_of_all_on_one_file_system(self):
        """Each of four ranks has room for its own there, and not beside the others'; a drive of
        each rank's own has enough."""
        self.begin()
        os.mkdir(self.path('drive'))
        mounted = ['unshare', '--mount', 'sh', '-c', f'mount -t tmpfs -o size={ROOM_FOR_ONE} none '
                   f'{self.path("drive")} && exec "$@"', 'sh']
        if subprocess.run([*mounted, 'true'], capture_output=True, check=False).returncode:
            self.skipTest('no mount of its own can be made (unshare --mount)')
        for out in ('drive/{rank}', 'drive/a,drive/b'):
            words = ('--out', ','.join(self.path(name) for name in out.split(',')), '--world', '4')
            for under in (mpi.launcher(4), []) if 'rank' not in out else (mpi.launcher(4),):
                done = subprocess.run(
                    [*mounted, *under, PROGRAMS.program, 'ckpt', 'reshard', self.run_.store,
                     *words], capture_output=True, text=True, timeout=60, check=False,
                    env=self.run_.environment())
                self.assertEqual(done.returncode, 1, done.stderr)
                need = re.search(r'error\[E301\] .* has ([\d.]+) MiB free, and the new store needs '
                                 r'([\d.]+) MiB there', done.stderr)
                self.assertTrue(need, done.stderr)
                self.assertEqual(len(mpi.errors_of(done.stderr)), 1, done.stderr)
                self.assertLess(float(need[2]) / 2, float(need[1]))
        done = self.ranks(4, 'reshard', self.run_.store, '--world=4', '--out',
                          self.path('new{rank}'))
        self.assertEqual(done.status, 0, done.stderr)

    def test_what_one_rank_cannot_read_ends_all_and_leaves_nothing(self):
        """It is asked before any of them reads: others would wait for what it has."""
        self.begin(apart=True)
        before = files_in(self.run_.folder)
        for nth, words in ((2, r'E105\] rank 2 .* cannot be made'),
                           (4, r"E106\] rank 2 .*: the store's files in \S* cannot be read")):
            self.refused(1, words, 3, 'reshard', self.path('store{rank}'), '--world', '3', '--out',
                         self.path('new'), end=End('eio', 2, 'file', nth))
            left = files_in(self.run_.folder)
            left.pop('mark')
            self.assertEqual(left, before)

    def test_what_a_drive_fails_to_give_or_to_take_is_told_once_and_nothing_is_made(self):
        """In a verify it is what is told; an export or a reshard ends, on all ranks."""
        self.begin(apart=True)
        before = files_in(self.run_.folder)
        export = ('export', self.run_.store, '--model', PROGRAMS.model, '--export', self.path('x'))
        cannot = r'/x: model\.safetensors cannot be written: '
        for how, rank, at, words, *what in (
                ('eio', 0, 'store-read', r'^error\[E614\] .*: Input/output error\.', *export),
                ('full', 0, 'export-write', rf'^error\[E301\] .*{cannot}', *export),
                ('eio', 0, 'export-write', rf'^error\[E107\] .*{cannot}', *export),
                ('eio', 1, 'store-read', r'E614\] rank 1 .*/store1/.*: Input/output error\.',
                 'reshard', self.run_.store, '--world', '4', '--out', self.path('x{rank}'))):
            with self.subTest(how=how, at=at, what=what[0]):
                self.refused(1, words, 4, *what, end=End(how, rank, at, 2))
                self.assertIsNotNone(self.run_.struck())
                os.unlink(self.run_.mark)
                self.assertEqual(files_in(self.run_.folder), before)
        done = self.ranks(4, 'verify', self.run_.store, end=End('eio', 1, 'store-read', 2))
        self.assertEqual((done.status, done.stderr), (74, ''))
        self.assertRegex(done.stdout, r'damaged: [^\n]*/store1/r00001\.d0\.blk, [^\n]*: Input/'
                                      r'output error\nstep 2: 1 block is damaged\n\Z')


class Nodes(Case):
    """Two, with a drive each that the other does not see."""

    def test_each_node_reads_its_own(self):
        self.begin(nodes=True)
        one, two = (f'{self.run_.store}.{name}' for name in '12')
        folder = self.together(one, two)
        self.same(4, 'verify', folder, '--json')
        self.same(2, 'list', folder)
        self.exports(2, folder, on_nodes=[1, 1])
        for node, missing in ((one, '2, 3'), (two, '0, 1')):
            self.assertRegex(self.alone('list', node).stderr, r'E613\] .* is of 4 ranks, and the '
                             f'files of ranks {missing} are not there.*: mpirun -n 4 hoistway ckpt')
        self.exports(4, folder)
        self.spoil(os.path.join(two, 'r00002.d0.blk'))
        verify = ('verify', self.run_.store)
        done = self.refused_damage(self.ranks(4, *verify))
        self.assertRegex(done.stdout, r'node2:/.*/r00002\.d0\.blk, offset ')
        self.refused(1, r'rank [23] \(node2\): error\[E614\] .* damaged: weights of tile', 4,
                     'export', self.run_.store, '--model', PROGRAMS.model, '--export',
                     self.path('x'))
        self.assertFalse(os.path.exists(self.path('x')))
        self.refused(1, r'E614\] rank 2 \(node2\): .* damaged: weights of tile', 4, 'reshard',
                     self.run_.store, '--world=3', '--out', self.path('x{rank}'))
        self.assertEqual([n for n in os.listdir(self.run_.folder) if n.startswith('x')], [])
        with open(os.path.join(two, 'r00003.d0.blk'), 'r+b') as file:
            file.write(bytes(os.path.getsize(file.name)))
        self.refused(65, r'E612\] rank 2 \(node2\): .*r00003', 4, *verify)
        os.unlink(os.path.join(two, 'r00003.d0.blk'))
        self.refused(65, r'E613\] .* no rank finds r00003\.d0\.blk\. Fix: start ranks on the nodes',
                     4, *verify)

    def test_shares_go_from_node_to_node(self):
        """Into directories that ranks of a node have in common, and a move that is cut off."""
        self.begin(nodes=True)
        one, two = (f'{self.run_.store}.{name}' for name in '12')
        folder = self.together(one, two)
        before = files_in(one), files_in(two)
        reshard = ('reshard', self.run_.store, '--out', self.path('new{node}'), '--world')
        for end in (End('kill', 3, 'take', 5), End('fail', 0, 'move', 3)):
            child = self.start(4, *reshard, '3', end=end)
            told = child.communicate(timeout=60)[1]
            self.assertNotEqual(child.returncode, 0)
            self.assertIsNotNone(self.run_.struck(), told)
            self.wait_until_gone()
            self.assertEqual((files_in(one), files_in(two)), before)
            for node in '01': # of a rank that was killed its own is left, and the mark
                if os.path.exists(self.path(f'new{node}')):
                    done = self.alone('verify', self.path(f'new{node}'))
                    self.assertRegex(done.stderr, r'error\[E61[67]\] ')
                    shutil.rmtree(self.path(f'new{node}'))
        done = self.ranks(4, *reshard, '3')
        self.assertEqual(done.status, 0, done.stderr)
        self.assertEqual([sorted(os.listdir(self.path(f'new{node}'))) for node in '01'],
                         [['r00000.d0.blk', 'r00001.d0.blk'], ['r00002.d0.blk']])
        self.run_.store = self.path('new{node}')
        self.exports(4, folder)

    def wait_until_gone(self):
        until = time.monotonic() + 10
        while mpi.processes(PROGRAMS.with_ends, 'ckpt'):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def test_an_export_that_is_cut_off_leaves_nothing(self):
        self.begin(nodes=True)
        export = ('export', self.run_.store, '--model', PROGRAMS.model, '--export', self.path('x'))
        before = sorted(os.listdir(self.run_.folder))
        for end in (End('kill', 3, 'take', 9), End('fail', 1, 'take', 12), End('stop', 2, 'take')):
            with self.subTest(end=str(end)):
                child = self.start(4, *export, end=end)
                if end.how == 'stop':
                    self.run_.wait_for_mark(child)
                    child.send_signal(signal.SIGINT)
                told = child.communicate(timeout=60)[1]
                self.assertNotEqual(child.returncode, 0)
                self.assertIsNotNone(self.run_.struck(), told)
                self.assertNotIn('error[', told)
                self.wait_until_gone()
                os.unlink(self.run_.mark)
                self.assertEqual(sorted(os.listdir(self.run_.folder)), before)
        self.assertEqual(self.ranks(4, *export).status, 0)

    def refused_damage(self, done):
        self.assertEqual((done.status, done.stderr), (65, ''))
        self.assertIn('1 block is damaged', done.stdout)
        return done


load_tests = by_turns

if __name__ == '__main__':
    if PROGRAMS.missing():
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
