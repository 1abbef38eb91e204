#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `hoistway bench step`: the same Llama trained by PyTorch on the same cores.

fp32, each block under torch.utils.checkpoint, AdamW, clipping at 1, one backward per 2,048 tokens.
Prints one JSON object. usage: torch_step.py STEPS BATCH_TOKENS THREADS
"""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, LAYERS, INTERMEDIATE, HEADS, HEAD_DIM, VOCABULARY, SEQUENCE, GRAIN = (
    512,
    8,
    1376,
    8,
    64,
    256,
    256,
    2048,
)


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x, cos, sin):
    left, right = x.chunk(2, -1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


def attend(q, k, v, mask):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = torch.matmul(q, k.transpose(-1, -2)) * HEAD_DIM**-0.5 + mask
    return torch.matmul(scores.softmax(-1), v)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate = nn.Linear(WIDTH, INTERMEDIATE, bias=False)
        self.up = nn.Linear(WIDTH, INTERMEDIATE, bias=False)
        self.down = nn.Linear(INTERMEDIATE, WIDTH, bias=False)

    def forward(self, x, cos, sin, mask):
        h = self.norm1(x)
        q, k, v = (
            proj(h).view(x.shape[0], SEQUENCE, HEADS, HEAD_DIM).transpose(1, 2)
            for proj in (self.q, self.k, self.v)
        )
        o = attend(rotate(q, cos, sin), rotate(k, cos, sin), v, mask)
        x = x + self.o(o.transpose(1, 2).reshape(x.shape))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        angle = torch.outer(
            torch.arange(SEQUENCE), 10000.0 ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        )
        self.cos, self.sin = angle.cos(), angle.sin()
        self.mask = torch.full((SEQUENCE, SEQUENCE), float("-inf")).triu(1)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            # Older versions want an input that requires gradients, which the embedding's output
            # does.
            x = checkpoint(block, x, self.cos, self.sin, self.mask, use_reentrant=True)
        return self.head(self.norm(x))


def main():
    steps, batch_tokens, threads = (int(a) for a in sys.argv[1:4])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = Llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, foreach=False)
    tokens = torch.randint(VOCABULARY, (batch_tokens // SEQUENCE, SEQUENCE + 1))
    seconds = []
    for step in range(steps + 1):
        start = time.monotonic()
        for part in tokens.split(GRAIN // SEQUENCE):
            logits = model(part[:, :-1])
            loss = F.cross_entropy(
                logits.reshape(-1, VOCABULARY), part[:, 1:].reshape(-1), reduction="sum"
            )
            (loss / batch_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step > 0:
            seconds.append(time.monotonic() - start)
    seconds.sort()
    median = seconds[len(seconds) // 2]
    print(
        json.dumps(
            {"torch": torch.__version__, "step_s": median, "tokens_per_s": batch_tokens / median}
        )
    )


if __name__ == "__main__":
    main()
