# SPDX-License-Identifier: Apache-2.0
"""The parts about models that do not stay in a GPU's memory: the same bytes, how fast, how large.

Every figure comes from the lines of `train --log`. Sizes follow from what `doctor --json` says is
free and `plan --json` says fits; `train` has the last word, before anything is taken.
"""
import hashlib
import os
import shutil
import statistics

import llama
import training
from training import Skipped, gib

# The least fraction that is good: of the bound, of the resident run's tokens/s.
GOAL_BOUND, GOAL_BOUND_TIERS, GOAL_RESIDENT = 0.9, 0.8, 0.9
GOAL_PREDICTED = 0.9  # 1 less the median distance of predicted from measured step times
GIB = 1 << 30

# Bytes per parameter, in bf16: weights 2, remainder of the master 2, moments 4 each; and gradients,
# which only a norm makes wait: without clipping those that leave memory have no home at all.
UPDATED_BYTES, GRAD_BYTES = 12, 2
HOST_SPARE_BYTES = 2 * GIB  # beside UPDATED_BYTES, what the host may take at most

SEQ = 2048
BATCHES = {'8k': (8192, 6), '32k': (32768, 4), '128k': (131072, 3)}  # tokens, steps measured
SMOKE_SEQ = 16
SMOKE_BATCHES = {'8k': (16, 1), '32k': (32, 1), '128k': (64, 1)}

RESIDENT = ['--place', 'states=hbm']
IN_DRAM = ['--place', 'weights=dram,grads=dram,states=dram']
NO_CLIP = ['--clip', '0']
# A norm that never clips: all that clipping costs but the steps that an optimistic update redoes.
DEFERRED, OPTIMISTIC = (['--clip', '1e30', '--update', word] for word in ('deferred', 'optimistic'))
MODES = {'resident': [*RESIDENT, *NO_CLIP],
         # gradients have a home as far as the budget goes, or all of them (14 B per parameter)
         'unclipped': ['--place', 'weights=dram,states=dram', *NO_CLIP],
         'unclipped-14': [*IN_DRAM, *NO_CLIP],
         'deferred': [*IN_DRAM, *DEFERRED, '--gpu-update', '0'],
         'optimistic': [*IN_DRAM, *OPTIMISTIC], 'streamed': [*IN_DRAM, *DEFERRED]}

# Nothing is known of a machine: a file as --save-rates writes it.
NO_RATES = ('hoistway rates 2\ntaken_ms 1\ntook_ms 1\ndrives 0\nproducts 0\noperations 0\n'
            'end 78a72dce37951b3f\n')

# What is compared with the resident run: name, options, bytes that a drive moves for each
# parameter in a step (weights are read twice, the rest once each way).
BYTES = {
    'small': (('states in DRAM', [*IN_DRAM, '--update', 'deferred'], 0),
              ('states on NVMe', ['--place', 'states=nvme', '--update', 'deferred'], 20)),
    'dram': (('states in DRAM', [*IN_DRAM, '--update', 'deferred'], 0),
             ('states in DRAM, optimistic', [*IN_DRAM, '--update', 'optimistic'], 0)),
    'streamed': tuple((f'half of DRAM updated by the GPU, {word}',
                       [*IN_DRAM, '--gpu-update', '0.5', '--update', word], 0)
                      for word in ('deferred', 'optimistic')),
    'shared': (('some units in HBM', ['--update', 'deferred'], 0),
               ('some units in HBM, optimistic', ['--update', 'optimistic'], 0)),
    'sliced': (('the vocabulary in slices', ['--update', 'deferred'], 0),),
    'nvme': (('states on NVMe', ['--place', 'states=nvme', '--update', 'deferred'], 20),),
    'all': (('all on NVMe', ['--place', 'weights=nvme,grads=nvme,states=nvme,acts=nvme',
                             '--update', 'deferred'], 30),),
}


# ---- the same bytes ------------------------------------------------------------------------------

def digests(folder):
    """File -> SHA-256, of all that an export holds but the mark that it is one."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(('.safetensors', '.json')):
            with open(os.path.join(folder, name), 'rb') as file:
                found[name] = hashlib.sha256()
                for block in iter(lambda: file.read(1 << 24), b''):
                    found[name].update(block)
            found[name] = found[name].hexdigest()
    return found


def exported(runner, model, case, tokens, steps, more, launcher=()):
    """The digests of what a run exports; None where there was none, which is told. launcher: what
    starts its ranks."""
    folder = os.path.join(model.folder, 'export')
    shutil.rmtree(folder, ignore_errors=True)
    # steps large enough to move every weight: bytes that nothing changed would prove nothing
    run = training.train(runner, model, tokens, steps, ['--lr', '1e-3', '--export', folder,
                                                        '--export-dtype=fp32', *more], launcher)
    if not training.usable(runner, case, run):
        return None
    training.tell_left(runner, case, run)
    told = digests(folder)
    shutil.rmtree(folder)
    return told


def tell_differences(runner, name, told, wanted):
    """A test: what two runs exported, by digests."""
    differs = sorted(file for file in {**told, **wanted} if told.get(file) != wanted.get(file))
    runner.test(name, 'failed' if differs else 'passed', 0,
                f'these differ: {", ".join(differs)}' if differs else '')


def bytes_case(runner, which):
    """(shape, sequence, tokens per step, steps)"""
    smoke = 'tall' if which == 'sliced' else 'tiny'
    if runner.smoke:
        return smoke, SMOKE_SEQ, 32, 3
    return ('modest', SEQ, 2 * SEQ, 5) if which == 'small' else ('1b', SEQ, 8 * SEQ, 10)


def no_rates(runner):
    """Options with which a plan knows nothing of the machine, and measures nothing."""
    path = os.path.join(runner.scratch, 'no.rates')
    with open(path, 'w', encoding='ascii') as file:
        file.write(NO_RATES)
    return ['--rates', path]


def shared(runner, shape, seq, tokens):
    """Options with which HBM is the home of some units, and DRAM of a quarter of the bytes; of a
    tiny model of fewer, because buffers for those take as much as they leave free."""
    # a double's rates are not those of a GPU, and would choose other homes
    rates = no_rates(runner) if runner.smoke else []
    homes = ['--place', 'acts=hbm', '--activations', 'recompute']  # else those would leave first
    def memory(more):
        told = training.plan(runner, shape, seq, tokens, [*homes, *rates, *more])
        return told['resident_units'], told['memory']
    units, sizes = memory([])
    bytes_there = sum(sizes[name]['hbm'] for name in ('weights', 'grads', 'states'))
    for part in (4, 16, 64):
        budget = ['--hbm', str(sizes['total']['hbm'] - bytes_there // part)]
        if 0 < memory(budget)[0] < units:
            return [*homes, *budget]
    raise training.Failed(f'with {" ".join(budget)} not some units are in HBM')


def sliced(runner, shape, seq, tokens):
    """The least HBM: embedding and head in slices of their rows."""
    least = training.plan(runner, shape, seq, tokens, ['--hbm', '64K'])['smallest']['hbm']
    budget = ['--hbm', str(least)]
    if training.plan(runner, shape, seq, tokens, budget)['slices'] == 0:
        raise training.Failed(f'with {" ".join(budget)} nothing is used in slices')
    return budget


HOMES = {'shared': shared, 'sliced': sliced}


def offload_bytes(runner, which):
    """Ten steps with clipping: the weights are those of the run with everything in HBM."""
    shape, seq, tokens, steps = bytes_case(runner, which)
    model = training.make_model(runner, shape, seq)
    have = training.room(runner)
    disk = have.budget('nvme') - 2 * model.parameters  # beside the export
    if disk <= 0:
        raise Skipped(f'an export takes {gib(2 * model.parameters)} of disk, '
                      f'{gib(have.free["nvme"])} are free in {runner.scratch}')
    kept = runner.kept['digests'].setdefault(shape, {})  # of the same seed, weights and commit
    if model.weights not in kept:
        told = exported(runner, model, 'resident', tokens, steps, RESIDENT)
        if not told:
            raise Skipped('there is no resident run to compare with')
        kept[model.weights] = told
    homes = HOMES[which](runner, shape, seq, tokens) if which in HOMES else []
    for case, more, moved in BYTES[which]:
        if training.no_time(runner, case, have.drive_s(moved * model.parameters * steps),
                            'the drive alone takes'):
            continue
        told = exported(runner, model, case, tokens, steps, [*homes, *more, '--nvme', str(disk)])
        if told:
            tell_differences(runner, f'{case}: {shape}, {steps} steps, the bytes of the resident '
                             'run', told, kept[model.weights])


# ---- figures of a run ----------------------------------------------------------------------------

def tell_run(runner, name, run, tokens, goal):
    step_s, least_s, most_s = run.step_s()
    bound_s, predicted_s = run.bound_s(), run.predicted_s()
    runner.figure(f'{name}: step', step_s, 's', least=least_s, most=most_s,
                  note=f'{len(run.measured())} steps measured')
    runner.figure(f'{name}: tokens', tokens / step_s, 'tokens/s',
                  tokens / bound_s if bound_s else None, 'the bound', goal=goal,
                  least=tokens / most_s, most=tokens / least_s,
                  note=None if bound_s else f'no bound: {run.said()}')
    training.tell_left(runner, name, run)
    ratio = predicted_s / step_s if predicted_s else None
    runner.figure(f'{name}: predicted over measured', ratio, '',
                  note=None if ratio else f'no prediction: {run.said()}')
    if ratio:
        runner.kept['predicted'][name] = ratio


def predictions(runner):
    """Over all runs of the report."""
    off = [abs(ratio - 1) for ratio in runner.kept['predicted'].values()]
    distance = statistics.median(off)
    runner.figure(f'predictions of {len(off)} runs', distance, '', fraction=1 - distance,
                  goal=GOAL_PREDICTED,
                  note='median distance of predicted from measured; the fraction is 1 less it')


def tell_host_memory(runner, name, run, parameters, goal):
    peak, most = run.peak('dram'), UPDATED_BYTES * parameters + HOST_SPARE_BYTES
    runner.figure(f'{name}: host memory', peak, 'B', most, '12 B per parameter and 2 GiB',
                  fraction=most / peak, goal=goal,
                  note=f'{peak / parameters:.2f} B per parameter; the fraction: ceiling over value'
                  + ('' if goal else '; weights and states are there twice'))


def tell_of_resident(runner, name, run, tokens, resident, hides):
    """hides: the update can run under all computation, so that the bound may allow the goal."""
    bound_s = run.bound_s()
    allowed = tokens / bound_s / resident if bound_s else None
    runner.figure(f'{name}: tokens, of resident', tokens / run.step_s()[0], 'tokens/s', resident,
                  'the resident run',
                  goal=GOAL_RESIDENT if hides and allowed and allowed >= GOAL_RESIDENT else None,
                  note=f'the bound allows {100 * allowed:.0f} %' if allowed else None)


# ---- states in DRAM ------------------------------------------------------------------------------

def offload(runner, shape, batch, mode):
    """States in DRAM and a way to clip, beside the bound, the prediction and the resident run; or
    that run."""
    tokens, measured = (SMOKE_BATCHES if runner.smoke else BATCHES)[batch]
    seq, name = (SMOKE_SEQ, 'tiny') if runner.smoke else (SEQ, shape)
    have = training.room(runner)
    least = UPDATED_BYTES * llama.parameters(llama.config_of(name, seq)) + HOST_SPARE_BYTES
    if mode != 'resident' and least > have.budget('dram'):
        raise Skipped(f'states in DRAM take {gib(least)}, and nine tenths of what is free are '
                      f'{gib(have.budget("dram"))}')
    model, case = training.make_model(runner, name, seq), f'{shape} {batch}, {mode}'
    budget = ['--dram', str(least)] if mode == 'unclipped' else []
    run = training.train(runner, model, tokens, training.WARM_STEPS + measured,
                         [*MODES[mode], *budget])
    if not training.usable(runner, case, run):
        return
    tell_run(runner, case, run, tokens, None if mode == 'resident' else GOAL_BOUND)
    resident = runner.kept['resident']
    if mode == 'resident':
        resident[f'{shape} {batch}'] = tokens / run.step_s()[0]
        return
    if mode not in ('unclipped', 'unclipped-14'):  # the best of those that clip, as peers do
        offloaded, rate = runner.kept['offloaded'], tokens / run.step_s()[0]
        offloaded[f'{shape} {batch}'] = max(rate, offloaded.get(f'{shape} {batch}', 0))
    tell_host_memory(runner, case, run, model.parameters,
                     None if mode in ('unclipped-14', 'optimistic') else 1)
    if f'{shape} {batch}' in resident:
        tell_of_resident(runner, case, run, tokens, resident[f'{shape} {batch}'],
                         mode in ('unclipped', 'unclipped-14', 'optimistic'))


# ---- three tiers ---------------------------------------------------------------------------------

HBM_SHARE, REST_SHARE = 0.45, 0.75  # of all that has a home; of what HBM leaves, DRAM and drives
BUFFERS = {'hbm': 4 * GIB, 'dram': 2 * GIB, 'nvme': 0}
SMOKE_BUFFERS = {'dram': 512 << 10, 'nvme': 1 << 20}
SMALL_CARD = 24 * GIB
TIER_STEPS = 3


def home_bytes(config, tokens, clips):
    """Of weights, gradients, states and checkpoints, wherever they are."""
    acts = 2 * tokens * config['hidden_size'] * (config['num_hidden_layers'] + 1)  # the norm's
    each = UPDATED_BYTES + (GRAD_BYTES if clips else 0)
    return each * llama.parameters(config) + acts


def tier_budgets(have, need, buffers, card):
    """Bytes by tier, of which HBM and one other would not do where the machine has more; None where
    it has too little."""
    hbm = min(have.budget('hbm'), int(HBM_SHARE * need) + buffers['hbm'], card)
    left = need - max(0, hbm - buffers['hbm'])
    dram = min(have.budget('dram') - buffers['dram'], int(REST_SHARE * left))
    nvme = min(have.budget('nvme') - buffers['nvme'], max(int(REST_SHARE * left), left - dram))
    dram = min(have.budget('dram') - buffers['dram'], max(dram, left - nvme))
    most = {'hbm': hbm, 'dram': dram + buffers['dram'], 'nvme': nvme + buffers['nvme']}
    return most if dram + nvme >= left else None


def tiers_of(have, config, tokens, buffers, card):
    """(name, options, bytes at home, budgets): with clipping where its gradients have room."""
    for name, more, clips in (('clip on, deferred', DEFERRED, True), ('clip off', NO_CLIP, False)):
        need = home_bytes(config, tokens, clips)
        most = tier_budgets(have, need, buffers, card)
        if most:
            return name, more, need, most
    raise Skipped(f'{gib(need)} need a home beside buffers, nine tenths of what is free are '
                  f'{gib(have.budget("hbm"))} of HBM, {gib(have.budget("dram"))} of DRAM and '
                  f'{gib(have.budget("nvme"))} of disk')


def drive_need_s(have, need, in_memory, steps):
    """A lower bound on a run's time by the drive: written once, then read and written each step."""
    return have.drive_s(max(0, need - in_memory) * (1 + 2 * steps))


def load_s(runner, model):
    """As fast as the last run loaded that had its weights the same way; 0: there was none."""
    return runner.kept['load_s_per_parameter'].get(model.weights, 0) * model.parameters


def smoke_buffers(runner, shape, seq, tokens):
    """At tiny shapes HBM has more for products' workspace than for all else, or none: the device
    says which, in a plan with everything elsewhere."""
    away = ['--place', 'weights=dram,grads=dram,states=dram,acts=dram']
    told = training.plan(runner, shape, seq, tokens, [*away, *no_rates(runner)])
    return {**SMOKE_BUFFERS, 'hbm': told['memory']['total']['hbm']}


def three_tiers(runner, small_card):
    """A 13B model that needs HBM, DRAM and NVMe at once, 32k tokens a step."""
    shape, seq, tokens = ('small', SMOKE_SEQ, 32) if runner.smoke else ('13b', SEQ, 32768)
    config = llama.config_of(shape, seq)
    spare = int(REST_SHARE * home_bytes(config, tokens, True)) + 4 * GIB
    model = training.make_model(runner, shape, seq, spare)
    have = training.room(runner)
    buffers = smoke_buffers(runner, shape, seq, tokens) if runner.smoke else BUFFERS
    mode, more, need, most = tiers_of(have, config, tokens, buffers,
                                      SMALL_CARD if small_card else have.budget('hbm'))
    name = f'{shape}, three tiers, {mode}'
    if small_card:
        name += f', --hbm {gib(most["hbm"])}'
    in_memory = most['hbm'] + most['dram']
    least_s = load_s(runner, model) + drive_need_s(have, need, in_memory, TIER_STEPS)
    if training.no_time(runner, name, least_s, 'loading and the drive take'):
        return
    budgets = [word for tier in most for word in (f'--{tier}', str(most[tier]))]
    run = training.train(runner, model, tokens, TIER_STEPS,
                         [*more, *budgets])
    if not training.usable(runner, name, run):
        return
    empty = [tier for tier in most if run.peak(tier) == 0]
    runner.test(f'{name}: it trains, and every tier holds some of it',
                'failed' if empty else 'passed', run.done.seconds,
                f'nothing in {", ".join(empty)}' if empty else '')
    tell_run(runner, name, run, tokens, None if small_card else GOAL_BOUND_TIERS)


# ---- the largest ---------------------------------------------------------------------------------

LARGEST_TOKENS = 8192


def known_shapes(runner):
    """From large to small."""
    names = ('405b', 'small', 'tiny') if runner.smoke else (
        name for name in llama.SHAPES if name.endswith('b'))
    return sorted(names, reverse=True, key=lambda name: llama.parameters(llama.config_of(name, 1)))


def planned(runner, shape, seq, tokens):
    """The bytes that a model has on drives and the seconds that it takes at least, its weights
    written and read among them; None where it does not fit, or has no time, which is told."""
    plan = training.plan(runner, shape, seq, tokens, NO_CLIP)
    if not plan['fits']:
        runner.test(shape, 'skipped', 0, plan['why'])
        return None
    on_drives, have = plan['memory']['total']['nvme'], training.room(runner)
    steps_s = max(TIER_STEPS * (plan['predicted_step_s'] or 0),
                  drive_need_s(have, on_drives, 0, TIER_STEPS))
    weights_s = have.drive_s(2 * 2 * plan['parameters'])
    if training.no_time(runner, shape, weights_s + steps_s, 'the plan takes'):
        return None
    return on_drives, steps_s


def largest(runner):
    """The largest known shape that this machine trains, without clipping: found by the plan, then
    run."""
    seq, tokens = (SMOKE_SEQ, 32) if runner.smoke else (SEQ, LARGEST_TOKENS)
    training.drop_model(runner)
    for shape in known_shapes(runner):
        told = planned(runner, shape, seq, tokens)
        if not told:
            continue
        on_drives, steps_s = told
        model = training.make_model(runner, shape, seq, int(on_drives / 0.9) + 4 * GIB)
        if training.no_time(runner, shape, load_s(runner, model) + steps_s,
                            'loading and the plan take'):
            continue
        run = training.train(runner, model, tokens, TIER_STEPS, NO_CLIP)
        if training.usable(runner, shape, run):
            name = f'largest, {shape}'
            tell_run(runner, name, run, tokens, None)
            runner.figure(f'{name}: parameters', model.parameters, '')
            return
        if not run.refused():
            return  # it failed, or took all the time there was
    runner.part['why'] = 'none of the known shapes could be run'
