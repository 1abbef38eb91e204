#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layers in halves: the losses, norms and weights of whole layers, in all kinds of runs; what a
store of them goes on with, and what `plan` says.

    halves.py PROGRAM SOURCE_ROOT MPI_FOLDER [TEST...]; HOISTWAY_PLUGIN_PATH has libhoistway-far.so
"""
import fnmatch
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, 'data')]
import mpi  # noqa: E402
from sample_files import draw_prompts, write  # noqa: E402
from short import by_turns as load_tests  # noqa: E402, F401: unittest looks for it
from short import every_day, some  # noqa: E402

PROGRAM, ROOT, FOLDER = sys.argv[1:4]
GOLDEN = os.path.join(ROOT, 'tests', 'golden')
MODELS = ('untied-mha', 'tied-gqa', 'qk-norm', 'qkv-bias', 'windowed')
PRECISIONS = ('fp32', 'bf16', 'fp16')
RAM = '--place=states=dram,weights=dram'
ALL_SEEN = ('--seq-len', '16', '--batch-tokens', '64')
WINDOWED = ('--seq-len', '64', '--batch-tokens', '256')  # beyond its window of 32
# Layers of which one half is trained: the globs of what is, and of what is not.
HEAD = ('*embed*', 'model.norm.*', 'lm_head.*')
PARTS = {'one MLP': (('*.1.mlp.*', '*.1.post_*'),
                     (*HEAD, '*.[02].*', '*.1.self_attn.*', '*.1.input_*')),
         'every MLP': (('*.mlp.*', '*.post_*'), (*HEAD, '*.self_attn.*', '*.input_*')),
         'every attention': (('*.self_attn.*', '*.input_*'), (*HEAD, '*.mlp.*', '*.post_*'))}
# A layer is too large for this machine's GPU, and its larger half is not.
LARGE = ('--model=1T', '--world=1024', '--nodes=128', '--machine=dgx-h100', '--seq-len=4096',
         '--batch-tokens=4194304')


def tensors(folder):
    """Name -> bytes, of all files of a model."""
    found = {}
    for name in os.listdir(folder):
        if not name.endswith('.safetensors'):
            continue
        with open(os.path.join(folder, name), 'rb') as file:
            raw = file.read()
        begin = 8 + struct.unpack('<Q', raw[:8])[0]
        found.update((tensor, raw[begin:][slice(*told['data_offsets'])])
                     for tensor, told in json.loads(raw[8:begin]).items()
                     if tensor != '__metadata__')
    return found


class Halves(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, *command, code=0, ranks=1):
        env = mpi.environment(FOLDER) if ranks > 1 else None
        launcher = mpi.launcher(ranks) if ranks > 1 else []
        done = subprocess.run([*launcher, PROGRAM, *command], capture_output=True, text=True,
                              timeout=120, check=False, env=env)
        self.assertEqual(done.returncode, code, done.stderr)
        self.told = done.stderr
        return done.stdout

    def digest(self, name):
        with open(self.path(f'{name}/model.safetensors'), 'rb') as file:
            return hashlib.sha256(file.read()).hexdigest()

    def train(self, name, *more, model='untied-mha', steps=3, ranks=1, code=0, store='store'):
        """-> what the log says of steps, evaluations and samples, and the weights' digest."""
        if '--resume' not in more:
            shutil.rmtree(self.path(store), ignore_errors=True)
        shutil.rmtree(self.path('out'), ignore_errors=True)
        folder = os.path.join(GOLDEN, model)
        data = () if '--data' in more else ('--data', os.path.join(folder, 'tokens.bin'))
        sizes = () if '--seq-len' in more else WINDOWED if model == 'windowed' else ALL_SEEN
        self.call('train', '--model', folder, *data, *sizes, '--grain', '32', '--threads', '2',
                  '--lr', '1e-2', '--steps', str(steps), '--store', self.path(store), '--log',
                  self.path('log'), '--export', self.path('out'), *more, code=code, ranks=ranks)
        if code:
            return None
        digest = self.digest('out')
        with open(self.path('log'), encoding='utf-8') as file:
            lines = [json.loads(line) for line in file]
        said = [line['options'].get('layers') for line in lines if 'options' in line]
        self.assertEqual(said[-1], name)
        kept = ('loss', 'grad_norm', 'text', 'step')
        return [[line.get(key) for key in kept] for line in lines[1:]
                if line['kind'] in ('step', 'evaluation', 'sample')], digest

    def assert_same(self, *more, halved=(), durability='none', **kind):
        """The bytes of a run with whole layers in memory are those with halves, wherever."""
        want = self.train(None, *more, RAM, '--durability=none', '--device=host', **kind)
        got = self.train('halves', *more, '--layers=halves', '--durability', durability, *halved,
                         **kind)
        self.assertEqual(got, want)
        return got

    @every_day
    def test_the_bytes_are_those_of_whole_layers(self):
        homes = (('--device=host', RAM), ('--device=host', '--place=states=nvme,weights=nvme'),
                 ('--device=far', '--place=states=nvme,weights=nvme,grads=nvme,acts=nvme'),
                 ('--device=host', RAM, '--activations=recompute'),
                 ('--device=far', '--place=states=hbm'))
        rows = [(model, precision, clip, homes[(i + j + k) % len(homes)])
                for i, model in enumerate(MODELS) for j, precision in enumerate(PRECISIONS)
                for k, clip in enumerate(('0', '0.05'))]
        for model, precision, clip, halved in some(rows, 7):
            with self.subTest(model=model, precision=precision, clip=clip, halved=halved):
                self.assert_same('--precision', precision, '--clip', clip, model=model,
                                 halved=halved)

    def test_any_update_and_any_durability(self):
        """The last version, where there are some, has these weights as well."""
        rows = (('deferred', 'step'), ('optimistic', 'none'), ('deferred', 'none'),
                ('optimistic', 'step'), ('deferred', '2'))
        for update, durability in some(rows, 2):
            with self.subTest(update=update, durability=durability):
                _, want = self.assert_same(
                    '--clip=0.05', '--precision=bf16', model='qk-norm', durability=durability,
                    halved=('--update', update, '--place=states=nvme,weights=nvme',
                            '--device=host'))
                if durability != 'none':
                    self.assertRegex(self.call('ckpt', 'list', self.path('store')),
                                     r'\n +3  committed ')
                    self.assertEqual(self.kept('store', 'qk-norm'), want)

    def test_moments_of_8_bits(self):
        self.assert_same('--state=8bit', '--precision=bf16', model='qkv-bias',
                         halved=('--device=host',))

    def test_frozen_tensors(self):
        """A half that rests has no backward; one that another half has trained stays as it was."""
        for more in some((('--freeze=model.embed*', '--freeze=*.layers.0.*'),
                          ('--train-only=*.1.*', '--train-only=lm_head.*')), 2):
            for precision in ('fp32', 'bf16'):
                with self.subTest(more, precision=precision):
                    self.assert_same(*more, '--precision', precision, halved=('--device=host',))

    def test_layers_that_are_frozen_in_part(self):
        """Whole layers refuse that. What they train where the rate of the rest is 0 is the same,
        but for the norm of gradients."""
        source = tensors(os.path.join(GOLDEN, 'untied-mha'))
        for name, precision in some(((n, p) for n in PARTS for p in ('fp32', 'bf16')), 3):
            with self.subTest(name, precision=precision):
                trained, frozen = PARTS[name]
                kind = ('--durability=none', '--device=host', '--clip=0', '--precision', precision)
                only = tuple(f'--train-only={glob}' for glob in trained)
                self.train(None, *only, *kind, code=2)
                self.assertIn('error[E402]', self.told)
                want = self.train(None, *(f'--group={glob}:lr=0x' for glob in frozen), *kind)
                got = self.train('halves', *only, *kind, '--layers=halves')
                self.assertEqual(got[1], want[1])
                self.assertEqual([loss for loss, *_ in got[0]], [loss for loss, *_ in want[0]])
                out = tensors(self.path('out'))
                self.assertEqual(out.keys(), source.keys())
                for tensor, data in out.items():
                    moves = any(fnmatch.fnmatch(tensor, glob) for glob in trained)
                    self.assertEqual(data != source[tensor], moves, tensor)

    def test_documents_evaluations_and_samples(self):
        rng = random.Random(7)
        documents = [[rng.randrange(272) for _ in range(rng.randrange(2, 30))] for _ in range(60)]
        data = write(self.path('data.safetensors'), 272, draw_prompts(2, 5, 272, 9), documents)
        for precision, pack in some(((p, k) for p in PRECISIONS for k in ('on', 'off')), 3):
            with self.subTest(precision=precision, pack=pack):
                told, _ = self.assert_same(
                    '--data', data, '--precision', precision, '--pack', pack, '--seq-len', '32',
                    '--batch-tokens', '128', '--eval-split=0.2', '--eval-every=1', '--samples=2',
                    '--sample-tokens=6', model='tied-gqa', halved=('--device=host',))
                self.assertTrue(any(text for _, _, text, _ in told))

    def test_several_ranks(self):
        if mpi.missing(FOLDER):
            self.skipTest('no mpirun, or no libhoistway-mpi.so')
        for precision, stage in some(zip(PRECISIONS, '321'), 2):
            with self.subTest(precision=precision, stage=stage):
                kind = ('--precision', precision, '--clip=0.05', '--ways=2', '--durability=none',
                        '--device=host')
                want = self.train(None, *kind, model='qk-norm')
                got = self.train('halves', *kind, '--layers=halves', '--zero-stage', stage,
                                 ranks=2, model='qk-norm')
                self.assertEqual(got, want)

    def large_mlps(self):
        """A model whose MLPs are five times as large as its attentions; weights are drawn."""
        folder = os.path.join(os.path.abspath(self.folder), 'large')
        os.mkdir(folder)
        with open(os.path.join(GOLDEN, 'untied-mha', 'config.json'), encoding='utf-8') as file:
            config = json.load(file)
        config.update(intermediate_size=448, num_hidden_layers=4)
        with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as file:
            json.dump(config, file)
        shutil.copy(os.path.join(GOLDEN, 'untied-mha', 'tokens.bin'), folder)
        return folder

    def test_buffers_of_two_sizes(self):
        """Attentions have their own, of weights and of gradients, in memory and beside a GPU."""
        drives = '--place=states=nvme,weights=nvme,grads=nvme,acts=nvme'
        kind = ('--init=random', '--precision=bf16', '--clip=0.05')
        model = self.large_mlps()
        for halved in (('--device=host', drives), ('--device=far', drives),
                       ('--device=far', drives, '--activations=recompute'),
                       ('--device=far', drives, '--update=optimistic')):
            with self.subTest(halved=halved):
                self.assert_same(*kind, model=model, halved=halved)
        if mpi.missing(FOLDER):
            self.skipTest('no mpirun, or no libhoistway-mpi.so')
        kind = (*kind, '--ways=2', '--durability=none')
        want = self.train(None, *kind, '--device=host', model=model)
        for place in (drives, RAM):
            got = self.train('halves', *kind, '--device=host', '--layers=halves', place, ranks=2,
                             model=model)
            self.assertEqual(got, want)

    # ---- stores ----

    def kept(self, store, model):
        """The digest of a store's weights, without the run."""
        shutil.rmtree(self.path('kept'), ignore_errors=True)
        self.call('ckpt', 'export', self.path(store), '--model', os.path.join(GOLDEN, model),
                  '--export', self.path('kept'))
        return self.digest('kept')

    def assert_refused_for(self, wanted, *more, ranks=1):
        began = time.monotonic()
        self.train(None, '--resume', *more, steps=4, code=2, ranks=ranks)
        took = time.monotonic() - began
        other = 'whole' if wanted == 'halves' else 'halves'
        self.assertIn(f'error[E615] the store was trained with --layers {wanted}, this run has '
                      f'--layers {other}. Fix: --layers {wanted}, or another --store.', self.told)
        self.assertEqual(len(mpi.errors_of(self.told)), 1, self.told)
        if took < 2:  # for so long other ranks are silent, which the launcher ends
            self.assertEqual(self.told.count('error['), 1, self.told)

    def test_a_store_goes_on_with_its_own_units(self):
        want = self.train(None, '--durability=none', '--device=host', steps=4)
        for name, given in (('halves', ('--layers=halves',)), (None, ())):
            with self.subTest(name):
                self.train(name, *given, '--device=host', steps=2)
                wanted = name or 'whole'
                other = 'whole' if name else 'halves'
                self.assert_refused_for(wanted, f'--layers={other}', '--device=host')
                got = self.train(wanted, '--resume', '--device=host', steps=4)
                self.assertEqual('--layers halves, as the store has it' in self.told,
                                 name == 'halves')
                self.assertEqual(got, want)
        got = self.train('whole', '--resume', '--layers=whole', '--device=host', steps=4)
        self.assertEqual(got[1], want[1])

    def test_a_store_that_has_step_0_alone_says_its_units(self):
        want = self.train(None, '--durability=none', '--device=host', steps=2)
        folder = os.path.join(GOLDEN, 'untied-mha')
        for name, other in (('halves', 'whole'), ('whole', 'halves')):
            shutil.rmtree(self.path('store'), ignore_errors=True)
            run = subprocess.Popen(
                [PROGRAM, 'train', '--model', folder, '--data', os.path.join(folder, 'tokens.bin'),
                 *ALL_SEEN, '--grain', '32', '--threads', '2', '--lr', '1e-2', '--device=host',
                 '--steps=1000000', '--durability=1000000', '--store', self.path('store'),
                 '--layers', name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.assertTrue(any('step ' in line for line in run.stderr))
            run.kill()
            run.communicate(timeout=60)
            self.assertRegex(self.call('ckpt', 'list', self.path('store')), r'\n +0  committed ')
            self.assert_refused_for(name, f'--layers={other}', '--device=host')
            self.assertEqual(self.train(name, '--resume', '--device=host', steps=2), want)

    def test_ranks_go_on_with_the_units_of_their_store(self):
        if mpi.missing(FOLDER):
            self.skipTest('no mpirun, or no libhoistway-mpi.so')
        kind = ('--ways=2', '--device=host')
        want = self.train(None, *kind, '--durability=none', steps=4)
        self.train('halves', *kind, '--layers=halves', steps=2, ranks=2)
        self.assert_refused_for('halves', '--layers=whole', '--device=host', ranks=2)
        got = self.train('halves', '--resume', '--device=host', steps=4, ranks=2)
        self.assertEqual(got, want)

    def test_ckpt_reads_a_store_of_halves(self):
        _, want = self.train('halves', '--layers=halves', '--device=host', '--clip=0.05',
                             model='qk-norm')
        store = self.path('store')
        self.assertRegex(self.call('ckpt', 'list', store), r'\n +3  committed ')
        self.call('ckpt', 'verify', store)
        self.call('ckpt', 'reshard', store, '--world=2', '--out', self.path('two'))
        self.call('ckpt', 'reshard', self.path('two'), '--world=1', '--out', self.path('one'))
        for name in ('store', 'two', 'one'):
            self.assertEqual(self.kept(name, 'qk-norm'), want)

    # ---- plan ----

    def plan(self, *more, code=0):
        return json.loads(self.call('plan', *LARGE, '--json', *more, code=code))

    def test_plan_names_halves_where_they_fit(self):
        whole = self.plan(code=3)
        self.assertIn('Fix: --layers halves, or raise --hbm', whole['why'])
        halves = self.plan('--layers=halves')
        self.assertEqual((whole['layers'], halves['layers']), ('whole', 'halves'))
        self.assertEqual(set(whole['smallest']), {'hbm'})
        self.assertGreater(whole['smallest']['hbm'], whole['memory']['budget']['hbm'])
        self.assertLess(halves['memory']['total']['hbm'], halves['memory']['budget']['hbm'])
        self.assertEqual(halves['parameters'], whole['parameters'])
        self.assertNotIn('--layers', self.plan('--hbm=20G', code=3)['why'])  # too small for both

    def test_a_step_of_large_halves_takes_little_more_than_its_bound(self):
        """Rows that are gathered sooner than they are copied; one buffer of either size, not two
        of the larger one, for weights and for gradients."""
        fewer = ('--world=512', '--nodes=64', '--batch-tokens=2097152')
        for options in (LARGE, (*LARGE, '--place=states=nvme,weights=nvme'),
                        (*LARGE[:1], *LARGE[3:5], *fewer)):
            plan = json.loads(self.call('plan', *options, '--layers=halves', '--json'))
            self.assertGreater(plan['bound_fraction'], 0.95, options)
            self.assertLess(plan['predicted_step_s'], 100, options)

    def test_a_run_that_does_not_fit_names_them_too(self):
        kind = ('--durability=none', '--device=host',
                '--place=states=nvme,weights=nvme,grads=nvme,acts=nvme')
        told = self.call('plan', '--model', os.path.join(GOLDEN, 'untied-mha'), '--seq-len=16',
                         '--batch-tokens=64', '--grain=32', '--threads=2', '--json', '--store',
                         self.path('none'), *kind, '--layers=halves', '--dram=64K', code=3)
        least = json.loads(told)['smallest']['dram']
        self.train(None, *kind, f'--dram={least}', code=2)
        self.assertRegex(self.told, r'error\[E302\] [^\n]*Fix: --layers halves, or raise --dram')
        self.train('halves', *kind, f'--dram={least}', '--layers=halves')

    def test_a_step_is_predicted_as_with_whole_layers(self):
        sizes = ('plan', '--model=8B', '--machine=h100', '--seq-len=2048',
                 '--batch-tokens=131072', '--json')
        whole, halves = (json.loads(self.call(*sizes, f'--layers={how}'))
                         for how in ('whole', 'halves'))
        computed = [p['compute_fraction'] * p['predicted_step_s'] for p in (whole, halves)]
        self.assertAlmostEqual(computed[1] / computed[0], 1, delta=0.05)
        self.assertEqual(halves['bound_by'], whole['bound_by'])


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
