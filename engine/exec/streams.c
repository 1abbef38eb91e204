/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/streams.h"

int streams_open(struct executor *exec)
{
    const struct placement *p = exec->in.placement;
    struct hst_dev *dev = exec->in.dev;
    struct streams *s = &exec->streams;
    const bool resident = executor_has_resident(exec), sums = resident && exec->in.comm;
    const bool updates = resident && !exec->in.comm, beside = sums || p->streamed_tiles > 0;
    bool any = p->device_acts.count > 0 || sums;
    for (int size = 0; size < UNIT_SIZES; size++)
        any = any || p->device_weights[size].count > 0;
    int rc = hst_event_create(dev, &s->unit_passed);
    if (rc == 0 && updates)
        rc = hst_event_create(dev, &s->updated);
    if (rc == 0 && beside)
        rc = hst_stream_create(dev, "hst-update", &s->updating);
    if (rc == 0 && beside)
        rc = hst_event_create(dev, &s->streamed);
    if (rc == 0 && any)
        rc = hst_stream_create(dev, "hst-h2d", &s->copying[LANE_H2D]);
    if (rc == 0 && (any || (resident && exec->in.plan_in->stored)))
        rc = hst_stream_create(dev, "hst-d2h", &s->copying[LANE_D2H]);
    return rc;
}

void streams_close(struct executor *exec)
{
    struct streams *s = &exec->streams;
    hst_event_destroy(&s->updated);
    hst_event_destroy(&s->streamed);
    hst_stream_destroy(&s->updating);
    hst_stream_destroy(&s->copying[LANE_H2D]);
    hst_stream_destroy(&s->copying[LANE_D2H]);
    hst_event_destroy(&s->unit_passed);
}

int streams_follow(struct executor *exec, struct hst_stream *stream)
{
    struct streams *s = &exec->streams;
    if (s->unit == stream)
        return 0;
    s->unit = stream;
    int rc = hst_stream_wait(stream, s->unit_passed);
    if (rc == 0 && s->updated) /* updates may have been enqueued behind the last unit */
        rc = hst_stream_wait(stream, s->updated);
    return rc ? executor_fail_device(exec, rc, "waiting for the last unit") : 0;
}

int streams_unit_passes(struct executor *exec, struct hst_stream *stream)
{
    return hst_event_record(exec->streams.unit_passed, stream);
}

void streams_await_unit(struct executor *exec)
{
    if (exec->streams.unit_passed)
        hst_event_sync(exec->streams.unit_passed);
}

void streams_count(struct executor *exec, enum lane lane, uint64_t bytes)
{
    exec->streams.copied_bytes[lane] += bytes;
}
