/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_TAX_H
#define HOISTWAY_TOOLS_BENCH_TAX_H
/* What it costs to keep things on NVMe: the same steps by turns, at home in different places. */
#include "bench/run.h"

struct bench_tax_in {
    uint64_t rounds, batch_tokens;
    uint32_t threads;
    const char *store;
};

struct bench_tax_case {
    const char *place;
    double step_s; /* median */
    double ratio;  /* to all in DRAM: median of the rounds' */
    double ratio_least, ratio_most;
};

enum { BENCH_TAX_CASES = 3 }; /* the first is all in DRAM */

/**
 * One step of each case per round, the order reversed from round to round, after one round that
 * warms up. Errors: negative errno with *error.
 */
int bench_tax(const struct bench_tax_in *in, struct bench_tax_case cases[BENCH_TAX_CASES],
              struct hst_error *error);

#endif
