/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The deterministic backward keeps seq² numbers per head. Cutting the batch, then the heads, keeps
 * that within a bound that is the same on every card: up to 11,500 tokens one key-value head still
 * fits alone (with a group of four queries' heads up to 5,700), and one such run fills a card (64
 * blocks of 128 queries). Where a group does not fit alone, it may have a share of the device's
 * budget. So the cut is a function of shape and form, and the budget decides one thing: whether a
 * long backward is cuDNN's.
 */
#include "cut.h"

#include <stdint.h>

#define HEAD_DIM_STEP 8
#define HEAD_DIM_MOST 256
#define SEQ_LEAST     2   /* one token: no formula has been tried */
#define SEQ_STEP      128 /* tiles, at most */
#define SLACK_BYTES   4096
#define ELEMENTS_MOST INT32_MAX /* in a run's tensors, gaps included: indices of 32 bits suffice */
#define BUDGET_SHARE  16        /* of a device's memory, for one group */
#define LARGE_MOST    ((size_t)4 << 30) /* its seq² numbers of 16 bits have such indices, too */

static size_t round_up(size_t value, size_t step)
{
    return (value + step - 1) / step * step;
}

static size_t divide_up(size_t value, size_t by)
{
    return (value + by - 1) / by;
}

size_t cut_work_bytes(enum sdpa_form form, const struct sdpa_shape *shape)
{
    size_t seq = round_up((size_t)shape->seq, SEQ_STEP);
    size_t heads = (size_t)(shape->batch * shape->heads);
    bool grouped = shape->heads != shape->kv_heads;
    size_t full = grouped ? seq * (size_t)shape->head_dim : 0; /* dk's or dv's, of one query head */
    switch (form) {
    case SDPA_BACKWARD_STORED: /* row sums f32, ds, dk and dv of 16 bits */
        return heads * (2 * seq * seq + 4 * seq + 4 * full) + SLACK_BYTES;
    case SDPA_BACKWARD_ORDERED: /* row sums and turns, dk and dv f32 */
        return heads * (8 * seq + 8 * full) + SLACK_BYTES;
    default:
        return SLACK_BYTES;
    }
}

/* A power of two, so that budgets which differ by little give the same. */
size_t cut_large_bytes(uint64_t budget_bytes)
{
    size_t bytes = HST_SDPA_WORK_BYTES;
    while (bytes < LARGE_MOST && 2 * bytes <= budget_bytes / BUDGET_SHARE)
        bytes *= 2;
    return bytes;
}

static struct sdpa_shape shape_of(const struct hst_attention *args, size_t rows, size_t groups)
{
    return (struct sdpa_shape){
        .batch = (int64_t)rows,
        .seq = (int64_t)args->seq,
        .heads = (int64_t)(groups * (args->heads / args->kv_heads)),
        .kv_heads = (int64_t)groups,
        .head_dim = (int64_t)args->head_dim,
        .all_heads = (int64_t)args->heads,
        .all_kv_heads = (int64_t)args->kv_heads,
        .type = args->dtype == HST_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
    };
}

static bool extents_served(const struct hst_attention *args)
{
    if (args->dtype == HST_F32 || args->seq < SEQ_LEAST || args->seq > INT32_MAX)
        return false;
    if (args->head_dim % HEAD_DIM_STEP || args->head_dim > HEAD_DIM_MOST)
        return false;
    return args->heads <= ELEMENTS_MOST / args->seq / args->head_dim; /* one row of the batch */
}

/* The most of `total` whose workspace fits; work grows with the count. */
static size_t most_that_fit(enum sdpa_form form, const struct hst_attention *args, size_t total,
                            bool rows)
{
    const size_t bound = HST_SDPA_WORK_BYTES - WORK_ALIGN_BYTES;
    size_t low = 0, high = total;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        struct sdpa_shape shape =
            rows ? shape_of(args, middle, args->kv_heads) : shape_of(args, 1, middle);
        if (cut_work_bytes(form, &shape) <= bound)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

bool cut_find(enum sdpa_form form, const struct hst_attention *args, size_t large_bytes,
              struct cut *cut)
{
    if (form == SDPA_NONE || !extents_served(args))
        return false;
    size_t rows = ELEMENTS_MOST / (args->seq * args->heads * args->head_dim);
    if (rows > args->batch)
        rows = args->batch;
    size_t row_count = most_that_fit(form, args, rows, true);
    size_t group_count =
        row_count ? args->kv_heads : most_that_fit(form, args, args->kv_heads, false);
    struct sdpa_shape alone = shape_of(args, 1, 1);
    if (!group_count && cut_work_bytes(form, &alone) <= large_bytes - WORK_ALIGN_BYTES)
        group_count = 1;
    if (!group_count)
        return false;
    struct sdpa_shape most = shape_of(args, row_count ? row_count : 1, group_count);
    /* Runs of one size where the count allows: a plan is built for each size. */
    *cut = (struct cut){
        .rows = row_count ? divide_up(args->batch, divide_up(args->batch, row_count)) : 1,
        .groups = divide_up(args->kv_heads, divide_up(args->kv_heads, group_count)),
        .work_bytes = cut_work_bytes(form, &most) + WORK_ALIGN_BYTES,
    };
    return true;
}

static size_t groups_of_runs(const struct cut *cut, const struct hst_attention *args)
{
    return divide_up(args->kv_heads, cut->groups);
}

size_t cut_count(const struct cut *cut, const struct hst_attention *args)
{
    return divide_up(args->batch, cut->rows) * groups_of_runs(cut, args);
}

struct run cut_run(const struct cut *cut, const struct hst_attention *args, size_t index)
{
    size_t per_row = groups_of_runs(cut, args);
    size_t row = index / per_row * cut->rows, group = index % per_row * cut->groups;
    size_t rows_left = args->batch - row, groups_left = args->kv_heads - group;
    return (struct run){
        .row = row,
        .group = group,
        .shape = shape_of(args, cut->rows < rows_left ? cut->rows : rows_left,
                          cut->groups < groups_left ? cut->groups : groups_left),
    };
}
