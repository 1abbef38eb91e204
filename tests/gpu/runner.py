# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a part within its time, and collects what they tell."""
import copy
import os
import re
import shlex
import shutil
import subprocess
import threading
import time

import place
import stop
from out_folder import writing

TAIL = 400  # characters of a failed command's output that the report keeps
LOGS = 'logs'  # in the report's folder: each command with all that it said


class Finished:
    def __init__(self, code, out, err, seconds, timed_out, log=''):
        self.code, self.out, self.err = code, out, err
        self.seconds, self.timed_out, self.log = seconds, timed_out, log

    def whole(self):
        """Where all that it said is kept, as the end of a sentence."""
        return f' (all of it: {self.log})' if self.log else ''

    def how(self):
        return f'not finished after {self.seconds:.0f} s' if self.timed_out else f'exit {self.code}'

    def why(self):
        """One line: how it ended, and the end of what it said."""
        if self.timed_out:
            return self.how() + self.whole()
        said = (self.err.strip() or self.out.strip())[-TAIL:]
        return (self.how() + ': ' + ' / '.join(line for line in said.split('\n') if line) +
                self.whole())


# What a report has of a part, a test and a figure.
PART = {'name': '', 'result': 'ran', 'why': '', 'seconds': 0.0, 'commands': [], 'tests': [],
        'figures': [], 'short_of_time': False}
TEST = {'name': '', 'result': '', 'seconds': 0.0, 'why': ''}
FIGURE = dict.fromkeys(('name', 'value', 'unit', 'ceiling', 'ceiling_name', 'fraction', 'goal',
                        'met', 'least', 'most', 'note', 'command'))


class Runner:
    """One at a time: begin, commands, tests and figures, end."""

    def __init__(self, arguments, scratch, report):
        self.device, self.smoke, self.out = arguments.device, arguments.smoke, arguments.out
        self.scratch, self.report = scratch, report
        self.part = None
        self.room = None   # what training.room was told
        self.model = None  # the one that training.make_model made last
        self.kept = report['kept']  # what a part tells later ones, also those of a later call
        self.lock = threading.Lock()  # some parts run several commands at once

    def concern(self, line):
        """What explains failures or figures of the whole report: told at once, and at its head."""
        if line not in self.report['concerns']:
            self.report['concerns'].append(line)
            print(f'==> {line}', flush=True)

    def begin(self, name, limit_s):
        self.part = {**copy.deepcopy(PART), 'name': name}
        self.started, self.deadline = time.monotonic(), time.monotonic() + limit_s
        self.forget_logs(name)
        return self.part

    def forget_logs(self, name):
        """Those of an earlier call: the part is run anew."""
        folder = os.path.join(self.out, LOGS)
        for old in os.listdir(folder) if os.path.isdir(folder) else ():
            path = os.path.join(folder, old)
            if re.fullmatch(re.escape(name) + r'-\d+\.(txt|jsonl|trace\.json)', old):
                with writing(path):
                    os.unlink(path)

    def end(self, **changes):
        part, self.part = self.part, None
        part['seconds'] = time.monotonic() - self.started
        part.update(changes)
        if part['result'] == 'ran' and any(t['result'] == 'failed' for t in part['tests']):
            part['result'] = 'failed'
        return part

    def left_s(self):
        return max(0.1, self.deadline - time.monotonic())

    def typed(self, arguments, settings):
        """The command as a person would type it in the root folder."""
        words = [f'{name}={shlex.quote(value)}' for name, value in settings.items()]
        words += [shlex.quote(os.path.relpath(a, place.ROOT) if a.startswith(place.ROOT + os.sep)
                              else a) for a in arguments]
        return ' '.join(words).replace(self.scratch, '/tmp/scratch')

    def command(self, arguments, settings=None, limit_s=None, merged=False, least_s=0):
        """Runs it; ended with all that it started where the part's time is over. merged: what it
        says on standard error stands in `out`, at its place. least_s: it has these where the part's
        time is over, too."""
        settings = settings or {}
        typed = self.typed(arguments, settings)
        with self.lock:
            self.part['commands'].append(typed)
            log = os.path.join(LOGS, f"{self.part['name']}-{len(self.part['commands']):02}.txt")
        limit_s = max(least_s, min(limit_s or self.left_s(), self.left_s()))
        begin = time.monotonic()
        code, out, err, timed_out = stop.run(
            arguments, limit_s, cwd=self.scratch, env={**place.environment(), **settings},
            stderr=subprocess.STDOUT if merged else subprocess.PIPE)
        done = Finished(code, out, err, time.monotonic() - begin, timed_out, log)
        self.keep(typed, done)
        return done

    def keep(self, typed, done):
        path = os.path.join(self.out, done.log)
        with writing(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, 'w', encoding='utf-8') as file:
                file.write(f'$ {typed}\n{done.out}')
                if done.err:
                    file.write(f'---- standard error\n{done.err}')
                file.write(f'---- {done.how()}, {done.seconds:.1f} s\n')

    def keep_beside(self, done, files):
        """What a command wrote, under its log's name: ending -> path. What it did not write is not
        missed."""
        for ending, path in files.items():
            if done.log and os.path.exists(path):
                kept = os.path.join(self.out, os.path.splitext(done.log)[0] + ending)
                with writing(kept):
                    shutil.copyfile(path, kept)

    def test(self, name, result, seconds, why=''):
        with self.lock:
            self.part['tests'].append({'name': name, 'result': result, 'seconds': seconds,
                                       'why': why.replace('|', '/').replace('\n', ' ')})

    def figure(self, name, value, unit, ceiling=None, ceiling_name=None, fraction=None, goal=None,
               **more):
        """fraction: of the ceiling unless given; goal: the least fraction that is good."""
        if fraction is None and value is not None and ceiling:
            fraction = value / ceiling
        met = None if goal is None or fraction is None or self.smoke else fraction >= goal
        self.part['figures'].append({
            'name': name, 'value': value, 'unit': unit, 'ceiling': ceiling,
            'ceiling_name': ceiling_name, 'fraction': fraction, 'goal': goal, 'met': met,
            'least': more.get('least'), 'most': more.get('most'), 'note': more.get('note'),
            'command': self.part['commands'][-1] if self.part['commands'] else None,
        })
