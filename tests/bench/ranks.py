#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ranks lose to the network, and a rank to its ways: by turns, medians of ratios.

    ranks.py PATH_OF_HOISTWAY PATH_OF_RANKS_BENCH PLUGIN_FOLDER [PAIRS]

Two ranks, bound to one core each, train 16 layers. A: on the transport as it is. B: behind a link
on which what a step moves takes 0.8 of its computation; then 0.4 and 1.6, for predictions. Stage 2
gathers all rows in the forward where the update waits for the norm, and they take longer than it:
so its deferred update is told without a wish. Each turn of B, of which there are PAIRS, lies
between two of A, over whose mean it is told. Bounds and predictions follow from what the visits of
the same turn took, of the slowest rank. The transport's own thread makes MPI's calls; what it would
be without that thread is not shown: the executor makes none. Four ranks on the same cores are told
without a wish. Then one rank with a batch in 8 ways beside one way, in processes by turns.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import mpi  # noqa: E402

PROGRAM, BENCH, FOLDER = (os.path.abspath(path) for path in sys.argv[1:4])
PAIRS = int(sys.argv[4]) if len(sys.argv) > 4 else 9
RANKS = 2


def mpirun(ranks):
    root = ['--allow-run-as-root'] if os.geteuid() == 0 else []
    own = ['--map-by', 'core', '--bind-to', 'core'] if ranks == RANKS else \
        ['--oversubscribe', '--bind-to', 'none']
    return ['mpirun', *root, *own, '-n', str(ranks)]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, env=mpi.environment(FOLDER))
    if done.returncode:
        sys.exit(f'{" ".join(command)}: {done.stdout}{done.stderr}')
    return json.loads(done.stdout)


def say(what, value, wish, holds):
    print(f'  {what:34} {value}   wanted: {wish}{"" if holds else " (missed)"}')


def four_ranks():
    found = run([*mpirun(4), BENCH, '3', str(PAIRS), '0.8', 'deferred'])
    print(f'stage 3: 4 ranks on all cores, 0.8 of its computation; {PAIRS} pairs')
    print(f'  step B / step A {found["ratio"]:.3f} ({found["ratio_least"]:.3f} to '
          f'{found["ratio_most"]:.3f}), bound / step of B {found["b"]["bound"]:.3f}, '
          f'prediction / step of B - 1 {100 * (found["b"]["predicted"] - 1):+.1f} %')


def stage(number, share, update, most):
    found = run([*mpirun(RANKS), BENCH, str(number), str(PAIRS), str(share), update])
    print(f'stage {number}, {update}: {RANKS} ranks, one core each, 16 layers; B has '
          f'{found["link_bytes_per_s"] / 1e6:.1f} MB/s, {share} of its computation; {PAIRS} pairs')
    ratio = found['ratio']
    say('step B / step A', f'{ratio:.3f} ({found["ratio_least"]:.3f} to '
        f'{found["ratio_most"]:.3f})', f'<= {most:.2f}' if most else 'its bound',
        not most or ratio <= most)
    for side in 'ab':
        bound, off = found[side]['bound'], found[side]['predicted'] - 1
        print(f'  {side.upper()}: a step takes {1e3 * found[side]["step_s"]:.1f} ms')
        say('bound / step', f'{bound:.3f}', '>= 0.90', bound >= 0.9)
        say('prediction / step - 1', f'{100 * off:+.1f} %', '10 % at most', abs(off) <= 0.1)


def step_of(ways):
    return run([PROGRAM, 'bench', 'step', '--json', '--steps', '3', '--ways', str(ways)])


def ways():
    ratios = []
    for pair in range(PAIRS):
        order = (1, 8) if pair % 2 else (8, 1)
        rate = {count: step_of(count)['tokens_per_s'] for count in order}
        ratios.append(rate[1] / rate[8])
    ratio = statistics.median(ratios)
    print(f'one rank, 4,096 tokens a step; {PAIRS} pairs')
    say('step --ways 8 / step --ways 1', f'{ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})',
        '<= 1.15', ratio <= 1.15)


def main():
    if not shutil.which('mpirun') or not os.path.exists(f'{FOLDER}/libhoistway-mpi.so'):
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        sys.exit(77)
    if len(os.sched_getaffinity(0)) < RANKS:
        print(f'{RANKS} ranks need a core each')
        sys.exit(77)
    stage(2, 0.8, 'optimistic', 1.1)
    stage(2, 0.8, 'deferred', None)
    for share, most in ((0.8, 1.1), (0.4, 1.1), (1.6, 1.7)):
        stage(3, share, 'deferred', most)
    four_ranks()
    ways()
    load = os.getloadavg()[0]
    print(f'load of the machine at the end: {load:.1f} (its own part is about {RANKS})')


if __name__ == '__main__':
    main()
