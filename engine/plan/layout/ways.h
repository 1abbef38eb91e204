/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_WAYS_H
#define HOISTWAY_ENGINE_PLAN_WAYS_H
/*
 * The ways of a step's batch that a rank has: equal parts of its tokens, cut into micro-batches one
 * by one, so that what a micro-batch is does not depend on how many ranks share the ways. And how a
 * rank adds the gradients of its ways with few buffers: a binary counter, in which two sums of as
 * many ways become one. Pure.
 */
#include <hoistway/hoistway.h>
#include <hoistway/kernels.h>

struct ways {
    struct hst_sum_tree tree;
    uint32_t first, count; /* the rank's; count a power of two, or all of them */
    uint64_t tokens;       /* of a way */
    uint64_t micro_tokens; /* of each of its micro-batches but a shorter last one */
};

/** Micro-batches of the rank. */
uint32_t ways_micro_count(const struct ways *ways);
/** Which of the rank's ways a micro-batch is part of, from 0. */
uint32_t ways_of_micro(const struct ways *ways, uint32_t micro);
struct hst_micro ways_micro(const struct ways *ways, uint32_t micro);

/** The type of the sum of all the rank's ways: what it hands on, or with one rank the
 * gradient's. */
enum hst_dtype ways_type(const struct ways *ways);

/** Says whether the sum of the first so many ways, not all, is f32 where a way's gradient is
 * narrower, or integers: no rounding is due before all are added. */
bool ways_sum_is_wide(const struct hst_sum_tree *tree, uint32_t ways);

/* ---- the counter: sums of neighbouring ways, from the left to the right ---------------------- */

enum { WAYS_SUMS_MOST = 18 }; /* of at most 65,536 ways, and one that has just come */

/* A sum of ways that waits for its neighbour. */
struct ways_sum {
    struct hst_sum_node node;
    uint32_t buffer;
};

struct ways_counter {
    struct ways_sum sum[WAYS_SUMS_MOST];
    uint32_t count;
    uint32_t taken; /* a bit for each buffer that holds a sum */
};

/** The gradient of the next way is to be put into this buffer, and counts as there. */
uint32_t ways_counter_push(const struct ways *ways, struct ways_counter *counter);

/* An addition that is due: two sums of `each` ways, the right one of which may be shorter. */
struct ways_addition {
    uint32_t first, each;
    uint32_t in[2]; /* buffers */
    bool last;      /* of all the rank's ways: it goes where that is wanted */
    uint32_t out;   /* else into this one, which may be in[0] */
};
/** The next addition, as if it were made; false: none is due before the next way. */
bool ways_counter_next(const struct ways *ways, struct ways_counter *counter,
                       struct ways_addition *addition);

/** Buffers that all of the rank's ways take at once; 0 where there is one. Cost: O(ways). */
uint32_t ways_buffers(const struct ways *ways);

#endif
