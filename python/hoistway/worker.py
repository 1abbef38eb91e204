# SPDX-License-Identifier: Apache-2.0
"""What each process does with a chunk of rows: parse, render, tokenise, mark. The same chunk gives
the same result in whatever process."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy

from hoistway import strict
from hoistway.calls import with_objects
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
    calls: int = 0                                 # rows with arguments in a string


@dataclass
class Row:
    sample: Chat | Text | Ids
    control: tuple | None    # the path of the first control token in its own text, and the token
    text: str                # its line; of tables there is none
    calls: bool = False      # whether it held arguments of calls as objects in a string


@dataclass
class Encoded:
    ids: numpy.ndarray
    mask: numpy.ndarray | None


def place_of(file: str, number: int, raw: bytes | dict, column: int) -> str:
    """file:line:column; a row of an array may have many lines, that of a table has none."""
    if not isinstance(raw, bytes):
        return f'{shown(file)}, row {number}'
    before = raw.decode(errors='replace')[:max(column - 1, 0)]
    lines = before.count('\n')
    if lines:
        column = len(before) - before.rindex('\n')
    return f'{shown(file)}:{number + lines}:{max(column, 1)}'


def parse(line: bytes) -> tuple[object, str]:
    try:
        text = line.decode().rstrip('\r\n')
    except UnicodeDecodeError as wrong:
        column = len(line[:wrong.start].decode()) + 1
        raise BadRow(DATA_FORMAT, f'byte {line[wrong.start]:#04x} is not UTF-8', (),
                     column) from None
    try:
        return strict.loads(text), text
    except strict.Wrong as wrong:
        raise BadRow(DATA_FORMAT, wrong.what, (), wrong.at + 1) from None


@contextlib.contextmanager
def placed(text: str) -> Iterator[None]:
    """What is wrong with a row of this text is told with its column; of a table there is none."""
    try:
        yield
    except BadRow as wrong:
        if not wrong.column and text:
            wrong.column = column_of(text, wrong.path)
        raise


def place_in(what: object) -> tuple:
    """Where in its row that stands which is learned, or the first of it."""
    if isinstance(what, (Document, Chat)):
        return what.place(0)
    return what.place if isinstance(what, Text) else ('input_ids',)


class Worker:
    def __init__(self, model, template: Template, settings: Settings):
        self.template, self.settings = template, settings
        self.control = Control(model.controls if settings.control != 'keep' else [])
        self.backend = model.backend
        self.encoder = Encoder(model.backend, model.anchors)

    # ---- a row -----------------------------------------------------------------------------------

    def row(self, raw: bytes | dict) -> Row:
        given, text = parse(raw) if isinstance(raw, bytes) else (raw, '')
        try:
            with placed(text):
                return self._read(given, text)
        except RecursionError:
            raise BadRow(DATA_FORMAT, 'the row is nested too deeply') from None

    def _read(self, given: object, text: str) -> Row:
        row = with_objects(given) if isinstance(given, dict) else given
        kind, sample = read(row, self.settings.reading)
        if isinstance(sample, Ids):
            return Row(sample, None, text)
        used = {key: row.get(key) for key in KINDS[kind].needed + KINDS[kind].optional}
        if isinstance(sample, Chat):
            used['tools'] = sample.tools  # a string of JSON can hide what it says
        self._check_texts(used, ())
        return Row(sample, self.control.find(used), text, row != given)

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

    def _documents(self, row: Row) -> list:
        """What is to be tokenised of a row."""
        learn, sample = self.settings.learn, row.sample
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
                             'blank or a line of its own, or leave --plain out', sample.place)
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

    def _check(self, encoded: Encoded, place: tuple) -> None:
        """A document's first token is nobody's target."""
        ids, mask = encoded.ids, encoded.mask
        if len(ids) and int(ids.max()) >= self.settings.vocab:
            raise BadRow(DATA_TOKEN, f'the id {int(ids.max())} is not below the vocab_size '
                         f'{self.settings.vocab} of the model. Fix: the tokenizer of this model',
                         place)
        if len(ids) < 2 or (mask is not None and not mask[1:].any()):
            raise BadRow(DATA_SHORT, f'the document has {len(ids)} tokens and none that is learned '
                         'behind the first', place)

    # ---- a chunk ---------------------------------------------------------------------------------

    def __call__(self, chunk: Chunk) -> Result:
        none = numpy.zeros(0, numpy.uint32)
        result = Result(none, None, numpy.zeros(0, numpy.int64), len(chunk.rows))
        bad: dict[int, BadRow] = {}
        wanted: list = []  # (index of the row, its text, document or sample)
        for i, (number, raw) in enumerate(chunk.rows):
            try:
                row = self.row(raw)
                if row.control:
                    result.controlled += 1
                    if len(result.places) < PLACES:
                        path, token = row.control
                        column = column_of(row.text, path) if row.text else 1
                        place = place_of(chunk.file, number, raw, column)
                        result.places.append(f'{place} ({cut(token)})')
                    continue
                result.calls += row.calls
                with placed(row.text):
                    documents = self._documents(row)
                wanted += [(i, row.text, document) for document in documents]
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
                with placed(text):
                    if i in found:
                        encoded[i] = Encoded(numpy.array(found[i].ids, numpy.uint32),
                                             self.encoder.mask(what, found[i]))
                    elif encoded[i] is None:
                        encoded[i] = self._ids(what) if isinstance(what, Ids) else self._pair(what)
                    self._check(encoded[i], place_in(what))
            except BadRow as wrong:
                bad.setdefault(row, wrong)
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
