# SPDX-License-Identifier: Apache-2.0
"""hoistway prep: chats and texts to a token file.

    python -m hoistway.prep --model DIR --data FILE --out FILE.safetensors

Each chunk of rows goes to a process, and comes back as tokens, in order. Nothing is fetched, and no
code of a model is run.
"""
from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import signal
import sys

from hoistway import options
from hoistway.errors import (CONTROL, DATA_FORMAT, DATA_SHORT, PYTHON, TEMPLATE,
                             TOKENIZER, VALUE, WRITE, Refusal, tell)
from hoistway.install import NEEDED, how_to_install

OLDEST_PYTHON = (3, 9)
OLDEST_TRANSFORMERS = (4, 57)
MADE_DIFFERENT_BY = ('rows', 'learn', 'split_turns', 'plain', 'no_eos', 'control', 'template_args',
                     'ignore_keys', 'skip_bad')
SKIPPED_SHOWN = 3


def check_packages() -> None:
    if sys.version_info < OLDEST_PYTHON:
        raise Refusal(PYTHON, f'prep needs Python 3.9 or newer, and {sys.executable} is '
                      f'{sys.version.split()[0]}. Fix: {how_to_install()}')
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Refusal(PYTHON, f'prep needs the Python packages {", ".join(missing)}, which '
                      f'{sys.executable} does not have. Fix: {how_to_install()}')
    from importlib.metadata import version
    there = version('transformers')
    if tuple(int(part) for part in there.split('.')[:2]) < OLDEST_TRANSFORMERS:
        raise Refusal(PYTHON, f'prep needs transformers 4.57 or newer, and {sys.executable} has '
                      f'{there}. Fix: {how_to_install()}')


def quiet_libraries() -> None:
    """Before they are imported."""
    os.environ.update(HF_HUB_OFFLINE='1', TOKENIZERS_PARALLELISM='false',
                      TRANSFORMERS_VERBOSITY='error', TRANSFORMERS_NO_ADVISORY_WARNINGS='1',
                      HF_DATASETS_OFFLINE='1', HF_DATASETS_DISABLE_PROGRESS_BARS='1')


def check_out(path: str) -> None:
    from hoistway.tokenfile import is_token_file
    if os.path.lexists(path) and not (os.path.isfile(path) and is_token_file(path)):
        raise Refusal(WRITE, f"'{path}' is there, and no token file. Fix: another --out")
    if not path.endswith('.safetensors'):
        raise Refusal(VALUE, f"--out '{path}' does not end in .safetensors. Fix: --out "
                      f'{path}.safetensors')


def template_text(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with open(path, encoding='utf-8') as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as wrong:
        raise Refusal(TEMPLATE, f"the template '{path}' cannot be read ({wrong}). Fix: --template "
                      'FILE') from None


def load_model(given):
    from hoistway import model
    loaded = model.load(given.tokenizer or given.model, given.model)
    if given.tokenizer:
        model.check_same(loaded, model.own_description(given.model), given.allow_other_tokenizer)
    return loaded


def settings_of(given, model, template):
    from hoistway.rows import ROLES, Reading
    from hoistway.template import roles_in
    from hoistway.worker import Settings
    eos = None if given.no_eos else model.tokenizer.eos_token_id
    if eos is None and not given.no_eos and given.rows in (None, 'text'):
        tell('note', TOKENIZER, f"the tokenizer of '{model.name}' names no eos_token: nothing is "
             'put behind texts')
    chosen = template.given or model.tokenizer.chat_template or ''
    texts = chosen.values() if isinstance(chosen, dict) else [chosen]
    roles = frozenset(ROLES).union(*(roles_in(text) for text in texts))
    ignored = frozenset(filter(None, given.ignore_keys.split(',')))
    return Settings(Reading(given.rows, given.plain, ignored, roles), given.learn,
                    given.split_turns, given.control, eos, model.vocab)


_ended_by: list[int] = []  # signals that ask this program to end


def end(number: int, frame: object) -> None:
    """A handler of signals. Libraries that are imported, or call a program then, may catch whatever
    a handler raises, and go on."""
    _ended_by.append(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def check_ended() -> None:
    if _ended_by:
        end(_ended_by[0], None)


class Totals:
    """What all chunks came to."""

    def __init__(self, skip_most: int):
        self.skip_most = skip_most
        self.rows = self.skipped = self.controlled = self.calls = self.learned = 0
        self.split_chats = self.split_tokens = self.whole_tokens = 0
        self.places: list[str] = []

    def add(self, result, control: str) -> None:
        from hoistway.worker import PLACES
        self.rows += result.rows
        for code, line in result.bad:
            self.skipped += 1
            if self.skipped > self.skip_most:
                more = f' (and {self.skip_most} bad rows before it)' if self.skip_most else ''
                what, _, fix = line.partition('. Fix: ')
                fix = fix or 'correct the row, or --skip-bad N'
                raise Refusal(code, f'{what}{more}. Fix: {fix}')
            if self.skipped <= SKIPPED_SHOWN:
                tell('warning', code, f'left out: {line}')
        self.controlled += result.controlled
        self.calls += result.calls
        self.places = (self.places + result.places)[:PLACES]
        self.learned += int((result.mask.sum() if result.mask is not None else len(result.ids)))
        self.split_chats += result.split_chats
        self.split_tokens += result.split_tokens
        self.whole_tokens += result.whole_tokens


def write_all(given, work, file) -> Totals:
    from hoistway import source
    from hoistway.pool import in_order
    from hoistway.progress import Progress
    totals, progress = Totals(given.skip_bad), Progress(given.quiet)
    names = source.names_of(given.data)
    try:
        for result in in_order(work, source.chunks(names), given.processes):
            totals.add(result, given.control)
            file.add(result.ids, result.mask, result.lengths)
            progress.step(file.documents, file.tokens)
    finally:
        progress.end()
    return totals


def refuse_totals(given, totals, file) -> None:
    from hoistway.worker import refusal_of_control
    if totals.controlled and given.control == 'refuse':
        raise Refusal(*refusal_of_control(totals.controlled, totals.places))
    if file.documents == 0:
        raise Refusal(DATA_SHORT, f'{given.data}: there is nothing to learn in {totals.rows} rows. '
                      'Fix: other data')


def metadata_of(given, model, template, totals) -> dict[str, str]:
    from hoistway.model import identity
    sources = [{'name': os.path.basename(name), 'bytes': os.path.getsize(name)}
               for name in given.data.split(',')]
    chosen = {name: getattr(given, name) for name in MADE_DIFFERENT_BY}
    metadata = {'tokenizer_sha256': model.sha256,
                'tokenizer_identity': identity(model.description),
                'sources': json.dumps(sources), 'options': json.dumps(chosen),
                'rows_left_out': json.dumps({'bad': totals.skipped, 'control': totals.controlled
                                             if given.control == 'drop-row' else 0})}
    text = template.given or model.tokenizer.chat_template
    if text:
        whole = text if isinstance(text, str) else json.dumps(text, sort_keys=True)
        metadata['template_sha256'] = hashlib.sha256(whole.encode()).hexdigest()
    return metadata


def add_bytes(file, model) -> None:
    from hoistway.model import bytes_of_ids
    texts = bytes_of_ids(model.description, model.backend, model.vocab)
    if texts is not None:
        file.add_table('bytes', 'byte_offsets', [list(text) for text in texts], 'u1')


def summary(given, totals, file) -> None:
    if totals.skipped:
        tell('warning', DATA_FORMAT, f'{totals.skipped} bad rows of {totals.rows} were left out '
             '(--skip-bad)')
    if totals.controlled and given.control == 'drop-row':
        tell('warning', CONTROL, f'{totals.controlled} rows of {totals.rows} with control tokens '
             'in their own text were left out (--control drop-row)')
    if given.quiet:
        return
    if totals.calls:
        tell('note', DATA_FORMAT, f'in {totals.calls} rows of {totals.rows} the arguments of tool '
             'calls are strings that hold JSON objects: the template was given the objects')
    if totals.split_chats:
        growth = totals.split_tokens / totals.whole_tokens
        tell('note', TEMPLATE, f'in {totals.split_chats} chats turns became documents of their '
             'own, because the template renders them otherwise later: '
             f'{growth:.2f} times the tokens of these chats; --split-turns last learns the last '
             'turn alone')
    share = 100 * totals.learned / file.tokens
    print(f'{given.out}: {file.documents:,} documents of {totals.rows:,} rows, {file.tokens:,} '
          f'tokens, {share:.1f} % of them learned')


def run(words: list[str]) -> int:
    given = options.parse(words)
    check_packages()
    quiet_libraries()
    check_out(given.out)
    from hoistway import source
    source.names_of(given.data)
    if given.prompts:
        source.names_of(given.prompts)
    text = template_text(given.template)
    model = load_model(given)
    check_ended()
    from hoistway.template import Template
    from hoistway.tokenfile import TokenFile
    from hoistway.worker import Worker
    template = Template(model.tokenizer, given.template or model.name, text, given.template_args)
    work = Worker(model, template, settings_of(given, model, template))
    with TokenFile(given.out, model.vocab) as file:
        if given.prompts:
            from hoistway.prompts import prompts_of
            file.add_table('prompts', 'prompt_offsets', prompts_of(work, given.prompts), '<u4')
        totals = write_all(given, work, file)
        refuse_totals(given, totals, file)
        add_bytes(file, model)
        file.finish(metadata_of(given, model, template, totals))
    summary(given, totals, file)
    return 0


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        return run(sys.argv[1:])
    except Refusal as refusal:
        tell('error', refusal.code, refusal.text)
        return refusal.exit_status
    except KeyboardInterrupt:
        sys.stderr.write('prep: interrupted; nothing was written\n')
        return 130


if __name__ == '__main__':
    sys.exit(main())
