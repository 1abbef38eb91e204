#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What words.py has to find, planted."""
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import words  # noqa: E402


class Words(unittest.TestCase):
    def found(self, text, path='engine/exec/loop.c'):
        return [(text[:at].count('\n') + 1, word) for at, word, _ in words.breaches(path, text)]

    def test_a_part_of_a_name_is_found(self):
        self.assertEqual(self.found('int a;\nint WALK_open(struct lease_of *x);\n'),
                         [(2, 'WALK_open'), (2, 'lease_of')])

    def test_a_word_of_a_comment_is_found_at_the_end_of_a_line_too(self):
        self.assertEqual(self.found('/* For a grain it is computed\n * again. */\n'),
                         [(1, 'grain'), (1, 'computed\n * again')])

    def test_strings_stay_as_they_are(self):
        self.assertEqual(self.found('put("--grain %s computed again", "lease");\n'), [])

    def test_what_is_english_in_a_sentence_is_found_in_names_alone(self):
        self.assertEqual(self.found('/* It is far away. */ bool is_away;\n'), [(1, 'is_away')])

    def test_each_word_has_its_rooms(self):
        self.assertEqual(self.found('struct walk w;\n', 'tools/hf/tokenizer.c'), [])
        self.assertEqual(self.found('The period ends.\n`period`\n', 'docs/plan.md'),
                         [(1, 'period')])

    def test_longer_words_are_others(self):
        self.assertEqual(self.found('/* It is released; they are periodic. */ int release;\n'), [])


if __name__ == '__main__':
    unittest.main()
