/* SPDX-License-Identifier: Apache-2.0 */
/* The fake engine before its steps: see fake_engine.h. */
#include "fake_state.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <hoistway/ranks.h>
#include <stdlib.h>
#include <string.h>

void *fake_take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(p);
    memset(p, 0xff, bytes); /* NaN in f32 and bf16 */
    return p;
}

float *fake_take_zeros(size_t count)
{
    return memset(fake_take(count * sizeof(float)), 0, count * sizeof(float));
}

int fake_enter(struct hst_engine *e)
{
    return e->calls++ == e->fail_at ? -EIO : 0;
}

/* ---- life and description -------------------------------------------------------------------- */

static uint64_t way_tokens(const struct hst_engine *e)
{
    return e->config.batch_tokens / e->part.ways;
}

static uint32_t way_micros(const struct hst_engine *e)
{
    const uint64_t micro = e->config.micro_batch_tokens;
    return (uint32_t)((way_tokens(e) + micro - 1) / micro);
}

static void take_part(struct hst_engine *e)
{
    const struct hst_launch *launch = e->config.launch;
    const uint32_t ranks = launch ? launch->ranks : 1, rank = launch ? launch->rank : 0;
    const uint32_t ways = e->config.ways ? e->config.ways : ranks;
    assert_true(ways % ranks == 0 && e->config.batch_tokens % ways == 0 && rank < ranks);
    e->part =
        (struct hst_part){.rank = rank, .ranks = ranks, .nodes = 1, .locals = 1, .ways = ways};
    e->part.tokens = e->config.batch_tokens / ranks;
    e->part.first_token = rank * e->part.tokens;
    e->part.micro_count = e->micro_count = ways / ranks * way_micros(e);
}

int hst_engine_part(const struct hst_engine *e, struct hst_part *part)
{
    *part = e->part;
    return 0;
}

int hst_engine_micro(const struct hst_engine *e, uint32_t micro, struct hst_micro *found)
{
    if (micro >= e->micro_count)
        return -EINVAL;
    const uint64_t each = e->config.micro_batch_tokens, way = micro / way_micros(e);
    const uint64_t first = micro % way_micros(e) * each, left = way_tokens(e) - first;
    *found = (struct hst_micro){way * way_tokens(e) + first, left < each ? left : each};
    return 0;
}

uint32_t fake_way_of(const struct hst_engine *e, uint32_t micro)
{
    return micro / way_micros(e);
}

int hst_engine_create(const struct hst_config *config, struct hst_engine **engine)
{
    struct hst_engine *e = calloc(1, sizeof *e);
    assert_non_null(e);
    e->config = *config;
    assert_true(config->precision != HST_PRECISION_FP16);
    e->dtype = config->precision == HST_PRECISION_BF16 ? HST_BF16 : HST_F32;
    take_part(e);
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
        free(unit->kept);
        free(unit->saved);
        for (uint32_t i = 0; i < unit->param_count; i++) {
            struct fake_param *p = &unit->params[i];
            free(p->master);
            free(p->m);
            free(p->v);
        }
        free(unit->grads);
        free(unit->sums);
        free(unit->weights);
    }
    free_acts(e, e->carry);
    free_acts(e, e->hidden_grad);
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

int hst_engine_device_failed(struct hst_engine *engine, int native, const char *what)
{
    (void)engine;
    (void)what;
    return native;
}

enum hst_dtype hst_engine_dtype(const struct hst_engine *engine)
{
    return engine->dtype;
}

struct fake_param *fake_find(const struct hst_engine *e, const char *name)
{
    for (uint32_t u = 0; u < e->unit_count; u++)
        for (uint32_t i = 0; i < e->units[u].param_count; i++)
            if (strcmp(e->units[u].params[i].name, name) == 0)
                return (struct fake_param *)&e->units[u].params[i];
    return NULL;
}

static void add_param(struct hst_engine *e, const struct hst_param_desc *desc, struct fake_param *p)
{
    assert_null(fake_find(e, desc->name));
    assert_true(strlen(desc->name) < sizeof p->name);
    strcpy(p->name, desc->name);
    p->dim_count = desc->dim_count;
    p->flags = desc->flags;
    p->count = 1;
    for (uint32_t d = 0; d < desc->dim_count; d++)
        p->count *= p->dims[d] = desc->dims[d];
    assert_true(p->count > 0);
    if (desc->alias_of) {
        p->owner = fake_find(e, desc->alias_of);
        assert_non_null(p->owner);
        assert_int_equal(p->owner->count, p->count);
        return;
    }
    p->master = fake_take(p->count * sizeof(float));
    p->m = fake_take_zeros(p->count);
    p->v = fake_take_zeros(p->count);
}

/* Of a parameter, with a gap. */
static size_t places(const struct fake_param *p)
{
    return p->owner ? 0 : (p->count + 63) / 64 * 64 + 64;
}

static void place_params(const struct hst_engine *e, struct fake_unit *u)
{
    size_t all = 0;
    for (uint32_t i = 0; i < u->param_count; i++)
        all += places(&u->params[i]);
    u->grads = fake_take_zeros(all);
    u->sums = u->flags & HST_UNIT_WRITES_GRADS ? fake_take_zeros(all) : NULL;
    u->weights = fake_take(all * hst_dtype_bytes(e->dtype));
    for (size_t i = 0, at = 0; i < u->param_count; at += places(&u->params[i++])) {
        if (u->params[i].owner)
            continue;
        u->params[i].grad = u->grads + at;
        u->params[i].data = (char *)u->weights + at * hst_dtype_bytes(e->dtype);
    }
}

int hst_unit_add(struct hst_engine *e, const struct hst_unit_desc *desc, uint32_t *unit)
{
    assert_true(e->unit_count < MAX_UNITS && desc->param_count <= MAX_PARAMS);
    struct fake_unit *u = &e->units[e->unit_count];
    assert_true(strlen(desc->name) < sizeof u->name);
    strcpy(u->name, desc->name);
    u->flops_per_token = desc->flops_per_token;
    u->act_bytes_per_token = desc->act_bytes_per_token;
    u->flags = desc->flags;
    u->work_bytes = desc->work_bytes;
    u->slice_work_bytes = desc->slices.work_bytes;
    u->saved_bytes = desc->saved_bytes;
    u->rows = desc->slices.block_rows ? desc->params->dims[0] : 0;
    bool cut = u->rows > 0 && e->slice_rows > 0 && u->rows > e->slice_rows;
    u->slice_rows = cut ? e->slice_rows : 0;
    assert_int_equal(cut ? u->slice_rows % desc->slices.block_rows : 0, 0);
    u->kept_bytes = cut ? desc->slices.token_bytes * e->part.tokens : 0;
    if (cut) {
        u->kept = fake_take(u->kept_bytes * e->part.ranks + CANARY_BYTES);
        memset(u->kept + u->kept_bytes, 0x5a, fake_kept_canary(u, &e->part));
    }
    for (uint32_t i = 0; i < desc->param_count; i++)
        add_param(e, &desc->params[i], &u->params[i]);
    u->param_count = desc->param_count;
    place_params(e, u);
    if (fake_work_bytes(u) > e->work_size)
        e->work_size = fake_work_bytes(u);
    *unit = e->unit_count++;
    return 0;
}

int hst_hidden_set(struct hst_engine *e, uint64_t bytes_per_token)
{
    e->hidden_bytes_per_token = bytes_per_token;
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
    if (fake_enter(e) < 0)
        return -EIO;
    if (!e->client.device) {
        e->client.device = fake_take(e->client.device_bytes);
        e->client.host = fake_take(e->client.host_bytes);
    }
    *memory = e->client;
    return 0;
}

uint64_t fake_micro_tokens(const struct hst_engine *e, uint32_t micro)
{
    struct hst_micro at;
    assert_int_equal(hst_engine_micro(e, micro, &at), 0);
    return at.tokens;
}

static struct fake_act *take_acts(const struct hst_engine *e, uint64_t bytes_per_token)
{
    struct fake_act *acts = calloc(e->micro_count, sizeof *acts);
    assert_non_null(acts);
    for (uint32_t i = 0; i < e->micro_count; i++) {
        acts[i].data = fake_take(fake_micro_tokens(e, i) * bytes_per_token);
        acts[i].snapshot = fake_take(fake_micro_tokens(e, i) * bytes_per_token);
    }
    return acts;
}

static void choose_segments(struct hst_engine *e)
{
    for (uint32_t u = 0; u < e->unit_count; u++) {
        bool may = (e->units[u].flags & HST_UNIT_RECOMPUTE) != 0;
        bool follows = may && u > 0 && (e->units[u - 1].flags & HST_UNIT_RECOMPUTE);
        e->units[u].place = follows ? (e->units[u - 1].place + 1) % e->segment : 0;
        assert_true(!may || e->units[u].act_bytes_per_token == e->hidden_bytes_per_token);
    }
    for (uint32_t u = 0; u < e->unit_count; u++)
        e->units[u].is_last =
            e->units[u].place > 0 && (u + 1 == e->unit_count || e->units[u + 1].place == 0);
}

static void list(struct hst_engine *e, uint32_t unit, enum hst_sweep sweep, uint64_t first_row)
{
    assert_true(e->visit_count < VISITS_MOST);
    e->list[e->visit_count] = (struct hst_visit){unit, sweep};
    e->visits[e->visit_count++] = (struct fake_visit){{unit, sweep}, first_row};
}

/* A unit that is cut has a forward, too. */
static void list_visits(struct hst_engine *e)
{
    for (uint32_t i = 0; i < e->unit_count; i++) {
        const struct fake_unit *u = &e->units[i];
        if (!fake_is_cut(u) && !(u->flags & HST_UNIT_NO_FORWARD))
            list(e, i, HST_FORWARD, 0);
        for (uint64_t row = 0; fake_is_cut(u) && row < u->rows; row += u->slice_rows)
            list(e, i, HST_FORWARD, row);
    }
    for (uint32_t i = e->unit_count; i-- > 0;) {
        const struct fake_unit *u = &e->units[i];
        for (uint32_t back = u->is_last ? u->place : 0; back > 0; back--)
            list(e, i - back, HST_RECOMPUTE, 0);
        uint64_t slices = fake_is_cut(u) ? (u->rows + u->slice_rows - 1) / u->slice_rows : 1;
        for (uint64_t slice = slices; slice-- > 0;)
            list(e, i, HST_BACKWARD, slice * u->slice_rows);
    }
}

int hst_engine_visits(const struct hst_engine *e, const struct hst_visit **visits, size_t *count)
{
    *visits = e->list;
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
    for (uint32_t u = 0; u < e->unit_count; u++)
        if (e->units[u].saved_bytes && (e->saves >> u & 1))
            e->units[u].saved = fake_take(fake_saved_bytes(e, u) + CANARY_BYTES);
    e->carry = take_acts(e, e->hidden_bytes_per_token);
    e->hidden_grad = take_acts(e, e->hidden_bytes_per_token);
    e->work = fake_take(e->work_size + CANARY_BYTES);
    return 0;
}

void fake_publish(const struct hst_engine *e, struct fake_param *p)
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
            fake_publish(e, p);
        }
    return 0;
}
