/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last unit: logits, loss and their gradients at once, in the backward, so that logits exist
 * for one chunk of tokens only. The chunk is part of the numbers: a weight's gradient adds chunk
 * after chunk.
 */
#include "model/blocks.h"
#include "model/linear.h"

/* What the chunks read and write beside the unit's work. */
struct loss_of {
    const void *n;
    const uint32_t *targets;
    float grad_scale;
    float *losses;
    void *dn;
};

static void chunk_loss(struct pass *p, const struct head_work *w, const struct loss_of *of,
                       size_t first, size_t tokens)
{
    struct linear l = {p->model->config.vocab, p->model->config.hidden};
    const struct hst_param_view *weight = &p->param[0];
    size_t at = first * l.in * hst_dtype_bytes(p->dtype);
    const void *n = p->measure ? NULL : (const char *)of->n + at;
    void *dn = p->measure ? NULL : (char *)of->dn + at;
    linear_forward(p, tokens, l, weight->data, n, w->logits);
    struct hst_cross_entropy args = {
        .tokens = tokens,
        .vocab = l.out,
        .dtype = p->dtype,
        .logits = w->logits,
        .targets = p->measure ? NULL : of->targets + first,
        .loss = p->measure ? NULL : of->losses + first,
        .grad_scale = of->grad_scale,
        .want_grad = true,
    };
    pass_cross_entropy(p, args);
    linear_weight_grad(p, tokens, l, w->logits, n, weight->grad);
    linear_input_grad(p, tokens, l, weight->data, w->logits, dn, w->sum);
}

void head_loss(struct pass *p, const struct head_work *w, const void *n, const uint32_t *targets,
               float grad_scale, float *losses, void *dn)
{
    const struct loss_of of = {n, targets, grad_scale, losses, dn};
    for (size_t first = 0; first < p->tokens; first += LOGIT_CHUNK_TOKENS) {
        size_t left = p->tokens - first;
        size_t tokens = left < LOGIT_CHUNK_TOKENS ? left : LOGIT_CHUNK_TOKENS;
        chunk_loss(p, w, &of, first, tokens);
    }
}
