/* SPDX-License-Identifier: Apache-2.0 */
/* Decides when and how a run shows where it is; see progress.h. */
#include "cli/message/progress.h"

#include "base/text.h"
#include "cli/message/activity.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define INTERVAL_S 10.0

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
    double done = (double)(step->step - step->began);
    double left = step->elapsed_s / done * (double)(step->steps - step->step);
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
    return step->step == step->began + 1 || step->step == step->steps ||
           step->elapsed_s - last_s >= INTERVAL_S;
}

void progress_init(struct progress *progress, bool quiet)
{
    *progress = (struct progress){.quiet = quiet};
}

void progress_show(struct progress *progress, const struct step_report *step)
{
    char line[PROGRESS_LINE_BYTES];
    if (progress->quiet || (!activity_on_terminal() && !progress_due(step, progress->last_s)))
        return;
    progress->last_s = step->elapsed_s;
    progress_format(step, line);
    activity_show(line, step->step == step->steps);
}

void progress_begin(const struct progress *progress, const char *what)
{
    if (!progress->quiet)
        activity_begin(what);
}

void progress_bytes(const struct progress *progress, uint64_t done_bytes, uint64_t total_bytes)
{
    if (!progress->quiet)
        activity_count(done_bytes, total_bytes);
}

void progress_end(const struct progress *progress)
{
    if (!progress->quiet)
        activity_end();
}
