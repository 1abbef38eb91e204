/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_STEP_WAITS_H
#define HOISTWAY_TOOLS_BENCH_STEP_WAITS_H
/* This header tells what it costs a thread to wait for a device, as the device was opened
 * (HOISTWAY_WAIT). */
#include "bench/figure.h"

struct bench_waits {
    /* from the end of the device's work until the thread goes on, at most: by how long one question
       for an event takes */
    struct bench_timing wake;
    struct bench_timing processor; /* that the thread takes while it waits */
    struct bench_timing wait;      /* all of it */
};

/** Errors: negative errno with *error. The device's budgets are raised for it. */
int bench_waits(struct hst_dev *dev, bool smoke, struct bench_waits *waits,
                struct hst_error *error);

#endif
