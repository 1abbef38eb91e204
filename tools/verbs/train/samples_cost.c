/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a run is told of the cost of its samples: each time, and all times together. */
#include "base/text.h"
#include "cli/message/message.h"
#include "verbs/train/run.h"

#include <inttypes.h>
#include <stdio.h>

void train_samples_predict(struct train *t, const struct hst_rates *planned)
{
    struct hst_rates known = t->rates;
    struct hst_prediction p = {0};
    if (!t->samples.list)
        return;
    for (int r = 0; r < HST_RATE_COUNT; r++)
        if (known.figures[r].value <= 0)
            known.figures[r] = planned->figures[r];
    if (hst_engine_predict(t->engine, &known, &p) == 0)
        t->samples.forward_s = p.evaluation_s;
}

/* An evaluation that a run began with may be due once more: see train_evaluate. */
static uint64_t times_of(const struct train *t)
{
    const struct train_evaluation *e = &t->eval;
    if (!e->data)
        return 1;
    return evaluation_count(&e->times, t->began) + (e->due && !evaluation_due(&e->times, t->began));
}

/* ", about 1.2 s"; nothing where that is not known. */
static const char *put_seconds(const struct train_samples *s, uint64_t times, char text[32])
{
    text[0] = '\0';
    if (s->forward_s > 0)
        snprintf(text, 32, ", about %.3g s", s->forward_s * (double)(s->sweeps * times));
    return text;
}

void train_samples_tell_cost(struct train *t)
{
    struct train_samples *s = &t->samples;
    char each[32], whole[32], run[128] = "";
    if (!s->list || t->options->quiet)
        return;
    s->most_times = times_of(t);
    if (s->most_times > 1)
        snprintf(run, sizeof run, "; in this run up to %" PRIu64 " times, %" PRIu64 " forwards%s",
                 s->most_times, s->most_times * s->sweeps, put_seconds(s, s->most_times, whole));
    cli_note(CLI_SAMPLES,
             "--samples %" PRIu64 " of the %" PRIu64 " prompts of %s: %s up to %" PRIu64
             " forward%s over %" PRIu64 " sequence%s of %" PRIu64 "%s%s.",
             s->prompts.count, s->prompts.all, s->prompts.path,
             t->eval.data ? "with each evaluation" : "at the end", s->sweeps, text_s(s->sweeps),
             s->rows, text_s(s->rows), t->options->seq_len, put_seconds(s, 1, each), run);
}

void train_samples_tell_forward(struct train *t, double seconds)
{
    struct train_samples *s = &t->samples;
    char each[32], whole[32], run[96] = "";
    if (s->forward_s > 0)
        return;
    s->forward_s = seconds;
    if (t->options->quiet)
        return;
    if (s->most_times > 1)
        snprintf(run, sizeof run, "%s in the %" PRIu64 " times of this run",
                 put_seconds(s, s->most_times, whole), s->most_times);
    cli_note(CLI_SAMPLES, "a forward of the samples took %.3g s: up to %" PRIu64 " each time%s%s.",
             seconds, s->sweeps, put_seconds(s, 1, each), run);
}
