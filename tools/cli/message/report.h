/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_MESSAGE_REPORT_H
#define HOISTWAY_TOOLS_CLI_MESSAGE_REPORT_H
/* A finished step tells this: the step line and the log are made from it. */
#include <hoistway/hoistway.h>

struct step_report {
    uint64_t step, steps;
    uint64_t began;  /* the step that this run goes on behind; 0: a new one */
    uint64_t tokens; /* of this step */
    double loss, lr;
    double elapsed_s; /* since training began */
    double bound_s;   /* 0: not known */
    const struct hst_step_stats *stats;
    bool scaled; /* fp16: the loss scale is told */
    bool skips;  /* a step may be skipped: whether it was is told */
};

/* This is what an evaluation has found. */
struct evaluation_report {
    uint64_t step, targets;
    double loss; /* mean over targets, nats */
    double seconds;
    uint64_t best_step; /* so far; 0: none */
};

/* This is what the model says behind a prompt. Bytes that are no UTF-8 are replaced in the log. */
struct sample_report {
    uint64_t step, steps;
    uint64_t number, count; /* of the samples of this step: 1 to count */
    const char *prompt, *text;
    uint64_t tokens; /* new ones */
    bool ended;      /* by the model itself */
    bool lost;       /* it stops there, as no logit of the next one is a number */
    double seconds;  /* all samples of this step have taken */
};

#endif
