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
#include "prefetch.h"

#include <math.h>

typedef float floats;
#define FORMULA   INLINED
#define CONSTANTS struct hst_adam_coef

INLINED floats all(float x)
{
    return x;
}

INLINED floats times(floats a, floats b)
{
    return a * b;
}

INLINED floats times_plus(floats a, floats b, floats c)
{
    return fmaf(a, b, c);
}

INLINED floats over(floats a, floats b)
{
    return a / b;
}

INLINED floats root(floats a)
{
    return sqrtf(a);
}

INLINED floats sign_of(floats a)
{
    return float_of((bits_of(a) & 0x80000000u) | (a != 0 ? 0x3f800000u : 0u));
}

INLINED floats minus_step_size(const struct hst_adam_coef *k)
{
    return -k->step_size;
}

#include "codes.h"
#include "formula.h"

struct constants {
    struct hst_adam_coef coef; /* a copy: stores through the arrays cannot change it */
    struct noise_key noise;
};

INLINED struct constants constants_of(const struct hst_adam_coef *coef, struct noise_key noise)
{
    return (struct constants){*coef, noise};
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
    const bool has_m = HST_OPTIMIZER_HAS_M(kind.optimizer);
    const bool has_v = HST_OPTIMIZER_HAS_V(kind.optimizer);
    uint32_t not_finite = 0;

    for (size_t i = 0; i < n; i++) {
        struct element e = {
            .p = read_master(kind.weights, weights, master, i),
            .m = has_m ? read_number(kind.moments, m, i) : 0,
            .v = has_v ? read_number(kind.moments, v, i) : 0,
        };
        e = element_updated(kind.optimizer, &constants->coef, e, read_number(kind.grads, grads, i));
        not_finite += write_master(kind.weights, weights, master, i, canonical(e.p));
        uint32_t noise = noise_at(constants->noise, index + (uint32_t)i);
        if (has_m)
            write_moment(kind.moments, m, i, canonical(e.m), noise & 0xffffu);
        if (has_v)
            write_moment(kind.moments, v, i, canonical(e.v), noise >> 16);
    }
    return not_finite;
}

/* ---- moments in codes, a block at a time ---- */

/* The lowest line at y, the code of y before its fraction is cut off. */
INLINED float lowest_line(const struct code_lines *lines, int segments, float y)
{
    float lowest = fmaf(lines->slope[0], y, lines->start[0]);
    for (int i = 1; i < segments; i++) {
        const float line = fmaf(lines->slope[i], y, lines->start[i]);
        lowest = line < lowest ? line : lowest;
    }
    return lowest;
}

/* The highest line at a code, or `least`. */
INLINED float highest_line(const struct code_lines *lines, int segments, float code, float least)
{
    float highest = least;
    for (int i = 0; i < segments; i++) {
        const float line = fmaf(lines->slope[i], code, lines->start[i]);
        highest = line > highest ? line : highest;
    }
    return highest;
}

/* A magnitude over the scale. */
INLINED float part_of_scale(float x, float inverse)
{
    return fmaf(float_of(bits_of(x) & 0x7fffffffu), inverse, Y_LEAST);
}

INLINED float m_value(uint8_t code, float scale)
{
    const float z = highest_line(&m_from_code, M_SEGMENTS, (float)(code & 0x7f), 0);
    return float_of(bits_of(z * scale) ^ (uint32_t)(code & 0x80) << 24);
}

INLINED float v_value(uint8_t code, float scale)
{
    return highest_line(&v_from_code, V_SEGMENTS, (float)code, V_LEAST) * scale;
}

INLINED void write_m_codes(const float *restrict m, uint32_t largest, uint8_t *restrict codes,
                           float *restrict scales, size_t n)
{
    const struct scale scale = scale_of(largest, M_TO_SCALE);
    *scales = scale.value;
    if (scale.inverse == 0) {
        memset(codes, 0, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const float y = part_of_scale(m[i], scale.inverse);
        const int code = (int)lowest_line(&m_to_code, M_SEGMENTS, y);
        codes[i] = (uint8_t)((uint32_t)code | (bits_of(m[i]) >> 24 & 0x80u));
    }
}

INLINED void write_v_codes(const float *restrict v, uint32_t largest, uint8_t *restrict codes,
                           float *restrict scales, size_t n)
{
    const struct scale scale = scale_of(largest, V_TO_SCALE);
    *scales = scale.value;
    if (scale.inverse == 0) {
        memset(codes, 0, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const float y = part_of_scale(v[i], scale.inverse);
        codes[i] = (uint8_t)(int)lowest_line(&v_to_code, V_SEGMENTS, y);
    }
}

INLINED uint32_t larger(uint32_t largest, float x)
{
    const uint32_t magnitude = bits_of(x) & 0x7fffffffu;
    return magnitude > largest ? magnitude : largest;
}

/* n is at most a block. */
INLINED void update_block(struct hst_update_kind kind, const struct hst_adam_coef *k,
                          uint16_t *restrict weights, int16_t *restrict master,
                          const struct hst_update_arrays *a, size_t n)
{
    const uint8_t *m_codes = a->m, *v_codes = a->v;
    const float m_scale = *a->m_scales, v_scale = *a->v_scales;
    float m[HST_CODE_BLOCK], v[HST_CODE_BLOCK];
    uint32_t m_largest = 0, v_largest = 0;

    for (size_t i = 0; i < n; i++) {
        struct element e = {
            .p = join(weights[i], master[i]),
            .m = m_value(m_codes[i], m_scale),
            .v = v_value(v_codes[i], v_scale),
        };
        e = element_updated(kind.optimizer, k, e, read_number(kind.grads, a->grads, i));
        write_master(kind.weights, weights, master, i, canonical(e.p));
        m[i] = e.m;
        v[i] = e.v;
        m_largest = larger(m_largest, e.m);
        v_largest = larger(v_largest, e.v);
    }
    write_m_codes(m, m_largest, a->m, a->m_scales, n);
    write_v_codes(v, v_largest, a->v, a->v_scales, n);
}

INLINED void update_coded(struct hst_update_kind kind, const struct constants *k,
                          const struct hst_update_arrays *a, size_t n)
{
    const size_t ahead = ahead_of(a);

    for (size_t i = 0, count; i < n; i += count) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        count = n - i < HST_CODE_BLOCK ? n - i : HST_CODE_BLOCK;
        if (n - i >= ahead + HST_CODE_BLOCK)
            prefetch_all(kind, &here, HST_CODE_BLOCK, ahead);
        update_block(kind, &k->coef, here.weights, here.master, &here, count);
    }
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
