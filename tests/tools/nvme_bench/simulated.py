#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nvme-bench on simulated drives: every number of the report, recomputed from the model of
<hoistway/aio.h> and the formulas of docs/nvme-bench.md, neither of which knows the program.

simulated.py PATH_OF_NVME_BENCH SOURCE_ROOT
"""
import functools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import unittest
from fractions import Fraction

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from short import by_turns, whole_alone  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
MIB = 1 << 20
# Rates at which a block of 256 KiB or 1 MiB takes whole nanoseconds, alone and mixed.
READ, WRITE, MIXED, LATENCY_NS = 4194304000, 2097152000, 3145728000, 100000
DRIVE = f'sim:read={READ},write={WRITE},mixed={MIXED},lat=100us'
SIZE = 36 << 20  # of the file: little more than the requests need; a case reads four times as much
SWEEP = ['--size', f'{SIZE}', '--sustain', '256M', '--blocks', '256K,1M', '--depths', '1,4',
         '--threads', '1,2', '--idle', '1']
# For what takes the rates and asks not where they come from.
ONE_SHAPE = ['--blocks', '1M', '--depths', '4', '--threads', '2']


def run(*args, status=0):
    done = subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, (done.returncode, done.stderr)
    return done.stdout


once = functools.lru_cache(maxsize=None)(run)


def measure(*drives, more=(), status=0):
    """Options in `more` replace those of SWEEP. What is measured twice is the same to the byte."""
    pairs = [p for p in zip(SWEEP[::2], SWEEP[1::2]) if p[0] not in more]
    return json.loads(once(*drives, *sum(pairs, ()), '--json', *more, status=status))


class Model:
    """A drive, event by event: what the header says, with exact fractions of nanoseconds."""

    def __init__(self, read=READ, write=WRITE, mixed=MIXED):
        self.alone = {'read': Fraction(read, 10**9), 'write': Fraction(write, 10**9)}
        share = Fraction(mixed, (read + write) * 10**9)
        self.both = {'read': share * read, 'write': share * write}

    def run(self, kind, block, depth, count):
        """(seconds, sorted latencies in ns) of `count` requests, `depth` of them in the drive."""
        queues, given, latencies, now = {'read': [], 'write': []}, 0, [], Fraction(0)

        def give():
            nonlocal given
            way = ('read', 'write')[given % 2] if kind == 'mixed' else kind
            queues[way].append([now, Fraction(block)])
            given += 1

        for _ in range(min(depth, count)):
            give()
        while any(queues.values()):
            moving = [w for w, q in queues.items() if q and q[0][0] + LATENCY_NS <= now]
            rates = {w: (self.both if len(moving) == 2 else self.alone)[w] for w in moving}
            waiting = [q[0][0] + LATENCY_NS for w, q in queues.items() if q and w not in moving]
            until = min([now + queues[w][0][1] / rates[w] for w in moving] + waiting)
            for way in moving:
                queues[way][0][1] -= rates[way] * (until - now)
            now = until
            for way in moving:
                if queues[way] and queues[way][0][1] <= 0:
                    assert now.denominator == 1, 'rates are chosen for whole nanoseconds'
                    latencies.append(int(now - queues[way].pop(0)[0]))
                    if given < count:
                        give()
        return float(now) / 1e9, sorted(latencies)


def percentile(latencies, share):
    return latencies[math.ceil(share * len(latencies)) - 1]


# ---- the bound, from docs/nvme-bench.md ----

BYTES = {'bf16': (2, 10, 2), 'fp32': (4, 8, 4), 'fp16': (2, 12, 2)}
SHAPES = {  # hidden, inner, layers, heads, kv heads, head dim, vocabulary
    '8B': (4096, 14336, 32, 32, 8, 128, 128256),
    '13B': (5120, 13824, 40, 40, 40, 128, 32000),
}


def bound(shape, tokens, flops, read, write, mixed, seq=2048, c=8, precision='bf16', states=1,
          weights=0, overlap=False):
    h, inner, layers, heads, kv, dim, vocab = SHAPES[shape]
    layer = 2 * h * heads * dim + 2 * h * kv * dim + 3 * h * inner + 2 * h
    n = 2 * vocab * h + layers * layer + h
    w, s, _ = BYTES[precision]
    gpu = c * (n - vocab * h + layers * heads * dim * seq) * tokens / flops
    u = (s * states + w * max(states, weights)) * n
    r = (s * states + w * weights) * n
    update = min(r / read + u / write, 2 * r / mixed + (u - r) / write)
    fetch = w * weights * n / read
    phases = [(gpu * 2 / c, update), (gpu * (c - 2) / c, fetch)]
    if overlap:
        phases = [tuple(map(sum, zip(*phases)))]
    step = sum(max(g, d) + min(g, d) / layers for g, d in phases)
    return {'params': n, 'gpu_s': gpu, 'update_s': update, 'nvme_s': update + fetch,
            'written_bytes': u, 'read_bytes': r + w * weights * n, 'space_bytes': 2 * u,
            'step_s': step, 'efficiency': gpu / step}


class Case(unittest.TestCase):
    def close(self, got, want, what=''):
        self.assertAlmostEqual(got / want, 1, delta=6e-9, msg=f'{what}: got {got}, want {want}')


class Simulated(Case):
    def test_each_case_of_the_sweep_is_what_the_model_says(self):
        result = measure(DRIVE)
        cases = [c for c in result['cases'] if c['phase'] == 'sweep']
        self.assertEqual(len(cases), 2 * 2 * 2 * 3)
        best = {}
        for case in cases:
            kind, block = case['kind'], case['block_bytes']
            depth = case['depth'] * case['threads']
            count = (4 if kind == 'read' else 1) * SIZE // block
            seconds, latencies = Model().run(kind, block, depth, count)
            self.assertEqual(case['bytes'], count * block, case['case'])
            self.close(case['seconds'], seconds, case['case'])
            self.close(case['value'], count * block / seconds, case['case'])
            for name, share in ('p50', .5), ('p90', .9), ('p99', .99), ('p999', .999), ('max', 1):
                self.close(case['latency_ns'][name], percentile(latencies, share),
                           f"{case['case']} {name}")
            self.assertIsNone(case['cpu_s_per_gb'])
            best[kind] = max(best.get(kind, 0), count * block / seconds)
        for case in cases:
            self.close(case['ceiling'], best[case['kind']])
            self.close(case['fraction'], case['value'] / best[case['kind']])

    def test_one_direction_follows_the_closed_formula(self):
        """rate = min(R, q·b / (L + b/R)), for as long as the run is long."""
        for case in measure(DRIVE)['cases']:
            if case['phase'] != 'sweep' or case['kind'] == 'mixed':
                continue
            rate = READ if case['kind'] == 'read' else WRITE
            block, depth = case['block_bytes'], case['depth'] * case['threads']
            limit = min(rate, depth * block / (LATENCY_NS / 1e9 + block / rate))
            self.assertAlmostEqual(case['value'] / limit, 1, delta=0.01, msg=case['case'])

    def test_the_best_shape_is_the_least_that_comes_near_the_best_rate(self):
        result = measure(DRIVE)
        mixed = [c for c in result['cases'] if c['phase'] == 'sweep' and c['kind'] == 'mixed']
        near = [c for c in mixed if c['value'] >= 0.97 * max(m['value'] for m in mixed)]
        want = min(near, key=lambda c: (c['block_bytes'] * c['depth'] * c['threads'], c['threads'],
                                        c['block_bytes']))
        best = result['drives'][0]['best']
        self.assertEqual(best, {k: want[k] for k in ('block_bytes', 'depth', 'threads')})
        self.assertEqual(result['ds_config'], {'aio': {
            'block_size': best['block_bytes'], 'queue_depth': best['depth'],
            'intra_op_parallelism': best['threads'], 'single_submit': False,
            'overlap_events': True}})

    def test_steady_rates_and_the_long_write_without_a_cache(self):
        result = measure(DRIVE)
        drive, best = result['drives'][0], result['drives'][0]['best']
        block, depth = best['block_bytes'], best['depth'] * best['threads']
        steady = {c['kind']: c for c in result['cases'] if c['phase'] == 'steady'}
        for kind, size in ('write', SIZE), ('mixed', SIZE), ('read', 4 * SIZE):
            seconds, _ = Model().run(kind, block, depth, size // block)
            self.close(steady[kind]['value'], size / seconds, kind)
        s = drive['sustained']
        self.assertEqual(s['window_bytes'], 4 * MIB * 8)  # 4 times what is in flight: 1 MiB x 4 x 2
        self.assertEqual(len(s['rates']), 256 * MIB // s['window_bytes'])
        first = s['window_bytes'] / (s['window_bytes'] / WRITE + LATENCY_NS / 1e9)
        self.close(s['rates'][0], first)
        for rate in s['rates'][1:]:
            self.close(rate, WRITE)
        self.assertEqual((s['drop_bytes'], s['flat']), (0, True))
        self.close(s['last'], WRITE)
        seconds, _ = Model().run('write', block, depth, SIZE // block)
        self.close(s['recovered'], SIZE / seconds)
        self.assertEqual(s['idle_s'], 1)

    def test_bytes_written_and_read_back_are_counted_exactly(self):
        result = measure(DRIVE)
        both = SIZE + SIZE // 2  # a write and half a mixed case
        written = SIZE + 8 * both + 256 * MIB + both + SIZE  # 8 shapes are swept
        self.assertEqual(result['written_bytes'], written)
        self.assertEqual(result['file_bytes'], SIZE)
        self.assertEqual(result['drives'][0]['verified_bytes'], SIZE)

    def test_a_write_cache_is_found_to_the_window(self):
        slow = WRITE // 8
        more = ['--sustain', '1G', '--idle', '5']
        result = measure(f'{DRIVE},slc=256Mi,slc_write={slow},drain={WRITE}', more=more)
        s = result['drives'][0]['sustained']
        window = s['window_bytes']
        self.assertEqual((256 * MIB) % window, 0)
        self.assertEqual(s['drop_bytes'], 256 * MIB)
        for i, rate in enumerate(s['rates'][1:], 1):
            self.close(rate, WRITE if (i + 1) * window <= 256 * MIB else slow, i)
        self.close(s['first'], WRITE)
        self.close(s['last'], slow)
        self.assertTrue(s['flat'])
        self.assertLess(len(s['rates']), 1024 * MIB // window, 'nothing is learnt by writing on')
        write = next(c for c in result['cases']
                     if c['phase'] == 'steady' and c['kind'] == 'write')
        self.close(write['value'], SIZE / (SIZE / slow + LATENCY_NS / 1e9))
        self.assertGreater(s['recovered'], 0.99 * WRITE)  # five idle seconds drained all of it

    def steady(self, result, kind, drive):
        return next(c['value'] for c in result['cases'] if c['phase'] == 'steady'
                    and c['kind'] == kind and c['drive'] == drive)

    def shares(self, result):
        """As the page says: by the rate of writing and then reading."""
        rates = [1 / (1 / self.steady(result, 'read', d) + 1 / self.steady(result, 'write', d))
                 for d in range(len(result['drives']))]
        return [rate / sum(rates) for rate in rates]

    def check_together(self, result, models, tolerance):
        """Whole blocks by the shares; it ends when the last drive does."""
        shares = self.shares(result)
        for drive, share in zip(result['drives'], shares):
            self.close(drive['share'], share)
        for kind in 'read', 'write', 'mixed':
            moved, seconds = 0, []
            for drive, share, model in zip(result['drives'], shares, models):
                best = drive['best']
                block, depth = best['block_bytes'], best['depth'] * best['threads']
                size = (4 if kind == 'read' else 1) * SIZE * share / max(shares)
                count = math.floor(size / block + 0.5)
                moved += count * block
                seconds.append(model.run(kind, block, depth, count)[0])
            case = next(c for c in result['cases'] if c['phase'] == 'striped' and c['kind'] == kind)
            self.assertIsNone(case['drive'])
            self.assertEqual(case['bytes'], moved)
            self.assertAlmostEqual(case['value'] * max(seconds) / moved, 1, delta=tolerance)

    def test_drives_together_are_given_bytes_by_their_rates(self):
        slower = f'sim:read={READ // 2},write={WRITE // 2},lat=100us,mixed={MIXED // 2}'
        halves = Model(READ // 2, WRITE // 2, MIXED // 2)
        self.check_together(measure(DRIVE, DRIVE), [Model(), Model()], 6e-9)
        self.check_together(measure(DRIVE, slower), [Model(), halves], 6e-9)

    @whole_alone
    def test_a_drive_three_times_as_fast_does_three_quarters_of_the_work(self):
        """Told with equal parts: 4 of 8 GB/s."""
        drives = [f'sim:read={g}G,write={g}G,mixed={g}G,lat=10us' for g in (6, 2)]
        result = measure(*drives, more=['--size', '512M', '--plan', '8B', '--gpu-tflops', '150'],
                         status=3)
        for share, want in zip(self.shares(result), (.75, .25)):
            self.assertAlmostEqual(share, want, delta=0.002)
        for kind in 'read', 'write', 'mixed':
            together = next(c['value'] for c in result['cases']
                            if c['phase'] == 'striped' and c['kind'] == kind)
            alone = [self.steady(result, kind, d) for d in (0, 1)]
            self.assertGreaterEqual(together, 0.97 * sum(alone), kind)
            self.assertGreaterEqual(together, 0.97 * 8e9, kind)
            self.assertLessEqual(together, 8e9, kind)
            plan = min([together] + [r / s for r, s in zip(alone, self.shares(result))])
            self.close(result['plan'][kind], plan, kind)
        want = bound('8B', 65536, 150e12, **{k: result['plan'][k]
                                             for k in ('read', 'write', 'mixed')})
        self.close(result['plan']['efficiency'], want['efficiency'])

    def test_shares_are_of_one_layout_for_reads_and_writes(self):
        """A drive that reads as fast but writes slowly: its share of the tiles is read early."""
        result = measure('sim:read=6G,write=6G,mixed=6G', 'sim:read=6G,write=1500M,mixed=3G')
        shares = self.shares(result)  # by hand: 3 and 1.2 GB/s
        self.assertAlmostEqual(shares[0], 3 / 4.2, delta=0.001)
        read, write = (next(c['value'] for c in result['cases']
                            if c['phase'] == 'striped' and c['kind'] == kind)
                       for kind in ('read', 'write'))
        self.assertAlmostEqual(read / (6e9 / (3 / 4.2)), 1, delta=0.03)
        self.assertAlmostEqual(write / (1.5e9 / (1.2 / 4.2)), 1, delta=0.03)

    def test_the_aio_block_suits_all_drives(self):
        """The first is as fast with little in flight, the second needs more."""
        near, far = ('sim:read=4G,write=4G,mixed=4G,lat=' + t for t in ('1us', '900us'))
        result = measure(near, far)
        best = [d['best'] for d in result['drives']]
        shares = self.shares(result)
        sums = {}
        for case in result['cases']:
            if case['phase'] == 'sweep' and case['kind'] == 'mixed':
                shape = case['block_bytes'], case['depth'], case['threads']
                rate = case['value'] / shares[case['drive']]
                sums[shape] = min(sums.get(shape, rate), rate)
        enough = 0.97 * max(sums.values())
        want = min((s for s in sums if sums[s] >= enough),
                   key=lambda s: (s[0] * s[1] * s[2], s[2], s[0]))
        block = result['ds_config']['aio']
        self.assertEqual((block['block_size'], block['queue_depth'],
                          block['intra_op_parallelism']), want)
        self.assertEqual(block['block_size'], best[1]['block_bytes'])
        self.assertNotEqual(best[0], best[1])

    def test_two_runs_print_the_same_bytes(self):
        self.assertEqual(run(DRIVE, *SWEEP, '--json'), run(DRIVE, *SWEEP, '--json'))
        self.assertEqual(run(DRIVE, *SWEEP), run(DRIVE, *SWEEP))


class Verdict(Case):
    """The plan, against the formulas above."""

    def check(self, model, more, status, **terms):
        result = measure(DRIVE, status=status,
                         more=[*ONE_SHAPE, '--plan', model, '--gpu-tflops', '150', *more])
        plan = result['plan']
        rates = {k: next(c['value'] for c in result['cases']
                         if c['phase'] == 'steady' and c['kind'] == k)
                 for k in ('read', 'write', 'mixed')}
        flops = 150e12 * plan['gpus']
        for key in rates:
            self.close(plan[key], rates[key], key)
        want = bound(model, plan['tokens'], flops, **rates, **terms)
        for key, value in want.items():
            self.close(plan[key], value, key)

        def reaches(tokens, drives):
            many = {k: v * drives for k, v in rates.items()}
            return bound(model, tokens, flops, **many, **terms)['efficiency'] >= plan['target']

        self.assertEqual(plan['feeds'], reaches(plan['tokens'], 1))
        self.assertEqual(status, 0 if plan['feeds'] else 3)
        self.assertTrue(reaches(plan['tokens_needed'] + 1, 1))
        self.assertFalse(reaches(plan['tokens_needed'] - 2, 1))
        self.assertTrue(reaches(plan['tokens'], plan['drives_needed']))
        fewer = plan['drives_needed'] - 1
        self.assertFalse(fewer and reaches(plan['tokens'], fewer))
        return plan

    def test_a_plan_is_what_the_formulas_say(self):
        self.check('8B', [], 3)
        self.check('13B', ['--tokens', '1e6'], 0, c=8)

    def test_every_option_of_the_plan_counts(self):
        self.check('8B', ['--recompute', 'off', '--seq-len', '4096'], 3, c=6, seq=4096)
        self.check('8B', ['--precision', 'fp16'], 3, precision='fp16')
        self.check('8B', ['--overlap', '--gpus', '2'], 3, overlap=True)
        self.check('13B', ['--states', '0.5', '--weights', '1', '--target', '50'], 3, states=.5,
                   weights=1)
        self.check('8B', ['--weights', '0.25', '--overlap'], 3, weights=.25, overlap=True)

    # Two slots of 12 bytes for each of the 8,030,261,248 parameters.
    SPACE = 24 * 8030261248

    def space(self, *sizes, status, rates=(9,), more=()):
        """The plan of a small step that drives of these sizes (bytes, None: unknown) feed."""
        rates = rates * len(sizes) if len(rates) == 1 else rates
        drives = [f'sim:read={r}G,write={r}G,mixed={r}G' + (f',size={size}' if size else '')
                  for r, size in zip(rates, sizes)]
        small = ['--size', '18M', '--sustain', '16M', '--blocks', '1M', '--depths', '4',
                 '--threads', '1']
        tokens = [] if '--tokens' in more else ['--tokens', '1e6']
        return measure(*drives, more=['--plan', '8B', '--gpu-tflops', '20', *small, *tokens, *more],
                       status=status)['plan']

    def test_a_plan_has_to_fit_to_the_byte(self):
        plan = self.space(self.SPACE, status=0)
        self.assertEqual((plan['space_bytes'], plan['fits'], plan['missing_bytes'],
                          plan['drives_to_fit']), (float(f'{self.SPACE:.9g}'), True, 0, 1))
        plan = self.space(self.SPACE - 1, status=3)
        self.assertEqual((plan['feeds'], plan['fits'], plan['missing_bytes'],
                          plan['drives_to_fit']), (True, False, 1, 2))
        self.assertIn('feeds, but does not hold, Llama 3 8B', plan['verdict'])
        plan = self.space('50G', status=3)
        self.close(plan['missing_bytes'], self.SPACE - 50e9)
        self.assertEqual(plan['drives_to_fit'], 4)  # 192.7 of 50 each
        self.assertIn('it takes 192.7 GB, of which 142.7 GB find no room', plan['verdict'])
        self.assertIn('To hold it: 4 such drives, or 192.7 GB free on it.', plan['advice'])
        self.assertIn('neither feeds nor holds', self.space(
            '50Gi', status=3, more=['--tokens', '64'])['verdict'])

    def test_a_tight_fit_is_said(self):
        self.assertIn('`hoistway train` needs --nvme 180G', self.space('200G',
                                                                       status=0)['advice'])
        self.assertNotIn('--nvme', self.space('215G', status=0)['advice'])

    def test_each_drive_has_to_hold_its_share(self):
        """Three quarters on the fast one: together 300 GB are free, and still 44.5 are missing."""
        plan = self.space('100G', '200G', rates=(9, 3), status=3)
        self.assertAlmostEqual(plan['missing_bytes'] / (.75 * self.SPACE - 100e9), 1, delta=0.01)
        self.assertAlmostEqual(plan['room_bytes'] / (100e9 / .75), 1, delta=0.005)
        self.assertEqual(plan['drives_to_fit'], 4)
        self.assertRegex(plan['advice'],
                         r'2 sets of these 2 drives, or 144\.\d GB \+ 48\.\d GB free')
        self.assertTrue(self.space('150G', '50G', rates=(9, 3), status=0)['fits'])

    def test_equal_drives_hold_half_each(self):
        plan = self.space('97G', '97G', status=0)
        self.assertEqual((plan['fits'], plan['drives_to_fit']), (True, 2))
        plan = self.space('97G', '90G', status=3)
        self.assertEqual(plan['drives_to_fit'], 3)
        self.assertIn('or 96.4 GB free on each.', plan['advice'])

    def test_what_has_no_known_size_is_not_compared(self):
        plan = self.space(None, status=0)
        self.assertEqual([plan[k] for k in ('fits', 'room_bytes', 'missing_bytes',
                                            'drives_to_fit')], [None, None, 0, None])
        plan = self.space('10G', None, status=3)
        self.assertEqual((plan['fits'], plan['room_bytes']), (False, None))
        plan = self.space(None, status=0, more=['--states', '0'])
        self.assertEqual((plan['space_bytes'], plan['missing_bytes']), (0, 0))

    def test_table_and_page_say_what_is_missing(self):
        drives = ['sim:read=9G,write=9G,size=100G', 'sim:read=9G,write=9G']
        more = ['--plan', '8B', '--gpu-tflops', '20', '--tokens', '1e6']
        text = run(*drives, *SWEEP, *more, status=0)
        self.assertRegex(text, r'drive 0 +96\.4 GB +\(100\.0 GB free\)\n')
        self.assertRegex(text, r'drive 1 +96\.4 GB +\(its size is not known\)\n')
        text = run(drives[0], *SWEEP, *more, status=3)
        self.assertRegex(text, r'drive 0 +192\.7 GB +\(100\.0 GB free: 92\.7 GB are missing\)\n')
        with tempfile.NamedTemporaryFile(suffix='.html') as page:
            run(drives[0], *SWEEP, *more, '--html', page.name, status=3)
            html = page.read().decode()
        self.assertIn('<b>192.7 GB</b><span>of space, 92.7 GB are missing</span>', html)
        self.assertIn('--v:var(--bad)', html)

    def test_endurance_becomes_steps_and_days(self):
        plan = self.check('8B', ['--endurance', '600TBW'], 3)
        self.close(plan['endurance_bytes'], 600e12)
        self.close(plan['steps_to_wear'], 600e12 / plan['written_bytes'])
        self.close(plan['days_to_wear'], 600e12 / plan['written_bytes'] * plan['step_s'] / 86400)
        rated = self.check('8B', ['--endurance', '1DWPD,3.84TB,5Y'], 3)
        self.close(rated['endurance_bytes'], 3.84e12 * 5 * 365)

    def test_of_unequal_drives_the_one_with_the_most_to_write_wears_out_first(self):
        plan = self.space('2T', '2T', rates=(9, 3), status=0, more=['--endurance', '600TBW'])
        self.close(plan['endurance_bytes'], 1200e12)
        wanted = 600e12 / (.75 * plan['written_bytes'])
        self.assertAlmostEqual(plan['steps_to_wear'] / wanted, 1, delta=0.005)
        plan = self.space('2T', '2T', status=0, more=['--endurance', '600TBW'])
        self.close(plan['steps_to_wear'], 1200e12 / plan['written_bytes'])

    def test_the_examples_of_the_page_are_what_the_program_says(self):
        """Each row of the table in docs/nvme-bench.md: model, drive, figures as printed there."""
        with open(os.path.join(ROOT, 'docs', 'nvme-bench.md'), encoding='utf-8') as file:
            text = file.read()
        drives = dict(re.findall(r'^- ([A-Z]): `(sim:[^`]+)`', text, re.M))
        rows = re.findall(r'^\| (8B|13B) on ([A-Z]) \|(.+)\|$', text, re.M)
        self.assertEqual(len(rows), 4)
        keys = ('gpu_s', 'update_s', 'step_s', 'efficiency', 'tokens_needed', 'drives_needed',
                'steps_to_wear')
        for model, drive, cells in rows:
            plan = measure(drives[drive], more=[
                *ONE_SHAPE, '--size', '64M', '--sustain', '512M', '--plan', model,
                '--gpu-tflops', '150', '--endurance', '600TBW'], status=3)['plan']
            for key, cell in zip(keys, cells.split('|'), strict=True):
                shown = cell.strip().rstrip(' %s').replace(',', '')
                value = plan[key] * (100 if key == 'efficiency' else 1)
                digits = len(shown.partition('.')[2])
                unit = 1000 if key == 'tokens_needed' else 1
                self.assertEqual(f'{value / unit:.{digits}f}', shown, f'{model} on {drive}: {key}')


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
