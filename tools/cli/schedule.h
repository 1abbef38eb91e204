/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_SCHEDULE_H
#define HOISTWAY_TOOLS_CLI_SCHEDULE_H
#include <hoistway/options.h>

enum schedule_shape {
    SCHEDULE_CONSTANT = 1,
    SCHEDULE_LINEAR = 2,
    SCHEDULE_COSINE = 3,
    SCHEDULE_WSD = 4, /* warmup, stable, decay */
};

/* They have their names on the command line, from SCHEDULE_CONSTANT on; null-terminated. */
extern const char *const SCHEDULE_NAMES[];

/* Stores say by which formula a run was begun. Version 1 ended linear and cosine at 0, in step n,
   and had no wsd; constant, whose rates no version has changed, is kept without a version. */
#define SCHEDULE_VERSION 2

struct schedule {
    enum schedule_shape shape;
    double lr;                          /* the peak, >= 0 */
    double lr_end;                      /* fraction of it, 0 to 1; unused by constant */
    uint64_t warmup_steps, decay_steps; /* decay_steps: wsd's, at least 1 */
    uint64_t steps;
};

/**
 * Learning rate of step s, 1 to n. With n = steps, w = max(warmup_steps, 1), d = decay_steps,
 * e = lr_end, and x(f) = lr·(e + (1−e)·f):
 *   s ≤ w      lr·s/w, and so exactly lr in step w
 *   constant   lr
 *   linear     x(1 − p)             with p = (s−w)/(n−w+1)
 *   cosine     x((1 + cos(π·p))/2)  with the same p
 *   wsd        lr for s ≤ n−d, then x(1 − q) with q = (s−1−n+d)/d
 * p and q would be 1 in step n+1: each rate of steps 1 to n is above 0, unless lr is so near to 0
 * that a double does not hold its product. Needs w ≤ n; of wsd, w − 1 + d ≤ n. Pure.
 *
 * Without a warmup this is what transformers gives step s−1, and behind a warmup what it gives that
 * step with num_warmup_steps = w−1: get_linear_schedule_with_warmup and
 * get_cosine_schedule_with_warmup; with lr_end get_polynomial_decay_schedule_with_warmup (power 1)
 * and get_cosine_with_min_lr_schedule_with_warmup (min_lr_rate); get_wsd_schedule (decay_type
 * "linear", num_decay_steps = d, min_lr_ratio = e). The warmup is theirs of step s with
 * num_warmup_steps = w; that of get_wsd_schedule begins at min_lr_ratio, this one at 0.
 *
 * Sources: Goyal et al. 2017, arXiv:1706.02677 (warmup); Loshchilov & Hutter 2017,
 * arXiv:1608.03983, eq. 5 (cosine); Hu et al. 2024, arXiv:2404.06395 (warmup, stable, decay);
 * Hägele et al. 2024, arXiv:2405.18392 (linear decay of the last 10 to 20 %).
 */
double schedule_lr(const struct schedule *schedule, uint64_t step);

/** Steps that a share of `steps` is: its count, or ⌈percent·steps/100⌉. Pure. */
uint64_t schedule_share(struct hst_share share, uint64_t steps);

/**
 * ⌈epochs·sequences/sequences_per_step⌉, a whole number: the steps of so many passes. What doubles
 * lose is not counted, here and in schedule_share: 7 % of 100 are 7, a tenth of 30 is 3. Pure.
 */
double schedule_epoch_steps(double epochs, uint64_t sequences, uint64_t sequences_per_step);

#endif
