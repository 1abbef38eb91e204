# SPDX-License-Identifier: Apache-2.0
"""A chat template, rendered by transformers alone; and its twin with generation marks, of trl."""
from __future__ import annotations

import functools
import glob
import importlib.util
import os
import re

from transformers.utils.chat_template_utils import render_jinja_template

from hoistway.errors import TEMPLATE, BadRow, Refusal, shown

MARKS = re.compile(r'\{%[-+]?\s*generation\s*[-+]?%\}')
ROLES = re.compile(r"""role['"\])]*\s*(?:==|!=|in|not\s+in)\s*"""
                   r"""[\[(]?((?:\s*['"][\w-]+['"]\s*,?)+)""")
WORD = re.compile(r'[\w-]+')
TWIN_ENDING = '_training.jinja'


def _same(one: str, other: str) -> bool:
    """Jinja drops a newline at the end of a template."""
    return one.removesuffix('\n') == other.removesuffix('\n')


def twin_folder() -> str | None:
    """Where the package trl, which is not imported, keeps its templates."""
    spec = importlib.util.find_spec('trl')
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if os.path.isdir(os.path.join(folder, 'chat_templates')):
            return os.path.join(folder, 'chat_templates')
    return None


@functools.lru_cache
def twin_of(text: str) -> str | None:
    """trl's copy of exactly this template with generation marks; None: there is none."""
    folder = twin_folder()
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), '*.jinja'))) if folder else ():
        twin = path.removesuffix('.jinja') + TWIN_ENDING
        if path.endswith(TWIN_ENDING) or not os.path.exists(twin):
            continue
        with open(path, encoding='utf-8') as file:
            if not _same(file.read(), text):
                continue
        with open(twin, encoding='utf-8') as file:
            return file.read()
    return None


class Template:
    def __init__(self, tokenizer, name: str, text: str | None = None,
                 arguments: dict | None = None):
        """text: in place of the model's own; arguments: what the template is given beside the
        messages."""
        self.tokenizer, self.name, self.given = tokenizer, name, text
        self.arguments = arguments or {}

    def text(self, tools: list | None) -> str:
        """The template that these tools choose."""
        try:
            return self.tokenizer.get_chat_template(self.given, tools)
        except ValueError:
            raise Refusal(TEMPLATE, f"'{self.name}' has no chat template. Fix: --template FILE, or "
                          '--plain for rows of one question and one answer') from None

    def renders(self, conversations: list, tools: list | None, prompt: bool) -> list[str]:
        """What is rendered from each; prompt: with the beginning of the answer behind it."""
        chosen = self.text(tools)
        try:
            return self.tokenizer.apply_chat_template(
                conversations, tools=tools, chat_template=chosen, tokenize=False,
                add_generation_prompt=prompt, **self.arguments)
        except Exception as wrong:  # a template is a program of others: it may raise anything
            raise BadRow(TEMPLATE, f"the template of '{self.name}' refuses the chat: "
                         f'{shown(wrong)}') from None

    def marked(self, conversations: list, tools: list | None, marked: str) -> list[tuple]:
        """(text, spans that are marked as generated), of each, by a template with marks."""
        try:
            texts, spans = render_jinja_template(
                conversations, tools=tools, chat_template=marked, return_assistant_tokens_mask=True,
                **{**self.tokenizer.special_tokens_map, **self.arguments})
        except Exception as wrong:
            raise BadRow(TEMPLATE, f"the template of '{self.name}' refuses the chat: "
                         f'{shown(wrong)}') from None
        return [(text, [(a, b) for a, b in of_text if a < b])
                for text, of_text in zip(texts, spans)]


def roles_in(text: str) -> set[str]:
    """Words that a template compares a role with: roles that it knows beside the usual ones."""
    return {word for found in ROLES.findall(text) for word in WORD.findall(found)}
