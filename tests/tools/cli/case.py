# SPDX-License-Identifier: Apache-2.0
"""What tests of the program share: a small model, and how a refusal is told."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from short import by_turns  # noqa: E402, F401: for others

CONFIG = {
    'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu',
    'hidden_size': 32, 'intermediate_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': 2,
    'num_key_value_heads': 1, 'max_position_embeddings': 64, 'rms_norm_eps': 1e-5,
    'rope_theta': 10000.0, 'tie_word_embeddings': False, 'torch_dtype': 'float32',
    'vocab_size': 256,
}


class Case(unittest.TestCase):
    def assert_refused(self, done, code, status, part=''):
        """One line with the code on stderr, nothing on stdout."""
        self.assertEqual(done.stdout, '')
        self.assertRegex(done.stderr, r'\Aerror\[E%d\] [^\n]*\n\Z' % code)
        self.assertIn(part, done.stderr)
        self.assertEqual(done.returncode, status, done.stderr)
