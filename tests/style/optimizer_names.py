#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Only engine/optimizer names what an optimizer has: its states, its numbers, its kernels.

    optimizer_names.py ROOT

Prints each place of engine/ that names one, and ends with 1. The C of engine/ elsewhere reads rows
of the table (engine/optimizer/README.md).
"""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from style import read_text, walk  # noqa: E402

ROOM = 'engine/optimizer/'
TYPES = re.compile(r'\bhst_(?:adam_(?:hyper|coef)\w*|(?:op_)?optimize|plain_coef_init|'
                   r'update(?:_(?:kind|arrays|bytes|run|find)\w*)?)\b')
NUMBERS = re.compile(r'\b(?:beta1|beta2|betas|momentum|eps|weight_decay|HST_OPTIMIZER_\w+)\b|'
                     r'"weight-decay\b|"(?:adamw|sgd|lion|adagrad)"')
STATES = re.compile(r'\b[mv]_at\b|(?:\.|->)\s*v\b|"(?:remainder|master|m|v)"|'
                    r'\boptimizer_(?:adamw|sgd|lion|adagrad)\b')
FIRST = re.compile(r'(?:\.|->)\s*m\b')
GEMM = re.compile(r'\bhst_(?:matmul|gemm)\b')  # m is an extent of it
# The public configuration, and the table that reads it from a command line.
CONTRACT = {'engine/include/hoistway/config.h', 'engine/base/options.c'}


def names(path, text):
    """(line, name) of each name that is the room's."""
    if not path.startswith('engine/') or path.startswith(ROOM) or not path.endswith(('.c', '.h')):
        return
    rules = [TYPES, STATES]
    rules += [] if path in CONTRACT else [NUMBERS]
    rules += [] if GEMM.search(text) else [FIRST]
    for number, line in enumerate(text.split('\n'), 1):
        for rule in rules:
            for found in rule.findall(line):
                yield number, found.strip()


def main():
    root = sys.argv[1]
    found = [(path, *name) for path in walk(root) if path.endswith(('.c', '.h'))
             for name in names(path, read_text(root, path))]
    for path, number, name in found:
        print(f'{path}:{number}: {name} is of {ROOM}, whose table is to be asked')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
