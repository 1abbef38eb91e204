#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden_adamw.h: what torch.optim.AdamW makes of a fixed problem, in float64 and in
float32.

    python3 make_golden.py > golden_adamw.h

The gradients come from a 32-bit linear congruential generator that test_adamw.c repeats, so they
are not stored.
"""

import torch

COUNT = 8
STEPS = 200
CASES = [  # name, lr, beta1, beta2, eps, weight_decay
    ("defaults", 1e-3, 0.9, 0.999, 1e-8, 0.01),
    ("language_model", 1e-4, 0.9, 0.95, 1e-8, 0.1),
    ("no_decay_no_momentum", 3e-4, 0.0, 0.99, 1e-6, 0.0),
]


def problem():
    state = 12345

    def unit():
        nonlocal state
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        return (state >> 8) / 2**23 - 1.0  # exact in float32

    start = [unit() for _ in range(COUNT)]
    gradients = [[unit() * 2.0 ** -(i % 4 * 4) for i in range(COUNT)] for _ in range(STEPS)]
    return start, gradients


def train(case, dtype):
    _, lr, beta1, beta2, eps, weight_decay = case
    start, gradients = problem()
    p = torch.nn.Parameter(torch.tensor(start, dtype=dtype))
    optimizer = torch.optim.AdamW(
        [p], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay
    )
    for g in gradients:
        p.grad = torch.tensor(g, dtype=dtype)
        optimizer.step()
    state = optimizer.state[p]
    return p.detach(), state["exp_avg"], state["exp_avg_sq"]


def rows(tensor):
    values = [float(x).hex() for x in tensor]
    half = COUNT // 2
    return "{" + ", ".join(values[:half]) + ",\n          " + ", ".join(values[half:]) + "}"


print("/* SPDX-License-Identifier: Apache-2.0 */")
print(f"/* Made by make_golden.py with torch {torch.__version__.split('+')[0]}; do not edit. */")
print(f"enum {{ GOLDEN_COUNT = {COUNT}, GOLDEN_STEPS = {STEPS} }};\n")
print("struct golden {\n    const char *name;\n    struct hst_adam_hyper hyper;")
print(
    "    struct {\n        double p[GOLDEN_COUNT], m[GOLDEN_COUNT], v[GOLDEN_COUNT];\n"
    "    } f64, f32;\n};\n"
)
print("static const struct golden golden_cases[] = {")
for case in CASES:
    name, *hyper = case
    print(f'    {{"{name}",\n     {{{", ".join(map(repr, hyper))}}},')
    for dtype in (torch.float64, torch.float32):
        p, m, v = train(case, dtype)
        end = "}," if dtype == torch.float64 else "}},"
        print(f"     {{{rows(p)},\n      {rows(m)},\n      {rows(v)}{end}")
print("};")
