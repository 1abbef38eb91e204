/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchanges of device memory by integers. What a way or a group of ways has is what integers have
 * given back already, so it becomes the same integers and scales once more: a kernel of the sender
 * makes them, one of the receiver takes the values back, and no bit changes on the way. Sums that
 * the tree leaves as they are travel in f32. There is one hop or two, a piece after the other. All
 * of it is in the comm's stream, so the second hop works in the memory of the first.
 */
#include "comm/nccl/nccl_comm.h"

#include <errno.h>

enum { BLOCK = HST_QUANT_BLOCK, BLOCKS = COMM_DEVICE_QUANT / BLOCK };

struct exchange {
    const struct comm_op *op;
    uint32_t group, groups;   /* ranks of a group, and groups of the world; 1: there is one hop */
    const size_t *rank_block; /* [ranks], bytes of a block of what each sends */
    const size_t *sum_block;  /* [groups], of a group's sum */
    size_t widest;            /* of all of them */
    size_t most;              /* elements of a piece of each shard */
    float *wide;              /* [inputs][most], what integers of others give back */
    float *mid;               /* [groups][most], sums of this group */
    float *partial;           /* [blocks of the hop that has more][most], sums of blocks */
    char *send, *receive;     /* [ranks][most], messages */
};

/*
 * Peers hand each other parts of `runs` rows each, and add up what they have of all. Peer p's part
 * of run g begins at element at + (g · peers + p) · part of `in`.
 */
struct hop {
    struct peers peers;
    struct hst_sum_ways sum; /* its inputs are the peers' */
    uint32_t runs;
    const size_t *block; /* [peers], bytes of a block of what each sends */
    const float *in;
    size_t at, part;
    char *out;        /* [runs][a piece's elements] */
    size_t out_bytes; /* of an element */
};

/* ---- what it works with ---------------------------------------------------------------------- */

static size_t more(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The buffer of config.piece_bytes is divided. Pieces are such that all parts of it are aligned. */
static int carve(struct nccl *n, struct exchange *e)
{
    const uint32_t ranks = n->info.ranks;
    const size_t inputs = more(e->group, e->groups), sums = e->groups > 1 ? e->groups : 0;
    const size_t partials = nccl_blocks(n, (uint32_t)inputs);
    const size_t each = 2 * ranks * e->widest + (inputs + sums + partials) * BLOCK * sizeof(float);
    e->most = n->config.piece_bytes / (each * BLOCKS) * COMM_DEVICE_QUANT;
    if (!e->most)
        return nccl_too_small(n);
    e->wide = (float *)(void *)n->ring;
    e->mid = e->wide + inputs * e->most;
    e->partial = e->mid + sums * e->most;
    e->send = (char *)(e->partial + partials * e->most);
    e->receive = e->send + ranks * (e->most / BLOCK) * e->widest;
    return 0;
}

static int describe(struct nccl *n, const struct comm_op *op, struct exchange *e)
{
    const uint32_t ranks = n->info.ranks, each = op->tree.ways / ranks;
    *e = (struct exchange){.op = op, .group = n->group > 1 ? n->group : ranks};
    e->groups = ranks / e->group;
    e->rank_block = n->size;
    e->sum_block = n->size + ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        n->size[r] = comm_sum_block_bytes(&op->tree, (struct hst_sum_node){r * each, each});
        e->widest = more(e->widest, n->size[r]);
    }
    for (uint32_t g = 0, ways = e->group * each; g < e->groups && e->groups > 1; g++) {
        n->size[ranks + g] = comm_sum_block_bytes(&op->tree, (struct hst_sum_node){g * ways, ways});
        e->widest = more(e->widest, n->size[ranks + g]);
    }
    return carve(n, e);
}

static bool sends_integers(const struct hop *h, uint32_t peer)
{
    const struct hst_sum_node node = {h->sum.first + peer * h->sum.each, h->sum.each};
    return hst_sum_quantised(&h->sum.tree, node);
}

/* In a row, the part of a peer. */
static const float *in_row(const struct hop *h, uint32_t peer, uint32_t run)
{
    return h->in + h->at + (run * (size_t)h->peers.count + peer) * h->part;
}

/* Bytes of the integers of so many elements; their scales are behind them. */
static size_t codes_bytes(const struct hop *h, size_t count)
{
    return count * (unsigned)h->sum.tree.quant / 8;
}

static char *message_at(const struct exchange *e, const struct hop *h, char *messages,
                        uint32_t peer, uint32_t run, size_t count)
{
    return messages + ((size_t)peer * h->runs + run) * (count / BLOCK) * e->widest;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int to_integers(struct nccl *n, const struct hop *h, const float *values, size_t count,
                       char *message)
{
    const struct hst_quantise args = {.bits = h->sum.tree.quant,
                                      .dtype = HST_F32,
                                      .count = count,
                                      .values = values,
                                      .codes = message,
                                      .scales = (float *)(void *)(message + codes_bytes(h, count))};
    int rc = n->config.device_quantise(n->stream, &args);
    return rc ? nccl_device_failed(n, rc, "integers of gradients cannot be made") : 0;
}

static int give_back(struct nccl *n, const struct hop *h, const char *message, size_t count,
                     float *values)
{
    const struct hst_dequantise args = {
        .bits = h->sum.tree.quant,
        .dtype = HST_F32,
        .count = count,
        .codes = message,
        .scales = (const float *)(const void *)(message + codes_bytes(h, count)),
        .values = values};
    int rc = n->config.device_dequantise(n->stream, &args);
    return rc ? nccl_device_failed(n, rc, "integers of gradients cannot be given back") : 0;
}

static int make_messages(struct nccl *n, const struct exchange *e, const struct hop *h,
                         size_t count)
{
    int rc = 0;
    for (uint32_t p = 0; p < h->peers.count && sends_integers(h, h->peers.self); p++)
        for (uint32_t run = 0; !rc && p != h->peers.self && run < h->runs; run++)
            rc = to_integers(n, h, in_row(h, p, run), count,
                             message_at(e, h, e->send, p, run, count));
    return rc;
}

/* It sends f32 from where it lies. */
static int swap_messages(struct nccl *n, const struct exchange *e, const struct hop *h,
                         size_t count)
{
    const struct peers *peers = &h->peers;
    const bool integers = sends_integers(h, peers->self);
    int rc = 0;
    n->library.ncclGroupStart();
    for (uint32_t p = 0; p < peers->count; p++)
        for (uint32_t run = 0; !rc && p != peers->self && run < h->runs; run++) {
            const char *from = integers ? message_at(e, h, e->send, p, run, count)
                                        : (const char *)in_row(h, p, run);
            rc = nccl_send_part(n, peers, p, from, count / BLOCK * h->block[peers->self]);
            rc = rc ? rc
                    : nccl_receive_part(n, peers, p, message_at(e, h, e->receive, p, run, count),
                                        count / BLOCK * h->block[p]);
        }
    return nccl_end_group(n, peers, rc);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* n->input[peer] ← where that peer's values are. */
static int find_input(struct nccl *n, const struct exchange *e, const struct hop *h, uint32_t peer,
                      uint32_t run, size_t count)
{
    char *message = message_at(e, h, e->receive, peer, run, count);
    float *wide = e->wide + peer * count;
    if (peer == h->peers.self) {
        n->input[peer] = in_row(h, peer, run);
        return 0;
    }
    n->input[peer] = sends_integers(h, peer) ? (const void *)wide : message;
    return sends_integers(h, peer) ? give_back(n, h, message, count, wide) : 0;
}

static int run_hop(struct nccl *n, const struct exchange *e, const struct hop *h, size_t count)
{
    int rc = make_messages(n, e, h, count);
    rc = rc ? rc : swap_messages(n, e, h, count);
    for (uint32_t run = 0; !rc && run < h->runs; run++) {
        for (uint32_t p = 0; !rc && p < h->peers.count; p++)
            rc = find_input(n, e, h, p, run, count);
        rc = rc ? rc : nccl_add(n, &h->sum, e->partial, h->out + run * count * h->out_bytes, count);
    }
    return rc;
}

/* ---- the exchange ---------------------------------------------------------------------------- */

/* Elements [at, at + count) of every shard. */
static int exchange_piece(struct nccl *n, const struct exchange *e, size_t at, size_t count)
{
    const struct comm_op *op = e->op;
    const uint32_t ranks = n->info.ranks, rank = n->info.rank, each = op->tree.ways / ranks;
    const uint32_t place = rank % e->group, head = rank - place;
    const size_t out_bytes = hst_dtype_bytes(op->tree.root);
    const bool alone = e->groups == 1;
    const struct hop last = {
        .peers = {n->outer, e->groups, rank / e->group},
        .sum = {.tree = op->tree, .each = e->group * each, .inputs = e->groups},
        .runs = 1,
        .block = e->sum_block,
        .in = e->mid,
        .part = count,
        .out = (char *)op->out + at * out_bytes,
        .out_bytes = out_bytes,
    };
    const struct hop first = {
        .peers = {alone ? n->world : n->inner, e->group, place},
        .sum = {.tree = op->tree, .first = head * each, .each = each, .inputs = e->group},
        .runs = e->groups,
        .block = e->rank_block + head,
        .in = op->in,
        .at = at,
        .part = op->count,
        .out = alone ? last.out : (char *)e->mid,
        .out_bytes = alone ? out_bytes : sizeof(float),
    };
    int rc = run_hop(n, e, &first, count);
    return rc || alone ? rc : run_hop(n, e, &last, count);
}

static void count_exchange(struct nccl *n, const struct exchange *e)
{
    const uint64_t blocks = e->op->count / BLOCK;
    const uint32_t rank = n->info.rank, place = rank % e->group, here = rank - n->info.local;
    uint64_t net = 0, between = 0;
    for (uint32_t r = rank - place; r < rank - place + e->group; r++) {
        const uint64_t part = r == rank ? 0 : e->groups * blocks * e->rank_block[r];
        net += part;
        between += r >= here && r < here + n->info.locals ? 0 : part;
    }
    for (uint32_t g = 0; e->groups > 1 && g < e->groups; g++) {
        const uint32_t r = g * e->group + place;
        const uint64_t part = r == rank ? 0 : blocks * e->sum_block[g];
        net += part;
        between += r >= here && r < here + n->info.locals ? 0 : part;
    }
    nccl_count(n, net, between);
}

int nccl_exchange_quantised(struct nccl *n, const struct comm_op *op)
{
    struct exchange e;
    int rc = describe(n, op, &e);
    for (size_t at = 0; !rc && at < op->count; at += e.most)
        rc = exchange_piece(n, &e, at, op->count - at < e.most ? op->count - at : e.most);
    if (!rc)
        count_exchange(n, &e);
    return rc;
}
