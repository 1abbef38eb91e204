/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warms a GPU before any of its rates is measured and kept: an idle one is at a fraction of its
 * clock, takes tens of milliseconds to rise, and falls under its power limit only after hard work.
 * Products of matrices cost most power. The host is warmed by the model's own (probe_products.c).
 */
#include "probe/probe.h"

#include "base/clock.h"

#define LEAST_EXTENT  128u /* so that a slow device begins with little */
#define MOST_EXTENT   4096u
#define LONG_ENOUGH_S 0.001 /* of one product */
#define BATCH_S       0.01  /* between two looks at the clock, or whether it is to end */
#define BATCH_MOST    256u

struct burn {
    struct hst_dev *dev;
    struct hst_stream *stream;
    char *memory;
    size_t bytes;
    struct hst_matmul args;
};

/* False: that extent does not fit. */
static bool lay_out(struct burn *b, size_t extent)
{
    const size_t matrix = extent * extent * hst_dtype_bytes(HST_BF16);
    b->args = (struct hst_matmul){.m = extent,
                                  .n = extent,
                                  .k = extent,
                                  .a = {b->memory, extent, HST_BF16},
                                  .b = {b->memory + matrix, extent, HST_BF16},
                                  .c = {b->memory + 2 * matrix, extent, HST_BF16},
                                  .b_transposed = true};
    size_t work = hst_matmul_work_bytes(b->dev, &b->args);
    b->args.work = (struct hst_work){b->memory + 3 * matrix, work};
    return b->memory && 3 * matrix + work <= b->bytes;
}

static int multiply(struct burn *b, unsigned times, double *seconds)
{
    double start = clock_seconds();
    int rc = 0;
    for (unsigned i = 0; i < times && rc == 0; i++)
        rc = hst_op_matmul(b->stream, &b->args);
    int late = hst_stream_sync(b->stream);
    *seconds = clock_seconds() - start;
    return rc ? rc : late;
}

static void run(struct probe *probe, struct burn *b)
{
    double start = clock_seconds(), seconds;
    size_t extent = LEAST_EXTENT;
    unsigned batch = 1;
    int rc = 0;
    while (rc == 0 && clock_seconds() - start < PROBE_BURN_S && !probe_is_stopped(probe)) {
        if (!lay_out(b, extent))
            return;
        rc = multiply(b, batch, &seconds);
        if (seconds < batch * LONG_ENOUGH_S && extent < MOST_EXTENT && lay_out(b, 2 * extent))
            extent *= 2;
        else if (seconds < BATCH_S && batch < BATCH_MOST)
            batch *= 2;
    }
}

/* A failure here comes again where it is measured, and is told there. */
void probe_burn(struct probe *probe)
{
    const size_t most = 4 * (size_t)MOST_EXTENT * MOST_EXTENT * hst_dtype_bytes(HST_BF16);
    struct burn b = {.dev = probe->dev};
    if (!probe_is_apart(probe) || hst_stream_create(b.dev, "hst-burn", &b.stream))
        return;
    b.memory = probe_device_memory(b.dev, most, &b.bytes);
    if (b.memory && probe_fill(b.dev, b.stream, b.memory, b.bytes) == 0)
        run(probe, &b);
    if (b.memory)
        hst_dev_mem_free(b.dev, b.memory, b.bytes);
    hst_stream_destroy(&b.stream);
}
