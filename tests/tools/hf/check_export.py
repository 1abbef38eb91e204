#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads exported models with transformers and compares their logits with those of the source.

check_export.py SOURCE EXPORT [--tolerance X]   two directories; 0: bit for bit
check_export.py --round-trip HF_COPY            models made here, copied by the program hf_copy

Needs torch, transformers and safetensors (from PyPI); exits 77 where they are missing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
except ImportError as e:
    print(f"SKIP: {e}; pip install torch transformers safetensors")
    sys.exit(77)


def logits(directory):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    ids = (torch.arange(2 * 48).reshape(2, 48) * 7919) % model.config.vocab_size
    with torch.no_grad():
        return model(ids).logits


def compare(source, export, tolerance):
    a, b = logits(source), logits(export)
    assert a.shape == b.shape and torch.isfinite(a).all() and a.abs().max() > 0
    worst = ((a - b).abs().max() / a.abs().max()).item()
    same = torch.equal(a, b) if tolerance == 0 else worst <= tolerance
    print(
        f"{export}: logits {tuple(a.shape)}, worst relative difference {worst:.3g}: "
        f"{'ok' if same else 'DIFFER'}"
    )
    return same


def make(directory, shard, dtype, **changes):
    torch.manual_seed(1)
    config = dict(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=256,
        max_position_embeddings=128,
        initializer_range=0.2,
    )
    config.update(changes)
    LlamaForCausalLM(LlamaConfig(**config)).to(dtype).save_pretrained(
        directory, max_shard_size=shard
    )


def round_trip(program):
    llama3 = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    cases = [  # source: shard size, dtype, config; export: dtype, shard bytes
        ("one file", "5GB", torch.float32, {}, "f32", 0),
        (
            "many to one",
            "60KB",
            torch.float32,
            {"head_dim": 24, "rope_parameters": llama3},
            "f32",
            0,
        ),
        ("one to many", "5GB", torch.float32, {"tie_word_embeddings": True}, "f32", 50000),
        ("bf16", "60KB", torch.bfloat16, {}, "bf16", 50000),
        ("bf16 to f32", "5GB", torch.bfloat16, {}, "f32", 0),
    ]
    good = True
    with tempfile.TemporaryDirectory() as base:
        for i, (name, shard, dtype, config, export_dtype, shard_bytes) in enumerate(cases):
            source, export = f"{base}/{i}", f"{base}/{i}.out"
            make(source, shard, dtype, **config)
            subprocess.run([program, source, export, export_dtype, str(shard_bytes)], check=True)
            print(name, end=" ")
            good &= compare(source, export, 0)
            with open(f"{export}/config.json") as f:
                kept = json.load(f)
            good &= kept["dtype"] == {"f32": "float32", "bf16": "bfloat16"}[export_dtype]
            good &= os.path.exists(f"{export}/generation_config.json")
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directories", nargs="*")
    parser.add_argument("--tolerance", type=float, default=0)
    parser.add_argument("--round-trip")
    args = parser.parse_args()
    if args.round_trip:
        return 0 if round_trip(args.round_trip) else 1
    if len(args.directories) != 2:
        parser.error("want SOURCE and EXPORT, or --round-trip")
    return 0 if compare(*args.directories, args.tolerance) else 1


sys.exit(main())
