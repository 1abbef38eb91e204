#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each member of the executor's state has one file that writes it.

    writers.py ROOT

The state is `struct executor` (engine/exec/executor.h) with all structs that it holds, or points at
without const, and that headers of engine/exec define. The rooms that can see it are read, exec and
session, which reaches it through `struct hst_engine`. What is reached through a pointer counts, by
the types of parameters and locals: an assignment, an increment, memset and its like, and taking the
address of a member that is no struct are writes; who writes a whole struct writes all of its
members. Prints each member with more than one writing file, and each that none writes, and ends
with 1.
"""
import collections
import glob
import os
import re
import sys

HEADERS = 'engine/exec/*.h', 'engine/session/engine_state.h'
SOURCES = 'engine/exec/**/*.c', 'engine/session/**/*.c'
ROOT_STRUCT = 'executor'
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.S)
STRUCT = re.compile(r'\bstruct (\w+) \{(.*?)\n\}', re.S)
# A parameter or a local that points at state; what points at it as const cannot write it.
POINTER = re.compile(r'(?<!const )\bstruct (\w+) \*(?:const )?(\w+)\s*(?=[;,)=])')
ANOTHER = re.compile(r'(?<!const )\bstruct (\w+) \*\w+(?: = [^;]*?)?, \*(\w+)\s*(?=[;,=])')
INDEX = r'\[[^][]*(?:\[[^][]*\][^][]*)*\]'
CHAIN = re.compile(r'(?<![\w.>)\]])(\+\+|--|&)?(\w+)((?:\s*(?:->|\.)\s*\w+|' + INDEX + r')+)'
                   r'\s*(\+\+|--|(?:[-+*/|&^]|<<|>>)?=(?!=))?')
WHOLE = re.compile(r'\bmem(?:set|cpy|move)\(\s*&?(\w+)((?:(?:->|\.)\w+|' + INDEX + r')*)')
TAKEN = re.compile(r'\(&(\w+(?:(?:->|\.)\w+)*)\)->')  # (&a->b)->c is a->b.c
HOP = re.compile(r'(?:->|\.)\s*(\w+)')


def members_of(body):
    """{member: (tag of the struct that it is or points at, or None; whether it points)}."""
    found = {}
    for declaration in body.split(';'):
        function = re.search(r'\(\*(\w+)\)', declaration)
        if function:
            found[function[1]] = (None, True)
            continue
        tag = re.match(r'\s*struct (\w+)\s', declaration)
        for part in declaration.split(','):
            name = re.search(r'(\w+)\s*(?:\[[^]]*\]\s*)*$', part)
            if name:
                found[name[1]] = (tag[1] if tag else None, '*' in part)
    return found


def held(structs):
    """The structs that the executor holds, those that it points at included."""
    state, queue = {}, [ROOT_STRUCT]
    while queue:
        tag = queue.pop()
        if tag in structs and tag not in state:
            state[tag] = structs[tag]
            queue += [inner for inner, _ in structs[tag].values() if inner]
    return state


def functions(text):
    """The texts of functions, heads included; each begins at a line's start, as does its end."""
    return re.findall(r'(?m)^[a-z][^\n;]*\([^;{}]*\)\n\{.*?^\}', text, re.S)


def resolve(structs, tag, chain):
    """(struct, member) that the chain of `->member` and `.member` ends at, or None."""
    at = None
    for member in HOP.findall(re.sub(INDEX, '', chain)):
        if tag not in structs or member not in structs[tag]:
            return None
        at = (tag, member)
        tag = structs[tag][member][0]
    return at


def written(structs, state, at):
    """What of the state is written with that member: the members of a struct that it is, too."""
    if at[0] in state:
        yield at
    inner, points = structs[at[0]][at[1]]
    for member in () if points else state.get(inner, ()):
        yield from written(structs, state, (inner, member))


def pointers(function):
    """{name: tag} of what the function can write through."""
    return {name: tag for tag, name in POINTER.findall(function) + ANOTHER.findall(function)}


def is_write(structs, at, before, after):
    inner, points = structs[at[0]][at[1]]
    return bool(after) or before in ('++', '--') or (before == '&' and (inner is None or points))


def writes_of(structs, state, text):
    """Each (struct, member) of the state that the text of a file writes."""
    for function in functions(TAKEN.sub(r'\1.', text)):
        names = pointers(function)
        indices = ' '.join(re.findall(INDEX, function))  # what is written in them is, too
        for before, name, chain, after in CHAIN.findall(function + indices.replace('[', ' ')):
            at = resolve(structs, names.get(name), chain)
            if at and is_write(structs, at, before, after):
                yield from written(structs, state, at)
        for name, chain in WHOLE.findall(function):
            at = resolve(structs, names.get(name), chain)
            if at:
                yield from written(structs, state, at)
        whole = re.findall(r'[;{})]\s*\*(\w+)\s*=(?!=)', function)
        whole += [name for name, chain in WHOLE.findall(function) if not chain]
        for name in whole:
            for member in state.get(names.get(name), ()):
                yield from written(structs, state, (names[name], member))


def breaches(headers, sources):
    """headers: texts; sources: {path: text}. The lines that are printed."""
    structs = {}
    for text in headers:
        for tag, body in STRUCT.findall(COMMENT.sub(' ', text)):
            structs[tag] = members_of(body)
    state = held(structs)
    writers = collections.defaultdict(set)
    for path, text in sources.items():
        for at in writes_of(structs, state, COMMENT.sub(' ', text)):
            writers[at].add(path)
    for at, paths in sorted(writers.items()):
        if len(paths) > 1:
            yield f'struct {at[0]}: {at[1]} is written by {" and ".join(sorted(paths))}'
    for tag in sorted(state):
        for member, (inner, points) in state[tag].items():
            if (tag, member) not in writers and (inner is None or points):
                yield f'struct {tag}: {member} is written by no file'


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def main():
    root = sys.argv[1]
    headers = [read(path) for pattern in HEADERS
               for path in sorted(glob.glob(os.path.join(root, pattern)))]
    sources = {os.path.relpath(path, root): read(path) for pattern in SOURCES
               for path in glob.glob(os.path.join(root, pattern), recursive=True)}
    found = list(breaches(headers, sources))
    print('\n'.join(found))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
