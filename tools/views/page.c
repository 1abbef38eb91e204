/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a page tells of a run, in which order. */
#include "views/page.h"

#include "base/text.h"
#include "cli/log/output.h"
#include "views/chart.h"
#include "views/frame.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define BEGIN "<!DOCTYPE html><!-- a run of hoistway -->"

static const struct output_kind PAGE = {.noun = "page", .option = "--html", .begin = BEGIN};

static const struct chart charts[] = {
    {.title = "Loss",
     .line_count = 2,
     .lines = {{"trained", LOSS, false}, {"evaluated", EVAL_LOSS, true}}},
    {.title = "Learning rate", .from_zero = true, .line_count = 1, .lines = {{"lr", LR}}},
    {.title = "Gradient norm, before clipping",
     .from_zero = true,
     .line_count = 1,
     .lines = {{"norm", GRAD_NORM}}},
    {.title = "Tokens per second",
     .unit = CHART_COUNT,
     .from_zero = true,
     .line_count = 1,
     .lines = {{"tok/s", TOK_S}}},
    {.title = "Seconds of a step, and of them waited for",
     .unit = CHART_SECONDS,
     .from_zero = true,
     .line_count = 6,
     .lines = {{"step", SECONDS},
               {"least possible", BOUND_S},
               {"drives", STALL_NVME},
               {"copies", STALL_COPY},
               {"update", STALL_UPDATE},
               {"network", STALL_NET}}},
    {.title = "Lanes, bytes moved per second",
     .unit = CHART_BYTES_PER_S,
     .per_second = true,
     .from_zero = true,
     .line_count = 5,
     .lines = {{"read from drives", NVME_READ},
               {"written to drives", NVME_WRITE},
               {"to the GPU", H2D},
               {"from the GPU", D2H},
               {"network", NET}}},
    {.title = "Memory, greatest use",
     .unit = CHART_BYTES,
     .from_zero = true,
     .line_count = 4,
     .lines =
         {{"GPU", PEAK_HBM}, {"RAM", PEAK_DRAM}, {"drives", PEAK_NVME}, {"GPU, left", HBM_FREE}}},
    {.title = "Loss scale", .unit = CHART_COUNT, .line_count = 1, .lines = {{"scale", LOSS_SCALE}}},
};

/* ---- text ---- */

static void put_end(FILE *file, const struct facts *facts)
{
    if (!facts->complete)
        frame_row(file, "end", "not ended: the run goes on, was stopped or was killed");
    else if (facts->predicted_step_s > 0)
        frame_row(file, "end", "ended: %.3g s a step, predicted %.3g s%s%s", facts->step_s,
                  facts->predicted_step_s, facts->bound_by[0] ? ", bound by " : "",
                  facts->bound_by);
    else
        frame_row(file, "end", "ended: %.3g s a step", facts->step_s);
}

static void put_evaluations(FILE *file, const struct facts *facts)
{
    const struct facts_evaluation *last = &facts->last_evaluation, *best = &facts->best_evaluation;
    char text[FACTS_TEXT_BYTES];
    if (facts->evaluations)
        frame_row(file, "evaluated", "%" PRIu64 " time%s, last after step %" PRIu64 ": %s",
                  facts->evaluations, text_s(facts->evaluations), last->step,
                  facts_evaluation_text(last, text));
    if (best->step)
        frame_row(file, "best", "after step %" PRIu64 ": %s", best->step,
                  facts_evaluation_text(best, text));
}

static void put_facts(FILE *file, const struct facts *facts)
{
    fputs("<table>\n", file);
    frame_row(file, "model", "%s", facts->model);
    frame_row(file, "data", "%s", facts->data);
    frame_row(file, "store", "%s", facts->store);
    frame_row(file, "trains", "in %s on %s, %" PRIu64 " token%s a step", facts->precision,
              facts->device, facts->batch_tokens, text_s(facts->batch_tokens));
    if (facts->steps)
        frame_row(file, "step", "%" PRIu64 " of %" PRIu64 ", loss %.4f to %.4f", facts->last_step,
                  facts->wanted, facts->first_loss, facts->last_loss);
    else
        frame_row(file, "step", "none of %" PRIu64 " yet", facts->wanted);
    put_evaluations(file, facts);
    if (facts->committed)
        frame_row(file, "last version", "of step %" PRIu64, facts->committed);
    if (facts->runs > 1)
        frame_row(file, "resumed", "%" PRIu64 " time%s", facts->runs - 1, text_s(facts->runs - 1));
    put_end(file, facts);
    if (facts->odd_lines)
        frame_row(file, "log", "%" PRIu64 " line%s of it no whole line of a log", facts->odd_lines,
                  facts->odd_lines == 1 ? " is" : "s are");
    fputs("</table>\n", file);
}

static void put_charts(FILE *file, const struct facts *facts, const struct history *history)
{
    const struct facts_evaluation *best = &facts->best_evaluation;
    char name[64];
    const struct chart_mark mark = {EVAL_LOSS, best->step, best->loss, name};
    snprintf(name, sizeof name, "best, after step %" PRIu64, best->step);
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++)
        (void)chart_put(file, &charts[i], history, best->step ? &mark : NULL);
}

static void put_page(FILE *file, const struct facts *facts, const struct history *history)
{
    frame_begin(file, BEGIN, facts->model, "A run of hoistway");
    put_facts(file, facts);
    put_charts(file, facts, history);
    fprintf(file, "<p>Over each chart's width: the steps of the run.");
    if (history->stride > 1)
        fprintf(file, " Each point is the mean of %" PRIu64 " steps.", history->stride);
    fputs("</p>\n", file);
    frame_end(file);
}

/* ---- the file ---- */

int html_check(const char *path, struct hst_error *error)
{
    return output_check(&PAGE, path, error);
}

int html_open(struct page *page, const char *path, struct hst_error *error)
{
    *page = (struct page){.path = path};
    if (!path)
        return 0;
    page->history = calloc(1, sizeof *page->history);
    if (!page->history)
        return fail(error, FAIL_BUDGET, -ENOMEM,
                    "no memory for the page of --html. Fix: leave it "
                    "out.");
    const int native = output_open(&PAGE, path, &page->file, error);
    if (native)
        html_close(page);
    return native;
}

void html_take(struct page *page, const struct record *record)
{
    if (page->file)
        history_take(page->history, record);
}

int html_write(struct page *page, const struct facts *facts, struct hst_error *error)
{
    if (!page->file)
        return 0;
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory)
        put_page(memory, facts, page->history);
    if (!memory || fclose(memory) || frame_replace(page->file, text, bytes)) {
        const int native = output_unwritable(&PAGE, page->path, error);
        free(text);
        html_close(page);
        return native;
    }
    free(text);
    return 0;
}

void html_close(struct page *page)
{
    if (page->file)
        fclose(page->file);
    free(page->history);
    page->file = NULL;
    page->history = NULL;
}
