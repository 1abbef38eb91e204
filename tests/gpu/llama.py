# SPDX-License-Identifier: Apache-2.0
"""Llama shapes to train: their config.json, weights and tokens, and the FLOPs that are counted."""
import array
import json
import os
import random
import shutil
import struct
import time

KEYS = ('hidden_size', 'intermediate_size', 'num_hidden_layers', 'num_attention_heads',
        'num_key_value_heads', 'head_dim', 'vocab_size', 'tie_word_embeddings')
SHAPES = {  # those of engine/plan/layout/shapes.c in lower case, and some to try scripts with
    'modest': (1024, 4096, 12, 16, 4, 64, 32000, True),
    '1b': (2048, 8192, 16, 32, 8, 64, 128256, True),
    '3b': (3072, 8192, 28, 24, 8, 128, 128256, True),
    '7b': (4096, 11008, 32, 32, 32, 128, 32000, False),
    '8b': (4096, 14336, 32, 32, 8, 128, 128256, False),
    '13b': (5120, 13824, 40, 40, 40, 128, 32000, False),
    '33b': (6656, 17920, 60, 52, 52, 128, 32000, False),
    '65b': (8192, 22016, 80, 64, 64, 128, 32000, False),
    '70b': (8192, 28672, 80, 64, 8, 128, 128256, False),
    '405b': (16384, 53248, 126, 128, 8, 128, 128256, False),
    'tiny': (32, 48, 2, 2, 1, 16, 256, True),
    'tall': (32, 48, 1, 2, 1, 16, 24000, True),
    'small': (64, 96, 4, 2, 2, 32, 512, False),
}
BLOCK_BYTES = 1 << 24


def config_of(shape, positions):
    return {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu',
            'max_position_embeddings': positions, 'rms_norm_eps': 1e-5, 'rope_theta': 500000.0,
            'torch_dtype': 'bfloat16', **dict(zip(KEYS, SHAPES[shape]))}


def tensors(config):
    """(name, dims) of every stored tensor; where it is tied, the embedding is also the head."""
    hidden, inner = config['hidden_size'], config['intermediate_size']
    queries = config['num_attention_heads'] * config['head_dim']
    keys = config['num_key_value_heads'] * config['head_dim']
    yield 'model.embed_tokens.weight', (config['vocab_size'], hidden)
    for layer in range(config['num_hidden_layers']):
        prefix = f'model.layers.{layer}.'
        yield prefix + 'input_layernorm.weight', (hidden,)
        yield prefix + 'self_attn.q_proj.weight', (queries, hidden)
        yield prefix + 'self_attn.k_proj.weight', (keys, hidden)
        yield prefix + 'self_attn.v_proj.weight', (keys, hidden)
        yield prefix + 'self_attn.o_proj.weight', (hidden, queries)
        yield prefix + 'post_attention_layernorm.weight', (hidden,)
        yield prefix + 'mlp.gate_proj.weight', (inner, hidden)
        yield prefix + 'mlp.up_proj.weight', (inner, hidden)
        yield prefix + 'mlp.down_proj.weight', (hidden, inner)
    yield 'model.norm.weight', (hidden,)
    if not config['tie_word_embeddings']:
        yield 'lm_head.weight', (config['vocab_size'], hidden)


def count(dims):
    total = 1
    for dim in dims:
        total *= dim
    return total


def parameters(config):
    return sum(count(dims) for _, dims in tensors(config))


def step_flops_per_token(config, seq):
    """6 FLOPs per parameter that takes part in a product (the embedding as the head, where it is
    tied), and of attention what the causal mask leaves; what is computed again for the backward is
    not counted."""
    attention = (6 * config['num_hidden_layers'] * config['num_attention_heads']
                 * config['head_dim'] * (seq + 1))
    looked_up = 0 if config['tie_word_embeddings'] else config['vocab_size'] * config['hidden_size']
    return 6 * (parameters(config) - looked_up) + attention


def random_block():
    """bf16 numbers around 0.02, as a fresh model has them: sign, exponent 119 to 121, mantissa."""
    source = random.Random(0)
    words = array.array('H', (0,)) * (BLOCK_BYTES // 2)
    small = [source.getrandbits(1) << 15 | source.randint(119, 121) << 7 | source.getrandbits(7)
             for _ in range(65521)]  # a prime: no row of a matrix is like the next
    for start in range(0, len(words), len(small)):
        part = small[:len(words) - start]
        words[start:start + len(part)] = array.array('H', part)
    return words.tobytes()


def write_weights(path, config, deadline):
    """A safetensors file that is quick to write and to read: speed does not depend on values.
    TimeoutError where it is not written at the deadline (of time.monotonic)."""
    header, at = {}, 0
    for name, dims in tensors(config):
        size = 2 * count(dims)
        header[name] = {'dtype': 'BF16', 'shape': dims, 'data_offsets': [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    block = random_block()
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text)
        for name, dims in tensors(config):
            if time.monotonic() > deadline:
                raise TimeoutError('the disk took too long to take the weights')
            size = 2 * count(dims)
            if name.endswith('norm.weight'):
                file.write(b'\x80\x3f' * (size // 2))  # 1
                continue
            for start in range(0, size, len(block)):
                file.write(block[:size - start] if size - start < len(block) else block)


def write_config(folder, config):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, 'config.json'), 'w', encoding='ascii') as file:
        json.dump(config, file)


def write_model(folder, shape, positions, deadline, spare_bytes=4 << 30):
    """Writes a model to train. How its weights came about: 'file', or 'random' (--init random),
    where the disk has no room for them beside what is to be spared: to make billions of normal
    numbers takes minutes."""
    config = config_of(shape, positions)
    write_config(folder, config)
    if shutil.disk_usage(folder).free < 2 * parameters(config) + spare_bytes:
        return config, 'random'
    write_weights(os.path.join(folder, 'model.safetensors'), config, deadline)
    return config, 'file'


def write_tokens(path, vocab, amount):
    """Raw u32 tokens, for --token-dtype u32."""
    source = random.Random(1)
    with open(path, 'wb') as file:
        array.array('I', (source.randrange(vocab) for _ in range(amount))).tofile(file)
