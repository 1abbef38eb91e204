/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_ANSWER_H
#define HOISTWAY_TOOLS_NVME_BENCH_ANSWER_H
/* What the measured rates mean for training a model: <hoistway/plan.h> with the user's wishes. */
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
    bool feeds;    /* bound.efficiency ≥ target */
    uint64_t tokens_needed; /* per step, for the target; 0: none suffices */
    uint32_t drives_needed; /* of this kind, striped; 0: none suffices */
    double endurance_bytes; /* of all drives; 0: not given */
    /* NAN where endurance was not given, or nothing is written */
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
