/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VIEWS_RECORD_H
#define HOISTWAY_TOOLS_VIEWS_RECORD_H
/* A line of a run's log (--log), read. Every view of a run is made of these alone. */
#include "hf/json/json.h"

#include <stdio.h>

enum record_kind {
    RECORD_ODD = 0, /* no line of a log, too long, or cut short */
    RECORD_RUN,
    RECORD_STEP,
    RECORD_EVALUATION,
    RECORD_COMMIT,
    RECORD_SUMMARY,
    RECORD_OTHER
};

enum measure {
    LOSS,
    GRAD_NORM,
    LR,
    TOKENS,
    SECONDS,
    TOK_S,
    STALL_NVME,
    STALL_COPY,
    STALL_UPDATE,
    STALL_NET,
    NVME_READ,
    NVME_WRITE,
    H2D,
    D2H,
    NET,
    NET_BETWEEN,
    PEAK_HBM,
    PEAK_DRAM,
    PEAK_NVME,
    BOUND_S,
    LOSS_SCALE,
    HBM_FREE,
    EVAL_LOSS, /* this and the next are of an evaluation's line */
    EVAL_PERPLEXITY,
    MEASURES
};

/** It names a number of a step's line: "stall_s" holds "nvme"; the line's own have no group. Those
 * of an evaluation's line are the group "eval". */
struct measure_name {
    const char *group, *key;
};
extern const struct measure_name MEASURE_NAMES[MEASURES];

enum record_member {
    KIND,
    MODEL,
    DATA,
    STORE,
    DEVICE,
    PRECISION,
    BEGAN,
    STEPS,
    BATCH,
    STEP,
    MEASURED_STEP,
    PREDICTED_STEP,
    BOUND_BY,
    BEST_STEP,
    RECORD_MEMBERS
};

struct record {
    enum record_kind kind;
    const char *line; /* borrowed; null of an odd one */
    uint64_t step;    /* of steps, evaluations and commits */
    struct jsn_value members[RECORD_MEMBERS];
    /* of a step or an evaluation; a span holds the digits as they stand in the line */
    struct jsn_value spans[MEASURES];
    double values[MEASURES]; /* NaN: null, or not there */
};

struct record record_of(const char *line, size_t bytes);
/** True where it is of a step or an evaluation. */
bool record_measures(const struct record *record);

typedef void record_fn(void *context, const char *line, size_t bytes);
/**
 * Hands on each line of a log, with its end. Of one that is longer than 64 KiB, or has no end,
 * nothing: line is null. Errors are the stream's.
 */
void record_read(FILE *file, record_fn *take, void *context);

#endif
