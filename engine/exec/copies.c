/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enqueues copies. A node is started when what it waits for is seen to be done, and it is done when
 * its event is seen to have passed: so no stream has to wait for another, and a buffer is lent anew
 * only when the device is through with it. One exception: updates on the device count as done when
 * they are enqueued, so a copy of what they write waits for them in its stream.
 */
#include "exec/copies.h"

#include "base/clock.h"
#include "exec/failure.h"
#include "exec/moves.h"
#include "exec/passages.h"

int copies_open(struct hst_engine *engine)
{
    const struct placement *p = &engine->placement;
    bool updates = engine_has_resident(engine);
    bool any = p->device_weights[0].count + p->device_weights[1].count + p->device_acts.count > 0;
    int rc = updates ? hst_event_create(engine->dev, &engine->run.updated) : 0;
    if (rc == 0 && p->streamed_tiles > 0)
        rc = hst_stream_create(engine->dev, "hst-update", &engine->run.updating);
    if (rc == 0 && p->streamed_tiles > 0)
        rc = hst_event_create(engine->dev, &engine->run.streamed);
    if (rc == 0 && any)
        rc = hst_stream_create(engine->dev, "hst-h2d", &engine->run.copying[LANE_H2D]);
    if (rc == 0 && (any || (updates && engine->plan_in.stored)))
        rc = hst_stream_create(engine->dev, "hst-d2h", &engine->run.copying[LANE_D2H]);
    return rc;
}

void copies_close(struct hst_engine *engine)
{
    hst_event_destroy(&engine->run.updated);
    hst_event_destroy(&engine->run.streamed);
    hst_stream_destroy(&engine->run.updating);
    hst_stream_destroy(&engine->run.copying[LANE_H2D]);
    hst_stream_destroy(&engine->run.copying[LANE_D2H]);
}

/* The update that a copy waits for in its stream, or null. */
static struct hst_event *update_before(const struct execute *run, const struct node *node)
{
    switch ((enum node_kind)node->kind) {
    case NODE_COPY_TILE:
        return run->updated;
    case NODE_STORE_TILE:
        return run->streamed;
    default:
        return NULL;
    }
}

int copies_enqueue(struct hst_engine *engine, struct hst_stream *stream, struct scheduled at)
{
    struct execute *run = &engine->run;
    const struct node *node = moves_node(engine, at);
    struct hst_event *update = update_before(run, node);
    struct copy copies[OPERANDS_MOST];
    uint32_t count = moves_copies(engine, at, copies);
    int rc = update ? hst_stream_wait(stream, update) : 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        rc = hst_stream_copy(stream, copies[i].to, copies[i].from, copies[i].bytes);
        run->copied_bytes[node->lane] += rc == 0 ? copies[i].bytes : 0;
    }
    return rc;
}

int copies_start(struct hst_engine *engine, enum lane lane, bool *moved)
{
    struct execute *run = &engine->run;
    struct hst_stream *stream = run->copying[lane];
    struct scheduled at;
    while (run->passages[lane].count < EXECUTE_PASSAGES &&
           scheduler_next(&run->scheduler, lane, &at) && scheduler_ready(&run->scheduler, at)) {
        scheduler_start(&run->scheduler, at);
        *moved = true;
        int rc = copies_enqueue(engine, stream, at);
        rc = rc ? rc
                : passages_add(engine, lane, stream,
                               (struct passage){.at = at, .start_s = clock_seconds()});
        if (rc)
            return engine_fail_device(engine, rc, "a copy between host and device");
    }
    return 0;
}
