/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a tree is, what its nodes are, and the types of values. Plugins compile it too. */
#include "sum_tree.h"

#include <stddef.h>

static bool is_power_of_two(uint32_t n)
{
    return n && !(n & (n - 1));
}

bool hst_sum_tree_valid(const struct hst_sum_tree *tree)
{
    const bool known = tree->root == HST_F32 || tree->root == HST_BF16 || tree->root == HST_F16;
    return known && tree->ways && tree->ways <= HST_WAYS_MOST && is_power_of_two(tree->hop) &&
           (tree->reduce == tree->root || tree->reduce == HST_F32) &&
           (tree->quant == 0 ||
            ((tree->quant == HST_INT8 || tree->quant == HST_INT4) && tree->reduce == HST_F32));
}

bool hst_sum_node_valid(const struct hst_sum_tree *tree, struct hst_sum_node node)
{
    if (!node.count || node.first >= tree->ways || node.count > tree->ways - node.first)
        return false;
    const uint32_t aligned = node.first & (0 - node.first); /* to this power of two; 0: to all */
    return (!aligned || node.count <= aligned) &&
           (is_power_of_two(node.count) || node.first + node.count == tree->ways);
}

static bool is_root(const struct hst_sum_tree *tree, struct hst_sum_node node)
{
    return node.first == 0 && node.count == tree->ways;
}

/* A way, or a group of `hop` ways. */
static bool is_reduced(const struct hst_sum_tree *tree, struct hst_sum_node node)
{
    const bool last = node.first + node.count == tree->ways;
    const bool group = node.first % tree->hop == 0 &&
                       (node.count == tree->hop || (node.count < tree->hop && last));
    return node.count == 1 || group;
}

enum hst_dtype hst_sum_type(const struct hst_sum_tree *tree, struct hst_sum_node node)
{
    if (is_root(tree, node))
        return tree->root;
    return is_reduced(tree, node) ? tree->reduce : HST_F32;
}

bool hst_sum_quantised(const struct hst_sum_tree *tree, struct hst_sum_node node)
{
    return tree->quant && !is_root(tree, node) && is_reduced(tree, node);
}

/* The output is a node of more ways than a block has: a block begins at a multiple of its own. */
struct hst_sum_ways hst_sum_block(const struct hst_sum_ways *sum, uint32_t most, uint32_t b)
{
    const uint32_t begin = b * most, left = sum->inputs - begin;
    struct hst_sum_ways block = *sum;
    block.first += begin * sum->each;
    block.inputs = most < left ? most : left;
    block.in = sum->in ? sum->in + begin : NULL;
    block.out = NULL;
    block.partial = NULL;
    return block;
}

struct hst_sum_ways hst_sum_of_blocks(const struct hst_sum_ways *sum, uint32_t most)
{
    struct hst_sum_ways blocks = *sum;
    blocks.each *= most;
    blocks.inputs = (sum->inputs - 1) / most + 1;
    blocks.in = NULL;
    return blocks;
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
