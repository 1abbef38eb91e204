#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/data.md does what it says: each of its snippets writes a file, and its command trains on
that; the codes of its table are those of such refusals.

    data_page.py PATH_OF_HOISTWAY SOURCE_ROOT
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ROOT = os.path.abspath(sys.argv[1]), sys.argv[2]
del sys.argv[1:3]
IDS = 100000
CONFIG = {
    'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu',
    'hidden_size': 8, 'intermediate_size': 8, 'num_hidden_layers': 1, 'num_attention_heads': 2,
    'num_key_value_heads': 2, 'vocab_size': IDS, 'max_position_embeddings': 4096,
    'rms_norm_eps': 1e-5, 'rope_theta': 10000.0, 'tie_word_embeddings': True,
}  # fmt: skip
with open(os.path.join(ROOT, 'docs', 'data.md'), encoding='utf-8') as page:
    PAGE = page.read()


class DataPage(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        os.mkdir(self.path('DIR'))
        with open(self.path('DIR', 'config.json'), 'w', encoding='ascii') as file:
            json.dump(CONFIG, file)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def run_here(self, *command):
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False,
                              cwd=self.folder)

    def train(self, command):
        words = shlex.split(command)
        self.assertEqual(words[:2], ['hoistway', 'train'])
        words[words.index('--steps') + 1] = '1'
        return self.run_here(PROGRAM, *words[1:], '--init', 'random', '--device', 'host',
                             '--threads', '1', '--seq-len', '32', '--batch-tokens', '64',
                             '--durability', 'none')

    def test_each_snippet_writes_what_its_command_trains_on(self):
        examples = re.findall(r'^```python\n(.*?)^```\n\n```\n(hoistway train .*?)\n```$', PAGE,
                              re.M | re.S)
        self.assertEqual(len(examples), PAGE.count('```python'))
        self.assertGreaterEqual(len(examples), 5)
        for snippet, command in examples:
            with self.subTest(command=command):
                wrote = self.run_here(sys.executable, '-c', snippet)
                self.assertEqual((wrote.returncode, wrote.stderr), (0, ''))
                done = self.train(command)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn('trained 1 step, ', done.stdout)
                self.assertNotIn('warning[', done.stderr)
                for name in command.split('--data ')[1].split()[0].split(','):
                    told = self.run_here(PROGRAM, 'inspect', name).stdout
                    if 'tokens.bin' in name:
                        self.assertRegex(told, r'5000 tokens, u(16|32), with a header of llm\.c')
                    os.remove(self.path(name))

    def test_every_link_and_option_is_there(self):
        for target in re.findall(r'\]\(([\w-]+\.md)\)', PAGE):
            self.assertTrue(os.path.exists(os.path.join(ROOT, 'docs', target)), target)
        known = self.run_here(PROGRAM, 'train', '--help').stdout
        for option in set(re.findall(r'--[a-z][a-z-]+', PAGE)):
            self.assertIn(f'{option} ', known)

    def test_what_is_refused_has_the_codes_of_the_table(self):
        """A row of each kind; all of them are in tests/hostile and tests/tools/data."""
        rows = re.findall(r'^\| (.*) \| E(\d+) \|$', PAGE, re.M)
        self.assertGreaterEqual(len(rows), 12)
        codes = {what: code for what, code in rows}
        plain = b''.join((i % 500).to_bytes(2, 'little') for i in range(500))
        wide = b''.join((i % 500).to_bytes(4, 'little') for i in range(500))
        head = (20240520).to_bytes(4, 'little') + (1).to_bytes(4, 'little')
        tried = (
            ('missing', None, '--data none.bin'),
            ('without a token', b'', '--data a.bin'),
            ('an id that', wide + b'\xa0\x86\1\0', '--data a.bin --token-dtype u32'),
            ('a `.txt`', b'text' * 100, '--data a.txt'),
            ('a name whose end is not known', plain, '--data a.tokens'),
            ('JSONL that is', b'{"input_ids": [1, 2}', '--data a.jsonl'),
            ('without a target', b'{"input_ids": [1]}', '--data a.jsonl'),
            ('no token file', b'\2' + bytes(7) + b'{}', '--data a.safetensors'),
            ("tokens without llm.c's header", plain, '--data a.bin'),
            ('another version', head.replace(b'\1', b'\2').ljust(1024, b'\0'), '--data a.bin'),
            ('swapped', head[3::-1].ljust(1024, b'\0'), '--data a.bin'),
            ('contradicts', (head + (1).to_bytes(4, 'little')).ljust(1024, b'\0') + b'\0\0',
             '--data a.bin --token-dtype u32'),
            ('BIN.TOK', b'BIN.TOK\n' + bytes(1100), '--data a.bin --token-dtype u16'),
            ('another width', wide, '--data a.bin --token-dtype u16'),
            ('`--token-dtype` with', plain, '--data a.txt --data-format bytes --token-dtype u16'),
        )
        for words, content, options in tried:
            with self.subTest(words=words):
                code = [code for what, code in codes.items() if words in what]
                self.assertEqual(len(code), 1)
                if content is not None:
                    with open(self.path(shlex.split(options)[1]), 'wb') as file:
                        file.write(content)
                done = self.train(f'hoistway train --model DIR --store DIR2 --steps 1 {options}')
                self.assertRegex(done.stderr, rf'^error\[E{code[0]}\] ')
                self.assertFalse(os.path.exists(self.path('DIR2')))


if __name__ == '__main__':
    unittest.main()
