#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long the program takes to answer: configurations read, and large models planned.

    answers.py HOISTWAY [RUNS]

Each row is a whole process, from its start to its end, by turns with the others; so many times
(default 9). Told are the median, the least and the most of its wall time, the median of processor
time, and the largest resident size, as /usr/bin/time -v has it: a child of this program would begin
with the size of Python. `--version` is what a process takes that does nothing: a configuration is
read in what is more than that.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, 'tests', 'tools', 'cli'))
from published import PUBLISHED  # noqa: E402

RUNS, TIME = 9, '/usr/bin/time'
NAME = 'accelerate zero_stage3_offload_config'
EXPLAIN = ('train', '--explain-config', '--seq-len=2048', '--warmup=10', '--config')
PLANS = (('70B', '--machine', 'rtx-5090-256g'),
         ('1T', '--machine', 'dgx-h200', '--world=512', '--seq-len=4096', '--batch-tokens=2097152'),
         ('1T', '--machine', 'dgx-h100', '--world=512', '--seq-len=4096', '--batch-tokens=2097152',
          '--layers=halves'))


def largest():
    """As much as the reader takes: 2,048 values and all but 1 MiB."""
    texts = {f'key {i}': 'x' * 490 for i in range(2045)}
    return json.dumps({'train_batch_size': 8, '_more': texts})


def rows(folder):
    """(what, its command) of each."""
    paths = {'a published file': json.dumps(PUBLISHED[NAME][0], indent=2),
             'the largest file': largest()}
    yield 'hoistway --version', ('--version',)
    for name, text in paths.items():
        path = os.path.join(folder, name.replace(' ', '-') + '.json')
        with open(path, 'w', encoding='ascii') as f:
            f.write(text)
        yield f'--config, {name} ({len(text):,} bytes)', (*EXPLAIN, path)
    for plan in PLANS:
        yield f'plan --model {" ".join(plan)}', ('plan', '--model', *plan)


def once(command):
    """Wall time and processor time in ms, and resident size in MiB."""
    began = time.perf_counter()
    with subprocess.Popen([TIME, '-f', '%M', *command], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as child:
        told = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - began
    if child.returncode:
        sys.exit(f'{command}: exit {child.returncode}: {told}')
    return 1e3 * wall_s, 1e3 * (usage.ru_utime + usage.ru_stime), int(told.split()[-1]) / 1024


def main():
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else RUNS
    with tempfile.TemporaryDirectory() as folder:
        asked = dict(rows(folder))
        seen = {what: [] for what in asked}
        for _ in range(runs):
            for what, words in asked.items():
                seen[what].append(once([sys.argv[1], *words]))
    for what, figures in seen.items():
        wall, busy, size = zip(*figures)
        print(f'{what}: {statistics.median(wall):.1f} ms ({min(wall):.1f} to {max(wall):.1f}), '
              f'{statistics.median(busy):.1f} ms of a core, {max(size):.1f} MiB')


if __name__ == '__main__':
    main()
