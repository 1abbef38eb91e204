#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ./run shows while it builds and tests: never nothing, and all of it where something fails.

    run_script.py SOURCE_ROOT

A copy of the script with a `ninja` and a `meson` of our own, which wait for what is shown: nothing
here waits for time to pass but the clock that is shown itself.
"""
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.join(ROOT, 'tests'))
import suites  # noqa: E402

SLOW = """#!/bin/bash
echo "[1/2] Compiling C object a.o"
read -r answer <"$GATE"
echo "[2/2] a warning that nobody sees unless it fails"
[ "$answer" = well ]
"""
MESON = """#!/bin/bash
case "$*" in
*--list*) printf 'hoistway:%s\\n' 'aio / aio/one' 'aio / aio/two' 'e2e / e2e/all' ;;
*unknown*) echo 'no such test'; exit 1 ;;
test*)
    printf '%d/3 hoistway:%s 0.%d0s\\n' 1 'aio / aio/one  OK  ' 1 2 'e2e / e2e/all  FAIL' 2 \\
        3 'aio / aio/two  SKIP' 3
    printf 'Ok: 1\\nFail: 1\\n'
    exit 1 ;;
esac
"""
MESON_TEST = """#!/bin/bash
case "$*" in
*--list*) echo 'hoistway:aio / aio/one' ;;
test*)
    shift 2
    log=testlog result=${RESULT:-OK}
    case "$*" in *--logbase*) log=again result=OK ;; *) echo "$*" >>"$ASKED" ;; esac
    mkdir -p "$1/meson-logs"
    echo '{"name": "aio / aio/one", "result": "'$result'", "duration": 0.1, "returncode": 1}' \\
        >"$1/meson-logs/$log.json"
    echo '1/1 hoistway:aio / aio/one  OK  0.10s' ;;
esac
"""

QUICK = "#!/bin/sh\n"  # of what is not looked at here
TIDY = """#!/bin/bash
for file; do :; done
[ "$file" = one.c ] || read -r answer <"$GATE"
[ "$answer" != ill ] || { echo "/x/build/../two.c:1:2: warning: bad [check]"; exit 1; }
"""
CLANG_FORMAT = """#!/bin/sh
echo "clang-format version 14.0.0"
"""
PYTHON = """#!/bin/bash
case "$1" in
*/fuzz.py)
    echo "fuzz/config: for 7 s"
    read -r answer <"$GATE"
    echo "==> fuzz/config: nothing found" ;;
*/suites.py) echo "$*" >>"$0.asked" ;;
*/report.py) echo "the report runs" ;;
*/make_bundle.py)
    echo "bundle: hoistway"
    read -r answer <"$GATE"
    echo "==> build/bundle: 9 files" ;;
esac
"""


class RunScript(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder, self.gate = scratch.name, os.path.join(scratch.name, 'gate')
        os.mkfifo(self.gate)
        shutil.copy(os.path.join(ROOT, 'run'), self.folder)
        os.mkdir(os.path.join(self.folder, 'build'))
        os.mkdir(os.path.join(self.folder, 'bin'))
        open(os.path.join(self.folder, 'build', 'build.ninja'), 'w', encoding='ascii').close()
        # every package "is installed"
        for name, text in (('ninja', SLOW), ('meson', MESON), ('dpkg-query', '#!/bin/sh\n'
                                                               'printf installed\n')):
            self.program(name, text)
        self.environment = {**os.environ, 'GATE': self.gate, 'TERM': 'xterm',
                            'PATH': self.folder + '/bin:' + os.environ['PATH']}

    def program(self, name, text):
        path = os.path.join(self.folder, 'bin', name)
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)
        os.chmod(path, 0o755)

    def build(self, job='build', **how):
        return subprocess.Popen(['./run', job], cwd=self.folder, stdin=subprocess.DEVNULL,
                                env={**self.environment, 'HOISTWAY_RUN_SILENCE': '1'}, **how)

    def answer(self, word):
        with open(self.gate, 'w', encoding='ascii') as gate:
            gate.write(word + '\n')

    def read_until(self, fd, pattern, shown=''):
        while not re.search(pattern, shown):
            part = os.read(fd, 4096)
            self.assertTrue(part, shown)
            shown += part.decode()
        return shown

    def test_on_a_terminal_a_line_ticks(self):
        try:
            master, terminal = pty.openpty()
        except OSError as error:
            self.skipTest(f'there are no pseudo-terminals here: {error}')
        with self.build(stdout=terminal, stderr=terminal) as child:
            os.close(terminal)
            shown = self.read_until(master, r'\r\x1b\[K +0:02  \[1/2\] Compiling C object a\.o')
            self.answer('well')
            shown = self.read_until(master, r'built: build/tools/hoistway', shown)
        os.close(master)
        self.assertEqual(child.returncode, 0)
        self.assertNotIn('a warning that nobody sees', shown.split('==> built in')[1])

    def test_in_a_pipe_a_line_comes_from_time_to_time(self):
        with self.build(stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            shown = self.read_until(child.stdout.fileno(), r'\n +0:0[1-9]  \[1/2\] Compiling')
            self.answer('well')
            shown += child.stdout.read().decode()
        self.assertEqual(child.returncode, 0)
        self.assertRegex(shown, r'\n==> built in \d+ s\n')
        self.assertNotIn('\r', shown)

    def test_of_a_build_that_fails_everything_is_shown(self):
        with self.build(stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            self.answer('ill')
            shown = child.stdout.read().decode()
        self.assertEqual(child.returncode, 1)
        self.assertIn('[1/2] Compiling C object a.o\n[2/2] a warning that nobody sees', shown)
        self.assertRegex(shown, r'run: failed \(1\): ninja -C build\nrun: the build failed\n\Z')

    def lint(self, answer):
        """How it ends where its second file of two has waited for this -> status, output."""
        for name, text in (('ninja', QUICK), ('clang-tidy', TIDY), ('clang-format', CLANG_FORMAT)):
            self.program(name, text)
        style = os.path.join(self.folder, 'tests', 'style')
        shutil.copytree(os.path.join(ROOT, 'tests', 'style'), style)
        for name, text in (('one.c', '\n'), ('two.c', '\n'), ('build/compile_commands.json', '[]'),
                           ('tests/style/style.py', """import sys
if sys.argv[1] == 'sources':
    print('one.c\\ntwo.c')
""")):
            with open(os.path.join(self.folder, name), 'w', encoding='ascii') as file:
                file.write(text)
        with self.build('lint', stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            shown = self.read_until(child.stdout.fileno(), r'\n +0:0[1-9]  1 of 2: one\.c\n')
            self.answer(answer)
            shown += child.stdout.read().decode()
        return child.returncode, shown

    def test_lint_tells_how_many_files_it_has_looked_at(self):
        status, shown = self.lint('well')
        self.assertEqual(status, 0, shown)
        self.assertRegex(shown, r'\n==> lint: nothing found in \d+ s\n\Z')

    def test_lint_shows_what_it_finds_and_nothing_else(self):
        status, shown = self.lint('ill')
        self.assertEqual(status, 1, shown)
        self.assertRegex(shown.split('1 of 2: one.c\n')[-1],
                         r'\A( +0:\d\d  [^\n]*\n)*two\.c:1:2: warning: bad \[check\]\n'
                         r'run: lint found ')

    def ticks(self, job, pattern):
        """What a job shows that says `pattern` while it waits."""
        for name, text in (('ninja', QUICK), ('meson', QUICK), ('python3', PYTHON)):
            self.program(name, text)
        with self.build(job, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            shown = self.read_until(child.stdout.fileno(), r'\n +0:0[1-9]  ' + pattern)
            self.answer('well')
            shown += child.stdout.read().decode()
        self.assertEqual(child.returncode, 0, shown)
        return shown

    def test_the_fuzzers_of_a_soak_tell_that_they_go_on(self):
        shown = self.ticks('soak', r'fuzz/config: for 7 s\n')
        self.assertIn('\n==> fuzz/config: nothing found\n', shown)

    def test_a_soak_runs_what_is_long_the_modes_under_asan_and_all_under_tsan(self):
        self.ticks('soak', r'fuzz/config: for 7 s\n')
        with open(self.folder + '/bin/python3.asked', encoding='ascii') as file:
            asked = [line.split(maxsplit=1)[1] for line in file]
        for line, ends in zip(asked, (r'long -C build .* --suite soak',
                                      r'asan\+ubsan -C build-asan .* --suite modes --timeout.*',
                                      r'tsan -C build-tsan .* --no-suite soak --timeout.*'),
                              strict=True):
            self.assertRegex(line, rf'^{ends}$')

    def test_a_soak_of_ranks_runs_what_is_long_of_them_alone(self):
        for name, text in (('ninja', QUICK), ('meson', QUICK), ('python3', PYTHON)):
            self.program(name, text)
        done = subprocess.run(['./run', 'soak', 'ranks'], cwd=self.folder, text=True,
                              capture_output=True, env=self.environment, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.folder + '/bin/python3.asked', encoding='ascii') as file:
            asked, = [line.split(maxsplit=1)[1] for line in file if ' long ' in line]
        self.assertRegex(asked, r'^long -C build .* e2e/nodes .* e2e/rank_soak e2e/slurm$')
        done = subprocess.run(['./run', 'soak', 'rank'], cwd=self.folder, text=True,
                              capture_output=True, env=self.environment, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("want a whole number of seconds or 'ranks', got 'rank'", done.stderr)

    def test_a_bundle_tells_what_it_takes(self):
        shown = self.ticks('bundle', r'bundle: hoistway\n')
        self.assertRegex(shown, r'\n==> build/bundle: 9 files\n\Z')

    def gpu_where_packages_are_missing(self, *words):
        self.program('dpkg-query', '#!/bin/sh\nexit 1\n')
        self.program('pkg-config', '#!/bin/sh\nexit 1\n')
        self.program('python3', PYTHON)
        for name in ('apt-get', 'sudo'):
            self.program(name, '#!/bin/sh\ntouch "$0.was-called"\n')
        done = subprocess.run(['./run', 'gpu', *words], cwd=self.folder, stdin=subprocess.DEVNULL,
                              text=True, env=self.environment, capture_output=True, check=False)
        called = [n for n in os.listdir(self.folder + '/bin') if n.endswith('was-called')]
        self.assertEqual(called, [])
        return done

    def test_the_gpu_job_installs_nothing_and_says_what_to_carry(self):
        done = self.gpu_where_packages_are_missing()
        self.assertEqual((done.returncode, done.stdout), (2, ''))
        self.assertRegex(done.stderr, r'(?s)\Arun: hoistway cannot be built here, .*liburing-dev '
                                      r'.*without a network carry a bundle here, which ./run bundl')

    def test_what_the_gpu_job_takes_is_told_before_anything_is_built(self):
        for word in ('--help', '-h'):
            done = self.gpu_where_packages_are_missing('kernels', word)
            self.assertEqual((done.returncode, done.stdout), (0, 'the report runs\n'), done.stderr)

    def test_the_gpu_job_runs_what_has_been_built(self):
        os.mkdir(self.folder + '/build/tools')
        self.program('../build/tools/hoistway', QUICK)
        done = self.gpu_where_packages_are_missing()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r'\A==> build/ runs as it is: .*liburing-dev .*\n'
                                      r'the report runs\n\Z')

    def test_a_suite_has_a_line_when_it_ends(self):
        done = self.suites('-C', 'build')
        self.assertEqual(done.returncode, 0)
        self.assertEqual([line for line in done.stdout.split('\n') if line.startswith('==> ')], [
            '==> plain: FAILED e2e/all (FAIL); its output is told at the end',
            '==> plain: e2e: 1 failed, 0.2 s',
            '==> plain: aio: 1 passed, 1 skipped, 0.4 s'])
        self.assertIn('2 of 3 tests: e2e/all: failed\n', done.stdout)

    def test_where_no_test_runs_it_says_why(self):
        done = self.suites('unknown')
        self.assertEqual((done.returncode, done.stdout), (1, 'no such test\n'))

    def asked(self, *words, turn=0, result='OK'):
        """How `./run test` ends -> what it asks of `meson test` in each build; its last line."""
        for name, text in (('ninja', QUICK), ('meson', MESON_TEST)):
            self.program(name, text)
        os.makedirs(os.path.join(self.folder, 'build-asan'), exist_ok=True)
        shutil.copy(os.path.join(self.folder, 'build', 'build.ninja'), self.folder + '/build-asan')
        os.makedirs(os.path.join(self.folder, 'tests'), exist_ok=True)
        for name in ('again.py', 'suites.py', 'summary.py'):
            shutil.copy(os.path.join(ROOT, 'tests', name), os.path.join(self.folder, 'tests'))
        asked = os.path.join(self.folder, 'asked')
        open(asked, 'w', encoding='ascii').close()
        done = subprocess.run(['./run', 'test', *words], cwd=self.folder, text=True, check=False,
                              env={**self.environment, 'ASKED': asked, 'RESULT': result,
                                   'HST_TEST_TURN': str(turn)},
                              capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r'\n==> [+a-z]+: aio: 1 (passed|failed), 0\.1 s\n')
        with open(asked, encoding='ascii') as file:
            return file.read().splitlines(), done.stdout.splitlines()[-1]

    def test_the_tests_are_the_short_ones_of_the_plain_build(self):
        (plain,), last = self.asked()
        self.assertRegex(plain, r'^build .* --no-suite soak --no-suite bench --no-suite all ')
        self.assertEqual(last, '1 passed, 0 failed, 0 skipped')

    def test_with_all_they_are_the_longer_ones_too_and_those_of_the_sanitizers(self):
        (plain, sanitizers), last = self.asked('--all')
        for asked, folder in ((plain, 'build'), (sanitizers, 'build-asan')):
            self.assertRegex(asked, rf'^{folder} .* --no-suite soak --no-suite bench --timeout')
        self.assertNotRegex(plain, '--no-suite (kernels|simt)')
        self.assertRegex(sanitizers, r' --no-suite simt --no-suite cpu_adam$')
        (_, sanitizers), _ = self.asked('--all', turn=1)
        self.assertRegex(sanitizers, r' --no-suite kernels --no-suite tools$')
        (_, sanitizers), _ = self.asked('--all', 'simt/one')
        self.assertNotIn('--no-suite simt', sanitizers)
        self.assertEqual(last, '2 passed, 0 failed, 0 skipped')

    def test_with_all_what_fails_is_tried_once_more_in_both_builds(self):
        _, last = self.asked('--all', result='FAIL')
        self.assertEqual(last, '2 passed, 0 failed, 0 skipped')

    def test_a_test_that_is_named_runs_though_it_is_a_longer_one(self):
        self.assertRegex(self.asked('aio/one')[0][0], r' --no-suite bench --timeout.* aio/one$')
        self.assertRegex(self.asked('--suite', 'aio')[0][0], r'--no-suite all .* --suite aio$')
        for named in (('-v', 'aio/one'), ('--repeat', '2', 'aio/one'), ('--suite', 'all')):
            self.assertNotIn('--no-suite all', self.asked(*named)[0][0])
        self.assertEqual(len(self.asked('--all', 'aio/one')[0]), 2)

    def suites(self, *arguments):
        return subprocess.run([sys.executable, suites.__file__, 'plain', *arguments], text=True,
                              env=self.environment, capture_output=True, check=False)


if __name__ == '__main__':
    unittest.main()
