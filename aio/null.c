/* SPDX-License-Identifier: Apache-2.0 */
/* The null backend: every request is complete as soon as it is asked about. Moves nothing. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

struct null {
    uint32_t count;
    struct piece *queue[]; /* piece_capacity */
};

static int null_open(struct hst_aio *aio, const char **step)
{
    *step = "memory";
    aio->state = calloc(1, sizeof(struct null) + aio->piece_capacity * sizeof(struct piece *));
    aio->piece_limit = aio->piece_capacity;
    return aio->state ? 0 : -ENOMEM;
}

static void null_close(struct hst_aio *aio)
{
    free(aio->state);
}

static void null_push(struct hst_aio *aio, struct piece *piece)
{
    struct null *null = aio->state;
    piece->result = (int)piece->bytes;
    null->queue[null->count++] = piece;
}

static int null_flush(struct hst_aio *aio)
{
    (void)aio;
    return 0;
}

static int null_wait(struct hst_aio *aio, uint32_t least, uint64_t timeout_ns)
{
    struct null *null = aio->state;
    const uint32_t count = null->count;
    (void)least;
    (void)timeout_ns;
    for (uint32_t i = 0; i < count; i++)
        aio->finished[i] = null->queue[i];
    null->count = 0;
    return (int)count;
}

static int null_file_open(struct hst_aio *aio, struct hst_aio_file *file, const char *path,
                          unsigned flags, uint64_t size_bytes)
{
    (void)aio;
    (void)path;
    (void)flags;
    file->fd = -1;
    file->size_bytes = size_bytes;
    return 0;
}

const struct hst_aio_ops hst_aio_null_ops = {
    .id = HST_AIO_NULL,
    .open = null_open,
    .close = null_close,
    .push = null_push,
    .flush = null_flush,
    .wait = null_wait,
    .file_open = null_file_open,
};
