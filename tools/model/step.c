/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One training step, and one evaluation, which is its forward alone, seen from the model
 * (docs/one-training-step.md). All micro-batches pass through a unit before the next is touched;
 * what a micro-batch computes depends on no other.
 */
#include "model/layer/blocks.h"
#include "model/memory.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

/* All units of a step share this. */
struct step {
    struct llama *model;
    struct hst_engine *engine;
    struct hst_stream *stream;
    uint32_t micro_count;
    bool documents;   /* the batch has some */
    float grad_scale; /* of one target's loss */
    /* null: losses are looked for, not ids */
    struct llama_choice *choices;
    size_t choice_count;
};

/* An acquired unit. */
struct visit {
    const struct step *step;
    uint32_t unit, micro;
    struct hst_micro at; /* the micro-batch's place */
    const struct hst_unit_view *view;
};

typedef void micro_fn(struct visit *visit, struct pass *p);

static void *acquire(struct visit *v, struct pass *p, enum hst_act_kind kind, unsigned access)
{
    struct hst_act act = {0};
    if (p->rc == 0)
        p->rc = hst_act_acquire(v->step->engine, v->unit, v->micro, kind, access, v->step->stream,
                                &act);
    return act.data;
}

static void release(struct visit *v, struct pass *p, enum hst_act_kind kind)
{
    if (p->rc == 0)
        p->rc = hst_act_release(v->step->engine, v->unit, v->micro, kind);
}

static struct work_area area_of(const struct visit *v)
{
    return (struct work_area){.base = v->view->work.data};
}

static size_t first_token(const struct visit *v)
{
    return (size_t)v->at.first_token;
}

/* Each slice writes the tokens whose rows it has. */
static void embedding_micro_forward(struct visit *v, struct pass *p)
{
    void *x = acquire(v, p, HST_HIDDEN, p->first_row ? HST_READ | HST_WRITE : HST_WRITE);
    embedding_forward(p, p->model->device.inputs + first_token(v), x);
    release(v, p, HST_HIDDEN);
}

static void embedding_micro_backward(struct visit *v, struct pass *p)
{
    struct work_area area = area_of(v);
    struct embedding_work work;
    embedding_work_carve(p->model, &area, &work);
    p->op_work = work.op;
    void *dx = acquire(v, p, HST_HIDDEN_GRAD, HST_READ);
    embedding_backward(p, p->model->device.inputs + first_token(v), dx);
    release(v, p, HST_HIDDEN_GRAD);
}

/* The hidden state as it arrives at a layer, a half of one, or the norm; it is the unit's
 * checkpoint: kept, left, or taken from where it was kept. */
static void *acquire_input(struct visit *v, struct pass *p)
{
    unsigned access = v->view->checkpoint;
    size_t bytes = p->tokens * p->model->config.hidden * hst_dtype_bytes(p->dtype);
    bool begins = access == HST_READ; /* anew, where it was kept */
    void *x = acquire(v, p, HST_HIDDEN, begins ? HST_WRITE : HST_READ | HST_WRITE);
    if (access == 0)
        return x;
    void *checkpoint = acquire(v, p, HST_CHECKPOINT, access);
    if (access == HST_WRITE)
        pass_copy(p, checkpoint, x, bytes);
    else
        pass_copy(p, x, checkpoint, bytes);
    release(v, p, HST_CHECKPOINT);
    return x;
}

/* A backward has this of its micro-batch. */
struct gradient {
    const void *checkpoint;
    void *dx;
};

static struct gradient acquire_gradient(struct visit *v, struct pass *p)
{
    struct gradient g = {.checkpoint = acquire(v, p, HST_CHECKPOINT, HST_READ)};
    g.dx = acquire(v, p, HST_HIDDEN_GRAD, HST_READ | HST_WRITE);
    return g;
}

static void release_gradient(struct visit *v, struct pass *p)
{
    release(v, p, HST_HIDDEN_GRAD);
    release(v, p, HST_CHECKPOINT);
}

static struct layer_work layer_work_of(const struct visit *v, struct pass *p)
{
    struct work_area area = area_of(v);
    struct layer_work work;
    layer_work_carve(p->model, p->part, &area, &work);
    p->op_work = work.op;
    if (v->view->saved.data) {
        size_t each = v->view->saved.size_bytes / v->step->micro_count;
        area = (struct work_area){.base = (char *)v->view->saved.data + v->micro * each};
        layer_saved_carve(p->model, p->part, &area, &work);
    }
    return work;
}

/* In the forward, and where it is recomputed. */
static void layer_micro_forward(struct visit *v, struct pass *p)
{
    struct layer_work work = layer_work_of(v, p);
    layer_forward(p, &work, acquire_input(v, p));
    release(v, p, HST_HIDDEN);
}

static void layer_micro_backward(struct visit *v, struct pass *p)
{
    struct layer_work work = layer_work_of(v, p);
    struct gradient g = acquire_gradient(v, p);
    layer_backward(p, &work, g.checkpoint, g.dx);
    release_gradient(v, p);
}

static struct norm_work norm_work_of(const struct visit *v, struct pass *p)
{
    struct work_area area = area_of(v);
    struct norm_work work;
    norm_work_carve(p->model, &area, &work);
    p->op_work = work.op;
    return work;
}

static void norm_micro_forward(struct visit *v, struct pass *p)
{
    struct norm_work work = norm_work_of(v, p);
    norm_forward(p, &work, acquire_input(v, p));
    release(v, p, HST_HIDDEN);
}

static void norm_micro_backward(struct visit *v, struct pass *p)
{
    struct norm_work work = norm_work_of(v, p);
    struct gradient g = acquire_gradient(v, p);
    norm_backward(p, &work, g.checkpoint, g.dx);
    release_gradient(v, p);
}

static bool is_slice(const struct pass *p)
{
    return p->rows < p->model->config.vocab;
}

static struct head_io head_io_of(const struct visit *v, void *n, void *dn)
{
    const struct llama *model = v->step->model;
    return (struct head_io){.n = n,
                            .targets = model->device.targets + first_token(v),
                            .losses = model->device.losses + first_token(v),
                            .grad_scale = v->step->grad_scale,
                            .dn = dn};
}

static struct head_work head_work_of(const struct visit *v, struct pass *p)
{
    struct work_area area = area_of(v);
    struct head_work work;
    if (is_slice(p)) {
        head_slice_work_carve(p->model, &area, &work);
        head_kept_carve(p->model, v->view->kept, first_token(v), &work);
    } else {
        head_work_carve(p->model, &area, &work);
    }
    p->op_work = work.op;
    return work;
}

/* Nobody looks for losses then: logits go through their room. */
static struct head_choices choices_of(const struct visit *v)
{
    const struct llama *model = v->step->model;
    return (struct head_choices){.list = v->step->choices,
                                 .count = v->step->choice_count,
                                 .first_token = first_token(v),
                                 .room = llama_memory_loss_count(model),
                                 .device = model->device.losses,
                                 .host = model->host.losses};
}

/* It is for slices and evaluations: in a step the head as a whole has no forward. */
static void head_micro_forward(struct visit *v, struct pass *p)
{
    struct head_work work = head_work_of(v, p);
    void *n = acquire(v, p, HST_HIDDEN, HST_READ);
    struct head_io io = head_io_of(v, n, NULL);
    const struct head_choices choices = choices_of(v);
    io.choices = &choices;
    if (choices.list)
        head_choose(p, &work, &io);
    else
        (is_slice(p) ? head_slice_forward : head_evaluate)(p, &work, &io);
    release(v, p, HST_HIDDEN);
}

static void head_micro_backward(struct visit *v, struct pass *p)
{
    struct head_work work = head_work_of(v, p);
    bool first = p->first_row + p->rows == p->model->config.vocab;
    void *n = acquire(v, p, HST_HIDDEN, HST_READ);
    const bool wanted = !v->view->first_backward;
    void *dn =
        wanted ? acquire(v, p, HST_HIDDEN_GRAD, first ? HST_WRITE : HST_READ | HST_WRITE) : NULL;
    struct head_io io = head_io_of(v, n, dn);
    if (is_slice(p))
        head_slice_backward(p, &work, &io);
    else
        head_loss(p, &work, &io);
    if (wanted)
        release(v, p, HST_HIDDEN_GRAD);
    release(v, p, HST_HIDDEN);
}

static struct unit_place place_of(const struct llama *model, uint32_t unit)
{
    return llama_unit_place(model, unit - model->first_unit);
}

static struct pass pass_of(const struct visit *v)
{
    const struct step *step = v->step;
    const struct llama *model = step->model;
    struct pass p = {
        .model = model,
        .device = hst_engine_device(step->engine),
        .stream = step->stream,
        .dtype = model->dtype,
        .param = v->view->param,
        .first_row = v->view->first_row,
        .rows = v->view->rows,
        .tokens = (size_t)v->at.tokens,
        .sequences = (size_t)(v->at.tokens / model->run.seq_len),
    };
    const struct unit_place at = place_of(model, v->unit);
    p.part = at.part;
    if (at.kind == UNIT_LAYER)
        p.window = llama_layer_window(model, at.layer);
    if (step->documents) {
        p.first = model->device.first + first_token(v);
        p.position = model->device.position + first_token(v);
    }
    return p;
}

/* One visit, micro-batch after micro-batch. */
static int visit_unit(const struct step *step, const struct hst_visit *visit, micro_fn *run)
{
    struct visit v = {.step = step, .unit = visit->unit};
    int rc = hst_unit_acquire(step->engine, v.unit, visit->sweep, step->stream, &v.view);
    for (v.micro = 0; rc == 0 && v.micro < step->micro_count; v.micro++) {
        rc = hst_engine_micro(step->engine, v.micro, &v.at);
        if (rc)
            break;
        struct pass p = pass_of(&v);
        run(&v, &p);
        rc = p.rc;
    }
    if (rc == 0 && visit->sweep == HST_BACKWARD)
        rc = hst_unit_grad_ready(step->engine, v.unit);
    if (rc == 0)
        rc = hst_unit_release(step->engine, v.unit);
    return rc;
}

static micro_fn *micro_of(const struct step *step, const struct hst_visit *visit)
{
    static const struct {
        micro_fn *forward, *backward;
    } units[UNIT_KIND_COUNT] = {
        [UNIT_EMBEDDING] = {embedding_micro_forward, embedding_micro_backward},
        [UNIT_LAYER] = {layer_micro_forward, layer_micro_backward},
        [UNIT_NORM] = {norm_micro_forward, norm_micro_backward},
        [UNIT_HEAD] = {head_micro_forward, head_micro_backward},
    };
    enum unit_kind kind = place_of(step->model, visit->unit).kind;
    return visit->sweep == HST_BACKWARD ? units[kind].backward : units[kind].forward;
}

/* Which layers are recomputed is the engine's to say. */
static int sweep_units(const struct step *step)
{
    const struct hst_visit *visits = NULL;
    size_t count = 0;
    int rc = hst_engine_visits(step->engine, &visits, &count);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = visit_unit(step, &visits[i], micro_of(step, &visits[i]));
    return rc;
}

/* Those of the first `tokens` of this rank's part, which are on the host: each micro-batch's are
 * added in order, to a value that ranks and ways cannot change. */
static int add_losses(const struct step *step, uint64_t tokens)
{
    struct hst_micro at;
    int rc = 0;
    for (uint32_t micro = 0; rc == 0 && micro < step->micro_count; micro++) {
        rc = hst_engine_micro(step->engine, micro, &at);
        double sum = 0.0;
        for (uint64_t i = at.first_token; rc == 0 && i < at.first_token + at.tokens; i++)
            sum += i < tokens ? (double)step->model->host.losses[i] : 0.0;
        rc = rc ? rc : hst_sum_add(step->engine, 0, sum);
    }
    return rc;
}

static uint64_t count_targets(const uint32_t *targets, uint64_t count)
{
    uint64_t found = 0;
    for (uint64_t i = 0; i < count; i++)
        found += targets[i] != HST_NO_TARGET;
    return found;
}

static bool batch_ok(const struct llama_batch *batch, bool documents)
{
    return (batch->first != NULL) == documents && (batch->position != NULL) == documents;
}

static uint64_t targets_of(const struct llama_batch *batch, uint64_t tokens)
{
    return batch->target_count ? batch->target_count : count_targets(batch->targets, tokens);
}

/* A step's ids, and where they stand, to the device. */
static int bring(const struct step *step, const struct llama_batch *batch)
{
    int rc = step->model->device.cos ? 0 : llama_memory_take(step->model, step->engine);
    return rc || step->micro_count == 0 ? rc : llama_memory_batch(step->model, step->stream, batch);
}

int llama_step_compute(struct llama *model, struct hst_engine *engine, const struct hst_step_in *in,
                       const struct llama_batch *batch)
{
    struct hst_step begun = {0};
    const uint64_t tokens = llama_part_tokens(model), targets = targets_of(batch, tokens);
    if (targets == 0 || !batch_ok(batch, model->run.documents))
        return -EINVAL;
    int rc = hst_step_begin(engine, in, &begun);
    if (rc < 0)
        return rc;
    struct step step = {
        .model = model,
        .engine = engine,
        .stream = hst_engine_stream(engine),
        .micro_count = begun.micro_count,
        .documents = batch->first,
        .grad_scale = (float)((double)begun.loss_scale / (double)targets),
    };
    model->target_count = targets;
    rc = bring(&step, batch);
    if (rc == 0)
        rc = sweep_units(&step);
    if (rc == 0)
        rc = llama_memory_losses(model, step.stream);
    if (rc == 0)
        rc = hst_step_computed(engine);
    if (rc == 0)
        rc = hst_stream_sync(step.stream); /* behind the units are the losses alone */
    return rc ? rc : add_losses(&step, tokens);
}

int llama_step_end(const struct llama *model, struct hst_engine *engine, double *loss,
                   struct hst_step_stats *stats)
{
    struct hst_step_stats ended = {0};
    int rc = hst_step_end(engine, &ended);
    if (rc)
        return rc;
    *loss = ended.sums[0] / (double)model->target_count;
    *stats = ended;
    return 0;
}

int llama_step(struct llama *model, struct hst_engine *engine, const struct hst_step_in *in,
               const struct llama_batch *batch, double *loss, struct hst_step_stats *stats)
{
    int rc = llama_step_compute(model, engine, in, batch);
    return rc ? rc : llama_step_end(model, engine, loss, stats);
}

/* ---- an evaluation ---- */

/* The slices of a unit: each has one backward in a step, or where its unit has none one forward. */
static size_t slices_of(const struct hst_visit *visits, size_t count, uint32_t unit)
{
    size_t backwards = 0, forwards = 0;
    for (size_t i = 0; i < count; i++) {
        backwards += visits[i].unit == unit && visits[i].sweep == HST_BACKWARD;
        forwards += visits[i].unit == unit && visits[i].sweep == HST_FORWARD;
    }
    return backwards > 0 ? backwards : forwards;
}

/* All units in the order of their first visits, each as often as it has slices. */
static int evaluate_units(const struct step *step)
{
    const struct llama *model = step->model;
    const struct hst_visit *visits = NULL;
    const uint32_t units = llama_unit_count(model);
    size_t count = 0;
    int rc = hst_engine_visits(step->engine, &visits, &count);
    for (uint32_t u = model->first_unit; rc == 0 && u < model->first_unit + units; u++) {
        const struct hst_visit visit = {u, HST_EVAL};
        const size_t slices = rc == 0 ? slices_of(visits, count, u) : 0;
        for (size_t i = 0; rc == 0 && i < slices; i++)
            rc = visit_unit(step, &visit, micro_of(step, &visit));
    }
    return rc;
}

/* Micro-batches that have some of the first `tokens` of this rank's part. */
static uint32_t count_micros(const struct hst_engine *engine, uint64_t tokens)
{
    struct hst_micro at;
    uint32_t count = 0;
    while (hst_engine_micro(engine, count, &at) == 0 && at.first_token < tokens)
        count++;
    return count;
}

/* Over the first `tokens` of a batch. */
static struct step evaluating_step(struct llama *model, struct hst_engine *engine,
                                   const struct llama_batch *batch, uint64_t tokens)
{
    return (struct step){
        .model = model,
        .engine = engine,
        .stream = hst_engine_stream(engine),
        .micro_count = count_micros(engine, tokens),
        .documents = batch->first,
    };
}

int llama_evaluate(struct llama *model, struct hst_engine *engine, const struct llama_batch *batch,
                   uint64_t tokens, struct llama_evaluation *found)
{
    const struct step step = evaluating_step(model, engine, batch, tokens);
    double sums[HST_SUMS];
    assert(tokens <= llama_part_tokens(model) && tokens % model->run.seq_len == 0);
    if (!batch_ok(batch, model->run.documents != model->run.evaluates_other))
        return -EINVAL;
    int rc = bring(&step, batch);
    rc = rc ? rc : evaluate_units(&step);
    rc = rc ? rc : llama_memory_losses(model, step.stream);
    rc = rc ? rc : hst_stream_sync(step.stream);
    rc = rc ? rc : add_losses(&step, tokens);
    rc = rc ? rc : hst_sum_agree(engine, sums);
    if (rc == 0)
        *found = (struct llama_evaluation){targets_of(batch, tokens), sums[0], sums[1]};
    return rc;
}

int llama_choose(struct llama *model, struct hst_engine *engine, const struct llama_batch *batch,
                 struct llama_choice *choices, size_t count)
{
    uint64_t tokens = 0;
    for (size_t i = 0; i < count; i++) {
        tokens = choices[i].token >= tokens ? choices[i].token + 1 : tokens;
        choices[i] = (struct llama_choice){choices[i].token, 0, -INFINITY};
    }
    struct step step = evaluating_step(model, engine, batch, tokens);
    step.choices = choices;
    step.choice_count = count;
    assert(tokens <= llama_part_tokens(model));
    if (!batch_ok(batch, model->run.documents))
        return -EINVAL;
    int rc = bring(&step, batch);
    rc = rc ? rc : evaluate_units(&step);
    return rc ? rc : hst_stream_sync(step.stream);
}
