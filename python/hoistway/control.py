# SPDX-License-Identifier: Apache-2.0
"""Control tokens that stand in a row's own strings: tokenised, they would end a turn, or begin one,
as if the template had written them."""
from __future__ import annotations

import re


class Control:
    def __init__(self, tokens: list[str]):
        """tokens: what the tokenizer takes for its special tokens wherever it stands."""
        longest_first = sorted(tokens, key=lambda token: (-len(token), token))
        self.pattern = re.compile('|'.join(map(re.escape, longest_first))) if tokens else None

    def find(self, value: object, path: tuple = ()) -> tuple[tuple, str] | None:
        """The path of the first string that holds one, and the token; None: there is none."""
        if isinstance(value, str):
            match = self.pattern.search(value) if self.pattern else None
            return (path, match[0]) if match else None
        inner = value.items() if isinstance(value, dict) else \
            enumerate(value) if isinstance(value, list) else ()
        for step, child in inner:
            found = self.find(child, (*path, step))
            if found:
                return found
        return None
