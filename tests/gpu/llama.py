# SPDX-License-Identifier: Apache-2.0
"""Llama shapes to train: their config.json, weights and tokens, and the FLOPs that are counted."""
import array
import json
import os
import random
import shutil
import struct
import time

SHAPES = {  # as in the configurations of Llama 3.2
    '1b': {'hidden_size': 2048, 'intermediate_size': 8192, 'num_hidden_layers': 16,
           'num_attention_heads': 32, 'num_key_value_heads': 8, 'head_dim': 64,
           'vocab_size': 128256},
    '3b': {'hidden_size': 3072, 'intermediate_size': 8192, 'num_hidden_layers': 28,
           'num_attention_heads': 24, 'num_key_value_heads': 8, 'head_dim': 128,
           'vocab_size': 128256},
    'tiny': {'hidden_size': 32, 'intermediate_size': 48, 'num_hidden_layers': 2,
             'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 16,
             'vocab_size': 256},
}
BLOCK_BYTES = 1 << 24


def config_of(shape, positions):
    return {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu',
            'max_position_embeddings': positions, 'rms_norm_eps': 1e-5, 'rope_theta': 500000.0,
            'tie_word_embeddings': True, 'torch_dtype': 'bfloat16', **SHAPES[shape]}


def tensors(config):
    """(name, dims) of every stored tensor; the embedding is also the head."""
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


def count(dims):
    total = 1
    for dim in dims:
        total *= dim
    return total


def parameters(config):
    return sum(count(dims) for _, dims in tensors(config))


def step_flops_per_token(config, seq):
    """6 FLOPs per parameter (each takes part in one product: the embedding as the head), and of
    attention what the causal mask leaves; what is computed again for the backward is not counted.
    """
    attention = (6 * config['num_hidden_layers'] * config['num_attention_heads']
                 * config['head_dim'] * (seq + 1))
    return 6 * parameters(config) + attention


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


def write_model(folder, shape, positions, deadline):
    """Writes a model to train. How its weights came about: 'file', or 'random' (--init random),
    where the disk has no room for them: to make billions of normal numbers takes minutes."""
    config = config_of(shape, positions)
    os.makedirs(folder)
    with open(os.path.join(folder, 'config.json'), 'w', encoding='ascii') as file:
        json.dump(config, file)
    if shutil.disk_usage(folder).free < 2 * parameters(config) + (4 << 30):
        return config, 'random'
    write_weights(os.path.join(folder, 'model.safetensors'), config, deadline)
    return config, 'file'


def write_tokens(path, vocab, amount):
    """Raw u32 tokens, for --token-dtype u32."""
    source = random.Random(1)
    with open(path, 'wb') as file:
        array.array('I', (source.randrange(vocab) for _ in range(amount))).tofile(file)
