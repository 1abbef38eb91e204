#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program as a user meets it: exit codes, one line per failure, nothing written too early.

    program.py PATH_OF_HOISTWAY
"""
import fcntl
import json
import os
import pty
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

from case import CONFIG, Case
from case import by_turns as load_tests  # noqa: F401: unittest looks for it

PROGRAM = os.path.abspath(sys.argv.pop(1))
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), *['..'] * 3, 'docs', 'errors.md')


def run(*args, **more):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=120,
                          **more)


def read_terminal(master):
    """All that was written to a pseudo-terminal whose other end is closed."""
    shown = b''
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # EIO: nothing is left, and nobody writes any more
            part = b''
        if not part:
            os.close(master)
            return shown.decode()
        shown += part


def tree(folder):
    """Every path below with its size: what a refusal must leave as it was."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(at, name)
            found[path] = os.lstat(path).st_size
    return found


class Program(Case):
    def test_without_a_verb_it_says_what_is_missing(self):
        self.assert_refused(run(), 403, 2, '--help')

    def test_an_unknown_verb_names_the_nearest(self):
        self.assert_refused(run('trian', '--steps', '3'), 401, 2, 'Did you mean train?')
        self.assert_refused(run('--resume'), 401, 2)
        self.assert_refused(run('a\nerror[E999] b'), 401, 2, 'a\\x0aerror[E999] b')

    def test_version_and_help_go_to_stdout(self):
        self.assertRegex(run('--version').stdout, r'\Ahoistway \d+\.\d+\.\d+\n\Z')
        for verb in re.findall(r'^  (\w+) ', run('--help').stdout, re.M):
            done = run(verb, '--help')
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            self.assertIn(f'usage: hoistway {verb} ', done.stdout)
            self.assertLessEqual(max(map(len, done.stdout.split('\n'))), 100)

    def test_help_of_a_verb_of_verbs_lists_them_and_each_has_its_own(self):
        for verb, kinds in (('bench', ['step', 'kernels', 'layer', 'adam', 'comm']),
                            ('ckpt', ['list', 'verify', 'export', 'reshard'])):
            told = run(verb, '--help').stdout
            self.assertEqual(re.findall(r'^  (\w+) +\w', told, re.M), kinds)
            self.assertIn(f"'hoistway {verb} WHAT --help'", told)
            self.assertEqual(run(verb, '-h').stdout, told)
            for kind in kinds:
                done = run(verb, kind, '--help')
                self.assertEqual((done.returncode, done.stderr), (0, ''))
                self.assertIn(f'usage: hoistway {verb} {kind} ', done.stdout)

    def test_help_speaks_of_sizes_where_there_are_any(self):
        self.assertIn('\nSizes: ', run('train', '--help').stdout)
        self.assertNotIn('Sizes: ', run('explain', '--help').stdout)

    def test_help_and_version_are_also_verbs(self):
        self.assertEqual(run('help').stdout, run('--help').stdout)
        self.assertEqual(run('version').stdout, run('--version').stdout)

    def test_bench_kernels_tells_each_figure_in_a_line(self):
        done = run('bench', 'kernels', '--device', 'host', '--smoke', '--json')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        told = [json.loads(line) for line in done.stdout.split('\n')[:-1]]
        self.assertEqual({row['group'] for row in told},
                         {'copies', 'memory', 'matmul', 'attention', 'launches', 'waits'})
        self.assertEqual([row['unit'] for row in told if row['group'] == 'launches'],
                         ['s', 'tokens'] * 2)
        for row in told:
            self.assertEqual(row['value'] is None, row['note'] is not None, row)
        only = run('bench', 'kernels', '--device', 'host', '--smoke', '--only', 'copies').stdout
        self.assertEqual(len(re.findall(r'(?m)^copies ', only)), 9)  # with page-locking
        self.assertEqual(len(only.split('\n')), 11)
        only = run('bench', 'kernels', '--device', 'host', '--smoke', '--only', 'launches').stdout
        told = re.findall(r'(?m)^launches  layer (\w+) .* \d+\.\d (us|tokens)$', only)
        self.assertEqual(told, [(sweep, unit) for sweep in ('forward', 'backward')
                                for unit in ('us', 'tokens')])
        only = run('bench', 'kernels', '--device', 'host', '--smoke', '--only', 'waits').stdout
        for row in ('end of a copy until the thread goes on +\\d+\\.\\d us$',
                    'processor time of the thread in the wait +\\d+\\.\\d us +\\S+ % of the wait$'):
            self.assertRegex(only, '(?m)^waits     ' + row)

    def test_bench_kernels_refuses_what_it_does_not_know(self):
        self.assert_refused(run('bench', 'kernels', '--only', 'copy'), 402, 2, 'copies')
        self.assert_refused(run('bench', 'kernels', '--device', 'nothing'), 201, 1, 'nothing')

    def test_bench_step_takes_only_what_goes_together(self):
        self.assert_refused(run('bench', 'step', '--device', 'cuda'), 401, 2, '--tax or --updates')
        self.assert_refused(run('bench', 'step', '--updates'), 401, 2, '--store')
        self.assert_refused(run('bench', 'step', '--ways', '2', '--tax'), 401, 2, '--ways goes')
        self.assert_refused(run('bench', 'step', '--ways', '3', '--batch-tokens', '1024'), 402, 2,
                            'in each of 3 ways')

    def test_bench_alone_says_what_it_measures(self):
        self.assert_refused(run('bench'), 401, 2, 'can measure: step, kernels, layer, adam')

    def test_help_of_what_prints_the_table_names_the_page_that_explains_it(self):
        page = os.path.join(os.path.dirname(PAGE), 'plan.md')
        for verb in ('plan', 'train'):
            last = run(verb, '--help').stdout.splitlines()[-1]
            heading = re.fullmatch(r'docs/plan\.md, "(.*)", explains the words .*\.', last)
            with open(page, encoding='utf-8') as f:
                self.assertIn(f'\n## {heading[1]}\n', f.read())

    def test_help_of_train_lists_each_option_once(self):
        names = re.findall(r'^  --([a-z-]+)', run('train', '--help').stdout, re.M)
        self.assertEqual(sorted(names), sorted(
            'optimizer momentum '
            'model config explain-config options print-options data data-format token-dtype '
            'allow-other-tokenizer '
            'pack long init steps '
            'freeze train-only '
            'batch-tokens seq-len lr betas eps weight-decay group clip schedule lr-end warmup '
            'decay epochs seed order precision loss-scale loss-scaling skip-nonfinite state grain '
            'store hbm dram nvme durability update activations gpu-update keep keep-every place '
            'threads device layers host-math io ways zero-stage reduce hop comm gather secondary '
            'peer-timeout world rank rendezvous '
            'resume allow-config-change export export-dtype log trace csv tfevents '
            'html quiet eval eval-split eval-every keep-best patience '
            'samples sample-tokens'.split()))

    def test_explain_tells_what_the_page_tells(self):
        with open(PAGE, encoding='utf-8') as f:
            rows = re.findall(r'^\| (\d+) \| (.*) \| (.*) \|$', f.read(), re.M)
        self.assertGreater(len(rows), 30)
        every = []
        for code, what, advice in rows:
            what, advice = (re.sub(r'\[(.*?)\]\(.*?\)|`', r'\1', part) for part in (what, advice))
            every += f'E{code} {what}'.split()
            spellings = (f'E{code}', f'w{code}', code, f'error[E{code}]')
            for typed in spellings if code == rows[0][0] else spellings[int(code) % 4:][:1]:
                done = run('explain', typed)
                self.assertEqual(done.stdout.split(), f'E{code}: {what} Fix: {advice}'.split())
                self.assertEqual((done.returncode, done.stderr), (0, ''))
                self.assertLess(max(map(len, done.stdout.split('\n'))), 80)
        self.assertEqual(run('explain').stdout.split(), every)
        self.assertEqual(run('explain', 'E410', '411').stdout,
                         run('explain', 'E410').stdout + run('explain', 'E411').stdout)

    def test_explain_refuses_what_is_no_code(self):
        for typed in ('E41', 'E4100', 'X410', '410x', '', '4 0', '\n410', 'E000'):
            self.assert_refused(run('explain', typed), 402, 2,
                                "'hoistway explain' alone lists them")

    def test_explain_names_the_code_nearest_to_one_that_no_message_has(self):
        for typed, near in (('E509', 'E508'), ('w599', 'E601'), ('001', 'E101'), ('E520', 'E508'),
                            ('999', 'E702')):
            self.assert_refused(run('explain', typed), 402, 2,
                                f"the nearest is {near}. Fix: 'hoistway explain {near}'")

    def test_results_that_can_not_be_written_are_a_failure(self):
        with open('/dev/full', 'w', encoding='ascii') as full:
            done = subprocess.run([PROGRAM, '--version'], stdout=full, stderr=subprocess.PIPE,
                                  text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('error[E107]', done.stderr)


class Folder(Case):
    """A folder with a model, data and an empty place for the store."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='hoistway-test-', dir=os.getcwd())  # a drive
        self.addCleanup(shutil.rmtree, self.folder)
        self.config(CONFIG)
        self.data = self.path('data.txt')
        with open(self.data, 'w', encoding='ascii') as f:
            f.write('To be, or not to be, that is the question. ' * 30)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def config(self, config):
        os.makedirs(self.path('model'), exist_ok=True)
        with open(self.path('model', 'config.json'), 'w', encoding='ascii') as f:
            json.dump(config, f)

    def train(self, *args, without=(), **more):
        options = {'--model': self.path('model'), '--data': self.data, '--init': 'random',
                   '--store': self.path('store'), '--durability': 'none',
                   '--steps': 3, '--seq-len': 32,
                   '--batch-tokens': 128, '--grain': 64, '--device': 'host'}
        given = {a.split('=')[0] for a in map(str, args)}
        fixed = [x for k, v in options.items() if k not in given and k not in without
                 for x in (k, v)]
        return run('train', *fixed, *args, **more)

    def refuse(self, code, status, *args, part='', **more):
        before = tree(self.folder)
        self.assert_refused(self.train(*args, **more), code, status, part)
        self.assertEqual(tree(self.folder), before)

    def weights(self, *args):
        out = self.path('out')
        done = self.train(f'--export={out}', '--export-dtype=fp32', '--quiet', '--threads=1',
                          *args)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))
        with open(os.path.join(out, 'model.safetensors'), 'rb') as f:
            return f.read()


class Refusals(Folder):
    def test_values_of_the_command_line(self):
        self.refuse(402, 2, '--threads=4294967297', part="got '4294967297'")
        self.refuse(402, 2, '--threads=-5')
        self.refuse(402, 2, '--threads=0x')
        self.refuse(402, 2, '--threads=')
        self.refuse(402, 2, '--seq-len=65', '--batch-tokens=65', part='max_position_embeddings 64')
        self.refuse(402, 2, '--batch-tokens=100', part='--batch-tokens 96 or 128.')
        self.refuse(402, 2, '--place=states=hbm')
        self.refuse(402, 2, '--precision=fp16', '--loss-scale=0.5', part="got '0.5'")
        self.refuse(402, 2, '--precision=bf16', '--loss-scale=8', part='--precision fp16')
        self.refuse(402, 2, '--state=bf16', part='Fix: add --precision bf16.')
        self.refuse(402, 2, '--device=cpu', part='Fix: --device host.')
        self.refuse(402, 2, '--place=states=dram,states=nvme')
        self.refuse(402, 2, '--allow-config-change', part='Fix: --resume, or leave it out')
        self.refuse(403, 2, without=('--store',), part='--store DIR')
        self.refuse(403, 2, without=('--steps',), part='--steps N')

    def test_one_of_several_is_refused(self):
        launched = {
            'mpirun': {'OMPI_COMM_WORLD_SIZE': '2', 'OMPI_COMM_WORLD_RANK': '0'},
            'mpiexec': {'PMI_SIZE': '4', 'PMI_RANK': '0'},
            'srun': {'SLURM_STEP_NUM_TASKS': '2', 'SLURM_STEP_ID': '0', 'SLURM_PROCID': '0'},
            'torchrun': {'WORLD_SIZE': '2', 'RANK': '0', 'LOCAL_RANK': '0'},
        }
        for launcher, environment in launched.items():
            env = {**os.environ, **environment}
            alone = 'with srun --ntasks=1' if launcher == 'srun' else f'without {launcher}'
            fix = {'srun': 'Fix: srun --mpi=pmix', 'torchrun': f'Fix: start it once, {alone}'}
            if launcher in fix:
                self.refuse(501, 2, part=fix[launcher], env=env)
            else:  # MPI itself, which has not started it, knows better, and keeps some memory
                kept = os.path.join(os.path.dirname(__file__), '../../comm/lsan.supp')
                env['LSAN_OPTIONS'] = f'suppressions={kept}:print_suppressions=0'
                env['ASAN_OPTIONS'] = 'fast_unwind_on_malloc=0' # MPI has no frame pointers
                self.refuse(502, 1, '--quiet', part='ranks cannot be joined', env=env)
            told = (501, 2, fix[launcher]) if launcher in fix else (502, 1, 'cannot be joined')
            for verb in (['list'], ['verify'], ['export', '--model=x', '--export=y'],
                         ['reshard', '--world=2', '--out=y']):
                self.assert_refused(run('ckpt', *verb, self.path('store'), env=env), *told)
            self.assertEqual(run('train', '--help', env=env).returncode, 0)
        for half in ('SIZE', 'RANK'):
            self.refuse(501, 2, part='OMPI_', env=os.environ | {f'OMPI_COMM_WORLD_{half}': '2'})
        # the script of `sbatch --ntasks=4` runs once
        batch = {'SLURM_NTASKS': '4', 'SLURM_PROCID': '0', 'SLURM_STEP_ID': '4294967291',
                 'SLURM_STEP_NUM_TASKS': '4', 'WORLD_SIZE': '4'}
        done = self.train('--quiet', env={**os.environ, **batch})
        self.assertEqual((done.returncode, done.stderr), (0, ''))

    def test_store_directories(self):
        self.refuse(105, 1, f'--store={self.data}')
        self.refuse(105, 1, f'--store={self.path("no", "parent")}')
        self.refuse(105, 1, '--store=/proc/store')
        for store in ('a,,b', ',a', 'a,'):
            self.refuse(402, 2, f'--store={store}')
        self.refuse(402, 2, '--store={0},{0}/.'.format(self.folder))

    def test_words_of_store(self):
        """One process has 0 for each, in every verb."""
        words, filled = self.path('{rank}{local}{node}'), self.path('000')
        told = 'words in braces are {rank}, {local} and {node}'
        self.refuse(402, 2, f'--store={self.path("{host}")}', part=told)
        for verb in (['plan', '--model=8B'], ['doctor'], ['bench', 'step', '--tax']):
            done = run(*verb, f'--store={self.path("{host}")}')
            self.assert_refused(done, 402, 2, f'--store has {{host}}, and {told}')
        self.assert_refused(run('ckpt', 'list', words), 402, 2, 'bring them together')
        os.mkdir(filled)
        self.refuse(402, 2, f'--store={words}', f'--log={filled}/log.jsonl', part=filled)
        os.rmdir(filled)
        self.assertIn(filled, run('doctor', f'--store={words}').stdout)
        plan = json.loads(run('plan', '--model', self.path('model'), '--json', '--device=host',
                              '--seq-len=32', f'--store={words}').stdout)
        self.assertEqual(plan['store'], filled)
        self.assertFalse(os.path.exists(filled))
        done = self.train(f'--store={words}', '--durability=step', '--quiet')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertEqual(os.listdir(filled), ['r00000.d0.blk'])
        done = self.train(f'--store={words}', '--durability=step', '--resume', '--steps=4')
        self.assertIn('step 3', done.stderr)
        self.assertEqual(done.returncode, 0)

    def test_budgets(self):
        self.refuse(302, 2, '--dram=4000T')
        self.refuse(302, 2, '--dram=64K')
        self.refuse(301, 1, '--nvme=4000T')

    def test_data(self):
        os.mkfifo(self.path('fifo.txt'))
        self.refuse(420, 1, f'--data={self.path("fifo.txt")}')
        self.refuse(420, 1, '--data=/dev/zero', '--data-format=bytes')
        self.refuse(420, 1, '--data=/dev/zero', part='not a regular file')
        self.refuse(420, 1, f'--data={self.folder}', part='not a regular file')
        self.refuse(420, 1, f'--data={self.path("missing.txt")}')
        with open(self.path('short.txt'), 'w', encoding='ascii') as f:
            f.write('x' * 32)
        self.refuse(421, 1, f'--data={self.path("short.txt")}')
        with open(self.path('model', 'tokenizer.json'), 'w', encoding='ascii') as f:
            f.write('{}')
        self.refuse(423, 1, part='has a tokenizer (tokenizer.json)')

    def test_ids_far_below_the_vocabulary_are_told(self):
        for largest, told in ((63, True), (64, False)):
            with open(self.path('tokens.bin'), 'wb') as f:
                f.write(bytes([1, 0, largest, 0]) * 600)
            done = self.train(f'--data={self.path("tokens.bin")}', '--token-dtype=u16')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual('note[I422]' in done.stderr, told, done.stderr)

    def test_models(self):
        self.refuse(412, 1, f'--model={self.path("missing")}')
        self.refuse(412, 1, f'--model={self.folder}', part='no such file. Fix: name the directory')
        self.refuse(412, 1, f'--model={self.data}', part='Not a directory. Fix: name the directory')
        self.refuse(412, 1, '--model=lama-3-8b', part='Fix: name the directory that holds the ')
        for name in ('8B', 'llama-3-8b'):
            self.refuse(412, 1, f'--model={name}', part=f"--model '{name}' is a model that plan "
                        'knows by name, and no directory: train needs the model\'s files. Fix: ')
        self.refuse(410, 1, without=('--init',), part='--init random')
        with open(self.path('model', 'config.json'), 'w', encoding='ascii') as f:
            f.write('{')
        self.refuse(412, 1, part='Fix: correct config.json')
        self.config({**CONFIG, 'hidden_size': 0})
        self.refuse(413, 2)
        self.config({**CONFIG, 'architectures': ['GPT2LMHeadModel']})
        self.refuse(414, 2)

    def test_outputs(self):
        self.refuse(430, 1, f'--export={self.path("model")}')
        self.refuse(107, 1, f'--log={self.path("no", "log.jsonl")}')
        self.refuse(107, 1, f'--log={self.folder}')
        self.refuse(107, 1, f'--log={self.data}', part='not the log of a run')
        self.refuse(107, 1, f'--log={self.path("model", "config.json")}')
        self.refuse(107, 1, f'--trace={self.data}', part='not the trace of a run')
        self.refuse(107, 1, f'--trace={self.path("no", "trace.json")}')
        for option, noun in (('--log', 'log'), ('--trace', 'trace')):
            with open(self.path(noun), 'w', encoding='ascii') as f:
                fcntl.flock(f, fcntl.LOCK_EX)  # as a run does, that has not got to its first line
                self.refuse(107, 1, f'{option}={self.path(noun)}',
                            part=f"{noun}' is being written by another run. Fix: ")
            self.assertEqual(self.train(f'{option}={self.path(noun)}').returncode, 0)

    def test_nothing_else_goes_into_the_export(self):
        out = self.path('out')
        self.refuse(402, 2, f'--export={out}', f'--log={out}')
        os.mkdir(out)
        os.symlink('out', self.path('link'))
        for folder in (out, self.path('link'), self.path('model', '..', 'out')):
            self.refuse(402, 2, f'--export={out}', f'--log={folder}/run.jsonl', part='--log')
            self.refuse(402, 2, f'--export={out}', f'--store={folder}/s', part='--store')
            self.refuse(402, 2, f'--export={out}', f'--trace={folder}/t.json', part='--trace')
        self.assertEqual(self.train(f'--export={out}', f'--log={out}.jsonl').returncode, 0)

    def test_nothing_else_goes_into_the_store(self):
        store = self.path('store')
        os.mkdir(store, 0o700)
        for option in ('--export', '--log', '--trace'):
            for path in (store, f'{store}/x', self.path('model', '..', 'store', 'x')):
                self.refuse(402, 2, f'{option}={path}', part=f"{option} '")
        one = self.path('one')
        self.refuse(402, 2, f'--log={one}', f'--trace={self.path("model", "..", "one")}',
                    part='one file')
        self.assertEqual(self.train(f'--log={store}.jsonl').returncode, 0)


class Training(Folder):
    def test_a_run_tells_its_plan_its_steps_and_its_end(self):
        done = self.train(f'--export={self.path("out")}')
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in ('weights', 'states', 'budget', 'trained 3 steps', 'exported fp32 weights'):
            self.assertIn(part, done.stdout)
        self.assertRegex(done.stderr, r'(?m)^note\[I201\] device: host \(\d+ threads?, \w+\)')
        steps = re.findall(r'^step (\d)/3 \d+% \| loss [\d.]+ \| norm \S+ \| \S+ tok/s \| '
                           r'stall \w+ \d+% \| eta \w+$', done.stderr, re.M)
        self.assertEqual(steps, ['1', '3'])
        self.assertFalse(os.path.exists(self.path('store')))

    def test_a_grain_that_does_not_fit_is_told(self):
        for wish, used in ((100, 96), (1000, 128), (8, 32)):
            done = self.train(f'--grain={wish}')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f'note[I402] --grain {wish} becomes {used}: ', done.stderr)
        self.assertNotIn('I402', self.train().stderr)

    def terminal(self):
        try:
            return pty.openpty()
        except OSError as error:  # /dev/pts is not mounted
            self.skipTest(f'there are no pseudo-terminals here: {error}')

    def test_on_a_terminal_the_step_line_is_rewritten_in_place(self):
        master, terminal = self.terminal()
        done = self.run_on(terminal)
        os.close(terminal)
        shown = read_terminal(master)
        self.assertEqual(done.returncode, 0)
        steps = re.findall(r'\r(step \d/3) [^\n]*?\x1b\[K', shown)
        self.assertEqual(list(dict.fromkeys(steps)), ['step 1/3', 'step 2/3', 'step 3/3'])

    def test_on_a_terminal_an_error_has_a_line_of_its_own(self):
        master, terminal = self.terminal()
        done = self.run_on(terminal, '--lr', '1', '--weight-decay', '100', steps=99)  # diverges
        os.close(terminal)
        shown = read_terminal(master)
        self.assertEqual(done.returncode, 1, shown)
        self.assertRegex(shown, r'\rstep \d+/99 [^\n]*\x1b\[K\r\nerror\[E701\] [^\n]*\r\n\Z')

    def run_on(self, terminal, *args, steps=3):
        return subprocess.run(
            [PROGRAM, 'train', '--model', self.path('model'), '--data', self.data, '--init',
             'random', '--durability', 'none', '--store', self.path('store'),
             '--steps', str(steps), '--seq-len', '32',
             '--device', 'host', *args],
            stdout=subprocess.DEVNULL, stderr=terminal, timeout=120, check=False)

    def test_the_log_has_the_lines_of_the_contract(self):
        log = self.path('run.jsonl')
        for _ in range(2):  # the second replaces the first
            done = self.train(f'--log={log}', '--quiet', '--schedule=linear', '--lr=3e-3',
                              env={**os.environ, 'XDG_CACHE_HOME': self.path('none')})
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))
        with open(log, encoding='ascii') as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual([line['kind'] for line in lines],
                         ['run', 'step', 'step', 'step', 'drain', 'summary'])
        self.assertEqual([line['step'] for line in lines[1:4]], [1, 2, 3])
        self.assertEqual([line['lr'] for line in lines[1:4]], [3e-3, 2e-3, 1e-3])
        self.assertEqual(set(lines[1]), {'kind', 'step', 'loss', 'grad_norm', 'lr', 'tokens',
                                         'seconds', 'tok_s', 'stall_s', 'bytes', 'peak',
                                         'bound_s', 'update'})
        self.assertIsNone(lines[0]['predicted_step_s'])
        self.assertEqual(lines[5]['steps'], 3)
        self.assertGreater(lines[5]['predicted_step_s'], 0)
        self.assertIn(lines[5]['bound_by'], ('compute', 'update'))
        self.assertEqual([line['bound_s'] for line in lines[1:3]], [None, None])
        self.assertGreater(lines[3]['bound_s'], 0)  # what the second step measured
        self.assertLessEqual(lines[3]['bound_s'], lines[5]['predicted_step_s'] * (1 + 1e-8))

    def test_a_run_tells_which_updates_it_chose(self):
        log = self.path('run.jsonl')
        done = self.train(f'--log={log}', '--place=states=nvme,weights=nvme', '--durability=step',
                          '--clip=1000', '--steps=12')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('note[I602] --update auto: ', done.stderr)
        with open(log, encoding='ascii') as f:
            how = [line['update'] for line in map(json.loads, f) if line['kind'] == 'step']
        # both are tried for 5 steps; which of them is kept is the clock's to say
        self.assertEqual(how[:10], 5 * ['deferred'] + 5 * ['optimistic'])
        kept, since = {'deferred': ('none', 11), 'optimistic': ('all', 6)}[how[10]]
        self.assertEqual(how[10], how[11])
        self.assertIn(f'\nupdate: {how.count("optimistic")} of 12 steps optimistic, since step '
                      f'{since} {kept} (--update auto)\n', done.stdout)
        done = self.train(f'--log={log}', '--place=states=dram,weights=dram')
        self.assertNotIn('I602', done.stderr)
        self.assertNotIn('\nupdate: ', done.stdout)

    def test_a_run_ends_with_what_bounded_it(self):
        cache = {**os.environ, 'XDG_CACHE_HOME': self.path('cache')}
        done = self.train('--place=states=nvme,weights=nvme', env=cache)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r'(?m)^bounded by \w+: a step took [\d.e-]+ s, [\d.e-]+ s '
                                      r'predicted \([+-][\d.]+ %\), at least [\d.e-]+ s; .*faster$'
                                      r'|times as fast$')
        self.assertTrue(os.listdir(self.path('cache', 'hoistway')))  # rates of the drive
        done = self.train('--steps=1')
        self.assertNotRegex(done.stdout, 'bounded|predicted')

    def test_in_fp16_the_loss_scale_and_what_it_skipped_are_told(self):
        log = self.path('run.jsonl')
        done = self.train(f'--log={log}', '--precision=fp16', '--loss-scale=536870912')
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(log, encoding='ascii') as f:
            steps = [line for line in map(json.loads, f) if line['kind'] == 'step']
        self.assertEqual([(s['loss_scale'], s['skipped'], s['grad_norm']) for s in steps],
                         [(2.0 ** (29 - i), True, None) for i in range(3)])
        self.assertRegex(done.stderr, r'(?m)^step 3/3 .* \| skipped at loss scale 134217728 \| ')
        all_of_them = 'warning[W701] all 3 steps of this run were skipped, and the weights are as '
        self.assertIn(all_of_them, done.stderr)
        done = self.train(f'--log={log}', '--precision=fp16', '--loss-scale=536870912',
                          '--loss-scaling=static')
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(log, encoding='ascii') as f:
            steps = [line for line in map(json.loads, f) if line['kind'] == 'step']
        self.assertEqual([(s['loss_scale'], s['skipped']) for s in steps], [(2.0 ** 29, True)] * 3)
        done = self.train('--precision=bf16', '--loss-scaling=static')
        self.assertIn('--loss-scaling is for --precision fp16', done.stderr)
        done = self.train('--quiet', '--precision=fp16', '--loss-scale=536870912')
        self.assertRegex(done.stderr, r'\A' + re.escape(all_of_them) + r'[^\n]* Fix: [^\n]*\n\Z')
        done = self.train('--quiet', '--steps=1', '--precision=fp16', '--loss-scale=536870912')
        self.assertIn('the one step of this run was skipped, and the weights ', done.stderr)

    def trace(self, *args):
        path = self.path('trace.json')
        self.assertEqual(self.train(f'--trace={path}', '--quiet', *args).returncode, 0)
        with open(path, encoding='ascii') as f:
            events = json.load(f)['traceEvents']
        names = {e['tid']: e['args']['name'] for e in events if e['ph'] == 'M'}
        lanes = {name: [] for name in names.values()}
        for event in events:
            if event['ph'] == 'X':
                lanes[names[event['tid']]].append(event)
        return lanes

    def test_a_trace_has_each_thing_once_and_lanes_without_overlaps(self):
        for _ in range(2):  # the second replaces the first
            lanes = self.trace('--place=states=nvme,weights=nvme', '--steps=3')
        for events in lanes.values():
            for before, event in zip(events, events[1:]):
                self.assertGreaterEqual(event['ts'] + 0.002, before['ts'] + before['dur'])
        def count(lane, name):
            return [e['args'].get('tile') for e in lanes[lane] if e['name'] == name]
        self.assertEqual(sorted(count('update', 'update')), sorted(count('read', 'read tile')))
        tiles = set(count('update', 'update'))
        self.assertEqual(sorted(count('update', 'update')), sorted(3 * list(tiles)))
        units = {e['args']['unit'] for e in lanes['compute']}
        self.assertEqual(len(count('compute', 'backward')), 3 * len(units))
        self.assertEqual(len(count('compute', 'forward')), 3 * (len(units) - 1))
        self.assertEqual(len(count('update', 'clip')), 3)
        self.assertTrue(count('write', 'write tile') and count('read', 'read weights'))

    def test_weights_are_the_same_bytes_wherever_they_live(self):
        in_ram = self.weights('--place=states=dram,weights=dram')
        self.assertEqual(self.weights('--place=states=nvme,weights=nvme'), in_ram)
        self.assertEqual(self.weights('--place=states=nvme', '--io=threads'), in_ram)
        self.assertNotEqual(self.weights('--place=states=dram,weights=dram', '--seed=1'), in_ram)

    def test_an_export_can_be_trained_further(self):
        self.weights()
        done = self.train(f'--model={self.path("out")}', '--quiet', without=('--init',))
        self.assertEqual((done.returncode, done.stderr), (0, ''))

    def test_a_file_size_limit_is_told_not_died_of(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        done = self.train('--place=states=nvme,weights=nvme', preexec_fn=limit)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r'(?m)^error\[E\d+\] ')

    def test_where_stdout_is_full_the_export_is_told_of(self):
        out = self.path('out')
        with open('/dev/full', 'w', encoding='ascii') as full:
            done = subprocess.run(
                [PROGRAM, 'train', '--model', self.path('model'), '--data', self.data, '--init',
                 'random', '--durability', 'none', '--store', self.path('store'),
             '--steps', '1', '--seq-len', '32',
                 '--device', 'host', '--export', out], stdout=full, stderr=subprocess.PIPE,
                text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(re.findall(r'(?m)^error\[E107\] .*$', done.stderr),
                         ['error[E107] stdout cannot be written (No space left on device). '
                          f'The model was exported to {out}'])

    def test_a_log_that_can_not_grow_is_told_and_the_model_exported(self):
        def limit():  # less than 60 lines, more than the model
            resource.setrlimit(resource.RLIMIT_FSIZE, (12288, 12288))
        log, out = self.path('run.jsonl'), self.path('out')
        self.config({**CONFIG, 'hidden_size': 2, 'intermediate_size': 1, 'num_hidden_layers': 1,
                     'num_attention_heads': 1})
        done = self.train(f'--log={log}', '--steps=60', f'--export={out}', '--quiet',
                          '--place=states=dram,weights=dram', preexec_fn=limit)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r'\Awarning\[W107\] [^\n]* goes on [^\n]*\n'
                                      r'error\[E107\] [^\n]*exported to [^\n]*\n\Z')
        self.assertIn('config.json', os.listdir(out))
        with open(log, encoding='ascii') as f:
            self.assertEqual(json.loads(f.readlines()[-1])['kind'], 'step')


if __name__ == '__main__':
    unittest.main()
