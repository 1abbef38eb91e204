#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Devices as the program's user meets them: chosen, refused, told about.

device.py PATH_OF_HOISTWAY SOURCE_ROOT [FOLDER_OF_THE_CUDA_DOUBLE PATH_OF_HOISTWAY_WITHOUT];
HOISTWAY_PLUGIN_PATH holds libhoistway-far.so; the second program finds no library that HST_ABSENT
names (tests/cuda/absent.c). With HOISTWAY_MATMUL=own all of it is run by the plugin's own products.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from short import by_turns, some, whole_alone  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
DOUBLE, WITHOUT = sys.argv[3:5] if len(sys.argv) > 4 else ('', '')
OWN = os.environ.get('HOISTWAY_MATMUL') == 'own'
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
FAR = os.environ['HOISTWAY_PLUGIN_PATH']
# What hangs ends and is named. Own products take the double 8 seconds of processor time in one run,
# and a machine that others load needs 20 times as long: half of what meson gives the whole test.
HANGS_S = 900 if OWN else 60


class Devices(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix='hst-device-')
        self.addCleanup(shutil.rmtree, self.directory)

    def train(self, *more, plugins=FAR, **popen):
        command = [PROGRAM, 'train', '--model', MODEL, '--data', os.path.join(MODEL, 'tokens.bin'),
                   '--durability', 'none', '--store', os.path.join(self.directory, 'store'),
                   '--steps', '2',
                   '--seq-len', '24', '--batch-tokens', '48', *more]
        environment = dict(os.environ, HOISTWAY_PLUGIN_PATH=plugins)
        return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False,
                              env=environment, **popen)

    def test_a_device_at_a_pace_gives_zeros(self):
        """At a pace that nobody waits for: what it is slow for is a benchmark."""
        log = os.path.join(self.directory, 'log.jsonl')
        with mock.patch.dict(os.environ, HOISTWAY_FAR='pace:1e6'):
            done = self.train('--device', 'far', '--log', log)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(log, encoding='ascii') as file:
            steps = [line for line in map(json.loads, file) if line['kind'] == 'step']
        self.assertEqual(len(steps), 2)
        for step in steps:
            self.assertAlmostEqual(step['loss'], math.log(160), places=5)

    def refused(self, code, status, *parts, **train):
        done = self.train(*train.pop('options'), **train)
        self.assertEqual(done.returncode, status, done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith('error')]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertTrue(errors[0].startswith(f'error[E{code}] '), errors[0])
        for part in (*parts, 'Fix: '):
            self.assertIn(part, errors[0])
        self.assertFalse(os.path.exists(os.path.join(self.directory, 'store')))

    def test_a_device_with_memory_of_its_own_trains(self):
        done = self.train('--device', 'far')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('note[I201] device: far (the host, from afar)', done.stderr)
        self.assertRegex(done.stdout, r'(?m)^ +hbm +dram')
        self.assertRegex(done.stdout, r'(?m)^states +\S+ \w+ +-')
        self.assertRegex(done.stdout, r'trained 2 steps')

    def test_budgets_of_hbm_are_kept(self):
        self.refused(302, 2, 'KiB of HBM', '--hbm', options=('--device=far', '--hbm=64K'))
        self.refused(302, 2, '256.0 MiB', 'are free', options=('--device=far', '--hbm=1G'))
        self.refused(302, 2, '--dram', options=('--device=far', '--dram=8K'))
        told = self.train('--device=far', '--hbm=64K').stderr
        self.assertIn('Fix: raise --hbm, or ', told)
        need = re.search(r'needs ([\d.]+) (KiB) of HBM', told)
        enough = f'--hbm={need[1]}{need[2]}'
        self.assertEqual(self.train('--device=far', enough).returncode, 0)

    def test_a_model_larger_than_hbm_trains_out_of_dram_and_nvme(self):
        done = self.train('--device=far', '--place=weights=dram,grads=dram,states=nvme')
        self.assertEqual(done.returncode, 0, done.stderr)
        for row in (r'weights +- +\S+ \w+ +-', r'grads +- +\S+ \w+ +-', r'states +- +- +\S+ \w+',
                    r'carry +\S+ \w+ +- +-'):
            self.assertRegex(done.stdout, f'(?m)^{row}$')

    def test_homes_that_can_not_be_are_refused_on_a_gpu(self):
        self.refused(402, 2, 'carry cannot be placed in nvme',
                     options=('--device=far', '--place=carry=nvme'))
        self.refused(402, 2, 'all three or none of them',
                     options=('--device=far', '--place=states=nvme,weights=hbm'))

    def test_hbm_is_for_a_gpu(self):
        self.refused(402, 2, '--hbm', options=('--device=host', '--hbm=1G'))

    def test_a_gpu_updates_what_it_is_asked_to(self):
        done = self.train('--device=far', '--place=weights=dram', '--gpu-update=1')
        self.assertEqual(done.returncode, 0, done.stderr)
        told = re.search(r'(?m)^note\[I305\] the GPU updates (\d+) of (\d+) tiles', done.stderr)
        self.assertEqual(told[1], told[2])
        done = self.train('--device=far', '--place=weights=dram', '--gpu-update=0')
        self.assertNotIn('I305', done.stderr)
        done = self.train('--device=far', '--place=weights=dram,states=nvme', '--gpu-update=1')
        self.assertIn('note[I305] --gpu-update 1 has nothing to share: ', done.stderr)
        self.refused(402, 2, '--gpu-update', options=('--device=host', '--gpu-update=0.5'))
        self.refused(402, 2, '--state bf16',
                     options=('--device=far', '--gpu-update=0.5', '--state=bf16',
                              '--precision=bf16'))

    def test_a_device_that_is_not_there_is_told_in_one_line(self):
        empty = tempfile.mkdtemp(dir=self.directory)
        self.refused(201, 1, 'moon', empty, options=('--device=moon',), plugins=empty)
        self.refused(201, 1, options=('--device=far:16',))
        for name in ('far:', 'far:x', 'Far', '../far', 'far/far', 'host:1'):
            self.refused(402, 2, 'host, cuda or cuda:INDEX', options=(f'--device={name}',))

    def test_a_broken_plugin_is_told_in_one_line(self):
        broken = os.path.join(self.directory, 'libhoistway-moon.so')
        with open(broken, 'w', encoding='ascii') as file:
            file.write('not a library\n')
        self.refused(201, 1, broken, options=('--device=moon',), plugins=self.directory)
        far = os.path.join(FAR, 'libhoistway-far.so')
        with open(far, 'rb') as whole, open(broken, 'wb') as part:
            part.write(whole.read(os.path.getsize(far) // 2))
        self.refused(201, 1, 'cut short', options=('--device=moon',), plugins=self.directory)
        os.remove(broken)
        os.mkfifo(broken)
        self.refused(201, 1, 'not a regular file', options=('--device=moon',),
                     plugins=self.directory)

    def test_without_a_gpu_the_host_is_taken(self):
        done = self.train()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r'(?m)^note\[I201\] device: (host \(|cuda:0 \()')

    def test_the_program_links_nothing_of_cuda(self):
        libraries = subprocess.run(['ldd', PROGRAM], capture_output=True, text=True, check=True)
        self.assertIn('libhoistway.so', libraries.stdout)
        self.assertNotRegex(libraries.stdout, r'cuda|cublas|cudnn|nvidia|nccl')


@unittest.skipUnless(DOUBLE, 'the double of CUDA is not built here')
class Faults(unittest.TestCase):
    """A GPU that is missing, full or failing, on the double (tests/simt)."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix='hst-device-')
        self.addCleanup(shutil.rmtree, self.directory)
        self.cache = tempfile.mkdtemp(prefix='hst-device-')  # rates measured earlier do not count
        self.addCleanup(shutil.rmtree, self.cache)

    def train(self, fault, *more, steps=2, durability='none', program=PROGRAM, rows=2,
              **variables):
        command = [program, 'train', '--model', MODEL, '--data', os.path.join(MODEL, 'tokens.bin'),
                   '--durability', durability, '--store', os.path.join(self.directory, 'store'),
                   '--steps', str(steps), '--seq-len', '24', '--batch-tokens', str(24 * rows),
                   '--export', os.path.join(self.directory, 'out'), '--export-dtype=fp32', *more]
        environment = dict(os.environ, HOISTWAY_PLUGIN_PATH=DOUBLE, HOISTWAY_CUDA_PATH=DOUBLE,
                           HST_FAKE_CUDA=fault, XDG_CACHE_HOME=self.cache, **variables)
        return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False,
                              env=environment)

    def test_a_gpu_without_cublaslt_trains_by_own_products(self):
        def weights(*more, **train):
            done = self.train('', '--device=cuda', '--lr=1e-3', *more, **train)
            self.assertEqual(done.returncode, 0, (more, done.stderr))
            told = 'matrix products by hoistway\'s own kernels, as libcublasLt.so.13 was not found'
            self.assertEqual(done.stderr.count(told), int('HST_ABSENT' in train), done.stderr)
            with open(os.path.join(self.directory, 'out', 'model.safetensors'), 'rb') as file:
                return file.read()
        absent = {'program': WITHOUT, 'HST_ABSENT': 'libcublasLt', 'HOISTWAY_MATMUL': ''}
        for precision in some(('fp32', 'bf16', 'fp16'), 3):
            plain = (f'--precision={precision}',)
            first = weights(*plain, **absent)
            self.assertEqual(weights(*plain, **absent), first, precision)
            self.assertEqual(weights(*plain, HOISTWAY_MATMUL='own'), first, precision)
            homes = '--place=weights=dram,states=nvme,acts=dram'
            self.assertEqual(weights(*plain, homes, HOISTWAY_MATMUL='own'), first, precision)

    def test_own_products_train_as_the_host_does(self):
        for precision, most in some((('fp32', 1e-6), ('bf16', 4e-3)), 2):
            host, cuda = (self.steps(f'--device={device}', f'--precision={precision}',
                                     HOISTWAY_MATMUL='own') for device in ('host', 'cuda'))
            for ours, theirs in zip(cuda, host):
                for what in ('loss', 'grad_norm'):
                    self.assertAlmostEqual(ours[what] / theirs[what], 1, delta=most)

    @whole_alone
    def test_who_makes_products_is_told_and_has_to_be_known(self):
        done = self.train('', '--device=cuda', HOISTWAY_MATMUL='fast')
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r'^error\[E201\] .*HOISTWAY_MATMUL is "fast": none of "own", '
                                      r'"cublaslt"\. Fix: give the variable one of these values')
        def doctor(program, **variables):
            told = subprocess.run(
                [program, 'doctor', '--store', self.directory, '--json'], capture_output=True,
                text=True, timeout=HANGS_S, check=False,
                env=dict(os.environ, HOISTWAY_PLUGIN_PATH=DOUBLE, HOISTWAY_CUDA_PATH=DOUBLE,
                         XDG_CACHE_HOME=self.cache, **variables))
            return {c['name']: c for c in json.loads(told.stdout)['checks']}
        checks = doctor(WITHOUT, HST_ABSENT='libcublasLt', HOISTWAY_MATMUL='')
        self.assertIn(', own products', checks['driver']['found'])
        self.assertEqual(checks['gpu products']['status'], 'warn')
        self.assertIn('libcublasLt.so.13 was not found', checks['gpu products']['found'])
        self.assertIn('HOISTWAY_CUDA_PATH', checks['gpu products']['fix'])
        wished = doctor(PROGRAM, HOISTWAY_MATMUL='own')
        self.assertIn(', own products', wished['driver']['found'])
        self.assertNotIn('gpu products', wished)
        self.assertIn(', cuBLASLt 13.', doctor(PROGRAM, HOISTWAY_MATMUL='')['driver']['found'])

    @unittest.skipIf(OWN, 'cuBLASLt is not looked at')
    def test_doctor_asks_a_python_where_a_library_is(self):
        tools = os.path.join(self.directory, 'bin')
        os.mkdir(tools)
        with open(os.path.join(tools, 'python3'), 'w', encoding='ascii') as file:
            file.write('#!/bin/sh\necho /env/nvidia/cu13/lib:/env/nvidia/cudnn/lib\n')
        os.chmod(file.name, 0o700)
        with open(os.path.join(self.directory, 'libcublasLt.so.13'), 'w', encoding='ascii') as file:
            file.write('no library')  # found where the user said, so nothing else is looked at
        done = subprocess.run(
            [PROGRAM, 'doctor', '--store', self.directory, '--json'], capture_output=True,
            text=True, timeout=HANGS_S, check=False,
            env=dict(os.environ, HOISTWAY_PLUGIN_PATH=DOUBLE, HOISTWAY_CUDA_PATH=self.directory,
                     PATH=f"{tools}:{os.environ['PATH']}", XDG_CACHE_HOME=self.cache))
        gpu = next(c for c in json.loads(done.stdout)['checks'] if c['name'] == 'gpu')
        self.assertIn('libcublasLt.so.13 does not load', gpu['found'])
        self.assertEqual(gpu['fix'], 'export HOISTWAY_CUDA_PATH='
                                     '/env/nvidia/cu13/lib:/env/nvidia/cudnn/lib')

    def share(self):
        """Options with which some units fit into the card's memory, and not all."""
        rates = os.path.join(self.directory, 'no.rates')  # or the double's slowness would count
        with open(rates, 'w', encoding='ascii') as file:
            file.write('hoistway rates 2\ntaken_ms 1\ntook_ms 1\ndrives 0\nproducts 0\n'
                       'operations 0\nend 78a72dce37951b3f\n')
        def plan(*budget):  # without one the card itself is asked, which needs least
            done = subprocess.run(
                [PROGRAM, 'plan', '--model', MODEL, '--device=cuda', '--seq-len=24', '--json',
                 '--batch-tokens=48', '--precision=bf16', '--place=acts=hbm', *budget,
                 '--activations=recompute', f'--rates={rates}'],
                capture_output=True, text=True, timeout=HANGS_S, check=True,
                env=dict(os.environ, HOISTWAY_PLUGIN_PATH=DOUBLE, HOISTWAY_CUDA_PATH=DOUBLE,
                         XDG_CACHE_HOME=self.cache))
            return json.loads(done.stdout)
        budget = f'--hbm={plan()["memory"]["total"]["hbm"] - 4096}'
        self.assertIn(plan(budget)['resident_units'], range(1, 6))
        return '--place=acts=hbm', budget, '--activations=recompute'

    def steps(self, *more, **variables):
        log = os.path.join(self.directory, 'log.jsonl')
        done = self.train('', '--log', log, '--order', 'sequential', *more, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(log, encoding='ascii') as file:
            return [line for line in map(json.loads, file) if line['kind'] == 'step']

    def test_fp16_skips_what_overflows_as_the_host_does(self):
        fp16 = ('--precision=fp16', '--loss-scale=524288', '--lr=2e-3')
        host, cuda = (self.steps(f'--device={device}', *fp16) for device in ('host', 'cuda'))
        skipped = [step['skipped'] for step in host]
        self.assertEqual(skipped, sorted(skipped, reverse=True))
        self.assertEqual(set(skipped), {False, True})
        self.assertEqual([step['skipped'] for step in cuda], skipped)
        for ours, theirs in zip(cuda, host):  # f16 rounds by 2^-11
            self.assertAlmostEqual(ours['loss'] / theirs['loss'], 1, delta=1e-3)

    def test_homes_outside_the_card_change_no_bytes(self):
        def weights(*more):
            done = self.train('', '--device=cuda', *more)
            self.assertEqual(done.returncode, 0, (more, done.stderr))
            with open(os.path.join(self.directory, 'out', 'model.safetensors'), 'rb') as file:
                return file.read()
        for precision in some(('bf16', 'fp16'), 2):
            every = (f'--precision={precision}', '--lr=1e-3')
            near = weights(*every)
            self.assertEqual(weights(*every, '--activations=recompute'), near, precision)
            for place in some(('acts=dram', 'weights=dram', 'weights=dram,states=nvme,acts=dram',
                               'weights=nvme,states=nvme,grads=nvme,acts=nvme'), 2):
                self.assertEqual(weights(*every, '--place', place), near, (precision, place))
            for update in ('deferred', 'optimistic'):
                streamed = ('--place=weights=dram', '--gpu-update=1', f'--update={update}')
                self.assertEqual(weights(*every, *streamed), near, (precision, update))
            twice = ('--place=weights=nvme,states=nvme,acts=dram', '--update=optimistic')
            self.assertEqual(weights(*every, *twice), near, precision)
            if precision == 'bf16':
                self.assertEqual(weights(*every, *self.share()), near)
        early = ('--precision=bf16', '--lr=1e-3', '--clip=0')
        self.assertEqual(weights(*early, '--place=weights=dram', '--gpu-update=1'),
                         weights(*early))

    def test_ways_whose_last_group_is_short_have_one_sum(self):
        """Of six and of eleven: wherever gradients live, and whichever side updates."""
        def weights(ways, *more):
            done = self.train('', '--device=cuda', '--lr=1e-3', f'--ways={ways}', *more, rows=ways)
            self.assertEqual(done.returncode, 0, (more, done.stderr))
            with open(os.path.join(self.directory, 'out', 'model.safetensors'), 'rb') as file:
                return file.read()
        for ways, precision in some(((6, 'bf16'), (11, 'fp16')), 2):
            every = (ways, f'--precision={precision}', '--hop=4')
            near = weights(*every)
            self.assertNotEqual(weights(*every[:2], '--hop=1'), near)
            for more in some((('--place=weights=dram,states=nvme,acts=dram',),
                              ('--place=weights=nvme,states=nvme,grads=nvme,acts=nvme',),
                              ('--place=weights=dram', '--gpu-update=1',
                               '--update=optimistic')), 3):
                self.assertEqual(weights(*every, *more), near, (*every, *more))

    def test_normed_heads_and_biases_train_as_on_the_host(self):
        for fixture, precision, most in some(
                (('qk-norm', 'fp32', 1e-6), ('qk-norm', 'bf16', 4e-3), ('qkv-bias', 'fp32', 1e-6),
                 ('qkv-bias', 'bf16', 4e-3)), 4):
            model = os.path.join(ROOT, 'tests', 'golden', fixture)
            with mock.patch.dict(globals(), MODEL=model):
                host, cuda = (self.steps(f'--device={device}', f'--precision={precision}')
                              for device in ('host', 'cuda'))
            for ours, theirs in zip(cuda, host):
                for what in ('loss', 'grad_norm'):
                    self.assertAlmostEqual(ours[what] / theirs[what], 1, delta=most)

    def test_how_many_units_the_card_holds_is_told(self):
        done = self.train('', '--device=cuda', '--precision=bf16', *self.share())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr,
                         r'(?m)^note\[I304\] [1-5] of \d+ units (is|are) at home in HBM')

    @whole_alone
    def test_a_plan_that_no_budget_of_this_card_serves_tells_what_is_there(self):
        def told(size, *more):
            done = subprocess.run(
                [PROGRAM, 'plan', '--model', '1B', '--device=cuda', *more], capture_output=True,
                text=True, timeout=HANGS_S, check=False,
                env=dict(os.environ, HOISTWAY_PLUGIN_PATH=DOUBLE, HOISTWAY_CUDA_PATH=DOUBLE,
                         XDG_CACHE_HOME=self.cache, HST_FAKE_CUDA=f'memory={size}'))
            self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
            return re.search(r'(?m)^the smallest that would do: .*$', done.stdout)[0]
        plenty = '--nvme=1T'
        self.assertRegex(told('128M', plenty), r': --hbm \d\S*G( --dram \S+)?; no more than 128\.0 '
                                               r'MiB of HBM are free here$')
        self.assertRegex(told('64G', plenty, '--hbm=64M'), r': --hbm \d\S*G( --dram \S+)?$')

    @whole_alone
    def test_what_is_left_of_the_cards_memory_is_measured_and_told(self):
        for size, budget in (('1G', 1 << 29), ('2G', 3 << 29), ('8G', int(0.9 * (8 << 30)))):
            done = subprocess.run(
                [PROGRAM, 'plan', '--model', MODEL, '--device=cuda', '--seq-len=24', '--json',
                 '--batch-tokens=48'], capture_output=True, text=True, timeout=HANGS_S, check=True,
                env=dict(os.environ, HOISTWAY_PLUGIN_PATH=DOUBLE, HOISTWAY_CUDA_PATH=DOUBLE,
                         XDG_CACHE_HOME=self.cache, HST_FAKE_CUDA=f'memory={size}'))
            self.assertEqual(json.loads(done.stdout)['memory']['budget']['hbm'], budget, size)
        log = os.path.join(self.directory, 'log.jsonl')
        for fault, options, told in (('memory=2G', ('--hbm=256M',), 0), ('', (), 0),
                                     ('memory=1G,overhead=560M', (), 0),
                                     ('memory=1G,overhead=560M', ('--hbm=256M',), 1)):
            done = self.train(fault, '--device=cuda', '--log', log, *options, steps=5)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count('warning[W311] '), told, (fault, done.stderr))
            with open(log, encoding='ascii') as file:
                lines = [line for line in map(json.loads, file) if line['kind'] in ('run', 'step')]
            left = [line['hbm_free'] for line in lines if 'hbm_free' in line]
            self.assertEqual(len(left), 1 + 4)  # it is not asked at the fifth step
            total = (2 if '2G' in fault else 1) << 30
            self.assertTrue(all(0 < size < total - (560 << 20) * told for size in left), left)
            start = r'\S+ MiB' if total >> 30 == 1 else r'.*'
            self.assertRegex(done.stdout,
                             f'(?m)^GPU memory left: {start} at the start, at least [1-9]')
        self.assertRegex(done.stderr, r'W311\] \d{3}\.\d MiB of GPU memory are left at the end of '
                                      r'step 1, less than the 512\.0 MiB .*Fix: a smaller --hbm')

    def test_what_was_trained_in_the_cards_memory_is_resumed(self):
        export = os.path.join(self.directory, 'out', 'model.safetensors')
        def run(*more, steps=2):
            done = self.train('', '--device=cuda', '--lr=1e-3', *more, steps=steps,
                              durability='step')
            self.assertEqual(done.returncode, 0, (more, done.stderr))
            with open(export, 'rb') as file:
                return file.read()
        for precision in some(('--precision=bf16', '--precision=fp16', '--precision=fp32'), 3):
            alone = run(precision)
            shutil.rmtree(os.path.join(self.directory, 'store'))
            share = (self.share(),) if precision == '--precision=bf16' else ()
            for homes in ((), ('--place=weights=dram,states=nvme',),
                          ('--place=weights=dram', '--gpu-update=1'), *share):
                run(precision, steps=1)
                self.assertEqual(run(precision, '--resume', *homes), alone, (precision, homes))
                shutil.rmtree(os.path.join(self.directory, 'store'))

    def refused(self, fault, code, status, *parts, place='acts=hbm', device='cuda', **variables):
        done = self.train(fault, '--device', device, '--place', place, **variables)
        self.assertEqual(done.returncode, status, (fault, done.stderr))
        errors = [line for line in done.stderr.splitlines() if line.startswith('error')]
        self.assertEqual(len(errors), 1, (fault, done.stderr))
        self.assertTrue(errors[0].startswith(f'error[E{code}] '), (fault, errors[0]))
        for part in (*parts, 'Fix: '):
            self.assertIn(part, errors[0])
        self.assertEqual(os.listdir(self.directory), [])

    def test_what_is_missing_is_named(self):
        self.refused('driver=0', 201, 1, 'no NVIDIA driver')
        self.refused('driver=12020', 201, 1, 'too old', '12.2')
        self.refused('devices=0', 201, 1, 'no GPU')
        self.refused('', 201, 1, 'no GPU 9: the driver reports 1, counted from 0',
                     'nvidia-smi -L', device='cuda:9')
        for number, words in ((34, 'stubs'), (803, 'restart the machine'),
                              (804, 'compat package'), (802, 'nvidia-fabricmanager')):
            self.refused(f'fail=cudaGetDeviceCount:1:{number}', 201, 1, words)

    def test_a_card_that_can_not_be_had_is_told_with_what_to_do(self):
        self.refused('', 201, 1, 'CUDA_VISIBLE_DEVICES is "nonsense", which names none',
                     'Fix: unset CUDA_VISIBLE_DEVICES', CUDA_VISIBLE_DEVICES='nonsense')
        self.refused('', 201, 1, 'CUDA_VISIBLE_DEVICES is "-1", which hides all',
                     CUDA_VISIBLE_DEVICES='-1')
        self.refused('compute-mode=exclusive', 201, 1, 'Exclusive_Process, and another process',
                     'nvidia-smi -c DEFAULT')
        self.refused('fail=cudaSetDevice:1:214', 203, 1, 'its memory has failed', '--gpu-reset')
        self.refused('fail=launch:60:214', 203, 1, 'cudaErrorECCUncorrectable', '--gpu-reset')
        if not OWN:
            self.refused('fail=cublasLtCreate:1+:1', 201, 1, 'libcublasLt.so.13: CUBLAS_STATUS_NOT',
                         'HOISTWAY_MATMUL=own')

    def test_a_card_that_others_have_most_of_is_warned_of_once(self):
        done = self.train('memory=1G,overhead=600M', '--device=cuda')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(re.findall(r'(?m)^warning.*', done.stderr), [
            'warning[W202] 424.0 MiB of the 1.0 GiB of Fake GPU 0 (cuda) are free: others have the '
            'rest, and the plan takes at most 212.0 MiB. Fix: end what else uses it '
            '(nvidia-smi), or say --hbm'])
        for fault, more in (('memory=1G,overhead=600M', '--hbm=64M'), ('memory=1G', '')):
            done = self.train(fault, '--device=cuda', *more.split())
            self.assertNotIn('W202', done.stderr)

    def test_a_variable_that_hides_the_card_by_mistake_is_warned_of(self):
        for visible, mistake in (('nonsense', True), ('7', True), ('-1', False), ('', False)):
            done = self.train('', CUDA_VISIBLE_DEVICES=visible)
            self.assertEqual(done.returncode, 0, done.stderr)
            kind = r'warning\[W201\]' if mistake else r'note\[I201\] device: host'
            self.assertRegex(done.stderr, rf'(?m)^{kind} .*CUDA_VISIBLE_DEVICES is "{visible}"')
            self.assertEqual(done.stderr.count('CUDA_VISIBLE_DEVICES is'), 1, done.stderr)

    def test_a_card_that_is_full_is_told_with_its_numbers(self):
        if not OWN:  # whose products have no workspace, which is what does not fit
            self.refused('memory=8M', 302, 2, 'MiB of HBM')
        self.refused('fail=cudaMalloc:1:2', 202, 1, 'bytes were asked for')

    def test_failures_while_training_are_the_devices(self):
        for fault in ('fail=cudaLaunchKernel:40:700', 'fail=cudaLaunchKernel:40+:719',
                      'fail=launch:60:700', 'fail=copy:30:700',
                      *([] if OWN else ['fail=cublasLtMatmul:20:14'])):
            self.refused(fault, 203, 1, 'cuda')
        for number in (1, 10, 30):
            self.refused(f'fail=copy:{number}:700', 203, 1, 'cuda', place='weights=dram,acts=dram')

    def test_the_log_of_a_run_that_failed_has_the_version_that_it_is_resumed_from(self):
        log = os.path.join(self.directory, 'log.jsonl')
        for launch in some((100, 400), 2):  # in the first step, and later
            options = ('--device=cuda', '--place=acts=hbm,states=nvme', '--log', log)
            failed = self.train(f'fail=cudaLaunchKernel:{launch}+:700', *options, steps=6,
                                durability='step')
            self.assertEqual(failed.returncode, 1, failed.stderr)
            with open(log, encoding='ascii') as file:
                known = [json.loads(line)['step'] for line in file if '"commit"' in line][-1]
            done = self.train('', '--resume', *options, steps=6, durability='step')
            self.assertEqual(done.returncode, 0, done.stderr)
            # what was being written may be there too
            self.assertRegex(done.stderr, rf'going on after step ({known}|{known + 1}) of ')
            shutil.rmtree(os.path.join(self.directory, 'store'))
            os.unlink(log)

    def test_without_a_usable_gpu_the_host_is_taken_and_the_reason_told(self):
        usual = self.train('driver=0')
        self.assertEqual(usual.returncode, 0, usual.stderr)
        self.assertRegex(usual.stderr, r'(?m)^note\[I201\] device: host \(.*no NVIDIA driver')
        old = self.train('driver=12020')
        self.assertEqual(old.returncode, 0, old.stderr)
        self.assertRegex(old.stderr, r'(?m)^warning\[W201\] .*too old')
        wish = self.train('', '--place', 'states=nvme')
        self.assertEqual(wish.returncode, 0, wish.stderr)
        self.assertIn('device: cuda:0', wish.stderr)


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
