#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A peer of training with states in host memory: the same Llama by DeepSpeed on the same GPU.

    peer_deepspeed.py CONFIG_JSON --stage 2|3 --seq N --batch SEQUENCES --steps N

Stage 2 is ZeRO-Offload: gradients, f32 masters and moments on the host, updated there. Stage 3 has
the weights there, too. bf16 weights and products, gradients clipped at 1, layers and head under
checkpoint, the largest micro-batch that the memory holds.

Prints one JSON object. Exits 77, with the reason in its last line, where torch, DeepSpeed or their
GPU is missing.
"""
import argparse
import gc
import json
import os
import socket
import statistics
import sys
import time

from peer_torch import Llama, torch  # exits 77 where there is no torch

try:
    import deepspeed
except Exception as missing:  # as torch, it has many ways not to load
    print(f'skipped: deepspeed cannot be imported: {missing}')
    sys.exit(77)


def alone():
    """The environment of a run of one process."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    os.environ.update(RANK='0', LOCAL_RANK='0', WORLD_SIZE='1', MASTER_ADDR='127.0.0.1',
                      MASTER_PORT=str(port))


def settings(arguments, micro):
    host = {'device': 'cpu', 'pin_memory': True}
    zero = {'stage': arguments.stage, 'offload_optimizer': host, 'overlap_comm': True,
            'contiguous_gradients': True}
    if arguments.stage == 3:
        zero['offload_param'] = host
    return {'train_micro_batch_size_per_gpu': micro,
            'gradient_accumulation_steps': arguments.batch // micro, 'gradient_clipping': 1.0,
            'bf16': {'enabled': True}, 'zero_optimization': zero,
            'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-5, 'weight_decay': 0.01}}}


def make(config, arguments, micro):
    wish = settings(arguments, micro)
    if arguments.stage == 3:
        with deepspeed.zero.Init(config_dict_or_path=wish):
            model = Llama(config, arguments.seq)
        # the head uses it, too, and is no module of its own
        deepspeed.zero.register_external_parameter(model, model.embed.weight)
    else:
        with torch.device('cuda'):
            model = Llama(config, arguments.seq).to(torch.bfloat16)
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=wish)[0]


def step(engine, tokens, micro):
    for part in tokens.split(micro):
        loss = engine(part[:, :-1], part[:, 1:])
        engine.backward(loss)
        engine.step()  # updates behind the last of them
    return loss.item()  # waits for all of it


def begin(config, arguments, tokens):
    """(engine, sequences at once): as many as the memory holds; two steps warm up."""
    micro = arguments.batch
    while True:
        try:
            engine = make(config, arguments, micro)
            for _ in range(2):
                step(engine, tokens, micro)
            return engine, micro
        except torch.cuda.OutOfMemoryError:
            if micro == 1:
                raise
            micro //= 2
        engine = None  # outside: the exception held what is to be freed
        gc.collect()
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('config')
    parser.add_argument('--stage', type=int, choices=(2, 3), required=True)
    for name, default in (('seq', 2048), ('batch', 16), ('steps', 4)):
        parser.add_argument('--' + name, type=int, default=default)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print(f'skipped: torch {torch.__version__} finds no GPU')
        return 77
    alone()
    deepspeed.init_distributed()
    with open(arguments.config, encoding='ascii') as file:
        config = json.load(file)
    tokens = torch.randint(config['vocab_size'], (arguments.batch, arguments.seq + 1),
                           device='cuda')
    engine, micro = begin(config, arguments, tokens)
    rates = []
    for _ in range(arguments.steps):
        start = time.monotonic()
        step(engine, tokens, micro)
        rates.append(arguments.batch * arguments.seq / (time.monotonic() - start))
    print(json.dumps({'deepspeed': deepspeed.__version__, 'tokens_per_s': statistics.median(rates),
                      'least': min(rates), 'most': max(rates),
                      'note': f'layers computed again, {micro} sequences at once'}))
    return 0


if __name__ == '__main__':
    sys.exit(main())
