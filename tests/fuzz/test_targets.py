#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every target that is built is one that fuzz.py runs and that README.md describes, and its words
are those of the table.

    test_targets.py PRINTER DICTIONARY TARGET...

PRINTER prints the table of DeepSpeed's keys, of which DICTIONARY was made; TARGET... are those that
meson builds.
"""
import os
import re
import subprocess
import sys
import unittest

from fuzz import DICTIONARIES, TARGETS

PRINTER, DICTIONARY = sys.argv[1:3]
BUILT = sorted(sys.argv[3:])
MOST = 64  # bytes of a word that libFuzzer takes
README = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'README.md')


class Targets(unittest.TestCase):
    def test_all_that_are_built_are_run(self):
        self.assertEqual(sorted(TARGETS), BUILT)

    def test_all_that_are_built_are_described(self):
        with open(README, encoding='utf-8') as f:
            self.assertEqual(sorted(re.findall(r'^\| `(\w+)\.c`', f.read(), re.M)), BUILT)

    def test_the_words_are_the_keys_of_the_table(self):
        """In libFuzzer's syntax, where a line that it does not take ends all."""
        table = subprocess.run([PRINTER], capture_output=True, text=True, check=True).stdout
        rows = [line.split(' | ')[0] for line in table.splitlines()[2:]]
        keys = {path.split('.')[-1] for row in rows for path in re.findall('`([^`]+)`', row)}
        with open(DICTIONARY, encoding='ascii') as f:
            lines = f.read().splitlines()
        for line in lines:
            self.assertRegex(line, r'^"(\\["\\]|[^"\\])+"$')
        words = [line[1:-1].replace('\\"', '"') for line in lines]
        self.assertLessEqual(max(map(len, words)), MOST)
        self.assertEqual({word[1:-3] for word in words if word.endswith('": ')}, keys)
        self.assertGreater(len(keys), 150)
        self.assertEqual([f'{name}.dict' for name in DICTIONARIES],
                         [os.path.basename(DICTIONARY)])


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
