/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VIEWS_FACTS_H
#define HOISTWAY_TOOLS_VIEWS_FACTS_H
/* This header tells what a log says of its run on the whole. */
#include "views/record.h"

#define FACTS_TEXT_BYTES 256u /* a longer one is left out */

struct facts_evaluation {
    uint64_t step; /* of the best one 0: there is none */
    double loss, perplexity; /* NaN: not finite, or no line of the log has it */
};

struct facts {
    uint64_t runs, steps, last_step, wanted, committed, batch_tokens, odd_lines;
    double first_loss, last_loss, step_s, predicted_step_s;
    double began;   /* of the last run, seconds of Unix time; 0: not told */
    double seconds; /* of this run's steps */
    uint64_t evaluations;
    struct facts_evaluation last_evaluation, best_evaluation; /* best: as the log has it */
    bool complete;  /* the last run has its summary */
    char model[FACTS_TEXT_BYTES], data[FACTS_TEXT_BYTES], store[FACTS_TEXT_BYTES],
        device[FACTS_TEXT_BYTES];
    char precision[FACTS_TEXT_BYTES], bound_by[FACTS_TEXT_BYTES];
};

/** "loss 2.1, perplexity 8.17", or that it is not known. Returns text. */
const char *facts_evaluation_text(const struct facts_evaluation *evaluation,
                                  char text[FACTS_TEXT_BYTES]);

void facts_take(struct facts *facts, const struct record *record);

#endif
