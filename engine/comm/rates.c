/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what an operation between ranks costs: seconds to begin and end it, and seconds of its
 * bytes, those of the node and those that cross nodes. Each turn is measured from one meeting of
 * all ranks on, and takes what its slowest rank does, so that all ranks know the same.
 */
#include "comm/rates.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, ROUNDS = 5, EMPTY_TURNS = 8, EMPTY_BYTES = 64 };
#define ROW_BYTES   ((size_t)16 << 20)
#define WISH_S      0.004 /* of one operation; on a busy machine more, up to the next */
#define WISH_MOST_S 0.05
/* Rows are so large that begin and end are a small part of what they take: what a busy machine
   measured beyond its half is noise. Of what crosses nodes too little may be left beside a copy. */
#define EMPTY_TIMES 8
#define EMPTY_MOST  0.5
#define PART_MOST   0.9

/* ---- what crosses nodes ---- */

static uint32_t power_of_two_of(uint32_t count)
{
    return count & (~count + 1);
}

struct comm_crossing comm_crossing(const struct comm_info *info)
{
    const uint32_t ranks = info->ranks, nodes = info->nodes, locals = info->locals;
    if (nodes <= 1)
        return (struct comm_crossing){0, 0};
    const bool uniform = ranks == locals * nodes;
    const uint32_t group = uniform ? power_of_two_of(locals) : 1;
    const double flat = ranks - locals, others = ranks - 1;
    const double groups_elsewhere = (double)(ranks - locals) / group;
    return (struct comm_crossing){
        .gather = (uniform && info->shared ? nodes - 1 : flat) / others,
        .exchange = groups_elsewhere / others,
    };
}

/* ---- messages ---- */

static struct comm_messages gather_messages(const struct comm_info *info, bool ring, bool shared)
{
    const double ranks = info->ranks, nodes = info->nodes, locals = info->locals;
    if (ring)
        return (struct comm_messages){ranks - nodes, nodes - 1};
    if (!shared)
        return (struct comm_messages){locals - 1, ranks - locals};
    return (struct comm_messages){0, nodes - 1};
}

static struct comm_messages exchange_messages(const struct comm_info *info, bool shared)
{
    const bool uniform = info->ranks == info->locals * info->nodes;
    const double ranks = info->ranks, locals = info->locals;
    const double group = comm_hop_group(info, uniform);
    const double first = shared ? 0 : group - 1;
    if (info->nodes == 1)
        return (struct comm_messages){shared ? 0 : locals - 1, 0};
    return (struct comm_messages){first + locals / group - 1, (ranks - locals) / group};
}

struct comm_messages comm_messages(const struct comm_info *info, const struct comm_op *op)
{
    const bool uniform = info->ranks == info->locals * info->nodes;
    const bool shared = info->shared && uniform && !op->on_device; /* read in place */
    if (op->near)
        return (struct comm_messages){shared ? 0 : info->locals - 1.0, 0};
    return op->kind == COMM_GATHER ? gather_messages(info, op->on_device, shared)
                                   : exchange_messages(info, shared);
}

/* ---- rates ---- */

static double rest_of(double whole_s, double part_s, double most)
{
    return fmax(whole_s - part_s, (1 - most) * whole_s);
}

struct comm_rates comm_rates_of(const struct comm_info *info, const struct comm_times *t)
{
    const struct comm_crossing crossing = comm_crossing(info);
    const double gather_s = rest_of(t->gather_s, t->empty_s, EMPTY_MOST);
    const double exchange_s = rest_of(t->exchange_s, t->empty_s, EMPTY_MOST);
    const double gather_out = t->gather_bytes * crossing.gather;
    const double gather_in = t->gather_bytes - gather_out;
    const double exchange_out = t->exchange_bytes * crossing.exchange;
    const double exchange_in = t->exchange_bytes - exchange_out;
    if (info->nodes <= 1)
        return (struct comm_rates){.gather = gather_in / gather_s,
                                   .exchange = exchange_in / exchange_s,
                                   .operations = 1 / t->empty_s};
    struct comm_rates rates = {.operations_between = 1 / t->empty_s};
    if (info->locals == 1) {
        rates.between = fmin(gather_out / gather_s, exchange_out / exchange_s);
        return rates;
    }
    /* messages within a node and between nodes go the same way */
    rates.between = t->copy_s > 0 ? gather_out / rest_of(gather_s, t->copy_s, PART_MOST)
                                  : t->gather_bytes / gather_s;
    rates.gather = t->copy_s > 0 ? gather_in / t->copy_s : rates.between;
    rates.exchange = exchange_in / rest_of(exchange_s, exchange_out / rates.between, PART_MOST);
    return rates;
}

/* ---- measuring ---- */

struct probe {
    struct comm *comm;
    struct comm_info info;
    enum hst_dtype dtype;
    char *row;               /* the comm's */
    char *sum;               /* of an exchange */
    size_t row_bytes, shard; /* of a rank, in elements of f32 */
};

static int run(struct probe *p, const struct comm_op *op)
{
    uint64_t ticket;
    int rc = comm_begin(p->comm, op, &ticket);
    return rc ? rc : comm_wait(p->comm, ticket);
}

static int meet(struct probe *p)
{
    int64_t none = 0;
    return run(p, &(struct comm_op){
                      .kind = COMM_SUM64, .name = "the network's rates", .out = &none, .count = 1});
}

/* *seconds ← the most of all ranks'. */
static int take_most(struct probe *p, double *seconds)
{
    double *all = calloc(p->info.ranks, sizeof *all);
    if (!all)
        return -ENOMEM;
    int rc = run(p, &(struct comm_op){.kind = COMM_SHARE,
                                      .name = "the network's rates",
                                      .in = seconds,
                                      .out = all,
                                      .count = sizeof *seconds});
    for (uint32_t r = 0; rc == 0 && r < p->info.ranks; r++)
        *seconds = fmax(*seconds, all[r]);
    free(all);
    return rc;
}

static struct comm_op op_of(const struct probe *p, enum comm_kind kind)
{
    struct comm_op op = {.kind = kind, .name = "the network's rates", .in = p->row};
    op.out = kind == COMM_GATHER ? p->row : p->sum;
    op.count = kind == COMM_GATHER ? p->shard * sizeof(float) : p->shard;
    op.tree = (struct hst_sum_tree){p->info.ranks, 8, p->dtype, p->dtype, 0};
    return op;
}

/* op: null: the copy of so many bytes. */
static int take_turn(struct probe *p, const struct comm_op *op, size_t copied, uint32_t times,
                     double *seconds)
{
    int rc = meet(p);
    const double begun = clock_seconds();
    for (uint32_t i = 0; rc == 0 && i < times && op; i++)
        rc = run(p, op);
    for (size_t at = 0, n; rc == 0 && !op && at < copied; at += n) {
        n = copied - at < p->row_bytes / 2 ? copied - at : p->row_bytes / 2;
        memcpy(p->row, p->row + p->row_bytes / 2, n);
    }
    *seconds = (clock_seconds() - begun) / times;
    return rc;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first turn touches and connects. */
static int measure(struct probe *p, const struct comm_op *op, size_t copied, uint32_t times,
                   double *seconds)
{
    double turns[ROUNDS], first;
    int rc = take_turn(p, op, copied, times, &first);
    for (int i = 0; rc == 0 && i < ROUNDS; i++)
        rc = take_turn(p, op, copied, times, &turns[i]);
    if (rc)
        return rc;
    qsort(turns, ROUNDS, sizeof *turns, by_size);
    *seconds = turns[ROUNDS / 2];
    return take_most(p, seconds);
}

/* The row grows until a gather of it takes its time, or it is all of the memory. */
static int choose_shard(struct probe *p, double empty_s)
{
    const double wish_s = fmin(fmax(WISH_S, EMPTY_TIMES * empty_s), WISH_MOST_S);
    double seconds = 0;
    int rc = 0;
    p->shard = BLOCK;
    for (;;) {
        const struct comm_op op = op_of(p, COMM_GATHER);
        rc = take_turn(p, &op, 0, 1, &seconds);
        rc = rc ? rc : take_most(p, &seconds);
        if (rc || seconds >= wish_s || 2 * p->shard * p->info.ranks * sizeof(float) > p->row_bytes)
            return rc;
        p->shard *= 2;
    }
}

static int measure_all(struct probe *p, struct comm_times *t)
{
    const struct comm_op empty = {
        .kind = COMM_GATHER, .name = "the network's rates", .out = p->row, .count = EMPTY_BYTES};
    int rc = measure(p, &empty, 0, EMPTY_TURNS, &t->empty_s);
    rc = rc ? rc : choose_shard(p, t->empty_s);
    const struct comm_op gather = op_of(p, COMM_GATHER), exchange = op_of(p, COMM_EXCHANGE);
    t->gather_bytes = (double)comm_op_bytes(&gather, p->info.ranks, p->info.locals);
    t->exchange_bytes = (double)comm_op_bytes(&exchange, p->info.ranks, p->info.locals);
    const double copied = t->gather_bytes * (1 - comm_crossing(&p->info).gather);
    rc = rc ? rc : measure(p, &gather, 0, 1, &t->gather_s);
    rc = rc ? rc : measure(p, &exchange, 0, 1, &t->exchange_s);
    /* all ranks alike, also one that is alone on its node */
    if (rc == 0 && p->info.shared && p->info.nodes > 1 && p->info.ranks > p->info.nodes)
        rc = measure(p, NULL, (size_t)copied, 1, &t->copy_s);
    return rc;
}

/* Nodes with other numbers of ranks see other parts of what crosses: of each rate the least holds
 * that any rank has. */
static int agree(struct probe *p, struct comm_rates *rates)
{
    enum { FIELDS = sizeof *rates / sizeof(double) };
    double own[FIELDS], *all = calloc(p->info.ranks, sizeof own);
    if (!all)
        return -ENOMEM;
    memcpy(own, rates, sizeof own);
    int rc = run(p, &(struct comm_op){.kind = COMM_SHARE,
                                      .name = "the network's rates",
                                      .in = own,
                                      .out = all,
                                      .count = sizeof own});
    for (uint32_t i = 0; rc == 0 && i < p->info.ranks * FIELDS; i++)
        if (all[i] > 0 && (own[i % FIELDS] == 0 || all[i] < own[i % FIELDS]))
            own[i % FIELDS] = all[i];
    memcpy(rates, own, sizeof own);
    free(all);
    return rc;
}

static int open_probe(struct probe *p)
{
    const size_t least = (size_t)BLOCK * sizeof(float) * p->info.ranks;
    void *row;
    p->row_bytes = least > ROW_BYTES ? least : ROW_BYTES;
    p->sum = malloc(p->row_bytes / p->info.ranks);
    if (!p->sum)
        return -ENOMEM;
    int rc = comm_alloc(p->comm, p->row_bytes, &row);
    if (rc)
        return rc;
    p->row = row;
    memset(p->row, 0x3c, p->row_bytes); /* ordinary numbers, in f32, f16 and bf16 */
    comm_info(p->comm, &p->info);
    return 0;
}

int comm_rates_measure(struct comm *comm, enum hst_dtype dtype, struct comm_rates *rates,
                       char how[160])
{
    struct probe p = {.comm = comm, .dtype = dtype};
    struct comm_times times = {.copy_s = 0};
    comm_info(comm, &p.info);
    int rc = open_probe(&p);
    rc = rc ? rc : measure_all(&p, &times);
    if (rc == 0)
        *rates = comm_rates_of(&p.info, &times);
    rc = rc ? rc : agree(&p, rates);
    if (rc == 0)
        rc = comm_free(comm, p.row); /* after a failure others may still write to it */
    free(p.sum);
    if (rc)
        return rc;
    snprintf(how, 160, "%u ranks on %u node%s, %s, rows of %zu KiB, %.60s", p.info.ranks,
             p.info.nodes, p.info.nodes == 1 ? "" : "s",
             p.info.shared ? "memory is shared" : "by messages",
             p.shard * p.info.ranks * sizeof(float) >> 10, p.info.transport);
    return 0;
}

void comm_rates_put(const struct comm_rates *rates, const char *how, struct hst_rates *out)
{
    const struct {
        enum hst_rate rate;
        double value;
    } list[] = {
        {HST_RATE_NET_GATHER, rates->gather},
        {HST_RATE_NET_EXCHANGE, rates->exchange},
        {HST_RATE_NET_BETWEEN, rates->between},
        {HST_RATE_NET_OPERATIONS, rates->operations},
        {HST_RATE_NET_OPERATIONS_BETWEEN, rates->operations_between},
    };
    const uint64_t now_ms = clock_wall_ms();
    if (out->taken_ms == 0) /* nothing else is in it */
        out->taken_ms = now_ms;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const double value = list[i].value;
        struct hst_figure *f = &out->figures[list[i].rate];
        if (value <= 0)
            continue;
        *f = (struct hst_figure){value, value, value, ROUNDS, ""};
        snprintf(f->how, sizeof f->how, "%s", how);
        out->figure_ms[list[i].rate] = now_ms;
    }
}
