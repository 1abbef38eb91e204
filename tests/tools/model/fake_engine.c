/* SPDX-License-Identifier: Apache-2.0 */
/* The fake engine's steps. The optimizer is AdamW in f32 as <hoistway/cpu_adam.h> describes it, on
 * f32 masters. */
#include "fake_state.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a step ---------------------------------------------------------------------------------- */

static void poison(char *memory, size_t size)
{
    memset(memory, 0xff, size);
    memset(memory + size, 0x5a, CANARY_BYTES);
}

int hst_step_begin(struct hst_engine *e, const struct hst_step_in *in, struct hst_step *step)
{
    if (fake_enter(e) < 0)
        return -EIO;
    assert_false(e->in_step);
    assert_int_equal(in->size, sizeof *in);
    e->in_step = true;
    e->next_visit = 0;
    e->lr = in->lr;
    for (uint32_t u = 0; u < e->unit_count; u++) {
        if (e->units[u].kept)
            memset(e->units[u].kept, 0xff, e->units[u].kept_bytes);
        if (e->units[u].saved)
            poison(e->units[u].saved, fake_saved_bytes(e, u));
    }
    for (uint32_t i = 0; i < e->micro_count; i++)
        e->carry[i].written = e->hidden_grad[i].written = false;
    for (uint32_t u = 0; u < e->unit_count; u++)
        for (uint32_t i = 0; e->units[u].checkpoints && i < e->micro_count; i++)
            e->units[u].checkpoints[i].written = false;
    for (uint32_t u = 0; u < e->unit_count; u++)
        for (uint32_t i = 0; i < e->units[u].param_count; i++)
            if (!e->units[u].params[i].owner)
                memset(e->units[u].params[i].grad, 0, e->units[u].params[i].count * sizeof(float));
    *step = (struct hst_step){++e->step, e->micro_count, 1.0f};
    return 0;
}

/* Each unit's work area ends where its own work_bytes say: a neighbour's greater one must not
 * hide an overrun. */
static void poison_work(struct hst_engine *e)
{
    poison(e->work, fake_work_bytes(&e->units[e->unit]));
}

static void check_canary(const char *canary, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(canary[i], 0x5a);
}

static void check_work(const struct hst_engine *e)
{
    check_canary(e->work + fake_work_bytes(&e->units[e->unit]), CANARY_BYTES);
    if (e->view.saved.data)
        check_canary(e->units[e->unit].saved + fake_saved_bytes(e, e->unit), CANARY_BYTES);
    if (e->view.kept.data)
        check_canary((char *)e->view.kept.data + e->view.kept.size_bytes,
                     fake_kept_canary(&e->units[e->unit], &e->part));
}

static unsigned checkpoint_access(const struct fake_unit *u, enum hst_sweep sweep)
{
    if (sweep == HST_EVAL)
        return 0;
    if (!u->checkpoints || sweep == HST_BACKWARD)
        return u->checkpoints ? HST_READ : 0;
    if (sweep == HST_RECOMPUTE)
        return u->place > 0 ? HST_WRITE : HST_READ;
    return u->place > 0 ? 0 : HST_WRITE;
}

/* The row at which the next visit begins. */
static uint64_t next_of_step(struct hst_engine *e, uint32_t unit, enum hst_sweep sweep)
{
    assert_true(e->in_step && e->next_visit < e->visit_count);
    const struct fake_visit *next = &e->visits[e->next_visit++];
    assert_int_equal(unit, next->visit.unit);
    assert_int_equal(sweep, next->visit.sweep);
    return next->first_row;
}

/* Units rise, and each is visited slice after slice until it is whole. */
static uint64_t next_of_evaluation(struct hst_engine *e, uint32_t unit)
{
    const struct fake_unit *u = &e->units[unit];
    const uint64_t first = e->evaluated_rows;
    assert_false(e->in_step);
    assert_int_equal(unit, e->evaluated_unit);
    for (uint32_t i = 0; unit == 0 && first == 0 && i < e->micro_count; i++)
        e->carry[i].written = false;
    if (first == 0 && u->kept)
        memset(u->kept, 0xff, u->kept_bytes);
    e->evaluated_rows = fake_is_cut(u) ? first + u->slice_rows : u->rows;
    if (e->evaluated_rows < u->rows)
        return first;
    e->evaluated_rows = 0;
    e->evaluated_unit = (unit + 1) % e->unit_count;
    return first;
}

/* ---- fresh gradients: NaN, so that what is not written shows -------------------------------- */

enum { NO_MICRO = UINT32_MAX, SEVERAL_MICROS = UINT32_MAX - 1 };

/* Elements of the parameter that the view has, 0 where its gradient is never fresh. */
static size_t fresh_count(const struct hst_engine *e, uint32_t i)
{
    const struct fake_unit *u = &e->units[e->unit];
    const struct fake_param *p = &u->params[i];
    if (!u->sums || p->owner)
        return 0;
    return u->rows ? e->view.rows * p->dims[1] : p->count;
}

static float *sums_of(const struct fake_unit *u, uint32_t i)
{
    return u->sums + (u->views[i].grad - u->grads);
}

static void begin_way(struct hst_engine *e, uint32_t way)
{
    struct fake_unit *u = &e->units[e->unit];
    e->way = way;
    e->first_micro = NO_MICRO;
    for (uint32_t i = 0; i < u->param_count; i++) {
        const size_t count = fresh_count(e, i);
        if (count > 0)
            memset(u->views[i].grad, 0xff, count * sizeof(float));
    }
}

static void begin_ways(struct hst_engine *e)
{
    struct fake_unit *u = &e->units[e->unit];
    begin_way(e, 0);
    for (uint32_t i = 0; i < u->param_count; i++)
        if (fresh_count(e, i) > 0)
            memset(sums_of(u, i), 0, fresh_count(e, i) * sizeof(float));
}

static void end_way(struct hst_engine *e)
{
    struct fake_unit *u = &e->units[e->unit];
    for (uint32_t i = 0; i < u->param_count; i++) {
        float *sums = fresh_count(e, i) > 0 ? sums_of(u, i) : NULL;
        assert_true(!sums || e->first_micro != NO_MICRO);
        for (size_t k = 0; k < fresh_count(e, i); k++)
            sums[k] += u->views[i].grad[k];
    }
}

static void end_ways(struct hst_engine *e)
{
    struct fake_unit *u = &e->units[e->unit];
    end_way(e);
    for (uint32_t i = 0; i < u->param_count; i++)
        if (fresh_count(e, i) > 0)
            memcpy(u->views[i].grad, sums_of(u, i), fresh_count(e, i) * sizeof(float));
}

static void reach_micro(struct hst_engine *e, uint32_t micro)
{
    struct fake_unit *u = &e->units[e->unit];
    if (fake_way_of(e, micro) != e->way) {
        end_way(e);
        begin_way(e, fake_way_of(e, micro));
    }
    if (e->first_micro == NO_MICRO)
        e->first_micro = micro;
    else if (e->first_micro != micro)
        e->first_micro = SEVERAL_MICROS;
    for (uint32_t i = 0; i < u->param_count; i++)
        u->views[i].fresh = fresh_count(e, i) > 0 && e->first_micro == micro;
}

int hst_unit_acquire(struct hst_engine *e, uint32_t unit, enum hst_sweep sweep,
                     struct hst_stream *stream, const struct hst_unit_view **view)
{
    if (fake_enter(e) < 0)
        return -EIO;
    assert_true(!e->acquired && unit < e->unit_count && stream == e->stream);
    const bool evaluates = sweep == HST_EVAL;
    const uint64_t first_row =
        evaluates ? next_of_evaluation(e, unit) : next_of_step(e, unit, sweep);
    e->acquired = true;
    e->grad_ready = false;
    e->unit = unit;
    e->sweep = sweep;
    struct fake_unit *u = &e->units[unit];
    for (uint32_t i = 0; i < u->param_count; i++) {
        struct fake_param *p = u->params[i].owner ? u->params[i].owner : &u->params[i];
        size_t row_elements = p->dim_count > 1 ? p->dims[1] : 1;
        size_t at = first_row * row_elements;
        u->views[i].data = (char *)p->data + at * hst_dtype_bytes(e->dtype);
        u->views[i].grad = sweep == HST_BACKWARD ? p->grad + at : NULL;
    }
    poison_work(e);
    if (e->forgets && u->saved && sweep == HST_BACKWARD)
        memset(u->saved, 0, fake_saved_bytes(e, unit));
    uint64_t left = u->rows - first_row;
    e->view = (struct hst_unit_view){.param = u->views,
                                     .param_count = u->param_count,
                                     .work = {e->work, fake_work_bytes(u)},
                                     .checkpoint = checkpoint_access(u, sweep),
                                     .first_row = first_row,
                                     .rows = fake_is_cut(u) && left > u->slice_rows ? u->slice_rows
                                                                                    : left,
                                     .kept = {u->kept, u->kept_bytes}};
    if (u->saved && !evaluates)
        e->view.saved = (struct hst_work){u->saved, fake_saved_bytes(e, unit)};
    if (sweep == HST_BACKWARD)
        begin_ways(e);
    *view = &e->view;
    return 0;
}

int hst_unit_release(struct hst_engine *e, uint32_t unit)
{
    if (fake_enter(e) < 0)
        return -EIO;
    assert_true(e->acquired && e->unit == unit && e->held == 0);
    assert_true(e->grad_ready == (e->sweep == HST_BACKWARD));
    int rc = hst_stream_sync(e->stream);
    check_work(e);
    e->acquired = false;
    return rc;
}

int hst_unit_grad_ready(struct hst_engine *e, uint32_t unit)
{
    if (fake_enter(e) < 0)
        return -EIO;
    assert_true(e->acquired && e->unit == unit && e->sweep == HST_BACKWARD && !e->grad_ready);
    int rc = hst_stream_sync(e->stream);
    end_ways(e);
    e->grad_ready = true;
    return rc;
}

static struct fake_act *act_of(struct hst_engine *e, uint32_t unit, uint32_t micro,
                               enum hst_act_kind kind, uint64_t *bytes_per_token)
{
    assert_true(e->acquired && e->unit == unit && micro < e->micro_count);
    *bytes_per_token = e->hidden_bytes_per_token;
    if (kind == HST_HIDDEN)
        return &e->carry[micro];
    if (kind == HST_HIDDEN_GRAD)
        return &e->hidden_grad[micro];
    *bytes_per_token = e->units[unit].act_bytes_per_token;
    assert_true(*bytes_per_token > 0);
    if (e->units[unit].is_last && e->sweep == HST_BACKWARD)
        return &e->carry[micro];
    return &e->units[unit].checkpoints[micro];
}

int hst_act_acquire(struct hst_engine *e, uint32_t unit, uint32_t micro, enum hst_act_kind kind,
                    unsigned access, struct hst_stream *stream, struct hst_act *act)
{
    if (fake_enter(e) < 0)
        return -EIO;
    uint64_t bytes_per_token;
    struct fake_act *a = act_of(e, unit, micro, kind, &bytes_per_token);
    assert_true(!a->held && stream == e->stream && access != 0);
    assert_true(kind != HST_HIDDEN_GRAD || e->sweep == HST_BACKWARD);
    assert_true(kind != HST_CHECKPOINT || access == e->view.checkpoint);
    size_t bytes = fake_micro_tokens(e, micro) * bytes_per_token;
    int rc = hst_stream_sync(e->stream);
    if (rc < 0)
        return rc;
    if (e->held == 0)
        poison_work(e);
    if (e->sweep == HST_BACKWARD)
        reach_micro(e, micro);
    if (access & HST_READ)
        assert_true(a->written);
    else
        memset(a->data, 0xff, bytes);
    memcpy(a->snapshot, a->data, bytes);
    a->written |= (access & HST_WRITE) != 0;
    a->read_only = !(access & HST_WRITE);
    a->held = true;
    e->held++;
    *act = (struct hst_act){a->data, bytes, fake_micro_tokens(e, micro)};
    return 0;
}

int hst_act_release(struct hst_engine *e, uint32_t unit, uint32_t micro, enum hst_act_kind kind)
{
    if (fake_enter(e) < 0)
        return -EIO;
    uint64_t bytes_per_token;
    struct fake_act *a = act_of(e, unit, micro, kind, &bytes_per_token);
    assert_true(a->held);
    a->held = false;
    int rc = hst_stream_sync(e->stream);
    check_work(e);
    if (a->read_only)
        assert_memory_equal(a->data, a->snapshot, fake_micro_tokens(e, micro) * bytes_per_token);
    e->held--;
    return rc;
}

/* Rounds a gradient to the working dtype, as it would be sent home. */
static void round_grad(const struct hst_engine *e, float *grad, size_t count)
{
    if (e->dtype == HST_F32)
        return;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &grad[i], 4);
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
        memcpy(&grad[i], &bits, 4);
    }
}

static void update(const struct hst_engine *e, struct fake_param *p, float grad_scale)
{
    const struct hst_config *c = &e->config;
    float b1 = (float)c->beta1, b2 = (float)c->beta2;
    float rest1 = (float)(1.0 - c->beta1), rest2 = (float)(1.0 - c->beta2);
    double weight_decay = p->flags & HST_PARAM_DECAY ? fmax(c->weight_decay, 0.0) : 0.0;
    float decay = (float)(1.0 - e->lr * weight_decay);
    float step_size = (float)(e->lr / (1.0 - pow(c->beta1, (double)e->step)));
    float bias2 = (float)(1.0 / sqrt(1.0 - pow(c->beta2, (double)e->step)));
    for (size_t i = 0; i < p->count; i++) {
        float g = grad_scale * p->grad[i];
        p->m[i] = fmaf(b1, p->m[i], rest1 * g);
        p->v[i] = fmaf(b2, p->v[i], rest2 * g * g);
        float q = fmaf(sqrtf(p->v[i]), bias2, (float)c->eps);
        p->master[i] = fmaf(-step_size, p->m[i] / q, decay * p->master[i]);
    }
}

static double norm_of(struct hst_engine *e)
{
    double sum = 0.0;
    for (uint32_t u = 0; u < e->unit_count; u++)
        for (uint32_t i = 0; i < e->units[u].param_count; i++) {
            struct fake_param *p = &e->units[u].params[i];
            if (p->owner)
                continue;
            round_grad(e, p->grad, p->count);
            for (size_t j = 0; j < p->count; j++)
                sum += (double)p->grad[j] * (double)p->grad[j];
        }
    return sqrt(sum);
}

int hst_step_computed(struct hst_engine *e)
{
    if (fake_enter(e) < 0)
        return -EIO;
    assert_true(e->in_step && !e->acquired && e->next_visit == e->visit_count);
    return 0;
}

int hst_sum_add(struct hst_engine *e, uint32_t sum, double value)
{
    if (fake_enter(e) < 0)
        return -EIO;
    assert_true(sum < HST_SUMS && !e->acquired && e->added_count < ADDED_MOST);
    e->sums[sum] += value;
    if (sum == 0)
        e->added[e->added_count++] = value;
    return 0;
}

static void take_sums(struct hst_engine *e, double sums[HST_SUMS])
{
    memcpy(sums, e->sums, sizeof e->sums);
    memset(e->sums, 0, sizeof e->sums);
}

int hst_sum_agree(struct hst_engine *e, double sums[HST_SUMS])
{
    if (fake_enter(e) < 0)
        return -EIO;
    assert_false(e->in_step);
    take_sums(e, sums);
    return 0;
}

const double *fake_engine_added(const struct hst_engine *engine, size_t *count)
{
    *count = engine->added_count;
    return engine->added;
}

int hst_step_end(struct hst_engine *e, struct hst_step_stats *stats)
{
    if (fake_enter(e) < 0)
        return -EIO;
    assert_true(e->in_step && !e->acquired && e->next_visit == e->visit_count);
    e->in_step = false;
    double norm = norm_of(e);
    assert_true(isfinite(norm));
    double clip = e->config.clip;
    double factor = clip > 0 && clip / (norm + 1e-6) < 1.0 ? clip / (norm + 1e-6) : 1.0;
    for (uint32_t u = 0; u < e->unit_count; u++)
        for (uint32_t i = 0; i < e->units[u].param_count; i++)
            if (!e->units[u].params[i].owner) {
                update(e, &e->units[u].params[i], (float)factor);
                fake_publish(e, &e->units[u].params[i]);
            }
    *stats = (struct hst_step_stats){.step = e->step, .grad_norm = norm};
    take_sums(e, stats->sums);
    return 0;
}

const float *fake_engine_grad(const struct hst_engine *engine, const char *name, size_t *count)
{
    const struct fake_param *p = fake_find(engine, name);
    if (p && p->owner)
        p = p->owner;
    if (p)
        *count = p->count;
    return p ? p->grad : NULL;
}

void fake_engine_slices(struct hst_engine *engine, uint64_t rows)
{
    engine->slice_rows = rows;
}

void fake_engine_segment(struct hst_engine *engine, uint32_t units)
{
    engine->segment = units;
}

void fake_engine_saves(struct hst_engine *engine, uint64_t units)
{
    engine->saves = units;
}

void fake_engine_forgets(struct hst_engine *engine)
{
    engine->forgets = true;
}

const char *fake_engine_unit(const struct hst_engine *engine, uint32_t unit, uint32_t *param_count,
                             const char **param)
{
    const struct fake_unit *u = &engine->units[unit];
    if (unit >= engine->unit_count)
        return NULL;
    *param_count = u->param_count;
    *param = u->params[0].name;
    return u->name;
}

uint64_t fake_engine_flops(const struct hst_engine *engine, uint32_t unit)
{
    assert_true(unit < engine->unit_count);
    return engine->units[unit].flops_per_token;
}

void fake_engine_fail_at(struct hst_engine *engine, size_t call)
{
    engine->fail_at = call;
}

size_t fake_engine_calls(const struct hst_engine *engine)
{
    return engine->calls;
}
