/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what the page of a plan tells: the answer first, then what it rests on. */
#include "verbs/plan/page.h"

#include "base/text.h"
#include "base/utf8.h"
#include "cli/log/output.h"
#include "cli/rates_text.h"
#include "verbs/plan/answer.h"
#include "views/frame.h"
#include "views/strips.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BEGIN "<!DOCTYPE html><!-- a plan of hoistway -->"

static const struct output_kind PAGE = {
    .noun = "page", .owner = "a plan", .option = "--html", .begin = BEGIN};

/* ---- the answer ---- */

static void put_prediction(FILE *file, const struct plan *p)
{
    char rate[TEXT_BYTES];
    const struct hst_prediction *r = &p->t.result.prediction;
    if (r->step_s <= 0) {
        frame_row(file, "step", "not known: %s", r->why);
        return;
    }
    frame_row(file, "step", "%.3g s, at least %.3g s in any order", r->step_s, r->bound_s);
    frame_row(file, "speed", "%s tokens a second",
              text_count((double)p->t.run.batch_tokens / r->step_s, rate));
    frame_row(file, "bounded by", "%s; computation alone is %.0f %% of a step", r->bound_by,
              100 * r->compute_s / r->step_s);
}

static void put_helps(FILE *file, const struct plan *p)
{
    char text[PLAN_HELP_BYTES];
    const struct hst_prediction *r = &p->t.result.prediction;
    for (uint32_t i = 0; i < r->help_count; i++)
        frame_row(file, "what would help", "%s twice as fast: %.3g s a step", r->helps[i].what,
                  r->helps[i].step_s);
    for (uint32_t i = 0; i < p->help_count; i++)
        frame_row(file, "what would help", "%s", plan_help_text(&p->helps[i], text));
    if (plan_lacks_nics(p))
        frame_row(file, "not known", "%s", PLAN_LACKS_NICS);
}

static void put_length(FILE *file, const struct plan *p)
{
    char count[TEXT_BYTES], lasts[PLAN_LASTS_BYTES];
    if (plan_days(p) > 0)
        frame_row(file, "training", "%s tokens take %.3g days",
                  text_count((double)plan_tokens(p), count), plan_days(p));
    if (plan_written_a_day(p) > 0)
        frame_row(file, "drives", "are written %.3g TB a day", plan_written_a_day(p) / 1e12);
    else if (p->tbw > 0)
        frame_row(file, "drives",
                  "are written by versions of the store alone, which are not counted");
    if (plan_years(p) > 0)
        frame_row(file, "drives", "last %s, at %g TBW each", plan_lasts_text(p, lasts), p->tbw);
}

static void put_answer(FILE *file, const struct plan *p)
{
    char count[TEXT_BYTES];
    const struct llama_run *run = &p->t.run;
    fputs("<table>\n", file);
    frame_row(file, "model", "%s", p->model);
    if (p->machine->name[0])
        frame_row(file, "machine", "%s: %s", p->machine->name, p->machine->about);
    if (plan_assumes(p))
        frame_row(file, "rates", "some are assumed, and so is how long a step takes");
    frame_row(file, "parameters", "%s", text_count((double)p->t.result.memory.parameters, count));
    frame_row(file, "trains", "in %s on %s, %" PRIu64 " tokens a step, sequences of %" PRIu64,
              p->precision, p->t.device.name, run->batch_tokens, run->seq_len);
    if (train_options_ranks(p->t.options) > 1)
        frame_row(file, "ranks", "%" PRIu32 ", %" PRIu32 " on a node; memory is of one",
                  train_options_ranks(p->t.options), p->locals);
    frame_row(file, "fits", "%s%s", p->fits ? "yes" : "no: ", p->fits ? "" : p->refusal.message);
    if (p->instead && p->instead->t.result.prediction.step_s > 0)
        frame_row(file, "instead", "with %s a step takes %.3g s, bounded by %s",
                  p->t.way_out->options, p->instead->t.result.prediction.step_s,
                  p->instead->t.result.prediction.bound_by);
    if (p->fits) {
        put_prediction(file, p);
        put_helps(file, p);
        put_length(file, p);
    }
    fputs("</table>\n", file);
}

/* ---- memory ---- */

static bool is_shown(const struct hst_memory *memory, int tier)
{
    return memory->budget[tier] > 0 || memory->total[tier] > 0;
}

static void put_cells(FILE *file, const struct hst_memory *m, const char *name,
                      const uint64_t *bytes)
{
    char size[TEXT_BYTES];
    fprintf(file, "<tr><th>%s</th>", name);
    for (int t = 0; t < HST_TIER_COUNT; t++)
        if (is_shown(m, t))
            fprintf(file, "<td>%s</td>", bytes[t] ? text_size(bytes[t], size) : "-");
    fputs("</tr>\n", file);
}

static void put_table(FILE *file, const struct hst_memory *m)
{
    fputs("<table>\n<tr><th></th>", file);
    for (int t = 0; t < HST_TIER_COUNT; t++)
        if (is_shown(m, t))
            fprintf(file, "<th>%s</th>", hst_tier_name((enum hst_tier)t));
    fputs("</tr>\n", file);
    for (int c = 0; c < HST_CLASS_COUNT; c++)
        put_cells(file, m, hst_class_name((enum hst_class)c), m->bytes[c]);
    put_cells(file, m, "total", m->total);
    put_cells(file, m, "budget", m->budget);
    fputs("</table>\n", file);
}

static void put_bar(FILE *file, const struct hst_memory *m, int tier, unsigned row)
{
    char size[TEXT_BYTES], budget[TEXT_BYTES], note[3 * TEXT_BYTES];
    const double whole = fmax((double)m->total[tier], (double)m->budget[tier]);
    double at = 0;
    snprintf(note, sizeof note, "%s of %s", text_size(m->total[tier], size),
             text_size(m->budget[tier], budget));
    strips_name(file, row, hst_tier_name((enum hst_tier)tier), note);
    for (int c = 0; c < HST_CLASS_COUNT; c++) {
        const double part = (double)m->bytes[c][tier] / whole;
        if (part > 0)
            strips_piece(file, row, (unsigned)c, at, at + part, 1);
        at += part;
    }
}

static void put_bars(FILE *file, const struct hst_memory *m)
{
    const char *keys[HST_CLASS_COUNT + 1] = {NULL};
    unsigned rows = 0, row = 0;
    for (int c = 0; c < HST_CLASS_COUNT; c++)
        keys[c] = hst_class_name((enum hst_class)c);
    for (int t = 0; t < HST_TIER_COUNT; t++)
        rows += is_shown(m, t);
    strips_begin(file, "Memory, each bar a budget", rows, keys);
    for (int t = 0; t < HST_TIER_COUNT; t++)
        if (is_shown(m, t))
            put_bar(file, m, t, row++);
    strips_end(file);
}

/* ---- a step ---- */

#define BINS   360u
#define LEVELS 4 /* of opacity: pieces as busy as their neighbours are one */

/* Who computes has three rows. */
static const char *const rows[] = {"read",    "write",     "h2d",      "d2h",    "net",
                                   "forward", "recompute", "backward", "update", "gpu update"};
enum { ROWS = sizeof rows / sizeof *rows };

struct step {
    double seconds, busy_s[ROWS][BINS], all_s[ROWS];
};

static int row_of(const struct hst_trace_event *event)
{
    const bool computes = strcmp(event->lane, "compute") == 0;
    const char *name = !computes                            ? event->lane
                       : strcmp(event->what, "update") == 0 ? "gpu update"
                                                            : event->what;
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i], name) == 0)
            return i;
    return -1; /* nothing that takes time */
}

static void take_event(void *context, const struct hst_trace_event *event)
{
    struct step *step = context;
    const int row = row_of(event);
    const double each = step->seconds / BINS;
    if (row < 0)
        return;
    step->all_s[row] += event->end_s - event->start_s;
    for (unsigned bin = (unsigned)(event->start_s / each); bin < BINS; bin++) {
        const double from = fmax(event->start_s, bin * each);
        const double to = fmin(event->end_s, (bin + 1) * each);
        if (from >= event->end_s)
            break;
        step->busy_s[row][bin] += fmax(to - from, 0);
    }
}

static int level_of(const struct step *step, int row, unsigned bin)
{
    const double share = step->busy_s[row][bin] * BINS / step->seconds;
    return (int)ceil(fmin(share, 1) * LEVELS - 1e-6);
}

static void put_lane(FILE *file, const struct step *step, int row, unsigned at)
{
    char note[48];
    snprintf(note, sizeof note, "%.3g s, %.0f %%", step->all_s[row],
             100 * step->all_s[row] / step->seconds);
    strips_name(file, at, rows[row], note);
    for (unsigned bin = 0, end; bin < BINS; bin = end) {
        const int level = level_of(step, row, bin);
        for (end = bin + 1; end < BINS && level_of(step, row, end) == level;)
            end++;
        if (level > 0)
            strips_piece(file, at, (unsigned)row % 6, (double)bin / BINS, (double)end / BINS,
                         (double)level / LEVELS);
    }
}

static int put_step(FILE *file, const struct plan *p)
{
    unsigned count = 0, at = 0;
    struct step *step = p->fits ? calloc(1, sizeof *step) : NULL;
    if (!p->fits || p->t.result.prediction.step_s <= 0) {
        free(step);
        return 0;
    }
    if (!step)
        return -ENOMEM;
    step->seconds = p->t.result.prediction.step_s;
    const int native = hst_engine_timeline(p->t.engine, &p->t.rates, take_event, step);
    for (int row = 0; row < ROWS; row++)
        count += step->all_s[row] > 0;
    strips_begin(file, "A step, simulated: how busy each lane is", count, NULL);
    for (int row = 0; row < ROWS; row++)
        if (step->all_s[row] > 0)
            put_lane(file, step, row, at++);
    strips_end(file);
    free(step);
    return native;
}

/* ---- what it rests on ---- */

static void put_rates(FILE *file, const struct hst_rates *rates)
{
    const uint64_t now_ms = rates_now_ms();
    char age[TEXT_BYTES];
    fputs("<table>\n", file);
    for (int r = 0; r < HST_RATE_COUNT; r++)
        if (rates->figures[r].value > 0)
            frame_row(file, hst_rate_name((enum hst_rate)r), "%.4g %s, %s", rates->figures[r].value,
                      hst_rate_unit((enum hst_rate)r),
                      rates_figure_text(rates, (enum hst_rate)r, now_ms, age));
    if (rates->disturbed[0])
        frame_row(file, "disturbed", "%s while the rates were measured: they may be too low",
                  rates->disturbed);
    fputs("</table>\n", file);
}

static bool is_plain(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_=./,:+%@";
    return *text && text[strspn(text, plain)] == '\0';
}

/* As a shell takes it: what cannot be shown is an escape between $' and '. */
static void put_argument(FILE *file, const char *text)
{
    const bool shown = utf8_all_shown(text, strlen(text));
    putc(' ', file);
    if (is_plain(text)) {
        frame_text(file, text);
        return;
    }
    fputs(shown ? "&#39;" : "$&#39;", file);
    for (size_t left = strlen(text), taken; left; text += taken, left -= taken) {
        char part[8] = "";
        taken = utf8_shown(text, left);
        taken = taken ? taken : 1;
        memcpy(part, text, taken < sizeof part ? taken : 1);
        if (*text == '\'')
            fputs(shown ? "&#39;\\&#39;&#39;" : "\\&#39;", file);
        else if (*text == '\\' && !shown)
            fputs("\\\\", file);
        else if (utf8_shown(text, left) == 0)
            fprintf(file, "\\%03o", (unsigned char)*text);
        else
            frame_text(file, part);
    }
    fputs("&#39;", file);
}

static void put_command(FILE *file, const struct plan *p)
{
    fputs("<p>The same again:</p>\n<pre style=\"white-space:pre-wrap\">hoistway plan", file);
    for (int i = 0; i < p->argument_count; i++)
        put_argument(file, p->arguments[i]);
    fputs("</pre>\n", file);
}

static int put_page(FILE *file, const struct plan *p)
{
    frame_begin(file, BEGIN, p->model, "A plan of hoistway");
    put_answer(file, p);
    put_bars(file, &p->t.result.memory);
    put_table(file, &p->t.result.memory);
    const int native = put_step(file, p);
    put_rates(file, &p->t.rates);
    put_command(file, p);
    frame_end(file);
    return native;
}

/* ---- the file ---- */

int plan_page_check(const char *path, struct hst_error *error)
{
    return output_check(&PAGE, path, error);
}

int plan_page_write(const struct plan *p, const char *path, struct hst_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = NULL, *memory = path ? open_memstream(&text, &bytes) : NULL;
    if (!path)
        return 0;
    int native = memory ? put_page(memory, p) : -ENOMEM;
    if (memory && fclose(memory))
        native = -ENOMEM;
    if (native)
        native = fail(error, FAIL_BUDGET, native,
                      "no memory for the page of --html. Fix: leave it "
                      "out.");
    native = native ? native : output_open(&PAGE, path, &file, error);
    if (!native && frame_replace(file, text, bytes))
        native = output_unwritable(&PAGE, path, error);
    if (file && fclose(file) && !native)
        native = output_unwritable(&PAGE, path, error);
    free(text);
    return native;
}
