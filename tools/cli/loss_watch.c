/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when a loss that has risen is worth a warning: far enough above the first one, and for so
 * many steps in a row that it is neither noise nor the bump of a warmup.
 */
#include "cli/loss_watch.h"

#include <math.h>

bool loss_watch_step(struct loss_watch *watch, uint64_t step, double loss)
{
    if (!watch->begun) {
        watch->begun = isfinite(loss);
        watch->first = loss;
        watch->first_step = step;
        return false;
    }
    const bool above = !(loss <= watch->first + LOSS_WATCH_NATS); /* what is no number, too */
    watch->above = above ? watch->above + 1 : 0;
    if (watch->told || watch->above < LOSS_WATCH_STEPS)
        return false;
    watch->told = true;
    return true;
}
