/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that are enqueued on the device's streams: copies and the device's own updates. The
 * client's computations are enqueued by the client, and end here.
 *
 * A node is started when what it waits for is seen to be done, and it is done when its event is
 * seen to have passed: so no stream has to wait for another, and a buffer is lent anew only when
 * the device is through with it. One exception: updates on the device count as done when they are
 * enqueued, so a copy of what they write waits for them in its stream. But where ranks gather what
 * they write, other ranks' devices cannot wait so: then they are done as copies are.
 */
#include "base/clock.h"
#include "exec/lanes/lanes.h"
#include "exec/moves.h"
#include "exec/passages.h"
#include "exec/streams.h"
#include "exec/update/optimizer.h"

#include <errno.h>

static const char *const WORK[LANE_COUNT] = {
    [LANE_COMPUTE] = "the computation of a unit",
    [LANE_H2D] = "a copy between host and device",
    [LANE_D2H] = "a copy between host and device, or the gradient norm",
    [LANE_DEVICE_UPDATE] = "the update"};

/* ---- copies ---- */

/* The update that a copy waits for in its stream, or null. */
static struct hst_event *update_before(const struct streams *streams, const struct node *node)
{
    switch ((enum node_kind)node->kind) {
    case NODE_COPY_TILE:
        return streams->updated;
    case NODE_STORE_TILE:
        return streams->streamed;
    default:
        return NULL;
    }
}

static int enqueue_copy(struct executor *exec, struct hst_stream *stream, enum lane lane,
                        const struct copy *copy)
{
    int rc = 0;
    for (uint32_t i = 0; i < copy->parts && rc == 0; i++) {
        rc = hst_stream_copy(stream, copy->to + i * copy->stride, copy->from + i * copy->bytes,
                             copy->bytes);
        streams_count(exec, lane, rc == 0 ? copy->bytes : 0);
    }
    return rc;
}

static int enqueue(struct executor *exec, struct hst_stream *stream, struct scheduled at)
{
    const struct node *node = program_node(exec, at);
    struct hst_event *update = update_before(&exec->streams, node);
    struct copy copies[OPERANDS_MOST];
    if (node->kind == NODE_NORM)
        return optimizer_sum_device_norm(exec, at, stream);
    uint32_t count = moves_copies(exec, at, copies);
    int rc = update ? hst_stream_wait(stream, update) : 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = enqueue_copy(exec, stream, (enum lane)node->lane, &copies[i]);
    return rc;
}

int device_start_copies(struct executor *exec, enum lane lane, bool *moved)
{
    struct hst_stream *stream = exec->streams.copying[lane];
    struct scheduler *scheduler = &exec->now->scheduler;
    struct scheduled at;
    while (exec->passages[lane].count < PASSAGES_MOST && scheduler_next(scheduler, lane, &at) &&
           scheduler_ready(scheduler, at)) {
        scheduler_start(scheduler, at);
        *moved = true;
        int rc = enqueue(exec, stream, at);
        rc = rc ? rc
                : passages_add(exec, lane, stream,
                               (struct passage){.at = at, .start_s = clock_seconds()});
        if (rc)
            return executor_fail_device(exec, rc, WORK[lane]);
    }
    return 0;
}

/* ---- updates ---- */

/* A tile that is streamed is copied home behind its update. */
static int end_update(struct executor *exec, enum lane lane, struct scheduled at)
{
    const double now_s = clock_seconds();
    const uint32_t unit = program_node(exec, at)->unit;
    if (lane == LANE_COMPUTE || !placement_is_resident(exec->in.placement, unit)) {
        program_finish(exec, at, now_s);
        return 0;
    }
    int rc = passages_add(exec, lane, exec->streams.updating,
                          (struct passage){.at = at, .start_s = now_s});
    return rc ? executor_fail_device(exec, rc, "the update") : 0;
}

/* On a device that holds what it updates they are enqueued like computations, ahead of the
 * client's; those of streamed tiles beside them. */
int device_start_updates(struct executor *exec, enum lane lane, bool *moved)
{
    struct scheduler *scheduler = &exec->now->scheduler;
    struct scheduled at;
    while ((lane == LANE_COMPUTE || exec->passages[lane].count < PASSAGES_MOST) &&
           scheduler_next(scheduler, lane, &at) && program_node(exec, at)->kind == NODE_UPDATE &&
           scheduler_ready(scheduler, at)) {
        scheduler_start(scheduler, at);
        int rc = lane == LANE_COMPUTE ? optimizer_device_update(exec, at)
                                      : optimizer_streamed_update(exec, at);
        rc = rc ? rc : end_update(exec, lane, at);
        if (rc)
            return rc;
        *moved = true;
    }
    return 0;
}

/* ---- ends ---- */

static int take(struct executor *exec, enum lane lane, int rc)
{
    const struct passage *oldest = passages_oldest(exec, lane);
    if (rc < 0)
        return executor_fail_device(exec, rc, WORK[lane]);
    if (lane == LANE_COMPUTE)
        measure_passage(exec, oldest);
    program_finish(exec, oldest->at, oldest->start_s);
    passages_drop(exec, lane);
    return 0;
}

int device_poll(struct executor *exec, enum lane lane, bool *moved)
{
    while (exec->passages[lane].count > 0) {
        int rc = hst_event_query(passages_oldest(exec, lane)->passed);
        if (rc == 0)
            return 0;
        rc = take(exec, lane, rc);
        if (rc)
            return rc;
        *moved = true;
    }
    return 0;
}

int device_wait(struct executor *exec, enum lane lane, uint64_t wait_ns)
{
    (void)wait_ns; /* a device has no short wait */
    return take(exec, lane, hst_event_sync(passages_oldest(exec, lane)->passed));
}

int device_descriptors(struct executor *exec, enum lane lane, int *fds, uint32_t room)
{
    if (room == 0 || (fds[0] = hst_event_fd(passages_oldest(exec, lane)->passed)) < 0)
        return -ENOTSUP;
    return 1;
}

bool device_under_way(const struct executor *exec, enum lane lane)
{
    return exec->passages[lane].count > 0;
}
