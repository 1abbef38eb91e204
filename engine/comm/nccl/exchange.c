/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange on device memory: ranks hand each other their parts of a piece, and the device's own
 * sum adds them in the tree's order, behind it in the same stream. So one buffer to receive into
 * is enough. Between nodes it takes two hops, as over MPI: the sums of a group of a node are what
 * leaves it. Where more ranks meet in a hop than the device adds at once, it adds them by blocks,
 * whose sums have their room in the buffer too. A whole shard of one type that fits the buffer is
 * one all-to-all where the library has that; all else is sends and receives in one group.
 */
#include "comm/nccl/nccl_comm.h"

#include <errno.h>

enum { ALIGN = 64 };

/* Pieces: elements [at, at + count) of every shard. Shards are aligned for the sum, and so is what
   is left of one behind whole pieces. */
struct piece {
    const struct comm_op *op;
    size_t at, count;
};

static struct piece piece_at(const struct comm_op *op, size_t at, size_t most)
{
    return (struct piece){op, at, op->count - at < most ? op->count - at : most};
}

void nccl_count(struct nccl *n, uint64_t net, uint64_t between)
{
    n->info.net_bytes += net;
    n->info.between_bytes += between;
}

/* Bytes of an element of each input; returns the most. */
static size_t sizes_of(const struct hst_sum_ways *sum, size_t *size)
{
    size_t most = 1;
    for (uint32_t i = 0; i < sum->inputs; i++) {
        const struct hst_sum_node node = {sum->first + i * sum->each, sum->each};
        size[i] = hst_dtype_bytes(hst_sum_type(&sum->tree, node));
        most = size[i] > most ? size[i] : most;
    }
    return most;
}

uint32_t nccl_blocks(const struct nccl *n, uint32_t inputs)
{
    const uint32_t most = n->config.sum_inputs;
    return most && inputs > most ? (inputs - 1) / most + 1 : 0; /* comm_open has set it */
}

static int add_at_once(struct nccl *n, struct hst_sum_ways sum, void *out)
{
    sum.out = out;
    int rc = n->config.device_sum(n->stream, &sum);
    return rc ? nccl_device_failed(n, rc, "the sum of an exchange cannot be begun") : 0;
}

/* The device has taken a block's pointers once its sum is begun, so that the sum's may stand where
   they were. */
int nccl_add(struct nccl *n, const struct hst_sum_ways *sum, float *partial, void *out,
             size_t count)
{
    const uint32_t most = n->config.sum_inputs, blocks = nccl_blocks(n, sum->inputs);
    struct hst_sum_ways all = *sum;
    all.in = n->input;
    all.count = count;
    if (!blocks)
        return add_at_once(n, all, out);
    int rc = 0;
    for (uint32_t b = 0; !rc && b < blocks; b++) {
        const struct hst_sum_ways block = hst_sum_block(&all, most, b);
        const bool added = block.inputs == 1; /* of one input it is the sum already */
        const void *value = added ? block.in[0] : partial + b * count;
        rc = added ? 0 : add_at_once(n, block, partial + b * count);
        n->input[b] = value;
    }
    all = hst_sum_of_blocks(&all, most);
    all.in = n->input;
    return rc ? rc : add_at_once(n, all, out);
}

/* ---- sends and receives ---------------------------------------------------------------------- */

int nccl_send_part(struct nccl *n, const struct peers *p, uint32_t peer, const char *from,
                   size_t bytes)
{
    const enum nccl_result result =
        n->library.ncclSend(from, bytes, NCCL_INT8, (int)peer, p->comm, n->native);
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
               ? 0
               : nccl_settle(n, p->comm, result, "ncclSend");
}

int nccl_receive_part(struct nccl *n, const struct peers *p, uint32_t peer, char *to, size_t bytes)
{
    const enum nccl_result result =
        n->library.ncclRecv(to, bytes, NCCL_INT8, (int)peer, p->comm, n->native);
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
               ? 0
               : nccl_settle(n, p->comm, result, "ncclRecv");
}

int nccl_end_group(struct nccl *n, const struct peers *p, int rc)
{
    const enum nccl_result result = n->library.ncclGroupEnd();
    return rc ? rc : nccl_settle(n, p->comm, result, "ncclGroupEnd");
}

/* ---- one hop --------------------------------------------------------------------------------- */

static int parts_in_group(struct nccl *n, const struct piece *piece, size_t widest)
{
    const struct peers all = {n->world, n->info.ranks, n->info.rank};
    const size_t own = n->size[all.self];
    const char *in = piece->op->in;
    n->library.ncclGroupStart();
    int rc = 0;
    for (uint32_t r = 0; !rc && r < all.count; r++) {
        if (r == all.self)
            continue;
        rc = nccl_send_part(n, &all, r, in + (r * piece->op->count + piece->at) * own,
                            piece->count * own);
        rc = rc ? rc
                : nccl_receive_part(n, &all, r, n->ring + r * piece->count * widest,
                                    piece->count * n->size[r]);
    }
    return nccl_end_group(n, &all, rc);
}

static bool is_one_type(const size_t *size, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (size[i] != size[0])
            return false;
    return true;
}

static int parts_at_once(struct nccl *n, const struct piece *piece)
{
    return nccl_settle(n, n->world,
                       n->library.ncclAlltoAll(piece->op->in, n->ring, piece->count * n->size[0],
                                               NCCL_INT8, n->world, n->native),
                       "ncclAlltoAll");
}

static void count_parts(struct nccl *n, size_t elements)
{
    const uint32_t rank = n->info.rank, head = rank - n->info.local;
    uint64_t net = 0, between = 0;
    for (uint32_t r = 0; r < n->info.ranks; r++) {
        net += r == rank ? 0 : elements * n->size[r];
        between += r >= head && r < head + n->info.locals ? 0 : elements * n->size[r];
    }
    nccl_count(n, net, between);
}

int nccl_too_small(struct nccl *n)
{
    return nccl_fail(n, -EINVAL, COMM_NOBODY, "pieces of %zu bytes are too small for %u ranks",
                     n->config.piece_bytes, n->info.ranks);
}

static int one_hop(struct nccl *n, const struct comm_op *op)
{
    const uint32_t ranks = n->info.ranks;
    const struct hst_sum_ways sum = {
        .tree = op->tree, .each = op->tree.ways / ranks, .inputs = ranks};
    const size_t widest = sizes_of(&sum, n->size), own = n->size[n->info.rank];
    const size_t parts = ranks * widest, partials = nccl_blocks(n, ranks) * sizeof(float);
    const size_t room = n->config.piece_bytes / (parts + partials);
    const bool at_once =
        n->library.ncclAlltoAll && op->count <= room && is_one_type(n->size, ranks);
    const size_t most = at_once ? op->count : room / ALIGN * ALIGN;
    if (!most && op->count)
        return nccl_too_small(n);
    int rc = 0;
    for (size_t at = 0; !rc && at < op->count; at += most) {
        const struct piece piece = piece_at(op, at, most);
        rc = at_once ? parts_at_once(n, &piece) : parts_in_group(n, &piece, widest);
        for (uint32_t r = 0; r < ranks; r++)
            n->input[r] = r == n->info.rank ? (const char *)op->in + (r * op->count + at) * own
                                            : n->ring + r * piece.count * widest;
        rc = rc ? rc
                : nccl_add(n, &sum, (float *)(void *)(n->ring + parts * piece.count),
                           (char *)op->out + at * hst_dtype_bytes(op->tree.root), piece.count);
    }
    if (!rc)
        count_parts(n, op->count);
    return rc;
}

/* ---- two hops -------------------------------------------------------------------------------- */

struct hops {
    struct peers inner, outer;
    struct hst_sum_ways inner_sum, outer_sum;
    const size_t *in_size;        /* [inner.count], of a rank of this group */
    const size_t *mid_size;       /* [outer.count], of a group's sum */
    size_t in_widest, mid_widest; /* of any in the world */
    size_t most;                  /* elements of a piece of each shard */
    char *parts;                  /* [inner.count][outer.count][most] */
    char *mid, *other;            /* sums of this group, of others: [outer.count][most] */
    float *partial;               /* [blocks of the hop that has more][most], sums of blocks */
};

static int describe(struct nccl *n, const struct comm_op *op, struct hops *h)
{
    const uint32_t each = op->tree.ways / n->info.ranks, groups = n->info.ranks / n->group;
    *h = (struct hops){.inner = {n->inner, n->group, n->info.rank % n->group},
                       .outer = {n->outer, groups, n->info.rank / n->group}};
    h->inner_sum = (struct hst_sum_ways){.tree = op->tree,
                                         .first = h->outer.self * n->group * each,
                                         .each = each,
                                         .inputs = n->group};
    h->outer_sum =
        (struct hst_sum_ways){.tree = op->tree, .each = n->group * each, .inputs = groups};
    const struct hst_sum_ways world = {.tree = op->tree, .each = each, .inputs = n->info.ranks};
    h->in_widest = sizes_of(&world, n->size);
    h->in_size = n->size + h->outer.self * n->group;
    h->mid_widest = sizes_of(&h->outer_sum, n->size + n->info.ranks);
    h->mid_size = n->size + n->info.ranks;
    const size_t in = (size_t)n->group * groups * h->in_widest, mid = groups * h->mid_widest;
    const size_t partials = nccl_blocks(n, n->group > groups ? n->group : groups) * sizeof(float);
    const size_t of_each = in + 2 * mid + partials; /* bytes of an element of each shard */
    h->most = of_each ? n->config.piece_bytes / of_each / ALIGN * ALIGN : 0;
    if (!h->most)
        return nccl_too_small(n);
    h->parts = n->ring;
    h->mid = h->parts + in * h->most;
    h->other = h->mid + mid * h->most;
    h->partial = (float *)(void *)(h->other + mid * h->most);
    return 0;
}

/* This is where this rank has the piece of the shard that `place` has in group g. */
static const char *own_part(const struct hops *h, const struct piece *piece, uint32_t place,
                            uint32_t g)
{
    const size_t shard = (size_t)g * h->inner.count + place;
    return (const char *)piece->op->in +
           (shard * piece->op->count + piece->at) * h->in_size[h->inner.self];
}

static char *received_part(const struct hops *h, const struct piece *piece, uint32_t i, uint32_t g)
{
    return h->parts + ((size_t)i * h->outer.count + g) * piece->count * h->in_widest;
}

static int inner_parts(struct nccl *n, const struct hops *h, const struct piece *piece)
{
    int rc = 0;
    n->library.ncclGroupStart();
    for (uint32_t i = 0; i < h->inner.count; i++)
        for (uint32_t g = 0; !rc && i != h->inner.self && g < h->outer.count; g++) {
            rc = nccl_send_part(n, &h->inner, i, own_part(h, piece, i, g),
                                piece->count * h->in_size[h->inner.self]);
            rc = rc ? rc
                    : nccl_receive_part(n, &h->inner, i, received_part(h, piece, i, g),
                                        piece->count * h->in_size[i]);
        }
    return nccl_end_group(n, &h->inner, rc);
}

static int add_inner(struct nccl *n, const struct hops *h, const struct piece *piece)
{
    const size_t step = piece->count * h->mid_widest;
    int rc = 0;
    for (uint32_t g = 0; !rc && g < h->outer.count; g++) {
        for (uint32_t i = 0; i < h->inner.count; i++)
            n->input[i] =
                i == h->inner.self ? own_part(h, piece, i, g) : received_part(h, piece, i, g);
        rc = nccl_add(n, &h->inner_sum, h->partial, h->mid + g * step, piece->count);
    }
    return rc;
}

static int outer_parts(struct nccl *n, const struct hops *h, const struct piece *piece)
{
    const size_t step = piece->count * h->mid_widest;
    int rc = 0;
    n->library.ncclGroupStart();
    for (uint32_t g = 0; !rc && g < h->outer.count; g++) {
        if (g == h->outer.self)
            continue;
        rc = nccl_send_part(n, &h->outer, g, h->mid + g * step,
                            piece->count * h->mid_size[h->outer.self]);
        rc = rc ? rc
                : nccl_receive_part(n, &h->outer, g, h->other + g * step,
                                    piece->count * h->mid_size[g]);
    }
    return nccl_end_group(n, &h->outer, rc);
}

static int add_outer(struct nccl *n, const struct hops *h, const struct piece *piece)
{
    const size_t step = piece->count * h->mid_widest;
    for (uint32_t g = 0; g < h->outer.count; g++)
        n->input[g] = (g == h->outer.self ? h->mid : h->other) + g * step;
    return nccl_add(n, &h->outer_sum, h->partial,
                    (char *)piece->op->out + piece->at * hst_dtype_bytes(piece->op->tree.root),
                    piece->count);
}

static void count_hops(struct nccl *n, const struct hops *h, size_t elements)
{
    uint64_t net = 0, between = 0;
    for (uint32_t i = 0; i < h->inner.count; i++)
        net += i == h->inner.self ? 0 : h->outer.count * elements * h->in_size[i];
    for (uint32_t g = 0; g < h->outer.count; g++) {
        const bool here = g * h->inner.count / n->info.locals == n->info.node;
        net += g == h->outer.self ? 0 : elements * h->mid_size[g];
        between += here ? 0 : elements * h->mid_size[g];
    }
    nccl_count(n, net, between);
}

static int two_hops(struct nccl *n, const struct comm_op *op)
{
    struct hops h;
    int rc = describe(n, op, &h);
    for (size_t at = 0; !rc && at < op->count; at += h.most) {
        const struct piece piece = piece_at(op, at, h.most);
        rc = inner_parts(n, &h, &piece);
        rc = rc ? rc : add_inner(n, &h, &piece);
        rc = rc ? rc : outer_parts(n, &h, &piece);
        rc = rc ? rc : add_outer(n, &h, &piece);
    }
    if (!rc)
        count_hops(n, &h, op->count);
    return rc;
}

int nccl_exchange(struct nccl *n, const struct comm_op *op)
{
    if (op->tree.quant)
        return nccl_exchange_quantised(n, op);
    return n->group > 1 ? two_hops(n, op) : one_hop(n, op);
}
