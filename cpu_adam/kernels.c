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
 * restrict everywhere. A kernel is one loop, inlined with the kind of update as a constant.
 */
#include "numbers.h"
#include "tables.h"

#include <float.h>
#include <math.h>

_Static_assert(FLT_EVAL_METHOD == 0, "f32 operations must be rounded to f32");

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define STRING_(a)   #a
#define STRING(a)    STRING_(a)
#define INLINED      static inline __attribute__((always_inline))

enum { NORM_LANES = 16 };

/*
 * The updates walk four or five arrays at once, more than the hardware's prefetcher keeps up with:
 * asking for lines 512 elements (2 KiB of f32) ahead brings them from some 20 % to some 5 % above
 * what the memory allows.
 */
enum { BLOCK = 64, AHEAD = 512, LINE_BYTES = 64 };

/* ---- numbers in arrays ---- */

INLINED size_t type_bytes(enum hst_cpu_type type)
{
    return type == HST_CPU_F32 ? 4 : 2;
}

INLINED float read_number(enum hst_cpu_type type, const void *x, size_t i)
{
    if (type == HST_CPU_F32)
        return ((const float *)x)[i];
    uint16_t half = ((const uint16_t *)x)[i];
    return type == HST_CPU_BF16 ? f32_of_bf16(half) : f32_of_f16(half);
}

INLINED void write_moment(enum hst_cpu_type type, void *x, size_t i, float value, uint32_t noise)
{
    if (type == HST_CPU_F32)
        ((float *)x)[i] = value;
    else
        ((uint16_t *)x)[i] = bf16_noisy(value, noise);
}

INLINED size_t master_bytes(enum hst_cpu_type weights)
{
    return weights == HST_CPU_F32 ? 0 : weights == HST_CPU_BF16 ? 2 : 4;
}

INLINED float read_master(enum hst_cpu_type type, const void *weights, const void *master, size_t i)
{
    if (type == HST_CPU_BF16)
        return join(((const uint16_t *)weights)[i], ((const int16_t *)master)[i]);
    return ((const float *)(type == HST_CPU_F32 ? weights : master))[i];
}

/* Returns 1 where an f16 weight is not finite. */
INLINED uint32_t write_master(enum hst_cpu_type type, void *weights, void *master, size_t i,
                              float value)
{
    if (type == HST_CPU_F32) {
        ((float *)weights)[i] = value;
    } else if (type == HST_CPU_BF16) {
        ((uint16_t *)weights)[i] = split_weight(bits_of(value));
        ((int16_t *)master)[i] = split_remainder(bits_of(value));
    } else {
        uint16_t weight = f16_nearest(value);
        ((uint16_t *)weights)[i] = weight;
        ((float *)master)[i] = value;
        return (weight & 0x7c00u) == 0x7c00u;
    }
    return 0;
}

/* ---- updates ---- */

INLINED float update_m(const struct hst_adam_coef *k, float m, float g)
{
    return canonical(fmaf(k->beta1_hi, m, fmaf(k->one_minus_beta1, g, k->beta1_lo * m)));
}

INLINED float update_v(const struct hst_adam_coef *k, float v, float g)
{
    return canonical(fmaf(k->beta2_hi, v, fmaf(k->one_minus_beta2 * g, g, k->beta2_lo * v)));
}

INLINED float update_p(enum hst_optimizer optimizer, const struct hst_adam_coef *k, float p,
                       float m, float v)
{
    float q = fmaf(sqrtf(v), k->inv_sqrt_bias2, k->eps);
    float step = optimizer == HST_OPTIMIZER_ADAM ? m / q : fmaf(k->decay, p, m / q);
    return canonical(fmaf(-k->step_size, step, p));
}

INLINED uint32_t update_block(struct hst_update_kind kind, const struct hst_adam_coef *k,
                              void *restrict weights, void *restrict master, void *restrict m,
                              void *restrict v, const void *restrict grads, size_t n)
{
    uint32_t not_finite = 0;

    for (size_t i = 0; i < n; i++) {
        float p = read_master(kind.weights, weights, master, i);
        float g = k->grad_scale * read_number(kind.grads, grads, i);
        if (kind.optimizer == HST_OPTIMIZER_ADAM)
            g = fmaf(k->l2, p, g);
        float mi = update_m(k, read_number(kind.moments, m, i), g);
        float vi = update_v(k, read_number(kind.moments, v, i), g);
        p = update_p(kind.optimizer, k, p, mi, vi);
        not_finite += write_master(kind.weights, weights, master, i, p);
        write_moment(kind.moments, m, i, mi, k->noise);
        write_moment(kind.moments, v, i, vi, k->noise);
    }
    return not_finite;
}

INLINED void *at(void *array, size_t bytes, size_t i)
{
    return (char *)array + bytes * i;
}

INLINED void prefetch(const void *array, size_t bytes, size_t i)
{
    const char *block = (const char *)array + bytes * i;
    for (size_t line = 0; line < bytes * BLOCK; line += LINE_BYTES)
        __builtin_prefetch(block + line);
}

INLINED size_t update(struct hst_update_kind kind, const struct hst_adam_coef *k,
                      const struct hst_update_arrays *a, size_t n)
{
    const struct hst_adam_coef c = *k; /* a copy: stores through the arrays can not change it */
    const size_t weight = type_bytes(kind.weights), master = master_bytes(kind.weights);
    const size_t moment = type_bytes(kind.moments), grad = type_bytes(kind.grads);
    size_t not_finite = 0;

    for (size_t i = 0; i < n; i += BLOCK) {
        if (n - i >= AHEAD + BLOCK) {
            if (kind.weights != HST_CPU_F16)
                prefetch(a->weights, weight, i + AHEAD);
            if (master)
                prefetch(a->master, master, i + AHEAD);
            prefetch(a->m, moment, i + AHEAD);
            prefetch(a->v, moment, i + AHEAD);
            prefetch(a->grads, grad, i + AHEAD);
        }
        not_finite += update_block(
            kind, &c, at(a->weights, weight, i), at(a->master, master, i), at(a->m, moment, i),
            at(a->v, moment, i), (const char *)a->grads + grad * i, n - i < BLOCK ? n - i : BLOCK);
    }
    return not_finite;
}

/* ---- conversions ---- */

static void split_f32(const float *restrict x, uint16_t *restrict weight,
                      int16_t *restrict remainder, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        weight[i] = split_weight(bits_of(x[i]));
        remainder[i] = split_remainder(bits_of(x[i]));
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

INLINED double norm2_block(enum hst_cpu_type type, const void *restrict x, size_t n)
{
    double lane[NORM_LANES] = {0};
    size_t whole = n - n % NORM_LANES;

    for (size_t i = 0; i < whole; i += NORM_LANES)
        for (size_t j = 0; j < NORM_LANES; j++) {
            double xi = (double)read_number(type, x, i + j);
            lane[j] += xi * xi;
        }
    for (size_t i = whole; i < n; i++) {
        double xi = (double)read_number(type, x, i);
        lane[i - whole] += xi * xi;
    }
    return tree_sum(lane);
}

INLINED void norm2(enum hst_cpu_type type, const void *x, size_t n, double *partial)
{
    for (size_t i = 0; i < n; i += HST_NORM_BLOCK) {
        size_t left = n - i < HST_NORM_BLOCK ? n - i : HST_NORM_BLOCK;
        partial[i / HST_NORM_BLOCK] =
            norm2_block(type, (const char *)x + type_bytes(type) * i, left);
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

/* Every update that exists: how its parts are called, and as enum. */
#define EACH_GRAD(X, ...)                                                                          \
    X(__VA_ARGS__, f32, F32) X(__VA_ARGS__, bf16, BF16) X(__VA_ARGS__, f16, F16)
#define EACH_FORMAT(X, ...)                                                                        \
    EACH_GRAD(X, __VA_ARGS__, f32, F32, f32, F32)                                                  \
    EACH_GRAD(X, __VA_ARGS__, bf16, BF16, f32, F32)                                                \
    EACH_GRAD(X, __VA_ARGS__, bf16, BF16, bf16, BF16)                                              \
    EACH_GRAD(X, __VA_ARGS__, f16, F16, f32, F32)
#define EACH_UPDATE(X)                                                                             \
    EACH_FORMAT(X, adamw, ADAMW)                                                                   \
    EACH_FORMAT(X, adam, ADAM)

#define KIND(OPTIMIZER, WEIGHTS, MOMENTS, GRADS)                                                   \
    {                                                                                              \
        HST_OPTIMIZER_##OPTIMIZER, HST_CPU_##WEIGHTS, HST_CPU_##MOMENTS, HST_CPU_##GRADS           \
    }

#define KERNEL(optimizer, OPTIMIZER, weights, WEIGHTS, moments, MOMENTS, grads, GRADS)             \
    static size_t optimizer##_##weights##_##moments##_##grads(                                     \
        const struct hst_adam_coef *coef, const struct hst_update_arrays *arrays, size_t n)        \
    {                                                                                              \
        const struct hst_update_kind kind = KIND(OPTIMIZER, WEIGHTS, MOMENTS, GRADS);              \
        return update(kind, coef, arrays, n);                                                      \
    }
EACH_UPDATE(KERNEL)

enum { BYTES_F32 = 4, BYTES_BF16 = 2, BYTES_F16 = 2 };
enum { MASTER_F32 = 0, MASTER_BF16 = 2, MASTER_F16 = 4 };
enum { READ_F32 = 4, READ_BF16 = 4, READ_F16 = 4 }; /* of weight and master */

#define ROW(optimizer, OPTIMIZER, weights_, WEIGHTS, moments, MOMENTS, grads_, GRADS)              \
    {                                                                                              \
        .kind = KIND(OPTIMIZER, WEIGHTS, MOMENTS, GRADS),                                          \
        .name = #optimizer " weights " #weights_ " moments " #moments " grads " #grads_,           \
        .bytes = {.weights = BYTES_##WEIGHTS,                                                      \
                  .master = MASTER_##WEIGHTS,                                                      \
                  .m = BYTES_##MOMENTS,                                                            \
                  .v = BYTES_##MOMENTS,                                                            \
                  .grads = BYTES_##GRADS},                                                         \
        .read_bytes = READ_##WEIGHTS + 2 * BYTES_##MOMENTS + BYTES_##GRADS,                        \
        .written_bytes = BYTES_##WEIGHTS + MASTER_##WEIGHTS + 2 * BYTES_##MOMENTS,                 \
        .kernel = optimizer##_##weights_##_##moments##_##grads_,                                   \
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
