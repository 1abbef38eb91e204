#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What of a chat is learned, by the four rules of hoistway.masks, on templates made for it.

    test_masks.py
"""
import importlib
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import support  # noqa: E402

support.need()

from tokenizers import processors  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

from hoistway import template as templates  # noqa: E402
from hoistway.encode import Encoder  # noqa: E402
from hoistway.errors import BadRow  # noqa: E402
from hoistway.masks import documents_of, placed  # noqa: E402
from hoistway.rows import Chat  # noqa: E402
from hoistway.template import Template  # noqa: E402

MARKED = r"""{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' -%}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}
{%- else -%}{{ m.content + '<|im_end|>' }}{%- endif -%}{{ '\n' }}{%- endfor -%}"""
# Earlier turns lose what they thought, as Qwen3's do.
FORGETS = support.CHATML.replace('{{ message.content }}', """{% if message.role == 'assistant' and
not loop.last %}{{ message.content.split('</think>')[-1] }}{% else %}{{ message.content }}
{%- endif %}""")
# The generation prompt is not what stands before the answer.
OPENS = support.CHATML.replace('assistant\n{% endif', 'assistant\n<think>{% endif')
CHAT = [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Where?'},
        {'role': 'assistant', 'content': '<think>hm</think>In files.'},
        {'role': 'user', 'content': 'Why?'},
        {'role': 'assistant', 'content': '<think>so</think>Room.'}]


class Masks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.backend = support.tokenizer(support.SPECIAL, ['<think>', '</think>'])
        cls.tok = PreTrainedTokenizerFast(tokenizer_object=cls.backend, eos_token='<|endoftext|>')

    def setUp(self):
        templates.twin_of.cache_clear()
        self.addCleanup(templates.twin_of.cache_clear)

    def documents(self, text, messages=None, learn='assistant', split='each', answer=None):
        chat = Chat(CHAT if messages is None else messages, None, answer)
        return documents_of(chat, Template(self.tok, 'here', text), learn, split)

    def learned(self, *what, **how):
        """The learned texts of each document, by characters; and by tokens they are the same."""
        found = self.documents(*what, **how)
        anchors = {n for n, t in self.backend.get_added_tokens_decoder().items()}
        encoder = Encoder(self.backend, anchors)
        for document, encoding in zip(found, encoder.encode(found)):
            mask = encoder.mask(document, encoding)
            taken = [i for i, one in zip(encoding.ids, mask) if one]
            self.assertEqual(self.tok.decode(taken),
                             ''.join(document.text[a:b] for a, b in document.spans))
        return [[document.text[a:b] for a, b in document.spans] for document in found]

    def assert_refused(self, words, *what, **how):
        with self.assertRaises(BadRow) as caught:
            self.learned(*what, **how)
        self.assertEqual(caught.exception.code, 425)
        self.assertIn(words, caught.exception.text)

    # ---- (a) marks -------------------------------------------------------------------------------

    def test_what_the_template_marks_is_learned(self):
        turns = ['<think>hm</think>In files.<|im_end|>', '<think>so</think>Room.<|im_end|>']
        self.assertEqual(self.learned(MARKED), [turns])
        for learn in ('last', 'completion'):
            self.assertEqual(self.learned(MARKED, learn=learn), [turns[1:]])

    def test_a_span_that_begins_at_the_first_token_is_learned_and_no_more(self):
        bare = '{% for m in messages %}{% if m.role == "assistant" %}{% generation %}' \
            '{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}'
        chat = [{'role': 'assistant', 'content': 'First.'}, {'role': 'user', 'content': '\nAnd?\n'}]
        if int(support.versions()['transformers'].split('.')[0]) < 5:
            self.assert_refused('marks 0 spans as generated', bare, chat)  # it loses such a span
            return
        (document,) = self.documents(bare, chat)
        self.assertEqual(document.spans, [(0, 6)])
        encoder = Encoder(self.backend, set())
        (encoding,) = encoder.encode([document])
        mask = encoder.mask(document, encoding).tolist()
        count = len(self.backend.encode('First.').ids)
        self.assertEqual(mask, [1] * count + [0] * (len(mask) - count))

    def test_a_template_that_marks_less_than_there_is_to_learn_is_refused(self):
        last = MARKED.replace("m.role == 'assistant'", 'loop.last')
        self.assert_refused('marks 1 spans as generated, and 2 turns are', last)

    # ---- (b) prefixes ----------------------------------------------------------------------------

    def test_a_turn_is_what_is_rendered_with_it_less_its_prompt(self):
        turns = ['<think>hm</think>In files.<|im_end|>\n', '<think>so</think>Room.<|im_end|>\n']
        self.assertEqual(self.learned(support.CHATML), [turns])
        self.assertEqual(self.learned(support.CHATML, learn='last'), [turns[1:]])
        self.assertEqual(self.learned(support.CHATML, learn='completion', answer=2), [turns])
        self.assertEqual(self.learned(support.CHATML, CHAT[:4]), [turns[:1]])
        (document,) = self.documents(support.CHATML, learn='all')
        self.assertIsNone(document.spans)

    def test_where_nothing_is_rendered_of_an_answer_it_is_refused(self):
        silent = support.CHATML.replace('for message in messages', 'for message in messages if '
                                        "message.role != 'assistant'")
        self.assert_refused('renders nothing of the content of message 3 (assistant)', silent)
        self.assertEqual(placed('ab', 'ab', 'abc'), 'nothing is rendered of the answer')

    def test_a_content_that_the_template_does_not_render_is_refused(self):
        chat = [dict(m, content=m['content'].split('>')[-1]) for m in CHAT]
        quiet = support.CHATML.replace('{{ message.content }}', "{% if message.role != 'user' %}"
                                       '{{ message.content }}{% endif %}')
        self.assert_refused('renders nothing of the content of message 2 (user)', quiet, chat)
        self.assert_refused('renders nothing of the content', quiet, chat, learn='all')

    def test_a_boundary_inside_a_token_is_refused(self):
        glued = '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}' \
            '{% if add_generation_prompt %}assistant: {% endif %}'
        chat = [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'the weights'}]
        self.assert_refused('begins or ends inside a token', glued, chat)
        before = self.backend.post_processor
        self.backend.post_processor = processors.ByteLevel(trim_offsets=True)  # hides the blank
        try:
            self.assert_refused('do not begin the ids of prompt and answer', glued, chat)
        finally:
            self.backend.post_processor = before or processors.Sequence([])

    # ---- (c) documents of their own --------------------------------------------------------------

    def test_a_turn_that_is_rendered_otherwise_later_is_a_document_of_its_own(self):
        first, whole = self.documents(FORGETS)
        self.assertTrue(first.text.endswith('<think>hm</think>In files.<|im_end|>\n'))
        self.assertNotIn('hm', whole.text)
        self.assertEqual(self.learned(FORGETS), [['<think>hm</think>In files.<|im_end|>\n'],
                                                 ['<think>so</think>Room.<|im_end|>\n']])
        self.assertEqual(self.learned(FORGETS, split='last'),
                         [['<think>so</think>Room.<|im_end|>\n']])
        longer = [*CHAT[:1], {'role': 'user', 'content': 'Hi'},
                  {'role': 'assistant', 'content': 'Ho'}, *CHAT[1:]]
        self.assertEqual(self.learned(FORGETS, longer),
                         [['<think>hm</think>In files.<|im_end|>\n'],
                          ['Ho<|im_end|>\n', '<think>so</think>Room.<|im_end|>\n']])
        self.assertEqual(self.learned(FORGETS, longer, split='last'),
                         [['<think>so</think>Room.<|im_end|>\n']])
        self.assertEqual(self.learned(FORGETS, CHAT[:4]),
                         [['<think>hm</think>In files.<|im_end|>\n']])

    # ---- (d) the twin ----------------------------------------------------------------------------

    def twins(self, name, text, twin):
        """A package trl that has nothing but templates."""
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        folder = os.path.join(scratch.name, 'trl', 'chat_templates')
        os.makedirs(folder)
        with open(os.path.join(scratch.name, 'trl', '__init__.py'), 'w', encoding='ascii') as file:
            file.write("raise ImportError('it need not be imported')\n")
        for ending, content in (('', text), ('_training', twin)):
            if content is None:
                continue
            with open(os.path.join(folder, f'{name}{ending}.jinja'), 'w', encoding='ascii') as file:
                file.write(content)
        sys.path.insert(0, scratch.name)
        self.addCleanup(sys.path.remove, scratch.name)
        importlib.invalidate_caches()

    def test_where_prefixes_do_not_tell_the_marked_twin_does(self):
        chat = [dict(m, content=m['content'].split('>')[-1]) for m in CHAT]
        self.twins('opens', OPENS + '\n', MARKED)
        self.assertEqual(self.learned(OPENS, chat), [['In files.<|im_end|>', 'Room.<|im_end|>']])
        self.assertEqual(self.learned(OPENS, chat, learn='last'), [['Room.<|im_end|>']])
        templates.twin_of.cache_clear()
        self.twins('opens', OPENS, MARKED.replace('im_end', 'endoftext'))
        self.assert_refused('renders this chat otherwise', OPENS, chat)

    def test_without_a_twin_the_chat_is_refused_by_template_and_turn(self):
        chat = [dict(m, content=m['content'].split('>')[-1]) for m in CHAT]
        for twin in (('another', support.CHATML, MARKED), ('unmarked', OPENS, None)):
            templates.twin_of.cache_clear()
            self.twins(*twin)
            self.assert_refused("what of turn 3 is learned cannot be told from the template of "
                                "'here': the generation prompt does not begin what is rendered "
                                'with the answer, and trl has no copy of it', OPENS, chat)


if __name__ == '__main__':
    unittest.main()
