/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds nodes in the order of the tree. The additions follow a binary counter: two neighbours of one
 * size become one node at once, and what is left when all inputs have come is joined from the
 * right. That is the tree whose nodes of n ways are split at the largest power of two below n.
 */
#include "comm/tree.h"

#include <errno.h>
#include <hoistway/cpu_adam.h>
#include <string.h>

enum { CHUNK = 1024, LEVELS = 18 }; /* elements at a time; nodes that wait at once, at most */

/* ---- the additions --------------------------------------------------------------------------- */

static void widen(const struct hst_cpu_adam_ops *ops, enum hst_dtype type, const void *in,
                  float *out, size_t n)
{
    if (type == HST_BF16)
        ops->f32_from_bf16(in, out, n);
    else if (type == HST_F16)
        ops->f32_from_f16(in, out, n);
    else
        memcpy(out, in, n * sizeof *out);
}

static void narrow(const struct hst_cpu_adam_ops *ops, enum hst_dtype type, const float *in,
                   void *out, size_t n)
{
    if (type == HST_BF16)
        ops->bf16_from_f32(in, out, n);
    else if (type == HST_F16)
        ops->f16_from_f32(in, out, n);
    else
        memcpy(out, in, n * sizeof *in);
}

/* Nodes that wait for their right neighbour, from the left; those of one chunk of elements. */
struct waiting {
    const struct sum_tree *tree;
    const struct hst_cpu_adam_ops *ops;
    uint32_t depth;
    struct sum_node node[LEVELS];
    float value[LEVELS][CHUNK];
    uint16_t narrow[CHUNK];
};

/* The last two become one. The root is rounded when it is written. */
static void join(struct waiting *w, size_t n)
{
    const uint32_t right = --w->depth, left = right - 1;
    float *restrict sum = w->value[left];
    const float *restrict other = w->value[right];
    for (size_t i = 0; i < n; i++)
        sum[i] += other[i];
    w->node[left].count += w->node[right].count;
    const enum hst_dtype type = sum_type(w->tree, w->node[left]);
    if (type != HST_F32 && w->node[left].count != w->tree->ways) {
        narrow(w->ops, type, sum, w->narrow, n);
        widen(w->ops, type, w->narrow, sum, n);
    }
}

static void sum_chunk(const struct sum_ways *s, struct waiting *w, const void *const *in, void *out,
                      size_t at, size_t n)
{
    w->depth = 0;
    for (uint32_t i = 0; i < s->inputs; i++) {
        const struct sum_node node = {s->first + i * s->each, s->each};
        const enum hst_dtype type = sum_type(w->tree, node);
        w->node[w->depth] = node;
        widen(w->ops, type, (const char *)in[i] + at * hst_dtype_bytes(type), w->value[w->depth],
              n);
        w->depth++;
        while (w->depth > 1 && w->node[w->depth - 2].count == w->node[w->depth - 1].count)
            join(w, n);
    }
    while (w->depth > 1)
        join(w, n);
    const enum hst_dtype type = sum_type(w->tree, w->node[0]);
    narrow(w->ops, type, w->value[0], (char *)out + at * hst_dtype_bytes(type), n);
}

int sum_ways(const struct sum_ways *sum, const void *const *in, void *out, size_t elements)
{
    if (!sum || !in || !out || !sum_tree_valid(&sum->tree) || !sum->each || !sum->inputs ||
        sum->first >= sum->tree.ways || sum->inputs > (sum->tree.ways - sum->first) / sum->each)
        return -EINVAL;
    const struct sum_node whole = {sum->first, sum->inputs * sum->each};
    if (!sum_node_valid(&sum->tree, whole) ||
        !sum_node_valid(&sum->tree, (struct sum_node){sum->first, sum->each}))
        return -EINVAL;
    struct waiting waiting = {.tree = &sum->tree, .ops = hst_cpu_adam_ops(HST_CPU_ISA_AUTO)};
    for (size_t at = 0; at < elements; at += CHUNK)
        sum_chunk(sum, &waiting, in, out, at, elements - at < CHUNK ? elements - at : CHUNK);
    return 0;
}
