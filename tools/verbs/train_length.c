/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a run is, in what sequences, and at what learning rates, where the data decides it: what
 * was not given fits data that is short, what was given is never changed.
 */
#include "base/text.h"
#include "cli/message.h"
#include "verbs/train_run.h"

#include <errno.h>
#include <inttypes.h>

/* Whole sequences, and none of them twice in one step. */
static uint64_t default_batch(uint64_t wish, uint64_t length, uint64_t sequences)
{
    const uint64_t held = wish / length;
    return length * (held < sequences ? held : sequences);
}

/* The longest sequence that the data has, and as many of it as the default batch holds. */
static int settle_sequences(struct train *t)
{
    struct train_options *o = &t->settled;
    const uint64_t length = data_seq_len(t->data), wish = o->engine.batch_tokens;
    const bool same = length == o->seq_len;
    int native = same ? train_options_check_batch(o, t->error) : 0;
    if (native)
        return native;
    o->seq_len = length;
    if (o->default_batch)
        o->engine.batch_tokens = default_batch(wish, length, data_sequence_count(t->data));
    if (same && o->engine.batch_tokens == wish)
        return 0;
    if (o->engine.batch_tokens % length != 0)
        return fail(t->error, FAIL_VALUE, -EINVAL,
                    "--batch-tokens %" PRIu64 " is not a multiple of %" PRIu64
                    ", the longest sequence of the data's %" PRIu64
                    " tokens. Fix: --batch-tokens %" PRIu64 ", or a smaller --seq-len.",
                    o->engine.batch_tokens, length, data_token_count(t->data),
                    (o->engine.batch_tokens / length + 1) * length);
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
                    " sequence%s are %g steps, more than %g. Fix: fewer "
                    "--epochs, or a larger --batch-tokens.",
                    o->epochs, sequences, text_s(sequences), steps, TRAIN_MOST_STEPS);
    o->steps = (uint64_t)steps;
    return 0;
}

static void tell_passes(const struct train *t)
{
    const struct train_options *o = t->options;
    const uint64_t sequences = data_sequence_count(t->data);
    const double passes =
        (double)o->steps * (double)(o->engine.batch_tokens / o->seq_len) / (double)sequences;
    if (passes > 1 && !o->quiet)
        cli_note(CLI_PASSES,
                 "%" PRIu64 " tokens are %" PRIu64 " sequence%s: the run passes over %s %.1f "
                 "times.",
                 data_token_count(t->data), sequences, text_s(sequences),
                 sequences == 1 ? "it" : "them", passes);
}

int train_settle(struct train *t)
{
    t->settled = *t->options;
    t->options = &t->settled;
    int native = settle_sequences(t);
    native = native ? native : settle_steps(t);
    native = native ? native : train_options_schedule(&t->settled, &t->schedule, t->error);
    if (!native)
        tell_passes(t);
    return native;
}
