#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden references: small model directories, token files, and what training them must
give.

The model below is written from the papers in plain PyTorch and float64, with no code of
transformers, so that it is a second opinion; where transformers is importable the class that
config.json names must agree to 1e-10 in every logit. Training is torch.optim.AdamW with two
parameter groups, torch's way of clipping.

    make_golden.py [NAME...]  makes every file of every fixture, or of these, anew (needs torch)
    make_golden.py --check    recomputes from the stored files, compares with golden.json, writes
    nothing
    make_golden.py --transformers   makes the cross-check compulsory
"""

import argparse
import fnmatch
import json
import math
import pathlib
import struct
import sys

try:
    import torch
except ImportError:
    print("skipped: torch is not importable (Debian: python3-torch)")
    sys.exit(77)

from fixtures import FIXTURES  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent

# ---- the model
# ---------------------------------------------------------------------------------------------


def head_dim(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def has_qk_norm(c):
    return c["model_type"] == "qwen3"


def has_qkv_bias(c):
    return c["model_type"] == "qwen2"


def tensor_shapes(c):
    """Name -> shape of everything a checkpoint stores."""
    h, f, d = c["hidden_size"], c["intermediate_size"], head_dim(c)
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], h)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes[p + "input_layernorm.weight"] = (h,)
        shapes[p + "self_attn.q_proj.weight"] = (q, h)
        shapes[p + "self_attn.k_proj.weight"] = (kv, h)
        shapes[p + "self_attn.v_proj.weight"] = (kv, h)
        shapes[p + "self_attn.o_proj.weight"] = (h, q)
        if has_qkv_bias(c):
            shapes[p + "self_attn.q_proj.bias"] = (q,)
            shapes[p + "self_attn.k_proj.bias"] = (kv,)
            shapes[p + "self_attn.v_proj.bias"] = (kv,)
        if has_qk_norm(c):
            shapes[p + "self_attn.q_norm.weight"] = (d,)
            shapes[p + "self_attn.k_norm.weight"] = (d,)
        shapes[p + "post_attention_layernorm.weight"] = (h,)
        shapes[p + "mlp.gate_proj.weight"] = (f, h)
        shapes[p + "mlp.up_proj.weight"] = (f, h)
        shapes[p + "mlp.down_proj.weight"] = (h, f)
    shapes["model.norm.weight"] = (h,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], h)
    return shapes


def inverse_frequencies(c):
    """Su et al. 2021 eq. 15; llama3: the scaling published with Llama 3.1."""
    rope = c.get("rope_parameters") or {
        "rope_theta": c.get("rope_theta", 10000.0),
        "rope_type": "default",
    }
    d = head_dim(c)
    out = []
    for i in range(d // 2):
        f = rope["rope_theta"] ** (-2.0 * i / d)
        if rope["rope_type"] == "llama3":
            low, high = rope["low_freq_factor"], rope["high_freq_factor"]
            turns = rope["original_max_position_embeddings"] * f / (2 * math.pi)
            smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
            f = (1 - smooth) * f / rope["factor"] + smooth * f
        out.append(f)
    return torch.tensor(out, dtype=torch.float64)


def norm(x, w, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attention(c, w, p, x):
    n, t, _ = x.shape
    d, heads, kv_heads = head_dim(c), c["num_attention_heads"], c["num_key_value_heads"]
    angle = torch.arange(t, dtype=torch.float64)[:, None] * inverse_frequencies(c)[None, :]
    cos, sin = angle.cos(), angle.sin()
    q, k, v = (x @ w[p + f"{name}_proj.weight"].T for name in "qkv")
    if has_qkv_bias(c):
        q, k, v = (y + w[p + f"{name}_proj.bias"] for y, name in ((q, "q"), (k, "k"), (v, "v")))
    q = q.view(n, t, heads, d).transpose(1, 2)
    k = k.view(n, t, kv_heads, d).transpose(1, 2)
    v = v.view(n, t, kv_heads, d).transpose(1, 2)
    if has_qk_norm(c):
        q = norm(q, w[p + "q_norm.weight"], c["rms_norm_eps"])
        k = norm(k, w[p + "k_norm.weight"], c["rms_norm_eps"])
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    k = k.repeat_interleave(heads // kv_heads, 1)
    v = v.repeat_interleave(heads // kv_heads, 1)
    score = q @ k.transpose(2, 3) / math.sqrt(d)
    score = score.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -math.inf)
    o = (score.softmax(-1) @ v).transpose(1, 2).reshape(n, t, heads * d)
    return o @ w[p + "o_proj.weight"].T


def logits(c, w, ids):
    eps = c["rms_norm_eps"]
    x = torch.nn.functional.embedding(
        ids, w["model.embed_tokens.weight"], padding_idx=c.get("pad_token_id")
    )
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        x = x + attention(c, w, p + "self_attn.", norm(x, w[p + "input_layernorm.weight"], eps))
        y = norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate, up = y @ w[p + "mlp.gate_proj.weight"].T, y @ w[p + "mlp.up_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    head = w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    return norm(x, w["model.norm.weight"], eps) @ head.T


# ---- training
# ----------------------------------------------------------------------------------------------


F16_INFINITE = 65520.0  # what is not below rounds to infinity
NOTHING = -100  # the target of a token of which nothing is learned


def is_learned(t, place):
    """Of the token at that place of the file, as another's target."""
    pattern = t.get("learned", "1")
    return pattern[place % len(pattern)] == "1"


def batches_of(t, row, starts):
    """(ids, targets), each two-dimensional: the sequences at once, or their documents one by
    one, which know nothing of each other. What a sequence has left behind them is padding."""
    lengths = t.get("documents", [t["seq_len"]])
    spans = [[start + sum(lengths[:i]) for start in starts] for i in range(len(lengths))]
    if "documents" in t:
        spans, lengths = [[s] for of in spans for s in of], [
            n for n in lengths for _ in starts
        ]
    for begins, n in zip(spans, lengths):
        targets = [
            [int(row[p]) if is_learned(t, p) else NOTHING for p in range(s + 1, s + 1 + n)]
            for s in begins
        ]
        yield torch.stack([row[s : s + n] for s in begins]), torch.tensor(targets)


def groups_of(t, groups, w):
    """As torch.optim has them: the first are of tensors that a glob names, all others decay where
    they have two dimensions."""
    named = [
        {
            "params": [x for name, x in w.items() if fnmatch.fnmatchcase(name, g["glob"])],
            "lr": t["lr"] * g.get("lr", 1.0),
            "betas": (g.get("beta1", t["betas"][0]), g.get("beta2", t["betas"][1])),
            "eps": g.get("eps", t["eps"]),
            "decay": g.get("decay"),
        }
        for g in groups
    ]
    rest = [
        x for name, x in w.items() if not any(fnmatch.fnmatchcase(name, g["glob"]) for g in groups)
    ]
    for of in [*named, {"params": rest, "decay": None}]:
        decay = of.pop("decay")
        for wide in (True, False):
            params = [x for x in of["params"] if (x.dim() >= 2) == wide]
            usual = t["weight_decay"] if wide else 0.0
            if params:
                yield {
                    **of,
                    "params": params,
                    "weight_decay": usual if decay is None else decay,
                }


def train(fixture, weights, tokens, scale=None, groups=(), only=(), sequences_a_step=None):
    """Sequences in the order of the file, wrapping around; returns loss and norm before clipping
    per step. With a loss scale, a step of which some gradient, of a weight or of the logits, would
    overflow in f16 is skipped, and halves it; its norm is null. only: globs of the tensors that are
    trained; none: all are. sequences_a_step: in place of those of its batch."""
    t, c = fixture["train"], fixture["config"]
    length = t["seq_len"]
    per_step = sequences_a_step or t["batch_tokens"] // length
    sequences = (len(tokens) - 1) // length
    row = torch.tensor(tokens)
    w = {name: x.double().clone() for name, x in weights.items()}
    trained = {
        name: x.requires_grad_()
        for name, x in w.items()
        if not only or any(fnmatch.fnmatchcase(name, glob) for glob in only)
    }
    optimizer = torch.optim.AdamW(
        list(groups_of(t, groups, trained)),
        lr=t["lr"],
        betas=tuple(t["betas"]),
        eps=t["eps"],
    )
    results = []
    for step in range(t["steps"]):
        starts = [(step * per_step + i) % sequences * length for i in range(per_step)]
        optimizer.zero_grad()
        total, count, all_logits = 0.0, 0, []
        for ids, targets in batches_of(t, row, starts):
            y = logits(c, w, ids)
            y.retain_grad()
            all_logits.append(y)
            total = total + torch.nn.functional.cross_entropy(
                y.flatten(0, 1), targets.flatten(), ignore_index=NOTHING, reduction="sum"
            )
            count += int((targets != NOTHING).sum())
        loss = total / count
        loss.backward()
        greatest = max(x.grad.abs().max().item() for x in (*all_logits, *trained.values()))
        if scale and greatest * scale >= F16_INFINITE:
            scale /= 2
            results.append({"loss": loss.item(), "grad_norm": None})
            continue
        total = math.sqrt(sum((x.grad * x.grad).sum().item() for x in trained.values()))
        factor = min(1.0, t["clip"] / (total + 1e-6))
        for x in trained.values():
            x.grad.mul_(factor)
        optimizer.step()
        results.append({"loss": loss.item(), "grad_norm": total})
    return results


def difference(stored, steps):
    """The greatest relative one; where a norm is null in one of them, it must be in both."""
    assert len(stored) == len(steps)
    pairs = [(a[k], b[k]) for a, b in zip(stored, steps) for k in b]
    assert all((a is None) == (b is None) for a, b in pairs), "other steps are skipped"
    return max(abs(a / b - 1) for a, b in pairs if b is not None)


def cross_check(directory, fixture, weights, tokens, compulsory):
    """transformers, loading the directory as a user would, gives the same logits."""
    try:
        import transformers
        from transformers import AutoModelForCausalLM
    except ImportError:
        if compulsory:
            raise
        print("  transformers is not importable: logits not cross-checked")
        return
    c = fixture["config"]
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float64, attn_implementation="sdpa"
    ).eval()
    assert type(model).__name__ == c["architectures"][0]
    ids = torch.tensor(tokens[: 3 * 32]).view(3, 32)
    ours, theirs = inverse_frequencies(c), model.model.rotary_emb.inv_freq.double()
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=0), "inverse frequencies differ"

    def worst():
        with torch.no_grad():
            mine = logits(c, {name: x.double() for name, x in weights.items()}, ids)
            return float((model(ids).logits - mine).abs().max())

    # As it is, transformers computes angles and norms in float32 whatever the model's dtype is.
    as_it_is = worst()
    assert as_it_is < 1e-4, f"logits differ from transformers by {as_it_is}"

    def rotary(x, position_ids=None, **_):
        angle = position_ids.double()[..., None] * torch.cat((ours, ours))
        return angle.cos(), angle.sin()

    model.model.rotary_emb.forward = rotary
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = lambda x, m=module: torch.nn.functional.rms_norm(
                x, m.weight.shape, m.weight, m.variance_epsilon
            )
    in_float64 = worst()
    assert in_float64 < 1e-10, f"logits differ from transformers in float64 by {in_float64}"
    print(
        f"  logits agree with transformers {transformers.__version__}: "
        f"{in_float64:.1e} in float64, {as_it_is:.1e} with its float32 parts"
    )


# ---- files
# -------------------------------------------------------------------------------------------------

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}


def tensor_bytes(x):
    return (
        x.contiguous()
        .view(torch.int16 if x.dtype == torch.bfloat16 else torch.int32)
        .numpy()
        .tobytes()
    )


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, x in tensors.items():
        size = x.numel() * x.element_size()
        dtype = next(key for key, value in DTYPES.items() if value == x.dtype)
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(map(tensor_bytes, tensors.values()))
    )


def read_safetensors(path):
    raw = path.read_bytes()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, entry in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            flat = torch.frombuffer(
                bytearray(raw[start + begin : start + end]), dtype=DTYPES[entry["dtype"]]
            )
            tensors[name] = flat.view(entry["shape"])
    return tensors


def write_tokens(path, tokens, bits):
    magic, version, code = (20240520, 1, "H") if bits == 16 else (20240801, 7, "I")
    header = struct.pack("<256i", magic, version, len(tokens), *[0] * 253)
    path.write_bytes(header + struct.pack(f"<{len(tokens)}{code}", *tokens))


def read_tokens(path):
    raw = path.read_bytes()
    magic, _, count = struct.unpack("<3i", raw[:12])
    return list(struct.unpack(f"<{count}{'H' if magic == 20240520 else 'I'}", raw[1024:]))


def write_weights(directory, weights, shards):
    if shards == 1:
        write_safetensors(directory / "model.safetensors", weights)
        return
    names = list(weights)
    per_file = -(-len(names) // shards)
    index = {
        "metadata": {"total_size": sum(x.numel() * x.element_size() for x in weights.values())},
        "weight_map": {},
    }
    for s in range(shards):
        file = f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
        part = names[s * per_file : (s + 1) * per_file]
        write_safetensors(directory / file, {name: weights[name] for name in part})
        index["weight_map"].update(dict.fromkeys(part, file))
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def make_weights(fixture):
    """Larger than a fresh initialisation, so that every part of the model matters; norms near 1."""
    g = torch.Generator().manual_seed(fixture["seed"])
    weights = {}
    for name, shape in tensor_shapes(fixture["config"]).items():
        x = torch.randn(shape, generator=g)
        if name.endswith(".bias"):
            x = 0.5 * x
        elif len(shape) == 1:
            x = 1 + 0.1 * x
        elif "embed_tokens" in name:
            x = 0.3 * x
        else:
            x = x / math.sqrt(shape[1])
        weights[name] = x if fixture["weight_bits"] == 32 else x.to(torch.bfloat16)
    return weights


def make_tokens(fixture):
    """Learnable in part: each id follows from the one before, but for every fourth, which is
    random."""
    g = torch.Generator().manual_seed(fixture["seed"] + 1000)
    vocab = fixture["config"]["vocab_size"]
    noise = torch.randint(vocab, (fixture["tokens"],), generator=g).tolist()
    tokens = [noise[0]]
    for i in range(1, fixture["tokens"]):
        tokens.append(noise[i] if i % 4 == 0 else (5 * tokens[-1] + 3) % vocab)
    return tokens


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of fixtures; else all of them")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--transformers", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, fixture in FIXTURES.items():
        if args.names and name not in args.names:
            continue
        print(name)
        directory = HERE / name
        if not args.check:
            directory.mkdir(exist_ok=True)
            (directory / "config.json").write_text(json.dumps(fixture["config"], indent=2) + "\n")
            write_weights(directory, make_weights(fixture), fixture["shards"])
            write_tokens(directory / "tokens.bin", make_tokens(fixture), fixture["token_bits"])
        weights = {}
        for path in sorted(directory.glob("*.safetensors")):
            weights.update(read_safetensors(path))
        assert {k: tuple(x.shape) for k, x in weights.items()} == tensor_shapes(fixture["config"])
        tokens = read_tokens(directory / "tokens.bin")
        cross_check(directory, fixture, weights, tokens, args.transformers)
        steps = train(fixture, weights, tokens)
        scaled = train(fixture, weights, tokens, fixture["loss_scale"])
        groups = fixture.get("groups")
        grouped = train(fixture, weights, tokens, groups=groups) if groups else []
        only = fixture.get("train_only")
        partly = train(fixture, weights, tokens, only=only) if only else []
        shared = fixture.get("shared_sequences")
        of_ranks = train(fixture, weights, tokens, sequences_a_step=shared) if shared else []
        clipped = sum(s["grad_norm"] > fixture["train"]["clip"] for s in steps)
        skipped = sum(s["grad_norm"] is None for s in scaled)
        print(
            f"  loss {steps[0]['loss']:.6f} to {steps[-1]['loss']:.6f}, "
            f"{clipped} of {len(steps)} steps clipped, {skipped} skipped with a loss scale"
        )
        if not args.check:
            golden = {
                **fixture["train"],
                "order": "sequential",
                "steps": steps,
                "loss_scale": fixture["loss_scale"],
                "scaled_steps": scaled,
            }
            if groups:
                golden.update(groups=groups, group_steps=grouped)
            if only:
                golden.update(train_only=only, train_only_steps=partly)
            if shared:
                golden.update(shared_sequences=shared, shared_steps=of_ranks)
            (directory / "golden.json").write_text(json.dumps(golden, indent=2) + "\n")
            continue
        stored = json.loads((directory / "golden.json").read_text())
        worst = max(difference(stored["steps"], steps), difference(stored["scaled_steps"], scaled))
        if groups:
            assert stored["groups"] == groups
            worst = max(worst, difference(stored["group_steps"], grouped))
        if only:
            assert stored["train_only"] == only
            worst = max(worst, difference(stored["train_only_steps"], partly))
        if shared:
            assert stored["shared_sequences"] == shared
            worst = max(worst, difference(stored["shared_steps"], of_ranks))
        assert worst < 1e-9, f"golden.json differs by {worst}"
        print(f"  golden.json agrees: {worst:.1e}")


if __name__ == "__main__":
    sys.exit(main())
