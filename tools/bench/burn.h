/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_BURN_H
#define HOISTWAY_TOOLS_BENCH_BURN_H
/* Work that comes before what is measured: a GPU that was idle is at a fraction of its clock. */
#include "bench/figure.h"

#define BENCH_BURN_S 0.5

/**
 * It tells whether a device is to be warmed by work before it is measured. The host is not: its
 * clock rises within a round that is not counted, and each figure warms up by itself.
 */
bool bench_burns(const struct hst_dev *dev, bool smoke);

/**
 * Keeps the stream busy with what `enqueue` puts on it for `seconds` at least, as the host's clock
 * has it; ends with a wait for the stream. *calls: how many there were. Errors: those of enqueue
 * and of the stream.
 */
int bench_burn(struct hst_stream *stream, double seconds, int (*enqueue)(void *arg), void *arg,
               uint64_t *calls);

/**
 * Products on the device for BENCH_BURN_S, where bench_burns says so; its budgets are raised for
 * it. *burned_s: how long it took, or 0. Errors: negative errno with *error.
 */
int bench_burn_in(struct hst_dev *dev, bool smoke, double *burned_s, struct hst_error *error);

#endif
