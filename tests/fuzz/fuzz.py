#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks for inputs that a reader does not survive.

    fuzz.py BUILD SECONDS [--jobs N] [--only TARGET[,TARGET]] [--keep FOLDER] [--hang SECONDS]

BUILD is a build with -Dfuzz=true. Each target runs for SECONDS of wall time, N at a time (default:
half of the cores), from its seeds and what earlier runs kept in FOLDER/TARGET/corpus (default:
BUILD/fuzz). A finding is kept in FOLDER/TARGET/found, and ends that target's run:
`BUILD/tests/fuzz/fuzz_TARGET FILE` shows it again. An input that takes longer than --hang (10 s of
wall time: more on a machine that stops processes now and then) is one.

How each went is told in a line that begins with "==> ", which ./run shows.

exit 0: nothing was found; 1: something was.
"""
import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

TARGETS = ('safetensors', 'index', 'config', 'hjson', 'ds_config', 'machine', 'tokens', 'documents',
           'store', 'options')
DICTIONARIES = ('ds_config',)  # TARGET.dict: words that its inputs are made of
LIMITS = ('-rss_limit_mb=2048', '-max_len=4096', '-print_final_stats=1')


def fuzz(build, keep, target, seconds, hang):
    """Runs one target. -> a line on how it went, whether something was found."""
    binaries = os.path.abspath(os.path.join(build, 'tests', 'fuzz'))
    corpus = os.path.join(keep, target, 'corpus')
    found = os.path.join(keep, target, 'found')
    log = os.path.join(keep, target, 'log.txt')
    os.makedirs(corpus, exist_ok=True)
    os.makedirs(found, exist_ok=True)
    words = [f'-dict={binaries}/{target}.dict'] if target in DICTIONARIES else []
    print(f'fuzz/{target}: for {seconds} s', flush=True)
    with open(log, 'w', encoding='utf-8') as out:
        with subprocess.Popen(
            [os.path.join(binaries, f'fuzz_{target}'), f'-max_total_time={seconds}',
             f'-timeout={hang}', f'-report_slow_units={hang}', *LIMITS, *words,
             f'-artifact_prefix={found}/', corpus, os.path.join(binaries, 'seeds', target)],
            stdout=out, stderr=out) as child:
            _, waited, usage = os.wait4(child.pid, 0)
            status = child.returncode = os.waitstatus_to_exitcode(waited)
    with open(log, encoding='utf-8', errors='replace') as f:
        told = f.read()
    runs = re.findall(r'number_of_executed_units: (\d+)', told)
    edges = re.findall(r' cov: (\d+) ', told)
    counters = sum(map(int, re.findall(r'\((\d+) inline 8-bit counters\)', told)))
    line = (f'fuzz/{target}: {int(runs[-1]) if runs else 0:,} inputs in {seconds} s '
            f'({usage.ru_utime + usage.ru_stime:.0f} s of CPU), '
            f'{edges[-1] if edges else 0} of {counters} edges, '
            f'{len(os.listdir(corpus))} inputs kept')
    if status == 0:
        return line + ': nothing found', False
    errors = re.findall(r'^.*(?:ERROR: |runtime error: |not so: ).*$', told, re.M)
    return f'{line}: FOUND {errors[0] if errors else f"exit {status}"} (see {log})', True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('build')
    parser.add_argument('seconds', type=int)
    parser.add_argument('--jobs', type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument('--only', default=','.join(TARGETS))
    parser.add_argument('--keep')
    parser.add_argument('--hang', type=int, default=10)
    arguments = parser.parse_args()
    keep = os.path.abspath(arguments.keep or os.path.join(arguments.build, 'fuzz'))
    targets = arguments.only.split(',')
    unknown = [t for t in targets if t not in TARGETS]
    if unknown:
        parser.error(f'unknown target {unknown[0]}; known: {" ".join(TARGETS)}')
    bad = False
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for line, is_bad in pool.map(
                lambda target: fuzz(arguments.build, keep, target, arguments.seconds,
                                    arguments.hang), targets):
            print(f'==> {line}', flush=True)
            bad = bad or is_bad
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
