/* SPDX-License-Identifier: Apache-2.0 */
/* Runs side by side in one process: what else the machine does, it does to all of them. */
#include "bench/step/tax.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct tax_case {
    const char *name, *place, *durability, *folder; /* of the store; null: itself */
    double clip;
    enum hst_update_time update_time;
};

#define NEVER_CLIPS 1e30

static const struct tax_case HOMES[BENCH_TAX_CASES] = {
    {.name = "states=dram,weights=dram", .place = "states=dram,weights=dram"},
    {.name = "states=nvme,weights=dram", .place = "states=nvme,weights=dram"},
    {.name = "states=nvme,weights=nvme", .place = "states=nvme,weights=nvme"},
};

static const struct tax_case UPDATES[BENCH_TAX_CASES] = {
    {"deferred", "states=nvme,weights=nvme", "step", "deferred", NEVER_CLIPS, HST_UPDATE_DEFERRED},
    {"optimistic", "states=nvme,weights=nvme", "step", "optimistic", NEVER_CLIPS,
     HST_UPDATE_OPTIMISTIC},
    {"no clipping", "states=nvme,weights=nvme", "step", "unclipped", HST_NONE, HST_UPDATE_DEFERRED},
};

static const struct tax_case *cases_of(enum bench_tax_kind kind)
{
    return kind == BENCH_TAX_UPDATES ? UPDATES : HOMES;
}

struct bench {
    struct bench_run runs[BENCH_TAX_CASES];
    double *seconds[BENCH_TAX_CASES]; /* [rounds] */
    double *ratios;                   /* [rounds] */
};

static int open_all(struct bench *b, const struct bench_tax_in *in, struct hst_error *error)
{
    for (int c = 0; c < BENCH_TAX_CASES; c++) {
        const struct tax_case *of = &cases_of(in->kind)[c];
        char store[4096];
        int n = snprintf(store, sizeof store, "%s%s%s", in->store, of->folder ? "/" : "",
                         of->folder ? of->folder : "");
        if (n >= (int)sizeof store)
            return fail(error, FAIL_USAGE, -ENAMETOOLONG,
                        "the --store directory's name is too long");
        const struct bench_run_in run = {.batch_tokens = in->batch_tokens,
                                         .threads = in->threads,
                                         .store = store,
                                         .place = of->place,
                                         .durability = of->durability,
                                         .clip = of->clip,
                                         .update_time = of->update_time,
                                         .device = in->device};
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

/* The next step pays for what one leaves under way: the first of a turn follows another run's, and
 * is not counted. */
#define STEPS_OF_TURN 4

static int run_turn(struct bench_run *run, double *seconds, struct hst_error *error)
{
    *seconds = 0;
    for (int s = 0; s < STEPS_OF_TURN; s++) {
        double step_s, loss;
        int rc = bench_run_step(run, &step_s, &loss, error);
        if (rc)
            return rc;
        *seconds += s > 0 ? step_s / (STEPS_OF_TURN - 1) : 0;
    }
    return 0;
}

static int run_rounds(struct bench *b, uint64_t rounds, struct hst_error *error)
{
    for (uint64_t r = 0; r <= rounds; r++)
        for (int i = 0; i < BENCH_TAX_CASES; i++) {
            int c = r % 2 ? BENCH_TAX_CASES - 1 - i : i;
            double seconds;
            int rc = run_turn(&b->runs[c], &seconds, error);
            if (rc)
                return rc;
            if (r > 0)
                b->seconds[c][r - 1] = seconds;
        }
    return 0;
}

static void judge(struct bench *b, const struct tax_case *of, uint64_t rounds,
                  struct bench_tax_case *cases)
{
    for (int c = 0; c < BENCH_TAX_CASES; c++) {
        for (uint64_t r = 0; r < rounds; r++)
            b->ratios[r] = b->seconds[c][r] / b->seconds[0][r];
        double median = bench_median(b->ratios, rounds);
        cases[c] = (struct bench_tax_case){.name = of[c].name,
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
        judge(&b, cases_of(in->kind), in->rounds, cases);
    for (int c = 0; c < BENCH_TAX_CASES; c++) {
        bench_run_close(&b.runs[c]);
        free(b.seconds[c]);
    }
    free(b.ratios);
    return rc;
}
