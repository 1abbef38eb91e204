#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token files that name their tokenizer, and models that have this one or another: what is the
same, by the bytes of tokenizer.json or by what they mean, and what is refused.

    tokenizer.py PATH_OF_HOISTWAY
"""
import copy
import hashlib
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import token_files as ours  # noqa: E402

FLAGS = ('single_word', 'lstrip', 'rstrip', 'normalized', 'special')
OWN = {
    'version': '1.0', 'truncation': None,
    'added_tokens': [{'id': 4, 'content': '<|end|>', 'special': True, 'lstrip': False},
                     {'id': 5, 'content': '<"ü>', 'special': False, 'normalized': True}],
    'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'NFC'}, {'type': 'Strip', 'n': 2}]},
    'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '\\s+|\\d'}, 'invert': False, 'x': 1.5},
    'decoder': {'type': 'ByteLevel'},
    'model': {'type': 'BPE', 'dropout': None, 'merges': [['Ġ', 'a'], ['a', 'b']],
              'vocab': {'Ġ': 0, 'a': 1, 'b': 2, '🙂"\\': 3}},
}  # fmt: skip


def items(value, path):
    if isinstance(value, dict):
        return [item for key in value for item in items(value[key], f'{path}\0.{key}')]
    if isinstance(value, list):
        return [item for i, v in enumerate(value) for item in items(v, f'{path}\0[{i}')]
    text = f'"{value}' if isinstance(value, str) else json.dumps(value)
    return [] if value is None else [f'{path}\0={text}']


def identity(tokenizer):
    """By the words of docs/token-file.md."""
    model = tokenizer['model']
    known = items(model.get('type'), 'type') + items(model.get('vocab'), 'vocab')
    for name in ('normalizer', 'pre_tokenizer'):
        known += items(tokenizer.get(name), name)
    known += [f'merges\0[{i}\0="{merge if isinstance(merge, str) else " ".join(merge)}'
              for i, merge in enumerate(model.get('merges') or [])]
    known += [f'added\0={token["id"]}{"".join(str(int(token.get(f, False))) for f in FLAGS)}'
              f'{token["content"]}' for token in tokenizer['added_tokens']]
    sums = [0, 0, 0, 0]
    for item in known:
        digest = hashlib.sha256(item.encode()).digest()
        for i in range(4):
            sums[i] += int.from_bytes(digest[8 * i:8 * i + 8], 'little')
    return b''.join((s % 2**64).to_bytes(8, 'little') for s in sums).hex()


def changed(*path, to):
    made = copy.deepcopy(OWN)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return made


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(v) for v in value] if isinstance(value, list) else value


SAME = {
    'indented': json.dumps(OWN, indent=2),
    'in another order': json.dumps(reversed_keys(OWN), ensure_ascii=False),
    'merges as strings': json.dumps(changed('model', 'merges', to=['Ġ a', 'a b'])),
    'added tokens in another order': json.dumps(
        changed('added_tokens', to=OWN['added_tokens'][::-1])),
    'another decoder': json.dumps(changed('decoder', to=[{'a': [[1], {}]}])),
    'a flag that is said': json.dumps(changed('added_tokens', 0, 'rstrip', to=False)),
    'another version': json.dumps(changed('version', to='2.0')),
    'null, and not there': json.dumps(changed('post_processor', to=None)),
}
OTHER = {
    'an id': changed('model', 'vocab', 'a', to=7),
    'a token more': changed('model', 'vocab', 'c', to=6),
    'ids that are changed for each other': changed('model', 'vocab', to={
        'Ġ': 1, 'a': 0, 'b': 2, '🙂"\\': 3}),
    'a kind': changed('model', 'type', to='WordLevel'),
    'a merge less': changed('model', 'merges', to=[['Ġ', 'a']]),
    'merges in another order': changed('model', 'merges', to=[['a', 'b'], ['Ġ', 'a']]),
    'no added token': changed('added_tokens', to=[]),
    'a flag': changed('added_tokens', 0, 'special', to=False),
    'a content': changed('added_tokens', 1, 'content', to='<ü>'),
    'no normaliser': changed('normalizer', to=None),
    'a number': changed('normalizer', 'normalizers', 1, 'n', to=3),
    'normalisers in another order': changed('normalizer', 'normalizers', to=OWN['normalizer'][
        'normalizers'][::-1]),
    'a pattern': changed('pre_tokenizer', 'pattern', 'Regex', to='\\s+'),
    'true': changed('pre_tokenizer', 'invert', to=True),
    'a fraction': changed('pre_tokenizer', 'x', to=1.25),
}  # fmt: skip


class Tokenizer(ours.TokenFiles):
    """Of what it inherits, its helpers alone."""

    def named(self, **metadata):
        self.put('x.safetensors', ours.token_file({**ours.FORMAT, **metadata},
                                                  tokens=('U32', list(range(90)))))

    def tried(self, own, *more):
        self.put('DIR/tokenizer.json', own if isinstance(own, bytes) else own.encode())
        return self.train('x.safetensors', *more)

    def assert_other(self, done):
        self.assert_refused(done, 427, "its tokenizer is not that of 'DIR': the ids, merges")

    def test_the_bytes_of_any_length_are_the_same_or_not(self):
        for length in (0, 1, 54, 55, 56, 63, 64, 65, 119, 120, 128, 4099):
            own = b'{' + b' ' * length + b'}'
            self.named(tokenizer_sha256=hashlib.sha256(own).hexdigest(),
                       tokenizer_identity='1' * 64)
            self.assertEqual(self.tried(own).returncode, 0, length)
            self.assert_other(self.tried(own + b'\n'))

    def test_what_is_written_otherwise_is_the_same(self):
        self.named(tokenizer_sha256='0' * 64, tokenizer_identity=identity(OWN))
        for words, own in SAME.items():
            with self.subTest(words):
                done = self.tried(own)
                self.assertEqual((done.returncode, 'E427' in done.stderr), (0, False), done.stderr)

    def test_what_gives_other_ids_is_refused_unless_it_is_allowed(self):
        self.named(tokenizer_sha256='0' * 64, tokenizer_identity=identity(OWN))
        for words, own in OTHER.items():
            with self.subTest(words):
                self.assertNotEqual(identity(own), identity(OWN))
                self.assert_other(self.tried(json.dumps(own)))
                self.named(tokenizer_identity=identity(own))
                self.assertEqual(self.tried(json.dumps(own)).returncode, 0)
                self.named(tokenizer_identity=identity(OWN))
        self.assertEqual(self.tried('{}', '--allow-other-tokenizer').returncode, 0)

    def test_what_is_no_tokenizer_is_told(self):
        self.named(tokenizer_identity=identity(OWN))
        for own in ('', '[]', '{"model": []}', '{"model": {"merges": [3]}}',
                    '{"model": {"merges": [[3]]}}', '{"added_tokens": [{}]}',
                    '{"normalizer": {"a": }}', '{"model": {"vocab": {"a": 1', '{} {}',
                    '{"normalizer": ' + '[' * 20 + ']' * 20 + '}'):
            with self.subTest(own):
                self.assert_refused(self.tried(own), 427, "tokenizer.json of 'DIR' cannot be")

    def test_what_names_no_tokenizer_or_meets_none_is_not_looked_at(self):
        self.named(tokenizer_identity='0' * 64)
        self.assertEqual(self.train('x.safetensors').returncode, 0)  # the model has none
        self.named()
        self.assertEqual(self.tried('{}').returncode, 0)


if __name__ == '__main__':
    suite = unittest.TestSuite(Tokenizer(name) for name in vars(Tokenizer) if name[:5] == 'test_')
    sys.exit(not unittest.TextTestRunner().run(suite).wasSuccessful())
