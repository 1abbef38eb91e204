/* SPDX-License-Identifier: Apache-2.0 */
/* Steps at home in DRAM and on NVMe, side by side in one process: what else the machine does, it
 * does to all of them. */
#include "bench/tax.h"

#include <errno.h>
#include <stdlib.h>

static const char *const PLACES[BENCH_TAX_CASES] = {
    "states=dram,weights=dram",
    "states=nvme,weights=dram",
    "states=nvme,weights=nvme",
};

struct bench {
    struct bench_run runs[BENCH_TAX_CASES];
    double *seconds[BENCH_TAX_CASES]; /* [rounds] */
    double *ratios;                   /* [rounds] */
};

static int open_all(struct bench *b, const struct bench_tax_in *in, struct hst_error *error)
{
    for (int c = 0; c < BENCH_TAX_CASES; c++) {
        const struct bench_run_in run = {in->batch_tokens, in->threads, in->store, PLACES[c]};
        int rc = bench_run_open(&b->runs[c], &run, error);
        if (rc)
            return rc;
        b->seconds[c] = calloc(in->rounds, sizeof *b->seconds[c]);
        if (!b->seconds[c])
            return fail(error, FAIL_BUDGET, -ENOMEM, "out of memory for the results");
    }
    b->ratios = calloc(in->rounds, sizeof *b->ratios);
    return b->ratios ? 0 : fail(error, FAIL_BUDGET, -ENOMEM, "out of memory for the results");
}

static int run_rounds(struct bench *b, uint64_t rounds, struct hst_error *error)
{
    for (uint64_t r = 0; r <= rounds; r++)
        for (int i = 0; i < BENCH_TAX_CASES; i++) {
            int c = r % 2 ? BENCH_TAX_CASES - 1 - i : i;
            double seconds, loss;
            int rc = bench_run_step(&b->runs[c], &seconds, &loss, error);
            if (rc)
                return rc;
            if (r > 0)
                b->seconds[c][r - 1] = seconds;
        }
    return 0;
}

static void judge(struct bench *b, uint64_t rounds, struct bench_tax_case *cases)
{
    for (int c = 0; c < BENCH_TAX_CASES; c++) {
        for (uint64_t r = 0; r < rounds; r++)
            b->ratios[r] = b->seconds[c][r] / b->seconds[0][r];
        double median = bench_median(b->ratios, rounds);
        cases[c] = (struct bench_tax_case){.place = PLACES[c],
                                           .ratio = median,
                                           .ratio_least = b->ratios[0],
                                           .ratio_most = b->ratios[rounds - 1]};
    }
    for (int c = 0; c < BENCH_TAX_CASES; c++)
        cases[c].step_s = bench_median(b->seconds[c], rounds);
}

int bench_tax(const struct bench_tax_in *in, struct bench_tax_case cases[BENCH_TAX_CASES],
              struct hst_error *error)
{
    struct bench b = {.ratios = NULL};
    int rc = open_all(&b, in, error);
    rc = rc ? rc : run_rounds(&b, in->rounds, error);
    if (rc == 0)
        judge(&b, in->rounds, cases);
    for (int c = 0; c < BENCH_TAX_CASES; c++) {
        bench_run_close(&b.runs[c]);
        free(b.seconds[c]);
    }
    free(b.ratios);
    return rc;
}
