/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dq, dk, dv from q, k, v, o, lse and dout:
 *   p = exp(scale·q·kᵀ − lse), masked       dv = pᵀ·dout
 *   ds = scale·p·(dout·vᵀ − rowsum(dout·o))   dq = ds·k      dk = dsᵀ·q
 * as the graph that cuDNN recognises (the order of NVIDIA's cudnn-frontend). dq is the product
 * itself, not a sum that key blocks add to in the order they finish: cuDNN marks neither form as
 * non-deterministic, but only this one has a fixed order. It keeps ds in the workspace, seq² of it
 * per head. Each head's dk and dv are rounded, like the outputs, before a reduction sums those of a
 * group: the only form for which every card has a plan.
 */
#include "plan.h"

/* The parts share this. */
struct parts {
    struct graph *g;
    const struct sdpa_shape *shape;
    int64_t scores[4], turned[4], rows[4], full[4];
    descriptor q, k, k_turned, v_turned, dout, scale;
    descriptor p, row_sum; /* p f32 [scores]; row_sum f32 [rows] */
};

/* The transpose of a score-shaped tensor, rounded to the operands' type. */
static descriptor turn(const struct parts *t, descriptor x)
{
    struct extents e = extents_packed(t->scores);
    descriptor y = graph_virtual_strided(t->g, t->shape->type, extents_transposed(e));
    graph_reshape(t->g, x, y);
    return y;
}

/* a·b to a key-shaped output: for grouped heads through one product per head, and their sum. */
static void key_gradient(const struct parts *t, descriptor a, descriptor b, int64_t uid)
{
    descriptor y = graph_tensor(t->g, uid, t->shape->type, shape_key(t->shape), 16);
    if (t->shape->heads == t->shape->kv_heads) {
        graph_matmul(t->g, a, b, y);
        return;
    }
    descriptor each = graph_virtual(t->g, t->shape->type, t->full);
    graph_matmul(t->g, a, b, each);
    graph_reduce(t->g, CUDNN_REDUCE_TENSOR_ADD, each, y);
}

static void build_row_sum(struct parts *t, descriptor o)
{
    descriptor products = graph_virtual(t->g, CUDNN_DATA_FLOAT, t->full);
    descriptor sums = graph_virtual(t->g, CUDNN_DATA_FLOAT, t->rows);
    t->row_sum = graph_virtual(t->g, CUDNN_DATA_FLOAT, t->rows);
    graph_binary(t->g, CUDNN_POINTWISE_MUL, t->dout, o, products);
    graph_reduce(t->g, CUDNN_REDUCE_TENSOR_ADD, products, sums);
    graph_binary(t->g, CUDNN_POINTWISE_MUL, sums, graph_scalar(t->g, SDPA_ONE), t->row_sum);
}

static void build_probabilities(struct parts *t, descriptor lse)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    descriptor product = graph_virtual(t->g, f32, t->scores);
    descriptor scaled = graph_virtual(t->g, f32, t->scores);
    descriptor below = graph_virtual(t->g, f32, t->scores);
    descriptor masked_below = graph_virtual(t->g, f32, t->scores);
    t->p = graph_virtual(t->g, f32, t->scores);
    graph_matmul(t->g, t->q, t->k_turned, product);
    graph_binary(t->g, CUDNN_POINTWISE_MUL, product, t->scale, scaled);
    graph_binary(t->g, CUDNN_POINTWISE_SUB, scaled, lse, below);
    graph_causal(t->g, t->scores, below, graph_scalar(t->g, SDPA_MASKED), masked_below);
    graph_unary(t->g, CUDNN_POINTWISE_EXP, masked_below, t->p);
}

static descriptor build_score_gradient(const struct parts *t)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    descriptor dp = graph_virtual(t->g, f32, t->scores);
    descriptor centred = graph_virtual(t->g, f32, t->scores);
    descriptor weighted = graph_virtual(t->g, f32, t->scores);
    descriptor ds = graph_virtual(t->g, f32, t->scores);
    graph_matmul(t->g, t->dout, t->v_turned, dp);
    graph_binary(t->g, CUDNN_POINTWISE_SUB, dp, t->row_sum, centred);
    graph_binary(t->g, CUDNN_POINTWISE_MUL, centred, t->p, weighted);
    graph_binary(t->g, CUDNN_POINTWISE_MUL, weighted, t->scale, ds);
    return ds;
}

void backward_build(struct graph *g, const struct sdpa_shape *s)
{
    const cudnnDataType_t type = s->type;
    struct extents query = shape_query(s), key = shape_key(s);
    struct parts t = {
        .g = g,
        .shape = s,
        .scores = {s->batch, s->heads, s->seq, s->seq},
        .rows = {s->batch, s->heads, s->seq, 1},
        .full = {s->batch, s->heads, s->seq, s->head_dim},
        .q = graph_tensor(g, SDPA_Q, type, query, 16),
        .k_turned = graph_tensor(g, SDPA_K, type, extents_transposed(key), 16),
        .v_turned = graph_tensor(g, SDPA_V, type, extents_transposed(key), 16),
        .dout = graph_tensor(g, SDPA_DOUT, type, query, 16),
        .scale = graph_scalar(g, SDPA_SCALE),
        .k = graph_virtual_strided(g, type, key),
    };
    build_row_sum(&t, graph_tensor(g, SDPA_O, type, query, 16));
    build_probabilities(&t,
                        graph_tensor(g, SDPA_LSE, CUDNN_DATA_FLOAT, shape_lse(s), sizeof(float)));
    key_gradient(&t, turn(&t, t.p), t.dout, SDPA_DV);
    descriptor ds = build_score_gradient(&t);
    key_gradient(&t, turn(&t, ds), t.q, SDPA_DK);
    graph_reshape(g, t.k_turned, t.k);
    graph_matmul(g, ds, t.k, graph_tensor(g, SDPA_DQ, type, query, 16));
}

/*
 * On compute capability 10.0 and 10.3 an engine that adds to dq in a fixed order has to be asked
 * for by number and settings, whose meaning changed with 9.23 (cudnn-frontend,
 * override_heuristics_query); what is proposed there is not known to be deterministic. Nor is
 * anything on 11.0.
 */
#define ORDERED_FIRST_VERSION 91800
#define ORDERED_END_VERSION   92300

enum sdpa_form sdpa_backward_form(const struct cudnn_target *target)
{
    if (target->compute < 100 || target->compute >= 120)
        return SDPA_BACKWARD_STORED;
    if (target->compute <= 103 && target->version >= ORDERED_FIRST_VERSION &&
        target->version < ORDERED_END_VERSION)
        return SDPA_BACKWARD_ORDERED;
    return SDPA_NONE;
}

const struct engine_wish *backward_engine(enum sdpa_form form)
{
    static const struct engine_wish ordered = {
        .engine = 5,
        .count = 2,
        .knobs = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}}};
    return form == SDPA_BACKWARD_ORDERED ? &ordered : NULL;
}
