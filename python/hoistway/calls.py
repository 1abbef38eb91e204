# SPDX-License-Identifier: Apache-2.0
"""Arguments of tool calls as objects. Templates write them as JSON, as transformers' documentation
has it; rows of other programs hold them as JSON already, in a string, which some templates would
quote a second time."""
from __future__ import annotations

from hoistway import strict
from hoistway.errors import DATA_FORMAT, BadRow

LISTS = ('messages', 'conversations', 'prompt', 'completion')


def _object(text: str, path: tuple) -> dict | None:
    """None: the string holds no JSON object, and stays what it is."""
    try:
        found = strict.loads(text)
    except strict.Wrong as wrong:
        if wrong.twice:
            raise BadRow(DATA_FORMAT, f'in the arguments of a call {wrong.what}', path) from None
        return None
    return found if isinstance(found, dict) else None


def _call(call: object, path: tuple) -> object:
    function = call.get('function') if isinstance(call, dict) else None
    if isinstance(function, dict):
        return {**call, 'function': _call(function, (*path, 'function'))}
    text = call.get('arguments') if isinstance(call, dict) else None
    found = _object(text, (*path, 'arguments')) if isinstance(text, str) else None
    return call if found is None else {**call, 'arguments': found}


def _message(message: object, path: tuple) -> object:
    calls = message.get('tool_calls') if isinstance(message, dict) else None
    if not isinstance(calls, list):
        return message
    path = (*path, 'tool_calls')
    return {**message, 'tool_calls': [_call(call, (*path, i)) for i, call in enumerate(calls)]}


def with_objects(row: dict) -> dict:
    """The row, in which arguments that are JSON objects in a string are these objects."""
    lists = {key: row[key] for key in LISTS if isinstance(row.get(key), list)}
    return {**row, **{key: [_message(message, (key, i)) for i, message in enumerate(messages)]
                      for key, messages in lists.items()}}
