#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The 41 published templates in trl 1.16's wheel: ids as apply_chat_template has them, and masks as
the twins with generation marks have them, or as they are written here by hand.

    test_templates.py

Needs trl's wheel unpacked, not installed (./run prep-install --tests, or its folder in
HOISTWAY_TRL); exits 77 without it.
"""
import glob
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import support  # noqa: E402

support.need()

from transformers import PreTrainedTokenizerFast  # noqa: E402

from hoistway import template as templates  # noqa: E402
from hoistway.encode import Encoder  # noqa: E402
from hoistway.errors import BadRow  # noqa: E402
from hoistway.masks import by_marks, documents_of, learned_turns  # noqa: E402
from hoistway.rows import Chat  # noqa: E402
from hoistway.template import MARKS, Template  # noqa: E402

TRL = support.trl_folder()
if TRL is None:
    print("skipped: trl's wheel is not unpacked here; ./run prep-install --tests")
    sys.exit(77)
FOLDER, COUNT = os.path.join(TRL, 'trl', 'chat_templates'), 41
CONTROL = re.compile(r'<[|｜][^<>\s{}\'"]{1,40}[|｜]>|</?(?:start_of_turn|end_of_turn|bos|eos|s)>'
                     r'|\[/?INST\]')
PLAIN = [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'What is 2+2?'},
         {'role': 'assistant', 'content': 'Four.'}, {'role': 'user', 'content': 'And 3+3?'},
         {'role': 'assistant', 'content': 'Six, of course.'}]
THOUGHT = [{'role': 'user', 'content': 'What is 2+2?'},
           {'role': 'assistant', 'content': '<think>\nadd\n</think>\n\nFour.'},
           {'role': 'user', 'content': 'And 3+3?'},
           {'role': 'assistant', 'content': '<think>\nagain\n</think>\n\nSix.'}]
NO_SYSTEM = ('gemma',)
OF_PARTS = ('idefics3', 'llava_next', 'smolvlm')  # of a string they render nothing
# Where prefixes do not tell what a turn is: the twin does, or the chat is refused.
BY_TWIN = ('deepseek_r1_distill', 'deepseekv3', 'nemotron_3_5_lightning', 'nemotron_3_nano',
           'nemotron_3_super', 'nemotron_3_ultra')
# What the twin marks and the generation prompt holds already: it is not what the model has to say.
OF_THE_PROMPT = {'qwen2_5': '\n', 'muse_glimmer': '<|start|>assistant', 'qwen3_8': '<think>\n',
                 'gptoss': '<|start|>assistant', **{name: '<think>\n' for name in BY_TWIN[2:]}}
# What the template puts behind a turn, and the twin does not mark.
BEHIND = {'llava_next': ' '}
# Refused in one of the chats: the twin, too, renders it otherwise.
REFUSED = {('deepseek_r1_distill', 'thought'), ('qwen3_5_nothink', 'thought')}
# Templates whose twin renders these chats otherwise, so that there is nothing to compare.
OTHERWISE = {'glm4moe', 'qwen3', 'qwen3_5_nothink', 'qwen3_5_think', 'qwen3_6'}
# By hand, of templates without a twin.
LLAMA = {'plain': [['Four.<|eot_id|>', 'Six, of course.<|eot_id|>']],
         'thought': [['<think>\nadd\n</think>\n\nFour.<|eot_id|>',
                      '<think>\nagain\n</think>\n\nSix.<|eot_id|>']]}
GEMMA4 = {'plain': [['Four.<turn|>\n', 'Six, of course.<turn|>\n']],
          'thought': [['<think>\nadd\n</think>\n\nFour.<turn|>\n',
                       '<think>\nagain\n</think>\n\nSix.<turn|>\n']]}
LFM2 = {'plain': [['Four.<|im_end|>\n', 'Six, of course.<|im_end|>\n']],
        'thought': [['Four.<|im_end|>\n', '<think>\nagain\n</think>\n\nSix.<|im_end|>\n']]}
BY_HAND = {'llama3_1': LLAMA, 'llama3_2': LLAMA, 'gemma4': GEMMA4, 'gemma4_v2': GEMMA4,
           'gemma4_v3': GEMMA4, 'gemma4_v4': GEMMA4, 'gemma4_v5': GEMMA4, 'lfm2_2_5': LFM2,
           'lfm2_2_5_v2': LFM2, 'lfm2_2_5_vl': LFM2}


def read(name):
    with open(os.path.join(FOLDER, f'{name}.jinja'), encoding='utf-8') as file:
        return file.read()


NAMES = sorted(os.path.basename(path)[:-len('.jinja')]
               for path in glob.glob(os.path.join(FOLDER, '*.jinja'))
               if not path.endswith('_training.jinja'))
TWINS = [name for name in NAMES if os.path.exists(os.path.join(FOLDER, f'{name}_training.jinja'))]


def chats(name):
    """(what it is called, its messages) of the chats that this template takes."""
    for label, messages in (('plain', PLAIN), ('thought', THOUGHT)):
        if name in NO_SYSTEM:
            messages = [m for m in messages if m['role'] != 'system']
        if name in OF_PARTS:
            messages = [{**m, 'content': [{'type': 'text', 'text': m['content']}]}
                        for m in messages]
        yield label, messages


class Templates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, TRL)
        special = {token for name in NAMES for token in CONTROL.findall(read(name))}
        backend = support.tokenizer(sorted(special | {'<s>', '</s>'}), ['<think>', '</think>'])
        cls.tok = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token='<s>',
                                          eos_token='</s>')
        cls.encoder = Encoder(backend, set(backend.get_added_tokens_decoder()))

    def setUp(self):
        templates.twin_of.cache_clear()

    def documents(self, name, messages):
        return documents_of(Chat(messages), Template(self.tok, name, read(name)), 'assistant',
                            'each')

    def masked(self, document):
        """Ids, and which characters have a token that is learned."""
        (encoding,) = self.encoder.encode([document])
        mask = self.encoder.mask(document, encoding)
        characters = {at for (a, b), one in zip(encoding.offsets, mask) if one
                      for at in range(a, b)}
        return encoding.ids, characters

    def every(self):
        for name in NAMES:
            for label, messages in chats(name):
                if (name, label) not in REFUSED:
                    yield name, label, messages, self.documents(name, messages)

    def test_these_are_the_templates_of_the_wheel(self):
        self.assertEqual(len(NAMES), COUNT)
        self.assertEqual(sorted(set(NAMES) - set(TWINS)), sorted(BY_HAND))
        with open(glob.glob(os.path.join(TRL, 'trl-*.dist-info', 'METADATA'))[0],
                  encoding='utf-8') as file:
            self.assertIn('\nVersion: 1.16.', file.read())

    def test_ids_are_those_of_apply_chat_template(self):
        for name, _, messages, found in self.every():
            ends = [i + 1 for i, m in enumerate(messages) if m['role'] == 'assistant']
            prefixes = [messages] if len(found) == 1 else [messages[:end] for end in ends]
            self.assertEqual(len(found), len(prefixes), name)
            for document, prefix in zip(found, prefixes):
                wanted = self.tok.apply_chat_template(prefix, chat_template=read(name),
                                                      tokenize=True, return_dict=True)
                self.assertEqual(self.masked(document)[0], wanted['input_ids'], name)

    def test_masks_are_the_twins_but_for_what_the_prompt_holds(self):
        compared, differing, otherwise = set(), set(), set()
        for name, _, messages, found in self.every():
            if name not in TWINS:
                continue
            chat, last = Chat(messages), found[-1]
            text, spans = by_marks(chat, Template(self.tok, name, read(name)),
                                   learned_turns(chat, 'assistant'), read(f'{name}_training'))
            if text != last.text:
                otherwise.add(name)
                continue
            compared.add(name)
            theirs = {at for a, b in spans for at in range(a, b)}
            if len(found) > 1:  # earlier turns are learned elsewhere
                begin = text.rindex(messages[-2]['content'])
                theirs = {at for at in theirs if at >= begin}
            ours = self.masked(last)[1]
            if ours != theirs:
                differing.add(name)
                more, less = (''.join(text[at] for at in sorted(characters))
                              for characters in (theirs - ours, ours - theirs))
                turns = len(last.spans)
                self.assertEqual(less, BEHIND.get(name, '') * turns, name)
                if name not in BEHIND:
                    self.assertEqual(more, OF_THE_PROMPT.get(name, '') * turns, name)
        self.assertEqual(otherwise, OTHERWISE)
        self.assertEqual(compared, set(TWINS) - OTHERWISE)
        self.assertLessEqual(differing, {*OF_THE_PROMPT, *BEHIND})

    def test_without_a_twin_they_are_what_is_written_here(self):
        for name, label, _, found in self.every():
            if name in BY_HAND:
                self.assertEqual([[d.text[a:b] for a, b in d.spans] for d in found],
                                 BY_HAND[name][label], name)

    def test_where_prefixes_do_not_tell_it_is_the_twin_or_a_refusal_by_name(self):
        for name in BY_TWIN:
            (document,) = self.documents(name, PLAIN)
            self.assertEqual(document.prompts, [])
            self.assertEqual(len(document.spans), 2)
        for name, label in REFUSED:
            with self.assertRaisesRegex(BadRow, f"{name}'.*renders this chat otherwise"):
                self.documents(name, dict(chats(name))[label])
        sys.path.remove(TRL)
        templates.twin_of.cache_clear()
        try:
            for name in BY_TWIN:
                with self.assertRaisesRegex(BadRow, f"what of turn 3 .* '{name}'.*no copy of it"):
                    self.documents(name, PLAIN)
        finally:
            sys.path.insert(0, TRL)

    def test_a_content_that_is_not_rendered_is_refused(self):
        for name in OF_PARTS:
            with self.assertRaises(BadRow):
                self.documents(name, PLAIN)
        self.assertFalse(any(MARKS.search(read(name)) for name in OF_PARTS))


if __name__ == '__main__':
    unittest.main()
