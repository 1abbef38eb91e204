/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdamW as a device makes it of what is in its memory. How long it takes is not known before: the
 * arrays grow until once takes some milliseconds, or they do not fit.
 */
#include "probe/probe.h"

#include "base/adamw_args.h"
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
    struct hst_stream *stream;
    struct hst_adamw args;
};

static int begin(void *arg)
{
    struct updates *u = arg;
    return hst_op_adamw(u->stream, &u->args);
}

static int finish(void *arg)
{
    struct updates *u = arg;
    return hst_stream_sync(u->stream);
}

/* Weights, gradients, moments, and what is left of the masters, one behind the other. */
static void lay_out(struct updates *u, char *memory, size_t elements, enum hst_dtype dtype)
{
    size_t element = hst_dtype_bytes(dtype);
    u->args.count = elements;
    u->args.dtype = dtype;
    u->args.m = (float *)(void *)memory;
    u->args.v = u->args.m + elements;
    u->args.weight = u->args.v + elements;
    u->args.grad = (char *)u->args.weight + elements * element;
    u->args.remainder = dtype == HST_BF16
                            ? (int16_t *)(void *)((char *)u->args.weight + 2 * elements * element)
                            : NULL;
}

static size_t bytes_of(size_t elements, enum hst_dtype dtype)
{
    return elements * (2 * sizeof(float) + 2 * hst_dtype_bytes(dtype) +
                       (dtype == HST_BF16 ? sizeof(int16_t) : 0));
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
                   enum hst_dtype dtype, struct hst_figure *figure)
{
    size_t elements = ELEMENTS_LEAST;
    struct probe_work work = {begin, finish, u, 0};
    int rc = 0;
    for (bool large = false; rc == 0 && !large;) {
        double once_s;
        lay_out(u, memory, elements, dtype);
        rc = time_once(u, &once_s);
        size_t more = GROWS * elements;
        large = once_s >= LONG_ENOUGH_S || more > ELEMENTS_MOST || bytes_of(more, dtype) > bytes;
        elements = large ? elements : more;
    }
    work.amount = (double)elements;
    rc = rc ? rc : probe_rate(&work, clock_seconds() + UPDATES_S, figure);
    if (rc == 0)
        snprintf(figure->how, sizeof figure->how, "%zu MiB, %.40s", bytes_of(elements, dtype) >> 20,
                 hst_dev_name(dev));
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
    static const struct {
        enum hst_rate rate;
        enum hst_dtype dtype;
    } cases[] = {{HST_RATE_DEVICE_FP32, HST_F32}, {HST_RATE_DEVICE_BF16, HST_BF16}};
    const struct hst_adam_coef coef = probe_coef();
    struct updates u = {.stream = NULL};
    size_t bytes = 0;
    bool apart = probe_is_apart(probe);
    char *memory =
        apart ? probe_device_memory(probe->dev, bytes_of(ELEMENTS_MOST, HST_F32), &bytes) : NULL;
    int rc = memory ? hst_stream_create(probe->dev, "hst-probe", &u.stream) : -ENOSPC;
    u.args = adamw_args(&coef);
    if (rc == 0) /* what is there may be slow: denormal, or no number */
        rc = hst_stream_zero(u.stream, memory, bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hst_figure *figure = &probe->out->figures[cases[i].rate];
        int failed = rc ? rc : measure(&u, probe->dev, memory, bytes, cases[i].dtype, figure);
        if (!apart)
            probe_fail(figure, "the device works in host memory: the host updates");
        else if (failed)
            fail(figure, failed);
    }
    hst_stream_destroy(&u.stream);
    if (memory)
        hst_dev_mem_free(probe->dev, memory, bytes);
}
