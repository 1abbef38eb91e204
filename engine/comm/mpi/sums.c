/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchanges by integers, where they take messages. What a way or a group of ways has is what
 * integers have given back already, so it becomes the same integers and scales once more: the
 * sender makes them, the receiver takes the values back, and no bit changes on the way. Sums that
 * the tree leaves as they are travel in f32. There is one hop or two, a piece after the other.
 */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>
#include <string.h>

enum { BLOCK = HST_QUANT_BLOCK, CHUNK_MOST = 16 * BLOCK };

struct exchange {
    const struct comm_op *op;
    bool in_place;            /* the first hop reads m->row */
    uint32_t group, groups;   /* ranks of a group, and groups of the world; 1: there is one hop */
    const size_t *rank_block; /* [ranks], bytes of a block of what each sends */
    const size_t *sum_block;  /* [groups], of a group's sum */
    size_t widest;            /* of all of them */
    size_t most, chunk;       /* elements of a piece, and of what is added at once */
    float *wide;              /* [inputs][chunk], what integers of others give back */
    float *mid;               /* [groups][most], sums of this group */
    char *send, *receive;
};

/*
 * Peers hand each other parts of `runs` rows each, and add up what they have of all. Peer p's part
 * of run g begins at element at + (g · peers + p) · part, in `in` as in the rows of the others.
 */
struct hop {
    struct hst_sum_ways sum;      /* its inputs are the peers' */
    uint32_t self, first, stride; /* peer p is rank first + p · stride */
    uint32_t runs;
    const size_t *block; /* [peers] */
    const float *in;
    size_t at, part;
    char *const *rows; /* [peers], read in place of messages; null: there are messages */
    char *out;         /* [runs][a piece's elements] */
    size_t out_bytes;  /* of an element */
};

/* ---- what it works with ---------------------------------------------------------------------- */

/* Two buffers of config.piece_bytes, one behind the other, are divided. */
static int carve(struct mpi *m, struct exchange *e)
{
    const size_t inputs = e->group > e->groups ? e->group : e->groups;
    const size_t room = 2 * m->config.piece_bytes, parts = e->in_place ? e->groups : m->info.ranks;
    const size_t fit = room / 4 / (inputs * sizeof(float)) / BLOCK * BLOCK;
    e->chunk = fit < CHUNK_MOST ? fit : CHUNK_MOST;
    const size_t wide = inputs * e->chunk, sums = e->groups > 1 ? e->groups : 0;
    const size_t each = 2 * parts * e->widest + sums * BLOCK * sizeof(float);
    e->most = each ? (room - wide * sizeof(float)) / each * BLOCK : 0;
    if (!e->chunk || !e->most) {
        (void)mpi_fail(m, -EINVAL, COMM_NOBODY, "pieces of %zu bytes are too small for %u ranks",
                       m->config.piece_bytes, m->info.ranks);
        return -EINVAL;
    }
    int rc = mpi_take_rings(m);
    if (rc)
        return rc;
    e->wide = (float *)(void *)m->ring[0];
    e->mid = e->wide + wide;
    e->send = (char *)(e->mid + sums * e->most);
    e->receive = e->send + parts * (e->most / BLOCK) * e->widest;
    return 0;
}

static size_t more(size_t a, size_t b)
{
    return a > b ? a : b;
}

static int describe(struct mpi *m, const struct comm_op *op, struct first_hop hop,
                    struct exchange *e)
{
    const uint32_t ranks = m->info.ranks, each = op->tree.ways / ranks;
    *e = (struct exchange){.op = op, .in_place = hop.in_place};
    e->group = hop.group ? m->group : ranks;
    e->groups = ranks / e->group;
    e->rank_block = m->size;
    e->sum_block = m->size + ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        m->size[r] = comm_sum_block_bytes(&op->tree, (struct hst_sum_node){r * each, each});
        e->widest = more(e->widest, m->size[r]);
    }
    for (uint32_t g = 0, ways = e->group * each; g < e->groups && e->groups > 1; g++) {
        m->size[ranks + g] = comm_sum_block_bytes(&op->tree, (struct hst_sum_node){g * ways, ways});
        e->widest = more(e->widest, m->size[ranks + g]);
    }
    return carve(m, e);
}

static bool sends_integers(const struct hop *h, uint32_t peer)
{
    const struct hst_sum_node node = {h->sum.first + peer * h->sum.each, h->sum.each};
    return hst_sum_quantised(&h->sum.tree, node);
}

/* In a row, the elements of a part of which n are at hand. */
static size_t in_row(const struct hop *h, uint32_t peer, uint32_t run)
{
    return h->at + (run * h->sum.inputs + peer) * h->part;
}

/* Bytes of the integers of so many elements; their scales are behind them. */
static size_t codes_bytes(const struct hop *h, size_t n)
{
    return n * (unsigned)h->sum.tree.quant / 8;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int pack(struct mpi *m, const struct hop *h, const float *values, size_t n, char *to)
{
    const struct hst_quantise args = {
        h->sum.tree.quant, HST_F32, n, values, to, (float *)(void *)(to + codes_bytes(h, n))};
    mpi_beat(m);
    if (sends_integers(h, h->self))
        return m->config.quantise(&args);
    memcpy(to, values, n * sizeof *values);
    return 0;
}

static int swap_parts(struct mpi *m, const struct exchange *e, const struct hop *h, size_t n)
{
    const uint32_t peers = h->sum.inputs;
    const size_t part = n / BLOCK * h->block[h->self];
    const struct turn turn = {.request = m->request,
                              .type = MPI_DATATYPE_NULL,
                              .peers = peers,
                              .self = h->self,
                              .first = h->first,
                              .stride = h->stride,
                              .send = e->send,
                              .send_stride = h->runs * part,
                              .receive = e->receive,
                              .receive_stride = h->runs * (n / BLOCK) * e->widest,
                              .count = h->runs * (n / BLOCK),
                              .size = h->block[h->self],
                              .sizes = h->block};
    int rc = 0;
    for (uint32_t p = 0; p < peers; p++)
        for (uint32_t run = 0; !rc && p != h->self && run < h->runs; run++)
            rc = pack(m, h, h->in + in_row(h, p, run), n, e->send + (p * h->runs + run) * part);
    rc = rc ? rc : mpi_turn_begin(m, &turn);
    return rc ? rc : mpi_turn_finish(m, &turn);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* `some` elements from `at` on of a run's n. */
struct chunk {
    uint32_t run;
    size_t n, at, some;
};

/* m->input[peer] ← where they lie, of which integers were made wherever they were sent as such. */
static int find_input(struct mpi *m, const struct exchange *e, const struct hop *h, uint32_t peer,
                      struct chunk c)
{
    const size_t place = in_row(h, h->self, c.run) + c.at;
    if (peer == h->self || h->rows) {
        const void *row = peer == h->self ? (const void *)h->in : h->rows[peer];
        m->input[peer] = (const float *)row + place;
        return 0;
    }
    const char *message = e->receive + peer * h->runs * (c.n / BLOCK) * e->widest +
                          c.run * (c.n / BLOCK) * h->block[peer];
    if (!sends_integers(h, peer)) {
        m->input[peer] = message + c.at * sizeof(float);
        return 0;
    }
    const float *scales = (const float *)(const void *)(message + codes_bytes(h, c.n));
    const struct hst_dequantise args = {h->sum.tree.quant,
                                        HST_F32,
                                        c.some,
                                        message + codes_bytes(h, c.at),
                                        scales + c.at / BLOCK,
                                        e->wide + peer * e->chunk};
    m->input[peer] = args.values;
    return m->config.dequantise(&args);
}

static int sum_run(struct mpi *m, const struct exchange *e, const struct hop *h, uint32_t run,
                   size_t n)
{
    int rc = 0;
    for (size_t at = 0; !rc && at < n; at += e->chunk) {
        const struct chunk c = {run, n, at, n - at < e->chunk ? n - at : e->chunk};
        for (uint32_t p = 0; !rc && p < h->sum.inputs; p++)
            rc = find_input(m, e, h, p, c);
        rc = rc ? rc : mpi_sum(m, &h->sum, h->out + (run * n + at) * h->out_bytes, c.some);
        mpi_beat(m);
    }
    return rc;
}

static int run_hop(struct mpi *m, const struct exchange *e, const struct hop *h, size_t n)
{
    int rc = h->rows ? 0 : swap_parts(m, e, h, n);
    for (uint32_t run = 0; !rc && run < h->runs; run++)
        rc = sum_run(m, e, h, run, n);
    return rc;
}

/* ---- the exchange ---------------------------------------------------------------------------- */

/* Elements [at, at + n) of every shard. */
static int exchange_piece(struct mpi *m, const struct exchange *e, size_t at, size_t n)
{
    const struct comm_op *op = e->op;
    const uint32_t rank = m->info.rank, each = op->tree.ways / m->info.ranks;
    const uint32_t place = rank % e->group, head = rank - place;
    const size_t out_bytes = hst_dtype_bytes(op->tree.root);
    const struct hop last = {
        .sum = {.tree = op->tree, .each = e->group * each, .inputs = e->groups},
        .self = rank / e->group,
        .first = place,
        .stride = e->group,
        .runs = 1,
        .block = e->sum_block,
        .in = e->mid,
        .part = n,
        .out = (char *)op->out + at * out_bytes,
        .out_bytes = out_bytes,
    };
    const bool alone = e->groups == 1;
    const struct hop first = {
        .sum = {.tree = op->tree, .first = head * each, .each = each, .inputs = e->group},
        .self = place,
        .first = head,
        .stride = 1,
        .runs = e->groups,
        .block = e->rank_block + head,
        .in = op->in,
        .at = at,
        .part = op->count,
        .rows = e->in_place ? m->row + (m->info.local - place) : NULL,
        .out = alone ? last.out : (char *)e->mid,
        .out_bytes = alone ? out_bytes : sizeof(float),
    };
    int rc = run_hop(m, e, &first, n);
    return rc || alone ? rc : run_hop(m, e, &last, n);
}

/* It counts what was read in place as f32. */
static void count_exchange(struct mpi *m, const struct exchange *e)
{
    const uint64_t blocks = e->op->count / BLOCK;
    const uint32_t rank = m->info.rank, place = rank % e->group, here = rank - m->info.local;
    struct taken bytes = {0};
    for (uint32_t r = rank - place; r < rank - place + e->group; r++) {
        const size_t block = e->in_place ? BLOCK * sizeof(float) : e->rank_block[r];
        const uint64_t part = r == rank ? 0 : e->groups * blocks * block;
        bytes.net += part;
        bytes.in_place += e->in_place ? part : 0;
        bytes.between += r >= here && r < here + m->info.locals ? 0 : part;
    }
    for (uint32_t g = 0; e->groups > 1 && g < e->groups; g++) {
        const uint32_t r = g * e->group + place;
        const uint64_t part = r == rank ? 0 : blocks * e->sum_block[g];
        bytes.net += part;
        bytes.between += r >= here && r < here + m->info.locals ? 0 : part;
    }
    mpi_count(m, bytes);
}

int mpi_exchange_quantised(struct mpi *m, const struct comm_op *op, struct first_hop hop,
                           const struct tag *tag)
{
    struct exchange e;
    int rc = describe(m, op, hop, &e);
    for (size_t at = 0; !rc && at < op->count; at += e.most)
        rc = exchange_piece(m, &e, at, op->count - at < e.most ? op->count - at : e.most);
    if (rc)
        return rc;
    count_exchange(m, &e);
    return hop.in_place ? mpi_meet(m, tag) : 0;
}
