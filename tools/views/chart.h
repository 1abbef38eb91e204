/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VIEWS_CHART_H
#define HOISTWAY_TOOLS_VIEWS_CHART_H
/* One chart of a page: lines over a run's steps, as SVG. */
#include "views/history.h"

#define CHART_LINES 6u

struct chart_line {
    const char *name;
    enum measure measure;
    bool joined; /* over steps that do not have it */
};

enum chart_unit { CHART_PLAIN, CHART_COUNT, CHART_SECONDS, CHART_BYTES, CHART_BYTES_PER_S };

struct chart {
    const char *title;
    enum chart_unit unit;
    bool per_second; /* each value is divided by the step's seconds */
    bool from_zero;
    size_t line_count;
    struct chart_line lines[CHART_LINES];
};

/** A point of one line that stands out, in its own words. */
struct chart_mark {
    enum measure measure;
    uint64_t step; /* at most the last one of the chart */
    double value; /* one that history has no room for: there is no mark */
    const char *name;
};

/** Writes the chart, without the lines that are 0 or unknown in all steps; false: those are all of
 * them, and nothing is written. mark: null, or of any line; it is left out where its line or its
 * step is. Errors are the stream's. */
bool chart_put(FILE *file, const struct chart *chart, const struct history *history,
               const struct chart_mark *mark);

#endif
