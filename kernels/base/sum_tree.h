/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_BASE_SUM_TREE_H
#define HST_KERNELS_BASE_SUM_TREE_H
/* This is what the boundary and every device's sum of ways ask of its nodes. Pure. */
#include <hoistway/ways.h>

#ifdef __cplusplus
extern "C" {
#endif

/* True where the tree and its nodes are any; pointers are not looked at. */
bool sum_nodes_ok(const struct hst_sum_ways *args);

/* `most` ways from `first` on, or as many as there are; `first` is one of the tree's. */
static inline struct hst_sum_node sum_node_at(const struct hst_sum_tree *tree, uint32_t first,
                                              uint32_t most)
{
    const uint32_t left = tree->ways - first;
    const struct hst_sum_node node = {first, most < left ? most : left};
    return node;
}

static inline struct hst_sum_node sum_input(const struct hst_sum_ways *args, uint32_t i)
{
    return sum_node_at(&args->tree, args->first + i * args->each, args->each);
}

static inline struct hst_sum_node sum_output(const struct hst_sum_ways *args)
{
    return sum_node_at(&args->tree, args->first, args->inputs * args->each);
}

#ifdef __cplusplus
}
#endif
#endif
