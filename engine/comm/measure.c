/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures exchanges and gathers beside the library's own: by turns, each from one meeting of all
 * ranks to the next, so that a machine that is busy is busy for both.
 */
#include "comm/rates.h"
#include "comm/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BLOCK = 4096, WHY_BYTES = 200, BUFFERS = 4 };

/* Buffers of a row each; an exchange reads one of the first two, its sum goes into the last. */
enum buffer { SHARED_IN, PRIVATE_IN, SHARED_WHOLE, PRIVATE_WHOLE };

struct bench {
    struct comm *comm;
    struct comm_info info;
    size_t shard; /* elements */
    void *buffer[BUFFERS];
    void *out; /* of an exchange */
    double pairs_s[2][HST_PAIRS_MOST];
    uint32_t pairs;
};

static const struct contest {
    const char *name, *library_name;
    enum comm_kind kind;
    enum buffer buffer;
    enum hst_dtype type;
} contests[HST_RANKS_CASES] = {
    {"exchange f32, shared memory", "MPI_Reduce_scatter_block f32", COMM_EXCHANGE, SHARED_IN,
     HST_F32},
    {"exchange f32, messages", "MPI_Reduce_scatter_block f32", COMM_EXCHANGE, PRIVATE_IN, HST_F32},
    {"exchange bf16, messages", "MPI_Reduce_scatter_block f32", COMM_EXCHANGE, PRIVATE_IN,
     HST_BF16},
    {"gather, shared memory", "MPI_Allgather", COMM_GATHER, SHARED_WHOLE, HST_F32},
    {"gather, messages", "MPI_Allgather", COMM_GATHER, PRIVATE_WHOLE, HST_F32},
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- one turn -------------------------------------------------------------------------------- */

static int run(struct bench *b, const struct comm_op *op)
{
    uint64_t ticket;
    int rc = comm_begin(b->comm, op, &ticket);
    return rc ? rc : comm_wait(b->comm, ticket);
}

/* All ranks have come here. */
static int meet(struct bench *b)
{
    int64_t none = 0;
    return run(b, &(struct comm_op){.kind = COMM_SUM64, .name = "turn", .out = &none, .count = 1});
}

static int take_turn(struct bench *b, const struct comm_op *op, bool library, double *seconds)
{
    int rc = meet(b);
    const double begun = now_s();
    if (!rc)
        rc = library ? b->comm->ops->library(b->comm, op) : run(b, op);
    rc = rc ? rc : meet(b);
    *seconds = now_s() - begun;
    return rc;
}

static struct comm_op op_of(const struct bench *b, const struct contest *c, enum hst_dtype type)
{
    struct comm_op op = {.kind = c->kind, .name = c->name};
    if (c->kind == COMM_GATHER) {
        op.out = b->buffer[c->buffer];
        op.count = b->shard * hst_dtype_bytes(type);
        return op;
    }
    op.in = b->buffer[c->buffer];
    op.out = b->out;
    op.count = b->shard;
    op.tree = (struct hst_sum_tree){b->info.ranks, 8, type, type, 0};
    return op;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void judge(struct bench *b, const struct contest *c, struct hst_ranks_case *result)
{
    double ratio[HST_PAIRS_MOST];
    for (uint32_t i = 0; i < b->pairs; i++)
        ratio[i] = b->pairs_s[0][i] / b->pairs_s[1][i];
    qsort(ratio, b->pairs, sizeof *ratio, by_size);
    for (int side = 0; side < 2; side++)
        qsort(b->pairs_s[side], b->pairs, sizeof(double), by_size);
    *result = (struct hst_ranks_case){.name = c->name,
                                      .library_name = c->library_name,
                                      .own_s = b->pairs_s[0][b->pairs / 2],
                                      .library_s = b->pairs_s[1][b->pairs / 2],
                                      .ratio = ratio[b->pairs / 2],
                                      .ratio_least = ratio[0],
                                      .ratio_most = ratio[b->pairs - 1]};
}

/* In the first pair everything is touched and connected. */
static int measure_case(struct bench *b, const struct contest *c, struct hst_ranks_case *result)
{
    const struct comm_op own = op_of(b, c, c->type), library = op_of(b, c, HST_F32);
    int rc = 0;
    for (uint32_t i = 0; !rc && i <= b->pairs; i++)
        for (uint32_t turn = 0; !rc && turn < 2; turn++) {
            const bool is_library = (turn + i) % 2;
            double seconds;
            rc = take_turn(b, is_library ? &library : &own, is_library, &seconds);
            if (i)
                b->pairs_s[is_library][i - 1] = seconds;
        }
    if (!rc)
        judge(b, c, result);
    return rc;
}

/* Two rows and a shard in f32, in one mapping that begins with the private input. */
static size_t own_bytes(const struct bench *b)
{
    return (2 * b->info.ranks + 1) * b->shard * sizeof(float);
}

static int take_memory(struct bench *b)
{
    const size_t bytes = b->shard * b->info.ranks * sizeof(float);
    void *own =
        mmap(NULL, own_bytes(b), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED)
        return -ENOMEM;
    b->buffer[PRIVATE_IN] = own;
    b->buffer[PRIVATE_WHOLE] = (char *)own + bytes;
    b->out = (char *)own + 2 * bytes;
    int rc = comm_alloc(b->comm, bytes, &b->buffer[SHARED_IN]);
    rc = rc ? rc : comm_alloc(b->comm, bytes, &b->buffer[SHARED_WHOLE]);
    for (int i = 0; !rc && i < BUFFERS; i++)
        memset(b->buffer[i], 0x3c, bytes); /* ordinary numbers, in f32 and in bf16 */
    comm_info(b->comm, &b->info);
    return rc;
}

static int measure(struct bench *b, struct hst_ranks_measured *out)
{
    int rc = take_memory(b);
    for (uint32_t i = 0; !rc && i < HST_RANKS_CASES; i++) {
        const struct contest *c = &contests[i];
        const bool shared = c->buffer == SHARED_IN || c->buffer == SHARED_WHOLE;
        if (!shared || b->info.shared)
            rc = measure_case(b, c, &out->cases[out->case_count++]);
    }
    return rc;
}

static int measure_rates(struct bench *b, struct hst_rates *out)
{
    struct comm_rates rates;
    char how[160];
    int rc = comm_rates_measure(b->comm, HST_F32, &rates, how);
    if (rc == 0)
        comm_rates_put(&rates, how, out);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* It is MPI that is measured. */
static int check_launch(const struct hst_launch *launch, struct report *report)
{
    if (launch->ranks == 1)
        return report_fail(report, HST_E_JOIN_MPI, -EINVAL,
                           "one rank has nobody to exchange anything with. Fix: mpirun -n 2 "
                           "hoistway bench comm");
    return launch->mpi ? 0
                       : report_fail(report, HST_E_LAUNCH, -EINVAL,
                                     "%s started %u ranks, which MPI does not know of, and MPI is "
                                     "what is measured. Fix: mpirun -n %u hoistway bench comm",
                                     launch->launcher, launch->ranks, launch->ranks);
}

static int open_comm(struct bench *b, struct report *report)
{
    struct comm_failure failure = {0};
    struct comm_config config = {.size = sizeof config};
    char why[WHY_BYTES];
    int rc = hst_launch_read(NULL, NULL, &config.launch, why);
    if (rc)
        return report_fail(report, HST_E_LAUNCH, rc, "%s", why);
    rc = check_launch(&config.launch, report);
    if (rc || !(rc = comm_open(&config, &b->comm, &failure)))
        return rc;
    return report_fail(report, comm_open_code(&failure, false), rc,
                       "ranks cannot be joined: %s. Fix: docs/launch.md", failure.text);
}

static void tell(const struct bench *b, struct hst_ranks_measured *out)
{
    out->rank = b->info.rank;
    out->ranks = b->info.ranks;
    out->nodes = b->info.nodes;
    out->size_bytes = b->shard * b->info.ranks * sizeof(float);
    snprintf(out->transport, sizeof out->transport, "%s", b->info.transport);
}

/* After a failure others may wait within MPI: the comm stays open, and its buffers with it. */
static int measure_all(const struct hst_ranks_measure *in, struct hst_ranks_measured *measured,
                       struct report *report)
{
    struct bench b = {.pairs = in->pairs};
    int rc = open_comm(&b, report);
    if (rc)
        return rc;
    comm_info(b.comm, &b.info);
    const size_t block = (size_t)BLOCK * b.info.ranks * sizeof(float);
    b.shard = (in->size_bytes + block - 1) / block * BLOCK;
    rc = measure(&b, measured);
    rc = rc || !in->rates ? rc : measure_rates(&b, in->rates);
    if (rc)
        return comm_report(b.comm, report, 0, rc);
    tell(&b, measured);
    rc = comm_close(&b.comm);
    if (rc)
        return comm_report(b.comm, report, 0, rc);
    munmap(b.buffer[PRIVATE_IN], own_bytes(&b));
    return 0;
}

int hst_ranks_measure(const struct hst_ranks_measure *in, struct hst_ranks_measured *out,
                      struct hst_error *error)
{
    struct report report = {0};
    struct hst_ranks_measured measured = {0};
    if (!in || !out || !error)
        return -EINVAL;
    int rc = in->pairs && in->pairs <= HST_PAIRS_MOST
                 ? measure_all(in, &measured, &report)
                 : report_fail(&report, HST_E_VALUE, -EINVAL,
                               "there are 1 to %u pairs, not %u. Fix: --pairs %u", HST_PAIRS_MOST,
                               in->pairs, HST_PAIRS_MOST);
    if (rc)
        *error = report.error;
    else
        *out = measured;
    return rc;
}
