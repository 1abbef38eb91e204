#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""error_texts.py docs/errors.md OUT: writes the rows of the page's table as a C array.

Backticks go, a link becomes its text: what is printed is no Markdown.
"""
import re
import sys


def plain(text):
    return re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', text.replace('\\|', '|')).replace('`', '')


def literal(text):
    escaped = text.replace('\\', '\\\\').replace('"', '\\"')
    return f'"{escaped}"'


def main():
    source, target = sys.argv[1:]
    with open(source, encoding='utf-8') as f:
        rows = re.findall(r'^\| (\d{3}) \| (.*) \| (.*) \|$', f.read(), re.M)
    if not rows or [code for code, *_ in rows] != sorted({code for code, *_ in rows}):
        sys.exit(f'{source}: no table of codes, or codes that do not rise')
    with open(target, 'w', encoding='utf-8') as f:
        f.write('/* SPDX-License-Identifier: Apache-2.0 */\n#include "verbs/explain.h"\n\n')
        f.write('const struct error_text error_texts[] = {\n')
        for code, what, advice in rows:
            f.write(f'    {{{code},\n     {literal(plain(what))},\n     '
                    f'{literal(plain(advice))}}},\n')
        f.write('};\nconst size_t error_text_count = sizeof error_texts / sizeof error_texts[0];\n')


if __name__ == '__main__':
    main()
