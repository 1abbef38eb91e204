#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What resources.py calls wrong, and how compile.py reads the compiler, on made-up cases."""
import os
import re
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '../../kernels/cuda'))
import compile as compiling  # noqa: E402
import resources  # noqa: E402

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3k_af' for 'sm_80'
ptxas info    : Function properties for _Z3k_af
    16 bytes stack frame, 20 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 384 bytes smem
ptxas info    : Compile time = 12.0 ms
k.cu(3): warning: unused
ptxas info    : Compiling entry function '_Z3k_af' for 'sm_120'
ptxas info    : Function properties for _Z3k_af
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
"""
PTX = """
.visible .entry _Z3k_af(
\t.param .f32 _Z3k_af_param_0
)
.maxntid 32, 8
.minnctapersm 2
{
\tmov.u32 %r1, hst_dyn_shared;
}
.entry _Z3k_bv()
{
\tret;
}
"""
USE = resources.Use(kernel='k_attention_dq<bf16, 128, 4>', card='9.0', threads=128, registers=255,
                    stack=0, static=0, dynamic=98304, promised=2, blocks=2)
ROW = {'name': 'k_a<f16>', 'threads': 128, 'dynamic': True, 'architecture': 'sm_80'}


def faults_of(**changes):
    return list(resources.faults_of_use(USE._replace(**changes)))


class Compiler(unittest.TestCase):
    def test_what_ptxas_says_becomes_rows_and_the_rest_is_passed_on(self):
        rows, rest = compiling.read_ptxas(PTXAS.splitlines(keepends=True))
        self.assertEqual(rows, [
            {'kernel': '_Z3k_af', 'architecture': 'sm_80', 'stack_bytes': 16,
             'spill_store_bytes': 20, 'spill_load_bytes': 40, 'registers': 255,
             'shared_bytes': 384},
            {'kernel': '_Z3k_af', 'architecture': 'sm_120', 'stack_bytes': 0,
             'spill_store_bytes': 0, 'spill_load_bytes': 0, 'registers': 32, 'shared_bytes': 0}])
        self.assertEqual(rest, ['k.cu(3): warning: unused\n'])

    def test_a_kernel_of_which_ptxas_does_not_tell_all_is_an_error(self):
        with self.assertRaisesRegex(ValueError, '_Z3k_af'):
            compiling.read_ptxas(PTXAS.splitlines(keepends=True)[:4])

    def test_bounds_and_dynamic_memory_are_read_from_ptx(self):
        self.assertEqual(compiling.read_ptx(PTX), {
            '_Z3k_af': {'threads': 256, 'blocks': 2, 'dynamic': True},
            '_Z3k_bv': {'threads': 0, 'blocks': 0, 'dynamic': False}})


class Faults(unittest.TestCase):
    def test_a_kernel_within_its_promises_has_none(self):
        self.assertEqual(faults_of(), [])

    def test_a_spill_is_one(self):
        self.assertIn('spills: 8 bytes of stack, 0 allowed', faults_of(stack=8)[0])

    def test_a_named_exception_may_spill_so_much_and_no_more(self):
        self.assertEqual(faults_of(kernel='k_attention_any_dkv<f32>', stack=48), [])
        self.assertIn('48 allowed', faults_of(kernel='k_attention_any_dkv<f32>', stack=56)[0])

    def test_registers_beyond_a_multiprocessor_are_one(self):
        self.assertEqual(faults_of(threads=256), [])
        self.assertIn('exceed 65,536', faults_of(threads=288)[0])

    def test_a_block_that_does_not_fit_a_card_is_one(self):
        self.assertIn('cannot be launched', faults_of(blocks=0)[0])

    def test_of_all_kernels_these_alone_may_spill(self):
        with open(os.path.join(HERE, '../..', resources.PAGE), encoding='utf-8') as file:
            kernels = re.findall(r'(?m)^\| `(k_[^`]+)`', file.read())
        self.assertGreater(len(kernels), 100)
        self.assertEqual([kernel for kernel in kernels if not faults_of(kernel=kernel, stack=8)], [
            'k_attention_any<bf16, true>', 'k_attention_any<f16, true>',
            *(f'k_attention_any_{part}<{dtype}, {narrow}>' for part in ('dkv', 'dq')
              for dtype in ('bf16', 'f16', 'f32') for narrow in ('false', 'true')),
            'k_embedding_backward<bf16, 1>'])

    def test_fewer_blocks_than_promised_are_one(self):
        self.assertIn('holds 1 blocks, __launch_bounds__ promises 2', faults_of(blocks=1)[0])

    def test_a_launch_that_was_not_compiled_for_is_one(self):
        def faults(launched, **row):
            return list(resources.faults_of_launches([{**ROW, **row}], {'8.0': launched}))
        self.assertEqual(faults({'k_a<f16>': {(128, 4096)}}), [])
        self.assertIn('160 threads, compiled for 128', faults({'k_a<f16>': {(160, 4096)}})[0])
        self.assertIn('uses no dynamic', faults({'k_a<f16>': {(128, 4096)}}, dynamic=False)[0])
        self.assertIn('not among the compiled',
                      faults({'k_a<f16>': {(128, 0)}, 'k_b': {(1, 0)}})[0])
        self.assertIn('launches it', faults({})[0])

    def test_results_that_a_card_changes_are_one(self):
        same = {'8.0': {'f16,64': '1'}, '9.0': {'f16,64': '1'}}
        self.assertEqual(list(resources.faults_of_bytes(same)), [])
        other = {**same, '9.0': {'f16,64': '2'}}
        self.assertEqual(list(resources.faults_of_bytes(other)),
                         ['f16,64 has other bytes on 9.0 than on 8.0'])

    def test_names_are_the_same_from_either_compiler(self):
        for name in ('void k_map<add_map<__nv_bfloat16, 8> >(operands<2>, unsigned long)',
                     'k_map<add_map<__nv_bfloat16, 8>>(operands<2>, unsigned long)'):
            self.assertEqual(resources.plain_name(name), 'k_map<add_map<bf16, 8>>')


if __name__ == '__main__':
    unittest.main()
