/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_REPORT_PLOT_H
#define HOISTWAY_TOOLS_NVME_BENCH_REPORT_PLOT_H
/* Line plots as inline SVG. Colours are the page's CSS classes: k0, k1, … for the series. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/** Text with what HTML would take for markup escaped. */
void plot_text(FILE *out, const char *text);

struct plot_series {
    const char *name;
    unsigned color;      /* k0, k1, … */
    size_t count;
    const double *x, *y; /* x from 0 to 1; y in the axis' unit, NAN: a gap */
};

struct plot_tick {
    double x; /* 0 to 1 */
    char label[24];
};

struct plot {
    const char *title, *x_label, *y_label;
    bool log_y;   /* decades; else from 0 */
    bool markers; /* a dot at each value */
    const struct plot_tick *ticks;
    size_t tick_count;
    const struct plot_series *series;
    size_t series_count;
};
void plot_draw(const struct plot *plot, FILE *out);

/** The step of an axis from 0 to `most` with at most 6 intervals: 1, 2, 2.5 or 5 · 10^k. Pure. */
double plot_step(double most);
#endif
