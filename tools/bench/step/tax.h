/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_STEP_TAX_H
#define HOISTWAY_TOOLS_BENCH_STEP_TAX_H
/* The same steps by turns, in runs that differ in one thing: what that costs. */
#include "bench/step/run.h"

enum bench_tax_kind {
    BENCH_TAX_HOMES = 0, /* weights and states on NVMe, against all in DRAM */
    /* weights and states on NVMe, every step a version, the norm never clips: the update optimistic
       or with no clipping at all, against deferred */
    BENCH_TAX_UPDATES,
};

struct bench_tax_in {
    enum bench_tax_kind kind;
    uint64_t rounds, batch_tokens;
    uint32_t threads;
    const char *device; /* null: host */
    const char *store;  /* BENCH_TAX_UPDATES leaves a store in a folder of it for each case */
};

struct bench_tax_case {
    const char *name;
    double step_s; /* median */
    double ratio;  /* to the first case: median of the rounds' */
    double ratio_least, ratio_most;
};

enum { BENCH_TAX_CASES = 3 };

/**
 * A few steps of each case per round, the order reversed from round to round, after one round that
 * warms up. Errors: negative errno with *error.
 */
int bench_tax(const struct bench_tax_in *in, struct bench_tax_case cases[BENCH_TAX_CASES],
              struct hst_error *error);

#endif
