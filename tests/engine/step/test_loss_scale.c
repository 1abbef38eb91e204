/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training in fp16 under a loss scale: how the scale moves, what a skipped step leaves behind
 * (nothing), and AdamW on the master in float64 as the reference of all that is not skipped.
 */
#include "half.h"
#include "session/engine_state.h"
#include "toy_client.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CLIP 0.5

static char store[] = "hst-scale-XXXXXX";

#define CONFIG(...)                                                                                \
    hst_config(.store = store, .durability = "none", .batch_tokens = 10, .micro_batch_tokens = 4,  \
               .dram_bytes = 64u << 20, .threads = 2, .precision = HST_PRECISION_FP16,             \
               .clip = CLIP, __VA_ARGS__)

static void must(struct hst_engine *engine, int rc)
{
    if (rc)
        fail_msg("returned %d: E%d %s", rc, hst_engine_error(engine)->code,
                 hst_engine_error(engine)->message);
}

static struct hst_engine *loaded(const struct hst_config *config)
{
    struct hst_engine *engine = NULL;
    assert_int_equal(hst_engine_create(config, &engine), 0);
    must(engine, toy_seal_and_load(engine));
    return engine;
}

/* ---- the scale ---- */

static void an_overflow_halves_it_and_no_further_than_one(void **state)
{
    (void)state;
    struct loss_scale s = {.value = 65536, .good_steps = 1999};
    s = loss_scale_after(s, false);
    assert_true(s.value == 32768 && s.good_steps == 0);
    for (int i = 0; i < 14; i++)
        s = loss_scale_after(s, false);
    assert_true(s.value == 2);
    assert_true(loss_scale_after(s, false).value == 1);
    assert_true(loss_scale_after((struct loss_scale){.value = 1.5f}, false).value == 1);
}

static void two_thousand_good_steps_in_a_row_double_it_and_no_further_than_its_most(void **state)
{
    (void)state;
    struct loss_scale s = {.value = 1024};
    for (int i = 0; i < 1999; i++)
        s = loss_scale_after(s, true);
    assert_true(s.value == 1024);
    struct loss_scale broken = loss_scale_after(s, false);
    s = loss_scale_after(s, true);
    assert_true(s.value == 2048 && s.good_steps == 0);
    for (int i = 0; i < 1999; i++)
        broken = loss_scale_after(broken, true);
    assert_true(broken.value == 512);
    for (int i = 0; i < 40 * 2000; i++)
        s = loss_scale_after(s, true);
    assert_true(s.value == 0x1p32f);
}

/* ---- steps ---- */

static struct toy_saved plain, other; /* large: not on the stack */

/* One step for each letter: x overflows, the others do not. */
static void train(const struct hst_config *config, const char *steps, struct toy_saved *saved)
{
    struct hst_engine *engine = loaded(config);
    struct hst_step_stats stats;
    for (const char *step = steps; *step; step++) {
        engine->standing.scale.value = *step == 'x' ? 0x1p20f : 0x1p18f;
        must(engine, toy_step(engine, &stats));
        assert_int_equal(stats.step, step - steps + 1);
        assert_int_equal(stats.skipped, *step == 'x');
        assert_int_equal(isfinite(stats.grad_norm) != 0, *step != 'x');
        assert_true(engine->standing.scale.value == (*step == 'x' ? 0x1p19f : 0x1p18f));
    }
    must(engine, toy_save(engine, saved));
    hst_engine_destroy(&engine);
}

/* Reads for the update that is left out are under way when it is. */
static void a_skipped_step_leaves_no_trace(void **state)
{
    (void)state;
    static const char *const places[] = {"states=dram,weights=dram", "states=nvme",
                                         "states=nvme,weights=nvme,grads=nvme,acts=nvme"};
    train(CONFIG(), ".....", &plain);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        train(CONFIG(.place = places[i], .tile_elements = 8192), "x..xx.x..x", &other);
        assert_memory_equal(other.bytes, plain.bytes, plain.used);
        train(CONFIG(.place = places[i]), ".x.x.x..", &other);
        assert_memory_equal(other.bytes, plain.bytes, plain.used);
    }
    train(CONFIG(.device = "far"), "x..xx.x..x", &other);
    assert_memory_equal(other.bytes, plain.bytes, plain.used);
}

/* Bytes of weights and states, all of them in DRAM. */
static unsigned char *copy_homes(struct hst_engine *engine, size_t *bytes)
{
    const struct placement *p = &engine->placement;
    *bytes = p->dram_bytes;
    unsigned char *copy = calloc(1, p->dram_bytes);
    assert_non_null(copy);
    must(engine, hst_engine_drain(engine, NULL));
    for (uint32_t t = 0; t < engine->layout.tile_count; t++) {
        uint64_t elements = layout_tile(&engine->layout, t).elements;
        uint64_t states = placement_states(p, t).offset, weights = placement_weights(p, t).offset;
        memcpy(copy + states, engine->host_arena + states,
               record_layout(engine->optimizer, elements).bytes);
        memcpy(copy + weights, engine->host_arena + weights, elements * sizeof(uint16_t));
    }
    return copy;
}

static void a_skipped_step_touches_no_byte_of_weights_and_states(void **state)
{
    (void)state;
    struct hst_engine *engine = loaded(CONFIG(.place = "states=dram,weights=dram"));
    struct hst_step_stats stats;
    size_t bytes;
    must(engine, toy_step(engine, &stats));
    assert_false(stats.skipped);
    unsigned char *before = copy_homes(engine, &bytes);
    engine->standing.scale.value = 0x1p20f;
    must(engine, toy_step(engine, &stats));
    assert_true(stats.skipped);
    unsigned char *after = copy_homes(engine, &bytes);
    assert_memory_equal(after, before, bytes);
    free(after);
    engine->standing.scale.value = 0x1p18f;
    must(engine, toy_step(engine, &stats));
    assert_false(stats.skipped);
    after = copy_homes(engine, &bytes);
    assert_memory_not_equal(after, before, bytes);
    free(after);
    free(before);
    hst_engine_destroy(&engine);
}

static void at_a_scale_of_one_a_gradient_that_is_not_finite_stops_the_run(void **state)
{
    (void)state;
    static float infinite = INFINITY;
    struct hst_engine *engine = loaded(CONFIG(.loss_scale = 2));
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_step_in in = {.size = sizeof in, .lr = TOY_LR};
    const struct hst_unit_view *view;
    struct hst_step_stats stats;
    struct hst_step step;
    for (int s = 0; s < 2; s++) {
        must(engine, hst_step_begin(engine, &in, &step));
        assert_true(step.loss_scale == (s ? 1 : 2));
        for (uint32_t u = TOY_UNITS; u-- > 0;) {
            must(engine, hst_unit_acquire(engine, u, HST_BACKWARD, stream, &view));
            if (u == 2)
                must(engine,
                     hst_stream_copy(stream, view->param[0].grad, &infinite, sizeof infinite));
            must(engine, hst_unit_grad_ready(engine, u));
            must(engine, hst_unit_release(engine, u));
        }
        assert_int_equal(hst_step_end(engine, &stats), s ? -EOVERFLOW : 0);
    }
    assert_int_equal(hst_engine_error(engine)->code, HST_E_NONFINITE);
    assert_non_null(strstr(hst_engine_error(engine)->message, "at a loss scale of 1"));
    hst_engine_destroy(&engine);
}

/* ---- the reference ---- */

static double round_f16(double value)
{
    return half_value(HST_F16, half_round(HST_F16, value));
}

struct reference {
    size_t count;
    double master[TOY_ELEMENTS], m[TOY_ELEMENTS], v[TOY_ELEMENTS], grad[TOY_ELEMENTS];
    bool decays[TOY_ELEMENTS];
    int users[TOY_ELEMENTS]; /* of the weight: 2 where it is tied */
    double scale;
    int t, skipped;
};
static struct reference reference;

static void begin(struct reference *r)
{
    *r = (struct reference){.scale = 0x1p20};
    for (uint32_t u = 0; u < TOY_UNITS; u++)
        for (uint32_t p = 0; p < toy_units[u].count; p++) {
            const struct hst_param_desc *param = &toy_units[u].params[p];
            for (uint64_t i = 0; i < toy_elements(param) && !param->alias_of; i++) {
                r->users[r->count] = u == 0 ? 2 : 1;
                r->decays[r->count] = (param->flags & HST_PARAM_DECAY) != 0;
                r->master[r->count++] = (double)toy_initial(u, i);
            }
        }
}

static void step(struct reference *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->count; i++) {
        r->grad[i] = round_f16(r->users[i] * round_f16(r->master[i]) * r->scale) / r->scale;
        sum += r->grad[i] * r->grad[i];
    }
    if (!isfinite(sum)) {
        r->scale /= 2;
        r->skipped++;
        return;
    }
    double factor = fmin(1, CLIP / (sqrt(sum) + 1e-6));
    r->t++;
    double bias1 = 1 - pow(0.9, r->t), bias2 = 1 - pow(0.999, r->t);
    for (size_t i = 0; i < r->count; i++) {
        double g = r->grad[i] * factor;
        r->m[i] = 0.9 * r->m[i] + 0.1 * g;
        r->v[i] = 0.999 * r->v[i] + 0.001 * g * g;
        double m = r->m[i] / bias1, v = r->v[i] / bias2;
        double decay = r->decays[i] ? 0.01 * r->master[i] : 0;
        r->master[i] -= TOY_LR * (m / (sqrt(v) + 1e-8) + decay);
    }
}

/*
 * The master is f32, so that a weight may be rounded to the other neighbour; so may then its
 * gradient, by half an f16 ulp, of which a step is off by as much of the learning rate.
 */
static void steps_are_those_of_adamw_in_float64_on_the_master(void **state)
{
    (void)state;
    enum { STEPS = 12 };
    size_t different = 0;
    struct hst_engine *engine = loaded(CONFIG(.loss_scale = 0x1p20, .place = "states=nvme"));
    struct hst_step_stats stats;
    begin(&reference);
    for (int s = 0; s < STEPS; s++) {
        double scale = reference.scale;
        step(&reference);
        must(engine, toy_step(engine, &stats));
        assert_int_equal(stats.skipped, reference.scale < scale);
        assert_true(stats.loss_scale == scale);
    }
    must(engine, toy_save(engine, &plain));
    hst_engine_destroy(&engine);
    assert_int_equal(reference.skipped, 2);
    assert_int_equal(plain.used, reference.count * sizeof(uint16_t));
    for (size_t i = 0; i < reference.count; i++) {
        uint16_t bits;
        memcpy(&bits, plain.bytes + i * sizeof bits, sizeof bits);
        double got = half_value(HST_F16, bits), want = round_f16(reference.master[i]);
        if (!(fabs(got - want) <= 0x1p-10 * fabs(want) + 0x1p-11 * TOY_LR))
            fail_msg("weight %zu is %.9g, not %.9g", i, got, want);
        different += got != want;
    }
    print_message("%zu of %zu weights are the other neighbour\n", different, reference.count);
    assert_true(different < reference.count / 100);
}

static int make_store(void **state)
{
    (void)state;
    return mkdtemp(store) ? 0 : -1;
}

static int remove_store(void **state)
{
    (void)state;
    return rmdir(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_overflow_halves_it_and_no_further_than_one),
        cmocka_unit_test(two_thousand_good_steps_in_a_row_double_it_and_no_further_than_its_most),
        cmocka_unit_test(a_skipped_step_leaves_no_trace),
        cmocka_unit_test(a_skipped_step_touches_no_byte_of_weights_and_states),
        cmocka_unit_test(at_a_scale_of_one_a_gradient_that_is_not_finite_stops_the_run),
        cmocka_unit_test(steps_are_those_of_adamw_in_float64_on_the_master),
    };
    return cmocka_run_group_tests(tests, make_store, remove_store);
}
