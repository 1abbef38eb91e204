#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hoistway plan --html`: one page that asks for nothing, whose numbers are those of --json.

    plan_page.py PATH_OF_HOISTWAY [Class.test_name]
"""
import html.parser
import json
import os
import shlex
import shutil
import subprocess
import unittest

import case
from plan_case import Given, lasts, machine

VOID = {'meta', 'rect', 'br'}
LANES = {'read', 'write', 'h2d', 'd2h', 'net', 'forward', 'recompute', 'backward', 'update',
         'gpu update'}
SLOW = {'read': 2e6, 'write': 1e6, 'mixed': 2e6, 'compute': 1e9}
DRIVES = ('--dram=1G', '--nvme=1G', '--place=states=nvme,weights=nvme', '--durability=none')
KIB = 1 << 10


class Page(html.parser.HTMLParser):
    """Well-formed, and all of it: else an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.rows, self.drawn, self.command = [], [], [], {}, ''
        self.texts = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if tag == 'tr':
            self.rows.append([])
        if tag in ('th', 'td'):
            self.rows[-1].append('')
        if tag == 'svg':
            self.figure = self.drawn.setdefault(attrs['aria-label'], ([], []))
        if tag == 'rect':
            self.figure[0].append({name: attrs[name] for name in ('class', 'x', 'y', 'width')})
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ''
        if inside in ('th', 'td'):
            self.rows[-1][-1] += data
        if inside == 'pre':
            self.command += data
        if inside == 'text':
            self.figure[1].append(data)

    def cell(self, name):
        return [row[1] for row in self.rows if row[0] == name]


def size(count):
    """As hoistway writes bytes."""
    for power, unit in ((4, 'TiB'), (3, 'GiB'), (2, 'MiB'), (1, 'KiB')):
        if count >= KIB**power:
            return f'{count / KIB**power:.1f} {unit}'
    return f'{count} B' if count else '-'


class Html(Given):
    def setUp(self):
        super().setUp()
        self.config({**case.CONFIG, 'hidden_size': 256, 'intermediate_size': 768,
                     'num_hidden_layers': 4})

    def page(self, figures, *args, status=0):
        rates = self.write('rates', machine(**figures))
        told = self.plan('--rates', rates, '--html=page.html', *args, status=status)
        with open(self.path('page.html'), encoding='utf-8') as f:
            text = f.read()
        self.assertLess(len(text), 300 * KIB)
        self.assertEqual(os.listdir(self.folder).count('page.html'), 1)
        return told, Page(text)

    def test_it_asks_for_nothing(self):
        _, page = self.page(SLOW, *DRIVES)
        allowed = {'html', 'head', 'meta', 'title', 'style', 'body', 'h1', 'table', 'tr', 'th',
                   'td', 'figure', 'figcaption', 'span', 'svg', 'text', 'rect', 'p', 'pre'}
        self.assertLessEqual({tag for tag, _ in page.tags}, allowed)
        for tag, attrs in page.tags:
            self.assertFalse({'src', 'href', 'xlink:href', 'action', 'data'} & set(attrs), tag)
            self.assertFalse([name for name in attrs if name.startswith('on')], tag)
        with open(self.path('page.html'), encoding='utf-8') as f:
            self.assertNotRegex(f.read(), r'(?i)url\(|@import|https?:|javascript:')

    def test_its_numbers_are_those_of_the_object(self):
        told, page = self.page(SLOW, *DRIVES, '--tokens=1e9', '--tbw=600')
        self.assertEqual(page.cell('fits'), ['yes'])
        self.assertEqual(page.cell('step'), [f'{told["predicted_step_s"]:.3g} s, at least '
                                             f'{told["bound_s"]:.3g} s in any order'])
        self.assertEqual(page.cell('bounded by'),
                         [f'{told["bound_by"]}; computation alone is '
                          f'{100 * told["compute_fraction"]:.0f} % of a step'])
        helps = page.cell('what would help')
        self.assertEqual(len(helps), len(told['twice_as_fast']) + len(told['would_help']))
        for line, help in zip(helps, told['twice_as_fast'] + told['would_help']):
            self.assertIn(f': {help["predicted_step_s"]:.3g} s a step', line)
        self.assertEqual(page.cell('training'), [f'1.0B tokens take {told["days"]:.3g} days'])
        day, years = told['written_day_bytes'] / 1e12, told['drive_years']
        self.assertEqual(page.cell('drives'), [f'are written {day:.3g} TB a day',
                                               f'last {lasts(years)}, at 600 TBW each'])
        for name, value in told['rates'].items():
            self.assertEqual([cell.split()[0] for cell in page.cell(name)],
                             [f'{value:.4g}'] if value else [])

    def test_its_memory_is_that_of_the_object(self):
        told, page = self.page(SLOW, *DRIVES)
        self.assertIn(['', 'dram', 'nvme'], page.rows)
        for name, tiers in told['memory'].items():
            self.assertIn([name, size(tiers['dram']), size(tiers['nvme'])], page.rows)
        pieces, texts = page.drawn['Memory, each bar a budget']
        self.assertEqual(texts[0::2], ['dram', 'nvme'])
        names = [name for name in told['memory'] if name not in ('total', 'budget')]
        for tier, y in zip(('dram', 'nvme'), sorted({piece['y'] for piece in pieces}, key=float)):
            for piece in (piece for piece in pieces if piece['y'] == y):
                bytes_ = told['memory'][names[int(piece['class'][1:])]][tier]
                share = bytes_ / told['memory']['budget'][tier]
                self.assertAlmostEqual(float(piece['width']), 490 * share, delta=0.06)

    def test_the_step_is_the_simulated_one(self):
        told, page = self.page(SLOW, *DRIVES)
        pieces, texts = page.drawn['A step, simulated: how busy each lane is']
        notes = dict(zip(texts[0::2], texts[1::2]))
        self.assertLessEqual(set(notes), LANES)
        seconds = {lane: float(note.split()[0]) for lane, note in notes.items()}
        for lane, most in seconds.items():
            self.assertLessEqual(most, told['predicted_step_s'] * 1.01, lane)
        written = told['written_step_bytes'] / SLOW['write']
        self.assertGreaterEqual(seconds['write'], 0.99 * written)
        computed = sum(seconds.get(lane, 0) for lane in ('forward', 'recompute', 'backward'))
        self.assertGreaterEqual(computed, 0.99 * told['compute_fraction']
                                * told['predicted_step_s'])
        for piece in pieces:
            self.assertGreaterEqual(float(piece['x']), 80)
            self.assertLessEqual(float(piece['x']) + float(piece['width']), 570.2)
        rows = {}
        for piece in pieces:
            rows.setdefault(piece['y'], []).append((float(piece['x']), float(piece['width'])))
        for row in rows.values():  # one after another
            for (x, width), (after, _) in zip(row, row[1:]):
                self.assertLessEqual(x + width, after + 0.11)

    def test_what_does_not_fit_has_a_page_too(self):
        told, page = self.page(SLOW, '--dram=64K', status=3)
        self.assertEqual(page.cell('fits'), ['no: ' + told['why']])
        self.assertNotIn('A step, simulated: how busy each lane is', page.drawn)

    def test_what_is_not_predicted_shows_no_step(self):
        told, page = self.page({'compute': 0}, *DRIVES)
        self.assertEqual(page.cell('step'), ['not known: ' + told['why']])
        self.assertEqual(list(page.drawn), ['Memory, each bar a budget'])

    def test_its_command_makes_it_again(self):
        store = "it's <b>\"here\"</b> & there"
        told, page = self.page(SLOW, *DRIVES, '--store', store)
        words = shlex.split(page.command)
        self.assertEqual(words[:2], ['hoistway', 'plan'])
        self.assertIn(store, words)
        again = self.run_verb(*words[1:])
        self.assertEqual((again.returncode, again.stderr), (0, ''))
        again = json.loads(again.stdout)
        for one in (again, told):  # the clock goes on between the two commands
            self.assertTrue(all(age is None or age > 0 for age in one.pop('rate_ages_s').values()))
        self.assertEqual(again, told)

    def test_its_command_has_all_of_a_long_or_strange_name(self):
        for store in ('/d/' + 'long/' * 150 + 'end', 'tab\there', "it's\nmine\\n $x", 'esc\x1b[2J'):
            _, page = self.page(SLOW, *DRIVES, '--store', store)
            self.assertNotIn('\x1b', page.command)
            self.assertEqual(len(page.command.splitlines()), 1)
            words = subprocess.run(['bash', '-c', "printf '%s\\0' " + page.command],
                                   capture_output=True, text=True, check=True).stdout.split('\0')
            self.assertEqual(words[:2], ['hoistway', 'plan'])
            self.assertIn(store, words)

    def test_names_of_others_stay_text(self):
        shutil.copytree(self.path('model'), self.path('<script>alert(1)'))
        done = self.run_verb('plan', '--model', '<script>alert(1)', '--seq-len=16',
                             '--batch-tokens=64', '--device=host', '--html', 'page.html',
                             '--rates', self.write('rates', machine()), '--dram=1G')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        with open(self.path('page.html'), encoding='utf-8') as f:
            page = Page(f.read())
        self.assertNotIn('script', {tag for tag, _ in page.tags})
        self.assertEqual(page.cell('model'), ['<script>alert(1)'])

    def test_it_replaces_its_own_kind_alone(self):
        self.page(SLOW, *DRIVES)
        first = os.stat(self.path('page.html')).st_size
        _, page = self.page(SLOW, '--dram=64K', status=3)
        self.assertLess(os.stat(self.path('page.html')).st_size, first)
        self.assertTrue(page.cell('fits')[0].startswith('no: '))
        rates = ('--rates', self.path('rates'), '--dram=1G')
        for path in (self.write('mine', 'mine'), self.path('model'), self.path('none', 'x'),
                     self.path('rates')):
            done = self.run_plan(*rates, '--html', path)
            self.assert_refused(done, 107, 1, path)
        with open(self.path('mine'), encoding='utf-8') as f:
            self.assertEqual(f.read(), 'mine')
        done = self.run_plan('--dram=1G', '--html=one', '--save-rates=one')
        self.assert_refused(done, 402, 2, '--html and --save-rates name one file')
        self.assertFalse(os.path.exists(self.path('one')))


if __name__ == '__main__':
    unittest.main()
