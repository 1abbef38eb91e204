# SPDX-License-Identifier: Apache-2.0
"""hoistway convert: the file of another trainer as command lines of prep and train.

    python -m hoistway.convert FILE

Each key is used, is left out because it changes no number, or is refused. Where one is refused, no
command line is printed.
"""
from __future__ import annotations

import argparse
import os
import shlex
import sys

from hoistway.convert_deepspeed import win
from hoistway.convert_kinds import KINDS, Making, judge
from hoistway.errors import CONFIG, KEY, MISSING, USAGE, VALUE, Refusal, tell
from hoistway.keyed import Keys

ABOUT = '''Turns a YAML of axolotl or LLaMA-Factory, a YAML of accelerate or transformers'
TrainingArguments in JSON into command lines of prep and train, on stdout. Keys that change no
number are left out and listed; what cannot be had is named, and no command line is printed.'''
NAMED = 6  # of the keys that are refused; the others are counted


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        code = (USAGE if 'unrecognized' in message else MISSING if 'required' in message else VALUE)
        raise Refusal(code, f'{message}. Fix: hoistway convert --help lists the options')


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def parse(words: list[str]) -> argparse.Namespace:
    made = Parser(prog='hoistway convert', description=ABOUT, allow_abbrev=False)
    add = made.add_argument
    add('file', metavar='FILE', help='the configuration')
    add('--kind', choices=[kind.name for kind in KINDS], help='what it is (default: by its keys)')
    add('--model', metavar='DIR', help="in the place of the file's")
    add('--data', metavar='FILE[,FILE]', help='rows, in the place of the data that the file names')
    add('--rows', help='what they are, as prep has it')
    add('--seq-len', type=positive, metavar='N', help='where the file does not say it')
    add('--ranks', type=positive, default=1, metavar='N', help='that the file was run on (1)')
    add('--own-template', action='store_true',
        help="the template that the file names is the model's own")
    return made.parse_args(words)


def kind_of(name: str | None, keys: Keys):
    for kind in KINDS:
        if name == kind.name or (not name and any(sign in keys.values for sign in kind.signs)):
            return kind
    if 'zero_optimization' in keys.values or 'train_batch_size' in keys.values:
        raise Refusal(CONFIG, f'{keys.path}:1:1: it is a configuration of DeepSpeed, which train '
                      'and plan read themselves. Fix: --config of train')
    raise Refusal(CONFIG, f"{keys.path}:1:1: no key tells what it is of. Fix: --kind "
                  f"{'|'.join(kind.name for kind in KINDS)}")


def refuse(m: Making) -> None:
    """One line; the first key has its reason."""
    wrong = list(dict(reversed(m.wrong)).items())[::-1]
    if not wrong:
        return
    (key, why), others = wrong[0], [key for key, _ in wrong[1:]]
    rest = ''
    if others:
        more = f' and {len(others) - NAMED} more' if len(others) > NAMED else ''
        stop = '' if why.endswith('?') else '.'
        rest = f'{stop} Refused are also: {", ".join(others[:NAMED])}{more}'
    place = m.keys.path if key.startswith('--') else m.keys.place(key)
    fix = '' if 'Fix: ' in why or 'Did you mean' in why else '. Fix: change it, or leave it out'
    raise Refusal(KEY, f'{place}: {key}: {why}{rest}{fix}')


def words_of(options: dict[str, object]) -> list[str]:
    return [word for option, value in options.items()
            for one in (value if isinstance(value, list) else [value])
            for word in ((option,) if one is True else (option, f'{one}'))]


def lines(m: Making) -> list[str]:
    launch = ['mpirun', '-n', str(m.ranks)] if m.ranks > 1 else []
    made = [*m.before, ['hoistway', 'prep', *words_of(m.prep)]] if m.prep else []
    above = os.path.dirname(str(m.train.get('--export', '')))  # which Trainer makes
    if above.strip('./'):
        made.append(['mkdir', '-p', above])
    return [shlex.join(line) for line in
            [*made, [*launch, 'hoistway', 'train', *words_of(m.train)]]]


def run(words: list[str]) -> int:
    given = parse(words)
    keys = Keys(given.file, ('deepspeed_config', 'fsdp_config'))
    kind = kind_of(given.kind, keys)
    m = Making(keys, given)
    judge(kind, m)
    kind.make(m)
    win(m)
    refuse(m)
    if m.left:
        tell('note', KEY, f'left out, as they change no number: {", ".join(sorted(set(m.left)))}')
    for note in m.notes:
        tell('note', KEY, note)
    print('\n'.join(lines(m)))
    return 0


def main() -> int:
    try:
        return run(sys.argv[1:])
    except Refusal as refusal:
        tell('error', refusal.code, refusal.text)
        return refusal.exit_status


if __name__ == '__main__':
    sys.exit(main())
