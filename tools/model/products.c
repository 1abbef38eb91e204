/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix products of a grain, for whoever measures how fast a device makes them: each at the
 * extents that it has in a step (linear.c cuts weights into blocks of rows, head.c tokens into
 * chunks), as often as a step makes it. Attention's are left out.
 */
#include "model/model.h"

struct shape {
    size_t out, in;
    uint32_t count; /* in a layer */
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* As a forward makes it (twice: the backward computes it again), for the input's gradient, and for
 * the weight's. */
static void add_linear(struct hst_product *products, size_t tokens, struct shape s,
                       enum hst_dtype dtype)
{
    size_t rows = least(s.out, WEIGHT_BLOCK_ROWS);
    uint32_t times = s.count * (uint32_t)((s.out + rows - 1) / rows);
    products[0] = (struct hst_product){tokens, rows, s.in, dtype, false, true, false, 2 * times};
    products[1] = (struct hst_product){tokens, s.in, rows, dtype, false, false, false, times};
    products[2] = (struct hst_product){rows, s.in, tokens, dtype, true, false, true, times};
}

uint32_t llama_products(const struct llama *m, enum hst_dtype dtype,
                        struct hst_product products[HST_PRODUCTS_MAX])
{
    const struct llama_config *c = &m->config;
    const struct shape shapes[] = {
        {m->q_width, c->hidden, c->layers},          /* q */
        {m->kv_width, c->hidden, 2 * c->layers},     /* k, v */
        {c->hidden, m->q_width, c->layers},          /* o */
        {c->intermediate, c->hidden, 2 * c->layers}, /* gate, up */
        {c->hidden, c->intermediate, c->layers},     /* down */
    };
    size_t grain = (size_t)m->run.grain_tokens, chunk = least(grain, LOGIT_CHUNK_TOKENS);
    size_t rows = least(c->vocab, WEIGHT_BLOCK_ROWS);
    size_t blocks = (c->vocab + rows - 1) / rows * ((grain + chunk - 1) / chunk);
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++, count += 3)
        add_linear(products + count, grain, shapes[i], dtype);
    /* the head's three are as large as each other: one stands for them */
    products[count++] = (struct hst_product){
        chunk, rows, c->hidden, dtype, false, true, false, (uint32_t)least(3 * blocks, 1u << 30)};
    return count;
}
