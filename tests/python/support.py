# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python half share: the Python that has the packages, a tokenizer and a
model directory of our own making, a reader of token files that knows nothing of the writer."""
import functools
import glob
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'python'))
os.environ.update(HF_HUB_OFFLINE='1', TRANSFORMERS_VERBOSITY='error',
                  TRANSFORMERS_NO_ADVISORY_WARNINGS='1', TOKENIZERS_PARALLELISM='false',
                  PYTHONDONTWRITEBYTECODE='1')
PACKAGES = ('transformers', 'tokenizers', 'jinja2', 'numpy')
AGAIN = 'HOISTWAY_TEST_STARTED_AGAIN'
CHATML = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}"""
SPECIAL = ['<|im_start|>', '<|im_end|>', '<|endoftext|>']
DTYPES = {'U8': ('B', 1), 'U16': ('H', 2), 'U32': ('I', 4), 'U64': ('Q', 8), 'I64': ('q', 8)}


def missing(packages):
    return [name for name in packages if importlib.util.find_spec(name) is None]


def need(*more):
    """This process goes on with a Python that has the packages, or ends with 77 and its reason."""
    wanted = PACKAGES + more
    lacking = missing(wanted)
    if lacking and AGAIN not in os.environ:
        venv = os.environ.get('VIRTUAL_ENV')
        for python in (os.environ.get('HOISTWAY_PYTHON'),
                       os.path.join(ROOT, 'build', 'venv', 'bin', 'python'),
                       venv and os.path.join(venv, 'bin', 'python')):
            if python and os.access(python, os.X_OK):
                os.execve(python, [python, *sys.argv], {**os.environ, AGAIN: '1'})
    if lacking:
        print(f'skipped: no Python here has {", ".join(lacking)}; ./run prep-install --tests')
        sys.exit(77)


def trl_folder():
    """trl's wheel, unpacked, and not installed; None where it is not there."""
    for folder in (os.environ.get('HOISTWAY_TRL'), os.path.join(ROOT, 'build', 'trl')):
        if folder and os.path.isdir(os.path.join(folder, 'trl', 'chat_templates')):
            return folder
    return None


def corpus():
    for path in sorted(glob.glob(os.path.join(ROOT, 'docs', '*.md'))):
        with open(path, encoding='utf-8') as file:
            yield file.read()


@functools.lru_cache
def trained(special, vocab):
    """A byte-level tokenizer, as its file has it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made.to_str()


def tokenizer(special=(), plain=(), vocab=1500):
    """One that is trained here; plain: added tokens that are not special."""
    from tokenizers import AddedToken, Tokenizer
    made = Tokenizer.from_str(trained(tuple(special), vocab))
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in plain])
    return made


def model(folder, template=CHATML, special=tuple(SPECIAL), eos='<|endoftext|>', vocab_size=None,
          **more):
    """A model directory with a tokenizer, a template and a config.json; the tokenizer."""
    from transformers import PreTrainedTokenizerFast
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer(special, **more), eos_token=eos)
    made.chat_template = template
    made.save_pretrained(folder)
    with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as file:
        json.dump({'model_type': 'llama', 'vocab_size': vocab_size or len(made)}, file)
    return made


def write_rows(path, rows):
    with open(path, 'w', encoding='utf-8') as file:
        for row in rows:
            file.write((row if isinstance(row, str) else json.dumps(row)) + '\n')
    return path


def read_tokens(path):
    """{name: list} of a token file, and its metadata; by the format's own rules."""
    with open(path, 'rb') as file:
        raw = file.read()
    (length,) = struct.unpack_from('<Q', raw)
    entries = json.loads(raw[8:8 + length])
    metadata, parts, end = entries.pop('__metadata__'), {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]['data_offsets']):
        letter, width = DTYPES[entry['dtype']]
        (count,), (begin, stop) = entry['shape'], entry['data_offsets']
        assert begin == end and stop - begin == count * width, (name, entry)
        assert (8 + length + begin) % width == 0, f'{name} is not aligned'
        parts[name] = list(struct.unpack_from(f'<{count}{letter}', raw, 8 + length + begin))
        end = stop
    assert 8 + length + end == len(raw)
    return parts, metadata


def documents(parts):
    """[(ids, mask or None)]"""
    at, mask = parts['documents'], parts.get('mask')
    return [(parts['tokens'][a:b], mask[a:b] if mask else None) for a, b in zip(at, at[1:])]


def learned(parts, tok):
    """The texts that are learned, of each document: runs of tokens with mask 1."""
    found = []
    for ids, mask in documents(parts):
        runs, run = [], []
        for token, one in [*zip(ids, mask or [1] * len(ids)), (None, 0)]:
            if one:
                run.append(token)
            elif run:
                runs.append(tok.decode(run))
                run = []
        found.append(runs)
    return found


def prep(*words):
    """What `hoistway prep` does, in a fork of this process, which has imported the packages."""
    from hoistway import prep as verb, worker  # noqa: F401
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as told:
        child = os.fork()
        if child == 0:
            status = 99
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(told.fileno(), 2)
                sys.stdout, sys.stderr = os.fdopen(1, 'w'), os.fdopen(2, 'w')
                sys.argv = ['prep', *words]
                status = verb.main()
            except SystemExit as ended:
                status = ended.code or 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0), told.seek(0)
        return subprocess.CompletedProcess(words, status, out.read().decode(), told.read().decode())


def versions():
    from importlib.metadata import version
    return {name: version(name) for name in ('transformers', 'tokenizers', 'jinja2', 'numpy')}
