/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides the learning rate of each step: a function of the step alone, so that it needs no state
 * to resume.
 */
#include "cli/schedule.h"

#include <math.h>
#include <stddef.h>

const char *const SCHEDULE_NAMES[] = {"constant", "linear", "cosine", NULL};

double schedule_lr(const struct schedule *schedule, uint64_t step)
{
    double s = (double)step, w = (double)schedule->warmup_steps, n = (double)schedule->steps;
    if (step <= schedule->warmup_steps && schedule->warmup_steps > 0)
        return schedule->lr * (s / w); /* exactly lr at s = w */
    if (schedule->shape == SCHEDULE_CONSTANT)
        return schedule->lr;
    if (step >= schedule->steps)
        return 0;
    if (schedule->shape == SCHEDULE_LINEAR)
        return schedule->lr * (n - s) / (n - w);
    return schedule->lr * 0.5 * (1 + cos(M_PI * (s - w) / (n - w)));
}
