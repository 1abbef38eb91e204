#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words that docs/glossary.md has replaced, where they are left.

    words.py ROOT

Prints each place and ends with 1. Names in C are looked at part by part (`walk_open` has `walk`);
strings are not: the words of options, JSON, logs and stores stay as they are.
"""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from style import walk  # noqa: E402

# What is left out, what stands there instead, and where that is asked for.
ENGINE, CODE, ALL = ('engine/',), ('engine/', 'tools/'), ('engine/', 'tools/', 'docs/', 'README.md')
SCHEDULE = ('engine/plan/', 'engine/exec/', 'engine/session/')
OLD = (
    ('walk|walks', 'scheduler', ENGINE),
    ('period|periods', 'step window', ALL),
    ('lease|leases|loan|loans', 'reservation', ALL),
    ('aways', 'offloaded', ENGINE),
    ('grain|grains', 'micro-batch', CODE),
    ('computed again', 'recomputed', ALL),
    ('can not', 'cannot', ALL),
)
NAMES = (  # in names alone: in sentences they are English
    ('away', 'offloaded', ENGINE),
    ('carry', 'hidden', SCHEDULE + ('engine/include/',)),
    ('rings', 'buffer_pools', SCHEDULE),
)
EXEMPT = ('docs/results/', 'docs/glossary.md', 'CHANGELOG.md')  # what they tell was so named
TEXT = ('.c', '.h', '.md', '.cu', '.cpp')
TOKEN = re.compile(r'(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<string>"(?:\\.|[^"\\\n])*")', re.S)
IDENTIFIER = re.compile(r'[A-Za-z_]\w*')


def pattern(words):
    words = words.replace(' ', r'\s+(?:\*\s+)?')  # a comment may go on in the next line
    return re.compile(rf'(?<![\w`"-])({words})(?![\w`"])', re.I)



OLD = [(pattern(words), words.split('|'), new, where) for words, new, where in OLD]


def halves(path, text):
    """What is prose and what is code of a file, each as long as the text: places stay the same."""
    if path.endswith('.md'):
        return re.sub(r'`[^`]*`', lambda m: ' ' * len(m.group()), text), ''

    def blank(match):
        return re.sub(r'[^\n]', ' ', match.group())
    code = TOKEN.sub(blank, text)
    prose = ''.join(c if c == '\n' or k == ' ' else ' ' for c, k in zip(text, code))
    for match in TOKEN.finditer(text):
        if match.group('string'):
            prose = prose[:match.start()] + ' ' * len(match.group()) + prose[match.end():]
    return prose, code


def breaches(path, text):
    """(place in the text, word, the glossary's word) of what is left."""
    prose, code = halves(path, text)
    for found, parts, new, where in OLD:
        if path.startswith(where):
            yield from ((m.start(), m.group(1), new) for m in found.finditer(prose))
            yield from names(code, parts, new)
    for old, new, where in NAMES:
        if path.startswith(where):
            yield from names(code, [old], new)


def names(code, parts, new):
    for match in IDENTIFIER.finditer(code):
        if set(match.group().lower().split('_')) & set(parts):
            yield match.start(), match.group(), new


def main(root):
    found = 0
    for path in walk(root):
        if not path.endswith(TEXT) or path.startswith(EXEMPT):
            continue
        with open(os.path.join(root, path), encoding='utf-8') as file:
            text = file.read()
        for at, word, new in breaches(path, text):
            print(f'{path}:{text.count(chr(10), 0, at) + 1}: "{word}"; the glossary has "{new}"')
            found += 1
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
