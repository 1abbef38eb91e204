/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how values become lines: axes, ticks, series with a legend. */
#include "nvme_bench/report/plot.h"

#include <math.h>

enum { WIDTH = 460, HEIGHT = 270, LEFT = 52, RIGHT = 14, TOP = 46, BOTTOM = 44 };

void plot_text(FILE *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '&')
            fputs("&amp;", out);
        else if (*c == '<')
            fputs("&lt;", out);
        else if (*c == '>')
            fputs("&gt;", out);
        else if (*c == '"')
            fputs("&quot;", out);
        else if (*c >= 0x20 && *c != 0x7f)
            putc(*c, out);
        else
            fputs("&#xfffd;", out);
    }
}

double plot_step(double most)
{
    if (!(most > 0) || !isfinite(most))
        return 1;
    double unit = pow(10, floor(log10(most))) / 10;
    static const double steps[] = {1, 2, 2.5, 5, 10, 20, 25, 50};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (most / (unit * steps[i]) <= 6)
            return unit * steps[i];
    return unit * 100;
}

/* The range of the values, widened to whole ticks. */
struct axis {
    double low, high, step; /* log: exponents, step 1 */
    bool log;
};

static struct axis make_axis(const struct plot *plot)
{
    double least = INFINITY, most = 0;
    for (size_t s = 0; s < plot->series_count; s++)
        for (size_t i = 0; i < plot->series[s].count; i++) {
            double y = plot->series[s].y[i];
            if (isfinite(y) && y > 0) {
                least = fmin(least, y);
                most = fmax(most, y);
            }
        }
    if (!(most > 0))
        least = most = 1;
    if (plot->log_y) {
        double low = floor(log10(least)), high = ceil(log10(most));
        return (struct axis){low, high > low ? high : low + 1, 1, true};
    }
    double step = plot_step(most * 1.02);
    return (struct axis){0, step * ceil(most * 1.02 / step), step, false};
}

static double place_x(double x)
{
    return LEFT + x * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct axis *axis, double y)
{
    double v = axis->log ? log10(y) : y;
    return HEIGHT - BOTTOM - (v - axis->low) / (axis->high - axis->low) * (HEIGHT - TOP - BOTTOM);
}

static void draw_axes(const struct plot *plot, const struct axis *axis, FILE *out)
{
    int lines = (int)((axis->high - axis->low) / axis->step + 0.5);
    for (int i = 0; i <= lines; i++) {
        double v = axis->low + i * axis->step;
        double y = HEIGHT - BOTTOM - (double)i / lines * (HEIGHT - TOP - BOTTOM);
        fprintf(out, "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>",
                i ? "grid" : "axis", LEFT, WIDTH - RIGHT, y, y);
        fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                LEFT - 7, y + 4, axis->log ? pow(10, v) : v);
    }
    for (size_t i = 0; i < plot->tick_count; i++) {
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
                place_x(plot->ticks[i].x), HEIGHT - BOTTOM + 17);
        plot_text(out, plot->ticks[i].label);
        fputs("</text>", out);
    }
    fprintf(out, "\n<text class=\"label\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", WIDTH - RIGHT,
            HEIGHT - 8);
    plot_text(out, plot->x_label);
    fputs("</text>\n", out);
}

static void draw_series(const struct plot *plot, const struct plot_series *s,
                        const struct axis *axis, FILE *out)
{
    bool drawing = false;
    fprintf(out, "<path class=\"line k%u\" d=\"", s->color);
    for (size_t i = 0; i < s->count; i++) {
        bool there = isfinite(s->y[i]) && s->y[i] > 0;
        if (there)
            fprintf(out, "%c%.1f %.1f", drawing ? 'L' : 'M', place_x(s->x[i]),
                    place_y(axis, s->y[i]));
        drawing = there;
    }
    fputs("\"/>", out);
    for (size_t i = 0; plot->markers && i < s->count; i++)
        if (isfinite(s->y[i]) && s->y[i] > 0)
            fprintf(out, "<circle class=\"dot k%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>", s->color,
                    place_x(s->x[i]), place_y(axis, s->y[i]));
    fputs("\n", out);
}

static void draw_legend(const struct plot *plot, FILE *out)
{
    double x = WIDTH - RIGHT;
    for (size_t i = plot->series_count; plot->series_count > 1 && i-- > 0;) {
        const struct plot_series *s = &plot->series[i];
        size_t letters = 0;
        for (const char *c = s->name; *c; c++)
            letters++;
        x -= 7.2 * (double)letters + 6;
        fprintf(out, "<text class=\"label\" x=\"%.1f\" y=\"35\">", x);
        plot_text(out, s->name);
        fprintf(out,
                "</text><line class=\"line k%u\" x1=\"%.1f\" x2=\"%.1f\" y1=\"31\" y2=\"31\"/>",
                s->color, x - 20, x - 5);
        x -= 28;
    }
    fputs("\n", out);
}

void plot_draw(const struct plot *plot, FILE *out)
{
    struct axis axis = make_axis(plot);
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\"><title>", WIDTH, HEIGHT);
    plot_text(out, plot->title);
    fputs("</title>\n<text class=\"title\" x=\"0\" y=\"15\">", out);
    plot_text(out, plot->title);
    fputs("</text><text class=\"label\" x=\"0\" y=\"35\">", out);
    plot_text(out, plot->y_label);
    fputs("</text>\n", out);
    draw_axes(plot, &axis, out);
    for (size_t i = 0; i < plot->series_count; i++)
        draw_series(plot, &plot->series[i], &axis, out);
    draw_legend(plot, out);
    fputs("</svg>\n", out);
}
