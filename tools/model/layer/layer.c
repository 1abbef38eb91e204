/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transformer layer: x1 = x + O·attention(norm(x)), y = x1 + DOWN·swiglu(norm(x1)). x is kept
 * from forward to backward, and where there is room what GEMMs and attention give; else the
 * backward computes that again, all but the last product. Either equation may be a unit by itself,
 * with x or x1 for its checkpoint: x1 is rounded before it is normed, so no bit depends on that.
 */
#include "model/layer/blocks.h"
#include "model/layer/linear.h"

#include <math.h>

static struct linear shape_of(const struct llama *model, enum layer_param param)
{
    size_t h = model->config.hidden, f = model->config.intermediate;
    if (param == LAYER_Q)
        return (struct linear){model->q_width, h};
    if (param == LAYER_K || param == LAYER_V)
        return (struct linear){model->kv_width, h};
    if (param == LAYER_O)
        return (struct linear){h, model->q_width};
    if (param == LAYER_DOWN)
        return (struct linear){h, f};
    return (struct linear){f, h};
}

static size_t place(const struct pass *p, enum layer_param param)
{
    return llama_part_place(p->model, p->part, param);
}

static const struct hst_param_view *view_of(const struct pass *p, enum layer_param param)
{
    return &p->param[place(p, param)];
}

static void forward(struct pass *p, enum layer_param param, const void *x, void *y)
{
    linear_forward(p, p->tokens, shape_of(p->model, param), view_of(p, param)->data, x, y);
}

/* k and v, gate and up: neighbours of one shape, `first` and the one behind it. */
static void forward_two(struct pass *p, enum layer_param first, const void *x, void *y,
                        void *y_next)
{
    const struct hst_param_view *two = view_of(p, first);
    linear_forward_two(p, p->tokens, shape_of(p->model, first),
                       (const void *[]){two[0].data, two[1].data}, x, (void *[]){y, y_next});
}

static void weight_grad_two(struct pass *p, enum layer_param first, const void *dy,
                            const void *dy_next, const void *x)
{
    linear_weight_grad_two(p, p->tokens, shape_of(p->model, first), (const void *[]){dy, dy_next},
                           x, view_of(p, first));
}

static void weight_grad(struct pass *p, enum layer_param param, const void *dy, const void *x)
{
    const struct hst_param_view *view = view_of(p, param);
    linear_weight_grad(p, p->tokens, shape_of(p->model, param), dy, x,
                       (struct weight_grad){view->grad, view->fresh});
}

static void input_grad_sum(struct pass *p, enum layer_param param, const void *dy, float *sum,
                           bool accumulate)
{
    linear_input_grad_sum(p, p->tokens, shape_of(p->model, param), view_of(p, param)->data, dy, sum,
                          accumulate);
}

static void input_grad(struct pass *p, enum layer_param param, const void *dy, void *dx, float *sum)
{
    linear_input_grad(p, p->tokens, shape_of(p->model, param), view_of(p, param)->data, dy, dx,
                      sum);
}

static size_t hidden_count(const struct pass *p)
{
    return p->tokens * p->model->config.hidden;
}

static struct hst_attention attention_args(const struct pass *p, const struct layer_work *w)
{
    const struct llama_config *c = &p->model->config;
    return (struct hst_attention){
        .batch = p->sequences,
        .seq = (size_t)p->model->run.seq_len,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .dtype = p->dtype,
        .scale = (float)(1.0 / sqrt((double)c->head_dim)),
        .q = w->q,
        .k = w->k,
        .v = w->v,
        .o = w->o,
        .lse = w->lse,
        .first = p->first,
        .window = p->window,
    };
}

/* q, k and v: with a bias, where the model has one. */
static void head_products(struct pass *p, const struct layer_work *w)
{
    forward(p, LAYER_Q, w->n1, w->q_made);
    forward_two(p, LAYER_K, w->n1, w->k_made, w->v);
    if (!p->model->config.qkv_bias)
        return;
    pass_bias(p, p->model->q_width, w->q_made, place(p, LAYER_Q_BIAS));
    pass_bias(p, p->model->kv_width, w->k_made, place(p, LAYER_K_BIAS));
    pass_bias(p, p->model->kv_width, w->v, place(p, LAYER_V_BIAS));
}

static void head_products_grad(struct pass *p, const struct layer_work *w)
{
    weight_grad(p, LAYER_Q, w->dq, w->n1);
    weight_grad_two(p, LAYER_K, w->dk, w->dv, w->n1);
    if (!p->model->config.qkv_bias)
        return;
    pass_bias_backward(p, p->model->q_width, w->dq, place(p, LAYER_Q_BIAS));
    pass_bias_backward(p, p->model->kv_width, w->dk, place(p, LAYER_K_BIAS));
    pass_bias_backward(p, p->model->kv_width, w->dv, place(p, LAYER_V_BIAS));
}

/* q and k of what their GEMMs gave: normed, where the model does that, and rotated. */
static void turn_heads(struct pass *p, const struct layer_work *w)
{
    const struct llama_config *c = &p->model->config;
    if (c->qk_norm) {
        pass_head_norm(p, c->heads, w->q_made, place(p, LAYER_Q_NORM), w->q, w->rstd_q);
        pass_head_norm(p, c->kv_heads, w->k_made, place(p, LAYER_K_NORM), w->k, w->rstd_k);
    }
    pass_rope(p, w->q, c->heads, false);
    pass_rope(p, w->k, c->kv_heads, false);
}

/* dq and dk become the gradients of what their GEMMs gave. */
static void turn_heads_backward(struct pass *p, const struct layer_work *w)
{
    const struct llama_config *c = &p->model->config;
    pass_rope(p, w->dq, c->heads, true);
    pass_rope(p, w->dk, c->kv_heads, true);
    if (!c->qk_norm)
        return;
    pass_head_norm_backward(p, c->heads, w->q_made, place(p, LAYER_Q_NORM), w->rstd_q, w->dq,
                            w->dq);
    pass_head_norm_backward(p, c->kv_heads, w->k_made, place(p, LAYER_K_NORM), w->rstd_k, w->dk,
                            w->dk);
}

/* o = attention(norm(x)) */
static void attention_inside(struct pass *p, const struct layer_work *w, const void *x)
{
    pass_rmsnorm(p, x, place(p, LAYER_INPUT_NORM), w->n1, w->rstd1);
    head_products(p, w);
    turn_heads(p, w);
    pass_attention(p, attention_args(p, w));
}

/* x1 = x + O·o, n2 = norm(x1); x1 may be x. A whole layer adds and norms in one operation. */
static void attention_to_mlp(struct pass *p, const struct layer_work *w, const void *x, void *x1)
{
    forward(p, LAYER_O, w->o, w->dn);
    pass_add_rmsnorm(p, x, w->dn, x1, place(p, LAYER_POST_NORM), w->n2, w->rstd2);
}

/* n2 = norm(x1) */
static void mlp_norm(struct pass *p, const struct layer_work *w, const void *x1)
{
    pass_rmsnorm(p, x1, place(p, LAYER_POST_NORM), w->n2, w->rstd2);
}

static void swiglu(struct pass *p, const struct layer_work *w)
{
    pass_swiglu(p, p->tokens * p->model->config.intermediate, w->gate, w->up, w->act);
}

/* act = swiglu of n2 */
static void mlp_inside(struct pass *p, const struct layer_work *w)
{
    forward_two(p, LAYER_GATE, w->n2, w->gate, w->up);
    swiglu(p, w);
}

/* y = x + W·inside, the product rounded before it is added; y may be x. */
static void add_product(struct pass *p, const struct layer_work *w, enum layer_param param,
                        const void *inside, const void *x, void *y)
{
    forward(p, param, inside, w->dn);
    pass_add(p, hidden_count(p), x, w->dn, y);
}

void layer_forward(struct pass *p, const struct layer_work *w, void *x)
{
    void *x1 = p->part == LAYER_WHOLE && w->saved ? w->x1 : x;
    if (p->part != LAYER_MLP)
        attention_inside(p, w, x);
    if (p->part == LAYER_ATTENTION) {
        add_product(p, w, LAYER_O, w->o, x, x);
        return;
    }
    if (p->part == LAYER_WHOLE)
        attention_to_mlp(p, w, x, x1);
    else
        mlp_norm(p, w, x);
    mlp_inside(p, w);
    add_product(p, w, LAYER_DOWN, w->act, x1, x);
}

/* It recomputes what is not saved, to the bit as the forward had it; so does mlp_again. */
static void attention_again(struct pass *p, const struct layer_work *w, const void *x)
{
    if (!w->saved) {
        attention_inside(p, w, x);
        return;
    }
    pass_rmsnorm(p, x, place(p, LAYER_INPUT_NORM), w->n1, w->rstd1);
    if (p->model->config.qk_norm) /* else q and k were turned in place */
        turn_heads(p, w);
}

static void mlp_again(struct pass *p, const struct layer_work *w)
{
    if (w->saved)
        swiglu(p, w);
    else
        mlp_inside(p, w);
}

/* dx, the gradient of y, becomes that of x1. */
static void mlp_backward(struct pass *p, const struct layer_work *w, const void *x1, void *dx)
{
    void *dact = w->act; /* act is not needed once the weight has its gradient */
    weight_grad(p, LAYER_DOWN, dx, w->act);
    input_grad(p, LAYER_DOWN, dx, dact, w->sum);
    pass_swiglu_backward(p, p->tokens * p->model->config.intermediate, w->gate, w->up, dact);
    weight_grad_two(p, LAYER_GATE, w->gate, w->up, w->n2);
    input_grad_sum(p, LAYER_GATE, w->gate, w->sum, false);
    input_grad_sum(p, LAYER_UP, w->up, w->sum, true);
    linear_round(p, hidden_count(p), w->sum, w->dn);
    pass_rmsnorm_backward(p, x1, place(p, LAYER_POST_NORM), w->rstd2, w->dn, dx, true);
}

/* dx, the gradient of x1, becomes that of x. */
static void attention_backward(struct pass *p, const struct layer_work *w, const void *x, void *dx)
{
    weight_grad(p, LAYER_O, dx, w->o);
    input_grad(p, LAYER_O, dx, w->dout, w->sum);
    struct hst_attention_backward args = {
        .forward = attention_args(p, w),
        .dout = w->dout,
        .dq = w->dq,
        .dk = w->dk,
        .dv = w->dv,
    };
    pass_attention_backward(p, args);
    turn_heads_backward(p, w);
    head_products_grad(p, w);
    input_grad_sum(p, LAYER_Q, w->dq, w->sum, false);
    input_grad_sum(p, LAYER_K, w->dk, w->sum, true);
    input_grad_sum(p, LAYER_V, w->dv, w->sum, true);
    linear_round(p, hidden_count(p), w->sum, w->dn);
    pass_rmsnorm_backward(p, x, place(p, LAYER_INPUT_NORM), w->rstd1, w->dn, dx, true);
}

void layer_backward(struct pass *p, const struct layer_work *w, const void *checkpoint, void *dx)
{
    const void *x1 = p->part == LAYER_WHOLE ? w->x1 : checkpoint;
    if (p->part != LAYER_MLP)
        attention_again(p, w, checkpoint);
    if (p->part != LAYER_ATTENTION) {
        if (p->part == LAYER_WHOLE && !w->saved)
            attention_to_mlp(p, w, checkpoint, w->x1);
        else
            mlp_norm(p, w, x1);
        mlp_again(p, w);
        mlp_backward(p, w, x1, dx);
    }
    if (p->part != LAYER_MLP)
        attention_backward(p, w, checkpoint, dx);
}
