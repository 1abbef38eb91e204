#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that needs a GPU, in calls of less than eight minutes, and one report of it.

    ./run gpu [PART...] [--continue] [--out FOLDER] [--device cuda:0] [--smoke] [--seconds 470]

PART: facts doctor triage suite losses kernels gemm attention layer train ranks offload
three-tiers largest memcheck cudnn peer. A word stands for all parts that begin with it. Without
PART all run but the peers. docs/gpu-suite.md, which is a bundle's README.md, says what each does.

--continue       goes on with the report in FOLDER, if it is of the same commit and machine:
                 without PART with what had no time, else with these parts anew
--out FOLDER     has report.md and report.json, written anew after each part, and logs/ of all
                 commands; default build/gpu-report, in a bundle gpu-report
--device cuda:N  the card
--smoke          tiny shapes, once each, for a device that is interpreted: it measures nothing
--seconds N      the limit of the call; each part has its own limit, too

Exit status:
  0    nothing failed: goals that were missed and parts that cannot run here are told, not failed
  1    something failed, or the conformance suite had no time
  2    wrong arguments, or a FOLDER that cannot be used
  77   there is no such device, or no Python
  128+ a signal's number: SIGTERM, SIGINT or SIGHUP ended it and all that it ran
"""
import argparse
import contextlib
import json
import os
import re
import sys
import tempfile
import time
from functools import partial

import machine
import offload
import out_folder
import parts
import peers
import place
import ranks
import training
from runner import FIGURE, PART, TEST, Runner
from stop import Stopped, stop

# name -> (function, seconds at most), by what is worth most: a call may be the only one.
PARTS = {
    'facts': (parts.facts, 10),
    'doctor': (parts.doctor, 40),
    'triage': (parts.triage, 45),
    'suite': (parts.suite, 90),
    'losses': (parts.losses, 90),
    'kernels': (parts.kernels, 40),
    'gemm': (parts.gemm, 45),
    'attention': (parts.attention, 45),
    'layer': (parts.layer, 30),
    'offload-bytes-small': (partial(offload.offload_bytes, which='small'), 60),
    'train-1b': (parts.train_1b, 60),
    'train-3b': (parts.train_3b, 75),
    'ranks': (ranks.ranks, 90),
    **{f'offload-{shape}-{batch}-{mode}': (partial(offload.offload, shape=shape, batch=batch,
                                                   mode=mode), 300)
       for shape, batch in (('8b', '32k'), ('8b', '8k'), ('8b', '128k'), ('3b', '8k'),
                            ('3b', '32k'), ('3b', '128k')) for mode in offload.MODES},
    'three-tiers': (partial(offload.three_tiers, small_card=False), 460),
    'three-tiers-24g': (partial(offload.three_tiers, small_card=True), 460),
    'largest': (offload.largest, 460),
    **{f'offload-bytes-{which}': (partial(offload.offload_bytes, which=which), 440)
       for which in offload.BYTES if which != 'small'},
    'memcheck': (parts.memcheck, 90),
    'cudnn': (parts.cudnn, 240),
    **{'peer-' + name: (part, 240) for name, part in (
        ('1b', partial(peers.torch, shape='1b')), ('3b', partial(peers.torch, shape='3b')),
        ('zero2-3b', partial(peers.deepspeed, shape='3b', stage=2)),
        ('zero3-8b', partial(peers.deepspeed, shape='8b', stage=3)),
        ('llmq-3b', partial(peers.llmq, shape='3b', offloads=False)),
        ('llmq-8b', partial(peers.llmq, shape='8b', offloads=True)))},
}
# Run where they are asked for alone: they say nothing of hoistway, and compile for minutes.
OWN_CALL = tuple(name for name in PARTS if name.startswith('peer-'))
AT_THE_END = 'predictions'  # of all runs of the report; takes no time
LEAST_S = 5  # with less than that left, a part is not begun
# A part that may take longer is begun where this share of its limit is left: cut short, it would
# take the weights from the disk once more for little.
LONG_S, LONG_SHARE = 120, 0.5


def chosen(wishes):
    """The parts that a word stands for: its own name, or what comes before a dash."""
    names = []
    for wish in wishes:
        found = [name for name in PARTS if name == wish or name.startswith(wish + '-')]
        if not found:
            message = f"gpu: unknown part '{wish}'; known: {' '.join(PARTS)}"
            print(message, file=sys.stderr)
            sys.exit(2)
        names += found
    return [name for name in PARTS if name in names]


def begun(arguments):
    """A report without parts, or, with --continue, the one that is there of this commit and
    machine."""
    report = {
        'command': ' '.join(['./run gpu', *sys.argv[1:]]), 'commit': place.commit(),
        'begun': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()), 'smoke': arguments.smoke,
        'machine': machine.describe(arguments.device, place.environment()), 'facts': {},
        'concerns': [], 'doctor': [], 'parts': [], 'seconds': 0.0,
        'kept': {'chosen': {}, 'best_product': None, 'tokens_per_s': {}, 'resident': {},
                 'predicted': {}, 'digests': {}, 'load_s_per_parameter': {}, 'offloaded': {}},
    }
    path = os.path.join(arguments.out, 'report.json')
    if not arguments.go_on or not os.path.exists(path):
        return report
    earlier = out_folder.load(path)
    other = [key for key in ('commit', 'smoke') if earlier[key] != report[key]]
    other += [key for key, value in report['machine'].items()
              if machine.lasting(earlier['machine'].get(key)) != machine.lasting(value)]
    if other:
        print(f"gpu: {path} is not gone on from, it is of another {', '.join(other)}",
              file=sys.stderr)
        return report
    out_folder.check(path, earlier, {
        **report, 'parts': [{**PART, 'tests': [TEST], 'figures': [FIGURE]}], 'concerns': [''],
        'doctor': [{'name': '', 'found': ''}]})
    if report['command'] not in earlier['command']:
        earlier['command'] += '; ' + report['command']
    return earlier


def lacking(report):
    """Names of the parts that a report does not have, or had too little time for."""
    done = {part['name'] for part in report['parts'] if not part['short_of_time']}
    return [name for name in PARTS if name not in done and name not in OWN_CALL]


def value_text(value, unit):
    if value is None:
        return '–'
    if unit in ('B', 'B/s', 'FLOP/s'):
        scale, letter = next(((s, n) for s, n in ((1e12, 'T'), (1e9, 'G'), (1e6, 'M'))
                              if value >= s), (1, ''))
        return f'{value / scale:.4g} {letter}{unit}'
    return f'{value:.4g} {unit}'.strip()


def share(value):
    return '–' if value is None else f'{100 * value:.1f} %'


def met_text(figure):
    if figure['goal'] is None:
        return '–'
    told = {True: ': met', False: ': MISSED', None: ''}[figure['met']]
    return f"≥ {figure['goal']:g}{told}"


def markdown(report):
    smoke = ' **A smoke run: the figures measure nothing.**' if report['smoke'] else ''
    lines = ['# GPU report', '', f"{report['verdict']}.{smoke}", '']
    lines += [f'- {line}' for line in report['concerns']] + [''] * bool(report['concerns'])
    lines += ['| | |', '|---|---|']
    facts = {'commit': report['commit'], 'begun': report['begun'],
             'seconds': f"{report['seconds']:.0f}", 'command': f"`{report['command']}`"}
    for name, value in {**facts, **report['machine']}.items():
        if isinstance(value, dict):
            value = ', '.join(f'{k} {v}' for k, v in value.items()) or 'not found'
        lines.append(f'| {name} | {value} |')
    lines += [f'| {name} | {value} |' for name, value in report['facts'].items()]
    for check in report['doctor']:
        lines.append(f"| {check['name']} | {check['found']} |")
    for part in report['parts']:
        lines += ['', f"## {part['name']}: {part['result']} ({part['seconds']:.1f} s)", '']
        if part['why']:
            lines += [part['why'], '']
        if part['tests']:
            lines += ['| test | result | seconds | |', '|---|---|---|---|']
            lines += [f"| {t['name']} | {t['result']} | {t['seconds']:.1f} | {t['why']} |"
                      for t in part['tests']] + ['']
        if part['figures']:
            lines += ['| figure | value | ceiling | fraction | range | goal | |',
                      '|---|---|---|---|---|---|---|']
            lines += [figure_row(f) for f in part['figures']] + ['']
        lines += ['```', *dict.fromkeys(part['commands']), '```'] if part['commands'] else []
    return '\n'.join(lines) + '\n'


def figure_row(f):
    ceiling = value_text(f['ceiling'], f['unit'])
    if f['ceiling'] is not None and f['ceiling_name']:
        ceiling += f" ({f['ceiling_name']})"
    spread = ('–' if f['least'] is None else
              f"{value_text(f['least'], f['unit'])} to {value_text(f['most'], f['unit'])}")
    return (f"| {f['name']} | {value_text(f['value'], f['unit'])} | {ceiling} "
            f"| {share(f['fraction'])} | {spread} | {met_text(f)} | {f['note'] or ''} |")


def verdict(report):
    tests = [t['result'] for part in report['parts'] for t in part['tests']]
    failed = [part['name'] for part in report['parts'] if part['result'] == 'failed']
    goals = [f['met'] for part in report['parts'] for f in part['figures'] if f['met'] is not None]
    text = (f"{tests.count('passed')} tests passed, {tests.count('failed')} failed, "
            f"{tests.count('skipped')} skipped; {goals.count(True)} goals met, "
            f"{goals.count(False)} missed")
    return text + (f"; failed parts: {', '.join(failed)}" if failed else '')


def write(report, folder):
    report['verdict'] = verdict(report)
    for name, text in (('report.json', json.dumps(report, indent=1) + '\n'),
                       ('report.md', markdown(report))):
        path = os.path.join(folder, name)
        with out_folder.writing(path):
            with open(path + '.new', 'w', encoding='utf-8') as file:
                file.write(text)
            os.replace(path + '.new', path)


def finish_part(runner, name, left_s, whole_s):
    """whole_s: what a call has; a part that may take longer than that is begun all the same."""
    function, limit_s = PARTS[name]
    least_s = LEAST_S if limit_s <= LONG_S else LONG_SHARE * min(limit_s, whole_s)
    if left_s < max(LEAST_S, least_s):
        runner.begin(name, 0)
        return runner.end(result='skipped', why='no time was left', short_of_time=True)
    # limits are for a card: what interprets it takes as long as the machine's load lets it
    part = runner.begin(name, left_s if runner.smoke else min(limit_s, left_s))
    try:
        function(runner)
    except training.Skipped as skipped:
        part.update(result='skipped', why=str(skipped))
    except out_folder.Unusable:
        raise
    except Exception as error:  # a part that breaks must not take the others with it
        part.update(result='failed', why=f'{type(error).__name__}: {error}')
    part['short_of_time'] &= left_s < limit_s  # with all its time it would be so again
    return runner.end()


def run_part(runner, name, left_s, whole_s):
    """As finish_part; one that a signal ends is what it has told so far, and runs again."""
    try:
        return finish_part(runner, name, left_s, whole_s)
    except Stopped as stopped:
        if runner.part is None:
            raise
        return runner.end(result='skipped', why=str(stopped), short_of_time=True)


def put(report, part):
    """In the order of PARTS; in the place of an earlier one."""
    known = {**{p['name']: p for p in report['parts']}, part['name']: part}
    report['parts'] = [known[name] for name in (*PARTS, AT_THE_END) if name in known]


def parse_arguments():
    parser = argparse.ArgumentParser(prog='gpu', usage=__doc__.split('\n')[2].strip(),
                                     add_help=False)
    parser.add_argument('-h', '--help', action='store_true')
    default = 'gpu-report' if place.IN_BUNDLE else 'build/gpu-report'
    parser.add_argument('parts', nargs='*')
    parser.add_argument('--continue', action='store_true', dest='go_on')
    parser.add_argument('--out', default=os.path.join(place.ROOT, default))
    parser.add_argument('--device', default='cuda:0')
    parser.add_argument('--smoke', action='store_true')
    parser.add_argument('--seconds', type=float, default=470)
    arguments = parser.parse_args()
    if arguments.help:
        print(__doc__.strip())
        sys.exit(0)
    if not re.fullmatch('cuda(:[0-9]+)?', arguments.device):
        print(f'gpu: --device takes cuda or cuda:INDEX (got {arguments.device!r})', file=sys.stderr)
        sys.exit(2)
    chosen(arguments.parts)
    return arguments


def run_parts(runner, report, arguments, begin):
    earlier_s = report['seconds']
    for name in chosen(arguments.parts) if arguments.parts else lacking(report):
        left_s = arguments.seconds - (time.monotonic() - begin)
        print(f'==> {name}', flush=True)
        part = run_part(runner, name, left_s, arguments.seconds)
        with stop:
            put(report, part)
            report['seconds'] = earlier_s + time.monotonic() - begin
            write(report, arguments.out)
        print(f"    {part['result']} in {part['seconds']:.1f} s"
              + (f": {part['why']}" if part['why'] else ''), flush=True)
    if report['kept']['predicted']:
        runner.begin(AT_THE_END, 0)
        offload.predictions(runner)
        put(report, runner.end())
        write(report, arguments.out)


def call(report, arguments, begin):
    place.chosen = report['kept']['chosen']
    with stop:
        scratch = tempfile.TemporaryDirectory(prefix='hoistway-gpu-')
    try:
        runner = Runner(arguments, scratch.name, report)
        runner.begin('opening', 60)
        absent = parts.why_absent(runner)
        runner.end()
        if absent:
            return tell_absent(runner, report, arguments, absent)
        for line in machine.concerns(report['machine']['nvidia-smi']):
            runner.concern(line)
        run_parts(runner, report, arguments, begin)
    finally:
        with stop:
            scratch.cleanup()
    return tell_end(report, arguments)


def main():
    arguments, begin, report = parse_arguments(), time.monotonic(), None
    stop.install()
    try:
        out_folder.prepare(arguments.out)
        report = begun(arguments)
        return call(report, arguments, begin)
    except out_folder.Unusable as unusable:
        print(f'gpu: {unusable}', file=sys.stderr)
        return 2
    except Stopped as stopped:
        return tell_stopped(stopped, report, arguments)


def tell_stopped(stopped, report, arguments):
    path = os.path.join(arguments.out, 'report.md')
    told = f'{path} has what was told' if report and report['parts'] else 'no part was begun'
    with contextlib.suppress(OSError):  # the terminal may be what has gone
        print(f'gpu: {stopped}; {told}. --continue goes on from there', file=sys.stderr, flush=True)
    return 128 + stopped.number


def measured(path):
    """Whether a report is there that has more than the facts."""
    try:
        earlier = out_folder.load(path)
    except out_folder.Unusable:  # none, or none of ours
        return False
    if out_folder.unlike(earlier, {'parts': [{'name': ''}]}):
        return False
    return any(part['name'] != 'facts' for part in earlier['parts'])


def tell_absent(runner, report, arguments, absent):
    """Without the device a report has what explains it; one that has measured something stays."""
    line = f'{arguments.device} cannot be used: {absent}'
    print(f'gpu: {line}', file=sys.stderr)
    path = os.path.join(arguments.out, 'report.json')
    if not measured(path):
        report['concerns'] = [line, *machine.concerns(report['machine']['nvidia-smi'])]
        put(report, run_part(runner, 'facts', arguments.seconds, arguments.seconds))
        write(report, arguments.out)
        print(os.path.join(arguments.out, 'report.md'))
    return 1 if absent.startswith('exit -') else 77  # ended by a signal: not just absent


def tell_end(report, arguments):
    print(f"{verdict(report)}\n{os.path.join(arguments.out, 'report.md')}")
    left = lacking(report)
    if left and not arguments.parts:
        print(f"left for ./run gpu --continue: {' '.join(left)}")
    results = {part['name']: part['result'] for part in report['parts']}
    return 1 if 'failed' in results.values() or results.get('suite') == 'skipped' else 0


if __name__ == '__main__':
    sys.exit(main())
