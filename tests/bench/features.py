#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each decision of the schedule wins: it is taken out of a copy of the sources, and steps are
simulated without it.

    features.py [--plans N] [--first N] [--into DIR] [NAME...]

Simulated are `hoistway plan` of N machines and models that are drawn (100; --first: the number of
the first draw), and the list of engine/schedule. Prints a table of how much longer steps are
without the feature, in the worst case, and in how many cases that is 1 % or more. No device is
needed: the plans' GPU is the tests' own.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import mutations  # noqa: E402

PLANNER, SEAL = 'engine/plan/search/planner.c', 'engine/plan/search/plan_seal.c'
SCHEDULE = 'tests/engine/graph/test_schedule.c'
FEATURES = {
    'late shares': [(PLANNER, 'return choose(in, optimistic, p, &c, PLANNER_GAIN_LEAST, step_s);',
                     'return 0;')],
    'late writes': [('engine/plan/graph/graph.c', 'write_last = stays ||',
                     'write_last = stays && !stays &&')],
    'fewer update threads': [
        (PLANNER, 'return choose(in, optimistic, p, &c, PLANNER_THREADS_GAIN_LEAST, step_s);',
         'return 0;'),
        (SCHEDULE, 'eighths = 7; c->in.apart &&', 'eighths = 7; false &&')],
    'segments': [(PLANNER, 'more <= SEGMENTS_MORE &&', 'more < 1 &&')],
    'saved activations': [(PLANNER, 'if (placement_savable_units(s->in->placement) == 0 ||',
                           'if (true ||')],
    'streamed tiles': [(PLANNER, 'if (!s->in->machine.streams ||', 'if (true ||')],
    'slices that need not be': [(SEAL, 'if (plan->homes.planned.simulated == 0 ||', 'if (true ||'),
                                (SCHEDULE, 'if (!graph_case_cut(number, c))', 'if (true)')],
    'second slots': [(SEAL, 'return rc || !slots ? rc : try_optimistic(in, homes);', 'return rc;'),
                     (SEAL, '    take_spare_slots(in, homes);\n    if (!in', '    if (!in')],
}


def sealed(body):
    digest = 0xcbf29ce484222325
    for byte in body.encode():
        digest = (digest ^ byte) * 0x100000001b3 % (1 << 64)
    return f'{body}end {digest:016x}\n'


def rates_file(known):
    head = 'hoistway rates 2\ntaken_ms 1\ntook_ms 1\ndrives 0\nproducts 0\noperations 0\n'
    return sealed(head + ''.join(f'{name} {v:.0f} {v:.0f} {v:.0f} 1 told\n'
                                 for name, v in known.items()))


def draw(number):
    """A machine's rates, and a plan's arguments."""
    r = random.Random(number)
    host, drives = r.random() < 0.35, r.choice([1, 1, 2, 4])
    read, memory = r.choice([1.5e9, 3.5e9, 7e9]) * drives, r.choice([2.5e10, 6e10, 2e11])
    update = memory / r.choice([12, 18, 30])
    rates = {'update-fp32': update, 'update-bf16': update * 0.95, 'norm-fp32': memory / 5,
             'norm-bf16': memory / 3, 'read': read, 'write': read * r.choice([0.5, 0.8, 1]),
             'mixed': read * r.choice([1, 1.3]),
             'compute': r.choice([3e11, 1e12, 4e12] if host else [6e13, 2e14, 6e14])}
    if not host:
        link = r.choice([1.2e10, 2.4e10, 5e10])
        rates |= {'h2d': link, 'd2h': link, 'copy-both': link * 1.7, 'memory-shared': memory,
                  'update-half-fp32': update * 0.75, 'update-half-bf16': update * 0.72,
                  'device-update-fp32': 6e10, 'device-update-bf16': 9e10}
    arguments = [
        '--model', r.choice(['1B', '3B', '8B', '8B', '14B']), f'--threads={r.choice([8, 16, 32])}',
        '--device', 'host' if host else 'far', '--dram', r.choice(['32G', '64G', '128G', '256G']),
        '--precision', r.choice(['bf16', 'bf16', 'fp32']), f'--seq-len={r.choice([1024, 2048])}',
        f'--batch-tokens={r.choice([4096, 16384, 65536, 262144])}', '--clip', r.choice('011')]
    if not host:
        arguments += ['--hbm', r.choice(['16G', '24G', '48G', '80G'])]
    if r.random() < 0.75:
        stores = ','.join(f'/no/here/{d}' for d in range(drives))
        arguments += ['--store', stores, '--nvme', f'{4 * drives}T', '--durability',
                      r.choice(['auto', 'none', '10'])]
    return rates, arguments


def plan(build, rates, arguments):
    """Seconds of a step, or None where no placement fits."""
    with tempfile.NamedTemporaryFile('w', suffix='.rates') as file:
        file.write(rates_file(rates))
        file.flush()
        done = subprocess.run(
            [os.path.join(build.folder, 'tools/hoistway'), 'plan', '--json', '--rates', file.name,
             *arguments], capture_output=True, text=True, check=False,
            env={**os.environ, 'HOISTWAY_PLUGIN_PATH': os.path.join(build.folder, 'tests/far')})
    told = json.loads(done.stdout) if done.stdout else sys.exit(done.stderr)
    return told['predicted_step_s'] if told['fits'] else None


def steps(build, numbers):
    """{case: seconds of a step} of the plans and of the list."""
    build.must(['ninja', '-C', build.folder, 'tools/hoistway', 'tests/far/libhoistway-far.so',
                'tests/engine/test_engine_schedule'])
    plans = {n: plan(build, *draw(n)) for n in numbers}
    told = build.must([os.path.join(build.folder, 'tests/engine/test_engine_schedule'), '--rows'])
    rows = {int(n): float(s) for n, s in re.findall(r'^row (\d+): (\S+) s', told, re.M)}
    return plans, rows


def without(build, feature, numbers):
    """The steps of a build that lacks the feature."""
    was = {}
    for path, old, new in FEATURES[feature]:
        path = os.path.join(build.source, path)
        text = mutations.read(path)
        was.setdefault(path, text)
        if text.count(old.encode()) != 1:
            sys.exit(f'{path}: not there once: {old}')
        mutations.write(path, text.replace(old.encode(), new.encode()))
    try:
        return steps(build, numbers)
    finally:
        for path, text in was.items():
            mutations.write(path, text)


def column(usual, other):
    """The worst case without the feature, and how many lose 1 % or more."""
    longer = [other[n] / s - 1 for n, s in usual.items() if s and other.get(n)]
    lost = sum(1 for n, s in usual.items() if s and not other.get(n))
    return (f'{100 * max(longer, default=0):.1f} % | {sum(x >= 0.01 for x in longer)} of '
            f'{len(longer)}' + (f', {lost} fit no more' if lost else ''))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--plans', type=int, default=100)
    parser.add_argument('--first', type=int, default=0)
    parser.add_argument('--into', default='build/features')
    parser.add_argument('names', nargs='*', default=list(FEATURES))
    args = parser.parse_args()
    build = mutations.Build(os.path.abspath(args.into))
    numbers = range(args.first, args.first + args.plans)
    usual = steps(build, numbers)
    print('| without | plans: longer by | 1 % or more | list: longer by | 1 % or more |\n'
          '|---|---|---|---|---|')
    for name in args.names:
        other = without(build, name, numbers)
        print(f'| {name} | {column(usual[0], other[0])} | {column(usual[1], other[1])} |',
              flush=True)


if __name__ == '__main__':
    main()
