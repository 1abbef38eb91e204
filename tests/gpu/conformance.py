# SPDX-License-Identifier: Apache-2.0
"""Programs of the conformance suite (tests/kernels) on a card: what fails, told once and whole.

A CUDA error such as an illegal address stays with its process: whatever runs behind it in the same
process fails with it and says nothing of itself. So a program runs whole, which costs one start;
where its device died, each function behind the one that failed runs again in a process of its own,
and the one that failed runs again with launches that block, and then under compute-sanitizer.
"""
import fnmatch
import os
import re
import shutil

CASE = re.compile(r'\[ +(RUN|OK|FAILED|SKIPPED|ERROR|LINE) +\] ?(?:--- )?(.*)')
DEVICE_SAYS = 'the device: '
PLANS = 'plans of cuDNN: '  # how many and how long; or from where on there are no more
SANITIZERS = ('/usr/local/cuda/bin/compute-sanitizer',
              '/usr/local/cuda/compute-sanitizer/compute-sanitizer')
MUST_OPEN = {'HST_SUITE_MUST_OPEN': '1'}
FUNCTION_S, SANITIZER_S = 30, 20  # at most, of one function alone
LEAST_S = 1  # with less than that left, no process is started


class Told:
    """What a run says of one function: OK, FAILED, SKIPPED, or RUN where it has not ended."""

    def __init__(self):
        self.result, self.said = 'RUN', []

    def device_died(self):
        return any(line.startswith(DEVICE_SAYS) for line in self.said)

    def story(self):
        """The first assertion that failed, with the case and the device's words: one line."""
        return '; '.join(self.said) or 'it said nothing'


def read(text):
    """name -> Told, in the order of the run, from cmocka's output with both streams in one."""
    told, current = {}, None
    for line in text.split('\n'):
        match = CASE.match(line)
        kind, rest = match.groups() if match else ('', line.strip())
        if kind == 'RUN':
            current = told[rest] = Told()
        elif current and kind in ('OK', 'FAILED', 'SKIPPED'):
            current.result, current = kind, None  # the lists at the end repeat the names
        elif current and rest:
            current.said.append(rest)
    return told


def sanitizer():
    return shutil.which('compute-sanitizer') or next(
        (path for path in SANITIZERS if os.access(path, os.X_OK)), None)


def functions_of(runner, program, settings):
    """Those that a run of it has: HST_SUITE_ONLY is a pattern."""
    done = runner.command([program], {'HST_SUITE_LIST': '1'}, least_s=10)  # no device
    asked = fnmatch.filter(done.out.split('\n'), settings.get('HST_SUITE_ONLY', '?*'))
    return asked if done.code == 0 else []


def alone(runner, name, function, arguments, settings, limit_s=FUNCTION_S):
    """One function in a process of its own: a row of the report."""
    if runner.left_s() < LEAST_S:
        runner.test(name, 'skipped', 0, 'no time was left')
        return
    done = runner.command(arguments, {**settings, 'HST_SUITE_ONLY': function}, limit_s=limit_s,
                          merged=True)
    told = read(done.out).get(function)
    if done.code == 0 and told and told.result in ('OK', 'SKIPPED'):
        runner.test(name, {'OK': 'passed', 'SKIPPED': 'skipped'}[told.result], done.seconds,
                    '' if told.result == 'OK' else told.story())
        return
    story = f'{told.story()}; {done.how()}{done.whole()}' if told and told.said else done.why()
    runner.test(name, 'failed', done.seconds, story)


def look_closer(runner, name, function, arguments, settings):
    """Where in it: the launch that fails is the one that returns; then the access, by its own."""
    alone(runner, f'{name}, {function}, launches block', function, arguments,
          {**settings, 'CUDA_LAUNCH_BLOCKING': '1'})
    tool = sanitizer()
    if tool:
        alone(runner, f'{name}, {function}, compute-sanitizer', function,
              [tool, '--error-exitcode', '9', '--print-limit', '3', *arguments], settings,
              SANITIZER_S)


def tell_failures(runner, name, done, told, functions):
    """Rows of a run that failed. -> the functions that it leaves unknown, for the device died."""
    ran = [f for f in functions if f in told] or list(told)
    culprit = next((f for f in ran if told[f].result in ('FAILED', 'RUN')), None)
    if not culprit:  # it ended before the first of them, or behind the last
        runner.test(name, 'failed', done.seconds, done.why())
        return None, functions if not told else []
    died = done.code < 0 or done.timed_out or told[culprit].device_died()
    runner.test(name, 'failed', done.seconds,
                f'{culprit}: {told[culprit].story()}; {done.how()}{done.whole()}')
    behind = ran[ran.index(culprit) + 1:] + [f for f in functions if f not in told]
    if died:
        return culprit, behind
    for function in behind:
        if function in told and told[function].result == 'FAILED':
            runner.test(f'{name}, {function}', 'failed', 0, told[function].story())
    return None, []


def run_program(runner, name, program, settings):
    """A row of it, and more where it fails."""
    arguments, settings = [program, runner.device], {**MUST_OPEN, **settings}
    done = runner.command(arguments, settings, merged=True)
    if done.code in (0, 77):
        lines = done.out.strip().split('\n')
        plans = '; '.join(line for line in lines if line.startswith(PLANS))
        runner.test(name, 'skipped' if done.code else 'passed', done.seconds,
                    lines[-1] if done.code else plans)
        return
    functions = functions_of(runner, program, settings)
    culprit, left = tell_failures(runner, name, done, read(done.out), functions)
    for function in left:
        alone(runner, f'{name}, {function}', function, arguments, settings)
    if culprit:
        look_closer(runner, name, culprit, arguments, settings)
