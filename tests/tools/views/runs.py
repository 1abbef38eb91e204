#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables, events and pages of runs, while they train and of their logs.

    runs.py PATH_OF_HOISTWAY SOURCE_ROOT
"""
import csv
import html.parser
import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from logs import (  # noqa: E402
    FILE, evaluation, events, records, run, scalars_of, step, write)

PROGRAM, ROOT = sys.argv[1:3]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
VOID = {'meta', 'path', 'circle', 'br'}


class Page(html.parser.HTMLParser):
    """Well-formed, and all of it: else an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.titles, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if 'figcaption' in self.open and data.strip():
            self.titles.append(data.strip())
        self.words.append(data)


class Folder(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def command(self, *more, steps=6):
        return [PROGRAM, 'train', '--device=host', '--model', MODEL, '--data',
                os.path.join(MODEL, 'tokens.bin'), '--steps', str(steps), '--seq-len=24',
                '--batch-tokens=48', '--quiet', '--store', self.path('store'), *more]

    def views(self, folder=''):
        if folder:
            os.makedirs(self.path(folder), exist_ok=True)
        return ('--csv', self.path(folder, 'a.csv'), '--tfevents', self.path(folder, 'tb'),
                '--html', self.path(folder, 'a.html'))

    def run_it(self, *words, **more):
        env = dict(os.environ, XDG_CACHE_HOME=self.path('cache'))
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False,
                              env=env, **more)

    def good(self, *words):
        done = self.run_it(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def train(self, *more, steps=6):
        return self.good(*self.command('--log', self.path('run.jsonl'), *more, steps=steps))

    def inspect(self, log, *more):
        return self.good(PROGRAM, 'inspect', log, *more)

    def read(self, *names):
        with open(self.path(*names), 'rb') as file:
            return file.read()

    def page(self, *names):
        return Page(self.read(*names).decode('utf-8'))

    def rows(self, *names):
        with open(self.path(*names), encoding='ascii', newline='') as file:
            return list(csv.DictReader(file))

    def assert_same(self, *folders):
        for name in ('a.csv', os.path.join('tb', FILE), 'a.html'):
            one, *others = (self.read(folder, name) for folder in folders)
            for other in others:
                self.assertEqual(one, other, name)


class Views(Folder):
    def test_a_run_makes_what_its_log_makes(self):
        self.train(*self.views())
        self.inspect(self.path('run.jsonl'), *self.views('later'))
        self.assert_same('', 'later')
        self.inspect(self.path('run.jsonl'), *self.views('later'))  # which replaces its own
        self.assert_same('', 'later')

    def test_a_table_has_the_digits_of_the_log(self):
        self.train(*self.views())
        rows, steps = self.rows('a.csv'), records(self.path('run.jsonl'))
        self.assertEqual([row['step'] for row in rows], [str(n) for n in range(1, 7)])
        with open(self.path('run.jsonl'), encoding='ascii') as file:
            lines = [line for line in file if line.startswith('{"kind":"step"')]
        for row, line, record in zip(rows, lines, steps):
            self.assertIn(f'"loss":{row["loss"]},"grad_norm":{row["grad_norm"]},', line)
            self.assertIn(f'"stall_s":{{"nvme":{row["stall_s_nvme"]},"copy":', line)
            self.assertEqual({name: float(text) for name, text in row.items()
                              if text and name != 'step'},
                             {name.replace('/', '_'): float(value)
                              for name, value in scalars_of(record).items()})
        self.assertEqual(rows[0]['bound_s'], '')  # null

    def test_events_have_each_scalar_at_its_step_and_time(self):
        self.train(*self.views())
        head, *seen = events(self.path('tb', FILE))
        began = records(self.path('run.jsonl'), 'run')[0]['began']
        self.assertEqual(head, (began, None, 'brain.Event:2', {}))
        steps, at = records(self.path('run.jsonl')), began
        self.assertEqual(len(seen), len(steps))
        for (when, number, version, values), record in zip(seen, steps):
            at += record['seconds']
            self.assertAlmostEqual(when, at, 5)
            self.assertEqual((number, version), (record['step'], None))
            rounded = {tag: struct.unpack('<f', struct.pack('<f', value))[0]
                       for tag, value in scalars_of(record).items()}
            self.assertEqual(values, rounded)

    def test_a_page_has_all_in_itself(self):
        self.train(*self.views(), '--place=states=nvme,weights=nvme')
        page, text = self.page('a.html'), self.read('a.html').decode()
        self.assertEqual([title for title in page.titles if not title.startswith('▬')],
                         ['Loss', 'Learning rate', 'Gradient norm, before clipping',
                          'Tokens per second', 'Seconds of a step, and of them waited for',
                          'Lanes, bytes moved per second', 'Memory, greatest use'])
        for name in ('read from drives', 'written to drives', 'drives', 'RAM'):
            self.assertIn(f'▬ {name}', page.titles)
        self.assertNotIn('▬ to the GPU', page.titles)  # a lane that moves nothing
        tags = {tag for tag, _ in page.tags}
        self.assertFalse(tags & {'script', 'link', 'img', 'iframe', 'object', 'image', 'use'})
        self.assertNotRegex(text, r'https?:|url\(|@import|\bsrc=|\bhref=')
        self.assertIn("default-src 'none'", text)
        lines = [attrs['d'] for tag, attrs in page.tags if attrs.get('class') == 'line c0']
        self.assertEqual([len(re.findall('[ML]', line)) for line in lines[:4]], [6] * 4)
        self.assertRegex(''.join(page.words), r'6 of 6, loss [\d.]+ to [\d.]+')

    def test_what_others_have_named_stays_text(self):
        log = write(self.path('run.jsonl'), [run(model='<script>alert("1")</script>&\x1b[31m'),
                                             step(1)])
        self.inspect(log, *self.views())
        self.assertNotIn('script', {tag for tag, _ in self.page('a.html').tags})
        self.assertIn('<script>alert("1")', ''.join(self.page('a.html').words))
        self.assertNotIn(b'\x1b', self.read('a.html'))

    def test_points_that_are_unknown_are_holes(self):
        steps = [step(n, loss=None if n in (4, 5) else 2 + n) for n in range(1, 9)]
        self.inspect(write(self.path('run.jsonl'), [run(), *steps]), *self.views())
        line = next(attrs['d'] for tag, attrs in self.page('a.html').tags
                    if attrs.get('class') == 'line c0')
        self.assertEqual([len(part.split('L')) for part in line.split('M')[1:]], [3, 3])
        self.assertNotIn('nan', line)

    def test_a_long_run_takes_bounded_room(self):
        self.inspect(write(self.path('run.jsonl'), [run(), *map(step, range(1, 5001))]),
                     *self.views())
        self.assertIn('Each point is the mean of 8 steps.', ''.join(self.page('a.html').words))
        self.assertLess(len(self.read('a.html')), 200_000)
        self.assertEqual(len(self.rows('a.csv')), 5000)

    def test_logs_that_say_anything_are_drawn(self):
        huge = [step(10**18 + n, loss=(-1)**n * 1.7e308, seconds=0, lr=1e-320,
                     peak={'dram': -5, 'hbm': 1e300, 'nvme': 1}) for n in range(20)]
        for steps in (huge, [step(1), *huge], [*huge, step(1)], [step(2**64 - 1), step(2**64 - 1)],
                      []):
            self.inspect(write(self.path('run.jsonl'), [run(), *steps]), *self.views())
            self.assertNotRegex(self.read('a.html').decode(), r'"[^"]*\b(nan|inf)\b')
            self.page('a.html')

    def test_without_a_log_there_are_views_all_the_same(self):
        self.good(*self.command(*self.views()))
        self.assertEqual(len(self.rows('a.csv')), 6)
        self.assertEqual(len(events(self.path('tb', FILE))), 7)
        self.assertIn('6 of 6', ''.join(self.page('a.html').words))


class Evaluations(Folder):
    """Beside each step's loss what the run evaluated, as a series of its own."""
    LOG = [run(), evaluation(0, 3.5), step(1), step(2), evaluation(2, 2.5, 2), step(3), step(4),
           evaluation(4, 2.75, 2), step(5), {'kind': 'commit', 'step': 5}]

    def shapes(self, *names):
        """The loss chart's lines, each as its points, and its circles."""
        tags = self.page(*names).tags
        begins = [i for i, (tag, _) in enumerate(tags) if tag == 'figure'] + [len(tags)]
        found = [(tag, attrs) for tag, attrs in tags[begins[0]:begins[1]]
                 if tag == 'circle' or attrs.get('class', '').startswith('line')]
        for tag, attrs in found:
            if tag == 'path':  # of one piece: an evaluation's points are joined
                self.assertLessEqual(attrs['d'].count('M'), 1)
        lines = [[tuple(map(float, point)) for point in
                  re.findall(r'[ML]([\d.]+) ([\d.]+)', attrs['d'])]
                 for tag, attrs in found if tag == 'path']
        return lines, [(float(attrs['cx']), float(attrs['cy'])) for tag, attrs in found
                       if tag == 'circle']

    def test_a_run_makes_what_its_log_makes(self):
        self.train(*self.views(), '--eval', os.path.join(MODEL, 'tokens.bin'), '--eval-every=2')
        self.inspect(self.path('run.jsonl'), *self.views('later'))
        self.assert_same('', 'later')
        told = records(self.path('run.jsonl'), 'eval')
        self.assertEqual([one['step'] for one in told], [0, 2, 4, 6])
        rows = [row for row in self.rows('a.csv') if row['eval_loss']]
        self.assertEqual([(int(row['step']), float(row['eval_loss']),
                           float(row['eval_perplexity'])) for row in rows],
                         [(one['step'], one['loss'], one['perplexity']) for one in told])

    def test_a_table_has_a_row_for_each_evaluation(self):
        self.inspect(write(self.path('run.jsonl'), self.LOG), *self.views())
        rows = self.rows('a.csv')
        self.assertEqual([(row['step'], bool(row['loss']), bool(row['eval_loss'])) for row in rows],
                         [('0', False, True), ('1', True, False), ('2', True, False),
                          ('2', False, True), ('3', True, False), ('4', True, False),
                          ('4', False, True), ('5', True, False)])
        self.assertEqual({name for name, text in rows[3].items() if text},
                         {'step', 'eval_loss', 'eval_perplexity'})
        self.assertEqual((rows[3]['eval_loss'], rows[3]['eval_perplexity']),
                         ('2.5', repr(self.LOG[4]['perplexity'])))

    def test_events_have_each_evaluation_at_its_step(self):
        self.inspect(write(self.path('run.jsonl'), self.LOG), *self.views())
        seen = [(when, number, values) for when, number, _, values
                in events(self.path('tb', FILE))[1:] if 'eval/loss' in values]
        self.assertEqual([one[:2] for one in seen],
                         [(1700000000, 0), (1700000000.5, 2), (1700000001, 4)])
        self.assertEqual([one[2]['eval/loss'] for one in seen], [3.5, 2.5, 2.75])
        for (_, _, values), loss in zip(seen, (3.5, 2.5, 2.75)):
            self.assertEqual(set(values), {'eval/loss', 'eval/perplexity'})
            self.assertAlmostEqual(values['eval/perplexity'] / math.exp(loss), 1, 6)

    def test_a_page_draws_them_over_the_steps_and_marks_the_best(self):
        self.inspect(write(self.path('run.jsonl'), self.LOG), *self.views())
        (trained, evaluated), marks = self.shapes('a.html')
        self.assertEqual((len(trained), len(evaluated)), (5, 3))
        self.assertEqual([x for x, _ in evaluated][1:], [trained[1][0], trained[3][0]])
        self.assertEqual(marks, [evaluated[1]])  # the lowest of them
        self.assertEqual(max(y for _, y in evaluated), evaluated[1][1])
        page = self.page('a.html')
        for title in ('▬ trained', '▬ evaluated', '◯ best, after step 2'):
            self.assertIn(title, page.titles)
        words = ''.join(page.words)
        self.assertIn('3 times, last after step 4: loss 2.7500, perplexity 15.64', words)
        self.assertIn('after step 2: loss 2.5000, perplexity 12.18', words)

    def test_a_long_run_has_the_best_where_it_was(self):
        steps = [one for n in range(1, 3001) for one in
                 ([step(n), evaluation(n, 1.0 if n == 1501 else 2.0, 1501 if n > 1500 else 1)])]
        self.inspect(write(self.path('run.jsonl'), [run(), *steps]), *self.views())
        (_, evaluated), ((x, y),) = self.shapes('a.html')
        self.assertEqual(len(evaluated), 750)  # means of 4 steps
        nearest = min(evaluated, key=lambda point: abs(point[0] - x))
        self.assertLess(abs(nearest[0] - x), 1)
        self.assertGreater(y, nearest[1])  # which is a mean with worse ones

    def test_inspect_tells_the_last_and_the_best(self):
        log = write(self.path('run.jsonl'), self.LOG)
        out = self.inspect(log).stdout
        self.assertIn('  evaluated 3 times, last after step 4: loss 2.7500, perplexity 15.64\n',
                      out)
        self.assertIn('  the best after step 2: loss 2.5000, perplexity 12.18\n', out)
        told = json.loads(self.inspect(log, '--json').stdout)['eval']
        self.assertEqual([told[key] for key in ('count', 'step', 'loss', 'best_step', 'best_loss')],
                         [3, 4, 2.75, 2, 2.5])
        self.assertAlmostEqual(told['perplexity'] / math.exp(2.75), 1, 8)
        self.assertAlmostEqual(told['best_perplexity'] / math.exp(2.5), 1, 8)
        log = write(self.path('run.jsonl'), [run(), step(1)])
        self.assertNotIn('evaluated', self.inspect(log).stdout)
        self.assertNotIn('eval', json.loads(self.inspect(log, '--json').stdout))

    def test_what_a_log_does_not_have_is_told_as_such(self):
        log = write(self.path('run.jsonl'), [run(), step(8), evaluation(8, None, 4)])
        out = self.inspect(log, *self.views()).stdout
        self.assertIn('  evaluated 1 time, last after step 8: loss not known\n', out)
        self.assertIn('  the best after step 4: loss not known\n', out)
        told = json.loads(self.inspect(log, '--json').stdout)['eval']
        self.assertEqual((told['loss'], told['best_step'], told['best_loss']), (None, 4, None))
        self.assertEqual(self.shapes('a.html')[1], [])
        log = write(self.path('run.jsonl'), [run(), evaluation(0, 3.5)])  # no candidate
        self.assertNotIn('best', self.inspect(log, *self.views()).stdout)
        self.assertEqual(self.shapes('a.html')[1], [])

    def test_a_best_that_the_chart_does_not_reach_is_not_marked(self):
        for of in (1, 2**64 - 1):
            write(self.path('run.jsonl'), [run(), step(5), evaluation(of, 2.0, of),
                                           step(6), evaluation(6, 3.0, of)])
            self.inspect(self.path('run.jsonl'), *self.views())
            marks = self.shapes('a.html')[1]
            self.assertEqual(len(marks), 0 if of == 1 else 1)
            for x, y in marks:
                self.assertTrue(0 <= x <= 720 and 0 <= y <= 220, (x, y))
        for loss in (1e300, -1e300):
            write(self.path('run.jsonl'), [run(), step(5), evaluation(5, 2.0, 5),
                                           {**evaluation(6, 1, 6), 'loss': loss}])
            self.inspect(self.path('run.jsonl'), *self.views())
            self.assertEqual(self.shapes('a.html')[1], [])

    def test_a_resumed_run_has_each_evaluation_once(self):
        more = ('--eval', os.path.join(MODEL, 'tokens.bin'), '--eval-every=2')
        self.train(*self.views(), *more, steps=4)
        self.train(*self.views(), *more, '--resume', steps=7)
        self.assertEqual([row['step'] for row in self.rows('a.csv') if row['eval_loss']],
                         ['0', '2', '4', '6', '7'])
        self.inspect(self.path('run.jsonl'), *self.views('later'))
        self.assert_same('', 'later')


class Ends(Folder):
    def test_a_resumed_run_has_the_steps_before_it_once(self):
        self.train(*self.views(), steps=4)
        self.train(*self.views(), '--resume', steps=7)
        self.assertEqual([row['step'] for row in self.rows('a.csv')],
                         [str(n) for n in range(1, 8)])
        self.assertEqual([one[1] for one in events(self.path('tb', FILE))[1:]],
                         list(range(1, 8)))
        self.assertIn('resumed', self.page('a.html').words)
        self.inspect(self.path('run.jsonl'), *self.views('later'))
        self.assert_same('', 'later')

    def begun(self, *more):
        """A run that has told its third step in its table."""
        child = subprocess.Popen(self.command('--log', self.path('run.jsonl'), *self.views(), *more,
                                              steps=100000),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 env=dict(os.environ, XDG_CACHE_HOME=self.path('cache')))
        self.addCleanup(child.stderr.close)
        while child.poll() is None and (not os.path.exists(self.path('a.csv')) or
                                        self.read('a.csv').count(b'\n') < 4):
            pass
        return child

    def test_a_page_is_whole_from_the_first_step_on_and_after_a_kill(self):
        child = self.begun()
        self.assertIn('none of 100000 yet', self.page('a.html').words)
        child.kill()
        child.wait()
        self.assertIn('none of 100000 yet', self.page('a.html').words)
        self.inspect(self.path('run.jsonl'), '--html', self.path('a.html'))
        words = self.page('a.html').words
        self.assertRegex(''.join(words), r'\d+ of 100000, loss ')
        self.assertIn('not ended: the run goes on, was stopped or was killed', words)

    def test_a_signal_ends_with_the_page_of_all_steps(self):
        child = self.begun()
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(timeout=60), 75)
        last = records(self.path('run.jsonl'))[-1]['step']
        self.assertGreater(last, 2)
        self.assertIn(f'{last} of 100000, loss ', ''.join(self.page('a.html').words))
        self.assertIn(f'of step {last}', self.page('a.html').words)  # the version of its stop
        self.assertEqual(self.rows('a.csv')[-1]['step'], str(last))


class Refusals(Folder):
    def refuse(self, code, status, *words, part=''):
        done = self.run_it(*words)
        self.assertRegex(done.stderr, r'\Aerror\[E%d\] [^\n]*\n\Z' % code)
        self.assertIn(part, done.stderr)
        self.assertEqual((done.returncode, done.stdout), (status, ''))

    def test_what_can_not_be_written_is_refused_before_the_run(self):
        other = write(self.path('other'), [{'some': 'data'}])
        os.mkdir(self.path('tb'))
        write(self.path('tb', FILE), [{'some': 'data'}])
        log = write(self.path('run.jsonl'), [run(), step(1)])
        for option, noun in (('--csv', 'csv'), ('--html', 'page')):
            for path, part in ((other, f'is there and is not the {noun} of a run: it is kept'),
                               (self.path('other', 'file'), 'Not a directory'),
                               (self.folder, 'Is a directory')):
                for words in (self.command(option, path), (PROGRAM, 'inspect', log, option, path)):
                    self.refuse(107, 1, *words, part=part)
            self.refuse(107, 1, PROGRAM, 'inspect', log, option, '/dev/full',
                        part=f"the {noun} '/dev/full' cannot be written (No space left")
            self.refuse(107, 1, *self.command(option, '/dev/full'), part='No space left on device')
            shutil.rmtree(self.path('store'))  # with what was loaded before
        for path, part in ((self.path('tb'), 'is not the tfevents of a run: it is kept'),
                           (other, 'Not a directory')):
            for words in (self.command('--tfevents', path),
                          (PROGRAM, 'inspect', log, '--tfevents', path)):
                self.refuse(107, 1, *words, part=part)
        self.assertEqual(self.read('other'), b'{"some":"data"}\n')
        self.assertEqual(self.read('tb', FILE), b'{"some":"data"}\n')

    def test_folders_that_are_missing_are_made_where_deepspeed_makes_them(self):
        """Of a csv and of events; a page has its own."""
        log = write(self.path('run.jsonl'), [run(), step(1)])
        made = {'--csv': self.path('a', 'b', 'run.csv'), '--tfevents': self.path('c', 'd')}
        for command in ((PROGRAM, 'inspect', log), self.command()):
            done = self.run_it(*command, *(word for pair in made.items() for word in pair))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(os.path.isfile(made['--csv']))
            self.assertTrue(os.path.isfile(self.path('c', 'd', FILE)))
            shutil.rmtree(self.path('a'))
            shutil.rmtree(self.path('c'))
        self.refuse(107, 1, PROGRAM, 'inspect', log, '--html', self.path('no', 'page'),
                    part='No such file or directory')
        self.refuse(402, 2, *self.command('--csv', made['--csv'], '--steps=0'), part='--steps')
        self.assertFalse(os.path.exists(self.path('a')))

    def test_options_that_contradict_are_refused(self):
        one, store = self.path('one'), self.path('store', 'x')
        os.mkdir(self.path('store'), 0o700)
        os.mkdir(self.path('out'))
        for option in ('--csv', '--html', '--tfevents'):
            self.refuse(402, 2, *self.command(option, store), part=f'{option} ')
            self.refuse(402, 2, *self.command('--export', self.path('out'), option,
                                              self.path('out', 'x')), part=f'{option} ')
            self.refuse(402, 2, *self.command('--log', one, option, self.path('.', 'one')),
                        part=f'--log and {option} are one file')
            self.refuse(402, 2, *self.command('--resume', option, one),
                        part=f'{option} with --resume needs the log')
            self.refuse(402, 2, PROGRAM, 'inspect', MODEL, option, one,
                        part=f'{option} is made of the log of a run, and {MODEL} is none')

    def test_a_run_outlives_its_table_and_ends_with_1(self):
        try:
            master, slave = os.openpty()
        except OSError as error:
            self.skipTest(f'no pseudo-terminals: {error}')
        path = os.ttyname(slave)
        child = subprocess.Popen(self.command('--log', self.path('run.jsonl'), '--csv', path,
                                              steps=40), stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
        seen = b''
        while seen.count(b'\n') < 3:
            seen += os.read(master, 1)
        os.close(slave)
        os.close(master)  # as a drive that is gone
        told = child.stderr.read()
        child.stderr.close()
        self.assertEqual(child.wait(timeout=60), 1)
        self.assertEqual(len(records(self.path('run.jsonl'))), 40)
        self.assertEqual(len(re.findall(r"(?m)^warning\[W107\] the csv '.*' cannot be written "
                                        r"\(.*\)\. .* The run goes on without it\.$", told)), 1,
                         told)
        self.assertRegex(told, r"error\[E107\] the csv '.*' cannot be written")


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1], verbosity=2)
