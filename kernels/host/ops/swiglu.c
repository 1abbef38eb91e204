/* SPDX-License-Identifier: Apache-2.0 */
/* SwiGLU and its backward, element by element. */
#include "ops.h"

VEC_INLINE void forward_range(const struct hst_swiglu *a, struct range r, enum hst_dtype dtype)
{
    for (size_t i = r.begin; i < r.end; i += VEC) {
        vec gate = vec_load(a->gate, i, r.end, dtype, 0), up = vec_load(a->up, i, r.end, dtype, 0);
        vec_store(a->out, i, r.end, dtype, gate * vec_sigmoid(gate) * up);
    }
}

static void swiglu_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_swiglu *a = arg;
    struct range r = range_of(a->count, PIECE_ELEMENTS, index);
    BY_DTYPE(a->dtype, forward_range, a, r);
}

int HOST_OP(swiglu)(struct host_dev *dev, const void *args)
{
    struct hst_swiglu a = *(const struct hst_swiglu *)args;
    host_split(dev, pieces_of(a.count, PIECE_ELEMENTS), swiglu_piece, &a);
    return 0;
}

VEC_INLINE void backward_range(const struct hst_swiglu_backward *a, struct range r,
                               enum hst_dtype dtype)
{
    for (size_t i = r.begin; i < r.end; i += VEC) {
        vec gate = vec_load(a->gate, i, r.end, dtype, 0), up = vec_load(a->up, i, r.end, dtype, 0);
        vec dout = vec_load(a->dout, i, r.end, dtype, 0);
        vec sigmoid = vec_sigmoid(gate), silu = gate * sigmoid;
        vec_store(a->dgate, i, r.end, dtype, dout * up * (sigmoid + silu * (1.0f - sigmoid)));
        vec_store(a->dup, i, r.end, dtype, dout * silu);
    }
}

static void swiglu_backward_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_swiglu_backward *a = arg;
    struct range r = range_of(a->count, PIECE_ELEMENTS, index);
    BY_DTYPE(a->dtype, backward_range, a, r);
}

int HOST_OP(swiglu_backward)(struct host_dev *dev, const void *args)
{
    struct hst_swiglu_backward a = *(const struct hst_swiglu_backward *)args;
    host_split(dev, pieces_of(a.count, PIECE_ELEMENTS), swiglu_backward_piece, &a);
    return 0;
}
