#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that are killed wherever and whenever chance has it, hundreds of times: each run goes on to
the bytes of one that was left alone. A call goes on where the last one with the same seed left off.

    rank_soak.py PROGRAM PROGRAM_WITH_ENDS SOURCE_ROOT PLUGIN_FOLDER [--seed N] [--kills N]
                 [--seconds N] [--state FILE]

What it prints of a row that goes wrong is its number: --seed N --only NUMBER is that row again.
"""
import argparse
import concurrent.futures
import json
import os
import random
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rank_lives import KINDS, Moment, Programs, Row, some_row, wrong_of  # noqa: E402

AT_ONCE = 2
SPAN = (0.2, 0.9)   # seconds in which a run of so few steps is about done


def row_of(seed, number):
    """Half of them at places, half at moments."""
    rnd = random.Random(f'{seed}/{number}')
    if rnd.random() < 0.5:
        return some_row(rnd)
    ranks = rnd.choice((2, 2, 2, 4))
    ends = [Moment(rnd.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV)),
                   rnd.randrange(ranks), rnd.uniform(*SPAN)) for _ in range(rnd.randint(1, 3))]
    return Row(ranks, rnd.choice(KINDS), ends, patience_s=rnd.randrange(2))


class Soak:
    def __init__(self, programs, options):
        self.programs, self.state_file = programs, options.state
        self.state = {'seed': options.seed, 'next': 0, 'kills': 0}
        if os.path.exists(options.state):
            with open(options.state, encoding='ascii') as file:
                before = json.load(file)
            if options.seed in (None, before['seed']):
                self.state = before
        if self.state['seed'] is None:
            self.state['seed'] = random.randrange(1 << 32)

    def keep(self):
        with open(self.state_file + '.new', 'w', encoding='ascii') as file:
            json.dump(self.state, file)
        os.replace(self.state_file + '.new', self.state_file)

    def run(self, kills, seconds):
        """-> what went wrong, of rows until so many have been killed, or so much time is over."""
        state, wrong = self.state, []
        goal, until = state['kills'] + kills, time.monotonic() + seconds
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            while state['kills'] < goal and time.monotonic() < until:
                numbers = range(state['next'], state['next'] + 4 * AT_ONCE)
                rows = [row_of(state['seed'], number) for number in numbers]
                for number, row, text in zip(numbers, rows, pool.map(
                        lambda row: wrong_of(self.programs, row), rows)):
                    state['kills'] += row.killed
                    if text:
                        wrong.append(f'row {number}: {text}')
                        print(wrong[-1], flush=True)
                state['next'] = numbers.stop
                self.keep()
        return wrong


def main():
    parser = argparse.ArgumentParser()
    for name in ('program', 'with_ends', 'root', 'plugins'):
        parser.add_argument(name)
    parser.add_argument('--seed', type=int)
    parser.add_argument('--kills', type=int, default=300)
    parser.add_argument('--seconds', type=float, default=1800)
    parser.add_argument('--state', default='rank_soak.json')
    parser.add_argument('--only', type=int)
    options = parser.parse_args()
    programs = Programs(options.program, options.with_ends, options.root, options.plugins)
    if programs.missing():
        print('Open MPI is not installed (mpirun), or the transport over MPI was not built')
        return 77
    if options.only is not None:
        text = wrong_of(programs, row_of(options.seed, options.only))
        print(text or 'nothing is wrong with it')
        return 1 if text else 0
    soak = Soak(programs, options)
    before, begun = soak.state['kills'], time.monotonic()
    wrong = soak.run(options.kills, options.seconds)
    print(f'seed {soak.state["seed"]}: {soak.state["kills"] - before} kills in '
          f'{time.monotonic() - begun:.0f} s, {soak.state["kills"]} in all, up to row '
          f'{soak.state["next"]}; {len(wrong)} rows went wrong')
    if soak.state['kills'] - before < options.kills:
        print(f'those are fewer than {options.kills}: --seconds ends it before')
        return 1
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
