/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file reads a rank's part of a batch. Where rows may have a mask all ranks read all of them:
 * so each of them counts the targets of the whole, without a message.
 */
#include "verbs/train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

int train_batch_reserve(struct train *t)
{
    const bool packed = t->run.documents || t->run.evaluates_other;
    const size_t tokens = (size_t)(packed ? t->run.batch_tokens : t->part.tokens);
    uint32_t *block = malloc(tokens * (packed ? 4 : 2) * sizeof *block);
    if (!block)
        return fail(t->error, FAIL_BUDGET, -ENOMEM,
                    "no memory for the %" PRIu64 " tokens of a step. Fix: a smaller "
                    "--batch-tokens.",
                    t->run.batch_tokens);
    t->batch = (struct data_batch){
        .inputs = block,
        .targets = block + tokens,
        .first = packed ? block + 2 * tokens : NULL,
        .position = packed ? block + 3 * tokens : NULL,
    };
    return 0;
}

struct llama_batch train_batch_part(const struct train *t)
{
    const struct data_batch *rows = &t->batch;
    const uint64_t first = t->part.first_token;
    return (struct llama_batch){.inputs = rows->inputs + first,
                                .targets = rows->targets + first,
                                .first = rows->first + first,
                                .position = rows->position + first};
}

uint64_t train_batch_targets(const struct train *t, uint64_t rows)
{
    uint64_t found = 0;
    for (uint64_t i = 0; i < rows * t->options->seq_len; i++)
        found += t->batch.targets[i] != DATA_NO_TARGET;
    return found;
}

int train_batch_read(struct train *t, uint64_t number, struct llama_batch *batch)
{
    const uint64_t length = t->options->seq_len, rows = t->run.batch_tokens / length;
    const uint64_t first = t->part.first_token / length, position = (number - 1) * rows;
    const struct data_batch *to = &t->batch;
    int native;
    if (!t->run.documents) {
        native = data_read(t->data, position + first, t->part.tokens / length, to, t->error);
        *batch = (struct llama_batch){
            .inputs = to->inputs, .targets = to->targets, .target_count = t->run.batch_tokens};
        return native;
    }
    native = data_read(t->data, position, rows, to, t->error);
    *batch = train_batch_part(t);
    batch->target_count = native ? 0 : train_batch_targets(t, rows);
    return native;
}
