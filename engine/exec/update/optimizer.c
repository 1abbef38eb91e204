/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic at the end of a step, spread over the workers. Pieces are cut at fixed places that
 * depend on the layout alone, so no result depends on how many workers there are.
 */
#include "exec/update/optimizer.h"

#include "exec/measure.h"
#include "exec/moves.h"
#include "exec/update/tile.h"
#include "exec/update/verdict.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>

#define NORM_PIECE_BLOCKS                                                                          \
    32u /* 131,072 elements: long enough to hide the hand-out, short enough to share */
#define UPDATE_PIECE 16384u /* elements; a multiple of each optimizer's granularity */

/* ---- norm ---- */

struct norm_job {
    const struct executor *exec;
    const unsigned char *grads; /* of one unit */
    uint64_t elements;
    double *partial;
};

static void norm_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct norm_job *job = arg;
    const struct executor *exec = job->exec;
    uint64_t start = (uint64_t)index * NORM_PIECE_BLOCKS * HST_NORM_BLOCK;
    uint64_t left = job->elements - start;
    uint64_t n =
        left < NORM_PIECE_BLOCKS * HST_NORM_BLOCK ? left : NORM_PIECE_BLOCKS * HST_NORM_BLOCK;
    const void *grads = job->grads + start * executor_element_bytes(exec);
    double *partial = job->partial + start / HST_NORM_BLOCK;
    exec->in.adam->norm2[exec->in.kernel.optimizer->host.grads](grads, n, partial);
}

int optimizer_norm(struct executor *exec, struct scheduled at)
{
    const struct node *node = program_node(exec, at);
    uint32_t unit = node->unit;
    const struct layout_unit *u = &exec->in.layout->units[unit];
    const uint64_t piece = (uint64_t)NORM_PIECE_BLOCKS * HST_NORM_BLOCK;
    double *partials = moves_host_partials(exec, unit) + u->shard.first / HST_NORM_BLOCK;
    if (!executor_norms_behind_backward(exec)) {
        const unsigned char *grads = moves_work(exec, at, EXTENT_GRADS, 0);
        struct norm_job job = {exec, grads, u->shard.elements, partials};
        measure_host(exec, node,
                     workers_time(exec->in.workers, 0, (job.elements + piece - 1) / piece,
                                  norm_piece, &job));
    }
    if (exec->in.plan_in->deferred || exec->in.comm) /* then all ranks look at the whole of it */
        return 0;
    return optimizer_check_norm(exec,
                                sqrt(hst_norm2_sum(partials, u->shard.elements / HST_NORM_BLOCK)));
}

/* Partials are added without an error, so it is nobody's business in which order: many pieces at
 * once on one rank, or on many ranks. */
enum { SUM_PIECES = 16 };

struct sum_job {
    const double *partials;
    uint64_t count;
    struct exact_sum sums[SUM_PIECES];
};

static void sum_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    struct sum_job *job = arg;
    for (uint64_t i = job->count * index / SUM_PIECES; i < job->count * (index + 1) / SUM_PIECES;
         i++)
        exact_add(&job->sums[index], job->partials[i]);
}

void optimizer_sum_norm(struct executor *exec, struct exact_sum *sum)
{
    struct sum_job job = {
        .partials =
            (const double *)(const void *)(exec->in.host_arena + exec->in.placement->host_partials),
        .count = exec->in.layout->elements / HST_NORM_BLOCK};
    workers_time(exec->in.workers, 0, SUM_PIECES, sum_piece, &job);
    for (int i = 0; i < SUM_PIECES; i++)
        exact_join(sum, &job.sums[i]);
}

/* Gradients are multiplied with this. Errors: -EOVERFLOW they cannot be updated with. */
static int grad_scale(const struct executor *exec, double stored_norm, float *scale)
{
    const struct hst_grad_scale_in in = {.norm = stored_norm,
                                         .factor = 1 / (double)exec->in.standing->scale.value,
                                         .max_norm = exec->in.config->clip};
    return hst_grad_scale(&in, scale);
}

static bool overflows(const struct executor *exec, double stored_norm)
{
    float unused;
    return grad_scale(exec, stored_norm, &unused) == -EOVERFLOW;
}

bool optimizer_skips(const struct executor *exec, double stored_norm)
{
    return overflows(exec, stored_norm) &&
           (exec->in.config->skip_nonfinite ||
            exec->in.config->loss_scaling == HST_LOSS_SCALING_STATIC ||
            exec->in.standing->scale.value > (float)LOSS_SCALE_LEAST);
}

int optimizer_check_norm(struct executor *exec, double stored_norm)
{
    char cause[96] = "the loss diverged or the data or weights hold a value that is not finite";
    if (!overflows(exec, stored_norm))
        return 0;
    if (isfinite(stored_norm))
        snprintf(cause, sizeof cause, "%s from %.4g on", exec->in.kernel.optimizer->too_large,
                 HST_GRAD_NORM_MOST);
    return report_fail(
        exec->in.report, HST_E_NONFINITE, -EOVERFLOW,
        "the gradient norm of step %llu is %g%s: %s; %s. Fix: lower --lr or raise --warmup; "
        "--skip-nonfinite leaves such steps out",
        (unsigned long long)exec->in.standing->number + 1,
        stored_norm / (double)exec->in.standing->scale.value,
        exec->in.config->precision == HST_PRECISION_FP16 ? " at a loss scale of 1" : "", cause,
        exec->in.plan_in->deferred ? "nothing was updated"
                                   : "with clipping off, units behind it in the model were updated "
                                     "already");
}

/* ---- update ---- */

struct update_job {
    const struct executor *exec;
    const struct optimizer_coefs *coefs;
    const struct tile_job *jobs;
    size_t pieces_per_tile;
};

/* The parts of parameters that lie in [at, at + n) of a tile. */
static void update_range(const struct update_job *update, const struct tile_job *job, uint64_t at,
                         uint64_t n, const struct layout_param *param)
{
    const struct optimizer_kernel *kernel = &update->exec->in.kernel;
    const struct optimizer *optimizer = kernel->optimizer;
    const struct optimizer_coef *coef = optimizer_coef(update->coefs, param->group, param->decay);
    assert(at % optimizer->granularity == 0); /* parameters and pieces begin at multiples of it */
    const struct optimizer_arrays from = optimizer_arrays_at(optimizer, &job->arrays, at);
    const struct optimizer_arrays into = optimizer_arrays_at(optimizer, &job->into, at);
    int rc = optimizer_run_into(kernel, coef, &from, &into, n);
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
    const struct layout *layout = update->exec->in.layout;
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
        update_range(update, job, from - job->range.offset, to - from, param);
    }
}

int optimizer_coefs(const struct executor *exec, double stored_norm, struct optimizer_coefs *coefs)
{
    struct optimizer_step step = {.lr = exec->in.standing->lr, .t = exec->in.standing->updates + 1};
    int rc = grad_scale(exec, stored_norm, &step.grad_scale);
    return rc ? rc : optimizer_coefs_init(exec->in.kernel.optimizer, exec->in.groups, &step, coefs);
}

void optimizer_update(struct executor *exec, struct scheduled at)
{
    const struct node *node = program_node(exec, at);
    struct tile_job jobs[UPDATE_TILES_MOST];
    bool early = !node_is_late(node);
    assert(node->tile_count <= UPDATE_TILES_MOST);
    assert(UPDATE_PIECE % exec->in.kernel.optimizer->granularity == 0);
    for (uint32_t i = 0; i < node->tile_count; i++)
        jobs[i] = update_tile_job(exec, at, node->tile + i);
    struct update_job update = {
        .exec = exec,
        .coefs = early ? &exec->verdict.early : &exec->verdict.coefs,
        .jobs = jobs,
        .pieces_per_tile = (exec->in.layout->tile_elements + UPDATE_PIECE - 1) / UPDATE_PIECE,
    };
    if (early)
        verdict_early_begins(exec);
    measure_host(exec, node,
                 workers_time(exec->in.workers,
                              exec->in.placement->update_threads[exec->verdict.optimistic],
                              node->tile_count * update.pieces_per_tile, update_piece, &update));
}
