#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which of the tests that failed beside others are tried alone, and what is told of them.

    again.py SOURCE_ROOT
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

TESTS = os.path.join(sys.argv.pop(1), 'tests')

# `meson test ... NAME`: the last letter of a name tells what comes of it alone
MESON = """#!/bin/bash
for name; do :; done
echo "$name" >>"$ASKED"
case $name in
*P) result=OK ;;
*N) exit 1 ;;
*) result=FAIL ;;
esac
echo "{\\"name\\": \\"x / $name\\", \\"result\\": \\"$result\\", \\"returncode\\": 0}" \\
    >"$3/meson-logs/again.json"
"""


class Again(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.build, self.asked = os.path.join(self.folder, 'build'), self.folder + '/asked'
        os.makedirs(self.build + '/meson-logs')
        with open(self.folder + '/meson', 'w', encoding='ascii') as file:
            file.write(MESON)
        os.chmod(self.folder + '/meson', 0o755)

    def tell(self, *failed):
        """failed: (name, what it printed, result, exit status). -> who is tried, what is told, and
        how that ends."""
        tests = [('a/fine', '', 'OK', 0), *failed]
        with open(self.build + '/meson-logs/testlog.json', 'w', encoding='ascii') as file:
            for name, text, result, code in tests:
                file.write(json.dumps({'name': f'x / {name}', 'result': result, 'duration': 0.1,
                                       'returncode': code, 'stdout': text}) + '\n')
        open(self.asked, 'w', encoding='ascii').close()
        environment = {**os.environ, 'PATH': f'{self.folder}:{os.environ["PATH"]}',
                       'ASKED': self.asked}
        for words in (('again.py', 'plain', self.build, '--option'),
                      ('summary.py', f'plain={self.build}')):
            done = subprocess.run([sys.executable, os.path.join(TESTS, words[0]), *words[1:]],
                                  env=environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.stderr, '')
        with open(self.asked, encoding='ascii') as file:
            return file.read().split(), done.stdout, done.returncode

    def test_what_passes_alone_is_told_and_counts_as_passed(self):
        tried, told, code = self.tell(('e/P', 'too late by 3 s', 'FAIL', 1))
        self.assertEqual((tried, code), (['e/P'], 0))
        self.assertIn('---- e/P (plain): FAIL, exit 1; alone it passed\ntoo late by 3 s\n', told)
        self.assertTrue(told.endswith('\nfailed beside others, passed alone: e/P (plain)\n\n'
                                      '2 passed, 0 failed, 0 skipped\n'), told)

    def test_what_fails_again_or_does_not_run_has_failed(self):
        tried, told, code = self.tell(('e/F', '', 'FAIL', 1), ('e/N', '', 'FAIL', 1))
        self.assertEqual((tried, code), (['e/F', 'e/N'], 1))
        self.assertNotIn('alone', told)
        self.assertTrue(told.endswith('1 passed, 2 failed, 0 skipped\n'), told)

    def test_findings_crashes_and_hangs_are_not_tried_again(self):
        for text, result, code in (('==1==ERROR: AddressSanitizer: x', 'FAIL', 1),
                                   ('a.c:1:2: runtime error: y', 'FAIL', 1),
                                   ('Segmentation fault (core dumped)', 'FAIL', 1),
                                   ('AssertionError: -11 != 0 : ', 'FAIL', 1),
                                   ("a.out: a.c:1: main: Assertion `x' failed.", 'FAIL', 1),
                                   ('rank 3 exited on signal 9 (Killed).', 'FAIL', 1),
                                   ('subprocess.TimeoutExpired: Command x', 'FAIL', 1),
                                   ('', 'FAIL', -11), ('', 'FAIL', 139), ('', 'ERROR', 99),
                                   ('', 'TIMEOUT', -15)):
            with self.subTest(text=text, result=result, code=code):
                tried, told, status = self.tell(('e/P', text, result, code))
                self.assertEqual((tried, status), ([], 1))
                self.assertTrue(told.endswith('1 passed, 1 failed, 0 skipped\n'), told)

    def test_where_many_fail_none_is_tried_again(self):
        tried, told, code = self.tell(*((f'e/{i}P', '', 'FAIL', 1) for i in range(4)))
        self.assertEqual((tried, code), ([], 1))
        self.assertTrue(told.endswith('1 passed, 4 failed, 0 skipped\n'), told)


if __name__ == '__main__':
    unittest.main()
