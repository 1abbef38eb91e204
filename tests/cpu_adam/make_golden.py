#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden_adamw.h or golden_others.h: what PyTorch's optimizers make of a fixed problem, in
float64 and in float32.

    python3 make_golden.py adamw > golden_adamw.h
    python3 make_golden.py others > golden_others.h

The gradients come from a 32-bit linear congruential generator that problem.c repeats, so they are
not stored.
"""

import sys

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


OTHERS = [  # name, optimizer, lr, beta1, beta2, eps, weight_decay
    ("sgd", "SGD", 1e-2, 0.9, 0.0, 1.0, 0.01),
    ("sgd_no_decay", "SGD", 1e-3, 0.99, 0.0, 1.0, 0.0),
    ("adagrad", "ADAGRAD", 1e-2, 0.0, 0.0, 1e-10, 0.01),
]


def adamw(p, lr, beta1, beta2, eps, weight_decay):
    return torch.optim.AdamW([p], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay)


def sgd(p, lr, beta1, beta2, eps, weight_decay):
    return torch.optim.SGD([p], lr=lr, momentum=beta1, weight_decay=weight_decay)


def adagrad(p, lr, beta1, beta2, eps, weight_decay):
    return torch.optim.Adagrad([p], lr=lr, eps=eps, weight_decay=weight_decay)


MAKERS = {"SGD": (sgd, "momentum_buffer"), "ADAGRAD": (adagrad, "sum")}


def train(maker, hyper, dtype):
    start, gradients = problem()
    p = torch.nn.Parameter(torch.tensor(start, dtype=dtype))
    optimizer = maker(p, *hyper)
    for g in gradients:
        p.grad = torch.tensor(g, dtype=dtype)
        optimizer.step()
    return p.detach(), optimizer.state[p]


def rows(tensor):
    values = [float(x).hex() for x in tensor]
    half = COUNT // 2
    return "{" + ", ".join(values[:half]) + ",\n          " + ", ".join(values[half:]) + "}"


def write_adamw():
    print("struct golden {\n    const char *name;\n    struct hst_adam_hyper hyper;")
    print(
        "    struct {\n        double p[GOLDEN_COUNT], m[GOLDEN_COUNT], v[GOLDEN_COUNT];\n"
        "    } f64, f32;\n};\n"
    )
    print("static const struct golden golden_cases[] = {")
    for name, *hyper in CASES:
        print(f'    {{"{name}",\n     {{{", ".join(map(repr, hyper))}}},')
        for dtype in (torch.float64, torch.float32):
            p, state = train(adamw, hyper, dtype)
            end = "}," if dtype == torch.float64 else "}},"
            print(f"     {{{rows(p)},\n      {rows(state['exp_avg'])},"
                  f"\n      {rows(state['exp_avg_sq'])}{end}")
    print("};")


def write_others():
    print("struct golden_other {\n    const char *name;\n    enum hst_optimizer optimizer;\n"
          "    struct hst_adam_hyper hyper;")
    print("    struct {\n        double p[GOLDEN_COUNT], state[GOLDEN_COUNT];\n"
          "    } f64, f32;\n};\n")
    print("static const struct golden_other golden_others[] = {")
    for name, optimizer, *hyper in OTHERS:
        print(f'    {{"{name}",\n     HST_OPTIMIZER_{optimizer},\n'
              f'     {{{", ".join(map(repr, hyper))}}},')
        maker, moment = MAKERS[optimizer]
        for dtype in (torch.float64, torch.float32):
            p, state = train(maker, hyper, dtype)
            end = "}," if dtype == torch.float64 else "}},"
            print(f"     {{{rows(p)},\n      {rows(state[moment])}{end}")
    print("};")


print("/* SPDX-License-Identifier: Apache-2.0 */")
print(f"/* Made by make_golden.py with torch {torch.__version__.split('+')[0]}; do not edit. */")
print(f"enum {{ GOLDEN_COUNT = {COUNT}, GOLDEN_STEPS = {STEPS} }};\n")
write_others() if sys.argv[1] == "others" else write_adamw()
