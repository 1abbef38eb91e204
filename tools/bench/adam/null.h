/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_ADAM_NULL_H
#define HOISTWAY_TOOLS_BENCH_ADAM_NULL_H
/*
 * Kernels that move the bytes of an update and compute next to nothing: what the memory allows.
 * They leave every value as it is, f16 weights excepted.
 */
#include <hoistway/cpu_adam.h>

/* Numbers that a compiler does not know; see adam_null_numbers. */
struct adam_null_in {
    float one, zero;
    uint16_t no_bits;
};

typedef void adam_null(const struct hst_update_arrays *arrays, size_t n,
                       const struct adam_null_in *in);

/* Which cache a kernel asks lines into, as far ahead as the updates do. */
enum adam_null_way {
    ADAM_NULL_PLAIN, /* into none: it prefetches nothing */
    ADAM_NULL_FIRST_CACHE,
    ADAM_NULL_SECOND_CACHE,
    ADAM_NULL_WAYS,
};

/* For the instruction set of that name ("avx2"): of an update of this kind. Null where there is
   none. */
adam_null *adam_null_find(const char *isa, struct hst_update_kind kind, enum adam_null_way way);

/* One file for each instruction set defines one of these. */
struct adam_null_table {
    const char *isa;
    /* bf16_one has one moment, all others two */
    adam_null *f32[ADAM_NULL_WAYS], *bf16[ADAM_NULL_WAYS], *bf16_one[ADAM_NULL_WAYS];
    adam_null *bf16_moments[ADAM_NULL_WAYS], *bf16_codes[ADAM_NULL_WAYS], *f16[ADAM_NULL_WAYS];
};
extern const struct adam_null_table adam_null_c, adam_null_avx2, adam_null_avx512;
extern const struct adam_null_table adam_null_avx512vbmi, adam_null_neon;

#endif
