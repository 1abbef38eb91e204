/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what stays in its buffer from one sweep to the next, and which updated weights are
 * written last. */
#include "plan/graph/graph_build.h"

#include <string.h>

static uint32_t less(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

static bool computes_backward(const struct build *b, struct build_visit visit)
{
    const struct build_unit *s = &b->units[visit.unit];
    bool second = s->recomputes && !visit.recompute;
    bool copied = second ? s->hold_device_weights : s->retain_device_weights;
    return !copied && parts_uses_weights(b, visit);
}

bool kept_reads_backward(const struct build *b, struct build_visit visit)
{
    const struct graph_unit *u = &b->in->units[visit.unit];
    bool updates = !visit.recompute && parts_is_early(b, visit.unit) && u->weights == HST_TIER_NVME;
    return parts_reserve_weights(b, visit.unit) && (updates || computes_backward(b, visit));
}

bool kept_reads_here(const struct build *b, struct build_visit visit)
{
    return kept_reads_backward(b, visit) &&
           (parts_has_early_tiles(b, visit.unit) || computes_backward(b, visit));
}

bool kept_is_near(const struct build *b, struct build_visit visit)
{
    return !b->in->exact_beside && !parts_is_joined(b) &&
           b->units[visit.unit].gathered_far != GRAPH_NONE && computes_backward(b, visit);
}

#define KEEP_NO_MORE (UINT32_MAX / 2) /* more than there are buffers */

/* None of a segment that begins at this place is retained where it does not fit as a whole. */
static void retain_segment(const struct build *b, uint32_t place, const uint32_t room[POOL_COUNT],
                           uint32_t taken[POOL_COUNT])
{
    uint32_t units = visits_segment(b, place), count[POOL_COUNT] = {0};
    for (uint32_t i = 0; i < units; i++) {
        uint32_t unit = b->in->backward[place + i];
        count[parts_pool(b, unit, POOL_WEIGHTS)]++;
        count[parts_pool(b, unit, POOL_DEVICE_WEIGHTS)] += parts_copy_weights(b, unit);
    }
    for (int p = 0; p < POOL_COUNT && units > 1; p++)
        taken[p] = count[p] > 0 && taken[p] + count[p] > room[p] ? KEEP_NO_MORE : taken[p];
}

/*
 * From forward to backward, where one mirrors the other: the last units, as many as there are
 * buffers. Where weights go on to a device that keeps the last units itself, host memory keeps some
 * of those before them, and three buffers are left for those that pass: one is read, one updated,
 * one copied. Of wide ones no two pass at once. Of units that are recomputed, whose order
 * changes in the backward, all of a segment that have buffers of one pool are kept, or none and
 * nothing before it.
 */
static void choose_retained(struct build *b)
{
    const struct graph_in *in = b->in;
    enum pool acts = in->apart ? POOL_DEVICE_ACTS : POOL_ACTS;
    uint32_t taken[POOL_COUNT] = {0}, room[POOL_COUNT];
    memcpy(room, in->buffers, sizeof room);
    for (uint32_t i = 0; i < in->unit_count; i++) {
        uint32_t unit = in->backward[i];
        struct build_unit *s = &b->units[unit];
        enum pool host = parts_pool(b, unit, POOL_WEIGHTS);
        enum pool device = parts_pool(b, unit, POOL_DEVICE_WEIGHTS);
        if (in->forward[in->unit_count - 1 - i] != unit)
            return;
        if (i == 0 || !in->units[in->backward[i - 1]].recomputed)
            retain_segment(b, i, room, taken);
        struct build_visit first = {unit, s->recomputes};
        if (parts_copy_weights(b, unit)) /* those that need not stay pass by those that do */
            s->retain_device_weights =
                taken[device]++ < room[device] && parts_uses_weights(b, first);
        if (kept_reads_backward(b, first))
            s->retain_weights = taken[host]++ < room[host];
        else if (parts_reserve_weights(b, unit))
            room[host] = less(in->buffers[host], host == POOL_WIDE_WEIGHTS ? 1 : 3);
        if (parts_move_acts(b, unit))
            s->retain_acts = taken[acts]++ < room[acts];
    }
}

/* Gradients on drives that the next forward's update begins with: they need not go there. Of
 * several ranks rows pass by a buffer behind these that are not kept: one is left for them. */
static void choose_retained_grads(struct build *b)
{
    const struct graph_in *in = b->in;
    uint32_t kept[POOL_COUNT] = {0}, passing[POOL_COUNT] = {0};
    for (uint32_t i = 0; in->deferred && i < in->unit_count; i++) {
        uint32_t unit = in->forward[i];
        const struct graph_unit *u = &in->units[unit];
        enum pool pool = parts_pool(b, unit, POOL_GRADS);
        if (in->backward[in->unit_count - 1 - i] != unit)
            return;
        if (u->grads == HST_TIER_NVME && u->tile_count > 0 && parts_has_grads(b, unit))
            b->units[unit].retain_grads = kept[pool]++ < less(in->buffers[pool], passing[pool]);
        else if (parts_is_shared(b) && parts_passes_grads(b, unit))
            passing[pool] = 1;
    }
}

/*
 * It chooses, of a deferred update, weights that are written when all others have been read.
 * Computation waits for reads, and in the backward, which has no update then, drives have time. Of
 * units whose buffers no other one's weights wait for in the forward: those that stay for the
 * backward, and of others that it does not read again the last ones, as many as there are buffers
 * beside. What other units read too is written at once.
 */
static void choose_written_last(struct build *b)
{
    const struct graph_in *in = b->in;
    uint32_t taken[POOL_COUNT] = {0};
    b->last_read = GRAPH_NONE;
    for (uint32_t i = 0; i < in->unit_count; i++)
        taken[parts_pool(b, i, POOL_WEIGHTS)] += b->units[i].retain_weights;
    for (uint32_t i = in->unit_count; in->deferred && i-- > 0;) {
        uint32_t unit = in->forward[i];
        enum pool pool = parts_pool(b, unit, POOL_WEIGHTS);
        bool stays = b->units[unit].retain_weights;
        bool again = kept_reads_backward(b, (struct build_visit){unit, b->units[unit].recomputes});
        if (in->units[unit].weights == HST_TIER_NVME && parts_reserve_weights(b, unit))
            b->units[unit].write_last = stays || (!again && taken[pool] < in->buffers[pool]);
        taken[pool] += !stays && parts_reserve_weights(b, unit);
    }
    for (uint32_t i = 0; i < in->unit_count; i++)
        for (uint32_t a = 0; a < in->units[i].alias_count; a++)
            b->units[in->units[i].alias_of[a]].write_last = false;
}

void kept_choose(struct build *b)
{
    choose_retained(b);
    choose_retained_grads(b);
    choose_written_last(b);
}

static void hand_over(struct build *b, uint32_t legacy, uint32_t heir)
{
    b->graph->reservations[legacy].heir = heir;
    b->graph->reservations[heir].legacy = legacy;
}

void kept_hand_over(struct build *b)
{
    const struct graph_in *in = b->in;
    for (uint32_t i = 0; i < in->unit_count; i++)
        if (b->units[i].retain_grads)
            hand_over(b, b->units[i].grads, b->units[i].retained_grads);
    uint32_t kept[POOL_COUNT] = {0};
    for (uint32_t i = 0; i < in->unit_count; i++) {
        uint32_t unit = in->forward[i];
        const struct build_unit *s = &b->units[unit];
        enum pool pool = parts_pool(b, unit, POOL_WEIGHTS);
        if (in->backward[in->unit_count - 1 - i] != unit)
            return;
        if (!parts_reserve_weights(b, unit) || kept[pool]++ >= in->buffers[pool])
            continue;
        if (parts_gathers(b) && in->units[unit].weights != HST_TIER_NVME)
            continue; /* it is gathered anew, and had a buffer left for it */
        if (in->units[unit].alias_count > 0 || s->last_weights == GRAPH_NONE)
            continue;
        hand_over(b, s->last_weights, s->first_weights);
    }
}
