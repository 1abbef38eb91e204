/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last unit: logits, loss and their gradients, of one chunk of tokens and one block of the
 * vocabulary after another. Both are part of the numbers: a weight's gradient adds chunk after
 * chunk, an input's block after block. Where the unit is whole a chunk's logits of all blocks are
 * kept until its losses are known; where it is cut into slices they are computed a second time.
 */
#include "model/layer/blocks.h"
#include "model/layer/linear.h"

/* Tokens of a micro-batch that are worked on at once. */
struct chunk {
    size_t tokens;
    const void *n;
    const uint32_t *targets;
    float *losses;
    float grad_scale;
    void *dn;
    void *logits;
    float *state, *sum;
};

/* Rows of the vocabulary, and where they begin among those that are here. */
struct block {
    size_t first_row, rows, here;
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void *at(const struct pass *p, const void *data, size_t elements)
{
    return p->measure ? NULL : (char *)data + elements * hst_dtype_bytes(p->dtype);
}

static struct linear linear_of(const struct pass *p, struct block b)
{
    return (struct linear){b.rows, p->model->config.hidden};
}

static const void *weight_of(const struct pass *p, struct block b)
{
    return at(p, p->param[0].data, b.here * p->model->config.hidden);
}

static void cross_entropy(struct pass *p, const struct chunk *c, struct block b, void *logits,
                          bool want_grad)
{
    struct hst_cross_entropy args = {
        .tokens = c->tokens,
        .vocab = p->model->config.vocab,
        .dtype = p->dtype,
        .logits = logits,
        .targets = c->targets,
        .loss = c->losses,
        .grad_scale = c->grad_scale,
        .want_grad = want_grad,
        .first_column = b.first_row,
        .columns = b.rows,
        .state = c->state,
    };
    pass_cross_entropy(p, args);
}

static void block_logits(struct pass *p, const struct chunk *c, struct block b, void *logits)
{
    linear_forward(p, c->tokens, linear_of(p, b), weight_of(p, b), c->n, logits);
}

/* logits become their gradient. The last block begins dn, the first one completes it. */
static void block_gradient(struct pass *p, const struct chunk *c, struct block b, void *logits)
{
    struct linear l = linear_of(p, b);
    size_t vocab = p->model->config.vocab;
    float *grad = p->measure ? NULL : p->param[0].grad + b.here * l.in;
    cross_entropy(p, c, b, logits, true);
    linear_weight_grad(p, c->tokens, l, logits, c->n, grad);
    if (vocab <= WEIGHT_BLOCK_ROWS) {
        linear_input_grad(p, c->tokens, l, weight_of(p, b), logits, c->dn, NULL);
        return;
    }
    float *sum = p->dtype == HST_F32 ? c->dn : c->sum;
    linear_input_grad_sum(p, c->tokens, l, weight_of(p, b), logits, sum,
                          b.first_row + b.rows < vocab);
    if (b.first_row == 0)
        linear_round(p, c->tokens * l.in, sum, c->dn);
}

/* ---- all blocks that are here ---- */

static size_t count_blocks(const struct pass *p)
{
    return (p->rows + WEIGHT_BLOCK_ROWS - 1) / WEIGHT_BLOCK_ROWS;
}

static struct block block_at(const struct pass *p, size_t i)
{
    size_t here = i * WEIGHT_BLOCK_ROWS;
    return (struct block){p->first_row + here, least(p->rows - here, WEIGHT_BLOCK_ROWS), here};
}

/* One block's logits lie behind another's: each product is that of a slice. */
static void chunk_loss(struct pass *p, const struct chunk *c)
{
    for (size_t i = 0; i < count_blocks(p); i++) {
        struct block b = block_at(p, i);
        void *logits = at(p, c->logits, b.here * c->tokens);
        block_logits(p, c, b, logits);
        cross_entropy(p, c, b, logits, false);
    }
    for (size_t i = count_blocks(p); i-- > 0;) {
        struct block b = block_at(p, i);
        block_gradient(p, c, b, at(p, c->logits, b.here * c->tokens));
    }
}

static void chunk_slice_forward(struct pass *p, const struct chunk *c)
{
    for (size_t i = 0; i < count_blocks(p); i++) {
        block_logits(p, c, block_at(p, i), c->logits);
        cross_entropy(p, c, block_at(p, i), c->logits, false);
    }
}

static void chunk_slice_backward(struct pass *p, const struct chunk *c)
{
    for (size_t i = count_blocks(p); i-- > 0;) {
        block_logits(p, c, block_at(p, i), c->logits);
        block_gradient(p, c, block_at(p, i), c->logits);
    }
}

/* ---- chunk after chunk ---- */

typedef void chunk_fn(struct pass *p, const struct chunk *c);

/* A slice's work has what it saves of all tokens, a whole unit's that of a chunk. */
static void each_chunk(struct pass *p, const struct head_work *w, const struct head_io *io,
                       size_t kept_tokens, chunk_fn *run)
{
    size_t hidden = p->model->config.hidden;
    for (size_t first = 0; first < p->tokens; first += LOGIT_CHUNK_TOKENS) {
        size_t kept = first % kept_tokens;
        struct chunk c = {.tokens = least(p->tokens - first, LOGIT_CHUNK_TOKENS)};
        if (!p->measure) {
            c.n = at(p, io->n, first * hidden);
            c.dn = io->dn ? at(p, io->dn, first * hidden) : NULL;
            c.targets = io->targets + first;
            c.losses = io->losses + first;
            c.grad_scale = io->grad_scale;
            c.logits = w->logits;
            c.state = w->state + kept * HEAD_STATE;
            c.sum = w->sum ? w->sum + kept * hidden : NULL;
        }
        run(p, &c);
    }
}

void head_loss(struct pass *p, const struct head_work *w, const struct head_io *io)
{
    each_chunk(p, w, io, LOGIT_CHUNK_TOKENS, chunk_loss);
}

void head_evaluate(struct pass *p, const struct head_work *w, const struct head_io *io)
{
    each_chunk(p, w, io, LOGIT_CHUNK_TOKENS, chunk_slice_forward);
}

void head_slice_forward(struct pass *p, const struct head_work *w, const struct head_io *io)
{
    each_chunk(p, w, io, p->tokens, chunk_slice_forward);
}

void head_slice_backward(struct pass *p, const struct head_work *w, const struct head_io *io)
{
    each_chunk(p, w, io, p->tokens, chunk_slice_backward);
}
