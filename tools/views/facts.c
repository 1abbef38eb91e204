/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what the lines of a log come to. */
#include "views/facts.h"

#include <math.h>
#include <stdio.h>

static void take_run(struct facts *facts, const struct record *record)
{
    const struct {
        enum record_member member;
        char *to;
    } texts[] = {{MODEL, facts->model},
                 {DATA, facts->data},
                 {STORE, facts->store},
                 {DEVICE, facts->device},
                 {PRECISION, facts->precision}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        jsn_get_text(record->line, record->members[texts[i].member], texts[i].to, FACTS_TEXT_BYTES);
    facts->runs++;
    facts->complete = false;
    facts->seconds = 0;
    jsn_get_real(record->line, record->members[BEGAN], &facts->began);
    jsn_get_whole(record->line, record->members[STEPS], &facts->wanted);
    jsn_get_whole(record->line, record->members[BATCH], &facts->batch_tokens);
}

static void take_step(struct facts *facts, const struct record *record)
{
    facts->last_step = record->step;
    if (!isnan(record->values[LOSS]))
        facts->last_loss = record->values[LOSS];
    facts->first_loss = facts->steps++ ? facts->first_loss : facts->last_loss;
    facts->seconds += isnan(record->values[SECONDS]) ? 0 : record->values[SECONDS];
}

/* Step 0 may be evaluated and is never the best one: the log then names none. */
static void take_evaluation(struct facts *facts, const struct record *record)
{
    const struct facts_evaluation this = {record->step, record->values[EVAL_LOSS],
                                          record->values[EVAL_PERPLEXITY]};
    uint64_t best = 0;
    jsn_get_whole(record->line, record->members[BEST_STEP], &best);
    facts->evaluations++;
    facts->last_evaluation = this;
    if (best == record->step)
        facts->best_evaluation = best ? this : facts->best_evaluation;
    else if (best != facts->best_evaluation.step)
        facts->best_evaluation = (struct facts_evaluation){best, NAN, NAN};
}

const char *facts_evaluation_text(const struct facts_evaluation *evaluation,
                                  char text[FACTS_TEXT_BYTES])
{
    if (isnan(evaluation->loss))
        return "loss not known";
    if (isnan(evaluation->perplexity))
        snprintf(text, FACTS_TEXT_BYTES, "loss %.4f", evaluation->loss);
    else
        snprintf(text, FACTS_TEXT_BYTES, "loss %.4f, perplexity %.4g", evaluation->loss,
                 evaluation->perplexity);
    return text;
}

void facts_take(struct facts *facts, const struct record *record)
{
    switch (record->kind) {
    case RECORD_ODD:
        facts->odd_lines++;
        break;
    case RECORD_RUN:
        take_run(facts, record);
        break;
    case RECORD_STEP:
        take_step(facts, record);
        break;
    case RECORD_EVALUATION:
        take_evaluation(facts, record);
        break;
    case RECORD_COMMIT:
        facts->committed = record->step;
        break;
    case RECORD_SUMMARY:
        facts->complete = true;
        jsn_get_real(record->line, record->members[MEASURED_STEP], &facts->step_s);
        jsn_get_real(record->line, record->members[PREDICTED_STEP], &facts->predicted_step_s);
        jsn_get_text(record->line, record->members[BOUND_BY], facts->bound_by, FACTS_TEXT_BYTES);
        break;
    case RECORD_OTHER:
        break;
    }
}
