#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run that is killed at random moments and resumed each time: its weights and the losses in its
log are those of a run that was left alone.

kills.py PATH_OF_HOISTWAY SOURCE_ROOT KILLS [SEED]
"""

import filecmp
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from store_bytes import Store  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from short import some  # noqa: E402

PROGRAM, ROOT, KILLS = sys.argv[1], sys.argv[2], int(sys.argv[3])
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 32)
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
# weights and states on drives; states in memory, updates that are made again where the norm clips,
# in some of the steps; both in memory; without clipping; both in a device's memory; most tensors
# frozen; in a device's memory of some units, whose updates wait, and of others in the host's
KINDS = (
    ('--precision=bf16', '--place=states=nvme,weights=nvme'),
    ('--precision=fp32', '--place=states=dram,weights=nvme', '--durability=step',
     '--update=optimistic', '--clip=4.8'),
    ('--precision=fp16', '--place=states=dram,weights=dram', '--durability=3'),
    ('--precision=bf16', '--place=states=nvme,weights=nvme,grads=nvme,acts=nvme', '--clip=0'),
    ('--precision=bf16', '--device=far', '--place=weights=hbm', '--durability=step'),
    ('--precision=bf16', '--train-only=model.layers.1.*', '--place=states=nvme,weights=nvme'),
    ('--precision=bf16', '--device=far', '--hbm=2M', '--place=acts=hbm', '--durability=step',
     '--update=optimistic', '--clip=4.8'),
)


LIFE = 40  # steps, about, and the seconds before the first one
START = 0.1


def command(folder, name, kind, steps, *more):
    """Of a run whose files begin with this name."""
    path = os.path.join(folder, name)
    device = () if any(word.startswith('--device') for word in kind) else ('--device=host',)
    return [
        PROGRAM, 'train', *device, '--model', MODEL, '--data',
        os.path.join(MODEL, 'tokens.bin'), '--steps', str(steps), '--seq-len', '24',
        '--batch-tokens', '48', '--lr', '1e-3', '--store', path + '.store', '--log',
        path + '.jsonl', '--export', path + '.export', '--export-dtype=fp32', *kind, *more,
    ]  # fmt: skip


def losses(log):
    """Of each step, and its gradient norm, as they are written."""
    told = {}
    with open(log, encoding='ascii') as file:
        for text in file:
            line = json.loads(text)
            if line['kind'] == 'step':
                assert line['step'] not in told, f'step {line["step"]} is told twice'
                told[line['step']] = re.search(r'"loss":([^,]+),"grad_norm":([^,]+)', text).groups()
    return told


def last_version(log):
    """The last step that the log calls committed; None: no version."""
    steps = []
    if os.path.exists(log):
        with open(log, encoding='ascii') as file:
            for text in file:
                if text.startswith('{"kind":"commit"') and text.endswith('}\n'):
                    steps.append(json.loads(text)['step'])
    return steps[-1] if steps else None


def run_alone(folder, kind, steps):
    """-> its seconds."""
    start = time.monotonic()
    subprocess.run(
        command(folder, 'alone', kind, steps), check=True, timeout=120, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    return time.monotonic() - start


def run_killed(folder, kind, steps, kills, span, chance):
    """Kills a run so often, each life at a random moment, then lets it end.

    -> lives that were killed, lives that began after step 0
    """
    log, killed, resumed = os.path.join(folder, 'killed.jsonl'), 0, 0
    for _ in range(kills):
        known = last_version(log)
        child = subprocess.Popen(
            command(folder, 'killed', kind, steps, '--resume'), stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        try:
            child.wait(chance.uniform(0.3, 1.1) * span)
        except subprocess.TimeoutExpired:
            child.kill()
        told = child.stderr.read()
        child.stderr.close()
        child.wait()
        assert child.returncode in (0, -9), told
        after = re.search(r'going on after step (\d+)', told)
        if known is not None:
            assert 'holds no version' not in told, f'version {known} was lost: {told}'
            assert after is None or int(after[1]) >= known, f'version {known} was lost: {told}'
        killed += child.returncode == -9
        resumed += after is not None and int(after[1]) > 0
    subprocess.run(
        command(folder, 'killed', kind, steps, '--resume'), check=True, timeout=120,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return killed, resumed


def compare(folder, kind, lives):
    """The two runs' weights and losses, and all that their stores hold."""
    alone, killed = (os.path.join(folder, name) for name in ('alone', 'killed'))
    for name in sorted(os.listdir(alone + '.export')):
        same = filecmp.cmp(
            os.path.join(alone + '.export', name), os.path.join(killed + '.export', name), False)
        assert same, f'{kind}: {name} has other bytes'
    assert losses(alone + '.jsonl') == losses(killed + '.jsonl'), f'{kind}: other losses'
    kept = [Store(os.path.join(folder, name + '.store')).trained() for name in ('alone', 'killed')]
    assert len(kept[0][0]) > 0 and kept[0] == kept[1], f'{kind}: other weights, states or cursor'
    print(f'{" ".join(kind)}: the same bytes and losses; {lives[0]} lives were killed, '
          f'{lives[1]} began after step 0')


def main():
    print(f'seed {SEED}')
    chance = random.Random(SEED)
    kinds = some(KINDS, 2)
    for number, kind in enumerate(kinds):
        folder = tempfile.mkdtemp(prefix='hst-kills-', dir='.')
        try:
            kills = KILLS // len(kinds) + (number < KILLS % len(kinds))
            steps = LIFE * (kills + 1)  # more than the lives come to
            seconds = run_alone(folder, kind, steps)
            span = START + seconds * LIFE / steps
            compare(folder, kind, run_killed(folder, kind, steps, kills, span, chance))
        finally:
            shutil.rmtree(folder)


if __name__ == '__main__':
    main()
