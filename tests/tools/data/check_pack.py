#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do packed rows have what they should, by a packer that shares nothing with tools/data/pack.c?

    check_pack.py PACK_PIECES [--rounds N] [--seed N]

PACK_PIECES is the program of pack_pieces.c. Of random documents: each input that is not lost stands
in one place, rows and columns have no holes, no row is longer than T, and the rows of each window
are as full as those of best fit decreasing over a sorted list.
"""
import argparse
import bisect
import random
import subprocess

WINDOW = 65536
MASK = (1 << 64) - 1


# ---- the seeded order, as tools/data/order.c describes it ----

def mix(x):
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ x >> 27) * 0x94d049bb133111eb & MASK
    return x ^ x >> 31


def order(seed, count):
    """The documents in the order of pass 0."""
    golden = 0x9e3779b97f4a7c15
    key = mix(mix((seed + golden) & MASK))
    bits = 2
    while count and (count - 1) >> bits:
        bits += 2
    half = bits // 2
    low = (1 << half) - 1
    rounds = [(key + golden * (r + 1)) & MASK for r in range(6)]
    for k in range(count):
        while True:
            left, right = k >> half, k & low
            for r in rounds:
                left, right = right, left ^ mix((r + right) & MASK) & low
            k = left << half | right
            if k < count:
                break
        yield k


# ---- the oracle ----

def wanted(length, most, longer):
    """(first input, count) of each piece of a document, in its order."""
    inputs = max(length - 1, 0)
    if inputs > most and longer == 'drop':
        return []
    if longer == 'cut':
        inputs = min(inputs, most)
    return [(at, min(most, inputs - at)) for at in range(0, inputs, most)]


def fills(counts, most):
    """How full the rows of best fit decreasing are, sorted."""
    rooms, rows = [], []  # sorted: what is left in each row that is not full
    for count in sorted(counts, reverse=True):
        at = bisect.bisect_left(rooms, count)
        left = (rooms.pop(at) if at < len(rooms) else most) - count
        if left:
            bisect.insort(rooms, left)
        else:
            rows.append(most)
    return sorted(rows + [most - room for room in rooms])


def pack(program, lengths, most, longer, packed, seed):
    arguments = [program, str(most), longer, packed, str(seed)]
    return subprocess.run(arguments, input=' '.join(map(str, lengths)), capture_output=True,
                          text=True, check=False)


def table(done):
    head, *pieces = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    return head, pieces


def check_rows(pieces, row_count, most):
    """Rows one after another from 0, each from column 0 on without a hole. -> how full each is."""
    rows = []
    for _, _, row, column, count in pieces:
        assert count > 0
        if row == len(rows):
            rows.append(0)
        assert row == len(rows) - 1 and column == rows[row], (row, column)
        rows[row] += count
    assert len(rows) == row_count and all(full <= most for full in rows)
    return rows


def check_coverage(pieces, lengths, most, longer):
    offsets, at = [], 0
    for length in lengths:
        offsets.append(at)
        at += length
    got = {}
    for document, first, _, _, count in pieces:
        got.setdefault(document, []).append((first - offsets[document], count))
    for document, length in enumerate(lengths):
        assert sorted(got.get(document, [])) == wanted(length, most, longer), document


def check_fill(pieces, rows, lengths, most, longer, packed, seed):
    """Window by window, whose rows follow one another."""
    documents = list(order(seed, len(lengths)))
    window_of = {}
    for k, document in enumerate(documents):
        window_of[document] = k // WINDOW
    row_window = {}
    for document, _, row, _, _ in pieces:
        assert row_window.setdefault(row, window_of[document]) == window_of[document]
    for window in range(-(-len(documents) // WINDOW)):
        counts = [count for document in documents[window * WINDOW:(window + 1) * WINDOW]
                  for _, count in wanted(lengths[document], most, longer)]
        got = sorted(rows[row] for row in row_window if row_window[row] == window)
        assert got == (fills(counts, most) if packed == 'on' else sorted(counts)), window


def check(program, lengths, most, longer, packed, seed):
    done = pack(program, lengths, most, longer, packed, seed)
    too_long = [i for i, length in enumerate(lengths) if length - 1 > most]
    if longer == 'refuse' and too_long:
        assert done.returncode == 3, done
        assert done.stdout.split() == [str(too_long[0]), str(lengths[too_long[0]] - 1)], done.stdout
        return None
    assert done.returncode == 0, done
    (row_count, inputs, longs, lost), pieces = table(done)
    assert inputs == sum(count for *_, count in pieces) and longs == len(too_long)
    assert inputs + lost == sum(max(length - 1, 0) for length in lengths)
    rows = check_rows(pieces, row_count, most)
    check_coverage(pieces, lengths, most, longer)
    check_fill(pieces, rows, lengths, most, longer, packed, seed)
    assert pack(program, lengths, most, longer, packed, seed).stdout == done.stdout
    return pieces


def random_lengths(rng, most):
    kind = rng.randrange(4)
    count = rng.choice([0, 1, 2, 10, 300])
    if kind == 0:  # many that fit, some that do not
        return [int(rng.lognormvariate(0, 1) * most / 4) for _ in range(count)]
    if kind == 1:  # the edges
        return [rng.choice([0, 1, 2, most, most + 1, most + 2, 2 * most + 1, 3 * most])
                for _ in range(count)]
    if kind == 2:  # all alike
        return [rng.randrange(2, most + 2)] * count
    return [rng.randrange(4 * most) for _ in range(count)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program')
    parser.add_argument('--rounds', type=int, default=60)
    parser.add_argument('--seed', type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f'--seed {options.seed}')
    rng = random.Random(options.seed)
    for _ in range(options.rounds):
        most = rng.choice([1, 2, 63, 64, 65, 100, 4096, 5000, 1 << 20])
        lengths = random_lengths(rng, most)
        for longer in ('split', 'cut', 'drop', 'refuse'):
            check(options.program, lengths, most, longer, rng.choice(['on', 'on', 'off']),
                  rng.randrange(1 << 64))
    lengths = [max(2, int(rng.lognormvariate(5.99, 0.9))) for _ in range(WINDOW + 3000)]
    first = check(options.program, lengths, 4096, 'split', 'on', 7)
    other = check(options.program, lengths, 4096, 'split', 'on', 8)
    assert first != other, 'the seed does not matter'
    assert pack(options.program, [3], 0, 'split', 'on', 1).returncode == 1
    assert pack(options.program, [3], (1 << 20) + 1, 'split', 'on', 1).returncode == 1
    print('all rows as they should be')


if __name__ == '__main__':
    main()
