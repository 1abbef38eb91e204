/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_BASE_SUM_TREE_H
#define HST_KERNELS_BASE_SUM_TREE_H
/* What the boundary and every device's sum of ways ask of its nodes. Pure. */
#include <hoistway/ways.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the tree and its nodes are any; pointers are not looked at. */
bool sum_nodes_ok(const struct hst_sum_ways *args);

static inline struct hst_sum_node sum_input(const struct hst_sum_ways *args, uint32_t i)
{
    const struct hst_sum_node node = {args->first + i * args->each, args->each};
    return node;
}

static inline struct hst_sum_node sum_output(const struct hst_sum_ways *args)
{
    const struct hst_sum_node node = {args->first, args->inputs * args->each};
    return node;
}

#ifdef __cplusplus
}
#endif
#endif
