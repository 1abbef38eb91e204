# SPDX-License-Identifier: Apache-2.0
"""What is told while it goes on: on a terminal a line that is written over, elsewhere a line every
30 s and none in the first 30."""
from __future__ import annotations

import sys
import time

SILENCE_S = 30.0
REFRESH_S = 0.2


class Progress:
    def __init__(self, quiet: bool):
        self.quiet, self.terminal = quiet, sys.stderr.isatty()
        self.begun = self.told = time.monotonic()
        self.width = 0

    def step(self, documents: int, tokens: int) -> None:
        now = time.monotonic()
        if self.quiet or now - self.told < (REFRESH_S if self.terminal else SILENCE_S):
            return
        self.told = now
        rate = tokens / max(now - self.begun, 1e-9)
        line = f'prep: {documents:,} documents, {tokens:,} tokens, {rate:,.0f} tokens/s'
        if self.terminal:
            sys.stderr.write('\r' + line.ljust(self.width))
            self.width = len(line)
        else:
            sys.stderr.write(line + '\n')
        sys.stderr.flush()

    def end(self) -> None:
        """Before anything else is told."""
        if self.width:
            sys.stderr.write('\r' + ' ' * self.width + '\r')
            self.width = 0
