#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token files and JSONL, by the program: what it tells of them, what it refuses and in which words,
and that a model learns the same from the same tokens whatever holds them.

    token_files.py PATH_OF_HOISTWAY
"""
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest
from collections import Counter

PROGRAM = os.path.abspath(sys.argv.pop(1))
FORMAT = {'format': 'hoistway.tokens.1'}
LETTERS = {'U32': 'I', 'U16': 'H', 'U8': 'B', 'I64': 'q', 'U64': 'Q', 'F32': 'f'}
CONFIG = {
    'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu',
    'hidden_size': 8, 'intermediate_size': 8, 'num_hidden_layers': 1, 'num_attention_heads': 2,
    'num_key_value_heads': 2, 'vocab_size': 300, 'max_position_embeddings': 4096,
    'rms_norm_eps': 1e-5, 'rope_theta': 10000.0, 'tie_word_embeddings': True,
}  # fmt: skip


def token_file(metadata=None, **tensors):
    """The bytes of a file whose tensors are {name: (dtype, values)}."""
    header, data = {'__metadata__': FORMAT if metadata is None else metadata}, b''
    for name, (dtype, values) in tensors.items():
        packed = struct.pack(f'<{len(values)}{LETTERS[dtype]}', *values)
        header[name] = {'dtype': dtype, 'shape': [len(values)],
                        'data_offsets': [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    return struct.pack('<Q', len(text)) + text + data


def starts(documents):
    offsets = [0]
    for document in documents:
        offsets.append(offsets[-1] + len(document))
    return offsets


def draw(seed):
    """Documents, and of each of their tokens whether it is learned: at least one of the targets."""
    rng = random.Random(seed)
    documents = [[rng.randrange(300) for _ in range(rng.randrange(2, 90))] for _ in range(60)]
    masks = [[rng.randrange(2) for _ in d] for d in documents]
    for mask in masks:
        mask[-1] = 1
    return documents, masks


TEN = ('U32', list(range(10)))
# name, the file, the code, the words
BAD_FILES = (
    ('no metadata', token_file({'a': 'b'}, tokens=TEN), 423, 'no token file: its __metadata__ '),
    ('another version', token_file({'format': 'hoistway.tokens.2'}, tokens=TEN), 423,
     'of format "hoistway.tokens.2", only hoistway.tokens.1 can be read'),
    ('cut off', token_file(tokens=TEN)[:-1], 423, 'bytes of data'),
    ('no tokens', token_file(mask=('U8', [1])), 423, 'there is no tensor tokens'),
    ('none of tokens', token_file(tokens=('U32', [])), 421, 'the data file holds no token'),
    ('unknown tensor', token_file(tokens=TEN, masks=('U8', [1])), 423,
     'tensor masks is not known in a token file; known: tokens mask documents bytes byte_offsets '
     'prompts prompt_offsets'),
    ('type', token_file(tokens=('F32', [1.0])), 423, 'tensor tokens is F32, want U32 or U16'),
    ('type of mask', token_file(tokens=TEN, mask=('U16', [1] * 10)), 423,
     'tensor mask is U16, want U8'),
    ('shape', token_file(tokens=TEN).replace(b'"shape": [10]', b'"shape":[2,5]'), 423,
     'tensor tokens has 2 dimensions, want 1'),
    ('length of mask', token_file(tokens=TEN, mask=('U8', [1] * 9)), 423,
     'mask has 9 values, and there are 10 tokens'),
    ('mask', token_file(tokens=TEN, mask=('U8', [1] * 7 + [2, 1, 1])), 423,
     'mask[7] is 2, want 0 or 1'),
    ('one offset', token_file(tokens=TEN, documents=('I64', [0])), 423, 'documents has 1 values'),
    ('begin', token_file(tokens=TEN, documents=('I64', [1, 10])), 423,
     'documents begins with 1, want 0'),
    ('beyond', token_file(tokens=TEN, documents=('U64', [0, 1 << 63, 10])), 423,
     'documents[1] is 9223372036854775808, beyond the last of 10'),
    ('negative', token_file(tokens=TEN, documents=('I64', [0, -1, 10])), 423,
     'documents[1] is 18446744073709551615, beyond'),
    ('falling', token_file(tokens=TEN, documents=('U64', [0, 6, 4, 10])), 423,
     'documents[2] is 4 behind 6, they have to rise'),
    ('an empty document', token_file(tokens=TEN, documents=('U64', [0, 6, 6, 10])), 423,
     'documents[2] is 6 behind 6'),
    ('the end', token_file(tokens=TEN, documents=('U64', [0, 6, 9])), 423,
     'documents ends with 9, and there are 10'),
    ('one token', token_file(tokens=TEN, documents=('U64', [0, 6, 7, 10])), 421,
     'document 1 has 1 token, and no target'),
    ('a document of no target',
     token_file(tokens=TEN, documents=('U64', [0, 6, 10]), mask=('U8', [1] * 7 + [0] * 3)), 421,
     'document 1 has no target: its mask learns none'),
    ('nothing to learn', token_file(tokens=TEN, mask=('U8', [1] + [0] * 9)), 421,
     'there is nothing to learn'),
    ('bytes alone', token_file(tokens=TEN, bytes=('U8', [1])), 423,
     'there is a tensor bytes, and no tensor byte_offsets'),
    ('bytes', token_file(tokens=TEN, bytes=('U8', [1]), byte_offsets=('U64', [0, 1, 0, 1])), 423,
     'byte_offsets[2] is 0 behind 1'),
    ('prompts', token_file(tokens=TEN, prompts=('U32', [1]), prompt_offsets=('U64', [0, 0, 1])),
     423, 'prompt_offsets[1] is 0 behind 0'),
)  # fmt: skip
BAD_ROWS = (
    ('', 421, 'the data file is empty'),
    ('\n \n', 421, 'the data file holds no token'),
    ('{"input_ids":[1,2]}\n{"input_ids":[1,2}\n', 423, 'x.jsonl:2:18: the row has something '),
    ('{"input_ids":[1,2]} {}', 423, 'x.jsonl:1:21: the row has something after the end'),
    ('{"input_ids":[1,2]', 423, 'x.jsonl:1:19: the row has its end, too early'),
    ('[1,2]', 423, 'x.jsonl:1:1: the row is no object'),
    ('{"input_ids":[1,2],"\xff":1}', 423, 'x.jsonl:1:21: the row has bytes that are not UTF-8'),
    ('\xff\xfe{\0', 423, 'x.jsonl:1:1: the row has bytes that are not UTF-8'),
    ('{"text":"a"}', 423, 'x.jsonl:1:2: unknown key "text"; known: input_ids, and labels or mask'),
    ('{"labels":[1,2]}', 423, 'x.jsonl:1:1: the row has no input_ids'),
    ('{"input_ids":[1,2],"input_ids":[1,2]}', 423, 'x.jsonl:1:20: input_ids stands there twice'),
    ('{"mask":[1],"input_ids":[1,2],"mask":[1]}', 423, 'x.jsonl:1:31: mask stands there twice'),
    ('{"mask":[1,1],"labels":[1,2],"input_ids":[1,2]}', 423,
     'x.jsonl:1:15: the row has both labels and mask'),
    ('{"input_ids":null}', 423, 'x.jsonl:1:14: input_ids is no array'),
    ('{"input_ids":[1,-2]}', 423, 'x.jsonl:1:17: input_ids holds -2, want whole numbers'),
    ('{"input_ids":[1,"2"]}', 423, 'x.jsonl:1:17: input_ids holds "2", want'),
    ('{"input_ids":[1,4294967296]}', 423, 'x.jsonl:1:17: input_ids holds 4294967296'),
    ('{"input_ids":[1,[2]]}', 423, 'x.jsonl:1:17: input_ids holds [, want'),
    ('{"input_ids":[1,2],"mask":[0,2]}', 423, 'x.jsonl:1:30: mask holds 2, want 0 or 1'),
    ('{"input_ids":[1,2],"mask":[1]}', 423, 'x.jsonl:1:27: mask has 1 values, and input_ids 2'),
    ('{"input_ids":[1,2],"labels":[1,2,3]}', 423, 'x.jsonl:1:29: labels has 3 values'),
    ('{"input_ids":[1,2],"labels":[1,-1]}', 423, 'x.jsonl:1:32: labels holds -1, want the token'),
    ('{"input_ids":[1,2],"labels":[-100,3]}', 423,
     'x.jsonl:1:29: labels[1] is 3, and input_ids[1] is 2: want the same or -100'),
    ('{"input_ids":[1]}', 421, 'x.jsonl:1:14: a document of 1 token has no target'),
    ('{"input_ids":[]}', 421, 'x.jsonl:1:14: a document of 0 tokens has no target'),
    ('{"input_ids":[1,2],"mask":[1,0]}', 421, 'x.jsonl:1:27: the document has no target: mask'),
    ('{"input_ids":[1,2],"labels":[1,-100]}', 421, 'x.jsonl:1:29: the document has no target: la'),
)  # fmt: skip


def pieces(documents, masks, length):
    """(inputs, targets) of each piece of the documents, split into rows of that length."""
    for ids, mask in zip(documents, masks):
        for at in range(0, len(ids) - 1, length):
            end = min(at + length, len(ids) - 1)
            yield (tuple(ids[at:end]),
                   tuple(ids[i + 1] if mask[i + 1] else None for i in range(at, end)))


def segments(row, length):
    """The pieces that a row shows; what is behind them has to be padding."""
    at = 0
    while at < length and not (row['inputs'][at] == 0 and row['targets'][at] is None and
                               row['first'][at:] == list(range(at, length))):
        end = at + row['first'][at:].count(at)
        assert row['first'][at:end] == [at] * (end - at) and end > at
        assert row['position'][at:end] == list(range(end - at))
        yield tuple(row['inputs'][at:end]), tuple(row['targets'][at:end])
        at = end
    padding = length - at
    assert row['inputs'][at:] == row['position'][at:] == [0] * padding
    assert row['targets'][at:] == [None] * padding


class TokenFiles(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        os.mkdir(os.path.join(self.folder, 'DIR'))
        self.put('DIR/config.json', json.dumps(CONFIG).encode())

    def put(self, name, content):
        with open(os.path.join(self.folder, name), 'wb') as file:
            file.write(content)
        return name

    def run_here(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], capture_output=True, timeout=60, check=False,
                              cwd=self.folder, text=True)

    def look(self, name, *arguments):
        done = self.run_here('inspect', name, '--json', *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return json.loads(done.stdout)

    def train(self, data, *arguments):
        return self.run_here(
            'train', '--model', 'DIR', '--init', 'random', '--data', data, '--store', 'S',
            '--steps', '3', '--seq-len', '16', '--batch-tokens', '64', '--device', 'host',
            '--threads', '1', '--durability', 'none', '--log', 'log', *arguments)  # fmt: skip

    def losses(self):
        with open(os.path.join(self.folder, 'log'), encoding='ascii') as log:
            return re.findall(r'"loss":[^,]*,"grad_norm":[^,]*', log.read())

    def assert_refused(self, done, code, words):
        self.assertIn(words, done.stderr)
        self.assertRegex(done.stderr, rf'^error\[E{code}\] (x\.|--)')
        self.assertIn('. Fix: ', done.stderr)
        self.assertEqual(done.stderr.count('\n'), 1)

    def test_what_a_file_holds_is_told(self):
        for seed, (width, offset) in enumerate((('U16', 'I64'), ('U32', 'U64'))):
            documents, masks = draw(seed)
            flat, mask = sum(documents, []), sum(masks, [])
            hidden = sum(not learned for m in masks for learned in m[1:])
            self.put('x.safetensors', token_file(
                {**FORMAT, 'sources': 'a\n"b"'}, tokens=(width, flat), mask=('U8', mask),
                documents=(offset, starts(documents)), bytes=('U8', b'abc'),
                byte_offsets=('U64', [0, 0, 2, 3]), prompts=('U32', [4, 5]),
                prompt_offsets=('U64', [0, 2])))
            self.put('x.jsonl', b''.join(
                json.dumps({'input_ids': d, 'mask': m}).encode() + b'\n'
                for d, m in zip(documents, masks)))
            for name in ('x.safetensors', 'x.jsonl'):
                told = self.look(name)
                self.assertEqual(
                    [told[key] for key in ('kind', 'tokens', 'documents', 'longest', 'masked',
                                           'targets', 'learned')],
                    ['tokens', len(flat), 60, max(map(len, documents)), True, len(flat) - 60,
                     len(flat) - 60 - hidden])  # fmt: skip
            self.assertEqual(self.look('x.safetensors')['metadata'],
                             {**FORMAT, 'sources': 'a\n"b"'})
            told = self.run_here('inspect', 'x.safetensors').stdout
            self.assertIn(f'{len(flat)} tokens, {width.lower()} in safetensors\n', told)
            self.assertIn('what 3 ids stand for', told)
            self.assertIn('  1 prompt\n', told)
            self.assertNotIn('\n"b"', told)

    def test_rows_of_packed_documents_are_told(self):
        documents, masks = draw(5)
        self.put('x.safetensors', token_file(
            tokens=('U32', sum(documents, [])), documents=('U64', starts(documents))))
        self.put('x.jsonl', b''.join(json.dumps({'input_ids': d, 'mask': m}).encode() + b'\n'
                                     for d, m in zip(documents, masks)))
        inputs = sum(len(d) - 1 for d in documents)
        longer = [len(d) - 1 for d in documents if len(d) - 1 > 50]
        lost = {'split': 0, 'drop': sum(longer), 'cut': sum(longer) - 50 * len(longer)}
        for how, missing in lost.items():
            told = self.look('x.safetensors', '--seq-len', '50', '--long', how)['packing']
            self.assertEqual((told['long_documents'], told['lost_inputs']), (len(longer), missing))
            self.assertAlmostEqual(told['fill'] * told['rows'] * 50, inputs - missing, delta=1e-3)
            self.assertGreater(told['fill'], 0.9)
        self.assertEqual(self.look('x.safetensors', '--seq-len', '50')['packing']['lost_inputs'], 0)
        told = self.look('x.jsonl', '--seq-len', '90', '--pack', 'off')['packing']
        self.assertEqual((told['rows'], told['pieces']), (60, 60))
        first = next(i for i, d in enumerate(documents) if len(d) - 1 > 50)
        self.assert_refused(self.run_here('inspect', 'x.jsonl', '--seq-len', '50'), 402,
                            f'document {first} has {len(documents[first]) - 1} inputs, more than')
        done = self.run_here('inspect', 'x.jsonl', '--long', 'cut')
        self.assertIn('error[E402] --long says how documents become rows', done.stderr)

    def test_rows_without_a_target_are_told_and_not_counted(self):
        self.put('x.jsonl', json.dumps({'input_ids': [1] * 41, 'mask': [0] * 40 + [1]}).encode())
        options = ('--seq-len', '10', '--long', 'split')
        told = self.look('x.jsonl', *options)['packing']
        self.assertEqual((told['rows'], told['pieces'], told['idle_rows'], told['fill']),
                         (1, 1, 3, 1))
        self.assertIn('  3 more rows have no target: train leaves them out\n',
                      self.run_here('inspect', 'x.jsonl', *options).stdout)

    def test_a_row_shows_what_a_model_is_given(self):
        """Each piece once, targets by the mask and never of another document."""
        documents, masks = draw(11)
        documents, masks = documents[:25], masks[:25]
        self.put('x.safetensors', token_file(
            tokens=('U16', sum(documents, [])), documents=('U64', starts(documents)),
            mask=('U8', sum(masks, []))))
        self.put('x.jsonl', b''.join(json.dumps({'mask': m, 'input_ids': d}).encode() + b'\n'
                                     for d, m in zip(documents, masks)))
        whole = [[1] * len(d) for d in documents]
        self.put('y.jsonl', b''.join(json.dumps({'input_ids': d}).encode() + b'\n'
                                     for d in documents))
        for name, learned in (('x.safetensors', masks), ('x.jsonl', masks), ('y.jsonl', whole)):
            options = ('--seq-len', '50', '--long', 'split')
            found = []
            for number in range(1, self.look(name, *options)['packing']['rows'] + 1):
                row = self.look(name, *options, '--row', str(number))['row']
                found += segments(row, 50)
            self.assertEqual(Counter(found), Counter(pieces(documents, learned, 50)))
            told = self.run_here('inspect', name, *options, '--row', '1').stdout
            self.assertRegex(told, r'\n  row 1: \d pieces?\n    document \d+, \d+ inputs from ')
        done = self.run_here('inspect', 'x.jsonl', *options, '--row', str(number + 1))
        self.assert_refused(done, 402, f'--row {number + 1}, and there are {number}')

    def test_the_greatest_id_is_told_from_no_target(self):
        most = (1 << 32) - 1
        self.put('x.jsonl', json.dumps({'input_ids': [most, most, 7, most, 8],
                                        'mask': [0, 1, 1, 0, 1]}).encode())
        row = self.look('x.jsonl', '--seq-len', '6', '--row', '1')['row']
        self.assertEqual(row['inputs'], [most, most, 7, most, 0, 0])
        self.assertEqual(row['targets'], [most, 7, None, 8, None, None])
        self.assertIn('4 inputs from token 0 on in column 0, 3 learned', self.run_here(
            'inspect', 'x.jsonl', '--seq-len', '6', '--row', '1').stdout)

    def test_bad_token_files_are_refused(self):
        for name, content, code, words in BAD_FILES:
            with self.subTest(name):
                self.put('x.safetensors', content)
                self.assert_refused(self.train('x.safetensors'), code, words)
                if 'metadata' not in name and 'cut' not in name:  # else it is no token file
                    self.assert_refused(self.run_here('inspect', 'x.safetensors'), code, words)
        self.put('x.safetensors', token_file(
            tokens=('U32', [299, 300] * 40), prompts=('U32', [7]), prompt_offsets=('U64', [0, 1])))
        self.assert_refused(self.train('x.safetensors'), 422, 'token id 300 at byte ')
        self.put('x.safetensors', token_file(
            tokens=('U32', [1] * 40), prompts=('U32', [300]), prompt_offsets=('U64', [0, 1])))
        self.assert_refused(self.train('x.safetensors'), 422, 'prompts[0] is the id 300, but ')
        self.assert_refused(self.train('x.safetensors', '--token-dtype', 'u32'), 423, 'their own')

    def test_bad_rows_are_refused_with_their_place(self):
        for content, code, words in BAD_ROWS:
            with self.subTest(content):
                self.put('x.jsonl', content.encode('latin-1'))
                self.assert_refused(self.train('x.jsonl'), code, words)
                self.assert_refused(self.run_here('inspect', 'x.jsonl'), code, words)
        self.put('x.jsonl', b'{"input_ids":[1,2]}\n{"input_ids":[ 299,300]}')
        self.assert_refused(self.train('x.jsonl'), 422,
                            'x.jsonl:2:20: token id 300, but the vocabulary of the model has 300')
        self.assert_refused(self.train('x.jsonl', '--token-dtype', 'u16'), 402, 'go with JSONL')

    def test_the_same_tokens_are_learned_whatever_holds_them(self):
        documents, _ = draw(9)
        flat, at = sum(documents, []), starts(documents)
        rows = [json.dumps({'input_ids': d, 'labels': [-100] + d[1:]}) for d in documents]
        self.put('raw.bin', struct.pack(f'<{len(flat)}I', *flat))
        self.put('plain.safetensors', token_file(tokens=('U16', flat)))
        self.put('x.safetensors', token_file(documents=('U64', at), tokens=('U32', flat),
                                             mask=('U8', [1] * len(flat))))
        self.put('named.tokens', token_file(tokens=('U32', flat)))
        self.put('x.jsonl', '\n'.join(rows).encode())
        self.put('named.rows', '\n'.join(rows).encode())
        split = ('--long', 'split')
        losses = {}
        for data, *arguments in (('raw.bin', '--token-dtype', 'u32'), ('plain.safetensors',),
                                 ('named.tokens', '--data-format', 'tokens'),
                                 ('x.safetensors', *split), ('x.jsonl', *split),
                                 ('named.rows', '--data-format', 'jsonl', *split)):
            done = self.train(data, *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            packed = split[0] in arguments
            self.assertEqual('note[I423] 60 documents are packed into ' in done.stderr, packed)
            losses[data] = (packed, self.losses())
        for data, (packed, lines) in losses.items():
            self.assertEqual(len(lines), 3)
            self.assertEqual(lines, losses['x.jsonl' if packed else 'raw.bin'][1], data)
        self.assertNotEqual(losses['x.jsonl'][1], losses['raw.bin'][1])

    def test_a_mask_alone_leaves_targets_out(self):
        """Of a file without documents: its sequences are what they were."""
        documents, masks = draw(9)
        flat, mask = sum(documents, []), sum(masks, [])
        losses = {}
        for name, learned in (('none', None), ('all', [1] * len(flat)), ('some', mask)):
            given = {} if learned is None else {'mask': ('U8', learned)}
            self.put('x.safetensors', token_file(tokens=('U32', flat), **given))
            done = self.train('x.safetensors')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual('I423' in done.stderr, name == 'some')
            losses[name] = self.losses()
        self.assertEqual(losses['all'], losses['none'])
        self.assertNotEqual(losses['some'], losses['none'])


if __name__ == '__main__':
    unittest.main()
