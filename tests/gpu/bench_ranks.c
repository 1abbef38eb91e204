/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks do with gradients and weights on a GPU beside gathers and exchanges: sums of ways, and
 * integers in place of values. Each row moves as many bytes as any other, far more than a card's
 * cache holds. Its ceiling is what a copy inside the device makes of as many bytes, half of them
 * read and half written, which is measured right before it: the device's own null kernel.
 *
 *   bench_ranks [--device cuda:0] [--smoke]
 *
 * Prints one JSON object per row and line; 77 where there is no such device.
 */
#include "bench/burn.h"
#include "bench/figure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOVED_BYTES       ((size_t)1 << 30)
#define MOVED_SMOKE_BYTES ((size_t)1 << 18)
#define NO_LIMIT_BYTES    ((uint64_t)1 << 46) /* the card's own memory is the limit */

enum { INPUTS_MOST = 8, PARTIAL_ELEMENTS = 4096 /* of a norm's partial; a multiple of blocks */ };

enum kind { SUM, QUANTISE, DEQUANTISE };

/* One operation. A sum with `bits` is of a group of ways, which integers give back. */
struct row {
    const char *name;
    enum kind kind;
    enum hst_dtype dtype;
    uint32_t inputs;
    enum hst_quant bits;
};

static const struct row ROWS[] = {
    {"sum of 2, bf16", SUM, HST_BF16, 2, 0},
    {"sum of 2, f32", SUM, HST_F32, 2, 0},
    {"sum of 8, bf16", SUM, HST_BF16, 8, 0},
    {"sum of 8, f32", SUM, HST_F32, 8, 0},
    {"sum of 2, rounded to int8", SUM, HST_F32, 2, HST_INT8},
    {"sum of 8, rounded to int8", SUM, HST_F32, 8, HST_INT8},
    {"sum of 8, rounded to int4", SUM, HST_F32, 8, HST_INT4},
    {"quantise bf16 to int8", QUANTISE, HST_BF16, 1, HST_INT8},
    {"dequantise int8 to bf16", DEQUANTISE, HST_BF16, 1, HST_INT8},
    {"quantise bf16 to int4", QUANTISE, HST_BF16, 1, HST_INT4},
    {"dequantise int4 to bf16", DEQUANTISE, HST_BF16, 1, HST_INT4},
    {"quantise f32 to int8", QUANTISE, HST_F32, 1, HST_INT8},
    {"dequantise int8 to f32", DEQUANTISE, HST_F32, 1, HST_INT8},
    {"quantise f32 to int4", QUANTISE, HST_F32, 1, HST_INT4},
    {"dequantise int4 to f32", DEQUANTISE, HST_F32, 1, HST_INT4},
};

static struct {
    struct hst_dev *dev;
    struct hst_stream *stream;
    size_t moved_bytes; /* of each row, and of its null; each of `in` and `out` is as large */
    size_t count;       /* elements of the row that move as many */
    char *in, *out;     /* numbers in ±1, as bf16 and as f32 alike */
    double *partial;
    const void *ways[INPUTS_MOST]; /* a sum's inputs, which it borrows as it does what they name */
    bool smoke;
    struct hst_error error;
} bench;

static void give_up(int rc, const char *what)
{
    (void)bench_device_failed(bench.dev, rc, what, &bench.error);
    fprintf(stderr, "bench_ranks: %s\n", bench.error.message);
    exit(1);
}

/* ---- operations ---- */

/* Of 512 elements, which have one scale: each is read or written once. */
static size_t block_bytes(const struct row *row)
{
    const size_t values = HST_QUANT_BLOCK * hst_dtype_bytes(row->dtype);
    if (row->kind == SUM)
        return (row->inputs + 1) * values;
    return values + hst_quant_bytes(row->bits, HST_QUANT_BLOCK) + sizeof(float);
}

static int copy(void *arg)
{
    (void)arg;
    return hst_stream_copy(bench.stream, bench.out, bench.in, bench.moved_bytes / 2);
}

/* Integers give back what a group of ways comes to, which is half of them here; else it is the
   root, whose partials ranks want. */
static int sum(const struct row *row)
{
    for (size_t i = 0; i < row->inputs; i++)
        bench.ways[i] = bench.in + i * bench.count * hst_dtype_bytes(row->dtype);
    const struct hst_sum_ways args = {
        .tree = {.ways = row->bits ? 2 * row->inputs : row->inputs,
                 .hop = row->bits ? row->inputs : HST_HOP_DEFAULT,
                 .reduce = row->dtype,
                 .root = row->dtype,
                 .quant = row->bits},
        .each = 1,
        .inputs = row->inputs,
        .in = bench.ways,
        .out = bench.out,
        .count = bench.count,
        .partial = row->bits ? NULL : bench.partial,
    };
    return hst_op_sum_ways(bench.stream, &args);
}

/* Integers and scales lie in `out`; the way back writes over the values that they came from. */
static int operate(void *arg)
{
    const struct row *row = arg;
    float *scales = (float *)(bench.out + bench.moved_bytes / 2);
    if (row->kind == SUM)
        return sum(row);
    if (row->kind == QUANTISE)
        return hst_op_quantise(bench.stream, &(struct hst_quantise){.bits = row->bits,
                                                                    .dtype = row->dtype,
                                                                    .count = bench.count,
                                                                    .values = bench.in,
                                                                    .codes = bench.out,
                                                                    .scales = scales});
    return hst_op_dequantise(bench.stream, &(struct hst_dequantise){.bits = row->bits,
                                                                    .dtype = row->dtype,
                                                                    .count = bench.count,
                                                                    .codes = bench.out,
                                                                    .scales = scales,
                                                                    .values = bench.in});
}

/* ---- figures ---- */

static void measure(const struct row *row)
{
    struct bench_timing null = {0}, own = {0};
    const size_t partials = bench.moved_bytes / block_bytes(row) * HST_QUANT_BLOCK;
    bench.count = partials / PARTIAL_ELEMENTS * PARTIAL_ELEMENTS;
    const double bytes = (double)(bench.count / HST_QUANT_BLOCK * block_bytes(row));
    int rc = bench_time(bench.stream, bench.smoke, copy, NULL, &null);
    if (rc)
        give_up(rc, "a copy inside the device");
    rc = bench_time(bench.stream, bench.smoke, operate, (void *)row, &own);
    if (rc)
        give_up(rc, row->name);
    const double ceiling = (double)bench.moved_bytes / null.median_s;
    printf("{\"bench\":\"ranks\",\"case\":\"%s\",\"value\":%.6g,\"unit\":\"B/s\",\"ceiling\":%.6g,"
           "\"ceiling_name\":\"a copy inside the device of as many bytes\",\"fraction\":%.4f,"
           "\"least\":%.6g,\"most\":%.6g,\"note\":\"%zu elements\"}\n",
           row->name, bytes / own.median_s, ceiling, bytes / own.median_s / ceiling,
           bytes / own.most_s, bytes / own.least_s, bench.count);
    fflush(stdout);
}

/* ---- the device ---- */

static void open_all(const char *device)
{
    const struct hst_dev_config config = {
        .size = sizeof config, .memory_bytes = NO_LIMIT_BYTES, .host_bytes = 1 << 20};
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    double burned_s;
    void *staging, *in, *out, *partial;
    if (hst_dev_open(device, &config, &bench.dev, &failure)) {
        printf("skipped: %s\n", failure.text);
        exit(77);
    }
    if (bench_burn_in(bench.dev, bench.smoke, &burned_s, &bench.error))
        give_up(-EIO, "warming up");
    int rc = hst_dev_budget(bench.dev, NO_LIMIT_BYTES, NO_LIMIT_BYTES);
    rc = rc ? rc : hst_stream_create(bench.dev, "bench", &bench.stream);
    rc = rc ? rc : hst_dev_host_alloc(bench.dev, BENCH_STAGING_BYTES, &staging);
    rc = rc ? rc : hst_dev_mem_alloc(bench.dev, bench.moved_bytes, &in);
    rc = rc ? rc : hst_dev_mem_alloc(bench.dev, bench.moved_bytes, &out);
    rc = rc ? rc : hst_dev_mem_alloc(bench.dev, bench.moved_bytes / PARTIAL_ELEMENTS * 8, &partial);
    rc = rc ? rc : bench_fill(bench.stream, in, bench.moved_bytes, staging);
    if (rc)
        give_up(rc, "making operands");
    bench.in = in;
    bench.out = out;
    bench.partial = partial;
    hst_dev_host_free(bench.dev, staging, BENCH_STAGING_BYTES);
}

static void close_all(void)
{
    hst_dev_mem_free(bench.dev, bench.in, bench.moved_bytes);
    hst_dev_mem_free(bench.dev, bench.out, bench.moved_bytes);
    hst_dev_mem_free(bench.dev, bench.partial, bench.moved_bytes / PARTIAL_ELEMENTS * 8);
    hst_stream_destroy(&bench.stream);
    hst_dev_close(&bench.dev);
}

int main(int argc, char **argv)
{
    const char *device = "cuda:0";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--smoke") == 0) {
            bench.smoke = true;
        } else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            device = argv[++i];
        } else {
            fprintf(stderr, "usage: bench_ranks [--device cuda:0] [--smoke]\n");
            return 2;
        }
    }
    bench.moved_bytes = bench.smoke ? MOVED_SMOKE_BYTES : MOVED_BYTES;
    open_all(device);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        measure(&ROWS[i]);
    close_all();
    return 0;
}
