/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file measures what memory gives, and what the optimizer makes of it, with all workers at
 * once, or half of them where a plan may let others rest. An update reads and writes in place, so
 * no line is fetched only to be overwritten: a null kernel with AdamW's streams (4 read, 3 written)
 * is its ceiling, not STREAM's triad.
 *
 * Memory that lies in a cache says nothing of DRAM, so the arrays are larger than the caches as far
 * as time allows: first touches are slow, above all in a virtual machine.
 */
#include "probe/probe.h"

#include "base/clock.h"
#include "machine/workers.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB         ((size_t)1 << 20)
#define LEAST_BYTES (16 * MIB) /* less is not worth a figure */
#define TOUCH_PIECE (2 * MIB)
#define TOUCH_S     0.3
#define FIGURE_S    0.08
#define COPY_PIECE  MIB
/* Pieces as the optimizer hands them out. */
#define UPDATE_PIECE ((size_t)16384)
#define NORM_PIECE   ((size_t)32 * HST_NORM_BLOCK)

typedef void null_fn(float *a, float *b, float *c, const float *read, size_t n);

/* Weights, gradients and states. */
enum {
    ARRAYS_MOST = 2 + OPTIMIZER_STATES_MOST,
    SLICES_MOST = 16,
    PIECES_PER_WORKER = 4,
    AHEAD_ROUNDS = 5
};

/*
 * Memory and one case on it: arrays of whole pieces. They are worked through slice by slice, again
 * and again, so that a round may be short and yet finds nothing in the caches that it left there.
 */
struct bench {
    struct probe *probe;
    char *memory;
    size_t bytes;
    const struct hst_cpu_adam_ops *adam;
    null_fn *null;
    struct optimizer_kernel kernel;
    struct optimizer_coef coef;
    struct optimizer_arrays updated;
    enum hst_cpu_type type;
    size_t width; /* bytes of an element of the first array */
    void (*body)(void *arg, size_t index, unsigned worker);
    void *arrays[ARRAYS_MOST];
    double *partials;
    size_t piece;                       /* elements */
    size_t slice_pieces, slices, slice; /* the one that is worked on */
    unsigned most;                      /* workers that take pieces; 0: all */
};

/* ---- touching ---- */

struct touch {
    char *memory;
    size_t bytes, first;
};

static void touch_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct touch *t = arg;
    size_t at = (t->first + index) * TOUCH_PIECE;
    memset(t->memory + at, 0x3c, t->bytes - at < TOUCH_PIECE ? t->bytes - at : TOUCH_PIECE);
}

size_t probe_touch(const struct probe *probe, void *memory, size_t bytes, double deadline_s)
{
    struct touch t = {.memory = memory, .bytes = bytes};
    size_t pieces = (bytes + TOUCH_PIECE - 1) / TOUCH_PIECE, batch = 4ul * probe->parallel.width;
    while (t.first < pieces && clock_seconds() < deadline_s) {
        size_t count = pieces - t.first < batch ? pieces - t.first : batch;
        probe->parallel.run(probe->parallel.context, count, touch_piece, &t);
        t.first += count;
    }
    return t.first < pieces ? t.first * TOUCH_PIECE : bytes;
}

/* ---- the cases ---- */

/*
 * Reads 4 arrays and writes 3 of them, as AdamW does, with next to no arithmetic. Once per
 * instruction set: with narrow loads a core does not keep enough of them under way.
 */
static inline __attribute__((always_inline)) void null_update(float *restrict a, float *restrict b,
                                                              float *restrict c,
                                                              const float *restrict read, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        b[i] = b[i] * 0.5f + read[i];
        c[i] = c[i] * 0.5f + read[i];
        a[i] = a[i] * 0.5f + read[i];
    }
}

static void null_plain(float *a, float *b, float *c, const float *read, size_t n)
{
    null_update(a, b, c, read, n);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void null_avx2(float *a, float *b, float *c,
                                                      const float *read, size_t n)
{
    null_update(a, b, c, read, n);
}

__attribute__((target("avx512f"))) static void null_avx512(float *a, float *b, float *c,
                                                           const float *read, size_t n)
{
    null_update(a, b, c, read, n);
}
#endif

static null_fn *null_of(const char *isa)
{
#if defined(__x86_64__)
    if (strncmp(isa, "avx512", strlen("avx512")) == 0)
        return null_avx512;
    if (strcmp(isa, "avx2") == 0)
        return null_avx2;
#endif
    (void)isa;
    return null_plain;
}

/* The first element of a piece of this slice. */
static size_t piece_at(const struct bench *b, size_t index)
{
    return (b->slice * b->slice_pieces + index) * b->piece;
}

static void null_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct bench *b = arg;
    size_t at = piece_at(b, index), n = b->piece;
    float *weights = b->arrays[0], *first = b->arrays[1], *second = b->arrays[2];
    const float *grads = b->arrays[3];
    b->null(weights + at, first + at, second + at, grads + at, n);
}

static void copy_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct bench *b = arg;
    size_t at = piece_at(b, index), n = b->piece;
    memcpy((char *)b->arrays[0] + at, (const char *)b->arrays[1] + at, n);
}

static void update_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct bench *b = arg;
    const struct optimizer_arrays arrays =
        optimizer_arrays_at(b->kernel.optimizer, &b->updated, piece_at(b, index));
    int rc = optimizer_run(&b->kernel, &b->coef, &arrays, b->piece);
    assert(rc >= 0); /* the arrays were laid out for it */
    (void)rc;
}

static void norm_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct bench *b = arg;
    size_t at = piece_at(b, index);
    b->adam->norm2[b->type]((const char *)b->arrays[0] + at * b->width, b->piece,
                            b->partials + at / HST_NORM_BLOCK);
}

/* It says what is done with which arrays. */
struct memory_case {
    enum hst_rate rate;
    void (*body)(void *arg, size_t index, unsigned worker);
    size_t piece;  /* elements */
    double amount; /* of an element, in the rate's unit */
    /* bytes of an element of each array, 0: there is none; of an update its row says them */
    uint8_t widths[ARRAYS_MOST];
    /* what another case left there may be denormal when it is read in other widths, and slow */
    bool fresh;
    enum hst_precision precision; /* of weights and gradients */
    enum hst_state state;         /* of an update's moments */
};

struct optimizer_coef probe_coef(const struct optimizer *optimizer)
{
    const struct optimizer_step ordinary = {.lr = 1e-4, .t = 1, .grad_scale = 1};
    struct hst_config config = {.size = sizeof config};
    struct optimizer_coefs coefs;
    struct optimizer_groups one = {.count = 1};
    optimizer_resolve(&config);
    one.list[0].numbers = optimizer_group_of(&config);
    int rc = optimizer_coefs_init(optimizer, &one, &ordinary, &coefs);
    assert(rc == 0); /* they are ordinary */
    (void)rc;
    return *optimizer_coef(&coefs, 0, true);
}

#define FP32      HST_PRECISION_FP32
#define BF16      HST_PRECISION_BF16
#define F32_STATE HST_STATE_FP32
static const struct memory_case memory_cases[] = {
    {HST_RATE_DRAM, null_piece, UPDATE_PIECE, 28, {4, 4, 4, 4}, false, FP32, F32_STATE},
    {HST_RATE_DRAM_COPY, copy_piece, COPY_PIECE, 2, {1, 1}, false, FP32, F32_STATE},
};
static const struct memory_case update_cases[] = {
    {HST_RATE_NORM_FP32, norm_piece, NORM_PIECE, 1, {4}, false, FP32, F32_STATE},
    {HST_RATE_NORM_BF16, norm_piece, NORM_PIECE, 1, {2}, true, BF16, F32_STATE},
    {HST_RATE_UPDATE_FP32, update_piece, UPDATE_PIECE, 1, {0}, false, FP32, F32_STATE},
    {HST_RATE_UPDATE_BF16, update_piece, UPDATE_PIECE, 1, {0}, true, BF16, F32_STATE},
};
/* These have no rates of their own: whether they are to prefetch is all that is asked. */
static const struct memory_case ahead_cases[] = {
    {HST_RATE_COUNT, update_piece, UPDATE_PIECE, 1, {0}, true, BF16, HST_STATE_BF16},
    {HST_RATE_COUNT, update_piece, UPDATE_PIECE, 1, {0}, true, BF16, HST_STATE_8BIT},
};
static const struct memory_case half_cases[] = {
    {HST_RATE_HALF_FP32, update_piece, UPDATE_PIECE, 1, {0}, true, FP32, F32_STATE},
    {HST_RATE_HALF_BF16, update_piece, UPDATE_PIECE, 1, {0}, true, BF16, F32_STATE},
};

/* ---- running them ---- */

/* Bytes of a piece of each array; of an update weights, gradients, and the states of its row.
 * Returns how many arrays there are. */
static size_t piece_bytes(const struct memory_case *c, const struct optimizer *optimizer,
                          size_t bytes[ARRAYS_MOST])
{
    size_t arrays = 0;
    if (c->body != update_piece) {
        do
            bytes[arrays] = c->piece * c->widths[arrays];
        while (++arrays < ARRAYS_MOST && c->widths[arrays]);
        return arrays;
    }
    bytes[arrays++] = c->piece * optimizer_weight_bytes(optimizer);
    bytes[arrays++] = c->piece * optimizer_weight_bytes(optimizer);
    for (uint32_t i = 0; i < optimizer->state_count; i++)
        bytes[arrays++] = optimizer_array_bytes(optimizer, i, c->piece);
    return arrays;
}

static void name_arrays(struct bench *b)
{
    b->updated = (struct optimizer_arrays){.weights = b->arrays[0], .grads = b->arrays[1]};
    for (uint32_t i = 0; i < b->kernel.optimizer->state_count; i++)
        b->updated.states[i] = b->arrays[2 + i];
}

/* Lays the arrays out, none at the same distance from a page's start as another. Returns how many
   there are. */
static size_t lay_out(struct bench *b, const struct memory_case *c)
{
    const struct optimizer *optimizer = optimizer_measured(c->precision, c->state);
    size_t sizes[ARRAYS_MOST], offsets[ARRAYS_MOST], of_all = 0;
    size_t arrays = piece_bytes(c, optimizer, sizes);
    for (size_t i = 0; i < arrays; i++)
        of_all += sizes[i];
    assert(of_all > 0);
    size_t pieces = (b->bytes - arrays * 8192) / of_all;
    size_t slices = pieces / (PIECES_PER_WORKER * (size_t)b->probe->parallel.width);
    b->body = c->body;
    b->piece = c->piece;
    b->kernel = optimizer_kernel_find(optimizer, b->adam);
    b->kernel.ahead = hst_ahead_elements(&b->probe->out->ahead[optimizer->ahead_row]);
    b->coef = probe_coef(optimizer);
    b->type = optimizer->host.grads;
    b->width = sizes[0] / c->piece;
    b->slices = slices < 1 ? 1 : slices > SLICES_MOST ? SLICES_MOST : slices;
    b->slice_pieces = pieces / b->slices;
    b->slice = 0;
    for (size_t i = 0; i < arrays; i++)
        sizes[i] *= b->slices * b->slice_pieces;
    hst_aio_stagger(sizes, arrays, offsets);
    for (size_t i = 0; i < ARRAYS_MOST; i++)
        b->arrays[i] = i < arrays ? b->memory + offsets[i] : NULL;
    name_arrays(b);
    return arrays;
}

static int run_slice(void *arg)
{
    struct bench *b = arg;
    const struct probe *probe = b->probe;
    if (b->most > 0 && probe->workers)
        (void)workers_time(probe->workers, b->most, b->slice_pieces, b->body, b);
    else
        probe->parallel.run(probe->parallel.context, b->slice_pieces, b->body, b);
    b->slice = (b->slice + 1) % b->slices;
    return 0;
}

static void describe(const struct bench *b, size_t arrays, struct hst_figure *figure)
{
    char caches[80] = "", of_all[24] = "";
    unsigned width = b->probe->parallel.width, most = b->most > 0 ? b->most : width;
    if (b->bytes < 2 * b->probe->cache_bytes)
        snprintf(caches, sizeof caches, "; caches hold %zu MiB and may have helped",
                 (size_t)(b->probe->cache_bytes / MIB));
    if (most < width)
        snprintf(of_all, sizeof of_all, " of %u", width);
    snprintf(figure->how, sizeof figure->how, "%zu array%s, %zu MiB together, %u%s worker%s, %s%s",
             arrays, arrays == 1 ? "" : "s", b->bytes / MIB, most, of_all, width == 1 ? "" : "s",
             b->adam->name, caches);
}

/* A slice with prefetch and one without, by turns; the fastest of each, since what disturbs one
 * makes it slower alone. */
static void choose_ahead(struct bench *b)
{
    static const uint32_t ways[] = {HST_AHEAD_USUAL, HST_AHEAD_NONE};
    const double elements = (double)b->slice_pieces * (double)b->piece;
    double least_s[] = {INFINITY, INFINITY};
    for (int round = 0; round < AHEAD_ROUNDS; round++)
        for (int i = 0; i < 2; i++) {
            const int way = (i + round) % 2;
            const double start = clock_seconds();
            b->kernel.ahead = ways[way];
            (void)run_slice(b);
            least_s[way] = fmin(least_s[way], clock_seconds() - start);
        }
    struct hst_ahead *found = &b->probe->out->ahead[b->kernel.optimizer->ahead_row];
    found->asking = least_s[0] > 0 ? elements / least_s[0] : 0;
    found->silent = least_s[1] > 0 ? elements / least_s[1] : 0;
    b->kernel.ahead = hst_ahead_elements(found);
}

static void measure(struct bench *b, const struct memory_case *cases, size_t count)
{
    for (size_t i = 0; i < count && !probe_is_stopped(b->probe); i++) {
        size_t arrays = lay_out(b, &cases[i]);
        double elements = (double)b->slice_pieces * (double)b->piece;
        const struct probe_work work = {
            .begin = run_slice, .arg = b, .amount = cases[i].amount * elements};
        if (cases[i].fresh)
            probe_touch(b->probe, b->memory, b->bytes, INFINITY);
        if (cases[i].body == update_piece && b->most == 0)
            choose_ahead(b);
        struct hst_figure *figure =
            cases[i].rate < HST_RATE_COUNT ? &b->probe->out->figures[cases[i].rate] : NULL;
        if (figure && probe_rate(&work, clock_seconds() + FIGURE_S, figure) == 0)
            describe(b, arrays, figure);
    }
}

#define COUNT(cases) (sizeof(cases) / sizeof *(cases))

static void fail_all(struct probe *probe, const char *why)
{
    for (size_t i = 0; probe->in->parts & HST_PROBE_MEMORY && i < COUNT(memory_cases); i++)
        probe_fail(&probe->out->figures[memory_cases[i].rate], "%s", why);
    for (size_t i = 0; probe->in->parts & HST_PROBE_UPDATE && i < COUNT(update_cases); i++)
        probe_fail(&probe->out->figures[update_cases[i].rate], "%s", why);
}

static size_t wanted_bytes(const struct probe *probe)
{
    uint64_t bytes = 2 * probe->cache_bytes;
    bytes = bytes < 128 * MIB ? 128 * MIB : bytes > 512 * MIB ? 512 * MIB : bytes;
    bytes = bytes > probe->memory_bytes ? probe->memory_bytes : bytes;
    return (size_t)(bytes / TOUCH_PIECE * TOUCH_PIECE);
}

static const char *run_cases(struct bench *b)
{
    if (b->bytes < LEAST_BYTES)
        return "touching 16 MiB of memory took too long";
    b->null = null_of(b->adam->name);
    b->partials = calloc(b->bytes / sizeof(uint16_t) / HST_NORM_BLOCK, sizeof *b->partials);
    if (!b->partials)
        return "out of memory";
    if (b->probe->in->parts & HST_PROBE_MEMORY)
        measure(b, memory_cases, COUNT(memory_cases));
    if (b->probe->in->parts & HST_PROBE_UPDATE)
        measure(b, update_cases, COUNT(update_cases));
    if (b->probe->in->parts & HST_PROBE_UPDATE)
        measure(b, ahead_cases, COUNT(ahead_cases));
    return NULL;
}

/* ---- a load for others' measuring ---- */

struct probe_load {
    struct bench bench;
    double slice_bytes;
};

struct probe_load *probe_load_open(struct probe *probe, uint64_t most_bytes)
{
    const struct memory_case *c = &update_cases[COUNT(update_cases) - 1];
    size_t wanted = wanted_bytes(probe);
    void *memory = NULL;
    wanted = wanted > most_bytes ? (size_t)(most_bytes / TOUCH_PIECE * TOUCH_PIECE) : wanted;
    struct probe_load *load = wanted < LEAST_BYTES ? NULL : calloc(1, sizeof *load);
    if (!load || hst_aio_buffer_alloc(wanted, &memory)) {
        free(load);
        return NULL;
    }
    load->bench = (struct bench){.probe = probe,
                                 .memory = memory,
                                 .bytes = wanted,
                                 .adam = hst_cpu_adam_ops(HST_CPU_ISA_AUTO)};
    probe_touch(probe, memory, wanted, INFINITY);
    (void)lay_out(&load->bench, c);
    load->slice_bytes = optimizer_traffic_bytes(load->bench.kernel.optimizer) *
                        (double)load->bench.slice_pieces * (double)load->bench.piece;
    return load;
}

double probe_load_slice(struct probe_load *load)
{
    (void)run_slice(&load->bench);
    return load->slice_bytes;
}

void probe_half(struct probe_load *load)
{
    struct bench *b = &load->bench;
    struct probe *probe = b->probe;
    unsigned width = probe->parallel.width;
    if (width > 1 && !probe->workers) {
        probe_half_fail(probe, "the caller's workers cannot rest");
        return;
    }
    b->most = (width + 1) / 2;
    measure(b, half_cases, COUNT(half_cases));
    b->most = 0;
}

void probe_half_fail(struct probe *probe, const char *why)
{
    for (size_t i = 0; i < COUNT(half_cases); i++)
        probe_fail(&probe->out->figures[half_cases[i].rate], "%s", why);
}

void probe_load_close(struct probe_load **load)
{
    if (*load)
        hst_aio_buffer_free((*load)->bench.memory, (*load)->bench.bytes);
    free(*load);
    *load = NULL;
}

/* ---- the part ---- */

void probe_memory(struct probe *probe)
{
    void *memory = NULL;
    size_t wanted = wanted_bytes(probe);
    if (wanted < LEAST_BYTES) {
        fail_all(probe, "less than 16 MiB of memory may be taken");
        return;
    }
    if (hst_aio_buffer_alloc(wanted, &memory)) {
        fail_all(probe, "out of memory");
        return;
    }
    struct bench b = {.probe = probe,
                      .memory = memory,
                      .adam = hst_cpu_adam_ops(HST_CPU_ISA_AUTO),
                      .bytes = probe_touch(probe, memory, wanted, clock_seconds() + TOUCH_S)};
    const char *why = run_cases(&b);
    if (why)
        fail_all(probe, why);
    free(b.partials);
    hst_aio_buffer_free(memory, wanted);
}
