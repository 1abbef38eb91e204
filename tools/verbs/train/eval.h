/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_TRAIN_EVAL_H
#define HOISTWAY_TOOLS_VERBS_TRAIN_EVAL_H
/* A run that evaluates: on what, when, and which of its versions was the best. */
#include "cli/evaluation.h"
#include "data/data.h"

#include <hoistway/hoistway.h>

struct llama_config;
struct train;
struct train_options;

struct train_evaluation {
    struct data *data; /* null: the run does not evaluate */
    uint64_t identity; /* of its files, and of what of them is evaluated on */
    struct evaluation_times times;
    struct evaluation_best best;
    uint64_t replaced;  /* step of a copy that an earlier run has left; 0: none */
    bool due;           /* of a run that goes on: its version was not evaluated yet */
    uint64_t count;     /* of this run's */
    uint64_t targets;   /* of each */
    double first, last; /* loss, mean over targets */
    double seconds;     /* of all */
    bool ended;         /* --patience has ended the run */
};

/** Options of evaluations; their target is a struct train_options. */
const struct hst_option *train_eval_options(size_t *count);
/** Refuses those that contradict each other or others (E402, E403). */
int train_eval_check_options(const struct train_options *options, struct hst_error *error);

/** Opens what is evaluated on, behind train_settle, for that model. E402, E420 to E423. */
int train_eval_open(struct train *t, const struct llama_config *model);
/** This is what is left of a run that goes on: from the cursor of its version. Of several ranks all
 * make the call. Returns as train_inputs_open. */
int train_eval_resume(struct train *t, const char *cursor);
/** Adds the line to a cursor. Returns its bytes. */
size_t train_eval_cursor(const struct train *t, char *text, size_t bytes);
/**
 * Evaluates behind this step, where that is due: tells it, logs it, keeps the best version where
 * that is wished. Sets ended. Returns 0; -ECANCELED; or negative errno with *t->error.
 */
int train_evaluate(struct train *t, uint64_t step);
/** True where the export is of another version than the last one. */
bool train_eval_exports_kept(const struct train *t);
/** Then: a train_save of a struct train, of that. */
int train_eval_save(void *from, bool masters, const struct hst_writer *writer,
                    struct hst_error *error);
/** Lines of the summary. */
void train_eval_tell(const struct train *t);
void train_eval_close(struct train *t);

#endif
