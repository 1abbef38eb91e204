/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_ADAM_ADAM_H
#define HOISTWAY_TOOLS_BENCH_ADAM_ADAM_H
/*
 * The host optimizer's updates at the size of memory, beside null kernels that move the same bytes,
 * and beside another AdamW, if one is given.
 */
#include "base/fail.h"

/**
 * A library named by `peer` exports this under the name hst_peer_adamw: step number `step` (1 is
 * the first) of AdamW on f32[n] in place, bias-corrected, with decoupled weight decay, on `threads`
 * threads. Returns 0, or anything else where it failed. All arrays are apart. Tried on a small
 * range first: where it does not agree with ours, nothing is measured.
 */
typedef int bench_peer_adamw(float *p, float *m, float *v, const float *g, size_t n, float lr,
                             float beta1, float beta2, float eps, float weight_decay, unsigned step,
                             unsigned threads);

/** Over the rounds; median 0: not measured. */
struct bench_spread_of {
    double median, least, most;
};

struct bench_adam_row {
    const char *group; /* "fp32" */
    const char *name;  /* "avx512", "null" */
    unsigned threads;
    unsigned bytes;            /* read and written per parameter */
    struct bench_spread_of ns; /* per parameter */
    /* Of an update: the same kernel on data in the second-level cache, `cached_elements` for each
       thread, as often as a turn in memory takes. */
    struct bench_spread_of cached_ns;
    uint64_t cached_elements; /* 0: no update */
    /* Its time over that of another in the same round: the null kernel that prefetches nothing; the
       larger of it and cached_ns; the best table. All have as many threads. Then the peer. */
    struct bench_spread_of over_null, over_larger, over_best, over_peer;
    double bytes_per_s, ceiling; /* ceiling: of the fastest null kernel with as many threads */
    const char *note;            /* why it was not measured, or how; null: nothing to say */
};

/* What can be measured alone. */
enum bench_adam_group {
    BENCH_ADAM_ALL = 0,
    BENCH_ADAM_FP32,
    BENCH_ADAM_BF16, /* moments in fp32 */
    BENCH_ADAM_BF16_MOMENTS,
    BENCH_ADAM_CODES, /* moments of 8 bits */
    BENCH_ADAM_FP16,
    BENCH_ADAM_OTHERS, /* all other optimizers, in bf16 */
};

struct bench_adam_in {
    uint64_t elements;
    uint32_t threads; /* 0: as many as the process may run on */
    uint32_t rounds;
    int only;         /* enum bench_adam_group */
    const char *peer; /* null: none */
    void (*tell)(void *context, const struct bench_adam_row *row);
    void *context;
};

/**
 * Measures the formats and tells each row when its group is done. Needs 16 bytes per element, 22
 * with a peer, and half of a second-level cache per thread. Errors: negative errno with *error
 * (E302 memory or threads, E402 the peer).
 */
int bench_adam(const struct bench_adam_in *in, struct hst_error *error);

/** It returns as many as the process may run on. */
uint32_t bench_adam_threads(void);

#endif
