# SPDX-License-Identifier: Apache-2.0
"""Pure but for files that a configuration names: what the keys of a file are, as options of prep
and train. An absent key has the default of the program that the file is for, where that is another
one than hoistway's."""
from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Callable

from hoistway import convert_frozen as frozen, convert_keys as tables
from hoistway.errors import cut
from hoistway.keyed import Keys

# Trainer's names; of Adagrad's and SGD's numbers it gives the rate and the decay alone.
OPTIMIZERS = {**dict.fromkeys(('adamw_torch', 'adamw_torch_fused', 'adamw_hf', 'adamw'), 'adamw'),
              **dict.fromkeys(('lion_32bit', 'paged_lion_32bit'), 'lion'),
              'sgd': 'sgd', 'adagrad': 'adagrad'}
EIGHT_BITS = ('adamw_bnb_8bit', 'adamw_8bit', 'paged_adamw_8bit')  # AdamW, its moments in them
WARMED = {'cosine': 'cosine', 'linear': 'linear', 'constant_with_warmup': 'constant',
          'cosine_with_min_lr': 'cosine'}
FREEZES = ('freeze_trainable_layers', 'freeze_trainable_modules', 'freeze_extra_modules')
DATASET = ('import sys, datasets; datasets.load_dataset(sys.argv[1], split=sys.argv[2])'
           '.to_json(sys.argv[3])')


@dataclass
class Making:
    """What a file becomes."""
    keys: Keys
    given: object  # the command line: model, data, seq_len, own_template
    train: dict[str, object] = field(default_factory=dict)
    prep: dict[str, object] = field(default_factory=dict)
    before: list[list[str]] = field(default_factory=list)  # commands that get the data
    notes: list[str] = field(default_factory=list)
    ranks: int = 1
    wrong: list[tuple[str, str]] = field(default_factory=list)  # key, why
    left: list[str] = field(default_factory=list)

    def refuse(self, key: str, why: str) -> None:
        self.wrong.append((key, why))

    def number(self, key: str, default=None, least: float = 0):
        value = self.keys.get(key, default)
        if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)
                             and value >= least):
            return value
        self.refuse(key, f'want a number of at least {least:g}')
        return default

    def truth(self, key: str, default: bool = False) -> bool:
        value = self.keys.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, 'want true or false')
        return value is True

    def text(self, key: str) -> str | None:
        value = self.keys.get(key)
        if value is not None and not isinstance(value, str):
            self.refuse(key, 'want a text')
        return value if isinstance(value, str) else None


# ---- what all of them share: transformers' Trainer ----

def precision(m: Making) -> None:
    bf16, fp16 = m.keys.get('bf16', False), m.keys.get('fp16', False)
    for key, value in (('bf16', bf16), ('fp16', fp16)):
        if value not in (True, False, 'auto', 'true', 'false'):
            m.refuse(key, 'want true, false or auto')
    half = 'bf16' if bf16 in (True, 'auto', 'true') else 'fp16' if fp16 in (True, 'true') else ''
    if bf16 in (True, 'true') and fp16 in (True, 'true'):
        m.refuse('fp16', 'bf16 is true, too')
    m.train['--precision'] = half or 'fp32'
    if m.keys.get('tf32') is True and not half:
        m.refuse('tf32', 'products of fp32 are those of fp32 here')
    elif m.keys.get('tf32') is not None:
        m.left.append('tf32')  # no product of a half precision is one of fp32


def schedule(m: Making, key: str, default: str, least_ratio: str | None = None) -> None:
    name = m.keys.get(key, default)
    kwargs = m.keys.get('lr_scheduler_kwargs', {})
    ratio = kwargs.get('min_lr_rate') if isinstance(kwargs, dict) else None
    ratio = m.keys.get(least_ratio) if least_ratio and ratio is None else ratio
    if name not in (*WARMED, 'constant'):
        m.refuse(key, f'{cut(str(name))}: hoistway has constant, linear, cosine and wsd')
        return
    if kwargs and (name != 'cosine_with_min_lr' or set(kwargs) != {'min_lr_rate'}):
        m.refuse('lr_scheduler_kwargs', 'of cosine_with_min_lr min_lr_rate alone has a counterpart')
    if name == 'cosine_with_min_lr' and ratio is None:
        m.refuse(key, 'it needs min_lr_rate, which is --lr-end')
    m.train['--schedule'] = WARMED.get(name, 'constant')
    if ratio is not None and m.train['--schedule'] == 'cosine':
        m.train['--lr-end'] = ratio
    elif ratio is not None:
        m.refuse(least_ratio or key, f'{name} has no end')
    if name != 'constant':  # which has none, whatever the file says
        warmup(m)


def warmup(m: Making) -> None:
    steps, share = m.number('warmup_steps', 0), m.number('warmup_ratio', 0)
    if 0 < steps < 1:
        steps, share = 0, steps
    if steps != int(steps) or share > 1:
        m.refuse('warmup_steps' if steps != int(steps) else 'warmup_ratio',
                 'want whole steps, or a share of 0 to 1')
    elif steps or share:
        m.train['--warmup'] = int(steps) if steps else f'{100 * share:.10g}%'


def optimizer(m: Making, key: str, default: str) -> None:
    name = m.keys.get(key, default)
    ours = OPTIMIZERS.get(name) if isinstance(name, str) else None
    if name in EIGHT_BITS:
        ours = 'adamw'
        m.train['--state'] = '8bit'
    if ours is None:
        m.refuse(key, f'{cut(str(name))}: {tables.OPTIMIZER}')
    elif ours != 'adamw':
        m.train['--optimizer'] = ours
    betas = [m.number('adam_beta1', 0.9), m.number('adam_beta2', 0.999)]
    for i, beta in enumerate(betas):
        if beta >= 1:
            m.refuse(f'adam_beta{i + 1}', 'want a number below 1')
    eps = m.number('adam_epsilon', 1e-8)
    if ours in ('adamw', 'lion'):
        m.train['--betas'] = '{},{}'.format(*betas)
    if ours in ('adamw', 'adagrad'):
        m.train['--eps'] = eps if ours == 'adamw' else 1e-10
    if ours == 'sgd':
        m.train['--momentum'] = 0
    m.train['--weight-decay'] = m.number('weight_decay', 0)
    m.train['--clip'] = m.number('max_grad_norm', 1.0)


def length(m: Making, epochs: str, default: float) -> None:
    steps = m.number('max_steps', -1, -1)
    if steps != int(steps):
        m.refuse('max_steps', 'want whole steps')
    elif steps > 0:
        m.train['--steps'] = int(steps)
    else:
        m.train['--epochs'] = m.number(epochs, default)
        if not m.train['--epochs']:
            m.refuse(epochs, 'want a number above 0')


def batch(m: Making, micro: str, micro_default: int, seq_len) -> None:
    rows = m.number(micro, micro_default, 1) * m.number('gradient_accumulation_steps', 1, 1)
    if rows != int(rows):
        m.refuse(micro, 'with gradient_accumulation_steps it is no whole number of rows')
    elif seq_len is not None and seq_len != int(seq_len):
        m.refuse('sequence_len' if 'sequence_len' in m.keys.values else 'cutoff_len',
                 'want a whole number')
    elif seq_len is not None:
        m.train['--seq-len'] = int(seq_len)
        m.train['--batch-tokens'] = int(rows) * int(seq_len) * m.given.ranks
    m.ranks = m.given.ranks


def places(m: Making) -> None:
    out = (m.text('output_dir') or 'out').rstrip('/') or '/'
    m.train['--store'], m.train['--export'] = f'{out}.store', out
    config = m.keys.get('deepspeed')
    if isinstance(config, str):
        m.train['--config'] = config
    elif config:
        m.refuse('deepspeed', 'want the name of a file')


def trainer(m: Making, names: dict[str, str], defaults: dict[str, object]) -> None:
    m.train['--lr'] = m.number('learning_rate', defaults['learning_rate'])
    if m.train['--lr'] is None:
        m.refuse('learning_rate', 'it is not there, and has no default. Fix: give it')
    elif m.train['--lr'] == 0:
        m.refuse('learning_rate', 'want a number above 0')
    optimizer(m, names['optimizer'], defaults['optimizer'])
    schedule(m, names['schedule'], defaults['schedule'], names.get('least_ratio'))
    length(m, names['epochs'], defaults['epochs'])
    precision(m)
    if '--state' in m.train and m.train['--precision'] != 'bf16':
        m.refuse(names['optimizer'], 'hoistway has moments of 8 bits with bf16 alone')
    m.train['--seed'] = m.number('seed', 42)
    places(m)


def evaluation(m: Making, key: str) -> None:
    share, steps = m.number(key, 0), m.number('eval_steps', None)
    if share >= 1:
        m.refuse(key, 'a number of rows has no counterpart: want a fraction below 1')
    elif share:
        m.train['--eval-split'] = share
        if steps:
            m.train['--eval-every'] = f'{100 * steps:.10g}%' if steps < 1 else int(steps)
    elif steps:
        m.left.append('eval_steps')


# ---- the data ----

def template(m: Making, key: str, own: tuple) -> None:
    name = m.keys.get(key)
    if name is not None and name not in own and not m.given.own_template:
        m.refuse(key, f"{cut(str(name))}: prep renders the model's own template. Where that is the "
                      'same, --own-template says so; else give prep its text (--template)')


def data(m: Making, files: list[str], rows: str | None) -> None:
    m.prep['--data'] = m.given.data or ','.join(files)
    if rows:
        m.prep['--rows'] = rows


def hub_file(m: Making, name: str, split: str) -> str:
    """The name of a local file, or of one that a command gets."""
    if os.path.isfile(name) or name.endswith(('.jsonl', '.json', '.parquet', '.csv', '.arrow')):
        return name
    local = name.rstrip('/').rpartition('/')[2] + '.jsonl'
    m.before.append(['python3', '-c', DATASET, name, split, local])
    return local


SETS = {'path', 'type', 'split', 'data_files', 'ds_type', 'field', 'field_messages',
        'message_property_mappings', 'roles_to_train', 'train_on_eos', 'chat_template', 'name'}


def axolotl_set(m: Making, i: int, one: object) -> tuple[str, str]:
    """A file, and what its rows are."""
    at = f'datasets[{i}]'
    if not isinstance(one, dict):
        m.refuse('datasets', 'want a list of objects')
        return '', ''
    kind = one.get('type')
    rows = {'chat_template': 'messages', 'completion': 'text'}.get(kind) \
        if isinstance(kind, str) else None
    if rows is None:
        m.refuse(f'{at}.type', f'{cut(str(kind))}: axolotl writes a prompt of its own around such '
                               'rows. chat_template and completion have a counterpart')
    plain = {'field': ('text',), 'field_messages': ('messages',), 'train_on_eos': ('turn',),
             'roles_to_train': (['assistant'], ['gpt', 'assistant']),
             'chat_template': ('tokenizer_default',),
             'message_property_mappings': ({'role': 'role', 'content': 'content'},)}
    for key, value in one.items():
        if key not in SETS:
            m.refuse(f'{at}.{key}', tables.DATA)
        elif key in plain and value is not None and value not in plain[key]:
            m.refuse(f'{at}.{key}', f'want {plain[key][0]}: another one has no counterpart')
        elif key == 'name' and value:
            m.refuse(f'{at}.name', 'get that part of the data, and name its file in --data')
    files = one.get('data_files')
    if isinstance(files, str) or (isinstance(files, list) and files):
        return ','.join([files] if isinstance(files, str) else map(str, files)), rows or ''
    split = one.get('split') or 'train'
    return hub_file(m, str(one.get('path', '')), str(split)) if not m.given.data else '', rows or ''


def axolotl(m: Making) -> None:
    model, seq_len = m.text('base_model'), m.number('sequence_len', 512, 1)
    trainer(m, {'optimizer': 'optimizer', 'schedule': 'lr_scheduler', 'epochs': 'num_epochs',
                'least_ratio': 'cosine_min_lr_ratio'},
            {'optimizer': 'adamw_torch_fused', 'schedule': 'cosine', 'epochs': 1.0,
             'learning_rate': None})
    if m.keys.get('bf16') is None and m.keys.get('fp16') is None:
        m.refuse('bf16', 'it is not there, and axolotl chooses by the card. Fix: true, false or '
                         'auto, which is bf16 here')
    if m.keys.get('warmup_steps') is None and m.keys.get('warmup_ratio') is None \
            and m.keys.get('lr_scheduler') != 'constant':
        m.train['--warmup'] = '3%'
        m.notes.append('without warmup_steps and warmup_ratio axolotl warms up in 3 % of the '
                       'steps, 100 at most: give --warmup 100 where 3 % are more')
    batch(m, 'micro_batch_size', 1, seq_len)
    evaluation(m, 'val_set_size')
    if m.keys.get('test_datasets'):
        m.refuse('test_datasets', 'make a token file of it with prep, for --eval of train')
    if m.keys.get('early_stopping_patience'):
        m.train['--patience'] = m.number('early_stopping_patience', None, 1)
        if m.keys.get('evals_per_epoch'):
            m.refuse('evals_per_epoch', 'with early_stopping_patience it decides when a run ends: '
                     'eval_steps has a counterpart')
    sets = m.keys.get('datasets')
    found = [axolotl_set(m, i, one) for i, one in enumerate(sets)] \
        if isinstance(sets, list) and sets else []
    if not found:
        m.refuse('datasets', 'it is not there, or no list')
    kinds = {rows for _, rows in found}
    if len(kinds) > 1:
        m.refuse('datasets', 'sets of unlike types are made by several runs of prep')
    frozen.axolotl(m)
    template(m, 'chat_template', ('tokenizer_default',))
    finish(m, model, [name for name, _ in found], kinds.pop() if len(kinds) == 1 else None)
    whole = m.prep.get('--rows') == 'text'
    longer = {'drop': 'drop', 'truncate': 'cut'}.get(m.keys.get('excess_length_strategy', 'drop'))
    if longer is None:
        m.refuse('excess_length_strategy', 'want drop or truncate')
    m.train['--pack'] = 'on' if m.truth('sample_packing') else 'off'
    m.train['--long'] = 'split' if whole else longer
    if m.truth('train_on_inputs'):
        m.prep['--learn'] = 'all'
    if m.keys.get('tokenizer_config') not in (None, model):
        m.prep['--tokenizer'] = m.text('tokenizer_config')
    tokens = m.keys.get('special_tokens', {})
    for token in tokens:
        if token != 'pad_token':  # no padding is seen or learned
            m.refuse('special_tokens', f'{cut(token)}: {tables.MODEL}')
    if tokens:
        m.left.append('special_tokens')
    kernels = ('liger', 'cut_cross_entropy')
    for plugin in m.keys.get('plugins', []):
        if not any(f'.{kernel}.' in str(plugin) for kernel in kernels):
            m.refuse('plugins', f'{cut(str(plugin))} has no counterpart')
    if m.keys.get('plugins'):
        m.left.append('plugins')


def factory_rows(m: Making, name: str, folder: str) -> tuple[str, str]:
    """A file of dataset_info.json, and what its rows are."""
    path = os.path.join(folder, 'dataset_info.json')
    try:
        with open(path, encoding='utf-8') as file:
            info = json.load(file)[name]
        columns, tags = info.get('columns', {}), info.get('tags', {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        m.refuse('dataset', f"'{cut(name)}' is not in {cut(path)}. Fix: --data FILE with its rows, "
                            'and --rows with what they are')
        return '', ''
    other = set(info) - {'file_name', 'formatting', 'columns', 'tags', 'hf_hub_url', 'ms_hub_url',
                         'split', 'om_hub_url'}
    alpaca = info.get('formatting', 'alpaca') == 'alpaca'
    same = {'prompt': 'instruction', 'query': 'input', 'response': 'output', 'system': 'system'}
    chat = tags == {'role_tag': 'role', 'content_tag': 'content', 'user_tag': 'user',
                    'assistant_tag': 'assistant'} or tags == {
                        'role_tag': 'role', 'content_tag': 'content', 'user_tag': 'user',
                        'assistant_tag': 'assistant', 'system_tag': 'system'}
    text = columns == {'prompt': 'text'}
    fits = text or (all(same.get(key) == value for key, value in columns.items()) if alpaca else
                    columns == {'messages': 'messages'} and chat or
                    columns in ({}, {'messages': 'conversations'}) and not tags)
    if other or not fits:
        m.refuse('dataset', f"'{cut(name)}' of {cut(path)} has columns or tags without a "
                            'counterpart. Fix: --data FILE with rows that prep knows')
    file = os.path.join(folder, info['file_name']) if isinstance(info.get('file_name'), str) \
        else hub_file(m, str(info.get('hf_hub_url', name)), str(info.get('split', 'train')))
    return file, 'text' if text else 'alpaca' if alpaca else 'messages' if chat else 'sharegpt'


def factory(m: Making) -> None:
    model, stage = m.text('model_name_or_path'), m.keys.get('stage', 'sft')
    seq_len = m.number('cutoff_len', 2048, 1)
    if stage not in ('sft', 'pt'):
        m.refuse('stage', f'{cut(str(stage))}: {tables.OBJECTIVE}')
    kind = m.keys.get('finetuning_type', 'lora')
    if kind not in ('full', 'freeze'):
        m.refuse('finetuning_type', f'{cut(str(m.keys.get("finetuning_type", "lora (absent)")))}: '
                                    f'{tables.TRAINED}: full, or freeze')
    trainer(m, {'optimizer': 'optim', 'schedule': 'lr_scheduler_type',
                'epochs': 'num_train_epochs'},
            {'optimizer': 'adamw_torch', 'schedule': 'linear', 'epochs': 3.0,
             'learning_rate': 5e-5})
    batch(m, 'per_device_train_batch_size', 8, seq_len)
    evaluation(m, 'val_size')
    if m.keys.get('eval_dataset'):
        m.refuse('eval_dataset', 'make a token file of it with prep, for --eval of train')
    names = [name.strip() for name in (m.text('dataset') or '').split(',') if name.strip()]
    found = [] if m.given.data else [
        factory_rows(m, name, m.text('dataset_dir') or 'data') for name in names]
    if not names and not m.given.data:
        m.refuse('dataset', 'it is not there')
    kinds = {rows for _, rows in found if rows}
    if len(kinds) > 1:
        m.refuse('dataset', 'sets of unlike rows are made by several runs of prep')
    if kind == 'freeze':
        frozen.llama_factory(m)
    else:
        m.left += [key for key in m.keys.values if key in FREEZES]
    if stage == 'sft':
        template(m, 'template', ())
    finish(m, model, [name for name, _ in found], kinds.pop() if len(kinds) == 1 else None)
    neat = m.truth('neat_packing') and stage == 'sft'  # of pt it has no effect
    if m.truth('packing', stage == 'pt') and not neat:
        m.refuse('packing', 'rows would see each other: neat_packing is what hoistway does'
                 if stage == 'sft' else 'texts of stage pt are joined, and see each other, where '
                 'it is not false. Fix: packing: false, or their tokens as one stream for train')
    m.train['--pack'] = 'on' if neat else 'off'
    m.train['--long'] = 'refuse' if stage == 'sft' else 'cut'
    if m.truth('train_on_prompt'):
        m.prep['--learn'] = 'all'
    elif m.truth('mask_history'):
        m.prep['--learn'] = 'last'


def finish(m: Making, model: str | None, files: list[str], rows: str | None) -> None:
    """The two commands name one model and one token file."""
    model = m.given.model or model
    if model is None:
        m.refuse('base_model' if 'base_model' in m.keys.values else 'model_name_or_path',
                 'no model is named. Fix: --model DIR')
        return
    m.prep['--model'] = m.train['--model'] = model
    data(m, files, m.given.rows or rows)
    m.prep['--out'] = m.train['--data'] = 'data.safetensors'


def arguments(m: Making) -> None:
    trainer(m, {'optimizer': 'optim', 'schedule': 'lr_scheduler_type',
                'epochs': 'num_train_epochs'},
            {'optimizer': 'adamw_torch_fused', 'schedule': 'linear', 'epochs': 3.0,
             'learning_rate': 5e-5})
    batch(m, 'per_device_train_batch_size', 8, m.given.seq_len)
    if m.keys.get('eval_steps') is not None:
        m.left.append('eval_steps')
    given_alone(m)


def accelerate(m: Making) -> None:
    half, kind = m.keys.get('mixed_precision', 'no'), m.keys.get('distributed_type', 'NO')
    if half not in ('no', False, 'bf16', 'fp16'):
        m.refuse('mixed_precision', f'{cut(str(half))}: precisions are fp32, bf16 and fp16')
    if kind not in ('NO', False, 'MULTI_GPU', 'MULTI_CPU', 'DEEPSPEED', 'FSDP'):
        m.refuse('distributed_type', f'{cut(str(kind))} has no counterpart')
    m.train['--precision'] = 'fp32' if half in ('no', False) else half
    ranks = m.number('num_processes', 1, 1)
    if ranks != int(ranks):
        m.refuse('num_processes', 'want a whole number')
    m.ranks = int(ranks)
    if m.given.ranks != 1:
        m.ranks = m.given.ranks
    deepspeed(m)
    given_alone(m)
    m.notes.append('the file does not say how long is trained, in which batch and at what rate: '
                   'give train --steps or --epochs, --batch-tokens and --lr')


OFFLOADED = (('states', 'offload_optimizer'), ('weights', 'offload_param'))
OF_FILE = ('gradient_accumulation_steps', 'gradient_clipping', 'zero_stage',
           *(f'{key}_{what}' for _, key in OFFLOADED for what in ('device', 'nvme_path')))


def deepspeed_store(m: Making, paths: list[str]) -> None:
    """The paths of what is on drives, in the order of the file."""
    found = [m.keys.get(path) for path in paths]
    named = [path for path, value in zip(paths, found) if value not in (None, 'none', 'auto')]
    values = list(dict.fromkeys(m.keys.get(path) for path in named))
    if len(values) > 1:
        m.refuse(named[1], 'hoistway spreads all that it stores over all drives. Fix: one path, '
                 'and --store A,B of train')
    elif values:
        m.train['--store'] = values[0]


def deepspeed(m: Making) -> None:
    at = 'deepspeed_config.'
    homes, paths = [], []
    file = m.keys.get(f'{at}deepspeed_config_file')
    for key in OF_FILE if file else ():
        if m.keys.get(at + key) is not None:
            m.refuse(at + key, 'accelerate ends where deepspeed_config_file is there, too. Fix: '
                     'say it in that file alone')
    for what, key in OFFLOADED:
        device = m.keys.get(f'{at}{key}_device', 'none')
        if device not in ('none', 'cpu', 'nvme'):
            m.refuse(f'{at}{key}_device', 'want none, cpu or nvme')
        elif device != 'none':
            homes.append(f'{what}={"dram" if device == "cpu" else device}')
        if device == 'nvme':
            paths.append(f'{at}{key}_nvme_path')
        elif m.keys.get(f'{at}{key}_nvme_path') is not None:
            m.left.append(f'{at}{key}_nvme_path')
    for option, key in (('--config', 'deepspeed_config_file'), ('--clip', 'gradient_clipping'),
                        ('--zero-stage', 'zero_stage')):
        value = m.keys.get(at + key)
        if value not in (None, 'none', 'auto'):
            m.train[option] = value
    deepspeed_store(m, paths)
    stage = m.train.get('--zero-stage')
    if isinstance(stage, bool) or stage not in (None, 0, 1, 2, 3):
        m.refuse(f'{at}zero_stage', 'want 0 to 3')
    if homes:
        m.train['--place'] = ','.join(homes)
    if m.keys.get(f'{at}gradient_accumulation_steps') not in (None, 'auto'):
        m.notes.append('gradient_accumulation_steps is a factor of the batch: --batch-tokens of '
                       'train is that of all micro-batches and ranks')


def given_alone(m: Making) -> None:
    """Of a file without model and data. With --rows the data are rows, of which prep makes tokens;
    without, train takes them as they are."""
    for key, why in (('model', 'the file names no model'), ('data', 'the file names no data'),
                     ('seq_len', 'the file does not say how long a sequence is')):
        if not getattr(m.given, key):
            m.refuse(f'--{key.replace("_", "-")}', f'{why}. Fix: --{key.replace("_", "-")}')
    if m.given.rows:
        finish(m, m.given.model, [], None)
    else:
        m.train['--model'], m.train['--data'] = m.given.model, m.given.data
    m.train['--seq-len'] = m.given.seq_len
    m.train.setdefault('--store', 'out.store')


@dataclass(frozen=True)
class Kind:
    name: str
    signs: tuple[str, ...]  # keys, any of which is enough
    used: tuple[str, ...]
    left: tuple[str, ...]
    refused: dict[str, str]
    make: Callable[[Making], None]
    harmless: dict[str, tuple] = field(default_factory=dict)


KINDS = (
    Kind('axolotl', ('base_model',), tables.AXOLOTL_USED, tables.AXOLOTL_LEFT,
         tables.AXOLOTL_REFUSED, axolotl, tables.TRAINER_HARMLESS),
    Kind('llama-factory', ('model_name_or_path', 'finetuning_type', 'cutoff_len'),
         tables.FACTORY_USED, tables.FACTORY_LEFT, tables.FACTORY_REFUSED, factory,
         tables.FACTORY_HARMLESS),
    Kind('accelerate', ('compute_environment', 'distributed_type'), tables.ACCELERATE_USED,
         tables.ACCELERATE_LEFT, tables.ACCELERATE_REFUSED, accelerate),
    Kind('trainer', ('per_device_train_batch_size', 'learning_rate', 'output_dir'),
         tables.ARGUMENTS_USED, tables.TRAINER_LEFT, tables.TRAINER_REFUSED, arguments,
         tables.TRAINER_HARMLESS))


def _in(key: str, patterns) -> str | None:
    return next((p for p in patterns if fnmatchcase(key, p)), None)


def judge(kind: Kind, m: Making) -> None:
    """Each key is used, left out, off or refused."""
    for key, value in m.keys.values.items():
        if key.startswith('_') or key in kind.used:
            continue
        refused = _in(key, kind.refused)
        if refused and key in tables.ON:
            if value is None or value in tables.ON[key] or (
                    key == 'average_tokens_across_devices' and m.given.ranks == 1):
                m.left.append(key)
            else:
                m.refuse(key, kind.refused[refused])
            continue
        if value is None and (refused or _in(key, kind.left)):
            continue
        if refused and not (value in tables.OFF or value in ([], {}) or
                            value in kind.harmless.get(key, ())):
            m.refuse(key, kind.refused[refused])
        elif refused or _in(key, kind.left):
            m.left.append(key)
        else:
            near = difflib.get_close_matches(key, [*kind.used, *kind.left, *kind.refused], 1)
            m.refuse(key, f'convert does not know it{f". Did you mean {near[0]}?" if near else ""}')
