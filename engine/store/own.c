/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's own transfers. They have a place of their own and never wait for the room that
 * extents take: what a queue does not take now is offered again at the next progress.
 */
#include "store/store_state.h"

#include <errno.h>

void own_begin(struct store *store)
{
    store->own.count = store->own.submitted = store->own.done = 0;
}

void own_add(struct store *store, uint32_t drive, enum hst_aio_kind kind, uint64_t offset,
             void *buffer, uint64_t bytes)
{
    store->own.ops[store->own.count++] = (struct own_op){
        .drive = drive, .kind = kind, .offset = offset, .buffer = buffer, .bytes = bytes};
}

/* An operation's number, where a transfer of extents has its address. */
bool own_is(const struct hst_aio_completion *completion)
{
    return completion->user < OWN_OPS_MAX;
}

void own_complete(struct store *store, const struct hst_aio_completion *completion)
{
    store->own.ops[completion->user].result = completion->error;
    store->own.done++;
}

bool own_advance(struct store *store)
{
    struct own *own = &store->own;
    while (own->submitted < own->count) {
        struct own_op *op = &own->ops[own->submitted];
        const struct hst_aio_op request = {.kind = op->kind,
                                           .file = store->files[op->drive],
                                           .offset = op->offset,
                                           .buffer = op->buffer,
                                           .bytes = op->bytes,
                                           .user = own->submitted};
        int rc = hst_aio_submit(store->aio[op->drive], &request, 1);
        if (rc == -EAGAIN || rc == 0)
            return false;
        if (rc < 0) {
            op->result = rc;
            own->done++;
        }
        own->submitted++;
    }
    return own->done == own->count;
}

int own_result(const struct store *store)
{
    for (uint32_t i = 0; i < store->own.count; i++)
        if (store->own.ops[i].result)
            return store->own.ops[i].result;
    return 0;
}

int own_wait(struct store *store)
{
    while (!own_advance(store)) {
        int rc = store->extents.ops->progress(&store->extents, UINT64_MAX);
        if (rc)
            return rc;
    }
    return 0;
}
