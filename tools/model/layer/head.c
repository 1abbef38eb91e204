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
    size_t first, tokens;
    const void *n;
    const uint32_t *targets;
    float *losses;
    float grad_scale;
    void *dn;
    void *logits;
    float *state, *sum;
    const struct head_choices *choices;
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
    float *grad = p->measure || !p->param[0].grad ? NULL : p->param[0].grad + b.here * l.in;
    cross_entropy(p, c, b, logits, true);
    const bool fresh = p->param[0].fresh && c->first == 0; /* chunks after the first one add */
    linear_weight_grad(p, c->tokens, l, logits, c->n, (struct weight_grad){grad, fresh});
    if (!p->measure && !c->dn)
        return; /* nothing before the head trains */
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

/* ---- the likeliest ids ---- */

static bool is_likelier(const struct llama_choice *a, const struct llama_choice *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

/* Logits of one token, of the ids from `first_id` on. What is not a number is never it. */
static void take_likeliest(struct llama_choice *choice, const float *logits, size_t first_id,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct llama_choice other = {choice->token, (uint32_t)(first_id + i), logits[i]};
        if (is_likelier(&other, choice))
            *choice = other;
    }
}

/* Operations take data that begins at 16 bytes: these are so many elements of the shorter types. */
#define ALIGNED 8u

static void choose_of_block(struct pass *p, const struct chunk *c, struct block b,
                            struct llama_choice *choice)
{
    const struct head_choices *to = c->choices;
    const size_t row = ((size_t)choice->token - to->first_token - c->first) * b.rows;
    for (size_t i = 0, count = 0; i < b.rows && p->rc == 0; i += count) {
        const size_t skipped = (row + i) % ALIGNED;
        count = least(b.rows - i, to->room - skipped);
        pass_fetch(p, skipped + count, at(p, c->logits, row + i - skipped), to->device, to->host);
        if (p->rc == 0)
            take_likeliest(choice, to->host + skipped, b.first_row + i, count);
    }
}

static bool is_in(const struct chunk *c, const struct llama_choice *choice)
{
    const size_t first = c->choices->first_token + c->first;
    return choice->token >= first && choice->token < first + c->tokens;
}

static void chunk_choose(struct pass *p, const struct chunk *c)
{
    const struct head_choices *to = c->choices;
    size_t asked = 0;
    for (size_t i = 0; i < to->count; i++)
        asked += is_in(c, &to->list[i]);
    for (size_t i = 0; asked && i < count_blocks(p); i++) {
        block_logits(p, c, block_at(p, i), c->logits);
        for (size_t k = 0; k < to->count; k++)
            if (is_in(c, &to->list[k]))
                choose_of_block(p, c, block_at(p, i), &to->list[k]);
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
        struct chunk c = {.first = first,
                          .tokens = least(p->tokens - first, LOGIT_CHUNK_TOKENS),
                          .choices = io->choices};
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

void head_choose(struct pass *p, const struct head_work *w, const struct head_io *io)
{
    each_chunk(p, w, io, LOGIT_CHUNK_TOKENS, chunk_choose);
}
