# SPDX-License-Identifier: Apache-2.0
"""What Trainer does with a DeepSpeed configuration beside its own arguments, as
transformers/integrations/deepspeed.py has it (trainer_config_process, deepspeed_optim_sched).

"auto" is the argument's value. What the file says must be what the argument says, or Trainer ends.
A scheduler or an optimizer of the file is used in the place of Trainer's, whose arguments for it
then have no effect; a key that it leaves out has DeepSpeed's default."""
from __future__ import annotations

import json

from hoistway.convert_kinds import Making
from hoistway.errors import CONFIG, Refusal, cut
from hoistway.keyed import text_of

ABSENT = object()
SCHEDULES = ('lr_scheduler', 'lr_scheduler_type', 'lr_scheduler_kwargs', 'cosine_min_lr_ratio')
OPTIMIZERS = ('optimizer', 'optim', 'optim_args')


def _once(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError('a key is there twice')
    return found


def read(path: str) -> dict:
    try:
        found = json.loads(text_of(path), object_pairs_hook=_once)
    except (ValueError, RecursionError) as wrong:
        raise Refusal(CONFIG, f"'{cut(path, 150)}' is no JSON ({cut(str(wrong), 80)}), and Trainer "
                      'takes nothing else. Fix: correct it there') from None
    if not isinstance(found, dict):
        raise Refusal(CONFIG, f"'{cut(path, 150)}' has no keys with values. Fix: name a "
                      'configuration of DeepSpeed')
    return found


class File:
    def __init__(self, m: Making, name: str):
        self.m, self.name, self.values = m, name, read(name)

    def at(self, path: str):
        """A value; ABSENT too where what is to have it is not there."""
        value = self.values
        for key in path.split('.'):
            value = value.get(key, ABSENT) if isinstance(value, dict) else ABSENT
        return ABSENT if value is None else value

    def has(self, path: str) -> bool:
        return isinstance(self.at(path), dict)

    def match(self, path: str, key: str, argument) -> bool:
        """True where the command line is to say it; what the file says is the same, or refused."""
        value = self.at(path)
        if value == 'auto':
            return True
        if value is not ABSENT and argument is not None and value != argument:
            self.m.refuse(key, f'{self.name} says {cut(str(value))} ({path}), and Trainer ends '
                          'where both are unlike. Fix: the same in both, or "auto" there')
        return False


def _number(m: Making, key: str, default):
    """What is none is refused elsewhere."""
    value = m.keys.get(key, default)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else default


def _drop(m: Making, *options: str) -> None:
    for option in options:
        m.train.pop(option, None)


def _ignore(m: Making, keys: tuple[str, ...]) -> None:
    """What is said of them has no effect, right or wrong."""
    m.wrong = [(key, why) for key, why in m.wrong if key not in keys]
    m.left += [key for key in keys if m.keys.get(key) is not None]


def _optimizer(f: File) -> None:
    m = f.m
    _ignore(m, tuple(key for key in OPTIMIZERS if key in m.keys.values))
    _drop(m, '--optimizer', '--momentum', '--state')
    betas = [_number(m, 'adam_beta1', 0.9), _number(m, 'adam_beta2', 0.999)]
    for option, name, key, argument in (
            ('--betas', 'betas', 'adam_beta1', betas),
            ('--eps', 'eps', 'adam_epsilon', _number(m, 'adam_epsilon', 1e-8)),
            ('--weight-decay', 'weight_decay', 'weight_decay', _number(m, 'weight_decay', 0))):
        if not f.match(f'optimizer.params.{name}', key, argument):
            _drop(m, option)
        elif option == '--betas':
            m.train[option] = '{},{}'.format(*betas)
        else:
            m.train[option] = argument


def _scheduler(f: File) -> None:
    m, at = f.m, 'scheduler.params.'
    _ignore(m, tuple(key for key in SCHEDULES if key in m.keys.values))
    given = _warmed(m) or m.train.get('--warmup', 1)  # one step, where there is none
    _drop(m, '--schedule', '--lr-end', '--warmup')
    if f.match(f'{at}warmup_num_steps', 'warmup_steps', given if isinstance(given, int) else None):
        m.train['--warmup'] = given
    f.match(f'{at}total_num_steps', 'max_steps', m.train.get('--steps'))
    m.notes.append(f'the rates are those of {f.name}: as in Trainer, its scheduler counts, and '
                   'that of the arguments does not')


def _warmed(m: Making):
    """--warmup of the arguments, whatever their schedule is."""
    steps, share = _number(m, 'warmup_steps', 0), _number(m, 'warmup_ratio', 0)
    steps, share = (0, steps) if 0 < steps < 1 else (steps, share)
    return int(steps) or (f'{100 * share:.10g}%' if share else None)


def _rate(f: File) -> None:
    """--lr is that of the arguments, unless the file's optimizer has none and its default is."""
    rate, said = f.m.train.get('--lr'), [path for path in (
        'optimizer.params.lr', 'scheduler.params.warmup_max_lr') if f.has(path.partition('.')[0])]
    if not said:
        return
    if not any([f.match(path, 'learning_rate', rate) for path in said]):
        _drop(f.m, '--lr')


def _precision(f: File) -> None:
    """--precision is that of the arguments where a section leaves it open, or none is there."""
    halves = [half for half in ('bf16', 'fp16') if f.has(half)]
    left_open = [f.match(f'{half}.enabled', half, f.m.train.get('--precision') == half)
                 for half in halves]
    if halves and not any(left_open):
        _drop(f.m, '--precision')


def win(m: Making) -> None:
    """What a run of Trainer with that file does is what the command lines do."""
    name = m.keys.get('deepspeed')
    if not isinstance(name, str) or '--config' not in m.train:
        return
    f = File(m, name)
    if f.has('optimizer'):
        _optimizer(f)
    if f.has('scheduler'):
        _scheduler(f)
    _rate(f)
    _precision(f)
    if not f.match('gradient_clipping', 'max_grad_norm', _number(m, 'max_grad_norm', 1.0)):
        _drop(m, '--clip')  # absent: DeepSpeed clips at 1.0, whatever the argument says
    micro = _number(m, 'per_device_train_batch_size', _number(m, 'micro_batch_size', None))
    many = _number(m, 'gradient_accumulation_steps', 1)
    f.match('train_micro_batch_size_per_gpu', 'gradient_accumulation_steps', micro)
    f.match('gradient_accumulation_steps', 'gradient_accumulation_steps', many)
    if micro is not None:
        f.match('train_batch_size', 'gradient_accumulation_steps', micro * many * m.ranks)
