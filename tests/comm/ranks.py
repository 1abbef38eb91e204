#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks under mpirun: the same bytes for any number of them, and an end where one goes wrong.

    ranks.py PROGRAM PLUGIN_FOLDER [TEST...]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import mpi  # noqa: E402
from short import in_turn, some  # noqa: E402

PROGRAM, FOLDER = sys.argv[1:3]
SANITIZERS = ('ASAN_OPTIONS', 'LSAN_OPTIONS', 'TSAN_OPTIONS', 'UBSAN_OPTIONS')


def environment():
    return mpi.environment(FOLDER)


def mpirun(ranks, *options, before=(), timeout=100):
    command = [*before, *mpi.launcher(ranks), PROGRAM, *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment(),
                          timeout=timeout)


def alone(*options):
    return subprocess.run([PROGRAM, *options], capture_output=True, text=True, env=environment(),
                          timeout=100)


class Nodes:
    """Nodes: namespaces of networks and host names on this machine, each with a link to the first,
    which is a bridge where there are more than two. MPI starts its daemons in them by a script
    that takes the place of ssh."""

    def __init__(self, test, count=2):
        self.test, self.name, self.count = test, f'hst{os.getpid() % 100000}', count

    def numbers(self):
        return [str(i + 1) for i in range(self.count)]

    def ip(self, *words):
        return subprocess.run(['ip', *words], capture_output=True).returncode == 0

    def within(self, i, *words):
        return self.ip('netns', 'exec', self.name + i, 'ip', *words)

    def address(self, i, device):
        return self.within(i, 'addr', 'add', f'10.77.0.{i}/24', 'dev', device) and \
            self.within(i, 'link', 'set', device, 'up') and \
            self.within(i, 'link', 'set', 'lo', 'up')

    def connect(self, i):
        near, far = f'{self.name}a{i}', f'{self.name}b{i}'
        made = self.ip('link', 'add', near, 'type', 'veth', 'peer', 'name', far) and \
            self.ip('link', 'set', near, 'netns', self.name + '1') and \
            self.ip('link', 'set', far, 'netns', self.name + i) and self.address(i, far)
        if self.count == 2:
            return made and self.address('1', near)
        return made and self.within('1', 'link', 'set', near, 'master', 'bridge') and \
            self.within('1', 'link', 'set', near, 'up')

    def __enter__(self):
        name, self.folder = self.name, tempfile.mkdtemp()
        made = shutil.which('ip') and all(
            self.ip('netns', 'add', name + i) for i in self.numbers())
        if self.count > 2:
            made = made and self.within('1', 'link', 'add', 'bridge', 'type', 'bridge') and \
                self.address('1', 'bridge')
        if not (made and all(self.connect(i) for i in self.numbers()[1:])):
            self.__exit__()
            self.test.skipTest('no network namespaces can be made (ip netns, as root)')
        self.agent = os.path.join(self.folder, 'agent')
        with open(self.agent, 'w', encoding='utf-8') as f:
            f.write(f'#!/bin/sh\nhost=$1; shift\ni=${{host##*.}}\n'
                    f'exec ip netns exec {name}$i unshare --uts '
                    'sh -c "hostname node$i; $*"\n')
        os.chmod(self.agent, 0o755)
        return self

    def __exit__(self, *_):
        for i in self.numbers():
            self.ip('netns', 'del', self.name + i)
        shutil.rmtree(self.folder)

    def link(self, state):
        return self.within('1', 'link', 'set', self.name + 'a2', state)

    def mpirun(self, ranks, *options):
        return subprocess.run(self.command(ranks, *options), capture_output=True, text=True,
                              timeout=100, env=self.environment())

    @staticmethod
    def environment():
        return {**environment(), 'OMPI_ALLOW_RUN_AS_ROOT': '1',
                'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}

    def command(self, ranks, *options):
        hosts = ','.join(f'10.77.0.{i + 1}:{n}' for i, n in enumerate(ranks))
        net = '10.77.0.0/24'
        return ['ip', 'netns', 'exec', self.name + '1', 'unshare', '--uts', 'sh', '-c',
                'hostname node1; exec "$@"', 'sh', 'mpirun', '--allow-run-as-root',
                '--oversubscribe', '--bind-to', 'none', '-n', str(sum(ranks)), '--host', hosts,
                '--mca', 'plm_rsh_agent', self.agent, '--mca', 'oob_tcp_if_include', net,
                '--mca', 'btl_tcp_if_include', net, '-x', 'HOISTWAY_PLUGIN_PATH',
                *(word for name in SANITIZERS if name in os.environ for word in ('-x', name)),
                PROGRAM, *options]


class Ranks(unittest.TestCase):
    def hashes(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [line for line in done.stdout.splitlines() if not line.startswith('#')]
        self.assertEqual(len(lines), 7, done.stdout)
        return lines

    def same(self, ways, ranks, *options):
        want = self.hashes(alone('--ways', str(ways)))
        done = mpirun(ranks, '--ways', str(ways), *options)
        self.assertEqual(self.hashes(done), want)
        return done.stdout

    def test_the_same_bytes_in_shared_memory(self):
        for ways, ranks in some(((4, 2), (4, 4), (3, 3), (6, 3), (12, 3)), 3):
            with self.subTest(ways=ways, ranks=ranks):
                told = self.same(ways, ranks)
                self.assertIn(f'{ranks} ranks on 1 nodes, shared 1', told)

    def test_the_same_bytes_by_messages(self):
        for ways, ranks, piece in some(((4, 2, '100000'), (4, 4, '1000000'), (3, 3, '64000000'),
                                        (6, 3, '70000'), (12, 3, '500000')), 3):
            with self.subTest(ways=ways, ranks=ranks):
                told = self.same(ways, ranks, '--messages', '--piece', piece)
                self.assertIn('shared 0 messages were asked for', told)

    def test_too_little_shared_memory_is_agreed_on(self):
        mount = 'mount -t tmpfs -o size=6m none /dev/shm && exec "$@"'
        small = ['unshare', '-m', 'sh', '-c', mount, 'sh']
        if subprocess.run([*small, 'true'], capture_output=True).returncode:
            self.skipTest('no mount of its own can be made (unshare -m)')
        want = self.hashes(alone('--ways', '4'))
        done = mpirun(2, '--ways', '4', before=small)
        self.assertEqual(self.hashes(done), want)
        self.assertIn("shared 0 a node's /dev/shm is too small", done.stdout)

    def test_the_same_bytes_on_two_nodes(self):
        with Nodes(self) as nodes:
            for ways, ranks, options in some((
                    (4, (2, 2), ()), (8, (2, 2), ('--piece', '90000')),
                    (4, (2, 2), ('--messages', '--piece', '70000')), (2, (1, 1), ()),
                    (6, (3, 3), ()), (3, (2, 1), ('--piece', '100000'))), 3):
                with self.subTest(ways=ways, ranks=ranks, options=options):
                    want = self.hashes(alone('--ways', str(ways)))
                    done = nodes.mpirun(ranks, '--ways', str(ways), *options)
                    self.assertEqual(self.hashes(done), want)
                    self.assertIn(f'{sum(ranks)} ranks on 2 nodes', done.stdout)

    def test_the_same_bytes_where_the_last_nodes_sum_has_another_type(self):
        with Nodes(self, 3) as nodes:
            want = self.hashes(alone('--ways', '12'))
            for options in some((('--piece', '900000'), ('--messages', '--piece', '900000')), 2):
                with self.subTest(options=options):
                    done = nodes.mpirun((4, 4, 4), '--ways', '12', *options)
                    self.assertEqual(self.hashes(done), want)
                    self.assertIn('12 ranks on 3 nodes', done.stdout)

    @in_turn(0, 2)
    def test_with_the_link_cut_each_rank_ends_by_itself(self):
        options = ('--ways', '4', '--limit', '3', '--fault', 'pause', f'--of={os.getpid()}')
        with Nodes(self) as nodes, subprocess.Popen(
                nodes.command((2, 2), *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env=nodes.environment()) as child:
            for line in child.stdout:
                if line == '# pause\n':
                    break
            self.assertEqual(len(mpi.processes(PROGRAM, options[-1])), 4)
            self.assertTrue(nodes.link('down'))
            begun = time.monotonic()
            while mpi.processes(PROGRAM, options[-1]) and time.monotonic() - begun < 60:
                time.sleep(0.1)
            left, ended = mpi.processes(PROGRAM, options[-1]), time.monotonic() - begun
            nodes.link('up')  # mpirun itself waits for it
            told = child.communicate(timeout=90)[1]
        self.assertEqual(left, [])
        self.assertLess(ended, 4 + 3 + 5 + 20)
        self.assertNotEqual(child.returncode, 0)
        self.assertRegex(told, r'rank [01]: .*rank [23] has not sent or received its part; waited '
                               r'3 s for it in the exchange of type-1-hop-8 \(names [23]\)')

    def ends(self, fault, within, *options):
        begun = time.monotonic()
        done = mpirun(3, '--ways', '3', '--fault', fault, *options)
        self.assertLess(time.monotonic() - begun, within)
        self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    @in_turn(0, 2)
    def test_a_rank_that_stops_is_named(self):
        told = self.ends('stop', 40, '--limit', '3').stderr
        self.assertRegex(told, r'rank [02]: .*rank 1 has not answered: it is stopped or gone; '
                               r'waited 3 s for it in the exchange of type-1-hop-8 \(names 1\)')

    @in_turn(1, 2)
    def test_a_rank_that_is_late_is_named(self):
        told = self.ends('late', 40, '--limit', '3').stderr
        self.assertRegex(told, r'rank [02]: .*rank 1 has not come this far; waited 3 s for it in '
                               r'the exchange of type-1-hop-8 \(names 1\)')

    def test_a_rank_with_another_operation_is_named(self):
        told = self.ends('order', 40).stderr
        self.assertRegex(told, r'has begun another operation than this rank')

    def test_other_roots_and_other_sizes_are_named(self):
        for fault, told in some((('roots', 'broadcast of 8, .*here broadcast of 8'),
                                 ('alloc', r'\(allocation of 5000, .*here allocation of 4000')), 2):
            with self.subTest(fault=fault):
                self.assertRegex(self.ends(fault, 40).stderr,
                                 'rank 1 has begun another operation .*' + told)

    def test_a_rank_that_does_not_close_is_named(self):
        for fault, why in some((('stays', 'has not come this far'),
                                ('stays-stopped', 'has not answered: it is stopped or gone')), 2):
            with self.subTest(fault=fault):
                told = self.ends(fault, 40, '--limit', '3').stderr
                self.assertRegex(told, r'rank [02]: close: .*rank 1 ' + why + '; waited 3 s for it '
                                 r'in the closing \(names 1\)')

    @in_turn(1, 2)
    def test_a_rank_of_another_node_that_does_not_close_ends_all(self):
        with Nodes(self) as nodes:
            done = nodes.mpirun((1, 1), '--ways', '2', '--limit', '3', '--fault', 'stays')
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('ranks of other nodes have not answered for 3 s: closing', done.stderr)

    def test_a_rank_that_dies_ends_all(self):
        for fault in some(('die', 'leave', 'abort'), 3):
            with self.subTest(fault=fault):
                done = self.ends(fault, 40)
                self.assertTrue(fault != 'abort' or done.returncode == 9, done.returncode)

    def test_a_world_that_mpi_does_not_know_is_refused(self):
        env = {**environment(), 'PMI_SIZE': '2', 'PMI_RANK': '0'}
        done = subprocess.run([PROGRAM], capture_output=True, text=True, env=env, timeout=100)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r'Open MPI v\S+ has a world of 1 ranks, but PMI_SIZE is 2')

    def test_without_the_plugin_it_says_where_it_looked(self):
        env = {**environment(), 'HOISTWAY_PLUGIN_PATH': '/nonexistent', 'PMI_SIZE': '2',
               'PMI_RANK': '0'}
        done = subprocess.run([PROGRAM], capture_output=True, text=True, env=env, timeout=100)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r'^no libhoistway-mpi\.so in: HOISTWAY_PLUGIN_PATH')


if __name__ == '__main__':
    if not shutil.which('mpirun') or not os.path.exists(os.path.join(FOLDER, 'libhoistway-mpi.so')):
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
