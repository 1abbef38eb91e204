/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_ranks OPTION...: what nccl.py runs, with or without mpirun, one process for each rank and
 * GPU. Adds the gradients of --ways ways in device memory and compares each byte of the sums with
 * those of one process. Without --limit no operation is waited for by the host before its result
 * has been read.
 *
 *   --ways W  --piece BYTES  --limit SECONDS
 *   --inputs N    the device adds so many inputs at once, and more by blocks
 *   --device NAME a device, in the place of the GPU that is this rank's
 *   --number      ranks take the numbers of the opposite order first
 *   --early       reads each row without waiting for its gather
 *   --early-integers  reads the row that is gathered by integers so
 *   --fault late|count|abort|leave   what rank 1 does in the middle of it
 *   --fault hurry                    rank 1 is late for an operation that waits for a second
 *   --fault stays                    rank 1 does not close
 *   --fault works|dies|stops|rests   rank 1 does, once all may be apart for long
 *   --fault unannounced              rank 1 comes late where they may not
 *   --fault busy                     rank 1 comes late to an operation without patience
 *   --fault gives-up                 rank 0 stops, and rank 1 ends all while it is at work
 *   --fault below                    what MPI carries fails on rank 1 while NCCL joins them
 */
#include "comm/comm.h"
#include "comm/exact.h"
#include "comm/report.h"
#include "comm/wrap.h"
#include "sum_bytes.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of each number of ranks up to 12 that divides it a shard is aligned, in 16 bits too. */
enum {
    ROW = (96 << 10) + 192,
    WAYS_MOST = 12,
    SHIFT = 256,
    VALUES = 20000,
    FAILED = 3,
    LATE_S = 8
};
#define MEMORY ((uint64_t)256 << 20)

static struct {
    struct comm *comm;
    struct comm_info info;
    struct hst_dev *dev;
    struct hst_stream *unit; /* in which the row is made and read */
    struct hst_event *made;
    struct report report;
    uint32_t ways;
    const char *fault, *device;
    bool numbered, early, early_integers;
    uint64_t net, between; /* bytes that are expected */
    char *area[2];         /* device memory of the comm */
    char *in, *whole;      /* [ROW] f32, in these, elsewhere on each rank */
    char *pinned, *want;   /* [ROW] f32, of the host */
    struct comm_config config;
} g;

static bool is_fault(const char *name)
{
    return g.fault && strcmp(g.fault, name) == 0;
}

static _Noreturn void fail(const char *what, int rc)
{
    struct comm_failure failure = {.rank = COMM_NOBODY};
    if (g.comm && rc != -EINVAL) {
        comm_failure(g.comm, &failure);
        comm_report(g.comm, &g.report, 7, rc);
    }
    fprintf(stderr, "rank %u: %s: %d error[E%d] %s (names %d)\n", g.info.rank, what, rc,
            g.report.error.code, g.report.error.message, failure.rank);
    fflush(NULL);
    if (g.comm)
        comm_abort(g.comm, FAILED);
    _exit(FAILED);
}

static void check(int rc, const char *what)
{
    if (rc)
        fail(what, rc);
}

/* The ticket by its address: the call that writes it stands in the same expression. */
static void finish(int rc, const uint64_t *ticket, const char *what)
{
    check(rc, what);
    check(comm_wait(g.comm, *ticket), what);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A shard's elements: of integers as many as devices exchange together. */
static size_t shard_of(const struct hst_sum_tree *tree)
{
    const size_t blocks = tree->quant ? COMM_DEVICE_QUANT : 1;
    return ROW / g.info.ranks / blocks * blocks;
}

/* out ← the sum of these ways, each rounded to its type; ways are 0.5 x + 0.5 x, which is exact. */
static void sum_ways(const struct hst_sum_tree *tree, uint32_t first, uint32_t count, void *out)
{
    void *way[WAYS_MOST];
    float *value = malloc(ROW * sizeof *value);
    const void *const twice[] = {value, value};
    for (uint32_t i = 0; i < count; i++) {
        const enum hst_dtype type = hst_sum_type(tree, (struct hst_sum_node){first + i, 1});
        fill_way(first + i, value, ROW);
        if (tree->quant && first + i == 1) /* a block that is sent as no number */
            value[ROW / 3] = INFINITY;
        way[i] = malloc(ROW * sizeof *value);
        for (size_t k = 0; k < ROW; k++)
            value[k] *= 0.5f;
        check(hst_host_sum_ways(&(struct hst_sum_ways){.tree = {2, 1, HST_F32, type, 0},
                                                       .each = 1,
                                                       .inputs = 2,
                                                       .in = twice,
                                                       .out = way[i],
                                                       .count = ROW}),
              "rounding");
        if (tree->quant)
            check(give_back(tree, first + i, way[i], ROW), "what integers give back");
    }
    check(hst_host_sum_ways(&(struct hst_sum_ways){.tree = *tree,
                                                   .first = first,
                                                   .each = 1,
                                                   .inputs = count,
                                                   .in = (const void *const *)way,
                                                   .out = out,
                                                   .count = ROW}),
          "sum of ways");
    for (uint32_t i = 0; i < count; i++)
        free(way[i]);
    free(value);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void compare(const char *name, const void *have, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const char *)have)[i] != g.want[i]) {
            fprintf(stderr, "rank %u: %s: byte %zu of %zu is %02x, not %02x\n", g.info.rank, name,
                    i, bytes, ((const unsigned char *)have)[i], (unsigned char)g.want[i]);
            fflush(NULL);
            comm_abort(g.comm, FAILED);
        }
}

/* What a sum and its gather bring to this rank, and from other nodes. */
static void expect_bytes(const struct hst_sum_tree *tree)
{
    const uint32_t ranks = g.info.ranks, locals = g.info.locals, own = g.info.rank;
    const uint32_t group = g.info.nodes > 1 && ranks % locals == 0 ? locals & -locals : 1;
    const uint32_t head = own - g.info.local, first = own - own % group;
    const uint64_t shard = shard_of(tree), out = hst_dtype_bytes(tree->root);
    g.net += (ranks - 1) * shard * out;
    g.between += (ranks - locals) * shard * out;
    g.net += sent_bytes(tree, ranks, group, 0, ranks, shard) -
             sent_bytes(tree, ranks, group, first, first + group, shard);
    g.between += sent_bytes(tree, ranks, group, 0, ranks, shard) -
                 sent_bytes(tree, ranks, group, head, head + locals, shard);
    g.net += (ranks / group) * (sent_bytes(tree, ranks, 1, first, first + group, shard) -
                                sent_bytes(tree, ranks, 1, own, own + 1, shard));
}

/* It is read before the host knows of an end. */
static void read_row(const char *name, uint64_t ticket, const char *row, size_t bytes, bool early)
{
    if (!early)
        check(comm_order(g.comm, ticket, g.unit), "order");
    check(hst_stream_copy(g.unit, g.pinned, row, bytes), "copy");
    if (!g.config.limit_s) /* else it is the comm that is to tell who does not come */
        check(hst_stream_sync(g.unit), "sync");
    finish(0, &ticket, "gather");
    check(hst_stream_sync(g.unit), "sync");
    compare(name, g.pinned, bytes);
}

/* Both are begun before the row is there. */
static void add_up(const struct hst_sum_tree *tree, const char *name, bool in_place)
{
    const uint32_t each = tree->ways / g.info.ranks, rank = g.info.rank;
    const size_t shard = shard_of(tree), bytes = hst_dtype_bytes(tree->root);
    const enum hst_dtype type = hst_sum_type(tree, (struct hst_sum_node){rank * each, each});
    uint64_t ticket;
    in_place = in_place && type == tree->root;
    char *row = in_place ? g.in : g.whole;
    sum_ways(tree, 0, tree->ways, g.want);
    sum_ways(tree, rank * each, each, g.pinned);
    check(hst_stream_copy(g.unit, g.in, g.pinned, ROW * hst_dtype_bytes(type)), "copy");
    check(hst_event_record(g.made, g.unit), "record");
    struct comm_op op = {.kind = COMM_EXCHANGE,
                         .name = name,
                         .in = g.in,
                         .out = row + rank * shard * bytes,
                         .count = shard,
                         .tree = *tree,
                         .on_device = true,
                         .after = g.made};
    check(comm_begin(g.comm, &op, &ticket), "exchange");
    op = (struct comm_op){
        .kind = COMM_GATHER, .name = name, .out = row, .count = shard * bytes, .on_device = true};
    check(comm_begin(g.comm, &op, &ticket), "gather");
    read_row(name, ticket, row, g.info.ranks * shard * bytes, g.early);
    expect_bytes(tree);
}

/* g.want ← shards of all ranks, as their integers give them back; g.pinned ← this rank's own. */
static void fill_integers(size_t shard)
{
    unsigned char *codes = malloc(shard);
    float *scales = malloc(hst_quant_scales(shard) * sizeof *scales);
    float *value = malloc(ROW * sizeof *value);
    for (uint32_t r = 0; r < g.info.ranks; r++) {
        float *want = (float *)(void *)g.want + r * shard;
        fill_way(r, value, ROW);
        if (r == g.info.rank)
            memcpy(g.pinned, value, shard * sizeof *value);
        check(hst_host_quantise(
                  &(struct hst_quantise){HST_INT8, HST_F32, shard, value, codes, scales}),
              "to integers");
        check(hst_host_dequantise(
                  &(struct hst_dequantise){HST_INT8, HST_F32, shard, codes, scales, want}),
              "back");
    }
    free(codes);
    free(scales);
    free(value);
}

/* The row comes together by integers, in place, and a part of it is kept; of these the node's ranks
 * put it together again, where it has been cleared. */
static void gather_integers(void)
{
    const uint32_t ranks = g.info.ranks, locals = g.info.locals;
    const size_t shard = ROW / ranks / COMM_DEVICE_QUANT * COMM_DEVICE_QUANT;
    const size_t bytes = shard * sizeof(float), row = ranks * bytes;
    uint64_t ticket;
    fill_integers(shard);
    check(hst_stream_copy(g.unit, g.whole + g.info.rank * bytes, g.pinned, bytes), "copy");
    check(hst_event_record(g.made, g.unit), "record");
    struct comm_op op = {.kind = COMM_GATHER,
                         .name = "integers",
                         .out = g.whole,
                         .count = bytes,
                         .quant = HST_INT8,
                         .dtype = HST_F32,
                         .on_device = true,
                         .after = g.made,
                         .keep = g.in};
    check(comm_begin(g.comm, &op, &ticket), "gather by integers");
    read_row("integers", ticket, g.whole, row, g.early_integers);
    check(hst_stream_zero(g.unit, g.whole, row), "zero");
    check(hst_event_record(g.made, g.unit), "record");
    op = (struct comm_op){.kind = COMM_GATHER,
                          .name = "near",
                          .in = g.in,
                          .out = g.whole,
                          .count = row / locals,
                          .near = true,
                          .on_device = true,
                          .after = g.made};
    check(comm_begin(g.comm, &op, &ticket), "gather of the node");
    read_row("near", ticket, g.whole, row, false);
    g.net += (ranks - 1) * comm_quant_bytes(shard) + (locals - 1) * (row / locals);
    g.between += (ranks - locals) * comm_quant_bytes(shard);
}

static void small_ones(void)
{
    struct exact_sum sum = {0};
    uint32_t ids[WAYS_MOST], text = g.info.rank == g.info.ranks - 1 ? 77 : 0;
    uint64_t ticket;
    int64_t *values = malloc(VALUES * sizeof *values);
    for (int i = 0; i < VALUES; i++)
        values[i] = (int64_t)(g.info.rank + 1) * (i - 7) * 1048576;
    exact_add(&sum, g.info.rank ? 1e-30 : 1e30);
    exact_settle(&sum);
    finish(comm_sum64(g.comm, "norm", sum.number, EXACT_NUMBERS, &ticket), &ticket, "sum64");
    finish(comm_sum64(g.comm, "many", values, VALUES, &ticket), &ticket, "sum64");
    finish(comm_bcast(g.comm, "text", &text, sizeof text, g.info.ranks - 1, &ticket), &ticket,
           "bcast");
    finish(comm_share(g.comm, "ids", &g.info.rank, ids, sizeof *ids, &ticket), &ticket, "share");
    const int64_t all = (int64_t)g.info.ranks * (g.info.ranks + 1) / 2;
    for (int i = 0; i < VALUES; i++)
        if (values[i] != all * (i - 7) * 1048576)
            fail("sum64 has another sum", -EIO);
    for (uint32_t r = 0; r < g.info.ranks; r++)
        if (ids[r] != r || text != 77)
            fail("share or bcast brought other bytes", -EIO);
    if (exact_value(&sum) != 1e30)
        fail("sum64 of an exact sum", -EIO);
    free(values);
}

/* Host memory is the control comm's, or passes by the device. */
static void host_gather(void)
{
    uint64_t ticket;
    uint32_t own[WAYS_MOST] = {0};
    own[g.info.rank] = 100 + g.info.rank;
    int rc = comm_gather(g.comm, "host", own, sizeof *own, &ticket);
    finish(rc, &ticket, "gather of host memory");
    if (comm_order(g.comm, ticket, g.unit) != 0)
        fail("what has ended is ordered", -EIO);
    for (uint32_t r = 0; r < g.info.ranks; r++)
        if (own[r] != 100 + r)
            fail("gather of host memory brought other bytes", -EIO);
    g.net += (g.info.ranks - 1) * sizeof *own;
    g.between += (g.info.ranks - g.info.locals) * sizeof *own;
}

static void meet(const char *name, bool patient)
{
    int64_t ones = 1;
    uint64_t ticket;
    const struct comm_op sum = {.kind = COMM_SUM64,
                                .name = name,
                                .in = &ones,
                                .out = &ones,
                                .count = 1,
                                .patient = patient};
    finish(comm_begin(g.comm, &sum, &ticket), &ticket, name);
    if (ones != g.info.ranks)
        fail("sum64 of ones", -EIO);
}

/* What follows a patient sum may take long: here of rank 1 it does, or has no end. */
static void be_apart(void)
{
    const bool first = g.info.rank == 0, second = g.info.rank == 1;
    if (!is_fault("unannounced"))
        meet("parting", true);
    if (second && (is_fault("works") || is_fault("unannounced") || is_fault("busy")))
        sleep(LATE_S);
    if (second && is_fault("dies"))
        raise(SIGKILL);
    if ((second && is_fault("stops")) || (first && is_fault("gives-up")))
        raise(SIGSTOP);
    if (second && is_fault("rests"))
        sleep(600);
    if (second && is_fault("gives-up")) {
        sleep(LATE_S / 2); /* its sign of life waits for rank 0 */
        fprintf(stderr, "rank 1 gives up\n");
        comm_abort(g.comm, 9);
    }
    meet("patience", !is_fault("busy"));
}

static bool is_apart_fault(void)
{
    static const char *const names[] = {"works", "dies",        "stops",   "rests",
                                        "busy",  "unannounced", "gives-up"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        found = found || is_fault(names[i]);
    return found;
}

static void misbehave(void)
{
    uint64_t ticket;
    const struct comm_op op = {
        .kind = COMM_GATHER, .name = "other", .out = g.whole, .count = 4096, .on_device = true};
    if (is_apart_fault())
        be_apart();
    if (is_fault("hurry") && g.info.rank == 0) {
        const struct comm_op hurry = {
            .kind = COMM_SUM64, .name = "hurry", .out = g.pinned, .count = 1, .within_s = 1};
        finish(comm_begin(g.comm, &hurry, &ticket), &ticket, "hurry");
    }
    if (!g.fault || g.info.rank != 1)
        return;
    if (is_fault("late") || is_fault("hurry"))
        sleep(600);
    else if (is_fault("leave"))
        _exit(0);
    else if (is_fault("abort"))
        comm_abort(g.comm, 9);
    else if (is_fault("count"))
        finish(comm_begin(g.comm, &op, &ticket), &ticket, "another gather");
}

/* ---- life ------------------------------------------------------------------------------------ */

static void read_options(int argc, char **argv)
{
    g.ways = 4;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--ways") == 0)
            g.ways = (uint32_t)atoi(next);
        else if (strcmp(argv[i], "--piece") == 0)
            g.config.piece_bytes = (size_t)atoi(next);
        else if (strcmp(argv[i], "--inputs") == 0)
            g.config.sum_inputs = (uint32_t)atoi(next);
        else if (strcmp(argv[i], "--limit") == 0)
            g.config.limit_s = atof(next);
        else if (strcmp(argv[i], "--fault") == 0)
            g.fault = next;
        else if (strcmp(argv[i], "--number") == 0)
            g.numbered = true;
        else if (strcmp(argv[i], "--early") == 0)
            g.early = true;
        else if (strcmp(argv[i], "--early-integers") == 0)
            g.early_integers = true;
        else if (strcmp(argv[i], "--device") == 0)
            g.device = next;
    }
}

static void open_device(void)
{
    char name[32];
    struct hst_dev_failure story;
    const struct hst_dev_config config = {
        .size = sizeof config, .memory_bytes = MEMORY, .host_bytes = MEMORY};
    snprintf(name, sizeof name, "cuda:%u", g.config.launch.local);
    if (hst_dev_open(g.device ? g.device : name, &config, &g.dev, &story)) {
        fprintf(stderr, "%s\n", story.text);
        exit(2);
    }
    check(hst_stream_create(g.dev, "unit", &g.unit), "stream");
    check(hst_event_create(g.dev, &g.made), "event");
}

/* Both agree twice by MPI on what they have: the third operation is the first of the join. */
static int open_below(struct comm_failure *failure)
{
    const struct comm_fault fault = {COMM_FAULT_FAIL, 3, 0};
    int rc = comm_open(&g.config, &g.comm, failure);
    if (!rc && g.config.launch.rank == 1)
        check(comm_fault_wrap(&g.comm, &fault, 1), "fault");
    g.config.dev = g.dev;
    return rc ? rc : comm_join(&g.config, &g.comm, failure);
}

static int open_comm(struct comm_failure *failure)
{
    if (is_fault("below"))
        return open_below(failure);
    g.config.dev = g.dev;
    return comm_open(&g.config, &g.comm, failure);
}

static void open_all(void)
{
    struct comm_failure failure;
    char why[200];
    g.config.size = sizeof g.config;
    if (hst_launch_read(NULL, NULL, &g.config.launch, why)) {
        fprintf(stderr, "%s\n", why);
        exit(2);
    }
    open_device();
    if (open_comm(&failure)) {
        comm_report_open(&failure, true, &g.report);
        fprintf(stderr, "rank %u: open: %d error[E%d] %s (names %d)\n", g.config.launch.rank,
                failure.native, g.report.error.code, g.report.error.message, failure.rank);
        exit(FAILED);
    }
    comm_info(g.comm, &g.info);
    if (g.numbered) {
        check(comm_number(g.comm, g.info.ranks - 1 - g.info.rank), "number");
        comm_info(g.comm, &g.info);
    }
    if (g.info.rank == 0)
        printf("%s, %u ranks on %u nodes %s\n", g.info.transport, g.info.ranks, g.info.nodes,
               g.info.note);
}

struct area {
    size_t bytes;
    void *memory;
    int rc;
};

/* On a thread that has used no GPU so far: its current one is the first, and not this rank's. */
static void *take_area(void *arg)
{
    struct area *area = arg;
    area->rc = comm_dev_alloc(g.comm, area->bytes, &area->memory);
    return NULL;
}

static void take_rows(void)
{
    const size_t bytes = ROW * sizeof(float) + (size_t)SHIFT * WAYS_MOST;
    void *memory;
    pthread_t other;
    for (int i = 0; i < 2; i++) {
        struct area area = {.bytes = bytes};
        check(pthread_create(&other, NULL, take_area, &area) || pthread_join(other, NULL),
              "thread");
        check(area.rc, "device memory");
        g.area[i] = area.memory;
    }
    g.in = g.area[0] + (size_t)SHIFT * g.info.rank;
    g.whole = g.area[1] + (size_t)SHIFT * (g.info.ranks - 1 - g.info.rank);
    check(hst_dev_host_alloc(g.dev, ROW * sizeof(float), &memory), "pinned memory");
    g.pinned = memory;
    g.want = malloc(ROW * sizeof(float));
}

static void close_all(void)
{
    meet("before the end", true);
    check(comm_dev_free(g.comm, g.area[1]), "free");
    if (comm_dev_free(g.comm, g.area[1]) != -EINVAL)
        fail("device memory can be freed that is not the comm's", -EIO);
    if (is_fault("stays") && g.info.rank == 1)
        sleep(600);
    check(comm_close(&g.comm), "close");
    hst_dev_host_free(g.dev, g.pinned, ROW * sizeof(float));
    hst_event_destroy(&g.made);
    hst_stream_destroy(&g.unit);
    hst_dev_close(&g.dev);
    free(g.want);
}

static void check_bytes(void)
{
    struct comm_info info;
    comm_info(g.comm, &info);
    if (info.net_bytes == g.net && info.between_bytes == g.between)
        return;
    fprintf(stderr, "took in %llu bytes, %llu from other nodes; expected %llu, %llu\n",
            (unsigned long long)info.net_bytes, (unsigned long long)info.between_bytes,
            (unsigned long long)g.net, (unsigned long long)g.between);
    fail("net_bytes is wrong", -EIO);
}

int main(int argc, char **argv)
{
    static const struct hst_sum_tree kinds[] = {{1, 1, HST_F32, HST_F32, 0},
                                                {1, 1, HST_BF16, HST_BF16, 0},
                                                {1, 1, HST_F16, HST_F16, 0},
                                                {1, 1, HST_F32, HST_F32, HST_INT8},
                                                {1, 1, HST_F32, HST_BF16, HST_INT4}};
    read_options(argc, argv);
    open_all();
    take_rows();
    for (int t = 0; t < 5; t++)
        for (uint32_t hop = 2; hop <= 8; hop *= 4) {
            char name[40];
            struct hst_sum_tree tree = kinds[t];
            tree.ways = g.ways;
            tree.hop = hop;
            snprintf(name, sizeof name, "kind-%d-hop-%u", t, hop);
            add_up(&tree, name, hop == 2);
            if (t == 0 && hop == 2) {
                small_ones();
                meet("before values", true);
                host_gather();
                misbehave();
            }
        }
    meet("before a gather", true);
    gather_integers();
    check_bytes();
    close_all();
    printf("ok\n");
    return 0;
}
