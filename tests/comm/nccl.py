#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that move device memory by NCCL: the same bytes as one process for any number of them, and
an end where one goes wrong. NCCL and the GPUs are doubles (tests/simt).

    nccl.py PROGRAM MPI_FOLDER NCCL_FOLDER DOUBLES_FOLDER REFUSING_FOLDER [TEST...]
"""
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import mpi  # noqa: E402
from short import by_turns, in_turn, some, whole_alone  # noqa: E402

PROGRAM, MPI_FOLDER, NCCL_FOLDER, DOUBLES, REFUSING = sys.argv[1:6]
STREAMS = ('late', 'early:1', 'early:2', 'h2d-early', 'random:1', 'random:2')


def environment(nccl='', streams='late', libraries=f'{DOUBLES}/nccl', plugin=NCCL_FOLDER):
    env = mpi.environment(f'{MPI_FOLDER}:{plugin}:{DOUBLES}')
    env.pop('NCCL_COMM_ID', None)
    return {**env, 'HOISTWAY_CUDA_PATH': f'{libraries}:{DOUBLES}', 'HOISTWAY_MATMUL': 'own',
            'HST_FAKE_CUDA': f'devices=4,memory=512M,streams={streams}', 'HST_FAKE_NCCL': nccl}


def mpirun(ranks, *options, timeout=90, **settings):
    return subprocess.run([*mpi.launcher(ranks), PROGRAM, *options], capture_output=True, text=True,
                          env=environment(**settings), timeout=timeout)


class Torchrun:
    """Ranks as torchrun starts them: by their variables alone, so many on each node."""
    port = 42000 + os.getpid() * 64 % 20000  # other than of tests beside it (e2e/rank_nccl.py)
    ports = set()  # where NCCL's ranks met

    def __init__(self, nodes, *options, nccl='', **settings):
        ranks, base = sum(nodes), environment(**settings)
        Torchrun.port += 2
        Torchrun.ports.add(str(Torchrun.port + 1))
        self.children = []
        for node, locals_ in enumerate(nodes):
            for local in range(locals_):
                rank = sum(nodes[:node]) + local
                env = {**base, 'WORLD_SIZE': str(ranks), 'RANK': str(rank),
                       'LOCAL_WORLD_SIZE': str(locals_), 'LOCAL_RANK': str(local),
                       'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(Torchrun.port),
                       'HST_FAKE_NCCL': ','.join(filter(None, (f'host=node{node}', nccl)))}
                self.children.append(subprocess.Popen(
                    [PROGRAM, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    env=env))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()

    def wait(self, timeout=90):
        """The status and the words of each."""
        until = time.monotonic() + timeout
        told = [child.communicate(timeout=max(1, until - time.monotonic()))
                for child in self.children]
        return [(child.returncode, *words) for child, words in zip(self.children, told)]


class Nccl(unittest.TestCase):
    def good(self, done, ranks, nodes=1):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count('ok\n'), ranks, done.stdout + done.stderr)
        self.assertIn(f'{ranks} ranks on {nodes} nodes', done.stdout)
        return done.stdout

    def alike(self, nodes, *options, **settings):
        with Torchrun(nodes, *options, **settings) as ranks:
            for status, told, errors in ranks.wait():
                self.assertEqual((status, errors), (0, ''), told)
                self.assertIn('ok\n', told)

    def test_the_same_bytes_under_mpirun(self):
        for ways, ranks, options in some(((4, 2, ()), (4, 4, ()), (12, 3, ()),
                                          (4, 4, ('--piece', '100000')),
                                          (6, 3, ('--piece', '80000'))), 3):
            with self.subTest(ways=ways, ranks=ranks):
                told = self.good(mpirun(ranks, '--ways', str(ways), *options), ranks)
                self.assertIn('NCCL 2.28.9, Open MPI', told)

    def test_the_same_bytes_whatever_runs_early(self):
        for streams in some(STREAMS, 3):
            with self.subTest(streams=streams):
                self.good(mpirun(2, '--piece', '300000', streams=streams), 2)

    def test_the_same_bytes_where_calls_are_taken_late(self):
        """An event that were recorded before NCCL has taken a call would stand ahead of it."""
        self.good(mpirun(2, '--piece', '100000', nccl='in-progress=3'), 2)

    def test_the_same_bytes_under_torchrun(self):
        for nodes, options in some((((2,), ()), ((4,), ('--piece', '100000')), ((2,), ())), 2):
            with self.subTest(nodes=nodes):
                self.alike(nodes, *options)

    def test_the_same_bytes_on_two_nodes(self):
        for nodes, ways, options in some((
                ((2, 2), 4, ()), ((2, 2), 8, ('--piece', '100000')), ((1, 1), 2, ())), 2):
            with self.subTest(nodes=nodes, ways=ways):
                self.alike(nodes, '--ways', str(ways), *options, nccl='in-progress=1')

    @whole_alone
    def test_the_same_bytes_where_the_last_nodes_sum_has_another_type(self):
        for options in ((), ('--piece', '900000')):
            with self.subTest(options=options):
                self.alike((4, 4, 4), '--ways', '12', *options)

    @whole_alone
    def test_the_same_bytes_where_a_node_is_no_group(self):
        """Of three ranks each adds for itself; what they keep is the node's."""
        self.alike((3, 3), '--ways', '6', nccl='in-progress=1')
        self.alike((1, 1), '--ways', '2')

    def test_the_same_bytes_where_a_gpu_adds_fewer_than_there_are(self):
        """Sums of blocks come first: in one hop, in either of two, and of integers. The pieces are
        so small that sums of blocks, had they no room of their own, would lie on others' parts."""
        for nodes, ways, inputs, options in some((
                ((3, 3), 12, 4, ('--piece', '170000')), ((4,), 8, 2, ('--piece', '120000')),
                ((4, 4), 8, 2, ('--piece', '200000')), ((2, 2, 2, 2), 8, 2, ()),
                ((3,), 12, 2, ()), ((1,) * 8, 8, 4, ('--piece', '150000'))), 2):
            with self.subTest(nodes=nodes, ways=ways, inputs=inputs):
                self.alike(nodes, '--ways', str(ways), '--inputs', str(inputs), *options)

    @whole_alone
    def test_the_same_bytes_on_two_nodes_whatever_runs_early(self):
        for streams in STREAMS:
            with self.subTest(streams=streams):
                self.alike((2, 2), streams=streams)

    def test_the_same_bytes_by_other_numbers(self):
        self.good(mpirun(4, '--number'), 4)

    def test_a_read_before_the_gather_has_other_bytes(self):
        """What the double is for: nothing else would tell of a missing order."""
        for streams in some(STREAMS[:3], 1):
            with self.subTest(streams=streams):
                done = mpirun(2, '--early', streams=streams)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stderr, r'kind-0-hop-2: byte \d+ of \d+ is ')

    def test_a_read_before_integers_are_given_back_has_other_bytes(self):
        for streams in some(STREAMS[:3], 3):
            with self.subTest(streams=streams):
                done = mpirun(2, '--early-integers', streams=streams)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stderr, r'integers: byte \d+ of \d+ is ')

    def calls(self, folder, rank=0):
        with open(os.path.join(folder, f'log.{rank}'), encoding='utf-8') as f:
            return f.read().split('\n')

    def test_a_library_without_all_to_all_sends_and_receives(self):
        with tempfile.TemporaryDirectory() as folder:
            told = self.good(mpirun(2, nccl=f'version=21903,log={folder}/log'), 2)
            calls = self.calls(folder)
            self.assertIn('NCCL 2.19.3 has no ncclAlltoAll: exchanges are sends and receives', told)
            self.assertEqual(calls.count('ncclAlltoAll'), 0)
            self.assertEqual(calls.count('ncclSend'), 6 + 4)
        with tempfile.TemporaryDirectory() as folder:
            told = self.good(mpirun(2, nccl=f'log={folder}/log'), 2)
            calls = self.calls(folder)
            self.assertNotIn('has no', told)
            self.assertEqual(calls.count('ncclAlltoAll'), 6)
            self.assertEqual(calls.count('ncclSend'), 4)  # of sums by integers
            # of rows as they are; integers, their scales, and what the node keeps
            self.assertEqual(calls.count('ncclAllGather'), 6 + 4 + 3)
            self.assertEqual(calls.count('ncclAllReduce'), 0)  # sums of integers go by MPI

    def tearDown(self):
        """Ranks that were killed while they met have left their places."""
        for name in os.listdir('/dev/shm'):
            found = re.match(rf'hst-nccl-{os.geteuid()}-(?:127.0.0.1:(\d+)|(\d+)-\d)', name)
            if found and (found[1] in Torchrun.ports or
                          found[2] and not os.path.exists(f'/proc/{found[2]}')):
                os.unlink(f'/dev/shm/{name}')

    # ---- what goes wrong -----------------------------------------------------------------------

    def fails(self, done, words, seconds=None, begun=None):
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stderr, words)
        if seconds:
            self.assertLess(time.monotonic() - begun, seconds)

    def test_a_library_that_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            done = mpirun(2, libraries=folder)
        if 'libnccl.so.2 was not found' not in done.stderr:
            self.skipTest('this machine has a libnccl.so.2 of its own')
        self.fails(done, r'rank [01]: open: -19 error\[E505\] ranks cannot be joined: libnccl.so.2 '
                         r'was not found: not in HOISTWAY_CUDA_PATH')

    def test_a_library_that_does_not_load(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(f'{folder}/libnccl.so.2', 'w', encoding='utf-8') as f:
                f.write('no library')
            done = mpirun(2, libraries=folder)
        self.fails(done, r'rank [01]: open: -19 error\[E505\] ranks cannot be joined: libnccl.so.2 '
                         r'does not load: [^\n]*(file too short|invalid ELF header)')

    def test_a_library_that_one_rank_alone_lacks(self):
        """All ranks look before any joins: the others do not wait for it."""
        begun = time.monotonic()
        one = [*mpi.launcher(1), PROGRAM, ':', '-n', '1', 'env', 'HST_FAKE_NCCL=version=21805',
               PROGRAM]
        done = subprocess.run(one, capture_output=True, text=True, env=environment(), timeout=60)
        # whichever of the two speaks first: mpirun ends the other
        self.fails(done, r'rank (0: open: -19 error\[E505\] ranks cannot be joined: rank 1: '
                         r'|1: open: -19 error\[E505\] ranks cannot be joined: )[^\n]*'
                         r'libnccl.so.2 is NCCL 2.18.5, of which 2.19.3 is the least', 40, begun)

    def test_devices_that_cannot_be_joined(self):
        """All ranks know: the comm that was open is closed by all of them, and none waits."""
        begun = time.monotonic()
        done = mpirun(2, plugin=REFUSING)
        self.fails(done, r'rank [01]: open: -95 error\[E505\] ranks cannot be joined: this plugin '
                         r'joins no devices\. Fix: --comm mpi, of ranks that mpirun', 40, begun)

    def test_a_rank_alone_without_memory(self):
        """The others do not wait for it in a window."""
        begun = time.monotonic()
        done = subprocess.run(
            [*mpi.launcher(1), PROGRAM, ':', '-n', '1', 'env',
             'HST_FAKE_NCCL=fail=ncclMemAlloc:1:1', PROGRAM],
            capture_output=True, text=True, env=environment(), timeout=60)
        self.fails(done, r'open: -12 error\[E505\] [^\n]*ncclMemAlloc of [0-9]+ bytes', 40, begun)

    def test_a_library_that_is_too_old(self):
        self.fails(mpirun(2, nccl='version=21805'),
                   r'rank [01]: open: -19 error\[E505\] .*libnccl.so.2 is NCCL 2.18.5, of which '
                   r'2.19.3 is the least')

    def test_a_device_that_is_no_gpu(self):
        self.fails(mpirun(2, '--device', 'host'),
                   r'open: -22 error\[E505\] ranks cannot be joined: the device host is no GPU '
                   r'that NCCL joins')

    def test_a_place_to_meet_that_is_none(self):
        done = subprocess.run([*mpi.launcher(2), PROGRAM, '--limit', '2'], capture_output=True,
                              text=True, env={**environment(), 'NCCL_COMM_ID': 'nowhere'},
                              timeout=60)
        self.fails(done, r'rank (0: open: -5 error\[E505\] ranks cannot be joined: '
                         r'|1: open: -5 error\[E505\] ranks cannot be joined: rank 0: )'
                         r'ncclGetUniqueId failed: invalid argument: Invalid NCCL_COMM_ID')

    def test_what_mpi_fails_with_while_they_join_is_told(self):
        begun = time.monotonic()
        self.fails(mpirun(2, '--limit', '5', '--fault', 'below'),
                   r'rank 1: open: -5 error\[E505\] ranks cannot be joined: rank 1 failed in the '
                   r'share of ranks of nodes, as was planned\. Fix: hoistway bench comm', 40, begun)

    def test_two_ranks_with_one_gpu(self):
        self.fails(mpirun(2, '--device', 'cuda:0'),
                   r'ncclCommInitRankConfig failed: invalid usage: Duplicate GPU detected : rank 0 '
                   r'and rank 1 both on CUDA device 0')

    def test_a_rank_that_hangs_while_they_join(self):
        begun = time.monotonic()
        done = mpirun(2, '--limit', '5', nccl='rank=1,fail=ncclCommInitRankConfig:1:hang')
        self.fails(done, r'open: -32 error\[E504\] .*waited \d+ s in ncclCommInitRankConfig', 40,
                   begun)

    def test_a_rank_that_does_not_come_is_named(self):
        begun = time.monotonic()
        done = mpirun(2, '--limit', '5', '--fault', 'late')
        self.fails(done, r'rank 0: gather: -32 error\[E504\] rank 1 has not come this far; rank 0 '
                         r'waited \d+ s in the exchange of kind-0-hop-8 by NCCL, in step 7\. Fix: '
                         r'[^\n]* \(names 1\)', 40, begun)

    def test_who_loads_may_come_behind_the_limit(self):
        """Also where calls are taken late, and on two nodes."""
        for nodes, nccl in some((((2,), ''), ((2, 2), 'in-progress=3')), 2):
            with self.subTest(nodes=nodes), \
                    Torchrun(nodes, '--limit', '2', '--fault', 'works', nccl=nccl) as ranks:
                for status, said, errors in ranks.wait():
                    self.assertEqual((status, said.count('ok\n')), (0, 1), errors)

    def alone_tells(self, fault, words, *, nccl='', other=None):
        """Rank 0 ends within the limit, of 3 s; other: where rank 1 waits, which ends, too."""
        begun = time.monotonic()
        with Torchrun((2,), '--limit', '3', '--fault', fault, nccl=nccl) as ranks:
            _, errors = ranks.children[0].communicate(timeout=60)
            self.assertEqual(ranks.children[0].returncode, 3, errors)
            self.assertRegex(errors, words)
            self.assertLess(time.monotonic() - begun, 3 + 10)
            if other:
                _, errors = ranks.children[1].communicate(timeout=60)
                self.assertEqual(ranks.children[1].returncode, 3, errors)
                self.assertRegex(errors, rf'error\[E504\] [^\n]*; rank 1 waited 3 s in {other}')

    def test_who_gives_no_sign_of_life_is_not_waited_for_behind_the_limit(self):
        for fault in some(('dies', 'stops'), 2):
            with self.subTest(fault=fault):
                self.alone_tells(fault, r'rank 0: patience: -32 [^\n]*ranks have not come, or not '
                                        r'ended it; rank 0 waited 3 s in the sum of patience')

    def test_a_gpu_that_hangs_while_its_rank_is_at_work_is_told_by_all(self):
        """In a sign of life; the rank itself learns it when it comes."""
        self.alone_tells('works', r'rank 0: patience: -32 [^\n]*; rank 0 waited 3 s in the sum of '
                                  r'patience', nccl='rank=1,fail=ncclAllReduce:18:hang',
                         other='the sum of signs of life')

    def test_patience_begins_behind_what_is_patient(self):
        self.alone_tells('unannounced', r'rank 0: patience: -32 [^\n]*; rank 0 waited 3 s in the '
                                        r'sum of patience', other='the ')

    def test_who_works_is_waited_for_within_the_limit_where_there_is_no_patience(self):
        self.alone_tells('busy', r'rank 0: patience: -32 [^\n]*; rank 0 waited 3 s in the sum of '
                                 r'patience', other='the ')

    def test_a_rank_whose_sign_of_life_waits_ends_at_once(self):
        with Torchrun((2,), '--fault', 'gives-up') as ranks:
            self.assertEqual(ranks.children[1].stderr.readline(), 'rank 1 gives up\n')
            begun = time.monotonic()
            self.assertEqual(ranks.children[1].wait(timeout=40), 9)
            self.assertLess(time.monotonic() - begun, 4)

    def test_an_operation_may_have_a_limit_of_its_own(self):
        """That of all others is a minute here."""
        self.fails(mpirun(2, '--fault', 'hurry'),
                   r'rank 0: hurry: -32 [^\n]*rank 1 has not come this far; waited \d+ s for it in '
                   r'the sum of hurry[^\n]*\(names 1\)')
        with Torchrun((2,), '--fault', 'hurry') as ranks:
            _, errors = ranks.children[0].communicate(timeout=40)
            self.assertRegex(errors, r'rank 0 waited \d+ s in the sum of hurry by NCCL')

    @in_turn(0, 2)
    def test_without_mpi_each_rank_says_where_it_waits(self):
        with Torchrun((2,), '--limit', '5', '--fault', 'late') as ranks:
            _, errors = ranks.children[0].communicate(timeout=40)
            self.assertEqual(ranks.children[0].returncode, 3)
            self.assertRegex(errors, r'ranks have not come, or not ended it; rank 0 waited \d+ s '
                                     r'in the exchange of kind-0-hop-8 by NCCL')

    def test_a_collective_that_hangs(self):
        for call in some(('ncclAllGather:3:hang', 'ncclAlltoAll:2:hang'), 2):
            with self.subTest(call=call):
                begun = time.monotonic()
                done = mpirun(2, '--limit', '5', nccl=f'rank=1,fail={call}')
                self.fails(done, r'error\[E504\] ranks have not come, or not ended it; rank [01] '
                                 r'waited \d+ s', 40, begun)

    def test_an_end_by_force_that_hangs_ends_in_time(self):
        begun = time.monotonic()
        done = mpirun(2, '--limit', '5', '--fault', 'late', nccl='fail=ncclCommAbort:1:hang')
        self.fails(done, 'rank 1 has not come this far', 50, begun)

    def test_a_call_that_fails(self):
        for call, words in some((
                ('ncclAllGather:2:3',
                 r'error\[E507\] ncclAllGather failed: internal error: the plan makes'),
                ('ncclAlltoAll:2:1', r'error\[E507\] ncclAlltoAll failed: unhandled cuda error'),
                ('ncclMemAlloc:1:1',
                 r'open: -12 error\[E505\] .*ncclMemAlloc of [0-9]+ bytes of device memory failed'),
                ('ncclCommWindowRegister:2:2',
                 r'error\[E507\] ncclCommWindowRegister failed: unhandled system'),
                ('ncclCommInitRankConfig:1:2',
                 r'open: -5 error\[E505\] .*ncclCommInitRankConfig failed')), 2):
            with self.subTest(call=call):
                self.fails(mpirun(2, '--limit', '3', nccl=f'fail={call}'), words)

    def test_an_asynchronous_error(self):
        """Long before the limit, while the others do not come."""
        done = mpirun(2, '--limit', '30', '--fault', 'late',
                      nccl='rank=0,fail=ncclAllGather:2:async=6')
        self.fails(done, r'rank 0: [^\n]*-32 error\[E504\] an operation of NCCL failed: remote '
                         r'process exited or there was a network error')

    def test_a_rank_that_dies(self):
        begun = time.monotonic()
        done = mpirun(2, '--limit', '5', nccl='rank=1,fail=ncclAllGather:2:die')
        self.assertNotEqual(done.returncode, 0)
        self.assertLess(time.monotonic() - begun, 40)

    def test_a_rank_that_aborts(self):
        self.assertEqual(mpirun(2, '--fault', 'abort').returncode, 9)

    @in_turn(1, 2)
    def test_a_rank_that_does_not_close_is_named(self):
        done = mpirun(2, '--limit', '5', '--fault', 'stays')
        self.fails(done, r'rank 0: close: -32 [^\n]*\(names 1\)')

    def test_the_double_tells_of_ranks_that_do_not_do_the_same(self):
        self.fails(mpirun(2, '--limit', '5', '--fault', 'count'),
                   r'fake NCCL: operation \d+ of a communicator is \w+ of \d+ elements of type 0, '
                   r'root 0, on rank [01], and \w+ of \d+ elements')


load_tests = by_turns

if __name__ == '__main__':
    if mpi.missing(MPI_FOLDER):
        print('no mpirun, or the transport was not built')
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]])
