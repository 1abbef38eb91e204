#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A search for a run whose bytes depend on where they live: models, options, homes and breaks are
drawn by a seed; each run, and its resumes with other homes, exports what the run in RAM exports.

search.py PATH_OF_HOISTWAY TRIALS [SEED [FIRST]]

FIRST: the number of the first trial, so that one that failed is tried alone.
"""
import filecmp
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

PROGRAM, TRIALS = os.path.abspath(sys.argv[1]), int(sys.argv[2])
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
FIRST = int(sys.argv[4]) if len(sys.argv) > 4 else 0
KINDS = (('LlamaForCausalLM', 'llama'), ('MistralForCausalLM', 'mistral'),
         ('Qwen2ForCausalLM', 'qwen2'), ('Qwen3ForCausalLM', 'qwen3'))
IN_RAM = ('--device=host', '--place=states=dram,weights=dram,grads=dram,acts=dram',
          '--durability=none', '--threads=1', '--activations=recompute')
UNITS = {'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30}


def draw_config(chance):
    """A small model of one of the architectures, with shapes that nothing divides well."""
    architecture, kind = chance.choice(KINDS)
    groups, heads = chance.choice(((1, 1), (1, 3), (2, 2), (2, 4), (3, 6)))
    head_dim = chance.choice((4, 8, 10, 16, 18))
    own = kind in ('llama', 'qwen3', 'mistral') and chance.random() < 0.4
    config = {
        'architectures': [architecture], 'model_type': kind, 'hidden_act': 'silu',
        'hidden_size': chance.choice((12, 20, 33, 48)) if own else heads * head_dim,
        'intermediate_size': chance.choice((7, 16, 50, 96)), 'num_attention_heads': heads,
        'num_hidden_layers': chance.randint(1, 5), 'num_key_value_heads': groups,
        'max_position_embeddings': 128, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0,
        'vocab_size': chance.choice((17, 256, 301, 4096, 9001)), 'torch_dtype': 'float32',
        'tie_word_embeddings': chance.random() < 0.5,
    }
    if own or kind == 'qwen3':
        config['head_dim'] = head_dim
    if kind == 'mistral':
        config['sliding_window'] = chance.choice((None, 64, 100))
    return config


def draw_training(chance):
    """What decides the result."""
    length = chance.choice((1, 5, 16, 31, 64))
    precision = chance.choice(('fp32', 'bf16', 'fp16'))
    options = [f'--seq-len={length}', f'--batch-tokens={length * chance.randint(1, 6)}',
               f'--grain={length * chance.randint(1, 3)}', f'--precision={precision}',
               f'--lr={chance.choice((1e-4, 1e-3, 1e-2))}', f'--seed={chance.randint(0, 99)}',
               f'--clip={chance.choice((0, 0.1, 1, 5))}',
               f'--weight-decay={chance.choice((0, 0.1))}',
               f'--order={chance.choice(("shuffled", "sequential"))}']
    if precision == 'fp16':
        options.append(f'--loss-scale={chance.choice((1024, 65536, 2**24))}')
    if precision == 'bf16' and chance.random() < 0.3:
        options.append('--state=bf16')
    return [*options, '--skip-nonfinite']


def draw_way(chance, device):
    """What decides no bit."""
    options = [f'--device={device}', f'--threads={chance.randint(1, 4)}',
               f'--update={chance.choice(("auto", "deferred", "optimistic"))}',
               f'--activations={chance.choice(("auto", "recompute"))}',
               f'--io={chance.choice(("auto", "threads"))}',
               f'--durability={chance.choice(("auto", "step", "2", "3"))}']
    tiers = ('dram', 'nvme') if device == 'host' else ('hbm', 'dram', 'nvme')
    homes = [f'{of}={chance.choice(tiers)}' for of in ('states', 'weights', 'grads', 'acts')
             if chance.random() < 0.6]
    if homes and chance.random() < 0.7:
        options.append('--place=' + ','.join(homes))
    if device != 'host' and chance.random() < 0.5:
        options.append(f'--gpu-update={chance.choice((0, 0.3, 1))}')
    return options


class Trial:
    def __init__(self, number, folder, devices, more):
        self.chance = random.Random(f'{SEED}/{number}')
        self.folder, self.more = folder, more
        self.device = self.chance.choice(devices)
        self.steps = self.chance.randint(2, 7)
        self.config, self.training = draw_config(self.chance), draw_training(self.chance)
        os.mkdir(self.path('model'))
        with open(self.path('model', 'config.json'), 'w', encoding='ascii') as file:
            json.dump(self.config, file)
        ids = [self.chance.randrange(self.config['vocab_size']) for _ in range(4000)]
        with open(self.path('data.bin'), 'wb') as file:
            file.write(struct.pack('<4000H', *ids))
        self.ran = []

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def train(self, name, steps, *way):
        line = [PROGRAM, 'train', '--model', self.path('model'), '--data', self.path('data.bin'),
                '--token-dtype=u16', '--init=random', '--store', self.path(name + '.store'),
                f'--steps={steps}', *self.training, *self.more, *way]
        self.ran.append(' '.join(line))
        return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)

    def within(self, name, steps, way):
        """Within budgets that are too small for all of it, some of the time the smallest."""
        slack = self.chance.choice((None, 1.04, 1.2, 2))
        done = self.train(name, steps, *way, *(['--dram=64K'] if slack else []))
        for _ in range(4):
            needs = re.search(r'needs ([\d.]+) ([KMG]iB) of DRAM', done.stderr)
            if not done.returncode or not slack or not needs:
                break
            budget = int(float(needs[1]) * UNITS[needs[2]] * slack)
            slack *= 1.1
            done = self.train(name, steps, *way, f'--dram={budget}')
        if re.search(r'^error\[E(30[1-4]|402)\] ', done.stderr, re.M):  # wishes that contradict
            wishes = ('--place', '--update', '--gpu-update')
            done = self.train(name, steps, *(w for w in way if not w.startswith(wishes)))
        return done

    def check(self):
        """-> what is wrong with it, None: nothing."""
        done = self.train('ram', self.steps, *IN_RAM, '--export', self.path('expected'))
        if done.returncode:
            return f'the run in RAM ended with {done.returncode}: {done.stderr}'
        lives = sorted({self.chance.randint(1, self.steps) for _ in range(3)} - {self.steps})
        for life, steps in enumerate([*lives, self.steps]):
            way = draw_way(self.chance, self.device)
            if life:
                way += ['--resume', '--allow-config-change']
            if steps == self.steps:
                way += ['--export', self.path('export')]
            done = self.within('way', steps, way)
            if done.returncode:
                return f'life {life + 1} ended with {done.returncode}: {done.stderr}'
        same = filecmp.cmp(self.path('expected', 'model.safetensors'),
                           self.path('export', 'model.safetensors'), shallow=False)
        return None if same else 'the exported weights differ'


def main():
    print(f'seed {SEED}', flush=True)
    told = subprocess.run([PROGRAM, 'train', '--help'], capture_output=True, text=True, check=True)
    more = ['--export-dtype=fp32'] if '--export-dtype' in told.stdout else []
    devices = ('host', 'host', 'far') if os.environ.get('HOISTWAY_PLUGIN_PATH') else ('host',)
    bad = runs = 0
    for number in range(FIRST, FIRST + TRIALS):
        with tempfile.TemporaryDirectory(dir='.') as folder:
            trial = Trial(number, os.path.abspath(folder), devices, more)
            wrong = trial.check()
            runs += len(trial.ran)
            if wrong:
                bad += 1
                print(f'trial {number} (search.py … 1 {SEED} {number}): {wrong}\n'
                      f'{json.dumps(trial.config)}\n' + '\n'.join(trial.ran), flush=True)
    print(f'{TRIALS} trials of seed {SEED}, {runs} runs, {bad} that differ or fail')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
