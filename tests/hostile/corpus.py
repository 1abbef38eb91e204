# SPDX-License-Identifier: Apache-2.0
"""The corpus of bad inputs: what is done to intact files, and how the program has to answer.

A row is (number, words, change, code, pattern). `number` is that of a kind of bad
input, 1 to 58; the rows stand in this order. `change` gets a folder (see folder.py) with an intact
model and intact data, spoils something, and may return more arguments for `train`. `code` is that
of the refusal; None: accepted, and then pattern is looked for in what was said.
"""
import json
import os
import socket
import struct

from folder import DTYPES, EMBEDDING, entry, file_of

MOST = (1 << 64) - 1


# ---- safetensors: 410 ----

def text(change):
    """The header as text, changed by a function of text."""
    def apply(f):
        header, data = f.header()
        f.put_weights(file_of(change(json.dumps(header)), data))
    return apply


def header(change):
    """The header as an object, changed in place."""
    def apply(f):
        head, data = f.header()
        change(head)
        f.put_weights(file_of(json.dumps(head), data))
    return apply


def first(**values):
    """The entry of the embedding, whose offsets are 0 to 2,048, with other values."""
    return header(lambda h: h[EMBEDDING].update(values))


def raw(make):
    """The whole file, made from header text and data."""
    def apply(f):
        head, data = f.header()
        f.put_weights(make(json.dumps(head).encode(), data))
    return apply


def length(n):
    return raw(lambda head, data: struct.pack('<Q', n) + head + data)


def more(added):
    """Another member before all others."""
    return text(lambda t: '{' + added + ',' + t[1:])


def twice(key):
    return text(lambda t: t.replace(f'"{key}":', f'"{key}": 0, "{key}":', 1))


def sparse(n, size):
    def apply(f):
        f.put_weights(struct.pack('<Q', n) + b'{}')
        os.truncate(f.path('model', 'model.safetensors'), size)
    return apply


ONE = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'

SAFETENSORS = [
    (1, 'no byte', raw(lambda head, data: b''), 410, '0 bytes, shorter than 8-byte header length'),
    (1, '7 bytes', raw(lambda head, data: b'\x02' + bytes(6)), 410, '7 bytes, shorter than 8-byte'),
    (2, 'N of 2^64-1', length(MOST), 410, 'header length 18446744073709551615, at most 100000000'),
    (2, 'N of 2^64-8', length(MOST - 7), 410, 'at most 100000000'),
    (2, 'N beyond the file', length(90000000), 410, r'but only \d+ bytes follow: the file is cut'),
    (3, 'N of 10^8+1, all there', sparse(100000001, 100000100), 410, 'at most 100000000'),
    (4, 'N of 0', length(0), 410, 'header length 0, at least 2'),
    (4, 'no tensor for the data', raw(lambda head, data: file_of('{}', data)), 410,
     r'\d+ bytes of data, its tensors cover 0'),
    (5, 'not UTF-8', raw(lambda head, data: file_of(head.replace(b'embed', b'emb\xff'), data)), 410,
     'bytes that are not UTF-8'),
    (5, 'overlong', raw(lambda head, data: file_of(head.replace(b'embed', b'emb\xc0\xaf'), data)),
     410, 'bytes that are not UTF-8'),
    (5, 'lone surrogate', text(lambda t: t.replace('embed', '\\ud800')), 410, 'lone surrogate'),
    (5, 'NUL in a name', text(lambda t: t.replace('embed', '\\u0000')), 410, 'a NUL in a string'),
    (6, 'spaces first', text(lambda t: ' \n\t' + t), None, 'trained 1 step'),
    (6, 'byte order mark', raw(lambda head, data: file_of(b'\xef\xbb\xbf' + head, data)), 410,
     'not valid JSON'),
    (6, 'an array', text(lambda t: f'[{t}]'), 410, 'does not start with {'),
    (7, 'cut in the JSON', text(lambda t: t[:-1]), 410, 'its end, too early'),
    (7, 'something behind it', text(lambda t: t + 'x'), 410, 'something after the end'),
    (7, 'spaces behind it', text(lambda t: t + '   \n'), None, 'trained 1 step'),
    (8, 'a million brackets', text(lambda t: '{"a":' + '[' * 1000000), 410, '16 levels'),
    (9, 'a tensor twice', text(lambda t: t[:-1] + ',' + t[1:]), 410, 'stands there twice'),
    (10, 'dtype twice', twice('dtype'), 410, 'unknown dtype 0|dtype twice'),
    (10, 'shape twice', text(lambda t: t.replace('"shape":', '"shape": [], "shape":', 1)), 410,
     'shape twice'),
    (10, 'data_offsets twice',
     text(lambda t: t.replace('"data_offsets":', '"data_offsets": [0, 0], "data_offsets":', 1)),
     410, 'data_offsets twice'),
    (11, 'metadata with a number', more('"__metadata__":{"a":1}'), 410, 'not a string'),
    (11, 'metadata is an array', more('"__metadata__":[]'), 410, '__metadata__ is not an object'),
    (12, 'unknown dtype', first(dtype='F33'), 410, 'unknown dtype F33; known: .*BF16.*F32'),
    (12, 'dtype of another type', first(dtype={}), 410, 'unknown dtype'),
    (13, 'negative', first(shape=[-64, 8]), 410, 'holds -64, want whole numbers'),
    (13, 'a fraction', first(shape=[64.0, 8]), 410, 'holds 64.0, want whole numbers'),
    (13, 'an exponent', text(lambda t: t.replace('[64', '[64e0', 1)), 410, 'holds 64e0, want'),
    (13, 'a string', first(shape=['64', 8]), 410, 'holds "64", want whole numbers'),
    (13, '2^63', first(shape=[1 << 63, 0]), 410, 'holds 9223372036854775808, want'),
    (14, 'the product overflows', first(shape=[4194305, 4194305, 211106198978564]), 410,
     'overflows 64 bits'),
    (15, 'nine dimensions', first(shape=[64, 8] + [1] * 7), 410, 'more than 8 numbers'),
    (16, 'more than its bytes', first(shape=[65, 8]), 410, 'needs 2080 bytes, .* hold 2048'),
    (16, 'of another width', first(dtype='F64'), 410, 'needs 4096 bytes, .* hold 2048'),
    (17, 'ends before it begins', first(data_offsets=[2048, 0]), 410, 'data_offsets 2048 to 0'),
    (17, 'ends behind the file', first(data_offsets=[0, 1 << 40]), 410,
     'data_offsets 0 to 1099511627776 in'),
    (18, 'overlap', more(f'"x":{ONE}'), 410, 'an overlap'),
    (18, 'a hole', header(lambda h: h.pop('model.norm.weight')), 410, 'a hole|tensors cover'),
    (18, 'not from 0', header(lambda h: h.pop(EMBEDDING)), 410, 'want 0: a hole'),
    (19, 'longer than its tensors', raw(lambda head, data: file_of(head, data + b'x')), 410,
     'its tensors cover'),
    (19, 'shorter than its tensors', raw(lambda head, data: file_of(head, data[:-1])), 410,
     r'has data_offsets \d+ to \d+ in \d+ bytes'),
    (20, 'empty tensors at one place',
     header(lambda h: h.update(x=entry('F32', [0], 0, 0), y=entry('U8', [3, 0], 0, 0))), None,
     r"warning\[W415\] .* holds 2 tensors that .* \('x' is the first\): they "),
    (20, 'an empty tensor', header(lambda h: h.update(x=entry('F32', [0], 0, 0))), None,
     r"warning\[W415\] .* holds 'x', which .*: it "),
    (21, 'half a byte', header(lambda h: h.update(x=entry('F4', [3], 0, 0))), 410,
     'does not fill whole bytes'),
    (22, 'a million tensors too many',
     text(lambda t: '{' + '"a":1,' * 1048577 + t[1:]), 410, 'at most 1048576 tensors'),
    (23, 'data at an odd place', text(lambda t: t + ' ' * (1 - len(t) % 2)), None, 'trained 1'),
    (25, 'a name of 64 KiB', more(f'"{"n" * 65536}":{ONE}'), 410, '65536 bytes, at most 1024'),
    (25, 'control characters', more('"\\n\\u001b[2J/../":{"dtype":"F33"}'), 410,
     r'tensor \\x0a\\x1b\[2J/../ has unknown dtype F33'),
]


def dtype_rows():
    """The three that can be read are; the others are refused by name."""
    def stored_as(dtype):
        def apply(f):
            f.tensors[EMBEDDING] = (dtype, [64, 8], bytes(64 * 8 * DTYPES[dtype] // 8))
            f.save()
        return apply
    for dtype in DTYPES:
        if dtype in ('F32', 'F16', 'BF16'):
            yield (41, f'stored as {dtype}', stored_as(dtype), None,
                   'trained 1 step' if dtype == 'F32' else
                   r'note\[I415\] config.json says float32, tensor \S+ is ' + dtype)
        else:
            yield (12, f'stored as {dtype}', stored_as(dtype), 415,
                   f'{EMBEDDING} has dtype {dtype}; supported: F32, BF16, F16')


# ---- index: 411 ----

SECOND = 'model-00002-of-00002.safetensors'
INDEX = 'model.safetensors.index.json'


def shards(change=None):
    """The model in two files, and what is done to the index, as an object."""
    def apply(f):
        index = f.shard()
        if change:
            change(index)
        f.put(json.dumps(index), 'model', INDEX)
    return apply


def named(name):
    return shards(lambda index: index['weight_map'].update({EMBEDDING: name}))


def second(replace):
    """The second shard, replaced."""
    def apply(f):
        shards()(f)
        os.rename(f.path('model', SECOND), f.path(SECOND))
        replace(f.path(SECOND), f.path('model', SECOND))
    return apply


def entries(count):
    def apply(f):
        shards()(f)
        f.put('{"weight_map":{' + ','.join(f'"{i:x}":"a"' for i in range(count)) + '}}', 'model',
              INDEX)
    return apply


PLAIN = 'want a plain file name without a path'
INDEXES = [
    (27, 'absolute', named('/etc/passwd'), 411, PLAIN),
    (28, 'to the folder above', named('../' + SECOND), 411, PLAIN),
    (28, 'in a folder below', named('sub/' + SECOND), 411, PLAIN),
    (28, 'with a backslash', named('..\\' + SECOND), 411, PLAIN),
    (28, 'empty', named(''), 411, PLAIN),
    (28, 'the folder', named('.'), 411, PLAIN),
    (28, 'the folder above', named('..'), 411, PLAIN),
    (29, 'a link to outside', second(lambda kept, at: os.symlink('../' + SECOND, at)), 411,
     SECOND + ': a symbolic link that leaves the directory .* cp -rL'),
    (29, 'an absolute link', second(os.symlink), 411, SECOND + ': a symbolic link that leaves'),
    (29, 'a link of the kernel', second(lambda kept, at: os.symlink('/proc/self/exe', at)), 411,
     SECOND + ': a symbolic link that leaves'),
    (29, 'a link to inside', second(
        lambda kept, at: (os.rename(kept, at + '.real'), os.symlink(SECOND + '.real', at))),
     None, 'trained 1 step'),
    (29, 'a FIFO', second(lambda kept, at: os.mkfifo(at)), 411, SECOND + ': not a regular file'),
    (29, 'a folder', second(lambda kept, at: os.mkdir(at)), 411, SECOND + ': not a regular file'),
    (30, 'no such file', second(lambda kept, at: None), 411, SECOND + ': there is no such file'),
    (30, 'not in its file', shards(lambda i: i['weight_map'].update(x=SECOND)), 411,
     'tensor x is listed, but ' + SECOND + ' does not have it'),
    (30, 'in the other file', named(SECOND), 411, 'is listed in ' + SECOND + ', but it is in'),
    (30, 'not listed', shards(lambda i: i['weight_map'].pop('model.norm.weight')), 411,
     'tensor model.norm.weight is not in the index'),
    (31, 'a wrong total_size', shards(lambda i: i['metadata'].update(total_size=7)), None,
     r'warning\[W411\] .*total_size is 7'),
    (32, 'one entry too many', entries(1048577), 411,
     '1048577 entries in weight_map, at most 1048576'),
    (32, 'too many entries', entries(1048577 + 70000), 411, 'too many keys|at most 1048576'),
    (32, 'a number for a file', named(7), 411, 'something that is no file name'),
    (32, 'no weight_map', shards(lambda i: i.pop('weight_map')), 411, 'weight_map is not there'),
]


# ---- config.json: 412 to 415 ----

def config(**values):
    def apply(f):
        f.config.update(values)
        f.save()
    return apply


def config_text(change):
    def apply(f):
        f.put(change(json.dumps(f.config)), 'model', 'config.json')
    return apply


def large_config(f):
    os.truncate(f.path('model', 'config.json'), (64 << 20) + 1)


def large_tokenizer(f):
    f.put(b'', 'model', 'tokenizer.json')
    os.truncate(f.path('model', 'tokenizer.json'), (256 << 20) + 1)


def tied(f):
    f.config['tie_word_embeddings'] = True
    f.tensors['lm_head.weight'] = ('F32', [64, 8], b'\1' * 2048)
    f.save()


def tied_and_large(f):
    """Half a TiB that config.json has no use for: not worth reading."""
    f.config['tie_word_embeddings'] = True
    f.save()
    head, data = f.header([name for name in f.tensors if f.tensors[name][1] != [64, 8]])
    at, size = len(data), 4 << 36
    for name in (EMBEDDING, 'lm_head.weight'):
        head[name] = entry('F32', [1 << 20, 1 << 16], at, at + size)
        at += size
    f.put_weights(file_of(json.dumps(head), data))
    os.truncate(f.path('model', 'model.safetensors'), 8 + len(json.dumps(head)) + at)


SIZE = r'want a whole number from 1 to \d+'
LARGE = {'hidden_size': 1 << 20, 'intermediate_size': 1 << 22, 'num_hidden_layers': 1 << 14,
         'num_attention_heads': 1 << 16, 'num_key_value_heads': 1 << 16, 'head_dim': 1 << 16}
CONFIGS = [
    (33, 'no config.json', lambda f: os.remove(f.path('model', 'config.json')), 412,
     'config.json: there is no such file'),
    (33, 'a folder', lambda f: (os.remove(f.path('model', 'config.json')),
                                os.mkdir(f.path('model', 'config.json'))) and None, 412,
     'config.json: not a regular file'),
    (33, 'a link to outside', lambda f: (
        os.rename(f.path('model', 'config.json'), f.path('config.json')),
        os.symlink('../config.json', f.path('model', 'config.json'))) and None, 412,
     'config.json: a symbolic link that leaves'),
    (33, 'a key twice', config_text(lambda t: '{"hidden_size":8,' + t[1:]), 412,
     'stands there twice: hidden_size'),
    (33, 'a tokenizer.json that is too large', large_tokenizer, 412,
     'tokenizer.json: 268435457 bytes, at most 268435456 allowed. Fix: download that file again'),
    (33, 'not JSON', config_text(lambda t: t[:-1] + ',}'), 412, 'not valid JSON'),
    (34, '0', config(hidden_size=0), 413, 'hidden_size is 0, ' + SIZE),
    (34, 'negative', config(hidden_size=-8), 413, 'hidden_size is -8, ' + SIZE),
    (34, '2^31', config(hidden_size=1 << 31), 413, 'hidden_size is 2147483648, ' + SIZE),
    (34, '2^64+8', config(hidden_size=(1 << 64) + 8), 413,
     'hidden_size is 18446744073709551624, ' + SIZE),
    (34, 'a fraction', config(hidden_size=8.0), 413, 'hidden_size is 8.0, ' + SIZE),
    (34, 'a string', config(hidden_size='8'), 413, 'hidden_size is "8", ' + SIZE),
    (35, 'heads do not divide', config(num_attention_heads=3), 413,
     'hidden_size 8 is no multiple of num_attention_heads 3'),
    (35, 'groups do not divide', config(num_attention_heads=4, num_key_value_heads=3), 413,
     'num_attention_heads 4 is no multiple of num_key_value_heads 3'),
    (36, 'bytes overflow', config(**LARGE), 413, "the model's size in bytes overflows"),
    (36, 'more layers than can be described', config(num_hidden_layers=20000), 413,
     'num_hidden_layers is 20000, want a whole number from 1 to 16384'),
    (36, 'a tensor of 2^41 elements', config(hidden_size=1 << 20, vocab_size=1 << 21), 413,
     '2097152 x hidden_size 1048576 elements, at most 2.40 allowed'),
    (37, 'another architecture', config(architectures=['GPT2LMHeadModel']), 414,
     'architecture GPT2LMHeadModel is not supported; supported: LlamaForCausalLM'),
    (37, 'code', config(auto_map={'AutoModel': 'evil.Model'}), 414, 'auto_map asks for code'),
    (37, 'another activation', config(hidden_act='gelu'), 414, 'supported: silu'),
    (37, 'tokens that see what is to come', config(is_causal=False), 414,
     'is_causal is false, supported: true. With it tokens attend to those after them'),
    (37, 'layers that differ', config(per_layer_config=[{'hidden_size': 4}]), 414,
     'per_layer_config is'),
    (37, 'silu by its other name', config(hidden_act='swish'), None, 'trained 1 step'),
    (34, 'a row for padding beyond the vocabulary', config(pad_token_id=64), 413,
     'pad_token_id is 64, want null or a whole number from -64 to 63'),
    (34, 'a row for padding, from the end', config(pad_token_id=-64), None, 'trained 1 step'),
    (34, 'as old as Llama 2', config_text(lambda t: t.replace('"rope_theta": 10000.0, ', '')),
     None, 'trained 1 step'),
    (38, 'a vocabulary smaller than a token',
     lambda f: (f.resize_vocabulary(39), f.save()) and None, 422,
     r'data.bin: token id 39 at byte 1102, but the vocabulary of the model has 39'),
    (39, 'NaN', config(rms_norm_eps=float('nan')), 412, 'not valid JSON'),
    (39, '1e400', config_text(lambda t: t.replace('1e-05', '1e400')), 413,
     'rms_norm_eps is 1e400, want a number from 1e-20 to 1'),
    (39, 'rope of 1e400', config_text(lambda t: t.replace('10000.0', '1e400')), 413,
     'rope_theta is 1e400, want'),
    (40, 'more than 64 MiB', large_config, 412, '67108865 bytes, at most 67108864 allowed'),
    (41, 'bf16, says the config', config(torch_dtype='bfloat16'), None,
     r'note\[I415\] config.json says bfloat16, tensor \S+ is F32: it is converted'),
    (42, 'tied, and yet different', tied, 415, 'lm_head.weight differs from'),
    (42, 'tied, and larger than config.json says', tied_and_large, 415,
     r'embed_tokens.weight has shape .1048576, 65536., config.json asks for'),
]


# ---- token data: 420 to 423 ----

def data(*content, args=()):
    def apply(f):
        f.put(b''.join(content), 'data.bin')
        return args
    return apply


def llmc(magic=20240520, version=1, count=40, ids=range(40)):
    head = struct.pack('<III', magic, version, count) + bytes(1024 - 12)
    return head + b''.join(struct.pack('<H', i) for i in ids)


def other_data(make):
    def apply(f):
        make(f.path('other.bin'))
        return [f'--data={f.path("other.bin")}']
    return apply


RAW = ('--token-dtype=u16',)
DATA = [
    (43, 'half a token', data(bytes(81), args=RAW), 423, '81 bytes are not a multiple of 2'),
    (43, 'fewer than the header says', data(llmc()[:-2]), 423,
     'counts 40 tokens, which makes 1104 bytes, but the file has 1102'),
    (43, 'a count of 2^32-1', data(llmc(count=(1 << 32) - 1)), 423, 'counts 4294967295 tokens'),
    (43, 'cut off in the header', data(llmc()[:500]), 423, 'counts 40 tokens, .* has 500'),
    (43, 'no header, no width', data(bytes(80)), 423, 'not an llm.c token file .*--token-dtype'),
    (43, 'another version', data(llmc(version=2)), 423, 'of version 2, only 1 can be read'),
    (43, 'another width', data(llmc(), args=['--token-dtype=u32']), 423, 'the llm.c header says'),
    (43, 'of LLMQ', data(b'BIN.TOK\n' + bytes(1096), args=RAW), 423,
     'LLMQ token file of version 0'),
    (43, 'u32 read as u16', data(struct.pack('<40I', *range(1, 41)), args=RAW), 423,
     'every second id .* is 0, as the upper halves of u32 are. Fix: --token-dtype u32'),
    (43, 'u16 read as u32',
     data(struct.pack('<40H', *range(1, 41)), args=['--token-dtype=u32']), 423,
     'as u16 all of them fit. Fix: --token-dtype u16'),
    (43, 'text of many ids', lambda f: (
        f.resize_vocabulary(257), f.save(), f.put('text' * 20, 'data.txt')) and [
            f'--data={f.path("data.txt")}'], 423, 'the model has 257 ids, and .txt is read as one'),
    (43, 'text and tokens', lambda f: (
        f.resize_vocabulary(256), f.save(), f.put('text' * 20, 'data.txt')) and [
            f'--data={f.path("data.bin")},{f.path("data.txt")}'], 423, 'cannot be joined'),
    (43, 'JSON', lambda f: f.put('{"text": ""}\n' * 9, 'data.jsonl') or [
        f'--data={f.path("data.jsonl")}'], 423, 'make a file of tokens of it'),
    (44, 'text for few ids', lambda f: f.put('text' * 20, 'data.txt') or [
        f'--data={f.path("data.txt")}'], 422, 'bytes need a vocabulary of at least 256'),
    (44, 'a few ids of another tokenizer', data(
        struct.pack('<40I', *range(1, 40), 64), args=['--token-dtype=u32']), 422,
     'token id 64 at byte 156, but the vocabulary of the model has 64'),
    (44, 'an id beyond the vocabulary', data(llmc(ids=[*range(39), 64])), 422,
     'token id 64 at byte 1102, but the vocabulary of the model has 64'),
    (44, 'raw', data(b'\x40\0' * 40, args=RAW), 422, 'token id 64 at byte 0,'),
    (45, 'empty', data(b''), 421, 'the data file is empty'),
    (45, 'no token', data(llmc(count=0, ids=())), 421, 'holds no token'),
    (45, 'shorter than a sequence', data(llmc(count=8, ids=range(8))), 421,
     '8 tokens, fewer than one sequence of --seq-len 8 and its last target'),
    (45, 'as long as a sequence', data(llmc(count=9, ids=range(9))), None, 'trained 1 step'),
    (46, 'the other byte order', data(llmc()[3::-1], llmc()[4:]), 423, 'wrong endian'),
    (49, 'a FIFO', other_data(os.mkfifo), 420, 'not a regular file'),
    (49, 'a folder', other_data(os.mkdir), 420, 'not a regular file'),
    (49, '/dev/zero', lambda f: ['--data=/dev/zero', *RAW], 420, 'not a regular file'),
    (49, 'missing', lambda f: [f'--data={f.path("none.bin")}'], 420, 'No such file'),
]


# ---- the command line: 105, 302, 401 to 403 ----

def said(*args):
    return lambda f: args


def store(make):
    def apply(f):
        return [f'--store={make(f)}']
    return apply


def unwritable(f):
    os.mkdir(f.path('locked'))
    os.chmod(f.path('locked'), 0o500)
    return '/proc/store' if f.root else f.path('locked')


def own(make, *more, behind=''):
    """A store that keeps versions, of a name at which something was made."""
    def apply(f):
        path = f.path('own')
        make(path)
        return [f'--store={path}{behind}', '--durability=step', *more]
    return apply


def bad(make, behind=''):
    return own(make, '--quiet', behind=behind)


def folder(path, mode=0o755):
    os.mkdir(path)
    os.chmod(path, mode)


def link(path):
    folder(path + '.real', 0o700)
    os.symlink(path + '.real', path)


def holding(make, mode=0o700):
    """A folder with one thing of our name in it."""
    def apply(path):
        folder(path, mode)
        make(os.path.join(path, 'r00000.d0.blk.new'))
    return apply


def socket_at(path):
    at = os.getcwd()
    os.chdir(os.path.dirname(path))  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(os.path.basename(path))
    finally:
        os.chdir(at)


def file_at(path):
    with open(path, 'wb'):
        os.chmod(path, 0o600)


STORES = [
    (57, 'an empty folder of 0755', own(folder), None, 'trained 1 step'),
    (57, 'an empty folder of 0777', own(lambda path: folder(path, 0o777)), None, 'trained 1 step'),
    (57, 'with lost+found', own(lambda path: (folder(path), folder(path + '/lost+found', 0o700))),
     None, 'trained 1 step'),
    (57, 'a folder that others can enter, with a file', bad(holding(file_at, 0o755)), 610,
     r'mode 0755 and is not empty \(r00000.d0.blk.new is there\).*chmod 700'),
    (57, 'a link', bad(link), 610, 'is a symbolic link or no directory'),
    (57, 'a link and a slash', bad(link, behind='/'), 610, 'is a symbolic link or no directory'),
    (57, 'a link, slashes and dots', bad(link, behind='//./'), 610, 'is a symbolic link'),
    (57, 'with a FIFO', bad(holding(os.mkfifo)), 610, 'is a FIFO, where a store has a file'),
    (57, 'with a socket', bad(holding(socket_at)), 610, 'is a socket, where a store has a file'),
    (57, 'with a folder', bad(holding(os.mkdir)), 610, 'is a directory, where a store has a file'),
    (57, 'with a link', bad(holding(lambda path: os.symlink('/dev/null', path))), 610,
     'is a symbolic link: a store'),
    (57, "with somebody's FIFO", bad(lambda path: (folder(path, 0o700),
                                                   os.mkfifo(path + '/pipe'))), 616,
     "pipe is not a store's: a store has its directory to itself"),
]

COMMANDS = [
    (50, 'an unknown option', said('--wieght-decay=0'), 401, 'Did you mean --weight-decay'),
    (50, 'a key of another program', said('--zero-optimization=3'), 401, 'unknown option'),
    (51, 'a batch that does not divide', said('--batch-tokens=12'), 402,
     'not a multiple of --seq-len 8. Fix: --batch-tokens 8 or 16'),
    (52, 'NaN', said('--lr=nan'), 402, "got 'nan', want a number from 0 to 1"),
    (52, 'negative', said('--lr=-1'), 402, "got '-1', want a number from 0 to 1"),
    (52, '1e999', said('--lr=1e999'), 402, "got '1e999', want a number from 0 to 1"),
    (52, 'a beta of 1', said('--betas=0.9,1'), 402, 'each from 0 to below 1'),
    (54, '0', said('--dram=0'), 402, "got '0', want a size like"),
    (54, '2^63', said('--dram=9223372036854775808'), 402, 'out of range'),
    (54, '2GBB', said('--dram=2GBB'), 402, 'not understood'),
    (54, '2GB', said('--nvme=2GB'), 402, 'not understood'),
    (54, 'beyond a double', said('--nvme=1e400'), 402, 'out of range'),
    (56, 'wraps', said('--threads=4294967297'), 402, "got '4294967297', want a whole number"),
    (56, 'a sign', said('--threads=-5'), 402, "got '-5'"),
    (56, '0x', said('--threads=0x'), 402, "got '0x'"),
    (56, 'empty', said('--threads='), 402, "got ''"),
    (56, 'blanks', said('--threads= 4'), 402, "got ' 4'"),
    (57, 'no such folder above', store(lambda f: f.path('no', 'such')), 105,
     'no/such cannot be created'),
    (57, 'a file', store(lambda f: f.path('data.bin')), 105, 'data.bin is a file'),
    (57, 'not writable', store(unwritable), 105,
     '(store|locked\S*) (cannot be created|is not writable)'),
    (58, 'more than the machine has', said('--dram=4000T'), 302,
     '--dram is .*, but only .* are free'),
    (58, 'less than one step needs', said('--dram=64K'), 302,
     'the smallest needs .* of DRAM .*, the budget is'),
]

GROUPS = {
    'safetensors': SAFETENSORS + list(dtype_rows()),
    'index': INDEXES,
    'config': CONFIGS,
    'data': DATA,
    'command': COMMANDS,
    'store': STORES,
}

# Numbers that are tried elsewhere: a file of tests, and the test in it.
ELSEWHERE = {
    24: ('tools/hf/test_read.c', 'a_file_that_shrinks_or_changes_is_an_error_not_a_signal'),
    26: ('e2e/failures.py', 'test_weights_that_are_not_finite_stop_the_run_with_the_step_named'),
    47: ('hostile/hostile.py', 'test_other_data_than_the_store_was_trained_on'),
    53: ('tools/cli/ds_config.py', 'test_what_becomes_of_each_key_is_explained'),
    55: ('tools/cli/ds_config.py', 'test_a_text_that_is_no_hjson_is_refused_by_its_place'),
}
# And those that nothing here can meet, with the reason.
NOT_MET = {
    48: 'files with an index of documents are not read',
}
