/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file does what a micro-batch computes beside GEMMs, for whoever measures how long it takes:
 * the passes of a layer and of the head themselves with GEMMs left out, and attention. Each in
 * parts: fewer tokens, and of attention fewer keys, sequences, and heads. The embedding's lookups
 * and the last norm are left out; they are little beside a layer.
 */
#include "model/layer/blocks.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#define TOKENS_LEAST 16u
#define KEYS_ENOUGH  512u /* on the host longer sequences run at the rate of these */
#define KEYS_LEAST   64u

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* `most`, as tokens between the fewest and `all`. */
static size_t tokens_of(double most, size_t all)
{
    return most >= (double)all   ? all
           : most < TOKENS_LEAST ? least(TOKENS_LEAST, all)
                                 : (size_t)most;
}

/* The model with a micro-batch of so many tokens, or the few less that are whole sequences. */
static struct llama part_of(const struct llama_operations *of, size_t tokens)
{
    struct llama part = *of->model;
    size_t seq = least((size_t)part.run.seq_len, tokens);
    tokens -= tokens % seq;
    part.dtype = of->dtype;
    part.run =
        (struct llama_run){.seq_len = seq, .batch_tokens = tokens, .micro_batch_tokens = tokens};
    return part;
}

static struct pass pass_over(const struct llama *part, const struct hst_room *room,
                             const struct hst_param_view *param, unsigned without)
{
    return (struct pass){
        .model = part,
        .device = room->dev,
        .stream = room->stream,
        .dtype = part->dtype,
        .param = param,
        .rows = part->config.vocab,
        .tokens = (size_t)part->run.micro_batch_tokens,
        .sequences = (size_t)(part->run.micro_batch_tokens / part->run.seq_len),
        .without = without,
    };
}

typedef size_t bytes_fn(struct llama *part, const struct hst_room *room);

/* The largest micro-batch up to about `tokens` that fits, halved as often as it takes. */
static int fit(const struct llama_operations *of, const struct hst_room *room, size_t tokens,
               bytes_fn *bytes, struct llama *part)
{
    *part = part_of(of, tokens);
    while (bytes(part, room) > room->memory.size_bytes) {
        if (part->run.micro_batch_tokens <= TOKENS_LEAST)
            return -ENOSPC;
        *part = part_of(of, (size_t)part->run.micro_batch_tokens / 2);
    }
    return 0;
}

/* ---- a layer ---- */

struct layer_room {
    struct layer_work work;
    void *x, *dx;
    struct hst_param_view param[LAYER_PARAM_MAX];
};

static struct hst_param_view take_vector(const struct llama *part, struct work_area *area,
                                         size_t width)
{
    return (struct hst_param_view){
        .data = work_take(area, width, hst_dtype_bytes(part->dtype)),
        .grad = work_take(area, width, sizeof(float)),
    };
}

/* Norms of heads, and biases: those of k and v are no longer than q's. */
static void take_optional(const struct llama *part, struct work_area *area, struct layer_room *r)
{
    const size_t biases = llama_layer_place(part, LAYER_Q_BIAS);
    const size_t all = llama_layer_place(part, LAYER_PARAM_MAX);
    for (size_t i = llama_layer_place(part, LAYER_Q_NORM); i < all; i++)
        r->param[i] = take_vector(part, area, i < biases ? part->config.head_dim : part->q_width);
}

/* Base null: measures. Returns the bytes. */
static size_t carve_layer(struct llama *part, void *base, struct layer_room *r)
{
    struct work_area area = {.base = base};
    size_t hidden = part->config.hidden, count = part->run.micro_batch_tokens * hidden;
    size_t angles = (size_t)part->run.seq_len * (part->config.head_dim / 2);
    r->x = work_take(&area, count, hst_dtype_bytes(part->dtype));
    r->dx = work_take(&area, count, hst_dtype_bytes(part->dtype));
    r->param[LAYER_INPUT_NORM] = r->param[LAYER_POST_NORM] = take_vector(part, &area, hidden);
    take_optional(part, &area, r);
    part->device.cos = work_take(&area, angles, sizeof(float));
    part->device.sin = work_take(&area, angles, sizeof(float));
    layer_work_carve(part, LAYER_WHOLE, &area, &r->work);
    return area.size_bytes;
}

static void run_layer(struct pass *p, const struct layer_room *r)
{
    layer_forward(p, &r->work, r->x);
    layer_backward(p, &r->work, r->x, r->dx);
}

static size_t layer_bytes(struct llama *part, const struct hst_room *room)
{
    struct layer_room r = {0};
    struct pass p = pass_over(part, room, r.param, PASS_PRODUCTS | PASS_ATTENTION);
    part->layer_op_bytes = 0;
    p.measure = &part->layer_op_bytes;
    run_layer(&p, &r);
    return carve_layer(part, NULL, &r);
}

static int enqueue_layer(void *context, const struct hst_room *room, double most, double *amount)
{
    const struct llama_operations *of = context;
    struct llama part;
    struct layer_room r = {0};
    size_t tokens = tokens_of(most, (size_t)of->model->run.micro_batch_tokens);
    int rc = fit(of, room, tokens, layer_bytes, &part);
    if (rc)
        return rc;
    carve_layer(&part, room->memory.data, &r);
    struct pass p = pass_over(&part, room, r.param, PASS_PRODUCTS | PASS_ATTENTION);
    p.op_work = r.work.op;
    run_layer(&p, &r);
    *amount = (double)part.run.micro_batch_tokens;
    return p.rc;
}

/* ---- attention ---- */

/* As llama_layer_flops counts a forward, four times. */
static double attention_flop(const struct hst_attention *a)
{
    const double width = (double)(a->heads * a->head_dim);
    return 4 * 4 * llama_seen_pairs(a->seq, a->window) * width * (double)a->batch;
}

/* It is that of a micro-batch, in one layer. Documents are taken to have one length. They are
 * sequences of their own then, which see no other either, by the kernels that documents have. */
static struct hst_attention whole_attention(const struct llama *m, enum hst_dtype dtype,
                                            size_t window)
{
    const struct llama_config *c = &m->config;
    const uint64_t seen = llama_seen_tokens(m);
    return (struct hst_attention){
        .batch = (size_t)(m->run.micro_batch_tokens / seen),
        .seq = (size_t)seen,
        .window = window,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .dtype = dtype,
        .scale = (float)(1.0 / sqrt((double)c->head_dim)),
    };
}

/* Keys first, down to the fewest that take as long each as many do; then sequences and heads, as
 * long as each worker has one: the backward's pieces are heads of keys. */
static size_t *next_to_cut(struct hst_attention *a, uint32_t width)
{
    size_t pieces = a->batch * a->kv_heads;
    bool spare = pieces > 1 && pieces / 2 >= width;
    if (a->seq > (spare ? KEYS_ENOUGH : KEYS_LEAST))
        return &a->seq;
    return a->batch > 1 ? &a->batch : a->kv_heads > 1 ? &a->kv_heads : NULL;
}

static bool cut_attention(struct hst_attention *a, uint32_t width)
{
    size_t group = a->heads / a->kv_heads, *extent = next_to_cut(a, width);
    if (!extent)
        return false;
    *extent /= 2;
    a->heads = group * a->kv_heads;
    return true;
}

/* Base null: measures. Returns the bytes. Of documents each sees from its own beginning: zeros. */
static size_t carve_attention(struct hst_dev *dev, void *base, bool documents,
                              struct hst_attention_backward *b)
{
    static const uint32_t given[1]; /* measuring, for whether there is one */
    struct work_area area = {.base = base};
    struct hst_attention *a = &b->forward;
    size_t rows = a->batch * a->seq, element = hst_dtype_bytes(a->dtype);
    size_t q = rows * a->heads * a->head_dim, kv = rows * a->kv_heads * a->head_dim;
    a->q = work_take(&area, q, element);
    a->o = work_take(&area, q, element);
    b->dout = work_take(&area, q, element);
    b->dq = work_take(&area, q, element);
    a->k = work_take(&area, kv, element);
    a->v = work_take(&area, kv, element);
    b->dk = work_take(&area, kv, element);
    b->dv = work_take(&area, kv, element);
    a->lse = work_take(&area, rows * a->heads, sizeof(float));
    a->first = documents ? work_take(&area, rows, sizeof *a->first) : NULL;
    if (documents && !base)
        a->first = given;
    a->work.size_bytes = hst_attention_work_bytes(dev, a);
    a->work.data = work_take(&area, a->work.size_bytes, 1);
    return area.size_bytes;
}

static int enqueue_attention(void *context, const struct hst_room *room, double most,
                             double *amount)
{
    const struct llama_attention_kind *kind = context;
    const struct llama *m = kind->of->model;
    const bool documents = m->run.documents;
    struct hst_attention_backward b = {.forward =
                                           whole_attention(m, kind->of->dtype, kind->window)};
    while (attention_flop(&b.forward) > most && cut_attention(&b.forward, room->width))
        ;
    while (carve_attention(room->dev, NULL, documents, &b) > room->memory.size_bytes)
        if (!cut_attention(&b.forward, room->width))
            return -ENOSPC;
    carve_attention(room->dev, room->memory.data, documents, &b);
    const struct hst_attention *a = &b.forward;
    int rc = documents ? hst_stream_zero(room->stream, (void *)a->first,
                                         a->batch * a->seq * sizeof *a->first)
                       : 0;
    for (int i = 0; i < 2 && rc == 0; i++) /* once more for the backward */
        rc = hst_op_attention(room->stream, a);
    *amount = attention_flop(a);
    return rc ? rc : hst_op_attention_backward(room->stream, &b);
}

/* ---- the head ---- */

struct head_room {
    struct head_work work;
    struct head_io io;
    uint32_t *targets;
    struct hst_param_view param;
};

static size_t carve_head(const struct llama *part, void *base, struct head_room *r)
{
    struct work_area area = {.base = base};
    size_t tokens = (size_t)part->run.micro_batch_tokens, element = hst_dtype_bytes(part->dtype);
    r->io.n = r->io.dn = work_take(&area, tokens * part->config.hidden, element);
    r->io.losses = work_take(&area, tokens, sizeof(float));
    r->io.targets = r->targets = work_take(&area, tokens, sizeof(uint32_t));
    r->param = (struct hst_param_view){.data = base, .grad = base}; /* of GEMMs alone */
    head_work_carve(part, &area, &r->work);
    return area.size_bytes;
}

/* Tokens that are worked on at once. */
static size_t chunk_of(const struct llama *m)
{
    return least((size_t)m->run.micro_batch_tokens, LOGIT_CHUNK_TOKENS);
}

static size_t head_bytes(struct llama *part, const struct hst_room *room)
{
    struct head_room r;
    (void)room;
    part->head_op_bytes = 0; /* GEMMs have all of it */
    return carve_head(part, NULL, &r);
}

static int enqueue_head(void *context, const struct hst_room *room, double most, double *amount)
{
    const struct llama_operations *of = context;
    struct llama part;
    struct head_room r = {.io.grad_scale = 1};
    int rc = fit(of, room, tokens_of(most, chunk_of(of->model)), head_bytes, &part);
    if (rc)
        return rc;
    carve_head(&part, room->memory.data, &r);
    struct pass p = pass_over(&part, room, &r.param, PASS_PRODUCTS);
    p.rc = hst_stream_zero(room->stream, r.targets, p.tokens * sizeof *r.targets);
    head_loss(&p, &r.work, &r.io);
    *amount = (double)p.tokens;
    return p.rc;
}

/* ---- all of them ---- */

static const char *name_of(enum hst_dtype dtype)
{
    return dtype == HST_BF16 ? "bf16" : dtype == HST_F16 ? "f16" : "f32";
}

/* One for layers without a window, one for those with it, as far as there are such. */
static void add_attention(struct llama_operations *of, int windowed, uint32_t layers)
{
    const struct llama *m = of->model;
    struct llama_attention_kind *kind = &of->kinds[windowed];
    char window[24] = "";
    const uint32_t i = of->count;
    if (!layers)
        return;
    *kind = (struct llama_attention_kind){of, windowed ? m->config.window : 0};
    const struct hst_attention a = whole_attention(m, of->dtype, kind->window);
    const double tokens = (double)(a.batch * a.seq), all = (double)m->run.micro_batch_tokens;
    if (windowed)
        snprintf(window, sizeof window, ", window %zu", kind->window);
    snprintf(of->text[i], sizeof *of->text,
             "attention twice and back, %zux%zu tokens%s, %zu/%zu heads of %zu, %s%s", a.batch,
             a.seq, m->run.documents ? " of documents" : "", a.heads, a.kv_heads, a.head_dim,
             name_of(of->dtype), window);
    of->list[of->count++] = (struct hst_operation){.amount = attention_flop(&a) * (all / tokens),
                                                   .times = layers,
                                                   .flop = true,
                                                   .enqueue = enqueue_attention,
                                                   .context = kind};
}

static void add_layer(struct llama_operations *of)
{
    const struct llama *m = of->model;
    const struct llama_config *c = &m->config;
    const uint64_t tokens = m->run.micro_batch_tokens, seq = m->run.seq_len;
    snprintf(of->text[of->count], sizeof *of->text,
             "a layer's norms, rotations, SwiGLU, sums, %zux%zu tokens, %u, %u, %u/%u %sheads of "
             "%u, %s",
             (size_t)(tokens / seq), (size_t)seq, c->hidden, c->intermediate, c->heads, c->kv_heads,
             c->qk_norm    ? "normed "
             : c->qkv_bias ? "biased "
                           : "",
             c->head_dim, name_of(of->dtype));
    of->list[of->count++] = (struct hst_operation){
        .amount = (double)tokens, .times = c->layers, .enqueue = enqueue_layer, .context = of};
}

static void add_head(struct llama_operations *of)
{
    const struct llama *m = of->model;
    const size_t tokens = (size_t)m->run.micro_batch_tokens, chunk = chunk_of(m);
    snprintf(of->text[of->count], sizeof *of->text, "softmax over %u, %zu tokens, %u, %s",
             m->config.vocab, chunk, m->config.hidden, name_of(of->dtype));
    of->list[of->count++] =
        (struct hst_operation){.amount = (double)chunk,
                               .times = (uint32_t)((tokens + chunk - 1) / chunk),
                               .enqueue = enqueue_head,
                               .context = of};
}

void llama_operations(const struct llama *m, enum hst_dtype dtype, struct llama_operations *of)
{
    uint32_t layers[2];
    *of = (struct llama_operations){.model = m, .dtype = dtype};
    llama_window_layers(m, layers);
    add_attention(of, 0, layers[0]);
    add_attention(of, 1, layers[1]);
    add_layer(of);
    add_head(of);
    for (uint32_t i = 0; i < of->count; i++)
        of->list[i].what = of->text[i];
}
