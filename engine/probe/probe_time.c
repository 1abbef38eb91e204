/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times work from outside, by one clock, in rounds that are long beside what starting and waiting
 * cost. The first time is not counted: it loads code, makes plans, maps pages.
 */
#include "probe/probe.h"

#include "base/clock.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 5, CALLS_MOST = 1000 };
#define ROUND_S     0.008
#define GROWTH_MOST 64.0

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void probe_median(struct hst_figure *figure, double *rates, uint32_t rounds)
{
    qsort(rates, rounds, sizeof *rates, by_value);
    figure->value = rates[rounds / 2];
    figure->least = rates[0];
    figure->most = rates[rounds - 1];
    figure->rounds = rounds;
}

/* Seconds of one time of `calls`. */
static int time_calls(const struct probe_work *work, unsigned calls, double *call_s)
{
    double start = clock_seconds();
    int rc = 0;
    for (unsigned i = 0; i < calls && !rc; i++)
        rc = work->begin(work->arg);
    if (work->finish) {
        int late = work->finish(work->arg);
        rc = rc ? rc : late;
    }
    double took = clock_seconds() - start;
    *call_s = (took > 1e-9 ? took : 1e-9) / calls;
    return rc;
}

double probe_growth(double seconds, double wish_s)
{
    return fmin(wish_s / fmax(seconds, 1e-9), GROWTH_MOST);
}

int probe_once(const struct probe_work *work, double *seconds)
{
    int rc = time_calls(work, 1, seconds);
    return rc ? rc : time_calls(work, 1, seconds);
}

/* ---- rounds ---- */

struct rounds {
    double rates[ROUNDS];
    uint32_t count;
    unsigned calls; /* of one round */
};

static int warm_up(const struct probe_work *work, double deadline_s, struct rounds *r)
{
    double call_s;
    int rc = probe_once(work, &call_s);
    if (rc)
        return rc;
    double wish = ROUND_S / call_s;
    r->calls = wish < 1 ? 1 : wish > CALLS_MOST ? CALLS_MOST : (unsigned)wish + 1;
    if (r->calls == 1 || clock_seconds() >= deadline_s)
        r->rates[r->count++] = work->amount / call_s; /* long enough to count */
    return 0;
}

static int one_round(const struct probe_work *work, double deadline_s, struct rounds *r)
{
    double call_s;
    if (r->count == ROUNDS || (r->count > 0 && clock_seconds() >= deadline_s))
        return 0;
    int rc = time_calls(work, r->calls, &call_s);
    if (!rc)
        r->rates[r->count++] = work->amount / call_s;
    return rc;
}

int probe_rate(const struct probe_work *work, double deadline_s, struct hst_figure *figure)
{
    struct rounds r = {.count = 0};
    int rc = warm_up(work, deadline_s, &r);
    for (uint32_t round = 0; round < ROUNDS && !rc; round++)
        rc = one_round(work, deadline_s, &r);
    if (!rc)
        probe_median(figure, r.rates, r.count);
    return rc;
}

void probe_by_turns(struct probe *probe, const struct probe_work *works, uint32_t count,
                    double deadline_s, struct hst_figure *figures, int *rcs)
{
    struct rounds r[PROBE_TURNS_MAX] = {{.count = 0}};
    for (uint32_t i = 0; i < count && !probe_is_stopped(probe); i++)
        rcs[i] = rcs[i] ? rcs[i] : warm_up(&works[i], deadline_s, &r[i]);
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i < count && !probe_is_stopped(probe); i++)
            rcs[i] = rcs[i] ? rcs[i] : one_round(&works[i], deadline_s, &r[i]);
    for (uint32_t i = 0; i < count; i++)
        if (!rcs[i] && r[i].count > 0)
            probe_median(&figures[i], r[i].rates, r[i].count);
}

void probe_fail(struct hst_figure *figure, const char *format, ...)
{
    va_list args;
    *figure = (struct hst_figure){0};
    va_start(args, format);
    vsnprintf(figure->how, sizeof figure->how, format, args);
    va_end(args);
}

bool probe_is_stopped(struct probe *probe)
{
    const struct hst_probe *in = probe->in;
    probe->ended = probe->ended || (in->stopped && in->stopped(in->stopped_context));
    return probe->ended;
}
