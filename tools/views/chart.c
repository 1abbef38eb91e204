/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how a chart looks: its scale, its ticks, where a line has holes, what is marked. */
#include "views/chart.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>

#define WIDTH  720.0
#define HEIGHT 220.0
#define LEFT   80.0
#define RIGHT  12.0
#define TOP    10.0
#define BOTTOM 26.0
#define TICKS  4 /* as many or a few more */

#define LEAST 1e-30 /* a span of less is none */

enum { TICKS_MOST = 16 };

struct scale {
    double least, most, tick;
};

static double value_of(const struct chart *chart, const struct history *history, size_t point,
                       size_t line)
{
    const double value = history_value(history, point, chart->lines[line].measure);
    return chart->per_second ? value / history_value(history, point, SECONDS) : value;
}

static bool is_shown(const struct chart *chart, const struct history *history, size_t line)
{
    for (size_t i = 0; i < history->count; i++) {
        const double value = value_of(chart, history, i, line);
        if (isfinite(value) && value != 0)
            return true;
    }
    return false;
}

/* 1, 2 or 5 times a power of ten (of bytes: a power of two), so that about TICKS fit. */
static double tick_of(double span, bool binary)
{
    const double wished = span / TICKS;
    if (binary)
        return exp2(floor(log2(wished)));
    const double power = pow(10, floor(log10(wished)));
    const double times = wished / power;
    return power * (times < 2 ? 1 : times < 5 ? 2 : 5);
}

static struct scale scale_of(double least, double most, bool binary)
{
    const double room = most > least ? most - least : fabs(most) / 2;
    const double span = room > LEAST ? room : 1;
    const double tick = tick_of(span, binary);
    const double low = floor(least / tick) * tick, high = ceil(most / tick) * tick;
    return (struct scale){low, high > low ? high : low + tick, tick};
}

static struct scale value_scale(const struct chart *chart, const struct history *history,
                                const struct chart_mark *mark)
{
    double least = chart->from_zero ? 0 : INFINITY, most = chart->from_zero ? 0 : -INFINITY;
    for (size_t line = 0; line < chart->line_count; line++)
        for (size_t i = 0; i < history->count; i++) {
            const double value = value_of(chart, history, i, line);
            if (isfinite(value)) {
                least = fmin(least, value);
                most = fmax(most, value);
            }
        }
    if (mark) { /* a point of the line may be a mean */
        least = fmin(least, mark->value);
        most = fmax(most, mark->value);
    }
    return scale_of(least, most, chart->unit == CHART_BYTES || chart->unit == CHART_BYTES_PER_S);
}

/* It is the scale of steps behind the first one. */
static struct scale step_scale(const struct history *history)
{
    const double last = fmax(1, history_behind(history, history->count - 1));
    return (struct scale){0, last, fmax(1, tick_of(last, false))};
}

static double x_of(const struct scale *scale, double behind)
{
    return LEFT + (behind - scale->least) / (scale->most - scale->least) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct scale *scale, double value)
{
    const double part = (value - scale->least) / (scale->most - scale->least);
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

/* A log may say anything. */
static uint64_t whole_of(double value)
{
    return value > 0 ? value < 0x1p63 ? (uint64_t)value : UINT64_C(1) << 63 : 0;
}

static void put_value(FILE *file, enum chart_unit unit, double value)
{
    char text[TEXT_BYTES];
    switch (unit) {
    case CHART_PLAIN:
        fprintf(file, "%.6g", value);
        break;
    case CHART_COUNT:
        fputs(text_count(value, text), file);
        break;
    case CHART_SECONDS:
        fprintf(file, "%.4g s", value);
        break;
    case CHART_BYTES:
    case CHART_BYTES_PER_S:
        fprintf(file, "%s%s", text_size(whole_of(value), text),
                unit == CHART_BYTES_PER_S ? "/s" : "");
        break;
    }
}

/* A sum of ticks ends a little beside 0. */
static double near_zero(double value, double tick)
{
    return fabs(value) < tick / 1e6 ? 0 : value;
}

static void put_value_axis(FILE *file, const struct chart *chart, const struct scale *scale)
{
    const int ticks = (int)lround((scale->most - scale->least) / scale->tick);
    for (int i = 0; i <= ticks; i++) {
        const double value = near_zero(scale->least + i * scale->tick, scale->tick);
        const double y = y_of(scale, value);
        fprintf(file, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", LEFT, y, WIDTH - RIGHT);
        fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, y + 4);
        put_value(file, chart->unit, value);
        fputs("</text>\n", file);
    }
}

static void put_step_axis(FILE *file, const struct scale *scale, uint64_t first)
{
    const uint64_t tick = (uint64_t)scale->tick;
    uint64_t step = first % tick ? first + (tick - first % tick) : first;
    for (unsigned i = 0; i < TICKS_MOST && (double)(step - first) <= scale->most; i++, step += tick)
        fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%" PRIu64 "</text>\n",
                x_of(scale, (double)(step - first)), HEIGHT - 8, step);
}

/* A point between holes is a dot: a line without length has round ends. */
static void put_line(FILE *file, const struct chart *chart, const struct history *history,
                     size_t line, const struct scale *x, const struct scale *y)
{
    const bool joined = chart->lines[line].joined;
    bool pen = false;
    fprintf(file, "<path class=\"line c%zu\" d=\"", line);
    for (size_t i = 0; i < history->count; i++) {
        const double value = value_of(chart, history, i, line);
        const double at = x_of(x, history_behind(history, i));
        if (isfinite(value) && !pen)
            fprintf(file, "M%.1f %.1fh0", at, y_of(y, value));
        else if (isfinite(value))
            fprintf(file, "L%.1f %.1f", at, y_of(y, value));
        pen = isfinite(value) || (joined && pen);
    }
    fputs("\"/>\n", file);
}

/* The line that the mark is of; line_count: there is none, or the chart begins behind the mark. */
static size_t marked_line(const struct chart *chart, const struct history *history,
                          const struct chart_mark *mark)
{
    size_t line = 0;
    if (!mark || !history_has_room(mark->value) || mark->step < history->first)
        return chart->line_count;
    while (line < chart->line_count && chart->lines[line].measure != mark->measure)
        line++;
    return line;
}

static void put_mark(FILE *file, const struct chart_mark *mark, uint64_t behind, size_t line,
                     const struct scale *x, const struct scale *y)
{
    fprintf(file, "<circle class=\"c%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"/>\n", line,
            x_of(x, fmin((double)behind, x->most)), y_of(y, mark->value));
}

static void put_caption(FILE *file, const struct chart *chart, bool keys,
                        const struct chart_mark *mark, size_t marked)
{
    fprintf(file, "<figure><figcaption>%s", chart->title);
    for (size_t i = 0; i < chart->line_count && keys; i++)
        fprintf(file, " <span class=\"k%zu\">&#9644; %s</span>", i, chart->lines[i].name);
    if (mark)
        fprintf(file, " <span class=\"k%zu\">&#9711; %s</span>", marked, mark->name);
    fputs("</figcaption>\n", file);
}

bool chart_put(FILE *file, const struct chart *chart, const struct history *history,
               const struct chart_mark *mark)
{
    struct chart shown = *chart;
    shown.line_count = 0;
    for (size_t i = 0; i < chart->line_count; i++)
        if (is_shown(chart, history, i))
            shown.lines[shown.line_count++] = chart->lines[i];
    if (shown.line_count == 0)
        return false;
    const size_t marked = marked_line(&shown, history, mark);
    mark = marked < shown.line_count ? mark : NULL;
    const struct scale x = step_scale(history), y = value_scale(&shown, history, mark);
    put_caption(file, &shown, chart->line_count > 1, mark, marked);
    fprintf(file, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n", WIDTH, HEIGHT,
            chart->title);
    put_value_axis(file, &shown, &y);
    put_step_axis(file, &x, history->first);
    for (size_t i = 0; i < shown.line_count; i++)
        put_line(file, &shown, history, i, &x, &y);
    if (mark)
        put_mark(file, mark, mark->step - history->first, marked, &x, &y);
    fputs("</svg></figure>\n", file);
    return true;
}
