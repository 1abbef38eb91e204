/* SPDX-License-Identifier: Apache-2.0 */
/* Two providers as one: what becomes a version goes to the store, the rest to scratch. Each has
 * queues of its own; what waits, waits for any of them. */
#include "tier/extent.h"

#include <errno.h>
#include <stdlib.h>

struct route {
    struct extents extents;
    struct extents *store, *scratch;
    struct hst_aio *aio[2 * STRIPE_DRIVES_MAX]; /* of both */
    uint32_t count;
};

static struct extents *provider_of(struct route *route, enum extent_kind kind)
{
    return kind == EXTENT_WEIGHTS || kind == EXTENT_STATES ? route->store : route->scratch;
}

static int route_read(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                      struct transfer *transfer)
{
    struct extents *to = provider_of((struct route *)extents, kind);
    return to->ops->read(to, kind, index, buffer, transfer);
}

static int route_write(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                       struct transfer *transfer)
{
    struct extents *to = provider_of((struct route *)extents, kind);
    return to->ops->write(to, kind, index, buffer, transfer);
}

static int take_completed(struct route *route)
{
    int rc = route->store->ops->progress(route->store, 0);
    rc = rc ? rc : route->scratch->ops->progress(route->scratch, 0);
    struct extent_counters *sum = &route->extents.counters;
    sum->read_bytes = route->store->counters.read_bytes + route->scratch->counters.read_bytes;
    sum->written_bytes =
        route->store->counters.written_bytes + route->scratch->counters.written_bytes;
    return rc;
}

static int route_progress(struct extents *extents, uint64_t wait_ns)
{
    struct route *route = (struct route *)extents;
    bool ready[2 * STRIPE_DRIVES_MAX];
    if (wait_ns > 0) {
        int n = hst_aio_wait_any(route->aio, route->count, ready, wait_ns);
        if (n < 0)
            return n;
    }
    return take_completed(route);
}

static int route_descriptors(struct extents *extents, int *fds, uint32_t room)
{
    const struct route *route = (const struct route *)extents;
    return extents_descriptors(route->aio, route->count, fds, room);
}

static void route_close(struct extents *extents)
{
    struct route *route = (struct route *)extents;
    route->scratch->ops->close(route->scratch); /* its files may be room of the store */
    route->store->ops->close(route->store);
    free(route);
}

static const struct extents_ops ROUTE_OPS = {
    .read = route_read,
    .write = route_write,
    .progress = route_progress,
    .descriptors = route_descriptors,
    .close = route_close,
};

int route_open(struct extents *store, struct extents *scratch, struct hst_aio *const *aio,
               uint32_t count, struct extents **extents)
{
    struct route *route = calloc(1, sizeof *route);
    if (!route)
        return -ENOMEM;
    *route = (struct route){
        .extents.ops = &ROUTE_OPS, .store = store, .scratch = scratch, .count = count};
    for (uint32_t i = 0; i < count; i++)
        route->aio[i] = aio[i];
    *extents = &route->extents;
    return 0;
}
