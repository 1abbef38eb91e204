/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which lease a unit's weights come into, and when. The order of use is known
 * (plan/sweep.h), so the lease to give up is always the one whose unit is needed last, and fetching
 * ahead never throws away what is needed sooner. Fetching never crosses the end of a step: the
 * update changes the weights.
 */
#include "exec/weights.h"

#include "plan/sweep.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static bool on_nvme(const struct hst_engine *engine, const struct gather *gather)
{
    return placement_weights(&engine->placement, gather->first_tile).tier == HST_TIER_NVME;
}

static bool needs_lease(const struct hst_engine *engine, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    int n = placement_gather(&engine->layout, engine_precision(engine), unit, gathers);
    for (int i = 0; i < n; i++)
        if (on_nvme(engine, &gathers[i]))
            return true;
    return false;
}

static struct lease *lease_of(struct hst_engine *engine, uint32_t unit)
{
    for (uint32_t i = 0; i < engine->placement.lease_count; i++)
        if (engine->leases[i].state != LEASE_EMPTY && engine->leases[i].unit == unit)
            return &engine->leases[i];
    return NULL;
}

/* ---- filling ---- */

static int fill_gather(struct hst_engine *engine, struct lease *lease, const struct gather *gather)
{
    const struct layout *layout = &engine->layout;
    uint64_t start = layout_tile(layout, gather->first_tile).offset;
    for (uint32_t i = 0; i < gather->tile_count; i++) {
        uint32_t tile = gather->first_tile + i;
        uint64_t elements = layout_tile(layout, tile).offset - start;
        void *to = lease->buffer + gather->lease_at + elements * engine_element_bytes(engine);
        struct transfer *transfer = &lease->transfers[lease->transfer_count++];
        int rc = extents_read(engine->extents, EXTENT_WEIGHTS, tile, to, transfer);
        if (rc)
            return engine_fail_transfer(engine, transfer);
    }
    return 0;
}

static int lease_fill(struct hst_engine *engine, struct lease *lease, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    int n = placement_gather(&engine->layout, engine_precision(engine), unit, gathers);
    lease->unit = unit;
    lease->state = LEASE_FILLING;
    lease->transfer_count = 0;
    for (int i = 0; i < n; i++) {
        int rc = on_nvme(engine, &gathers[i]) ? fill_gather(engine, lease, &gathers[i]) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

static int lease_wait_filled(struct hst_engine *engine, struct lease *lease)
{
    for (uint32_t i = 0; i < lease->transfer_count; i++)
        if (extents_wait(engine->extents, &lease->transfers[i]))
            return engine_fail_transfer(engine, &lease->transfers[i]);
    if (lease->state == LEASE_FILLING)
        lease->state = LEASE_READY;
    return 0;
}

/* Waiting is a stall only while the stream has nothing to do: otherwise it is what running ahead is
 * for. */
static bool compute_is_idle(struct hst_engine *engine)
{
    return hst_event_query(engine->unit_passed) == 1;
}

static int lease_wait_counting_stall(struct hst_engine *engine, struct lease *lease)
{
    for (uint32_t i = 0; i < lease->transfer_count; i++) {
        struct transfer *transfer = &lease->transfers[i];
        if (!transfer->active)
            continue;
        bool stalled = compute_is_idle(engine);
        double start = clock_seconds();
        extents_wait(engine->extents, transfer);
        if (stalled)
            engine->step.stall_nvme_s += clock_seconds() - start;
    }
    return lease_wait_filled(engine, lease);
}

/* False where a read would have to wait for the extent's last write. */
static bool is_written(struct hst_engine *engine, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    int n = placement_gather(&engine->layout, engine_precision(engine), unit, gathers);
    for (int i = 0; i < n; i++)
        for (uint32_t t = 0; t < gathers[i].tile_count; t++)
            if (on_nvme(engine, &gathers[i]) &&
                !engine->extents->ops->written(engine->extents, EXTENT_WEIGHTS,
                                               gathers[i].first_tile + t))
                return false;
    return true;
}

/* ---- choosing ---- */

static bool stream_has_passed(struct lease *lease)
{
    if (lease->used && hst_event_query(lease->passed) == 1)
        lease->used = false;
    return !lease->used;
}

/* A lease whose unit is needed later than `distance` places from `place`; with !may_wait only one
   that can be overwritten right now. The one needed last is chosen. */
static struct lease *lease_to_give_up(struct hst_engine *engine, uint32_t place, uint32_t distance,
                                      bool may_wait)
{
    struct lease *chosen = NULL;
    uint32_t farthest = distance;
    for (uint32_t i = 0; i < engine->placement.lease_count; i++) {
        struct lease *lease = &engine->leases[i];
        if (lease->state == LEASE_IN_USE || (lease->state == LEASE_FILLING && !may_wait))
            continue;
        if (!may_wait && !stream_has_passed(lease))
            continue;
        if (lease->state == LEASE_EMPTY)
            return lease;
        uint32_t next_use = sweep_distance(engine->layout.unit_count, place, lease->unit);
        if (next_use > farthest || (may_wait && !chosen)) {
            farthest = next_use;
            chosen = lease;
        }
    }
    return chosen;
}

int weights_prefetch(struct hst_engine *engine, uint32_t place)
{
    uint32_t units = engine->layout.unit_count;
    uint32_t end = place + engine->placement.lease_count;
    if (engine->extents) {
        int rc = engine->extents->ops->progress(engine->extents, false);
        if (rc)
            return engine_fail(engine, HST_E_READ, rc, "the I/O backend broke down");
    }
    for (uint32_t p = place; p < end && p < 2 * units; p++) {
        uint32_t unit = sweep_unit(units, p);
        if (lease_of(engine, unit) || !needs_lease(engine, unit))
            continue;
        if (!is_written(engine, unit))
            return 0;
        struct lease *lease = lease_to_give_up(engine, place, p - place, false);
        if (!lease)
            return 0;
        int rc = lease_fill(engine, lease, unit);
        if (rc)
            return rc;
    }
    return 0;
}

static int fetch_now(struct hst_engine *engine, uint32_t unit, uint32_t place, struct lease **out)
{
    struct lease *lease = lease_to_give_up(engine, place, 0, true);
    assert(lease); /* one unit at a time is acquired: it, at most, holds a lease in use */
    *out = lease;
    int rc = lease_wait_filled(engine, lease);
    if (rc == 0 && lease->used) {
        rc = hst_event_sync(lease->passed);
        if (rc)
            return engine_fail_device(engine, rc, "the computation of a unit");
        lease->used = false;
    }
    if (rc == 0)
        rc = lease_fill(engine, lease, unit);
    return rc;
}

/* ---- views ---- */

static void set_views(struct hst_engine *engine, uint32_t unit, unsigned char *buffer)
{
    struct gather gathers[GATHER_MAX];
    const struct layout *layout = &engine->layout;
    const struct layout_unit *u = &layout->units[unit];
    placement_gather(layout, engine_precision(engine), unit, gathers);
    int alias =
        u->tile_count > 0 ? 1 : 0; /* own tiles come first, then one gather for each alias */
    for (uint32_t i = 0; i < u->param_count; i++) {
        const struct layout_param *param = &layout->params[u->first_param + i];
        bool own = param->owner == u->first_param + i;
        const struct gather *gather = &gathers[own ? 0 : alias];
        alias += own ? 0 : 1;
        uint64_t element = param->offset - layout_tile(layout, gather->first_tile).offset;
        unsigned char *base =
            on_nvme(engine, gather)
                ? buffer + gather->lease_at
                : engine->arena + placement_weights(&engine->placement, gather->first_tile).offset;
        engine->units[unit].views[i].data = base + element * engine_element_bytes(engine);
    }
}

int weights_acquire(struct hst_engine *engine, uint32_t unit, uint32_t place)
{
    struct lease *lease = NULL;
    if (needs_lease(engine, unit)) {
        int rc = 0;
        lease = lease_of(engine, unit);
        if (!lease)
            rc = fetch_now(engine, unit, place, &lease);
        if (rc == 0)
            rc = lease_wait_counting_stall(engine, lease);
        if (rc)
            return rc;
        lease->state = LEASE_IN_USE;
    }
    set_views(engine, unit, lease ? lease->buffer : NULL);
    return engine->placement.lease_count > 0 ? weights_prefetch(engine, place + 1) : 0;
}

int weights_release(struct hst_engine *engine, uint32_t unit, struct hst_stream *stream)
{
    int rc = hst_event_record(engine->unit_passed, stream);
    struct lease *lease = lease_of(engine, unit);
    if (rc == 0 && lease)
        rc = hst_event_record(lease->passed, stream);
    if (rc)
        return engine_fail_device(engine, rc, "the computation of a unit");
    if (!lease)
        return 0;
    lease->used = true;
    lease->state = LEASE_READY;
    return 0;
}

int weights_invalidate(struct hst_engine *engine)
{
    for (uint32_t i = 0; i < engine->placement.lease_count; i++) {
        int rc = lease_wait_filled(engine, &engine->leases[i]);
        if (rc)
            return rc;
        engine->leases[i].state = LEASE_EMPTY;
    }
    return 0;
}

/* ---- opening ---- */

static uint32_t most_transfers(const struct hst_engine *engine)
{
    uint32_t most = 0;
    for (uint32_t u = 0; u < engine->layout.unit_count; u++) {
        struct gather gathers[GATHER_MAX];
        uint32_t tiles = 0;
        int n = placement_gather(&engine->layout, engine_precision(engine), u, gathers);
        for (int i = 0; i < n; i++)
            tiles += gathers[i].tile_count;
        most = tiles > most ? tiles : most;
    }
    return most;
}

int weights_open(struct hst_engine *engine)
{
    const struct placement *p = &engine->placement;
    if (p->lease_count == 0)
        return 0;
    engine->leases = calloc(p->lease_count, sizeof *engine->leases);
    if (!engine->leases)
        return -ENOMEM;
    uint32_t transfers = most_transfers(engine);
    for (uint32_t i = 0; i < p->lease_count; i++) {
        struct lease *lease = &engine->leases[i];
        lease->buffer = engine->arena + p->leases + i * p->lease_bytes;
        lease->transfers = calloc(transfers, sizeof *lease->transfers);
        if (!lease->transfers)
            return -ENOMEM;
        int rc = hst_event_create(engine->dev, &lease->passed);
        if (rc)
            return rc;
    }
    return 0;
}

void weights_close(struct hst_engine *engine)
{
    for (uint32_t i = 0; engine->leases && i < engine->placement.lease_count; i++) {
        hst_event_destroy(&engine->leases[i].passed);
        free(engine->leases[i].transfers);
    }
    free(engine->leases);
    engine->leases = NULL;
}
