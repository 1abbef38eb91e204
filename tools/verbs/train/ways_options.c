/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how the batch of a run is cut into ways, what ranks can share of it, and which sizes it
 * has where none were given.
 */
#include "verbs/train/train.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_BATCH_TOKENS 4096
#define DEFAULT_SEQ_LEN      1024
#define RANKS_TEXT_BYTES     256u /* at most 33 numbers, whose digits are 170 */

/* ---- sizes ---- */

uint32_t train_options_ranks(const struct train_options *options)
{
    return options->engine.launch ? options->engine.launch->ranks : 1;
}

bool train_options_other(const struct train_options *options)
{
    return options->engine.launch && options->engine.launch->rank > 0;
}

uint32_t train_options_ways(const struct train_options *options)
{
    return options->engine.ways ? options->engine.ways : train_options_ranks(options);
}

/* Each of several ways has a sequence at least, and all have as many. */
static uint64_t default_batch_of(uint64_t seq_len, uint32_t ways)
{
    const uint64_t least = seq_len * ways, held = DEFAULT_BATCH_TOKENS / least;
    return ways == 1 ? DEFAULT_BATCH_TOKENS : least * (held ? held : 1);
}

void train_options_complete(struct train_options *options)
{
    uint64_t *batch = &options->engine.batch_tokens;
    const uint32_t ways = train_options_ways(options);
    options->default_batch = options->default_batch || *batch == 0;
    options->default_seq_len = options->default_seq_len || options->seq_len == 0;
    const uint64_t way = options->default_batch ? DEFAULT_SEQ_LEN : *batch / ways;
    if (options->default_seq_len)
        options->seq_len = way < DEFAULT_SEQ_LEN && way > 0 ? way : DEFAULT_SEQ_LEN;
    if (options->default_batch)
        *batch = default_batch_of(options->seq_len, ways);
}

const char *train_batch_near(uint64_t batch, uint64_t unit, char text[TRAIN_NEAR_BYTES])
{
    const uint64_t below = batch / unit * unit;
    if (below > 0)
        snprintf(text, TRAIN_NEAR_BYTES, "%" PRIu64 " or %" PRIu64, below, below + unit);
    else
        snprintf(text, TRAIN_NEAR_BYTES, "%" PRIu64, unit);
    return text;
}

const char *train_ways_words(uint32_t ways, char text[TRAIN_NEAR_BYTES])
{
    text[0] = '\0';
    if (ways > 1)
        snprintf(text, TRAIN_NEAR_BYTES, " in each of %" PRIu32 " ways", ways);
    return text;
}

/* ---- what ranks can share ---- */

static bool is_power_of_two(uint32_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static int check_hop(const struct train_options *o, struct hst_error *error)
{
    uint32_t below = 1;
    while (below <= o->engine.hop / 2)
        below *= 2;
    if (o->engine.hop == 0 || below == o->engine.hop)
        return 0;
    return fail(error, FAIL_VALUE, -EINVAL,
                "--hop %" PRIu32 " is no power of two. Fix: --hop %" PRIu32 " or %" PRIu32 ".",
                o->engine.hop, below, 2 * below);
}

/* text ← "1, 2 or 4": all numbers of ranks that can share so many ways. Each has one way, or a
   power of two, and one process has any number. */
static const char *ranks_that_can(uint32_t ways, char text[RANKS_TEXT_BYTES])
{
    uint32_t least = ways;
    size_t n = 0;
    while (least % 2 == 0)
        least /= 2;
    if (least > 1)
        n = (size_t)snprintf(text, RANKS_TEXT_BYTES, "1%s", least < ways ? ", " : " or ");
    for (uint64_t ranks = least; ranks <= ways; ranks *= 2)
        n += (size_t)snprintf(text + n, RANKS_TEXT_BYTES - n, "%" PRIu64 "%s", ranks,
                              ranks == ways       ? ""
                              : 2 * ranks == ways ? " or "
                                                  : ", ");
    return text;
}

/* A rank's ways are a subtree of all of them. */
static int check_ways(const struct train_options *o, struct hst_error *error)
{
    const uint32_t ranks = train_options_ranks(o), ways = train_options_ways(o);
    char can[RANKS_TEXT_BYTES];
    if (ranks == 1 || (ways % ranks == 0 && is_power_of_two(ways / ranks)))
        return 0;
    ranks_that_can(ways, can);
    if (o->store_ways)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "the store has %" PRIu32 " way%s, which %" PRIu32
                    " ranks cannot share: each has one way, or a power of two of them. Fix: %s "
                    "rank%s, or another --store.",
                    ways, ways == 1 ? "" : "s", ranks, can, ways == 1 ? "" : "s");
    return fail(error, FAIL_VALUE, -EINVAL,
                "--ways %" PRIu32 " cannot be shared by %" PRIu32
                " ranks: each has one way, or a power of two of them. Fix: %s rank%s, or "
                "--ways %" PRIu32 " or %" PRIu32 ".",
                ways, ranks, can, ways == 1 ? "" : "s", ranks, 2 * ranks);
}

int train_options_check_ranks(const struct train_options *o, struct hst_error *error)
{
    int native = check_hop(o, error);
    return native ? native : check_ways(o, error);
}

int train_options_check_batch(const struct train_options *o, struct hst_error *error)
{
    const uint64_t batch = o->engine.batch_tokens, length = o->seq_len;
    const uint32_t ways = train_options_ways(o);
    char in_ways[TRAIN_NEAR_BYTES], near[TRAIN_NEAR_BYTES];
    if (batch % (length * ways) == 0)
        return 0;
    const int native = check_ways(o, error); /* with other ways another batch is right */
    if (native)
        return native;
    return fail(error, FAIL_VALUE, -EINVAL,
                "--batch-tokens %" PRIu64 " is not a multiple of --seq-len %" PRIu64
                "%s%s. Fix: --batch-tokens %s.",
                batch, length, train_ways_words(ways, in_ways),
                o->default_seq_len ? ", which was not given" : "",
                train_batch_near(batch, length * ways, near));
}
