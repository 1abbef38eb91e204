/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_CPU_ADAM_H
#define HOISTWAY_CPU_ADAM_H
/*
 * Optimizer arithmetic on host memory: AdamW, conversions between formats, norms. No threads, no I/O, no
 * allocation. Every function gives the same bits on every instruction set and for every cut of a range
 * into pieces (norms: cut at multiples of HST_NORM_BLOCK).
 *
 * bf16 values are uint16_t bit patterns.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the user chooses. */
struct hst_adam_hyper {
    double lr;           /* ≥ 0, finite */
    double beta1, beta2; /* [0, 1) */
    double eps;          /* > 0 */
    double weight_decay; /* ≥ 0, decoupled; 0 for tensors that are not decayed */
};

/** What one step's update needs, in f32, each rounded once from its float64 value. */
struct hst_adam_coef {
    float grad_scale;     /* multiplies every gradient first: clip factor × averaging ÷ loss scale */
    float beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float decay;          /* 1 - lr·weight_decay */
    float step_size;      /* lr / (1 - β1^t) */
    float inv_sqrt_bias2; /* 1 / sqrt(1 - β2^t) */
    float eps;
};

/**
 * The coefficients of step t (1 is the first).
 * Errors: -EINVAL for t = 0 or a value out of its range (NaN included); *coef is then untouched.
 */
int hst_adam_coef_init(const struct hst_adam_hyper *hyper, uint64_t t, float grad_scale,
                       struct hst_adam_coef *coef);

/** Elements per partial of a norm. */
#define HST_NORM_BLOCK 4096u

/**
 * The table of kernels of one instruction set. All tables give the same bits.
 *
 * Common to all entries: n elements, 0 allowed; pointers aligned to their element at least (64 bytes is
 * faster); arrays must not overlap. Errors: none. Ownership: borrows all, keeps none.
 * Thread-safety: safe on disjoint ranges.
 */
struct hst_cpu_adam_ops {
    const char *name; /* "c", "avx2", "avx512" */

    /**
     * AdamW on fp32, in place. The exact rounding order, each operation in f32:
     *   g' = grad_scale·g
     *   m ← fma(β1, m, (1-β1)·g')
     *   v ← fma(β2, v, ((1-β2)·g')·g')
     *   q = fma(sqrt(v), inv_sqrt_bias2, eps)
     *   p ← fma(-step_size, m / q, decay·p)
     * p, m, v f32[n] read and written; g f32[n] read.
     * Cost: 16 B read + 12 B written per element.
     * Source: Loshchilov & Hutter 2019, arXiv:1711.05101, Alg. 2, in PyTorch's form: eps is added after the
     * bias correction of v, decay multiplies the weight before the step.
     */
    void (*adamw_f32)(const struct hst_adam_coef *k, float *p, float *m, float *v, const float *g, size_t n);

    /**
     * The same on bf16 weights with a split master: p = join(weight, remainder), the update above, then
     * split again. g bf16[n]. Cost: 14 B read + 12 B written per element.
     */
    void (*adamw_bf16)(const struct hst_adam_coef *k, uint16_t *weight, int16_t *remainder, float *m, float *v,
                       const uint16_t *g, size_t n);

    /**
     * Split master: weight = bf16 nearest to x, ties away from zero, remainder = bits(x) - (weight << 16),
     * which always fits an i16. A NaN becomes weight 0x7fc0, remainder 0.
     * join(split(x)) == x for every bit pattern that is not a NaN.
     */
    void (*split_f32)(const float *x, uint16_t *weight, int16_t *remainder, size_t n);
    void (*join_f32)(const uint16_t *weight, const int16_t *remainder, float *x, size_t n);

    void (*f32_from_bf16)(const uint16_t *x, float *y, size_t n); /* exact */
    void (*bf16_from_f32)(const float *x, uint16_t *y, size_t n); /* nearest, ties to even; NaN → 0x7fc0 with its sign */

    /**
     * Σx² of each block of HST_NORM_BLOCK elements from x on, the last block being shorter: f64 partials
     * [⌈n/4096⌉]. Inside a block: 16 f64 lanes, element i into lane i mod 16, lane ← lane + x·x (product and sum each rounded in f64), one addition
     * per element in rising i, then lanes added as a tree of 8, 4, 2, 1.
     * A non-finite element makes its partial non-finite.
     */
    void (*norm2_f32)(const float *x, size_t n, double *partial);
    void (*norm2_bf16)(const uint16_t *x, size_t n, double *partial);
};

enum hst_cpu_isa { HST_CPU_ISA_AUTO = 0, HST_CPU_ISA_C = 1, HST_CPU_ISA_AVX2 = 2, HST_CPU_ISA_AVX512 = 3 };

/**
 * The table for an instruction set; HST_CPU_ISA_AUTO is the best that this CPU and its operating system
 * support (CPUID and XGETBV feature bits, never the model).
 * Returns null where the set asked for is not supported or not built. The table is static and immutable.
 */
const struct hst_cpu_adam_ops *hst_cpu_adam_ops(enum hst_cpu_isa isa);

/** Sum of partials in rising order; the one order in which norms of larger things are put together. */
double hst_norm2_sum(const double *partial, size_t count);

/** Clip factor min(1, max_norm / (norm + 1e-6)); max_norm ≤ 0: 1. Computed in float64, rounded once to f32. */
float hst_clip_factor(double norm, double max_norm);

#ifdef __cplusplus
}
#endif
#endif
