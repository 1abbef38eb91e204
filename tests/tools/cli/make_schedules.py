#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes schedules.txt: what the schedules of transformers give the steps that hoistway's must give.

    make_schedules.py [--check] [FOLDER_OF_WHEELS]

The values come from the functions of transformers' optimization.py themselves, which are taken
out of its source and need no torch: from the package that can be imported, or else the newest
wheel below FOLDER_OF_WHEELS. Without one the script exits 77. --check compares with the file that
is there to 1e-15 and writes nothing.

A line of the file: shape, steps n, warmup, decay, lr-end, step s, and the rate as a fraction of
the peak. Step s of a run is index s - 1 of transformers. Behind a warmup of w steps it is
transformers' rate with num_warmup_steps = w - 1; in the warmup it is the one of index s with
num_warmup_steps = w.
"""

import __future__

import ast
import glob
import importlib.util
import math
import os
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, 'schedules.txt')
SKIPPED = 77


def source(wheels):
    spec = importlib.util.find_spec('transformers')
    if spec and spec.origin:
        path = os.path.join(os.path.dirname(spec.origin), 'optimization.py')
        with open(path, encoding='utf-8') as file:
            return path, file.read()
    found = sorted(glob.glob(os.path.join(wheels, '**', 'transformers-*.whl'), recursive=True))
    if not found:
        print('skipped: no transformers here; pip install transformers')
        sys.exit(SKIPPED)
    with zipfile.ZipFile(found[-1]) as archive:
        return found[-1], archive.read('transformers/optimization.py').decode()


def functions(text):
    """The functions that compute rates, by name; of two of one name the last, as in an import."""
    kept = [node for node in ast.parse(text).body
            if isinstance(node, ast.FunctionDef) and node.name.endswith('_lambda')]
    space = {'math': math}
    later = __future__.annotations.compiler_flag  # types of arguments are names of other modules
    exec(compile(ast.Module(kept, []), 'optimization.py', 'exec', later), space)  # noqa: S102
    return space


def index_rate(f, case, index, warmup):
    """transformers' rate of an index, of the case with another num_warmup_steps."""
    shape, n, _, decay, end = case
    if shape == 'constant':
        return f['_get_constant_schedule_with_warmup_lr_lambda'](index, num_warmup_steps=warmup)
    if shape == 'linear' and end == 0:
        return f['_get_linear_schedule_with_warmup_lr_lambda'](
            index, num_warmup_steps=warmup, num_training_steps=n)
    if shape == 'linear':
        return f['_get_polynomial_decay_schedule_with_warmup_lr_lambda'](
            index, num_warmup_steps=warmup, num_training_steps=n, lr_end=end, power=1.0, lr_init=1)
    if shape == 'cosine':
        return f['_get_cosine_schedule_with_warmup_lr_lambda'](
            index, num_warmup_steps=warmup, num_training_steps=n, num_cycles=0.5, min_lr_rate=end)
    return f['_get_wsd_scheduler_lambda'](
        index, num_warmup_steps=warmup, num_stable_steps=n - warmup - decay,
        num_decay_steps=decay, warmup_type='linear', decay_type='linear', min_lr_ratio=end,
        num_cycles=0.5)


def rate(f, case, step):
    warmup = case[2]
    if step < warmup:  # the warmup of all of them; wsd's own begins at min_lr_ratio
        return index_rate(f, ('linear', case[1] + 1, warmup, 0, 0), step, warmup)
    return index_rate(f, case, step - 1, max(warmup, 1) - 1)


def steps_of(case):
    _, n, warmup, decay, _ = case
    if n <= 10:
        return range(1, n + 1)
    near = {1, 2, n // 3, n // 2, n - 1, n}
    near |= {at + d for at in (warmup, n - decay) for d in (-1, 0, 1, 2)}
    return sorted(s for s in near if 1 <= s <= n)


def cases():
    for n in (1, 2, 3, 10, 12345, 10**6, 10**9):
        for warmup in sorted({0, 1, 2, min(7, n), n // 10, n} - {2 if n < 2 else 0} | {0}):
            yield 'constant', n, warmup, 0, 0
            for end in (0, 0.1, 1 / 3):
                yield 'linear', n, warmup, 0, end
                yield 'cosine', n, warmup, 0, end
                for decay in sorted({1, math.ceil(n / 10), n - max(warmup, 1) + 1}):
                    if max(warmup, 1) - 1 + decay <= n:
                        yield 'wsd', n, warmup, decay, end


def rows(f):
    for case in cases():
        shape, n, warmup, decay, end = case
        for step in steps_of(case):
            yield (shape, n, warmup, decay, repr(float(end)), step), float(rate(f, case, step))


def check(made):
    with open(GOLDEN, encoding='ascii') as file:
        there = [line.split() for line in file if not line.startswith('#')]
    bad = abs(len(there) - len(made))
    for line, (key, value) in zip(there, made):
        bad += line[:6] != [str(x) for x in key] or abs(float(line[6]) - value) > 1e-15
    print(f'{len(made)} rates, {bad} differ')
    return 1 if bad else 0


def public_rates(case):
    """What an optimizer has in each step of a run, by the functions that a user calls."""
    import torch
    from transformers import optimization as of

    shape, n, warmup, decay, end = case
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    behind = max(warmup, 1) - 1
    if shape == 'constant':
        schedule = of.get_constant_schedule_with_warmup(optimizer, behind)
    elif shape == 'linear' and end == 0:
        schedule = of.get_linear_schedule_with_warmup(optimizer, behind, n)
    elif shape == 'linear':
        schedule = of.get_polynomial_decay_schedule_with_warmup(optimizer, behind, n, lr_end=end)
    elif shape == 'cosine':
        schedule = of.get_cosine_with_min_lr_schedule_with_warmup(
            optimizer, behind, n, min_lr_rate=end)
    else:
        schedule = of.get_wsd_schedule(optimizer, behind, decay, num_training_steps=n,
                                       decay_type='linear', min_lr_ratio=end)
    for _ in range(n):
        yield schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()


def check_public(made):
    """The rates of short runs behind their warmup, where torch is there to make an optimizer."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as missing:
        print(f'not compared with an optimizer\'s rates: {missing}')
        return 0
    short = [(key, value) for key, value in made if key[1] <= 10]
    bad = 0
    for case in sorted({key[:5] for key, _ in short}):
        rates = list(public_rates((*case[:4], float(case[4]))))
        bad += sum(abs(rates[key[5] - 1] - value) > 1e-15 for key, value in short
                   if key[:5] == case and key[5] >= case[2])
    print(f'{len(short)} rates of short runs, {bad} differ from an optimizer\'s')
    return 1 if bad else 0


def main():
    arguments = [a for a in sys.argv[1:] if a != '--check']
    path, text = source(arguments[0] if arguments else HERE)
    made = list(rows(functions(text)))
    print(f'from {path}')
    if '--check' in sys.argv:
        return check(made) | check_public(made)
    with open(GOLDEN, 'w', encoding='ascii') as file:
        file.write('# made by make_schedules.py; shape steps warmup decay lr-end step rate/lr\n')
        for key, value in made:
            print(*key, repr(value), file=file)
    return 0


if __name__ == '__main__':
    sys.exit(main())
