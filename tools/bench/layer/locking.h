/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_LAYER_LOCKING_H
#define HOISTWAY_TOOLS_BENCH_LAYER_LOCKING_H
/* This header tells what page-locking host memory costs: an engine that keeps states in DRAM locks
 * all of it. */
#include "bench/figure.h"

/* It says how memory comes to be locked. */
enum bench_pages {
    BENCH_PAGES_SMALL, /* of 4 KiB, mapped and written to before */
    BENCH_PAGES_HUGE,  /* the same with huge pages, as far as the system gives them */
    BENCH_PAGES_OWN,   /* the device's own host memory: mapped, zeroed and locked in one call */
    BENCH_PAGES_KINDS,
};

struct bench_locking {
    uint64_t size_bytes; /* at once; 0: a device that locks no pages */
    struct bench_timing lock[BENCH_PAGES_KINDS], unlock[BENCH_PAGES_KINDS];
    const char *missing[BENCH_PAGES_KINDS]; /* static, why it was not done; null where it was */
};

/** "4 KiB pages", "huge pages", "the device's own". */
const char *bench_pages_name(enum bench_pages pages);

/**
 * It returns how much of `most` to lock: no more than a quarter of what is available, in whole huge
 * pages of 2 MiB, one at least. Pure.
 */
uint64_t bench_locking_bytes(uint64_t most, uint64_t available);

/**
 * Locks memory and lets it go, `rounds` times of each kind. Where most_bytes cannot be locked, the
 * half of it is tried, and so on. The device's budget for host memory is raised. Errors: negative
 * errno with *error.
 */
int bench_locking(struct hst_dev *dev, uint64_t most_bytes, unsigned rounds,
                  struct bench_locking *locking, struct hst_error *error);

#endif
