/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_MODEL_LAYER_LINEAR_H
#define HOISTWAY_TOOLS_MODEL_LAYER_LINEAR_H
/*
 * y = x·Wᵀ and its gradients. A weight of more than WEIGHT_BLOCK_ROWS rows goes in blocks of rows
 * in each of the three.
 *
 * Of two weights of one shape and one input, `_two` makes both GEMMs as one batch. The second of
 * each pair lies behind the first one, some multiple of 16 bytes away.
 */
#include "model/pass.h"

/** A weight [out, in]. */
struct linear {
    size_t out, in;
};

/** y dtype[tokens, out] = x·Wᵀ. */
void linear_forward(struct pass *p, size_t tokens, struct linear l, const void *weight,
                    const void *x, void *y);
void linear_forward_two(struct pass *p, size_t tokens, struct linear l,
                        const void *const weights[2], const void *x, void *const y[2]);
/** sum f32[tokens, in] = [sum +] dy·W, the blocks added from the last to the first. */
void linear_input_grad_sum(struct pass *p, size_t tokens, struct linear l, const void *weight,
                           const void *dy, float *sum, bool accumulate);
/** x dtype[count] = sum f32[count], rounded once; in f32 they may be one buffer, which is then
 * left alone. */
void linear_round(struct pass *p, size_t count, float *sum, void *x);
/**
 * dx dtype[tokens, in] = dy·W, rounded once. `sum` f32[linear_sum_count]: scratch for weights in
 * several blocks, not used where that is 0.
 */
void linear_input_grad(struct pass *p, size_t tokens, struct linear l, const void *weight,
                       const void *dy, void *dx, float *sum);
size_t linear_sum_count(size_t tokens, struct linear l, enum hst_dtype dtype);
/** f32[out, in], or null: of a weight that is frozen. */
struct weight_grad {
    float *grad;
    bool fresh; /* it is written, not added to */
};
/** The weight's gradient = [it +] dyᵀ·x. */
void linear_weight_grad(struct pass *p, size_t tokens, struct linear l, const void *dy,
                        const void *x, struct weight_grad to);
/** two: the weights' views, which are fresh alike. */
void linear_weight_grad_two(struct pass *p, size_t tokens, struct linear l, const void *const dy[2],
                            const void *x, const struct hst_param_view *two);
#endif
