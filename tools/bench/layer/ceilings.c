/* SPDX-License-Identifier: Apache-2.0 */
/* Two ceilings: a product as large as those that `bench kernels` has, and a copy beyond caches. */
#include "bench/layer/ceilings.h"

#include "bench/layer/room.h"

#define CUBE       8192u
#define HOST_CUBE  1024u /* what one thread does in a fraction of a second */
#define SMOKE_CUBE 64u
#define COPY_PARTS 2u /* of memory: from one, to the other */

struct ceiling {
    struct hst_stream *stream;
    struct hst_matmul args;
    char *memory;
    size_t half_bytes;
};

static int multiply(void *arg)
{
    struct ceiling *c = arg;
    return hst_op_matmul(c->stream, &c->args);
}

static int copy(void *arg)
{
    struct ceiling *c = arg;
    return hst_stream_copy(c->stream, c->memory + c->half_bytes, c->memory, c->half_bytes);
}

static int run(struct ceiling *c, bool smoke, struct layer_ceilings *ceilings)
{
    struct bench_timing timing;
    double extent = (double)c->args.m;
    int rc = bench_time(c->stream, smoke, copy, c, &timing);
    if (rc)
        return rc;
    ceilings->bytes_per_s = COPY_PARTS * (double)c->half_bytes / timing.median_s;
    rc = bench_time(c->stream, smoke, multiply, c, &timing);
    if (!rc)
        ceilings->flops_per_s = 2 * extent * extent * extent / timing.median_s;
    return rc;
}

int layer_ceilings(struct hst_dev *dev, struct hst_stream *stream, enum hst_dtype dtype, bool smoke,
                   struct layer_ceilings *ceilings, struct hst_error *error)
{
    const size_t cube = smoke                                      ? SMOKE_CUBE
                        : hst_dev_flags(dev) & HST_DEV_HOST_MEMORY ? HOST_CUBE
                                                                   : CUBE;
    const size_t matrix = cube * cube * hst_dtype_bytes(dtype);
    struct ceiling c = {.stream = stream,
                        .args = {.m = cube,
                                 .n = cube,
                                 .k = cube,
                                 .a = {NULL, cube, dtype},
                                 .b = {NULL, cube, dtype},
                                 .c = {NULL, cube, dtype},
                                 .b_transposed = true}};
    size_t work = hst_matmul_work_bytes(dev, &c.args);
    size_t bytes = 4 * matrix + (work + 1) / 2 * 2;
    void *memory = NULL;
    int rc = hst_dev_mem_alloc(dev, bytes, &memory);
    c.memory = memory;
    c.half_bytes = 2 * matrix;
    if (!rc) {
        c.args.a.data = c.memory;
        c.args.b.data = c.memory + matrix;
        c.args.c.data = c.memory + 2 * matrix;
        c.args.work = (struct hst_work){c.memory + 4 * matrix, work};
    }
    rc = rc ? rc : layer_fill(dev, stream, memory, bytes, dtype);
    rc = rc ? rc : run(&c, smoke, ceilings);
    hst_dev_mem_free(dev, memory, bytes);
    return rc ? bench_device_failed(dev, rc, "measuring the ceilings", error) : 0;
}
