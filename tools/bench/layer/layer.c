/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the model's own passes of a layer and of norm and head on a stream that is watched, several
 * times, and tells each operation's median beside what bounds it. Nothing here knows what a layer
 * consists of. The backward is the one that computes the layer again from its checkpoint.
 */
#include "bench/layer/layer.h"

#include "bench/budget.h"
#include "bench/burn.h"
#include "bench/layer/ceilings.h"
#include "bench/layer/room.h"
#include "bench/step/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, HOST_ROUNDS = 3 };

struct bench {
    struct hst_dev *dev;
    struct hst_stream *stream;
    const struct bench_layer_in *in;
    struct hst_error *error;
    struct watch *watch;
    struct layer_ceilings ceilings;
    unsigned rounds;
};

/* The rounds of one phase: seconds[round × count + operation]. */
struct rounds {
    double *seconds;
    double all_s[ROUNDS];
    size_t count;
};

typedef void phase_fn(struct layer_room *room, struct pass *p);

static void forward(struct layer_room *room, struct pass *p)
{
    layer_forward(p, &room->layer, room->x);
}

static void backward(struct layer_room *room, struct pass *p)
{
    layer_backward(p, &room->layer, room->x0, room->dx);
}

/* As the units come in a step: the norm, loss and gradient of the head, the norm's backward. */
static void norm_and_head(struct layer_room *room, struct pass *p)
{
    struct pass head = *p;
    p->op_work = room->norm.op;
    norm_forward(p, &room->norm, room->x);
    head.param = room->param + 1;
    head.op_work = room->of_head.op;
    head.rc = p->rc;
    head_loss(&head, &room->of_head, &room->io);
    p->rc = head.rc;
    norm_backward(p, &room->norm, room->x0, room->dx);
}

/* Once, from the same numbers as before. */
static int run_once(struct bench *b, struct layer_room *room, phase_fn *phase)
{
    struct pass p = layer_room_pass(room, watch_front(b->watch));
    p.op_work = room->layer.op;
    int rc = layer_room_restore(room);
    rc = rc ? rc : watch_begin(b->watch);
    if (rc)
        return rc;
    phase(room, &p);
    return p.rc;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct bench_timing timing_of(double *seconds, unsigned rounds)
{
    qsort(seconds, rounds, sizeof *seconds, by_value);
    return (struct bench_timing){seconds[rounds / 2], seconds[0], seconds[rounds - 1]};
}

/* The first run is not counted: it loads code and makes plans, and tells how many there are. */
static int run_rounds(struct bench *b, struct layer_room *room, phase_fn *phase, struct rounds *all)
{
    int rc = run_once(b, room, phase);
    rc = rc ? rc : hst_stream_sync(b->stream);
    (void)watch_seen(b->watch, &all->count);
    all->seconds = rc ? NULL : malloc((b->rounds * all->count + 1) * sizeof *all->seconds);
    if (!rc && !all->seconds)
        return -ENOMEM;
    for (unsigned r = 0; r < b->rounds && !rc; r++) {
        size_t count;
        rc = run_once(b, room, phase);
        (void)watch_seen(b->watch, &count);
        if (!rc && count != all->count)
            rc = -EIO;
        rc = rc ? rc : watch_seconds(b->watch, all->seconds + r * count, &all->all_s[r]);
    }
    return rc;
}

static void add_operation(const struct bench *b, struct bench_layer_row *row,
                          const struct rounds *all, size_t i, const struct watched *w)
{
    double seconds[ROUNDS];
    for (unsigned r = 0; r < b->rounds; r++)
        seconds[r] = all->seconds[r * all->count + i];
    struct bench_timing timing = timing_of(seconds, b->rounds);
    row->times++;
    row->seconds += timing.median_s;
    row->least_s += timing.least_s;
    row->most_s += timing.most_s;
    row->bytes += w->bytes;
    row->flops += w->flops;
    row->ceiling_s +=
        w->computes ? w->flops / b->ceilings.flops_per_s : w->bytes / b->ceilings.bytes_per_s;
}

static bool seen_before(const struct watched *seen, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (strcmp(seen[j].name, seen[i].name) == 0)
            return true;
    return false;
}

static void tell_operations(const struct bench *b, struct bench_layer_row head,
                            const struct rounds *all)
{
    size_t count;
    const struct watched *seen = watch_seen(b->watch, &count);
    for (size_t i = 0; i < count; i++) {
        if (seen_before(seen, i))
            continue;
        struct bench_layer_row row = head;
        bool computes = seen[i].computes;
        row.name = seen[i].name;
        for (size_t j = i; j < count; j++)
            if (strcmp(seen[j].name, seen[i].name) == 0)
                add_operation(b, &row, all, j, &seen[j]);
        row.unit = computes ? "FLOP/s" : "B/s";
        row.rate = (computes ? row.flops : row.bytes) / row.seconds;
        row.ceiling = computes ? b->ceilings.flops_per_s : b->ceilings.bytes_per_s;
        row.ceiling_name = computes ? "the large product" : "a copy inside the device";
        b->in->tell(b->in->context, &row);
    }
}

static void tell_phase(const struct bench *b, struct bench_layer_row row, struct rounds *all)
{
    size_t count;
    const struct watched *seen = watch_seen(b->watch, &count);
    for (size_t i = 0; i < count; i++)
        add_operation(b, &row, all, i, &seen[i]);
    struct bench_timing timing = timing_of(all->all_s, b->rounds);
    row.seconds = timing.median_s;
    row.least_s = timing.least_s;
    row.most_s = timing.most_s;
    row.unit = "s";
    row.ceiling_name = "each operation at its ceiling";
    b->in->tell(b->in->context, &row);
}

static int measure_phase(struct bench *b, struct layer_room *room, const char *name, uint64_t seq,
                         phase_fn *phase)
{
    struct rounds all = {0};
    const struct bench_layer_row head = {.seq = seq, .phase = name};
    int rc = run_rounds(b, room, phase, &all);
    if (!rc) {
        tell_operations(b, head, &all);
        tell_phase(b, head, &all);
    }
    free(all.seconds);
    return rc ? bench_device_failed(b->dev, rc, name, b->error) : 0;
}

static int measure_layer(struct bench *b, uint64_t seq)
{
    struct layer_room room = {.dev = b->dev, .stream = b->stream};
    int rc = layer_room_open(&room, b->in, seq, b->error);
    rc = rc ? rc : measure_phase(b, &room, "forward", seq, forward);
    rc = rc ? rc : measure_phase(b, &room, "backward", seq, backward);
    layer_room_close(&room);
    return rc;
}

static int measure_head(struct bench *b)
{
    struct layer_room room = {.dev = b->dev, .stream = b->stream, .head = true};
    int rc = layer_room_open(&room, b->in, b->in->seqs[0], b->error);
    rc = rc ? rc : measure_phase(b, &room, "head", 0, norm_and_head);
    layer_room_close(&room);
    return rc;
}

/* Asking for the clock may take a second, in which the device falls asleep again: warmed twice. */
static int warm(struct bench *b)
{
    double burned_s;
    int rc = bench_burn_in(b->dev, b->in->smoke, &burned_s, b->error);
    if (rc)
        return rc;
    b->in->pause(b->in->context, true);
    return bench_burn_in(b->dev, b->in->smoke, &burned_s, b->error);
}

static int open_bench(struct bench *b)
{
    int rc = warm(b);
    if (rc)
        return rc;
    rc = bench_budget_take(b->dev, b->in->budget_bytes);
    rc = rc ? rc : hst_stream_create(b->dev, "bench", &b->stream);
    rc = rc ? rc : watch_open(b->dev, b->stream, &b->watch);
    if (rc)
        return bench_device_failed(b->dev, rc, "watching a stream", b->error);
    return layer_ceilings(b->dev, b->stream, b->in->dtype, b->in->smoke, &b->ceilings, b->error);
}

int bench_layer(struct hst_dev *dev, const struct bench_layer_in *in, struct hst_error *error)
{
    bool host = hst_dev_flags(dev) & HST_DEV_HOST_MEMORY;
    struct bench b = {.dev = dev, .in = in, .error = error};
    b.rounds = in->smoke ? 1 : host ? HOST_ROUNDS : ROUNDS;
    int rc = open_bench(&b);
    for (size_t i = 0; i < in->seq_count && !rc; i++)
        rc = measure_layer(&b, in->seqs[i]);
    rc = rc ? rc : measure_head(&b);
    if (!rc)
        in->pause(in->context, false);
    watch_close(&b.watch);
    if (b.stream)
        hst_stream_destroy(&b.stream);
    return rc;
}

struct llama_config bench_layer_tiny(const struct llama_config *config)
{
    struct llama_config tiny = *config;
    tiny.hidden = 64;
    tiny.intermediate = 96;
    tiny.heads = 2;
    tiny.kv_heads = 1;
    tiny.head_dim = 64;
    tiny.vocab = 160;
    return tiny;
}
