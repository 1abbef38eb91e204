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
            # a template may write keys, as those of a call's arguments
            found = self.find(child, (*path, step)) or (
                self.find(step, (*path, step)) if isinstance(step, str) else None)
            if found:
                return found
        return self.find(joined(value), path) if isinstance(value, list) else None


def joined(parts: list) -> str:
    """A content of parts as templates write it: what one part begins, the next may end."""
    return ''.join(part['text'] for part in parts
                   if isinstance(part, dict) and isinstance(part.get('text'), str))
