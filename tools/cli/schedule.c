/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides the learning rate of each step: a function of the step alone, so that it needs no state
 * to resume. Shares of what is left are computed from whole numbers, so that they neither rise nor
 * become 0 before the end, however many steps there are.
 */
#include "cli/schedule.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

const char *const SCHEDULE_NAMES[] = {"constant", "linear", "cosine", "wsd", NULL};

/* (1 + cos(π·(1 − left)))/2, which would cancel to 0 near the end. */
static double cosine(double left)
{
    double root = sin(0.5 * M_PI * left);
    return root * root;
}

double schedule_lr(const struct schedule *schedule, uint64_t step)
{
    const uint64_t n = schedule->steps, d = schedule->decay_steps;
    const uint64_t w = schedule->warmup_steps > 0 ? schedule->warmup_steps : 1;
    const double lr = schedule->lr, e = schedule->lr_end;
    if (step <= w)
        return lr * ((double)step / (double)w); /* exactly lr at s = w */
    const double left = (double)(n + 1 - step) / (double)(n - w + 1);
    switch (schedule->shape) {
    case SCHEDULE_CONSTANT:
        return lr;
    case SCHEDULE_LINEAR:
        return lr * (e + (1 - e) * left);
    case SCHEDULE_COSINE:
        return lr * (e + (1 - e) * cosine(left));
    case SCHEDULE_WSD:
        return step <= n - d ? lr : lr * (e + (1 - e) * ((double)(n + 1 - step) / (double)d));
    }
    return lr;
}

/* The next whole number, where x is not one but for the rounding of its factors. */
static double whole_above(double x)
{
    double nearest = rint(x);
    return fabs(x - nearest) <= 4 * DBL_EPSILON * x ? nearest : ceil(x);
}

uint64_t schedule_share(struct hst_share share, uint64_t steps)
{
    if (share.percent == 0)
        return share.count;
    return (uint64_t)whole_above(share.percent * (double)steps / 100);
}

double schedule_epoch_steps(double epochs, uint64_t sequences, uint64_t sequences_per_step)
{
    return whole_above(epochs * (double)sequences / (double)sequences_per_step);
}
