/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_MODEL_LAYER_BLOCKS_H
#define HOISTWAY_TOOLS_MODEL_LAYER_BLOCKS_H
/* The units compute this on one micro-batch. The residual stream x and its gradient dx are
 * dtype[tokens, hidden]. */
#include "model/pass.h"
#include "model/work.h"

/** x = rows of the embedding, of the tokens whose rows are here. ids u32[tokens], on the device. */
void embedding_forward(struct pass *p, const uint32_t *ids, void *x);
void embedding_backward(struct pass *p, const uint32_t *ids, const void *dx);

/** x ← layer(x), in place; of a half (pass.part) x ← x + attention, or x ← x + MLP. */
void layer_forward(struct pass *p, const struct layer_work *w, void *x);
/** Computes the layer, or the half, again from its checkpoint, as far as its forward has not saved
 * it, then dx ← the gradient through it, in place. */
void layer_backward(struct pass *p, const struct layer_work *w, const void *checkpoint, void *dx);

/** x ← n, the head's input, in place. */
void norm_forward(struct pass *p, const struct norm_work *w, void *x);
/** Computes the norm again from its checkpoint, then dx ← the gradient through it, in place. */
void norm_backward(struct pass *p, const struct norm_work *w, const void *checkpoint, void *dx);

/* It says of which tokens the likeliest ids are looked for, and where logits go through. */
struct head_choices {
    struct llama_choice *list; /* of all micro-batches, on the host */
    size_t count;
    size_t first_token; /* of the micro-batch, in the batch */
    size_t room;        /* logits that fit into each of the two */
    float *device, *host;
};

/* The head reads and writes these of a micro-batch, all on the device. */
struct head_io {
    const void *n;           /* dtype[tokens, hidden] */
    const uint32_t *targets; /* u32[tokens] */
    float *losses;           /* f32[tokens], written */
    float grad_scale;        /* multiplies the gradient of each token's loss */
    void *dn;                /* dtype[tokens, hidden], written */
    const struct head_choices *choices; /* of head_choose alone */
};
/** Loss and gradients at once, with all rows of the vocabulary. */
void head_loss(struct pass *p, const struct head_work *w, const struct head_io *io);
/** Losses alone, likewise: the bits of head_loss. */
void head_evaluate(struct pass *p, const struct head_work *w, const struct head_io *io);
/** It computes of each slice, in rising order, what the losses need of its rows; the last one
 * writes losses. */
void head_slice_forward(struct pass *p, const struct head_work *w, const struct head_io *io);
/** In falling order: its rows' gradient and their part of dn, which is complete after the first
 * slice and not written before (f32: holds the sum so far). */
void head_slice_backward(struct pass *p, const struct head_work *w, const struct head_io *io);
/** The likeliest ids of all rows that are here, whole or a slice, beside those of slices before. */
void head_choose(struct pass *p, const struct head_work *w, const struct head_io *io);
#endif
