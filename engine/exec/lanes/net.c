/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks do together: rows of weights are gathered, gradients exchanged, sums agreed on. All
 * ranks begin these in the order of the step graph, which is the same for all, and they end in that
 * order. What they add up is decided elsewhere (comm/).
 */
#include "base/clock.h"
#include "base/precision.h"
#include "exec/lanes/lanes.h"
#include "exec/rows.h"
#include "exec/update/optimizer.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { WORDS_AT = NET_NUMBERS - NET_WORDS }; /* behind the sums */

/* ---- begins ---- */

static struct exact_sum *sums_of(const struct executor *exec)
{
    return exec->in.sums;
}

/* Some thousand elements of a row, which are whole blocks. */
#define GIVE_BACK_PIECE (32u * HST_QUANT_BLOCK)

struct give_back {
    const struct gathered *row;
    enum hst_dtype dtype;
};

static void give_back_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct give_back *job = arg;
    const uint64_t size = hst_dtype_bytes(job->dtype), at = index * GIVE_BACK_PIECE;
    const uint64_t left = job->row->shard_bytes / size - at;
    unsigned char codes[GIVE_BACK_PIECE];
    float scales[GIVE_BACK_PIECE / HST_QUANT_BLOCK];
    const struct hst_quantise to = {.bits = HST_INT8,
                                    .dtype = job->dtype,
                                    .count = left < GIVE_BACK_PIECE ? left : GIVE_BACK_PIECE,
                                    .values = job->row->home + at * size,
                                    .codes = codes,
                                    .scales = scales};
    const struct hst_dequantise from = {.bits = to.bits,
                                        .dtype = to.dtype,
                                        .count = to.count,
                                        .codes = codes,
                                        .scales = scales,
                                        .values = job->row->row + at * size};
    int rc = hst_host_quantise(&to);
    rc = rc ? rc : hst_host_dequantise(&from);
    assert(rc == 0); /* buffers and homes are apart */
    (void)rc;
}

/* One rank computes with what several would: what the integers of its weights give back. */
static void give_back(struct executor *exec, const struct gathered *row, enum hst_dtype dtype)
{
    struct give_back job = {row, dtype};
    const uint64_t elements = row->shard_bytes / hst_dtype_bytes(dtype);
    workers_run(exec->in.workers, (elements + GIVE_BACK_PIECE - 1) / GIVE_BACK_PIECE,
                give_back_piece, &job);
}

static int begin_quantised(struct executor *exec, const char *name, const struct gathered *row,
                           uint64_t *ticket)
{
    const enum hst_dtype dtype = precision_dtype(exec->in.config->precision);
    if (row->on_device)
        return comm_begin(exec->in.comm,
                          &(struct comm_op){.kind = COMM_GATHER,
                                            .name = name,
                                            .in = row->home,
                                            .out = row->row,
                                            .count = row->shard_bytes,
                                            .quant = HST_INT8,
                                            .dtype = dtype,
                                            .on_device = true,
                                            .keep = row->keep},
                          ticket);
    if (exec->in.comm)
        return comm_gather_quantised(exec->in.comm, name, row->home, row->row,
                                     row->shard_bytes / hst_dtype_bytes(dtype), dtype, ticket);
    give_back(exec, row, dtype);
    return 0;
}

/*
 * Rows come together in place: the rank's own shard is in its place then, unless a device has it at
 * home. What is in a device's memory was seen to have come there, by the event of its copy, its
 * visit or its update, before this node was ready: so the operation has nothing to wait for in the
 * device's order.
 */
static int begin_gather(struct executor *exec, struct scheduled at, uint64_t *ticket)
{
    struct gathered rows[GATHER_MAX];
    const char *name = exec->in.layout->units[program_node(exec, at)->unit].name;
    const uint32_t count = rows_gathered(exec, at, rows);
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        if (exec->in.plan_in->quantised) {
            rc = begin_quantised(exec, name, &rows[i], ticket);
            continue;
        }
        unsigned char *own = rows[i].row + exec->in.layout->share.rank * rows[i].shard_bytes;
        const struct comm_op gather = {.kind = COMM_GATHER,
                                       .name = name,
                                       .in = rows[i].on_device ? rows[i].home : NULL,
                                       .out = rows[i].row,
                                       .count = rows[i].shard_bytes,
                                       .on_device = rows[i].on_device,
                                       .keep = rows[i].keep};
        if (rows[i].home && !rows[i].on_device)
            memcpy(own, rows[i].home, rows[i].shard_bytes);
        rc = comm_begin(exec->in.comm, &gather, ticket);
    }
    return rc;
}

static int begin_gather_near(struct executor *exec, struct scheduled at, uint64_t *ticket)
{
    struct gathered rows[GATHER_MAX];
    const char *name = exec->in.layout->units[program_node(exec, at)->unit].name;
    const uint32_t count = rows_near(exec, at, rows);
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        const struct comm_op gather = {.kind = COMM_GATHER,
                                       .name = name,
                                       .in = rows[i].home,
                                       .out = rows[i].row,
                                       .count = rows[i].shard_bytes,
                                       .near = true,
                                       .on_device = rows[i].on_device};
        rc = comm_begin(exec->in.comm, &gather, ticket);
    }
    return rc;
}

static int begin_exchange(struct executor *exec, struct scheduled at, uint64_t *ticket)
{
    const uint32_t unit = program_node(exec, at)->unit;
    const struct exchanged grads = rows_exchanged(exec, at);
    const struct comm_op exchange = {.kind = COMM_EXCHANGE,
                                     .name = exec->in.layout->units[unit].name,
                                     .in = grads.row,
                                     .out = grads.sum,
                                     .count = grads.elements,
                                     .tree = exec->in.ways->tree,
                                     .on_device = grads.on_device};
    return comm_begin(exec->in.comm, &exchange, ticket);
}

static int begin_gather_grads(struct executor *exec, struct scheduled at, uint64_t *ticket)
{
    const uint32_t unit = program_node(exec, at)->unit;
    const struct gathered sums = rows_of_sums(exec, at);
    const struct comm_op gather = {.kind = COMM_GATHER,
                                   .name = exec->in.layout->units[unit].name,
                                   .out = sums.row,
                                   .count = sums.shard_bytes,
                                   .on_device = sums.on_device};
    return comm_begin(exec->in.comm, &gather, ticket);
}

static void put_sum(int64_t *numbers, struct exact_sum *sum)
{
    exact_settle(sum);
    memcpy(numbers, sum->number, sizeof sum->number);
}

static int begin_agree(struct executor *exec, uint64_t *ticket)
{
    int64_t *numbers = exec->net.numbers;
    struct exact_sum norm = {.unsettled = 0};
    if (exec->in.placement->replicas == 0 || exec->in.rank == 0) /* replicas have the same norm */
        optimizer_sum_norm(exec, &norm);
    put_sum(numbers, &norm);
    for (int i = 0; i < HST_SUMS; i++)
        put_sum(numbers + (i + 1) * EXACT_NUMBERS, &sums_of(exec)[i]);
    for (int i = 0; i < NET_WORDS; i++)
        exec->net.numbers[WORDS_AT + i] = exec->in.words[i];
    return comm_sum64(exec->in.comm, "the step's sums", numbers, NET_NUMBERS, ticket);
}

static int begin_vote(struct executor *exec, uint64_t *ticket)
{
    exec->net.votes = 1;
    return comm_sum64(exec->in.comm, "the version", &exec->net.votes, 1, ticket);
}

static int begin(struct executor *exec, struct scheduled at, uint64_t *ticket)
{
    switch ((enum node_kind)program_node(exec, at)->kind) {
    case NODE_GATHER:
        return begin_gather(exec, at, ticket);
    case NODE_GATHER_NEAR:
        return begin_gather_near(exec, at, ticket);
    case NODE_EXCHANGE:
        return begin_exchange(exec, at, ticket);
    case NODE_GATHER_GRADS:
        return begin_gather_grads(exec, at, ticket);
    case NODE_AGREE:
        return begin_agree(exec, ticket);
    default:
        return begin_vote(exec, ticket);
    }
}

/*
 * What one rank has begun all have to begin. So nothing begins by time: the window at hand is gone
 * through as far as the client's visit, on every rank alike; in front of that visit stand the
 * gathers of those that follow. A window that is opened ahead may never be run.
 */
static bool waits_for_client(const struct executor *exec, struct scheduled at)
{
    const struct turn *turn = &exec->turn;
    const bool at_hand = turn->in_step || turn->evaluating || turn->runs_out;
    if (exec->now != &exec->step || at.step_window < turn->step_window)
        return false;
    return !at_hand || at.step_window > turn->step_window || at.node > turn->reached;
}

bool net_is_even(struct executor *exec)
{
    struct scheduled at;
    return exec->net.count == 0 &&
           (!scheduler_next(&exec->now->scheduler, LANE_NET, &at) || waits_for_client(exec, at));
}

int net_start(struct executor *exec, enum lane lane, bool *moved)
{
    struct net *net = &exec->net;
    struct scheduler *scheduler = &exec->now->scheduler;
    struct scheduled at;
    while (net->count < NET_JOBS && scheduler_next(scheduler, lane, &at) &&
           !waits_for_client(exec, at) && scheduler_ready(scheduler, at)) {
        struct net_job *job = &net->jobs[(net->first + net->count) % NET_JOBS];
        scheduler_start(scheduler, at);
        *job = (struct net_job){.at = at, .start_s = clock_seconds()};
        int rc = begin(exec, at, &job->ticket);
        if (rc)
            return executor_fail_comm(exec, rc);
        net->count++;
        *moved = true;
    }
    return 0;
}

/* ---- ends ---- */

static void take_sum(struct exact_sum *sum, const int64_t *numbers)
{
    memcpy(sum->number, numbers, sizeof sum->number);
    sum->unsettled = 0;
}

static void take_agreed(struct executor *exec)
{
    const int64_t *numbers = exec->net.numbers;
    int64_t *words = exec->in.words;
    take_sum(&exec->net.norm, numbers);
    for (int i = 0; i < HST_SUMS; i++)
        take_sum(&sums_of(exec)[i], numbers + (i + 1) * EXACT_NUMBERS);
    memcpy(words, numbers + WORDS_AT, NET_WORDS * sizeof *numbers);
}

static int take(struct executor *exec)
{
    struct net *net = &exec->net;
    const struct net_job job = net->jobs[net->first];
    const enum node_kind kind = (enum node_kind)program_node(exec, job.at)->kind;
    int rc = 0;
    if (kind == NODE_AGREE)
        take_agreed(exec);
    if (kind == NODE_GATHER)
        rows_keep(exec, job.at);
    if (kind == NODE_VOTE)
        rc = exec->in.owner.committed(exec->in.owner.context);
    if (rc)
        return rc;
    net->first = (net->first + 1) % NET_JOBS;
    net->count--;
    program_finish(exec, job.at, job.start_s);
    return 0;
}

int net_poll(struct executor *exec, enum lane lane, bool *moved)
{
    (void)lane;
    while (exec->net.count > 0) {
        const uint64_t ticket = exec->net.jobs[exec->net.first].ticket;
        int rc = exec->in.comm ? comm_test(exec->in.comm, ticket) : 0; /* one rank is through */
        if (rc == -EAGAIN)
            return 0;
        rc = rc ? executor_fail_comm(exec, rc) : take(exec);
        if (rc)
            return rc;
        *moved = true;
    }
    return 0;
}

int net_wait(struct executor *exec, enum lane lane, uint64_t wait_ns)
{
    (void)lane;
    (void)wait_ns; /* all there is to wait for is another rank */
    const uint64_t ticket = exec->net.jobs[exec->net.first].ticket;
    int rc = exec->in.comm ? comm_wait(exec->in.comm, ticket) : 0;
    return rc ? executor_fail_comm(exec, rc) : take(exec);
}

int net_descriptors(struct executor *exec, enum lane lane, int *fds, uint32_t room)
{
    (void)lane;
    if (room == 0 || !exec->in.comm || (fds[0] = comm_fd(exec->in.comm)) < 0)
        return -ENOTSUP;
    return 1;
}

bool net_under_way(const struct executor *exec, enum lane lane)
{
    (void)lane;
    return exec->net.count > 0;
}
