/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VIEWS_HISTORY_H
#define HOISTWAY_TOOLS_VIEWS_HISTORY_H
/*
 * The steps of a run, and its evaluations at their steps, in bounded room: means over `stride`
 * steps each, which doubles where they would be more than HISTORY_POINTS.
 */
#include "views/record.h"

#include <stdbool.h>

#define HISTORY_POINTS 1024u

struct history_point {
    double sums[MEASURES]; /* of values that a chart has room for */
    uint64_t counts[MEASURES]; /* of steps that have that measure */
};

struct history {
    uint64_t first, stride; /* a step; stride 0: no step yet */
    size_t count;
    struct history_point points[HISTORY_POINTS];
};

/** A step before the first one is left out: a log's steps rise. The first one is 0 where a run
 * evaluates before it trains. */
void history_take(struct history *history, const struct record *record);
/** True where a value is in its chart; one that is not is a hole. */
bool history_has_room(double value);
/** The mean; NaN where no step of that point has it. */
double history_value(const struct history *history, size_t point, enum measure measure);
/** The middle of that point's steps, less the first step of all. */
double history_behind(const struct history *history, size_t point);

#endif
