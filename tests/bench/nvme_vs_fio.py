#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""nvme-bench beside fio on the same drive, by turns, the order reversed each round: paired ratios
and their median, for reads and writes in one shape of request.

    nvme_vs_fio.py PATH_OF_NVME_BENCH [DIR [PAIRS]]

nvme-bench's buffers are huge pages, which virtual disks reward. For the same of fio there must be a
pool of 16 of them (as root: echo 16 > /proc/sys/vm/nr_hugepages, and 0 afterwards); without one,
fio's are small pages, and it is said. Nothing is left in DIR. At most 1.5 GiB of it are used at a
time.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
DIR = sys.argv[2] if len(sys.argv) > 2 else tempfile.gettempdir()
PAIRS = int(sys.argv[3]) if len(sys.argv) > 3 else 9
BLOCK, DEPTH, THREADS, SIZE = '1M', 8, 1, '512M'


def memory():
    with open('/proc/meminfo', encoding='ascii') as file:
        free = next(int(line.split()[1]) for line in file if line.startswith('HugePages_Free'))
    return 'mmaphuge' if free >= 16 else 'malloc'


def ours():
    command = [PROGRAM, DIR, '--json', '--size', SIZE, '--sustain', '1M', '--idle', '0', '--blocks',
               BLOCK, '--seconds', '60', '--depths', str(DEPTH), '--threads', str(THREADS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    cases = json.loads(done.stdout)['cases']
    return {c['kind']: (c['value'], c['cpu_s_per_gb']) for c in cases if c['phase'] == 'sweep'}


def fio_command(path, kind):
    return ['fio', '--name=pair', f'--filename={path}', f'--rw={kind}', f'--bs={BLOCK}',
            f'--iodepth={DEPTH}', f'--numjobs={THREADS}', f'--size={SIZE}', '--direct=1',
            '--ioengine=io_uring', f'--iomem={memory()}', '--output-format=json',
            f'--loops={4 if kind == "read" else 1}']


def fio(path):
    found = {}
    for kind in 'read', 'write':
        done = subprocess.run(fio_command(path, kind), check=True, capture_output=True, text=True)
        job = json.loads(done.stdout[done.stdout.index('{'):])['jobs'][0]
        cpu = (job['usr_cpu'] + job['sys_cpu']) / 100 * job[kind]['runtime'] / 1e3
        found[kind] = (job[kind]['bw_bytes'], cpu * 1e9 / job[kind]['io_bytes'])
    return found


def main():
    ratios = {'read': [], 'write': []}
    print('pair          nvme-bench      fio   ratio   CPU s/GB: nvme-bench, fio')
    with tempfile.TemporaryDirectory(dir=DIR, prefix='nvme_vs_fio_') as scratch:
        path = os.path.join(scratch, 'fio')
        for pair in range(-1, PAIRS):  # the first one warms up and lays out fio's file
            if pair % 2:
                b, a = fio(path), ours()
            else:
                a, b = ours(), fio(path)
            for kind, collected in ratios.items() if pair >= 0 else ():
                collected.append(a[kind][0] / b[kind][0])
                print(f'{pair + 1:4} {kind:5} {a[kind][0] / 1e9:8.2f} GB/s {b[kind][0] / 1e9:8.2f}'
                      f' {collected[-1]:7.2f}   {a[kind][1]:.4f} {b[kind][1]:.4f}', flush=True)
    if memory() == 'malloc':
        print("fio's buffers were small pages: there is no pool of huge ones")
    print('fio: ' + ' '.join(fio_command('FILE', 'read|write')))
    for kind, values in ratios.items():
        print(f'{kind}: nvme-bench / fio, median of {PAIRS} pairs {statistics.median(values):.3f}'
              f' ({min(values):.2f} to {max(values):.2f})')


if __name__ == '__main__':
    main()
