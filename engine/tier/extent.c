/* SPDX-License-Identifier: Apache-2.0 */
/* This file has what is common to all providers of extents. */
#include "tier/extent.h"

#include <errno.h>

/* A call that needs no drive is done by now: only a failure ends a transfer here. */
static int begun(struct transfer *transfer, int rc)
{
    if (rc) {
        transfer->active = false;
        transfer->error = rc;
    }
    return rc;
}

int extents_read(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                 struct transfer *transfer)
{
    *transfer = (struct transfer){.active = true, .index = index, .kind = kind};
    return begun(transfer, extents->ops->read(extents, kind, index, buffer, transfer));
}

int extents_write(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                  struct transfer *transfer)
{
    *transfer = (struct transfer){.active = true, .write = true, .index = index, .kind = kind};
    return begun(transfer, extents->ops->write(extents, kind, index, buffer, transfer));
}

int extents_descriptors(struct hst_aio *const *aio, uint32_t count, int *fds, uint32_t room)
{
    if (count > room)
        return -ENOTSUP;
    for (uint32_t i = 0; i < count; i++)
        if ((fds[i] = hst_aio_fd(aio[i])) < 0)
            return fds[i];
    return (int)count;
}

int extents_wait(struct extents *extents, struct transfer *transfer)
{
    while (transfer->active) {
        int rc = extents->ops->progress(extents, UINT64_MAX);
        if (rc) { /* the backend broke down: nothing will complete any more */
            transfer->error = rc;
            return rc;
        }
    }
    return transfer->error;
}
