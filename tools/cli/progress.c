/* SPDX-License-Identifier: Apache-2.0 */
/* Decides when and how a run shows where it is; see progress.h. */
#include "cli/progress.h"

#include "cli/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define INTERVAL_S          10.0
#define TERMINAL_INTERVAL_S 0.1

struct stall {
    const char *name;
    double seconds;
};

static struct stall greatest_stall(const struct hst_step_stats *stats)
{
    const struct stall all[] = {{"nvme", stats->stall_s.nvme},
                                {"copy", stats->stall_s.copy},
                                {"update", stats->stall_s.update},
                                {"net", stats->stall_s.net}};
    struct stall greatest = all[0];
    for (size_t i = 1; i < sizeof all / sizeof all[0]; i++)
        if (all[i].seconds > greatest.seconds)
            greatest = all[i];
    return greatest;
}

void progress_format(const struct step_report *step, char line[PROGRESS_LINE_BYTES])
{
    char rate[TEXT_BYTES], eta[TEXT_BYTES];
    struct stall stall = greatest_stall(step->stats);
    double seconds = fmax(step->stats->seconds, 1e-9);
    double left = step->elapsed_s / (double)step->step * (double)(step->steps - step->step);
    char norm[64];
    if (step->stats->skipped && step->scaled)
        snprintf(norm, sizeof norm, "skipped at loss scale %.10g", step->stats->loss_scale);
    else if (step->stats->skipped)
        snprintf(norm, sizeof norm, "skipped, norm %.3g", step->stats->grad_norm);
    else
        snprintf(norm, sizeof norm, "norm %.3g", step->stats->grad_norm);
    snprintf(line, PROGRESS_LINE_BYTES,
             "step %" PRIu64 "/%" PRIu64 " %.0f%% | loss %.4g | %s | %s tok/s | stall %s %.0f%% | "
             "eta %s",
             step->step, step->steps, 100.0 * (double)step->step / (double)step->steps, step->loss,
             norm, text_count((double)step->tokens / seconds, rate), stall.name,
             100.0 * stall.seconds / seconds, text_duration(left, eta));
}

bool progress_due(const struct step_report *step, double last_s)
{
    return step->step == 1 || step->step == step->steps || step->elapsed_s - last_s >= INTERVAL_S;
}

void progress_init(struct progress *progress, bool quiet)
{
    *progress = (struct progress){.quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1};
}

/* A line longer than the terminal would wrap, and could not be rewritten. */
static int terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20)
        return PROGRESS_LINE_BYTES;
    return size.ws_col - 1;
}

static void show(struct progress *progress, const char *line, bool last)
{
    if (!progress->terminal) {
        fprintf(stderr, "%s\n", line);
        return;
    }
    fprintf(stderr, "\r%.*s\033[K", terminal_columns(), line);
    progress->line_open = true;
    if (last)
        progress_interrupt(progress);
}

void progress_show(struct progress *progress, const struct step_report *step)
{
    char line[PROGRESS_LINE_BYTES];
    if (progress->quiet || (!progress->terminal && !progress_due(step, progress->last_s)))
        return;
    progress->last_s = step->elapsed_s;
    progress_format(step, line);
    show(progress, line, step->step == step->steps);
}

void progress_bytes_format(const struct byte_report *report, char line[PROGRESS_LINE_BYTES])
{
    char done[TEXT_BYTES], total[TEXT_BYTES], rate[TEXT_BYTES], eta[TEXT_BYTES];
    const double per_s = (double)report->done_bytes / fmax(report->elapsed_s, 1e-9);
    const double left = (double)(report->total_bytes - report->done_bytes) / fmax(per_s, 1e-9);
    snprintf(line, PROGRESS_LINE_BYTES, "%.100s %s of %s %.0f%% | %s/s | eta %s", report->what,
             text_size(report->done_bytes, done), text_size(report->total_bytes, total),
             100.0 * (double)report->done_bytes / fmax((double)report->total_bytes, 1),
             text_size((uint64_t)per_s, rate), text_duration(left, eta));
}

void progress_bytes(struct progress *progress, const struct byte_report *report)
{
    char line[PROGRESS_LINE_BYTES];
    const bool last = report->done_bytes == report->total_bytes;
    const double interval_s = progress->terminal ? TERMINAL_INTERVAL_S : INTERVAL_S;
    if (progress->quiet || (!last && report->elapsed_s - progress->last_s < interval_s))
        return;
    progress->last_s = last ? 0 : report->elapsed_s; /* what comes next has a clock of its own */
    progress_bytes_format(report, line);
    show(progress, line, last);
}

void progress_interrupt(struct progress *progress)
{
    if (progress->line_open)
        fputc('\n', stderr);
    progress->line_open = false;
}
