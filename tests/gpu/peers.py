# SPDX-License-Identifier: Apache-2.0
"""The parts about peers: the same shapes trained by PyTorch, DeepSpeed and LLMQ, where they are.

Resident models in 8 sequences a step; models with their states on the host in 32k tokens a step, as
the parts about offloading have them, and beside the best of those that clip.
"""
import array
import os
import random
import re
import statistics
import struct
import sys

import llama
import offload
import parts
import place
from training import Failed, Skipped, json_lines

LLMQ_STEP = re.compile(r'^\[T\] step +\d+ .*\| time: +(\d+) +(ms|s) ', re.M)
LLMQ_MICRO = 4  # sequences at once
LLMQ_WARM_STEPS = 2
OFFLOADED_BATCH = '32k'


def python():
    """torch and DeepSpeed may be of a Python of their own."""
    return os.environ.get('HOISTWAY_TORCH_PYTHON') or sys.executable


def offloaded_shape(runner, shape):
    """(shape, sequence, sequences per step, steps measured), as the parts about offloading."""
    tokens, steps = (offload.SMOKE_BATCHES if runner.smoke else offload.BATCHES)[OFFLOADED_BATCH]
    name, seq = ('tiny', offload.SMOKE_SEQ) if runner.smoke else (shape, offload.SEQ)
    return name, seq, tokens // seq, steps


def write_config(runner, name, seq, **more):
    """(folder, config) of a shape."""
    folder, config = os.path.join(runner.scratch, f'peer-{name}'), llama.config_of(name, seq)
    llama.write_config(folder, {**config, **more})
    return folder, config


def tell(runner, who, told, config, seq, ours):
    """The figures of a peer, told: tokens_per_s, least, most, note; and of ours (may be None) over
    its."""
    parts.tell_training(runner, who, (told['tokens_per_s'], told['least'], told['most']), config,
                        seq, told['note'])
    if ours:
        ratio = ours / told['tokens_per_s']
        runner.figure(f'hoistway over {who}', ratio, '', fraction=ratio,
                      goal=parts.GOALS['train over peer'])


def ask_script(runner, script, folder, seq, batch, steps, *more):
    """What a script of a peer tells in its last line."""
    done = runner.command([python(), os.path.join(place.HERE, script),
                           os.path.join(folder, 'config.json'), '--seq', str(seq), '--batch',
                           str(batch), '--steps', str(steps), *more])
    if done.code == 77:
        raise Skipped(done.out.strip().split('\n')[-1])
    if done.code:
        raise Failed(done.why())
    return json_lines(done.out)[-1]


def torch(runner, shape):
    name, seq, batch, steps = parts.shape_of(runner, shape)
    folder, config = write_config(runner, name, seq)
    told = ask_script(runner, 'peer_torch.py', folder, seq, batch, steps)
    tell(runner, f'PyTorch {told["torch"]}, Llama {name}', told, config, seq,
         runner.kept['tokens_per_s'].get(shape))


def deepspeed(runner, shape, stage):
    """ZeRO-Offload (stage 2: states and gradients on the host) or ZeRO-3 (weights there, too)."""
    name, seq, batch, steps = offloaded_shape(runner, shape)
    folder, config = write_config(runner, name, seq)
    told = ask_script(runner, 'peer_deepspeed.py', folder, seq, batch, steps, '--stage', str(stage))
    tell(runner, f'DeepSpeed {told["deepspeed"]} ZeRO-{stage}, Llama {name}', told, config, seq,
         runner.kept['offloaded'].get(f'{shape} {OFFLOADED_BATCH}'))


# ---- LLMQ ----------------------------------------------------------------------------------------

def write_llmq_tokens(path, vocab, amount):
    """A token file of LLMQ's: 256 words of header (magic, version 2, bytes per token, how many, the
    vocabulary), then tokens of 4 bytes."""
    source = random.Random(1)
    with open(path, 'wb') as file:
        file.write(struct.pack('<8s4i', b'BIN.TOK\n', 2, 4, amount, vocab).ljust(1024, b'\0'))
        array.array('i', (source.randrange(vocab) for _ in range(amount))).tofile(file)


def llmq_rates(text, tokens):
    """Tokens per second of the steps behind those that warm up."""
    seconds = [int(time) * (1 if unit == 's' else 1e-3) for time, unit in LLMQ_STEP.findall(text)]
    return sorted(tokens / s for s in seconds[LLMQ_WARM_STEPS:])


def llmq_arguments(folder, seq, batch, steps, offloads):
    micro = min(LLMQ_MICRO, batch)
    files = {'train-file': 'train.bin', 'eval-file': 'eval.bin', 'out-dir': 'out',
             'checkpoint-dir': 'ckpt', 'log-file': 'log.json'}
    settings = {'model-dtype': 'bf16', 'matmul-dtype': 'bf16', 'opt-m-dtype': 'fp32',
                'opt-v-dtype': 'fp32', 'seq-len': seq, 'batch-size': micro,
                'grad-accumulation': batch // micro, 'steps': steps + LLMQ_WARM_STEPS,
                'grad-clip': 1, 'lmhead-chunks': micro, 'gpus': 1, 'ckpt-interval': 10**6,
                'eval-every-n-steps': 10**6, 'log-gpu-util': 0}
    return ['--model=' + folder, '--from-scratch', '--recompute-block', '--use-cuda-graphs',
            *(f'--{name}={os.path.join(folder, file)}' for name, file in files.items()),
            *(f'--{name}={value}' for name, value in settings.items()),
            *(['--offload-opt-m', '--offload-opt-v'] if offloads else [])]


def llmq(runner, shape, offloads):
    """Masters of bf16, moments of f32, on the host where `offloads`; every block computed again."""
    program = os.environ.get('HOISTWAY_LLMQ')
    if not program:
        raise Skipped('HOISTWAY_LLMQ names no program: the `train` that LLMQ builds')
    name, seq, batch, steps = (offloaded_shape if offloads else parts.shape_of)(runner, shape)
    folder, config = write_config(runner, name, seq, bos_token_id=0, eos_token_id=1)
    tokens = seq * batch
    write_llmq_tokens(os.path.join(folder, 'train.bin'), config['vocab_size'],
                      (steps + LLMQ_WARM_STEPS + 1) * tokens + 1)
    write_llmq_tokens(os.path.join(folder, 'eval.bin'), config['vocab_size'],
                      LLMQ_MICRO * seq + 1)
    done = runner.command([program, *llmq_arguments(folder, seq, batch, steps, offloads)])
    rates = llmq_rates(done.out, tokens)  # of a run that its time ended, too
    if len(rates) == 0 or (done.code and not done.timed_out):
        raise Failed(done.why())
    told = {'tokens_per_s': statistics.median(rates), 'least': rates[0], 'most': rates[-1],
            'note': f'{len(rates)} steps measured; bf16 masters, f32 moments'
                    + (' on the host' if offloads else '')}
    ours = (runner.kept['offloaded'].get(f'{shape} {OFFLOADED_BATCH}') if offloads
            else runner.kept['tokens_per_s'].get(shape))
    tell(runner, f'LLMQ, Llama {name}' + (', states on the host' if offloads else ''), told, config,
         seq, ours)
