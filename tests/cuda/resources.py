#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each CUDA kernel uses of each card that the plugin has code for, and whether that is right.

    resources.py BUILD            checks; exit 1 names what is wrong
    resources.py BUILD --table    prints the table of docs/results/cuda-kernels.md

Registers, spills and static shared memory are the compiler's (BUILD/kernels/cuda/*.resources.json,
made by kernels/cuda/compile.py). Threads of a block, and how many blocks a multiprocessor is
promised to hold, are the kernel's __launch_bounds__. Dynamic shared memory, and which kernel a
card gets at all, come from the launchers themselves, run on the double of each card (LAUNCHES, in
tests/simt). Blocks that fit are NVIDIA's cuda_occupancy.h (tests/simt/occupancy.cpp).
"""
import argparse
import collections
import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

PAGE = 'docs/results/cuda-kernels.md'
PAGE_HEAD = re.compile(r'^Compiled by nvcc (\S+):', re.M)

# Programs that launch kernels, each in every way.
LAUNCHES = ('attention_launches', 'matmul_launches')
# Kernels that may spill: (name, most bytes of stack, why).
SPILLS = (
    (r'k_attention_any_dkv<\w+, true>', 64, 'the next, of documents'),
    (r'k_attention_any<(bf16|f16), true>', 8, 'the same'),
    (r'k_attention_any_dkv<', 48, 'f32, and head_dims without tensor cores: not what is trained'),
    (r'k_attention_any_dq<', 8, 'the same'),
    (r'k_embedding_backward<bf16, 1>', 8, 'rows that are not aligned, on 12.0 alone'),
)

Use = collections.namedtuple('Use', 'kernel card threads registers stack static dynamic promised '
                             'blocks')


def skip(why):
    print(f'skipped: {why}')
    sys.exit(77)


def card_of(architecture):
    """'sm_120' is '12.0'."""
    number = architecture.removeprefix('sm_')
    return f'{number[:-1]}.{number[-1]}'


def plain_name(demangled):
    """Without return type and parameters, element types as the project calls them."""
    name = demangled.removeprefix('void ')
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += {')': 1, '(': -1}.get(name[place], 0)
        if name[place] == '(' and not depth:
            name = name[:place]
            break
    for old, new in (('__nv_bfloat16', 'bf16'), ('__half', 'f16'), ('float', 'f32'), (' >', '>')):
        name = name.replace(old, new)
    return name


def run(command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def compiled_kernels(build):
    """(the compiler's version, the rows of all files with names as the source has them)."""
    files = sorted(glob.glob(os.path.join(build, 'kernels/cuda/*.resources.json')))
    if not files:
        skip('this build has no kernels by nvcc (kernels/cuda/*.resources.json)')
    rows, compilers = {}, set()
    for path in files:
        with open(path, encoding='utf-8') as f:
            content = json.load(f)
        compilers.add(content['compiler'])
        for row in content['kernels']:  # k_add_sums is in two files
            if rows.setdefault((row['kernel'], row['architecture']), row) != row:
                sys.exit(f"{row['kernel']} differs between two files")
    rows = list(rows.values())
    names = run(['c++filt'], input='\n'.join(r['kernel'] for r in rows)).splitlines()
    for row, name in zip(rows, names):
        row['name'] = plain_name(name)
    return ' and '.join(sorted(compilers)), rows


def symbols(program):
    """{offset: names} of a program's functions."""
    found = collections.defaultdict(set)
    for line in run(['nm', '-C', '--defined-only', program]).splitlines():
        offset, kind, name = line.split(' ', 2)
        if kind in 'tT':
            found[int(offset, 16)].add(plain_name(name))
    return found


def launches_of(program, card):
    """The same of one program."""
    with tempfile.TemporaryDirectory() as folder:
        noted = os.path.join(folder, 'launches')
        environment = {**os.environ, 'HST_FAKE_CUDA': f'cc={card}', 'HST_SIMT_LAUNCHES': noted,
                       'HST_SIMT_SCHEDULE': 'ahead'}
        text = run([program], env=environment)
        with open(noted, encoding='utf-8') as f:
            lines = f.read().splitlines()
    names, found = symbols(program), collections.defaultdict(set)
    for line in lines:
        _, offset, threads, dynamic = line.split('\t')
        for name in names[int(offset, 16)]:
            found[name].add((int(threads), int(dynamic)))
    return found, dict(line.split()[1:] for line in text.splitlines())


def launches_on(build, card):
    """({kernel: {(threads, dynamic bytes)}}, {case: hash of its results}) of one card."""
    found, results = {}, {}
    for name in LAUNCHES:
        kernels, cases = launches_of(os.path.join(build, 'tests/simt', name), card)
        found.update(kernels)
        results.update(cases)
    return found, results


def blocks_on(build, card, questions):
    """How many blocks fit a multiprocessor; a question is (threads, registers, static, dynamic)."""
    text = run([os.path.join(build, 'tests/simt/occupancy')],
               env={**os.environ, 'HST_FAKE_CUDA': f'cc={card}'},
               input=''.join('{} {} {} {}\n'.format(*q) for q in questions))
    return [int(line) for line in text.split()]


def uses_on(build, card, rows, launches):
    """What each kernel uses that the card is given; of the others, whose shared memory is static
    and whose block is what __launch_bounds__ says, the most."""
    asked = []
    for row in rows:
        blocks = launches.get(row['name'], ()) if row['dynamic'] else ((row['threads'] or 1, 0),)
        asked += [(row, *block) for block in sorted(blocks)]
    fits = blocks_on(build, card, [(threads, row['registers'], row['shared_bytes'], dynamic)
                                   for row, threads, dynamic in asked])
    return [Use(row['name'], card, threads, row['registers'],
                max(row[k] for k in ('stack_bytes', 'spill_store_bytes', 'spill_load_bytes')) and
                max(row['stack_bytes'], 1), row['shared_bytes'], dynamic, row['blocks'], fit)
            for (row, threads, dynamic), fit in zip(asked, fits)]


def faults_of_use(use):
    """What is wrong with one kernel on one card."""
    where = f'{use.kernel} on {use.card}'
    spill = next((s for s in SPILLS if re.match(s[0], use.kernel)), (None, 0, ''))
    if use.stack > spill[1]:
        yield f'{where} spills: {use.stack} bytes of stack, {spill[1]} allowed'
    if use.threads * use.registers > 65536:
        yield f'{where}: {use.threads} threads of {use.registers} registers exceed 65,536'
    if not use.blocks:
        yield (f'{where} cannot be launched: {use.threads} threads, {use.registers} registers, '
               f'{use.static} + {use.dynamic} bytes of shared memory')
    if 0 < use.blocks < use.promised:
        yield (f'{where}: a multiprocessor holds {use.blocks} blocks, __launch_bounds__ promises '
               f'{use.promised}')


def faults_of_launches(rows, launches):
    """Launches that do not fit what was compiled, and kernels that nobody launched."""
    compiled = {row['name']: row for row in rows}
    for card, kernels in launches.items():
        for name, blocks in sorted(kernels.items()):
            row = compiled.get(name)
            if row is None:
                yield f'{name} is launched on {card} and not among the compiled'
                continue
            for threads, dynamic in sorted(blocks):
                if row['threads'] and threads > row['threads']:
                    yield (f'{name} is launched on {card} with {threads} threads, compiled for '
                           f"{row['threads']}")
                if dynamic and not row['dynamic']:
                    yield f'{name} is given {dynamic} bytes on {card} and uses no dynamic memory'
    for name, row in sorted(compiled.items()):
        if row['dynamic'] and not any(name in kernels for kernels in launches.values()):
            yield f'{name} uses dynamic shared memory, and none of {LAUNCHES} launches it'


def faults_of_architectures(build, rows):
    """Kernels without code for a card that the plugin names."""
    with open(os.path.join(build, 'kernels/cuda/cuda_config.h'), encoding='utf-8') as f:
        named = set(re.findall(r'sm_\d+', f.read()))
    have = collections.defaultdict(set)
    for row in rows:
        have[row['name']].add(row['architecture'])
    for name, architectures in sorted(have.items()):
        if architectures != named:
            yield f'{name} is compiled for {sorted(architectures)}, not for {sorted(named)}'


def faults_of_bytes(results):
    """Results that depend on the card."""
    (first, expected), *others = results.items()
    for card, got in others:
        for case in sorted(expected):
            if got.get(case) != expected[case]:
                yield f'{case} has other bytes on {card} than on {first}'


def table(compiler, uses, cards):
    """The page's table: a row for each kernel, a column for each card."""
    kernels = collections.defaultdict(dict)
    for use in uses:
        kernels[use.kernel, use.threads, use.static + use.dynamic][use.card] = use
    lines = [f'Compiled by nvcc {compiler}:', '',
             '| kernel | threads | shared, bytes | ' + ' | '.join(cards) + ' |',
             '|---|---|---|' + '---|' * len(cards)]
    for (kernel, threads, shared), by_card in sorted(kernels.items()):
        cells = []
        for card in cards:
            use = by_card.get(card)
            cells.append(f'{use.registers} · {use.blocks}'
                         + (f' · {use.stack} B' if use.stack else '') if use else '–')
        lines.append(f'| `{kernel}` | {threads} | {shared} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def faults_of_page(text):
    """Whether the page has this table; only where it is by the same compiler."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..')
    with open(os.path.join(root, PAGE), encoding='utf-8') as f:
        page = f.read()
    compilers = [PAGE_HEAD.search(t) for t in (text, page)]
    if compilers[1] is None:
        yield f'{PAGE} has no line "Compiled by nvcc VERSION:"'
    elif compilers[0][1] != compilers[1][1]:
        print(f'{PAGE} is by nvcc {compilers[1][1]}, this build by {compilers[0][1]}: not compared')
    elif text not in page:
        yield f'{PAGE} has another table than tests/cuda/resources.py BUILD --table prints'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('build')
    parser.add_argument('--table', action='store_true')
    args = parser.parse_args()
    compiler, rows = compiled_kernels(args.build)
    for tool in ('c++filt', 'nm'):
        if not shutil.which(tool):
            skip(f'{tool} (binutils) is not installed')
    if not os.path.exists(os.path.join(args.build, 'tests/simt/occupancy')):
        skip('this build has no double, or the toolkit no cuda_occupancy.h')
    architectures = sorted({row['architecture'] for row in rows}, key=lambda a: int(a[3:]))
    cards = [card_of(a) for a in architectures]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ran = dict(zip(cards, pool.map(lambda card: launches_on(args.build, card), cards)))
    launches = {card: found for card, (found, _) in ran.items()}
    uses = []
    for architecture, card in zip(architectures, cards):
        uses += uses_on(args.build, card, [r for r in rows if r['architecture'] == architecture],
                        launches[card])
    text = table(compiler, uses, cards)
    if args.table:
        print(text, end='')
        return 0
    faults = [fault for use in uses for fault in faults_of_use(use)]
    faults += faults_of_launches(rows, launches)
    faults += faults_of_architectures(args.build, rows)
    faults += faults_of_bytes({card: results for card, (_, results) in ran.items()})
    faults += faults_of_page(text)
    for fault in faults:
        print(fault)
    print(f'{len({row["name"] for row in rows})} kernels, {len(cards)} architectures, '
          f'{len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
