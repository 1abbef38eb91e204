/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_WAYS_H
#define HOISTWAY_WAYS_H
/*
 * The one way in which gradients of different ways of a batch are added; part of kernels.h. A
 * step's batch is cut into W ways; their gradients are added in f32 by a binary tree that W alone
 * decides (a node of n ways is split at the largest power of two below n). Each value has one type
 * by its place in the tree, whoever computes it: the bits do not depend on how many ranks there
 * are, on hops between them, on devices, or on the order in which anything arrives.
 */
#include <hoistway/kernels.h>
#include <hoistway/quantise.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HST_WAYS_MOST = 65536,
    HST_HOP_DEFAULT = 8, /* of a run that says none */
    HST_SUM_INPUTS = 64 /* of one operation of a device; more are added in blocks of so many */
};

/** This is what decides every bit of a sum, beside the values. */
struct hst_sum_tree {
    uint32_t ways;         /* W, 1 to HST_WAYS_MOST */
    uint32_t hop;          /* H, a power of two: sums of H ways have the reduce type too */
    enum hst_dtype reduce; /* of a way's gradient: the root's type, or HST_F32 */
    enum hst_dtype root;   /* of the gradient, which is the sum of all ways */
    /* Not 0: what would have the reduce type, which is HST_F32 then, is what integers of so many
       bits give back (quantise.h), whoever computes it; so ranks may send those. By blocks of a row
       of gradients, which are sent and added in whole ones */
    enum hst_quant quant;
};

/** True where its numbers are within the ranges above. Pure. */
bool hst_sum_tree_valid(const struct hst_sum_tree *tree);

/** Ways [first, first + count). */
struct hst_sum_node {
    uint32_t first, count;
};

/**
 * True where these ways are a node of the tree: an aligned power of two of them (first a multiple
 * of count), or what there is of one where the ways end. Of 7 ways, [0, 4), [4, 6), [6, 7) and
 * [4, 7) are nodes. A sum takes and makes any node. Ranks hold equal parts, each a power of two of
 * ways, or one rank holds all. Pure.
 */
bool hst_sum_node_valid(const struct hst_sum_tree *tree, struct hst_sum_node node);

/**
 * The type of a node's value: the root is of the gradient's type; a way, and a group of ways
 * [k·H, (k+1)·H), the last of which may be shorter, of the reduce type; every other sum is f32.
 * Pure.
 */
enum hst_dtype hst_sum_type(const struct hst_sum_tree *tree, struct hst_sum_node node);

/**
 * True where a node's value is what integers give back: with `quant` a way and a group of H ways,
 * but not the root. Integers and scales of such a value are those that it came from. Pure.
 */
bool hst_sum_quantised(const struct hst_sum_tree *tree, struct hst_sum_node node);

/**
 * The addition of n neighbouring nodes of the tree, up to the node that they make together:
 *   out ← round(tree(in[0], …, in[n-1]))     in f32, rounded to nearest even by place; with
 *             `quant` what integers give back of it, by place. So one input becomes that
 *   partial ← Σ out² of each block of 4,096 elements, as hst_norm2 has it, of out as it is stored:
 *             what an update reads of a gradient's norm, without another pass over it
 *
 * tree, first, each, inputs   the inputs are nodes [first + i·each, first + (i+1)·each), together a
 *            node again; each is a power of two; where there is one input, any number. The last
 *            input is shorter where the ways end within it: of 7 ways, [4, 6) + [6, 7) is first 4,
 *            each 2, inputs 2, and [0, 4) + [4, 7) is first 0, each 4, inputs 2
 * in         pointers [inputs] in host memory, to count elements each, of the type that
 *            hst_sum_type tells for the input's node
 * out        [count], of the type of the node that all make; may be an input of the same type
 * partial    f64[⌈count/4096⌉], or null: none
 * count      elements, 0 allowed; a caller may cut a row where it likes, at multiples of 4,096
 *            where it wants partials, of 512 with `quant`
 *
 * A NaN is written as 0x7fc00000, 0x7fc0 in bf16, 0x7e00 in f16, whatever its bits were; a partial
 * as 0x7ff8000000000000. A sum that rounds beyond a type's range is an infinity there.
 * Cost: reads n inputs and writes one output.
 * Source: ZeRO (Rajbhandari et al. 2020), arXiv:1910.02054, section 5: the reduction of gradients;
 * the order of additions and their types are ours.
 */
struct hst_sum_ways {
    struct hst_sum_tree tree;
    uint32_t first, each, inputs;
    const void *const *in;
    void *out;
    size_t count;
    double *partial;
};

/**
 * The operation, on at most HST_SUM_INPUTS inputs. The array of pointers is borrowed as all memory
 * is. Rounding is by elements, with `quant` by blocks of 512, the first of which begins with the
 * row: the same bits on every device.
 */
int hst_op_sum_ways(struct hst_stream *stream, const struct hst_sum_ways *args);

/**
 * The same addition in two stages, of more inputs than an operation takes: first blocks of `most`
 * inputs each, a power of two, then their sums. A block is a node of the tree, so that a value is
 * rounded where it is in one stage, and the bits are the same. hst_sum_block is the addition of
 * block b, 0 to ⌈inputs/most⌉ - 1, whose value is of the type of its node, 4 bytes at most; where
 * the last one has one input, that is its value already. hst_sum_of_blocks adds these values.
 * Pointers to what is written are the caller's to set, and those to the values of blocks; count
 * stays as it is. Pure.
 */
struct hst_sum_ways hst_sum_block(const struct hst_sum_ways *sum, uint32_t most, uint32_t b);
struct hst_sum_ways hst_sum_of_blocks(const struct hst_sum_ways *sum, uint32_t most);

/**
 * The same bits on host memory, at once, on the calling thread and without a device; of any number
 * of inputs. in and out need the alignment of their elements alone.
 * Errors: -EINVAL where tree or nodes are none, a pointer is null or out overlaps an input in part;
 * out and partial are untouched then. Thread-safety: safe on disjoint outputs.
 * Cost: 8 KiB a level of the tree on the stack.
 */
int hst_host_sum_ways(const struct hst_sum_ways *args);

#ifdef __cplusplus
}
#endif
#endif
