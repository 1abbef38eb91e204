#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each short probe beside its long benchmark, by turns: by how many per cent they differ.

    probes.py BUILD [--dir DIR] [--runs N] [--mib N] [--only memory,drive,products]

Long are: for memory and updates, whole passes over arrays of --mib MiB together (1536), 7 rounds;
for the drive, aio_bench over a file of 1 GiB and nvme-bench --quick; for products, hoistway bench
kernels on the host, one thread. A row is: probe, long benchmark, their ratio per run. DIR is on the
drive to be measured; nothing is left there.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f'{" ".join(command)}\n{done.stdout}{done.stderr}')
    return done.stdout


class Table:
    def __init__(self):
        self.rows = {}

    def add(self, name, unit, probe, long):
        self.rows.setdefault((name, unit), []).append((probe, long))

    def show(self):
        print('| figure | probe, median | long, median | probe / long - 1, per cent, each run |')
        print('|---|---|---|---|')
        for (name, unit), pairs in self.rows.items():
            off = [100 * (p / b - 1) for p, b in pairs]
            probe, long = (statistics.median(column) / 1e9 for column in zip(*pairs))
            each = ', '.join(f'{o:+.0f}' for o in off)
            print(f'| {name} | {probe:.2f} {unit} | {long:.2f} '
                  f'| {each}; median {statistics.median(off):+.0f} |')


class Bench:
    def __init__(self, options):
        self.options, self.table, self.took = options, Table(), []
        self.program = os.path.join(options.build, 'tests/bench/probe_bench')

    def probe(self):
        found = json.loads(run([self.program, 'probe', self.options.dir]))
        self.took.append(found.pop('seconds'))
        return found

    def memory(self):
        found = self.probe()
        long = json.loads(run([self.program, 'memory', str(self.options.mib), '7']))
        for name, figure in long.items():
            unit = 'GB/s' if name.startswith('dram') else 'G/s'
            self.table.add(name, unit, found[name]['value'], figure['value'])

    def drive(self):
        found = self.probe()
        aio = os.path.abspath(os.path.join(self.options.build, 'tests/bench/aio_bench'))
        with tempfile.TemporaryDirectory(dir=self.options.dir) as folder:
            path = os.path.join(folder, 'f')
            with open(path, 'wb') as file:
                for _ in range(1024):
                    file.write(os.urandom(1 << 20))
                os.fsync(file.fileno())
            for kind in 'read', 'write', 'mixed':
                told = json.loads(run([aio, kind, path, '1024', '1024', '16', 'uring'], cwd=folder))
                self.table.add(f'{kind}, aio_bench', 'GB/s', found[kind]['value'],
                               told['bytes'] / told['seconds'])
        found = self.probe()
        program = os.path.join(self.options.build, 'tools/nvme_bench/nvme-bench')
        for case in json.loads(run([program, self.options.dir, '--quick', '--json']))['cases']:
            if case['phase'] == 'steady':
                self.table.add(f'{case["kind"]}, nvme-bench --quick', 'GB/s',
                               found[case['kind']]['value'], case['value'])

    def products(self):
        program = os.path.join(self.options.build, 'tools/hoistway')
        lines = run([program, 'bench', 'kernels', '--device', 'host', '--only', 'matmul', '--json'])
        long = [json.loads(line) for line in lines.splitlines() if line]
        shapes = [case['case'].rsplit(' ', 1)[1].split('x') for case in long]
        found = json.loads(run([self.program, 'products', *[n for s in shapes for n in s]]))
        for i, case in enumerate(long):
            self.table.add(f'product {case["case"]} bf16', 'GFLOP/s',
                           found[f'product {i}']['value'], case['value'])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('build')
    parser.add_argument('--dir', default=tempfile.gettempdir())
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--mib', type=int, default=1536)
    parser.add_argument('--only', default='memory,drive,products')
    options = parser.parse_args()
    bench = Bench(options)
    for _ in range(options.runs):
        for part in options.only.split(','):
            getattr(bench, part)()
    bench.table.show()
    if bench.took:
        print(f'a probe of memory, updates and one drive took {min(bench.took):.2f} to '
              f'{max(bench.took):.2f} s')


if __name__ == '__main__':
    main()
