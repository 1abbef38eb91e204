/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks OPTION...: what ranks.py runs under mpirun. Adds the gradients of --ways ways, whatever the
 * number of ranks, and prints a hash of each sum, which must not depend on it.
 *
 *   --ways W  --messages  --piece BYTES  --limit SECONDS
 *   --fault stop|late|die|leave|order|alloc|abort  what rank 1 does in the middle of it
 *   --fault roots                               each rank broadcasts its own then
 *   --fault stays|stays-stopped                 rank 1 does not close; others run into the limit
 *   --fault pause                               all ranks stay there for some seconds
 */
#include "comm/comm.h"
#include "comm/exact.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROW = 600000, WAYS_MOST = 12, FAILED = 3 };

static struct {
    struct comm *comm;
    struct comm_info info;
    uint32_t ways;
    bool uniform;
    uint64_t net, between; /* bytes that are expected */
    const char *fault;
    char *in, *whole; /* [ROW] f32, of comm_alloc */
} g;

static _Noreturn void fail(const char *what, int rc)
{
    struct comm_failure failure = {0};
    if (g.comm)
        comm_failure(g.comm, &failure);
    fprintf(stderr, "rank %u: %s: %d %s (names %d)\n", g.info.rank, what, rc, failure.text,
            failure.rank);
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

static void say(const char *what, const void *bytes, size_t count)
{
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    if (g.info.rank == 0)
        printf("%s %016llx\n", what, (unsigned long long)hash);
}

/* Gradients of a way, which cancel in part. */
static void fill_way(uint32_t way, float *value)
{
    uint32_t s = 12345u * (way + 1);
    for (size_t i = 0; i < ROW; i++) {
        s = s * 1664525u + 1013904223u;
        value[i] = (float)((int32_t)s >> 8) * 1e-7f * (float)(1 + (s & 63));
    }
}

/* Of this rank's ways, each rounded to its type. */
static void *own_sum(const struct hst_sum_tree *tree, uint32_t first, uint32_t count)
{
    void *way[WAYS_MOST];
    float *value = malloc(ROW * sizeof *value);
    for (uint32_t i = 0; i < count; i++) {
        const enum hst_dtype type = hst_sum_type(tree, (struct hst_sum_node){first + i, 1});
        const struct hst_sum_tree two = {2, 1, HST_F32, type};
        const void *const in[] = {value, value};
        fill_way(first + i, value);
        way[i] = malloc(ROW * sizeof *value);
        /* value/2 + value/2 is exact: a sum of two f32 ways, whose root is of the type wanted */
        for (size_t k = 0; k < ROW; k++)
            value[k] *= 0.5f;
        check(hst_host_sum_ways(&(struct hst_sum_ways){
                  .tree = two, .each = 1, .inputs = 2, .in = in, .out = way[i], .count = ROW}),
              "rounding");
    }
    check(hst_host_sum_ways(&(struct hst_sum_ways){.tree = *tree,
                                                   .first = first,
                                                   .each = 1,
                                                   .inputs = count,
                                                   .in = (const void *const *)way,
                                                   .out = g.in,
                                                   .count = ROW}),
          "own sum");
    for (uint32_t i = 0; i < count; i++)
        free(way[i]);
    free(value);
    return g.in;
}

static void add_up(const struct hst_sum_tree *tree, const char *name)
{
    const uint32_t each = tree->ways / g.info.ranks;
    const size_t shard = ROW / g.info.ranks, bytes = hst_dtype_bytes(tree->root);
    uint64_t ticket;
    own_sum(tree, g.info.rank * each, each);
    memset(g.whole, 0x55, ROW * sizeof(float));
    /* both are begun before either has ended */
    check(comm_exchange(g.comm, name, tree, g.in, g.whole + g.info.rank * shard * bytes, shard,
                        &ticket),
          "exchange");
    finish(comm_gather(g.comm, name, g.whole, shard * bytes, &ticket), &ticket, "gather");
    say(name, g.whole, ROW * bytes);
}

static void small_ones(void)
{
    struct exact_sum sum = {0};
    uint32_t ids[WAYS_MOST], text = g.info.rank == g.info.ranks - 1 ? 77 : 0;
    uint64_t ticket;
    const size_t shard = ROW / g.info.ranks;
    for (size_t i = 0; i < shard; i++)
        exact_add(&sum, ((float *)g.whole)[g.info.rank * shard + i]);
    exact_settle(&sum);
    finish(comm_sum64(g.comm, "norm", sum.number, EXACT_NUMBERS, &ticket), &ticket, "sum64");
    const double total = exact_value(&sum);
    say("exact", &total, sizeof total);
    finish(comm_bcast(g.comm, "text", &text, sizeof text, g.info.ranks - 1, &ticket), &ticket,
           "bcast");
    finish(comm_share(g.comm, "ids", &g.info.rank, ids, sizeof *ids, &ticket), &ticket, "share");
    for (uint32_t r = 0; r < g.info.ranks; r++)
        if (ids[r] != r || text != 77)
            fail("share or bcast brought other bytes", -EIO);
}

/* Rank 1 goes wrong; or all give others time for something. */
static void misbehave(void)
{
    uint64_t ticket;
    if (g.fault && strcmp(g.fault, "pause") == 0) {
        if (g.info.rank == 0)
            printf("# pause\n");
        fflush(stdout);
        sleep(4);
        return;
    }
    if (g.fault && strcmp(g.fault, "roots") == 0)
        finish(comm_bcast(g.comm, "own", g.whole, 8, g.info.rank, &ticket), &ticket, "bcast");
    if (g.fault && strcmp(g.fault, "alloc") == 0) {
        void *memory;
        check(comm_alloc(g.comm, g.info.rank == 1 ? 5000 : 4000, &memory), "other size");
    }
    if (!g.fault || g.info.rank != 1 || strncmp(g.fault, "stays", 5) == 0)
        return;
    if (strcmp(g.fault, "stop") == 0)
        raise(SIGSTOP);
    else if (strcmp(g.fault, "late") == 0)
        sleep(600);
    else if (strcmp(g.fault, "die") == 0)
        raise(SIGKILL);
    else if (strcmp(g.fault, "leave") == 0)
        _exit(0);
    else if (strcmp(g.fault, "abort") == 0)
        comm_abort(g.comm, 9);
    else
        finish(comm_share(g.comm, "other", &ticket, g.whole, sizeof ticket, &ticket), &ticket,
               "another operation");
}

/* Bytes of an element of the sums of `count` ranks, of all such sums in ranks [first, last). */
static uint64_t bytes_of(const struct hst_sum_tree *tree, uint32_t count, uint32_t first,
                         uint32_t last)
{
    const uint32_t each = tree->ways / g.info.ranks;
    uint64_t bytes = 0;
    for (uint32_t r = first; r < last; r += count)
        bytes += hst_dtype_bytes(hst_sum_type(tree, (struct hst_sum_node){r * each, count * each}));
    return bytes;
}

/* What a sum and its gather bring to this rank, and from other nodes. */
static void expect_bytes(const struct hst_sum_tree *tree)
{
    const uint32_t ranks = g.info.ranks, locals = g.info.locals, nodes = g.info.nodes;
    const uint32_t own = g.info.rank, head = own - g.info.local;
    const uint32_t group = g.uniform && nodes > 1 ? locals & -locals : 1, first = own - own % group;
    const uint64_t shard = ROW / ranks, out = hst_dtype_bytes(tree->root);
    g.net += (ranks - 1) * shard * out;
    g.between += (g.uniform && g.info.shared ? nodes - 1 : ranks - locals) * shard * out;
    /* one hop, of groups of one rank; or two */
    g.net +=
        shard * (bytes_of(tree, group, 0, ranks) - bytes_of(tree, group, first, first + group));
    g.between +=
        shard * (bytes_of(tree, group, 0, ranks) - bytes_of(tree, group, head, head + locals));
    g.net += shard * (ranks / group) *
             (bytes_of(tree, 1, first, first + group) - bytes_of(tree, 1, own, own + 1));
}

static void check_bytes(void)
{
    comm_info(g.comm, &g.info);
    if (g.info.net_bytes == g.net && g.info.between_bytes == g.between)
        return;
    fprintf(stderr, "took in %llu bytes, %llu from other nodes; expected %llu, %llu\n",
            (unsigned long long)g.info.net_bytes, (unsigned long long)g.info.between_bytes,
            (unsigned long long)g.net, (unsigned long long)g.between);
    fail("net_bytes is wrong", -EIO);
}

/* Whether all nodes have as many ranks. */
static bool is_uniform(void)
{
    uint32_t locals[WAYS_MOST];
    uint64_t ticket;
    finish(comm_share(g.comm, "locals", &g.info.locals, locals, sizeof *locals, &ticket), &ticket,
           "share");
    for (uint32_t r = 0; r < g.info.ranks; r++)
        if (locals[r] != locals[0])
            return false;
    return true;
}

static void open_all(int argc, char **argv)
{
    struct comm_config config = {.size = sizeof config};
    struct comm_failure failure;
    char why[200];
    g.ways = 4;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--messages") == 0)
            config.messages = true;
        else if (strcmp(argv[i], "--ways") == 0)
            g.ways = (uint32_t)atoi(next);
        else if (strcmp(argv[i], "--piece") == 0)
            config.piece_bytes = (size_t)atoi(next);
        else if (strcmp(argv[i], "--limit") == 0)
            config.limit_s = atof(next);
        else if (strcmp(argv[i], "--fault") == 0)
            g.fault = next;
    }
    if (hst_launch_read(NULL, NULL, &config.launch, why)) {
        fprintf(stderr, "%s\n", why);
        exit(2);
    }
    if (comm_open(&config, &g.comm, &failure)) {
        fprintf(stderr, "%s\n", failure.text);
        exit(FAILED);
    }
    comm_info(g.comm, &g.info);
}

int main(int argc, char **argv)
{
    static const enum hst_dtype types[] = {HST_F32, HST_BF16, HST_F16};
    void *memory;
    open_all(argc, argv);
    check(comm_alloc(g.comm, ROW * sizeof(float), &memory), "alloc");
    g.in = memory;
    check(comm_alloc(g.comm, ROW * sizeof(float), &memory), "alloc");
    g.whole = memory;
    comm_info(g.comm, &g.info);
    if (g.info.rank == 0)
        printf("# %s, %u ranks on %u nodes, shared %d %s\n", g.info.transport, g.info.ranks,
               g.info.nodes, g.info.shared, g.info.why_not_shared);
    g.uniform = is_uniform();
    for (int t = 0; t < 3; t++)
        for (uint32_t hop = 2; hop <= 8; hop *= 4) {
            char name[40];
            const struct hst_sum_tree tree = {g.ways, hop, types[t], types[t]};
            snprintf(name, sizeof name, "type-%d-hop-%u", types[t], hop);
            add_up(&tree, name);
            expect_bytes(&tree);
            if (t == 0 && hop == 2) {
                small_ones();
                misbehave();
            }
        }
    check_bytes();
    check(comm_free(g.comm, g.in), "free");
    if (comm_free(g.comm, g.in) != -EINVAL)
        fail("memory can be freed twice", -EIO);
    if (g.fault && strcmp(g.fault, "stays") == 0 && g.info.rank == 1)
        sleep(600);
    if (g.fault && strcmp(g.fault, "stays-stopped") == 0 && g.info.rank == 1)
        raise(SIGSTOP);
    check(comm_close(&g.comm), "close");
    return g.comm != NULL;
}
