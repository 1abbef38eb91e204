/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy that takes a millisecond or more, and a thread that waits for its end as an engine does.
 * When the copy ended, the host's clock does not know. It knows when a mark before the copy was
 * passed, by asking for it all the time, and the device knows how long after that mark the copy's
 * end was.
 */
#include "bench/step/waits.h"

#include <hoistway/measure.h>
#include <stdlib.h>
#include <time.h>

#define COPY_BYTES  ((size_t)64 << 20)
#define SMOKE_BYTES ((size_t)64 << 10)
#define ROUNDS      15u
#define WARM_ROUNDS 2u

struct ground {
    struct hst_dev *dev;
    struct hst_stream *stream;
    struct hst_event *begin, *end;
    void *device, *host;
    size_t bytes;
};

/* Of one round. */
struct round {
    double wake_s, processor_s, wait_s;
};

static double now_s(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Puts a mark behind nothing. *passed_s: when it was not passed yet, as late as that is known. */
static int pass_mark(struct hst_event *event, struct hst_stream *stream, double *passed_s)
{
    double asked_s = now_s(CLOCK_MONOTONIC);
    int rc = hst_event_record(event, stream);
    if (rc)
        return rc;
    for (int passed = 0; passed != 1;) {
        *passed_s = asked_s;
        asked_s = now_s(CLOCK_MONOTONIC);
        passed = hst_event_query(event);
        if (passed < 0)
            return passed;
    }
    return 0;
}

static int time_wait(struct ground *g, struct round *round)
{
    double begin_s = 0, copy_s = 0;
    int rc = pass_mark(g->begin, g->stream, &begin_s);
    rc = rc ? rc : hst_stream_copy(g->stream, g->host, g->device, g->bytes);
    rc = rc ? rc : hst_event_record(g->end, g->stream);
    double from_s = now_s(CLOCK_MONOTONIC), processor_s = now_s(CLOCK_THREAD_CPUTIME_ID);
    rc = rc ? rc : hst_event_sync(g->end);
    double until_s = now_s(CLOCK_MONOTONIC);
    processor_s = now_s(CLOCK_THREAD_CPUTIME_ID) - processor_s;
    rc = rc ? rc : hst_event_seconds(g->begin, g->end, &copy_s);
    *round = (struct round){until_s - (begin_s + copy_s), processor_s, until_s - from_s};
    return rc;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* It is the timing of one member, at `offset`, of all rounds. */
static struct bench_timing timing_of(const struct round *rounds, unsigned count, size_t offset)
{
    double seconds[ROUNDS];
    for (unsigned i = 0; i < count; i++)
        seconds[i] = *(const double *)(const void *)((const char *)&rounds[i] + offset);
    qsort(seconds, count, sizeof *seconds, by_value);
    return (struct bench_timing){seconds[count / 2], seconds[0], seconds[count - 1]};
}

static int open_ground(struct ground *g)
{
    struct hst_dev_usage usage;
    hst_dev_usage(g->dev, &usage);
    int rc = hst_dev_budget(g->dev, usage.memory_bytes + g->bytes, usage.host_bytes + g->bytes);
    rc = rc ? rc : hst_dev_mem_alloc(g->dev, g->bytes, &g->device);
    rc = rc ? rc : hst_dev_host_alloc(g->dev, g->bytes, &g->host);
    rc = rc ? rc : hst_stream_create(g->dev, "bench-wait", &g->stream);
    rc = rc ? rc : hst_event_create_timed(g->dev, &g->begin);
    return rc ? rc : hst_event_create_timed(g->dev, &g->end);
}

static void close_ground(struct ground *g)
{
    if (g->end)
        hst_event_destroy(&g->end);
    if (g->begin)
        hst_event_destroy(&g->begin);
    if (g->stream)
        hst_stream_destroy(&g->stream);
    if (g->device)
        hst_dev_mem_free(g->dev, g->device, g->bytes);
    if (g->host)
        hst_dev_host_free(g->dev, g->host, g->bytes);
}

int bench_waits(struct hst_dev *dev, bool smoke, struct bench_waits *waits, struct hst_error *error)
{
    struct ground g = {.dev = dev, .bytes = smoke ? SMOKE_BYTES : COPY_BYTES};
    struct round rounds[ROUNDS];
    const unsigned count = smoke ? 1 : ROUNDS;
    int rc = open_ground(&g);
    for (unsigned i = 0; i < WARM_ROUNDS && !rc; i++)
        rc = time_wait(&g, &rounds[0]);
    for (unsigned i = 0; i < count && !rc; i++)
        rc = time_wait(&g, &rounds[i]);
    close_ground(&g);
    if (rc)
        return bench_device_failed(dev, rc, "waiting for a copy", error);
    *waits = (struct bench_waits){timing_of(rounds, count, offsetof(struct round, wake_s)),
                                  timing_of(rounds, count, offsetof(struct round, processor_s)),
                                  timing_of(rounds, count, offsetof(struct round, wait_s))};
    return 0;
}
