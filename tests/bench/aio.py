#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""aio beside fio on the same file, by turns: A B A B, order reversed each round, paired ratios.

    aio.py PATH_OF_AIO_BENCH [--pairs N] [--mib N] [--backend uring|threads] [--only PART,...]

Run in a directory of the drive to be measured; needs --mib MiB there (1024), which are removed
again. fio's best setting is looked for first (io_uring, O_DIRECT, huge pages; size of blocks,
depth, registered buffers and files); then ours, in those blocks and at that depth, and fio are
paired. Numbers are ours / fio's: rates more is better, CPU seconds per GB less. Then uring and
threads are paired, in one process and on the same memory, over depths and sizes of blocks.
"""
import argparse
import os
import statistics
import tempfile

import fio

BLOCKS_KIB = (256, 1024, 4096)
DEPTHS = (8, 16, 32, 64)
RW = {'read': 'read', 'write': 'write', 'mixed': 'rw'}


class Bench:
    def __init__(self, options, path, huge):
        self.options, self.path, self.huge = options, path, huge

    def ours(self, mode, block_kib, depth):
        o = self.options
        found = fio.run([o.program, mode, self.path, str(o.mib), str(block_kib), str(depth),
                         o.backend])
        return {'rate': found['bytes'] / found['seconds'],
                'cpu': found['cpu_seconds'] / found['bytes'] * 1e9}

    def fio(self, mode, block_kib, depth, fixed):
        return fio.measure(self.path, RW[mode], block_kib, depth, size_mib=self.options.mib,
                           fixed=fixed, huge=self.huge)

    def best(self, measure, mode, settings):
        """The setting with the best median rate of three rounds, taken by turns."""
        rates = {s: [] for s in settings}
        for _ in range(3):
            for s in settings:
                rates[s].append(measure(mode, *s)['rate'])
        return max(settings, key=lambda s: statistics.median(rates[s]))


def report(name, ratios, unit=''):
    ordered = sorted(ratios)
    print(f'  {name:34} median {statistics.median(ordered):.3f}'
          f'  [{ordered[0]:.3f} .. {ordered[-1]:.3f}]{unit}', flush=True)


def pairs(count, a, b):
    found = []
    for i in range(count):
        first = a() if i % 2 == 0 else None
        second = b()
        found.append((first or a(), second))
    return found


def beside_fio(bench, mode):
    settings = [(b, d, f) for b in BLOCKS_KIB for d in DEPTHS for f in (0, 1)]
    theirs = bench.best(bench.fio, mode, settings)
    print(f'{mode}: fio blocks of {theirs[0]} KiB, depth {theirs[1]}, registered {theirs[2]}')
    found = pairs(bench.options.pairs, lambda: bench.ours(mode, *theirs[:2]),
                  lambda: bench.fio(mode, *theirs))
    print(f"  GB/s: ours {statistics.median(a['rate'] for a, _ in found) / 1e9:.2f},"
          f" fio {statistics.median(b['rate'] for _, b in found) / 1e9:.2f}")
    report('rate, ours / fio', [a['rate'] / b['rate'] for a, b in found])
    print(f"  CPU s/GB: ours {statistics.median(a['cpu'] for a, _ in found):.4f},"
          f" fio {statistics.median(b['cpu'] for _, b in found):.4f}")
    report('CPU s/GB, ours / fio', [a['cpu'] / b['cpu'] for a, b in found])


def streaming(bench, mode):
    found = pairs(bench.options.pairs, lambda: bench.ours('stream-' + mode, 1024, 16),
                  lambda: bench.ours('whole-' + mode, 1024, 16))
    print(f"{mode}, 16 tiles of 1 MiB worked on in place, beside one buffer of {bench.options.mib}"
          ' MiB')
    report('rate, stream / whole', [a['rate'] / b['rate'] for a, b in found])


def backends(bench):
    """uring beside threads: ratios of neighbouring turns, quartiles of them."""
    options = bench.options
    print('uring beside threads, 15 pairs of 128 MiB: rate of uring / threads, median [quartiles]')
    for mode in ('read', 'write', 'mixed'):
        for block in (256, 1024, 4096):
            for depth in (4, 8, 16, 32, 64):
                command = [options.program, mode, bench.path, str(options.mib), str(block),
                           str(depth), 'uring,threads']
                found = fio.run(command)
                rows = found['turns']
                sides = [[row for row in rows if row[0] == which] for which in (0, 1)]
                ratios = [b[1] / a[1] for a, b in zip(*sides)]
                low, middle, high = statistics.quantiles(ratios, n=4)
                rate, cpu = ([statistics.median(row[i] for row in side) for side in sides]
                             for i in (1, 2))
                gigabytes = found['bytes'] / 1e9
                print(f'  {mode:5} {block:5} KiB depth {depth:2}  {middle:.3f} [{low:.3f} ..'
                      f' {high:.3f}]  {gigabytes / rate[0]:.2f}, {gigabytes / rate[1]:.2f} GB/s'
                      f'  CPU s/GB {cpu[0] / gigabytes:.4f}, {cpu[1] / gigabytes:.4f}',
                      flush=True)


def null_backend(bench):
    command = [bench.options.program, 'null', '-', '4096', '4', '16', '-']
    found = [fio.run(command) for _ in range(5)]
    print('null backend, 4 KiB requests, 16 in flight')
    report('us per request', [f['seconds'] / f['requests'] * 1e6 for f in found])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program', type=os.path.abspath)
    parser.add_argument('--pairs', type=int, default=11)
    parser.add_argument('--mib', type=int, default=1024)
    parser.add_argument('--backend', default='uring')
    parser.add_argument('--only', default='null,read,write,mixed,stream-read,stream-write,backends')
    options = parser.parse_args()
    only = options.only.split(',')
    most_bytes = max(BLOCKS_KIB) * max(DEPTHS) << 10
    with tempfile.TemporaryDirectory(dir='.', prefix='aio-bench-') as folder, \
            fio.huge_pages(most_bytes) as huge:
        if not huge:
            print("fio's buffers are small pages: not root, and there is no pool of huge ones")
        bench = Bench(options, os.path.abspath(os.path.join(folder, 'f')), huge)
        with open(bench.path, 'wb') as file:
            for _ in range(options.mib):
                file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())
        os.chdir(folder)
        if 'null' in only:
            null_backend(bench)
        for mode in ('read', 'write', 'mixed'):
            if mode in only:
                beside_fio(bench, mode)
        for mode in ('read', 'write'):
            if 'stream-' + mode in only:
                streaming(bench, mode)
        if 'backends' in only:
            backends(bench)
        os.chdir('..')


if __name__ == '__main__':
    main()
