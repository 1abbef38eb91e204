#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py IN OUT NAME: writes a C file that holds the bytes of IN as NAME[] and NAME_bytes."""
import sys

source, target, name = sys.argv[1:]
with open(source, 'rb') as f:
    data = f.read()
rows = [', '.join(str(b) for b in data[i:i + 20]) for i in range(0, len(data), 20)]
with open(target, 'w', encoding='ascii') as f:
    f.write('/* SPDX-License-Identifier: Apache-2.0 */\n#include "verbs/demo_text.h"\n\n')
    f.write(f'const unsigned char {name}[] = {{\n    ' + ',\n    '.join(rows) + '};\n')
    f.write(f'const size_t {name}_bytes = sizeof {name};\n')
