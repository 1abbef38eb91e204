# SPDX-License-Identifier: Apache-2.0
"""A YAML or JSON file of keys, each with its line and column. Numbers as they are written there:
2e-5 is one, which YAML 1.1 takes for a text."""
from __future__ import annotations

import os
import re
import sys

from hoistway.errors import CONFIG, PYTHON, Refusal, cut

MOST_BYTES = 1 << 20
MOST_DEPTH = 16
MOST_VALUES = 2048
NUMBER = re.compile(r'[-+]?(\d+(_\d+)*)?(\.\d*)?([eE][-+]?\d+)?', re.ASCII)
WORDS = {'': None, '~': None, 'null': None, 'true': True, 'yes': True, 'on': True, 'false': False,
         'no': False, 'off': False}


def _plain(text: str):
    """A scalar without quotes."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if not any(c.isdigit() for c in text) or not NUMBER.fullmatch(text):
        return text
    whole = re.fullmatch(r'[-+]?\d+(_\d+)*', text) and len(text) < 20
    return int(text) if whole else float(text)


class Keys:
    """Values by key, those of nested objects also by "outer.inner"; null is as if absent."""

    def __init__(self, path: str, nested: tuple[str, ...] = ()):
        self.path, self.values, self._marks, self._left = path, {}, {}, MOST_VALUES
        self._take(_compose(path), '', 0)
        for name in nested:
            inner = self.values.pop(name, None)
            if isinstance(inner, dict):
                self.values.update({f'{name}.{key}': value for key, value in inner.items()})
            elif inner is not None:
                self.values[name] = inner

    def place(self, key: str) -> str:
        mark = self._marks.get(key)
        return f'{self.path}:{mark.line + 1}:{mark.column + 1}' if mark else self.path

    def get(self, key: str, default=None):
        value = self.values.get(key)
        return default if value is None else value

    def _refuse(self, mark, text: str) -> Refusal:
        return Refusal(CONFIG, f'{self.path}:{mark.line + 1}:{mark.column + 1}: {text}')

    def _take(self, node, path: str, depth: int):
        from yaml.nodes import MappingNode, ScalarNode
        if depth > MOST_DEPTH:
            raise self._refuse(node.start_mark, f'more than {MOST_DEPTH} levels. Fix: fewer')
        self._left -= 1  # aliases may make many of few lines
        if self._left < 0:
            raise self._refuse(node.start_mark, f'more than {MOST_VALUES} values. Fix: fewer')
        if isinstance(node, ScalarNode):
            return node.value if node.style else _plain(node.value)
        if not isinstance(node, MappingNode):
            return [self._take(item, f'{path}[{i}]', depth + 1)
                    for i, item in enumerate(node.value)]
        found = {} if depth else self.values
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                raise self._refuse(key.start_mark, 'a key that is no text. Fix: correct it there')
            name = f'{path}.{key.value}' if path else key.value
            if key.value in found:
                raise self._refuse(key.start_mark, f"'{cut(name)}' is there twice. Fix: leave one "
                                   'of them out')
            self._marks[name] = key.start_mark
            found[key.value] = self._take(value, name, depth + 1)
        return found


def text_of(path: str) -> str:
    """Of a regular file of at most 1 MiB, in UTF-8; else a Refusal."""
    try:
        if not os.path.isfile(path):
            raise OSError('no regular file' if os.path.exists(path) else 'no such file')
        with open(path, 'rb') as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise OSError('it has more than 1 MiB')
        return data.decode('utf-8')
    except (OSError, UnicodeDecodeError) as wrong:
        why = getattr(wrong, 'strerror', None) or wrong
        raise Refusal(CONFIG, f"'{cut(path, 150)}' cannot be read ({why}). Fix: name a "
                      'configuration') from None


def _compose(path: str):
    text = text_of(path)
    try:
        import yaml
    except ImportError:
        raise Refusal(PYTHON, f'convert needs the Python package pyyaml, which {sys.executable} '
                      f'does not have. Fix: {sys.executable} -m pip install pyyaml') from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as wrong:
        mark = getattr(wrong, 'problem_mark', None)
        place = f'{path}:{mark.line + 1}:{mark.column + 1}' if mark else path
        what = getattr(wrong, 'problem', None) or str(wrong).partition('\n')[0]
        raise Refusal(CONFIG, f'{place}: neither YAML nor JSON ({what}). Fix: correct it '
                      'there') from None
    if not isinstance(node, yaml.MappingNode):
        raise Refusal(CONFIG, f'{path}:1:1: no keys with values. Fix: name a configuration')
    return node
