/* SPDX-License-Identifier: Apache-2.0 */
/* Which engine is taken, and that no failure on the way leaves anything behind. */
#include "fake_cudnn.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define LIMIT_BYTES 1000

static const struct sdpa_shape shape = {2, 64, 4, 2, 64, 4, 2, CUDNN_DATA_BFLOAT16};
static struct hst_dev_failure failure;

static struct cudnn_target target(int compute, size_t version)
{
    static char handle;
    return (struct cudnn_target){.api = &fake_api,
                                 .handle = (cudnnHandle_t)(void *)&handle,
                                 .compute = compute,
                                 .version = version};
}

static int build(struct plan *plan, enum sdpa_form form)
{
    struct cudnn_target t = target(90, 91900);
    return plan_build(plan, &t, form, &shape, LIMIT_BYTES, &failure);
}

/* The number of the engine that is taken. */
static int64_t taken(enum sdpa_form form)
{
    struct plan plan;
    assert_int_equal(build(&plan, form), 0);
    int64_t number = plan.engine;
    plan_destroy(&plan);
    assert_int_equal(fake.live, 0);
    return number;
}

static void propose(size_t mode, struct fake_engine engine)
{
    fake.proposals[mode][fake.proposal_count[mode]++] = engine;
}

static int reset(void **state)
{
    (void)state;
    fake_reset();
    fake.proposal_count[0] = 0;
    memset(&failure, 0, sizeof failure);
    return 0;
}

static void the_first_proposal_is_taken(void **state)
{
    (void)state;
    propose(0, (struct fake_engine){.number = 7, .work_bytes = LIMIT_BYTES});
    propose(0, (struct fake_engine){.number = 8});
    assert_int_equal(taken(SDPA_FORWARD), 7);
    assert_int_equal(fake.plans_built, 1);
}

static void what_does_not_qualify_is_passed_over(void **state)
{
    (void)state;
    propose(0, (struct fake_engine){.number = 1, .nondeterministic = true});
    propose(0, (struct fake_engine){.number = 2, .work_bytes = LIMIT_BYTES + 1});
    propose(0, (struct fake_engine){.number = 3, .builds = CUDNN_STATUS_NOT_SUPPORTED_LAYOUT});
    propose(0, (struct fake_engine){.number = 4});
    assert_int_equal(taken(SDPA_BACKWARD_STORED), 4);
}

static void what_was_passed_over_is_not_kept(void **state)
{
    (void)state;
    struct plan plan;
    propose(0, (struct fake_engine){.number = 4});
    assert_int_equal(build(&plan, SDPA_FORWARD), 0);
    size_t live = fake.live;
    plan_destroy(&plan);
    fake.proposal_count[0] = 0;
    propose(0, (struct fake_engine){.number = 2, .work_bytes = LIMIT_BYTES + 1});
    propose(0, (struct fake_engine){.number = 3, .builds = CUDNN_STATUS_NOT_SUPPORTED});
    propose(0, (struct fake_engine){.number = 4});
    assert_int_equal(build(&plan, SDPA_FORWARD), 0);
    assert_int_equal(fake.live, live);
    plan_destroy(&plan);
}

static void the_fallback_is_asked_last(void **state)
{
    (void)state;
    propose(0, (struct fake_engine){.number = 1, .nondeterministic = true});
    propose(1, (struct fake_engine){.number = 9});
    assert_int_equal(taken(SDPA_FORWARD), 9);
}

static void without_a_plan_it_is_not_supported(void **state)
{
    (void)state;
    struct plan plan;
    propose(0, (struct fake_engine){.number = 1, .nondeterministic = true});
    assert_int_equal(build(&plan, SDPA_FORWARD), -ENOTSUP);
    assert_int_equal(failure.why, HST_DEV_LIBRARY);
    assert_int_equal(fake.live, 0);
}

static void short_memory_ends_the_search(void **state)
{
    (void)state;
    struct plan plan;
    propose(0, (struct fake_engine){.number = 1,
                                    .builds = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED});
    propose(0, (struct fake_engine){.number = 2});
    assert_int_equal(build(&plan, SDPA_FORWARD), -ENOMEM);
    assert_int_equal(failure.why, HST_DEV_MEMORY);
    assert_null(strchr(failure.text, '\n'));
    assert_int_equal(fake.plans_built, 0);
    assert_int_equal(fake.live, 0);
}

static void the_ordered_form_takes_its_engine_alone(void **state)
{
    (void)state;
    struct plan plan;
    propose(0, (struct fake_engine){.number = 1});
    assert_int_equal(taken(SDPA_BACKWARD_ORDERED), 5);
    assert_int_equal(fake.asked_number, 5);
    assert_int_equal(fake.asked_knobs, 2);
    fake.by_number.builds = CUDNN_STATUS_NOT_SUPPORTED;
    assert_int_equal(build(&plan, SDPA_BACKWARD_ORDERED), -ENOTSUP);
    assert_int_equal(fake.live, 0);
}

static void a_backward_has_a_form_per_card_and_version(void **state)
{
    (void)state;
    const struct {
        int compute;
        size_t version;
        enum sdpa_form form;
    } rows[] = {
        {80, 91900, SDPA_BACKWARD_STORED},
        {90, 91600, SDPA_BACKWARD_STORED},
        {100, 91900, SDPA_BACKWARD_ORDERED},
        {103, 92200, SDPA_BACKWARD_ORDERED},
        {100, 91701, SDPA_NONE},
        {100, 92300, SDPA_NONE},
        {110, 91900, SDPA_NONE},
        {120, 91900, SDPA_BACKWARD_STORED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cudnn_target t = target(rows[i].compute, rows[i].version);
        assert_int_equal(sdpa_backward_form(&t), rows[i].form);
    }
}

/* Fails each call in turn, until none is left to fail. */
static void fail_every_call(enum sdpa_form form, cudnnStatus_t status)
{
    size_t failed = 0;
    for (size_t n = 1;; n++) {
        struct plan plan;
        fake.calls = 0;
        fake.fail_at = n;
        fake.fail_status = status;
        int rc = build(&plan, form);
        if (rc == 0)
            plan_destroy(&plan); /* the fallback stepped in, or no call is left */
        else
            failed++;
        assert_int_equal(fake.live, 0);
        if (fake.calls < n)
            break;
    }
    assert_true(failed > 200);
}

static void no_failure_leaves_descriptors_behind(void **state)
{
    (void)state;
    propose(0, (struct fake_engine){.number = 1, .work_bytes = 10});
    propose(1, (struct fake_engine){.number = 2});
    const enum sdpa_form forms[] = {SDPA_FORWARD, SDPA_BACKWARD_STORED, SDPA_BACKWARD_ORDERED};
    for (size_t i = 0; i < 3; i++) {
        fail_every_call(forms[i], CUDNN_STATUS_NOT_SUPPORTED);
        fail_every_call(forms[i], CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
        fail_every_call(forms[i], CUDNN_STATUS_BAD_PARAM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_first_proposal_is_taken, reset),
        cmocka_unit_test_setup(what_does_not_qualify_is_passed_over, reset),
        cmocka_unit_test_setup(what_was_passed_over_is_not_kept, reset),
        cmocka_unit_test_setup(the_fallback_is_asked_last, reset),
        cmocka_unit_test_setup(without_a_plan_it_is_not_supported, reset),
        cmocka_unit_test_setup(short_memory_ends_the_search, reset),
        cmocka_unit_test_setup(the_ordered_form_takes_its_engine_alone, reset),
        cmocka_unit_test(a_backward_has_a_form_per_card_and_version),
        cmocka_unit_test_setup(no_failure_leaves_descriptors_behind, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
