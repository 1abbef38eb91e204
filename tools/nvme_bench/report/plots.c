/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what of a drive's results is plotted: rates over block and depth, the long write,
 * latencies.
 */
#include "nvme_bench/report/plots.h"

#include "nvme_bench/report/plot.h"

#include <math.h>

#define MAX_X 16u

static const char *const series_names[NB_KINDS] = {"read", "write", "mixed"};

/* The values that a sweep took along one axis, in their order. */
static size_t values_along(const struct nb_result *r, uint32_t drive, bool blocks,
                           uint32_t values[MAX_X])
{
    size_t count = 0;
    for (uint32_t i = 0; i < r->point_count; i++) {
        const struct nb_point *p = &r->points[i];
        uint32_t value = blocks ? p->shape.block_bytes : p->shape.depth;
        size_t k = 0;
        while (k < count && values[k] != value)
            k++;
        if (p->phase == NB_SWEEP && p->drive == drive && k == count && count < MAX_X)
            values[count++] = value;
    }
    return count;
}

static void plot_along(const struct nb_result *r, uint32_t drive, bool blocks, FILE *out)
{
    const struct nb_shape *best = &r->drives[drive].best;
    uint32_t values[MAX_X];
    double x[MAX_X], y[NB_KINDS][MAX_X];
    struct plot_tick ticks[MAX_X];
    struct plot_series series[NB_KINDS];
    char title[96];
    size_t count = values_along(r, drive, blocks, values);
    for (size_t i = 0; i < count; i++) {
        struct nb_shape shape = *best;
        *(blocks ? &shape.block_bytes : &shape.depth) = values[i];
        x[i] = ((double)i + 0.5) / (double)count;
        ticks[i].x = x[i];
        if (!blocks)
            snprintf(ticks[i].label, sizeof ticks[i].label, "%u", values[i]);
        else if (values[i] < 1u << 20)
            snprintf(ticks[i].label, sizeof ticks[i].label, "%u KiB", values[i] >> 10);
        else
            snprintf(ticks[i].label, sizeof ticks[i].label, "%g MiB", values[i] / 1048576.0);
        for (uint32_t k = 0; k < NB_KINDS; k++) {
            const struct nb_point *p = nb_find_swept(r, (enum nb_kind)k, drive, &shape);
            y[k][i] = p ? p->rate / 1e9 : (double)NAN;
        }
    }
    for (uint32_t k = 0; k < NB_KINDS; k++)
        series[k] = (struct plot_series){series_names[k], k, count, x, y[k]};
    if (blocks)
        snprintf(title, sizeof title, "Rate over block size, %u in flight",
                 best->depth * best->threads);
    else if (best->block_bytes < 1u << 20)
        snprintf(title, sizeof title, "Rate over depth, blocks of %u KiB", best->block_bytes >> 10);
    else
        snprintf(title, sizeof title, "Rate over depth, blocks of %g MiB",
                 best->block_bytes / 1048576.0);
    plot_draw(&(struct plot){.title = title,
                             .x_label = blocks ? "block" : "requests in flight of each thread",
                             .y_label = "GB/s",
                             .markers = true,
                             .ticks = ticks,
                             .tick_count = count,
                             .series = series,
                             .series_count = NB_KINDS},
              out);
}

static void plot_sustained(const struct nb_sustained *s, FILE *out)
{
    double x[NB_MAX_WINDOWS], y[NB_MAX_WINDOWS], time[NB_MAX_WINDOWS];
    struct plot_tick ticks[MAX_X];
    size_t tick_count = 0;
    double end = 0;
    for (uint32_t i = 0; i < s->windows; i++) {
        double length = (double)s->window_bytes / s->rates[i];
        time[i] = end + length / 2;
        end += length;
        y[i] = s->rates[i] / 1e9;
    }
    if (s->windows == 0 || !(end > 0))
        return;
    for (uint32_t i = 0; i < s->windows; i++)
        x[i] = time[i] / end;
    double step = plot_step(end);
    for (double t = 0; t <= end * 1.0001 && tick_count < MAX_X; t += step, tick_count++) {
        ticks[tick_count].x = t / end;
        snprintf(ticks[tick_count].label, sizeof ticks[tick_count].label, "%g s", t);
    }
    const struct plot_series series = {"write", 1, s->windows, x, y};
    plot_draw(&(struct plot){.title = "Long write over time",
                             .x_label = "seconds of writing",
                             .y_label = "GB/s",
                             .ticks = ticks,
                             .tick_count = tick_count,
                             .series = &series,
                             .series_count = 1},
              out);
}

static void plot_latencies(const struct nb_result *r, uint32_t drive, FILE *out)
{
    static const char *const labels[NB_PERCENTILES] = {"50 %", "90 %", "99 %", "99.9 %", "most"};
    double x[NB_PERCENTILES], y[NB_KINDS][NB_PERCENTILES];
    struct plot_tick ticks[NB_PERCENTILES];
    struct plot_series series[NB_KINDS];
    for (size_t i = 0; i < NB_PERCENTILES; i++) {
        x[i] = ((double)i + 0.5) / NB_PERCENTILES;
        ticks[i].x = x[i];
        snprintf(ticks[i].label, sizeof ticks[i].label, "%s", labels[i]);
    }
    for (uint32_t k = 0; k < NB_KINDS; k++) {
        const struct nb_point *p = nb_find(r, NB_SWEEP, (enum nb_kind)k, drive);
        for (size_t i = 0; i < NB_PERCENTILES; i++)
            y[k][i] = p ? p->latency_ns[i] / 1e6 : (double)NAN;
        series[k] = (struct plot_series){series_names[k], k, NB_PERCENTILES, x, y[k]};
    }
    plot_draw(&(struct plot){.title = "Latency of a request, best shape",
                             .x_label = "so many requests are done within",
                             .y_label = "ms",
                             .log_y = true,
                             .markers = true,
                             .ticks = ticks,
                             .tick_count = NB_PERCENTILES,
                             .series = series,
                             .series_count = NB_KINDS},
              out);
}

void nb_plots(const struct nb_result *r, uint32_t drive, FILE *out)
{
    fputs("<div class=\"plots\">\n", out);
    plot_along(r, drive, true, out);
    plot_along(r, drive, false, out);
    plot_sustained(&r->drives[drive].sustained, out);
    plot_latencies(r, drive, out);
    fputs("</div>\n", out);
}
