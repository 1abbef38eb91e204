/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VIEWS_FACTS_H
#define HOISTWAY_TOOLS_VIEWS_FACTS_H
/* This header tells what a log says of its run on the whole. */
#include "views/record.h"

#define FACTS_TEXT_BYTES 256u /* a longer one is left out */

struct facts {
    uint64_t runs, steps, last_step, wanted, committed, batch_tokens, odd_lines;
    double first_loss, last_loss, step_s, predicted_step_s;
    double began;   /* of the last run, seconds of Unix time; 0: not told */
    double seconds; /* of this run's steps */
    bool complete;  /* the last run has its summary */
    char model[FACTS_TEXT_BYTES], data[FACTS_TEXT_BYTES], store[FACTS_TEXT_BYTES],
        device[FACTS_TEXT_BYTES];
    char precision[FACTS_TEXT_BYTES], bound_by[FACTS_TEXT_BYTES];
};

void facts_take(struct facts *facts, const struct record *record);

#endif
