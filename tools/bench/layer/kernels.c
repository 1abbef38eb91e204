/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a device, alone: decides the shapes, makes the operands once for all of them. */
#include "bench/layer/kernels.h"

#include "bench/budget.h"
#include "bench/burn.h"
#include "bench/ground.h"
#include "bench/layer/locking.h"
#include "bench/step/waits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One micro-batch of an 8B Llama, twice: far more than any cache on the card holds. */
static const struct ground_sizes FULL = {
    .tokens = 16384,
    .hidden = 4096,
    .inner = 14336,
    .heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .seq = 2048,
    .vocab = 128256,
    .chunk = 1024,
    .elements = (size_t)1 << 26,
    .cube = 8192,
};
/* One thread of a processor does this in seconds. */
static const struct ground_sizes HOST = {
    .tokens = 1024,
    .hidden = 1024,
    .inner = 2816,
    .heads = 8,
    .kv_heads = 2,
    .head_dim = 128,
    .seq = 256,
    .vocab = 32000,
    .chunk = 128,
    .elements = (size_t)1 << 22,
    .cube = 1024,
};
static const struct ground_sizes SMOKE = {
    .tokens = 128,
    .hidden = 64,
    .inner = 96,
    .heads = 2,
    .kv_heads = 1,
    .head_dim = 64,
    .seq = 32,
    .vocab = 160,
    .chunk = 8,
    .elements = 8192,
    .cube = 64,
};

static size_t greatest(const size_t *sizes, size_t count)
{
    size_t most = 0;
    for (size_t i = 0; i < count; i++)
        most = sizes[i] > most ? sizes[i] : most;
    return most;
}

static size_t buffer_bytes(const struct ground_sizes *s)
{
    const size_t needed[] = {
        2 * s->tokens * s->inner, 2 * s->vocab * s->hidden, 2 * s->vocab * s->chunk,
        4 * s->elements,          4 * s->inner * s->hidden, /* a weight's gradient */
        4 * s->cube * s->cube,
    };
    return greatest(needed, sizeof needed / sizeof *needed);
}

/* One f32 per row: of tokens, of tokens and heads, of a rope's table, of a vector as wide. */
static size_t rows_bytes(const struct ground_sizes *s)
{
    const size_t needed[] = {4 * s->tokens * s->heads, 2 * s->seq * s->head_dim, 4 * s->inner,
                             s->elements / 512};
    return greatest(needed, sizeof needed / sizeof *needed);
}

static int fill(struct ground *g, void *staging)
{
    int rc = 0;
    for (size_t i = 0; i < GROUND_BUFFERS && !rc; i++)
        rc = bench_fill(g->stream, g->buffers[i], g->buffer_bytes, staging);
    float *ones = staging;
    for (size_t i = 0; i < BENCH_STAGING_BYTES / 4 && !rc; i++)
        ones[i] = 1;
    return rc ? rc : bench_spread(g->stream, g->ones, rows_bytes(&g->sizes), ones);
}

static int open_ground(struct ground *g)
{
    size_t rows = rows_bytes(&g->sizes);
    void *staging = NULL;
    g->buffer_bytes = buffer_bytes(&g->sizes);
    int rc = bench_budget_take(g->dev, g->budget_bytes);
    for (size_t i = 0; i < GROUND_BUFFERS && !rc; i++)
        rc = hst_dev_mem_alloc(g->dev, g->buffer_bytes, &g->buffers[i]);
    rc = rc ? rc : hst_dev_mem_alloc(g->dev, rows, &g->zeros); /* memory comes zeroed */
    rc = rc ? rc : hst_dev_mem_alloc(g->dev, rows, &g->ones);
    rc = rc ? rc : hst_dev_mem_alloc(g->dev, rows, &g->rows);
    if (!rc)
        ground_plan_work(g); /* when the operands are there */
    rc = rc ? rc : hst_dev_mem_alloc(g->dev, g->work_bytes + 1, &g->work.data);
    rc = rc ? rc : hst_stream_create(g->dev, "bench", &g->stream);
    rc = rc ? rc : hst_dev_host_alloc(g->dev, BENCH_STAGING_BYTES, &staging);
    rc = rc ? rc : fill(g, staging);
    if (staging)
        hst_dev_host_free(g->dev, staging, BENCH_STAGING_BYTES);
    g->work.size_bytes = g->work_bytes;
    return rc ? bench_device_failed(g->dev, rc, "making operands", g->error) : 0;
}

static void close_ground(struct ground *g)
{
    size_t rows = rows_bytes(&g->sizes);
    if (g->stream)
        hst_stream_destroy(&g->stream);
    for (size_t i = 0; i < GROUND_BUFFERS; i++)
        if (g->buffers[i])
            hst_dev_mem_free(g->dev, g->buffers[i], g->buffer_bytes);
    void *const others[] = {g->zeros, g->ones, g->rows};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i])
            hst_dev_mem_free(g->dev, others[i], rows);
    if (g->work.data)
        hst_dev_mem_free(g->dev, g->work.data, g->work_bytes + 1);
}

int ground_time(struct ground *g, struct bench_figure *figure, int (*enqueue)(void *arg), void *arg,
                struct bench_timing *timing)
{
    *timing = (struct bench_timing){0};
    int rc = bench_time(g->stream, g->teller->smoke, enqueue, arg, timing);
    if (rc == -ENOTSUP) {
        figure->note = "the device does not have it";
        g->teller->tell(g->teller->context, figure);
        return 0;
    }
    return rc ? bench_device_failed(g->dev, rc, figure->name, g->error) : 0;
}

int ground_measure(struct ground *g, struct bench_figure *figure, double amount,
                   int (*enqueue)(void *arg), void *arg)
{
    struct bench_timing timing;
    int rc = ground_time(g, figure, enqueue, arg, &timing);
    if (!rc && !figure->note)
        bench_tell_rate(g->teller, figure, amount, &timing);
    return rc;
}

static int tell_copies(struct hst_dev *dev, const struct bench_teller *teller,
                       struct hst_error *error)
{
    struct bench_copies copies;
    struct hst_dev_info info;
    int rc = bench_copies(dev, teller->smoke, &copies, error);
    if (rc)
        return rc;
    hst_dev_info(dev, &info);
    double link = bench_pcie_rate(info.pcie_generation_max, info.pcie_lanes_max);
    const struct {
        const char *name;
        const struct bench_timing *timing;
        double copies;
    } rows[] = {{"host to device", &copies.to_device, 1},
                {"device to host", &copies.from_device, 1},
                {"both at once", &copies.both, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench_figure figure = {.group = "copies",
                                      .name = rows[i].name,
                                      .unit = "B/s",
                                      .ceiling = link,
                                      .ceiling_name = "the PCI Express link"};
        if (rows[i].copies > 1) {
            figure.ceiling = (double)copies.size_bytes / copies.to_device.median_s +
                             (double)copies.size_bytes / copies.from_device.median_s;
            figure.ceiling_name = "the sum of the two alone";
        }
        bench_tell_rate(teller, &figure, rows[i].copies * (double)copies.size_bytes,
                        rows[i].timing);
    }
    return 0;
}

#define LOCKED_BYTES       ((uint64_t)1 << 30)
#define LOCKED_SMOKE_BYTES ((uint64_t)2 << 20)
#define LOCKED_ROUNDS      3u

static void tell_locked(const struct bench_locking *locking, enum bench_pages pages, bool lock,
                        const struct bench_teller *teller)
{
    char name[96];
    snprintf(name, sizeof name, "page-%s %llu MiB, %s", lock ? "lock" : "unlock",
             (unsigned long long)(locking->size_bytes >> 20), bench_pages_name(pages));
    if (!locking->size_bytes)
        snprintf(name, sizeof name, "page-%s, %s", lock ? "lock" : "unlock",
                 bench_pages_name(pages));
    struct bench_figure figure = {
        .group = "copies", .name = name, .unit = "B/s", .note = locking->missing[pages]};
    if (figure.note)
        teller->tell(teller->context, &figure);
    else
        bench_tell_rate(teller, &figure, (double)locking->size_bytes,
                        lock ? &locking->lock[pages] : &locking->unlock[pages]);
}

static int tell_locking(struct hst_dev *dev, const struct bench_teller *teller,
                        struct hst_error *error)
{
    struct bench_locking locking;
    bool smoke = teller->smoke;
    int rc = bench_locking(dev, smoke ? LOCKED_SMOKE_BYTES : LOCKED_BYTES,
                           smoke ? 1 : LOCKED_ROUNDS, &locking, error);
    for (enum bench_pages pages = 0; pages < BENCH_PAGES_KINDS && !rc; pages++) {
        tell_locked(&locking, pages, true, teller);
        tell_locked(&locking, pages, false, teller);
    }
    return rc;
}

static int tell_waits(struct hst_dev *dev, const struct bench_teller *teller,
                      struct hst_error *error)
{
    struct bench_waits w;
    int rc = bench_waits(dev, teller->smoke, &w, error);
    if (rc)
        return rc;
    const struct bench_figure figures[] = {
        {"waits", "end of a copy until the thread goes on", w.wake.median_s, w.wake.least_s,
         w.wake.most_s, "s", 0, NULL, NULL},
        {"waits", "processor time of the thread in the wait", w.processor.median_s,
         w.processor.least_s, w.processor.most_s, "s", w.wait.median_s, "the wait", NULL},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        teller->tell(teller->context, &figures[i]);
    return 0;
}

static const struct ground_sizes *sizes_for(const struct hst_dev *dev, bool smoke)
{
    return smoke ? &SMOKE : hst_dev_flags(dev) & HST_DEV_HOST_MEMORY ? &HOST : &FULL;
}

static void tell_budget(const struct ground *g)
{
    const struct bench_figure figure = {.group = "attention",
                                        .name = "budget of the GPU's memory: the usual --hbm",
                                        .value = (double)g->budget_bytes,
                                        .unit = "B"};
    if (g->budget_bytes)
        g->teller->tell(g->teller->context, &figure);
}

int bench_kernels(struct hst_dev *dev, unsigned groups, const struct bench_teller *teller,
                  struct hst_error *error)
{
    struct ground g = {.dev = dev,
                       .teller = teller,
                       .error = error,
                       .sizes = *sizes_for(dev, teller->smoke),
                       .budget_bytes = bench_budget_bytes(dev),
                       .with_attention = (groups & BENCH_ATTENTION) != 0};
    double burned_s;
    int rc = bench_burn_in(dev, teller->smoke, &burned_s, error);
    if (!rc && groups & BENCH_COPIES)
        rc = tell_copies(dev, teller, error);
    if (!rc && groups & BENCH_COPIES)
        rc = tell_locking(dev, teller, error);
    if (!rc && groups & BENCH_WAITS)
        rc = tell_waits(dev, teller, error);
    if (rc || !(groups & ~((unsigned)BENCH_COPIES | BENCH_WAITS)))
        return rc;
    rc = open_ground(&g);
    if (!rc && groups & BENCH_MEMORY)
        rc = ground_moving(&g);
    if (!rc && groups & (BENCH_MATMUL | BENCH_ATTENTION | BENCH_LAUNCHES))
        rc = ground_matmul(&g);
    if (!rc && groups & BENCH_ATTENTION) {
        tell_budget(&g);
        rc = ground_attention(&g);
    }
    if (!rc && groups & BENCH_LAUNCHES)
        rc = ground_launches(&g);
    close_ground(&g);
    return rc;
}
