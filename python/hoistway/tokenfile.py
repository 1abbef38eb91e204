# SPDX-License-Identifier: Apache-2.0
"""Writes a token file: safetensors, whose parts are collected in unnamed files until their lengths
are known. docs/token-file.md says what each part is."""
from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile

import numpy

from hoistway.errors import WRITE, Refusal

FORMAT = 'hoistway.tokens.1'
COPY_BYTES = 1 << 24
HEADER_BYTES = 8  # its own length, as the header's
NAMES = {numpy.dtype('<u8'): 'U64', numpy.dtype('<i8'): 'I64', numpy.dtype('<u4'): 'U32',
         numpy.dtype('<u2'): 'U16', numpy.dtype('u1'): 'U8'}


class Part:
    """One tensor, which grows."""

    def __init__(self, folder: str, dtype: numpy.dtype):
        self.dtype, self.count = numpy.dtype(dtype), 0
        self.file = tempfile.TemporaryFile(dir=folder)

    def add(self, values: numpy.ndarray) -> None:
        self.file.write(numpy.ascontiguousarray(values, self.dtype))
        self.count += len(values)

    def add_ones(self, count: int) -> None:
        while count:
            now = min(count, COPY_BYTES)
            self.add(numpy.ones(now, self.dtype))
            count -= now


def header(parts: dict[str, Part], metadata: dict[str, str]) -> bytes:
    """As safetensors' own writer has it: widest types first, then by name."""
    names = sorted(parts, key=lambda name: (-parts[name].dtype.itemsize, name))
    entries, at = {'__metadata__': metadata}, 0
    for name in names:
        size = parts[name].count * parts[name].dtype.itemsize
        entries[name] = {'dtype': NAMES[parts[name].dtype], 'shape': [parts[name].count],
                         'data_offsets': [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % HEADER_BYTES)
    return struct.pack('<Q', len(text)) + text


class TokenFile:
    """tokens, mask and documents, one document after the other; then whole under its name."""

    def __init__(self, path: str, ids: int):
        """ids: so many there are; where 16 bits name them all, tokens have 16."""
        self.path = path
        self.folder = os.path.dirname(os.path.abspath(path))
        dtype = numpy.dtype('<u2' if ids <= 1 << 16 else '<u4')
        self.parts = {}
        self.parts['tokens'] = self._part(dtype)
        self.parts['documents'] = self._part('<i8')
        self.parts['documents'].add(numpy.zeros(1, '<i8'))

    def __enter__(self) -> TokenFile:
        return self

    def __exit__(self, *unused) -> None:
        for part in self.parts.values():
            part.file.close()

    def _part(self, dtype) -> Part:
        try:
            return Part(self.folder, dtype)
        except OSError as wrong:
            raise self._unwritable(wrong) from None

    def _unwritable(self, wrong: OSError) -> Refusal:
        return Refusal(WRITE, f"'{self.path}' cannot be written ({wrong.strerror}). Fix: --out in "
                       'a directory that can be written and has room')

    @property
    def tokens(self) -> int:
        return self.parts['tokens'].count

    @property
    def documents(self) -> int:
        return self.parts['documents'].count - 1

    def add(self, ids: numpy.ndarray, mask: numpy.ndarray | None, lengths: numpy.ndarray) -> None:
        """Documents, one behind the other; mask None: all of them are learned."""
        try:
            before = self.tokens
            if mask is not None and 'mask' not in self.parts:
                self.parts['mask'] = self._part('u1')
                self.parts['mask'].add_ones(before)
            self.parts['tokens'].add(ids)
            self.parts['documents'].add(before + numpy.cumsum(lengths, dtype='<i8'))
            if mask is not None:
                self.parts['mask'].add(mask)
            elif 'mask' in self.parts:
                self.parts['mask'].add_ones(len(ids))
        except OSError as wrong:
            raise self._unwritable(wrong) from None

    def add_table(self, name: str, offsets_name: str, texts: list, dtype) -> None:
        """Texts of differing lengths: all of them in one row, and where each begins."""
        try:
            self.parts[name], self.parts[offsets_name] = self._part(dtype), self._part('<u8')
            lengths = [0] + [len(text) for text in texts]
            self.parts[offsets_name].add(numpy.cumsum(lengths, dtype='<u8'))
            self.parts[name].add(numpy.concatenate(
                [numpy.zeros(0, dtype), *(numpy.asarray(text, dtype) for text in texts)]))
        except OSError as wrong:
            raise self._unwritable(wrong) from None

    def finish(self, metadata: dict[str, str]) -> None:
        """Under its name there is the whole file, or what was there before."""
        partial = None
        try:
            name = os.path.basename(self.path)
            number, partial = tempfile.mkstemp(prefix=f'{name}.partial-', dir=self.folder)  # 0600
            with open(number, 'wb') as out:
                out.write(header(self.parts, {'format': FORMAT, **metadata}))
                for name in sorted(self.parts,
                                   key=lambda name: (-self.parts[name].dtype.itemsize, name)):
                    self.parts[name].file.seek(0)
                    shutil.copyfileobj(self.parts[name].file, out, COPY_BYTES)
                out.flush()
                os.fsync(out.fileno())
            os.replace(partial, self.path)
            partial = None
        except OSError as wrong:
            raise self._unwritable(wrong) from None
        finally:
            if partial is not None:
                os.unlink(partial)


def is_token_file(path: str) -> bool:
    """Whether a file is one that may be written over."""
    try:
        with open(path, 'rb') as file:
            (length,) = struct.unpack('<Q', file.read(8))
            entries = json.loads(file.read(min(length, 1 << 24)))
        return entries['__metadata__']['format'] == FORMAT
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return False
