/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_engine.h. The optimizer is AdamW in f32 as <hoistway/cpu_adam.h> describes it, on f32
 * masters. */
#include "fake_engine.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_UNITS    64u
#define MAX_PARAMS   16u
#define CANARY_BYTES 64u

struct fake_param {
    char name[80];
    uint32_t dim_count;
    uint64_t dims[HST_MAX_DIMS];
    size_t count;
    unsigned flags;
    struct fake_param *owner; /* not null: an alias, has no storage */
    float *master, *m, *v, *grad;
    void *data;
};

struct fake_act {
    void *data;
    void *snapshot; /* as it was lent */
    bool written, held, read_only;
};

struct fake_unit {
    char name[32];
    uint32_t param_count;
    struct fake_param params[MAX_PARAMS];
    struct hst_param_view views[MAX_PARAMS];
    uint64_t act_bytes_per_token, work_bytes;
    unsigned flags;
    uint32_t place;               /* in its segment; 0: it keeps its checkpoint */
    bool is_last;                 /* of it, whose checkpoint is the carry */
    struct fake_act *checkpoints; /* [micro_count] */
};

struct hst_engine {
    struct hst_config config;
    struct hst_dev *dev;
    struct hst_stream *stream;
    enum hst_dtype dtype;
    uint32_t unit_count, micro_count, segment;
    struct fake_unit units[MAX_UNITS];
    uint64_t carry_bytes_per_token;
    struct fake_act *carry, *carry_grad; /* [micro_count] */
    char *work;
    size_t work_size;
    struct hst_client_memory client;
    bool in_step, acquired, grad_ready;
    struct hst_visit visits[3 * MAX_UNITS];
    size_t visit_count, next_visit;
    uint32_t unit;
    enum hst_sweep sweep;
    unsigned held; /* activations lent now */
    struct hst_unit_view view;
    uint64_t step;
    double lr;
    size_t calls, fail_at;
};

static void *take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(p);
    memset(p, 0xff, bytes); /* NaN in f32 and bf16 */
    return p;
}

static float *take_zeros(size_t count)
{
    return memset(take(count * sizeof(float)), 0, count * sizeof(float));
}

/* Counts the calls of a step; the chosen one fails, those after it would not: an ignored error
 * shows. */
static int enter(struct hst_engine *e)
{
    return e->calls++ == e->fail_at ? -EIO : 0;
}

/* ---- life and description -------------------------------------------------------------------- */

int hst_engine_create(const struct hst_config *config, struct hst_engine **engine)
{
    struct hst_engine *e = calloc(1, sizeof *e);
    assert_non_null(e);
    e->config = *config;
    e->dtype = config->precision == HST_PRECISION_BF16 ? HST_BF16 : HST_F32;
    e->micro_count =
        (uint32_t)((config->batch_tokens + config->grain_tokens - 1) / config->grain_tokens);
    e->fail_at = SIZE_MAX;
    e->segment = 3;
    struct hst_dev_config dev = {.size = sizeof dev};
    assert_int_equal(hst_dev_host_open(&dev, &e->dev), 0);
    assert_int_equal(hst_stream_create(e->dev, "compute", &e->stream), 0);
    *engine = e;
    return 0;
}

static void free_acts(struct hst_engine *e, struct fake_act *acts)
{
    for (uint32_t i = 0; acts && i < e->micro_count; i++) {
        free(acts[i].data);
        free(acts[i].snapshot);
    }
    free(acts);
}

void hst_engine_destroy(struct hst_engine **engine)
{
    struct hst_engine *e = *engine;
    if (!e)
        return;
    hst_stream_destroy(&e->stream);
    hst_dev_close(&e->dev);
    for (uint32_t u = 0; u < e->unit_count; u++) {
        struct fake_unit *unit = &e->units[u];
        free_acts(e, unit->checkpoints);
        for (uint32_t i = 0; i < unit->param_count; i++) {
            struct fake_param *p = &unit->params[i];
            free(p->master);
            free(p->m);
            free(p->v);
            free(p->grad);
            free(p->data);
        }
    }
    free_acts(e, e->carry);
    free_acts(e, e->carry_grad);
    free(e->work);
    free(e->client.device);
    free(e->client.host);
    free(e);
    *engine = NULL;
}

struct hst_dev *hst_engine_device(struct hst_engine *engine)
{
    return engine->dev;
}

struct hst_stream *hst_engine_stream(struct hst_engine *engine)
{
    return engine->stream;
}

enum hst_dtype hst_engine_dtype(const struct hst_engine *engine)
{
    return engine->dtype;
}

static struct fake_param *find(const struct hst_engine *e, const char *name)
{
    for (uint32_t u = 0; u < e->unit_count; u++)
        for (uint32_t i = 0; i < e->units[u].param_count; i++)
            if (strcmp(e->units[u].params[i].name, name) == 0)
                return (struct fake_param *)&e->units[u].params[i];
    return NULL;
}

static void add_param(struct hst_engine *e, const struct hst_param_desc *desc, struct fake_param *p)
{
    assert_null(find(e, desc->name));
    assert_true(strlen(desc->name) < sizeof p->name);
    strcpy(p->name, desc->name);
    p->dim_count = desc->dim_count;
    p->flags = desc->flags;
    p->count = 1;
    for (uint32_t d = 0; d < desc->dim_count; d++)
        p->count *= p->dims[d] = desc->dims[d];
    assert_true(p->count > 0);
    if (desc->alias_of) {
        p->owner = find(e, desc->alias_of);
        assert_non_null(p->owner);
        assert_int_equal(p->owner->count, p->count);
        return;
    }
    p->master = take(p->count * sizeof(float));
    p->m = take_zeros(p->count);
    p->v = take_zeros(p->count);
    p->grad = take_zeros(p->count);
    p->data = take(p->count * hst_dtype_bytes(e->dtype));
}

int hst_unit_add(struct hst_engine *e, const struct hst_unit_desc *desc, uint32_t *unit)
{
    assert_true(e->unit_count < MAX_UNITS && desc->param_count <= MAX_PARAMS);
    struct fake_unit *u = &e->units[e->unit_count];
    assert_true(strlen(desc->name) < sizeof u->name);
    strcpy(u->name, desc->name);
    u->act_bytes_per_token = desc->act_bytes_per_token;
    u->flags = desc->flags;
    u->work_bytes = desc->work_bytes;
    for (uint32_t i = 0; i < desc->param_count; i++)
        add_param(e, &desc->params[i], &u->params[i]);
    u->param_count = desc->param_count;
    if (desc->work_bytes > e->work_size)
        e->work_size = desc->work_bytes;
    *unit = e->unit_count++;
    return 0;
}

int hst_carry_set(struct hst_engine *e, uint64_t bytes_per_token)
{
    e->carry_bytes_per_token = bytes_per_token;
    return 0;
}

int hst_client_memory_set(struct hst_engine *e, uint64_t device_bytes, uint64_t host_bytes)
{
    e->client.device_bytes = device_bytes;
    e->client.host_bytes = host_bytes;
    return 0;
}

/* Device and host apart, as on a GPU: who forgets a copy reads NaN. */
int hst_client_memory(struct hst_engine *e, struct hst_client_memory *memory)
{
    if (enter(e) < 0)
        return -EIO;
    if (!e->client.device) {
        e->client.device = take(e->client.device_bytes);
        e->client.host = take(e->client.host_bytes);
    }
    *memory = e->client;
    return 0;
}

static uint64_t micro_tokens(const struct hst_engine *e, uint32_t micro)
{
    uint64_t left = e->config.batch_tokens - micro * e->config.grain_tokens;
    return left < e->config.grain_tokens ? left : e->config.grain_tokens;
}

static struct fake_act *take_acts(const struct hst_engine *e, uint64_t bytes_per_token)
{
    struct fake_act *acts = calloc(e->micro_count, sizeof *acts);
    assert_non_null(acts);
    for (uint32_t i = 0; i < e->micro_count; i++) {
        acts[i].data = take(micro_tokens(e, i) * bytes_per_token);
        acts[i].snapshot = take(micro_tokens(e, i) * bytes_per_token);
    }
    return acts;
}

static void choose_segments(struct hst_engine *e)
{
    for (uint32_t u = 0; u < e->unit_count; u++) {
        bool may = (e->units[u].flags & HST_UNIT_RECOMPUTE) != 0;
        bool follows = may && u > 0 && (e->units[u - 1].flags & HST_UNIT_RECOMPUTE);
        e->units[u].place = follows ? (e->units[u - 1].place + 1) % e->segment : 0;
        assert_true(!may || e->units[u].act_bytes_per_token == e->carry_bytes_per_token);
    }
    for (uint32_t u = 0; u < e->unit_count; u++)
        e->units[u].is_last =
            e->units[u].place > 0 && (u + 1 == e->unit_count || e->units[u + 1].place == 0);
}

static void list_visits(struct hst_engine *e)
{
    for (uint32_t u = 0; u < e->unit_count; u++)
        if (!(e->units[u].flags & HST_UNIT_NO_FORWARD))
            e->visits[e->visit_count++] = (struct hst_visit){u, HST_FORWARD};
    for (uint32_t u = e->unit_count; u-- > 0;) {
        for (uint32_t back = e->units[u].is_last ? e->units[u].place : 0; back > 0; back--)
            e->visits[e->visit_count++] = (struct hst_visit){u - back, HST_RECOMPUTE};
        e->visits[e->visit_count++] = (struct hst_visit){u, HST_BACKWARD};
    }
}

int hst_engine_visits(const struct hst_engine *e, const struct hst_visit **visits, size_t *count)
{
    *visits = e->visits;
    *count = e->visit_count;
    return 0;
}

int hst_engine_seal(struct hst_engine *e, enum hst_order order)
{
    assert_int_equal(order, HST_ORDER_FORWARD);
    choose_segments(e);
    list_visits(e);
    for (uint32_t u = 0; u < e->unit_count; u++)
        if (e->units[u].act_bytes_per_token)
            e->units[u].checkpoints = take_acts(e, e->units[u].act_bytes_per_token);
    e->carry = take_acts(e, e->carry_bytes_per_token);
    e->carry_grad = take_acts(e, e->carry_bytes_per_token);
    e->work = take(e->work_size + CANARY_BYTES);
    return 0;
}

static void publish(const struct hst_engine *e, struct fake_param *p)
{
    struct hst_cast cast = {
        .count = p->count,
        .src_dtype = HST_F32,
        .dst_dtype = e->dtype,
        .src = p->master,
        .dst = p->data,
    };
    assert_int_equal(hst_op_cast(e->stream, &cast), 0);
    assert_int_equal(hst_stream_sync(e->stream), 0);
}

int hst_engine_load(struct hst_engine *e, const struct hst_reader *reader)
{
    for (uint32_t u = 0; u < e->unit_count; u++)
        for (uint32_t i = 0; i < e->units[u].param_count; i++) {
            struct fake_param *p = &e->units[u].params[i];
            struct hst_param_ref ref = {
                .unit = u, .param = i, .name = p->name, .dim_count = p->dim_count, .dims = p->dims};
            if (p->owner)
                continue;
            int rc = reader->read(reader->context, &ref, 0, p->master, p->count);
            if (rc < 0)
                return rc;
            publish(e, p);
        }
    return 0;
}

/* ---- a step ---------------------------------------------------------------------------------- */

int hst_step_begin(struct hst_engine *e, const struct hst_step_in *in, struct hst_step *step)
{
    if (enter(e) < 0)
        return -EIO;
    assert_false(e->in_step);
    assert_int_equal(in->size, sizeof *in);
    e->in_step = true;
    e->next_visit = 0;
    e->lr = in->lr;
    for (uint32_t i = 0; i < e->micro_count; i++)
        e->carry[i].written = e->carry_grad[i].written = false;
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
    size_t size = e->units[e->unit].work_bytes;
    memset(e->work, 0xff, size);
    memset(e->work + size, 0x5a, CANARY_BYTES);
}

static void check_work(const struct hst_engine *e)
{
    const char *canary = e->work + e->units[e->unit].work_bytes;
    for (size_t i = 0; i < CANARY_BYTES; i++)
        assert_int_equal(canary[i], 0x5a);
}

static unsigned checkpoint_access(const struct fake_unit *u, enum hst_sweep sweep)
{
    if (!u->checkpoints || sweep == HST_BACKWARD)
        return u->checkpoints ? HST_READ : 0;
    if (sweep == HST_RECOMPUTE)
        return u->place > 0 ? HST_WRITE : HST_READ;
    return u->place > 0 ? 0 : HST_WRITE;
}

int hst_unit_acquire(struct hst_engine *e, uint32_t unit, enum hst_sweep sweep,
                     struct hst_stream *stream, const struct hst_unit_view **view)
{
    if (enter(e) < 0)
        return -EIO;
    assert_true(e->in_step && !e->acquired && unit < e->unit_count && stream == e->stream);
    assert_true(e->next_visit < e->visit_count);
    assert_int_equal(unit, e->visits[e->next_visit].unit);
    assert_int_equal(sweep, e->visits[e->next_visit].sweep);
    e->next_visit++;
    e->acquired = true;
    e->grad_ready = false;
    e->unit = unit;
    e->sweep = sweep;
    struct fake_unit *u = &e->units[unit];
    for (uint32_t i = 0; i < u->param_count; i++) {
        struct fake_param *p = u->params[i].owner ? u->params[i].owner : &u->params[i];
        u->views[i].data = p->data;
        u->views[i].grad = sweep == HST_BACKWARD ? p->grad : NULL;
    }
    poison_work(e);
    e->view = (struct hst_unit_view){
        u->views, u->param_count, {e->work, u->work_bytes}, checkpoint_access(u, sweep)};
    *view = &e->view;
    return 0;
}

int hst_unit_release(struct hst_engine *e, uint32_t unit)
{
    if (enter(e) < 0)
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
    if (enter(e) < 0)
        return -EIO;
    assert_true(e->acquired && e->unit == unit && e->sweep == HST_BACKWARD && !e->grad_ready);
    e->grad_ready = true;
    return 0;
}

static struct fake_act *act_of(struct hst_engine *e, uint32_t unit, uint32_t micro,
                               enum hst_act_kind kind, uint64_t *bytes_per_token)
{
    assert_true(e->acquired && e->unit == unit && micro < e->micro_count);
    *bytes_per_token = e->carry_bytes_per_token;
    if (kind == HST_CARRY)
        return &e->carry[micro];
    if (kind == HST_CARRY_GRAD)
        return &e->carry_grad[micro];
    *bytes_per_token = e->units[unit].act_bytes_per_token;
    assert_true(*bytes_per_token > 0);
    if (e->units[unit].is_last && e->sweep == HST_BACKWARD)
        return &e->carry[micro];
    return &e->units[unit].checkpoints[micro];
}

int hst_act_acquire(struct hst_engine *e, uint32_t unit, uint32_t micro, enum hst_act_kind kind,
                    unsigned access, struct hst_stream *stream, struct hst_act *act)
{
    if (enter(e) < 0)
        return -EIO;
    uint64_t bytes_per_token;
    struct fake_act *a = act_of(e, unit, micro, kind, &bytes_per_token);
    assert_true(!a->held && stream == e->stream && access != 0);
    assert_true(kind != HST_CARRY_GRAD || e->sweep == HST_BACKWARD);
    assert_true(kind != HST_CHECKPOINT || access == e->view.checkpoint);
    size_t bytes = micro_tokens(e, micro) * bytes_per_token;
    int rc = hst_stream_sync(e->stream);
    if (rc < 0)
        return rc;
    if (e->held == 0)
        poison_work(e);
    if (access & HST_READ)
        assert_true(a->written);
    else
        memset(a->data, 0xff, bytes);
    memcpy(a->snapshot, a->data, bytes);
    a->written |= (access & HST_WRITE) != 0;
    a->read_only = !(access & HST_WRITE);
    a->held = true;
    e->held++;
    *act = (struct hst_act){a->data, bytes, micro_tokens(e, micro)};
    return 0;
}

int hst_act_release(struct hst_engine *e, uint32_t unit, uint32_t micro, enum hst_act_kind kind)
{
    if (enter(e) < 0)
        return -EIO;
    uint64_t bytes_per_token;
    struct fake_act *a = act_of(e, unit, micro, kind, &bytes_per_token);
    assert_true(a->held);
    a->held = false;
    int rc = hst_stream_sync(e->stream);
    check_work(e);
    if (a->read_only)
        assert_memory_equal(a->data, a->snapshot, micro_tokens(e, micro) * bytes_per_token);
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

int hst_step_end(struct hst_engine *e, struct hst_step_stats *stats)
{
    if (enter(e) < 0)
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
                publish(e, &e->units[u].params[i]);
            }
    *stats = (struct hst_step_stats){.step = e->step, .grad_norm = norm};
    return 0;
}

const float *fake_engine_grad(const struct hst_engine *engine, const char *name, size_t *count)
{
    const struct fake_param *p = find(engine, name);
    if (p && p->owner)
        p = p->owner;
    if (p)
        *count = p->count;
    return p ? p->grad : NULL;
}

void fake_engine_segment(struct hst_engine *engine, uint32_t units)
{
    engine->segment = units;
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

void fake_engine_fail_at(struct hst_engine *engine, size_t call)
{
    engine->fail_at = call;
}

size_t fake_engine_calls(const struct hst_engine *engine)
{
    return engine->calls;
}
