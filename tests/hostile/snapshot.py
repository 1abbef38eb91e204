#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folders as Hugging Face's own programs leave them: a cache of models, a clone without git-lfs.

    snapshot.py PATH_OF_HOISTWAY PATH_OF_NVME_BENCH

A snapshot's files are links to ../../blobs/HASH: they are followed inside models--ORG--NAME, and no
further, by every verb that takes a model.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from folder import Folder  # noqa: E402

PROGRAM, NVME_BENCH = map(os.path.abspath, sys.argv[1:3])
REVISION = '0123456789abcdef0123456789abcdef01234567'
POINTER = ('version https://git-lfs.github.com/spec/v1\n'
           'oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n'
           'size 12345\n')


class Snapshot(unittest.TestCase):
    def setUp(self):
        base = tempfile.TemporaryDirectory(prefix='hoistway-snapshot-')
        self.addCleanup(base.cleanup)
        self.folder = Folder(base.name, False)
        self.hub = self.folder.path('home', 'hub')
        self.cache = os.path.join(self.hub, 'models--Org--Small-1.0')
        self.snapshot = os.path.join(self.cache, 'snapshots', REVISION)

    def path(self, *names):
        return self.folder.path(*names)

    def make_cache(self):
        """The intact model, as a program of Hugging Face would have it."""
        self.folder.put('{"model": 1}', 'model', 'tokenizer.json')
        for name in ('blobs', 'refs', 'snapshots'):
            os.makedirs(os.path.join(self.cache, name))
        os.mkdir(self.snapshot)
        for number, name in enumerate(sorted(os.listdir(self.path('model')))):
            blob = f'{number:064x}'
            os.rename(self.path('model', name), os.path.join(self.cache, 'blobs', blob))
            os.symlink(f'../../blobs/{blob}', os.path.join(self.snapshot, name))
        with open(os.path.join(self.cache, 'refs', 'main'), 'w', encoding='ascii') as file:
            file.write(REVISION)

    def link(self, name, target):
        at = os.path.join(self.snapshot, name)
        os.remove(at)
        os.symlink(target, at)

    def run_it(self, *args, **environment):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(('HF_', 'HUGGINGFACE_', 'XDG_'))}
        env.update({'HOME': self.path('nobody'), 'XDG_CACHE_HOME': self.path('cache')})
        env.update({'HF_HOME': self.path('home')} if not environment else environment)
        return subprocess.run(args, capture_output=True, text=True, timeout=120, check=False,
                              env=env)

    def train(self, model, *more, durability='none', **environment):
        return self.run_it(
            PROGRAM, 'train', '--model', model, '--data', self.path('data.bin'), '--store',
            self.path('store'), '--steps', '1', '--seq-len', '8', '--batch-tokens', '8',
            '--durability', durability, '--device', 'host', '--threads', '1', *more, **environment)

    def taken(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        shutil.rmtree(self.path('store'), ignore_errors=True)

    def refused(self, done, code, pattern):
        self.assertRegex(done.stderr, rf'\Aerror\[E{code}\] [^\n]*{pattern}[^\n]*\n\Z')
        self.assertFalse(os.path.exists(self.path('store')))

    def test_every_verb_takes_a_snapshot_and_a_name_of_the_hub(self):
        self.make_cache()
        for number, model in enumerate((self.snapshot, self.snapshot + '/', 'Org/Small-1.0')):
            with self.subTest(model=model):
                out = self.path(f'export{number}')
                self.taken(self.train(model, '--export', out))
                self.assertTrue(os.path.isfile(os.path.join(out, 'tokenizer.json')))
                self.assertFalse(os.path.islink(os.path.join(out, 'config.json')))
                self.taken(self.run_it(PROGRAM, 'plan', '--model', model, '--seq-len', '8',
                                       '--batch-tokens', '8', '--device', 'host'))
                done = self.run_it(PROGRAM, 'inspect', model)
                self.assertIn('can be trained: 1 layer, ', done.stdout)
                self.taken(self.train(model, '--init', 'random'))
                done = self.run_it(NVME_BENCH, self.path('none'), '--plan', model, '--gpu-tflops',
                                   '150')  # which reads the model, and then misses the drive
                self.refused(done, 105, 'none. cannot be used')
                self.assertEqual(self.train(model, durability='step').returncode, 0)
                self.taken(self.run_it(PROGRAM, 'ckpt', 'export', self.path('store'), '--model',
                                       model, '--export', out))

    def test_the_cache_is_where_the_environment_says(self):
        self.make_cache()
        os.makedirs(self.path('nobody', '.cache'))
        for environment in ({'HF_HUB_CACHE': self.hub}, {'HUGGINGFACE_HUB_CACHE': self.hub},
                            {'HF_HUB_CACHE': self.hub, 'HF_HOME': '/nowhere'}):
            self.taken(self.train('Org/Small-1.0', **environment))
        os.rename(self.path('home'), self.path('nobody', '.cache', 'huggingface'))
        self.taken(self.train('Org/Small-1.0', XDG_CACHE_HOME=''))
        self.taken(self.train('Org/Small-1.0', XDG_CACHE_HOME=self.path('nobody', '.cache')))
        self.refused(self.train('Org/Small-1.0', HF_HOME='/nowhere'), 412,
                     "nor a model of that name in the Hugging Face cache '/nowhere/hub'")

    def test_a_cache_without_that_model_is_named(self):
        self.make_cache()
        plan = (PROGRAM, 'plan', '--device', 'host', '--model', 'Org/Other')
        bench = (NVME_BENCH, self.path('none'), '--plan', 'Org/Other', '--gpu-tflops', '150')
        for environment, cache in (({}, self.hub), ({'HF_HUB_CACHE': '/nowhere'}, '/nowhere'),
                                   ({'HF_HOME': '/nowhere'}, '/nowhere/hub')):
            for command in (plan, bench):
                self.refused(self.run_it(*command, **environment), 402,
                             f"'Org/Other' is no file and no directory, and the Hugging Face cache "
                             f"'{cache}' has no model of that name. Fix: download it there, or set "
                             'HF_HOME')
            self.refused(self.train('Org/Other', **environment), 412,
                         f"a model of that name in the Hugging Face cache '{cache}'. Fix: "
                         'download it there')
        for name in ('Org/Ot her', 'Other', '/Org/Other'):
            done = self.run_it(PROGRAM, 'plan', '--device', 'host', '--model', name)
            self.refused(done, 402, 'is no file, no directory and no known model')

    def test_a_directory_of_that_name_comes_first(self):
        self.make_cache()
        os.makedirs(self.path('Org', 'Small-1.0'))
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.folder.folder)
        self.refused(self.train('Org/Small-1.0'), 412, 'config.json: there is no such file')

    def test_names_and_revisions_that_lead_elsewhere_are_none(self):
        self.make_cache()
        for model in ('Org/Small-1.0/', 'Org/../Small-1.0', '../Small-1.0', 'Org/', '/Org',
                      'Org//Small-1.0', './Small-1.0', 'Org/Small 1.0', 'Small-1.0'):
            with self.subTest(model=model):
                self.refused(self.train(model), 412, 'not a model directory')
        for revision in ('../snapshots/' + REVISION, '..', '', 'x' * 72, REVISION + '/..'):
            with open(os.path.join(self.cache, 'refs', 'main'), 'w', encoding='ascii') as file:
                file.write(revision)
            with self.subTest(revision=revision):
                self.refused(self.train('Org/Small-1.0'), 412, 'not a model directory')

    def test_nothing_outside_of_the_models_own_folder_is_followed(self):
        self.make_cache()
        outside = self.path('outside.safetensors')
        blob = os.path.realpath(os.path.join(self.snapshot, 'model.safetensors'))
        other = os.path.join(self.hub, 'models--Org--Other', 'blobs')
        os.makedirs(other)
        shutil.copy(blob, outside)
        shutil.copy(blob, os.path.join(other, 'weights'))
        for target in (outside, blob, '../../../../../outside.safetensors',
                       '../../../models--Org--Other/blobs/weights', '/proc/self/exe',
                       '../../../models--Org--Small-1.0/blobs/' + os.path.basename(blob)):
            with self.subTest(target=target):
                self.link('model.safetensors', target)
                self.refused(self.train(self.snapshot), 410, 'a symbolic link that leaves')
        os.symlink(outside, os.path.join(self.cache, 'blobs', 'a-link'))
        self.link('model.safetensors', '../../blobs/a-link')
        self.refused(self.train(self.snapshot), 410, 'a symbolic link that leaves')
        self.link('model.safetensors', '../../blobs/missing')
        self.refused(self.train(self.snapshot), 410, 'there is no such file')

    def test_only_a_snapshot_has_links_that_leave_it(self):
        """The same links, in folders that are named otherwise."""
        self.make_cache()
        for of, to in ((self.snapshot, os.path.join(self.cache, 'other', REVISION)),
                       (self.cache, os.path.join(self.hub, 'datasets--Org--Small-1.0'))):
            os.makedirs(os.path.dirname(to), exist_ok=True)
            os.rename(of, to)
            snapshot = to if of == self.snapshot else os.path.join(to, 'snapshots', REVISION)
            self.refused(self.train(snapshot), 412, 'config.json: a symbolic link that leaves')
            os.rename(to, of)
        self.taken(self.train(self.snapshot))

    def test_templates_are_links_one_folder_further_up(self):
        self.make_cache()
        templates = os.path.join(self.snapshot, 'additional_chat_templates')
        os.mkdir(templates)
        for name, content in (('tool_use', '{{ tools }}'), ('other', 'not copied')):
            with open(os.path.join(self.cache, 'blobs', name), 'w', encoding='ascii') as file:
                file.write(content)
        os.rename(os.path.join(self.cache, 'blobs', 'other'), self.path('other'))
        for name, target in (('tool_use', '../../../blobs/tool_use'),
                             ('other', os.path.relpath(self.path('other'), templates)),
                             ('gone', '../../../blobs/gone')):
            os.symlink(target, os.path.join(templates, name + '.jinja'))
        out = self.path('export')
        self.refused(self.train(self.snapshot, '--export', out), 412,
                     'gone.jinja: there is no such file')
        os.remove(os.path.join(templates, 'gone.jinja'))
        self.taken(self.train(self.snapshot, '--export', out))
        there = os.path.join(out, 'additional_chat_templates')
        self.assertEqual(os.listdir(there), ['tool_use.jinja'])
        with open(os.path.join(there, 'tool_use.jinja'), encoding='ascii') as file:
            self.assertEqual(file.read(), '{{ tools }}')
        self.assertFalse(os.path.islink(os.path.join(there, 'tool_use.jinja')))

    def test_what_git_lfs_leaves_is_named(self):
        named = 'a git-lfs pointer in place of the file.* Fix: git lfs pull'
        for name, code in (('model.safetensors', 410), ('config.json', 412),
                           ('tokenizer.json', 412)):
            with self.subTest(name=name):
                self.folder.put(POINTER, 'model', name)
                self.refused(self.train(self.path('model')), code, f'{name}: {named}')
                os.remove(self.path('model', name))
                self.folder.save()
        index = self.folder.shard()
        self.assertTrue(index)
        self.folder.put(POINTER, 'model', 'model.safetensors.index.json')
        self.refused(self.train(self.path('model')), 411, named)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
