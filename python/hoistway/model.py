# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a model directory: loaded by transformers; what it is, in hashes and bytes."""
from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import transformers
from tokenizers import AddedToken

from hoistway.errors import MODEL, TOKENIZER, Refusal, shown

FLAGS = ('single_word', 'lstrip', 'rstrip', 'normalized', 'special')  # of added tokens
SPACE = '▁'  # which stands for a space in tokens that come from SentencePiece


@dataclass
class Model:
    name: str
    tokenizer: object
    backend: object          # the tokenizers.Tokenizer behind it
    description: dict        # tokenizer.json
    sha256: str              # of tokenizer.json
    vocab: int               # ids of the model; without config.json, of the tokenizer

    @property
    def added(self) -> dict[int, AddedToken]:
        return self.backend.get_added_tokens_decoder()

    @property
    def controls(self) -> list[str]:
        return [token.content for token in self.added.values() if token.special]

    @property
    def anchors(self) -> set[int]:
        """Added tokens that are cut out of the text as it stands, and nothing beside them."""
        return {number for number, token in self.added.items() if not (
            token.normalized or token.lstrip or token.rstrip or token.single_word)}


def folder_of(name: str) -> str:
    """A directory, or the snapshot of a model in Hugging Face's cache."""
    if os.path.isdir(name):
        return name
    try:
        return os.path.dirname(transformers.utils.cached_file(name, 'tokenizer.json',
                                                              local_files_only=True))
    except Exception:
        raise Refusal(MODEL, f"'{name}' is no directory and not in Hugging Face's cache. Fix: "
                      '--model DIR with the files of the model; nothing is downloaded') from None


def _read(folder: str, file: str) -> bytes:
    path = os.path.join(folder, file)
    try:
        with open(path, 'rb') as opened:
            return opened.read()
    except OSError as wrong:
        fix = ("save it with transformers: AutoTokenizer.from_pretrained(…).save_pretrained(DIR)"
               if file == 'tokenizer.json' else '--model DIR with the files of the model')
        raise Refusal(MODEL, f"'{path}' cannot be read ({wrong.strerror}). Fix: {fix}") from None


def _json(folder: str, file: str) -> dict:
    try:
        found = json.loads(_read(folder, file), parse_float=Real)
    except ValueError as wrong:
        raise Refusal(MODEL, f"'{os.path.join(folder, file)}' is no JSON ({wrong}). Fix: download "
                      'it again') from None
    return found if isinstance(found, dict) else {}


def _model_vocab(folder: str, tokenizer_ids: int) -> int:
    if not os.path.exists(os.path.join(folder, 'config.json')):
        return tokenizer_ids
    config = _json(folder, 'config.json')
    size = config.get('vocab_size', (config.get('text_config') or {}).get('vocab_size'))
    return size if isinstance(size, int) else tokenizer_ids


def load(name: str, vocab_of: str | None = None) -> Model:
    """vocab_of: the model whose ids there are, where the tokenizer is another directory's."""
    folder = folder_of(name)
    raw = _read(folder, 'tokenizer.json')
    description = _json(folder, 'tokenizer.json')
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False)
        backend = tokenizer.backend_tokenizer
    except Exception as wrong:  # whatever a library makes of bad files
        first = (str(wrong).splitlines() or [type(wrong).__name__])[0]
        raise Refusal(MODEL, f"transformers cannot load the tokenizer of '{name}': "
                      f'{shown(first)[:200]}. Fix: download its files again') from None
    keep_blanks(backend)
    backend.no_truncation()
    backend.no_padding()
    ids = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    return Model(name, tokenizer, backend, description, hashlib.sha256(raw).hexdigest(),
                 _model_vocab(folder_of(vocab_of or name), ids))


def keep_blanks(backend) -> None:
    """Some tokenizers leave blanks out of the offsets of the tokens that hold them. Where a turn
    begins or ends would then be told wrongly; the ids are the same."""
    processor = backend.post_processor
    if processor is None:
        return
    state = json.loads(processor.__getstate__())
    for step in (state, *state.get('processors', ())):
        if 'trim_offsets' in step:
            step['trim_offsets'] = False
    processor.__setstate__(json.dumps(state).encode())
    backend.post_processor = processor


class Real(str):
    """A number with a fraction, as the file has it."""


def _items(value: object, path: str) -> Iterator[str]:
    """An item for each number, string, true and false; what is null is not there."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _items(inner, f'{path}\0.{key}')
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _items(inner, f'{path}\0[{i}')
    elif isinstance(value, str) and not isinstance(value, Real):
        yield f'{path}\0="{value}'
    elif value is not None:
        yield f'{path}\0={str(value).lower() if isinstance(value, bool) else value}'


def _known(description: dict) -> Iterator[str]:
    """All that decides which ids a text has: ids and tokens, merges, added tokens, normaliser,
    pre-tokeniser."""
    model = description.get('model') or {}
    for holder, name in ((model, 'type'), (model, 'vocab'), (description, 'normalizer'),
                         (description, 'pre_tokenizer')):
        yield from _items(holder.get(name), name)
    for i, merge in enumerate(model.get('merges') or ()):
        yield f'merges\0[{i}\0="{merge if isinstance(merge, str) else " ".join(merge)}'
    for token in description.get('added_tokens') or ():
        flags = ''.join('1' if token.get(flag) is True else '0' for flag in FLAGS)
        yield f'added\0={token.get("id")}{flags}{token.get("content")}'


def identity(description: dict) -> str:
    """Of a tokenizer, however its file is written: the sum of the sha256 of each item, in four
    parts. tools/hf/tokenizer.c makes the same."""
    sums = [0] * 4
    for item in _known(description):
        digest = hashlib.sha256(item.encode('utf-8', 'surrogatepass')).digest()
        sums = [a + b for a, b in zip(sums, struct.unpack('<4Q', digest))]
    return struct.pack('<4Q', *(part % (1 << 64) for part in sums)).hex()


def check_same(used: Model, own: dict, allowed: bool) -> None:
    if identity(used.description) != identity(own) and not allowed:
        raise Refusal(TOKENIZER, f"the tokenizer of '{used.name}' is not the model's: its ids, "
                      'merges, added tokens, normaliser or pre-tokeniser differ. Fix: --tokenizer '
                      'of the model, or --allow-other-tokenizer')


def own_description(name: str) -> dict:
    return _json(folder_of(name), 'tokenizer.json')


# ---- what an id stands for -----------------------------------------------------------------------


def _byte_of_character() -> dict[str, int]:
    """Of byte-level tokens: printable bytes are themselves, the others are from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in plain}
    others = (byte for byte in range(0x100) if byte not in plain)
    table.update((chr(0x100 + i), byte) for i, byte in enumerate(others))
    return table


def _steps(decoder: dict | None) -> set[str]:
    if not decoder:
        return set()
    inner = decoder.get('decoders') if decoder.get('type') == 'Sequence' else [decoder]
    return {step.get('type') for step in inner}


def _of_pieces(token: str) -> bytes:
    if len(token) == 6 and token.startswith('<0x') and token.endswith('>'):
        try:
            return bytes([int(token[3:5], 16)])
        except ValueError:
            pass
    return token.replace(SPACE, ' ').encode()


def bytes_of_ids(description: dict, backend, count: int) -> list[bytes] | None:
    """What each id stands for; None: of this kind of tokenizer it is not known."""
    steps = _steps(description.get('decoder'))
    if 'ByteLevel' in steps:
        table = _byte_of_character()

        def spell(token: str) -> bytes:
            known = [table.get(character) for character in token]
            return token.encode() if None in known else bytes(known)
    elif steps & {'ByteFallback', 'Metaspace'}:
        spell = _of_pieces
    else:
        return None
    texts = [b''] * count
    added = backend.get_added_tokens_decoder()
    for token, number in backend.get_vocab(with_added_tokens=True).items():
        if number < count:
            texts[number] = token.encode() if number in added else spell(token)
    return texts
