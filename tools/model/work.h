/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_MODEL_WORK_H
#define HOISTWAY_TOOLS_MODEL_WORK_H
/*
 * This header divides a unit's work area. The same function measures it and carves it: with a base
 * of null every pointer is null and only size_bytes counts. Layouts are those of a full
 * micro-batch; a shorter one uses less.
 */
#include "model/model.h"

struct work_area {
    char *base;        /* null: measure */
    size_t used_bytes; /* so far */
    size_t size_bytes; /* most that was ever used */
};

/** `count` elements of `element_bytes`, aligned to 256 bytes; a count of 0 gives null. */
void *work_take(struct work_area *area, size_t count, size_t element_bytes);

struct embedding_work {
    struct hst_work op;
};
void embedding_work_carve(const struct llama *model, struct work_area *area,
                          struct embedding_work *work);

/* k_made and v, gate and up, dk and dv lie behind each other: layer.c makes each two together.
 * Widths: h hidden, q heads·head_dim, kv kv_heads·head_dim, f intermediate; rows are tokens. */
struct layer_work {
    float *rstd1, *rstd2; /* [tokens] of the two norms */
    float *lse;           /* [batch, heads, seq] */
    void *n1, *n2;        /* [h] the norms' outputs */
    void *q, *k, *v, *o;  /* attention's inputs, rotated, and output */
    /* [q], [kv] as GEMMs give them; q and k themselves where heads are not normed */
    void *q_made, *k_made;
    float *rstd_q, *rstd_k; /* [tokens, heads], [tokens, kv_heads]; null where they are not */
    /* [h] residual stream between attention and MLP, backward only; a half's is its checkpoint */
    void *x1;
    float *sum;             /* [h] gradients of several weights added; scratch for tall weights */
    /* [h] the sum rounded (f32: the same buffer); before: output of O, DOWN */
    void *dn;
    void *gate, *up, *act;     /* [f]; act becomes its gradient; then they are done with */
    void *dout, *dq, *dk, *dv; /* attention's gradients, in the place of the three above */
    struct hst_work op;
    bool saved; /* what GEMMs and attention give lasts until the backward */
};
/** A half has its own of these; the others are null. */
void layer_work_carve(const struct llama *model, enum layer_part part, struct work_area *area,
                      struct layer_work *work);
/** Puts lse, q_made, k_made, v, o, x1, gate and up elsewhere, where they last from the forward to
 * the backward. The rest, norms, rotations and act, costs little to make again. */
void layer_saved_carve(const struct llama *model, enum layer_part part, struct work_area *area,
                       struct layer_work *work);

struct norm_work {
    float *rstd; /* [tokens] */
    void *y;     /* [h] the output once more, which comes with rstd and is not used */
    struct hst_work op;
};
void norm_work_carve(const struct llama *model, struct work_area *area, struct norm_work *work);

/* A softmax over the vocabulary so far, of a token: see hst_cross_entropy.state. */
#define HEAD_STATE 3u

struct head_work {
    void *
        logits; /* of a chunk of tokens: [vocab, chunk] block after block; of a slice one block's */
    float
        *state; /* [chunk, HEAD_STATE]; of a slice it is kept, for all tokens of the micro-batch */
    float *sum; /* [chunk, h] dn before it is rounded, or null where that is not needed; likewise */
    struct hst_work op;
};
void head_work_carve(const struct llama *model, struct work_area *area, struct head_work *work);
/** It is that of a slice; without state and sum. */
void head_slice_work_carve(const struct llama *model, struct work_area *area,
                           struct head_work *work);

/** It returns what a head in slices keeps for each token of a step, in bytes. */
size_t head_kept_bytes(const struct llama *model);
/** It finds where `kept` has state and sum of the micro-batch that begins with `first_token`. */
void head_kept_carve(const struct llama *model, struct hst_work kept, size_t first_token,
                     struct head_work *work);
#endif
