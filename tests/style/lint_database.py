#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a compilation database for clang-tidy in which no file stands twice with the same options.

    lint_database.py BUILD OUT      reads compile_commands.json in BUILD, writes that in OUT

clang-tidy analyses a file once for each command that compiles it. Libraries and tests share
sources: the same file with the same options, into another folder. One analysis of these is enough;
a file compiled for several instruction sets, or with other definitions, stays as often as they
differ.
"""
import json
import os
import shlex
import sys

WITH_VALUE = ('-o', '-MF', '-MQ', '-MT')  # where outputs go
ALONE = ('-MD', '-MMD', '-c', '-fPIC', '-fPIE', '-fvisibility=hidden', '-fvisibility=default',
         '-pthread')
# Folders of headers: a target has more of them, or in another order, and finds the same headers.
# Texts that a target gives to all of its files: one that is compiled without them has none.
# A step that a store of the tests leaves out: one line, false in the store itself.
IGNORED = ('-I', '-isystem', '-DHST_VERSION=', '-DHST_LIBDIR=', '-DHST_BLAS_DIR=',
           '-DSTORE_LEAVE_OUT=')


def options(command):
    """What an analysis can see of a command: neither its outputs nor the folders of headers."""
    words = shlex.split(command)[1:]
    seen = set()
    skip = False
    for word in words:
        if skip or word in WITH_VALUE:
            skip = not skip
        elif word not in ALONE and not word.startswith(IGNORED):
            seen.add(word)
    return frozenset(seen)


def main(build, out):
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as file:
        commands = json.load(file)
    kept = {}
    for command in commands:
        kept.setdefault((command['file'], options(command['command'])), command)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, 'compile_commands.json'), 'w', encoding='utf-8') as file:
        json.dump(list(kept.values()), file, indent=1)


if __name__ == '__main__':
    main(*sys.argv[1:]) if len(sys.argv) == 3 else sys.exit(__doc__)
