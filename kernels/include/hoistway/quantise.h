/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_QUANTISE_H
#define HOISTWAY_QUANTISE_H
/*
 * Values as integers of 8 or 4 bits with one scale to each block of 512 elements: what ranks send
 * each other in place of weights or gradients. Part of kernels.h.
 */
enum { HST_QUANT_BLOCK = 512 };
/** Bits of an integer. A sum of ways has them, too: ways.h, which kernels.h includes. */
enum hst_quant { HST_INT8 = 8, HST_INT4 = 4 };

#include <hoistway/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of the integers of so many elements; 0 for what is no such width. Pure. */
size_t hst_quant_bytes(enum hst_quant bits, size_t count);
/** Scales of so many elements: one to each block, the last of which may be shorter. Pure. */
size_t hst_quant_scales(size_t count);

/**
 * Rounds each block of 512 elements w to integers q and a scale s:
 *   s ← absmax(w) / n, rounded to f32      n: 127 of 8 bits, 7 of 4
 *   q ← w / s, rounded to nearest even     as if the quotient had been exact; |q| ≤ n
 *
 * A block whose scale would be below 2^-126 is zeros: s = 0. So a block of zeros is exact. A block
 * that holds an infinity or a NaN has the scale NaN, so that all of it is NaN afterwards and every
 * norm over it says so; its integers are 0. A scale whose product with n would be an infinity is
 * the next smaller number. So the values that a block gives back in f32 have its integers and its
 * scale again: whoever has them may send the block once more.
 *
 * values  [count] of dtype
 * codes   hst_quant_bytes bytes. Of 4 bits an even element is the low half of its byte, in two's
 *         complement; behind an odd count the last half is 0
 * scales  f32[hst_quant_scales(count)]
 * count   elements, 0 allowed; a caller may cut a row at multiples of 512
 *
 * |q·s − w| ≤ absmax/254 · (1 + 2^-20), of 4 bits absmax/14. The three are apart.
 * Cost: reads a block twice, once from the nearest cache.
 * Source: ZeRO++ (Wang et al. 2023), arXiv:2306.10209, sections 3.1 and 3.3.
 */
struct hst_quantise {
    enum hst_quant bits;
    enum hst_dtype dtype;
    size_t count;
    const void *values;
    void *codes;
    float *scales;
};

/**
 * The way back:  values ← q·s, rounded to f32 and then to dtype, to nearest even. A NaN is written
 * as 0x7fc00000, 0x7fc0 in bf16, 0x7e00 in f16. Arguments as above.
 */
struct hst_dequantise {
    enum hst_quant bits;
    enum hst_dtype dtype;
    size_t count;
    const void *codes;
    const float *scales;
    void *values;
};

/** The operations of a device. The same bits on every device. */
int hst_op_quantise(struct hst_stream *stream, const struct hst_quantise *args);
int hst_op_dequantise(struct hst_stream *stream, const struct hst_dequantise *args);

/**
 * The same bits on host memory, at once, on the calling thread and without a device. Pointers need
 * the alignment of their elements alone.
 * Errors: -EINVAL a width or type that there is not, a null pointer, memory that is not apart;
 * nothing is written then. Thread-safety: safe on disjoint outputs.
 */
int hst_host_quantise(const struct hst_quantise *args);
int hst_host_dequantise(const struct hst_dequantise *args);

#ifdef __cplusplus
}
#endif
#endif
