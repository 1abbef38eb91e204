/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_PLAN_H
#define HOISTWAY_PLAN_H
/*
 * This header tells what a machine's rates allow a training step: the shapes of known models, the
 * bytes and operations that a step needs, and the least time it can take. Everything here is pure:
 * values in, values out, no machine is looked at.
 *
 * Thread-safety: safe, all of it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A Llama-like transformer: what its sizes follow from. */
struct hst_shape {
    const char *name;   /* "8B"; borrowed, may be null */
    const char *series; /* "Llama 3"; borrowed, may be null */
    uint32_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
    bool tied;     /* the output head uses the embedding's matrix */
    bool qk_norm;  /* each head of q and k is normed, by a vector of head_dim each */
    bool qkv_bias; /* q, k and v have a bias */
    /* "BLOOM, 70 layers x 14,336": the model of another kind in whose place this one stands, with
       as many parameters; borrowed, null: it is itself */
    const char *stands_for;
};

/** The models known by name, by rising size; static, immutable. */
const struct hst_shape *hst_shapes(size_t *count);
/** It finds a shape by name, in any case ("8b"; "llama-3-8b" is "8B" of "Llama 3"); null:
 * unknown. */
const struct hst_shape *hst_shape_find(const char *name);

/** Parameters of the model; a tied matrix counts once. 0: more than 2^63. */
uint64_t hst_shape_params(const struct hst_shape *shape);
/** It counts those that a token is multiplied with: all but an embedding that is only looked up. 0
   as above. */
uint64_t hst_shape_matmul_params(const struct hst_shape *shape);

/** Bytes per parameter; hst_precision_bytes has those of each precision. */
struct hst_param_bytes {
    double weight, state, grad;
};
/** "bf16", "fp32", "fp16", with AdamW; false where the name is another. */
bool hst_precision_bytes(const char *precision, struct hst_param_bytes *bytes);
struct hst_config;
/** The same of what a configuration trains with, by default in fp32; false where its optimizer has
 * no such states. */
bool hst_config_bytes(const struct hst_config *config, struct hst_param_bytes *bytes);

#define HST_WHY_BYTES 320
/** Writes the optimizer's numbers that are 0 as what a run trains with: their defaults, HST_NONE
 * for a default of 0. False, with why: no run can have these numbers, or this optimizer. */
bool hst_config_optimizer(struct hst_config *config, char why[HST_WHY_BYTES]);

/** A machine, and how a model lies on it. A rate of 0 is not counted: it limits nothing. */
struct hst_bound_in {
    struct hst_shape shape;
    struct hst_param_bytes bytes;
    uint64_t seq_len;          /* tokens of a sequence, for attention */
    double states_on_nvme;     /* share of the optimizer states at home on drives, 0 to 1 */
    double weights_on_nvme;    /* of the weights */
    double spill_bytes;        /* activations written to drives in forward, read in backward */
    bool recompute;            /* every block is recomputed in backward */
    bool overlap;              /* the update may begin in backward: no clipping, or optimistic */
    double flops_per_s;        /* of all GPUs that share the drives; > 0 */
    double read, write, mixed; /* of all drives, bytes/s; mixed: both directions' sum, half each */
    double link;               /* of all GPUs to memory, bytes/s in each direction */
    double dram;               /* of memory, bytes/s */
};

enum hst_bound_by { HST_BOUND_GPU = 0, HST_BOUND_NVME = 1, HST_BOUND_LINK = 2, HST_BOUND_DRAM = 3 };

/** The least that a step takes, and what it moves. */
struct hst_bound {
    double flops;                             /* of a step */
    double nvme_read_bytes, nvme_write_bytes; /* of a step, all drives */
    double nvme_space_bytes;             /* on drives: two slots, the last commit's and the next */
    double gpu_s, forward_s, backward_s; /* computing alone; gpu_s is the sum of the other two */
    double update_s;                     /* the update's reads, the forward's too, and writes */
    double nvme_s, link_s, dram_s;       /* each resource's whole time */
    double step_s;                       /* least time of a step */
    double efficiency;                   /* gpu_s / step_s */
    enum hst_bound_by bound_by;          /* the resource that is busy longest */
};

/**
 * The lower bound on a step of `tokens` tokens, of every schedule that, without `overlap`, updates
 * between backward and the next backward: the update has to know the norm. It is of versions that
 * are written whole, and of schedules that move whole layers. Memory can beat it by what it holds
 * between two sweeps: b bytes that are not read again, were read before, or are written later spare
 * a step at most b/read + b/min(read, write) seconds. docs/nvme-bench.md has the derivation, and
 * what else can beat it; in short, with N parameters (N_c of them multiplied), w, S, g bytes of
 * weight, state and gradient per parameter, f_s and f_w the shares on drives, c = 6 or, with
 * recomputing, 8:
 *   gpu      = c·(N_c + L·heads·head_dim·seq_len)·tokens / flops_per_s, 2/c of it in forward
 *   update   = reads r = (S·f_s + w·f_w)·N bytes, the forward's weights among them, and writes
 *              u = (S·f_s + w·max(f_s, f_w))·N, at the least of r/read + u/write and
 *              2r/mixed + (u - r)/write
 *   forward  : nvme = update + spill/write                     link = w·N/link
 *   backward : nvme = f_w·w·N/read + spill/read                link = max(w, g)·N/link
 *   a phase takes its longest resource + 1/L of the others on the chain drive → link → GPU
 *   step     = forward + backward; with `overlap` both are one phase
 * Errors: -EINVAL a share outside 0 to 1, a negative rate, no flops_per_s, no tokens, a shape with
 * a size of 0 or more parameters than can be counted, something on drives without both their rates,
 * or values so great or small that a term is not a finite number. What is returned is finite, and 0
 * < efficiency ≤ 1.
 */
int hst_bound(const struct hst_bound_in *in, uint64_t tokens, struct hst_bound *bound);

/**
 * The least number of tokens per step whose bound reaches an efficiency (0 < target < 1).
 * Errors: as hst_bound; -ERANGE: not even 2^50 tokens do.
 */
int hst_bound_tokens(const struct hst_bound_in *in, double target, uint64_t *tokens);

/**
 * The least number of sets of drives like the one in `in`, striped, with which a step of `tokens`
 * reaches an efficiency. Rates of drives are multiplied by that number.
 * Errors: as hst_bound; -ERANGE: not even 2^20 do.
 */
int hst_bound_drives(const struct hst_bound_in *in, uint64_t tokens, double target, uint32_t *sets);

#ifdef __cplusplus
}
#endif
#endif
