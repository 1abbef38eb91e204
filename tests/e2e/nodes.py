#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run of several ranks on two nodes, which are namespaces of networks (../comm/ranks.py): needs
root.

    nodes.py PROGRAM PLUGIN_FOLDER SOURCE_ROOT [TEST...]
"""
import hashlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'comm'))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import mpi  # noqa: E402
from ranks import Nodes, alone  # noqa: E402

ROOT = sys.argv[3]
HEADERS = 14 + 20 + 32  # of Ethernet, IP, and TCP with time stamps
MTU = 1500
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')


class Run(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.abspath(scratch.name)  # the daemons of nodes start elsewhere

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def options(self, *more, store='store', steps=3, batch=384):
        return ['train', '--device', 'host', '--model', MODEL, '--data',
                os.path.join(MODEL, 'tokens.bin'), '--steps', str(steps), '--seq-len', '24',
                '--batch-tokens', str(batch), '--grain', '48', '--lr', '1e-3', '--threads', '1',
                '--store', self.path(store), '--log', self.path('log.jsonl'),
                '--export', self.path('out'), *more]

    def ended(self, done):
        """-> sums of what was exported."""
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {}
        for name in sorted(os.listdir(self.path('out'))):
            with open(self.path('out', name), 'rb') as file:
                found[name] = hashlib.sha256(file.read()).hexdigest()
        shutil.rmtree(self.path('out'))
        return found

    def lines(self, kind):
        with open(self.path('log.jsonl'), encoding='utf-8') as file:
            return [line for line in map(json.loads, file) if line['kind'] == kind]

    def moved(self, nodes, ranks, stage):
        """Of each step, in shards of all units: what a rank takes in, and from the other node. The
        export is that of one rank."""
        shutil.rmtree(self.path('store'), ignore_errors=True)
        done = nodes.mpirun(ranks, *self.options('--ways', '4', '--zero-stage', str(stage)))
        self.assertEqual(self.ended(done), self.want)
        self.assertEqual(self.lines('run')[0]['nodes'], 2)
        shard = mpi.shard_bytes(sum(ranks), (160 * 64, *3 * [38016], 64, 160 * 64))
        steps = {(line['bytes']['net'] / shard, line['bytes']['net_between'] / shard)
                 for line in self.lines('step')}
        self.assertEqual(len(steps), 1, steps)
        return steps.pop()

    def test_bytes_between_nodes(self):
        """Weights are gathered and gradients exchanged once a step. A rank alone on its node takes
        in all from the other. Of two on a node each takes in three shards of either. Of gradients
        one of them comes from there, as both nodes sum first; of weights one, or both where they
        do not lie in shared memory. Replicas gather sums of gradients in place of weights."""
        self.want = self.ended(alone(*self.options('--ways', '4', store='alone')))
        with Nodes(self) as nodes:
            for stage in range(3):
                with self.subTest(stage=stage):
                    self.assertEqual(self.moved(nodes, (1, 1), stage), (2, 2))
                    self.assertIn(self.moved(nodes, (2, 2), stage), ((6, 2), (6, 3)))

    def crossed(self, nodes, gather, secondary, size, reduce='grads', handed=lambda n: 2 * n,
                hop=4):
        """A step gathers the first layers twice; the embedding, the last layer, norm and head once.
        Four ranks of a node have one sum of gradients between them. -> the export, and of the
        first layers, in units of 2 bytes of what the other node has, gathers and exchange."""
        named = f'{gather}-{secondary}-{reduce}-{hop}'
        visits = zip((160 * 64, *3 * [38016], 64, 160 * 64), (1, 2, 2, 1, 1, 1))
        shards = [(mpi.shard_bytes(8, [elements]) // 4, 1 if secondary == 'node' else times)
                  for elements, times in visits]
        options = ('--ways', '8', '--hop', str(hop), '--precision', 'bf16', '--gather', gather,
                   '--secondary', secondary, '--reduce', reduce)
        want = self.ended(alone(*self.options(*options, store=named)))
        done = nodes.mpirun((4, 4), *self.options(*options, store=f'{named}-nodes'))
        self.assertEqual(self.ended(done), want)
        gathered = sum(times * size(n) for n, times in shards)
        exchanged = sum(handed(n) for n, _ in shards)
        told = {line['bytes']['net_between'] for line in self.lines('step')}
        print(f'{gather}, {secondary}, {reduce}: gathers {gathered}, exchanges {exchanged}, '
              f'took {told}')
        # each shard once where the node's ranks read each other in place, else by each of them
        self.assertIn(told, ({gathered + exchanged}, {4 * gathered + exchanged}))
        if secondary == 'node' and told == {gathered + exchanged}:
            self.planned(told.pop(), [n for n, _ in shards], options)
        elements, times = shards[1]
        return want, tuple(n / (2 * elements) for n in (times * size(elements), handed(elements)))

    def planned(self, crossed, shards, options):
        """Where each row crosses once a plan tells as many bytes, but for what pads shards."""
        done = alone('plan', '--device', 'host', '--json', '--accounting', 'paper', '--model',
                     MODEL, '--seq-len', '24', '--batch-tokens', '384', '--world', '8', '--nodes',
                     '2', *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        said = plan['accounting']['stages'][3]['here_between_bytes']
        self.assertAlmostEqual(said * 8 * sum(shards) / plan['parameters'], crossed, delta=1)

    def test_what_crosses_nodes_as_integers_and_once(self):
        """Of a layer ZeRO moves 3 M: gathers of half the bytes, none in the backward, leave 0.5 M
        beside the exchange. hoistway's scales are 1/128 of the integers."""
        exports, units = {}, {}
        with Nodes(self) as nodes:
            for gather, size in (('plain', lambda n: 2 * n), ('int8', lambda n: n + n // 128)):
                for secondary in ('none', 'node'):
                    exported, units[gather, secondary] = self.crossed(nodes, gather, secondary,
                                                                      size)
                    exports.setdefault(gather, []).append(exported)
        for same in exports.values():
            self.assertEqual(same[0], same[1])
        print(f'of a layer, gathers and exchange: {units}; the paper: 2 + 1, then 0.5 + 1')
        self.assertEqual(units['plain', 'none'], (2, 1))
        self.assertEqual(units['int8', 'node'], (129 / 256, 1))

    def test_what_crosses_nodes_where_gradients_are_integers_too(self):
        """ZeRO++ makes 0.75 M of 3 M: gathers of 0.5, an exchange of 0.25. Scales are beside."""
        with Nodes(self) as nodes:
            for bits in (8, 4):
                _, units = self.crossed(nodes, 'int8', 'node', lambda n: n + n // 128,
                                        f'int{bits}', lambda n: n * bits // 8 + n // 128)
                print(f'of a layer, {bits} bits: {units}; the paper: 0.5 + 0.25 of 4 bits')
                self.assertEqual(units, (129 / 256, bits / 16 + 1 / 256))

    def test_a_sum_of_fewer_ways_than_a_hop_crosses_as_f32(self):
        """Of a layer ZeRO moves 3 M. Here 1 is gathered, and a sum of four ways is 2."""
        with Nodes(self) as nodes:
            _, units = self.crossed(nodes, 'plain', 'node', lambda n: 2 * n,
                                    handed=lambda n: 4 * n, hop=8)
        self.assertEqual(units, (1, 2))

    def test_sums_that_cross_as_f32_are_told(self):
        """Sums of two ways are rounded to bf16 with --hop 2 alone. In fp32 nothing is narrower."""
        note = 'note[I508] sums of gradients cross nodes in f32, not in bf16: they are of 2 ' \
               'ways, and --hop is 4. Other numbers and fewer bytes: --hop 2\n'
        with Nodes(self) as nodes:
            for precision, hop, times in (('bf16', 4, 1), ('bf16', 2, 0), ('fp32', 4, 0)):
                with self.subTest(precision=precision, hop=hop):
                    options = ('--ways', '4', '--hop', str(hop), '--precision', precision)
                    want = self.ended(alone(*self.options(*options,
                                                          store=f'{precision}-{hop}-alone')))
                    done = nodes.mpirun((2, 2), *self.options(*options,
                                                              store=f'{precision}-{hop}'))
                    self.assertEqual(self.ended(done), want)
                    self.assertEqual(done.stderr.count(note), times, done.stderr)
                    self.assertEqual(done.stderr.count('cross nodes in f32'), times)

    def test_one_hop_and_two_have_the_bytes_of_one_rank(self):
        """A rank of each node sends what it has in one hop, and so do three of each, as no power of
        two of them can add first; two of each node add, and then send. Sums of eight ways are f32
        on their way between nodes, those of two are rounded."""
        with Nodes(self) as nodes:
            for precision, hop in itertools.product(('fp32', 'bf16'), (8, 2)):
                for ways, shapes in ((4, ((1, 1), (2, 2))), (6, ((3, 3),))):
                    named = f'{precision}-{hop}-{ways}'
                    options = ('--ways', str(ways), '--hop', str(hop), '--precision', precision)
                    batch = 72 * ways
                    want = self.ended(alone(*self.options(*options, store=named, batch=batch)))
                    losses = [line['loss'] for line in self.lines('step')]
                    for shape in shapes:
                        with self.subTest(precision=precision, hop=hop, ranks=shape):
                            done = nodes.mpirun(shape, *self.options(
                                *options, store=f'{named}-{shape[0]}', batch=batch))
                            self.assertEqual(self.ended(done), want)
                            self.assertEqual([x['loss'] for x in self.lines('step')], losses)
                            self.assertEqual(self.lines('run')[0]['nodes'], 2)

    def test_what_a_node_keeps_is_not_read_again(self):
        """Of weights on drives; and where the head's row is the embedding's, which it gathers. A
        read ahead may end in the step before or in this one: the median is what a step reads."""
        for model, more in (('untied-mha', ('--place', 'states=nvme,weights=nvme')),
                            ('tied-gqa', ('--place', 'states=nvme,weights=nvme')),
                            ('tied-gqa', ('--gather', 'int8', '--place',
                                          'states=nvme,weights=nvme'))):
            told = {}
            with self.subTest(model, more=more), Nodes(self) as nodes:
                for where in 'alone', 'none', 'node':
                    options = self.options('--ways', '4', '--precision', 'bf16', *more,
                                           '--secondary', where.replace('alone', 'none'),
                                           store=where, steps=9)
                    options[options.index(MODEL)] = os.path.join(ROOT, 'tests', 'golden', model)
                    done = alone(*options) if where == 'alone' else nodes.mpirun((2, 2), *options)
                    exported = self.ended(done)
                    want = exported if where == 'alone' else want
                    self.assertEqual(exported, want)
                    steps = [line['bytes'] for line in self.lines('step')]
                    told[where] = {key: statistics.median_low(step[key] for step in steps)
                                   for key in ('nvme_read', 'net_between')}
                    shutil.rmtree(self.path(where))
                less = [told['none'][key] - told['node'][key] for key in told['none']]
                print(model, *more, f'less is read and crosses: {less}')
                self.assertGreater(less[1], 0)
                # beside integers the update wants the exact weights
                (self.assertEqual if 'int8' in more else self.assertGreater)(less[0], 0)

    def test_a_node_with_too_little_shared_memory_is_warned_of_once(self):
        """All take messages, with the same results; where the node has enough nothing is warned."""
        want = self.ended(alone(*self.options('--ways', '4', store='alone')))
        losses = [line['loss'] for line in self.lines('step')]
        for little in (True, False):
            with self.subTest(little=little), Nodes(self, little=little) as nodes:
                done = nodes.mpirun((2, 2), *self.options('--ways', '4', store=f'little-{little}'))
                self.assertEqual(self.ended(done), want)
                self.assertEqual([line['loss'] for line in self.lines('step')], losses)
                warned = [line for line in done.stderr.splitlines() if 'W506' in line]
                self.assertEqual(len(warned), little, done.stderr)
                self.assertEqual(done.stderr.count('I506'), not little, done.stderr)
                if little:
                    self.assertRegex(warned[0], r"^warning\[W506\] ranks of a node send each other "
                                                r"messages, .*: a node's /dev/shm is too small for "
                                                r'\d+ KiB of each of its ranks\. .* Fix: mount -o ')

    def test_a_row_that_cannot_be_cut_evenly_is_not_kept(self):
        options = self.options('--ways', '3', '--secondary', 'node')
        options[options.index('384')] = '360'  # which three share
        with Nodes(self) as nodes:
            done = nodes.mpirun((2, 1), *options)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r'error\[E402\] --secondary node needs as many ranks')

    # More than 64 MiB of f32 a step: two tables of 18,000 rows, and two layers.
    LARGE = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': 512,
             'intermediate_size': 1024, 'num_hidden_layers': 2, 'num_attention_heads': 8,
             'num_key_value_heads': 8, 'head_dim': 64, 'vocab_size': 18000,
             'max_position_embeddings': 64, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0,
             'hidden_act': 'silu', 'tie_word_embeddings': False}

    def received(self, nodes):
        """-> bytes that came to node 1 by its link so far, without headers of Ethernet, IP and TCP
        and without segments that node 2 sent again. How the kernel cuts packets, and how late it
        is, makes these up to a twentieth."""
        told = json.loads(subprocess.run(
            ['ip', '-n', nodes.name + '1', '-s', '-j', 'link', 'show', 'dev', nodes.name + 'a2'],
            capture_output=True, text=True, check=True).stdout)
        link = told[0]['stats64']['rx']
        tcp = [line.split()[1:] for line in subprocess.run(
            ['ip', 'netns', 'exec', nodes.name + '2', 'cat', '/proc/net/snmp'],
            capture_output=True, text=True, check=True).stdout.splitlines() if line[:4] == 'Tcp:']
        again = int(dict(zip(*tcp))['RetransSegs'])
        return link['bytes'] - HEADERS * link['packets'] - (MTU + 14 - HEADERS) * again

    def carried(self, nodes, stage):
        """-> by the number of steps that had ended, the bytes that node 1 had received."""
        seen, log = {}, self.path('log.jsonl')
        command = nodes.command(
            (1, 1), 'train', '--device', 'host', '--model', self.path('large'), '--init', 'random',
            '--data', os.path.join(MODEL, 'tokens.bin'), '--steps', '30', '--seq-len', '24',
            '--batch-tokens', '48', '--lr', '1e-3', '--threads', '1', '--durability', 'none',
            '--place', 'states=dram,weights=dram', '--zero-stage', str(stage), '--store',
            self.path(f'store{stage}'), '--log', log)
        with open(self.path('told'), 'w+', encoding='utf-8') as told, \
                subprocess.Popen(command, stdout=told, stderr=told,
                                 env=nodes.environment()) as run:
            until = time.monotonic() + 100
            while run.poll() is None:
                if time.monotonic() > until:
                    run.kill()
                ended = len(self.lines('step')) if os.path.exists(log) else 0
                if ended not in seen:
                    seen[ended] = self.received(nodes)
                time.sleep(0.002)
            told.seek(0)
            self.assertEqual(run.returncode, 0, told.read())
        return seen

    def test_what_a_step_takes_in_is_what_the_link_carries(self):
        """The link is looked at as steps end: before them the network was measured, for a time."""
        os.mkdir(self.path('large'))
        with open(self.path('large', 'config.json'), 'w', encoding='ascii') as file:
            json.dump(self.LARGE, file)
        with Nodes(self) as nodes:
            for stage in (3, 2):
                with self.subTest(stage=stage):
                    seen = self.carried(nodes, stage)
                    first, last = min(n for n in seen if n > 0), max(n for n in seen if n < 30)
                    self.assertGreater(last - first, 20)
                    told = [line['bytes']['net_between'] for line in self.lines('step')]
                    self.assertGreater(told[-1], 64 << 20)
                    carried = (seen[last] - seen[first]) / (last - first)
                    said = sum(told[first:last]) / (last - first)
                    print(f'stage {stage}: {said:.0f} bytes a step, and {carried:.0f} by the link')
                    self.assertLess(abs(carried - said), 0.03 * said)
                os.remove(self.path('log.jsonl'))

    def test_each_rank_has_a_directory_by_its_node(self):
        """And goes on there, with the ways of the store."""
        want = self.ended(alone(*self.options('--ways', '8', store='alone', steps=4)))
        words, names = '{node}-{local}-{rank}', ['0-0-0', '0-1-1', '1-0-2', '1-1-3']
        with Nodes(self) as nodes:
            self.ended(nodes.mpirun((2, 2), *self.options(
                '--ways', '8', '--durability', 'step', store=words, steps=2)))
            self.assertEqual(sorted(set(os.listdir(self.folder)) - {'alone', 'log.jsonl'}), names)
            for rank, name in enumerate(names):
                self.assertEqual(os.listdir(self.path(name)), [f'r{rank:05}.d0.blk'])
            done = nodes.mpirun((2, 2), *self.options('--resume', '--durability', 'step',
                                                      store=words, steps=4))
        self.assertIn('--ways 8, as the store has it', done.stderr)
        self.assertEqual(self.ended(done), want)


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
