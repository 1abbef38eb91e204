# SPDX-License-Identifier: Apache-2.0
"""Runs of `hoistway train` within a part: a model made once, a run, and what its log tells."""
import json
import os
import shutil
import statistics

import llama
import place

HBM_LEFT_BYTES = 512 << 20  # to code that libraries load when it is first called
WARM_STEPS = 2  # what the bound and the prediction are made of is known behind them
REFUSED = ('error[E301]', 'error[E302]')  # by the plan: before anything was taken or written


class Skipped(Exception):
    """A part that cannot run here, with the reason."""


class Failed(Exception):
    """A part whose command failed, with what it said."""


def json_lines(text):
    return [json.loads(line) for line in text.split('\n') if line.startswith('{')]


def need(path, what):
    if not path:
        raise Skipped(f'this build has no {what}')
    return path


def gib(size_bytes):
    return f'{size_bytes / 2**30:.1f} GiB'


def card(device):
    """With its number: without one, each of several ranks would have a card of its own."""
    return device if ':' in device else device + ':0'


# ---- the machine ---------------------------------------------------------------------------------

class Room:
    """What is free, in bytes by tier, of which a run takes nine tenths, and of HBM less where that
    would leave libraries too little; and the drive's rate."""

    def __init__(self, told, device):
        device = card(device)
        self.free = {row['tier']: row['free_bytes'] for row in told['room']
                     if row['tier'] != 'hbm' or row['of'] == device}
        # read and written at once, both together
        self.drive = next((row['value'] for row in told['rates'] if row['name'] == 'mixed'), None)

    def budget(self, tier):
        free = self.free[tier]
        left = min(HBM_LEFT_BYTES, free // 2) if tier == 'hbm' else 0
        return min(int(0.9 * free), free - left)

    def drive_s(self, size_bytes):
        """Seconds that the drive needs for it at least; 0 where its rate is not known."""
        return size_bytes / self.drive if self.drive else 0


def room(runner):
    """As the first part that asked was told; of the disk what is free now, beside a model."""
    if not runner.room:
        done = runner.command([need(place.program('hoistway'), 'hoistway'), 'doctor', '--store',
                               runner.scratch, '--json'])
        told = Room((json_lines(done.out) or [{'room': [], 'rates': []}])[-1], runner.device)
        missing = {'hbm', 'dram', 'nvme'} - set(told.free)
        if missing:
            raise Failed(f'doctor tells no room in {", ".join(sorted(missing))}: {done.why()}')
        runner.room = told
    runner.room.free['nvme'] = shutil.disk_usage(runner.scratch).free
    return runner.room


# ---- models --------------------------------------------------------------------------------------

class Model:
    def __init__(self, folder, config, weights, seq):
        self.folder, self.config, self.weights, self.seq = folder, config, weights, seq
        self.parameters = llama.parameters(config)
        self.tokens = 0  # in its file


def make_model(runner, shape, seq, spare_bytes=4 << 30):
    """A model's folder, made once for the parts that follow one another; only one is kept."""
    wish = (shape, seq, spare_bytes)
    if runner.model and runner.model[0] == wish:
        return runner.model[1]
    drop_model(runner)
    folder = os.path.join(runner.scratch, 'model-' + shape)
    try:
        config, weights = llama.write_model(folder, shape, seq, runner.deadline, spare_bytes)
    except TimeoutError as late:
        shutil.rmtree(folder)
        runner.part['short_of_time'] = True
        raise Skipped(str(late)) from late
    runner.model = (wish, Model(folder, config, weights, seq))
    return runner.model[1]


def drop_model(runner):
    """Its weights may be many gigabytes."""
    if runner.model:
        shutil.rmtree(runner.model[1].folder)
    runner.model = None


def plan(runner, shape, seq, batch_tokens, more):
    """What `plan --json` tells of a run of train() that is not begun: whether it fits, and how."""
    folder = os.path.join(runner.scratch, 'plan-' + shape)
    llama.write_config(folder, llama.config_of(shape, seq))
    done = runner.command(
        [need(place.program('hoistway'), 'hoistway'), 'plan', '--model', folder, '--durability',
         'none', '--store', os.path.join(folder, 'store'), '--seq-len', str(seq), '--batch-tokens',
         str(batch_tokens), '--device', runner.device, '--precision', 'bf16', '--json', *more])
    if done.code not in (0, 3):
        raise Failed(done.why())
    return json_lines(done.out)[-1]


# ---- runs ----------------------------------------------------------------------------------------

class Run:
    """How a run ended, and what its log holds, as far as it came."""

    def __init__(self, done, lines):
        self.done = done
        self.steps = [line for line in lines if line['kind'] == 'step']
        # of HBM, bytes that nobody holds: when all is loaded, and at the end of each step
        self.hbm_free = [line['hbm_free'] for line in lines if 'hbm_free' in line]
        self.summary = next((line for line in lines if line['kind'] == 'summary'), None)

    def said(self):
        """The last line of a run that came to its end: what bounds it, or why nothing is known."""
        return self.done.out.strip().split('\n')[-1].replace('|', '/')

    def refused(self):
        return self.done.code != 0 and any(code in self.done.err for code in REFUSED)

    def peak(self, tier):
        return max(step['peak'][tier] for step in self.steps)

    def measured(self):
        return self.steps[WARM_STEPS:]

    def step_s(self):
        """(median, least, most) of the steps that count."""
        seconds = sorted(step['seconds'] for step in self.measured())
        return statistics.median(seconds), seconds[0], seconds[-1]

    def bound_s(self):
        """The median of what the log has as bounds; None where it has none."""
        known = [step['bound_s'] for step in self.measured() if step['bound_s']]
        return statistics.median(known) if known else None

    def predicted_s(self):
        return self.summary['predicted_step_s'] if self.summary else None


def read_log(path):
    """Its lines; a run that was ended may have left half of one."""
    if not os.path.exists(path):
        return []
    with open(path, encoding='ascii') as file:
        return [json.loads(line) for line in file if line.endswith('\n')]


def train(runner, model, batch_tokens, steps, more=(), launcher=()):
    """launcher: what starts ranks, all of which have this one card."""
    tokens, log, trace = (os.path.join(model.folder, name)
                          for name in ('tokens.bin', 'log.jsonl', 'trace.json'))
    if model.tokens != (steps + 1) * batch_tokens + 1:  # the order of sequences follows from it
        model.tokens = (steps + 1) * batch_tokens + 1
        llama.write_tokens(tokens, model.config['vocab_size'], model.tokens)
    for old in filter(os.path.exists, (log, trace)):
        os.remove(old)
    init = ['--init', 'random'] if model.weights == 'random' else []
    done = runner.command(
        [*launcher, need(place.program('hoistway'), 'hoistway'), 'train', '--model', model.folder,
         '--data', tokens, '--token-dtype', 'u32', '--durability', 'none', '--store',
         os.path.join(model.folder, 'store'), '--steps', str(steps), '--seq-len', str(model.seq),
         '--batch-tokens', str(batch_tokens), '--device', card(runner.device), '--precision',
         'bf16', '--log', log, '--trace', trace, *init, *more])
    runner.keep_beside(done, {'.jsonl': log, '.trace.json': trace})
    run = Run(done, read_log(log))
    if done.code == 0 and len(run.steps) != steps:
        raise Failed(f'the log has {len(run.steps)} steps of {steps}')
    if run.steps:
        around_s = max(0, done.seconds - sum(step['seconds'] for step in run.steps))
        runner.kept['load_s_per_parameter'][model.weights] = around_s / model.parameters
    return run


def tell_left(runner, name, run):
    """What of HBM was left at least, beside what libraries may need later."""
    runner.figure(f'{name}: HBM left', min(run.hbm_free), 'B', HBM_LEFT_BYTES,
                  'what libraries may need', goal=1,
                  note=f'{run.hbm_free[0] / 1e9:.4g} GB when all was loaded')


def usable(runner, name, run):
    """Whether there is something to tell of a run; where there is not, the reason is told here: it
    does not fit, its time did not suffice, or it failed."""
    if run.done.code == 0:
        return True
    result = 'skipped' if run.refused() or run.done.timed_out else 'failed'
    runner.part['short_of_time'] |= run.done.timed_out
    runner.test(name, result, run.done.seconds, run.done.why())
    return False


def no_time(runner, name, seconds, why):
    """Whether a run that takes so long is not begun; it is told then."""
    if seconds <= runner.left_s():
        return False
    runner.part['short_of_time'] = True
    runner.test(name, 'skipped', 0, f'{why} {seconds:.0f} s, and {runner.left_s():.0f} s are left')
    return True
