#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `hoistway train --device cuda`: the same Llama trained by PyTorch on the same GPU.

    peer_torch.py CONFIG_JSON --seq N --batch SEQUENCES --steps N [--device cuda:0]

The same precisions: bf16 weights, activations and products, f32 master weights, m and v (fused
AdamW), gradients clipped at 1. As quick as PyTorch has it: layers under checkpoint or with their
activations kept, whichever is faster, each with the largest micro-batch that the memory holds;
layers and head compiled (torch.compile), attention by scaled_dot_product_attention, TF32 allowed.
Where the compiler does not work, they run as they are, and the note says so.

Prints one JSON object. Exits 77, with the reason in its last line, where torch or its GPU is
missing. --device cpu tries the script where there is no GPU.
"""
import argparse
import json
import re
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint
except Exception as missing:  # a torch that is there but does not load says so in many ways
    print(f'skipped: torch cannot be imported: {missing}')
    sys.exit(77)

GROUPED = tuple(int(n) for n in re.findall(r'\d+', torch.__version__)[:2]) >= (2, 5)


def rotate(x, cos, sin):
    left, right = x.chunk(2, -1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


def normalize(x, weight, eps):
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return wide.to(x.dtype) * weight


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, inner, dim = c['hidden_size'], c['intermediate_size'], c['head_dim']
        self.dim, self.eps = dim, c['rms_norm_eps']
        queries, keys = c['num_attention_heads'] * dim, c['num_key_value_heads'] * dim
        self.norm1, self.norm2 = (nn.Parameter(torch.ones(hidden)) for _ in range(2))
        self.q = nn.Linear(hidden, queries, bias=False)
        self.k, self.v = (nn.Linear(hidden, keys, bias=False) for _ in range(2))
        self.o = nn.Linear(queries, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):
        h = normalize(x, self.norm1, self.eps)
        q, k, v = (proj(h).unflatten(-1, (-1, self.dim)).transpose(1, 2)
                   for proj in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        o = attention(q, k, v)
        x = x + self.o(o.transpose(1, 2).flatten(2))
        h = normalize(x, self.norm2, self.eps)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def attention(q, k, v):
    """Causal. Each key head serves some query heads, which torch can do itself from 2.5 on."""
    if GROUPED:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Llama(nn.Module):
    def __init__(self, c, seq):
        super().__init__()
        self.eps = c['rms_norm_eps']
        self.embed = nn.Embedding(c['vocab_size'], c['hidden_size'])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c['num_hidden_layers']))
        self.calls, self.last = list(self.layers), self.head  # or what the compiler made of them
        self.recompute = True
        self.norm = nn.Parameter(torch.ones(c['hidden_size']))
        angle = torch.outer(torch.arange(seq).float(), c['rope_theta'] ** -(
            torch.arange(0, c['head_dim'], 2).float() / c['head_dim']))
        self.register_buffer('cos', angle.cos().to(torch.bfloat16))
        self.register_buffer('sin', angle.sin().to(torch.bfloat16))
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, inputs, targets):
        x = self.embed(inputs)
        for call in self.calls:
            x = (checkpoint(call, x, self.cos, self.sin, use_reentrant=False)
                 if self.recompute else call(x, self.cos, self.sin))
        # in chunks, computed again: the whole logits are never held
        total = sum(checkpoint(self.last, part, wanted, use_reentrant=False) for part, wanted in
                    zip(x.flatten(0, 1).split(4096), targets.flatten().split(4096)))
        return total / targets.numel()

    def head(self, x, targets):
        x = normalize(x, self.norm, self.eps)
        return F.cross_entropy((x @ self.embed.weight.T).float(), targets, reduction='sum')


class Training:
    def __init__(self, config, arguments):
        self.device = torch.device(arguments.device)
        torch.manual_seed(0)
        with self.device:
            self.model = Llama(config, arguments.seq).to(torch.bfloat16)
            self.tokens = torch.randint(config['vocab_size'], (arguments.batch, arguments.seq + 1))
        self.weights = list(self.model.parameters())
        self.masters = [w.detach().float() for w in self.weights]
        for master in self.masters:
            master.grad = torch.zeros_like(master)
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-5, weight_decay=0.01,
                                           fused=self.device.type == 'cuda')

    def step(self, micro):
        for part in self.tokens.split(micro):
            loss = self.model(part[:, :-1], part[:, 1:])
            (loss * (len(part) / len(self.tokens))).backward()
        with torch.no_grad():
            torch._foreach_copy_([m.grad for m in self.masters], [w.grad for w in self.weights])
            nn.utils.clip_grad_norm_(self.masters, 1.0)
            self.optimizer.step()
            torch._foreach_copy_(self.weights, self.masters)
        for weight in self.weights:
            weight.grad = None
        return loss.item()  # waits for all of it

    def compile(self):
        torch._dynamo.config.cache_size_limit = 64  # all layers have one code
        self.model.calls = [torch.compile(layer) for layer in self.model.layers]
        self.model.last = torch.compile(self.model.head)

    def uncompile(self):
        self.model.calls = list(self.model.layers)
        self.model.last = self.model.head

    def forget(self):
        """What a step left that broke off."""
        for weight in self.weights:
            weight.grad = None
        torch.cuda.empty_cache()


def first_step(training, batch):
    """Sequences at once: as many as the memory holds."""
    micro = batch
    while True:
        try:
            training.step(micro)
            return micro
        except torch.cuda.OutOfMemoryError:
            if micro == 1:
                raise
            micro //= 2
        training.forget()  # outside: the exception held what is to be freed


def begin(training, arguments):
    """Compiles and warms up. How many sequences at once, and what is to be told of it."""
    if not hasattr(torch, 'compile'):
        return first_step(training, arguments.batch), 'not compiled: an old torch'
    try:
        training.compile()
        return first_step(training, arguments.batch), 'compiled'
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # the compiler fails in many ways: no C compiler, no Triton
        reason = f'not compiled: {type(error).__name__}'
    training.uncompile()
    training.forget()
    return first_step(training, arguments.batch), reason


def seconds(training, micro):
    start = time.monotonic()
    training.step(micro)
    return time.monotonic() - start


def choose(training, arguments):
    """With each layer computed again in the backward, or with what it needs kept."""
    micro, note = begin(training, arguments)
    again = seconds(training, micro)
    training.model.recompute = False
    try:
        kept = first_step(training, arguments.batch)
        if seconds(training, kept) < again:
            return kept, f'{note}, activations kept'
    except torch.cuda.OutOfMemoryError:
        pass
    training.forget()
    training.model.recompute = True
    return micro, f'{note}, layers computed again'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('config')
    parser.add_argument('--device', default='cuda:0')
    for name, default in (('seq', 2048), ('batch', 8), ('steps', 5)):
        parser.add_argument('--' + name, type=int, default=default)
    arguments = parser.parse_args()
    if not hasattr(torch, '_foreach_copy_'):
        print(f'skipped: torch {torch.__version__} is too old: 2.1 is the first with all of this')
        return 77
    if arguments.device.startswith('cuda') and not torch.cuda.is_available():
        print(f'skipped: torch {torch.__version__} finds no GPU')
        return 77
    torch.backends.cuda.matmul.allow_tf32 = True
    with open(arguments.config, encoding='ascii') as file:
        training = Training(json.load(file), arguments)
    micro, note = choose(training, arguments)
    training.step(micro)
    rates = []
    for _ in range(arguments.steps):
        start = time.monotonic()
        training.step(micro)
        rates.append(arguments.batch * arguments.seq / (time.monotonic() - start))
    print(json.dumps({'torch': torch.__version__, 'tokens_per_s': statistics.median(rates),
                      'least': min(rates), 'most': max(rates),
                      'note': f'{note}, {micro} sequences at once'}))
    return 0


if __name__ == '__main__':
    sys.exit(main())
