/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_CPU_ADAM_H
#define HOISTWAY_CPU_ADAM_H
/*
 * Optimizer arithmetic on host memory: AdamW, conversions between formats, norms. No threads, no
 * I/O, no allocation. Every function gives the same bits on every instruction set and for every cut
 * of a range into pieces (norms: cut at multiples of HST_NORM_BLOCK).
 *
 * That holds in the default floating-point environment: round to nearest even, denormals kept
 * (neither flush-to-zero nor denormals-are-zero). Every NaN that is written has one fixed pattern,
 * so NaNs compare too.
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
    double eps;          /* > 0 and not 0 as f32, finite */
    double weight_decay; /* ≥ 0, finite, decoupled; 0 for tensors that are not decayed */
};

/**
 * What one step's update needs. Each is computed in float64 by +, -, ×, ÷ and sqrt alone (so it is
 * the same with every libm) and rounded once to f32. A β is kept as two f32, hi + lo: one f32 is
 * off by up to 3e-8, which against 1 - β2 = 0.001 would be a bias of 1e-5 in v.
 */
struct hst_adam_coef {
    float grad_scale; /* multiplies every gradient first: clip factor × averaging ÷ loss scale */
    float beta1_hi, beta1_lo, one_minus_beta1;
    float beta2_hi, beta2_lo, one_minus_beta2;
    float inv_sqrt_bias2; /* 1 / sqrt(1 - β2^t) */
    float eps;
    float decay;     /* weight_decay·(1 - β1^t), so that step_size·decay = lr·weight_decay */
    float step_size; /* lr / (1 - β1^t) */
};

/**
 * The coefficients of step t (1 is the first). grad_scale is finite.
 * Errors: -EINVAL for t = 0, a value out of its range (NaN included) or a coefficient that is not
 * finite in f32; *coef is then untouched. Thread-safety: safe.
 */
int hst_adam_coef_init(const struct hst_adam_hyper *hyper, uint64_t t, float grad_scale,
                       struct hst_adam_coef *coef);

/** Elements per partial of a norm. */
#define HST_NORM_BLOCK 4096u

/**
 * The table of kernels of one instruction set. All tables give the same bits.
 *
 * Common to all entries: n elements, 0 allowed; pointers aligned to their element at least (64
 * bytes is faster); arrays must not overlap. Errors: none. Ownership: borrows all, keeps none.
 * Thread-safety: safe on disjoint ranges.
 */
struct hst_cpu_adam_ops {
    const char *name; /* "c", "avx2", "avx512" */

    /**
     * AdamW on fp32, in place. The exact rounding order, each operation in f32:
     *   g' = grad_scale·g
     *   m ← fma(β1_hi, m, fma(1-β1, g', β1_lo·m))
     *   v ← fma(β2_hi, v, fma((1-β2)·g', g', β2_lo·v))
     *   q = fma(sqrt(v), inv_sqrt_bias2, eps)
     *   p ← fma(-step_size, fma(decay, p, m / q), p)
     * Each of m, v and p is rounded once at its own size; every other rounding is scaled down by
     * 1-β1, 1-β2 or step_size. A NaN in p, m or v is written as 0x7fc00000. An infinite v, or an
     * infinite p, becomes NaN in its next update: it does not stay hidden behind m / inf = 0.
     * p, m, v f32[n] read and written; g f32[n] read.
     * Cost: 16 B read + 12 B written per element.
     * Source: Loshchilov & Hutter 2019, arXiv:1711.05101, Alg. 2, in PyTorch's form: eps is added
     * after the bias correction of v. Alg. 2 and PyTorch shrink the weight before the step, p ← (1
     * - lr·wd)·p - step; here both are subtracted at once, the same value with one rounding, and 1
     * - lr·wd, which f32 can not hold (1 - 1e-7 is off by 19 % of the decay), is never formed.
     */
    void (*adamw_f32)(const struct hst_adam_coef *k, float *p, float *m, float *v, const float *g,
                      size_t n);

    /**
     * The same on bf16 weights with a split master: p = join(weight, remainder), the update above,
     * then split again. g bf16[n]. Cost: 14 B read + 12 B written per element. A NaN in m or v is
     * written as 0x7fc00000, in p as weight 0x7fc0, remainder 0.
     */
    void (*adamw_bf16)(const struct hst_adam_coef *k, uint16_t *weight, int16_t *remainder,
                       float *m, float *v, const uint16_t *g, size_t n);

    /**
     * Split master: weight = bf16 nearest to x, ties away from zero, remainder = bits(x) - (weight
     * << 16), which always fits an i16. A NaN becomes weight 0x7fc0, remainder 0. join(split(x)) ==
     * x for every bit pattern that is not a NaN.
     */
    void (*split_f32)(const float *x, uint16_t *weight, int16_t *remainder, size_t n);
    void (*join_f32)(const uint16_t *weight, const int16_t *remainder, float *x, size_t n);

    /** Exact, NaN patterns included. */
    void (*f32_from_bf16)(const uint16_t *x, float *y, size_t n);

    /** Nearest, ties to even; a NaN becomes 0x7fc0 with its sign. */
    void (*bf16_from_f32)(const float *x, uint16_t *y, size_t n);

    /**
     * Σx² of each block of HST_NORM_BLOCK elements from x on, the last block being shorter: f64
     * partials [⌈n/4096⌉]. Inside a block: 16 f64 lanes that start at 0, element i into lane i mod
     * 16, lane ← lane + x·x (the product of two f32 is exact in f64, the sum is rounded), one
     * addition per element in rising i, then lanes added as a tree: lane j ← lane j + lane j+8 for
     * j < 8, then +4 for j < 4, +2, +1; lane 0 is the partial. A non-finite element makes its
     * partial non-finite; a NaN partial is 0x7ff8000000000000.
     */
    void (*norm2_f32)(const float *x, size_t n, double *partial);
    void (*norm2_bf16)(const uint16_t *x, size_t n, double *partial);
};

enum hst_cpu_isa {
    HST_CPU_ISA_AUTO = 0,
    HST_CPU_ISA_C = 1,
    HST_CPU_ISA_AVX2 = 2,
    HST_CPU_ISA_AVX512 = 3
};

/**
 * The table for an instruction set; HST_CPU_ISA_AUTO is the best that this CPU and its operating
 * system support (CPUID and XGETBV feature bits, never the model).
 * Returns null where the set asked for is not supported or not built; never null for AUTO and C.
 * The table is static and immutable. Each call asks the CPU again (microseconds under a
 * hypervisor): ask once and keep the table.
 * Thread-safety: safe.
 */
const struct hst_cpu_adam_ops *hst_cpu_adam_ops(enum hst_cpu_isa isa);

/**
 * Sum of partials in rising order, 0 for none; the one order in which norms of larger things are
 * put together.
 * Errors: none; a non-finite partial makes the sum non-finite. Thread-safety: safe.
 */
double hst_norm2_sum(const double *partial, size_t count);

/**
 * Clip factor min(1, max_norm / (norm + 1e-6)), computed in float64, rounded once to f32. max_norm
 * ≤ 0 is clipping off: 1, whatever the norm. Otherwise a norm that is not finite gives NaN, and so
 * does a NaN max_norm: no factor is right then, and hst_adam_coef_init refuses it. (PyTorch gives 0
 * for an infinite norm, which would apply a zero gradient in silence.) Thread-safety: safe.
 */
float hst_clip_factor(double norm, double max_norm);

#ifdef __cplusplus
}
#endif
#endif
