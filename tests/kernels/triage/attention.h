/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_KERNELS_TRIAGE_ATTENTION_H
#define HST_TESTS_KERNELS_TRIAGE_ATTENTION_H
/* Attention's operands on the device, for its checks and for the comparison of two engines. */
#include "triage.h"

enum { HEAD_DIM_MAX = 128 };

/* cut: each sequence is as many shorter ones. backward: its operands, too. windowed: a query sees
 * a third of what is before it at most, packed: what its document has. For either the plugin has
 * kernels of their own. */
struct attention_case {
    size_t cut;
    bool backward, windowed, packed;
};

struct attention {
    struct triage *t;
    struct triage_shape s;
    struct operand *q, *k, *v, *dout, *o, *lse, *dq, *dk, *dv;
    struct operand *documents; /* null: none are packed */
    struct hst_attention args;
    double half; /* what rounding a weight to 16 bits loses of it; 0 where that is not done */
    double score_noise;
    /* of one sequence of the batch */
    size_t sequence;
    double *log_sums, *deltas; /* [heads, seq]: lse; o·dout */
};

/** Begins a case and runs the forward. */
struct attention attention_make(enum triage_size size, enum hst_dtype dtype,
                                struct attention_case c);
void attention_run_backward(struct attention *attention);
#endif
