#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes rates.txt: what DeepSpeed's schedulers give the steps of a run, by their own classes.

    make_rates.py FOLDER_OF_DEEPSPEED > rates.txt

The classes are taken out of runtime/lr_schedules.py, and nothing else of DeepSpeed is imported.
A step takes the rate that is there, and then moves the scheduler, as DeepSpeed's engine does.
"""
import ast
import math
import os
import sys

LR = 3e-4
CLASSES = ('WarmupLR', 'WarmupDecayLR', 'WarmupCosineLR')


class Silent:
    def warning(self, *_):
        pass


class Optimizer:
    def __init__(self):
        self.param_groups = [{'lr': LR}]


def update_lr(groups, rates):
    for group, rate in zip(groups, rates):
        group['lr'] = rate
    return [group['lr'] for group in groups]


def classes(folder):
    path = os.path.join(folder, 'runtime', 'lr_schedules.py')
    with open(path, encoding='utf-8') as f:
        kept = [node for node in ast.parse(f.read()).body
                if isinstance(node, ast.ClassDef) and node.name in CLASSES]
    space = {'math': math, 'logger': Silent(), 'Optimizer': object, 'WARMUP_LOG_RATE': 'log',
             'WARMUP_LINEAR_RATE': 'linear', 'is_tensor': lambda x: False, 'update_lr': update_lr,
             'get_torch_optimizer': lambda x: x, '_format_param': lambda o, x, n:
             list(x) if isinstance(x, (list, tuple)) else [x] * len(o.param_groups)}
    exec(compile(ast.Module(kept, []), path, 'exec'), space)  # noqa: S102
    return space


def main():
    space = classes(sys.argv[1])
    print('# made by make_rates.py; class type warmup total begin end step rate, with lr', LR)
    for name in CLASSES:
        for kind in ('log', 'linear'):
            for warmup, total in ((1, 5), (2, 12), (7, 30), (10, 10), (20, 12)):
                for begin in (0.0, 1e-5 if name != 'WarmupCosineLR' else 0.25):
                    optimizer, more = Optimizer(), {'warmup_num_steps': warmup,
                                                    'warmup_type': kind}
                    if name != 'WarmupLR':
                        more['total_num_steps'] = total
                    if name == 'WarmupCosineLR':
                        more.update(warmup_min_ratio=begin, cos_min_ratio=0.1)
                    else:
                        more.update(warmup_min_lr=begin, warmup_max_lr=LR)
                    scheduler = space[name](optimizer, **more)
                    for step in range(1, 36):
                        print(name, kind, warmup, total, begin, 0.1, step,
                              repr(optimizer.param_groups[0]['lr']))
                        scheduler.step()


if __name__ == '__main__':
    main()
