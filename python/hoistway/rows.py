# SPDX-License-Identifier: Apache-2.0
"""What a row is, by its keys, and what it holds: a chat, a text, or token ids."""
from __future__ import annotations

import json
from dataclasses import dataclass, field

from hoistway import strict
from hoistway.errors import DATA_FORMAT, BadRow, cut

ROLES = ('system', 'developer', 'user', 'assistant', 'tool', 'function', 'ipython')
OF_SHAREGPT = {'system': 'system', 'human': 'user', 'user': 'user', 'gpt': 'assistant',
               'chatgpt': 'assistant', 'assistant': 'assistant', 'tool': 'tool',
               'observation': 'tool'}
NOT_LEARNED = -100  # of `labels`, as transformers has it


@dataclass
class Kind:
    needed: tuple
    optional: tuple = ()


KINDS = {
    'messages': Kind(('messages',), ('tools',)),
    'sharegpt': Kind(('conversations',), ('system', 'tools')),
    'prompt': Kind(('prompt', 'completion'), ('tools',)),
    'alpaca': Kind(('instruction', 'output'), ('input', 'system')),
    'text': Kind(('text',)),
    'ids': Kind(('input_ids',), ('labels', 'mask')),
}


@dataclass
class Chat:
    messages: list
    tools: list | None = None
    answer: int | None = None  # the first message of the completion, where the row says which
    places: list = field(default_factory=list, compare=False)  # where in the row each message is

    def place(self, message: int) -> tuple:
        return self.places[message] if message < len(self.places) else ()


@dataclass
class Text:
    text: str
    learned: int | None = None  # the first character that is learned; None: the row has no prompt
    place: tuple = field(default=(), compare=False)  # of its last part in the row


@dataclass
class Ids:
    ids: list
    mask: list | None = None


@dataclass
class Reading:
    """How rows are read: what the command line says of it."""

    kind: str | None = None
    plain: bool = False
    ignored: frozenset = frozenset()
    roles: frozenset = field(default=frozenset(ROLES))


def known_keys() -> str:
    return '; '.join(' + '.join(kind.needed) + ''.join(f' [{key}]' for key in kind.optional)
                     for kind in KINDS.values())


def _strange(keys: set, names: list) -> list:
    """Keys that none of these kinds has."""
    return sorted(keys.difference(*(KINDS[name].needed + KINDS[name].optional for name in names)))


def kind_of(row: dict, reading: Reading) -> str:
    """The kind of a row by its keys; refuses keys that this kind does not have, but for null."""
    keys = {key for key, value in row.items() if key not in reading.ignored}
    names = [reading.kind] if reading.kind else list(KINDS)
    found = [name for name in names if keys.issuperset(KINDS[name].needed)]
    if not found:
        what = f'a row of --rows {reading.kind}' if reading.kind else 'a row of a known kind'
        raise BadRow(DATA_FORMAT, f'the keys {cut(", ".join(sorted(keys)), 200)} are not those of '
                     f'{what}; known are: {known_keys()}', tuple(_strange(keys, names)[:1]))
    whole = [name for name in found if all(row[key] is not None for key in KINDS[name].needed)]
    found = whole or found
    if len(found) > 1:
        raise BadRow(DATA_FORMAT, f'the row could be {" or ".join(found)}. Fix: --rows {found[0]}, '
                     'and --ignore-keys for the other keys')
    kind = KINDS[found[0]]
    unknown = sorted(key for key in keys.difference(kind.needed, kind.optional)
                     if row[key] is not None)
    if unknown:
        raise BadRow(DATA_FORMAT, f'unknown key "{cut(unknown[0])}"; rows with '
                     f'{" + ".join(kind.needed)} know {", ".join(kind.needed + kind.optional)}. '
                     f'Fix: --ignore-keys {cut(",".join(unknown), 200)}', (unknown[0],))
    return found[0]


def _string(row: dict, key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        what = 'null' if value is None else type(value).__name__
        raise BadRow(DATA_FORMAT, f'"{key}" is {what}, no string', (key,))
    return value


def _parts(parts: list, path: tuple) -> None:
    for i, part in enumerate(parts):
        if not isinstance(part, dict) or part.get('type') != 'text' or \
                not isinstance(part.get('text'), str):
            raise BadRow(DATA_FORMAT, 'a part of the content is no text; only text is trained',
                         (*path, i))


def _message(message: object, path: tuple, roles: frozenset) -> dict:
    if not isinstance(message, dict):
        raise BadRow(DATA_FORMAT, 'a message is no object', path)
    role, content = message.get('role'), message.get('content')
    if not isinstance(role, str) or role not in roles:
        raise BadRow(DATA_FORMAT, f'the role {cut(json.dumps(role))} is not one of '
                     f'{", ".join(sorted(roles))}', (*path, 'role'))
    if content is None and message.get('tool_calls'):
        return {**message, 'content': ''}  # templates print "None" else
    if content is None:
        raise BadRow(DATA_FORMAT, 'the content is null' if 'content' in message else
                     f'a message of role {role} has no content', (*path, 'content'))
    if isinstance(content, list):
        _parts(content, (*path, 'content'))
    elif not isinstance(content, str):
        raise BadRow(DATA_FORMAT, f'the content is {type(content).__name__}, no string',
                     (*path, 'content'))
    return message


def _messages(row: dict, key: str, roles: frozenset) -> list:
    listed = row[key]
    if not isinstance(listed, list) or not listed:
        raise BadRow(DATA_FORMAT, f'"{key}" is no list of messages, or an empty one', (key,))
    return [_message(message, (key, i), roles) for i, message in enumerate(listed)]


def _tools(row: dict) -> list | None:
    tools = row.get('tools')
    if isinstance(tools, str):
        try:
            tools = strict.loads(tools) if tools.strip() else None
        except strict.Wrong as wrong:
            raise BadRow(DATA_FORMAT, f'in the string "tools": {wrong.what}', ('tools',)) from None
    if tools is not None and not isinstance(tools, list):
        raise BadRow(DATA_FORMAT, '"tools" is no list', ('tools',))
    return tools or None


def _system(row: dict) -> list:
    text = row.get('system')
    return [] if text in (None, '') else [{'role': 'system', 'content': _string(row, 'system')}]


def _places(key: str, messages: list) -> list:
    return [(key, i) for i in range(len(messages))]


def _of_messages(row: dict, reading: Reading) -> Chat:
    messages = _messages(row, 'messages', reading.roles)
    return Chat(messages, _tools(row), None, _places('messages', messages))


def _of_sharegpt(row: dict, reading: Reading) -> Chat:
    listed = row['conversations']
    if not isinstance(listed, list) or not listed:
        raise BadRow(DATA_FORMAT, '"conversations" is no list of turns, or an empty one',
                     ('conversations',))
    messages = _system(row)
    places = [('system',)] * len(messages) + _places('conversations', listed)
    for i, turn in enumerate(listed):
        path = ('conversations', i)
        if isinstance(turn, dict) and 'role' in turn and 'from' not in turn:
            messages.append(_message(turn, path, reading.roles))
            continue
        speaker = turn.get('from') if isinstance(turn, dict) else None
        if not isinstance(speaker, str) or speaker not in OF_SHAREGPT:
            raise BadRow(DATA_FORMAT, f'"from" is {cut(json.dumps(speaker))}; known are '
                         f'{", ".join(OF_SHAREGPT)}', (*path, 'from'))
        message = {'role': OF_SHAREGPT[speaker], 'content': turn.get('value')}
        if not isinstance(message['content'], str):
            raise BadRow(DATA_FORMAT, '"value" is null or no string', (*path, 'value'))
        messages.append(message)
    return Chat(messages, _tools(row), None, places)


def _of_prompt(row: dict, reading: Reading) -> Chat | Text:
    if isinstance(row['prompt'], list):
        prompt = _messages(row, 'prompt', reading.roles)
        answer = _messages(row, 'completion', reading.roles)
        return Chat(prompt + answer, _tools(row), len(prompt),
                    _places('prompt', prompt) + _places('completion', answer))
    pair = _string(row, 'prompt'), _string(row, 'completion')
    return _pair(pair, ('prompt', 'completion'), [], reading, _tools(row))


def _of_alpaca(row: dict, reading: Reading) -> Chat | Text:
    asked = _string(row, 'instruction')
    if row.get('input') not in (None, ''):
        asked += '\n' + _string(row, 'input')
    end = '\n' if reading.plain else ''
    pair = asked + end, _string(row, 'output')
    return _pair(pair, ('instruction', 'output'), _system(row), reading, None)


def _pair(pair: tuple, keys: tuple, system: list, reading: Reading, tools) -> Chat | Text:
    """One question and one answer: messages, or with --plain the two joined bare."""
    asked, answer = pair
    if reading.plain:
        before = ''.join(message['content'] + '\n' for message in system) + asked
        return Text(before + answer, len(before), keys[1:])
    return Chat([*system, {'role': 'user', 'content': asked},
                 {'role': 'assistant', 'content': answer}], tools, len(system) + 1,
                [('system',)] * len(system) + [(key,) for key in keys])


def _of_text(row: dict, reading: Reading) -> Text:
    return Text(_string(row, 'text'), None, ('text',))


def _whole_numbers(row: dict, key: str) -> list:
    numbers = row[key]
    if not isinstance(numbers, list) or not all(type(n) is int for n in numbers):
        raise BadRow(DATA_FORMAT, f'"{key}" is no list of whole numbers', (key,))
    return numbers


def _of_ids(row: dict, reading: Reading) -> Ids:
    ids = _whole_numbers(row, 'input_ids')
    given = [key for key in ('labels', 'mask') if row.get(key) is not None]
    if len(given) > 1:
        raise BadRow(DATA_FORMAT, 'the row has labels and a mask; one of them is meant', ('mask',))
    if not given:
        return Ids(ids)
    key, values = given[0], _whole_numbers(row, given[0])
    if len(values) != len(ids):
        raise BadRow(DATA_FORMAT, f'"{key}" has {len(values)} numbers and "input_ids" {len(ids)}',
                     (key,))
    for i, (token, value) in enumerate(zip(ids, values)):
        if value not in ((NOT_LEARNED, token) if key == 'labels' else (0, 1)):
            want = f'{NOT_LEARNED} or the token {token}' if key == 'labels' else '0 or 1'
            raise BadRow(DATA_FORMAT, f'{key}[{i}] is {value}, and can be {want}', (key, i))
    return Ids(ids, [int(v != NOT_LEARNED) for v in values] if key == 'labels' else values)


READERS = {'messages': _of_messages, 'sharegpt': _of_sharegpt, 'prompt': _of_prompt,
           'alpaca': _of_alpaca, 'text': _of_text, 'ids': _of_ids}


def read(row: object, reading: Reading) -> tuple[str, Chat | Text | Ids]:
    """The kind of a row and what it holds."""
    if not isinstance(row, dict):
        raise BadRow(DATA_FORMAT, 'the line holds no JSON object')
    kind = kind_of(row, reading)
    if reading.plain and (kind in ('messages', 'sharegpt') or isinstance(row.get('prompt'), list)):
        raise BadRow(DATA_FORMAT, '--plain joins strings, and messages need a template', (
            KINDS[kind].needed[0],))
    return kind, READERS[kind](row, reading)
