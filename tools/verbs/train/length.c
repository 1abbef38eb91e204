/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file decides how long a run is, in what sequences, and at what learning rates, where the
 * data decides it: what was not given fits data that is short, what was given is never changed.
 */
#include "base/text.h"
#include "cli/message/message.h"
#include "verbs/train/config.h"
#include "verbs/train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* Whole sequences, as many in each way; none comes twice in one step where there are enough. */
static uint64_t default_batch(uint64_t wish, uint64_t unit, uint64_t most)
{
    const uint64_t held = wish / unit, units = held < most ? held : most;
    return unit * (units ? units : 1);
}

/* The longest sequence that the data has, and as many of it as the default batch holds. */
static int settle_sequences(struct train *t)
{
    struct train_options *o = &t->settled;
    const uint64_t length = data_seq_len(t->data), wish = o->engine.batch_tokens;
    const uint32_t ways = train_options_ways(o);
    const uint64_t unit = length * ways;
    const bool same = length == o->seq_len;
    int native = same ? train_options_check_batch(o, t->error) : 0;
    if (native)
        return native;
    o->seq_len = length;
    if (o->default_batch)
        o->engine.batch_tokens = default_batch(wish, unit, data_sequence_count(t->data) / ways);
    if (same && o->engine.batch_tokens == wish)
        return 0;
    char near[TRAIN_NEAR_BYTES], in_ways[TRAIN_NEAR_BYTES];
    if (o->engine.batch_tokens % unit != 0)
        return fail(t->error, FAIL_VALUE, -EINVAL,
                    "--batch-tokens %" PRIu64 " is not a multiple of %" PRIu64
                    ", the longest sequence of the data's %" PRIu64
                    " tokens%s. Fix: --batch-tokens %s, or a smaller --seq-len.",
                    o->engine.batch_tokens, length, data_token_count(t->data),
                    train_ways_words(ways, in_ways),
                    train_batch_near(o->engine.batch_tokens, unit, near));
    if (!o->quiet)
        cli_note(CLI_VALUE,
                 "the data has %" PRIu64 " tokens: --seq-len is %" PRIu64
                 ", --batch-tokens %" PRIu64 ".",
                 data_token_count(t->data), length, o->engine.batch_tokens);
    return 0;
}

static int settle_steps(struct train *t)
{
    struct train_options *o = &t->settled;
    if (o->steps > 0)
        return 0;
    const uint64_t sequences = data_sequence_count(t->data);
    const double steps =
        schedule_epoch_steps(o->epochs, sequences, o->engine.batch_tokens / o->seq_len);
    if (steps > TRAIN_MOST_STEPS)
        return fail(t->error, FAIL_VALUE, -EINVAL,
                    "--epochs %g over %" PRIu64
                    " %s%s are %g steps, more than %g. Fix: fewer --epochs, or a larger "
                    "--batch-tokens.",
                    o->epochs, sequences, data_packing(t->data) ? "row" : "sequence",
                    text_s(sequences), steps, TRAIN_MOST_STEPS);
    o->steps = (uint64_t)steps;
    return 0;
}

double train_fill(const struct data_packing *packing, uint64_t seq_len)
{
    return (double)packing->input_count / ((double)packing->row_count * (double)seq_len);
}

static void tell_packing(const struct train *t)
{
    const struct data_packing *p = data_packing(t->data);
    char longer[128] = "", idle[96] = "";
    if (!p || t->options->quiet)
        return;
    if (p->long_count)
        snprintf(longer, sizeof longer,
                 "; %" PRIu64 " longer one%s (--long %s), %" PRIu64 " input%s left out",
                 p->long_count, text_s(p->long_count), train_long_name(p->longer), p->lost_count,
                 text_s(p->lost_count));
    if (p->idle_count)
        snprintf(idle, sizeof idle, "; %" PRIu64 " row%s without a target left out", p->idle_count,
                 text_s(p->idle_count));
    cli_note(CLI_PACKED,
             "%" PRIu64 " document%s %s %" PRIu64 " row%s of %" PRIu64 ", %.2f %% full%s%s.",
             p->document_count, text_s(p->document_count),
             p->apart ? "by themselves are" : "are packed into", p->row_count, text_s(p->row_count),
             t->options->seq_len, 100 * train_fill(p, t->options->seq_len), longer, idle);
}

static void tell_passes(const struct train *t)
{
    const struct train_options *o = t->options;
    const uint64_t sequences = data_sequence_count(t->data);
    const double passes =
        (double)o->steps * (double)(o->engine.batch_tokens / o->seq_len) / (double)sequences;
    if (passes > 1 && !o->quiet)
        cli_note(CLI_PASSES,
                 "%" PRIu64 " tokens are %" PRIu64 " %s%s: the run passes over %s %.1f times.",
                 data_token_count(t->data), sequences, data_packing(t->data) ? "row" : "sequence",
                 text_s(sequences), sequences == 1 ? "it" : "them", passes);
}

int train_settle(struct train *t)
{
    t->settled = *t->options;
    t->options = &t->settled;
    int native = settle_sequences(t);
    if (!native)
        tell_packing(t);
    if (native || (t->settled.steps == 0 && t->settled.epochs == 0))
        return native;
    native = settle_steps(t);
    native = native ? native : train_options_schedule(&t->settled, &t->schedule, t->error);
    native = native ? native : train_config_scheduler(&t->settled, &t->peer, t->error);
    if (!native)
        tell_passes(t);
    return native;
}
