/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_PLAN_PLAN_H
#define HOISTWAY_TOOLS_VERBS_PLAN_PLAN_H
/* Between plan.c, which makes a plan, and report.c, which tells it. */
#include "cli/machine_text.h"
#include "verbs/plan/help.h"
#include "verbs/train/run.h"

#include <hoistway/predict.h>

struct plan {
    struct train t; /* its memory and its prediction, in t.result */
    const char *model;
    const struct machine *machine; /* without a name: this one, or that of --rates */
    struct hst_decision decision; /* texts are null where it does not fit */
    const char *precision;        /* "fp32" */
    struct hst_start_up start_up; /* zeroes where it does not fit */
    uint32_t locals; /* ranks of a node; 1: one rank */
    bool fits;
    struct llama_config config;
    uint64_t tokens; /* that are to be trained on: --tokens, else those of --data; 0: not known */
    int accounting;  /* enum plan_accounting */
    double tbw;      /* TB that one drive is rated for; 0: not known */
    struct plan_help helps[PLAN_HELPS];
    uint32_t help_count;
    uint64_t full_tokens;    /* of the least step that was found full (PLAN_FULL); 0: none */
    uint64_t tried_tokens;   /* of the largest step that was tried for that; 0: none was */
    const char *store_names; /* --store as it was given, with {local} and the like; may be null */
    char *const *arguments; /* the command line behind the verb */
    int argument_count;
    struct hst_error refusal; /* where it does not: which budget is short, and what to do */
    struct plan *instead;     /* with t.way_out, where it does not; null: none was found */
    struct train_options own; /* of `instead`: what t.options is then */
};

/** The memory table, numbers, prediction or verdict. */
void plan_print(const struct plan *plan, FILE *out);
/** Two of them beside each other, as A and B; what each is stands above. */
void plan_print_both(const char *const names[2], const struct plan *const plans[2], FILE *out);
/** One object, in one line. */
void plan_print_json(const struct plan *plan, FILE *out);

#endif
