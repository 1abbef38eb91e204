/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_REPORT_ANSWER_H
#define HOISTWAY_TOOLS_NVME_BENCH_REPORT_ANSWER_H
/* This header tells what rates mean for training: <hoistway/plan.h> with the user's wishes. */
#include "nvme_bench/args.h"
#include "nvme_bench/judge.h"
#include "nvme_bench/result.h"

#include <hoistway/plan.h>

struct nb_answer {
    char model[160];
    const char *precision;
    uint64_t params, tokens;
    uint32_t gpus, drives;
    double gpu_tflops; /* of one */
    struct hst_bound_in in;
    struct hst_bound bound;
    double target; /* 0 to 1 */
    bool feeds;    /* bound.efficiency ≥ target; whether they hold it is `fits` */
    uint64_t tokens_needed; /* per step, for the target; 0: none suffices */
    /* More drives are counted in sets like the measured one; of drives that are alike, in single
       ones: then `set` is 1, else `drives`. */
    uint32_t set;
    uint32_t drives_needed; /* striped, for the target; 0: none suffices */
    /* Space: each drive holds its share of bound.nvme_space_bytes. */
    double shares[NB_MAX_DRIVES], most_share;
    double room_bytes;      /* of it that has room on these drives; NAN: a size is unknown */
    double missing_bytes;   /* sum of what does not fit on its drive */
    bool fits;              /* nothing is known to be missing */
    uint32_t drives_to_fit; /* 0: none suffices, or room is unknown */
    double endurance_bytes; /* of all drives; 0: not given */
    /* of the drive that wears out first; NAN where endurance was not given, or nothing is
       written */
    double steps_to_wear, days_to_wear;
};

/** Finds the model of --plan: a name, a config.json, or its directory. E402, E412 to E414. */
int nb_answer_model(const char *plan, struct nb_answer *answer, struct hst_error *error);
/** Answers. E402 where the result has no steady rates. */
int nb_answer_make(const struct nb_args *args, const struct nb_result *result,
                   struct nb_answer *answer, struct hst_error *error);
/** "the drives", "the GPUs", …: what the step waits for. */
const char *nb_bound_by_name(enum hst_bound_by by);
#endif
