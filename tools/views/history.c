/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what is kept of a run's steps. */
#include "views/history.h"

#include <math.h>

#define GREATEST 1e30 /* beyond it a value says no more than one that is unknown */

bool history_has_room(double value)
{
    return fabs(value) < GREATEST; /* of NaN it is not */
}

static void add_point(struct history_point *to, const struct history_point *from)
{
    for (enum measure m = 0; m < MEASURES; m++) {
        to->sums[m] += from->sums[m];
        to->counts[m] += from->counts[m];
    }
}

static void halve(struct history *history)
{
    const struct history_point none = {.sums = {0}};
    struct history_point *points = history->points;
    for (size_t i = 0; i < HISTORY_POINTS; i += 2) {
        struct history_point sum = points[i];
        add_point(&sum, &points[i + 1]);
        points[i / 2] = sum;
    }
    for (size_t i = HISTORY_POINTS / 2; i < HISTORY_POINTS; i++)
        points[i] = none;
    history->count = (history->count + 1) / 2;
    history->stride *= 2;
}

void history_take(struct history *history, const struct record *record)
{
    if (!record_measures(record))
        return;
    if (history->stride == 0) {
        history->first = record->step;
        history->stride = 1;
    }
    if (record->step < history->first)
        return;
    const uint64_t behind = record->step - history->first;
    while (behind / history->stride >= HISTORY_POINTS)
        halve(history);
    const size_t at = (size_t)(behind / history->stride);
    history->count = at >= history->count ? at + 1 : history->count;
    for (enum measure m = 0; m < MEASURES; m++)
        if (history_has_room(record->values[m])) {
            history->points[at].sums[m] += record->values[m];
            history->points[at].counts[m]++;
        }
}

double history_value(const struct history *history, size_t point, enum measure measure)
{
    const struct history_point *p = &history->points[point];
    return p->counts[measure] ? p->sums[measure] / (double)p->counts[measure] : NAN;
}

double history_behind(const struct history *history, size_t point)
{
    const double middle = ((double)history->stride - 1) / 2;
    return (double)point * (double)history->stride + middle;
}
