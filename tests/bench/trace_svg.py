#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws one step of a run as a picture: what each lane did when.

    hoistway train ... --trace run.json
    trace_svg.py run.json STEP > step.svg
"""
import json
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, LANE, GAP, TOP, FOOT = 960, 70, 34, 8, 40, 34
LANES = ('compute', 'update', 'read', 'write', 'h2d', 'd2h', 'net')
COLORS = {
    'forward': '#4c78a8', 'recompute': '#7fa6d1', 'backward': '#1f3b63', 'update': '#e45756',
    'norm': '#f2a6a0', 'clip': '#f2a6a0', 'read tile': '#72b7b2', 'read weights': '#2f7f79',
    'read acts': '#a7d8d4', 'write tile': '#eeca3b', 'write grads': '#b79a1f',
    'write acts': '#f5e08c',
}
OTHER = '#999999'


def load(path, step):
    """Events of one step by lane: (start ms, milliseconds, name)."""
    with open(path, encoding='utf-8') as f:
        events = json.load(f)['traceEvents']
    names = {e['tid']: e['args']['name'] for e in events if e['ph'] == 'M'}
    lanes = {}
    for e in events:
        if e['ph'] == 'X' and e['args']['step'] == step and e['dur'] > 0:
            lanes.setdefault(names[e['tid']], []).append((e['ts'] / 1e3, e['dur'] / 1e3, e['name']))
    return [(name, lanes[name]) for name in LANES if name in lanes]


def tick(span):
    """A round distance of marks: 1, 2 or 5 times a power of ten, at most ten of them."""
    power = 1
    while span / (5 * power) > 10:
        power *= 10
    return next(m * power for m in (1, 2, 5) if span / (m * power) <= 10)


def draw(lanes, title):
    begin = min(e[0] for _, events in lanes for e in events)
    span = max(e[0] + e[1] for _, events in lanes for e in events) - begin
    scale = (WIDTH - LEFT - 10) / span
    bottom = TOP + len(lanes) * (LANE + GAP)
    kinds = [k for k in COLORS if any(e[2] == k for _, events in lanes for e in events)]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + FOOT + 24}" '
           'font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>']
    for at in range(0, int(span) + 1, tick(span)):
        x = LEFT + at * scale
        out.append(f'<path d="M{x:.1f} {TOP - 4}V{bottom}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{at} ms</text>')
    for row, (name, events) in enumerate(lanes):
        y = TOP + row * (LANE + GAP)
        out.append(f'<text x="{LEFT - 8}" y="{y + LANE / 2 + 4}" text-anchor="end">{name}</text>')
        for start, length, kind in events:
            out.append(f'<rect x="{LEFT + (start - begin) * scale:.2f}" y="{y}" '
                       f'width="{max(length * scale, 0.3):.2f}" height="{LANE}" '
                       f'fill="{COLORS.get(kind, OTHER)}"/>')
    x = LEFT
    for kind in kinds:
        out.append(f'<rect x="{x}" y="{bottom + FOOT}" width="12" height="12" '
                   f'fill="{COLORS[kind]}"/>')
        out.append(f'<text x="{x + 16}" y="{bottom + FOOT + 11}">{kind}</text>')
        x += 28 + 7 * len(kind)
    return '\n'.join(out + ['</svg>', ''])


def main():
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit(__doc__)
    lanes = load(sys.argv[1], int(sys.argv[2]))
    if not lanes:
        sys.exit(f'{sys.argv[1]} has no step {sys.argv[2]}')
    sys.stdout.write(draw(lanes, f'Step {sys.argv[2]}: what each lane did when'))


if __name__ == '__main__':
    main()
