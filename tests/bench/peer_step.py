#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peers' side of peers.py: PyTorch, or DeepSpeed's ZeRO-3, trains a Llama on the host.

    peer_step.py HOW MODEL_DIR STEPS BATCH_TOKENS SEQ_LEN THREADS [FOLDER]

HOW is `torch-fp32`, `torch-bf16` (weights, gradients and states in bf16), or `deepspeed-fp32`
(states in FOLDER, on a drive). The model is that of MODEL_DIR/config.json with random weights; each
block is computed again in the backward, AdamW, clipping at 1, one backward per 2,048 tokens. The
first step warms up. Prints one JSON object as its last line; it is run by the Python that has the
peers.
"""
import json
import os
import sys
import time
import types

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

GRAIN = 2048
LR, WEIGHT_DECAY, CLIP = 1e-5, 0.01, 1.0


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rotate(x, cos, sin):
    left, right = x.chunk(2, -1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


class Block(nn.Module):
    def __init__(self, model):
        super().__init__()
        width, inside = model.hidden_size, model.intermediate_size
        self.head_dim = width // model.num_attention_heads
        kv = model.num_key_value_heads * self.head_dim
        self.norm1, self.norm2 = (RMSNorm(width, model.rms_norm_eps) for _ in range(2))
        self.q, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, kv, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inside, bias=False) for _ in range(2))
        self.down = nn.Linear(inside, width, bias=False)

    def heads(self, x):
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)

    def forward(self, x, cos, sin):
        h = self.norm1(x)
        q, k, v = (self.heads(linear(h)) for linear in (self.q, self.k, self.v))
        o = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v,
                                           is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        x = x + self.o(o.transpose(1, 2).reshape(x.shape))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, model, sequence):
        super().__init__()
        self.embed = nn.Embedding(model.vocab_size, model.hidden_size)
        self.blocks = nn.ModuleList(Block(model) for _ in range(model.num_hidden_layers))
        self.norm = RMSNorm(model.hidden_size, model.rms_norm_eps)
        self.head = nn.Linear(model.hidden_size, model.vocab_size, bias=False)
        half = torch.arange(0, self.blocks[0].head_dim, 2) / self.blocks[0].head_dim
        angle = torch.outer(torch.arange(sequence), model.rope_theta ** -half)
        self.register_buffer('cos', angle.cos())
        self.register_buffer('sin', angle.sin())

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False)
        return self.head(self.norm(x))


def loss_of(model, rows, batch_tokens):
    """The rows' share in the mean over the batch."""
    logits = model(rows[:, :-1]).float()
    targets = rows[:, 1:].flatten()
    return F.cross_entropy(logits.flatten(0, 1), targets, reduction='sum') / batch_tokens


def torch_step(model, batch_tokens):
    """-> a function that trains one step of these parts of a batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY, fused=True)

    def step(parts):
        for rows in parts:
            loss_of(model, rows, batch_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()

    return step


def deepspeed_config(folder, parts):
    return {
        'train_micro_batch_size_per_gpu': 1,
        'gradient_accumulation_steps': parts,
        'gradient_clipping': CLIP,
        'optimizer': {'type': 'AdamW', 'params': {'lr': LR, 'weight_decay': WEIGHT_DECAY}},
        'zero_optimization': {
            'stage': 3,
            'offload_optimizer': {'device': 'nvme', 'nvme_path': folder, 'pin_memory': False,
                                  'buffer_count': 4, 'pipeline_read': True, 'pipeline_write': True},
        },
        'aio': {'block_size': 1 << 20, 'queue_depth': 32, 'single_submit': False,
                'overlap_events': True, 'intra_op_parallelism': 1},
    }


def deepspeed_step(model, batch_tokens, folder, parts):
    """Its gradients are the mean over a step's parts, so each loss counts as many times."""
    import deepspeed
    for name, value in {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '29513', 'RANK': '0',
                        'WORLD_SIZE': '1', 'LOCAL_RANK': '0'}.items():
        os.environ.setdefault(name, value)
    deepspeed.init_distributed('gloo')
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                      config=deepspeed_config(folder, parts))

    def step(rows_of_parts):
        for rows in rows_of_parts:
            engine.backward(parts * loss_of(engine, rows, batch_tokens))
            engine.step()

    return step


def main():
    how, folder = sys.argv[1], sys.argv[2]
    steps, batch_tokens, sequence, threads = (int(word) for word in sys.argv[3:7])
    with open(os.path.join(folder, 'config.json'), encoding='utf-8') as file:
        shape = types.SimpleNamespace(**json.load(file))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = Llama(shape, sequence)
    if how == 'torch-bf16':
        model = model.to(torch.bfloat16)
    tokens = torch.randint(shape.vocab_size, (batch_tokens // sequence, sequence + 1))
    parts = tokens.split(max(1, GRAIN // sequence))
    step = (deepspeed_step(model, batch_tokens, sys.argv[7], len(parts))
            if how.startswith('deepspeed') else torch_step(model, batch_tokens))
    seconds = []
    for _ in range(steps + 1):
        start = time.monotonic()
        step(parts)
        seconds.append(time.monotonic() - start)
    print(json.dumps({'step_s': sorted(seconds[1:])[steps // 2]}), flush=True)
    os._exit(0)  # threads of DeepSpeed's I/O, which nobody joins, may else abort the process


if __name__ == '__main__':
    main()
