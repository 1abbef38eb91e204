/* SPDX-License-Identifier: Apache-2.0 */
/* Shares by largest remainder, then one cycle in which each drive's turns are evenly
   apart. */
#include "plan/layout/stripe.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

static bool is_rate(double rate)
{
    return rate > 0 && isfinite(rate);
}

/* Writes usable rates and returns their sum. */
static double clean(const double *rates, uint32_t drives, double *clean_rates)
{
    double least = INFINITY, sum = 0;
    for (uint32_t d = 0; d < drives; d++)
        if (is_rate(rates[d]) && rates[d] < least)
            least = rates[d];
    for (uint32_t d = 0; d < drives; d++) {
        clean_rates[d] = is_rate(rates[d]) ? rates[d] : isfinite(least) ? least : 1;
        sum += clean_rates[d];
    }
    return sum;
}

/* Turns of each drive in a cycle: at least one, as near to its share as whole numbers
   allow. */
static void share_out(const double *rates, double sum, uint32_t drives, uint32_t *turns)
{
    double rest[STRIPE_DRIVES_MAX];
    uint32_t left = STRIPE_CYCLE - drives;
    for (uint32_t d = 0; d < drives; d++) {
        double share = rates[d] / sum * (STRIPE_CYCLE - drives);
        turns[d] = 1 + (uint32_t)share;
        rest[d] = share - floor(share);
        left -= (uint32_t)share;
    }
    for (; left > 0; left--) {
        uint32_t most = 0;
        for (uint32_t d = 1; d < drives; d++)
            if (rest[d] > rest[most])
                most = d;
        turns[most]++;
        rest[most] = -1;
    }
}

void stripe_init(struct stripe *stripe, const double *rates, uint32_t drives)
{
    assert(drives >= 1 && drives <= STRIPE_DRIVES_MAX);
    double usable[STRIPE_DRIVES_MAX];
    uint32_t turns[STRIPE_DRIVES_MAX];
    *stripe = (struct stripe){.drives = drives};
    share_out(usable, clean(rates, drives, usable), drives, turns);
    for (uint32_t i = 0; i < STRIPE_CYCLE; i++) {
        /* the drive that is furthest behind where its share should be after this tile */
        uint32_t next = 0;
        int64_t furthest = INT64_MIN;
        for (uint32_t d = 0; d < drives; d++) {
            int64_t behind =
                (int64_t)turns[d] * (i + 1) - (int64_t)stripe->before[i][d] * STRIPE_CYCLE;
            if (behind > furthest) {
                furthest = behind;
                next = d;
            }
        }
        stripe->drive[i] = (uint8_t)next;
        for (uint32_t d = 0; d < drives; d++)
            stripe->before[i + 1][d] = (uint8_t)(stripe->before[i][d] + (d == next));
    }
}
