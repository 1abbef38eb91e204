# SPDX-License-Identifier: Apache-2.0
"""What a model is asked while it trains, to be heard: of each row what stands before its answer."""
from __future__ import annotations

from hoistway.errors import CONTROL, DATA_FORMAT, DATA_TOKEN, BadRow, Refusal, cut
from hoistway.rows import Chat, Ids, Text
from hoistway.source import chunks
from hoistway.worker import Row, Worker, place_in, place_of, placed


def asked(chat: Chat) -> list:
    """The messages before the answer: before the completion, or before the last assistant turns."""
    end = len(chat.messages) if chat.answer is None else chat.answer
    while end and chat.messages[end - 1]['role'] == 'assistant':
        end -= 1
    if end == 0:
        raise BadRow(DATA_FORMAT, 'nothing stands before the answer. Fix: leave the row out',
                     chat.place(0))
    return chat.messages[:end]


def _ids(worker: Worker, sample: object) -> list[int]:
    if isinstance(sample, Chat):
        (text,) = worker.template.renders([asked(sample)], sample.tools, True)
        return worker.backend.encode(text, add_special_tokens=False).ids
    if isinstance(sample, Text):
        return worker.backend.encode(sample.text[:sample.learned], add_special_tokens=True).ids
    if isinstance(sample, Ids) and sample.mask and 1 in sample.mask:
        return sample.ids[:sample.mask.index(1)]
    return sample.ids


def _prompt(worker: Worker, row: Row) -> list[list[int]]:
    """The ids of a row; none where it is left out."""
    if row.control and worker.settings.control == 'refuse':
        path, token = row.control
        raise BadRow(CONTROL, f'the prompt holds the control token {cut(token)}. Fix: --control '
                     'drop-row or keep', path)
    if row.control:
        return []
    ids = _ids(worker, row.sample)
    if not ids or not 0 <= min(ids) <= max(ids) < worker.settings.vocab:
        raise BadRow(DATA_TOKEN, 'the prompt has no token, or an id that the model does not have. '
                     'Fix: leave the row out', place_in(row.sample))
    return [ids]


def prompts_of(worker: Worker, name: str) -> list[list[int]]:
    found = []
    for chunk in chunks([name]):
        for number, raw in chunk.rows:
            try:
                row = worker.row(raw)
                with placed(row.text):
                    found += _prompt(worker, row)
            except BadRow as wrong:
                raise Refusal(wrong.code, f'{place_of(chunk.file, number, raw, wrong.column)}: '
                              f'{wrong.text}') from None
    return found
