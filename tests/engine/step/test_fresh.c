/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients that a client writes where it else adds (HST_UNIT_WRITES_GRADS), in ways of several
 * micro-batches: the trained bytes are those of a client that adds to the engine's zeros.
 */
#include "session/engine_state.h"
#include "toy_run.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { UNITS = 4, STEPS = 2, WAY_MICROS = 3, BYTES = 64, MOST = 5000 };

static const struct hst_param_desc first[] = {{.name = "before", .dim_count = 1, .dims = {63}},
                                              {.name = "tied", .dim_count = 2, .dims = {50, 64}},
                                              {.name = "behind", .dim_count = 1, .dims = {65}}};
static const struct hst_param_desc a[] = {{.name = "a.norm", .dim_count = 1, .dims = {63}},
                                          {.name = "a.w", .dim_count = 2, .dims = {77, 63}}};
static const struct hst_param_desc b[] = {{.name = "b.w", .dim_count = 2, .dims = {70, 64}}};
static const struct hst_param_desc last[] = {
    {.name = "head", .dim_count = 2, .dims = {50, 64}, .alias_of = "tied"},
    {.name = "last", .dim_count = 1, .dims = {65}}};
static const struct {
    const struct hst_param_desc *params;
    uint32_t count;
} units[UNITS] = {{first, 3}, {a, 2}, {b, 1}, {last, 2}};

/* The client says this, and does that. */
struct client {
    bool declares, forgets; /* forgets: adds to what is fresh */
    bool skips;             /* the first way's micro-batches */
    uint64_t micro_tokens;
};

static uint64_t elements(const struct hst_param_desc *param)
{
    return param->dims[0] * (param->dim_count > 1 ? param->dims[1] : 1);
}

static int describe(struct hst_engine *engine, const struct client *client)
{
    static const char *const names[UNITS] = {"first", "a", "b", "last"};
    int rc = hst_hidden_set(engine, BYTES);
    for (uint32_t u = 0, unit; rc == 0 && u < UNITS; u++) {
        const struct hst_unit_desc desc = {.name = names[u],
                                           .params = units[u].params,
                                           .param_count = units[u].count,
                                           .flags = client->declares ? HST_UNIT_WRITES_GRADS : 0};
        rc = hst_unit_add(engine, &desc, &unit);
    }
    return rc;
}

static int read_initial(void *context, const struct hst_param_ref *param, uint64_t offset,
                        float *dst, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++)
        dst[i] = sinf((float)(offset + i) * 0.37f + (float)param->unit);
    return 0;
}

static struct hst_engine *opened(const struct client *client, uint32_t ways,
                                 enum hst_precision precision, enum hst_reduce reduce)
{
    struct hst_error error = {0};
    const struct hst_config config =
        *hst_config(.durability = "none", .batch_tokens = (uint64_t)ways * WAY_MICROS * 2,
                    .micro_batch_tokens = client->micro_tokens, .ways = ways, .threads = 2,
                    .precision = precision, .reduce = reduce, .tile_elements = 4096,
                    .dram_bytes = 64 << 20, .error = &error);
    struct hst_engine *engine = toy_created(&config);
    toy_must(engine, describe(engine, client));
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    toy_must(engine, hst_engine_load(engine, &(struct hst_reader){.read = read_initial}));
    return engine;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static float gradient_of(uint32_t unit, uint32_t param, uint64_t i, uint32_t micro)
{
    return sinf((float)(i * (micro + 2)) + (float)(unit * 3 + param)) * 0.01f;
}

/* The first micro-batch of each way, and what is not tied. */
static bool should_be_fresh(const struct client *client, uint32_t unit, uint32_t param,
                            uint64_t in_way)
{
    const bool tied = (unit == 0 && param == 1) || (unit + 1 == UNITS && param == 0);
    return client->declares && !tied && in_way == 0;
}

/* Every second way joins the one before from the accumulator; one of f32 that waits, or is the only
 * one, is accumulated where it waits. Beside a tied tensor parameters lie otherwise there. */
static void check_place(const struct hst_engine *engine, const struct client *client, uint32_t unit,
                        const struct hst_unit_view *view)
{
    const struct ways *ways = &engine->ways;
    const bool waits = engine->way.at % 2 == 0 && (ways->count & (ways->count - 1)) == 0;
    const bool f32 = hst_sum_type(&ways->tree, (struct hst_sum_node){0, 1}) == HST_F32;
    const unsigned char *grad = (const unsigned char *)view->param[view->param_count - 1].grad;
    const unsigned char *place = engine->way.in_place;
    if (waits)
        assert_int_equal(place != NULL, client->declares && f32 && unit != 0);
    if (place)
        assert_true(grad >= place && grad < place + MOST * sizeof(float));
}

static void micro_gradients(struct hst_engine *engine, const struct client *client,
                            const struct hst_unit_view *view, uint32_t unit, uint32_t micro,
                            uint64_t in_way)
{
    toy_must(engine, hst_stream_sync(hst_engine_stream(engine)));
    check_place(engine, client, unit, view);
    for (uint32_t p = 0; p < view->param_count; p++) {
        float *grad = view->param[p].grad;
        const bool fresh = view->param[p].fresh;
        assert_int_equal((uintptr_t)grad % 128, 0);
        assert_int_equal(fresh, should_be_fresh(client, unit, p, in_way));
        for (uint64_t i = 0; i < elements(&units[unit].params[p]); i++) {
            const float g = gradient_of(unit, p, i, micro);
            grad[i] = fresh && !client->forgets ? 0 + g : grad[i] + g;
        }
    }
}

/* A way's micro-batches, and its first one once more, which is not fresh then. */
static int backward(struct hst_engine *engine, const struct client *client, uint32_t unit,
                    uint32_t micros)
{
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_unit_view *view;
    const uint32_t of_way = micros / engine->ways.count;
    struct hst_act act;
    int rc = hst_unit_acquire(engine, unit, HST_BACKWARD, stream, &view);
    const uint32_t turns = of_way + 1;
    for (uint32_t i = client->skips ? turns : 0; rc == 0 && i < micros / of_way * turns; i++)
        for (int twice = 0; rc == 0 && twice < 2; twice++) { /* what is fresh stays so */
            const uint32_t m = i / turns * of_way + i % turns % of_way;
            rc = hst_act_acquire(engine, unit, m, HST_HIDDEN_GRAD, HST_READ, stream, &act);
            if (rc == 0 && twice)
                micro_gradients(engine, client, view, unit, m, i % turns);
            rc = rc ? rc : hst_act_release(engine, unit, m, HST_HIDDEN_GRAD);
        }
    rc = rc ? rc : hst_unit_grad_ready(engine, unit);
    return rc ? rc : hst_unit_release(engine, unit);
}

static int step_of(struct hst_engine *engine, const struct client *client)
{
    const struct hst_step_in in = {.size = sizeof in, .lr = 1e-2};
    const struct hst_unit_view *view;
    struct hst_step step;
    struct hst_step_stats stats;
    int rc = hst_step_begin(engine, &in, &step);
    for (uint32_t u = 0; rc == 0 && u < UNITS; u++) {
        rc = hst_unit_acquire(engine, u, HST_FORWARD, hst_engine_stream(engine), &view);
        rc = rc ? rc : hst_unit_release(engine, u);
    }
    for (uint32_t u = UNITS; rc == 0 && u-- > 0;)
        rc = backward(engine, client, u, step.micro_count);
    return rc ? rc : hst_step_end(engine, &stats);
}

struct saved {
    unsigned char bytes[UNITS * MOST * sizeof(float)];
    size_t used;
};

static int collect(void *context, const struct hst_param_ref *param, uint64_t offset,
                   const void *src, size_t count, enum hst_dtype dtype)
{
    struct saved *saved = context;
    (void)param;
    (void)offset;
    memcpy(saved->bytes + saved->used, src, count * hst_dtype_bytes(dtype));
    saved->used += count * hst_dtype_bytes(dtype);
    return 0;
}

static void train(const struct client *client, uint32_t ways, enum hst_precision precision,
                  enum hst_reduce reduce, struct saved *saved)
{
    struct hst_engine *engine = opened(client, ways, precision, reduce);
    for (int s = 0; s < STEPS; s++)
        toy_must(engine, step_of(engine, client));
    *saved = (struct saved){.used = 0};
    toy_must(engine, hst_engine_save(engine, &(struct hst_writer){collect, saved}));
    hst_engine_destroy(&engine);
}

static struct saved oracle, other; /* large: not on the stack */

static bool same_bytes(void)
{
    assert_true(oracle.used == other.used && oracle.used > 0);
    return memcmp(oracle.bytes, other.bytes, oracle.used) == 0;
}

static void a_client_that_writes_trains_the_bytes_of_one_that_adds(void **state)
{
    (void)state;
    static const struct {
        enum hst_precision precision;
        enum hst_reduce reduce;
    } kinds[] = {{HST_PRECISION_FP32, HST_REDUCE_GRADS},
                 {HST_PRECISION_BF16, HST_REDUCE_GRADS},
                 {HST_PRECISION_BF16, HST_REDUCE_F32},
                 {HST_PRECISION_FP32, HST_REDUCE_INT8}};
    static const uint32_t ways[] = {1, 2, 3, 4, 8};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            const struct client adds = {.micro_tokens = 2},
                                writes = {.declares = true, .micro_tokens = 2};
            if (kinds[k].reduce == HST_REDUCE_INT8 && ways[w] == 1)
                continue;
            train(&adds, ways[w], kinds[k].precision, kinds[k].reduce, &oracle);
            train(&writes, ways[w], kinds[k].precision, kinds[k].reduce, &other);
            assert_true(same_bytes());
        }
}

/* The engine leaves fresh gradients as they are: who adds to them sees other units' and ways'. */
static void a_client_that_forgets_to_write_trains_other_bytes(void **state)
{
    (void)state;
    const struct client adds = {.micro_tokens = 2},
                        forgets = {.declares = true, .forgets = true, .micro_tokens = 2};
    for (uint32_t ways = 1; ways <= 2; ways++) {
        train(&adds, ways, HST_PRECISION_FP32, HST_REDUCE_GRADS, &oracle);
        train(&forgets, ways, HST_PRECISION_FP32, HST_REDUCE_GRADS, &other);
        assert_false(same_bytes());
    }
}

static void a_way_that_nobody_wrote_is_refused(void **state)
{
    (void)state;
    for (uint32_t ways = 1; ways <= 2; ways++)
        for (int declares = 0; declares < 2; declares++) {
            const struct client skips = {.declares = declares, .skips = true, .micro_tokens = 2};
            struct hst_engine *engine = opened(&skips, ways, HST_PRECISION_FP32, HST_REDUCE_GRADS);
            assert_int_equal(step_of(engine, &skips), declares ? -EINVAL : 0);
            hst_engine_destroy(&engine);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_writes_trains_the_bytes_of_one_that_adds),
        cmocka_unit_test(a_client_that_forgets_to_write_trains_other_bytes),
        cmocka_unit_test(a_way_that_nobody_wrote_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
