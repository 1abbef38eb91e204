/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An update as a device makes it of what is in its memory. How long it takes is not known before:
 * the arrays grow until once takes some milliseconds, or they do not fit.
 */
#include "probe/probe.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ELEMENTS_LEAST ((size_t)64 << 10)
#define ELEMENTS_MOST  ((size_t)16 << 20)
#define GROWS          4u
#define LONG_ENOUGH_S  0.002
#define UPDATES_S      0.06

struct updates {
    const struct optimizer *optimizer;
    struct hst_stream *stream;
    struct optimizer_coef coef;
    struct optimizer_arrays arrays;
    size_t elements;
};

static int begin(void *arg)
{
    struct updates *u = arg;
    return u->optimizer->device(u->optimizer, u->stream, &u->coef, &u->arrays, u->elements);
}

static int finish(void *arg)
{
    struct updates *u = arg;
    return hst_stream_sync(u->stream);
}

static size_t bytes_of(const struct optimizer *optimizer, size_t elements)
{
    size_t bytes = 2 * elements * optimizer_weight_bytes(optimizer);
    for (uint32_t i = 0; i < optimizer->state_count; i++)
        bytes += optimizer_array_bytes(optimizer, i, elements);
    return bytes;
}

/* States, weights and gradients, one behind the other. */
static void lay_out(struct updates *u, char *memory, size_t elements)
{
    const struct optimizer *o = u->optimizer;
    u->elements = elements;
    for (uint32_t i = 0; i < o->state_count; i++) {
        u->arrays.states[i] = memory;
        memory += optimizer_array_bytes(o, i, elements);
    }
    u->arrays.weights = memory;
    u->arrays.grads = memory + elements * optimizer_weight_bytes(o);
}

/* The fastest of three: the first one may wait for what was enqueued before, or for its kernel to
 * be loaded, and says nothing of the arrays. */
static int time_once(struct updates *u, double *seconds)
{
    int rc = 0;
    *seconds = INFINITY;
    for (int i = 0; i < 3 && rc == 0; i++) {
        double start = clock_seconds();
        rc = begin(u);
        rc = rc ? rc : finish(u);
        *seconds = fmin(*seconds, clock_seconds() - start);
    }
    return rc;
}

static int measure(struct updates *u, struct hst_dev *dev, char *memory, size_t bytes,
                   struct hst_figure *figure)
{
    size_t elements = ELEMENTS_LEAST;
    struct probe_work work = {begin, finish, u, 0};
    int rc = 0;
    for (bool large = false; rc == 0 && !large;) {
        double once_s;
        lay_out(u, memory, elements);
        rc = time_once(u, &once_s);
        size_t more = GROWS * elements;
        large =
            once_s >= LONG_ENOUGH_S || more > ELEMENTS_MOST || bytes_of(u->optimizer, more) > bytes;
        elements = large ? elements : more;
    }
    work.amount = (double)elements;
    rc = rc ? rc : probe_rate(&work, clock_seconds() + UPDATES_S, figure);
    if (rc == 0)
        snprintf(figure->how, sizeof figure->how, "%zu MiB, %.40s",
                 bytes_of(u->optimizer, elements) >> 20, hst_dev_name(dev));
    return rc;
}

static void fail(struct hst_figure *figure, int rc)
{
    if (rc == -ENOTSUP)
        probe_fail(figure, "this device has no update");
    else if (rc == -ENOSPC)
        probe_fail(figure, "the device's budget leaves too little memory");
    else
        probe_fail(figure, "an update failed: %s", strerror(-rc));
}

void probe_device(struct probe *probe)
{
    static const enum hst_precision cases[] = {HST_PRECISION_FP32, HST_PRECISION_BF16};
    struct updates u = {.stream = NULL};
    size_t bytes = 0,
           most = bytes_of(optimizer_measured(cases[0], HST_STATE_DEFAULT), ELEMENTS_MOST);
    bool apart = probe_is_apart(probe);
    char *memory = apart ? probe_device_memory(probe->dev, most, &bytes) : NULL;
    int rc = memory ? hst_stream_create(probe->dev, "hst-probe", &u.stream) : -ENOSPC;
    if (rc == 0) /* what is there may be slow: denormal, or no number */
        rc = hst_stream_zero(u.stream, memory, bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        u.optimizer = optimizer_measured(cases[i], HST_STATE_DEFAULT);
        u.coef = probe_coef(u.optimizer);
        struct hst_figure *figure = &probe->out->figures[u.optimizer->device_rate];
        int failed = rc ? rc : measure(&u, probe->dev, memory, bytes, figure);
        if (!apart)
            probe_fail(figure, "the device works in host memory: the host updates");
        else if (failed)
            fail(figure, failed);
    }
    hst_stream_destroy(&u.stream);
    if (memory)
        hst_dev_mem_free(probe->dev, memory, bytes);
}
