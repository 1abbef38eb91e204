#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""machine_texts.py OUT FILE...: writes machine files as a C array, by name."""
import os
import sys

target, *sources = sys.argv[1:]
with open(target, 'w', encoding='ascii') as out:
    out.write('/* SPDX-License-Identifier: Apache-2.0 */\n#include "verbs/machines.h"\n\n'
              'const struct machine_text machine_texts[] = {\n')
    for source in sorted(sources):
        name = os.path.splitext(os.path.basename(source))[0]
        with open(source, encoding='ascii') as f:
            lines = f.read().splitlines()
        if f'name {name}' not in lines:
            sys.exit(f'{source}: no line "name {name}", as the file is called')
        out.write(f'    {{"{name}",\n')
        for line in lines:
            escaped = line.replace('\\', '\\\\').replace('"', '\\"')
            out.write(f'     "{escaped}\\n"\n')
        out.write('    },\n')
    out.write('};\nconst size_t machine_text_count = '
              'sizeof machine_texts / sizeof machine_texts[0];\n')
