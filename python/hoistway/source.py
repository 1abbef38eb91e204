# SPDX-License-Identifier: Apache-2.0
"""Rows of files, in their order and in chunks: JSON lines as they are, arrays of JSON element by
element, tables through datasets."""
from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Iterator

from hoistway.errors import DATA_FILE, DATA_FORMAT, DATA_SHORT, PYTHON, Refusal, shown
from hoistway.install import how_to_install

CHUNK_BYTES, CHUNK_ROWS = 1 << 20, 1024
LINE_MOST_BYTES = 256 << 20
LINES = ('.jsonl', '.json', '.ndjson')
TABLES = {'.parquet': 'parquet', '.arrow': 'arrow', '.csv': 'csv'}
BEGIN_BYTES = 4096
INDENT_MOST = 100  # of what stands before an element in its line, so that columns are right
BLANK = re.compile(r'[ \t\r\n]*')
BOM = b'\xef\xbb\xbf'


@dataclass
class Chunk:
    """Rows of one file that follow each other."""

    file: str
    rows: list = field(default_factory=list)  # (number of the line or row, its bytes or its dict)


def names_of(text: str) -> list[str]:
    """--data: names between commas. What can be seen of them is looked at before anything runs."""
    names = text.split(',')
    for name in names:
        if not os.path.exists(name):
            raise Refusal(DATA_FILE, f"data file '{name}' is not there. Fix: --data FILE[,FILE]")
        if not os.path.isfile(name):
            raise Refusal(DATA_FILE, f"'{name}' is no regular file. Fix: name the files in it")
        if not os.access(name, os.R_OK):
            raise Refusal(DATA_FILE, f"data file '{name}' may not be read. Fix: chmod u+r")
        ending = os.path.splitext(name)[1].lower()
        if ending not in LINES and ending not in TABLES:
            raise Refusal(DATA_FORMAT, f"'{name}' ends in none of {', '.join(LINES)}, "
                          f"{', '.join(TABLES)}. Fix: write one JSON object a line, as .jsonl")
        if os.path.getsize(name) == 0:
            raise Refusal(DATA_SHORT, f"data file '{name}' is empty. Fix: other data")
        if ending in TABLES:
            _need_datasets(name)
    return names


def _need_datasets(name: str) -> None:
    import importlib.util
    if importlib.util.find_spec('datasets') is None:
        raise Refusal(PYTHON, f"'{name}' needs the Python package datasets, which is not "
                      f'installed. Fix: {how_to_install("datasets")}')


def _lines(name: str) -> Iterator[tuple[int, bytes]]:
    with open(name, 'rb', buffering=1 << 20) as file:
        number = 0
        while True:
            line = file.readline(LINE_MOST_BYTES + 1)
            if not line:
                return
            number += 1
            if len(line) > LINE_MOST_BYTES:
                raise Refusal(DATA_FORMAT, f'{shown(name)}:{number}:1: the line has more than '
                              f'{LINE_MOST_BYTES >> 20} MiB. Fix: one row a line')
            if number == 1 and line.startswith(BOM):
                line = line[len(BOM):]
            if line.strip():
                yield number, line


class _Array:
    """The elements of a JSON array that fills a file, as text, each when it is asked for."""

    def __init__(self, name: str):
        self.name, self.file = name, open(name, encoding='utf-8-sig', newline='')
        self.text, self.at, self.line, self.column = '', 0, 1, 1

    def _more(self) -> bool:
        """What was read and not taken is kept; twice as much of it, so that a long element costs
        no more than a few times its length."""
        kept = self.text[self.at:]
        if len(kept) > LINE_MOST_BYTES:
            self._refuse(f'an element has more than {LINE_MOST_BYTES >> 20} MiB')
        try:
            read = self.file.read(max(CHUNK_BYTES, len(kept)))
        except UnicodeDecodeError:
            self._refuse('the file is not UTF-8 behind this place')
        self.text, self.at = kept + read, 0
        return bool(read)

    def _refuse(self, what: str) -> None:
        raise Refusal(DATA_FORMAT, f'{shown(self.name)}:{self.line}:{self.column}: {what}. Fix: '
                      'one JSON object a line, as .jsonl')

    def _take(self, end: int) -> str:
        taken = self.text[self.at:end]
        lines = taken.count('\n')
        self.line += lines
        self.column = len(taken) - taken.rindex('\n') if lines else self.column + len(taken)
        self.at = end
        return taken

    def _next(self, wanted: str) -> str:
        """The next character that is no blank, which is one of these."""
        while True:
            self._take(BLANK.match(self.text, self.at).end())
            if self.at < len(self.text):
                break
            if not self._more():
                self._refuse('the array does not end')
        if wanted and self.text[self.at] not in wanted:
            self._refuse(f'broken JSON: one of {" ".join(wanted)} is expected')
        return self.text[self.at]

    def _element(self) -> tuple[int, bytes]:
        decoder = json.JSONDecoder()
        while True:
            try:
                _, end = decoder.raw_decode(self.text, self.at)
                break
            except (ValueError, RecursionError) as wrong:
                if not self._more():
                    self._refuse(f'broken JSON: {getattr(wrong, "msg", wrong)}')
        line, blanks = self.line, ' ' * min(self.column - 1, INDENT_MOST)
        return line, (blanks + self._take(end)).encode('utf-8', 'surrogatepass')

    def rows(self) -> Iterator[tuple[int, bytes]]:
        with self.file:
            self._next('[')
            self._take(self.at + 1)
            while self._next('') != ']':
                yield self._element()
                if self._next(',]') == ',':
                    self._take(self.at + 1)
            self._take(self.at + 1)
            self._end()

    def _end(self) -> None:
        while True:
            self._take(BLANK.match(self.text, self.at).end())
            if self.at < len(self.text):
                self._refuse('something stands behind the array')
            if not self._more():
                return


def _is_array(name: str) -> bool:
    with open(name, 'rb') as file:
        return file.read(BEGIN_BYTES).removeprefix(BOM).lstrip()[:1] == b'['


def _without_null(value: object) -> object:
    """Tables have null for a key that a row does not have; to a template that is not the same."""
    if isinstance(value, dict):
        return {key: _without_null(inner) for key, inner in value.items() if inner is not None}
    return [_without_null(inner) for inner in value] if isinstance(value, list) else value


def _table(name: str, kind: str) -> Iterator[tuple[int, dict]]:
    import datasets
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    try:
        rows = datasets.load_dataset(kind, data_files=name, split='train', streaming=True)
        yield from enumerate(map(_without_null, rows), 1)
    except Exception as wrong:  # of many libraries, each with its own
        first = (str(wrong).splitlines() or [type(wrong).__name__])[0]
        raise Refusal(DATA_FORMAT, f"'{name}' cannot be read as {kind}: {first}") from None


def chunks(names: list[str]) -> Iterator[Chunk]:
    for name in names:
        ending = os.path.splitext(name)[1].lower()
        if ending in TABLES:
            rows = _table(name, TABLES[ending])
        else:
            rows = _Array(name).rows() if ending == '.json' and _is_array(name) else _lines(name)
        chunk, size = Chunk(name), 0
        for number, row in rows:
            chunk.rows.append((number, row))
            size += len(row) if isinstance(row, bytes) else CHUNK_BYTES // CHUNK_ROWS
            if size >= CHUNK_BYTES or len(chunk.rows) >= CHUNK_ROWS:
                yield chunk
                chunk, size = Chunk(name), 0
        if chunk.rows:
            yield chunk
