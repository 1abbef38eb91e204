#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the parts about peers ask of them, and what they make of the answers. The peers are made up:
packages that compute nothing, and a program.

    test_peers.py
"""
import argparse
import json
import os
import stat
import struct
import sys
import tempfile
import unittest
from unittest import mock

import llama
import offload
import peers
import report
import training
from runner import Runner

TORCH = '''
import sys
from unittest.mock import MagicMock

class Module:
    def __getattr__(self, name):
        return MagicMock()

class Tokens:
    def __init__(self, high, size, device):
        self.sequences = size[0]
    def split(self, micro):
        return [MagicMock() for _ in range(0, self.sequences, micro)]

torch = MagicMock(__version__='2.9.0', randint=Tokens)
torch.nn.Module = Module
torch.cuda.OutOfMemoryError = MemoryError
torch.cuda.is_available.return_value = {gpu}
for name in ('', '.nn', '.nn.functional', '.utils', '.utils.checkpoint'):
    sys.modules['torch' + name] = getattr(torch, name[1:]) if name else torch
'''
DEEPSPEED = '''
import json, os
from unittest.mock import MagicMock
__version__ = '0.18.0'
calls = []
class zero:
    Init = MagicMock(side_effect=lambda **more: calls.append('Init') or MagicMock())
    register_external_parameter = lambda *of: calls.append('external')
def init_distributed():
    calls.append(os.environ['WORLD_SIZE'])
def initialize(model, model_parameters, config):
    if config['train_micro_batch_size_per_gpu'] > 4:
        raise MemoryError
    engine = MagicMock()
    engine.backward.side_effect = lambda loss: calls.append('backward')
    def step():
        with open(os.environ['STUB_TOLD'], 'w') as file:
            json.dump([config, calls], file)
    engine.step.side_effect = step
    return engine, None, None, None
'''
LLMQ = '''#!{python}
import json, sys, time
with open({told!r}, 'w') as file:
    json.dump(sys.argv[1:], file)
for step, took in enumerate(('9000 ms', '8000 ms', '4000 ms', '2000 ms', '  200  s')):
    print(f'[T] step {{step:5}} [ 9.1%] | time: {{took:>8}} | norm 1.0 | loss 2.0 | tps 1k | sol 4',
          flush=True)
{end}
'''


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.path = folder.name, os.path.join(folder.name, 'told')
        options = argparse.Namespace(device='cuda:0', smoke=False, out=folder.name + '/out')
        self.runner = Runner(options, folder.name, {
            'kept': {'tokens_per_s': {}, 'offloaded': {}, 'best_product': None},
            'machine': {'nvidia-smi': {}}})
        self.part = self.runner.begin('peer', 30)
        environment = {'PYTHONPATH': folder.name, 'STUB_TOLD': self.path, 'HOISTWAY_LLMQ': ''}
        patch = mock.patch.dict(os.environ, environment)
        patch.start()
        self.addCleanup(patch.stop)
        os.environ.pop('HOISTWAY_TORCH_PYTHON', None)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)
        os.chmod(path, stat.S_IRWXU)
        return path

    def told(self):
        with open(self.path, encoding='ascii') as file:
            return json.load(file)

    def figures(self):
        return {f['name']: f for f in self.part['figures']}


class DeepSpeed(Peers):
    def packages(self, gpu=True, deepspeed=DEEPSPEED):
        self.write('torch.py', TORCH.format(gpu=gpu))
        self.write('deepspeed.py', deepspeed)

    def test_it_is_asked_for_the_steps_of_the_parts_about_offloading(self):
        self.packages()
        self.runner.kept['offloaded']['8b 32k'] = 1
        peers.deepspeed(self.runner, '8b', 3)
        config, calls = self.told()
        self.assertEqual((config['train_micro_batch_size_per_gpu'],
                          config['gradient_accumulation_steps'], config['gradient_clipping']),
                         (4, 4, 1))  # 32,768 tokens; 16 and 8 sequences had no room
        zero = config['zero_optimization']
        self.assertEqual((zero['stage'], zero['offload_optimizer']['device'],
                          zero['offload_param']['device']), (3, 'cpu', 'cpu'))
        self.assertEqual(calls[0], '1')
        self.assertEqual(calls.count('Init'), calls.count('external'))
        self.assertEqual(calls.count('backward'), 4 * (2 + offload.BATCHES['32k'][1]))
        (command,) = self.part['commands']
        self.assertIn('--seq 2048 --batch 16 --steps 4 --stage 3', command)
        told = self.figures()['DeepSpeed 0.18.0 ZeRO-3, Llama 8b tokens']
        self.assertEqual(told['note'], 'layers computed again, 4 sequences at once')
        self.assertTrue(0 < told['least'] <= told['value'] <= told['most'])
        ratio = self.figures()['hoistway over DeepSpeed 0.18.0 ZeRO-3, Llama 8b']
        self.assertAlmostEqual(ratio['value'] * told['value'], 1)

    def test_stage_2_leaves_the_weights_on_the_card(self):
        self.packages()
        peers.deepspeed(self.runner, '3b', 2)
        config, calls = self.told()
        self.assertNotIn('offload_param', config['zero_optimization'])
        self.assertNotIn('Init', calls)
        self.assertNotIn('hoistway over DeepSpeed 0.18.0 ZeRO-2, Llama 3b', self.figures())

    def test_where_it_is_not_there_the_reason_is_told(self):
        self.packages(deepspeed='raise ImportError("no such package")')
        with self.assertRaisesRegex(training.Skipped, 'deepspeed cannot be imported: no such'):
            peers.deepspeed(self.runner, '3b', 2)
        self.packages(gpu=False)
        with self.assertRaisesRegex(training.Skipped, 'torch 2.9.0 finds no GPU'):
            peers.deepspeed(self.runner, '3b', 2)
        self.write('torch.py', 'raise ImportError("nor this")')
        with self.assertRaisesRegex(training.Skipped, 'torch cannot be imported: nor this'):
            peers.deepspeed(self.runner, '3b', 2)

    def test_a_peer_that_breaks_or_hangs_has_failed(self):
        self.packages(deepspeed='def __getattr__(name): raise ValueError("broken")')
        with self.assertRaisesRegex(training.Failed, 'ValueError: broken'):
            peers.deepspeed(self.runner, '3b', 2)
        self.packages(deepspeed='import time; time.sleep(60)')
        self.runner.begin('peer', 2)
        with self.assertRaisesRegex(training.Failed, 'not finished after 2 s'):
            peers.deepspeed(self.runner, '3b', 2)


class Llmq(Peers):
    def program(self, end):
        os.environ['HOISTWAY_LLMQ'] = self.write('llmq', LLMQ.format(
            python=sys.executable, told=self.path, end=end))

    def test_steps_behind_two_that_warm_up_are_counted(self):
        self.program('')
        self.runner.kept['tokens_per_s']['tiny'] = 1
        with mock.patch.object(peers.parts, 'shape_of', lambda *_: ('tiny', 16, 8, 3)):
            peers.llmq(self.runner, 'tiny', False)
        told = self.figures()['LLMQ, Llama tiny tokens']
        self.assertEqual((told['value'], told['least'], told['most']),
                         (128 / 4, 128 / 200, 128 / 2))
        self.assertIn('hoistway over LLMQ, Llama tiny', self.figures())
        asked = self.told()
        for word in ('--batch-size=4', '--grad-accumulation=2', '--seq-len=16', '--steps=5',
                     '--opt-m-dtype=fp32', '--model-dtype=bf16', '--from-scratch'):
            self.assertIn(word, asked)
        self.assertNotIn('--offload-opt-m', asked)
        folder = os.path.join(self.folder, 'peer-tiny')
        self.assertIn(f'--model={folder}', asked)
        with open(os.path.join(folder, 'config.json'), encoding='ascii') as file:
            config = json.load(file)
        self.assertEqual((config['architectures'], config['bos_token_id'], config['eos_token_id']),
                         (['LlamaForCausalLM'], 0, 1))
        with open(os.path.join(folder, 'train.bin'), 'rb') as file:
            data = file.read()
        amount = 6 * 128 + 1
        self.assertEqual(struct.unpack_from('<8s4i', data), (b'BIN.TOK\n', 2, 4, amount, 256))
        self.assertEqual(len(data), 1024 + 4 * amount)
        self.assertLess(max(struct.unpack_from(f'<{amount}i', data, 1024)), 256)

    def test_states_on_the_host_are_those_of_the_parts_about_offloading(self):
        self.program('time.sleep(60)')  # what it writes at its end is not waited for
        self.runner.begin('peer', 3)
        with mock.patch.object(peers, 'offloaded_shape', lambda *_: ('tiny', 16, 16, 3)):
            peers.llmq(self.runner, '8b', True)
        self.assertIn('--offload-opt-m', self.told())
        self.assertIn('--offload-opt-v', self.told())
        (told,) = (f for f in self.runner.part['figures'] if f['name'].endswith('host tokens'))
        self.assertEqual(told['note'], '3 steps measured; bf16 masters, f32 moments on the host')

    def test_without_a_program_or_a_step_there_is_nothing_to_tell(self):
        with self.assertRaisesRegex(training.Skipped, 'HOISTWAY_LLMQ names no program'):
            peers.llmq(self.runner, '3b', False)
        self.program('print("no memory", file=sys.stderr); sys.exit(3)')
        with mock.patch.object(peers.parts, 'shape_of', lambda *_: ('tiny', 16, 8, 3)):
            with self.assertRaisesRegex(training.Failed, 'exit 3: no memory'):
                peers.llmq(self.runner, 'tiny', False)


class Calls(unittest.TestCase):
    def test_each_peer_has_its_limit_in_a_call_of_its_own(self):
        names = [name for name in report.PARTS if name.startswith('peer-')]
        self.assertEqual(names, ['peer-1b', 'peer-3b', 'peer-zero2-3b', 'peer-zero3-8b',
                                 'peer-llmq-3b', 'peer-llmq-8b'])
        self.assertEqual({report.PARTS[name][1] for name in names}, {240})
        self.assertTrue(set(names).isdisjoint(report.lacking({'parts': []})))

    def test_shapes_are_those_of_our_own_runs(self):
        runner = mock.Mock(smoke=False)
        self.assertEqual(peers.offloaded_shape(runner, '8b'), ('8b', 2048, 16, 4))
        config = llama.config_of('8b', 2048)  # LLMQ derives head_dim
        self.assertEqual(config['hidden_size'] // config['num_attention_heads'], config['head_dim'])


if __name__ == '__main__':
    unittest.main()
