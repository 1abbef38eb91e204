# SPDX-License-Identifier: Apache-2.0
"""Characters to tokens: the ids of documents, and which of them are learned."""
from __future__ import annotations

from bisect import bisect_left

import numpy

from hoistway.errors import DATA_FORMAT, TEMPLATE, BadRow, cut
from hoistway.masks import Document

REMEMBERED = 4096
OTHER_ANSWER = ('Fix: an answer without blanks or line ends around it, another --template, or '
                '--skip-bad N to leave such rows out')


def token_at(starts: list[int], ends: list[int], at: int) -> int:
    """The first token behind a boundary between characters; -1: the boundary is inside a token."""
    token = bisect_left(starts, at)
    return token if token == 0 or ends[token - 1] <= at else -1


class Encoder:
    def __init__(self, backend, anchors: set[int]):
        """anchors: ids of added tokens, which what stands before them does not change."""
        self.backend, self.anchors = backend, anchors
        self.known: dict[str, list[int]] = {}

    def _alone(self, text: str) -> list[int]:
        ids = self.known.get(text)
        if ids is None:
            ids = self.backend.encode(text, add_special_tokens=False).ids
            if len(self.known) < REMEMBERED:
                self.known[text] = ids
        return ids

    def _check_prompt(self, document: Document, ids: list[int], starts: list[int], number: int,
                      first: int) -> None:
        """The ids of the prompt alone must begin those of the document: else a model would be
        asked with other ids than it was taught. An added token cuts the text, so that what stands
        before the last one need not be looked at."""
        begin = first
        while begin > 0:
            begin -= 1
            if ids[begin] in self.anchors:
                break
        tail = document.text[starts[begin] if begin else 0:document.spans[number][0]]
        if self._alone(tail) != ids[begin:first]:
            raise BadRow(TEMPLATE, f'the ids of the prompt that ends in {cut(repr(tail[-20:]))} do '
                         f'not begin the ids of prompt and answer. {OTHER_ANSWER}',
                         document.place(number))

    def mask(self, document: Document, encoding) -> numpy.ndarray | None:
        """1 for each token that is learned; None: all."""
        if document.spans is None:
            return None
        ids, offsets = encoding.ids, encoding.offsets
        starts, ends = [a for a, _ in offsets], [b for _, b in offsets]
        mask = numpy.zeros(len(ids), numpy.uint8)
        for number, span in enumerate(document.spans):
            place = document.place(number)
            first, last = (token_at(starts, ends, at) for at in span)
            for at, token in zip(span, (first, last)):
                if token < 0:
                    around = document.text[max(0, at - 10):at + 10]
                    raise BadRow(TEMPLATE, 'a span that is learned begins or ends inside a token, '
                                 f'in {cut(repr(around))}. {OTHER_ANSWER}', place)
            if span in document.prompts:
                self._check_prompt(document, ids, starts, number, first)
            mask[first:last] = 1
        return mask

    def encode(self, documents: list[Document]) -> list:
        return self.backend.encode_batch([document.text for document in documents],
                                         add_special_tokens=False)


def check_text(text: str, path: tuple) -> None:
    """Half a surrogate pair, which JSON can hold, is no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRow(DATA_FORMAT, 'a string holds half of a surrogate pair, which is no UTF-8',
                     path) from None
