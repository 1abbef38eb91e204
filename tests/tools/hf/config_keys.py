#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the table of config.json's keys hold every attribute that transformers reads?

    config_keys.py PRINTS_THE_TABLE CACHE_FOLDER VERSION...

VERSION is 4.57.6, say, or `newest`. Its wheel is fetched from PyPI with pip, once, and never
installed or run: its sources are parsed with `ast`. What the classes that can be trained reach is
looked at: their modelling and configuration files, masks, rope, attention, cache, loss, and the
base classes. Exits 77 where PyPI cannot be reached.

A key that is missing in tools/hf/config/keys.c: read what it does there, then build it, refuse it,
or say there why it is without effect.
"""

import ast
import glob
import hashlib
import os
import subprocess
import sys
import unittest
import zipfile

TABLE, CACHE, *VERSIONS = sys.argv[1:]
HASHES = {
    '4.57.6': '4c9e9de11333ddfe5114bc872c9f370509198acf0b87a832a0ab9458e2bd0550',
    '5.23.0': '018e82fd07490ad5bb58414f65e31576033dc7f36bed10c574843f69b90991bf',
}
MODELS = ('llama', 'mistral', 'qwen2', 'qwen3')
# A file, and the classes of it that the models reach; None: all of it.
READ = {
    **{f'models/{m}/modeling_{m}.py': None for m in MODELS},
    **{f'models/{m}/configuration_{m}.py': None for m in MODELS},
    'masking_utils.py': None,
    'modeling_rope_utils.py': None,
    'modeling_attn_mask_utils.py': None,
    'modeling_flash_attention_utils.py': None,
    'modeling_layers.py': ('GradientCheckpointingLayer',),
    'modeling_utils.py': ('PreTrainedModel',),
    'configuration_utils.py': ('PreTrainedConfig', 'PretrainedConfig'),
    'activations.py': None,
    'cache_utils.py': None,
    'loss/loss_utils.py': None,
    'integrations/eager_paged.py': None,
    'integrations/flash_attention.py': None,
    'integrations/flash_paged.py': None,
    'integrations/flex_attention.py': None,
    'integrations/sdpa_attention.py': None,
    'integrations/sdpa_paged.py': None,
    'integrations/tensor_parallel.py': None,
}
CONFIGS = {'config', 'text_config', 'effective_config', 'decoder_config', 'model_config'}
MAKE = ('__init__', '__post_init__', 'convert_rope_params_to_dict')  # from what a file holds
# Of the classes, not of a file: nothing in config.json sets these.
CLASS_ATTRIBUTES = {
    'attribute_map', 'base_config_key', 'base_model_ep_plan', 'base_model_fsdp_plan',
    'base_model_pp_plan', 'base_model_tp_plan', 'default_theta', 'has_no_defaults_at_init',
    'keys_to_ignore_at_inference', 'sub_configs', 'sub_configs_defaults', 'validate',
}  # fmt: skip


def is_config(node, own):
    """Whether an expression is a model's configuration; `own`: self is one, too."""
    if isinstance(node, ast.Name):
        return node.id in CONFIGS or (own and node.id == 'self')
    return isinstance(node, ast.Attribute) and node.attr in CONFIGS


def text_of(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def read_by_name(node, own):
    """x of getattr(config, 'x') and hasattr(config, 'x')."""
    name = node.func.id if isinstance(node.func, ast.Name) else ''
    if name in ('getattr', 'hasattr') and is_config(node.args[0], own):
        return text_of(node.args[1])
    return None


def attributes(tree, own):
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in called:
            if isinstance(node.ctx, ast.Load) and is_config(node.value, own):
                yield node.attr
        elif isinstance(node, ast.Call):
            yield read_by_name(node, own)


def taken(function):
    """x of kwargs.pop('x') and kwargs.get('x')."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if ast.unparse(node.func) in ('kwargs.pop', 'kwargs.get'):
                yield text_of(node.args[0])


def fields(tree):
    """What a class of configurations takes from a file: the arguments of __init__, or a
    dataclass's fields."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and 'ClassVar' not in ast.unparse(node.annotation):
            yield node.target.id
        elif isinstance(node, ast.FunctionDef) and node.name in MAKE:
            yield from taken(node)
            if node.name == '__init__':
                yield from (a.arg for a in node.args.args + node.args.kwonlyargs)


def methods_of(tree):
    """But for properties, which a file may set."""
    return {
        n.name for n in tree.body
        if isinstance(n, ast.FunctionDef)
        and not any('property' in ast.unparse(d) or 'setter' in ast.unparse(d)
                    for d in n.decorator_list)
    }  # fmt: skip


def keys_of_file(tree, only):
    found, methods = set(), set()
    for node in tree.body:
        if only and getattr(node, 'name', None) not in only:
            continue
        own = isinstance(node, ast.ClassDef) and 'Config' in node.name
        found.update(attributes(node, own))
        if own:
            found.update(fields(node))
            methods |= methods_of(node)
    return found, methods


def keys_of(wheel):
    """Key -> files that read it."""
    found, methods = {}, set()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for path, only in READ.items():
            if f'transformers/{path}' not in names:
                continue  # other versions have it
            keys, more = keys_of_file(ast.parse(archive.read(f'transformers/{path}')), only)
            methods |= more
            for key in keys:
                found.setdefault(key, []).append(path)
    return {
        key: files
        for key, files in found.items()
        if key and not key.startswith('__') and key not in CLASS_ATTRIBUTES | {'self', 'kwargs'}
        and key not in methods
    }  # fmt: skip


def fetch(version):
    """The wheel's path; exits 77 where there is none to be had."""
    folder = os.path.join(CACHE, version)
    found = glob.glob(os.path.join(folder, 'transformers-*.whl'))
    if found and version != 'newest':
        return found[0]
    for old in found:
        os.remove(old)
    what = 'transformers' if version == 'newest' else f'transformers=={version}'
    done = subprocess.run(
        [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps', '--only-binary=:all:',
         '--disable-pip-version-check', '--retries=1', '--timeout=10', '--dest', folder, what],
        capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode:
        why = (done.stderr.strip() or 'pip failed').splitlines()[-1]
        print(f'skipped: {what} could not be fetched from PyPI: {why}')
        sys.exit(77)
    return glob.glob(os.path.join(folder, 'transformers-*.whl'))[0]


def table():
    """Key -> kind."""
    told = subprocess.run([TABLE], capture_output=True, text=True, check=True).stdout
    return dict(line.split('\t')[:2] for line in told.splitlines())


class ConfigKeys(unittest.TestCase):
    maxDiff = None

    def test_every_attribute_that_is_read_is_in_the_table(self):
        keys = table()
        for version, wheel in WHEELS.items():
            with self.subTest(version=version):
                read = keys_of(wheel)
                print(f'{os.path.basename(wheel)}: {len(read)} keys', file=sys.stderr)
                self.assertEqual({k: v for k, v in read.items() if k not in keys}, {})
                # that the parser still sees what it must
                self.assertLessEqual({'hidden_size', 'pad_token_id', 'hidden_act',
                                      'rms_norm_eps', 'sliding_window', 'layer_types',
                                      'attention_dropout', 'initializer_range'}, set(read))

    def test_the_wheels_are_those_that_were_read(self):
        for version, wheel in WHEELS.items():
            with open(wheel, 'rb') as file:
                digest = hashlib.sha256(file.read()).hexdigest()
            if version != 'newest':
                self.assertEqual(digest, HASHES[version], wheel)


WHEELS = {version: fetch(version) for version in VERSIONS}

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
