/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a tree is, what its nodes are, and the types of values. Plugins compile it too. */
#include "comm/tree.h"

static bool is_power_of_two(uint32_t n)
{
    return n && !(n & (n - 1));
}

bool sum_tree_valid(const struct sum_tree *tree)
{
    return tree->ways && tree->ways <= SUM_WAYS_MOST && is_power_of_two(tree->hop) &&
           hst_dtype_bytes(tree->root) && (tree->reduce == tree->root || tree->reduce == HST_F32);
}

bool sum_node_valid(const struct sum_tree *tree, struct sum_node node)
{
    if (node.first == 0 && node.count == tree->ways)
        return true;
    return is_power_of_two(node.count) && node.first % node.count == 0 && node.first < tree->ways &&
           node.count <= tree->ways - node.first;
}

enum hst_dtype sum_type(const struct sum_tree *tree, struct sum_node node)
{
    if (node.first == 0 && node.count == tree->ways)
        return tree->root;
    const bool last = node.first + node.count == tree->ways;
    const bool group = node.first % tree->hop == 0 &&
                       (node.count == tree->hop || (node.count < tree->hop && last));
    return node.count == 1 || group ? tree->reduce : HST_F32;
}
