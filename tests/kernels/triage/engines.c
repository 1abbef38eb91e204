/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA device's own attention against cuDNN's, every element. Skipped where there is no cuDNN.
 */
#include "attention.h"
#include <math.h>
#include <stdlib.h>

struct results {
    double *of[4]; /* o, dq, dk, dv of one sequence */
    size_t count[4], width[4];
};

/* Opens the device with this engine. */
static struct results run_engine(const char *engine, enum hst_dtype dtype)
{
    struct results r;
    assert_int_equal(setenv("HOISTWAY_ATTENTION", engine, 1), 0);
    triage_reopen();
    struct attention a =
        attention_make(TRIAGE_REAL, dtype, (struct attention_case){.cut = 4, .backward = true});
    attention_run_backward(&a);
    struct operand *const of[4] = {a.o, a.dq, a.dk, a.dv};
    for (size_t i = 0; i < 4; i++) {
        r.width[i] = of[i]->columns;
        r.count[i] = of[i]->columns * a.s.seq;
        assert_non_null(r.of[i] = malloc(r.count[i] * sizeof(double)));
        triage_read(a.t, of[i], 0, r.count[i], r.of[i]);
    }
    triage_end(a.t);
    return r;
}

/*
 * Every element. Both engines round each weight to 16 bits, so they differ by what sum_noise allows
 * twice. √Σterm² is not known here; of token i it is at most 1.5/√(i + 1): weights are about
 * 1/(i + 1), what they weigh is below 1 (o, dv; four heads at once), and gradients of scores are
 * some 4 times as large and scaled by less than a tenth (dq, dk).
 */
static void compare(const struct results *own, const struct results *cudnn, enum hst_dtype dtype)
{
    static const char *const names[4] = {"o", "dq", "dk", "dv"};
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < own->count[k]; i++) {
            size_t token = i / own->width[k];
            double a = own->of[k][i], b = cudnn->of[k][i];
            double allowed = 2 * rounding(dtype, fmax(fabs(a), fabs(b))) +
                             24 * rounding(dtype, 1) / sqrt((double)token + 1);
            if (!(fabs(a - b) <= allowed))
                fail_msg("%s [%zu, %zu]: own is %.9g, cuDNN's is %.9g, allowed %.3g", names[k],
                         token, i % own->width[k], a, b, allowed);
        }
}

static void own_against_cudnn(enum triage_size size, enum hst_dtype dtype)
{
    (void)size;
    struct hst_dev *probe;
    const char *before = getenv("HOISTWAY_ATTENTION");
    char *kept = before ? strdup(before) : NULL;
    bool host = hst_dev_flags(triage_begin()->dev) & HST_DEV_HOST_MEMORY;
    assert_int_equal(setenv("HOISTWAY_ATTENTION", "cudnn-only", 1), 0);
    int rc = host ? -1 : suite_open(0, 0, NULL, &probe);
    if (rc == 0) {
        suite_close(&probe);
        struct results own = run_engine("own", dtype);
        struct results cudnn = run_engine("cudnn-only", dtype);
        compare(&own, &cudnn, dtype);
        for (size_t i = 0; i < 4; i++) {
            free(own.of[i]);
            free(cudnn.of[i]);
        }
        triage_reopen();
    }
    kept ? setenv("HOISTWAY_ATTENTION", kept, 1) : unsetenv("HOISTWAY_ATTENTION");
    free(kept);
    if (rc) {
        print_message("skipped: this device has no cuDNN\n");
        skip();
    }
}

TRIAGE_TEST(attention_own_against_cudnn_bf16, own_against_cudnn, TRIAGE_REAL, HST_BF16)
TRIAGE_TEST(attention_own_against_cudnn_f16, own_against_cudnn, TRIAGE_REAL, HST_F16)

struct triage_tests triage_engine_tests(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_own_against_cudnn_bf16),
        cmocka_unit_test(attention_own_against_cudnn_f16),
    };
    return (struct triage_tests){tests, sizeof tests / sizeof *tests};
}
