/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what ranks plan by: of each rate the least that any of them has, so that all plan alike
 * and none is waited for by a plan that it cannot keep.
 */
#include "comm/rates.h"
#include "base/precision.h"
#include "comm/report.h"
#include "session/ranks/ranks.h"

#include <errno.h>
#include <hoistway/predict.h>
#include <math.h>
#include <stdlib.h>

int hst_engine_net_rates(struct hst_engine *engine, struct hst_rates *rates)
{
    struct comm_rates measured;
    char how[sizeof rates->figures[0].how];
    if (engine->report.error.code)
        return engine->report.error.native;
    if (!rates || engine->phase > PHASE_SEALED || engine->config.plan)
        return report_refuse(&engine->report, "ranks measure their network before the load");
    if (!engine->comm || !engine->config.launch->mpi)
        return 0;                /* what is measured is how ranks reach each other's DRAM */
    int rc = ranks_meet(engine); /* with patience: each has come in its time */
    if (rc)
        return rc;
    rc =
        comm_rates_measure(engine->comm, precision_dtype(engine->config.precision), &measured, how);
    if (rc)
        return comm_report(engine->comm, &engine->report, 0, rc);
    comm_rates_put(&measured, how, rates);
    return 0;
}

uint32_t hst_engine_threads(const struct hst_engine *engine)
{
    return engine->config.threads;
}

/* all: [ranks][HST_RATE_COUNT]. */
static void take_least(const double *all, uint32_t ranks, struct hst_rates *alike)
{
    for (uint32_t r = 0; r < HST_RATE_COUNT; r++) {
        double least = all[r];
        for (uint32_t rank = 1; rank < ranks; rank++)
            least = fmin(least, all[rank * HST_RATE_COUNT + r]);
        alike->figures[r].value = least;
    }
}

int ranks_rates_alike(struct hst_engine *engine)
{
    double own[HST_RATE_COUNT] = {0};
    const struct hst_rates *rates = engine->config.rates;
    if (!engine->comm || engine->alike)
        return 0;
    for (int r = 0; rates && r < HST_RATE_COUNT; r++)
        own[r] = rates->figures[r].value;
    double *all = calloc(engine->ranks.ranks, sizeof own);
    struct hst_rates *alike = calloc(1, sizeof *alike);
    int rc = -ENOMEM;
    if (all && alike) {
        rc = ranks_share_all(engine, "rates", own, all, sizeof own);
        take_least(all, engine->ranks.ranks, alike);
        engine->config.rates = engine->alike = alike;
    } else {
        free(alike);
        report_fail(&engine->report, HST_E_BUDGET, rc, "no memory for what ranks say");
    }
    free(all);
    return rc;
}
