/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic, compiled once for each instruction set; ISA is the set's name, VECTOR_H its
 * vectors where the updates are written with them (the flags are in meson.build).
 *
 * Why the sets agree bit for bit: every operation is one that IEEE 754 rounds exactly (+, ×, ÷,
 * sqrt, fma), the order is written out, the compiler may neither contract nor reorder
 * (-ffp-contract=off, no fast-math), and elements do not meet except in the fixed lanes of the
 * norms. What IEEE 754 leaves open is the pattern of a NaN, so NaNs are canonicalised before they
 * are stored.
 *
 * A kernel is one loop, inlined with the kind of update as a constant.
 */
#ifdef VECTOR_H
#include "vector_isa.h"
#else
#include "plain.h"
#endif

#include "numbers.h"
#include "tables.h"

#include <float.h>
#include <math.h>

_Static_assert(FLT_EVAL_METHOD == 0, "f32 operations must be rounded to f32");

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define STRING_(a)   #a
#define STRING(a)    STRING_(a)

/* ---- updates ---- */

INLINED size_t update_run(struct hst_update_kind kind, const struct constants *k,
                          const struct hst_update_arrays *a, size_t n)
{
    const size_t ahead = ahead_of(a);
    size_t not_finite = 0, i = 0;

    if (kind.moments == HST_CPU_CODE) {
        update_coded(kind, k, a, n);
        return 0;
    }
    for (; n - i >= BLOCK; i += BLOCK) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        if (n - i >= ahead + BLOCK)
            prefetch_all(kind, &here, BLOCK, ahead);
        not_finite += update_some(kind, k, &here, BLOCK);
    }
    if (i < n) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        not_finite += update_some(kind, k, &here, n - i);
    }
    return not_finite;
}

/* It returns how many elements of n are left before the upper half of an index changes, and the key
 * of the noise with it. */
INLINED size_t of_one_key(struct hst_update_kind kind, uint64_t index, size_t n)
{
    const uint64_t left = (UINT64_C(1) << 32) - (uint32_t)index;
    return kind.moments == HST_CPU_BF16 && n > left ? (size_t)left : n;
}

INLINED size_t update(struct hst_update_kind kind, const struct hst_adam_coef *coef,
                      const struct hst_update_arrays *arrays, size_t n)
{
    struct hst_update_arrays a = *arrays;
    size_t not_finite = 0;

    a.master = a.master ? a.master : a.weights;
    a.m = a.m ? a.m : a.weights;
    a.v = a.v ? a.v : a.weights;
    for (size_t i = 0, count; i < n; i += count) {
        const struct hst_update_arrays here = arrays_at(kind, &a, i);
        const struct constants k = constants_of(coef, noise_key_of(coef->noise, here.index));
        count = of_one_key(kind, here.index, n - i);
        not_finite += update_run(kind, &k, &here, count);
    }
    return not_finite;
}

/* ---- conversions ---- */

static void split_f32(const float *restrict x, uint16_t *restrict weight,
                      int16_t *restrict remainder, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(canonical(x[i]));
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
        y[i] = f32_of_bf16(x[i]);
}

static void bf16_from_f32(const float *restrict x, uint16_t *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_nearest(x[i]);
}

static void f32_from_f16(const uint16_t *restrict x, float *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = f32_of_f16(x[i]);
}

static void f16_from_f32(const float *restrict x, uint16_t *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = f16_nearest(x[i]);
}

static void set_f32(const float *x, void *weights, void *master, size_t n)
{
    (void)master;
    memmove(weights, x, n * sizeof *x);
}

static void set_bf16(const float *x, void *weights, void *master, size_t n)
{
    split_f32(x, weights, master, n);
}

static void set_f16(const float *x, void *weights, void *master, size_t n)
{
    f16_from_f32(x, weights, n);
    memmove(master, x, n * sizeof *x);
}

/* ---- norms ---- */

static double tree_sum(double *lane)
{
    for (int width = NORM_LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return isnan(lane[0]) ? (double)float_of(0x7fc00000u) : lane[0];
}

INLINED void norm2(enum hst_cpu_type type, const void *x, size_t n, double *partial)
{
    for (size_t i = 0; i < n; i += HST_NORM_BLOCK) {
        const char *block = (const char *)x + (size_t)TYPE_BYTES(type) * i;
        double lane[NORM_LANES] = {0};
        add_squares(type, block, n - i < HST_NORM_BLOCK ? n - i : HST_NORM_BLOCK, lane);
        partial[i / HST_NORM_BLOCK] = tree_sum(lane);
    }
}

static void norm2_f32(const void *x, size_t n, double *partial)
{
    norm2(HST_CPU_F32, x, n, partial);
}

static void norm2_bf16(const void *x, size_t n, double *partial)
{
    norm2(HST_CPU_BF16, x, n, partial);
}

static void norm2_f16(const void *x, size_t n, double *partial)
{
    norm2(HST_CPU_F16, x, n, partial);
}

/* ---- the table ---- */

/* Every update that exists: the optimizer's name and value, weights, moments, gradients. */
#define EACH_GRADIENT(X, name, value, weights, moments)                                            \
    X(name, value, weights, moments, f32)                                                          \
    X(name, value, weights, moments, bf16)                                                         \
    X(name, value, weights, moments, f16)
#define F32_MOMENTS(X, name, value)                                                                \
    EACH_GRADIENT(X, name, value, f32, f32)                                                        \
    EACH_GRADIENT(X, name, value, bf16, f32)                                                       \
    EACH_GRADIENT(X, name, value, f16, f32)
#define BF16_MOMENTS(X, name, value) EACH_GRADIENT(X, name, value, bf16, bf16)

#define CODED_MOMENTS(X, name, value) X(name, value, bf16, code, bf16)

#define EACH_UPDATE(X)                                                                             \
    EACH_OPTIMIZER(F32_MOMENTS, X)                                                                 \
    EACH_OF_BF16_MOMENTS(BF16_MOMENTS, X)                                                          \
    EACH_OF_CODED_MOMENTS(CODED_MOMENTS, X)

#define TYPE_f32  HST_CPU_F32
#define TYPE_bf16 HST_CPU_BF16
#define TYPE_f16  HST_CPU_F16
#define TYPE_code HST_CPU_CODE

#define KIND(value, weights, moments, grads)                                                       \
    {                                                                                              \
        HST_OPTIMIZER_##value, TYPE_##weights, TYPE_##moments, TYPE_##grads                        \
    }

#define KERNEL(name, value, weights, moments, grads)                                               \
    static size_t name##_##weights##_##moments##_##grads(                                          \
        const struct hst_adam_coef *coef, const struct hst_update_arrays *arrays, size_t n)        \
    {                                                                                              \
        const struct hst_update_kind kind = KIND(value, weights, moments, grads);                  \
        return update(kind, coef, arrays, n);                                                      \
    }
EACH_UPDATE(KERNEL)

/* Weights that stand beside an f32 master are not read. */
#define READ_BYTES(weights)                                                                        \
    (MASTER_BYTES(weights) == 4 ? 4 : TYPE_BYTES(weights) + MASTER_BYTES(weights))
#define MOMENT_BYTES(value, moments)                                                               \
    (M_BYTES(HST_OPTIMIZER_##value, TYPE_##moments) +                                              \
     V_BYTES(HST_OPTIMIZER_##value, TYPE_##moments))

#define ROW(name_, value, weights_, moments, grads_)                                               \
    {                                                                                              \
        .kind = KIND(value, weights_, moments, grads_),                                            \
        .name = #name_ " weights " #weights_ " moments " #moments " grads " #grads_,               \
        .bytes =                                                                                   \
            ARRAY_BYTES(HST_OPTIMIZER_##value, TYPE_##weights_, TYPE_##moments, TYPE_##grads_),    \
        .read_bytes = READ_BYTES(TYPE_##weights_) + MOMENT_BYTES(value, moments) +                 \
                      TYPE_BYTES(TYPE_##grads_),                                                   \
        .written_bytes = TYPE_BYTES(TYPE_##weights_) + MASTER_BYTES(TYPE_##weights_) +             \
                         MOMENT_BYTES(value, moments),                                             \
        .granularity = TYPE_##moments == HST_CPU_CODE ? HST_CODE_BLOCK : 1,                        \
        .kernel = name_##_##weights_##_##moments##_##grads_,                                       \
        .set_weights = set_##weights_,                                                             \
    },
static const struct hst_update updates[] = {EACH_UPDATE(ROW)};

const struct hst_cpu_adam_ops PASTE(hst_cpu_adam_ops_, ISA) = {
    .name = STRING(ISA),
    .updates = updates,
    .update_count = sizeof updates / sizeof updates[0],
    .split_f32 = split_f32,
    .join_f32 = join_f32,
    .f32_from_bf16 = f32_from_bf16,
    .bf16_from_f32 = bf16_from_f32,
    .f32_from_f16 = f32_from_f16,
    .f16_from_f32 = f16_from_f32,
    .norm2 = {[HST_CPU_F32] = norm2_f32, [HST_CPU_BF16] = norm2_bf16, [HST_CPU_F16] = norm2_f16},
};
