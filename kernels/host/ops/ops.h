/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_HOST_OPS_H
#define HST_KERNELS_HOST_OPS_H
/*
 * Every operation's file shares this header. These files are compiled once per instruction set,
 * with HOST_ISA naming it, and meet in math.c; nothing in them but HOST_OP functions has external
 * linkage.
 *
 * An operation cuts its work into pieces whose number and borders depend on its shape alone, and
 * hands them to host_split. Pieces write apart from each other, so who runs them, and when, leaves
 * no trace.
 */
#include "host/host.h"
#include "vec.h"

#define HOST_JOIN(a, b)          a##_##b
#define HOST_SUFFIXED(name, isa) HOST_JOIN(name, isa)
#define HOST_OP(name)            HOST_SUFFIXED(host_##name, HOST_ISA)

host_op HOST_OP(matmul), HOST_OP(rmsnorm), HOST_OP(rmsnorm_backward), HOST_OP(rope),
    HOST_OP(attention), HOST_OP(attention_backward), HOST_OP(swiglu), HOST_OP(swiglu_backward),
    HOST_OP(add), HOST_OP(bias), HOST_OP(bias_backward), HOST_OP(cast), HOST_OP(embedding),
    HOST_OP(embedding_backward), HOST_OP(cross_entropy), HOST_OP(sum_ways),
    HOST_OP(quantise), HOST_OP(dequantise);

/* A function of an element type, called with it as a constant, so that each type has loops of its
   own: the one place where it is chosen. */
#define BY_DTYPE(dtype, function, ...)                                                             \
    ((dtype) == HST_F32    ? function(__VA_ARGS__, HST_F32)                                        \
     : (dtype) == HST_BF16 ? function(__VA_ARGS__, HST_BF16)                                       \
                           : function(__VA_ARGS__, HST_F16))

/* Elements of one type become those of another (ops/add.c). */
#define convert_row HOST_OP(convert_row)
void convert_row(void *to, enum hst_dtype to_dtype, const void *from, enum hst_dtype from_dtype,
                 size_t count);

/* out f32[width] += the rows of sums f32[rows, width], one after another (ops/bias.c). */
#define add_sums HOST_OP(add_sums)
void add_sums(struct host_dev *dev, const float *sums, size_t rows, size_t width, float *out);

/* Elements of one piece of element-wise work: enough to hide the cost of handing it out, few enough
   for the nearest caches. */
enum { PIECE_ELEMENTS = 16384 };

struct range {
    size_t begin, end;
};

static inline size_t pieces_of(size_t count, size_t piece)
{
    return (count + piece - 1) / piece;
}

static inline struct range range_of(size_t count, size_t piece, size_t index)
{
    size_t begin = index * piece;
    return (struct range){begin, count - begin < piece ? count : begin + piece};
}

/* Rows of `width` elements that make one piece. */
static inline size_t piece_rows(size_t width)
{
    return width < PIECE_ELEMENTS ? PIECE_ELEMENTS / width : 1;
}

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Row `index` of a dense tensor. */
static inline void *row_at(const void *base, size_t index, size_t width, enum hst_dtype dtype)
{
    return (char *)(uintptr_t)base + index * width * (dtype == HST_F32 ? 4 : 2);
}
#endif
