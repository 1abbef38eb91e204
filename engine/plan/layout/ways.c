/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout/ways.h"

#include <assert.h>

/* ---- micro-batches ---- */

static uint32_t micros_of_way(const struct ways *ways)
{
    return (uint32_t)((ways->tokens + ways->micro_tokens - 1) / ways->micro_tokens);
}

uint32_t ways_micro_count(const struct ways *ways)
{
    return ways->count * micros_of_way(ways);
}

uint32_t ways_of_micro(const struct ways *ways, uint32_t micro)
{
    return micro / micros_of_way(ways);
}

struct hst_micro ways_micro(const struct ways *ways, uint32_t micro)
{
    const uint64_t before = micro % micros_of_way(ways) * ways->micro_tokens;
    const uint64_t left = ways->tokens - before;
    return (struct hst_micro){
        .first_token = ways_of_micro(ways, micro) * ways->tokens + before,
        .tokens = left < ways->micro_tokens ? left : ways->micro_tokens,
    };
}

enum hst_dtype ways_type(const struct ways *ways)
{
    return hst_sum_type(&ways->tree, (struct hst_sum_node){ways->first, ways->count});
}

bool ways_sum_is_wide(const struct hst_sum_tree *tree, uint32_t ways)
{
    const struct hst_sum_node sum = {0, ways};
    const bool narrow = tree->quant != 0 || tree->reduce != HST_F32;
    return narrow && ways < tree->ways && hst_sum_type(tree, sum) == HST_F32 &&
           !hst_sum_quantised(tree, sum);
}

/* ---- the counter ---- */

static uint32_t take_buffer(struct ways_counter *counter)
{
    uint32_t buffer = 0;
    while (buffer < WAYS_SUMS_MOST && counter->taken >> buffer & 1)
        buffer++;
    assert(buffer < WAYS_SUMS_MOST);
    counter->taken |= 1u << buffer;
    return buffer;
}

/* The way that comes next is behind the last sum. */
static uint32_t next_way(const struct ways *ways, const struct ways_counter *counter)
{
    if (counter->count == 0)
        return ways->first;
    const struct hst_sum_node *last = &counter->sum[counter->count - 1].node;
    return last->first + last->count;
}

uint32_t ways_counter_push(const struct ways *ways, struct ways_counter *counter)
{
    assert(counter->count < WAYS_SUMS_MOST);
    const struct hst_sum_node node = {next_way(ways, counter), 1};
    const uint32_t buffer = take_buffer(counter);
    counter->sum[counter->count++] = (struct ways_sum){node, buffer};
    return buffer;
}

bool ways_counter_next(const struct ways *ways, struct ways_counter *counter,
                       struct ways_addition *addition)
{
    const bool all = next_way(ways, counter) == ways->first + ways->count;
    if (counter->count < 2)
        return false;
    struct ways_sum *left = &counter->sum[counter->count - 2];
    const struct ways_sum right = left[1];
    if (left->node.count != right.node.count && !all)
        return false;
    const struct hst_sum_node sum = {left->node.first, left->node.count + right.node.count};
    *addition = (struct ways_addition){.first = sum.first,
                                       .each = left->node.count,
                                       .in = {left->buffer, right.buffer},
                                       .last = sum.count == ways->count,
                                       .out = left->buffer};
    if (!addition->last &&
        hst_sum_type(&ways->tree, sum) != hst_sum_type(&ways->tree, left->node)) {
        addition->out = take_buffer(counter);
        counter->taken &= ~(1u << left->buffer);
    }
    counter->taken &= ~(1u << right.buffer);
    *left = (struct ways_sum){sum, addition->out};
    counter->count--;
    return true;
}

uint32_t ways_buffers(const struct ways *ways)
{
    struct ways_counter counter = {.count = 0};
    uint32_t taken = 0;
    for (uint32_t way = 0; way < ways->count && ways->count > 1; way++) {
        ways_counter_push(ways, &counter);
        taken |= counter.taken;
        struct ways_addition addition;
        while (ways_counter_next(ways, &counter, &addition))
            taken |= counter.taken | 1u << addition.out;
    }
    uint32_t buffers = 0;
    while (taken >> buffers)
        buffers++;
    return buffers;
}
