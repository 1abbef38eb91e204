/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix GEMMs of a micro-batch, for whoever measures how fast a device makes them: each at the
 * extents that it has in a step (linear.c cuts weights into blocks of rows and makes two weights'
 * GEMMs at once, head.c cuts tokens into chunks), as often as a step makes it. Attention's are
 * left out.
 */
#include "model/model.h"

struct shape {
    size_t out, in;
    uint32_t count; /* in a layer: two are made at once, but for the input's gradient */
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* As a forward makes it (twice: the backward computes it again), for the input's gradient, and for
 * the weight's. */
static void add_linear(struct hst_gemm *gemms, size_t tokens, uint32_t layers, struct shape s,
                       enum hst_dtype dtype)
{
    size_t rows = least(s.out, WEIGHT_BLOCK_ROWS);
    uint32_t times = layers * (uint32_t)((s.out + rows - 1) / rows);
    gemms[0] = (struct hst_gemm){.m = tokens,
                                 .n = rows,
                                 .k = s.in,
                                 .dtype = dtype,
                                 .b_transposed = true,
                                 .times = 2 * times,
                                 .batch = s.count};
    gemms[1] = (struct hst_gemm){
        .m = tokens, .n = s.in, .k = rows, .dtype = dtype, .times = s.count * times};
    /* a way's later micro-batches add to it; the first one writes, and is counted alike */
    gemms[2] = (struct hst_gemm){.m = rows,
                                 .n = s.in,
                                 .k = tokens,
                                 .dtype = dtype,
                                 .a_transposed = true,
                                 .accumulate = true,
                                 .times = times,
                                 .batch = s.count};
}

uint32_t llama_gemms(const struct llama *m, enum hst_dtype dtype,
                     struct hst_gemm gemms[HST_GEMMS_MAX])
{
    const struct llama_config *c = &m->config;
    const struct shape shapes[] = {
        {m->q_width, c->hidden, 1},      /* q */
        {m->kv_width, c->hidden, 2},     /* k, v */
        {c->hidden, m->q_width, 1},      /* o */
        {c->intermediate, c->hidden, 2}, /* gate, up */
        {c->hidden, c->intermediate, 1}, /* down */
    };
    size_t micro = (size_t)m->run.micro_batch_tokens, chunk = least(micro, LOGIT_CHUNK_TOKENS);
    size_t rows = least(c->vocab, WEIGHT_BLOCK_ROWS);
    size_t blocks = (c->vocab + rows - 1) / rows * ((micro + chunk - 1) / chunk);
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++, count += 3)
        add_linear(gemms + count, micro, c->layers, shapes[i], dtype);
    /* the head's three are as large as each other: one stands for them */
    gemms[count++] = (struct hst_gemm){.m = chunk,
                                       .n = rows,
                                       .k = c->hidden,
                                       .dtype = dtype,
                                       .b_transposed = true,
                                       .times = (uint32_t)least(3 * blocks, 1u << 30)};
    return count;
}
