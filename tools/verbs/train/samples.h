/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_TRAIN_SAMPLES_H
#define HOISTWAY_TOOLS_VERBS_TRAIN_SAMPLES_H
/* This is what the model says to prompts while it trains: which, how they lie in a batch, when, and
 * what that costs. */
#include "data/file/prompts.h"

struct llama_config;
struct train;

#define TRAIN_ENDS_MOST 16u

struct train_sample {
    uint64_t sweep_row; /* samples of one batch go through together: the batch's first row of all */
    uint64_t begin;     /* of its prompt, in its batch, of which each rank has a part */
    uint64_t length;    /* of the prompt */
    uint64_t most, made; /* new tokens */
    uint32_t *ids;       /* those that were made */
    bool ended;
    bool lost; /* it stops where no id has a logit that is a number */
};

struct train_samples {
    struct prompts prompts;
    struct train_sample *list; /* [prompts.count] */
    uint32_t *ids;             /* of all of them */
    uint32_t ends[TRAIN_ENDS_MOST];
    size_t end_count;
    bool wait;       /* those of the last step: until drain and export are done */
    uint64_t rows;   /* that they lie in */
    uint64_t sweeps; /* of one time, at most */
    uint64_t most_times; /* that they will be made; a stop or --patience may come before */
    double forward_s;    /* of one sweep, predicted or measured; 0: not known yet */
    uint64_t times;  /* that they were made */
    double seconds;  /* of all times */
};

/** Finds the prompts, behind train_eval_open, and lays them out; nothing where none are wished.
 * E402 where the data has none, too few, one that is too long, or no bytes; E106, E420. */
int train_samples_open(struct train *t);
/** Predicts a sweep, of a sealed engine that has loaded nothing: by what was measured since the
 * plan, and by what that was made with. */
void train_samples_predict(struct train *t, const struct hst_rates *planned);
/** Tells what they cost, each time and in this run, where the run is told of; before its first
 * step. */
void train_samples_tell_cost(struct train *t);
/** A sweep took so long: tells the same in seconds, where they were not known before. */
void train_samples_tell_forward(struct train *t, double seconds);
/** Makes, tells and logs all of them behind this step. Returns as train_evaluate. */
int train_sample(struct train *t, uint64_t step);
/** It makes those that wait, behind the export: where the run is asked to stop, it tells that
 * they are none. Returns as train_evaluate, but for that. */
int train_sample_last(struct train *t);
/** Its line of the summary. */
void train_samples_tell(const struct train *t);
void train_samples_close(struct train *t);

#endif
