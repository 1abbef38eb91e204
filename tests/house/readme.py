#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's first screen: a picture, figures that stand in the page they name, five commands;
docs/options.md names only options that there are; docs/what-is-trained.md only tests that there
are; docs/glossary.md has at most 40 words, each once, with its meaning and another system's word.

    readme.py PATH_OF_HOISTWAY SOURCE_ROOT
"""
import json
import os
import re
import subprocess
import sys
import unittest

PROGRAM, ROOT = sys.argv[1:3]
del sys.argv[1:3]
FIRST_SCREEN_LINES = 45


def read(*parts):
    with open(os.path.join(ROOT, *parts), encoding='utf-8') as file:
        return file.read()


def figures(text):
    return re.findall(r'(?<![\w.])\d[\d,]*(?:\.\d+)?', text)


class Readme(unittest.TestCase):
    first = read('README.md').split('\n## ')[0]

    def test_every_figure_stands_in_the_page_that_it_names(self):
        rows = re.findall(r'^\| (.*?) \| (.*?) \| \[\w+\]\((docs/results/\S+)\) \|$', self.first,
                          re.M)
        self.assertGreaterEqual(len(rows), 5)
        for what, figure, source in rows:
            there = figures(read(source))
            self.assertTrue(figures(figure), what)
            for number in figures(what + ' ' + figure):
                self.assertIn(number, there, f'{what}: {source}')

    def test_the_first_screen_has_a_picture_and_five_commands(self):
        self.assertLessEqual(self.first.count('\n'), FIRST_SCREEN_LINES)
        picture, commands = re.findall(r'^```\n(.*?)^```$', self.first, re.M | re.S)
        for tier in ('--hbm', '--dram', '--nvme'):
            self.assertIn(tier, picture)
        lines = commands.splitlines()
        self.assertEqual(len(lines), 5)
        jobs = re.findall(r'^  (\w+) ', subprocess.run([os.path.join(ROOT, 'run'), '--help'],
                                                       capture_output=True, text=True,
                                                       check=True).stdout, re.M)
        verbs = re.findall(r'^  (\w+) ', self.help(), re.M)
        for line in lines:
            program, word = line.split()[:2]
            self.assertIn(word, jobs if program == './run' else verbs, line)
            self.assert_options_exist(line, *([] if program == './run' else [word]))

    def test_what_only_all_runs_is_listed(self):
        """The table may have more: tests of the double are not built everywhere."""
        build = os.path.dirname(os.path.dirname(os.path.abspath(PROGRAM)))
        with open(os.path.join(build, 'meson-info', 'intro-tests.json'), encoding='utf-8') as file:
            built = {test['name'] for test in json.load(file) if 'hoistway:all' in test['suite']}
        table = read('tests', 'README.md').split('## What only `--all` runs')[1].split('\n## ')[0]
        self.assertLessEqual(built, set(re.findall(r'`(\w+/[\w/-]+)`', table)))
        self.assertTrue(built)

    def test_every_option_of_the_page_is_one(self):
        self.assert_options_exist(read('docs', 'options.md'), 'train')

    def test_each_sentence_of_what_is_trained_names_tests_that_there_are(self):
        rows = re.findall(r'^\| (?!what holds|---)(.*) \| (.*) \|$',
                          read('docs', 'what-is-trained.md'), re.M)
        self.assertGreater(len(rows), 30)
        for sentence, shown in rows:
            named = re.findall(r'`([^`]+): (\w+)`', shown)
            self.assertEqual(shown, ', '.join(f'`{path}: {name}`' for path, name in named),
                             sentence)
            self.assertTrue(named, sentence)
            for path, name in named:
                text = read('tests', path)
                there = (rf'(?m)^    def {name}\(' if path.endswith('.py')
                         else rf'(?m)^\s+(?:cmocka_unit_test|TEST)\({name}\),$')
                self.assertRegex(text, there, f'{path}: {name}')

    def test_the_glossary_has_at_most_40_words_each_with_its_synonym(self):
        words = read('docs', 'glossary.md').split('\n## Names in the code\n')[0]
        rows = re.findall(r'^\| (?!word )([^|]+) \| ([^|]+) \| ([^|]+) \|$', words, re.M)
        self.assertEqual(len(rows), words.count('\n| ') - words.count('\n| word '))
        known = [word for word, _, _ in rows]
        self.assertEqual(len(known), len(set(known)))
        self.assertLessEqual(len(known), 40)

    def help(self, *verb):
        return subprocess.run([PROGRAM, *verb, '--help'], capture_output=True, text=True,
                              check=True).stdout

    def assert_options_exist(self, text, *verb):
        known = set(re.findall(r'--[a-z-]+', self.help(*verb)))
        self.assertLessEqual(set(re.findall(r'(?<!\S|`)--[a-z-]+|(?<=[ `])--[a-z-]+', text)),
                             known | {'--help'})


if __name__ == '__main__':
    unittest.main()
