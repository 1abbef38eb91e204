#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every target that is built is one that fuzz.py runs and that README.md describes.

    test_targets.py TARGET...

TARGET... are those that meson builds.
"""
import os
import re
import sys
import unittest

from fuzz import TARGETS

BUILT = sorted(sys.argv[1:])
README = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'README.md')


class Targets(unittest.TestCase):
    def test_all_that_are_built_are_run(self):
        self.assertEqual(sorted(TARGETS), BUILT)

    def test_all_that_are_built_are_described(self):
        with open(README, encoding='utf-8') as f:
            self.assertEqual(sorted(re.findall(r'^\| `(\w+)\.c`', f.read(), re.M)), BUILT)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
