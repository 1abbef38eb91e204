/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what measured values mean; see judge.h. */
#include "nvme_bench/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DROP_FRACTION 0.8  /* of the rate before: less is a drop */
#define FLAT_SPREAD   0.1  /* of the median */
#define ALIKE         0.97 /* of the best rate: not worth more requests in flight */
#define UNLIKE        0.1  /* of an equal share: drives that differ by more are unequal */

/* ---- latencies ---- */

void nb_latencies_add(struct nb_latencies *l, uint64_t ns)
{
    if (l->stride == 0)
        l->stride = 1;
    l->most = ns > l->most ? ns : l->most;
    if (l->seen++ % l->stride != 0)
        return;
    if (l->count == l->capacity) { /* keep every other one from now on */
        size_t kept = 0;
        for (size_t i = 0; i < l->count; i += 2)
            l->ns[kept++] = l->ns[i];
        l->count = kept;
        l->stride *= 2;
        if ((l->seen - 1) % l->stride != 0)
            return;
    }
    l->ns[l->count++] = ns;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void nb_latencies_percentiles(const struct nb_latencies *const *sets, size_t set_count,
                              uint64_t *scratch, double percentiles[NB_PERCENTILES])
{
    static const double shares[NB_PERCENTILES - 1] = {0.5, 0.9, 0.99, 0.999};
    size_t count = 0;
    uint64_t most = 0;
    for (size_t s = 0; s < set_count; s++) {
        if (sets[s]->count)
            memcpy(scratch + count, sets[s]->ns, sets[s]->count * sizeof *scratch);
        count += sets[s]->count;
        most = sets[s]->most > most ? sets[s]->most : most;
    }
    if (count)
        qsort(scratch, count, sizeof *scratch, compare_u64);
    percentiles[NB_PERCENTILES - 1] = count ? (double)most : NAN;
    for (size_t p = 0; p + 1 < NB_PERCENTILES; p++) {
        size_t rank = (size_t)ceil(shares[p] * (double)count);
        percentiles[p] = count ? (double)scratch[rank ? rank - 1 : 0] : NAN;
    }
}

/* ---- the long write ---- */

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, size_t count)
{
    double sorted[NB_MAX_WINDOWS];
    if (count == 0)
        return 0;
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, compare_double);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/*
 * The first window that is a drop below the median before it, where the median from there on is
 * one too: a stall of one window is none. 0: no drop.
 */
static uint32_t find_drop(const struct nb_sustained *s)
{
    for (uint32_t i = 1; i + 1 < s->windows; i++) {
        double enough = DROP_FRACTION * median(s->rates, i);
        if (s->rates[i] < enough && median(s->rates + i, s->windows - i) < enough)
            return i;
    }
    return 0;
}

void nb_sustained_judge(struct nb_sustained *s)
{
    uint32_t tail = s->windows < NB_FLAT_WINDOWS ? s->windows : NB_FLAT_WINDOWS;
    const double *last = s->rates + (s->windows - tail);
    double least = INFINITY, most = 0;
    for (uint32_t i = 0; i < tail; i++) {
        least = fmin(least, last[i]);
        most = fmax(most, last[i]);
    }
    s->flat = tail == NB_FLAT_WINDOWS && most - least <= FLAT_SPREAD * median(last, tail);
    uint32_t drop = find_drop(s);
    s->drop_bytes = drop * s->window_bytes;
    s->first = median(s->rates, drop ? drop : s->windows);
    s->last = drop ? median(s->rates + drop, s->windows - drop) : s->first;
}

/* ---- several drives ---- */

static double rate_of(const struct nb_result *r, enum nb_phase phase, enum nb_kind kind,
                      uint32_t drive)
{
    const struct nb_point *p = nb_find(r, phase, kind, drive);
    return p ? p->rate : 0;
}

/* The rate that a long write fell to counts, even where a short one did better afterwards. */
static double steady_rate(const struct nb_result *r, enum nb_kind kind, uint32_t drive)
{
    const struct nb_sustained *s = &r->drives[drive].sustained;
    double rate = rate_of(r, NB_STEADY, kind, drive);
    return kind == NB_WRITE && s->drop_bytes ? fmin(rate, s->last) : rate;
}

void nb_shares_of(const struct nb_result *r, double shares[NB_MAX_DRIVES])
{
    double sum = 0;
    bool known = true;
    for (uint32_t d = 0; d < r->drive_count; d++) {
        double read = steady_rate(r, NB_READ, d), write = steady_rate(r, NB_WRITE, d);
        known = known && read > 0 && write > 0;
        shares[d] = known ? 1 / (1 / read + 1 / write) : 0;
        sum += shares[d];
    }
    for (uint32_t d = 0; d < r->drive_count; d++)
        shares[d] = known ? shares[d] / sum : 1.0 / r->drive_count;
}

bool nb_drives_are_alike(const struct nb_result *r)
{
    double shares[NB_MAX_DRIVES];
    nb_shares_of(r, shares);
    for (uint32_t d = 0; d < r->drive_count; d++)
        if (fabs(shares[d] * r->drive_count - 1) > UNLIKE)
            return false;
    return true;
}

/* The last one to end decides of drives that share bytes out. */
static double usable_rate(const struct nb_result *r, enum nb_kind kind)
{
    double shares[NB_MAX_DRIVES], least = INFINITY;
    nb_shares_of(r, shares);
    for (uint32_t d = 0; d < r->drive_count; d++)
        least = fmin(least, steady_rate(r, kind, d) / shares[d]);
    return r->drive_count > 1 ? fmin(least, rate_of(r, NB_STRIPED, kind, NB_ALL_DRIVES)) : least;
}

bool nb_rates_of(const struct nb_result *r, struct nb_rates *rates)
{
    rates->read = usable_rate(r, NB_READ);
    rates->write = usable_rate(r, NB_WRITE);
    rates->mixed = usable_rate(r, NB_MIXED);
    return rates->read > 0 && rates->write > 0 && rates->mixed > 0;
}

/* ---- choosing ---- */

static uint64_t bytes_in_flight(const struct nb_shape *s)
{
    return (uint64_t)s->block_bytes * s->depth * s->threads;
}

static bool is_smaller(const struct nb_shape *a, const struct nb_shape *b)
{
    uint64_t x = bytes_in_flight(a), y = bytes_in_flight(b);
    if (x != y)
        return x < y;
    if (a->threads != b->threads)
        return a->threads < b->threads;
    return a->block_bytes < b->block_bytes;
}

void nb_choose_best(const struct nb_result *r, uint32_t drive, struct nb_shape *best)
{
    double enough = ALIKE * nb_ceiling(r, NB_MIXED, drive);
    bool found = false;
    for (uint32_t i = 0; i < r->point_count; i++) {
        const struct nb_point *p = &r->points[i];
        if (p->phase != NB_SWEEP || p->kind != NB_MIXED || p->drive != drive || p->rate < enough)
            continue;
        if (!found || is_smaller(&p->shape, best))
            *best = p->shape;
        found = true;
    }
}

/* Mixed, in one shape for all drives; 0 where one of them was not measured in it. */
static double rate_of_all(const struct nb_result *r, const struct nb_shape *shape,
                          const double *shares)
{
    double least = INFINITY;
    for (uint32_t d = 0; d < r->drive_count; d++) {
        const struct nb_point *p = nb_find_swept(r, NB_MIXED, d, shape);
        least = fmin(least, p ? p->rate / shares[d] : 0);
    }
    return least;
}

void nb_choose_for_all(const struct nb_result *r, struct nb_shape *best)
{
    double shares[NB_MAX_DRIVES], rates[NB_MAX_POINTS], most = 0;
    *best = r->drives[0].best;
    if (r->drive_count < 2)
        return;
    nb_shares_of(r, shares);
    for (uint32_t i = 0; i < r->point_count; i++) {
        const struct nb_point *p = &r->points[i];
        bool tried = p->phase == NB_SWEEP && p->kind == NB_MIXED && p->drive == 0;
        rates[i] = tried ? rate_of_all(r, &p->shape, shares) : 0;
        most = fmax(most, rates[i]);
    }
    bool found = false;
    for (uint32_t i = 0; i < r->point_count && most > 0; i++) {
        if (rates[i] < ALIKE * most || (found && !is_smaller(&r->points[i].shape, best)))
            continue;
        *best = r->points[i].shape;
        found = true;
    }
}
