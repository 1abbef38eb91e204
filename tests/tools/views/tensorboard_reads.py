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
from logs import run, scalars_of, step, write  # noqa: E402

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f'skipped: no tensorboard here ({error}); pip install tensorboard')
    sys.exit(77)


def main():
    steps = [step(number) for number in range(1, 41)]
    with tempfile.TemporaryDirectory() as folder:
        log, events = write(os.path.join(folder, 'run.jsonl'), [run(), *steps]), f'{folder}/tb'
        subprocess.run([sys.argv[1], 'inspect', log, '--tfevents', events], check=True,
                       stdout=subprocess.DEVNULL)
        found = EventAccumulator(events)
        found.Reload()
    assert set(found.Tags()['scalars']) == set(scalars_of(steps[0])), found.Tags()
    for tag in scalars_of(steps[0]):
        seen = found.Scalars(tag)
        assert [one.step for one in seen] == list(range(1, 41)), tag
        for one, record in zip(seen, steps):
            value = scalars_of(record)[tag]
            assert abs(one.value - value) <= 1e-6 * abs(value), (tag, one, value)
            assert one.wall_time == 1700000000 + 0.25 * one.step, one
    print(f'tensorboard read {len(steps)} steps of {len(found.Tags()["scalars"])} scalars')


if __name__ == '__main__':
    main()
