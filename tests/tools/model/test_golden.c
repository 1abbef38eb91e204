/* SPDX-License-Identifier: Apache-2.0 */
/* Twelve AdamW steps of small models against a float64 reference (tests/golden). */
#include "fixture.h"
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>

struct trained {
    struct fixture_step steps[12];
};

static void train(const char *name, enum hst_precision precision, struct trained *out)
{
    struct fixture f;
    struct harness h;
    fixture_open(name, &f);
    f.engine.precision = precision;
    struct hst_reader reader = {.read = fixture_read, .context = &f};
    harness_open(&h, &f.model, &f.run, &f.engine, &reader);

    for (size_t i = 0; i < f.step_count; i++) {
        struct hst_step_in in = {.size = sizeof in, .lr = f.lr};
        struct hst_step_stats stats = {0};
        double loss = NAN;
        const struct llama_batch batch = fixture_batch(&f, i);
        assert_int_equal(llama_step(h.model, h.engine, &in, &batch, &loss, &stats), 0);
        assert_true(isfinite(loss) && isfinite(stats.grad_norm)); /* fmax passes over NaN */
        out->steps[i] = (struct fixture_step){loss, stats.grad_norm};
    }
    harness_close(&h);
    fixture_close(&f);
}

static double worst_against_golden(const char *name, const struct trained *t)
{
    struct fixture f;
    fixture_open(name, &f);
    double worst = 0.0;
    for (size_t i = 0; i < f.step_count; i++) {
        worst = fmax(worst, fabs(t->steps[i].loss / f.steps[i].loss - 1.0));
        worst = fmax(worst, fabs(t->steps[i].grad_norm / f.steps[i].grad_norm - 1.0));
    }
    fixture_close(&f);
    print_message("%s: %.1e relative at most\n", name, worst);
    return worst;
}

static void assert_golden(const char *name, enum hst_precision precision, double tolerance)
{
    struct trained t = {0};
    train(name, precision, &t);
    assert_true(worst_against_golden(name, &t) < tolerance);
}

static void tied_grouped_query_llama_trains_as_the_reference(void **state)
{
    (void)state;
    assert_golden("tied-gqa", HST_PRECISION_FP32, 2e-5);
}

static void untied_multi_head_llama_trains_as_the_reference(void **state)
{
    (void)state;
    assert_golden("untied-mha", HST_PRECISION_FP32, 2e-5);
}

static void heads_that_are_normed_train_as_the_reference(void **state)
{
    (void)state;
    assert_golden("qk-norm", HST_PRECISION_FP32, 2e-5);
}

static void biases_train_as_the_reference(void **state)
{
    (void)state;
    assert_golden("qkv-bias", HST_PRECISION_FP32, 2e-5);
}

static void sequences_as_long_as_the_window_train_as_the_reference(void **state)
{
    (void)state;
    assert_golden("windowed", HST_PRECISION_FP32, 2e-5);
}

/* Masked, documents packed: the reference has each document by itself. */
static void packed_documents_train_as_one_by_one(void **state)
{
    (void)state;
    assert_golden("packed", HST_PRECISION_FP32, 2e-6);
}

static void rows_for_padding_train_as_the_reference(void **state)
{
    (void)state;
    assert_golden("pad-tied", HST_PRECISION_FP32, 2e-5);
    assert_golden("pad-untied", HST_PRECISION_FP32, 2e-5);
}

/* Eight bits of mantissa: losses and norms stay within one per cent, which a wrong term would
 * not. In fp16: e2e/golden. */
static void bf16_stays_near_the_reference(void **state)
{
    (void)state;
    assert_golden("tied-gqa", HST_PRECISION_BF16, 1e-2);
    assert_golden("untied-mha", HST_PRECISION_BF16, 1e-2);
    assert_golden("qk-norm", HST_PRECISION_BF16, 1e-2);
    assert_golden("qkv-bias", HST_PRECISION_BF16, 1e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_grouped_query_llama_trains_as_the_reference),
        cmocka_unit_test(untied_multi_head_llama_trains_as_the_reference),
        cmocka_unit_test(heads_that_are_normed_train_as_the_reference),
        cmocka_unit_test(biases_train_as_the_reference),
        cmocka_unit_test(sequences_as_long_as_the_window_train_as_the_reference),
        cmocka_unit_test(packed_documents_train_as_one_by_one),
        cmocka_unit_test(rows_for_padding_train_as_the_reference),
        cmocka_unit_test(bf16_stays_near_the_reference),
    };
    return cmocka_run_group_tests_name("model/golden", tests, NULL, NULL);
}
