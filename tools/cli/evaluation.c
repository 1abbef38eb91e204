/* SPDX-License-Identifier: Apache-2.0 */
/* Decides when a run evaluates, and which of its versions is the best one. */
#include "cli/evaluation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static uint64_t passes(const struct evaluation_times *t, uint64_t step)
{
    return t->sequences ? step * t->step_sequences / t->sequences : 0;
}

bool evaluation_due(const struct evaluation_times *t, uint64_t step)
{
    if (step == 0 || step >= t->steps)
        return true;
    return t->every ? step % t->every == 0 : passes(t, step) != passes(t, step - 1);
}

/* It counts those of the steps 1 to `step`, none of them for being the last one. */
static uint64_t count_to(const struct evaluation_times *t, uint64_t step)
{
    const uint64_t passed = passes(t, step); /* several in one step are one time */
    return t->every ? step / t->every : passed < step ? passed : step;
}

uint64_t evaluation_count(const struct evaluation_times *t, uint64_t first)
{
    if (first >= t->steps)
        return 1;
    return evaluation_due(t, first) + count_to(t, t->steps - 1) - count_to(t, first) + 1;
}

bool evaluation_take(struct evaluation_best *best, uint64_t step, double loss)
{
    if (step == 0)
        return false;
    if (isfinite(loss) && (best->step == 0 || loss < best->loss)) {
        *best = (struct evaluation_best){.step = step, .loss = loss};
        return true;
    }
    best->waited++;
    return false;
}

int evaluation_write(const struct evaluation_line *line, char *text, size_t bytes)
{
    return snprintf(text, bytes,
                    EVALUATION_WORD "%" PRIu64 " %.17g %" PRIu64 " %016" PRIx64 " %d\n",
                    line->best.step, line->best.loss, line->best.waited, line->data, line->due);
}

bool evaluation_read(const char *cursor, struct evaluation_line *line)
{
    struct evaluation_line read;
    int due;
    for (; *cursor; cursor += strcspn(cursor, "\n"), cursor += *cursor == '\n')
        if (sscanf(cursor, EVALUATION_WORD "%" SCNu64 " %lg %" SCNu64 " %" SCNx64 " %d",
                   &read.best.step, &read.best.loss, &read.best.waited, &read.data, &due) == 5) {
            read.due = due != 0;
            *line = read;
            return true;
        }
    return false;
}
