#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exact sums of doubles, beside Python's math.fsum, which is correctly rounded too.

    exact.py EXACT_SUM [SEED]
"""
import math
import random
import struct
import subprocess
import sys

LINES = 10000


def any_double(draw):
    """Of any exponent, subnormal numbers among them; never so large that a sum overflows."""
    bits = draw.getrandbits(64) & ~(0x7ff << 52) | draw.choice(
        (0, 1, 2, 900, 1000, 1022, 1023, 1024, 1100, 2000, draw.randrange(2030))) << 52
    return struct.unpack('<d', struct.pack('<Q', bits))[0]


def terms(draw):
    kind, count = draw.randrange(7), draw.randrange(1, 60)
    if kind == 0:
        return [any_double(draw) for _ in range(count)]
    if kind == 1:  # a tie of the rounding, and what decides it far below
        return [2.0**53, 1.0, draw.choice((0.0, 2.0**-1074, -2.0**-1074))]
    if kind == 2:  # nearly all of it cancels
        some = [any_double(draw) for _ in range(count)]
        return some + [-x for x in some] + [any_double(draw)]
    if kind == 3:
        return [draw.choice((-1, 1)) * draw.random() for _ in range(count)]
    if kind == 4:
        return [draw.choice((-1, 1)) * draw.randrange(9) * 2.0**-1074 for _ in range(count)]
    if kind == 5:
        return [-abs(any_double(draw)) for _ in range(count)]
    some = [any_double(draw) for _ in range(count)]
    odd = (math.inf, -math.inf, math.nan)
    return some + [draw.choice(odd) for _ in range(draw.randrange(1, 4))]


def right_sum(line):
    """fsum refuses infinities of both signs."""
    odd = {x for x in line if math.isinf(x)}
    if any(math.isnan(x) for x in line) or len(odd) == 2:
        return math.nan
    return odd.pop() if odd else math.fsum(line)


def main(program, seed=None):
    seed = int(seed) if seed is not None else random.randrange(1 << 32)
    print('seed', seed)
    draw = random.Random(seed)
    lines = [terms(draw) for _ in range(LINES)]
    want = [right_sum(line) for line in lines]
    inf, nan = math.inf, math.nan
    lines += [[1.0, inf], [-inf, 1.0, -inf], [inf, -inf], [nan, 1.0], [nan, inf],
              [1.7e308, 1.7e308], [-1.7e308, -1.7e308], [1.7e308, 1.7e308, -1.7e308]]
    want += [inf, -inf, nan, nan, nan, inf, -inf, 1.7e308]
    wrong = 0
    for ranks in (1, 2, 3, 7):
        for line in lines:
            draw.shuffle(line)
        text = '\n'.join(' '.join(x.hex() for x in line) for line in lines) + '\n'
        done = subprocess.run([program, str(ranks)], input=text, capture_output=True, text=True,
                              check=True)
        got = [float.fromhex(word) for word in done.stdout.split()]
        assert len(got) == len(want)
        for line, mine, right in zip(lines, got, want):
            if mine != right and not (math.isnan(mine) and math.isnan(right)):
                print(f'{ranks} ranks: {mine.hex()}, want {right.hex()}: {line}')
                wrong += 1
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
