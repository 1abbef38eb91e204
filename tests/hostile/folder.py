# SPDX-License-Identifier: Apache-2.0
"""An intact model and intact data in a folder of their own, to be spoiled."""
import json
import os
import struct

DTYPES = {'BOOL': 8, 'F4': 4, 'F6_E2M3': 6, 'F6_E3M2': 6, 'U8': 8, 'I8': 8, 'F8_E5M2': 8,
          'F8_E4M3': 8, 'F8_E8M0': 8, 'F8_E4M3FNUZ': 8, 'F8_E5M2FNUZ': 8, 'I16': 16, 'U16': 16,
          'F16': 16, 'BF16': 16, 'I32': 32, 'U32': 32, 'F32': 32, 'C64': 64, 'F64': 64, 'I64': 64,
          'U64': 64}
EMBEDDING = 'model.embed_tokens.weight'
CONFIG = {
    'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu',
    'hidden_size': 8, 'intermediate_size': 16, 'num_hidden_layers': 1, 'num_attention_heads': 2,
    'num_key_value_heads': 1, 'max_position_embeddings': 64, 'rms_norm_eps': 1e-5,
    'rope_theta': 10000.0, 'tie_word_embeddings': False, 'torch_dtype': 'float32',
    'vocab_size': 64,
}
SHAPES = {
    EMBEDDING: [64, 8],
    'lm_head.weight': [64, 8],
    'model.layers.0.input_layernorm.weight': [8],
    'model.layers.0.mlp.down_proj.weight': [8, 16],
    'model.layers.0.mlp.gate_proj.weight': [16, 8],
    'model.layers.0.mlp.up_proj.weight': [16, 8],
    'model.layers.0.post_attention_layernorm.weight': [8],
    'model.layers.0.self_attn.k_proj.weight': [4, 8],
    'model.layers.0.self_attn.o_proj.weight': [8, 8],
    'model.layers.0.self_attn.q_proj.weight': [8, 8],
    'model.layers.0.self_attn.v_proj.weight': [4, 8],
    'model.norm.weight': [8],
}


def entry(dtype, shape, begin, end):
    return {'dtype': dtype, 'shape': shape, 'data_offsets': [begin, end]}


def file_of(header, data):
    """A safetensors file."""
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack('<Q', len(text)) + text + data


def floats(shape):
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    values = [1.0] * count if len(shape) == 1 else [(7 * i % 11 - 5) / 64 for i in range(count)]
    return struct.pack(f'<{count}f', *values)


class Folder:
    """`root`: whether the program will run as root."""

    def __init__(self, path, root):
        self.folder, self.root = path, root
        self.config = dict(CONFIG)
        self.tensors = {name: ('F32', shape, floats(shape)) for name, shape in SHAPES.items()}
        os.makedirs(self.path('model'))
        self.save()
        head = struct.pack('<III', 20240520, 1, 40) + bytes(1024 - 12)
        self.put(head + b''.join(struct.pack('<H', i) for i in range(40)), 'data.bin')

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def put(self, content, *names):
        with open(self.path(*names), 'wb') as f:
            f.write(content if isinstance(content, bytes) else content.encode())

    def header(self, names=None):
        """The header as an object, and the data."""
        header, at, data = {}, 0, b''
        for name in names or self.tensors:
            dtype, shape, content = self.tensors[name]
            header[name] = entry(dtype, shape, at, at + len(content))
            at += len(content)
            data += content
        return header, data

    def put_weights(self, content, name='model.safetensors'):
        self.put(content, 'model', name)

    def save(self):
        self.put(json.dumps(self.config), 'model', 'config.json')
        header, data = self.header()
        self.put_weights(file_of(json.dumps(header), data))

    def shard(self):
        """Two files in place of one. The index that goes with them."""
        os.remove(self.path('model', 'model.safetensors'))
        names, weight_map, total = list(self.tensors), {}, 0
        for i, part in enumerate((names[:4], names[4:]), 1):
            header, data = self.header(part)
            name = f'model-{i:05}-of-00002.safetensors'
            self.put_weights(file_of(json.dumps(header), data), name)
            weight_map.update(dict.fromkeys(part, name))
            total += len(data)
        return {'metadata': {'total_size': total}, 'weight_map': weight_map}

    def resize_vocabulary(self, size):
        self.config['vocab_size'] = size
        for name in (EMBEDDING, 'lm_head.weight'):
            self.tensors[name] = ('F32', [size, 8], floats([size, 8]))
