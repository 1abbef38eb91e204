/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rates that a run's first steps refute are measured once more. Where bytes live and the plan stay
 * as they were chosen, so that the run's results do not depend on it: what changes is what is
 * predicted, and what the next plan finds in the cache.
 */
#include "base/now.h"
#include "cli/message/message.h"
#include "verbs/train/run.h"

#include <stdio.h>

#define WORTH_S    60.0 /* measuring takes some seconds: what is left of the run takes more */
#define ROOM_BYTES ((uint64_t)640 << 20) /* of host memory, that probes take at most */
#define CARD_BYTES ((uint64_t)4 << 30)   /* the same where a device computes, and of its own */

static uint64_t left_of(const struct train *t, enum hst_tier tier)
{
    const struct hst_memory *m = &t->result.memory;
    return m->budget[tier] > m->total[tier] ? m->budget[tier] - m->total[tier] : 0;
}

/* The run has its memory: probes are to stay within what its budgets leave. */
static bool has_room(const struct train *t)
{
    const uint64_t bytes = t->device.gpu ? CARD_BYTES : ROOM_BYTES;
    return left_of(t, HST_TIER_DRAM) >= bytes &&
           (!t->device.gpu || left_of(t, HST_TIER_HBM) >= bytes);
}

/* It returns what the homes were chosen by, where that was simulated; else what was said after two
 * steps. */
static double predicted_s(const struct train *t, bool *planned)
{
    struct hst_decision d;
    *planned = hst_engine_decision(t->engine, &d) == 0 && d.step_s > 0 &&
               forecast_is_off(d.step_s, t->again.steps_s, TRAIN_AGAIN_STEPS);
    return *planned ? d.step_s : t->result.prediction.step_s;
}

/* The first rate that was known and is not now; HST_RATE_COUNT: none. */
static int lost_of(const struct hst_rates *now, const struct hst_rates *before)
{
    int r = 0;
    while (r < HST_RATE_COUNT && (before->figures[r].value <= 0 || now->figures[r].value > 0))
        r++;
    return r;
}

/* A probe that was stopped, or whose drive is full, takes nothing away: false, and what it lacks,
 * where the rates of before stay. */
static bool measure(struct train *t, bool planned, char *lacks, size_t lacks_bytes)
{
    const struct hst_rates before = t->rates;
    progress_begin(&t->progress, "measuring the machine again");
    if (planned) {
        train_rates_find(t, FORECAST_PROBE);
        forecast_tell_disturbed(&t->rates, NULL);
    }
    train_rates_measure(t, !planned);
    if (!planned)
        forecast_tell_disturbed(&t->rates, NULL);
    const int lost = lost_of(&t->rates, &before);
    if (lost == HST_RATE_COUNT)
        return true;
    const char *why = t->rates.figures[lost].how;
    snprintf(lacks, lacks_bytes, "%s%s%s", hst_rate_name((enum hst_rate)lost), *why ? ": " : "",
             why);
    t->rates = before;
    return false;
}

static void look_again(struct train *t, double left_s)
{
    bool planned;
    char lacks[256];
    const double was_s = predicted_s(t, &planned), step_s = t->again.steps_s[0];
    if (left_s < WORTH_S || !forecast_is_off(was_s, t->again.steps_s, TRAIN_AGAIN_STEPS))
        return;
    if (!has_room(t)) {
        cli_note(CLI_DISTURBED,
                 "a step took %.3g s, %.3g s were predicted. Rates are not measured again, as the "
                 "budgets leave no room for it. Fix: plan --probe when the run has ended.",
                 step_s, was_s);
        return;
    }
    const double begin_s = now_s();
    const bool kept = measure(t, planned, lacks, sizeof lacks);
    if (kept)
        train_predict(t);
    t->again.seconds = now_s() - begin_s;
    if (kept)
        cli_note(CLI_DISTURBED,
                 "a step took %.3g s, %.3g s were predicted: rates were measured again in %.1f s, "
                 "and now %.3g s are predicted. Homes stay as they are.",
                 step_s, was_s, t->again.seconds, t->result.prediction.step_s);
    else
        cli_note(CLI_DISTURBED,
                 "a step took %.3g s, %.3g s were predicted: rates were measured again in %.1f s, "
                 "but not all (%s). The prediction stays that of the rates of before. Fix: plan "
                 "--probe when the run has ended.",
                 step_s, was_s, t->again.seconds, lacks);
}

void train_again_step(struct train *t, uint64_t number, double step_s)
{
    struct train_again *a = &t->again;
    if (number <= t->began + TRAIN_PREDICTED_AFTER || a->count == TRAIN_AGAIN_STEPS ||
        !train_is_told(t) || train_options_ranks(t->options) > 1)
        return;
    a->steps_s[a->count++] = step_s;
    if (a->count == TRAIN_AGAIN_STEPS)
        look_again(t, step_s * (double)(t->options->steps - number));
}
