# SPDX-License-Identifier: Apache-2.0
"""Pure but for the model's config.json: which tensors another trainer leaves frozen, as
--train-only. Its own rule is applied to the names that the model has, so that what is printed
trains the same tensors, or nothing is printed."""
from __future__ import annotations

import json
import os
import re

from hoistway.errors import cut

MOST_LAYERS, MOST_GLOBS = 1000, 8
EMBEDDING, NORM, HEAD = 'model.embed_tokens.weight', 'model.norm.weight', 'lm_head.weight'
OF_A_LAYER = ('self_attn.q_proj.weight', 'self_attn.k_proj.weight', 'self_attn.v_proj.weight',
              'self_attn.o_proj.weight', 'mlp.gate_proj.weight', 'mlp.up_proj.weight',
              'mlp.down_proj.weight', 'input_layernorm.weight', 'post_attention_layernorm.weight')
# Some models have these too: a rule has to treat them as it does the others.
OF_SOME = ('self_attn.q_proj.bias', 'self_attn.k_proj.bias', 'self_attn.v_proj.bias',
           'self_attn.q_norm.weight', 'self_attn.k_norm.weight')


def shape(m, key: str) -> tuple[int, bool] | None:
    """How many layers the model has, and whether its head is the embedding."""
    model = m.given.model or m.text('base_model') or m.text('model_name_or_path') or ''
    try:
        with open(os.path.join(model, 'config.json'), encoding='utf-8') as file:
            config = json.load(file)
        layers, tied = config['num_hidden_layers'], config.get('tie_word_embeddings', False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        m.refuse(key, 'how many layers the model has decides which tensors train. Fix: --model '
                      'DIR with its config.json')
        return None
    if isinstance(layers, bool) or not isinstance(layers, int) or not 0 < layers <= MOST_LAYERS:
        m.refuse(key, f'num_hidden_layers of the model is {cut(str(layers))}')
        return None
    return layers, tied is True


def _digits(some: list[int]) -> str:
    if len(some) == 1:
        return str(some[0])
    whole = len(some) > 2 and some[-1] - some[0] == len(some) - 1
    return f'[{some[0]}-{some[-1]}]' if whole else f'[{"".join(map(str, some))}]'


def layer_globs(layers: list[int]) -> list[str]:
    """Of ascending numbers below 1000: those with the same last digits share a glob."""
    last: dict[int, list[int]] = {}
    for n in layers:
        last.setdefault(n // 10, []).append(n % 10)
    alike: dict[tuple, list[int]] = {}
    for tens, digits in last.items():
        begin = str(tens // 10) if tens > 9 else '' if tens else None
        alike.setdefault((begin, tuple(digits)), []).append(tens % 10)
    return [f'model.layers.{"" if begin is None else begin + _digits(tens)}{_digits([*digits])}.*'
            for (begin, digits), tens in alike.items()]


def train_only(m, key: str, trains) -> None:
    """trains: of a tensor's name, whether the other trainer trains it."""
    found = shape(m, key)
    if found is None:
        return
    layers, tied = found
    names = [name for name in (EMBEDDING, NORM, HEAD) if not (tied and name == HEAD)]
    globs, whole = [name for name in names if trains(name)], []
    for n in range(layers):
        at = f'model.layers.{n}.'
        each = {name: bool(trains(at + name)) for name in OF_A_LAYER + OF_SOME}
        if len(set(each.values())) == 2:
            one = next(name for name, is_trained in each.items() if is_trained)
            other = next(name for name, is_trained in each.items() if not is_trained)
            m.refuse(key, f'it trains {at}{one} and not {other}: a layer is frozen as a whole here')
            return
        if each[OF_A_LAYER[0]]:
            whole.append(n)
    if not globs and not whole:
        m.refuse(key, 'no tensor of the model would train')
        return
    if len(globs) == len(names) and len(whole) == layers:
        return
    globs += layer_globs(whole)
    if len(globs) > MOST_GLOBS:
        m.refuse(key, f'it takes {len(globs)} globs of --train-only, which has {MOST_GLOBS}')
    elif m.train.get('--precision') == 'fp16':
        m.refuse(key, 'fp16 has no frozen tensors here. Fix: bf16')
    else:
        m.train['--train-only'] = globs


def axolotl(m) -> None:
    """unfrozen_parameters: expressions for the beginning of a name, in which a dot is one."""
    key = 'unfrozen_parameters'
    given = m.keys.get(key)
    if not given:
        return
    patterns = [given] if isinstance(given, str) else given
    if not isinstance(patterns, list) or not all(isinstance(p, str) for p in patterns):
        m.refuse(key, 'want a list of expressions')
        return
    for pattern in patterns:
        if re.fullmatch(r'.+\[[0-9]*(:[0-9]*)?\]', pattern, re.DOTALL):
            m.refuse(key, f'{cut(pattern)}: a tensor trains as a whole, not some of its rows')
            return
    try:
        made = [re.compile(re.sub(r'\.(?!\+)', r'\\.', pattern)) for pattern in patterns]
    except re.error as wrong:
        m.refuse(key, f'no expression ({wrong})')
        return
    train_only(m, key, lambda name: any(one.match(name) for one in made))


def llama_factory(m) -> None:
    """finetuning_type: freeze trains the last layers, or by a number below 0 the first ones."""
    key = 'freeze_trainable_layers'
    count, extra = m.keys.get(key, 2), m.keys.get('freeze_extra_modules')
    modules = m.keys.get('freeze_trainable_modules', 'all')
    if isinstance(count, bool) or not isinstance(count, int) or count == 0:
        m.refuse(key, 'want a whole number above 0, or below it')
        return
    if modules not in ('all', ['all']):
        m.refuse('freeze_trainable_modules', f'{cut(str(modules))}: a layer is frozen as a whole '
                                             'here: all')
        return
    more = [one.strip() for one in extra.split(',')] if isinstance(extra, str) else extra or []
    if not isinstance(more, list) or not all(isinstance(one, str) and one for one in more):
        m.refuse('freeze_extra_modules', 'want names of modules')
        return
    found = shape(m, key)
    if found is None:
        return
    layers, tied = found
    outside = [n.split('.')[-2] for n in (EMBEDDING, NORM, HEAD) if not (tied and n == HEAD)]
    for one in more:
        if one not in outside:
            m.refuse('freeze_extra_modules', f'{cut(one)} is no module outside of the layers: '
                                             f'{", ".join(outside)}')
            return
    first = max(0, layers - count) if count > 0 else 0
    last = layers if count > 0 else min(-count, layers)
    parts = [*(f'.{n}.' for n in range(first, last)), *more]
    train_only(m, 'freeze_extra_modules' if more else key,
               lambda name: any(part in name for part in parts))
