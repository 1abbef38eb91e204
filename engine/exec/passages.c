/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/passages.h"

/* The device's nodes end in order. */
static bool has_passages(int lane)
{
    return lane == LANE_COMPUTE || lane == LANE_H2D || lane == LANE_D2H ||
           lane == LANE_DEVICE_UPDATE;
}

int passages_open(struct executor *exec)
{
    int rc = 0;
    for (int l = 0; l < LANE_COUNT; l++)
        for (uint32_t i = 0; rc == 0 && has_passages(l) && i < PASSAGES_MOST; i++)
            rc = hst_event_create(exec->in.dev, &exec->passages[l].ring[i].passed);
    return rc;
}

void passages_close(struct executor *exec)
{
    for (int l = 0; l < LANE_COUNT; l++)
        for (uint32_t i = 0; i < PASSAGES_MOST; i++)
            hst_event_destroy(&exec->passages[l].ring[i].passed);
}

int passages_add(struct executor *exec, enum lane lane, struct hst_stream *stream,
                 struct passage passage)
{
    struct passages *passages = &exec->passages[lane];
    struct passage *next = &passages->ring[(passages->first + passages->count) % PASSAGES_MOST];
    passage.passed = next->passed;
    *next = passage;
    passages->count++;
    return hst_event_record(next->passed, stream);
}

const struct passage *passages_oldest(const struct executor *exec, enum lane lane)
{
    return &exec->passages[lane].ring[exec->passages[lane].first];
}

void passages_drop(struct executor *exec, enum lane lane)
{
    struct passages *passages = &exec->passages[lane];
    passages->first = (passages->first + 1) % PASSAGES_MOST;
    passages->count--;
}
