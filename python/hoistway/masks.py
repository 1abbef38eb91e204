# SPDX-License-Identifier: Apache-2.0
"""Which characters of a rendered chat are learned.

In this order: (a) what the template marks with {% generation %}; (b) for each assistant turn the
difference of two renderings, before and after it, where the one begins the other and that the whole
chat; (c) where it does not begin the whole, because the template renders an earlier turn otherwise
later, that turn is a document of its own; (d) the marks of the template's twin; else the chat is
refused.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from hoistway.errors import DATA_SHORT, TEMPLATE, BadRow
from hoistway.rows import Chat
from hoistway.template import MARKS, Template, twin_of

SAID = ('system', 'user', 'assistant')  # roles whose content stands in the chat as it is
SHOWN_MOST = 40


@dataclass
class Document:
    text: str
    spans: list | None = None  # of characters that are learned; None: all
    prompts: list = field(default_factory=list)  # spans before which the ids must be the prompt's
    places: list = field(default_factory=list)   # where in the row each span is from; or none

    def place(self, span: int) -> tuple:
        return self.places[span] if span < len(self.places) else ()


class Inapplicable(Exception):
    """Why prefixes do not tell what a turn is."""

    def __init__(self, turn: int, reason: str):
        super().__init__(turn, reason)
        self.turn, self.reason = turn, reason


def learned_turns(chat: Chat, learn: str) -> list[int]:
    """Indices of the messages that are learned: all assistant turns from one on."""
    turns = [i for i, message in enumerate(chat.messages) if message['role'] == 'assistant']
    if learn == 'last':
        turns = turns[-1:]
    elif learn == 'completion':
        asked = [i for i, message in enumerate(chat.messages) if message['role'] == 'user']
        first = chat.answer if chat.answer is not None else (asked[-1] + 1 if asked else 0)
        turns = [i for i in turns if i >= first]
    if not turns:
        raise BadRow(DATA_SHORT, 'the chat has no assistant turn to learn',
                     chat.place(len(chat.messages) - 1)[:1])
    return turns


def placed(prompt: str, after: str, whole: str) -> str:
    """Where a turn is learned, 'whole' or 'own'; else the reason why prefixes do not tell."""
    if not after.startswith(prompt):
        return 'the generation prompt does not begin what is rendered with the answer'
    if len(after) == len(prompt):
        return 'nothing is rendered of the answer'
    return 'whole' if whole.startswith(after) else 'own'


def end_of(content: object) -> str:
    """The last words of a content, as every template leaves them: behind blanks and thinking."""
    if isinstance(content, list):
        content = content[-1]['text'] if content else ''
    lines = content.strip().splitlines()
    return lines[-1].split('>')[-1].strip()[-SHOWN_MOST:] if lines else ''


def check_rendered(chat: Chat, template: Template, whole: str) -> None:
    """Some templates know content as a list of parts alone, or no system message, and render
    nothing of the others, without a word."""
    for i, message in enumerate(chat.messages):
        if message['role'] in SAID and not message.get('tool_calls') and \
                end_of(message['content']) not in whole:
            raise BadRow(TEMPLATE, f"the template of '{template.name}' renders nothing of the "
                         f'content of message {i + 1} ({message["role"]}). Fix: a content of '
                         'parts, [{"type": "text", "text": …}], or another --template',
                         chat.place(i))


def by_prefixes(chat: Chat, template: Template, turns: list[int], whole: str) -> list[Document]:
    """(b) and (c). The whole chat is last, where a turn is learned in it."""
    messages, tools = chat.messages, chat.tools
    try:
        prompts = template.renders([messages[:i] for i in turns], tools, True)
        ends = [i + 1 for i in turns if i + 1 < len(messages)]
        afters = template.renders([messages[:end] for end in ends], tools, False) if ends else []
    except BadRow as wrong:
        raise Inapplicable(turns[0], f'of a part of the chat: {wrong.text}') from None
    afters += [whole] * (len(turns) - len(afters))
    own, spans, places = [], [], []
    for turn, prompt, after in zip(turns, prompts, afters):
        where = placed(prompt, after, whole)
        span = (len(prompt), len(after))
        if where == 'own':
            own.append(Document(after, [span], [span], [chat.place(turn)]))
        elif where == 'whole':
            spans.append(span)
            places.append(chat.place(turn))
        else:
            raise Inapplicable(turn, where)
    return own + ([Document(whole, spans, spans, places)] if spans else [])


def by_marks(chat: Chat, template: Template, turns: list[int], marks: str) -> tuple[str, list]:
    """(a) and (d): the text as the template with marks renders it, and the spans of the turns."""
    messages = chat.messages
    every = [i for i, message in enumerate(messages) if message['role'] == 'assistant']
    ((text, spans),) = template.marked([messages], chat.tools, marks)
    if turns != every:
        ((_, earlier),) = template.marked([messages[:turns[0]]], chat.tools, marks)
        spans = spans[len(earlier):]
    if len(spans) < len(turns):
        raise BadRow(TEMPLATE, f"the template of '{template.name}' marks {len(spans)} spans as "
                     f'generated, and {len(turns)} turns are to be learned')
    return text, spans


def by_twin(chat: Chat, template: Template, turns: list[int], whole: str,
            why: Inapplicable) -> Document:
    """(d)"""
    refusal = (f"what of turn {why.turn + 1} is learned cannot be told from the template of "
               f"'{template.name}': {why.reason}")
    twin = twin_of(template.text(chat.tools))
    path = chat.place(why.turn)
    if twin is None:
        raise BadRow(TEMPLATE, f'{refusal}, and trl has no copy of it with generation marks. Fix: '
                     '--template FILE with {% generation %} marks, or --learn all', path)
    text, spans = by_marks(chat, template, turns, twin)
    if text != whole:
        raise BadRow(TEMPLATE, f"{refusal}, and trl's copy with generation marks renders this chat "
                     'otherwise. Fix: --template FILE with {% generation %} marks', path)
    return Document(whole, spans, [], places_of(chat, turns, spans))


def places_of(chat: Chat, turns: list[int], spans: list) -> list:
    """A template may mark several spans of a turn: which turn's each is, is not known then."""
    return [chat.place(turn) for turn in turns] if len(spans) == len(turns) else []


def documents_of(chat: Chat, template: Template, learn: str, split: str) -> list[Document]:
    """The documents of a chat. split: of turns that need a document of their own, `each` gets one,
    or the `last` turn alone is learned."""
    try:
        (whole,) = template.renders([chat.messages], chat.tools, False)
    except BadRow as wrong:
        raise BadRow(wrong.code, wrong.text, chat.place(0)[:1]) from None
    check_rendered(chat, template, whole)
    if learn == 'all':
        return [Document(whole)]
    turns = learned_turns(chat, learn)
    marks = template.text(chat.tools)
    if MARKS.search(marks):
        spans = by_marks(chat, template, turns, marks)[1]
        return [Document(whole, spans, [], places_of(chat, turns, spans))]
    try:
        documents = by_prefixes(chat, template, turns, whole)
    except Inapplicable as why:
        return [by_twin(chat, template, turns, whole, why)]
    if split == 'last' and len(documents) > 1:
        document = documents[-1]
        document.spans = document.prompts = document.spans[-1:]
        document.places = document.places[-1:]
        return [document]
    return documents
