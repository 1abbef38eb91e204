/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled once for each instruction set, as cpu_adam's tables are, with ISA for its name. Each
 * array of an update is read and written in its place, by one operation that changes nothing.
 */
#include "bench/adam/null.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define STRING_(a)   #a
#define STRING(a)    STRING_(a)
#define INLINED      static inline __attribute__((always_inline))

enum { BLOCK = 64, AHEAD = HST_AHEAD_USUAL, LINE_BYTES = 64 }; /* as far as the updates do */

INLINED void prefetch(enum adam_null_way way, const void *array, size_t element_bytes, size_t i)
{
    const char *block = (const char *)array + element_bytes * (i + AHEAD);
    if (way == ADAM_NULL_PLAIN)
        return;
    for (size_t at = 0; at < BLOCK * element_bytes; at += LINE_BYTES)
        if (way == ADAM_NULL_SECOND_CACHE)
            __builtin_prefetch(block + at, 0, 2);
        else
            __builtin_prefetch(block + at);
}

INLINED void f32(const struct hst_update_arrays *a, size_t n, struct adam_null_in k,
                 enum adam_null_way way)
{
    float *restrict w = a->weights, *restrict m = a->m, *restrict v = a->v;
    const float *restrict g = a->grads;

    for (size_t i = 0; i + BLOCK <= n; i += BLOCK) {
        prefetch(way, w, 4, i);
        prefetch(way, m, 4, i);
        prefetch(way, v, 4, i);
        prefetch(way, g, 4, i);
        for (size_t j = i; j < i + BLOCK; j++) {
            w[j] += g[j] * k.zero;
            m[j] *= k.one;
            v[j] *= k.one;
        }
    }
}

INLINED void bf16(const struct hst_update_arrays *a, size_t n, struct adam_null_in k,
                  enum adam_null_way way)
{
    uint16_t *restrict w = a->weights, *restrict r = a->master;
    float *restrict m = a->m, *restrict v = a->v;
    const uint16_t *restrict g = a->grads;

    for (size_t i = 0; i + BLOCK <= n; i += BLOCK) {
        prefetch(way, w, 2, i);
        prefetch(way, r, 2, i);
        prefetch(way, m, 4, i);
        prefetch(way, v, 4, i);
        prefetch(way, g, 2, i);
        for (size_t j = i; j < i + BLOCK; j++) {
            w[j] ^= g[j] & k.no_bits;
            r[j] ^= g[j] & k.no_bits;
            m[j] *= k.one;
            v[j] *= k.one;
        }
    }
}

/* With m or v alone, whichever there is. */
INLINED void bf16_one(const struct hst_update_arrays *a, size_t n, struct adam_null_in k,
                      enum adam_null_way way)
{
    uint16_t *restrict w = a->weights, *restrict r = a->master;
    float *restrict moment = a->m ? a->m : a->v;
    const uint16_t *restrict g = a->grads;

    for (size_t i = 0; i + BLOCK <= n; i += BLOCK) {
        prefetch(way, w, 2, i);
        prefetch(way, r, 2, i);
        prefetch(way, moment, 4, i);
        prefetch(way, g, 2, i);
        for (size_t j = i; j < i + BLOCK; j++) {
            w[j] ^= g[j] & k.no_bits;
            r[j] ^= g[j] & k.no_bits;
            moment[j] *= k.one;
        }
    }
}

INLINED void bf16_moments(const struct hst_update_arrays *a, size_t n, struct adam_null_in k,
                          enum adam_null_way way)
{
    uint16_t *restrict w = a->weights, *restrict r = a->master;
    uint16_t *restrict m = a->m, *restrict v = a->v;
    const uint16_t *restrict g = a->grads;

    for (size_t i = 0; i + BLOCK <= n; i += BLOCK) {
        prefetch(way, w, 2, i);
        prefetch(way, r, 2, i);
        prefetch(way, m, 2, i);
        prefetch(way, v, 2, i);
        prefetch(way, g, 2, i);
        for (size_t j = i; j < i + BLOCK; j++) {
            uint16_t none = g[j] & k.no_bits;
            w[j] ^= none;
            r[j] ^= none;
            m[j] ^= none;
            v[j] ^= none;
        }
    }
}

/* Scales, a 256th of the arrays, are left out. */
INLINED void bf16_codes(const struct hst_update_arrays *a, size_t n, struct adam_null_in k,
                        enum adam_null_way way)
{
    uint16_t *restrict w = a->weights, *restrict r = a->master;
    uint8_t *restrict m = a->m, *restrict v = a->v;
    const uint16_t *restrict g = a->grads;

    for (size_t i = 0; i + BLOCK <= n; i += BLOCK) {
        prefetch(way, w, 2, i);
        prefetch(way, r, 2, i);
        prefetch(way, m, 1, i);
        prefetch(way, v, 1, i);
        prefetch(way, g, 2, i);
        for (size_t j = i; j < i + BLOCK; j++) {
            uint16_t none = g[j] & k.no_bits;
            w[j] ^= none;
            r[j] ^= none;
            m[j] ^= (uint8_t)none;
            v[j] ^= (uint8_t)none;
        }
    }
}

INLINED void f16(const struct hst_update_arrays *a, size_t n, struct adam_null_in k,
                 enum adam_null_way way)
{
    uint16_t *restrict w = a->weights;
    float *restrict master = a->master, *restrict m = a->m, *restrict v = a->v;
    const uint16_t *restrict g = a->grads;

    for (size_t i = 0; i + BLOCK <= n; i += BLOCK) {
        prefetch(way, master, 4, i);
        prefetch(way, m, 4, i);
        prefetch(way, v, 4, i);
        prefetch(way, g, 2, i);
        for (size_t j = i; j < i + BLOCK; j++) {
            w[j] = g[j] & k.no_bits;
            master[j] *= k.one;
            m[j] *= k.one;
            v[j] *= k.one;
        }
    }
}

#define KERNEL(name, suffix, way)                                                                  \
    static void name##_##suffix(const struct hst_update_arrays *a, size_t n,                       \
                                const struct adam_null_in *in)                                     \
    {                                                                                              \
        name(a, n, *in, way);                                                                      \
    }
#define ALL_WAYS(name)                                                                             \
    KERNEL(name, plain, ADAM_NULL_PLAIN)                                                           \
    KERNEL(name, first, ADAM_NULL_FIRST_CACHE)                                                     \
    KERNEL(name, second, ADAM_NULL_SECOND_CACHE)
ALL_WAYS(f32)
ALL_WAYS(bf16)
ALL_WAYS(bf16_one)
ALL_WAYS(bf16_moments)
ALL_WAYS(bf16_codes)
ALL_WAYS(f16)

const struct adam_null_table PASTE(adam_null_, ISA) = {
    .isa = STRING(ISA),
    .f32 = {f32_plain, f32_first, f32_second},
    .bf16 = {bf16_plain, bf16_first, bf16_second},
    .bf16_one = {bf16_one_plain, bf16_one_first, bf16_one_second},
    .bf16_moments = {bf16_moments_plain, bf16_moments_first, bf16_moments_second},
    .bf16_codes = {bf16_codes_plain, bf16_codes_first, bf16_codes_second},
    .f16 = {f16_plain, f16_first, f16_second},
};
