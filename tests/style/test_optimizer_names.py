#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What optimizer_names.py has to find, planted."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from optimizer_names import names  # noqa: E402


def found(text, path='engine/exec/load.c'):
    return [name for _, name in names(path, text)]


class Names(unittest.TestCase):
    def test_states_are_found_by_field_and_by_place(self):
        self.assertEqual(found('memset(job->arrays.m, 0, n);'), ['.m'])
        self.assertEqual(found('x.v = at->v;\n{a.m_at, b.v_at}'), ['.v', '->v', 'm_at', 'v_at'])

    def test_numbers_of_the_user_are_found(self):
        self.assertEqual(found('c->beta1 = 0.9; /* betas */'), ['beta1', 'betas'])
        self.assertEqual(found('c->eps + c->weight_decay; "weight-decay %s"'),
                         ['eps', 'weight_decay', '"weight-decay'])

    def test_an_optimizer_and_its_states_are_found_by_name(self):
        self.assertEqual(found('c->optimizer == HST_OPTIMIZER_ADAMW'), ['HST_OPTIMIZER_ADAMW'])
        self.assertEqual(found('&optimizer_adamw; optimizer_lion'),
                         ['optimizer_adamw', 'optimizer_lion'])
        self.assertEqual(found('strcmp(s->name, "remainder"); "master" "m" "v" "adamw"'),
                         ['"remainder"', '"master"', '"m"', '"v"', '"adamw"'])

    def test_kernels_and_their_types_are_found(self):
        for name in ('hst_adam_coef', 'hst_adam_coef_init', 'hst_adam_hyper', 'hst_optimize',
                     'hst_plain_coef_init',
                     'hst_op_optimize', 'hst_update', 'hst_update_bytes', 'hst_update_arrays_at',
                     'hst_update_find', 'hst_update_run_into', 'hst_update_kind'):
            self.assertEqual(found(f'a = {name}(b);'), [name])

    def test_all_rooms_of_the_engine_are_read_and_no_other(self):
        for path in ('engine/ckpt/recut.c', 'engine/store/store.h', 'engine/plan/layout/layout.c',
                     'engine/include/hoistway/hoistway.h'):
            self.assertEqual(found('a.v_at', path), ['v_at'])
        for path in ('engine/optimizer/adamw.c', 'cpu_adam/update.c', 'tools/bench/adam.c'):
            self.assertEqual(found('a.v_at beta1 hst_optimize', path), [])

    def test_the_contract_has_numbers_and_no_more(self):
        for path in ('engine/include/hoistway/config.h', 'engine/base/options.c'):
            self.assertEqual(found('double beta1, eps, weight_decay; a.v', path), ['.v'])
            self.assertEqual(found('HST_OPTIMIZER_ADAMW', path), [])

    def test_other_words_are_free(self):
        self.assertEqual(found('struct versions *v = &engine->versions; v->every = 1;\n'
                               'enum hst_update_time t; hst_cpu_adam_ops(0); a.mv; x->most;\n'
                               '/* by largest remainder */ steps; rms_eps; "a master"'), [])
        self.assertEqual(found('struct hst_gemm *p; p->m * p->n'), [])
        self.assertEqual(found('struct hst_gemm *p; p->m; a.v'), ['.v'])

    def test_the_program_ends_with_1_and_says_where(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, 'engine/exec'))
            for text, code in (('int a;\n', 0), ('int a;\nint b = c.v;\n', 1)):
                with open(os.path.join(root, 'engine/exec/load.c'), 'w', encoding='ascii') as file:
                    file.write(text)
                ran = subprocess.run([sys.executable, os.path.join(HERE, 'optimizer_names.py'),
                                      root], capture_output=True, text=True, check=False)
                self.assertEqual(ran.returncode, code, ran.stderr)
            self.assertRegex(ran.stdout, r'^engine/exec/load\.c:2: \.v is of engine/optimizer/')


if __name__ == '__main__':
    unittest.main()
