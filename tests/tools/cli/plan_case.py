# SPDX-License-Identifier: Apache-2.0
"""What tests of `hoistway plan` share: how it is called, and other machines' rates."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import case

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from short import by_turns, in_turn, some, whole_alone  # noqa: E402, F401: for others

PROGRAM = os.path.abspath(sys.argv.pop(1))
SIZES = ('--seq-len=16', '--batch-tokens=64')
THREADS = '--threads=1'
HOST = '--device=host'
KEYS = {'fits', 'why', 'model', 'stands_for', 'machine', 'assumed', 'store',
        'device', 'precision', 'io', 'threads', 'parameters', 'tile_elements', 'seq_len',
        'batch_tokens', 'grain_tokens', 'micro_batches', 'layers', 'ranks', 'nodes', 'nics', 'comm',
        'update', 'homes', 'checkpoint_every', 'saved_units', 'resident_units',
        'streamed_tiles', 'tiles_in_dram', 'slices', 'late_share', 'update_threads',
        'predicted_step_s', 'tok_s', 'bound_s', 'bound_fraction', 'bound_by', 'twice_as_fast',
        'predicted_start_up_s', 'start_up', 'memory', 'smallest', 'instead', 'rates', 'rate_ages_s',
        'prefetch', 'disturbed',
        'compute_fraction', 'would_help', 'full_batch_tokens', 'tokens', 'days',
        'written_step_bytes', 'written_day_bytes', 'drive_years', 'accounting'}
MIB = 1 << 20


def sealed(body):
    """Rates as text with the checksum that belongs to them: FNV-1a."""
    digest = 0xcbf29ce484222325
    for byte in body.encode():
        digest = (digest ^ byte) * 0x100000001b3 % (1 << 64)
    return body + f'end {digest:016x}\n'


def machine(**figures):
    """Another machine's rates."""
    known = {'update-fp32': 2e9, 'update-bf16': 2e9, 'norm-fp32': 9e9, 'norm-bf16': 9e9,
             'compute': 1e12, 'read': 4e9, 'write': 3e9, 'mixed': 5e9, **figures}
    head = 'hoistway rates 3\ntaken_ms 1\ntook_ms 1\ndrives 0\nproducts 0\noperations 0\n'
    return sealed(head + ''.join(f'{name} {value:.0f} {value:.0f} {value:.0f} 1 told\n'
                                 for name, value in known.items() if value))


def lasts(years):
    """As the answer tells it."""
    return f'{years:.3g} years' if years >= 1 else f'{years * 365.25:.3g} days'


NOTHING = sealed('hoistway rates 2\ntaken_ms 1\ntook_ms 1\ndrives 0\nproducts 0\noperations 0\n')


VERSION = 4  # of the rates' text: what an older program has left in a build folder is not taken


class Case(case.Case):
    """Each test has a copy of what was measured once; `forget` is for those that begin without."""
    measured = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='hoistway-plan-', dir=os.getcwd())  # a drive
        self.addCleanup(shutil.rmtree, self.folder)
        self.cache = 'cache'
        os.mkdir(self.path('cache'), 0o700)
        os.mkdir(self.path('model'))
        self.config(case.CONFIG)
        if not Case.measured:
            Case.measured = self.measure()
        shutil.copytree(Case.measured, self.path('cache'), dirs_exist_ok=True)

    def measure(self):
        """A folder with the rates of the host, and of the device that is far where it is there.
        Those that another test has measured for `./run test` serve, too."""
        folder = tempfile.mkdtemp(prefix='hoistway-rates-')
        unittest.addModuleCleanup(shutil.rmtree, folder)
        self.share()
        for device in (HOST, *([] if 'HST_DEVICE' in os.environ else ['--device=far'])):
            done = self.run_plan('--dram=256M', device=device)
            self.assertEqual((done.returncode, done.stderr), (0, ''))
        if self.cache != 'cache':  # what has a dot there is being written by another test
            shutil.copytree(self.cache, self.path('cache'), dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns('*.*'))
            self.cache = 'cache'
        self.rewrite({}, is_new=True)
        shutil.copytree(self.path('cache'), folder, dirs_exist_ok=True)
        return folder

    def share(self):
        """The tests that `./run test` starts have a folder for rates. Plans have one of their own
        in it, since other tests' rates may be of simulated drives."""
        ours = os.environ.get('XDG_CACHE_HOME')
        if ours:
            self.cache = os.path.join(os.path.abspath(ours), f'plans-{VERSION}')
            os.makedirs(self.cache, 0o700, exist_ok=True)

    def forget(self):
        shutil.rmtree(self.path('cache', 'hoistway'))

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), 'w', encoding='utf-8') as f:
            f.write(text)
        return self.path(name)

    def config(self, config):
        self.write('model/config.json', json.dumps(config))

    def rewrite(self, figures, age_s=0, alone='', is_new=False):
        """Rewrites what the cache knows, as rates that nothing disturbed."""
        now_ms = time.time_ns() // 1000000
        folder = self.path('cache', 'hoistway')
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding='utf-8') as f:
                text = f.read()
            if not re.search(rf'(?m)^{alone}', text):
                continue
            at = text.index(f'hoistway rates {VERSION}\n')
            body = text[at:text.index('\nend ') + 1]
            body = re.sub(r'(?m)^disturbed .*\n', '', body)
            body = re.sub(r'(?m)^taken_ms (\d+)',
                          lambda found: f'taken_ms '
                                        f'{now_ms if is_new else int(found[1]) - 1000 * age_s}',
                          body)
            for figure, value in figures.items():
                body = re.sub(rf'(?m)^((?:drive \d )?{figure}) \d+ \d+ \d+',
                              r'\1' + 3 * f' {value:.0f}', body)
            with open(os.path.join(folder, name), 'w', encoding='utf-8') as f:
                f.write(text[:at] + sealed(body))

    def run_verb(self, *args):
        """What it says of other work beside a probe, as of other tests, is left out."""
        done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True,
                              timeout=120, cwd=self.folder,
                              env={**os.environ, 'XDG_CACHE_HOME': self.path(self.cache)})
        self.disturbed = re.findall(r'(?m)^warning\[W108\] .*\n', done.stderr)
        done.stderr = re.sub(r'(?m)^warning\[W108\] .*\n', '', done.stderr)
        return done

    def run_plan(self, *args, device=HOST, threads=THREADS):
        return self.run_verb('plan', '--model', self.path('model'), *SIZES, threads, device, *args)

    def run_train(self, *args, steps=1, device=HOST, threads=THREADS):
        self.write('data.txt', 'x' * 4096)
        return self.run_verb('train', '--model', self.path('model'), *SIZES, threads, device, *args,
                             '--data', self.path('data.txt'), f'--steps={steps}', '--init=random')

    def plan(self, *args, status=0, **where):
        done = self.run_plan('--json', *args, **where)
        self.assertEqual((done.returncode, done.stderr), (status, ''))
        told = json.loads(done.stdout)
        self.assertEqual(set(told), KEYS)
        self.assertEqual(told['fits'], status == 0)
        return told


class Given(Case):
    """All of these tests have rates of their own: nothing is measured."""

    def measure(self):
        folder = tempfile.mkdtemp(prefix='hoistway-rates-')
        unittest.addModuleCleanup(shutil.rmtree, folder)
        return folder
