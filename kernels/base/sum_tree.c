/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a tree is, what its nodes are, and the types of values. Plugins compile it too. */
#include "sum_tree.h"

static bool is_power_of_two(uint32_t n)
{
    return n && !(n & (n - 1));
}

bool hst_sum_tree_valid(const struct hst_sum_tree *tree)
{
    const bool known = tree->root == HST_F32 || tree->root == HST_BF16 || tree->root == HST_F16;
    return known && tree->ways && tree->ways <= HST_WAYS_MOST && is_power_of_two(tree->hop) &&
           (tree->reduce == tree->root || tree->reduce == HST_F32);
}

bool hst_sum_node_valid(const struct hst_sum_tree *tree, struct hst_sum_node node)
{
    if (!node.count || node.first >= tree->ways || node.count > tree->ways - node.first)
        return false;
    const uint32_t aligned = node.first & (0 - node.first); /* to this power of two; 0: to all */
    return (!aligned || node.count <= aligned) &&
           (is_power_of_two(node.count) || node.first + node.count == tree->ways);
}

enum hst_dtype hst_sum_type(const struct hst_sum_tree *tree, struct hst_sum_node node)
{
    if (node.first == 0 && node.count == tree->ways)
        return tree->root;
    const bool last = node.first + node.count == tree->ways;
    const bool group = node.first % tree->hop == 0 &&
                       (node.count == tree->hop || (node.count < tree->hop && last));
    return node.count == 1 || group ? tree->reduce : HST_F32;
}

/* Where there are several inputs, the first one ends before the ways do: it is a power of two, the
 * others lie at multiples of it, and all are nodes where it is one. */
bool sum_nodes_ok(const struct hst_sum_ways *args)
{
    return hst_sum_tree_valid(&args->tree) && args->each && args->inputs &&
           args->first < args->tree.ways &&
           args->inputs - 1 <= (args->tree.ways - args->first - 1) / args->each &&
           hst_sum_node_valid(&args->tree, sum_output(args)) &&
           hst_sum_node_valid(&args->tree, sum_input(args, 0));
}
