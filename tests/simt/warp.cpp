/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lanes of a warp do together: they meet, the last one that comes computes for all, and all go
 * on. Only __syncwarp orders memory, as in CUDA: a shuffle hands over a value and nothing else.
 */
#include "interpreter.h"

using hst::Collective;
using hst::Thread;
using hst::WarpOp;

static bool same_site(hst::Site a, hst::Site b)
{
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

/* Of 16 products and c; a card adds 8 products at a time. */
static float sum(const float *a, const float *b, int step, float c)
{
    if (hst::card_arithmetic)
        return hst::card_sum(a + 8, b + 8 * step, step, hst::card_sum(a, b, step, c));
    for (int k = 0; k < 16; k++)
        c += a[k] * b[k * step];
    return c;
}

/* Fragments, PTX ISA "Matrix Fragments for mma.m16n8k16": lane 4g + t has
 *   a  rows g and g + 8, columns 2t, 2t + 1 and the same + 8      b  column g, rows likewise
 *   c  rows g and g + 8, columns 2t, 2t + 1 */
static hst::Work done;

hst::Work &hst::work()
{
    return done;
}

static void compute_mma(Thread *lanes)
{
    done.mma++;
    float a[16][16], b[16][8], c[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const auto *m = static_cast<const hst::Mma *>(lanes[lane].collective->operands);
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 8; i++)
            a[g + i / 2 % 2 * 8][t * 2 + i % 2 + i / 4 * 8] =
                m->wide((uint16_t)(m->a[i / 2] >> i % 2 * 16));
        for (int i = 0; i < 4; i++)
            b[t * 2 + i % 2 + i / 2 * 8][g] = m->wide((uint16_t)(m->b[i / 2] >> i % 2 * 16));
        for (int i = 0; i < 4; i++)
            c[g + i / 2 * 8][t * 2 + i % 2] = m->c[i];
    }
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++)
            c[row][column] = sum(a[row], &b[0][column], 8, c[row][column]);
    for (int lane = 0; lane < 32; lane++) {
        const auto *m = static_cast<const hst::Mma *>(lanes[lane].collective->operands);
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++)
            m->d[i] = c[g + i / 2 * 8][t * 2 + i % 2];
    }
}

/* Lane l gets of each matrix row l / 4, elements 2(l % 4) and the next; transposed: of column
 * l / 4. */
static void compute_ldmatrix(Thread *lanes)
{
    const uint16_t *rows[32];
    for (int lane = 0; lane < 32; lane++)
        rows[lane] = static_cast<hst::MatrixRow *>(lanes[lane].collective->operands)->row;
    for (int lane = 0; lane < 32; lane++) {
        const auto *m = static_cast<const hst::MatrixRow *>(lanes[lane].collective->operands);
        int major = lane / 4, minor = lane % 4 * 2;
        for (unsigned i = 0; i < m->matrices; i++) {
            const uint16_t *const *matrix = rows + i * 8;
            uint32_t low = m->transposed ? matrix[minor][major] : matrix[major][minor];
            uint32_t high = m->transposed ? matrix[minor + 1][major] : matrix[major][minor + 1];
            m->result[i] = low | high << 16;
        }
    }
}

static void compute_ballot(Thread *lanes, uint32_t group)
{
    uint32_t votes = 0;
    for (uint32_t left = group; left; left &= left - 1)
        if (lanes[__builtin_ctz(left)].collective->in)
            votes |= left & -left;
    for (uint32_t left = group; left; left &= left - 1)
        lanes[__builtin_ctz(left)].collective->out = votes;
}

/* The lane that a shuffle reads: its own where the place is outside its segment. */
static int source_lane(const Collective &c, int lane)
{
    int first = lane & ~(c.width - 1), end = first + c.width, source = lane;
    switch (c.op) {
    case WarpOp::shuffle_xor:
        source = lane ^ c.argument;
        return source < end ? source : lane;
    case WarpOp::shuffle_down:
        source = lane + c.argument;
        return source < end ? source : lane;
    case WarpOp::shuffle_up:
        source = lane - c.argument;
        return source >= first ? source : lane;
    default:
        return first + (c.argument & (c.width - 1));
    }
}

static void compute_shuffle(Thread *lanes, uint32_t group)
{
    for (uint32_t left = group; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        Collective &c = *lanes[lane].collective;
        if (c.width < 1 || c.width > 32 || c.width & (c.width - 1))
            hst::die("a shuffle's width is not a power of 2 up to 32", &lanes[lane], nullptr);
        int source = source_lane(c, lane);
        if (!(group >> source & 1))
            hst::die("a shuffle reads a lane that does not take part", &lanes[lane],
                     &lanes[source]);
        c.out = lanes[source].collective->in;
    }
}

static void complete(unsigned warp, uint32_t group)
{
    Thread *lanes = &hst::block.threads[warp * 32];
    const Thread *first = &lanes[__builtin_ctz(group)];
    for (uint32_t left = group; left; left &= left - 1) {
        const Thread *t = &lanes[__builtin_ctz(left)];
        if (t->collective->mask != first->collective->mask)
            hst::die("lanes meet with different masks", t, first);
        if (t->collective->op != first->collective->op || !same_site(t->site, first->site))
            hst::die("lanes of one mask are at different collectives", t, first);
    }
    WarpOp op = first->collective->op;
    if ((op == WarpOp::mma || op == WarpOp::ldmatrix) && group != ~0u)
        hst::die("mma and ldmatrix need all 32 lanes", first, nullptr);
    switch (op) {
    case WarpOp::sync:
        break;
    case WarpOp::ballot:
        compute_ballot(lanes, group);
        break;
    case WarpOp::mma:
        compute_mma(lanes);
        break;
    case WarpOp::ldmatrix:
        compute_ldmatrix(lanes);
        break;
    default:
        compute_shuffle(lanes, group);
    }
    hst::block.warps[warp].meetings[__builtin_ctz(first->collective->mask)]++;
    hst::block.warps[warp].at_collective &= ~group;
    hst::make_ready(warp, group);
}

void hst::check_collectives(unsigned w)
{
    Warp &warp = block.warps[w];
    for (uint32_t waiting = warp.at_collective; waiting;) {
        uint32_t group =
            block.threads[w * 32 + __builtin_ctz(waiting)].collective->mask & warp.live;
        if ((warp.at_collective & group) == group) {
            complete(w, group);
            waiting &= ~group;
        } else {
            waiting &= waiting - 1;
        }
    }
}

void hst::meet(Collective &c)
{
    if (c.op == WarpOp::sync && is_skipped(c.site))
        return;
    Thread *self = current;
    unsigned w = self->index / 32;
    uint32_t lane = 1u << self->index % 32;
    self->site = c.site;
    self->collective = &c;
    if (!(c.mask & lane))
        die("a lane calls a collective whose mask leaves it out", self, nullptr);
    Warp &warp = block.warps[w];
    unsigned leader = __builtin_ctz(c.mask);
    char *tag = &warp.order_tags[leader][warp.meetings[leader] & 1];
    if (c.op == WarpOp::sync)
        order_release(tag);
    warp.at_collective |= lane;
    uint32_t group = c.mask & warp.live;
    if ((warp.at_collective & group) == group)
        complete(w, group);
    suspend();
    if (c.op == WarpOp::sync)
        order_acquire(tag);
}

/* ---- cp.async -------------------------------------------------------------------------------- */

void hst::async_push(const AsyncCopy &copy)
{
    done.cp_async++;
    PendingCopies &p = current->copies;
    p.entries.push_back({copy, p.committed});
}

void hst::async_commit()
{
    current->copies.committed++;
}

bool hst::async_pop(int groups_left, AsyncCopy *copy)
{
    PendingCopies &p = current->copies;
    if (p.next == p.entries.size()) {
        p.entries.clear();
        p.next = 0;
        return false;
    }
    const PendingCopies::Entry &e = p.entries[p.next];
    if ((int64_t)e.group >= (int64_t)p.committed - groups_left)
        return false;
    *copy = e.copy;
    p.next++;
    return true;
}
