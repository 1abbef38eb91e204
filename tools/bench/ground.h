/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_GROUND_H
#define HOISTWAY_TOOLS_BENCH_GROUND_H
/* Between kernels.c, moving.c, GEMMs.c and launches.c: the operands that they share. */
#include "bench/figure.h"

#define GROUND_BUFFERS 5u
#define GROUND_WAYS    4u

struct ground_sizes {
    size_t tokens, hidden, inner, heads, kv_heads, head_dim, seq;
    size_t vocab, chunk; /* rows of logits */
    size_t elements;     /* of the optimizer's operations */
    size_t cube;         /* extents of the large product */
};

struct ground {
    struct hst_dev *dev;
    struct hst_stream *stream;
    const struct bench_teller *teller;
    struct hst_error *error;
    struct ground_sizes sizes;
    uint64_t budget_bytes; /* see bench/budget.h */
    bool with_attention;
    size_t buffer_bytes, work_bytes;
    /* buffers: numbers in ±1, as bf16 and as f32 alike; zeros and ones: as f32; rows: for one f32
       per row */
    void *buffers[GROUND_BUFFERS], *zeros, *ones, *rows;
    struct hst_work work;
    const void *ways[GROUND_WAYS]; /* the sum's inputs: buffers */
    double gemm_flops_per_s; /* of the large product; 0: not measured yet */
};

/**
 * Times one operation and tells its figure as amount per call. An operation that the device does
 * not have is told with a note. 0, or a failure with *g->error.
 */
int ground_measure(struct ground *g, struct bench_figure *figure, double amount,
                   int (*enqueue)(void *arg), void *arg);
/** The time alone, without telling it; zeros where the device does not have it, which is told. */
int ground_time(struct ground *g, struct bench_figure *figure, int (*enqueue)(void *arg), void *arg,
                struct bench_timing *timing);

int ground_moving(struct ground *g);
int ground_matmul(struct ground *g);
int ground_attention(struct ground *g);
int ground_launches(struct ground *g); /* after ground_matmul */
/**
 * Sets g->work_bytes to the greatest workspace that any of them asks for; attention's engines may
 * make plans for it, which takes seconds, so it is asked only where it is wanted.
 */
void ground_plan_work(struct ground *g);

#endif
