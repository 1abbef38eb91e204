/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_MODEL_BLOCKS_H
#define HOISTWAY_TOOLS_MODEL_BLOCKS_H
/* What the units compute on one micro-batch. The residual stream x and its gradient dx are
 * dtype[tokens, hidden]. */
#include "model/pass.h"
#include "model/work.h"

/** x = rows of the embedding. ids u32[tokens], on the device. */
void embedding_forward(struct pass *p, const uint32_t *ids, void *x);
void embedding_backward(struct pass *p, const uint32_t *ids, const void *dx);

/** x ← layer(x), in place. */
void layer_forward(struct pass *p, const struct layer_work *w, void *x);
/** Computes the layer again from its checkpoint, then dx ← the gradient through it, in place. */
void layer_backward(struct pass *p, const struct layer_work *w, const void *checkpoint, void *dx);

/** x ← n, the head's input, in place. */
void norm_forward(struct pass *p, const struct norm_work *w, void *x);
/** Computes the norm again from its checkpoint, then dx ← the gradient through it, in place. */
void norm_backward(struct pass *p, const struct norm_work *w, const void *checkpoint, void *dx);

/**
 * Loss and gradient at once, of n dtype[tokens, hidden]: targets u32[tokens] and losses f32[tokens]
 * are on the device; losses and dn are written. `grad_scale` multiplies the gradient of each
 * token's loss.
 */
void head_loss(struct pass *p, const struct head_work *w, const void *n, const uint32_t *targets,
               float grad_scale, float *losses, void *dn);
#endif
