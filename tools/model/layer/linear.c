/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts large weights into blocks of rows. An embedding or a head comes in slices of them where it
 * does not fit; since a weight is always used in these blocks, whether it fits or not, results do
 * not depend on that. Only the input's gradient feels the cut: its sum over the rows is put
 * together from blocks, in f32, from the last to the first: a backward that visits a weight in
 * blocks visits them in that order, the forward's reversed. (The other GEMMs have no sum over
 * rows; but OpenBLAS rounds some elements otherwise where blocks end elsewhere.)
 *
 * Two weights of one shape and one input make one batch, for a card that one of them does not fill.
 * Not the input's gradient: there they are two terms of one sum.
 */
#include "model/layer/linear.h"

#include <assert.h>

/* Null stays null: a pass that measures has no data. */
static void *at(const void *data, size_t elements, enum hst_dtype dtype)
{
    return data ? (char *)data + elements * hst_dtype_bytes(dtype) : NULL;
}

static size_t block_rows(struct linear l, size_t first)
{
    size_t left = l.out - first;
    return left < WEIGHT_BLOCK_ROWS ? left : WEIGHT_BLOCK_ROWS;
}

/* Weights that are used at once, and how far the next one's elements are; likewise what is made of
 * them, or their gradients are made of. */
struct batch {
    size_t count, weight_step, row_step;
};

static size_t step_of(const void *first, const void *second, enum hst_dtype dtype)
{
    return ((uintptr_t)second - (uintptr_t)first) / hst_dtype_bytes(dtype);
}

static void forward(struct pass *p, size_t tokens, struct linear l, const void *weight,
                    const void *x, void *y, struct batch batch)
{
    for (size_t row = 0; row < l.out; row += WEIGHT_BLOCK_ROWS) {
        struct hst_matmul args = {
            .m = tokens,
            .n = block_rows(l, row),
            .k = l.in,
            .a = {(void *)x, l.in, p->dtype},
            .b = {at(weight, row * l.in, p->dtype), l.in, p->dtype},
            .c = {at(y, row, p->dtype), l.out, p->dtype},
            .b_transposed = true,
            .batch = batch.count,
            .b_step = batch.weight_step,
            .c_step = batch.row_step,
        };
        pass_matmul(p, args);
    }
}

void linear_forward(struct pass *p, size_t tokens, struct linear l, const void *weight,
                    const void *x, void *y)
{
    forward(p, tokens, l, weight, x, y, (struct batch){.count = 1});
}

void linear_forward_two(struct pass *p, size_t tokens, struct linear l,
                        const void *const weights[2], const void *x, void *const y[2])
{
    struct batch two = {2, step_of(weights[0], weights[1], p->dtype),
                        step_of(y[0], y[1], p->dtype)};
    forward(p, tokens, l, weights[0], x, y[0], two);
}

/* dst [+]= dy·W for one block of rows. */
static void input_grad_block(struct pass *p, size_t tokens, struct linear l, size_t row,
                             const void *weight, const void *dy, struct hst_matrix dst,
                             bool accumulate)
{
    struct hst_matmul args = {
        .m = tokens,
        .n = l.in,
        .k = block_rows(l, row),
        .a = {at(dy, row, p->dtype), l.out, p->dtype},
        .b = {at(weight, row * l.in, p->dtype), l.in, p->dtype},
        .c = dst,
        .accumulate = accumulate,
    };
    pass_matmul(p, args);
}

void linear_input_grad_sum(struct pass *p, size_t tokens, struct linear l, const void *weight,
                           const void *dy, float *sum, bool accumulate)
{
    struct hst_matrix dst = {sum, l.in, HST_F32};
    size_t blocks = (l.out + WEIGHT_BLOCK_ROWS - 1) / WEIGHT_BLOCK_ROWS;
    for (size_t i = blocks; i-- > 0; accumulate = true)
        input_grad_block(p, tokens, l, i * WEIGHT_BLOCK_ROWS, weight, dy, dst, accumulate);
}

void linear_round(struct pass *p, size_t count, float *sum, void *x)
{
    if (sum != x)
        pass_cast(p, count, sum, x);
}

size_t linear_sum_count(size_t tokens, struct linear l, enum hst_dtype dtype)
{
    return dtype == HST_F32 || l.out <= WEIGHT_BLOCK_ROWS ? 0 : tokens * l.in;
}

void linear_input_grad(struct pass *p, size_t tokens, struct linear l, const void *weight,
                       const void *dy, void *dx, float *sum)
{
    if (l.out <= WEIGHT_BLOCK_ROWS) {
        struct hst_matrix dst = {dx, l.in, p->dtype};
        input_grad_block(p, tokens, l, 0, weight, dy, dst, false);
        return;
    }
    if (p->dtype == HST_F32)
        sum = dx;
    linear_input_grad_sum(p, tokens, l, weight, dy, sum, false);
    linear_round(p, tokens * l.in, sum, dx);
}

/* A product that writes may need another workspace than one that adds: who measures asks for both.
 */
static void grad_product(struct pass *p, struct hst_matmul args)
{
    pass_matmul(p, args);
    args.accumulate = !args.accumulate;
    if (p->measure)
        pass_matmul(p, args);
}

static void weight_grad(struct pass *p, size_t tokens, struct linear l, const void *dy,
                        const void *x, struct weight_grad to, struct batch batch)
{
    float *dweight = to.grad;
    if (!pass_trains(p, dweight))
        return;
    for (size_t row = 0; row < l.out; row += WEIGHT_BLOCK_ROWS) {
        struct hst_matmul args = {
            .m = block_rows(l, row),
            .n = l.in,
            .k = tokens,
            .a = {at(dy, row, p->dtype), l.out, p->dtype},
            .b = {(void *)x, l.in, p->dtype},
            .c = {at(dweight, row * l.in, HST_F32), l.in, HST_F32},
            .a_transposed = true,
            .accumulate = !to.fresh,
            .batch = batch.count,
            .a_step = batch.row_step,
            .c_step = batch.weight_step,
        };
        grad_product(p, args);
    }
}

void linear_weight_grad(struct pass *p, size_t tokens, struct linear l, const void *dy,
                        const void *x, struct weight_grad to)
{
    weight_grad(p, tokens, l, dy, x, to, (struct batch){.count = 1});
}

void linear_weight_grad_two(struct pass *p, size_t tokens, struct linear l, const void *const dy[2],
                            const void *x, const struct hst_param_view *two)
{
    const struct batch batch = {2, step_of(two[0].grad, two[1].grad, HST_F32),
                                step_of(dy[0], dy[1], p->dtype)};
    assert(two[0].fresh == two[1].fresh); /* of one unit, and neither is tied */
    weight_grad(p, tokens, l, dy[0], x, (struct weight_grad){two[0].grad, two[0].fresh}, batch);
}
