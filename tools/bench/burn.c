/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warms a GPU by GEMMs of matrices, what costs most power: its clock takes tens of milliseconds
 * to rise from idle, and falls to what the power limit allows only after some time of hard work.
 */
#include "bench/burn.h"
#include "base/now.h"

#define EXTENT_LEAST  128u  /* a slow device begins with little */
#define EXTENT        4096u /* of a product: some 0.2 ms of a large card, enough for all of it */
#define LONG_ENOUGH_S 0.001
#define BATCH_S       0.01 /* between two waits for the stream */
#define BATCH_MOST    256u

bool bench_burns(const struct hst_dev *dev, bool smoke)
{
    return !smoke && !(hst_dev_flags(dev) & HST_DEV_HOST_MEMORY);
}

/* A batch grows until waiting for it is little beside its work. */
int bench_burn(struct hst_stream *stream, double seconds, int (*enqueue)(void *arg), void *arg,
               uint64_t *calls)
{
    double start = now_s(), before = start;
    unsigned batch = 1;
    *calls = 0;
    do {
        int rc = 0;
        for (unsigned i = 0; i < batch && !rc; i++)
            rc = enqueue(arg);
        rc = rc ? rc : hst_stream_sync(stream);
        if (rc)
            return rc;
        *calls += batch;
        double now = now_s();
        if (now - before < BATCH_S && batch < BATCH_MOST)
            batch *= 2;
        before = now;
    } while (before - start < seconds);
    return 0;
}

struct burn {
    struct hst_dev *dev;
    struct hst_stream *stream;
    struct hst_matmul args;
    void *memory, *staging;
    size_t bytes;
};

static int multiply(void *arg)
{
    struct burn *b = arg;
    return hst_op_matmul(b->stream, &b->args);
}

/* Memory null: as far as its workspace is asked for. */
static struct hst_matmul gemm_of(char *memory, size_t extent)
{
    const size_t matrix = extent * extent * hst_dtype_bytes(HST_BF16);
    return (struct hst_matmul){.m = extent,
                               .n = extent,
                               .k = extent,
                               .a = {memory, extent, HST_BF16},
                               .b = {memory ? memory + matrix : NULL, extent, HST_BF16},
                               .c = {memory ? memory + 2 * matrix : NULL, extent, HST_BF16},
                               .b_transposed = true};
}

/* The largest extent whose product takes no more than a few milliseconds. */
static int grow(struct burn *b, const struct hst_work *work)
{
    double took_s = 0;
    int rc = 0;
    for (size_t extent = EXTENT_LEAST; extent <= EXTENT && took_s < LONG_ENOUGH_S && !rc;
         extent *= 2) {
        b->args = gemm_of(b->memory, extent);
        b->args.work = *work;
        rc = multiply(b); /* loads code, makes plans */
        rc = rc ? rc : hst_stream_sync(b->stream);
        double start = now_s();
        rc = rc ? rc : multiply(b);
        rc = rc ? rc : hst_stream_sync(b->stream);
        took_s = now_s() - start;
    }
    return rc;
}

static int open_burn(struct burn *b)
{
    struct hst_dev_usage usage;
    const size_t matrix = (size_t)EXTENT * EXTENT * hst_dtype_bytes(HST_BF16);
    const struct hst_matmul largest = gemm_of(NULL, EXTENT);
    size_t work = hst_matmul_work_bytes(b->dev, &largest); /* never less for a smaller one */
    b->bytes = 3 * matrix + work;
    hst_dev_usage(b->dev, &usage);
    int rc = hst_dev_budget(b->dev, usage.memory_bytes + b->bytes,
                            usage.host_bytes + BENCH_STAGING_BYTES);
    rc = rc ? rc : hst_stream_create(b->dev, "bench-burn", &b->stream);
    rc = rc ? rc : hst_dev_mem_alloc(b->dev, b->bytes, &b->memory);
    rc = rc ? rc : hst_dev_host_alloc(b->dev, BENCH_STAGING_BYTES, &b->staging);
    if (rc)
        return rc;
    rc = bench_fill(b->stream, b->memory, 3 * matrix, b->staging);
    return rc ? rc : grow(b, &(struct hst_work){(char *)b->memory + 3 * matrix, work});
}

static void close_burn(struct burn *b)
{
    if (b->stream)
        hst_stream_destroy(&b->stream);
    if (b->staging)
        hst_dev_host_free(b->dev, b->staging, BENCH_STAGING_BYTES);
    if (b->memory)
        hst_dev_mem_free(b->dev, b->memory, b->bytes);
}

int bench_burn_in(struct hst_dev *dev, bool smoke, double *burned_s, struct hst_error *error)
{
    struct burn b = {.dev = dev};
    uint64_t calls;
    *burned_s = 0;
    if (!bench_burns(dev, smoke))
        return 0;
    int rc = open_burn(&b);
    double start = now_s();
    rc = rc ? rc : bench_burn(b.stream, BENCH_BURN_S, multiply, &b, &calls);
    if (!rc)
        *burned_s = now_s() - start;
    close_burn(&b);
    return rc ? bench_device_failed(dev, rc, "warming the device", error) : 0;
}
