#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TensorBoard's own reader, of what `inspect --tfevents` makes of a log.

    tensorboard_reads.py PATH_OF_HOISTWAY
"""
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from logs import evaluation, run, scalars_of, step, write  # noqa: E402

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f'skipped: no tensorboard here ({error}); pip install tensorboard')
    sys.exit(77)


def main():
    steps = [step(number) for number in range(1, 41)]
    evaluations = [evaluation(number, 3 - number / 50) for number in (10, 20, 40)]
    lines = sorted([*steps, *evaluations], key=lambda one: (one['step'], one['kind'] == 'eval'))
    with tempfile.TemporaryDirectory() as folder:
        log, events = write(os.path.join(folder, 'run.jsonl'), [run(), *lines]), f'{folder}/tb'
        subprocess.run([sys.argv[1], 'inspect', log, '--tfevents', events], check=True,
                       stdout=subprocess.DEVNULL)
        found = EventAccumulator(events)
        found.Reload()
    tags = {tag: of for of in (steps, evaluations) for tag in scalars_of(of[0])}
    assert set(found.Tags()['scalars']) == set(tags), found.Tags()
    for tag, told in tags.items():
        seen = found.Scalars(tag)
        assert [one.step for one in seen] == [record['step'] for record in told], tag
        for one, record in zip(seen, told):
            value = scalars_of(record)[tag]
            assert abs(one.value - value) <= 1e-6 * abs(value), (tag, one, value)
            assert one.wall_time == 1700000000 + 0.25 * one.step, one
    print(f'tensorboard read {len(steps)} steps and {len(evaluations)} evaluations of '
          f'{len(found.Tags()["scalars"])} scalars')


if __name__ == '__main__':
    main()
