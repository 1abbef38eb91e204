/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what the lines of a log come to. */
#include "views/facts.h"

#include <math.h>

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
