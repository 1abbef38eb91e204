#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says which code rates are measured by, for the key of those that are kept (identity.c).

    digest.py OUT DEPFILE HOW FOLDER...

Writes to OUT a header with PROBE_CODE, a text that is another one when a source in a FOLDER, or HOW
they are built, is another one. Rates that were measured before kernels changed are then not found
any more. DEPFILE names what was read, and the folders, which change when a file is added.
"""
import hashlib
import os
import sys

ENDINGS = ('.c', '.h', '.cu')


def sources(folders):
    """Pairs of names, alike wherever the tree lies, and paths; by name."""
    return sorted((os.path.join(os.path.basename(folder), os.path.relpath(path, folder)), path)
                  for folder in map(os.path.abspath, folders)
                  for within, _, names in os.walk(folder)
                  for path in (os.path.join(within, name) for name in names)
                  if path.endswith(ENDINGS))


def digest_of(found, how):
    digest = hashlib.sha256(how.encode() + b'\0')
    for name, path in found:
        with open(path, 'rb') as file:
            content = file.read()
        digest.update(f'{name}\0{len(content)}\0'.encode() + content)
    return digest.hexdigest()[:16]


def main():
    out, depfile, how, *folders = sys.argv[1:]
    found = sources(folders)
    if not found:
        sys.exit(f'digest.py: no source in {" ".join(folders)}')
    with open(out, 'w', encoding='utf-8') as file:
        file.write('/* SPDX-License-Identifier: Apache-2.0 */\n'
                   f'#define PROBE_CODE "{digest_of(found, how)}"\n')
    read = {path for _, path in found}
    read |= {os.path.dirname(path) for path in read}
    with open(depfile, 'w', encoding='utf-8') as file:
        names = ' \\\n  '.join(path.replace(' ', '\\ ') for path in sorted(read))
        file.write(f'{out}: {names}\n')


if __name__ == '__main__':
    main()
