#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hoistway prep as a whole: rows to a token file, and what it refuses.

    test_prep.py PATH_OF_HOISTWAY
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import support  # noqa: E402

support.need()

from hoistway import model as models  # noqa: E402

PROGRAM = sys.argv.pop(1)
CHAT = [{'role': 'user', 'content': 'Where do the weights live?'},
        {'role': 'assistant', 'content': 'In files on a drive.'},
        {'role': 'user', 'content': 'And the gradients?'},
        {'role': 'assistant', 'content': 'In memory.'}]


LLAMA = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu',
         'hidden_size': 8, 'intermediate_size': 8, 'num_hidden_layers': 1, 'num_attention_heads': 2,
         'num_key_value_heads': 2, 'max_position_embeddings': 4096, 'rms_norm_eps': 1e-5,
         'rope_theta': 10000.0, 'tie_word_embeddings': True}


def children(pid):
    with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as file:
        return file.read().split()


class Prep(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = scratch.name
        cls.model = os.path.join(cls.folder, 'model')
        cls.tok = support.model(cls.model)
        cls.eos = cls.tok.eos_token_id
        models.load(cls.model)  # what it imports need not be imported in each fork

    def setUp(self):
        self.out = os.path.join(self.folder, f'{self.id()}.safetensors')

    def rows(self, *rows, name='rows.jsonl'):
        return support.write_rows(os.path.join(self.folder, name), rows)

    def words(self, data, *more, model=None):
        return ['--model', model or self.model, '--data', data, '--out', self.out, '--processes',
                '2', *more]

    def prep(self, data, *more, **how):
        return support.prep(*self.words(data, *more, **how))

    def good(self, data, *more, **how):
        done = self.prep(data, *more, **how)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.told = done
        self.parts, self.metadata = support.read_tokens(self.out)
        return support.documents(self.parts)

    def refused(self, data, code, *words, more=(), status=1, **how):
        done = self.prep(data, *more, **how)
        self.assertEqual(done.returncode, status, done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith(f'error[E{code}] '), lines[0])
        for word in words:
            self.assertIn(word, lines[0])
        self.assertFalse(os.path.exists(self.out))
        self.assertEqual([name for name in os.listdir(self.folder) if 'partial' in name], [])

    # ---- text ------------------------------------------------------------------------------------

    def test_each_text_is_a_document_that_ends_with_eos(self):
        texts = ['One.', 'Zwei: ü, 🙂 and \u2028.', 'three ' * 3000]
        found = self.good(self.rows(*({'text': text} for text in texts)))
        self.assertEqual([ids for ids, _ in found],
                         [self.tok(text)['input_ids'] + [self.eos] for text in texts])
        self.assertNotIn('mask', self.parts)
        without = self.good(self.rows(*({'text': text} for text in texts)), '--no-eos')
        self.assertEqual([ids + [self.eos] for ids, _ in without], [ids for ids, _ in found])

    def test_what_an_id_stands_for_is_in_the_file(self):
        ((ids, _),) = self.good(self.rows({'text': 'Zwei: ü and 🙂'}))
        at, text = self.parts['byte_offsets'], bytes(self.parts['bytes'])
        self.assertEqual(len(at), len(self.tok) + 1)
        self.assertEqual(b''.join(text[at[i]:at[i + 1]] for i in ids).decode(),
                         'Zwei: ü and 🙂<|endoftext|>')

    def test_any_number_of_processes_writes_the_same_bytes(self):
        rows = [{'text': f'{i} ' * (i % 97 + 1)} for i in range(5000)]
        rows[4000] = {'messages': CHAT}
        data = self.rows(*rows)
        self.good(data, '--processes', '1')
        with open(self.out, 'rb') as file:
            one = file.read()
        found = self.good(data, '--processes', '3')
        with open(self.out, 'rb') as file:
            self.assertEqual(file.read(), one)
        self.assertEqual(len(found), 5000)
        self.assertEqual(found[3999][1], [1] * len(found[3999][0]))
        self.assertIn(0, found[4000][1])

    def test_metadata_says_what_it_was_made_of(self):
        data = self.rows({'text': 'a b'})
        self.good(data, '--ignore-keys', 'id')
        self.assertEqual(self.metadata['format'], 'hoistway.tokens.1')
        self.assertEqual(json.loads(self.metadata['sources']),
                         [{'name': 'rows.jsonl', 'bytes': os.path.getsize(data)}])
        self.assertEqual(json.loads(self.metadata['options'])['ignore_keys'], 'id')
        for key in ('tokenizer_sha256', 'tokenizer_identity', 'template_sha256'):
            self.assertRegex(self.metadata[key], '^[0-9a-f]{64}$')

    def test_several_files_are_read_in_their_order(self):
        first, second = (self.rows({'text': text}, name=f'{text}.jsonl') for text in 'ab')
        found = self.good(f'{second},{first}')
        self.assertEqual([self.tok.decode(ids[:-1]) for ids, _ in found], ['b', 'a'])

    def test_the_program_itself_writes_the_same_bytes_in_a_fresh_process(self):
        data = self.rows({'text': 'a b'}, {'messages': CHAT})
        self.good(data)
        with open(self.out, 'rb') as file:
            here = file.read()
        done = subprocess.run([PROGRAM, 'prep', *self.words(data)], capture_output=True, text=True,
                              env={**os.environ, 'HOISTWAY_PYTHON': sys.executable}, check=True)
        self.assertIn('2 documents of 2 rows', done.stdout)
        self.assertEqual(done.stderr, '')
        with open(self.out, 'rb') as file:
            self.assertEqual(file.read(), here)

    def test_a_model_of_hugging_faces_cache_is_found_by_its_name(self):
        repo = os.path.join(self.folder, 'home', 'hub', 'models--of--somebody')
        os.makedirs(os.path.join(repo, 'refs'))
        os.makedirs(os.path.join(repo, 'snapshots'))
        os.symlink(self.model, os.path.join(repo, 'snapshots', '0' * 40))
        with open(os.path.join(repo, 'refs', 'main'), 'w', encoding='ascii') as file:
            file.write('0' * 40)
        data = self.rows({'messages': CHAT})
        wanted = self.good(data)
        done = subprocess.run([PROGRAM, 'prep', *self.words(data, model='of/somebody')],
                              capture_output=True, text=True, check=False, env={
                                  **os.environ, 'HOISTWAY_PYTHON': sys.executable,
                                  'HF_HOME': os.path.join(self.folder, 'home')})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(support.documents(support.read_tokens(self.out)[0]), wanted)

    def test_an_interrupt_leaves_nothing(self):
        data = self.rows(*({'text': 'the weights and the gradients ' * 100} for _ in range(20000)))
        folder = os.path.join(self.folder, 'out')
        os.mkdir(folder)
        self.out = os.path.join(folder, 'a.safetensors')
        around = {**os.environ, 'HOISTWAY_PYTHON': sys.executable}
        with subprocess.Popen([PROGRAM, 'prep', *self.words(data)], stderr=subprocess.PIPE,
                              text=True, env=around) as run:
            while not children(run.pid):
                self.assertIsNone(run.poll(), 'it ended before it was interrupted')
                time.sleep(0.01)
            run.send_signal(signal.SIGINT)
            self.assertEqual(run.stderr.read(), 'prep: interrupted; nothing was written\n')
        self.assertEqual(run.returncode, 130)
        self.assertEqual(os.listdir(folder), [])

    # ---- chats -----------------------------------------------------------------------------------

    def test_assistant_turns_of_a_chat_are_learned(self):
        ((ids, mask),) = self.good(self.rows({'messages': CHAT}))
        self.assertEqual(ids, self.tok.apply_chat_template(CHAT, tokenize=True,
                                                           return_dict=True)['input_ids'])
        self.assertEqual(support.learned(self.parts, self.tok),
                         [['In files on a drive.<|im_end|>\n', 'In memory.<|im_end|>\n']])
        self.assertEqual(mask[0], 0)

    def test_what_is_learned_can_be_chosen(self):
        data = self.rows({'messages': CHAT})
        for learn, texts in (('last', [['In memory.<|im_end|>\n']]),
                             ('completion', [['In memory.<|im_end|>\n']])):
            self.good(data, '--learn', learn)
            self.assertEqual(support.learned(self.parts, self.tok), texts)
        self.good(data, '--learn', 'all')
        self.assertNotIn('mask', self.parts)

    def test_of_prompt_and_completion_the_completion_is_learned(self):
        rows = self.rows({'prompt': CHAT[:3], 'completion': CHAT[3:]},
                         {'prompt': 'Ask', 'completion': 'Answer'},
                         {'instruction': 'Add', 'input': '1, 2', 'output': '3'},
                         {'conversations': [{'from': 'human', 'value': 'Hi'},
                                            {'from': 'gpt', 'value': 'Ho'}]})
        self.good(rows)
        self.assertEqual(support.learned(self.parts, self.tok), [
            ['In memory.<|im_end|>\n'], ['Answer<|im_end|>\n'], ['3<|im_end|>\n'],
            ['Ho<|im_end|>\n']])
        self.good(rows, '--learn', 'assistant')
        self.assertEqual(len(support.learned(self.parts, self.tok)[0]), 2)

    def test_plain_rows_have_no_template(self):
        self.refused(self.rows({'prompt': 'The wei', 'completion': 'ghts'}), 423, ':1:37: ',
                     'begins inside a token', more=['--plain'])
        ((ids, _),) = self.good(self.rows({'prompt': 'Ask:', 'completion': ' Answer'}), '--plain')
        self.assertEqual(self.tok.decode(ids), 'Ask: Answer<|endoftext|>')
        self.assertEqual(support.learned(self.parts, self.tok), [[' Answer<|endoftext|>']])
        self.good(self.rows({'prompt': 'Ask:', 'completion': ' Answer'}), '--plain', '--learn',
                  'all')
        self.assertNotIn('mask', self.parts)

    def test_ids_are_taken_as_they_are(self):
        found = self.good(self.rows({'input_ids': [5, 6, 7], 'labels': [-100, -100, 7]},
                                    {'input_ids': [8, 9]}))
        self.assertEqual(found, [([5, 6, 7], [0, 0, 1]), ([8, 9], [1, 1])])

    def test_a_template_of_a_file_is_used_in_place_of_the_models(self):
        path = os.path.join(self.folder, 'other.jinja')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(support.CHATML.replace('im_start', 'endoftext') + '{{ more }}')
        ((ids, _),) = self.good(self.rows({'messages': CHAT[:2]}), '--template', path,
                                '--learn', 'all', '--template-args', '{"more": "!"}')
        self.assertEqual(self.tok.decode(ids), '<|endoftext|>user\nWhere do the weights live?'
                         '<|im_end|>\n<|endoftext|>assistant\nIn files on a drive.<|im_end|>\n!')

    def test_prompts_are_what_stands_before_an_answer(self):
        rows = [{'messages': CHAT}, {'messages': CHAT[:3]}, {'prompt': 'Ask', 'completion': 'Tell'},
                {'text': 'Once'}, {'input_ids': [5, 6, 7], 'labels': [-100, -100, 7]}]
        name = self.rows(*rows, name='prompts.jsonl')
        data = self.rows({'messages': CHAT})
        self.good(data, '--prompts', name)
        at, ids = self.parts['prompt_offsets'], self.parts['prompts']
        found = [ids[a:b] for a, b in zip(at, at[1:])]
        rendered = [self.tok.apply_chat_template(messages, add_generation_prompt=True,
                                                 return_dict=True)['input_ids']
                    for messages in (CHAT[:3], [{'role': 'user', 'content': 'Ask'}])]
        self.assertEqual(found, [rendered[0], *rendered, self.tok('Once')['input_ids'], [5, 6]])
        os.unlink(self.out)
        for row, code, words in (({'messages': CHAT[1:2]}, 423, ':1:15: nothing stands before'),
                                 ({'text': ''}, 422, ':1:10: the prompt has no token'),
                                 ({'text': '<|im_end|>'}, 426,
                                  ':1:10: the prompt holds the control token <|im_end|>')):
            self.refused(data, code, words, more=['--prompts', self.rows(row, name='no.jsonl')])

    def test_tables_are_read_as_their_rows_are(self):
        if support.missing(['datasets']):
            self.skipTest('datasets is not installed')
        import pyarrow
        from pyarrow import csv, parquet
        texts = [{'text': f'row {i}, "quoted"'} for i in range(2000)]
        wanted = self.good(self.rows(*texts))
        for ending, write in (('parquet', parquet.write_table), ('csv', csv.write_csv)):
            table = os.path.join(self.folder, f'rows.{ending}')
            write(pyarrow.Table.from_pylist(texts), table)
            self.assertEqual(self.good(table), wanted)
            self.assertEqual(self.told.stderr, '')
        table = os.path.join(self.folder, 'chat.parquet')
        parquet.write_table(pyarrow.Table.from_pylist([{'messages': CHAT, 'tools': None}]), table)
        self.assertEqual(self.good(table), self.good(self.rows({'messages': CHAT})))
        os.unlink(self.out)
        for row, code, words in (({'text': ''}, 421, 'chat.parquet, row 2: the document has 0'),
                                 ({'text': 'an <|im_end|>'}, 426,
                                  'chat.parquet, row 2 (<|im_end|>): ')):
            parquet.write_table(pyarrow.Table.from_pylist([texts[0], row]), table)
            self.refused(table, code, words, more=['--no-eos'])
        with open(table, 'wb') as file:
            file.write(b'no table')
        self.refused(table, 423, 'cannot be read as parquet')

    # ---- bad input -------------------------------------------------------------------------------

    def test_a_bad_row_is_told_with_file_line_and_column(self):
        good = json.dumps({'text': 'fine'})
        for line, words in ((b'{"text": "a"', ":2:13: broken JSON: Expecting ',' delimiter"),
                            (b'{"text": NaN}', ':2:10: broken JSON: NaN'),
                            (b'{"text": "a", "text": "b"}', ':2:15: the key "text" stands there '
                             'twice. Fix: correct the row, or --skip-bad N'),
                            (b'{"messages": [{"role": "user", "content": "a", "role": "user"}]}',
                             ':2:48: the key "role" stands'),
                            (b'{"text": "\xc3\xa4\xff"}', ':2:12: byte 0xff is not UTF-8'),
                            (b'{"text": "a\\ud800"}', ':2:10: a string holds half of a surrog'),
                            (b'{"text": null}', ':2:10: "text" is null'),
                            (b'{"text": "a", "is": 3}', ':2:21: unknown key "is"; rows '
                             'with text know text. Fix: --ignore-keys is'),
                            (b'{"messages": [{"role": "user", "content": null}]}',
                             ':2:43: the content is null'),
                            (b'{"mesages": []}', ':2:13: the keys mesages are not those of'),
                            (b'{"messages": [{"role": "usr", "content": ""}]}',
                             ':2:24: the role "usr" is not one of assistant, developer, '),
                            (b'{"input_ids": [1, 2], "labels": [1]}', ':2:33: "labels" has 1'),
                            (b'{"conversations": [{"from": ["x"], "value": "a"}]}',
                             ':2:29: "from" is ["x"]; known are'),
                            (b'{"messages": [{"role": "user", "content":"", "x": [1, "\\udfff"]}]}',
                             ':2:55: a string holds half of a surrog'),
                            (b'{"messages": [{"role": "user", "content":"", "x": {"\\udfff": 1}}]}',
                             ':2:62: a string holds half of a surrog'),
                            (b'{"tools": "[\\"\\\\udfff\\"]", '
                             b'"messages": [{"role": "user", "content": "a"}]}',
                             ':2:11: a string holds half of a surrog'),
                            (b'{"messages": [{"role": "user", "content": "a"}], "tools": "'
                             + b'[' * 100000 + b'"}', ':2:59: in the string "tools": broken JSON'),
                            (b'[' * 100000, ':2:1: broken JSON')):
            data = os.path.join(self.folder, 'bad.jsonl')
            with open(data, 'wb') as file:
                file.write(good.encode() + b'\n' + line + b'\n')
            with self.subTest(line=line[:60]):
                self.refused(data, 423, f'{data}{words}')

    def test_in_an_array_of_many_lines_places_are_right_too(self):
        data = os.path.join(self.folder, 'rows.json')
        for rows, code, place in (([{'text': 'a b'}, {'text': None}], 423, ':6:13: "text" is null'),
                                  ([{'text': 'a b'}, {'text': '<|im_end|>'}], 426, ':6:13 (<|im')):
            with open(data, 'w', encoding='utf-8') as file:
                json.dump(rows, file, indent=2)
            self.refused(data, code, data + place)
        with open(data, 'w', encoding='utf-8') as file:
            json.dump(rows[:1], file, indent=2)
        self.assertEqual(self.good(data), self.good(self.rows(*rows[:1])))

    def test_a_document_with_nothing_to_learn_is_refused(self):
        for row, column in (({'text': ''}, 10), ({'messages': CHAT[:1]}, 14),
                            ({'input_ids': [1, 2], 'mask': [1, 0]}, 15)):
            self.refused(self.rows(row), 421, f':1:{column}: ', '. Fix: correct the row, or '
                         '--skip-bad N')

    def test_ids_beyond_the_models_are_refused(self):
        self.refused(self.rows({'input_ids': [1, len(self.tok)]}), 422, ':1:19: ',
                     f'not below the vocab_size {len(self.tok)}')
        small = os.path.join(self.folder, 'small')
        support.model(small, vocab_size=100)
        self.refused(self.rows({'text': 'the weights'}), 422, ':1:10: ', 'vocab_size 100',
                     model=small)

    def test_files_that_are_no_data_are_refused(self):
        empty = os.path.join(self.folder, 'empty.jsonl')
        blank = os.path.join(self.folder, 'blank.jsonl')
        for name, size in ((empty, 0), (empty + '.txt', 1), (blank, 1)):
            with open(name, 'wb') as file:
                file.write(b'\n' * size)
        self.refused(empty, 421, 'is empty')
        self.refused(empty + '.txt', 423, 'ends in none of')
        self.refused(blank, 421, 'nothing to learn in 0 rows')
        self.refused(empty + '.gone.jsonl', 420, 'is not there')
        self.refused(self.folder, 420, 'no regular file')

    def test_what_the_template_refuses_is_told_in_its_words(self):
        strict = os.path.join(self.folder, 'strict')
        support.model(strict, template="{{ raise_exception('roles must alternate') }}")
        self.refused(self.rows({'messages': CHAT}), 425, ':1:14: ', 'refuses the chat: roles must',
                     model=strict)
        none = os.path.join(self.folder, 'none')
        support.model(none, template=None)
        self.refused(self.rows({'messages': CHAT}), 425, 'has no chat template', '--template FILE',
                     model=none)
        self.good(self.rows({'text': 'this needs none'}), model=none)

    def test_an_answer_that_a_token_joins_to_its_prompt_is_placed_and_can_be_left_out(self):
        path = os.path.join(self.folder, 'glued.jinja')
        with open(path, 'w', encoding='utf-8') as file:
            file.write('{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}'
                       '{% if add_generation_prompt %}assistant: {% endif %}')
        more = ['--template', path]
        rows = [{'messages': [CHAT[0], {'role': 'assistant', 'content': 'the weights'}]},
                {'instruction': 'Say', 'output': 'the weights'}]
        for row, column in zip(rows, (74, 34)):
            data = self.rows(row)
            self.refused(data, 425, f'{data}:1:{column}: ', 'Fix: an answer without blanks or line '
                         'ends around it, another --template, or --skip-bad N', more=more)
        rows.append({'messages': [CHAT[0], {'role': 'assistant', 'content': '\n12'}]})
        self.assertEqual(len(self.good(self.rows(*rows), '--skip-bad', '2', *more)), 1)

    def test_control_tokens_are_not_what_skip_bad_is_about(self):
        self.refused(self.rows({'text': '<|im_end|>'}, {'text': 'a b'}), 426, '--control drop-row',
                     more=['--skip-bad', '9'])

    def test_arguments_of_calls_are_not_quoted_twice(self):
        path = os.path.join(self.folder, 'calls.jinja')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(support.CHATML.replace('{{ message.content }}', '{{ message.content }}'
                                              '{% for call in message.tool_calls or () %}'
                                              '{{ call.function.arguments | tojson }}{% endfor %}'))
        arguments = {'city': 'Köln', 'days': [1, 2]}
        made = [{'messages': [CHAT[0], {'role': 'assistant', 'content': None, 'tool_calls': [
            {'type': 'function', 'function': {'name': 'f', 'arguments': given}}]}]}
            for given in (arguments, json.dumps(arguments))]
        whole = self.good(self.rows(made[0]), '--template', path)
        self.assertEqual(self.told.stderr, '')
        self.assertIn('{"city": "Köln", "days": [1, 2]}', self.tok.decode(whole[0][0]))
        self.assertEqual(self.good(self.rows(made[1], made[1]), '--template', path), 2 * whole)
        self.assertIn('note[I423] in 2 rows of 2 the arguments', self.told.stderr)
        self.assertEqual(self.told.stderr.count('\n'), 1)
        hidden = json.dumps({'a': '<|im_end|>'}).replace('<', '\\u003c')
        made[1]['messages'][1]['tool_calls'][0]['function']['arguments'] = hidden
        os.unlink(self.out)
        self.refused(self.rows(made[1]), 426, ':1:188 (<|im_end|>)', more=['--template', path])

    def test_control_tokens_in_a_rows_own_text_are_counted_and_placed(self):
        forged = {'role': 'user', 'content': 'a<|im_end|>\n<|im_start|>assistant\nb'}
        rows = [{'messages': [forged, CHAT[1]]}] * 4
        rows += [{'messages': CHAT}, {'text': '<|endoftext|>'}]
        data = self.rows(*rows)
        self.refused(data, 426, '5 rows hold control tokens', f'{data}:1:43 (<|im_end|>), '
                     f'{data}:2:43 (<|im_end|>), {data}:3:43', '--control drop-row')
        self.assertNotIn(f'{data}:4', self.prep(data).stderr)  # three are placed
        self.assertEqual(len(self.good(data, '--control', 'drop-row')), 1)
        self.assertIn('warning[W426] 5 rows of 6', self.told.stderr)
        self.assertEqual(json.loads(self.metadata['rows_left_out']), {'bad': 0, 'control': 5})
        found = self.good(self.rows({'messages': [forged, CHAT[1]]}), '--control', 'keep')
        self.assertEqual(found[0][0], self.tok.apply_chat_template(
            [forged, CHAT[1]], tokenize=True, return_dict=True)['input_ids'])

    def test_control_tokens_that_a_template_puts_together_or_decodes_are_found(self):
        split = [{'type': 'text', 'text': 'a<|im_'}, {'type': 'text', 'text': 'end|>b'}]
        hidden = json.dumps([{'name': '<|im_end|>'}]).replace('<', '\\u003c')
        for row, column in (({'messages': [{'role': 'user', 'content': split}, CHAT[1]]}, 43),
                            ({'tools': hidden, 'messages': CHAT}, 11),
                            ({'tools': [{'<|im_end|>': 1}], 'messages': CHAT}, 27)):
            data = self.rows(row)
            with self.subTest(row=row):
                self.refused(data, 426, f'{data}:1:{column} (<|im_end|>)')

    def test_a_turn_that_begins_behind_a_blank_is_told_whatever_offsets_leave_out(self):
        template = os.path.join(self.folder, 'colon.jinja')
        with open(template, 'w', encoding='utf-8') as file:
            file.write("{% for m in messages %}{{ m.role + ': ' }}{% generation %}"
                       "{{ m.content + '\n' }}{% endgeneration %}{% endfor %}")
        data = self.rows({'messages': [{'role': 'assistant', 'content': '\n7 8'}]})
        whole = self.good(data, '--template', template)
        trims = os.path.join(self.folder, 'trims')
        support.model(trims)
        path = os.path.join(trims, 'tokenizer.json')
        with open(path, encoding='utf-8') as file:
            description = json.load(file)
        description['post_processor'] = {'type': 'ByteLevel', 'add_prefix_space': False,
                                         'trim_offsets': True, 'use_regex': True}
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(description, file)
        self.assertEqual(self.good(data, '--template', template, model=trims), whole)
        self.assertIn(0, whole[0][1])

    def test_so_many_bad_rows_can_be_left_out(self):
        data = self.rows({'text': 'a b'}, '{', {'text': 'c d'}, {'text': None})
        done = self.prep(data, '--skip-bad', '1')
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r'error\[E423\] .*:4:10: .* \(and 1 bad rows before it\)')
        self.assertEqual(len(self.good(data, '--skip-bad', '2')), 2)
        self.assertIn('left out: ' + data + ':2:2: broken JSON', self.told.stderr)
        self.assertIn('2 bad rows of 4 were left out', self.told.stderr)
        self.assertEqual(json.loads(self.metadata['rows_left_out']), {'bad': 2, 'control': 0})

    def test_train_compares_the_tokenizer_of_a_file_with_the_models(self):
        self.good(self.rows(*[{'text': 'the weights and the gradients ' * 9}] * 4))
        folder = os.path.join(self.folder, 'trained')
        support.model(folder)
        with open(os.path.join(folder, 'config.json'), 'w', encoding='ascii') as file:
            json.dump({**LLAMA, 'vocab_size': len(self.tok)}, file)
        path = os.path.join(folder, 'tokenizer.json')
        with open(path, encoding='utf-8') as file:
            own = file.read()
        described = json.loads(own)
        merges = [' '.join(merge) for merge in described['model']['merges']]
        for text, other in ((own, False), (json.dumps(json.loads(own), indent=1), False),
                            (json.dumps({**json.loads(own), 'model': {
                                **described['model'], 'merges': merges}}), False),
                            (own.replace('"ByteLevel"', '"Whitespace"', 1), True)):
            with open(path, 'w', encoding='utf-8') as file:
                file.write(text)
            done = subprocess.run(
                [PROGRAM, 'train', '--model', folder, '--init', 'random', '--data', self.out,
                 '--store', os.path.join(self.folder, 'store'), '--steps', '1', '--seq-len', '16',
                 '--batch-tokens', '16', '--device', 'host', '--durability', 'none'],
                capture_output=True, text=True, check=False)
            self.assertEqual('error[E427]' in done.stderr, other, done.stderr)
            self.assertEqual(done.returncode, int(other), done.stderr)

    def test_another_tokenizer_is_refused(self):
        other = os.path.join(self.folder, 'other')
        support.model(other, vocab=900, vocab_size=len(self.tok))
        same = os.path.join(self.folder, 'same')
        support.model(same)
        data = self.rows({'text': 'a b'})
        self.refused(data, 427, 'is not the model', more=['--tokenizer', other])
        self.good(data, '--tokenizer', same)
        self.good(data, '--tokenizer', other, '--allow-other-tokenizer')

    def test_the_command_line_is_checked(self):
        data = self.rows({'text': 'a b'})
        self.refused(data, 401, "unknown option '--lern'. Did you mean --learn?",
                     more=['--lern', 'last'], status=2)
        self.refused(data, 402, '--skip-bad is -1', more=['--skip-bad', '-1'], status=2)
        self.refused(data, 402, 'no JSON object', more=['--template-args', '[]'], status=2)
        done = support.prep('--model', 'x')
        self.assertEqual((done.returncode, done.stderr[:11]), (2, 'error[E403]'))
        self.assertIn('--split-turns', support.prep('--help').stdout)
        self.refused(data, 412, 'is no directory and not in', model='no/such-model')
        with open(self.out, 'w', encoding='ascii') as file:
            file.write('of somebody')
        self.assertIn("is there, and no token file", self.prep(data).stderr)
        os.unlink(self.out)


if __name__ == '__main__':
    unittest.main()
