/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_JUDGE_H
#define HOISTWAY_TOOLS_NVME_BENCH_JUDGE_H
/* This header tells what measured values mean: percentiles, when a long write has become flat, the
   best shape. Pure. */
#include "nvme_bench/result.h"

#include <stddef.h>

/** Durations of operations: all of them, or every 2^k-th where there are too many to keep. */
struct nb_latencies {
    uint64_t *ns;
    size_t count, capacity;
    uint64_t stride, seen; /* stride 0 counts as 1 */
    uint64_t most;         /* of all, those that were thinned out included */
};
void nb_latencies_add(struct nb_latencies *latencies, uint64_t ns);
/**
 * Nearest-rank percentiles of several sets together, the last one the longest of all; sorts what it
 * copies into scratch, which has room for all. NAN where there are none.
 */
void nb_latencies_percentiles(const struct nb_latencies *const *sets, size_t set_count,
                              uint64_t *scratch, double percentiles[NB_PERCENTILES]);

/**
 * Fills first, last, drop_bytes and flat from the windows. A drop is where the rate falls to 4/5 of
 * what it was and stays there. Flat: the last NB_FLAT_WINDOWS differ by at most a tenth of their
 * median.
 */
void nb_sustained_judge(struct nb_sustained *sustained);
#define NB_FLAT_WINDOWS 8u

/**
 * The shape for the optimizer's traffic: of those whose mixed rate is within 3 % of the best one,
 * that with the least bytes in flight; then the fewest threads, then the smallest blocks.
 */
void nb_choose_best(const struct nb_result *result, uint32_t drive, struct nb_shape *best);
/** One shape for all drives: by the mixed rate that they reach in it when they share bytes out. */
void nb_choose_for_all(const struct nb_result *result, struct nb_shape *best);

/**
 * Which part of all bytes each drive is given: as `hoistway train` shares tiles out, in proportion
 * to the rate of writing and then reading them. The sum is 1; equal where rates are not known.
 */
void nb_shares_of(const struct nb_result *result, double shares[NB_MAX_DRIVES]);
/** True where no share differs from an equal one by more than a tenth of it. */
bool nb_drives_are_alike(const struct nb_result *result);

/** The rates that training would find, bytes/s. */
struct nb_rates {
    double read, write, mixed;
};
/**
 * One drive: its steady rates, of writes no more than the long write fell to. Several: what they
 * did together, and no more than what those rates of each allow its share, because a short striped
 * write may end in their caches. False where the result has not all of them.
 */
bool nb_rates_of(const struct nb_result *result, struct nb_rates *rates);

#endif
