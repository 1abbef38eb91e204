/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix GEMMs at the model's shapes, on the device that will compute them. How long one takes
 * is not known before: each begins as a small part of itself and grows until it is long enough to
 * be measured or whole, so that a slow device takes no longer than a fast one.
 */
#include "probe/probe.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB           ((size_t)1 << 20)
#define HOST_BYTES    (64 * MIB)  /* operands of one product on the host */
#define DEVICE_BYTES  (512 * MIB) /* on a device with memory of its own */
#define PRODUCTS_S    0.8         /* all GEMMs */
#define TOUCH_S       0.4
#define FIRST_FLOPS   (double)(1 << 24)
#define PART_BYTES    4096u /* operands start at multiples */
#define STAGING_BYTES ((size_t)1 << 16)
#define EXTENT_STEP   16u

struct bench {
    struct hst_dev *dev;
    struct hst_stream *stream;
    bool host; /* the memory below is host memory, else the device's */
    char *memory;
    size_t bytes;
    size_t used_bytes;             /* of it: all that can be used */
    size_t work_bytes, room_bytes; /* workspace for any of the GEMMs, and what is left */
};

/* A GEMM, or the part of it that is measured. */
struct product {
    struct bench *bench;
    struct hst_gemm part;
    struct hst_matmul args; /* of the first of so many sets of operands */
    size_t set_bytes, sets, turn;
};

/* ---- shapes ---- */

static size_t batch_of(const struct hst_gemm *p)
{
    return p->batch ? p->batch : 1;
}

static double flops_of(const struct hst_gemm *p)
{
    return 2 * (double)batch_of(p) * (double)p->m * (double)p->n * (double)p->k;
}

static enum hst_dtype result_dtype(const struct hst_gemm *p)
{
    return p->accumulate ? HST_F32 : p->dtype;
}

/* Matrices that A and B are: see hst_gemm.batch. */
static size_t a_count(const struct hst_gemm *p)
{
    return p->a_transposed ? batch_of(p) : 1;
}

static size_t b_count(const struct hst_gemm *p)
{
    return p->a_transposed ? 1 : batch_of(p);
}

static double bytes_of(const struct hst_gemm *p)
{
    double m = (double)p->m, n = (double)p->n, k = (double)p->k;
    return (m * k * (double)a_count(p) + k * n * (double)b_count(p)) *
               (double)hst_dtype_bytes(p->dtype) +
           m * n * (double)batch_of(p) * (double)hst_dtype_bytes(result_dtype(p));
}

struct hst_gemm gemm_cut(const struct hst_gemm *product, double most_flops, double most_bytes)
{
    struct hst_gemm p = *product;
    while (flops_of(&p) > most_flops || bytes_of(&p) > most_bytes) {
        size_t *longest = p.m >= p.n && p.m >= p.k ? &p.m : p.n >= p.k ? &p.n : &p.k;
        if (*longest <= EXTENT_STEP)
            break;
        *longest = (*longest / 2 + EXTENT_STEP - 1) / EXTENT_STEP * EXTENT_STEP;
    }
    return p;
}

static size_t round_up(size_t bytes)
{
    return (bytes + PART_BYTES - 1) / PART_BYTES * PART_BYTES;
}

static struct hst_matmul args_of(const struct hst_gemm *p)
{
    return (struct hst_matmul){
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a = {NULL, p->a_transposed ? p->m : p->k, p->dtype},
        .b = {NULL, p->b_transposed ? p->k : p->n, p->dtype},
        .c = {NULL, p->n, result_dtype(p)},
        .a_transposed = p->a_transposed,
        .b_transposed = p->b_transposed,
        .accumulate = p->accumulate,
        .batch = p->batch,
    };
}

/* The workspace first, then the operands one behind the other, as often as there is room: a step
   finds its weights in no cache. -ENOSPC: they do not fit. */
static int lay_out(struct product *t)
{
    const struct bench *b = t->bench;
    const struct hst_gemm *p = &t->part;
    size_t element = hst_dtype_bytes(p->dtype), result = hst_dtype_bytes(result_dtype(p));
    size_t a_one = round_up(p->m * p->k * element), b_one = round_up(p->k * p->n * element);
    size_t c_one = round_up(p->m * p->n * result);
    size_t a_bytes = a_one * a_count(p), b_bytes = b_one * b_count(p);
    t->set_bytes = a_bytes + b_bytes + c_one * batch_of(p);
    if (t->set_bytes == 0 || t->set_bytes > b->room_bytes)
        return -ENOSPC;
    t->sets = b->room_bytes / t->set_bytes;
    char *at = b->memory + b->work_bytes;
    t->args = args_of(p);
    t->args.a_step = a_count(p) > 1 ? a_one / element : 0;
    t->args.b_step = b_count(p) > 1 ? b_one / element : 0;
    t->args.c_step = c_one / result;
    t->args.work = (struct hst_work){b->memory, b->work_bytes};
    t->args.a.data = at;
    t->args.b.data = at + a_bytes;
    t->args.c.data = at + a_bytes + b_bytes;
    return 0;
}

/* ---- operands ---- */

/* Numbers of both signs below 1 (two bf16 are such an f32 too): over zeros a card draws less power
   and is faster. From a page-locked staging buffer, doubled on the device. */
int probe_fill(struct hst_dev *dev, struct hst_stream *stream, char *memory, size_t bytes)
{
    uint16_t *staging = NULL;
    uint32_t random = 1;
    int rc = hst_dev_host_alloc(dev, STAGING_BYTES, (void **)&staging);
    if (rc)
        return rc;
    for (size_t i = 0; i < STAGING_BYTES / sizeof *staging; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t sign = random >> 31 << 15, exponent = 120 + (random >> 24) % 7;
        staging[i] = (uint16_t)(sign | exponent << 7 | (random >> 16 & 0x7f));
    }
    size_t done = bytes < STAGING_BYTES ? bytes : STAGING_BYTES;
    rc = hst_stream_copy(stream, memory, staging, done);
    while (done < bytes && !rc) {
        size_t more = bytes - done < done ? bytes - done : done;
        rc = hst_stream_copy(stream, memory + done, memory, more);
        done += more;
    }
    int late = hst_stream_sync(stream);
    hst_dev_host_free(dev, staging, STAGING_BYTES);
    return rc ? rc : late;
}

/* Never less for a smaller shape. */
static size_t most_work(const struct probe *probe)
{
    size_t most = 0;
    for (uint32_t i = 0; i < probe->in->gemm_count; i++) {
        struct hst_matmul args = args_of(&probe->in->gemms[i]);
        size_t bytes = hst_matmul_work_bytes(probe->dev, &args);
        most = bytes > most ? bytes : most;
    }
    return round_up(most);
}

static int open_host_operands(const struct probe *probe, struct bench *b)
{
    void *memory = NULL;
    size_t wanted = b->work_bytes + HOST_BYTES;
    if (probe->memory_bytes < wanted)
        wanted = (size_t)probe->memory_bytes / PART_BYTES * PART_BYTES;
    int rc = hst_aio_buffer_alloc(wanted, &memory);
    if (rc)
        return rc;
    b->memory = memory;
    b->bytes = wanted;
    b->used_bytes = probe_touch(probe, memory, wanted, clock_seconds() + TOUCH_S);
    return 0;
}

static int open_device_operands(struct bench *b)
{
    b->memory = probe_device_memory(b->dev, b->work_bytes + DEVICE_BYTES, &b->bytes);
    if (!b->memory)
        return -ENOSPC;
    b->used_bytes = b->bytes;
    return probe_fill(b->dev, b->stream, b->memory, b->bytes);
}

static int open_bench(const struct probe *probe, struct bench *b)
{
    b->dev = probe->dev;
    b->host = hst_dev_flags(b->dev) & HST_DEV_HOST_MEMORY;
    b->work_bytes = most_work(probe);
    int rc = hst_stream_create(b->dev, "hst-probe", &b->stream);
    if (rc)
        return rc;
    rc = b->host ? open_host_operands(probe, b) : open_device_operands(b);
    b->room_bytes = b->used_bytes > b->work_bytes ? b->used_bytes - b->work_bytes : 0;
    return rc;
}

static void close_bench(struct bench *b)
{
    hst_stream_destroy(&b->stream);
    if (b->host)
        hst_aio_buffer_free(b->memory, b->bytes);
    else if (b->memory)
        hst_dev_mem_free(b->dev, b->memory, b->bytes);
}

/* ---- measuring ---- */

static int multiply(void *arg)
{
    struct product *t = arg;
    struct hst_matmul args = t->args;
    const size_t skipped = t->turn++ % t->sets * t->set_bytes;
    args.a.data = (char *)args.a.data + skipped;
    args.b.data = (char *)args.b.data + skipped;
    args.c.data = (char *)args.c.data + skipped;
    return hst_op_matmul(t->bench->stream, &args);
}

static int finish(void *arg)
{
    const struct product *t = arg;
    return hst_stream_sync(t->bench->stream);
}

/* The largest part that takes no longer than about `wish_s`. */
static int grow(struct product *t, const struct hst_gemm *whole, double wish_s)
{
    const struct probe_work work = {multiply, finish, t, 0};
    /* each matrix is rounded up */
    double parts = (double)(a_count(whole) + b_count(whole) + batch_of(whole));
    double room = (double)t->bench->room_bytes - parts * PART_BYTES;
    struct hst_gemm largest = gemm_cut(whole, INFINITY, room);
    for (double most = FIRST_FLOPS, seconds = 0;;) {
        t->part = gemm_cut(whole, most, room);
        int rc = lay_out(t);
        rc = rc ? rc : probe_once(&work, &seconds);
        if (rc || flops_of(&t->part) >= flops_of(&largest) || seconds >= wish_s / 2)
            return rc;
        most *= probe_growth(seconds, wish_s);
    }
}

static void describe(const struct hst_gemm *whole, const struct hst_gemm *part, char *how,
                     size_t how_bytes)
{
    char of[80] = "", many[32] = "";
    bool cut = whole->m != part->m || whole->n != part->n || whole->k != part->k;
    if (cut)
        snprintf(of, sizeof of, ", a part of %zux%zux%zu", whole->m, whole->n, whole->k);
    if (part->batch > 1)
        snprintf(many, sizeof many, ", %u at once", part->batch);
    snprintf(how, how_bytes, "%zux%zux%zu %s%s%s%s%s%s", part->m, part->n, part->k,
             part->dtype == HST_BF16  ? "bf16"
             : part->dtype == HST_F16 ? "f16"
                                      : "f32",
             part->a_transposed ? ", A transposed" : "", part->b_transposed ? ", B transposed" : "",
             part->accumulate ? ", added to C" : "", many, of);
}

static double gemm_flop(const struct hst_gemm *p)
{
    return flops_of(p) * (p->times ? p->times : 1);
}

/* An idle processor begins above the clock that it keeps: by AMX its first second can be faster by
   a third than the next ones. All rates that follow are those behind that. It is no more work than
   that of a step: a small model's start is not made longer. */
static void warm(struct probe *probe, struct product *products, int *rcs, uint32_t count)
{
    const double deadline_s = clock_seconds() + PROBE_WARM_S;
    double left = 0;
    for (uint32_t i = 0; i < count; i++)
        left += rcs[i] ? 0 : gemm_flop(&probe->in->gemms[i]);
    while (left > 0 && clock_seconds() < deadline_s && !probe_is_stopped(probe))
        for (uint32_t i = 0; i < count; i++) {
            if (rcs[i])
                continue;
            rcs[i] = multiply(&products[i]);
            const int late = finish(&products[i]);
            rcs[i] = rcs[i] ? rcs[i] : late;
            left -= rcs[i] ? INFINITY : flops_of(&products[i].part);
        }
}

static void measure(struct probe *probe, struct bench *b)
{
    const uint32_t count = probe->in->gemm_count;
    struct product products[HST_GEMMS_MAX];
    struct probe_work works[HST_GEMMS_MAX];
    struct hst_figure *figures = probe->out->gemms;
    int rcs[HST_GEMMS_MAX] = {0};
    uint32_t grown = 0;
    for (; grown < count && !probe_is_stopped(probe); grown++) {
        const uint32_t i = grown;
        products[i] = (struct product){.bench = b};
        rcs[i] = grow(&products[i], &probe->in->gemms[i], PRODUCTS_S / count / PROBE_SHARE_ROUNDS);
        works[i] = (struct probe_work){multiply, finish, &products[i],
                                       rcs[i] ? 0 : flops_of(&products[i].part)};
    }
    if (b->host)
        warm(probe, products, rcs, grown);
    probe_by_turns(probe, works, grown, clock_seconds() + PRODUCTS_S, figures, rcs);
    for (uint32_t i = 0; i < grown; i++)
        if (rcs[i])
            probe_fail(&figures[i], "the product failed: %s", strerror(-rcs[i]));
        else
            describe(&probe->in->gemms[i], &products[i].part, figures[i].how,
                     sizeof figures[i].how);
}

/* FLOP over seconds of all together, and seconds where each took its longest and its shortest. */
struct sum {
    double flop, seconds, most_s, least_s;
    uint32_t rounds;
};

static void add(struct sum *sum, const struct hst_figure *f, double amount, bool flop)
{
    sum->flop += flop ? amount : 0;
    sum->seconds += amount / f->value;
    sum->most_s += amount / f->least;
    sum->least_s += amount / f->most;
    if (sum->rounds == 0 || f->rounds < sum->rounds)
        sum->rounds = f->rounds;
}

static double operation_amount(const struct hst_operation *o)
{
    return o->amount * (o->times ? o->times : 1);
}

static void tell_together(struct probe *probe)
{
    const struct hst_probe *in = probe->in;
    const struct hst_rates *r = probe->out;
    struct hst_figure *all = &probe->out->figures[HST_RATE_COMPUTE];
    struct sum s = {0};
    for (uint32_t i = 0; i < in->gemm_count + in->operation_count; i++) {
        bool product = i < in->gemm_count;
        uint32_t at = product ? i : i - in->gemm_count;
        const struct hst_figure *f = product ? &r->gemms[at] : &r->operations[at];
        if (f->value <= 0) {
            probe_fail(all, "%s %u: %.120s", product ? "product" : "operation", at, f->how);
            return;
        }
        if (product)
            add(&s, f, gemm_flop(&in->gemms[at]), true);
        else
            add(&s, f, operation_amount(&in->operations[at]), in->operations[at].flop);
    }
    *all = (struct hst_figure){s.flop / s.seconds, s.flop / s.most_s, s.flop / s.least_s, s.rounds,
                               ""};
    char more[32] = "";
    if (in->operation_count)
        snprintf(more, sizeof more, " and %u operation%s", in->operation_count,
                 in->operation_count == 1 ? "" : "s");
    snprintf(all->how, sizeof all->how, "%u product%s%s on %.40s", in->gemm_count,
             in->gemm_count == 1 ? "" : "s", more, hst_dev_name(probe->dev));
}

static void fail_all(struct probe *probe, const char *why)
{
    for (uint32_t i = 0; i < probe->in->gemm_count; i++)
        probe_fail(&probe->out->gemms[i], "%s", why);
    for (uint32_t i = 0; i < probe->in->operation_count; i++)
        probe_fail(&probe->out->operations[i], "%s", why);
    probe_fail(&probe->out->figures[HST_RATE_COMPUTE], "%s", why);
}

void probe_gemms(struct probe *probe)
{
    const struct hst_probe *in = probe->in;
    struct bench b = {0};
    if (in->gemm_count == 0 || !probe->dev) {
        fail_all(probe,
                 in->gemm_count ? "the host device cannot be opened" : "no product was given");
        return;
    }
    int rc = open_bench(probe, &b);
    if (rc) {
        char why[96];
        snprintf(why, sizeof why, "no operands: %s",
                 rc == -ENOSPC ? "the device's budgets leave too little" : strerror(-rc));
        fail_all(probe, why);
    } else {
        measure(probe, &b);
        const struct hst_room room = {.dev = b.dev,
                                      .stream = b.stream,
                                      .memory = {b.memory, b.used_bytes},
                                      .width = in->dev ? 0 : probe->parallel.width};
        probe_operations(probe, &room);
        tell_together(probe);
    }
    close_bench(&b);
}
