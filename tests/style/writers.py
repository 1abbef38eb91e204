#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each member of the executor's state has one file that writes it.

    writers.py ROOT

The state is `struct executor` (engine/exec/executor.h) with all structs that it holds, or points at
without const, and that headers of engine/exec define. The rooms that can see it are read, exec and
session. What is reached through a pointer counts, by the types of parameters and locals: an
assignment, an increment, and taking the address of a member that is no struct are writes; who
writes a whole struct writes all of its members. Prints each member with more than one writing
file, and each that none writes, and ends with 1.
"""
import collections
import glob
import os
import re
import sys

HEADERS = 'engine/exec/*.h'
SOURCES = 'engine/exec/**/*.c', 'engine/session/**/*.c'
ROOT_STRUCT = 'executor'
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.S)
STRUCT = re.compile(r'\bstruct (\w+) \{(.*?)\n\}', re.S)
# A parameter or a local that points at state; what points at it as const cannot write it.
POINTER = re.compile(r'(?<!const )\bstruct (\w+) \*(?:const )?(\w+)\s*(?=[;,)=])|'
                     r'(?<!const )\bstruct (\w+) \*\w+ = [^;]*?, \*(\w+)\s*(?=[;,=])')
INDEX = r'\[[^][]*(?:\[[^][]*\][^][]*)*\]'
CHAIN = re.compile(r'(?<![\w.>)\]])(\+\+|--|&)?(\w+)((?:\s*(?:->|\.)\s*\w+|' + INDEX + r')+)'
                   r'\s*(\+\+|--|(?:[-+*/|&^]|<<|>>)?=(?!=))?')
HOP = re.compile(r'(?:->|\.)\s*(\w+)')


def members_of(body):
    """{member: tag of the struct that it is or points at, or None} of one struct's body."""
    found = {}
    for declaration in body.split(';'):
        function = re.search(r'\(\*(\w+)\)', declaration)
        if function:
            found[function[1]] = None
            continue
        tag = re.match(r'\s*struct (\w+)\s', declaration)
        for part in declaration.split(','):
            name = re.search(r'(\w+)\s*(?:\[[^]]*\]\s*)*$', part)
            if name:
                found[name[1]] = tag[1] if tag else None
    return found


def held(structs):
    """The structs that the executor holds, those that it points at included."""
    state, queue = {}, [ROOT_STRUCT]
    while queue:
        tag = queue.pop()
        if tag in structs and tag not in state:
            state[tag] = structs[tag]
            queue += [inner for inner in structs[tag].values() if inner]
    return state


def functions(text):
    """The texts of functions, heads included; each begins at a line's start, as does its end."""
    return re.findall(r'(?m)^[a-z][^\n;]*\([^;{}]*\)\n\{.*?^\}', text, re.S)


def resolve(state, tag, chain):
    """(struct, member) that the chain of `->member` and `.member` ends at, or None."""
    at = None
    for member in HOP.findall(re.sub(INDEX, '', chain)):
        if tag not in state or member not in state[tag]:
            return None
        at = (tag, member)
        tag = state[tag][member]
    return at


def written(state, at):
    """What is written with that member: a struct's members too."""
    yield at
    inner = state[at[0]][at[1]]
    for member in state.get(inner, ()):
        yield from written(state, (inner, member))


def pointers(function):
    """{name: tag} of what the function can write through."""
    names = {}
    for tag, name, again, other in POINTER.findall(function):
        names[name or other] = tag or again
    return names


def writes_of(state, text):
    """Each (struct, member) that the text of a file writes."""
    for function in functions(text):
        names = pointers(function)
        indices = ' '.join(re.findall(INDEX, function))  # what is written in them is, too
        for before, name, chain, after in CHAIN.findall(function + indices.replace('[', ' ')):
            at = resolve(state, names.get(name), chain)
            if at and (after or before in ('++', '--') or
                       (before == '&' and state[at[0]][at[1]] is None)):
                yield from written(state, at)
        for name in re.findall(r'[;{})]\s*\*(\w+)\s*=(?!=)', function):
            for member in state.get(names.get(name), ()):
                yield from written(state, (names[name], member))


def breaches(headers, sources):
    """headers: texts; sources: {path: text}. The lines that are printed."""
    structs = {}
    for text in headers:
        for tag, body in STRUCT.findall(COMMENT.sub(' ', text)):
            structs[tag] = members_of(body)
    state = held(structs)
    writers = collections.defaultdict(set)
    for path, text in sources.items():
        for at in writes_of(state, COMMENT.sub(' ', text)):
            writers[at].add(path)
    for at, paths in sorted(writers.items()):
        if len(paths) > 1:
            yield f'struct {at[0]}: {at[1]} is written by {" and ".join(sorted(paths))}'
    for tag in sorted(state):
        for member, inner in state[tag].items():
            if (tag, member) not in writers and inner is None:
                yield f'struct {tag}: {member} is written by no file'


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def main():
    root = sys.argv[1]
    headers = [read(path) for path in sorted(glob.glob(os.path.join(root, HEADERS)))]
    sources = {os.path.relpath(path, root): read(path) for pattern in SOURCES
               for path in glob.glob(os.path.join(root, pattern), recursive=True)}
    found = list(breaches(headers, sources))
    print('\n'.join(found))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
