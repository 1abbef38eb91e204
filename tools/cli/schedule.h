/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_SCHEDULE_H
#define HOISTWAY_TOOLS_CLI_SCHEDULE_H
#include <stdint.h>

enum schedule_shape { SCHEDULE_CONSTANT = 1, SCHEDULE_LINEAR = 2, SCHEDULE_COSINE = 3 };

/* By their names on the command line, from SCHEDULE_CONSTANT on; null-terminated. */
extern const char *const SCHEDULE_NAMES[];

struct schedule {
    enum schedule_shape shape;
    double lr; /* greatest */
    uint64_t warmup_steps, steps;
};

/**
 * Learning rate of step s (1 is the first). With w = warmup_steps, n = steps:
 *   s ≤ w      lr·s/w
 *   constant   lr
 *   linear     lr·(n−s)/(n−w)
 *   cosine     lr·(1 + cos(π·(s−w)/(n−w)))/2
 * Linear and cosine are 0 at s = n. Pure.
 */
double schedule_lr(const struct schedule *schedule, uint64_t step);

#endif
