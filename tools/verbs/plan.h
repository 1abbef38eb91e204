/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_PLAN_H
#define HOISTWAY_TOOLS_VERBS_PLAN_H
/* Between plan.c, which makes a plan, and plan_report.c, which tells it. */
#include "verbs/train/run.h"

#include <hoistway/predict.h>

struct plan {
    struct train t; /* its memory and its prediction, in t.result */
    const char *model;
    struct hst_decision decision; /* texts are null where it does not fit */
    const char *precision;        /* "fp32" */
    struct hst_start_up start_up; /* zeroes where it does not fit */
    bool fits;
    struct hst_error refusal; /* where it does not: which budget is short, and what to do */
};

/** It returns the bytes that the least placement takes beyond the budget of a tier. Pure. */
uint64_t plan_smallest(const struct hst_memory *memory, enum hst_tier tier);
/** The memory table, numbers, prediction or verdict. */
void plan_print(const struct plan *plan, FILE *out);
/** One object, in one line. */
void plan_print_json(const struct plan *plan, FILE *out);

#endif
