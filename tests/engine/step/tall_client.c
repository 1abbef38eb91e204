/* SPDX-License-Identifier: Apache-2.0 */
#include "tall_client.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define HEAD         (TALL_UNITS - 1)
#define BATCH_TOKENS 10u
#define WIDEST       (TALL_ROWS * TALL_COLUMNS)

bool tall_tied, tall_whole, tall_swapped;
uint64_t tall_token_bytes = 12;

static const struct hst_param_desc embed = {
    .name = "embed", .dim_count = 2, .dims = {TALL_ROWS, TALL_COLUMNS}, .flags = HST_PARAM_DECAY};
static const struct hst_param_desc layer_a[] = {
    {.name = "a.norm", .dim_count = 1, .dims = {64}},
    {.name = "a.w", .dim_count = 2, .dims = {1000, 64}, .flags = HST_PARAM_DECAY}};
static const struct hst_param_desc layer_b[] = {
    {.name = "b.norm", .dim_count = 1, .dims = {63}},
    {.name = "b.w", .dim_count = 2, .dims = {777, 65}, .flags = HST_PARAM_DECAY}};
static const struct hst_param_desc last = {.name = "last", .dim_count = 1, .dims = {64}};
static const struct hst_param_desc head = {
    .name = "head", .dim_count = 2, .dims = {TALL_ROWS, TALL_COLUMNS}, .flags = HST_PARAM_DECAY};
static const struct hst_param_desc tied_head = {
    .name = "head", .dim_count = 2, .dims = {TALL_ROWS, TALL_COLUMNS}, .alias_of = "embed"};

/* In the order of the tensors, each with the place of its bytes among those that are saved. */
static size_t place_of(const char *name)
{
    const char *const names[] = {"embed", "a.norm", "a.w", "b.norm", "b.w", "last", "head"};
    const size_t counts[] = {WIDEST, 64, 64000, 63, 777 * 65, 64, WIDEST};
    size_t at = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; at += counts[i++])
        if (strcmp(names[i], name) == 0)
            return at;
    fail_msg("a parameter \"%s\"", name);
    return 0;
}

int tall_describe(struct hst_engine *engine)
{
    struct hst_unit_desc units[TALL_UNITS] = {
        {.name = "embed",
         .params = &embed,
         .param_count = 1,
         .work_bytes = 5000,
         .flags = HST_UNIT_BLIND_BACKWARD,
         .slices = {.block_rows = TALL_BLOCK, .work_bytes = 100}},
        {.name = "a", .params = layer_a, .param_count = 2, .act_bytes_per_token = 64},
        {.name = "b", .params = layer_b, .param_count = 2, .act_bytes_per_token = 64},
        {.name = "last", .params = &last, .param_count = 1, .act_bytes_per_token = 64},
        {.name = "head",
         .params = tall_tied ? &tied_head : &head,
         .param_count = 1,
         .work_bytes = 7000,
         .flags = HST_UNIT_NO_FORWARD,
         .slices = {.block_rows = TALL_BLOCK, .work_bytes = 200, .token_bytes = tall_token_bytes}},
    };
    int rc = hst_hidden_set(engine, 64);
    if (tall_whole)
        units[0].slices.block_rows = units[HEAD].slices.block_rows = 0;
    for (uint32_t u = 0, unit; rc == 0 && u < TALL_UNITS; u++) {
        rc = hst_unit_add(engine, &units[u], &unit);
        assert_true(rc || unit == u);
    }
    return rc;
}

static int read_initial(void *context, const struct hst_param_ref *param, uint64_t offset,
                        float *dst, size_t count)
{
    (void)context;
    size_t at = place_of(param->name) + offset;
    uint64_t columns = param->dim_count > 1 ? param->dims[1] : 1;
    assert_true(offset + count <= param->dims[0] * columns); /* of the whole, whatever is cut */
    for (size_t i = 0; i < count; i++)
        dst[i] = sinf((float)(at + i) * 0.37f) * 0.1f;
    return 0;
}

int tall_load(struct hst_engine *engine)
{
    return hst_engine_load(engine, &(struct hst_reader){.read = read_initial});
}

/* ---- a step ---- */

/* What slices add up in the forward is there in the backward: the rows of all of them. */
static int use_kept(struct hst_engine *engine, const struct hst_unit_view *view,
                    enum hst_sweep sweep)
{
    float *rows = view->kept.data;
    int rc = hst_stream_sync(hst_engine_stream(engine));
    assert_true(view->kept.size_bytes == tall_token_bytes * BATCH_TOKENS);
    for (size_t i = 0; rc == 0 && i < (size_t)3 * BATCH_TOKENS; i++) {
        if (sweep == HST_FORWARD && view->first_row == 0)
            rows[i] = 0;
        if (sweep == HST_FORWARD)
            rows[i] += (float)view->rows;
        else
            assert_true(rows[i] == (float)TALL_ROWS);
    }
    return rc;
}

static uint64_t elements(const struct hst_unit_view *view, uint32_t unit, uint32_t param)
{
    const struct hst_param_desc *const units[] = {&embed, layer_a, layer_b, &last, &head};
    const struct hst_param_desc *desc = &units[unit][param];
    return (view->rows ? view->rows : desc->dims[0]) * (desc->dim_count > 1 ? desc->dims[1] : 1);
}

/* Of the embedding, whose backward sees no weights, its number of the row. */
static int add_gradients(struct hst_engine *engine, uint32_t unit, const struct hst_unit_view *view,
                         float loss_scale)
{
    static float widened[WIDEST];
    struct hst_stream *stream = hst_engine_stream(engine);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < view->param_count; i++) {
        size_t n = elements(view, unit, i);
        struct hst_cast cast = {n, hst_engine_dtype(engine), HST_F32, view->param[i].data, widened};
        struct hst_add add = {n, HST_F32, view->param[i].grad, widened, view->param[i].grad};
        if (view->param[i].data)
            rc = hst_op_cast(stream, &cast);
        rc = rc ? rc : hst_stream_sync(stream);
        for (size_t e = 0; rc == 0 && e < n; e++)
            widened[e] = loss_scale * (view->param[i].data
                                           ? widened[e]
                                           : 1e-6f * (float)(view->first_row * TALL_COLUMNS + e));
        rc = rc ? rc : hst_op_add(stream, &add);
        rc = rc ? rc : hst_stream_sync(stream);
    }
    return rc;
}

/* A layer's forward leaves its number in its checkpoints, and its backward finds it. */
static int use_checkpoints(struct hst_engine *engine, uint32_t unit, unsigned access)
{
    struct hst_stream *stream = hst_engine_stream(engine);
    unsigned char expected[64];
    int rc = 0;
    memset(expected, (int)unit, sizeof expected);
    for (uint32_t micro = 0; rc == 0 && access && micro < 3; micro++) {
        struct hst_act act;
        rc = hst_act_acquire(engine, unit, micro, HST_CHECKPOINT, access, stream, &act);
        rc = rc ? rc : hst_stream_sync(stream);
        for (uint64_t t = 0; rc == 0 && t < act.tokens; t++) {
            char *token = (char *)act.data + t * sizeof expected;
            if (access == HST_WRITE)
                memcpy(token, expected, sizeof expected);
            else
                assert_memory_equal(token, expected, sizeof expected);
        }
        rc = rc ? rc : hst_act_release(engine, unit, micro, HST_CHECKPOINT);
    }
    return rc;
}

static void check_view(const struct hst_unit_view *view, uint32_t unit)
{
    bool tall = !tall_whole && (unit == 0 || unit == HEAD), cut = tall && view->rows < TALL_ROWS;
    assert_true(tall == (view->rows > 0));
    assert_true(view->first_row + view->rows <= TALL_ROWS);
    assert_true(view->first_row % TALL_BLOCK == 0);
    assert_true((view->kept.data != NULL) == (cut && unit == HEAD));
    if (tall)
        assert_true(view->work.size_bytes == (unit == 0 ? (cut ? 100 : 5000) : (cut ? 200 : 7000)));
}

/* Rows rise in a forward and fall in a backward. */
static void check_turn(const struct hst_unit_view *view, enum hst_sweep sweep)
{
    static uint64_t row; /* where the slice before ended, or began */
    if (sweep == HST_BACKWARD) {
        row = view->first_row + view->rows == TALL_ROWS ? TALL_ROWS : row;
        assert_true(view->first_row + view->rows == row);
        row = view->first_row;
    } else {
        row = view->first_row == 0 ? 0 : row;
        assert_true(view->first_row == row);
        row += view->rows;
    }
}

static int visit(struct hst_engine *engine, const struct hst_visit *v, float loss_scale)
{
    const struct hst_unit_view *view;
    int rc = hst_unit_acquire(engine, v->unit, v->sweep, hst_engine_stream(engine), &view);
    if (rc)
        return rc;
    check_view(view, v->unit);
    if (view->rows)
        check_turn(view, v->sweep);
    if (view->kept.data && v->sweep != HST_EVAL)
        rc = use_kept(engine, view, v->sweep);
    rc = rc ? rc : use_checkpoints(engine, v->unit, view->checkpoint);
    if (rc == 0 && v->sweep == HST_BACKWARD)
        rc = add_gradients(engine, v->unit, view, loss_scale);
    if (rc == 0 && v->sweep == HST_BACKWARD)
        rc = hst_unit_grad_ready(engine, v->unit);
    return rc ? rc : hst_unit_release(engine, v->unit);
}

int tall_step(struct hst_engine *engine, struct hst_step_stats *stats, size_t *visits)
{
    struct hst_step step;
    struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    const struct hst_visit *list;
    size_t count;
    int rc = hst_step_begin(engine, &in, &step);
    rc = rc ? rc : hst_engine_visits(engine, &list, &count);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct hst_visit v = list[i];
        if (tall_swapped && v.sweep == HST_FORWARD && (v.unit == 1 || v.unit == 2))
            v.unit = 3 - v.unit;
        rc = visit(engine, &v, step.loss_scale);
    }
    if (rc == 0 && visits)
        *visits = count;
    return rc ? rc : hst_step_end(engine, stats);
}

int tall_evaluate(struct hst_engine *engine)
{
    const struct hst_visit *list;
    size_t count;
    int rc = hst_engine_visits(engine, &list, &count);
    for (size_t i = count; rc == 0 && i-- > 0;) /* the backward, backwards */
        if (list[i].sweep == HST_BACKWARD)
            rc = visit(engine, &(struct hst_visit){list[i].unit, HST_EVAL}, 1);
    return rc;
}

static int collect(void *context, const struct hst_param_ref *param, uint64_t offset,
                   const void *src, size_t count, enum hst_dtype dtype)
{
    struct tall_saved *saved = context;
    size_t bytes = hst_dtype_bytes(dtype), at = (place_of(param->name) + offset) * bytes;
    assert_true(at + count * bytes <= sizeof saved->bytes);
    memcpy(saved->bytes + at, src, count * bytes);
    saved->used += count * bytes;
    return 0;
}

int tall_save(struct hst_engine *engine, struct tall_saved *saved)
{
    saved->used = 0;
    return hst_engine_save(engine, &(struct hst_writer){collect, saved});
}
