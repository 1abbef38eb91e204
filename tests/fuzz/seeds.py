#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzz targets: one folder per target, one file per input.

    seeds.py FOLDER

Inputs that a reader accepts, and ones that get far into it before they are refused: a fuzzer
starts from them, and every test run hands them to the target.
"""
import json
import os
import struct
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(TESTS, 'golden')
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TESTS, 'hostile'))
from folder import DTYPES, entry  # noqa: E402


def golden(*names):
    with open(os.path.join(GOLDEN, *names), 'rb') as f:
        return f.read()


# ---- safetensors ----

def safetensors(header, data_bytes):
    """A file with this header (text, or what becomes it) and so many bytes of data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack('<Q', len(text)) + text + bytes(data_bytes)


def all_dtypes():
    header, at = {}, 0
    for name, bits in DTYPES.items():
        header[name] = entry(name, [2, 4], at, at + bits)
        at += bits
    return safetensors(header, at)


def safetensors_seeds():
    one = {'a': entry('F32', [4], 0, 16)}
    return {
        'one': safetensors(one, 16),
        'all-dtypes': all_dtypes(),
        'scalar': safetensors({'a': entry('BF16', [], 0, 2)}, 2),
        'none': safetensors({}, 0),
        'metadata': safetensors({'__metadata__': {'format': 'pt', 'x': ''}, **one}, 16),
        'metadata-twice': safetensors(b'{"__metadata__":{},"__metadata__":{}}', 0),
        'empty-tensors': safetensors({'z': entry('F32', [0], 16, 16), **one,
                                      'y': entry('U8', [3, 0], 0, 0)}, 16),
        'out-of-order': safetensors({'b': entry('I64', [1, 2], 16, 32), **one}, 32),
        'escapes': safetensors(rb'{"\u0061\ud83d\ude00\n\/":' + json.dumps(one['a']).encode()
                               + b'}', 16),
        'spaces': safetensors(b' \t\n' + json.dumps(one).encode() + b'   ', 16),
        'rank-8': safetensors({'a': entry('F32', [1, 1, 1, 1, 1, 1, 1, 4], 0, 16)}, 16),
        'hole': safetensors({**one, 'b': entry('F32', [4], 20, 36)}, 36),
        'overlap': safetensors({**one, 'b': entry('F32', [4], 8, 24)}, 24),
        'overflow': safetensors({'a': entry('U8', [4194305, 4194305, 211106198978564], 0, 4)}, 4),
        'twice': safetensors(b'{"a":' + json.dumps(one['a']).encode() + b',"\\u0061":'
                             + json.dumps(one['a']).encode() + b'}', 16),
        'cut': safetensors(one, 16)[:40],
        'short': b'\x02\0\0\0',
    }


# ---- JSON ----

def index_seeds():
    entries = {'a': 'model-00001-of-00002.safetensors', 'b': 'model-00002-of-00002.safetensors',
               'c\n\u00e9': 'model-00001-of-00002.safetensors'}
    plain = json.dumps({'metadata': {'total_size': 20}, 'weight_map': entries})
    return {
        'golden': golden('untied-mha', 'model.safetensors.index.json'),
        'plain': plain.encode(),
        'no-metadata': json.dumps({'weight_map': entries}).encode(),
        'empty': b'{"weight_map":{}}',
        'path': plain.replace('model-00002', '../model').encode(),
        'absolute': b'{"weight_map":{"a":"/etc/passwd"}}',
        'dots': b'{"weight_map":{"a":".."}}',
        'no-text': b'{"weight_map":{"a":7}}',
        'twice': b'{"weight_map":{"a":"m","\\u0061":"m"}}',
        'deep': b'{"weight_map":{"a":' + b'[' * 20,
    }


def config_seeds():
    small = json.loads(golden('tied-gqa', 'config.json'))
    bare = {key: small[key] for key in (
        'architectures', 'hidden_size', 'intermediate_size', 'num_hidden_layers',
        'num_attention_heads', 'vocab_size', 'max_position_embeddings', 'rms_norm_eps')}

    def text(changes, base=small):
        return json.dumps({**base, **changes}).encode()

    scaled = {'rope_theta': 1e4, 'rope_scaling': {'rope_type': 'linear', 'factor': 2.0}}
    return {
        'tied-gqa': golden('tied-gqa', 'config.json'),
        'untied-mha': golden('untied-mha', 'config.json'),
        'qk-norm': golden('qk-norm', 'config.json'),
        'qkv-bias': golden('qkv-bias', 'config.json'),
        'windowed': golden('windowed', 'config.json'),
        'theta': text({'rope_theta': 1e4, 'torch_dtype': 'float16'}, bare),
        'scaled': text(scaled, bare),
        'yarn': text({'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 1e4,
                                          'factor': 4.0}}),
        'zero': text({'hidden_size': 0}),
        'large': text({'hidden_size': 1 << 20, 'intermediate_size': 1 << 22,
                       'num_hidden_layers': 1 << 14}),
        'float': text({'hidden_size': 48.0}),
        'code': text({'auto_map': {'AutoModel': 'evil.py'}}),
        'other': text({'architectures': ['GPT2LMHeadModel']}),
        'twice': b'{"hidden_size":8,' + text({})[1:],
        'not-json': b'{"architectures":["LlamaForCausalLM"],}',
    }


def hjson_seeds():
    return {
        'offload': b"""{
  # ZeRO-3, to NVMe
  "train_micro_batch_size_per_gpu": "auto",
  "bf16": {"enabled": true},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme", "buffer_count": 4},
    "offload_param": {"device": "cpu", "pin_memory": true,}, // a comma before an end
    "sub_group_size": 1e9,
    "contiguous_gradients": true
    "round_robin_gradients": true /* and none
    at the end of a line */
  }
}
""",
        'optimizer': b'{"optimizer": {"type": "AdamW", "params": '
                     b'{"lr": 1e-4, "betas": [0.9, 0.95]}}}',
        'bare': b'{stage: 3, $a-b.c: [1\n2,], e: {}, f: null}',
        'escapes': b'{"\\u0061\\ud83d\\ude00": "\\n\\\\\\""}',
        'twice': b'{"a": 1, "\\u0061": 2}',
        'deep': b'{a: ' + b'[' * 20,
        'quoteless': b'{device: cpu,\n}',
        'mark': b'\xef\xbb\xbf{}',
        'huge': b'{"lr": 1e999}',
        'comment': b'{} /* without an end',
    }


def machine_seeds():
    good = b"""hoistway machine 1
# A box.
name box
about a box with one GPU
date 2026-11-27
source its maker
gpus 1
compute-capability 9
hbm 80e9
dram 256G
nvme 4e12
drives 2
rate compute 4e14 assumed half of its peak
rate read 6e9 measured on it
"""
    sealed = b"""hoistway rates 3
taken_ms 1
took_ms 1
drives 0
products 0
operations 0
end 3d2bb2f6f3d29e31
"""
    return {
        'good': good,
        'sealed': good + sealed,
        'date': good.replace(b'11-27', b'02-30'),
        'huge': good.replace(b'256G', b'1e999'),
        'rate': good.replace(b'6e9', b'nan'),
        'kind': good.replace(b'measured', b'guessed'),
        'twice': good + b'dram 1G\n',
        'byte': good.replace(b'a box', b'a\0box'),
        'cut': good[:-1],
        'long': good.replace(b'its maker', b'x' * 300).replace(b'on it', b'y' * 200),
    }


def ds_config_seeds():
    """Each key of the page's table with a value of its type, and whole configurations."""
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs',
                        'deepspeed.md')
    values = {'true or false': True, 'a whole number': 2, 'a number': 0.5, 'a text': 'cpu',
              'an array of numbers': [0.9, 0.95], 'an object': {}, 'anything': {'enabled': False}}
    seeds = {}
    with open(page, encoding='utf-8') as f:
        for line in f:
            if not line.startswith('| `'):
                continue
            names, kind = line.strip('|').split(' | ')[:2]
            for name in names.split('`')[1::2]:
                value = values[kind]
                for part in reversed(name.split('.')):
                    value = {part: value}
                seeds[name] = json.dumps(value).encode()
    seeds['all'] = json.dumps({
        'train_batch_size': 8, 'train_micro_batch_size_per_gpu': 'auto', 'gradient_clipping': 0.5,
        'optimizer': {'type': 'Adam', 'params': {'lr': 1e-4, 'betas': [0.9, 0.95],
                                                 'torch_adam': True}},
        'scheduler': {'type': 'WarmupLR'}, 'fp16': {'enabled': 'true', 'loss_scale': 0},
        'zero_optimization': {'stage': 3, 'cpu_offload_param': True, 'aio': {'num_threads': 1},
                              'offload_optimizer': {'device': 'nvme', 'nvme_path': '/n'}},
        'csv_monitor': {'enabled': True, 'output_path': 'a/'}, '_': [1, {'b': None}]}).encode()
    options = b'{"lr":1e-4,"betas":"0.9,0.95","quiet":true,"steps":null}'
    seeds['log'] = b'{"kind":"run","options":' + options + b'}\n{"kind":"step","step":1}\n'
    seeds['log-without'] = b'{"kind":"run","seed":0}\n'
    return {**hjson_seeds(), 'options': options, **seeds}


# ---- tokens: what the user said in three bytes, then the file ----

def llmc(magic, version, tokens, width):
    head = struct.pack('<III', magic, version, len(tokens)) + bytes(1024 - 12)
    return head + b''.join(struct.pack('<H' if width == 2 else '<I', t) for t in tokens)


def llmq(tokens, masks=None, version=2):
    said = [version, 4, len(tokens), 1000, masks is not None]
    head = b'BIN.TOK\n' + struct.pack('<5I', *said)
    return head.ljust(1024, b'\0') + struct.pack(f'<{len(tokens)}I', *tokens) + (masks or b'')


def tokens_seeds():
    def said(dtype=0, sequential=False, text=False, vocab=3, seq_len=4, twice=False):
        return bytes([dtype | sequential << 2 | text << 3, vocab, seq_len - 1 | twice << 7])

    ids = list(range(40))
    u16, u32 = llmc(20240520, 1, ids, 2), llmc(20240801, 7, ids, 4)
    return {
        'u16': said() + u16,
        'u32': said(sequential=True) + u32,
        'joined': said(twice=True) + u16,
        'u32-said': said(2) + u32,
        'u16-said-u32': said(2) + u16,
        'raw-u16': said(1) + u16[1024:],
        'raw-u32': said(2) + u32[1024:],
        'raw-odd': said(2) + u32[1024:-1],
        'text': said(text=True) + b'To be, or not to be, that is the question.',
        'small-vocabulary': said(vocab=1) + u16,
        'swapped': said() + u16[3::-1] + u16[4:],
        'version': said() + u16[:4] + b'\x02' + u16[5:],
        'count': said() + u16[:8] + b'\xff\xff\xff\xff' + u16[12:],
        'cut': said() + u16[:-1],
        'no-token': said() + llmc(20240520, 1, [], 2),
        'llmq': said() + llmq(ids, b'\xaa\x55\0\xff\x0f'),
        'short': said(1, seq_len=16) + u16[1024:1040],
        'empty': said(1),
    }


# ---- documents: token files, and rows of JSON ----

def token_file(**tensors):
    """The bytes of a token file whose tensors are {name: (dtype, values)}."""
    letters = {'U8': 'B', 'U16': 'H', 'U32': 'I', 'U64': 'Q', 'I64': 'q', 'F32': 'f'}
    header, data = {'__metadata__': {'format': 'hoistway.tokens.1'}}, b''
    for name, (dtype, values) in tensors.items():
        packed = struct.pack(f'<{len(values)}{letters[dtype]}', *values)
        header[name] = entry(dtype, [len(values)], len(data), len(data) + len(packed))
        data += packed
    return safetensors(header, 0) + data


def documents_seeds():
    ids = ('U32', list(range(40)))
    offsets, mask = ('U64', [0, 2, 17, 40]), ('U8', [0, 1] * 20)
    rows = (b'{"input_ids":[1,2,3]}', b'{"mask":[0,1],"input_ids":[ 999 , 0]}',
            b'{"input_ids":[7,8],"labels":[-100,8]}')
    return {
        'tokens': token_file(tokens=ids),
        'u16': token_file(tokens=('U16', [5] * 9)),
        'documents': token_file(tokens=ids, documents=offsets),
        'mask': token_file(tokens=ids, documents=('I64', [0, 40]), mask=mask),
        'all': token_file(
            byte_offsets=('U64', [0, 1, 1, 3]), prompt_offsets=('I64', [0, 2]), documents=offsets,
            tokens=ids, prompts=('U32', [1, 2]), mask=mask, bytes=('U8', b'abc')),
        'beyond': token_file(tokens=ids, documents=('U64', [0, 1 << 63, 40])),
        'falling': token_file(tokens=ids, documents=('U64', [0, 20, 10, 40])),
        'no-target': token_file(tokens=ids, documents=('U64', [0, 39, 40])),
        'mask-2': token_file(tokens=ids, mask=('U8', [1] * 39 + [2])),
        'many-ids': token_file(tokens=('U32', [0, 1000])),
        'prompt-id': token_file(tokens=ids, prompts=('U32', [1000]),
                                prompt_offsets=('U64', [0, 1])),
        'other': token_file(tokens=ids, masks=mask),
        'llmq': llmq(list(range(43)), b'\xaa\x55\0\xff\x0f\7'),
        'llmq-plain': llmq(list(range(43)), version=1),
        'llmq-none': llmq(list(range(8)), b'\1'),
        'llmq-cut': llmq(list(range(43)), b'\xaa\x55'),
        'rows': b'\n'.join(rows),
        'blanks': b'\r\n \t\n'.join(rows) + b'\n\n',
        'long-row': b'{"input_ids":[%s]}' % b','.join(b'%d' % (i % 1000) for i in range(9000)),
        'row-mask': b'{"input_ids":[1,2],"mask":[1,0]}',
        'row-lengths': b'{"input_ids":[1,2,3],"mask":[1,0]}',
        'row-labels': b'{"input_ids":[1,2,3],"labels":[1,2,4]}',
        'row-key': b'{"input_ids":[1,2],"text":"\xc3\xa9"}',
        'row-utf8': b'{"\xff":1}',
        'row-cut': b'{"input_ids":[1,2',
        'row-none': b' \n',
    }


# ---- options: arguments, each ended by NUL ----

def options_seeds():
    lines = {
        'train': '--model m --data d.txt --store s --steps 3',
        'all': '--model=m --data=a,b --store=s,t --steps=1e3 --batch-tokens 4K --seq-len 256 '
               '--lr 3e-4 --betas 0.9,0.95 --eps 1e-8 --weight-decay 0 --clip 1.0 --hbm 2GiB '
               '--dram 5e8 --nvme 1T --place states=nvme,weights=dram --threads 4 --io uring '
               '--precision bf16 --state bf16 --seed 4503599627370496 --schedule wsd '
               '--warmup 2.5% --decay 10 --quiet',
        'bench': '/mnt/a /mnt/b --size 1G --blocks 256K,1M --depths 1,16 --threads 1,2 '
                 '--plan 8B --gpu-tflops 100 --endurance 1DWPD,3.84TB,5Y --target 99.9',
        'compare': '--compare a.json b.json',
        'simulated': 'sim:read=7G,write=5G --quick --json --endurance 600TBW',
        'wrap': '--threads 4294967297 --steps=-5 --grain 0x10',
        'sizes': '2GBB 1.5G 1e400 1e-400 nan inf 0x1p3 9223372036854775808 4KiB .5M 1e2T , 0.9,',
        'unknown': '--stepps 3 -x -- --= --=5 --model',
    }
    return {name: line.encode().replace(b' ', b'\0') for name, line in lines.items()}


# ---- store: changes of a good one; see store.c ----

def store_seeds():
    header, superblock, manifest, unsealed = 0, 2, 4, 0x80

    def changed(*changes):
        return b''.join(struct.pack('<BBHQ', page, width - 1, at, value)
                        for page, width, at, value in changes)

    most = (1 << 64) - 1
    return {
        'good': b'',
        'frozen': b'f',
        'frozen-changed': changed((manifest, 1, 80, 3)) + b'f',
        'damaged': changed((unsealed | header, 1, 50, 7)),
        'magic': changed((header, 1, 0, 0)),
        'big-endian': changed((superblock, 4, 8, 0x04030201)),
        'major': changed((manifest, 2, 12, 2)),
        'world': changed((header, 4, 52, 0)),
        'drives': changed((header, 4, 60, 65)),
        'align': changed((header, 4, 68, 12288)),
        'extents': changed((header, 4, 76, 0xfffffffe)),
        'blocks': changed((header, 8, 80, most // 8 + 1)),
        'slot-bytes': changed((header, 8, 96, 1 << 63)),
        'sequence': changed((superblock, 8, 56, most)),
        'none-before': changed((superblock, 8, 160, 4), (superblock, 8, 200, 8192)),
        'two-of-seven': changed((superblock, 8, 96, 6), (manifest, 8, 56, 6)),
        'entry-offset': changed((manifest, 8, 4096 + 32 + 8, most - 4095)),
        'entry-bytes': changed((manifest, 4, 4096 + 16, 0)),
        'entry-drive': changed((manifest, 1, 4096 + 5, 9)),
        'cursor-bytes': changed((manifest, 4, 100, 0xffffffff)),
        'cursor-tag': changed((manifest, 4, 4096 + 4 * 32 + 4 * 8, 99)),
    }


SEEDS = {'safetensors': safetensors_seeds, 'index': index_seeds, 'config': config_seeds,
         'hjson': hjson_seeds, 'machine': machine_seeds, 'ds_config': ds_config_seeds,
         'tokens': tokens_seeds, 'documents': documents_seeds, 'options': options_seeds,
         'store': store_seeds}


def main():
    for target, seeds in SEEDS.items():
        folder = os.path.join(sys.argv[1], target)
        os.makedirs(folder, exist_ok=True)
        for name, content in seeds().items():
            with open(os.path.join(folder, name), 'wb') as f:
                f.write(content)


if __name__ == '__main__':
    main()
