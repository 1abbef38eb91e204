# SPDX-License-Identifier: Apache-2.0
"""hoistway watch: a run's log to Weights & Biases, while it grows.

    python -m hoistway.watch LOG --wandb

The log is all that is read, so that a run is watched from beside it and never waits.
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Optional

from hoistway.errors import DATA_FILE, MISSING, PYTHON, VALUE, Refusal, tell

POLL_S = 1.0
ABOUT = '''Sends each step and each evaluation of a run's log to Weights & Biases, from the first
on, and ends when the run has ended. A run that was killed is waited for, as it may be resumed:
Ctrl-C ends that. Of two evaluations of one step, on other data, the last is shown.'''
NO_NUMBERS = ('kind', 'step', 'update', 'skipped')


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise Refusal(MISSING if 'required' in message else VALUE, f'{message}. Fix: hoistway '
                      'watch --help lists the options')


def parse(words: list[str]) -> argparse.Namespace:
    made = Parser(prog='hoistway watch', description=ABOUT, allow_abbrev=False)
    made.add_argument('log', metavar='LOG', help="the file of train's --log")
    made.add_argument('--wandb', action='store_true', required=True,
                      help='where to: the only place so far')
    made.add_argument('--project', default='hoistway', help='of Weights & Biases')
    made.add_argument('--name', help="of the run there (default: wandb's own)")
    made.add_argument('--once', action='store_true', help='ends at the end of the log as it is')
    return made.parse_args(words)


def check_packages() -> None:
    if importlib.util.find_spec('wandb') is None:
        raise Refusal(PYTHON, f'watch --wandb needs the Python package wandb, which '
                      f'{sys.executable} does not have. Fix: {sys.executable} -m pip install wandb')


def check_log(path: str) -> None:
    try:
        with open(path, 'rb') as file:
            begin = file.read(13)
    except OSError as error:
        raise Refusal(DATA_FILE, f"'{path}' cannot be read: {error.strerror}. Fix: the file of "
                      "train's --log") from error
    if begin != b'{"kind":"run"':
        raise Refusal(DATA_FILE, f"'{path}' is not the log of a run. Fix: the file of train's "
                      '--log')


def lines(path: str, once: bool) -> Iterator[Optional[str]]:
    """Each whole line, in order; None where there is none for now. A log that has become shorter
    (its run was resumed) is read from its beginning."""
    at = 0
    while True:
        with open(path, 'rb') as file:
            if os.fstat(file.fileno()).st_size < at:
                at = 0
            file.seek(at)
            for line in file:
                if not line.endswith(b'\n'):
                    break
                at += len(line)
                yield line.decode('utf-8', 'replace')
        if once:
            return
        yield None


def record_of(line: str) -> dict:
    """{} of what is no line of a log: it may have been replaced while it was read."""
    try:
        made = json.loads(line)
    except ValueError:
        return {}
    return made if isinstance(made, dict) else {}


def numbers_of(step: dict) -> dict:
    """{'loss': 2.1, 'stall_s/nvme': 0.1}: names as those of --tfevents."""
    flat = {}
    for name, value in step.items():
        inner = value.items() if isinstance(value, dict) else [(None, value)]
        for key, number in inner:
            if name not in NO_NUMBERS and isinstance(number, (int, float)):
                flat[f'{name}/{key}' if key else name] = number
    return flat


def evaluation_of(record: dict) -> dict:
    return {f'eval/{name}': record[name] for name in ('loss', 'perplexity')
            if isinstance(record.get(name), (int, float))}


def watch(given: argparse.Namespace) -> int:
    import wandb
    run, last, ended = None, 0, False
    evaluated, shown, replaced = -1, {}, 0
    for line in lines(given.log, given.once):
        if line is None:
            if ended:
                break
            time.sleep(POLL_S)
            continue
        record = record_of(line)
        kind, step = record.get('kind'), record.get('step')
        ended = kind == 'summary' or (ended and kind != 'run')
        if kind == 'run' and run is None:
            run = wandb.init(project=given.project, name=given.name, config=record)
        elif kind == 'step' and run is not None and isinstance(step, int) and step > last:
            run.log(numbers_of(record), step=step)  # a resumed run's same steps are left out
            last = step
        elif kind == 'eval' and run is not None and isinstance(step, int):
            told = evaluation_of(record)
            again = step == evaluated and told != shown
            if step >= last and (step > evaluated or again):
                run.log(told, step=step)  # it joins, or replaces, what was sent of that step
                evaluated, shown, replaced = step, told, replaced + again
        elif kind == 'summary' and run is not None:
            run.summary.update({name: value for name, value in record.items() if name != 'kind'})
    if run is not None:
        run.finish()
    print(f'{given.log}: sent up to step {last}')
    if replaced:
        print(f'{replaced} evaluation{"s" if replaced > 1 else ""} of a step took the place of one '
              'before, on other data: the last is shown')
    return 0


def main() -> int:
    try:
        given = parse(sys.argv[1:])
        check_log(given.log)
        check_packages()
        return watch(given)
    except Refusal as refusal:
        tell('error', refusal.code, refusal.text)
        return refusal.exit_status
    except KeyboardInterrupt:
        return 130


if __name__ == '__main__':
    sys.exit(main())
