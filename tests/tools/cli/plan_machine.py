#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hoistway plan --machine`: machines without being there, and files of them that are none.

    plan_machine.py PATH_OF_HOISTWAY [Class.test_name]
"""
import json
import os
import re
import resource
import unittest

from plan_case import by_turns as load_tests  # noqa: F401: unittest looks for it
from plan_case import NOTHING, SIZES, Given, machine

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../..')
GOOD = '''hoistway machine 1
# A box.
name box
about a box with one GPU
date 2026-11-27
source its maker
gpus 1
compute-capability 9
hbm 80e9
dram 256G
nvme 4e12
drives 2
rate compute 4e14 assumed half of its peak
rate update-bf16 2e9 measured on it
rate h2d 5e10 assumed as its link
rate d2h 5e10 assumed as its link
rate read 6e9 measured on it
rate write 4e9 measured on it
rate mixed 6e9 measured on it
'''
HOST_ONLY = re.sub(r'(?m)^(gpus|compute-cap|hbm|rate compute|rate .2.).*\n', '', GOOD)


def place(text, line):
    """(line, column) where the line of that key begins in GOOD."""
    return text[:text.index(f'\n{line}') + 1].count('\n') + 1, 1


def malformed():
    """(name, bytes, line, column), column None: wherever it is found."""
    yield 'empty', b'', 1, 1
    yield 'other', b'hello\n', 1, 1
    yield 'version', GOOD.replace('machine 1', 'machine 2').encode(), 1, 1
    yield 'mark', b'\xef\xbb\xbf' + GOOD.encode(), 1, 1
    yield 'carriage', GOOD.replace('\n', '\r\n').encode(), 1, 1
    yield 'cut', GOOD[:-1].encode(), 19, None
    yield 'unsealed', (GOOD + NOTHING[:-5] + '\n').encode(), 20, 1
    for byte in (0, 1, 7, 9, 11, 13, 27, 127, 128, 192, 255):
        yield f'byte-{byte}', GOOD.encode().replace(b'a box', b'a' + bytes([byte]) + b'box'), 4, 8
    for key in ('name', 'date', 'source', 'dram', 'gpus', 'hbm', 'nvme', 'drives'):
        yield f'without-{key}', re.sub(f'(?m)^{key} .*\n', '', GOOD).encode(), 18, 1
        line, column = place(GOOD, key)
        yield f'blank-{key}', GOOD.replace(f'\n{key}', f'\n {key}').encode(), line, column
        yield f'upper-{key}', GOOD.replace(f'\n{key}', f'\n{key.upper()}').encode(), line, column
        value = re.sub(f'(?m)^{key} .*', key, GOOD).encode()
        yield f'no-value-{key}', value, line, len(key) + 1
        if key != 'source':
            yield f'twice-{key}', re.sub(f'(?m)^({key} .*\n)', r'\1\1', GOOD).encode(), line + 1, 1
    for date in ('yesterday', '2026-11-31', '2026-13-01', '2026-00-10', '2026-1-1', '1969-12-31',
                 '2027-02-29', '2026/11/27', '-026-11-27', '2026-11-277'):
        line, _ = place(GOOD, 'date')
        yield f'date-{date[:4]}-{len(date)}-{date[-2:]}'.replace('/', '.'), \
            GOOD.replace('2026-11-27', date).encode(), line, 6
    for size in ('-1', '0', 'nan', 'inf', '1e999', '80GBB', '0x10', '1e19', '1,5G', '8 0G'):
        yield f'size-{size}', GOOD.replace('256G', size).encode(), place(GOOD, 'dram')[0], 6
    yield 'nics-none', (GOOD + 'nics 0\n').encode(), 20, 6
    yield 'nics-twice', (GOOD + 'nics 8\nnics 8\n').encode(), 21, 1
    for count in ('0', '-1', '1.5', '65537', '1e9', 'two'):
        yield f'count-{count}', GOOD.replace('drives 2', f'drives {count}').encode(), \
            place(GOOD, 'drives')[0], 8
    line, _ = place(GOOD, 'rate read')
    for rate in ('-6e9', '0', '0.5', 'nan', 'inf', '1e18', '1e999', '6G', '6e9e', '0x6'):
        yield f'rate-{rate}', GOOD.replace('read 6e9', f'read {rate}').encode(), line, 11
    for name, text, column in (
            ('unknown', 'rate reads 6e9 measured on it', 6), ('nothing', 'rate', 5),
            ('no-number', 'rate read', 10), ('no-kind', 'rate read 6e9', 14),
            ('other-kind', 'rate read 6e9 guessed on it', 15),
            ('no-words', 'rate read 6e9 measured', 23),
            ('long', 'rate read 6e9 measured ' + 'x' * 200, 15)):
        yield f'rate-{name}', GOOD.replace('rate read 6e9 measured on it', text).encode(), \
            line, column
    yield 'rate-twice', (GOOD + 'rate read 1e9 measured on it\n').encode(), 20, 6
    yield 'name-long', GOOD.replace('name box', 'name ' + 'x' * 48).encode(), 3, 6
    yield 'name-slash', GOOD.replace('name box', 'name ../box').encode(), 3, 6
    yield 'large', (GOOD + '#\n' * 40000).encode(), None, None


class Files(Given):
    def plan_on(self, text, *args, status=0):
        path = self.write('box', text)
        done = self.run_plan('--json', '--machine', path, *args, device='--seed=1')
        self.assertEqual((done.returncode, done.stderr), (status, ''))
        return json.loads(done.stdout)

    def test_a_hundred_malformed_ones_are_each_one_line_with_its_place(self):
        count = 0
        for name, text, line, column in malformed():
            with self.subTest(name=name):
                count += 1
                with open(self.path('bad'), 'wb') as f:
                    f.write(text)
                for option in ('--machine', '--rates')[:1 + (count % 10 == 0 and line != 1)]:
                    done = self.run_plan(option, self.path('bad'))
                    self.assertEqual((done.returncode, done.stdout), (2, ''), done.stderr)
                    self.assertEqual(done.stderr.count('\n'), 1, done.stderr)
                    at = f'{self.path("bad")}:{line}:{column}: ' if column else \
                        f'{self.path("bad")}:{line}:' if line else 'it is too large'
                    self.assertIn('error[E406] ', done.stderr)
                    self.assertIn(at, done.stderr)
                    self.assertIn(' Fix: ', done.stderr)
        self.assertGreaterEqual(count, 100)

    def test_a_directory_and_no_name_are_refused(self):
        done = self.run_plan('--machine', self.folder)
        self.assertRegex(done.stderr, r"^error\[E406\] --machine '.*' cannot be read")
        done = self.run_plan('--machine=dgx-h10')
        self.assertIn("'dgx-h10' is no machine that is known, and no file. Fix: perhaps dgx-",
                      done.stderr)

    def test_sizes_are_budgets_and_a_gpu_needs_none_here(self):
        told = self.plan_on(GOOD)
        self.assertEqual((told['machine'], told['device'], told['precision']),
                         ('box', 'cuda', 'bf16'))
        budget = told['memory']['budget']
        self.assertEqual((budget['dram'], budget['nvme']), (int(.9 * (256 << 30)), int(3.6e12)))
        self.assertTrue(.89 * 80e9 < budget['hbm'] < .91 * 80e9)
        self.assertEqual(told['assumed'], ['compute', 'h2d', 'd2h'])
        self.assertIsNone(told['rate_ages_s']['compute'])
        self.assertEqual(set(told['prefetch'].values()), {None})
        self.assertGreaterEqual(told['rate_ages_s']['read'], 0)
        given = self.plan_on(GOOD, '--dram=4T', '--nvme=1T', '--hbm=9G')['memory']['budget']
        self.assertEqual(given, {'hbm': 9 << 30, 'dram': 4 << 40, 'nvme': 1 << 40})

    def test_the_answer_says_what_is_assumed(self):
        done = self.run_plan('--machine', self.write('box', GOOD), device='--seed=1')
        self.assertRegex(done.stdout, r'(?m)^fits, assumed: a step takes ')
        self.assertRegex(done.stdout, r'(?m)^on box: a box with one GPU$')
        self.assertRegex(done.stdout, r'compute 400 TFLOP/s, h2d 50 GB/s, d2h 50 GB/s, assumed; ')
        all_measured = self.write('box', GOOD.replace('assumed', 'measured'))
        measured = self.run_plan('--machine', all_measured, device='--seed=1')
        self.assertRegex(measured.stdout, r'(?m)^fits: a step takes ')

    def test_rates_are_those_of_the_file_too(self):
        whole = HOST_ONLY + 'rate compute 1e12 measured on it\n' + \
            ''.join(f'rate {name} 9e9 measured on it\n'
                    for name in ('update-fp32', 'norm-fp32', 'norm-bf16'))
        on = self.plan_on(whole)
        by = self.plan('--rates', self.write('box', whole), '--dram=1G', '--nvme=1G')
        self.assertEqual(by['rates'], on['rates'])
        self.assertEqual((on['device'], by['machine'], by['assumed']), ('host', None, []))
        self.assertIsNotNone(by['predicted_step_s'])

    def test_a_sealed_file_of_rates_may_stand_behind(self):
        sealed = HOST_ONLY + machine(read=1e9)
        told = self.plan_on(sealed)
        self.assertEqual(told['rates']['read'], 6e9)  # a line comes before
        self.assertEqual(told['rates']['compute'], 1e12)

    def test_a_gpu_is_planned_by_its_budget_with_rates_alone(self):
        rates = self.write('rates', machine(**{'h2d': 5e10, 'd2h': 5e10}))
        told = self.plan('--rates', rates, '--hbm=8G', '--dram=1G', device='--seed=1')
        self.assertEqual((told['device'], told['memory']['budget']['hbm']), ('cuda', 8 << 30))
        told = self.plan('--rates', rates, '--hbm=8G', '--dram=1G', '--world=2', device='--seed=1')
        self.assertEqual((told['device'], told['memory']['budget']['hbm']), ('cuda', 8 << 30))

    def test_ranks_fill_as_many_nodes_as_they_can_share(self):
        done = self.run_verb('plan', '--model', self.path('model'), '--machine=dgx-h100', '--json',
                             '--world=9', '--seq-len=16', '--batch-tokens=144')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        told = json.loads(done.stdout)
        self.assertEqual((told['ranks'], told['nodes']), (9, 3))

    def test_what_it_has_not_is_refused(self):
        box = self.write('box', HOST_ONLY)
        done = self.run_plan('--machine', box, device='--device=cuda')
        self.assertIn("error[E402] --device cuda is none of 'box'. Fix: --device host", done.stderr)
        done = self.run_plan('--machine=dgx-h100', '--world=64', '--nodes=4', device='--seed=1')
        self.assertIn("16 ranks on a node are more than the 8 GPUs of 'dgx-h100'. Fix: --nodes 8",
                      done.stderr)
        done = self.run_plan('--machine=h100', '--hbm=96G', device='--seed=1')
        self.assertIn("error[E402] --hbm is more than a GPU of 'h100' has", done.stderr)
        done = self.run_plan('--machine=h100', device='--device=cduo')
        self.assertIn("error[E402] --device cduo is none of 'h100'. Fix: --device cuda",
                      done.stderr)
        box = self.write('box', re.sub(r'(?m)^(nvme|drives).*\n', '', HOST_ONLY))
        done = self.run_plan('--machine', box, '--store', self.path('s'))
        self.assertIn("error[E402] --store is on drives, and 'box' has none", done.stderr)
        done = self.run_plan('--machine=h100', '--probe')
        self.assertIn('error[E402] --probe measures this machine', done.stderr)

    def test_two_machines_stand_side_by_side(self):
        for name, known in (('a', 'rtx-4090-64g'), ('b', 'rtx-5090-256g')):
            self.write(f'{name}.json', json.dumps({'machine': known, 'model': self.path('model')}))
        done = self.run_verb('plan', *SIZES, '--compare', 'a.json,b.json')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertRegex(done.stdout, r'(?m)^rates +assumed +assumed$')
        self.assertRegex(done.stdout, r'(?m)^B is \d\.\d+ times as fast')


class Known(Given):
    def test_the_list_has_those_of_the_folder(self):
        done = self.run_verb('plan', '--machine', 'list')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        names = {name[:-4] for name in os.listdir(os.path.join(ROOT, 'docs/machines'))
                 if name.endswith('.txt')}
        listed = set(re.findall(r'(?m)^([a-z]\S+) +\S.*$', done.stdout)) - {'docs/machines'}
        self.assertEqual(listed, names | {'here'})
        self.assertEqual(self.run_verb('plan', '--machine=list').stdout, done.stdout)

    def test_each_plans_without_being_there(self):
        for name in sorted(os.listdir(os.path.join(ROOT, 'docs/machines'))):
            if not name.endswith('.txt'):
                continue
            with self.subTest(name=name):
                done = self.run_plan('--json', '--machine', name[:-4], device='--seed=1')
                self.assertEqual((done.returncode, done.stderr), (0, ''))
                told = json.loads(done.stdout)
                self.assertEqual((told['machine'], told['why']), (name[:-4], None))
                self.assertIn('mixed', told['assumed'])

    def test_nccl_joins_as_many_ranks_as_a_gpu_adds(self):
        """Three on a node are no group, so all meet in one hop. Who names nothing has MPI then."""
        given = ('plan', '--model=8B', '--world=4098', '--nodes=1366', '--machine=dgx-h200',
                 '--seq-len=1024', '--batch-tokens=4196352')
        why = 'an exchange by NCCL has 4098 ranks in one hop, and a GPU adds 4096 inputs at most'
        done = self.run_verb(*given, '--comm=nccl')
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f'error[E402] --comm nccl: {why}. Fix: --comm mpi', done.stderr)
        done = self.run_verb(*given)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, 'note[I505] what GPUs of ranks gather and exchange meets in '
                                      f'DRAM, by MPI: {why}\n')
        self.assertIn('\nrank 0 of 4098 on 1366 nodes, 4098 ways, which meet in DRAM by MPI\n',
                      done.stdout)

    def of_a_file(self, pattern, text, *given):
        """A plan on H100s in a DGX of which one line differs."""
        with open(os.path.join(ROOT, 'docs/machines/dgx-h100.txt'), encoding='utf-8') as file:
            changed, count = re.subn(pattern, text, file.read())
        self.assertEqual(count, 1)
        done = self.run_verb('plan', *given, '--machine', self.write('box', changed), '--json')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return json.loads(done.stdout)

    def test_another_nic_is_worth_what_a_plan_with_it_takes(self):
        """In each node, beside those that its file says. The rates between nodes are the only thing
        that differs, and where nothing crosses nodes, or nothing waits for it, there is no line."""
        given = ('--model=8B', '--world=64', '--seq-len=1024', '--batch-tokens=65536')
        told = self.of_a_file(r'(?m)^nics 8$', 'nics 2', *given)
        self.assertEqual((told['nics'], told['nodes']), (2, 8))
        nic, = (help for help in told['would_help'] if help['what'] == 'nic')
        self.assertEqual(nic['amount'], 3)
        text = self.run_verb('plan', *given, '--machine', self.path('box'), '--html=page').stdout
        more = self.of_a_file(r'(?m)^(rate net-between) 4e10', r'\1 6e10', *given)
        self.assertGreater(told['predicted_step_s'], 1.1 * more['predicted_step_s'])
        self.assertLess(abs(nic['predicted_step_s'] / more['predicted_step_s'] - 1), .02)
        line = f'one more NIC, 3 in each node: {nic["predicted_step_s"]:.3g} s a step, ' \
               f'{nic["times_tok_s"]:.2f} times as many tok/s'
        self.assertIn(f'\n  {line}\n', text)
        lacks = 'what one more NIC brings is not known'
        self.assertNotIn(lacks, text)
        with open(self.path('page'), encoding='utf-8') as page:
            self.assertIn(line, page.read())
        unknown = self.of_a_file(r'(?m)^nics 8\n', '', *given)
        self.assertIsNone(unknown['nics'])
        self.assertNotIn('nic', [help['what'] for help in unknown['would_help']])
        text = self.run_verb('plan', *given, '--machine', self.path('box')).stdout
        self.assertIn(lacks, text)
        for other in (('--world=8', '--batch-tokens=8192'),  # of one node
                      ('--world=64', '--batch-tokens=1048576')):  # which it computes for long
            options = ('--model=8B', '--seq-len=1024', *other)
            told = self.of_a_file(r'(?m)^nics 8$', 'nics 2', *options)
            self.assertNotIn('nic', [help['what'] for help in told['would_help']])
            self.assertNotIn(lacks, self.run_verb('plan', *options, '--machine=dgx-h100').stdout)

    def test_messages_take_longer_the_more_ranks_there_are(self):
        """A gather by NCCL has a step for each other rank: 896 in a node and 127 between nodes
        of 1,024. One node has no message to another, and --net-latency is all of an operation."""
        between = r'(?m)^(rate net-messages-between) \S+'
        steps = {}
        for world in (8, 64, 1024):
            given = ('--model=8B', f'--world={world}', '--seq-len=1024',
                     f'--batch-tokens={1024 * world}')
            steps[world] = [self.of_a_file(between, rf'\1 {rate}', *given)['predicted_step_s']
                            for rate in ('1e9', '71400', '7140')]
        added = {world: [all - none for all in rest] for world, (none, *rest) in steps.items()}
        self.assertEqual(added[8], [0, 0])
        # of each of 34 units two gathers and an exchange have them, at least
        self.assertGreater(added[64][0], 2 * 34 * 7 * 14e-6)
        for world in (64, 1024):
            self.assertLess(abs(added[world][1] / added[world][0] / 10 - 1), .1)
        self.assertLess(abs(added[1024][0] / added[64][0] / (127 / 7) - 1), .1)
        given = ('--model=8B', '--world=64', '--seq-len=1024', '--batch-tokens=65536',
                 '--net-latency=50')
        told = [self.of_a_file(between, rf'\1 {rate}', *given) for rate in ('1e9', '7140')]
        self.assertEqual(*(one['predicted_step_s'] for one in told))
        self.assertIsNone(told[1]['rates']['net-messages-between'])

    def test_gpus_meet_as_a_run_would_have_them(self):
        """Each has one of its own and NCCL, unless all of a node are given the same one."""
        given = ('plan', '--model=8B', '--machine=dgx-h100', '--seq-len=1024',
                 '--batch-tokens=65536')
        steps = {'nccl': set(), 'mpi': set()}
        for options, by in (((), 'nccl'), (('--comm=auto',), 'nccl'), (('--comm=nccl',), 'nccl'),
                            (('--comm=mpi',), 'mpi')):
            done = self.run_verb(*given, '--world=16', *options, '--json')
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            told = json.loads(done.stdout)
            self.assertEqual(told['comm'], by)
            steps[by].add(told['predicted_step_s'])
            line = 'HBM by NCCL' if by == 'nccl' else 'DRAM by MPI'
            self.assertIn(f'\nrank 0 of 16 on 2 nodes, 16 ways, which meet in {line}\n',
                          self.run_verb(*given, '--world=16', *options).stdout)
        self.assertEqual((len(steps['nccl']), len(steps['mpi'])), (1, 1))
        self.assertLess(max(steps['nccl']), min(steps['mpi']))
        done = self.run_verb(*given, '--world=16', '--device=cuda:0', '--json')
        self.assertEqual(done.stderr, 'note[I505] what GPUs of ranks gather and exchange meets in '
                                      'DRAM, by MPI: ranks share GPUs, of which NCCL joins one '
                                      "rank's each\n")
        self.assertEqual(json.loads(done.stdout)['comm'], 'mpi')
        for options in ((), ('--world=16', '--device=host', '--precision=bf16')):
            told = json.loads(self.run_verb(*given, *options, '--json').stdout)
            self.assertIsNone(told['comm'])

    def test_gpus_send_all_that_a_file_wishes_as_integers(self):
        file = self.write('ds.json', json.dumps({
            'bf16': {'enabled': True},
            'zero_optimization': {'stage': 3, 'zero_quantized_weights': True,
                                  'zero_quantized_gradients': True,
                                  'zero_hpz_partition_size': 8}}))
        done = self.run_verb('plan', '--model=7.5B', '--world=16', '--machine=dgx-h100',
                             f'--config={file}')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('--reduce int4', done.stderr)

    def test_what_a_node_of_gpus_keeps_is_where_rows_come_together(self):
        """The same bytes in DRAM, or in HBM, which else has no weights at home here."""
        kept = []
        for comm, tier in (('mpi', 'dram'), ('nccl', 'hbm')):
            held = []
            for secondary in ('none', 'node'):
                done = self.run_verb('plan', '--model=7.5B', '--world=16', '--machine=dgx-h100',
                                     f'--comm={comm}', f'--secondary={secondary}', '--gather=int8',
                                     '--place=weights=dram,grads=dram,states=dram',
                                     '--seq-len=1024', '--batch-tokens=65536', '--json')
                self.assertEqual((done.returncode, done.stderr), (0, ''))
                held.append(json.loads(done.stdout)['memory']['weights'][tier])
            kept.append(held[1] - held[0])
        self.assertEqual(held[0], 0)
        self.assertEqual(kept[0], kept[1])
        self.assertGreater(kept[0], 7.4e9 * 2 / 8)

    def test_a_trillion_parameters_on_a_thousand_gpus(self):
        options = ('--model=1T', '--world=1024', '--machine=dgx-h200', '--seq-len=4096',
                   '--batch-tokens=4194304')
        done = self.run_verb('plan', *options, '--nodes=128', '--json')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        told = json.loads(done.stdout)
        self.assertEqual(told, json.loads(self.run_verb('plan', *options, '--json').stdout))
        self.assertEqual((told['nodes'], told['ranks'], told['device']), (128, 1024, 'cuda'))
        self.assertIn('ZeRO-Infinity', told['stands_for'])
        self.assertGreater(told['bound_fraction'], .95)
        self.assertEqual(told['memory']['weights']['hbm'] // 2 ** 20, 1878)  # 2 B of a 1,024th
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.assertLess(most, 1 << 20)  # KiB
        self.assertEqual((told['comm'], told['bound_by']), ('nccl', 'compute'))
        text = self.run_verb('plan', *options, '--comm=mpi').stdout
        self.assertRegex(text, r'--batch-tokens \d+, for \d\d % computation: ')

    def test_a_layer_that_a_gpu_cannot_hold_is_told(self):
        done = self.run_verb('plan', '--model=1T', '--world=1024', '--machine=dgx-h100', '--json',
                             '--seq-len=4096', '--batch-tokens=4194304')
        told = json.loads(done.stdout)
        self.assertFalse(told['fits'])
        self.assertRegex(told['why'], r'smallest needs 83\.\d GiB of HBM, the budget is 67\.0 GiB')
        self.assertGreater(told['smallest']['hbm'], 82 << 30)

    def told(self, *options, status):
        """Of the trillion, in less than 5 s of a processor and less than 1 GiB."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = self.run_verb('plan', '--model', '1T', *options, '--json')
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual((done.returncode, done.stderr), (status, ''))
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 5)
        self.assertLess(after.ru_maxrss, 1 << 20)  # KiB
        return json.loads(done.stdout)

    def test_a_budget_that_no_gpu_has_is_told_with_what_there_is(self):
        done = self.run_verb('plan', '--model=1T', '--world=512', '--machine=dgx-h100',
                             '--zero-stage=2', '--seq-len=4096', '--batch-tokens=4194304')
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stdout, r'(?m)^the smallest that would do: --hbm \S+ --dram \S+; '
                         r'no more than 74.5 GiB of HBM are there$')
        done = self.run_verb('plan', '--model=8B', '--machine=h100', '--hbm=1G')
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stdout, r'(?m)^the smallest that would do: --hbm \S+$')

    def test_what_is_refused_on_a_thousand_gpus_fits_by_its_fix(self):
        given = ('--world', '1024', '--nodes', '128', '--machine', 'dgx-h100')
        told = self.told(*given, status=3)
        self.assertRegex(told['why'], r'^no placement fits: the smallest needs 79\.4 GiB of HBM, '
                                      r'the budget is 67\.0 GiB\. Fix: --layers halves, or ')
        self.assertEqual(round(told['smallest']['hbm'] / 2 ** 30, 1), 79.4)
        fits = self.told(*given, '--layers', 'halves', status=0)
        instead = told['instead']
        self.assertEqual(instead.pop('options'), '--layers halves')
        self.assertEqual({**instead, 'instead': None}, fits)
        done = self.run_verb('plan', '--model=1T', *given, '--html=page')
        self.assertRegex(done.stdout, r'\n\nwith --layers halves:\n(?s:.*)\nfits, assumed: a step '
                                      rf'takes {fits["predicted_step_s"]:.3g} s ')
        with open(self.path('page'), encoding='utf-8') as page:
            self.assertIn(f'with --layers halves a step takes {fits["predicted_step_s"]:.3g} s, '
                          f'bounded by {fits["bound_by"]}', page.read())
        self.assertEqual((fits['fits'], fits['layers'], fits['ranks'], fits['nodes']),
                         (True, 'halves', 1024, 128))
        self.assertLess(fits['memory']['total']['hbm'], fits['memory']['budget']['hbm'])
        self.assertGreater(fits['bound_fraction'], .95)

    def test_what_nccl_has_no_room_for_may_meet_in_dram(self):
        """What a node keeps of gathered weights is in HBM by NCCL. --comm mpi is named where it
        fits, alone or with halves, and where what is too large is in HBM."""
        given = ('plan', '--model=70B', '--world=64', '--machine=dgx-h100', '--secondary=node',
                 '--seq-len=1024', '--batch-tokens=65536')
        for hbm, options in (('16G', '--comm mpi'), ('7.5G', '--layers halves --comm mpi'),
                             ('2G', None)):
            done = self.run_verb(*given, '--hbm', hbm, '--json')
            self.assertEqual((done.returncode, done.stderr), (3, ''))
            told = json.loads(done.stdout)
            self.assertRegex(told['why'], f' Fix: {options}, or raise --hbm' if options else
                             ' Fix: raise --hbm')
            if not options:
                self.assertIsNone(told['instead'])
                continue
            instead = told['instead']
            self.assertEqual((instead['options'], instead['comm'], instead['fits']),
                             (options, 'mpi', True))
            done = self.run_verb(*given, '--hbm', hbm, *options.split(), '--json')
            self.assertEqual(json.loads(done.stdout)['predicted_step_s'],
                             instead['predicted_step_s'])
        for more in (('--hbm=16G', '--comm=mpi', '--dram=64G'), ('--dram=64G',)):
            told = json.loads(self.run_verb(*given, *more, '--nvme=64G', '--json').stdout)
            self.assertFalse(told['fits'])
            self.assertNotIn('--comm mpi', told['why'])

    def test_where_a_trillion_parameters_live_on_one_dgx_2(self):
        """On its drives, whatever computes. Of a parameter there are weights of 2 bytes and states
        of 10 (the rest of an f32 weight in 2, and two moments) in two versions of the store, and a
        gradient of 2; a tile of states begins with a block of 4 KiB. Each of 16 ranks has what its
        micro-batch comes to before each layer and behind the last one. A V100 has no room for the
        rows of half a layer: its cores compute."""
        given = ('--world', '16', '--machine', 'dgx-2')
        whole, halves = (self.told(*given, '--layers', layers, status=3)
                         for layers in ('whole', 'halves'))
        for told, least in ((whole, 80.3), (halves, 50.4)):
            self.assertEqual(told['why'], f'no placement fits: the smallest needs {least} GiB of '
                                          'HBM, the budget is 26.8 GiB. Fix: raise --hbm, or train '
                                          'on the host (--device host --precision bf16)')
            self.assertTrue(least - .1 < told['smallest']['hbm'] / 2 ** 30 <= least)
            self.assertGreater(told['smallest']['hbm'], 32e9)  # all that a V100 has
        self.assertLess(halves['smallest']['hbm'], .7 * whole['smallest']['hbm'])
        more = self.run_verb('plan', '--model=1T', *given, '--layers=halves', '--hbm',
                             halves['smallest']['hbm'])
        self.assertRegex(more.stderr, r"error\[E402\] --hbm is more than a GPU of 'dgx-2' has")
        fits = self.told(*given, '--device', 'host', '--precision', 'bf16', status=0)
        memory, params = fits['memory'], fits['parameters']
        tile = 4096 / fits['tile_elements']
        lives = {'weights': 2 * 2, 'grads': 2, 'states': 2 * (10 + tile)}
        for of, each in lives.items():
            held = 16 * memory[of]['nvme'] / params
            self.assertLess(abs(held / each - 1), 1e-3, of)
        self.assertEqual(memory['states']['dram'] + memory['grads']['dram'], 0)
        self.assertEqual(memory['acts']['nvme'], 129 * 1024 * 25600 * 2)
        self.assertEqual(memory['node_total']['nvme'], 16 * memory['total']['nvme'])
        self.assertLess(memory['node_total']['nvme'], .9 * 30.72e12)
        self.assertLess(abs(memory['node_total']['nvme'] / (sum(lives.values()) * params) - 1), .01)
        # in fp32 its 28 bytes and a block's share are more than there is
        told = self.told(*given, '--device', 'host', '--layers', 'halves', status=3)
        self.assertRegex(told['why'], r'^the store needs 25\.\d TiB of NVMe .* two versions [^,]*'
                                      r', its budget is 25\.1 TiB\. Fix: [^.]*--durability none')
        self.assertGreater(told['smallest']['nvme'], 28 * params)

    def test_schedules_of_many_gpus_are_as_fast_as_their_bound(self):
        """With 4,096 tokens a rank all else hides behind the computation, where GPUs meet by NCCL:
        a link and drives carry shards alone. By MPI it hides behind the copies of whole rows, or
        behind drives where homes are on them."""
        halves = '--layers=halves'
        rows = (('8B', 64, 'dgx-h100'), ('70B', 256, 'dgx-h100'), ('1T', 512, 'dgx-h200'),
                ('1T', 512, 'dgx-h100', halves), ('1T', 1024, 'dgx-h100', halves),
                ('70B', 256, 'dgx-h100', '--comm=mpi'),
                ('1T', 1024, 'dgx-h100', halves, '--comm=mpi'))
        for model, world, machine, *more in rows:
            for homes in ((), ('--place=states=nvme,weights=nvme',)):
                done = self.run_verb('plan', '--model', model, f'--world={world}',
                                     '--seq-len=4096', '--machine', machine,
                                     f'--batch-tokens={4096 * world}', '--json', *more, *homes)
                self.assertEqual((done.returncode, done.stderr), (0, ''))
                told = json.loads(done.stdout)
                self.assertGreater(told['bound_fraction'], .95, (model, world, homes))
                self.assertEqual(told['nodes'], world // 8)
                by = 'mpi' if '--comm=mpi' in more else 'nccl'
                bounds = ('h2d', 'd2h') if by == 'mpi' else ('compute',)
                self.assertEqual(told['comm'], by)
                self.assertIn(told['bound_by'], (*bounds, *(('read', 'write') * bool(homes))))

    def with_net(self, rate, *given):
        """Seconds of a step on the H100s of a DGX, which hand each other so many bytes a second."""
        with open(os.path.join(ROOT, 'docs/machines/dgx-h100.txt'), encoding='utf-8') as file:
            text = re.sub(r'(?m)^(rate net-(?:operations|messages)\S*) \S+', r'\1 1e9', file.read())
        box = self.write('box', re.sub(r'(?m)^(rate net-(?:gather|exchange|between)) \S+',
                                       rf'\1 {rate:.6g}', text))
        done = self.run_verb('plan', *given, '--seq-len=4096', '--machine', box, '--json')
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)['predicted_step_s']

    def test_gathers_and_exchanges_hide_behind_the_computation(self):
        """Where they take less than that of their unit. In a forward a gather meets a third of what
        a backward's computation is, beside which a gather and an exchange are: three fifths of
        a step are four fifths of a forward. The embedding has next to no computation: the first
        gather and the last exchange, which are its, and a layer's behind each are seen. By NCCL
        rows and gradients of a 70B take the room of activations that are kept, which are worth
        more: buffers are as few as can be, and as much again is seen."""
        for model, world, hidden, middle, kv, vocab, layers, comm, ends in (
                ('8B', 8, 4096, 14336, 1024, 128256, 32, 'nccl', 2),
                ('8B', 64, 4096, 14336, 1024, 128256, 32, 'nccl', 2),
                ('70B', 64, 8192, 28672, 1024, 128256, 80, 'nccl', 4),
                ('8B', 64, 4096, 14336, 1024, 128256, 32, 'mpi', 2),
                ('70B', 64, 8192, 28672, 1024, 128256, 80, 'mpi', 2)):
            given = ('--model', model, f'--world={world}', f'--batch-tokens={8192 * world}',
                     f'--comm={comm}')
            layer = hidden * (2 * hidden + 2 * kv + 3 * middle) * 2  # bytes in bf16
            embedding = vocab * hidden * 2
            moved = 3 * layers * layer + 2 * 2 * embedding  # of a step, with the head
            alone_s = self.with_net(1e15, *given)
            for part in (.3, .6):
                rate = moved / (part * alone_s)
                seen_s = self.with_net(rate, *given) - alone_s
                self.assertLess(seen_s, ends * (embedding + layer) / rate, (given, part))
            # what is too slow to hide is seen
            slow_s = self.with_net(moved / (4 * alone_s), *given)
            self.assertGreater(slow_s, 2 * alone_s, (model, world))


if __name__ == '__main__':
    unittest.main()
