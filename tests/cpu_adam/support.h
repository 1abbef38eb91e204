/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_CPU_ADAM_SUPPORT_H
#define HST_TESTS_CPU_ADAM_SUPPORT_H
/* What the tests of cpu_adam share: bit casts, replayable random values, buffers between guard
   pages. */
#include <hoistway/cpu_adam.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SKIP = 77 };

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

enum { TABLES_MAX = 4 };
/* The tables that this CPU can run, "c" first. Returns how many. */
size_t tables_list(const struct hst_cpu_adam_ops *out[TABLES_MAX]);

/* f16 by its definition: exact; nearest, ties to even, a NaN becomes 0x7e00 with its sign. */
float f16_value(uint16_t half);
uint16_t f16_nearest_to(float x);

/* The value after "--seed", else one from the clock; printed, so that a failure can be replayed. */
uint64_t seed_begin(int argc, char **argv);

uint64_t random_u64(uint64_t *state);                   /* splitmix64 */
float random_unit(uint64_t *state);                     /* [-1, 1), 24 bits */
uint64_t random_below(uint64_t *state, uint64_t limit); /* 0 .. limit-1 */

/* A 32-bit pattern that arithmetic finds hard: zeros, denormals, limits, infinities, NaNs, ties of
   bf16. */
uint32_t random_special(uint64_t *state);

/* Whole pages, at least min_bytes of them, between two pages without access. */
struct guarded {
    unsigned char *map;
    size_t map_bytes;
    unsigned char *data; /* the accessible part, whole pages */
    size_t data_bytes;
};
void guarded_create(size_t min_bytes, struct guarded *out);
void guarded_destroy(struct guarded *g);

#endif
