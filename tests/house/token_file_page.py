#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/token-file.md does what it says: its snippet writes a file that its commands take, and its
table has the tensors that the program knows.

    token_file_page.py PATH_OF_HOISTWAY SOURCE_ROOT

Needs numpy; exits 77 where it is missing.
"""
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

PROGRAM, ROOT = os.path.abspath(sys.argv[1]), sys.argv[2]
CONFIG = {
    'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu',
    'hidden_size': 8, 'intermediate_size': 8, 'num_hidden_layers': 1, 'num_attention_heads': 2,
    'num_key_value_heads': 2, 'vocab_size': 1000, 'max_position_embeddings': 4096,
    'rms_norm_eps': 1e-5, 'rope_theta': 10000.0, 'tie_word_embeddings': True,
}  # fmt: skip
TRAIN = ('--init', 'random', '--device', 'host', '--threads', '1', '--seq-len', '32',
         '--batch-tokens', '64', '--durability', 'none')


def run(folder, *command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False,
                          cwd=folder)
    assert done.returncode == 0, (command, done)
    return done.stdout


def check_commands(page, folder):
    commands = re.findall(r'^```\n(hoistway .*?)\n```$', page, re.M)
    assert len(commands) == 2, commands
    for command in commands:
        words = shlex.split(command)[1:]
        if words[0] == 'train':
            words[words.index('--steps') + 1] = '1'
            assert 'trained 1 step, ' in run(folder, PROGRAM, *words, *TRAIN)
        else:
            told = run(folder, PROGRAM, *words)
            assert '  50 documents, ' in told and '  sources: made up\n' in told, told
            assert 'packed into rows of 4096: ' in told, told


def check_tensors(page, folder):
    """The names of the table are those that a refusal lists, in whatever order."""
    rows = re.findall(r'^\| (`\w+`(?:, `\w+`)?) \| [UI]', page, re.M)
    named = {name for row in rows for name in re.findall(r'\w+', row)}
    header = json.dumps({'__metadata__': {'format': 'hoistway.tokens.1'},
                         'x': {'dtype': 'U8', 'shape': [0], 'data_offsets': [0, 0]}}).encode()
    with open(os.path.join(folder, 'x.safetensors'), 'wb') as file:
        file.write(len(header).to_bytes(8, 'little') + header)
    told = subprocess.run([PROGRAM, 'inspect', 'x.safetensors'], cwd=folder, capture_output=True,
                          text=True, check=False).stderr
    known = re.search(r'known: ([\w ]+)\.', told)
    assert known and set(known.group(1).split()) == named, (told, named)


def main():
    if not importlib.util.find_spec('numpy'):
        print('skipped: the page writes its file with numpy, which is not installed')
        sys.exit(77)
    with open(os.path.join(ROOT, 'docs', 'token-file.md'), encoding='utf-8') as file:
        page = file.read()
    snippets = re.findall(r'^```python\n(.*?)^```$', page, re.M | re.S)
    assert len(snippets) == 1
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, 'DIR'))
        with open(os.path.join(folder, 'DIR', 'config.json'), 'w', encoding='ascii') as file:
            json.dump(CONFIG, file)
        run(folder, sys.executable, '-c', snippets[0])
        check_commands(page, folder)
        check_tensors(page, folder)
    print('the page does what it says')


if __name__ == '__main__':
    main()
