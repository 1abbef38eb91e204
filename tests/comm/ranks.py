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
from short import SHORT, by_turns, in_turn, some  # noqa: E402

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
    that takes the place of ssh. The last one has little shared memory, where that is asked for."""

    def __init__(self, test, count=2, little=False, drive=None):
        """drive: a folder that each of two nodes has another one in the place of (drives)."""
        self.test, self.name, self.count = test, f'hst{os.getpid() % 100000}', count
        self.drive = drive and os.path.abspath(drive)
        self.map = []  # how mpirun deals ranks out to nodes: else one node after the other
        self.little = 'mount -t tmpfs -o size=1m none /dev/shm; ' if little else ''

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
        self.drives('1', '2')
        return self

    def drives(self, *names):
        """The nodes' own from here on: `drive` with a point and the name."""
        self.mounts = [''] * self.count
        for i, name in enumerate(names if self.drive else ()):
            own = f'{self.drive}.{name}'
            os.makedirs(self.drive, exist_ok=True)
            os.makedirs(own, mode=0o700, exist_ok=True)
            self.mounts[i] = f'mount --bind {own} {self.drive}; '
        with open(self.agent, 'w', encoding='utf-8') as f:
            f.write(f'#!/bin/sh\nhost=$1; shift\ni=${{host##*.}}\n'
                    f'case $i in 2) m="{self.mounts[1]}";; *) m=;; esac\n'
                    f'exec ip netns exec {self.name}$i unshare --uts --mount '
                    f'sh -c "{self.little}${{m}}hostname node$i; $*"\n')
        os.chmod(self.agent, 0o755)

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
        return ['ip', 'netns', 'exec', self.name + '1', 'unshare', '--uts', '--mount', 'sh', '-c',
                self.mounts[0] + 'hostname node1; exec "$@"', 'sh', 'mpirun', '--allow-run-as-root',
                '--oversubscribe', '--bind-to', 'none', *self.map, '-n', str(sum(ranks)), '--host',
                hosts, '--mca', 'plm_rsh_agent', self.agent, '--mca', 'oob_tcp_if_include', net,
                '--mca', 'btl_tcp_if_include', net, '-x', 'HOISTWAY_PLUGIN_PATH',
                *(word for name in SANITIZERS if name in os.environ for word in ('-x', name)),
                PROGRAM, *options]


class Ranks(unittest.TestCase):
    def hashes(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [line for line in done.stdout.splitlines() if not line.startswith('#')]
        self.assertEqual(len(lines), 11, done.stdout)
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

    def test_the_same_bytes_in_memory_that_is_exposed(self):
        for ways, ranks in some(((4, 2), (4, 4), (3, 3), (12, 3)), 2):
            with self.subTest(ways=ways, ranks=ranks):
                told = self.same(ways, ranks, '--expose')
                self.assertIn(f'{ranks} ranks on 1 nodes, shared 1', told)

    def test_what_cannot_be_shared_is_exposed_without(self):
        told = self.same(4, 2, '--expose', '--messages')
        self.assertIn('shared 0 messages were asked for', told)

    def test_the_same_bytes_by_messages(self):
        for ways, ranks, piece in some(((4, 2, '100000'), (4, 4, '1000000'), (3, 3, '64000000'),
                                        (6, 3, '70000'), (12, 3, '500000')), 3):
            with self.subTest(ways=ways, ranks=ranks):
                told = self.same(ways, ranks, '--messages', '--piece', piece)
                self.assertIn('shared 0 messages were asked for', told)

    def test_too_little_shared_memory_is_agreed_on(self):
        small = mpi.small_memory(self, '6m')
        want = self.hashes(alone('--ways', '4'))
        for options in some(((), ('--expose',)), 1):
            with self.subTest(options=options):
                done = mpirun(2, '--ways', '4', *options, before=small)
                self.assertEqual(self.hashes(done), want)
                self.assertIn("shared 0 a node's /dev/shm is too small", done.stdout)

    def test_room_that_others_take_meanwhile_is_no_end_by_a_signal(self):
        """Of memory that is exposed all send messages then; an allocation fails."""
        small = mpi.small_memory(self, '16m')
        done = mpirun(2, '--ways', '4', '--expose', '--fault', 'fill', before=small)
        self.assertEqual(self.hashes(done), self.hashes(alone('--ways', '4')))
        self.assertIn('shared 0 a rank cannot map shared memory a second time, or others have '
                      'filled it', done.stdout)
        done = mpirun(2, '--ways', '4', '--fault', 'fill', before=small)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r'rank [01]: alloc: [^\n]*/dev/shm has been filled by others')

    def test_too_few_addresses_of_one_rank_are_agreed_on(self):
        """ulimit -v of the last rank has room for its own memory, and not for that of both."""
        limited = ['sh', '-c', 'ulimit -v 2000000 && exec "$@"', 'sh', PROGRAM]
        if subprocess.run([*limited, '--ways', '2'], capture_output=True,
                          env=environment()).returncode:
            self.skipTest('a sanitizer takes more addresses than any limit leaves')
        want = self.hashes(alone('--ways', '2'))
        options = ['--ways', '2', '--expose', '--more', str(500 << 20)]
        done = subprocess.run([*mpi.launcher(1), PROGRAM, *options, ':', '-n', '1', *limited,
                               *options],
                              capture_output=True, text=True, env=environment(), timeout=100)
        self.assertEqual(self.hashes(done), want)
        if "a node's /dev/shm is too small" in done.stdout:
            self.skipTest('/dev/shm is too small to come to addresses')
        self.assertIn('shared 0 a rank has too few addresses', done.stdout)

    def test_the_same_bytes_on_two_nodes(self):
        with Nodes(self) as nodes:
            # of six ranks two add up before a sum leaves their node: a group between one and all
            of_six = [] if SHORT else [(12, (6, 6), ())]
            for ways, ranks, options in of_six + some((
                    (4, (2, 2), ()), (8, (2, 2), ('--piece', '90000')),
                    (4, (2, 2), ('--messages', '--piece', '70000')), (2, (1, 1), ()),
                    (6, (3, 3), ()), (3, (2, 1), ('--piece', '100000')),
                    (4, (2, 2), ('--expose',))), 3):
                with self.subTest(ways=ways, ranks=ranks, options=options):
                    want = self.hashes(alone('--ways', str(ways)))
                    done = nodes.mpirun(ranks, '--ways', str(ways), *options)
                    self.assertEqual(self.hashes(done), want)
                    self.assertIn(f'{sum(ranks)} ranks on 2 nodes', done.stdout)

    def test_the_same_bytes_by_other_numbers(self):
        """Ranks take the opposite order, of nodes and within them."""
        want = self.hashes(alone('--ways', '4'))
        self.assertEqual(self.hashes(mpirun(4, '--ways', '4', '--number', '--expose')), want)
        with Nodes(self) as nodes:
            done = nodes.mpirun((2, 2), '--ways', '4', '--number')
            self.assertEqual(self.hashes(done), want)
            self.assertIn('4 ranks on 2 nodes', done.stdout)
            done = nodes.mpirun((2, 1), '--ways', '3', '--number')
            self.assertEqual(self.hashes(done), self.hashes(alone('--ways', '3')))

    def test_the_same_bytes_whatever_the_map_of_the_launcher(self):
        """Ranks that it deals out to nodes by turns are numbered node by node."""
        with Nodes(self) as nodes:
            nodes.map = ['--map-by', 'node']
            command = nodes.command((2, 2), '-c', 'echo $OMPI_COMM_WORLD_RANK $(hostname)')
            command[command.index(PROGRAM)] = 'sh'
            done = subprocess.run(command, capture_output=True, text=True, timeout=100,
                                  env=nodes.environment())
            self.assertEqual(sorted(done.stdout.splitlines()),
                             ['0 node1', '1 node2', '2 node1', '3 node2'], done.stderr)
            for ways, *options in some(((4,), (8, '--expose'), (4, '--messages')), 2):
                with self.subTest(ways=ways, options=options):
                    done = nodes.mpirun((2, 2), '--ways', str(ways), *options)
                    self.assertEqual(self.hashes(done), self.hashes(alone('--ways', str(ways))))
                    self.assertIn('4 ranks on 2 nodes', done.stdout)

    def test_where_no_peer_is_read_nothing_is_exposed(self):
        with Nodes(self) as nodes:
            for ranks, why in (((1, 1), ''), ((2, 1), 'nodes have different numbers of ranks')):
                with self.subTest(ranks=ranks):
                    ways = str(sum(ranks))
                    done = nodes.mpirun(ranks, '--ways', ways, '--expose')
                    self.assertEqual(self.hashes(done), self.hashes(alone("--ways", ways)))
                    self.assertIn(f'{ways} ranks on 2 nodes, shared 0 {why}\n', done.stdout)

    def test_a_node_with_too_little_shared_memory_decides_for_all(self):
        with Nodes(self, little=True) as nodes:
            done = nodes.mpirun((2, 2), '--ways', '4', '--expose')
        self.assertEqual(self.hashes(done), self.hashes(alone('--ways', '4')))
        self.assertIn("shared 0 a node's /dev/shm is too small", done.stdout)  # rank 0's words

    def test_the_same_bytes_where_the_last_nodes_sum_has_another_type(self):
        with Nodes(self, 3) as nodes:
            want = self.hashes(alone('--ways', '12'))
            for options in some((('--piece', '900000'), ('--messages', '--piece', '900000')), 2):
                with self.subTest(options=options):
                    done = nodes.mpirun((4, 4, 4), '--ways', '12', *options)
                    self.assertEqual(self.hashes(done), want)
                    self.assertIn('12 ranks on 3 nodes', done.stdout)

    def test_a_node_of_one_rank_measures_with_the_others(self):
        """Its own ranks bring each other nothing, and all have the same rates."""
        with Nodes(self) as nodes:
            for ranks in some(((2, 1), (1, 2)), 2):
                with self.subTest(ranks=ranks):
                    gather, exchange, between, _, far = self.rates(
                        nodes.mpirun(ranks, '--ways', '3', '--link', '40e6'))
                    self.assertGreater(min(gather, exchange, between, far), 0)

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
        self.assertRegex(told, r'rank [01]: .*error\[E504\] rank [23] \(node2\), or one of its '
                               r'node that it waits for, has not sent or received its part; '
                               r'waited \d+ s for it in the exchange of kind-0-hop-8 '
                               r'\(names [23]\)')

    @in_turn(1, 2)
    def test_signs_of_life_that_came_while_a_rank_stood_still_are_taken_at_once(self):
        """Else those of before would hide for as long that a link was cut."""
        with Nodes(self) as nodes:
            done = nodes.mpirun((1, 1), '--ways', '2', '--fault', 'nap')
        self.hashes(done)
        signs = {int(rank): (int(said), int(heard)) for rank, said, heard in re.findall(
            r'# rank (\d) said (\d+) heard (\d+)', done.stdout)}
        said, heard = signs[0][0], signs[1][1] - 2  # it waits for two more
        self.assertGreater(said, 12)
        self.assertLessEqual(said - heard, 6)

    @in_turn(0, 2)
    def test_no_sign_of_life_follows_a_failure(self):
        with Nodes(self) as nodes:
            done = nodes.mpirun((1, 1), '--ways', '2', '--limit', '3', '--fault', 'linger')
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('rank 0: 0 signs of life after that', done.stderr)

    def rates(self, done):
        """Gather, exchange, between, operations within a node and between them: alike on all."""
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = re.findall(r'^rank \d: (.*)$', done.stdout, re.M)
        self.assertEqual(len(set(told)), 1, done.stdout)
        return [float.fromhex(word) for word in told[0].split()]

    def test_a_link_is_measured_by_what_it_carries(self):
        """Half of what an operation takes is its begin and end, at most."""
        for link in (20e6, 80e6):
            with self.subTest(link=link):
                done = mpirun(2, '--link', str(link))
                gather, exchange, between, operations, far = self.rates(done)
                for rate in (gather, exchange):
                    self.assertGreater(rate, 0.02 * link)
                    self.assertLessEqual(rate, 2 * link)
                self.assertLess(operations, 500)
                self.assertEqual((between, far), (0, 0))
                self.assertRegex(done.stdout, r'# 2 ranks on 1 node, memory is shared, rows of '
                                              r'\d+ KiB, Open MPI')

    def test_what_crosses_nodes_is_measured(self):
        with Nodes(self) as nodes:
            for ranks, inside in (((1, 1), False), ((2, 2), True)):
                with self.subTest(ranks=ranks):
                    gather, exchange, between, operations, far = \
                        self.rates(nodes.mpirun(ranks, '--link', '40e6'))
                    self.assertTrue(0 < between and (inside or between <= 80e6), between)
                    self.assertTrue(0 < far < 500, far)
                    self.assertEqual(operations, 0)
                    self.assertEqual((gather > 0, exchange > 0), (inside, inside))

    def ends(self, fault, within, *options):
        begun = time.monotonic()
        done = mpirun(3, '--ways', '3', '--fault', fault, *options)
        self.assertLess(time.monotonic() - begun, within)
        self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    @in_turn(0, 2)
    def test_a_rank_that_stops_is_named(self):
        told = self.ends('stop', 40, '--limit', '3').stderr
        self.assertRegex(told, r'rank [02]: .*error\[E504\] rank 1 has not answered: it is '
                               r'stopped or gone; waited \d+ s for it in the exchange of '
                               r'kind-0-hop-8 \(names 1\)')

    @in_turn(1, 2)
    def test_a_rank_that_is_late_is_named(self):
        told = self.ends('late', 40, '--limit', '3').stderr
        self.assertRegex(told, r'rank [02]: .*rank 1 has not come this far; waited \d+ s for it in '
                               r'the exchange of kind-0-hop-8 \(names 1\)')

    def test_a_rank_with_another_operation_is_named(self):
        told = self.ends('order', 40).stderr
        self.assertRegex(told, r'has begun another operation than this rank')

    def test_other_roots_and_other_sizes_are_named(self):
        """By whichever rank is the first to see it."""
        for fault, what, own in some((
                ('roots', 'broadcast of 8 from rank ', ('0', '1', '2')),
                ('alloc', 'allocation of ', ('4000', '5000', '4000')),
                ('expose', 'sharing of memory of ', ('4096', '8192', '4096'))), 2):
            with self.subTest(fault=fault):
                told = self.ends(fault, 40).stderr
                found = re.search(r'rank (\d): .*rank (\d) has begun another operation than this '
                                  rf'rank \({what}(\d+); here {what}(\d+)\)', told)
                self.assertIsNotNone(found, told)
                teller, other = int(found[1]), int(found[2])
                self.assertNotEqual(own[teller], own[other])
                self.assertEqual((found[3], found[4]), (own[other], own[teller]))

    def test_a_rank_that_does_not_close_is_named(self):
        for fault, why in some((('stays', 'has not come this far'),
                                ('stays-stopped', 'has not answered: it is stopped or gone')), 2):
            with self.subTest(fault=fault):
                told = self.ends(fault, 40, '--limit', '3').stderr
                self.assertRegex(told, r'rank [02]: close: .*rank 1 ' + why + r'; waited \d+ s for '
                                 r'it in the closing \(names 1\)')

    @in_turn(1, 2)
    def test_a_rank_of_another_node_that_does_not_close_ends_all(self):
        with Nodes(self) as nodes:
            done = nodes.mpirun((1, 1), '--ways', '2', '--limit', '3', '--fault', 'stays')
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r'error\[E504\] ranks of node2 have not answered for \d+ s: '
                                      r'closing \(names -1\)')

    @in_turn(0, 2)
    def test_a_rank_that_stops_is_named_with_its_node(self):
        """Its node's, also where ranks take other numbers: those of the second node begin then."""
        for options, node in some((((), 'node1'), (('--number',), 'node2')), 2):
            with self.subTest(options=options), Nodes(self) as nodes:
                done = nodes.mpirun((2, 2), '--ways', '4', '--limit', '3', '--fault', 'stop',
                                    *options)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, rf'error\[E504\] rank 1 \({node}\)(, or one of its '
                                          r'node that it waits for,)? has not (answered: it is '
                                          r'stopped or gone|sent or received its part); '
                                          r'waited \d+ s for it in the exchange of '
                                          r'kind-0-hop-8 \(names 1\)')

    def test_of_three_nodes_it_is_not_known_whose_ranks_are_late(self):
        with Nodes(self, 3) as nodes:
            done = nodes.mpirun((1, 1, 1), '--ways', '3', '--limit', '3', '--fault', 'stays')
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r'ranks of other nodes have not answered for \d+ s: closing')

    def test_an_error_of_mpi_is_no_rank_that_is_gone(self):
        told = self.ends('broken', 40).stderr
        self.assertRegex(told, r'rank 1: share: -5 error\[E507\] MPI_Iallgather failed: '
                               r'MPI_ERR_OTHER[^\n]* \(names -1\)')

    def test_a_rank_that_dies_ends_all(self):
        for fault, *options in some((('die',), ('leave',), ('abort',), ('die', '--expose')), 3):
            with self.subTest(fault=fault, options=options):
                done = self.ends(fault, 40, *options)
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


load_tests = by_turns

if __name__ == '__main__':
    if not shutil.which('mpirun') or not os.path.exists(os.path.join(FOLDER, 'libhoistway-mpi.so')):
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
