#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rooms stand on floors: a file uses its own room and those below it, never one above.

    floors.py ROOT BUILD

A room is a folder. What a file uses is told twice: by the symbols of its object below BUILD (`nm`;
functions and tables) and by the headers that it includes (types too). Prints each breach and ends
with 1: an arrow upward or to a room on the same floor, a room without a floor, a circle of more
than CIRCLE_MOST files in engine/, a circle of folders there, a global name that two of our sources
define.
"""
import collections
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from style import walk  # noqa: E402

# Lowest first. Rooms of one floor do not use one another. A public header is below the room that
# keeps its promises.
FLOORS = (
    ('aio/include', 'cpu_adam/include', 'kernels/include'),
    ('aio', 'cpu_adam', 'kernels/base'),
    ('kernels/host', 'kernels/cuda'),
    ('kernels',),
    ('engine/include',),
    ('engine/base',),
    ('engine/comm', 'engine/machine', 'engine/optimizer', 'engine/plan/layout'),
    ('engine/probe', 'engine/plan/placement'),
    ('engine/plan/graph', 'engine/tier'),
    ('engine/plan/search', 'engine/store'),
    ('engine/ckpt',),
    ('engine/exec',),
    ('engine/exec/tiles', 'engine/exec/update'),
    ('engine/exec/lanes',),
    ('engine/exec/visit',),
    ('engine/session',),
    ('tools/base',),
    ('tools/cli', 'tools/hf'),
    ('tools/cli/config', 'tools/data', 'tools/model', 'tools/nvme_bench', 'tools/views'),
    ('tools/bench',),
    ('tools/verbs',),
    ('tools',),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# Where includes are looked for: those in "" beside the file first.
ROOTS = ('', 'engine', 'tools', 'kernels', 'kernels/cuda')
PUBLIC = ('aio/include', 'cpu_adam/include', 'kernels/include', 'engine/include')
CIRCLE_MOST = 3
MANY = ('main', 'comm_plugin')  # each program, each transport has one


def room_of(path):
    folder = os.path.dirname(path)
    while folder and folder not in FLOOR:
        folder = os.path.dirname(folder)
    return folder


def circles(graph):
    """The sets of two or more that reach one another (Tarjan's strongly connected components)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def objects(build, sources):
    """(source, object): meson names an object FOLDER/TARGET.p/PATH_WITH_UNDERSCORES.o. What the
    CUDA compiler makes of NAME.cu, and the interpreter's build of it, are NAME.o in FOLDER."""
    known = {}
    kernels = {os.path.basename(path)[:-len('.cu')]: path for path in sources
               if path.endswith('.cu')}
    for path in sources:
        parts = path.split('/')
        for cut in range(1, len(parts)):
            known['/'.join(parts[:cut]), '_'.join(parts[cut:])] = path
    for folder, _, files in os.walk(build):
        base, _, target = os.path.relpath(folder, build).rpartition('/')
        if target.endswith('.p'):
            for name in files:
                if name.endswith('.o') and (base, name[:-2]) in known:
                    yield known[base, name[:-2]], os.path.join(folder, name)
        else:
            for name in files:
                if name.endswith('.o') and name[:-2] in kernels:
                    yield kernels[name[:-2]], os.path.join(folder, name)


def symbols(build, sources):
    """What each source defines for others, and what it needs of others."""
    defined, needed = collections.defaultdict(set), collections.defaultdict(set)
    paths = {at: path for path, at in objects(build, sources)}
    listed = subprocess.run(['nm', '-A', *paths], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        at, _, symbol = line.partition('.o:')
        path, (*_, kind, name) = paths[f'{at}.o'], symbol.split()
        if kind == 'U':
            needed[path].add(name)
        elif kind in 'TDBRVWG' and not (kind in 'VW' and name.startswith('_Z')):  # templates
            defined[name].add(path)
    return defined, needed


def included(root, path, headers):
    with open(os.path.join(root, path), encoding='utf-8') as f:
        names = re.findall(r'(?m)^\s*#\s*include ("|<)([^">]+)[">]', f.read())
    for mark, name in names:
        for start in (*((os.path.dirname(path),) if mark == '"' else ()), *ROOTS, *PUBLIC):
            at = os.path.normpath(os.path.join(start, name))
            if at in headers:
                yield at
                break


def arrows(root, build):
    """{(file, file): why} of symbols, the same of headers, and the names that are defined twice."""
    files = [p for p in walk(root) if not p.startswith(('tests/', 'build')) and
             p.endswith(('.c', '.cu', '.h'))]
    defined, needed = symbols(build, [p for p in files if not p.endswith('.h')])
    if len(needed) < 100:
        sys.exit(f'floors: {build} holds objects of {len(needed)} of our sources: it is not built')
    by_symbol, by_header = {}, {}
    for path, names in needed.items():
        for name in names:
            for other in defined.get(name, ()):
                if other != path:
                    by_symbol.setdefault((path, other), name)
    headers = {p for p in files if p.endswith('.h')}
    for path in files:
        for header in included(root, path, headers):
            by_header[path, header] = 'its header'
    twice = {name: paths for name, paths in defined.items() if len(paths) > 1 and name not in MANY}
    return by_symbol, by_header, twice


def breaches(by_symbol, by_header, twice):
    for (path, other), why in sorted({**by_header, **by_symbol}.items()):
        room, used = room_of(path), room_of(other)
        if not room or not used:
            yield f'{path if not room else other}: its folder has no floor in FLOORS'
        elif room != used and FLOOR[used] >= FLOOR[room]:
            yield f'{path}: {room} uses {used}, which is not below it: {other} ({why})'
    graph, folders = collections.defaultdict(set), collections.defaultdict(set)
    for path, other in by_symbol:
        if path.startswith('engine/') and other.startswith('engine/'):
            graph[path].add(other)
            if os.path.dirname(path) != os.path.dirname(other):
                folders[os.path.dirname(path)].add(os.path.dirname(other))
    for part in circles(graph):
        if len(part) > CIRCLE_MOST:
            yield f'a circle of {len(part)} files: {" ".join(part)}'
    for part in circles(folders):
        yield f'a circle of folders: {" ".join(part)}'
    for name, paths in sorted(twice.items()):
        yield f'{name} is defined in {" and in ".join(sorted(paths))}'


def main():
    root, build = sys.argv[1:]
    found = list(dict.fromkeys(breaches(*arrows(root, build))))
    print('\n'.join(found))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
