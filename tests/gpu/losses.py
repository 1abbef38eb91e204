#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty steps of a small Llama, a Qwen2 (biases) and a Qwen3 (normed heads) on a device and on
the host: are the losses the same?

    losses.py PATH_OF_HOISTWAY [--device cuda] [--at-once N] [--smoke]

fp32: each step's loss within 1e-4 of the host's. Both compute in f32, sums in other orders: 2^-24
relative per operation, so the weights part by some 1e-6 in the first steps, and twenty steps at
this learning rate widen that some ten times.

bf16: a rounding to bf16 is off by 2^-9 relative at most, and where two devices' f32 sums differ in
the last bit, some of them fall on different sides of a tie and part by a whole 2^-8. Whichever way
they fall, such runs scatter around the run in fp32. How far, the host shows: the greatest distance
of its own bf16 losses from its fp32 losses, over the twenty steps, is measured here; the device may
be twice as far (two draws of one spread), and 2e-3 where that is more (2^-9: one rounding of a
logit of 1). fp16 the same, with 2.5e-4 (2^-12).

Exit 0: they are; 1: not; 77: there is no such device. --smoke: three steps of a tiny model, for a
device that is interpreted. A line "bits of" holds a hash of the device's losses, by which two runs
are compared; --device-alone: these lines only, without the host's runs. --at-once: so many of the
models beside each other, since a run is begun in seconds and computes for less.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import tempfile

FP32_LIMIT = 1e-4
LEAST = {'bf16': 2e-3, 'fp16': 2.5e-4}
KINDS = [{'architectures': ['LlamaForCausalLM'], 'model_type': 'llama'},
         {'architectures': ['Qwen2ForCausalLM'], 'model_type': 'qwen2'},
         {'architectures': ['Qwen3ForCausalLM'], 'model_type': 'qwen3'}]
CONFIG = {
    'hidden_act': 'silu',
    'hidden_size': 256, 'intermediate_size': 688, 'num_hidden_layers': 3,
    'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 64,
    'max_position_embeddings': 256, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0,
    'tie_word_embeddings': False, 'torch_dtype': 'float32', 'vocab_size': 256,
}
SMOKE = {'hidden_size': 32, 'intermediate_size': 48, 'num_hidden_layers': 2,
         'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 16}


class Ended(Exception):
    """A run that did not train: (what is to be told, whether there is no device)."""


def train(arguments, folder, device, precision):
    steps, seq, batch = (3, 16, 32) if arguments.smoke else (20, 128, 1024)
    log = os.path.join(folder, f'{device}-{precision}.jsonl')
    done = subprocess.run(
        [arguments.program, 'train', '--quiet', '--model', folder, '--data', os.path.abspath(
            __file__), '--data-format', 'bytes', '--init', 'random', '--durability',
         'none', '--store',
         os.path.join(folder, 'store'), '--steps', str(steps), '--seq-len', str(seq),
         '--batch-tokens', str(batch), '--lr', '1e-4', '--device', device, '--precision', precision,
         '--log', log], capture_output=True, text=True)
    if done.returncode:
        raise Ended(f'{device} {precision}: {done.stderr.strip()}',
                    'error[E201]' in done.stderr)
    with open(log, encoding='ascii') as file:
        return [line['loss'] for line in map(json.loads, file) if line['kind'] == 'step']


def distance(a, b):
    assert len(a) == len(b) > 0
    return max(abs(x - y) for x, y in zip(a, b))


def compare(arguments, kind):
    """-> (whether they are the same, lines that tell of it)"""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, 'config.json'), 'w', encoding='ascii') as file:
            json.dump({**CONFIG, **kind, **(SMOKE if arguments.smoke else {})}, file)
        device = {p: train(arguments, folder, arguments.device, p) for p in ('fp32', *LEAST)}
        bits = hashlib.sha256(json.dumps(device).encode()).hexdigest()
        told = [f'bits of {kind["model_type"]}: {bits}']
        if arguments.device_alone:
            return True, told
        host = {p: train(arguments, folder, 'host', p) for p in ('fp32', *LEAST)}
    spread = {p: distance(host[p], host['fp32']) for p in LEAST}
    rows = [('fp32', distance(device['fp32'], host['fp32']), FP32_LIMIT)]
    rows += [(p, distance(device[p], host['fp32']), max(2 * spread[p], LEAST[p])) for p in LEAST]
    told.append(f'{kind["model_type"]}: losses of {len(host["fp32"])} steps, '
                f'{host["fp32"][0]:.4f} to {host["fp32"][-1]:.4f}; host: bf16 is '
                f'{spread["bf16"]:.2e} from fp32, fp16 {spread["fp16"]:.2e}')
    for precision, off, limit in rows:
        told.append(f'{precision} on {arguments.device}: {off:.2e} from fp32 on the host, at most '
                    f'{limit:.1e}: {"ok" if off <= limit else "TOO FAR"}')
    return all(off <= limit for _, off, limit in rows), told


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program')
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--at-once', type=int, default=1)
    parser.add_argument('--smoke', action='store_true')
    parser.add_argument('--device-alone', action='store_true')
    arguments = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        try:
            results = list(pool.map(lambda kind: compare(arguments, kind), KINDS))
        except Ended as ended:
            told, absent = ended.args
            print(f'{"skipped: " if absent else ""}{told}')
            return 77 if absent else 1
    for _, told in results:
        print('\n'.join(told))
    return 0 if all(same for same, _ in results) else 1


if __name__ == '__main__':
    sys.exit(main())
