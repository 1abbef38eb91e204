#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token files of LLMQ, written here by the layout that tools/data/file/llmq.h describes: the same
tokens and mask as a token file of ours are the same rows, and train the same losses.

    llmq.py PATH_OF_HOISTWAY
"""
import os
import random
import struct
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
import token_files as ours  # noqa: E402
from short import by_turns  # noqa: E402

HEADER_BYTES = 1024


def llmq(tokens, mask=None, version=2, token_bytes=4, count=None, masks=None, filler=b'\0'):
    """A file; count and masks: what its header says of them, where that is not what there is."""
    said = [version, token_bytes, len(tokens) if count is None else count, 300,
            (mask is not None) if masks is None else masks]
    head = b'BIN.TOK\n' + struct.pack('<5I', *said)
    bits = bytearray((len(mask or ()) + 7) // 8)
    for i, learned in enumerate(mask or ()):
        bits[i // 8] |= learned << i % 8
    return head.ljust(HEADER_BYTES, filler) + struct.pack(f'<{len(tokens)}I', *tokens) + bytes(bits)


def drawn(seed, count):
    """Answers of differing lengths behind prompts that are not learned."""
    draw = random.Random(seed)
    mask = []
    while len(mask) < count:
        mask += [0] * draw.randrange(1, 30) + [1] * draw.randrange(1, 20)
    return [draw.randrange(300) for _ in range(count)], mask[:count]


TEN = list(range(10))
BAD = (
    ('version', llmq(TEN, version=3), 423, 'LLMQ token file of version 3, only 1 and 2'),
    ('nothing behind the magic', b'BIN.TOK\n', 423, 'LLMQ token file of version 0'),
    ('cut off in the header', llmq(TEN)[:500], 423, 'makes 1064 bytes, but the file has 500'),
    ('bytes', llmq(TEN, token_bytes=2), 423, '2 bytes a token, only 4'),
    ('masks', llmq(TEN, masks=2), 423, 'the LLMQ header has 2 where 1 says'),
    ('a mask that is not there', llmq(TEN, masks=1), 423,
     'counts 10 tokens with masks, which makes 1066 bytes, but the file has 1064'),
    ('a mask that is not named', llmq(TEN, [1] * 10, masks=0), 423,
     'counts 10 tokens, which makes 1064 bytes, but the file has 1066'),
    ('a token less', llmq(TEN, [1] * 10, count=9), 423, 'which makes 1062 bytes'),
    ('2^31 tokens', llmq(TEN, count=1 << 31), 423, 'counts 2147483648 tokens'),
    ('no token', llmq([]), 421, 'the data file holds no token'),
    ('no token with a mask', llmq([], []), 421, 'the data file holds no token'),
    ('no target', llmq(TEN, [1] + [0] * 9), 421, 'the mask leaves out every target'),
    ('an id', llmq([*TEN * 4, 300], [1] * 41), 422, 'token id 300 at byte 1184'),
)  # fmt: skip


class Llmq(ours.TokenFiles):
    """Of what it inherits, its helpers alone."""

    def learned_alike(self, tokens, mask, **how):
        self.put('x.bin', llmq(tokens, mask, **how))
        parts = {'tokens': ('U32', tokens)}
        if mask:
            parts['mask'] = ('U8', mask)
        self.put('x.safetensors', ours.token_file(**parts))
        for length in (5, 13, 64):
            options = ('--seq-len', str(length))
            told = [self.look(file, *options) for file in ('x.bin', 'x.safetensors')]
            self.assertEqual(told[0]['header'], 'llmq')
            for key in ('tokens', 'documents', 'longest', 'masked', 'targets', 'learned',
                        'packing'):
                self.assertEqual(told[0][key], told[1][key], key)
            for row in range(1, told[0]['packing']['rows'] + 1):
                one, other = (self.look(file, *options, '--row', str(row))['row']
                              for file in ('x.bin', 'x.safetensors'))
                self.assertEqual(one, other)
        losses = []
        for file in ('x.bin', 'x.safetensors'):
            self.assertEqual(self.train(file).returncode, 0)
            losses.append(self.losses())
        self.assertEqual(*losses)
        return losses[0]

    def test_a_mask_of_bits_is_one_of_bytes(self):
        for seed, count in enumerate((200, 203, 207)):
            tokens, mask = drawn(seed, count)
            masked = self.learned_alike(tokens, mask)
            self.assertNotEqual(masked, self.learned_alike(tokens, None))
        self.learned_alike(tokens, [1] * count)
        self.learned_alike(tokens, mask, version=1)

    def test_a_mask_is_read_whole_however_long_it_is(self):
        """More than one piece of bits, and of tokens."""
        tokens, mask = drawn(7, 100003)
        self.put('x.bin', llmq(tokens, mask))
        told = self.look('x.bin', '--seq-len', '99991', '--row', '1')
        self.assertEqual(told['learned'], sum(mask[1:]))
        self.assertEqual(told['row']['targets'],
                         [t if m else None for t, m in zip(tokens[1:99992], mask[1:99992])])

    def test_what_is_left_of_a_header_says_nothing(self):
        tokens, _ = drawn(3, 100)
        self.learned_alike(tokens, None, version=1, masks=0x2a2a2a2a, filler=b'*')
        self.put('x.bin', llmq(tokens, [1] * 100))
        told = self.run_here('inspect', 'x.bin').stdout
        self.assertIn('100 tokens, u32, with a header of llmq\n  a mask: 99 of 99 targets', told)
        self.assertEqual(self.train('x.bin', '--token-dtype', 'u32').returncode, 0)

    def test_what_is_no_such_file_is_refused(self):
        for name, content, code, words in BAD:
            with self.subTest(name):
                self.put('x.bin', content)
                self.assert_refused(self.train('x.bin'), code, words)
                if code != 422:
                    self.assert_refused(self.run_here('inspect', 'x.bin'), code, words)
        self.put('x.bin', llmq(TEN * 9))
        self.assert_refused(self.train('x.bin', '--token-dtype', 'u16'), 423,
                            "LLMQ's tokens are u32. Fix: leave --token-dtype out")


if __name__ == '__main__':
    suite = unittest.TestSuite(Llmq(name) for name in vars(Llmq) if name.startswith('test_'))
    suite = by_turns(None, suite, None)
    sys.exit(not unittest.TextTestRunner().run(suite).wasSuccessful())
