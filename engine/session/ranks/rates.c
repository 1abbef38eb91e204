/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what ranks plan by: of each rate the least that any of them has, so that all plan alike
 * and none is waited for by a plan that it cannot keep; and what an operation between them takes
 * by these rates, where they are.
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

/* ---- what an operation takes ---- */

enum hst_rate ranks_operations_rate(const struct comm_info *ranks)
{
    return ranks->nodes > 1 ? HST_RATE_NET_OPERATIONS_BETWEEN : HST_RATE_NET_OPERATIONS;
}

static double seconds_of_one(const struct hst_rates *rates, enum hst_rate rate)
{
    const double value = rates->figures[rate].value;
    return value > 0 ? 1 / value : 0;
}

static double messages_seconds(const struct comm_info *ranks, const struct comm_op *op,
                               const struct hst_rates *rates)
{
    const struct comm_messages m = comm_messages(ranks, op);
    return m.in_node * seconds_of_one(rates, HST_RATE_NET_MESSAGES) +
           m.between * seconds_of_one(rates, HST_RATE_NET_MESSAGES_BETWEEN);
}

struct sim_net ranks_net(const struct hst_engine *engine, const struct hst_rates *rates)
{
    struct comm_info ranks = engine->ranks;
    if (engine->comm) /* whether they read each other's memory now */
        comm_info(engine->comm, &ranks);
    const struct hst_figure *f = rates->figures;
    const struct comm_crossing crossing = comm_crossing(&ranks);
    const bool joined = engine->plan_in.joined;
    const struct comm_op gather = {.kind = COMM_GATHER, .on_device = joined};
    const struct comm_op near = {.kind = COMM_GATHER, .on_device = joined, .near = true};
    const struct comm_op exchange = {.kind = COMM_EXCHANGE,
                                     .on_device = ranks_exchange_on_device(engine)};
    struct sim_net net = {.gather = f[HST_RATE_NET_GATHER].value,
                          .exchange = f[HST_RATE_NET_EXCHANGE].value,
                          .between = f[HST_RATE_NET_BETWEEN].value,
                          .gather_crossing = crossing.gather,
                          .exchange_crossing = crossing.exchange,
                          .operation_s = seconds_of_one(rates, ranks_operations_rate(&ranks)),
                          .gather_messages_s = messages_seconds(&ranks, &gather, rates),
                          .near_messages_s = messages_seconds(&ranks, &near, rates),
                          .exchange_messages_s = messages_seconds(&ranks, &exchange, rates)};
    ranks_put_saved(engine, ranks.shared, &net);
    return net;
}

/* ---- what all of them plan by ---- */

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
