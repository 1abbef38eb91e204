#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank's part of its node: what it takes of memory while it loads and while it trains, what its
ways wait in, and its cores.

    rank_parts.py PROGRAM SOURCE_ROOT PLUGIN_FOLDER [TEST...]
"""
import contextlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
from ranks import FOLDER, GOLDEN, PROGRAM, Case, environment  # noqa: E402

import mpi  # noqa: E402
from short import by_turns, part, some  # noqa: E402

MIB = 1 << 20


class Ranks(Case):
    def setUp(self):
        super().setUp()
        if mpi.missing(FOLDER):
            self.skipTest('no mpirun, or no libhoistway-mpi.so')


class Budget(Ranks):
    """--dram is a node's, of which each rank has an equal part."""

    def within(self, ranks, stage, place):
        """With the least that a refusal names. Of the other ranks' peaks engine/ranks tells."""
        options = ('--ways', '4', '--zero-stage', str(stage), '--place', place)
        command = [*mpi.launcher(ranks), *self.command(*options, '--dram', '1M',
                                                       '--durability', 'none')]
        run = {'capture_output': True, 'text': True, 'env': environment(), 'timeout': 120}
        done = subprocess.run(command, check=False, **run)
        least = re.search(r"error\[E302\] .* needs (\S+) MiB of DRAM .* the node.s \d ranks",
                          done.stderr)
        self.assertTrue(least, done.stderr)
        command[command.index('1M')] = least[1] + 'M'
        done = subprocess.run(command, check=False, **run)
        self.assertEqual(done.returncode, 0, done.stderr)
        own = float(least[1]) * MIB / ranks
        peaks = [line['peak']['dram'] for line in self.lines('step')]
        self.assertEqual(len(peaks), 3)
        self.assertGreater(min(peaks), 0.9 * own)
        self.assertLessEqual(max(peaks), own)
        table = re.search(r'(?m)^total +(\S+) MiB', done.stdout)
        self.assertLessEqual(max(peaks), (float(table[1]) + 0.05) * MIB)

    def test_a_peak_is_within_the_part_of_a_rank(self):
        rows = [(ranks, stage, place) for stage in range(4) for ranks in (2, 4)
                for place in ('states=dram', 'states=nvme')]
        for row in some(part(rows, 4), 2):
            with self.subTest(row):
                self.within(*row)


class Accumulators(unittest.TestCase):
    """What ways wait in until they are added: as large as the gradient of a layer in f32, whose
    38,016 elements are ten blocks."""
    EACH = 10 * 4096 * 4
    # In fp32 the sum of two takes the place of the first. In bf16 a sum that is not rounded yet has
    # a place of its own beside the two ways that are added to it next, and so has theirs.
    ALONE = {'fp32': {1: 0, 2: 2, 3: 2, 4: 3, 6: 3, 8: 4}, 'bf16': {1: 0, 2: 2, 3: 3, 4: 4, 6: 4,
                                                                  8: 5}}

    def buffers(self, ranks, ways, precision):
        done = subprocess.run(
            [PROGRAM, 'plan', '--device', 'host', '--json', '--precision', precision, '--model',
             os.path.join(GOLDEN, 'untied-mha'), '--seq-len', '24', '--batch-tokens', '2304',
             '--grain', '24', '--world', str(ranks), '--ways', str(ways)], capture_output=True,
            text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)['memory']['buffers']['dram']

    def test_the_table_has_them(self):
        for precision in some(self.ALONE, 2):
            one = self.buffers(1, 1, precision)
            for ways, count in self.ALONE[precision].items():
                with self.subTest(precision, ways=ways):
                    self.assertEqual(self.buffers(1, ways, precision) - one, count * self.EACH)

    def test_the_table_of_a_rank_has_those_of_its_own_ways(self):
        """One, two, four and eight of them, of two ranks. In fp32 what ranks hand over has one
        type, so that nothing else depends on how many there are."""
        one = self.buffers(2, 2, 'fp32')
        for each, count in ((2, 2), (4, 3), (8, 4)):
            self.assertEqual(self.buffers(2, 2 * each, 'fp32') - one, count * self.EACH)


# Runs a program and writes the greatest amount of memory that it had. In a process of its own: what
# its parent had counts too.
PEAK = """
import os, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
with open(sys.argv[1] + os.environ['OMPI_COMM_WORLD_RANK'], 'w') as file:
    file.write(str(usage.ru_maxrss << 10))
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Load(Ranks):
    """A rank holds its shards and one unit, however many units the others have: as the system
    counts, whatever the memory was for."""
    HIDDEN, INNER = 512, 1024
    LAYERS = (3, 8)
    LAYER = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER + 2 * HIDDEN  # elements

    def tensors(self, layers):
        hidden, inner = self.HIDDEN, self.INNER
        shapes = {'model.embed_tokens.weight': (256, hidden), 'model.norm.weight': (hidden,),
                  'lm_head.weight': (256, hidden)}
        for at in range(layers):
            name = f'model.layers.{at}.'
            shapes.update({f'{name}{norm}_layernorm.weight': (hidden,)
                           for norm in ('input', 'post_attention')})
            shapes.update({f'{name}self_attn.{of}_proj.weight': (hidden, hidden) for of in 'qkvo'})
            shapes.update({f'{name}mlp.{of}_proj.weight': (inner, hidden)
                           for of in ('gate', 'up')})
            shapes[name + 'mlp.down_proj.weight'] = (hidden, inner)
        return shapes

    def model(self, layers):
        """A folder with so many layers, of zeros, which take no room on a drive."""
        folder = self.path(f'of{layers}')
        os.mkdir(folder)
        with open(os.path.join(GOLDEN, 'untied-mha', 'config.json'), encoding='utf-8') as file:
            config = json.load(file)
        config.update(hidden_size=self.HIDDEN, intermediate_size=self.INNER, vocab_size=256,
                      num_hidden_layers=layers)
        config.pop('head_dim', None)
        with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as file:
            json.dump(config, file)
        header, at = {}, 0
        for name, shape in self.tensors(layers).items():
            size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [at, at + size]}
            at += size
        text = json.dumps(header).encode('ascii')
        with open(os.path.join(folder, 'model.safetensors'), 'wb') as file:
            file.write(struct.pack('<Q', len(text)) + text)
            file.truncate(8 + len(text) + at)
        return folder

    def peaks(self, layers, *more):
        """-> of each of two ranks."""
        done = subprocess.run(
            [*mpi.launcher(2), sys.executable, '-c', PEAK, self.path('peak'),
             os.path.abspath(PROGRAM), 'train', '--device', 'host', '--model',
             self.path(f'of{layers}'), '--data',
             os.path.join(GOLDEN, 'untied-mha', 'tokens.bin'), '--steps', '1', '--seq-len', '24',
             '--batch-tokens', '48', '--threads', '1', '--durability', 'none', '--place',
             'states=dram,weights=dram', '--activations', 'recompute', '--quiet', '--store',
             self.path('store'), *more],
            capture_output=True, text=True, env=environment(), timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = []
        for rank in range(2):
            with open(self.path(f'peak{rank}'), encoding='ascii') as file:
                found.append(int(file.read()))
        return found

    def test_a_rank_holds_its_shards_and_one_unit_while_it_loads(self):
        """What more layers add is their shards: weight, gradient and two states, of 4 bytes each.
        The whole weights of those layers would be five times what is let pass, some of which huge
        pages take."""
        with open(PROGRAM, 'rb') as file:
            if b'__asan_init' in (program := file.read()) or b'__tsan_init' in program:
                self.skipTest('a sanitizer has memory of its own')
        few, many = self.LAYERS
        for layers in self.LAYERS:
            self.model(layers)
        shards = (many - few) * self.LAYER * 16 // 2
        for init in some(((), ('--init', 'random')), 2):
            with self.subTest(init):
                pairs = zip(self.peaks(few, *init), self.peaks(many, *init))
                for rank, (less, more) in enumerate(pairs):
                    print(f'rank {rank}{" ".join(("", *init))}: {less / MIB:.1f} MiB, with '
                          f'{many - few} more layers {(more - less) / MIB:.1f} beside, of which '
                          f'{shards / MIB:.1f} are its shards')
                    self.assertGreater(more - less, 0.9 * shards)
                    self.assertLess(more - less, shards + 4 * self.LAYER)


class Threads(Ranks):
    """Those of a node are divided among its ranks, where nothing is said of them."""

    def threads(self, *ranks):
        """ranks: the words of each before the program, on a machine of eight cores. -> how many
        each has while all train, and what the log says."""
        command = self.command('--ways', str(len(ranks)), steps=100000)
        at = command.index('--threads')
        del command[at:at + 2]
        words = mpi.launcher(1)[:-2]
        for rank in ranks:
            words += ['-n', '1', *rank, 'env', '-u', 'HWLOC_COMPONENTS',
                      'HWLOC_SYNTHETIC=core:8 pu:1', *command, ':']
        shutil.rmtree(self.path('store'), ignore_errors=True)
        open(self.path('log.jsonl'), 'w', encoding='ascii').close()
        with subprocess.Popen(words[:-1], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=environment()) as child:
            until, there = time.monotonic() + 60, []
            while child.poll() is None and time.monotonic() < until and not self.lines('step'):
                time.sleep(0.02)
            processes = mpi.processes(PROGRAM, self.path('store'))
            for process in processes:
                names = []
                for task in os.listdir(f'/proc/{process}/task'):
                    with open(f'/proc/{process}/task/{task}/comm', encoding='ascii') as file:
                        names.append(file.read())
                there.append(1 + sum(name.startswith('hst-work-') for name in names))
            for process in processes:
                with contextlib.suppress(ProcessLookupError):  # whom mpirun has ended meanwhile
                    os.kill(process, signal.SIGKILL)
            child.wait(60)
        run, = self.lines('run')
        return there, run['threads']

    def lines(self, kind, log='log.jsonl'):
        with open(self.path(log), encoding='utf-8') as file:  # whose last line may be cut
            return [line for line in (json.loads(text) for text in file if text.endswith('}\n'))
                    if line['kind'] == kind]

    def test_ranks_divide_the_cores_that_all_may_use(self):
        for ranks, each in some(((1, 8), (2, 4), (3, 2), (4, 2)), 2):
            with self.subTest(ranks=ranks):
                self.assertEqual(self.threads(*[()] * ranks), ([each] * ranks, each))

    def test_a_rank_that_is_bound_to_cores_has_all_of_them(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            self.skipTest('one processor, which no two ranks can divide')
        bound = [('taskset', '-c', str(core)) for core in cores[:2]]
        self.assertEqual(self.threads(*bound), ([8, 8], 8))
        self.assertEqual(self.threads(bound[0], bound[1], bound[1]), ([8, 4, 4], 8))


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
