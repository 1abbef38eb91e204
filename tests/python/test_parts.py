#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parts of prep that need no model: rows, places in them, control tokens, the token file.

    test_parts.py
"""
import json
import os
import signal
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import support  # noqa: E402

support.need()

import numpy  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.models import BPE  # noqa: E402

from hoistway import install, pool, prep, source, strict, tokenfile  # noqa: E402
from hoistway.calls import with_objects  # noqa: E402
from hoistway.control import Control  # noqa: E402
from hoistway.encode import token_at  # noqa: E402
from hoistway.errors import BadRow, Refusal, shown  # noqa: E402
from hoistway.locate import column_of  # noqa: E402
from hoistway.model import bytes_of_ids, identity, own_description  # noqa: E402
from hoistway.rows import Chat, Ids, Reading, Text, read  # noqa: E402


def said(user, answer):
    return [{'role': 'user', 'content': user}, {'role': 'assistant', 'content': answer}]


class Rows(unittest.TestCase):
    def assert_bad(self, row, words, path, **how):
        with self.assertRaises(BadRow) as caught:
            read(row, Reading(**how))
        self.assertIn(words, caught.exception.text)
        self.assertEqual(caught.exception.path, path)

    def test_rows_are_known_by_their_keys(self):
        call = [{'type': 'function', 'function': {'name': 'f', 'parameters': {}}}]
        for row, kind, what in (
                ({'messages': said('a', 'b')}, 'messages', Chat(said('a', 'b'))),
                ({'messages': said('a', 'b'), 'tools': call}, 'messages',
                 Chat(said('a', 'b'), call)),
                ({'messages': said('a', 'b'), 'tools': json.dumps(call)}, 'messages',
                 Chat(said('a', 'b'), call)),
                ({'conversations': [{'from': 'human', 'value': 'a'},
                                    {'from': 'gpt', 'value': 'b'}]}, 'sharegpt',
                 Chat(said('a', 'b'))),
                ({'conversations': said('a', 'b'), 'system': 'c'}, 'sharegpt',
                 Chat([{'role': 'system', 'content': 'c'}, *said('a', 'b')])),
                ({'prompt': 'a', 'completion': 'b'}, 'prompt', Chat(said('a', 'b'), None, 1)),
                ({'prompt': said('a', 'b')[:1], 'completion': said('a', 'b')[1:]}, 'prompt',
                 Chat(said('a', 'b'), None, 1)),
                ({'instruction': 'a', 'input': '', 'output': 'b'}, 'alpaca',
                 Chat(said('a', 'b'), None, 1)),
                ({'instruction': 'a', 'input': 'x', 'output': 'b', 'system': 'c'}, 'alpaca',
                 Chat([{'role': 'system', 'content': 'c'}, *said('a\nx', 'b')], None, 2)),
                ({'text': 'a'}, 'text', Text('a')),
                ({'input_ids': [1, 2], 'labels': [-100, 2]}, 'ids', Ids([1, 2], [0, 1])),
                ({'input_ids': [1, 2], 'mask': [0, 1]}, 'ids', Ids([1, 2], [0, 1])),
                ({'input_ids': [1, 2]}, 'ids', Ids([1, 2]))):
            self.assertEqual(read(row, Reading()), (kind, what), row)

    def test_plain_joins_prompt_and_answer_bare(self):
        plain = Reading(plain=True)
        self.assertEqual(read({'prompt': 'a ', 'completion': 'b'}, plain)[1], Text('a b', 2))
        self.assertEqual(read({'instruction': 'a', 'input': 'x', 'output': 'b'}, plain)[1],
                         Text('a\nx\nb', 4))
        self.assert_bad({'messages': said('a', 'b')}, 'messages need a template', ('messages',),
                        plain=True)
        self.assert_bad({'prompt': said('a', 'b')[:1], 'completion': []}, 'need a template',
                        ('prompt',), plain=True)

    def test_what_a_row_can_not_be_is_refused_with_its_place(self):
        self.assert_bad([], 'no JSON object', ())
        self.assert_bad({'txet': 'a'}, 'known are: messages', ('txet',))
        self.assert_bad({'prompt': 'a'}, 'known are: messages', ())
        self.assert_bad({'messages': said('a', 'b'), 'tools': '{'}, 'in the string "tools": broken',
                        ('tools',))
        self.assert_bad({'text': 'a', 'id': 3}, 'unknown key "id"', ('id',))
        self.assert_bad({'text': None}, '"text" is null', ('text',))
        self.assert_bad({'text': 'a', 'prompt': 'b', 'completion': 'c'}, 'prompt or text', ())
        self.assert_bad({'messages': []}, 'an empty one', ('messages',))
        self.assert_bad({'messages': [{'role': 'user', 'content': None}]}, 'content is null',
                        ('messages', 0, 'content'))
        self.assert_bad({'messages': [{'role': 'user'}]}, 'no content', ('messages', 0, 'content'))
        self.assert_bad({'messages': [{'role': 'usr', 'content': 'a'}]}, 'the role "usr"',
                        ('messages', 0, 'role'))
        self.assert_bad({'messages': [{'role': 'user', 'content': [{'type': 'image'}]}]},
                        'only text', ('messages', 0, 'content', 0))
        self.assert_bad({'conversations': [{'from': 'bot', 'value': 'a'}]}, '"from" is "bot"',
                        ('conversations', 0, 'from'))
        self.assert_bad({'input_ids': [1, 2], 'labels': [2]}, 'has 1 numbers', ('labels',))
        self.assert_bad({'input_ids': [1, 2], 'labels': [-100, 3]}, 'can be -100 or the token 2',
                        ('labels', 1))
        self.assert_bad({'input_ids': [1, True]}, 'no list of whole numbers', ('input_ids',))
        self.assert_bad({'input_ids': [1], 'mask': [2]}, 'can be 0 or 1', ('mask', 0))

    def test_keys_that_say_nothing_here_can_be_ignored_and_null_says_nothing(self):
        row = {'text': 'a', 'id': 3, 'messages': None}
        self.assert_bad(row, 'unknown key "id"', ('id',))
        self.assertEqual(read(row, Reading(ignored=frozenset(['id'])))[1], Text('a'))
        self.assertEqual(read({'text': 'a', 'prompt': 'b', 'completion': 'c'}, Reading(
            kind='text', ignored=frozenset(['prompt', 'completion'])))[1], Text('a'))

    def test_a_call_of_a_tool_needs_no_content(self):
        call = {'role': 'assistant', 'content': None, 'tool_calls': [{'function': {'name': 'f'}}]}
        chat = read({'messages': [said('a', 'b')[0], call]}, Reading())[1]
        self.assertEqual(chat.messages[1], {**call, 'content': ''})


    def test_each_message_knows_where_in_the_row_it_is(self):
        for row, places in (
                ({'messages': said('a', 'b')}, [('messages', 0), ('messages', 1)]),
                ({'conversations': said('a', 'b'), 'system': 'c'},
                 [('system',), ('conversations', 0), ('conversations', 1)]),
                ({'prompt': said('a', 'b')[:1], 'completion': said('a', 'b')[1:]},
                 [('prompt', 0), ('completion', 0)]),
                ({'prompt': 'a', 'completion': 'b'}, [('prompt',), ('completion',)]),
                ({'instruction': 'a', 'output': 'b', 'system': 'c'},
                 [('system',), ('instruction',), ('output',)])):
            chat = read(row, Reading())[1]
            self.assertEqual([chat.place(i) for i in range(len(chat.messages))], places)
        self.assertEqual(read({'text': 'a'}, Reading())[1].place, ('text',))
        self.assertEqual(read({'instruction': 'a', 'output': 'b'}, Reading(plain=True))[1].place,
                         ('output',))


def called(arguments):
    return {'messages': [{'role': 'assistant', 'content': '', 'tool_calls': [
        {'type': 'function', 'function': {'name': 'f', 'arguments': arguments}}]}]}


class Calls(unittest.TestCase):
    def test_arguments_that_are_an_object_in_a_string_become_the_object(self):
        for text, wanted in (('{"a": [1, "x"]}', {'a': [1, 'x']}), (' {} ', {}), ('', ''),
                             ('[1]', '[1]'), ('"{}"', '"{}"'), ('{"a": NaN}', '{"a": NaN}'),
                             ('{"a"', '{"a"'), ({'a': '{}'}, {'a': '{}'}), (None, None)):
            row = called(text)
            self.assertEqual(with_objects(row), called(wanted), text)
            self.assertEqual(row, called(text))  # which is left as it was
        bare = {'prompt': [{'tool_calls': [{'name': 'f', 'arguments': '{}'}, 3]}, 7],
                'completion': [{'tool_calls': {'arguments': '{}'}}], 'text': 'x'}
        found = with_objects(bare)
        self.assertEqual(found['prompt'][0]['tool_calls'], [{'name': 'f', 'arguments': {}}, 3])
        self.assertEqual({**found, 'prompt': 0}, {**bare, 'prompt': 0})

    def test_a_key_that_arguments_have_twice_is_refused(self):
        with self.assertRaises(BadRow) as caught:
            with_objects(called('{"a": 1, "a": 2}'))
        self.assertIn('the key "a" stands there twice', caught.exception.text)
        self.assertEqual(caught.exception.path,
                         ('messages', 0, 'tool_calls', 0, 'function', 'arguments'))


class Strict(unittest.TestCase):
    def assert_wrong(self, text, words, at):
        with self.assertRaises(strict.Wrong) as caught:
            strict.loads(text)
        self.assertIn(words, caught.exception.what)
        self.assertEqual(caught.exception.at, text.index(at) if isinstance(at, str) else at)

    def test_a_key_is_there_once(self):
        for text in ('{"a": 1, "b": {"a": [{"a": 1}, {"a": 2}]}}', '["a", "a", {"b": "b"}]',
                     '{"a": "a", "b": "a"}', '{"x": ["a", "x"], "a": {}}'):
            self.assertEqual(strict.loads(text), json.loads(text))
        self.assert_wrong('{"a": 1, "a": 2}', 'the key "a" stands there twice', 9)
        self.assert_wrong(r'{"a\"": [{"c": 1}], "b": {"c": "{", "\u0063" :2}}', 'the key "c"',
                          r'"\u')
        self.assert_wrong('{"a": [{"b": "}"}, {"b": 1, "a": "b", "b": 2}]', 'the key "b"', 38)
        self.assert_wrong('{"a": 1, "a": {"b": 1, "b": 2}}', 'the key "a"', 9)
        self.assert_wrong('{"b": ["a", "a", "a"], "c": 1, "c": 2}', 'the key "c"', 31)

    def test_what_is_no_json_is_told_where_it_stands(self):
        self.assert_wrong('{"a": "NaN", "b": [1, NaN]}', 'NaN is no JSON', 22)
        self.assert_wrong('{"a": -Infinity}', '-Infinity is no JSON', 6)
        self.assert_wrong('{"a": 1, "b": "x', 'broken JSON: Unterminated string', '"x')
        self.assert_wrong(f'[1, {"9" * 5000}, 12]', 'broken JSON: ', 4)
        self.assert_wrong('[' * 100000, 'broken JSON: ', 0)


class Interrupts(unittest.TestCase):
    def test_what_a_library_catches_is_not_forgotten(self):
        self.addCleanup(prep._ended_by.clear)
        prep.check_ended()
        for number, kind in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)):
            prep._ended_by.clear()
            try:
                prep.end(number, None)
            except kind:
                pass
            with self.assertRaises(kind):
                prep.check_ended()


class Packages(unittest.TestCase):
    def test_what_is_to_be_typed_is_what_there_is(self):
        self.assertEqual(install.how_to_install(), './run prep-install')
        self.assertEqual(install.how_to_install('datasets'), './run prep-install --datasets')
        here = install.__file__
        try:
            install.__file__ = '/usr/share/hoistway/python/hoistway/install.py'
            self.assertEqual(install.how_to_install('datasets'),
                             'python3 -m venv ENV && ENV/bin/pip '
                             "install 'transformers>=4.57' tokenizers jinja2 numpy datasets, and "
                             'then HOISTWAY_PYTHON=ENV/bin/python')
        finally:
            install.__file__ = here


class Places(unittest.TestCase):
    def test_a_column_is_where_the_value_begins(self):
        text = ' { "a" : [ 1 , {"b\\"":"x", "ü": null} ] , "c":2}'
        for path, value in ((('a', 0), '1'), (('a', 1, 'b"'), '"x"'), (('a', 1, 'ü'), 'null'),
                            (('c',), '2'), ((), '{ "a"')):
            self.assertTrue(text[column_of(text, path) - 1:].startswith(value), path)

    def test_of_what_is_not_there_it_is_what_should_hold_it(self):
        self.assertEqual(column_of('{"a": {"b": 1}}', ('a', 'x', 3)), 7)
        self.assertEqual(column_of('{"a": [1]}', ('a', 5)), 7)

    def test_others_text_can_not_forge_a_line(self):
        self.assertEqual(shown('a\nb\x1b\udcff'), 'a\\nb\\x1b\\udcff')


class ControlTokens(unittest.TestCase):
    def test_they_are_found_in_any_string_and_the_longest_is_named(self):
        control = Control(['<|a', '<|a|>', '[x]'])
        self.assertEqual(control.find({'k': ['', {'l': 'see <|a|>'}]}), (('k', 1, 'l'), '<|a|>'))
        self.assertIsNone(control.find({'k': ['<|b|>', 3, None], 'x': True}))
        self.assertEqual(control.find({'k': {'[x]': True}}), (('k', '[x]'), '[x]'))
        self.assertIsNone(Control([]).find('anything'))


class Boundaries(unittest.TestCase):
    def test_a_boundary_is_between_tokens_or_inside_one(self):
        starts, ends = [0, 2, 2, 3], [2, 3, 3, 7]  # the third character has two tokens
        self.assertEqual([token_at(starts, ends, at) for at in (0, 1, 2, 3, 4, 7)],
                         [0, -1, 1, 3, -1, 4])


class Sources(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = os.path.join(scratch.name, 'a.jsonl')

    def test_lines_come_in_chunks_with_their_numbers(self):
        with open(self.path, 'wb') as file:
            file.write(b'\xef\xbb\xbf{}\n\n' + b'{"a": 1}\n' * 3000 + b'{"b": 2}')
        chunks = list(source.chunks([self.path, self.path]))
        self.assertTrue(all(len(chunk.rows) <= source.CHUNK_ROWS for chunk in chunks))
        rows = [row for chunk in chunks for row in chunk.rows]
        self.assertEqual(len(rows), 2 * 3002)
        self.assertEqual(rows[:2], [(1, b'{}\n'), (3, b'{"a": 1}\n')])
        self.assertEqual(rows[3001], (3003, b'{"b": 2}'))

    def test_a_large_row_ends_its_chunk(self):
        with open(self.path, 'wb') as file:
            file.write(b'x' * source.CHUNK_BYTES + b'\ny\n')
        self.assertEqual([len(chunk.rows) for chunk in source.chunks([self.path])], [1, 1])


    def array(self, text):
        path = self.path.replace('.jsonl', '.json')
        with open(path, 'w', encoding='utf-8', newline='') as file:
            file.write(text)
        return [row for chunk in source.chunks([path]) for row in chunk.rows]

    def test_the_elements_of_an_array_are_rows(self):
        rows = [{'a': i, 'b': '[{"\n'} for i in range(3000)]
        rows += [{'long': 'x' * 5 * source.CHUNK_BYTES}]
        for text in (json.dumps(rows), json.dumps(rows, indent=2), ' \n' + json.dumps(rows) + '\n'):
            self.assertEqual([json.loads(row) for _, row in self.array(text)], rows)
        self.assertEqual(self.array('\ufeff[\n  {},\n\n  {"a":\n1}]'),
                         [(2, b'  {}'), (4, b'  {"a":\n1}')])
        self.assertEqual(self.array('[]'), [])

    def test_a_broken_array_is_told_with_its_place(self):
        for text, words in (('[{},\n {"a" 1}]', ":2:2: broken JSON: Expecting ':' delimiter"),
                            ('[{}\n {}]', ':2:2: broken JSON: one of , ] is expected'),
                            ('[{}, ', ':1:6: the array does not end'),
                            ('[{}]\n\n [', ':3:2: something stands behind the array')):
            with self.assertRaises(Refusal) as caught:
                self.array(text)
            self.assertIn(words, caught.exception.text)

    def test_what_is_null_in_a_table_is_not_there(self):
        self.assertEqual(source._without_null({'a': None, 'b': [{'c': None, 'd': [0, None]}]}),
                         {'b': [{'d': [0, None]}]})


def twice(number):
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


class Pools(unittest.TestCase):
    def test_results_come_in_order_and_little_is_read_ahead(self):
        asked = []

        def items():
            for i in range(100):
                asked.append(i)
                yield i
        for i, result in enumerate(pool.in_order(twice, items(), 2)):
            self.assertEqual(result, 2 * i)
            self.assertLessEqual(len(asked) - i, 2 * pool.AHEAD + 2)
        self.assertEqual(len(asked), 100)

    def test_a_process_that_is_killed_is_told(self):
        with self.assertRaises(Refusal) as caught:
            list(pool.in_order(twice, [1, -1, 2], 2))
        self.assertEqual(caught.exception.code, 428)


class Identity(unittest.TestCase):
    def test_it_is_what_decides_which_ids_a_text_has(self):
        def described(**more):
            return {'model': {'type': 'BPE', 'vocab': {'b': 1, 'a': 0}, 'merges': ['a b'], **more},
                    'added_tokens': [{'id': 2, 'content': 'c', 'special': True}]}
        same = described(vocab={'a': 0, 'b': 1}, merges=[['a', 'b']], dropout=None)
        self.assertEqual(identity(described()), identity({**same, 'version': '1.0', 'decoder': 3}))
        for other in (described(vocab={'a': 1, 'b': 0}), described(merges=[]),
                      {**same, 'normalizer': {'type': 'NFC'}}, {**same, 'added_tokens': []},
                      {**same, 'added_tokens': [{'id': 2, 'content': 'c', 'special': False}]},
                      {**same, 'pre_tokenizer': {'type': 'Whitespace'}}):
            self.assertNotEqual(identity(described()), identity(other))

    def test_a_fraction_is_what_the_file_has(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        found = []
        for text in ('2.50', '2.5', '"2.50"'):
            with open(os.path.join(folder.name, 'tokenizer.json'), 'w', encoding='ascii') as file:
                file.write(f'{{"normalizer": {{"x": {text}}}}}')
            found.append(identity(own_description(folder.name)))
        self.assertEqual(len(set(found)), 3)

    def test_ids_of_pieces_stand_for_their_bytes_and_others_are_not_known(self):
        vocab = {'<unk>': 0, '▁a': 1, '<0xE2>': 2, 'é': 3, '<0xZZ>': 4}
        backend = Tokenizer(BPE(vocab, [], unk_token='<unk>'))
        backend.add_special_tokens(['▁s'])
        pieces = {'decoder': {'type': 'Sequence', 'decoders': [{'type': 'ByteFallback'}]}}
        self.assertEqual(bytes_of_ids(pieces, backend, 7), [
            b'<unk>', b' a', b'\xe2', 'é'.encode(), b'<0xZZ>', '▁s'.encode(), b''])
        self.assertIsNone(bytes_of_ids({'decoder': {'type': 'WordPiece'}}, backend, 7))


class TokenFiles(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.path = os.path.join(scratch.name, 'a.safetensors')

    def write(self, ids, *calls, table=None):
        with tokenfile.TokenFile(self.path, ids) as file:
            for tokens, mask, lengths in calls:
                file.add(numpy.array(tokens, numpy.uint32), None if mask is None else
                         numpy.array(mask, numpy.uint8), numpy.array(lengths))
            if table:
                file.add_table('bytes', 'byte_offsets', [list(text) for text in table], 'u1')
            file.finish({'sources': '[]'})
        return support.read_tokens(self.path)

    def test_what_is_written_is_what_is_read(self):
        parts, metadata = self.write(1 << 16, ([1, 2, 65535], None, [1, 2]), ([4, 5], [0, 1], [2]),
                                     ([6], None, [1]), table=[b'a', b'', b'bcd'])
        self.assertEqual(metadata, {'format': 'hoistway.tokens.1', 'sources': '[]'})
        self.assertEqual(parts, {'tokens': [1, 2, 65535, 4, 5, 6], 'documents': [0, 1, 3, 5, 6],
                                 'mask': [1, 1, 1, 0, 1, 1], 'bytes': list(b'abcd'),
                                 'byte_offsets': [0, 1, 1, 4]})
        with open(self.path, 'rb') as file:
            (length,) = struct.unpack('<Q', file.read(8))
            self.assertIn(b'"dtype":"U16"', file.read(length))
        self.assertEqual(os.listdir(self.folder), ['a.safetensors'])
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        self.assertTrue(tokenfile.is_token_file(self.path))

    def test_more_ids_have_32_bits_and_a_file_without_a_mask_has_none(self):
        parts, _ = self.write((1 << 16) + 1, ([1, 65536], None, [2]))
        self.assertEqual(parts, {'tokens': [1, 65536], 'documents': [0, 2]})

    def test_the_package_safetensors_reads_it(self):
        if support.missing(['safetensors']):
            self.skipTest('safetensors is not installed')
        from safetensors import safe_open
        parts, metadata = self.write(1 << 16, ([1, 2, 3], [0, 1, 1], [3]))
        with safe_open(self.path, 'numpy') as file:
            self.assertEqual(file.metadata(), metadata)
            self.assertEqual({name: file.get_tensor(name).tolist() for name in file.keys()}, parts)

    def test_a_file_of_somebody_else_is_left_alone(self):
        theirs = f'{self.path}.partial-{os.getpid()}'
        with open(theirs, 'w', encoding='ascii') as file:
            file.write('theirs')
        self.write(9, ([1, 2], None, [2]))
        with open(theirs, encoding='ascii') as file:
            self.assertEqual(file.read(), 'theirs')
        self.assertEqual(len(os.listdir(self.folder)), 2)

    def test_where_it_can_not_be_finished_nothing_is_left(self):
        os.mkdir(self.path)
        with self.assertRaises(Refusal) as caught:
            self.write(9, ([1, 2], None, [2]))
        self.assertEqual(caught.exception.code, 107)
        self.assertEqual(os.listdir(self.folder), ['a.safetensors'])

    def test_a_folder_that_can_not_be_written_is_told(self):
        with self.assertRaises(Refusal) as caught:
            tokenfile.TokenFile(os.path.join(self.folder, 'none', 'a.safetensors'), 9)
        self.assertEqual(caught.exception.code, 107)


if __name__ == '__main__':
    unittest.main()
