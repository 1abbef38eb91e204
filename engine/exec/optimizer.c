/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic at the end of a step, spread over the workers. Pieces are cut at fixed places that
 * depend on the layout alone, so no result depends on how many workers there are.
 */
#include "exec/optimizer.h"

#include "exec/tile_stream.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#define NORM_PIECE_BLOCKS                                                                          \
    32u /* 131,072 elements: long enough to hide the hand-out, short enough to share */
#define UPDATE_PIECE 16384u /* elements; divides no parameter, the update is element by element */

/* ---- norm ---- */

struct norm_job {
    const struct hst_engine *engine;
    const unsigned char *grads; /* of one unit */
    uint64_t elements;
    double *partial;
};

static void norm_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct norm_job *job = arg;
    const struct hst_engine *engine = job->engine;
    uint64_t start = (uint64_t)index * NORM_PIECE_BLOCKS * HST_NORM_BLOCK;
    uint64_t left = job->elements - start;
    uint64_t n =
        left < NORM_PIECE_BLOCKS * HST_NORM_BLOCK ? left : NORM_PIECE_BLOCKS * HST_NORM_BLOCK;
    const void *grads = job->grads + start * engine_element_bytes(engine);
    double *partial = job->partial + start / HST_NORM_BLOCK;
    engine->adam->norm2[engine->update->kind.grads](grads, n, partial);
}

double optimizer_grad_norm(struct hst_engine *engine)
{
    const struct placement *p = &engine->placement;
    double *partials = (double *)(void *)(engine->arena + p->norm_partials);
    const uint64_t piece = (uint64_t)NORM_PIECE_BLOCKS * HST_NORM_BLOCK;
    size_t count = 0;
    for (uint32_t u = 0; u < engine->layout.unit_count; u++) {
        struct norm_job job = {engine, engine->arena + p->units[u].grads,
                               engine->layout.units[u].elements, partials + count};
        workers_run(engine->workers, (job.elements + piece - 1) / piece, norm_piece, &job);
        count += job.elements / HST_NORM_BLOCK;
    }
    return sqrt(hst_norm2_sum(partials, count));
}

/* ---- update ---- */

struct update_job {
    struct hst_engine *engine;
    struct optimizer_coefs coefs;
    const struct tile_job *jobs;
    size_t pieces_per_tile;
};

static void update_range(const struct update_job *update, const struct tile_job *job, uint64_t at,
                         uint64_t n, bool decay)
{
    const struct hst_update *kind = update->engine->update;
    const struct hst_adam_coef *coef = decay ? &update->coefs.decayed : &update->coefs.plain;
    const struct hst_update_arrays tile = {.weights = job->weights,
                                           .master = job->remainder,
                                           .m = job->m,
                                           .v = job->v,
                                           .grads = job->grad};
    const struct hst_update_arrays range = hst_update_arrays_at(kind, &tile, at);
    int rc = hst_update_run(kind, coef, &range, n);
    assert(rc >= 0); /* the layout aligns the arrays and keeps them apart */
    (void)rc;
}

/* The parts of parameters that lie in [start, end) of the unit's row; the padding between them is
 * left alone. */
static void update_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct update_job *update = arg;
    const struct tile_job *job = &update->jobs[index / update->pieces_per_tile];
    uint64_t offset = index % update->pieces_per_tile * UPDATE_PIECE;
    if (offset >= job->range.elements)
        return;
    uint64_t left = job->range.elements - offset;
    uint64_t start = job->range.offset + offset;
    uint64_t end = start + (left < UPDATE_PIECE ? left : UPDATE_PIECE);
    const struct layout *layout = &update->engine->layout;
    const struct layout_unit *unit = &layout->units[job->range.unit];
    struct tile_range piece = {.unit = job->range.unit, .offset = start};
    uint32_t stop = unit->first_param + unit->param_count;
    for (uint32_t i = layout_first_param_in(layout, piece); i < stop; i++) {
        const struct layout_param *param = &layout->params[i];
        if (param->owner != i)
            continue;
        if (param->offset >= end)
            return;
        uint64_t from = param->offset > start ? param->offset : start;
        uint64_t to = param->offset + param->count < end ? param->offset + param->count : end;
        update_range(update, job, from - job->range.offset, to - from, param->decay);
    }
}

static int update_visit(struct hst_engine *engine, void *context, const struct tile_job *jobs,
                        uint32_t count)
{
    struct update_job *update = context;
    update->jobs = jobs;
    workers_run(engine->workers, count * update->pieces_per_tile, update_piece, update);
    return 0;
}

int optimizer_coefs(const struct hst_engine *engine, double grad_norm,
                    struct optimizer_coefs *coefs)
{
    struct hst_adam_hyper hyper = {
        .lr = engine->step.lr,
        .beta1 = engine->config.beta1,
        .beta2 = engine->config.beta2,
        .eps = engine->config.eps,
        .weight_decay = engine->config.weight_decay,
    };
    const struct hst_grad_scale_in in = {
        .norm = grad_norm, .factor = 1, .max_norm = engine->config.clip};
    uint64_t t = engine->step.number + 1;
    float scale;
    int rc = hst_grad_scale(&in, &scale);
    rc = rc ? rc : hst_adam_coef_init(&hyper, t, scale, &coefs->decayed);
    hyper.weight_decay = 0;
    return rc ? rc : hst_adam_coef_init(&hyper, t, scale, &coefs->plain);
}

int optimizer_update(struct hst_engine *engine, double grad_norm)
{
    struct update_job update = {
        .engine = engine,
        .pieces_per_tile = (engine->layout.tile_elements + UPDATE_PIECE - 1) / UPDATE_PIECE,
    };
    int rc = optimizer_coefs(engine, grad_norm, &update.coefs);
    if (rc)
        return rc;
    unsigned all = TILE_READ_WEIGHTS | TILE_WRITE_WEIGHTS | TILE_READ_STATES | TILE_WRITE_STATES;
    return tile_stream(engine, all, update_visit, &update);
}
