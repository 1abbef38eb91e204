# SPDX-License-Identifier: Apache-2.0
"""Where in the text of a row a value stands: for messages alone, so it may be slow."""
from __future__ import annotations

import json
import re

BLANK = re.compile(r'[ \t\r\n]*')
DECODER = json.JSONDecoder()


def _skip(text: str, at: int) -> int:
    return BLANK.match(text, at).end()


def _member(text: str, at: int, key: str) -> int | None:
    """Begin of the value of `key` in the object that begins at `at`."""
    at = _skip(text, at + 1)
    while text[at] != '}':
        name, at = DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)  # behind the colon
        if name == key:
            return at
        _, at = DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ',':
            at = _skip(text, at + 1)
    return None


def _element(text: str, at: int, index: int) -> int | None:
    at = _skip(text, at + 1)
    for _ in range(index):
        if text[at] == ']':
            return None
        _, at = DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ',':
            at = _skip(text, at + 1)
    return None if text[at] == ']' else at


def column_of(text: str, path: tuple) -> int:
    """Column, from 1, of the value that `path` leads to in JSON that is known to be sound; of the
    last value on the way that is there."""
    at = _skip(text, 0)
    for step in path:
        if text[at] == '{' and isinstance(step, str):
            inner = _member(text, at, step)
        elif text[at] == '[' and isinstance(step, int):
            inner = _element(text, at, step)
        else:
            inner = None
        if inner is None:
            break
        at = inner
    return at + 1
