# SPDX-License-Identifier: Apache-2.0
"""How a failure is told: a code of docs/errors.md and one line, as the program in C tells its."""
from __future__ import annotations

import sys

WRITE = 107
USAGE = 401
VALUE = 402
MISSING = 403
CONFIG = 404
KEY = 405
MODEL = 412
DATA_FILE = 420
DATA_SHORT = 421
DATA_TOKEN = 422
DATA_FORMAT = 423
TEMPLATE = 425
CONTROL = 426
TOKENIZER = 427
PYTHON = 428

# the command itself asks for what cannot be
EXIT_STATUS_2 = (USAGE, VALUE, MISSING, CONFIG, KEY, PYTHON)

Path = tuple  # of keys and indices: where in a row a value is


class Refusal(Exception):
    """Ends the program with one line."""

    def __init__(self, code: int, text: str):
        super().__init__(code, text)
        self.code, self.text = code, text

    @property
    def exit_status(self) -> int:
        return 2 if self.code in EXIT_STATUS_2 else 1


class BadRow(Exception):
    """Something is wrong with one row; `path` says where in it."""

    def __init__(self, code: int, text: str, path: Path = (), column: int = 0):
        super().__init__(code, text, path, column)
        self.code, self.text, self.path, self.column = code, text, path, column


def shown(text: object) -> str:
    """Text of others, which cannot forge a line of ours."""
    return ''.join(c if c.isprintable() else c.encode('unicode_escape').decode('ascii')
                   for c in str(text))


def cut(text: str, most: int = 60) -> str:
    """The beginning of a text, for a message."""
    return shown(text if len(text) <= most else text[:most - 1] + '…')


def tell(kind: str, code: int, text: str) -> None:
    """kind: error, warning or note."""
    letter = {'error': 'E', 'warning': 'W', 'note': 'I'}[kind]
    sys.stderr.write(f'{kind}[{letter}{code:03}] {shown(text)}\n')
    sys.stderr.flush()
