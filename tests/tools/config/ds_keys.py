#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of DeepSpeed's keys: docs/deepspeed.md has it, and DeepSpeed has its keys.

    ds_keys.py PRINTER docs/deepspeed.md               the page holds what PRINTER prints
    ds_keys.py PRINTER --deepspeed HOISTWAY [FOLDER]   the table, and what HOISTWAY takes for a key
                                                       that is absent, are DeepSpeed's

DeepSpeed is not imported: its sources are read where Python finds the package, or in FOLDER; those
of torch, which is there wherever DeepSpeed is, beside it. Where there is none the second exits 77.
"""
import ast
import importlib.util
import json
import os
import re
import subprocess
import sys

SKIPPED = 77
# A model's file and class, and the section that it is.
MODELS = (
    ('runtime/zero/config.py', 'DeepSpeedZeroConfig', 'zero_optimization'),
    ('runtime/zero/offload_config.py', 'DeepSpeedZeroOffloadParamConfig',
     'zero_optimization.offload_param'),
    ('runtime/zero/offload_config.py', 'DeepSpeedZeroOffloadOptimizerConfig',
     'zero_optimization.offload_optimizer'),
    ('runtime/precision_config.py', 'DeepSpeedFP16Config', 'fp16'),
    ('runtime/precision_config.py', 'DeepSpeedBF16Config', 'bf16'),
    ('monitor/config.py', 'TensorBoardConfig', 'tensorboard'),
    ('monitor/config.py', 'CSVConfig', 'csv_monitor'),
    ('monitor/config.py', 'DeepSpeedMonitorConfig', ''),
)
# Sections whose keys are constants: a file, how their names begin, and the section.
CONSTANTS = (
    ('runtime/swap_tensor/constants.py', 'AIO_', 'aio'),
    ('runtime/activation_checkpointing/config.py', 'ACT_CHKPT_', 'activation_checkpointing'),
)
# Files that read keys of the whole, and files that name them.
READERS = ('runtime/config.py', 'runtime/precision_config.py', 'comm/config.py', 'utils/config.py',
           'profiling/config.py', 'autotuning/config.py', 'runtime/data_pipeline/config.py',
           'runtime/tensor_parallel/config.py', 'datastates/config.py')
NAMED = READERS + ('runtime/constants.py', 'comm/constants.py', 'profiling/constants.py',
                   'autotuning/constants.py', 'runtime/data_pipeline/constants.py')
# What their functions read from a section that they are handed under the name of the whole.
NESTED = {'data_routing', 'data_sampling', 'dynamic_batching', 'model_info', 'random_ltd'}
# The optimizers that there are here: a file and its class, by the name in a configuration. A file
# of torch begins with it.
OPTIMIZERS = (
    ('AdamW', 'ops/adam/cpu_adam.py', 'DeepSpeedCPUAdam'),
    ('AdamW', 'ops/adam/fused_adam.py', 'FusedAdam'),
    ('Adam', 'ops/adam/cpu_adam.py', 'DeepSpeedCPUAdam'),
    ('Lion', 'ops/lion/cpu_lion.py', 'DeepSpeedCPULion'),
    ('Lion', 'ops/lion/fused_lion.py', 'FusedLion'),
    ('Adagrad', 'ops/adagrad/cpu_adagrad.py', 'DeepSpeedCPUAdagrad'),
    ('SGD', 'torch/optim/sgd.py', 'SGD'),
)
# Of which the configuration says torch_adam.
TORCH_ADAM = ('AdamW', 'torch/optim/adamw.py', 'AdamW')
SCHEDULERS = ('WarmupLR', 'WarmupDecayLR', 'WarmupCosineLR')  # that there are here
REFUSED_SCHEDULERS = ('LRRangeTest', 'OneCycle')
# What DeepSpeed says itself, or torch alone knows and no configuration has had yet: an unknown key.
NO_KEYS = {'adamw_mode', 'maximize', 'differentiable', 'fused', 'capturable'}
# Aliases that are no names of DeepSpeed's: pages and older versions have them.
LISTED = {
    'aio.thread_count', 'aio.num_threads', 'zero_optimization.aio',
    'zero_optimization.aio.block_size', 'zero_optimization.aio.queue_depth',
    'zero_optimization.aio.intra_op_parallelism', 'zero_optimization.aio.thread_count',
    'zero_optimization.aio.num_threads', 'zero_optimization.aio.single_submit',
    'zero_optimization.aio.overlap_events', 'zero_optimization.aio.use_gds',
}


def printed(printer):
    return subprocess.run([printer], capture_output=True, text=True, check=True).stdout


def rows(table):
    """{path: (row's main path, absent, older)} with aliases."""
    found = {}
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip('|').split(' | ')]
        names = re.findall(r'`([^`]+)`', cells[0])
        for name in names:
            found[name] = (names[0], cells[2], '(older)' in cells[0], cells[1])
    return found


def fields(path, name):
    """{field or its alias: default as text} of a class of pydantic."""
    with open(path, encoding='utf-8') as f:
        tree = ast.parse(f.read())
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            break
    else:
        sys.exit(f'{path} has no {name}')
    found = {}
    for item in node.body:
        if not isinstance(item, ast.AnnAssign):
            continue
        names, default = [item.target.id], ast.unparse(item.value) if item.value else ''
        if isinstance(item.value, ast.Call):
            names += [k.value.value for k in item.value.keywords if k.arg == 'alias']
            default = ast.unparse(item.value.args[0]) if item.value.args else ''
        found.update({n: default for n in names})
    return found


def text_of(folder, path):
    with open(os.path.join(folder, path), encoding='utf-8') as f:
        return f.read()


def source(folder, path):
    """A file of DeepSpeed, or of the torch beside it."""
    return os.path.join(os.path.dirname(folder) if path.startswith('torch/') else folder, path)


def arguments(path, name):
    """{argument: default, None: it has to be given} of a class, without what is optimized."""
    with open(path, encoding='utf-8') as f:
        tree = ast.parse(f.read())
    words = {node.targets[0].id: node.value for node in tree.body
             if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            init = next(f for f in node.body
                        if isinstance(f, ast.FunctionDef) and f.name == '__init__').args
            break
    else:
        sys.exit(f'{path} has no {name}')
    plain = init.args[2:]  # without self, and the parameters or the optimizer
    given = dict(zip([a.arg for a in plain][::-1], init.defaults[::-1]))
    given.update({a.arg: d for a, d in zip(init.kwonlyargs, init.kw_defaults)})
    return {a.arg: None if a.arg not in given else ast.unparse(
        words.get(getattr(given[a.arg], 'id', None), given[a.arg])).strip('"\'')
        for a in [*plain, *init.kwonlyargs]}


def names_of(folder):
    """{constant: its text} of the files that have names of keys."""
    text = ''.join(text_of(folder, path) for path in NAMED)
    return dict(re.findall(r'^([A-Z_0-9]+) = ["\'](\w+)["\']', text, re.M))


def top_level(folder):
    """Keys that are read from the whole: of get_scalar_param, .get, [] and in."""
    names, text = names_of(folder), ''.join(text_of(folder, path) for path in READERS)
    whole, word = r'\b_?(?:param_dict|ds_config)', r'([A-Z_0-9]+\b|["\']\w+["\'])'
    found = set()
    for pattern in (rf'\bget_\w+\(\s*{whole},\s*{word}', rf'{whole}\.get\({word}',
                    rf'{whole}\[{word}\]', rf'comm_type={word}', rf'{word} in {whole}(?![\w\[])'):
        found.update(re.findall(pattern, text))
    return {names.get(name, name.strip('"\'')) for name in found
            if name in names or name[0] in '"\''} - NESTED


def read_alone(folder):
    """Keys of sections that have no model: of the optimizer, its params, and the types of data."""
    names, text = names_of(folder), text_of(folder, 'runtime/config.py')
    engine = text_of(folder, 'runtime/engine.py')
    popped = re.findall(r'(?:parameters|params)\.(?:pop|get)\(([A-Z_]+|["\']\w+["\'])', engine)
    popped += re.findall(r'(["\']\w+["\']) in optimizer_parameters', engine)
    for word in popped:
        word = word.strip('"\'')
        yield f'optimizer.params.{names.get(word, word)}'
    for word in re.findall(r'data_types_params\.get\((\w+),', text):
        yield f'data_types.{names[word]}'
    for section, word in re.findall(r'param_dict\[(OPTIMIZER|SCHEDULER)\]\[(\w+)\]', text):
        yield f'{section.lower()}.{names[word]}'


def deepspeed_keys(folder):
    """{path: where it is} of all that DeepSpeed reads and has a row of its own."""
    found = {key: 'runtime/config.py' for key in top_level(folder)}
    for path, name, section in MODELS:
        for field in fields(os.path.join(folder, path), name):
            found[f'{section}.{field}' if section else field] = name
            if section == 'bf16':
                found[f'bfloat16.{field}'] = name
    for path, begin, section in CONSTANTS:
        keys = re.findall(rf'^{begin}\w+ = ["\'](\w+)["\']', text_of(folder, path), re.M)
        found.update({f'{section}.{key}': path for key in keys})
        found[section] = path if keys else sys.exit(f'{path} has no constants {begin}')
    for _, path, name in (*OPTIMIZERS, TORCH_ADAM):
        found.update({f'optimizer.params.{key}': name
                      for key in arguments(source(folder, path), name) if key not in NO_KEYS})
    for name in SCHEDULERS + REFUSED_SCHEDULERS:
        found.update({f'scheduler.params.{key}': name for key in arguments(
            os.path.join(folder, 'runtime/lr_schedules.py'), name)})
    found.update({key: 'runtime/engine.py' for key in read_alone(folder)})
    return found


def known(table, path):
    """A row, or one of a tree above it."""
    while path:
        if path in table:
            return True
        path = path.rpartition('.')[0]
        if path in table and table[path][3] != 'anything':
            return False
    return False


def missing(keys, table):
    for key, name in sorted(keys.items()):
        if not known(table, key):
            yield f'{key} of {name} has no row'


def invented(keys, table):
    """Paths that are not said to be older, and that DeepSpeed reads nowhere."""
    for path, (_, _, older, _) in sorted(table.items()):
        if not older and path not in keys and path not in LISTED:
            yield f'{path} is no key of DeepSpeed'
    for path in sorted(LISTED):
        if path in keys or path not in table:
            yield f'{path} needs no place in LISTED'


# ---- defaults ----

def plain(text):
    """A default in one spelling: 0.9,0.999, a number, or a word in lower case."""
    text = text.strip('"\'() ').replace(' ', '').lower()
    try:
        return ','.join(str(float(part)) for part in text.split(','))
    except ValueError:
        return text


def explained(hoistway, config):
    """{path: value} of the keys that are absent, as --explain-config tells them."""
    done = subprocess.run([hoistway, 'train', '--explain-config', '--seq-len=32', '--config',
                           json.dumps(config)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f'{config}: {done.stderr}')
    rows_of = re.findall(r'(?m)^(\S+) +absent +(.*?) {2,}DeepSpeed\'s default$', done.stdout)
    return {key: re.sub(r'^--\S+ | steps$', '', value) for key, value in rows_of}


def differing_class(section, wanted, got, name):
    """Of one class: what it has by default, and what is taken here."""
    for key, default in wanted.items():
        path = f'{section}.{key}'
        if default in (None, 'None') or path not in got:
            continue
        if plain(got[path]) != plain(default):
            yield f'{path} of {name} is {default} where it is absent, and {got[path]} here'
    for path in got:
        if path.startswith(section) and path.rpartition('.')[2] not in wanted:
            yield f'{path} is {got[path]} here, and {name} has none'


def differing_classes(folder, hoistway):
    options = {'lr', 'betas', 'eps', 'weight_decay', 'momentum'}
    for kind, path, name in (*OPTIMIZERS, TORCH_ADAM):
        torch = (kind, path, name) == TORCH_ADAM
        params = {'torch_adam': True} if torch else {}
        wanted = arguments(source(folder, path), name)
        got = explained(hoistway, {'optimizer': {'type': kind, 'params': params}})
        for key in sorted(options & set(wanted)):
            if f'optimizer.params.{key}' not in got:
                yield f'optimizer.params.{key} of {name} has no default here'
        yield from differing_class('optimizer.params', wanted, got, name)
    for kind in SCHEDULERS:
        wanted = arguments(os.path.join(folder, 'runtime/lr_schedules.py'), kind)
        params = {key: 5000 for key, default in wanted.items() if default is None}
        got = explained(hoistway, {'scheduler': {'type': kind, 'params': params}})
        for key, default in wanted.items():
            if default not in (None, 'None', '-1') and f'scheduler.params.{key}' not in got:
                yield f'scheduler.params.{key} of {kind} has no default here'
        yield from differing_class('scheduler.params', wanted, got, kind)


def defaults(folder):
    """[path, default, where it is] of all that the table's column may name."""
    for path, name, section in MODELS:
        for field, default in fields(os.path.join(folder, path), name).items():
            yield f'{section}.{field}', default, name
    clip = re.findall(r'^GRADIENT_CLIPPING_DEFAULT = (\S+)',
                      text_of(folder, 'runtime/constants.py'), re.M)
    yield 'gradient_clipping', *clip, 'runtime/constants.py'
    for kind, path, name in OPTIMIZERS:
        for key, default in arguments(source(folder, path), name).items():
            if kind == 'AdamW' or key == 'momentum':
                yield f'optimizer.params.{key}', default, name
    for name in SCHEDULERS:
        for key, default in arguments(os.path.join(folder, 'runtime/lr_schedules.py'),
                                      name).items():
            yield f'scheduler.params.{key}', default, name


def differing(folder, table):
    """The column of the table, of which nothing is compared with nothing."""
    absent = {path: row[1] for path, row in table.items() if row[1] and row[0] == path}
    compared = set()
    for path, default, name in defaults(folder):
        if path in absent:
            compared.add(path)
            if plain(absent[path]) != plain(str(default)):
                yield f'{path} of {name} is {default} where it is absent, in the table ' \
                      f'{absent[path]}'
    for path in sorted(set(absent) - compared):
        yield f'{path} is {absent[path]} in the table where it is absent, and nothing says so'


def package():
    spec = importlib.util.find_spec('deepspeed')
    return os.path.dirname(spec.origin) if spec and spec.origin else None


def main():
    table = printed(sys.argv[1])
    if sys.argv[2] != '--deepspeed':
        with open(sys.argv[2], encoding='utf-8') as f:
            page = f.read()
        if table not in page:
            sys.exit(f'{sys.argv[2]} has another table than {sys.argv[1]} prints')
        return
    hoistway, folder = sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else package()
    if not folder:
        print('skipped: no deepspeed here; pip install deepspeed')
        sys.exit(SKIPPED)
    of_paths, keys = rows(table), deepspeed_keys(folder)
    wrong = [*missing(keys, of_paths), *invented(keys, of_paths), *differing(folder, of_paths),
             *differing_classes(folder, hoistway)]
    print('\n'.join(wrong) or f'{len(of_paths)} paths')
    sys.exit(bool(wrong))


if __name__ == '__main__':
    main()
