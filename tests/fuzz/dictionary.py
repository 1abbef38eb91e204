#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what libFuzzer puts into DeepSpeed configurations: keys and values of the table.

    dictionary.py PRINTER FILE

PRINTER prints the table of docs/deepspeed.md, as build/tests/tools/config/ds_table. A mutation
finds the key of a row by itself as good as never, and behind each one are checks of its own.
"""
import re
import subprocess
import sys

# Beside defaults and values that are not refused: what the words of the table name.
VALUES = ('true', 'false', 'null', '"auto"', '"true"', '0', '1', '-1', '5e8', '0.5', '[0.9, 0.99]',
          '"AdamW"', '"Adam"', '"Lion"', '"Adagrad"', '"SGD"', '"OneCycle"', '"WarmupLR"',
          '"WarmupDecayLR"', '"WarmupCosineLR"', '"linear"', '"cpu"', '"nvme"')


def words(table):
    """Keys as `"stage": `, each once, and values as a configuration has them."""
    found = set(VALUES)
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip('|').split(' | ')]
        for path in re.findall(r'`([^`]+)`', cells[0]):
            found.add(f'"{path.rpartition(".")[2]}": ')
        for value in cells[2:4]:
            if value and cells[1] == 'an array of numbers':
                found.add(f'[{value}]')
            elif value:
                found.add(f'"{value}"' if cells[1] == 'a text' and value != '""' else value)
    return sorted(found)


def line_of(word):
    """An entry: a text in quotes, with a backslash before each quote of its own."""
    return '"' + word.replace('\\', '\\\\').replace('"', '\\"') + '"'


def main():
    table = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout
    with open(sys.argv[2], 'w', encoding='ascii') as f:
        f.writelines(line_of(word) + '\n' for word in words(table))


if __name__ == '__main__':
    main()
