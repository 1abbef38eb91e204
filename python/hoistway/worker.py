# SPDX-License-Identifier: Apache-2.0
"""What each process does with a chunk of rows: parse, render, tokenise, mark. The same chunk gives
the same result in whatever process."""
from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy

from hoistway.control import Control
from hoistway.encode import Encoder, check_text
from hoistway.errors import CONTROL, DATA_FORMAT, DATA_SHORT, DATA_TOKEN, BadRow, cut, shown
from hoistway.locate import column_of
from hoistway.masks import Document, documents_of
from hoistway.rows import KINDS, Chat, Ids, Reading, Text, read
from hoistway.source import Chunk
from hoistway.template import Template

PLACES = 3  # of rows with control tokens that are named
TEXT_LEARN = ('all', 'completion')


@dataclass
class Settings:
    reading: Reading
    learn: str | None        # None: as is usual for the kind of row
    split: str
    control: str             # refuse, keep, drop-row
    eos: int | None          # behind each text; None: --no-eos
    vocab: int


@dataclass
class Result:
    """Documents of a chunk, one behind the other."""

    ids: numpy.ndarray
    mask: numpy.ndarray | None
    lengths: numpy.ndarray
    rows: int = 0
    bad: list = field(default_factory=list)        # (code, line) of each
    controlled: int = 0                            # rows that hold control tokens
    places: list = field(default_factory=list)     # of the first of them
    split_chats: int = 0                           # chats whose turns became documents
    split_tokens: int = 0                          # of these
    whole_tokens: int = 0                          # of the same chats, each one document


@dataclass
class Encoded:
    ids: numpy.ndarray
    mask: numpy.ndarray | None


def place_of(file: str, number: int, raw: bytes | dict, column: int) -> str:
    """file:line:column; a row of an array may have many lines."""
    before = raw.decode(errors='replace')[:max(column - 1, 0)] if isinstance(raw, bytes) else ''
    lines = before.count('\n')
    if lines:
        column = len(before) - before.rindex('\n')
    return f'{shown(file)}:{number + lines}:{max(column, 1)}'


def no_constant(name: str):
    raise ValueError(f'{name} is no JSON')


def parse(line: bytes) -> tuple[object, str]:
    try:
        text = line.decode().rstrip('\r\n')
    except UnicodeDecodeError as wrong:
        column = len(line[:wrong.start].decode()) + 1
        raise BadRow(DATA_FORMAT, f'byte {line[wrong.start]:#04x} is not UTF-8', (),
                     column) from None
    try:
        return json.loads(text, parse_constant=no_constant), text
    except json.JSONDecodeError as wrong:
        raise BadRow(DATA_FORMAT, f'broken JSON: {wrong.msg}', (), wrong.pos + 1) from None
    except (ValueError, RecursionError) as wrong:
        raise BadRow(DATA_FORMAT, f'broken JSON: {wrong}') from None


class Worker:
    def __init__(self, model, template: Template, settings: Settings):
        self.template, self.settings = template, settings
        self.control = Control(model.controls if settings.control != 'keep' else [])
        self.backend = model.backend
        self.encoder = Encoder(model.backend, model.anchors)

    # ---- a row -----------------------------------------------------------------------------------

    def row(self, raw: bytes | dict) -> tuple[Chat | Text | Ids, object, str]:
        row, text = parse(raw) if isinstance(raw, bytes) else (raw, '')
        try:
            kind, sample = read(row, self.settings.reading)
            if isinstance(sample, Ids):
                return sample, None, text
            used = {key: row.get(key) for key in KINDS[kind].needed + KINDS[kind].optional}
            if isinstance(sample, Chat):
                used['tools'] = sample.tools  # a string of JSON can hide what it says
            self._check_texts(used, ())
            return sample, self.control.find(used), text
        except BadRow as wrong:
            raise self._with_column(wrong, text) from None
        except RecursionError:
            raise BadRow(DATA_FORMAT, 'the row is nested too deeply') from None

    def _check_texts(self, value: object, path: tuple) -> None:
        if isinstance(value, str):
            check_text(value, path)
        elif isinstance(value, dict):
            for key, inner in value.items():
                check_text(key, (*path, key))
                self._check_texts(inner, (*path, key))
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                self._check_texts(inner, (*path, i))

    @staticmethod
    def _with_column(wrong: BadRow, text: str) -> BadRow:
        if not wrong.column and text:
            wrong.column = column_of(text, wrong.path)
        return wrong

    def _documents(self, sample: object) -> list:
        """What is to be tokenised of a row."""
        learn = self.settings.learn
        if isinstance(sample, Chat):
            learn = learn or ('assistant' if sample.answer is None else 'completion')
            return documents_of(sample, self.template, learn, self.settings.split)
        if isinstance(sample, Text) and learn and (
                learn not in TEXT_LEARN or (learn == 'completion' and sample.learned is None)):
            raise BadRow(DATA_FORMAT, f'--learn {learn} asks for what a row of text does not have')
        return [sample]

    # ---- tokens ----------------------------------------------------------------------------------

    def _texts(self, samples: list[Text]) -> list[Encoded]:
        """Texts without a prompt: their offsets are not needed."""
        fast = getattr(self.backend, 'encode_batch_fast', self.backend.encode_batch)
        encoded = fast([sample.text for sample in samples], add_special_tokens=True)
        return [Encoded(self._ended(found.ids), None) for found in encoded]

    def _ended(self, ids: list[int]) -> numpy.ndarray:
        eos = self.settings.eos
        if eos is not None and (not ids or ids[-1] != eos):
            ids = ids + [eos]
        return numpy.array(ids, numpy.uint32)

    def _pair(self, sample: Text) -> Encoded:
        """Prompt and answer, joined bare."""
        found = self.backend.encode(sample.text, add_special_tokens=True)
        ids = self._ended(found.ids)
        if self.settings.learn == 'all':
            return Encoded(ids, None)
        mask = numpy.ones(len(ids), numpy.uint8)
        for i, (begin, end) in enumerate(found.offsets):
            if begin < sample.learned < end:
                raise BadRow(DATA_FORMAT, 'the answer begins inside a token. Fix: begin it with a '
                             'blank or a line of its own, or leave --plain out', ('completion',))
            mask[i] = begin >= sample.learned and end > begin
        return Encoded(ids, mask)

    def _ids(self, sample: Ids) -> Encoded:
        if any(not 0 <= number < self.settings.vocab for number in sample.ids):
            at = next(i for i, n in enumerate(sample.ids) if not 0 <= n < self.settings.vocab)
            raise BadRow(DATA_TOKEN, f'the id {cut(str(sample.ids[at]))} is not below the '
                         f'vocab_size {self.settings.vocab} of the model', ('input_ids', at))
        learn_all = self.settings.learn == 'all' or sample.mask is None
        mask = None if learn_all else numpy.array(sample.mask, numpy.uint8)
        return Encoded(numpy.array(sample.ids, numpy.uint32), mask)

    def _check(self, encoded: Encoded) -> None:
        """A document's first token is nobody's target."""
        ids, mask = encoded.ids, encoded.mask
        if len(ids) and int(ids.max()) >= self.settings.vocab:
            raise BadRow(DATA_TOKEN, f'the id {int(ids.max())} is not below the vocab_size '
                         f'{self.settings.vocab} of the model. Fix: the tokenizer of this model')
        if len(ids) < 2 or (mask is not None and not mask[1:].any()):
            raise BadRow(DATA_SHORT, f'the document has {len(ids)} tokens and none that is learned '
                         'behind the first')

    # ---- a chunk ---------------------------------------------------------------------------------

    def __call__(self, chunk: Chunk) -> Result:
        none = numpy.zeros(0, numpy.uint32)
        result = Result(none, None, numpy.zeros(0, numpy.int64), len(chunk.rows))
        bad: dict[int, BadRow] = {}
        wanted: list = []  # (index of the row, its text, document or sample)
        for i, (number, raw) in enumerate(chunk.rows):
            try:
                sample, found, text = self.row(raw)
                if found:
                    result.controlled += 1
                    if len(result.places) < PLACES:
                        column = column_of(text, found[0]) if text else 1
                        place = place_of(chunk.file, number, raw, column)
                        result.places.append(f'{place} ({cut(found[1])})')
                    continue
                wanted += [(i, text, document) for document in self._documents(sample)]
            except BadRow as wrong:
                bad[i] = wrong
        encoded = self._encode(wanted, bad)
        self._collect(result, wanted, encoded, bad)
        for i in sorted(bad):
            wrong, (number, raw) = bad[i], chunk.rows[i]
            place = place_of(chunk.file, number, raw, wrong.column)
            result.bad.append((wrong.code, f'{place}: {wrong.text}'))
        return result

    def _encode(self, wanted: list, bad: dict) -> list[Encoded | None]:
        """What belongs together is tokenised together; None for rows that turn out bad."""
        encoded: list[Encoded | None] = [None] * len(wanted)
        texts = [i for i, (_, _, what) in enumerate(wanted)
                 if isinstance(what, Text) and what.learned is None]
        for i, done in zip(texts, self._texts([wanted[i][2] for i in texts]) if texts else ()):
            encoded[i] = done
        chats = [i for i, (_, _, what) in enumerate(wanted) if isinstance(what, Document)]
        found = dict(zip(chats, self.encoder.encode([wanted[i][2] for i in chats])))
        for i, (row, text, what) in enumerate(wanted):
            try:
                if i in found:
                    encoded[i] = Encoded(numpy.array(found[i].ids, numpy.uint32),
                                         self.encoder.mask(what, found[i]))
                elif encoded[i] is None:
                    encoded[i] = self._ids(what) if isinstance(what, Ids) else self._pair(what)
                self._check(encoded[i])
            except BadRow as wrong:
                bad.setdefault(row, self._with_column(wrong, text))
        return encoded

    def _collect(self, result: Result, wanted: list, encoded: list, bad: dict) -> None:
        kept = [i for i, (row, _, _) in enumerate(wanted) if row not in bad]
        if not kept:
            return
        parts = [encoded[i] for i in kept]
        result.ids = numpy.concatenate([part.ids for part in parts])
        result.lengths = numpy.array([len(part.ids) for part in parts], numpy.int64)
        if any(part.mask is not None for part in parts):
            result.mask = numpy.concatenate([
                numpy.ones(len(part.ids), numpy.uint8) if part.mask is None else part.mask
                for part in parts])
        tokens_of_row: dict[int, list[int]] = {}
        for i in kept:
            tokens_of_row.setdefault(wanted[i][0], []).append(len(encoded[i].ids))
        for lengths in tokens_of_row.values():
            if len(lengths) > 1:
                result.split_chats += 1
                result.split_tokens += sum(lengths)
                result.whole_tokens += lengths[-1]


def refusal_of_control(count: int, places: list[str]) -> tuple[int, str]:
    rows = 'row holds' if count == 1 else 'rows hold'
    return CONTROL, (f'{count} {rows} control tokens of the tokenizer in their own text, at '
                     f'{", ".join(places)}: they would be read as the template\'s own. Fix: '
                     '--control drop-row to leave such rows out, --control keep to train on them')
