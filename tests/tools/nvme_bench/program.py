#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nvme-bench as its user meets it: exit codes, one line per failure, nothing left behind; sandboxes
that refuse io_uring or O_DIRECT, RAM, full file systems, signals, a drive that lies.

program.py PATH_OF_NVME_BENCH SOURCE_ROOT
"""
import html.parser
import json
import math
import os
import pwd
import re
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *['..'] * 2))
from sandbox import (CLONE_NEWNS, KNOWN_MACHINE, LIBC, MS_PRIVATE, MS_REC,  # noqa: E402
                     forbid_fallocate, forbid_io_uring, forbid_o_direct, forbid_writing_zeros,
                     mount_tmpfs)
from short import by_turns  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
SMALL = ['--size', '32M', '--sustain', '16M', '--blocks', '256K', '--depths', '1,4', '--threads',
         '1,2', '--idle', '0']
SIM = ['sim:read=7G,write=5G,lat=80us', *SMALL]
PLAN = ['--plan', '8B', '--gpu-tflops', '150']


def run(*args, **more):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=120,
                          **more)


class Page(html.parser.HTMLParser):
    """Every tag closed, in order; what is loaded from elsewhere."""

    VOID = {'meta', 'link', 'br', 'img'}

    def __init__(self, text):
        super().__init__()
        self.open, self.loads, self.count, self.faults = [], [], {}, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.loads += [v for k, v in attrs if k in ('src', 'href', 'srcset')]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='nvme_bench_', dir=os.getcwd())
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.join(scratch.name, 'drive')
        self.beside = scratch.name
        os.mkdir(self.folder)

    def assert_refused(self, done, code, status, part=''):
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, '')
        errors = [line for line in done.stderr.splitlines() if line.startswith('error[')]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertTrue(errors[0].startswith(f'error[E{code}] '), errors[0])
        self.assertIn(part, errors[0])
        self.assertEqual(os.listdir(self.folder), [])

    def assert_measured(self, done, status=0):
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(os.listdir(self.folder), [])
        return json.loads(done.stdout)


class CommandLine(Case):
    def test_help_lists_the_options_and_the_exit_codes(self):
        done = run('--help')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertTrue(done.stdout.startswith('usage: nvme-bench DIR... [options]\n'))
        self.assertIn('3 below --target', done.stdout)
        for option in ('--plan', '--json', '--html', '--target', '--from', '--compare'):
            self.assertIn(f'\n  {option}', done.stdout)
        self.assertRegex(run('--version').stdout, r'\Anvme-bench \d+\.\d+\.\d+\n\Z')

    def test_mistakes_are_one_line_with_a_fix(self):
        self.assert_refused(run(), 403, 2, 'Fix: nvme-bench DIR')
        self.assert_refused(run(self.folder, '--jsn'), 401, 2, 'Did you mean --json?')
        self.assert_refused(run(self.folder, '--size', '33T'), 402, 2, "'nvme-bench --help'")
        self.assert_refused(run(self.folder, '--plan', '8B'), 403, 2, '--gpu-tflops')
        known = ('(1B, 3B, 7B, 7.5B, 8B, 13B, 14B, 17B, 33B, 32B, 65B, 70B, 176B, 405B, 530B, '
                 '1T')
        for unknown, near in {'llama-9b-chat': '; near it: 8B, 13B', '2T': '; near it: 1T',
                              '8BB': '; near it: 8B', 'oops': ''}.items():
            self.assert_refused(run(self.folder, '--plan', unknown, '--gpu-tflops', '1'), 402, 2,
                                f'{known}{near}). Fix: the directory with')
        self.assert_refused(run('sim:read=oops', *SMALL), 402, 2, 'refused: read=oops: must be')
        self.assert_refused(run(*SIM, '--fault', 'op=dance'), 402, 2, 'op=dance: must be')
        self.assert_refused(run(self.beside + '/none'), 105, 1, 'Fix: ')
        self.assert_refused(run(PROGRAM), 105, 1, 'not a directory')
        self.assert_refused(run(self.folder, self.beside, *SMALL), 402, 2, 'same drive')

    def test_results_that_cannot_be_written_are_a_failure(self):
        with open('/dev/full', 'w') as full:
            done = subprocess.run([PROGRAM, *SIM], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn('error[E107]', done.stderr)
        for stdout in 'closed', 'read-only':
            def lose():
                os.close(1)
                if stdout == 'read-only':
                    os.open('/dev/null', os.O_RDONLY)
            done = subprocess.run([PROGRAM, self.folder, *SMALL], stderr=subprocess.PIPE, text=True,
                                  preexec_fn=lose)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r'\Aerror\[E107\] stdout is closed.*Fix: [^\n]*\n\Z')

    def test_a_page_that_cannot_be_written_is_refused_before_measuring(self):
        for path in self.beside + '/none/x.html', self.beside:
            done = run(*SIM, '--html', path)
            self.assert_refused(done, 107, 1, '--html')
            self.assertNotIn('will write', done.stderr)

    def test_a_page_that_fails_later_does_not_lose_the_results(self):
        done = run(*SIM, *PLAN, '--json', '--html', '/dev/full')
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("error[E107] --html '/dev/full' cannot be written (No space", done.stderr)
        self.assertFalse(json.loads(done.stdout)['plan']['feeds'])
        page = os.path.join(self.beside, 'r.html')

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        done = run(*SIM, '--html', page, preexec_fn=limit)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn('for ds_config.json:', done.stdout)
        self.assertFalse(os.path.exists(page), 'no half of a page is left')

    def test_an_earlier_page_stays_until_there_is_a_new_one(self):
        page, fault = os.path.join(self.beside, 'r.html'), 'op=read nth=700 times=all err=EIO'
        self.assertEqual(run(*SIM, '--html', page, '--fault', fault).returncode, 1)
        self.assertFalse(os.path.exists(page), 'an empty one')
        with open(page, 'w') as file:
            file.write('earlier, and longer than what comes now: ' + 100000 * 'x')
        self.assertEqual(run(*SIM, '--html', page, '--fault', fault).returncode, 1)
        with open(page) as file:
            self.assertTrue(file.read().startswith('earlier'))
        self.assertEqual(run(*SIM, '--html', page).returncode, 0)
        with open(page) as file:
            text = file.read()
        self.assertEqual((text[:15], text[-8:]), ('<!doctype html>', '</html>\n'))

    def test_more_memory_than_there_is_is_refused_before_it_is_taken(self):
        """8 drives of 80 GiB, requests of 64 MiB, 256 at a time, and as much again for reading
        back."""
        with open('/proc/meminfo') as file:
            free = int(re.search(r'MemAvailable: +(\d+)', file.read()).group(1)) << 10
        if free >= 256 << 30:
            self.skipTest('this machine has as much memory')
        done = run(*[f'sim:read={i}G,write=1G' for i in range(1, 9)], '--size', '80G', '--blocks',
                   '64M', '--depths', '256', '--threads', '1')
        self.assert_refused(done, 201, 1, '897.2 GiB of memory are needed')

    def test_the_model_may_be_a_file_or_a_directory(self):
        for name, params in (('untied-mha/config.json', 134592), ('qk-norm', 64856),
                             ('qkv-bias', 43694)):
            path = os.path.join(ROOT, 'tests', 'golden', name)
            plan = json.loads(run(*SIM, '--json', '--plan', path, '--gpu-tflops', '1').stdout)
            self.assertEqual(plan['plan']['params'], params, name)
        self.assert_refused(run(*SIM, '--plan', self.folder, '--gpu-tflops', '1'), 412, 1)

    def test_exit_code_3_means_below_the_target(self):
        self.assertEqual(run(*SIM, *PLAN).returncode, 3)
        self.assertEqual(run(*SIM, *PLAN, '--target', '20').returncode, 0)
        self.assertEqual(run(*SIM, *PLAN, '--tokens', '1e6').returncode, 0)


class Reports(Case):
    def measured(self, name, *args):
        path = os.path.join(self.beside, name)
        done = run(*SIM, *args, '--json')
        with open(path, 'w') as file:
            file.write(done.stdout)
        return path, json.loads(done.stdout)

    def assert_same(self, a, b, where=''):
        """But for the last of 9 digits, which rates lose on their way through the file."""
        self.assertIs(type(a), type(b), where)
        if isinstance(a, dict):
            self.assertEqual(a.keys(), b.keys(), where)
            for key in a:
                self.assert_same(a[key], b[key], f'{where}.{key}')
        elif isinstance(a, list):
            self.assertEqual(len(a), len(b), where)
            for i, pair in enumerate(zip(a, b)):
                self.assert_same(*pair, f'{where}[{i}]')
        elif isinstance(a, (int, float)) and not isinstance(a, bool):
            self.assertLessEqual(abs(a - b), max(1, 1e-8 * abs(a)) if a > 1e3 else 1e-8 * abs(a),
                                 where)
        else:
            self.assertEqual(a, b, where)

    def test_from_plans_again_without_a_drive(self):
        path, first = self.measured('a.json', *PLAN, '--endurance', '600TBW')
        again = run('--from', path, *PLAN, '--endurance', '600TBW', '--json')
        second = json.loads(again.stdout)
        self.assertEqual(again.returncode, 3)
        self.assert_same(first, second)
        other = json.loads(run('--from', path, '--json', *PLAN, '--tokens', '1e6').stdout)
        self.assertTrue(other['plan']['feeds'])

    def test_a_plan_that_cannot_be_made_does_not_lose_the_results(self):
        path, result = self.measured('a.json')
        result['cases'] = [c for c in result['cases'] if c['phase'] == 'sweep']
        with open(path, 'w') as file:
            json.dump(result, file)
        done = run('--from', path, *PLAN, '--json')
        self.assertEqual(done.returncode, 2)
        self.assertIn('error[E402] the result has no steady rates', done.stderr)
        self.assertIsNone(json.loads(done.stdout)['plan'])

    def test_compare_puts_two_results_side_by_side(self):
        a, first = self.measured('a.json')
        b = os.path.join(self.beside, 'b.json')
        for case in first['cases']:
            case['value'] *= 2
        with open(b, 'w') as file:
            json.dump(first, file)
        done = run('--compare', a, b)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r'steady write +\S+ GB/s +\S+ GB/s +2\.00')
        rows = json.loads(run('--compare', a, b, '--json').stdout)['rows']
        self.assertEqual({r['ratio'] for r in rows if r['case'].startswith('steady')}, {2})
        self.assert_refused(run('--compare', a, PROGRAM), 402, 2)

    def test_compare_takes_all_drives_and_says_what_has_no_counterpart(self):
        slow, fast = 'sim:read=2G,write=1G', 'sim:read=6G,write=4G'
        paths = []
        third = 'sim:read=1G,write=1G'
        for name, drives in ('a.json', [slow, fast]), ('b.json', [fast, slow, third]):
            paths.append(os.path.join(self.beside, name))
            with open(paths[-1], 'w') as file:
                file.write(run(*drives, *SMALL, '--json').stdout)
        found = json.loads(run('--compare', *paths, '--json').stdout)
        self.assertEqual(found['drives'], [{'a': 0, 'b': 1, 'same': True},
                                           {'a': 1, 'b': 0, 'same': True},
                                           {'a': None, 'b': 2, 'same': False}])
        for pair in (0, 1), (1, 0):
            rows = [r for r in found['rows'] if (r['drive_a'], r['drive_b']) == pair]
            self.assertEqual(len(rows), 13, 'all but CPU time, which virtual time has not')
            self.assertEqual({round(r['ratio'], 6) for r in rows}, {1})
        self.assertEqual(found['notes'], [
            'A has 2 drives, B 3: together they are not compared',
            'drive 2 of B (sim:read=1G,write=1G) has no counterpart in A'])
        text = run('--compare', *paths).stdout
        self.assertEqual(text.count('steady mixed'), 2)
        self.assertIn('the same drive', text)

    def test_what_one_result_lacks_is_no_number(self):
        path, result = self.measured('a.json')
        other = os.path.join(self.beside, 'b.json')
        result['cases'] = [c for c in result['cases'] if c['phase'] == 'steady' and
                           c['kind'] == 'read']
        result['drives'][0]['sustained']['recovered'] = None
        result['drives'][0]['path'] = 'sim:read=1G,write=1G'
        result['quick'] = True
        with open(other, 'w') as file:
            json.dump(result, file)
        for order in (path, other), (other, path):
            done = run('--compare', *order)
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            self.assertNotRegex(done.stdout, r'(?i)\bnan\b|\binf\b|\?')
            self.assertRegex(done.stdout, r'steady write +(- +\S+ GB/s|\S+ GB/s +-) +-\n')
            self.assertRegex(done.stdout, r'steady read .* 1\.00\n')
            self.assertIn('by order: not known to be the same', done.stdout)
            self.assertIn('is a quick run', done.stdout)
            rows = {r['case']: r for r in
                    json.loads(run('--compare', *order, '--json').stdout)['rows']}
            self.assertIsNone(rows['best read of the sweep']['ratio'])
            self.assertIsNone(rows['write after a rest']['ratio'])

    def test_hostile_results_are_refused(self):
        path = os.path.join(self.beside, 'x.json')
        for text in '', '{}', '[]', '{"program":"nvme-bench","format":1}', '{' * 100000, '\0':
            with open(path, 'w') as file:
                file.write(text)
            self.assert_refused(run('--from', path), 402, 2, 'Fix: ')
        self.assert_refused(run('--from', '/dev/zero'), 106, 1)
        self.assert_refused(run('--from', self.beside), 106, 1)

    def test_the_page_is_whole_and_needs_nothing_else(self):
        path = os.path.join(self.beside, 'r.html')
        for more in [], [*PLAN, '--endurance', '600TBW']:
            self.assertIn(run(*SIM, *more, '--html', path).returncode, (0, 3))
            with open(path, encoding='utf-8') as file:
                text = file.read()
            page = Page(text)
            self.assertEqual((page.open, page.faults, page.loads), ([], [], []))
            self.assertNotIn('<script', text)
            self.assertNotRegex(text, r'https?:|url\(|@import|\bnan\b|\binf\b')
            self.assertEqual(page.count['svg'], 4 + bool(more))
            self.assertIn('prefers-color-scheme:dark', text)
            self.assertIn('@media print', text)

    def test_names_can_not_break_out_of_the_page(self):
        path, result = self.measured('a.json')
        result['drives'][0]['path'] = '<script>alert("1")</script>&'
        result['drives'][0]['simulated'] = False
        result['drives'][0]['model'] = '<b>'
        with open(path, 'w') as file:
            json.dump(result, file)
        page = os.path.join(self.beside, 'r.html')
        self.assertEqual(run('--from', path, '--html', page).returncode, 0)
        with open(page, encoding='utf-8') as file:
            text = file.read()
        self.assertNotIn('<script', text)
        self.assertIn('&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;', text)


class Machine(Case):
    def test_a_real_directory_is_measured_and_left_empty(self):
        done = run(self.folder, *SMALL, '--json', '--endurance', '600TBW')
        result = self.assert_measured(done)
        self.assertRegex(done.stderr, r'will write at most [\d.]+ MiB, \S+ % of its rated')
        limit = float(re.search(r'at most ([\d.]+) MiB', done.stderr).group(1)) * 2**20
        self.assertLessEqual(result['written_bytes'], limit)
        self.assertEqual(len([c for c in result['cases'] if c['phase'] == 'sweep']), 2 * 2 * 3)
        self.assertEqual(result['drives'][0]['verified_bytes'], 32 * 2**20)
        for case in result['cases']:
            self.assertGreater(case['value'], 0, case['case'])
            self.assertGreaterEqual(case['latency_ns']['max'], case['latency_ns']['p50'])

    @unittest.skipIf(not KNOWN_MACHINE, 'the filter knows the numbers of two machines')
    def test_where_io_uring_is_forbidden_threads_take_over_and_say_so(self):
        done = run(self.folder, *SMALL, '--json', preexec_fn=forbid_io_uring)
        result = self.assert_measured(done)
        self.assertEqual(result['drives'][0]['backend'], 'threads')
        self.assertEqual(done.stderr.count('warning[W101]'), 1, done.stderr)
        forced = run(self.folder, *SMALL, '--io', 'uring', preexec_fn=forbid_io_uring)
        self.assert_refused(forced, 101, 1, 'Fix: ')

    @unittest.skipIf(not KNOWN_MACHINE, 'the filter knows the numbers of two machines')
    def test_without_o_direct_it_is_said_whose_numbers_these_are(self):
        done = run(self.folder, *SMALL, '--json', preexec_fn=forbid_o_direct)
        self.assertFalse(self.assert_measured(done)['drives'][0]['direct'])
        self.assertEqual(done.stderr.count('warning[W104]'), 1, done.stderr)

    @unittest.skipIf(not KNOWN_MACHINE, 'the filter knows the numbers of two machines')
    def test_zeros_in_place_of_fallocate_are_announced_first_and_counted(self):
        def announced(done):
            return float(re.search(r'at most ([\d.]+) MiB', done.stderr).group(1))

        patient = [self.folder, *SMALL, '--seconds', '60', '--json']
        plain, zeros = run(*patient), run(*patient, preexec_fn=forbid_fallocate)
        sizes = [self.assert_measured(done)['written_bytes'] for done in (plain, zeros)]
        self.assertEqual(sizes[1] - sizes[0], 32 << 20)
        self.assertAlmostEqual(announced(zeros) - announced(plain), 32, delta=0.11)
        self.assertLessEqual(sizes[1], announced(zeros) * 2**20)
        failed = run(*patient, preexec_fn=forbid_writing_zeros)
        self.assert_refused(failed, 105, 1, 'cannot be used')
        self.assertLess(failed.stderr.index('will write'), failed.stderr.index('error[E105]'))

    def on_tmpfs(self, size, *more, fill=None):
        """fill: a file there, and its bytes."""
        if os.geteuid() != 0:
            self.skipTest('mounting a small file system needs root')
        mount = mount_tmpfs(self.folder, size)

        def prepare():
            mount()
            if fill:
                with open(fill[0], 'wb') as file:
                    os.posix_fallocate(file.fileno(), 0, fill[1])

        small = SMALL if '--size' not in more else SMALL[2:]
        done = run(self.folder, *small, *more, preexec_fn=prepare)
        if done.returncode == 99:
            self.skipTest('this sandbox does not allow mounts')
        return done

    def test_ram_is_refused_unless_forced(self):
        self.assert_refused(self.on_tmpfs('64m'), 105, 1, '--force')
        done = self.on_tmpfs('64m', '--force', '--json')
        self.assertTrue(self.assert_measured(done)['drives'][0]['in_memory'])
        self.assertEqual(done.stderr.count('warning[W105]'), 1, done.stderr)

    def test_a_tenth_of_the_file_system_stays_free(self):
        done = self.on_tmpfs('33m', '--force')
        self.assert_refused(done, 301, 1, 'Fix: --size 29M.')  # even empty it has not more
        filled = (os.path.join(self.folder, 'full'), 10 << 20)
        done = self.on_tmpfs('40m', '--force', fill=filled)
        self.assert_refused(done, 301, 1, 'Fix: free 6.0 MiB, or --size 26M.')

    def test_where_there_is_too_little_room_no_impossible_size_is_suggested(self):
        """Blocks of 256 KiB, 8 at a time, on 2 threads need 19 MiB."""
        done = self.on_tmpfs('8m', '--force')
        self.assert_refused(done, 301, 1, 'Fix: a directory on a larger file system, or smaller')
        full = os.path.join(self.folder, 'full')
        done = self.on_tmpfs('32m', '--force', fill=(full, 30 << 20))
        self.assert_refused(done, 301, 1, 'Fix: free 20.2 MiB, and --size 19M.')
        done = self.on_tmpfs('32m', '--force', fill=(full, 32 << 20))
        self.assert_refused(done, 301, 1, 'Fix: free 22.2 MiB, and --size 19M.')
        done = self.on_tmpfs('32m', '--force', '--size', '19M', fill=(full, 11 << 20))
        self.assert_refused(done, 301, 1, 'Fix: free 1.2 MiB, and --size 19M.')
        done = self.on_tmpfs('32m', '--force', '--size', '19M', '--json', fill=(full, 9 << 20))
        self.assert_measured(done)

    def test_two_drives_are_measured_alone_and_together(self):
        if os.geteuid() != 0:
            self.skipTest('mounting a small file system needs root')
        second = os.path.join(self.beside, 'second')
        os.mkdir(second)
        # The second mount is made in the name space of the first one.
        mounts = [mount_tmpfs(self.folder, '64m'), mount_tmpfs(second, '64m')]
        done = run(self.folder, second, *SMALL, '--force', '--json',
                   preexec_fn=lambda: [mount() for mount in mounts])
        if done.returncode == 99:
            self.skipTest('this sandbox does not allow mounts')
        result = self.assert_measured(done)
        together = [c for c in result['cases'] if c['phase'] == 'striped']
        self.assertEqual([c['kind'] for c in together], ['read', 'write', 'mixed'])
        shares = [d['share'] for d in result['drives']]
        for case in together:
            most = (128 if case['kind'] == 'read' else 32) * 2**20 // (256 * 1024)
            blocks = sum(math.floor(most * share / max(shares) + 0.5) for share in shares)
            self.assertEqual(case['bytes'], blocks * 256 * 1024)
        self.assertEqual([d['verified_bytes'] for d in result['drives']], [32 * 2**20] * 2)

    def test_one_disk_in_two_guises_is_refused(self):
        """An overlay has numbers of its own; its upper directory is on the disk of the other."""
        if os.geteuid() != 0:
            self.skipTest('mounting needs root')
        parts = {name: os.path.join(self.beside, name) for name in ('lower', 'upper', 'work')}
        for path in parts.values():
            os.mkdir(path)
        options = ','.join(f'{name}dir={path}' for name, path in parts.items())

        def mount():
            if (LIBC.unshare(CLONE_NEWNS) or LIBC.mount(None, b'/', None, MS_REC | MS_PRIVATE, None)
                    or LIBC.mount(b'overlay', self.folder.encode(), b'overlay', 0,
                                  options.encode())):
                os._exit(99)

        done = run(self.folder, self.beside, *SMALL, preexec_fn=mount)
        if done.returncode == 99:
            self.skipTest('this sandbox does not allow mounts')
        if 'which disk' in done.stderr:
            self.skipTest('the disk of the temporary directory is not known')
        self.assert_refused(done, 402, 2, 'same drive')
        alone = run(self.folder, *SMALL, '--json', preexec_fn=mount)
        self.assertEqual(self.assert_measured(alone)['drives'][0]['file_system'], 'overlay')

    def test_an_ordinary_user_with_little_locked_memory_can_measure(self):
        if os.geteuid() != 0:
            self.skipTest('changing the user needs root')
        nobody = pwd.getpwnam('nobody')
        os.chmod(self.beside, 0o755)
        os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        try:
            done = run(self.folder, *SMALL, '--json', user=nobody.pw_uid, group=nobody.pw_gid,
                       extra_groups=[], preexec_fn=lambda: resource.setrlimit(
                           resource.RLIMIT_MEMLOCK, (8 << 20, 8 << 20)))
        except PermissionError:
            done = None
        if not done or done.returncode in (126, 127):  # the loader's: the library is out of reach
            self.skipTest('the program lies where an ordinary user cannot reach it')
        self.assert_measured(done)

    def interrupted(self, number, times):
        child = subprocess.Popen([PROGRAM, self.folder, *SMALL[:-2], '--idle', '60'], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=dict(os.environ, HOISTWAY_SILENCE='0.5'))
        self.assertIn('will write at most', child.stderr.readline())
        told = child.stderr.readline()
        # an ordinary user's ulimit -l, and what takes long on a busy drive
        while told.startswith(('warning[W101] ', 'opening the drives ')):
            told = child.stderr.readline()
        self.assertIn('filling scratch files', told)
        held = [os.path.realpath(fd.path) for fd in os.scandir(f'/proc/{child.pid}/fd')]
        self.assertTrue([path for path in held if path.startswith(self.folder + '/')], held)
        for _ in range(times):
            child.send_signal(number)
        self.assertEqual(child.communicate(timeout=60)[0], '')
        self.assertEqual(os.listdir(self.folder), [])
        return child.returncode

    def test_the_first_signal_ends_it_in_order(self):
        self.assertEqual(self.interrupted(signal.SIGINT, 1), 75)
        self.assertEqual(self.interrupted(signal.SIGTERM, 1), 75)

    def test_killed_it_leaves_nothing(self):
        self.assertEqual(self.interrupted(signal.SIGKILL, 1), -signal.SIGKILL)

    def test_a_second_signal_ends_it_at_once(self):
        """It is stopped before both, so that the second one finds the first."""
        command = [PROGRAM, self.folder, *SMALL[:-2], '--idle', '60']
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        child.stderr.readline()  # signals are caught
        child.send_signal(signal.SIGSTOP)
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGCONT)
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130)

    def test_a_drive_that_fails_is_named_with_the_place(self):
        for plan, code in ('op=write nth=20 err=EIO times=all', 107), ('op=read nth=20 err=EIO '
                                                                      'times=all', 106):
            done = run(self.folder, *SMALL, '--fault', plan)
            self.assert_refused(done, code, 1, 'offset ')
            self.assertIn(self.folder, done.stderr)

    def test_a_drive_that_never_answers_ends_it(self):
        self.assert_refused(run(*SIM, '--fault', 'nth=9 late=1000s'), 106, 1, 'request for 120 s')

    def test_a_drive_that_lies_is_found_out(self):
        """One bit is inverted when the file is read back, in a stamp or far away from any."""
        for bit in 3, 8 * 40 + 5, 8 * 4095 + 7, 8 * (5 * 4096 + 2000):
            done = run(*SIM, '--fault', f'op=read nth=1 times=all flip={bit}')
            self.assert_refused(done, 106, 1, 'the data read back is not what was written (a byte ')
            self.assertIn(f'file 0, offset {bit // 8}:', done.stderr)
        done = run(self.folder, *SMALL, '--fault', 'op=read nth=1 times=all flip=16000')
        self.assert_refused(done, 106, 1, 'file 0, offset 2000: the data read back')

    def test_a_read_that_fails_in_a_mixed_case_is_told_as_a_read(self):
        """In blocks of 256 KiB: 512 reads, then 64 in the first mixed case; 32 + 64 + 128 writes
        before that one."""
        for op, nth, code in ('read', 540, 106), ('write', 250, 107):
            done = run(*SIM, '--fault', f'op={op} nth={nth} times=all err=EIO')
            self.assert_refused(done, code, 1, f'a {op} failed (Input/output error)')


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
