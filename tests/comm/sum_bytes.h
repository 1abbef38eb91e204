/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_COMM_SUM_BYTES_H
#define HST_TESTS_COMM_SUM_BYTES_H
/* What ways and sums of ranks are, and take on their way, for the tests of either transport. */
#include <hoistway/kernels.h>
#include <stdint.h>

/* Bytes of an element of the sums of `count` ranks, of all such sums in ranks [first, last). */
static inline uint64_t sum_bytes(const struct hst_sum_tree *tree, uint32_t ranks, uint32_t count,
                                 uint32_t first, uint32_t last)
{
    const uint32_t each = tree->ways / ranks;
    uint64_t bytes = 0;
    for (uint32_t r = first; r < last; r += count)
        bytes += hst_dtype_bytes(hst_sum_type(tree, (struct hst_sum_node){r * each, count * each}));
    return bytes;
}

/* The same of so many elements as messages have them: of integers whole blocks. */
static inline uint64_t sent_bytes(const struct hst_sum_tree *tree, uint32_t ranks, uint32_t count,
                                  uint32_t first, uint32_t last, uint64_t elements)
{
    const uint32_t each = tree->ways / ranks;
    uint64_t bytes = 0;
    for (uint32_t r = first; r < last; r += count) {
        const struct hst_sum_node node = {r * each, count * each};
        bytes += hst_sum_quantised(tree, node)
                     ? elements * (unsigned)tree->quant / 8 + elements / HST_QUANT_BLOCK * 4
                     : elements * hst_dtype_bytes(hst_sum_type(tree, node));
    }
    return bytes;
}

/* Gradients of a way, which cancel in part. */
static inline void fill_way(uint32_t way, float *value, size_t count)
{
    uint32_t s = 12345u * (way + 1);
    for (size_t i = 0; i < count; i++) {
        s = s * 1664525u + 1013904223u;
        value[i] = (float)((int32_t)s >> 8) * 1e-7f * (float)(1 + (s & 63));
    }
}

/* A way that ranks may send as integers is what those give back. Returns what the sum returns. */
static inline int give_back(const struct hst_sum_tree *tree, uint32_t way, void *value,
                            size_t count)
{
    const void *const in[] = {value};
    return hst_host_sum_ways(&(struct hst_sum_ways){.tree = *tree,
                                                    .first = way,
                                                    .each = 1,
                                                    .inputs = 1,
                                                    .in = in,
                                                    .out = value,
                                                    .count = count});
}

#endif
