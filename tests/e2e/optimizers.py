#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each optimizer through the whole program: bytes of its states, resume, reshard, ranks, refusals.

    optimizers.py PROGRAM SOURCE_ROOT PLUGIN_FOLDER [TEST...]
"""
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402
from short import by_turns  # noqa: E402

PROGRAM, ROOT, FOLDER = sys.argv[1:4]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')

# Of each: bytes of its states in fp32, an option that it has not.
OPTIMIZERS = {
    'sgd': (4, '--betas=0.8,0.9'),
    'lion': (4, '--eps=1e-8'),
    'adagrad': (4, '--momentum=0.5'),
}
EIGHT = ('--precision=bf16', '--state=8bit')  # adamw's moments in codes: 2 + 2 + 8/256 bytes
# Of each number that an element has in its record: its bytes, and how many elements have it.
F32, SCALE = (4, 1), (4, 256)
CODED = ((2, 1), (1, 1), (1, 1), SCALE, SCALE)
STATES = {
    **{(f'--optimizer={name}',): (F32,) for name in OPTIMIZERS},
    (): (F32, F32),
    ('--precision=bf16',): ((2, 1), F32, F32),
    ('--precision=bf16', '--state=bf16'): ((2, 1),) * 3,
    EIGHT: CODED,
}
PAGE, STAGGER = 4096, 1088


def record_bytes(states, elements):
    """Of a tile: whole pages, in which the k-th array begins at k times 1,088, modulo a page."""
    end = 0
    for k, (each, covers) in enumerate(states):
        at = end // PAGE * PAGE + k * STAGGER % PAGE
        end = at + (PAGE if at < end else 0) + elements // covers * each
    return -(-end // PAGE) * PAGE


def units_of(vocabulary, width, inside, layers, queries_per_key=1):
    """Elements of the embedding, each layer, the last norm and the head; of whole blocks."""
    layer = (2 + 2 / queries_per_key) * width * width + 3 * width * inside + 2 * width
    units = [vocabulary * width, *[int(layer)] * layers, width, vocabulary * width]
    return [-(-elements // PAGE) * PAGE for elements in units]


def states_bytes(states, units, tile):
    return sum(elements // tile * record_bytes(states, tile)
               + (record_bytes(states, elements % tile) if elements % tile else 0)
               for elements in units)


class Optimizers(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, *command, before=()):
        return subprocess.run([*before, PROGRAM, *command], capture_output=True, text=True,
                              timeout=120, env=mpi.environment(FOLDER))

    def good(self, *command, before=()):
        done = self.call(*command, before=before)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def refused(self, code, *command):
        done = self.call(*command)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f'error[E{code}]', done.stderr)
        return done.stderr

    def train(self, store, steps, *more, verb='train'):
        """Twelve sequences a step; of `plan` the same run."""
        return (verb, '--device=host', '--model', MODEL, '--data',
                os.path.join(MODEL, 'tokens.bin'), f'--steps={steps}', '--seq-len=24',
                '--batch-tokens=288', '--grain=48', '--lr=1e-3', '--threads=1', '--store',
                self.path(store), *more)

    def exported(self, name):
        with open(os.path.join(self.path(name), 'model.safetensors'), 'rb') as file:
            return hashlib.sha256(file.read()).hexdigest()

    def run_of(self, store, steps, *more, before=()):
        """-> the sum of what the run exports."""
        self.good(*self.train(store, steps, '--durability=step', '--quiet', '--export',
                              self.path(f'{store}.out'), *more), before=before)
        return self.exported(f'{store}.out')

    def test_a_resumed_run_ends_where_one_at_a_time_does(self):
        seen = set()
        for name in OPTIMIZERS:
            for precision in ('fp32', 'bf16', 'fp16'):
                with self.subTest(name, precision=precision):
                    words = (f'--optimizer={name}', f'--precision={precision}')
                    tag = f'{name}-{precision}'
                    whole = self.run_of(f'{tag}-whole', 4, *words)
                    self.run_of(tag, 2, *words)
                    self.assertEqual(self.run_of(tag, 4, '--resume', *words), whole)
                    seen.add(whole)
        self.assertEqual(len(seen), 3 * len(OPTIMIZERS))

    def test_ranks_have_the_bytes_of_one_and_reshard_keeps_them(self):
        for name in OPTIMIZERS:
            with self.subTest(name):
                words = (f'--optimizer={name}', '--precision=bf16', '--place=states=nvme')
                whole = self.run_of(f'{name}-one', 4, '--ways=2', *words)
                two = self.run_of(f'{name}-two', 2, *words, before=mpi.launcher(2))
                self.assertNotEqual(two, whole)
                self.good('ckpt', 'reshard', self.path(f'{name}-two'), '--world=1', '--out',
                          self.path(f'{name}-again'))
                self.good('ckpt', 'verify', self.path(f'{name}-again'))
                self.assertEqual(self.run_of(f'{name}-again', 4, '--ways=2', '--resume', *words),
                                 whole)

    def test_a_resume_under_another_optimizer_is_refused_with_both_names(self):
        self.run_of('adamw', 1)
        for name in OPTIMIZERS:
            with self.subTest(name):
                self.run_of(name, 1, f'--optimizer={name}')
                told = self.refused(615, *self.train('adamw', 2, '--resume',
                                                     f'--optimizer={name}'))
                self.assertRegex(told, rf'trained with .*optimizer adamw.* this run has .*'
                                       rf'optimizer {name}[^\n]*Fix: --optimizer adamw')
                told = self.refused(615, *self.train(name, 2, '--resume'))
                self.assertRegex(told, rf'trained with .*optimizer {name}.* this run has .*'
                                       rf'optimizer adamw[^\n]*Fix: --optimizer {name}')

    def test_the_plan_has_the_bytes_of_the_states(self):
        """To the byte, as in memory; a copy is of weights and states as they are in a file."""
        units = units_of(160, 64, 112, 3)
        for words, states in STATES.items():
            with self.subTest(words):
                told = json.loads(self.good(*self.train(
                    'none', 1, *words, '--place=weights=dram,states=dram,grads=dram',
                    '--update=deferred', '--eval-split=0.2', '--keep-best', '--json',
                    verb='plan')))
                weight = 2 if '--precision=bf16' in words else 4
                of_class = {key: told['memory'][key]['dram']
                            for key in ('weights', 'states', 'grads')}
                self.assertEqual(of_class, {
                    'weights': weight * sum(units), 'grads': weight * sum(units),
                    'states': states_bytes(states, units, told['tile_elements'])})
                each = weight + sum(size / covers for size, covers in states)
                self.assertEqual(told['keep_best_bytes'], int(told['parameters'] * each))

    def test_moments_of_8_bits_have_four_bytes_and_their_scales_in_the_plan(self):
        told = json.loads(self.good('plan', '--model=llama-3-8b', '--machine=h100',
                                    '--device=host', *EIGHT, '--json',
                                    '--place=weights=dram,states=dram,grads=dram'))
        tile, units = told['tile_elements'], units_of(128256, 4096, 14336, 32, 4)
        self.assertEqual(told['parameters'], sum(units))
        of_class = {key: told['memory'][key]['dram'] for key in ('weights', 'states', 'grads')}
        self.assertEqual(of_class,
                         {'weights': 2 * sum(units), 'grads': 2 * sum(units),
                          'states': states_bytes(CODED, units, tile)})
        # 258 pages of codes, scales and remainders, which are 4.03 bytes an element, and two more
        # since arrays begin at different places of a page
        self.assertEqual(tile, 1 << 18)
        self.assertEqual(record_bytes(CODED, tile) / PAGE, tile * (4 + 8 / 256) / PAGE + 2)

    def test_groups_are_resumed_and_have_the_bytes_of_one_rank(self):
        words = ('--group=*norm*:lr=3x,decay=0.2', '--group=*proj*:beta1=0.8', '--ways=2')
        whole = self.run_of('groups', 4, '--place=states=dram', *words)
        self.run_of('part', 2, '--place=states=nvme', *words, before=mpi.launcher(2))
        self.assertEqual(self.run_of('part', 4, '--place=states=nvme', '--resume', *words,
                                     before=mpi.launcher(2)), whole)
        told = self.refused(615, *self.train('groups', 5, '--resume', '--ways=2',
                                             '--group=*norm*:lr=2x'))
        self.assertRegex(told, r"trained with .*group '\*norm\*:lr=3x,decay=0.2;\*proj\*:beta1"
                               r"=0.8'.*this run has .*group '\*norm\*:lr=2x'[^\n]*Fix: --group ")
        self.assertIn('group', self.refused(615, *self.train('groups', 5, '--resume', '--ways=2')))
        # in another order they are the same
        self.good(*self.train('groups', 5, '--resume', '--ways=2', words[1], words[0]))

    def test_plan_and_table_tell_groups(self):
        words = ('--group=*norm*:lr=3x', '--eval-split=0.2')
        told = json.loads(self.good(*self.train('none', 1, *words, '--json', verb='plan')))
        self.assertEqual(told['groups'], [{'group': '*norm*:lr=3x', 'tensors': 7,
                                           'parameters': 7 * 64}])
        line = "group '*norm*:lr=3x': 7 tensors, 448 parameters"
        self.assertIn(line, self.good(*self.train('none', 1, *words, verb='plan')))
        self.assertIn(line, self.good(*self.train('told', 1, *words)))
        told = self.refused(402, *self.train('none', 1, '--group=*nrom*:lr=3x'))
        self.assertRegex(told, r'nearest is "[a-z0-9_.]*norm[a-z0-9_.]*"')

    def tensors(self, path):
        """Name -> bytes, of all files of a model."""
        found = {}
        for name in sorted(os.listdir(path)):
            if not name.endswith('.safetensors'):
                continue
            with open(os.path.join(path, name), 'rb') as file:
                raw = file.read()
            begin = 8 + int.from_bytes(raw[:8], 'little')
            for tensor, of in json.loads(raw[8:begin]).items():
                if tensor != '__metadata__':
                    found[tensor] = raw[begin + of['data_offsets'][0]:begin + of['data_offsets'][1]]
        return found

    def test_frozen_tensors_are_exported_as_they_came(self):
        """In memory, from drives, resumed, from the store without the run, from one cut anew."""
        was = self.tensors(MODEL)
        for only in ('model.layers.1.*', 'model.layers.0.*;model.embed*', 'lm_head.weight'):
            words = (f'--train-only={only}', '--precision=bf16')
            whole = self.run_of(f'{only}-dram', 4, '--place=states=dram,weights=dram', *words)
            is_ = self.tensors(self.path(f'{only}-dram.out'))
            globs = only.split(';')
            for name, raw in was.items():
                trains = any(fnmatch.fnmatchcase(name, glob) for glob in globs)
                self.assertEqual(is_[name] != raw, trains, name)
            self.run_of(only, 2, '--place=states=nvme,weights=nvme', *words)
            self.assertEqual(self.run_of(only, 4, '--resume', '--place=states=dram', *words),
                             whole)
            self.good('ckpt', 'verify', self.path(only))
            self.good('ckpt', 'reshard', self.path(only), '--world=1', '--out',
                      self.path(f'{only}-again'))
            for store in (only, f'{only}-again'):
                self.good('ckpt', 'verify', self.path(store))
                out = self.path(f'{store}.ckpt')
                self.good('ckpt', 'export', self.path(store), '--model', MODEL, '--export', out)
                self.assertEqual(self.tensors(out), is_)
            self.assertEqual(
                self.run_of(f'{only}-again', 6, '--resume', *words),
                self.run_of(f'{only}-six', 6, '--place=states=dram,weights=dram', *words))

    def test_ranks_have_the_bytes_of_one_with_frozen_tensors(self):
        words = ('--train-only=model.layers.1.*', '--train-only=model.norm.weight',
                 '--place=states=nvme', '--precision=bf16')
        whole = self.run_of('whole', 4, '--ways=2', *words)
        for stage in range(4):
            with self.subTest(stage=stage):
                of = words if stage == 3 else words[:2] + words[3:]
                self.run_of(f'part{stage}', 2, f'--zero-stage={stage}', *of,
                            before=mpi.launcher(2))
                self.assertEqual(self.run_of(f'part{stage}', 4, f'--zero-stage={stage}',
                                             '--resume', *of, before=mpi.launcher(2)), whole)
        words = (*words[:2], '--clip=0')  # rows at home come together again, but frozen ones
        unclipped = self.run_of('unclipped', 4, '--ways=2', *words)
        for stage in (1, 2):
            self.assertEqual(self.run_of(f'again{stage}', 4, f'--zero-stage={stage}', *words,
                                         before=mpi.launcher(2)), unclipped)

    def test_ranks_that_come_and_go_have_frozen_tensors(self):
        words = ('--train-only=model.layers.1.*', '--place=states=nvme', '--precision=bf16')
        whole = self.run_of('whole', 4, '--ways=2', *words)
        self.run_of('moved', 2, *words, before=mpi.launcher(2))
        self.assertEqual(self.run_of('moved', 4, '--ways=2', '--resume', *words), whole)
        self.run_of('part', 4, *words, before=mpi.launcher(2))
        self.good('ckpt', 'reshard', self.path('part'), '--world=3', '--out', self.path('three'))
        self.good('ckpt', 'reshard', self.path('three'), '--world=1', '--out', self.path('again'))
        self.good('ckpt', 'verify', self.path('three'))
        self.assertEqual(self.run_of('again', 6, '--ways=2', '--resume', *words),
                         self.run_of('six', 6, '--ways=2', *words))

    def test_frozen_tensors_are_told_resumed_and_refused(self):
        words = ('--freeze=model.layers.0.*', '--freeze=model.embed_tokens.weight')
        told = json.loads(self.good(*self.train('none', 1, *words, '--json', verb='plan')))
        frozen = told['frozen']
        self.assertEqual((frozen['units'], frozen['units_without_backward']), (2, 2))
        self.assertEqual(frozen['tensors'], 10)
        line = 'frozen: 10 tensors, '
        self.assertIn(line, self.good(*self.train('none', 1, *words, verb='plan')))
        self.assertIn(line, self.good(*self.train('told', 1, '--durability=step', *words)))
        plain = json.loads(self.good(*self.train('none', 1, '--json', verb='plan')))
        self.assertNotIn('frozen', plain)
        for kind in ('states', 'grads'):
            self.assertLess(sum(told['memory'][kind].values()),
                            sum(plain['memory'][kind].values()), kind)
        was = self.refused(615, *self.train('told', 2, '--resume'))
        self.assertRegex(was, r"trained with freeze 'model.embed_tokens.weight;model.layers.0.\*', "
                              r"this run has less")
        was = self.refused(615, *self.train('told', 2, '--resume', '--train-only=*layers.1.*'))
        self.assertRegex(was, r"freeze '.*', this run has train-only '\*layers.1.\*'")
        self.good(*self.train('told', 2, '--resume', words[1], words[0]))
        for word, why in (('--freeze=*layer.0.*', r'nearest is "model.layers.0.'),
                          ('--train-only=*self_attn*', 'is frozen and "'),
                          ('--freeze=*', 'all tensors are frozen')):
            self.assertRegex(self.refused(402, *self.train('none', 1, word)), why)
        self.assertIn('fp16', self.refused(402, *self.train('none', 1, '--precision=fp16', *words)))

    def test_frozen_tensors_that_bf16_rounds_are_told_when_a_run_begins(self):
        model = os.path.join(ROOT, 'tests', 'golden', 'tied-gqa')  # in F32
        words = ('train', '--device=host', '--model', model, '--data',
                 os.path.join(model, 'tokens.bin'), '--seq-len=24', '--batch-tokens=24',
                 '--durability=step', '--freeze=model.layers.0.*')
        for store, more, count in (('wide', ('--precision=bf16', '--steps=1'), 1),
                                   ('wide', ('--precision=bf16', '--steps=2', '--resume'), 0),
                                   ('exact', ('--precision=fp32', '--steps=1'), 0)):
            done = self.call(*words, *more, '--store', self.path(store))
            self.assertEqual(done.returncode, 0, done.stderr)
            told = done.stderr.count('warning[W415] 9 frozen tensors of ')
            self.assertEqual(told, count, done.stderr)

    def test_moments_of_8_bits_are_resumed_cut_anew_and_of_any_ranks(self):
        words = (*EIGHT, '--place=states=nvme')
        whole = self.run_of('one', 4, '--ways=2', *words)
        two = self.run_of('two', 2, *words, before=mpi.launcher(2))
        self.assertNotEqual(two, whole)
        self.good('ckpt', 'reshard', self.path('two'), '--world=1', '--out', self.path('again'))
        self.good('ckpt', 'verify', self.path('again'))
        self.assertEqual(self.run_of('again', 4, '--ways=2', '--resume', *words), whole)
        told = self.refused(615, *self.train('again', 5, '--ways=2', '--resume',
                                             '--precision=bf16', '--state=bf16'))
        self.assertRegex(told, 'trained with state 8bit.* this run has state bf16')

    def test_moments_of_8_bits_have_their_bytes_in_the_plan(self):
        told = json.loads(self.good(*self.train('none', 1, *EIGHT, '--eval-split=0.2',
                                                '--keep-best', '--json', verb='plan')))
        self.assertEqual(told['keep_best_bytes'], int(told['parameters'] * (2 + 4 + 8 / 256)))

    def test_moments_of_8_bits_are_of_adamw_in_bf16(self):
        told = self.refused(402, *self.train('none', 1, *EIGHT, '--optimizer=lion'))
        self.assertIn('--state 8bit is not for --optimizer lion, whose moments are fp32 or bf16. '
                      'Fix: leave one', told)
        told = self.refused(402, *self.train('none', 1, *EIGHT, '--optimizer=adagrad'))
        self.assertIn('--optimizer adagrad, whose moments are fp32. Fix', told)
        told = self.refused(402, *self.train('none', 1, *EIGHT, '--optimizer=sgd'))
        self.assertIn('--state 8bit is not for --optimizer sgd, whose moments are fp32 or bf16. '
                      'Fix: leave one', told)
        for precision in ('fp16', 'fp32'):
            told = self.refused(402, *self.train('none', 1, f'--precision={precision}',
                                                 '--state=8bit'))
            self.assertIn(f'--state 8bit goes with --precision bf16, and --precision {precision}',
                          told)

    def test_numbers_that_it_has_not_are_refused(self):
        for name, (_, option) in OPTIMIZERS.items():
            with self.subTest(name):
                told = self.refused(402, *self.train('none', 1, f'--optimizer={name}', option))
                self.assertIn(f'{option.split("=")[0]} is of other optimizers: --optimizer {name} '
                              'has none. Fix: leave it out', told)
        told = self.refused(402, *self.train('none', 1, '--optimizer=adagrad', '--precision=bf16',
                                             '--state=bf16'))
        self.assertIn('--state bf16 is not for --optimizer adagrad', told)
        told = self.refused(402, *self.train('none', 1, '--momentum=0.5'))
        self.assertIn('--momentum is of other optimizers', told)
        told = self.refused(402, *self.train('none', 1, '--optimizer=adam'))
        self.assertIn('want one of adamw, sgd, lion, adagrad', told)


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
