# SPDX-License-Identifier: Apache-2.0
"""JSON as the program in C reads it: no NaN, no Infinity, and each key of an object once. Of two
values of one key Python's own reader keeps the last, and says nothing."""
from __future__ import annotations

import json
import re

from hoistway.errors import cut

TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?Infinity|NaN|-?\d[\d.eE+-]*|[{}\[\],:]', re.DOTALL)


class Wrong(ValueError):
    """What is wrong, and behind how many characters."""

    def __init__(self, what: str, at: int = 0, twice: bool = False):
        super().__init__(what)
        self.what, self.at, self.twice = what, at, twice


class _Constant(ValueError):
    pass


class _Twice(ValueError):
    pass


def _no_constant(name: str):
    raise _Constant(f'{name} is no JSON')


def _unique(pairs: list) -> dict:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Twice
    return found


def _constant(text: str) -> int:
    """Where the first NaN or Infinity stands."""
    return next((token.start() for token in TOKEN.finditer(text) if token[0][-1] in 'Ny'), 0)


def _long_number(text: str) -> int:
    """Where the longest number stands: Python reads none of thousands of digits."""
    numbers = [token for token in TOKEN.finditer(text) if token[0][-1].isdigit()]
    return max(numbers, key=lambda token: len(token[0])).start() if numbers else 0


def _twice(text: str) -> tuple[str, int]:
    """The first key that its object has already, and where it stands. Up to there, and to the end
    of its object, the text is sound."""
    within: list = []  # the keys of each object that has not ended; of an array None
    before = ''
    for token in TOKEN.finditer(text):
        word = token[0]
        if word in '{[':
            within.append(set() if word == '{' else None)
        elif word in '}]':
            within.pop()
        elif word[0] == '"' and before in '{,' and within and within[-1] is not None:
            key = json.loads(word)
            if key in within[-1]:
                return key, token.start()
            within[-1].add(key)
        before = word
    return '', 0


def loads(text: str) -> object:
    """The value of a text. Raises Wrong."""
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as wrong:
        raise Wrong(f'broken JSON: {wrong.msg}', wrong.pos) from None
    except _Twice:
        key, at = _twice(text)
        raise Wrong(f'the key "{cut(key)}" stands there twice', at, True) from None
    except _Constant as wrong:
        raise Wrong(f'broken JSON: {wrong}', _constant(text)) from None
    except ValueError as wrong:
        raise Wrong(f'broken JSON: {wrong}', _long_number(text)) from None
    except RecursionError as wrong:
        raise Wrong(f'broken JSON: {wrong}') from None
