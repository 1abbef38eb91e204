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

int probe_rate(const struct probe_work *work, double deadline_s, struct hst_figure *figure)
{
    double rates[ROUNDS], call_s;
    uint32_t rounds = 0;
    int rc = probe_once(work, &call_s);
    if (rc)
        return rc;
    double wish = ROUND_S / call_s;
    unsigned calls = wish < 1 ? 1 : wish > CALLS_MOST ? CALLS_MOST : (unsigned)wish + 1;
    if (calls == 1 || clock_seconds() >= deadline_s)
        rates[rounds++] = work->amount / call_s; /* long enough to count */
    while (rounds < ROUNDS && (rounds == 0 || clock_seconds() < deadline_s)) {
        rc = time_calls(work, calls, &call_s);
        if (rc)
            return rc;
        rates[rounds++] = work->amount / call_s;
    }
    probe_median(figure, rates, rounds);
    return 0;
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
