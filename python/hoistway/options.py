# SPDX-License-Identifier: Apache-2.0
"""The command line of prep."""
from __future__ import annotations

import argparse
import difflib
import os

from hoistway import strict
from hoistway.errors import MISSING, USAGE, VALUE, Refusal, cut

ABOUT = '''Makes a token file of chats or texts, with a model's tokenizer and chat template.
'hoistway train --data FILE.safetensors' trains on it.'''
ROWS = ('messages', 'sharegpt', 'prompt', 'alpaca', 'text', 'ids')
LEARN = ('assistant', 'last', 'completion', 'all')


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise Refusal(MISSING if 'required' in message else VALUE, f'{message}. Fix: hoistway prep '
                      '--help lists the options')


def cores() -> int:
    return len(os.sched_getaffinity(0))


def parser() -> Parser:
    made = Parser(prog='hoistway prep', description=ABOUT, allow_abbrev=False,
                  formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add('--model', required=True, metavar='DIR',
        help="the model: a directory, or a name that is in Hugging Face's cache")
    add('--data', required=True, metavar='FILE[,FILE]',
        help='.jsonl, one row a line; with datasets also .parquet, .arrow, .csv')
    add('--out', required=True, metavar='FILE', help='the token file, FILE.safetensors')
    add('--rows', choices=ROWS, help='what the rows are (default: known by their keys)')
    add('--template', metavar='FILE', help="a chat template in place of the model's own")
    add('--template-args', metavar='JSON', default='{}',
        help='what the template is given beside the messages, as {"enable_thinking": false}')
    add('--learn', choices=LEARN, help='what is learned (default: assistant turns of messages, the '
        'completion after a prompt, all of a text)')
    add('--split-turns', choices=('each', 'last'), default='each',
        help='where the template renders earlier turns otherwise later: each learned turn becomes '
        'a document, or the last alone is learned (default: each)')
    add('--plain', action='store_true',
        help='joins prompt and completion, and alpaca rows, without a template')
    add('--no-eos', action='store_true', help="puts no end-of-text behind texts")
    add('--control', choices=('refuse', 'keep', 'drop-row'), default='refuse',
        help='rows whose own text holds control tokens (default: refuse)')
    add('--prompts', metavar='FILE', help='rows, of which what stands before the answer goes into '
        'the file: what a model can be asked while it trains')
    add('--ignore-keys', metavar='KEY[,KEY]', default='', help='keys of rows that say nothing here')
    add('--skip-bad', type=int, default=0, metavar='N', help='leaves out up to N bad rows')
    add('--tokenizer', metavar='DIR', help='another directory with the tokenizer')
    add('--allow-other-tokenizer', action='store_true',
        help="also where --tokenizer's is not the model's")
    add('--processes', type=int, default=cores(), metavar='N', help='default: one per core')
    add('--quiet', action='store_true', help='tells warnings and errors alone')
    return made


def _unknown(made: Parser, word: str) -> Refusal:
    known = [option for action in made._actions for option in action.option_strings]
    near = difflib.get_close_matches(word.split('=')[0], known, 1)
    return Refusal(USAGE, f"unknown option '{cut(word)}'. " + (
        f'Did you mean {near[0]}?' if near else 'Fix: hoistway prep --help lists the options'))


def parse(words: list[str]) -> argparse.Namespace:
    made = parser()
    given, rest = made.parse_known_args(words)
    if rest:
        raise _unknown(made, rest[0])
    for name, least in (('skip_bad', 0), ('processes', 1)):
        if getattr(given, name) < least:
            raise Refusal(VALUE, f'--{name.replace("_", "-")} is {getattr(given, name)}. Fix: a '
                          f'whole number of at least {least}')
    try:
        given.template_args = strict.loads(given.template_args)
    except ValueError:
        given.template_args = None
    if not isinstance(given.template_args, dict):
        raise Refusal(VALUE, '--template-args is no JSON object. Fix: as '
                      '{"enable_thinking": false}')
    if given.plain and given.template:
        raise Refusal(VALUE, '--plain uses no template, and --template names one. Fix: one of them')
    return given
