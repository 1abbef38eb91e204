#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Host training beside PyTorch on the same cores, by turns: A B A B, paired ratios, their median.

    step.py PATH_OF_HOISTWAY [PAIRS]

A is `hoistway bench step`, B is torch_step.py: the same Llama (512 x 8 layers), fp32, 256-token
sequences, each block recomputed, AdamW, clipping, the same tokens per step and threads. Debian's
OpenBLAS takes its oldest kernels on processors newer than itself; PyTorch is given the best ones
(OPENBLAS_CORETYPE), as hoistway gives itself.
"""
import json
import os
import statistics
import subprocess
import sys

PROGRAM = sys.argv[1]
PAIRS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
STEPS, BATCH_TOKENS = 3, 4096


def best_openblas():
    """The environment in which OpenBLAS uses what this processor has."""
    environment = dict(os.environ)
    with open('/proc/cpuinfo') as file:
        flags = file.read()
    if 'avx512f' in flags:
        environment.setdefault('OPENBLAS_CORETYPE', 'SkylakeX')
    elif 'avx2' in flags:
        environment.setdefault('OPENBLAS_CORETYPE', 'Haswell')
    return environment


def run(command, environment=None):
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)


def hoistway():
    return run([PROGRAM, 'bench', 'step', '--json', '--steps', str(STEPS)])


def torch(threads):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'torch_step.py')
    command = [sys.executable, script, str(STEPS), str(BATCH_TOKENS), str(threads)]
    return run(command, best_openblas())


def main():
    ratios, fractions, version = [], [], ''
    print('pair   hoistway tok/s   torch tok/s   ratio   6NB / sgemm')
    for pair in range(PAIRS):
        ours = hoistway()
        theirs = torch(ours['threads'])
        version = theirs['torch']
        ratios.append(ours['tokens_per_s'] / theirs['tokens_per_s'])
        fractions.append(ours['fraction'])
        print(
            f"{pair + 1:4} {ours['tokens_per_s']:16.0f} {theirs['tokens_per_s']:13.0f}"
            f"{ratios[-1]:8.2f} {100 * ours['fraction']:10.1f} %",
            flush=True,
        )
    print(
        f'median of {PAIRS} pairs: {statistics.median(ratios):.2f} x PyTorch {version}'
        f' ({min(ratios):.2f} to {max(ratios):.2f}), '
        f'{100 * statistics.median(fractions):.1f} % of sgemm at the shapes of the model'
        f' ({100 * min(fractions):.1f} to {100 * max(fractions):.1f})'
    )


if __name__ == '__main__':
    main()
