# SPDX-License-Identifier: Apache-2.0
"""The parts of a GPU report: what each runs, and what it makes of the output."""
import concurrent.futures
import json
import os
import re
import shutil
import statistics
import sys

import conformance
import llama
import machine
import place
import training
from training import Failed, Skipped, json_lines, need

# The least fraction of a ceiling that is good; what is not here is told without a goal.
GOALS = {'both at once': 0.95, 'memory': 0.85, 'gemm': 0.95, 'own attention over cuDNN': 0.5,
         'ranks': 0.85, 'train over peer': 0.95}

CONFORMANCE = ('device', 'stream', 'matmul', 'rmsnorm', 'bias', 'elementwise', 'tokens', 'targets',
               'blocks', 'optimizer', 'documents', 'attention', 'ways', 'quantise')
PLANS_S = 150  # that cuDNN builds plans in the part of its own
SMOKE_CONFORMANCE = ('device', 'stream')  # tests/simt runs all of it on the double
MEMCHECK = (('memcheck', 'elementwise'), ('memcheck', 'rmsnorm'), ('racecheck', 'rmsnorm'),
            ('memcheck', 'tokens'), ('racecheck', 'tokens'), ('memcheck', 'blocks'),
            ('racecheck', 'blocks'), ('memcheck', 'optimizer'), ('memcheck', 'attention'),
            ('racecheck', 'attention'), ('memcheck', 'bias'), ('memcheck', 'documents'),
            ('racecheck', 'documents'), ('memcheck', 'ways'), ('racecheck', 'ways'),
            ('memcheck', 'quantise'), ('racecheck', 'quantise'))


def run_json(runner, arguments, settings=None):
    done = runner.command(arguments, settings)
    if done.code != 0:
        raise Failed(done.why())
    return json_lines(done.out)


# ---- the device ----------------------------------------------------------------------------------

def opens(runner, settings=None):
    """None where the device opens, else the reason. Asked of the smallest benchmark."""
    done = runner.command([need(place.program('hoistway'), 'hoistway'), 'bench', 'kernels',
                           '--device', runner.device, '--only', 'copies', '--smoke', '--json'],
                          settings)
    said = re.search(r'^error\[E2..\] (?:device "[^"]*" cannot be opened: )?(.*)$', done.err, re.M)
    return None if done.code == 0 else said.group(1) + done.whole() if said else done.why()


def go_on_with(runner, name, value, reason):
    """From here on, in this call and those that go on with it, unless the user has chosen."""
    place.chosen[name] = value
    runner.concern(f'going on with {name}={value}: {reason}')


def why_no_cublaslt(runner):
    return opens(runner, {'HOISTWAY_MATMUL': 'cublaslt'})


def why_no_cudnn(runner):
    return opens(runner, {'HOISTWAY_ATTENTION': 'cudnn'})


def why_absent(runner):
    """None where the device opens, else the reason. Where the plugin's search does not reach
    cuBLASLt or cuDNN this Python's packages are tried: on rented machines they are often the only
    ones."""
    absent = opens(runner)
    folders = '' if os.environ.get('HOISTWAY_CUDA_PATH') else place.look_into_python()
    if folders and 'was not found' in (absent or why_no_cublaslt(runner) or
                                       why_no_cudnn(runner) or ''):
        place.python_folders = folders
        again = opens(runner)
        if again and not absent:
            place.python_folders = ''  # a worse one than the system's
            return None
        absent = again
        print(f'==> libraries: export HOISTWAY_CUDA_PATH={folders}', flush=True)
    return without_cublaslt(runner, absent)


def without_cublaslt(runner, absent):
    """Where cuBLASLt is there and cannot be used, the rest is told without it."""
    if 'cublasLt' not in (absent or '') or os.environ.get('HOISTWAY_MATMUL'):
        return absent
    if opens(runner, {'HOISTWAY_MATMUL': 'own'}):
        return absent
    go_on_with(runner, 'HOISTWAY_MATMUL', 'own', absent)
    return None


def facts(runner):
    """What explains why nothing else ran. The driver's own page is in the log."""
    if shutil.which('nvidia-smi') and 'state' not in runner.report['machine']['nvidia-smi']:
        runner.command(['nvidia-smi', '-q'], limit_s=5)
    runner.report['facts'] = machine.facts(runner.scratch, place.environment())


def doctor(runner):
    """The doctor's rows about GPUs; its own verdict on the store is not asked."""
    done = runner.command([need(place.program('hoistway'), 'hoistway'), 'doctor', '--store',
                           runner.scratch, '--json'])
    told = json.loads(done.out or '{"checks": []}')['checks']
    names = [check['name'] for check in told]
    card = f"gpu {int(runner.device.partition(':')[2] or 0)}"
    if card not in names:
        raise Failed(done.why() if done.code else f'doctor names no {card}')
    first = next(i for i, name in enumerate(names) if name == 'gpu' or name.startswith('gpu '))
    runner.report['doctor'] = told[first:]
    used = machine.mebibytes(runner.report['machine']['nvidia-smi'].get('memory.used'))
    for check in runner.report['doctor']:
        known = used and re.fullmatch(r'gpu \d+', check['name'])  # told of the card's memory before
        if check['status'] != 'ok' and not known:
            fix = f". Fix: {check['fix']}" if check['fix'] else ''
            runner.concern(f"{check['name']}: {check['found']}{fix}")


# ---- tests ---------------------------------------------------------------------------------------

def losses(runner):
    """Losses of small models against the host's; and once more, the bits of the first time."""
    arguments = [sys.executable, os.path.join(place.HERE, 'losses.py'),
                 need(place.program('hoistway'), 'hoistway'), '--device', runner.device,
                 '--at-once', str(processes(runner)), *smoke_flag(runner)]
    done = runner.command(arguments)
    result = {0: 'passed', 77: 'skipped'}.get(done.code, 'failed')
    runner.test('losses', result, done.seconds, '' if result == 'passed' else done.why())
    if result != 'passed':
        return
    again = runner.command([*arguments, '--device-alone'])
    first, second = ([line for line in run.out.split('\n') if line.startswith('bits of ')]
                     for run in (done, again))
    same = again.code == 0 and first == second and first
    why = '' if same else f'{first} and {second}' if again.code == 0 else again.why()
    runner.test('losses, the same bits twice', 'passed' if same else 'failed', again.seconds, why)


def processes(runner):
    """How many may use the card at once: its compute mode can demand one."""
    mode = runner.report['machine']['nvidia-smi'].get('compute_mode', '')
    return 1 if 'Exclusive' in mode else min(4, os.cpu_count())


def suite(runner):
    """The conformance suite as it is, with own kernels for attention; products by both."""
    own = {'HOISTWAY_ATTENTION': 'own'}  # opening cuDNN takes time, and one unit needs it
    units = SMOKE_CONFORMANCE if runner.smoke else CONFORMANCE
    programs = {unit: place.program(f'test_kernels_{unit}') for unit in units}
    missing = [f'test_kernels_{unit}' for unit, path in programs.items() if not path]
    if missing:
        raise Failed(f'not built: {", ".join(missing)}')
    # Nothing is measured here: several at once, on a card that is large enough.
    with concurrent.futures.ThreadPoolExecutor(processes(runner)) as pool:
        runs = [(f'kernels/{unit}', path, own) for unit, path in programs.items()]
        if 'matmul' in programs:
            runs.append(('kernels/matmul, own products', programs['matmul'],
                         {**own, 'HOISTWAY_MATMUL': 'own'}))
        for future in [pool.submit(conformance.run_program, runner, *run) for run in runs]:
            future.result()


def triage(runner):
    """Which operations are wrong: each in a function of its own, at a small and at real shapes.
    Then attention once more by cuDNN, where it is: a plan for each of its few shapes."""
    program = need(place.program('test_kernels_triage'), 'test_kernels_triage')
    few = {'HST_SUITE_ONLY': '*_small*'} if runner.smoke else {}
    conformance.run_program(runner, 'kernels/triage', program, {'HOISTWAY_ATTENTION': 'own', **few})
    name = 'kernels/triage, attention by cuDNN'
    absent = why_no_cudnn(runner)
    if absent:
        runner.test(name, 'skipped', 0, absent)
    else:
        conformance.run_program(runner, name, program, {'HOISTWAY_ATTENTION': 'cudnn',
                                                        'HST_SUITE_ONLY': 'attention_*'})
        failed = [t for t in runner.part['tests'] if t['name'] == name and t['result'] == 'failed']
        if failed and not os.environ.get('HOISTWAY_ATTENTION'):
            go_on_with(runner, 'HOISTWAY_ATTENTION', 'own', f"{name} failed: {failed[0]['why']}")


def cudnn(runner):
    """Attention by cuDNN in the conformance suite: some hundred plans, seconds each. One device.
    Behind PLANS_S seconds of building own kernels serve what is left, and the row says so."""
    absent = why_no_cudnn(runner)
    if absent:
        raise Skipped(f'without cuDNN: {absent}')
    conformance.run_program(
        runner, 'kernels/attention, cuDNN', need(place.program('test_kernels_attention'),
                                                 'test programs'),
        {'HOISTWAY_ATTENTION': 'cudnn', 'HST_SUITE_ALONE': '1', 'HST_SUITE_PLANS_S': str(PLANS_S)})


def memcheck(runner):
    """NVIDIA's own checks of memory and races, as far as the time goes."""
    tool = conformance.sanitizer()
    if not tool:
        raise Skipped(f'no compute-sanitizer: not in PATH, not '
                      f'{", ".join(conformance.SANITIZERS)}')
    finished = 0
    for check, unit in MEMCHECK:
        name = f'{check}, kernels/{unit}'
        if runner.left_s() < 3:
            runner.test(name, 'skipped', 0, 'no time was left')
            continue
        done = runner.command(
            [tool, '--tool', check, '--error-exitcode', '9', '--print-limit', '3',
             need(place.program(f'test_kernels_{unit}'), 'test programs'), runner.device],
            {**conformance.MUST_OPEN, 'HOISTWAY_ATTENTION': 'own'}, limit_s=30)
        if done.timed_out:
            runner.test(name, 'skipped', done.seconds, done.why())
        else:
            finished += 1
            runner.test(name, 'passed' if done.code == 0 else 'failed', done.seconds,
                        '' if done.code == 0 else (done.out[-600:] or done.why()))
    if not finished:
        runner.test('compute-sanitizer', 'failed', 0, 'no program came to its end in its time')


# ---- kernels -------------------------------------------------------------------------------------

def smoke_flag(runner):
    return ['--smoke'] if runner.smoke else []


def tell_rows(runner, rows, prefix='', goal=None):
    for row in rows:
        if row['unit'] == 'FLOP/s' and row['value'] and row.get('group') in (None, 'matmul'):
            runner.kept['best_product'] = max(runner.kept['best_product'] or 0, row['value'])
        note = row.get('note')
        if row.get('fraction_of_any'):
            note = (f"pairs: {100 * row['fraction_least']:.1f} to "
                    f"{100 * row['fraction_most']:.1f} %; the best is number "
                    f"{row['best'] + 1} of {row['algorithms']}; "
                    f"{100 * row['fraction_of_any']:.1f} % of the best with split sums")
        runner.figure(prefix + row['case'], row['value'], row['unit'], row['ceiling'],
                      row['ceiling_name'], row['fraction'],
                      goal=GOALS.get(row['case'], goal) if row['ceiling'] else None,
                      least=row.get('least'), most=row.get('most'), note=note)


def bench(runner, group, settings=None, prefix=''):
    """The figures of one group; a ceiling that was measured for it is in its rows."""
    rows = run_json(runner, [need(place.program('hoistway'), 'hoistway'), 'bench', 'kernels',
                             '--device', runner.device, '--only', group, '--json',
                             *smoke_flag(runner)], settings)
    tell_rows(runner, [row for row in rows if row['group'] == group], prefix, GOALS.get(group))


def kernels(runner):
    for group in ('copies', 'memory', 'matmul', 'launches'):
        bench(runner, group)
    for wait in ('block', 'spin'):
        bench(runner, 'waits', {'HOISTWAY_WAIT': wait}, wait + ': ')


def gemm(runner):
    """Products beside the best of cuBLASLt, and those of the plugin's own kernels."""
    bench(runner, 'matmul', {'HOISTWAY_MATMUL': 'own'}, 'own ')
    absent = why_no_cublaslt(runner)
    if absent:
        runner.part['why'] = f'without cuBLASLt: {absent}'
        return
    program = need(place.program('bench_gemm'), 'bench_gemm (built where CUDA\'s headers are)')
    tell_rows(runner, run_json(runner, [program, '--device', runner.device, *smoke_flag(runner)]),
              goal=GOALS['gemm'])


def attention(runner):
    """Own kernels and cuDNN by turns of whole runs; a ratio of the two beside them."""
    bench(runner, 'attention', {'HOISTWAY_ATTENTION': 'own'}, 'own ')
    absent = why_no_cudnn(runner)
    if absent:
        runner.part['why'] = f'without cuDNN: {absent}'
        return
    bench(runner, 'attention', {'HOISTWAY_ATTENTION': 'cudnn-only'}, 'cuDNN ')
    values = {f['name']: f['value'] for f in runner.part['figures'] if f['unit'] == 'FLOP/s'}
    for name, value in list(values.items()):
        peer = values.get('cuDNN ' + name[len('own '):]) if name.startswith('own ') else None
        if peer and value:
            runner.figure(name + ' over cuDNN', value / peer, '', fraction=value / peer,
                          goal=GOALS['own attention over cuDNN'])


def layer(runner):
    """One layer of an 8B Llama and the head, operation by operation as the model enqueues them."""
    rows = run_json(runner, [need(place.program('hoistway'), 'hoistway'), 'bench', 'layer',
                             '--device', runner.device, '--json', *smoke_flag(runner)])
    for row in rows:
        row['group'] = 'layer'
        if row.get('operation'):
            row['note'] = (f"{row['times']} in {1e6 * row['seconds']:.4g} us, "
                           f"{row['bytes'] / 1e6:.4g} MB")
    tell_rows(runner, rows)


# ---- training ------------------------------------------------------------------------------------

def shape_of(runner, shape):
    """(shape, sequence, sequences per step, steps measured); two more steps warm up."""
    return ('tiny', 16, 4, 2) if runner.smoke else (shape, 2048, 8, 6)


def tell_training(runner, name, tokens_per_s, config, seq, note):
    flops = llama.step_flops_per_token(config, seq) * tokens_per_s[0]
    smi = runner.report['machine']['nvidia-smi']
    model = f"a slice of {smi.get('name')}" if machine.is_slice(smi) else smi.get('name')
    nominal = None if machine.is_slice(smi) else machine.nominal_flops(model)
    runner.figure(f'{name} tokens', tokens_per_s[0], 'tokens/s', least=tokens_per_s[1],
                  most=tokens_per_s[2], note=note)
    runner.figure(f'{name} FLOP use, of the best product in this run', flops, 'FLOP/s',
                  runner.kept['best_product'], 'the best product in this run',
                  note=None if runner.kept['best_product']
                  else 'no product was measured in this run')
    runner.figure(f'{name} FLOP use, of the card by its data sheet', flops, 'FLOP/s', nominal,
                  model, note=None if nominal else f'no nominal rate is known of {model}')


def train(runner, shape):
    name, seq, batch, steps = shape_of(runner, shape)
    model = training.make_model(runner, name, seq)
    run = training.train(runner, model, seq * batch, steps + 2)
    if run.done.code:
        raise Failed(run.done.why())
    rates = sorted(line['tok_s'] for line in run.steps[2:])
    runner.kept['tokens_per_s'][shape] = statistics.median(rates)
    note = (f'{model.parameters / 1e9:.3f} B parameters, {batch} x {seq} tokens a step, HBM at '
            f'most {training.gib(run.peak("hbm"))}, weights from {model.weights}, loss '
            f'{run.steps[0]["loss"]:.4f} to {run.steps[-1]["loss"]:.4f}')
    tell_training(runner, f'Llama {name}', (statistics.median(rates), rates[0], rates[-1]),
                  model.config, seq, note)
    training.tell_left(runner, f'Llama {name}', run)


def train_1b(runner):
    train(runner, '1b')


def train_3b(runner):
    train(runner, '3b')
