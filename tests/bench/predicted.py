#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `hoistway plan` says of a step and of memory, beside what `hoistway train` takes: 12 runs.

    predicted.py PATH_OF_HOISTWAY [--folder DIR] [--second DIR] [--json FILE] [--rows N,...]
                 [--smoke]

97.5 million parameters, whose weights and states are 1.09 GiB. Rates are measured right before a
run and right after it. Where what follows from them for a step differs by more than a tenth, the
machine did something else as well: the run is made again, three times at most, and each is shown.
A row that had still moved then is listed, and its step is not counted. Memory is that of a run less
that of `--version`, beside the total that `plan --json` told before, and the peak that the run's
log tells, which is of the run's own plan. --folder is where stores lie; --second is a folder on
another drive, which is what "two" means. --smoke runs a tiny model once, and judges nothing.

exit 0: the median, the worst and all memory are as wanted; 1: one of them is not; 77: no row could
be counted.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peers  # noqa: E402

SHAPE = dict(hidden_size=768, intermediate_size=2048, num_hidden_layers=12, vocab_size=8192,
             num_attention_heads=12, num_key_value_heads=12)
PLACES = {'dram': 'weights=dram,states=dram', 'nvme': 'weights=dram,states=nvme',
          'all': 'weights=nvme,states=nvme', 'two': 'weights=nvme,states=nvme'}
RUNS = [  # listed before any of them was made: homes, precision, tokens of a step, update
    ('dram', 'fp32', 512, 'deferred'), ('dram', 'bf16', 2048, 'deferred'),
    ('dram', 'fp32', 2048, 'optimistic'), ('nvme', 'fp32', 512, 'deferred'),
    ('nvme', 'bf16', 512, 'optimistic'), ('nvme', 'fp32', 2048, 'deferred'),
    ('all', 'fp32', 512, 'optimistic'), ('all', 'bf16', 512, 'deferred'),
    ('all', 'bf16', 2048, 'optimistic'), ('two', 'fp32', 512, 'deferred'),
    ('two', 'bf16', 2048, 'deferred'), ('two', 'bf16', 512, 'optimistic')]
STEPS, TRIES, APART = 8, 3, 0.1
MEDIAN, WORST = 0.1, 0.25  # of which a predicted step may be off, as a part of the step
LEAST, MOST = 1 / 1.15, 1.05  # that a run may hold, as a part of what was planned
SKIPPED = 77


class Bench:
    def __init__(self, arguments, folder):
        self.program = os.path.abspath(arguments.program)
        drives = [arguments.folder, *([arguments.second] if arguments.second else [])]
        self.folder = folder
        self.stores = [os.path.join(at, 'hoistway-predicted') for at in drives]
        for at in drives:
            os.makedirs(at, exist_ok=True)
        self.model = os.path.join(folder, 'model')
        os.makedirs(self.model)
        shape = peers.TINY if arguments.smoke else SHAPE
        with open(os.path.join(self.model, 'config.json'), 'w', encoding='utf-8') as file:
            json.dump({**peers.COMMON, **shape}, file)
        with open(os.path.join(self.model, 'tokens.bin'), 'wb') as file:
            for at in range(STEPS * 2048 + 1):
                file.write((at * at % shape['vocab_size']).to_bytes(2, 'little'))
        self.least_kib = self.run('--version')[1]

    def run(self, *words):
        """-> what it printed, and the most memory that it held, in KiB"""
        with tempfile.TemporaryFile('w+') as out, tempfile.TemporaryFile('w+') as told:
            process = subprocess.Popen([self.program, *words], stdout=out, stderr=told)
            _, status, usage = os.wait4(process.pid, 0)
            out.seek(0)
            told.seek(0)
            if os.waitstatus_to_exitcode(status):
                sys.exit(f'{" ".join(words)}: {told.read()}')
            return out.read(), usage.ru_maxrss

    def options(self, home, precision, tokens, update):
        stores = ','.join(self.stores if home == 'two' else self.stores[:1])
        return ['--device=host', '--model', self.model, '--seq-len=256', '--durability=none',
                f'--batch-tokens={tokens}', '--precision', precision, '--update', update,
                '--clip=1e9',  # an optimistic update is not taken back: how often is not planned
                '--place', PLACES[home] + ',grads=dram,acts=dram', '--store', stores]

    def plan(self, row):
        return json.loads(self.run('plan', *self.options(*row), '--probe', '--json')[0])

    def train(self, row):
        """-> a step's seconds, the median behind the second; the memory that training held; the
        peak of its own plan, which is another one than before where rates have changed since"""
        log = os.path.join(self.folder, 'log')
        _, most_kib = self.run('train', *self.options(*row), '--init=random', '--data',
                               os.path.join(self.model, 'tokens.bin'), '--token-dtype=u16',
                               f'--steps={STEPS}', '--log', log, '--quiet')
        with open(log, encoding='utf-8') as file:
            lines = [json.loads(line) for line in file]
        os.remove(log)
        for store in self.stores:
            shutil.rmtree(store, ignore_errors=True)
        steps = [line for line in lines if line['kind'] == 'step']
        return (statistics.median(line['seconds'] for line in steps[2:]),
                (most_kib - self.least_kib) * 1024, steps[-1]['peak']['dram'])

    def once(self, row):
        before = self.plan(row)
        step_s, held, peak = self.train(row)
        after = self.plan(row)
        both = before['predicted_step_s'], after['predicted_step_s']
        apart = max(both) / min(both) - 1
        return {'homes': row[0], 'precision': row[1], 'tokens': row[2], 'update': row[3],
                'step_s': step_s, 'predicted_s': before['predicted_step_s'],
                'bound_s': before['bound_s'], 'bound_by': before['bound_by'],
                'planned_bytes': before['memory']['total']['dram'], 'peak_bytes': peak,
                'held_bytes': held, 'apart': apart}


def name(case):
    return f'{case["homes"]} {case["precision"]} {case["tokens"]} {case["update"]}'


def show(case):
    print(f'{case["homes"]:5} {case["precision"]} {case["tokens"]:5} {case["update"]:10} '
          f'{case["step_s"]:7.3f} s {case["predicted_s"] / case["step_s"]:6.3f} '
          f'{case["bound_s"] / case["step_s"]:6.3f} {case["held_bytes"] / 2**20:8.1f} MiB '
          f'{case["held_bytes"] / case["planned_bytes"]:6.3f} '
          f'{case["held_bytes"] / case["peak_bytes"]:6.3f}   {case["apart"]:5.1%}', flush=True)


def measure(bench, rows, tries, tell):
    """-> of each row its tries, in order; tell: hears of each of them, as it ends"""
    tried = []
    for row in rows:
        cases = []
        while len(cases) < tries and not (cases and cases[-1]['apart'] <= APART):
            cases.append(bench.once(row))
            tell(cases[-1])
        tried.append(cases)
    return tried


def judge(tried):
    """-> what is told at the end, and the exit status. Probes that moved make no memory another."""
    last = [cases[-1] for cases in tried]
    moved = [name(case) for case in last if case['apart'] > APART]
    off = [abs(case['predicted_s'] / case['step_s'] - 1) for case in last if case['apart'] <= APART]
    held = [case['held_bytes'] / case['planned_bytes'] for case in last]
    again = sum(len(cases) > 1 for cases in tried)
    text = (f'{again} of {len(tried)} rows were repeated because probes moved, and {len(moved)} '
            f'had still moved after {TRIES} tries')
    text += f' (not counted: {", ".join(moved)})' if moved else ''
    text += (f'; predictions of {len(off)} rows are off by {statistics.median(off):.1%} (median; '
             f'wanted: <= {MEDIAN:.0%}), {max(off):.1%} (worst; <= {WORST:.0%})'
             if off else '; no prediction can be judged')
    text += (f'; memory is {min(held):.3f} to {max(held):.3f} of the plan ({LEAST:.2f} to {MOST})')
    good = LEAST <= min(held) and max(held) <= MOST
    if off:
        good = good and statistics.median(off) <= MEDIAN and max(off) <= WORST
    return text, 1 if not good else 0 if off else SKIPPED


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('program')
    parser.add_argument('--folder', default='.')
    parser.add_argument('--second')
    parser.add_argument('--json')
    parser.add_argument('--rows', default=','.join(str(row) for row in range(len(RUNS))))
    parser.add_argument('--smoke', action='store_true')
    arguments = parser.parse_args()
    rows = [RUNS[int(number)] for number in arguments.rows.split(',')]
    if not arguments.second:
        print('two: skipped: it needs a folder on another drive, --second DIR')
        rows = [row for row in rows if row[0] != 'two']
    print('homes, precision, tokens, update, step, predicted / step, bound / step, memory, '
          'memory / planned before, memory / peak of the run\'s plan, apart before and after')

    def tell(case):
        show(case)
        if arguments.json:
            with open(arguments.json, 'a', encoding='utf-8') as file:
                file.write(json.dumps(case) + '\n')

    with tempfile.TemporaryDirectory(prefix='hoistway-predicted-') as folder:
        tried = measure(Bench(arguments, folder), rows, 1 if arguments.smoke else TRIES, tell)
    if not tried:
        print('no row is left')
        sys.exit(SKIPPED)
    if arguments.smoke:
        return
    text, status = judge(tried)
    print(text)
    sys.exit(status)


if __name__ == '__main__':
    main()
