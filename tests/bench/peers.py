#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hoistway train` on the host beside its peers, by turns: A B B A, the ratio of each pair.

    peers.py PATH_OF_HOISTWAY PYTHON_OF_THE_PEERS [--pairs N] [--rows NAME,...] [--json FILE]
             [--folder DIR] [--smoke]

A row is two runs of the same Llama, tokens and threads, each in a process of its own: how long the
median step of the one takes, over that of the other. Rows whose peer is not installed say so. The
last row has no peer: 1.1 billion parameters in bf16, whose states have four times the budget.
Each row says of which version and commit hoistway is, and which peers are installed.
--folder is where states lie on a drive. --smoke runs tiny models once.
"""
import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 3
SMALL = dict(hidden_size=512, intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8,
             num_key_value_heads=8, vocab_size=256)
TINY = dict(SMALL, num_hidden_layers=2, hidden_size=128, intermediate_size=352,
            num_attention_heads=2, num_key_value_heads=2)
LARGE = dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
             num_attention_heads=32, num_key_value_heads=4, vocab_size=32000)
COMMON = dict(architectures=['LlamaForCausalLM'], model_type='llama', hidden_act='silu',
              rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False,
              max_position_embeddings=2048, torch_dtype='float32')
IN_DRAM = ('--place=weights=dram,states=dram,grads=dram,acts=dram', '--durability=none')
ON_DRIVE = ('--place=weights=dram,states=nvme,grads=dram,acts=dram', '--durability=none')

# name: ours, the other side (a peer's name in peer_step.py, or options of ours), what is wanted
ROWS = {
    'fp32': (('--precision=fp32', *IN_DRAM), 'torch-fp32', 0.88),
    'bf16': (('--precision=bf16', *IN_DRAM), 'torch-bf16', 0.95),
    'bf16-own': (('--precision=bf16', *IN_DRAM), ('--precision=fp32', *IN_DRAM), 0.65),
    'nvme': (('--precision=fp32', *ON_DRIVE), 'deepspeed-fp32', None),
}


PEERS = ('torch', 'deepspeed')
INSTALLED = f"""
import importlib.metadata, json
found = {{d.metadata['Name']: d.version for d in importlib.metadata.distributions()}}
print(json.dumps({{name: found[name] for name in {PEERS} if name in found}}))
"""


class Skipped(Exception):
    """The peer is not there; the text says which and why."""


class Bench:
    def __init__(self, arguments, folder):
        self.program, self.python = os.path.abspath(arguments.program), arguments.python
        self.folder = folder
        self.threads = len(os.sched_getaffinity(0))
        self.smoke = arguments.smoke
        self.sequence, self.batch_tokens = (64, 256) if self.smoke else (256, 4096)
        self.model = self.make_model('model', TINY if self.smoke else SMALL)
        self.versions = {'hoistway': self.said_by(self.program, '--version').split()[-1],
                         'commit': self.commit(), **self.installed()}

    @staticmethod
    def said_by(*command):
        """What it prints; nothing where it fails or is not there."""
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            return ''
        return done.stdout.strip() if done.returncode == 0 else ''

    def commit(self):
        """Of the checkout that this file is of; with a + where its files are others. None: none."""
        git = ('git', '-C', HERE)
        commit = self.said_by(*git, 'rev-parse', '--short=8', 'HEAD')
        changed = self.said_by(*git, 'status', '--porcelain', '--untracked-files=no')
        return commit + ('+' if changed else '') if commit else None

    def installed(self):
        """-> {name: version} of the peers; of one that is not there None."""
        told = self.said_by(self.python, '-c', INSTALLED)
        return {**dict.fromkeys(PEERS), **(json.loads(told) if told else {})}

    def make_model(self, name, shape):
        """A directory with config.json alone, and tokens that come again after some."""
        model = os.path.join(self.folder, name)
        os.makedirs(model)
        with open(os.path.join(model, 'config.json'), 'w', encoding='utf-8') as file:
            json.dump({**COMMON, **shape}, file)
        count = (STEPS + 1) * self.batch_tokens + self.sequence + 1
        with open(os.path.join(model, 'tokens.bin'), 'wb') as file:
            for at in range(count):
                file.write((at * at % shape['vocab_size']).to_bytes(2, 'little'))
        return model

    def train(self, options, model=None, steps=STEPS):
        """-> {step_s, ...}: the median of steps behind the first."""
        model = model or self.model
        store, log = os.path.join(self.folder, 'store'), os.path.join(self.folder, 'log')
        command = [self.program, 'train', '--device=host', '--model', model, '--init=random',
                   '--data', os.path.join(model, 'tokens.bin'), '--token-dtype=u16',
                   f'--steps={steps + 1}', f'--seq-len={self.sequence}',
                   f'--batch-tokens={self.batch_tokens}', f'--threads={self.threads}',
                   '--store', store, '--log', log, '--quiet', *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f'{" ".join(command)}: {done.stderr}')
        shutil.rmtree(store, ignore_errors=True) # none: nothing of it was on a drive
        with open(log, encoding='utf-8') as file:
            lines = [json.loads(line) for line in file]
        seconds = [line['seconds'] for line in lines if line['kind'] == 'step'][1:]
        return {'step_s': statistics.median(seconds), 'lines': lines}

    def peer(self, how):
        """-> {step_s}"""
        states = os.path.join(self.folder, 'peer')
        os.makedirs(states, exist_ok=True)
        command = [self.python, os.path.join(HERE, 'peer_step.py'), how, self.model, str(STEPS),
                   str(self.batch_tokens), str(self.sequence), str(self.threads), states]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  env={**os.environ, 'DS_ACCELERATOR': 'cpu'})
        except OSError as error:
            raise Skipped(f'{self.python} does not run: {error.strerror}') from error
        finally:
            shutil.rmtree(states)
        if done.returncode:
            raise Skipped(f'{how} does not run: {(done.stderr.strip() or "?").splitlines()[-1]}')
        return json.loads(done.stdout.strip().splitlines()[-1])

    def other(self, side):
        return self.peer(side) if isinstance(side, str) else self.train(side)

    def pairs_of(self, name, pairs):
        """-> the row: medians of both sides and of the ratios, with least and most."""
        options, side, wanted = ROWS[name]
        ours, others = [], []
        for pair in range(pairs):
            runs = [lambda: ours.append(self.train(options)['step_s']),
                    lambda: others.append(self.other(side))]
            for run in runs if pair % 2 == 0 else reversed(runs):
                run()
        ratios = [one / other['step_s'] for one, other in zip(ours, others)]
        return {'row': name, 'pairs': pairs, 'step_s': statistics.median(ours),
                'other_step_s': statistics.median(other['step_s'] for other in others),
                'ratio': statistics.median(ratios), 'ratio_least': min(ratios),
                'ratio_most': max(ratios), 'wanted': wanted}

    def large(self):
        """1.1 billion parameters in bf16, 10 bytes of states each; DRAM for a quarter of them."""
        if not self.smoke:
            self.sequence, self.batch_tokens = 1024, 2048
        model = self.make_model('large', TINY if self.smoke else LARGE)
        done = self.train(('--precision=bf16', '--dram=2600M', '--durability=none'), model, 2)
        summary = [line for line in done['lines'] if line['kind'] == 'summary'][-1]
        return {'row': '1.1b', 'step_s': done['step_s'],
                **{key: summary[key] for key in ('predicted_step_s', 'bound_by')}}


def line_of(row):
    if 'skipped' in row:
        return f'{row["row"]:9} skipped: {row["skipped"]}'
    text = f'{row["row"]:9} {row["step_s"]:8.3f} s'
    if 'ratio' not in row:
        return f'{text}   predicted {row["predicted_step_s"]:.3f} s, bound by {row["bound_by"]}'
    side = ROWS[row['row']][1]
    beside = ' '.join(f'{key} {row[key]}' for key in PEERS[:1 + str(side).startswith('deepspeed')])
    wanted = f', wanted: <= {row["wanted"]}' if row['wanted'] else ''
    return (f'{text} {row["other_step_s"]:8.3f} s {row["ratio"]:7.3f} '
            f'({row["ratio_least"]:.3f} to {row["ratio_most"]:.3f}){wanted}   '
            f'beside {beside if isinstance(side, str) else "fp32 of ours"}')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('program')
    parser.add_argument('python')
    parser.add_argument('--pairs', type=int, default=7)
    parser.add_argument('--rows', default=','.join([*ROWS, '1.1b']))
    parser.add_argument('--json')
    parser.add_argument('--folder', default='.')
    parser.add_argument('--smoke', action='store_true')
    arguments = parser.parse_args()
    pairs = 1 if arguments.smoke else arguments.pairs
    print('row           ours        other   ratio of pairs (least to most)')
    with tempfile.TemporaryDirectory(prefix='hst-peers-', dir=arguments.folder) as folder:
        bench = Bench(arguments, os.path.abspath(folder))
        for name in arguments.rows.split(','):
            try:
                row = bench.large() if name == '1.1b' else bench.pairs_of(name, pairs)
            except Skipped as skipped:
                row = {'row': name, 'skipped': str(skipped)}
            row = {**row, **bench.versions, 'date': datetime.date.today().isoformat(),
                   'load': os.getloadavg()[0]}
            print(line_of(row), flush=True)
            if arguments.json:
                with open(arguments.json, 'a', encoding='utf-8') as file:
                    file.write(json.dumps(row) + '\n')


if __name__ == '__main__':
    main()
