#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""nvme-bench beside fio on the same drive, by turns, the order reversed each round: paired ratios
and their median, for reads and writes in one shape of request.

    nvme_vs_fio.py PATH_OF_NVME_BENCH [DIR [PAIRS]]

Both have huge pages (fio.py), registered buffers and files, and move the same bytes. Where a file
lies on the drive can matter more than either program: both get a new one, allocated and filled as a
whole, for each pair. Nothing is left in DIR; at most 1 GiB of it is used at a time.
"""
import os
import statistics
import sys
import tempfile

import fio

PROGRAM = sys.argv[1]
DIR = sys.argv[2] if len(sys.argv) > 2 else '.'
PAIRS = int(sys.argv[3]) if len(sys.argv) > 3 else 11
BLOCK_KIB, DEPTH, SIZE_MIB = 1024, 8, 1024
LOOPS = {'read': 4, 'write': 1}  # nvme-bench reads four times what it writes


def ours():
    found = fio.run([PROGRAM, DIR, '--json', '--size', f'{SIZE_MIB}M', '--sustain', '1M', '--idle',
                     '0', '--blocks', f'{BLOCK_KIB}K', '--seconds', '60', '--depths', str(DEPTH),
                     '--threads', '1'])
    return {c['kind']: {'rate': c['value'], 'cpu': c['cpu_s_per_gb']}
            for c in found['cases'] if c['phase'] == 'sweep'}


def theirs(path, huge):
    with open(path, 'wb') as file:
        os.posix_fallocate(file.fileno(), 0, SIZE_MIB << 20)
    fio.measure(path, 'write', BLOCK_KIB, DEPTH, size_mib=SIZE_MIB, huge=huge)
    found = {kind: fio.measure(path, kind, BLOCK_KIB, DEPTH, size_mib=SIZE_MIB, huge=huge,
                               loops=loops)
             for kind, loops in LOOPS.items()}
    os.unlink(path)
    return found


def run_pairs(path, huge):
    ratios = {kind: [] for kind in LOOPS}
    for pair in range(-1, PAIRS):  # the first one warms up
        if pair % 2:
            b, a = theirs(path, huge), ours()
        else:
            a, b = ours(), theirs(path, huge)
        for kind, collected in ratios.items() if pair >= 0 else ():
            collected.append(a[kind]['rate'] / b[kind]['rate'])
            print(f'{pair + 1:4} {kind:5} {a[kind]["rate"] / 1e9:8.2f} GB/s'
                  f' {b[kind]["rate"] / 1e9:8.2f} {collected[-1]:7.2f}   {a[kind]["cpu"]:.4f}'
                  f' {b[kind]["cpu"]:.4f}', flush=True)
    return ratios


def main():
    print('pair          nvme-bench      fio   ratio   CPU s/GB: nvme-bench, fio')
    with tempfile.TemporaryDirectory(dir=DIR, prefix='nvme_vs_fio_') as scratch, \
            fio.huge_pages(DEPTH * BLOCK_KIB << 10) as huge:
        path = os.path.join(scratch, 'fio')
        ratios = run_pairs(path, huge)
        print(' '.join(fio.command('FILE', 'read|write', BLOCK_KIB, DEPTH, size_mib=SIZE_MIB,
                                   huge=huge)))
    if not huge:
        print("fio's buffers were small pages: not root, and there is no pool of huge ones")
    for kind, values in ratios.items():
        print(f'{kind}: nvme-bench / fio, median of {PAIRS} pairs {statistics.median(values):.3f}'
              f' ({min(values):.2f} to {max(values):.2f})')


if __name__ == '__main__':
    main()
