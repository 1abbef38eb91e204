/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_TREE_H
#define HOISTWAY_ENGINE_COMM_TREE_H
/*
 * The one way in which gradients of different ways of a batch are added. A step's batch is cut into
 * W ways; their gradients are added in f32 by a binary tree that W alone decides (a node of n ways
 * is split at the largest power of two below n). Each value has one type by its place in the tree,
 * whoever computes it: the bits do not depend on how many ranks there are, on hops between them, or
 * on the order in which anything arrives.
 */
#include <hoistway/kernels.h>

enum { SUM_WAYS_MOST = 65536 };

/** This is what decides every bit of a sum, besides the values. */
struct sum_tree {
    uint32_t ways;         /* W, 1 to SUM_WAYS_MOST */
    uint32_t hop;          /* H, a power of two: sums of H ways have the reduce type too */
    enum hst_dtype reduce; /* of a way's gradient: the root's type, or HST_F32 */
    enum hst_dtype root;   /* of the gradient, which is the sum of all ways */
};

/** True where its numbers are within the ranges above. Pure. */
bool sum_tree_valid(const struct sum_tree *tree);

/** Ways [first, first + count). */
struct sum_node {
    uint32_t first, count;
};

/**
 * True where these ways are a node that ranks may hold: all of them, or an aligned power of two of
 * them (first a multiple of count). Pure.
 */
bool sum_node_valid(const struct sum_tree *tree, struct sum_node node);

/**
 * The type of a node's value: the root is of the gradient's type; a way, and a group of ways
 * [k·H, (k+1)·H), the last of which may be shorter, of the reduce type; every other sum is f32.
 * Pure.
 */
enum hst_dtype sum_type(const struct sum_tree *tree, struct sum_node node);

/** One addition of neighbouring nodes. */
struct sum_ways {
    struct sum_tree tree;
    uint32_t first;  /* way that the first input begins with */
    uint32_t each;   /* ways of one input, a power of two; where there is one input, any number */
    uint32_t inputs; /* n, > 0 */
};

/**
 * Adds n neighbouring nodes of the tree up to the node that they make together:
 *   out ← round(tree(in[0], …, in[n-1]))     in f32, rounded to nearest even by place (sum_type)
 *
 * sum        the inputs are nodes [first + i·each, first + (i+1)·each), together a node again
 * in         [n], each elements of the type that sum_type tells for it; borrowed
 * out        elements, of the type of the node that all make; may be in[0], where both have one
 *            type, overlaps nothing otherwise
 * elements   any number; so a caller may cut a row where it likes
 *
 * Errors: -EINVAL where tree or nodes are none; *out is untouched then.
 * Ownership: borrows all, keeps none.   Thread-safety: safe on disjoint outputs.
 * Cost: reads n inputs and writes one output, through 4 KiB a level of the tree on the stack.
 * Source: ZeRO (Rajbhandari et al. 2020), arXiv:1910.02054, section 5: the reduction of gradients;
 * the order of additions and their types are ours.
 */
int sum_ways(const struct sum_ways *sum, const void *const *in, void *out, size_t elements);

#endif
