/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides data into what is trained on and what is evaluated on. The draws are part of what a run
 * means: a changed constant changes every run with --eval-split.
 */
#include "data/split.h"

#include "data/order.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define FIRST_RUNS 64u

/* The split draws from the order of a pass that no run makes. */
#define SPLIT_STREAM UINT64_MAX

struct data_split data_split_of(const struct data_config *config)
{
    return (struct data_split){
        .share = config->split,
        .side = config->side,
        .seed = config->seed,
        .seq_len = config->seq_len,
    };
}

bool data_split_draw(uint64_t seed, double share, uint64_t document)
{
    const uint64_t drawn = data_order_draw(seed, SPLIT_STREAM, document);
    return (double)(drawn >> 11) * 0x1p-53 < share;
}

struct data_part data_split_document(struct data_split *s, uint64_t count)
{
    const bool evaluated = data_split_draw(s->seed, s->share, s->documents++);
    const bool has = s->share <= 0 || evaluated == (s->side == DATA_EVALUATED);
    const struct data_part part = {s->from, has ? count : 0};
    s->from += count;
    return part;
}

struct data_part data_split_rows(struct data_split *s, uint64_t count)
{
    const uint64_t from = s->from;
    s->from += count;
    if (s->share <= 0)
        return (struct data_part){from, count};
    const uint64_t sequences = (count - 1) / s->seq_len;
    const uint64_t kept = sequences - (uint64_t)llround(s->share * (double)sequences);
    const uint64_t cut = kept * s->seq_len;
    const bool all = kept == sequences; /* what is behind the last sequence too */
    if (s->side == DATA_EVALUATED)
        return (struct data_part){from + cut, all ? 0 : count - cut};
    return (struct data_part){from, all ? count : kept == 0 ? 0 : cut + 1};
}

int data_runs_add(struct data_runs *runs, const struct data_part *part)
{
    const struct data_run *last = runs->count ? &runs->runs[runs->count - 1] : NULL;
    const bool follows = last && last->from + (runs->tokens - last->at) == part->from;
    if (part->count == 0)
        return 0;
    if (!follows && (!runs->runs || runs->count == runs->capacity)) {
        const size_t capacity = runs->capacity ? 2 * runs->capacity : FIRST_RUNS;
        struct data_run *more = realloc(runs->runs, capacity * sizeof *more);
        if (!more)
            return -ENOMEM;
        runs->runs = more;
        runs->capacity = capacity;
    }
    if (!follows)
        runs->runs[runs->count++] = (struct data_run){part->from, runs->tokens};
    runs->tokens += part->count;
    return 0;
}

size_t data_runs_find(const struct data_runs *runs, uint64_t at)
{
    size_t low = 0, high = runs->count; /* runs[low].at <= at < runs[high].at */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (runs->runs[middle].at <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint64_t data_runs_place(const struct data_runs *runs, uint64_t at)
{
    const struct data_run *run = &runs->runs[data_runs_find(runs, at)];
    return run->from + (at - run->at);
}

uint64_t data_runs_left(const struct data_runs *runs, size_t run, uint64_t at)
{
    return (run + 1 < runs->count ? runs->runs[run + 1].at : runs->tokens) - at;
}

void data_runs_free(struct data_runs *runs)
{
    free(runs->runs);
    *runs = (struct data_runs){0};
}
