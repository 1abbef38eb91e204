/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDNN_CUT_H
#define HST_CUDNN_CUT_H
/* It cuts a call into runs of plans, so that none needs more workspace than there is. Pure. */
#include "plan.h"
#include "sdpa.h"

/* cuDNN's kernels expect a workspace so aligned; ours is aligned to 16. */
#define WORK_ALIGN_BYTES 256

/*
 * Each run takes `rows` rows of the batch with all their heads; or, where one row is too much, one
 * row's `groups` key-value heads with the query heads that belong to them. The last may be smaller.
 */
struct cut {
    size_t rows, groups;
    size_t work_bytes; /* enough for every run, and its alignment; grows with the batch */
};

/** It returns the most that cuDNN's workspace of such a plan is. */
size_t cut_work_bytes(enum sdpa_form form, const struct sdpa_shape *shape);

/** One group alone may need this, on a device with this budget; HST_SDPA_WORK_BYTES or more. */
size_t cut_large_bytes(uint64_t budget_bytes);

/**
 * Runs within HST_SDPA_WORK_BYTES, or of a group each, within large_bytes. False: not served at all
 * (dtype, extents, or one group alone needs more).
 */
bool cut_find(enum sdpa_form form, const struct hst_attention *args, size_t large_bytes,
              struct cut *cut);

/* One run: what of the call it takes. */
struct run {
    size_t row, group;
    struct sdpa_shape shape;
};

/** They tell how many runs there are, and the index-th: rows outside, groups inside. */
size_t cut_count(const struct cut *cut, const struct hst_attention *args);
struct run cut_run(const struct cut *cut, const struct hst_attention *args, size_t index);

#endif
