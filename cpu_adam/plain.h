/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_PLAIN_H
#define HST_CPU_ADAM_PLAIN_H
/*
 * Updates and sums of squares, one element at a time: the reference that every other form is held
 * to. Loops are shaped for a compiler's vectoriser: no branch, no call but sqrtf and fmaf, restrict
 * everywhere.
 */
#include "kernel.h"
#include "noise.h"
#include "numbers.h"

#include <math.h>

struct constants {
    struct hst_adam_coef coef; /* a copy: stores through the arrays cannot change it */
    struct noise_key noise;
};

INLINED struct constants constants_of(const struct hst_adam_coef *coef, struct noise_key noise)
{
    return (struct constants){*coef, noise};
}

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

INLINED size_t update_arrays(struct hst_update_kind kind, const struct constants *constants,
                             void *restrict weights, void *restrict master, void *restrict m,
                             void *restrict v, const void *restrict grads, uint32_t index, size_t n)
{
    const struct hst_adam_coef *k = &constants->coef;
    uint32_t not_finite = 0;

    for (size_t i = 0; i < n; i++) {
        float p = read_master(kind.weights, weights, master, i);
        float g = k->grad_scale * read_number(kind.grads, grads, i);
        if (kind.optimizer == HST_OPTIMIZER_ADAM)
            g = fmaf(k->l2, p, g);
        float m_new = update_m(k, read_number(kind.moments, m, i), g);
        float v_new = update_v(k, read_number(kind.moments, v, i), g);
        p = update_p(kind.optimizer, k, p, m_new, v_new);
        not_finite += write_master(kind.weights, weights, master, i, p);
        uint32_t noise = noise_at(constants->noise, index + (uint32_t)i);
        write_moment(kind.moments, m, i, m_new, noise & 0xffffu);
        write_moment(kind.moments, v, i, v_new, noise >> 16);
    }
    return not_finite;
}

INLINED size_t update_some(struct hst_update_kind kind, const struct constants *k,
                           const struct hst_update_arrays *a, size_t n)
{
    return update_arrays(kind, k, a->weights, a->master, a->m, a->v, a->grads, (uint32_t)a->index,
                         n);
}

/* Adds x² to the lanes of a norm, element i to lane i mod NORM_LANES. */
INLINED void add_squares(enum hst_cpu_type type, const void *restrict x, size_t n,
                         double *restrict lane)
{
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
}

#endif
