/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic, written once in plain C and compiled once for each instruction set; ISA is the
 * set's name and the only thing that differs in the source (the flags are in meson.build).
 *
 * Why the sets agree bit for bit: every operation is one that IEEE 754 rounds exactly (+, ×, ÷,
 * sqrt, fma), the order is written out, the compiler may neither contract nor reorder
 * (-ffp-contract=off, no fast-math), and elements do not meet except in the fixed lanes of the
 * norms. What IEEE 754 leaves open is the pattern of a NaN, so NaNs are canonicalised before they
 * are stored.
 *
 * Loops are shaped for the compiler's vectoriser: no branches, no calls but sqrtf and fmaf,
 * restrict everywhere.
 */
#include "tables.h"

#include <float.h>
#include <math.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "f32 operations must be rounded to f32");

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define STRING_(a)   #a
#define STRING(a)    STRING_(a)

enum { NORM_LANES = 16 };

/*
 * The updates walk four or five arrays at once, more than the hardware's prefetcher keeps up with:
 * asking for lines 512 elements (2 KiB of f32) ahead brings them from some 20 % to some 5 % above
 * what the memory allows.
 */
enum { BLOCK = 64, AHEAD = 512, LINE_BYTES = 64 };

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_is_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

static inline float canonical(float x)
{
    uint32_t bits = bits_of(x);
    return float_of(bits_is_nan(bits) ? 0x7fc00000u : bits);
}

static inline float widen(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

static inline float join(uint16_t weight, int16_t remainder)
{
    return float_of(((uint32_t)weight << 16) + (uint32_t)(int32_t)remainder);
}

/* Adding half a unit rounds the magnitude, whatever the sign: ties go away from zero. */
static inline uint16_t split_weight(uint32_t bits)
{
    return (uint16_t)(bits_is_nan(bits) ? 0x7fc0u : (bits + 0x8000u) >> 16);
}

/* bits - (weight << 16) is the low half of bits, read as signed. */
static inline int16_t split_remainder(uint32_t bits)
{
    return (int16_t)(uint16_t)(bits_is_nan(bits) ? 0u : bits);
}

static inline float update_m(const struct hst_adam_coef *k, float m, float g)
{
    return canonical(fmaf(k->beta1_hi, m, fmaf(k->one_minus_beta1, g, k->beta1_lo * m)));
}

static inline float update_v(const struct hst_adam_coef *k, float v, float g)
{
    return canonical(fmaf(k->beta2_hi, v, fmaf(k->one_minus_beta2 * g, g, k->beta2_lo * v)));
}

static inline float update_p(const struct hst_adam_coef *k, float p, float m, float v)
{
    float q = fmaf(sqrtf(v), k->inv_sqrt_bias2, k->eps);
    return canonical(fmaf(-k->step_size, fmaf(k->decay, p, m / q), p));
}

static inline void prefetch(const void *block, size_t size_bytes)
{
    for (size_t at = 0; at < size_bytes; at += LINE_BYTES)
        __builtin_prefetch((const char *)block + at);
}

static inline void adamw_f32_block(const struct hst_adam_coef *k, float *restrict p,
                                   float *restrict m, float *restrict v, const float *restrict g,
                                   size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float gi = k->grad_scale * g[i];
        float mi = update_m(k, m[i], gi);
        float vi = update_v(k, v[i], gi);
        p[i] = update_p(k, p[i], mi, vi);
        m[i] = mi;
        v[i] = vi;
    }
}

static void adamw_f32(const struct hst_adam_coef *k, float *p, float *m, float *v, const float *g,
                      size_t n)
{
    const struct hst_adam_coef c = *k; /* a copy: stores through p, m, v can not change it */

    for (size_t i = 0; i < n; i += BLOCK) {
        if (n - i >= AHEAD + BLOCK) {
            prefetch(p + i + AHEAD, BLOCK * sizeof *p);
            prefetch(m + i + AHEAD, BLOCK * sizeof *m);
            prefetch(v + i + AHEAD, BLOCK * sizeof *v);
            prefetch(g + i + AHEAD, BLOCK * sizeof *g);
        }
        adamw_f32_block(&c, p + i, m + i, v + i, g + i, n - i < BLOCK ? n - i : BLOCK);
    }
}

static inline void adamw_bf16_block(const struct hst_adam_coef *k, uint16_t *restrict weight,
                                    int16_t *restrict remainder, float *restrict m,
                                    float *restrict v, const uint16_t *restrict g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float gi = k->grad_scale * widen(g[i]);
        float mi = update_m(k, m[i], gi);
        float vi = update_v(k, v[i], gi);
        uint32_t pi = bits_of(update_p(k, join(weight[i], remainder[i]), mi, vi));
        weight[i] = split_weight(pi);
        remainder[i] = split_remainder(pi);
        m[i] = mi;
        v[i] = vi;
    }
}

static void adamw_bf16(const struct hst_adam_coef *k, uint16_t *weight, int16_t *remainder,
                       float *m, float *v, const uint16_t *g, size_t n)
{
    const struct hst_adam_coef c = *k;

    for (size_t i = 0; i < n; i += BLOCK) {
        if (n - i >= AHEAD + BLOCK) {
            prefetch(weight + i + AHEAD, BLOCK * sizeof *weight);
            prefetch(remainder + i + AHEAD, BLOCK * sizeof *remainder);
            prefetch(m + i + AHEAD, BLOCK * sizeof *m);
            prefetch(v + i + AHEAD, BLOCK * sizeof *v);
            prefetch(g + i + AHEAD, BLOCK * sizeof *g);
        }
        adamw_bf16_block(&c, weight + i, remainder + i, m + i, v + i, g + i,
                         n - i < BLOCK ? n - i : BLOCK);
    }
}

static void split_f32(const float *restrict x, uint16_t *restrict weight,
                      int16_t *restrict remainder, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(x[i]);
        weight[i] = split_weight(bits);
        remainder[i] = split_remainder(bits);
    }
}

static void join_f32(const uint16_t *restrict weight, const int16_t *restrict remainder,
                     float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = join(weight[i], remainder[i]);
}

static void f32_from_bf16(const uint16_t *restrict x, float *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = widen(x[i]);
}

static void bf16_from_f32(const float *restrict x, uint16_t *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(x[i]);
        uint32_t nan = ((bits >> 16) & 0x8000u) | 0x7fc0u;
        uint32_t nearest_even = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        y[i] = (uint16_t)(bits_is_nan(bits) ? nan : nearest_even);
    }
}

static double tree_sum(double *lane)
{
    for (int width = NORM_LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return isnan(lane[0]) ? (double)float_of(0x7fc00000u) : lane[0];
}

static double norm2_block_f32(const float *restrict x, size_t n)
{
    double lane[NORM_LANES] = {0};
    size_t whole = n - n % NORM_LANES;

    for (size_t i = 0; i < whole; i += NORM_LANES)
        for (size_t j = 0; j < NORM_LANES; j++)
            lane[j] += (double)x[i + j] * (double)x[i + j];
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += (double)x[i] * (double)x[i];
    return tree_sum(lane);
}

static double norm2_block_bf16(const uint16_t *restrict x, size_t n)
{
    double lane[NORM_LANES] = {0};
    size_t whole = n - n % NORM_LANES;

    for (size_t i = 0; i < whole; i += NORM_LANES)
        for (size_t j = 0; j < NORM_LANES; j++)
            lane[j] += (double)widen(x[i + j]) * (double)widen(x[i + j]);
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += (double)widen(x[i]) * (double)widen(x[i]);
    return tree_sum(lane);
}

static inline size_t block_size(size_t left)
{
    return left < HST_NORM_BLOCK ? left : HST_NORM_BLOCK;
}

static void norm2_f32(const float *x, size_t n, double *partial)
{
    for (size_t i = 0; i < n; i += HST_NORM_BLOCK)
        partial[i / HST_NORM_BLOCK] = norm2_block_f32(x + i, block_size(n - i));
}

static void norm2_bf16(const uint16_t *x, size_t n, double *partial)
{
    for (size_t i = 0; i < n; i += HST_NORM_BLOCK)
        partial[i / HST_NORM_BLOCK] = norm2_block_bf16(x + i, block_size(n - i));
}

const struct hst_cpu_adam_ops PASTE(hst_cpu_adam_ops_, ISA) = {
    .name = STRING(ISA),
    .adamw_f32 = adamw_f32,
    .adamw_bf16 = adamw_bf16,
    .split_f32 = split_f32,
    .join_f32 = join_f32,
    .f32_from_bf16 = f32_from_bf16,
    .bf16_from_f32 = bf16_from_f32,
    .norm2_f32 = norm2_f32,
    .norm2_bf16 = norm2_bf16,
};
