#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of DeepSpeed's keys: docs/deepspeed.md has it, and DeepSpeed has its keys.

    ds_keys.py PRINTER docs/deepspeed.md          the page holds what PRINTER prints
    ds_keys.py PRINTER --deepspeed [FOLDER]       the table holds the keys of DeepSpeed's models

DeepSpeed is not imported: its sources are read where Python finds the package, or in FOLDER.
Where there is none the second exits 77.
"""
import ast
import importlib.util
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
# Keys that DeepSpeed hands on to a class of torch, and never names.
OF_TORCH = ('optimizer.params.dampening',)  # torch.optim.SGD


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


def top_level(folder):
    """Keys that DeepSpeedConfig reads from the whole: of get_scalar_param, .get and []."""
    names = {}
    for path in ('runtime/constants.py', 'runtime/config.py'):
        with open(os.path.join(folder, path), encoding='utf-8') as f:
            text = f.read()
        names.update(re.findall(r'^([A-Z_]+) = ["\'](\w+)["\']', text, re.M))
    used = re.findall(r'get_scalar_param\(\s*param_dict,\s*(\w+)', text)
    used += re.findall(r'param_dict\.get\((\w+),', text) + re.findall(r'param_dict\[(\w+)\]', text)
    literal = re.findall(r'param_dict(?:\.get\(|\[)["\'](\w+)["\']', text)
    return {names[name] for name in used if name in names} | set(literal)


def known(table, path):
    """A row, or one of a tree above it."""
    while path:
        if path in table:
            return True
        path = path.rpartition('.')[0]
        if path in table and table[path][3] != 'anything':
            return False
    return False


def missing(folder, table):
    for path, name, section in MODELS:
        for field in fields(os.path.join(folder, path), name):
            at = f'{section}.{field}' if section else field
            if not known(table, at):
                yield f'{at} of {name} has no row'
    for path, begin, section in CONSTANTS:
        with open(os.path.join(folder, path), encoding='utf-8') as f:
            keys = re.findall(rf'^{begin}\w+ = ["\'](\w+)["\']', f.read(), re.M)
        if not keys:
            yield f'{path} has no constants {begin}'
        for key in keys:
            if f'{section}.{key}' not in table:
                yield f'{section}.{key} has no row'
    for key in sorted(top_level(folder)):
        if key not in table:
            yield f'{key} has no row'


def differing(folder, table):
    for path, name, section in MODELS:
        for field, default in fields(os.path.join(folder, path), name).items():
            row = table.get(f'{section}.{field}')
            absent = row[1].strip('"') if row else ''
            if absent and absent.lower() != default.strip('"\'').lower():
                yield f'{section}.{field} is {default} where it is absent, in the table {absent}'


    with open(os.path.join(folder, 'runtime/constants.py'), encoding='utf-8') as f:
        clip = re.findall(r'^GRADIENT_CLIPPING_DEFAULT = (\S+)', f.read(), re.M)
    if clip != [table['gradient_clipping'][1]]:
        yield f'gradient_clipping is {clip} where it is absent'


def invented(folder, table):
    """Rows that are not said to be older, and whose key stands nowhere in DeepSpeed's sources."""
    words = set()
    for at, _, files in os.walk(folder):
        for name in files:
            if name.endswith('.py'):
                with open(os.path.join(at, name), encoding='utf-8') as f:
                    words.update(re.findall(r'\w+', f.read()))
    for main, _, older, _ in sorted(set(table.values())):
        if not older and main not in OF_TORCH and main.rpartition('.')[2] not in words:
            yield f'{main} is no key of DeepSpeed'


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
    folder = sys.argv[3] if len(sys.argv) > 3 else package()
    if not folder:
        print('skipped: no deepspeed here; pip install deepspeed')
        sys.exit(SKIPPED)
    of_paths = rows(table)
    wrong = [*missing(folder, of_paths), *differing(folder, of_paths), *invented(folder, of_paths)]
    print('\n'.join(wrong) or f'{len(of_paths)} paths')
    sys.exit(bool(wrong))


if __name__ == '__main__':
    main()
