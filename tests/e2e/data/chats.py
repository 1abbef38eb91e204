#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two commands make a fine-tuned model of a model directory and a file of chats: `prep`, `train`.
Is what they evaluated what Hugging Face transformers computes from what they exported?

    chats.py PATH_OF_HOISTWAY SOURCE_ROOT

Model and tokenizer are made here. Needs the packages of ./run prep-install; exits 77 where they
are missing. What is compared with transformers needs torch, too, and is skipped without it.
"""

import filecmp
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ROOT = sys.argv[1:3]
# This folder has a file of a package's name.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [os.path.join(ROOT, 'tests', 'python'),
            *(p for p in sys.path if os.path.abspath(p or '.') != HERE)]
import support  # noqa: E402

support.need('safetensors')

import numpy  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 64, 128, 2, 4, 2, 16
CHATS, SHARE, SEED, T = 160, 0.05, 0, 128
TOLERANCE = 2e-6  # relative, of a mean loss in fp32


def chats():
    """Sums of two numbers, asked once or twice; what is said is short, and can be learned."""
    for i in range(CHATS):
        messages = []
        for a, b in ((i % 23, i % 7), (i % 11, i % 13))[:1 + i % 2]:
            messages += [{'role': 'user', 'content': f'What is {a} and {b} in sum?'},
                         {'role': 'assistant', 'content': f'The sum of {a} and {b} is {a + b}.'}]
        yield {'messages': messages}


def write_model(folder):
    """A directory as it is downloaded: configuration, weights, tokenizer and template."""
    tok = support.model(folder)
    with open(os.path.join(folder, 'config.json'), 'w', encoding='ascii') as file:
        json.dump({'architectures': ['LlamaForCausalLM'], 'model_type': 'llama',
                   'hidden_act': 'silu', 'hidden_size': HIDDEN, 'intermediate_size': INNER,
                   'num_hidden_layers': LAYERS, 'num_attention_heads': HEADS,
                   'num_key_value_heads': KV_HEADS, 'head_dim': HEAD, 'vocab_size': len(tok),
                   'max_position_embeddings': 512, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0,
                   'tie_word_embeddings': False, 'torch_dtype': 'float32',
                   'eos_token_id': tok.eos_token_id}, file)
    chance = numpy.random.default_rng(5)
    shapes = {'model.embed_tokens.weight': (len(tok), HIDDEN),
              'lm_head.weight': (len(tok), HIDDEN), 'model.norm.weight': (HIDDEN,)}
    for i in range(LAYERS):
        shapes.update({f'model.layers.{i}.{name}.weight': shape for name, shape in (
            ('input_layernorm', (HIDDEN,)), ('post_attention_layernorm', (HIDDEN,)),
            ('self_attn.q_proj', (HEADS * HEAD, HIDDEN)),
            ('self_attn.k_proj', (KV_HEADS * HEAD, HIDDEN)),
            ('self_attn.v_proj', (KV_HEADS * HEAD, HIDDEN)),
            ('self_attn.o_proj', (HIDDEN, HEADS * HEAD)), ('mlp.gate_proj', (INNER, HIDDEN)),
            ('mlp.up_proj', (INNER, HIDDEN)), ('mlp.down_proj', (HIDDEN, INNER)))})
    save_file({name: (numpy.ones(shape) if len(shape) == 1 else 0.02 * chance.normal(size=shape))
               .astype('float32') for name, shape in shapes.items()},
              os.path.join(folder, 'model.safetensors'), {'format': 'pt'})


# ---- which documents are evaluated on: tools/data/split.h, written anew ----

WORD, GOLDEN = 2**64 - 1, 0x9e3779b97f4a7c15


def mix(x):
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & WORD
    x = (x ^ x >> 27) * 0x94d049bb133111eb & WORD
    return x ^ x >> 31


def is_evaluated(document):
    key = mix((mix((SEED + GOLDEN) & WORD) + WORD) & WORD)
    return (mix((key + GOLDEN * (document + 1)) & WORD) >> 11) / 2**53 < SHARE


class Chats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(dir='.')
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = scratch.name
        cls.model, cls.data, cls.out, cls.log = (
            os.path.join(cls.folder, name) for name in ('model', 'chat', 'out', 'log.jsonl'))
        write_model(cls.model)
        support.write_rows(cls.data + '.jsonl', chats())
        cls.run_it('prep', '--model', cls.model, '--data', cls.data + '.jsonl',
                   '--out', cls.data + '.safetensors')
        cls.run_it('train', '--model', cls.model, '--data', cls.data + '.safetensors',
                   '--eval-split', str(SHARE), '--epochs', '3', '--seq-len', str(T),
                   '--batch-tokens', str(4 * T), '--lr', '1e-3', '--schedule', 'cosine',
                   '--warmup', '3%', '--store', os.path.join(cls.folder, 'store'),
                   '--export', cls.out, '--log', cls.log, '--device', 'host')
        parts, _ = support.read_tokens(cls.data + '.safetensors')
        cls.documents = support.documents(parts)
        cls.evaluated = [one for i, one in enumerate(cls.documents) if is_evaluated(i)]

    @staticmethod
    def run_it(*words):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=240,
                              check=False, env={**os.environ, 'HOISTWAY_PYTHON': sys.executable})
        assert done.returncode == 0, f'{words}\n{done.stdout}{done.stderr}'

    def lines(self, kind):
        with open(self.log, encoding='ascii') as file:
            return [line for line in map(json.loads, file) if line['kind'] == kind]

    def test_each_chat_is_trained_on_or_evaluated_on(self):
        self.assertEqual(len(self.documents), CHATS)
        self.assertGreater(len(self.evaluated), 2)
        (run,) = self.lines('run')
        self.assertEqual(run['documents'], CHATS - len(self.evaluated))
        learned = sum(sum(mask[1:]) for _, mask in self.evaluated)
        self.assertEqual({line['targets'] for line in self.lines('eval')}, {learned})

    def test_it_is_evaluated_before_it_trains_and_after_each_pass_and_gets_better(self):
        (run,) = self.lines('run')
        told = self.lines('eval')
        a_pass = run['rows'] / 4  # rows of a step
        self.assertEqual([line['step'] for line in told],
                         [0, *(-int(-n * a_pass // 1) for n in (1, 2)), run['steps']])
        self.assertEqual(run['steps'], -int(-3 * a_pass // 1))
        losses = [line['loss'] for line in told]
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertLess(losses[-1], losses[0] - 1)

    def test_the_tokenizer_and_its_template_go_with_the_model(self):
        from transformers import AutoTokenizer
        for name in ('tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'):
            self.assertTrue(filecmp.cmp(os.path.join(self.model, name),
                                        os.path.join(self.out, name), shallow=False), name)
        tok = AutoTokenizer.from_pretrained(self.out)
        ids = [tok.apply_chat_template(chat['messages'], tokenize=True, return_dict=False)
               for chat in chats()]
        self.assertEqual(ids, [document for document, _ in self.documents])

    def loss_of_transformers(self, folder):
        import torch
        from transformers import AutoModelForCausalLM
        torch.set_num_threads(1)
        network, total, count = AutoModelForCausalLM.from_pretrained(
            folder, torch_dtype=torch.float32).eval(), 0.0, 0
        for ids, mask in self.evaluated:
            targets = torch.tensor([t if one else -100 for t, one in zip(ids, mask)][1:])
            with torch.no_grad():
                logits = network(torch.tensor([ids[:-1]])).logits[0]
            total += torch.nn.functional.cross_entropy(
                logits.double(), targets, reduction='sum', ignore_index=-100).item()
            count += int((targets >= 0).sum())
        return total / count

    def test_what_it_evaluated_is_what_transformers_computes_of_its_export(self):
        if support.missing(['torch']):
            self.skipTest('no torch here; pip install torch')
        told = self.lines('eval')
        for what, folder, line in (('as it came', self.model, told[0]),
                                   ('exported', self.out, told[-1])):
            theirs = self.loss_of_transformers(folder)
            apart = abs(line['loss'] / theirs - 1)
            print(f'{what}: hoistway {line["loss"]:.9f}, transformers {theirs:.9f}, '
                  f'{apart:.1e} relative, {TOLERANCE:.0e} allowed')
            self.assertLessEqual(apart, TOLERANCE)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
