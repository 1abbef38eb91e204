/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a page tells of a run, in which order. */
#include "views/page.h"

#include "base/text.h"
#include "cli/log/output.h"
#include "views/chart.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark}\n"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em}\n"
    "h1{font-size:1.3em}th{text-align:left;font-weight:normal;opacity:.7;padding-right:1.5em;"
    "vertical-align:top}td{overflow-wrap:anywhere}\n"
    "figure{margin:1.5em 0}figcaption span{margin-left:1em;white-space:nowrap;font-size:.85em}\n"
    "svg{width:100%;height:auto}svg text{font-size:11px;fill:currentColor;opacity:.75}\n"
    ".grid{stroke:currentColor;opacity:.15}\n"
    ".line{fill:none;stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round}\n"
    ".c0{stroke:#3b7dd8}.c1{stroke:#e07b39}.c2{stroke:#2a9d6f}.c3{stroke:#c8455b}"
    ".c4{stroke:#8e63ce}.c5{stroke:#8a8f98}circle{fill:none;stroke-width:1.6}\n"
    ".k0{color:#3b7dd8}.k1{color:#e07b39}.k2{color:#2a9d6f}.k3{color:#c8455b}"
    ".k4{color:#8e63ce}.k5{color:#8a8f98}\n"
    "</style>\n";

/* ---- text ---- */

/* A name that others gave cannot become a part of the page, or steer a terminal. */
static void put_escaped(FILE *file, const char *name)
{
    struct hst_error line;
    fail(&line, FAIL_USAGE, 0, "%s", name);
    for (const char *text = line.message; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"' || *text == '\'')
            fprintf(file, "&#%d;", *text);
        else
            putc(*text, file);
}

__attribute__((format(printf, 3, 4))) static void put_row(FILE *file, const char *name,
                                                          const char *format, ...)
{
    char text[2 * FACTS_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(file, "<tr><th>%s</th><td>", name);
    put_escaped(file, text);
    fputs("</td></tr>\n", file);
}

static void put_end(FILE *file, const struct facts *facts)
{
    if (!facts->complete)
        put_row(file, "end", "not ended: the run goes on, was stopped or was killed");
    else if (facts->predicted_step_s > 0)
        put_row(file, "end", "ended: %.3g s a step, predicted %.3g s%s%s", facts->step_s,
                facts->predicted_step_s, facts->bound_by[0] ? ", bound by " : "", facts->bound_by);
    else
        put_row(file, "end", "ended: %.3g s a step", facts->step_s);
}

static void put_evaluations(FILE *file, const struct facts *facts)
{
    const struct facts_evaluation *last = &facts->last_evaluation, *best = &facts->best_evaluation;
    char text[FACTS_TEXT_BYTES];
    if (facts->evaluations)
        put_row(file, "evaluated", "%" PRIu64 " time%s, last after step %" PRIu64 ": %s",
                facts->evaluations, text_s(facts->evaluations), last->step,
                facts_evaluation_text(last, text));
    if (best->step)
        put_row(file, "best", "after step %" PRIu64 ": %s", best->step,
                facts_evaluation_text(best, text));
}

static void put_facts(FILE *file, const struct facts *facts)
{
    fputs("<table>\n", file);
    put_row(file, "model", "%s", facts->model);
    put_row(file, "data", "%s", facts->data);
    put_row(file, "store", "%s", facts->store);
    put_row(file, "trains", "in %s on %s, %" PRIu64 " token%s a step", facts->precision,
            facts->device, facts->batch_tokens, text_s(facts->batch_tokens));
    if (facts->steps)
        put_row(file, "step", "%" PRIu64 " of %" PRIu64 ", loss %.4f to %.4f", facts->last_step,
                facts->wanted, facts->first_loss, facts->last_loss);
    else
        put_row(file, "step", "none of %" PRIu64 " yet", facts->wanted);
    put_evaluations(file, facts);
    if (facts->committed)
        put_row(file, "last version", "of step %" PRIu64, facts->committed);
    if (facts->runs > 1)
        put_row(file, "resumed", "%" PRIu64 " time%s", facts->runs - 1, text_s(facts->runs - 1));
    put_end(file, facts);
    if (facts->odd_lines)
        put_row(file, "log", "%" PRIu64 " line%s of it no whole line of a log", facts->odd_lines,
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
    fputs(BEGIN "\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                "style-src 'unsafe-inline'\">\n"
                "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
          file);
    put_escaped(file, facts->model);
    fputs(" - hoistway</title>\n", file);
    fputs(style, file);
    fputs("</head><body>\n<h1>A run of hoistway</h1>\n", file);
    put_facts(file, facts);
    put_charts(file, facts, history);
    fprintf(file, "<p>Over each chart's width: the steps of the run.");
    if (history->stride > 1)
        fprintf(file, " Each point is the mean of %" PRIu64 " steps.", history->stride);
    fputs("</p>\n</body></html>\n", file);
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

/* In place of what is there, and only then cut: a kill leaves no file that is empty. */
static int replace(FILE *file, const char *text, size_t bytes)
{
    struct stat st;
    const bool regular = fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode);
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = regular ? pwrite(fileno(file), text + done, bytes - done, (off_t)done)
                                  : write(fileno(file), text + done, bytes - done);
        if (n < 0 && errno != EINTR)
            return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return regular ? ftruncate(fileno(file), (off_t)bytes) : 0;
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
    if (!memory || fclose(memory) || replace(page->file, text, bytes)) {
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
