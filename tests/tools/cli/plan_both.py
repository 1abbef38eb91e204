#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hoistway plan --compare`: two plans side by side are what each of them is alone.

    plan_both.py PATH_OF_HOISTWAY [Class.test_name]
"""
import json
import os
import re
import shutil
import unittest

from plan_case import HOST, SIZES, THREADS, Given, lasts, machine, sealed

HALF = {'compute': 1e9, 'update-fp32': 1e9, 'norm-fp32': 1e9}


class Both(Given):
    def setUp(self):
        super().setUp()
        for name, figures in (('a', {}), ('b', HALF)):
            rates = self.write(f'{name}.rates', machine(**figures))
            self.options(name, rates=rates, dram='256M')

    def options(self, name, **options):
        self.write(f'{name}.json', json.dumps({'model': self.path('model'), **options}))

    def both(self, *args):
        return self.run_verb('plan', *SIZES, THREADS, HOST, '--compare', 'a.json,b.json', *args)

    def alone(self, name, *args):
        done = self.run_verb('plan', *SIZES, THREADS, HOST, '--json', '--options', f'{name}.json',
                             *args)
        return json.loads(done.stdout)

    def test_the_objects_are_those_of_both(self):
        done = self.both('--json', '--tokens=1e9')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        told = [json.loads(line) for line in done.stdout.splitlines()]
        alone = [self.alone(name, '--tokens=1e9') for name in 'ab']
        for one in (*told, *alone):  # the clock goes on between the two commands
            self.assertTrue(all(age is None or age > 0 for age in one.pop('rate_ages_s').values()))
        self.assertEqual(told, alone)
        self.assertGreater(told[1]['predicted_step_s'], 100 * told[0]['predicted_step_s'])

    def test_the_table_has_their_numbers(self):
        done = self.both('--tokens=1e9')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        rows = {row[0]: row[1:] for row in
                (re.split(r' {2,}', line) for line in done.stdout.splitlines())}
        self.assertEqual(done.stdout.splitlines()[:2], ['A: a.json', 'B: b.json'])
        self.assertEqual(rows[''], ['A', 'B'])
        told = [self.alone(name, '--tokens=1e9') for name in 'ab']
        for name, text in (('a step takes', lambda t: f'{t["predicted_step_s"]:.3g} s'),
                           ('bounded by', lambda t: t['bound_by']),
                           ('computation', lambda t: f'{100 * t["compute_fraction"]:.0f} %'),
                           ('days', lambda t: f'{t["days"]:.3g}')):
            self.assertEqual(rows[name], [text(one) for one in told], name)
        self.assertEqual(rows['fits'], ['yes', 'yes'])
        self.assertTrue(all(cell.endswith(' of 256.0 MiB') for cell in rows['dram']))
        self.assertNotIn('nvme', rows)
        times = told[1]['tok_s'] / told[0]['tok_s']
        self.assertIn(f'\nB is {times:.3g} times as fast, by tokens a second\n', done.stdout)

    def test_two_alike_are_as_fast(self):
        self.options('b', rates=self.path('a.rates'), dram='256M')
        text = self.both().stdout
        self.assertIn('\nboth are as fast, by tokens a second\n', text)
        self.assertNotIn('times as fast', text)

    def test_one_that_does_not_fit_stands_there_too(self):
        self.options('b', rates=self.path('a.rates'), dram='64K')
        done = self.both()
        self.assertEqual((done.returncode, done.stderr), (3, ''))
        self.assertRegex(done.stdout, r'(?m)^fits +yes +no$')
        self.assertRegex(done.stdout, r'(?m)^a step takes +\S+ s +-$')
        self.assertNotIn('times as fast', done.stdout)

    def test_how_long_drives_last_stands_there_too(self):
        for name in 'ab':
            self.options(name, rates=self.path(f'{name}.rates'), dram='256M', nvme='1G',
                         place='states=nvme,weights=nvme', durability='none')
        text = self.both('--tbw=600').stdout
        years = [lasts(self.alone(name, '--tbw=600')['drive_years']) for name in 'ab']
        self.assertRegex(text, rf'(?m)^drives last +{years[0]} +{years[1]}$')

    def test_a_warning_says_which_plan_it_is_of(self):
        disturbed = machine().replace('operations 0\n', 'operations 0\ndisturbed other work\n')
        self.assertIn('disturbed', disturbed)
        self.options('b', rates=self.write('b.rates', sealed(disturbed[:disturbed.rindex('end ')])),
                     dram='256M')
        self.both()
        self.assertEqual(len(self.disturbed), 1, self.disturbed)
        self.assertTrue(self.disturbed[0].startswith('warning[W108] b.json: other work while '))

    def test_a_name_cannot_steer_a_terminal(self):
        for name in ('one\x1b[2J', 'two\x1b[2J'):
            shutil.copy(self.path('a.json'), self.path(name))
        done = self.run_verb('plan', *SIZES, THREADS, HOST,
                             '--compare=one\x1b[2J,two\x1b[2J')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertTrue(done.stdout.startswith('A: one\\x1b[2J\nB: two\\x1b[2J\n'), done.stdout)
        self.assertNotIn('\x1b', done.stdout)

    def test_a_file_says_nothing_that_two_plans_do_not_do(self):
        before = sorted(os.listdir(self.folder))
        for name in 'ab':
            kept = self.path(f'{name}.json')
            with open(kept, encoding='utf-8') as f:
                text = f.read()
            for option, value in (('html', 'page'), ('save-rates', 'kept'), ('probe', True),
                                  ('compare', 'a.json,b.json'), ('paper', 'zero-1'),
                                  ('json', True)):
                self.write(f'{name}.json', json.dumps({**json.loads(text), option: value}))
                done = self.both()
                self.assert_refused(done, 402, 2, f"'{name}.json' has '{option}'")
                self.assertEqual(done.stdout, '')
            self.write(f'{name}.json', text)
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        self.options('a', rates=self.path('a.rates'), dram='256M', json=True)
        done = self.both('--json')
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 2))

    def test_an_error_is_of_a_file_and_ends_as_one_plan_s(self):
        """Where it has a place in the file it names that once, and else the file."""
        given, drive = ('plan', *SIZES, THREADS, HOST), '/dev/null/x'
        self.options('b', store=drive, dram='256M')
        alone, done = self.run_verb(*given, '--options', 'b.json'), self.both()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, '', alone.stderr))
        self.assertRegex(done.stderr, r'\Aerror\[E105\] b\.json:1:\d+: store "/dev/null/x": store')
        self.options('b', dram='256M')
        alone = self.run_verb(*given, '--options', 'a.json', f'--store={drive}')
        done = self.both(f'--store={drive}')
        self.assertEqual((done.returncode, done.stdout), (1, ''))
        self.assertEqual(done.stderr, alone.stderr.replace('] ', '] a.json: '))

    def test_what_is_refused(self):
        for names in ('a.json', 'a.json,', ',b.json', 'a.json,b.json,a.json'):
            self.assert_refused(self.run_verb('plan', '--compare', names), 402, 2, 'not two files')
        for more in ('--html=page', '--save-rates=rates', '--probe', '--options=a.json',
                     '--paper=zero-1'):
            self.assert_refused(self.both(more), 402, 2, 'plans twice and writes nothing')
        before = sorted(os.listdir(self.folder))
        self.write('b.json', '{"model": 3')
        done = self.both()
        self.assertEqual((done.returncode, done.stdout), (2, ''))
        self.assertRegex(done.stderr, r'^error\[E40\d\] [^\n]*b\.json[^\n]*\n$')
        self.write('b.json', '{}')
        self.assert_refused(self.both(), 403, 2, 'b.json: plan needs --model')
        self.assertEqual(sorted(os.listdir(self.folder)), before)


if __name__ == '__main__':
    unittest.main()
