/* SPDX-License-Identifier: Apache-2.0 */
/* What is run for a call: where each run's operands begin, and which plans are kept. */
#include "cut.h"
#include "fake_cudnn.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Addresses only: nothing is read or written there. */
#define ADDRESS(n) ((void *)((uintptr_t)(n) << 40))

static struct hst_sdpa sdpa;
static struct hst_dev_failure failure;

static int open_hopper(void **state)
{
    (void)state;
    fake_reset();
    fake_open(&sdpa, 90);
    memset(&failure, 0, sizeof failure);
    return 0;
}

static int close_and_count(void **state)
{
    (void)state;
    fake_close(&sdpa);
    assert_int_equal(fake.live, 0);
    return 0;
}

static struct hst_attention_backward call(size_t batch, size_t seq, size_t heads, size_t kv_heads)
{
    return (struct hst_attention_backward){.forward = {.batch = batch,
                                                       .seq = seq,
                                                       .heads = heads,
                                                       .kv_heads = kv_heads,
                                                       .head_dim = 128,
                                                       .dtype = HST_BF16,
                                                       .scale = 0.25f,
                                                       .q = ADDRESS(1),
                                                       .k = ADDRESS(2),
                                                       .v = ADDRESS(3),
                                                       .o = ADDRESS(4),
                                                       .lse = ADDRESS(5),
                                                       .work = {.data = (char *)ADDRESS(10) + 16}},
                                           .dout = ADDRESS(6),
                                           .dq = ADDRESS(7),
                                           .dk = ADDRESS(8),
                                           .dv = ADDRESS(9)};
}

/* Of a shape that is known to have a plan, or to have none. */
static size_t work_of(const struct hst_attention *args)
{
    size_t bytes;
    assert_int_equal(hst_sdpa_work_bytes(&sdpa, args, &bytes, &failure), 0);
    return bytes;
}

static void a_forward_that_fits_is_one_run(void **state)
{
    (void)state;
    struct hst_attention args = call(3, 512, 8, 2).forward;
    assert_int_equal(hst_sdpa_supports(&sdpa, &args, false, NULL), 1);
    assert_int_equal(hst_sdpa_forward(&sdpa, (cudaStream_t)ADDRESS(11), &args, &failure), 0);
    assert_int_equal(fake.runs_count, 1);
    const struct fake_run *run = &fake.runs[0];
    assert_ptr_equal(run->stream, ADDRESS(11));
    assert_ptr_equal(run->handle, sdpa.target.handle);
    assert_ptr_equal(run->data[SDPA_Q], args.q);
    assert_ptr_equal(run->data[SDPA_K], args.k);
    assert_ptr_equal(run->data[SDPA_V], args.v);
    assert_ptr_equal(run->data[SDPA_O], args.o);
    assert_ptr_equal(run->data[SDPA_LSE], args.lse);
    assert_null(run->data[SDPA_DQ]);
    assert_ptr_equal(run->work, (char *)ADDRESS(10) + WORK_ALIGN_BYTES);
    assert_true(run->scale == 0.25f);
    assert_true(isinf(run->masked) && run->masked < 0);
    const int64_t dims[4] = {3, 8, 512, 128}, strides[4] = {512 * 1024, 128, 1024, 1};
    assert_memory_equal(run->q_dims, dims, sizeof dims);
    assert_memory_equal(run->q_strides, strides, sizeof strides);
}

static ptrdiff_t offset(const struct fake_run *run, enum sdpa_uid uid, const void *base)
{
    return (char *)run->data[uid] - (const char *)base;
}

static void a_long_backward_goes_by_heads(void **state)
{
    (void)state;
    const size_t seq = 4096, heads = 24, kv_heads = 12, dim = 128;
    struct hst_attention_backward args = call(2, seq, heads, kv_heads);
    assert_int_equal(hst_sdpa_backward(&sdpa, NULL, &args, &failure), 0);
    assert_int_equal(fake.runs_count, 8); /* 2 rows, 4 runs of 3 key-value heads */
    assert_int_equal(fake.plans_built, 1);
    for (size_t i = 0; i < 8; i++) {
        const struct fake_run *run = &fake.runs[i];
        size_t row = i / 4, group = i % 4 * 3;
        ptrdiff_t query = (ptrdiff_t)((row * seq * heads + group * 2) * dim * 2);
        ptrdiff_t key = (ptrdiff_t)((row * seq * kv_heads + group) * dim * 2);
        const struct hst_attention *f = &args.forward;
        assert_int_equal(offset(run, SDPA_Q, f->q), query);
        assert_int_equal(offset(run, SDPA_O, f->o), query);
        assert_int_equal(offset(run, SDPA_DOUT, args.dout), query);
        assert_int_equal(offset(run, SDPA_DQ, args.dq), query);
        assert_int_equal(offset(run, SDPA_K, f->k), key);
        assert_int_equal(offset(run, SDPA_V, f->v), key);
        assert_int_equal(offset(run, SDPA_DK, args.dk), key);
        assert_int_equal(offset(run, SDPA_DV, args.dv), key);
        assert_int_equal(offset(run, SDPA_LSE, f->lse), (row * heads + group * 2) * seq * 4);
        assert_int_equal(run->q_dims[1], 6);
        assert_int_equal(run->q_strides[2], heads * dim);
        assert_true(run->one == 1.0f);
    }
}

static void a_wide_batch_goes_by_rows(void **state)
{
    (void)state;
    struct hst_attention_backward args = call(7, 2048, 8, 8);
    assert_int_equal(hst_sdpa_backward(&sdpa, NULL, &args, &failure), 0);
    assert_int_equal(fake.runs_count, 3); /* 3, 3 and 1 rows */
    assert_int_equal(fake.plans_built, 2);
    assert_int_equal(fake.runs[2].q_dims[0], 1);
    assert_int_equal(offset(&fake.runs[2], SDPA_DV, args.dv), 6 * 2048 * 8 * 128 * 2);
}

static struct hst_sdpa_made made(void)
{
    struct hst_sdpa_made told;
    hst_sdpa_made(&sdpa, &told);
    return told;
}

/* Which of two kernels makes a long backward is the budget's choice; that it made one is told. */
static void a_budget_decides_who_makes_a_long_backward(void **state)
{
    (void)state;
    struct hst_attention_backward args = call(1, 8192, 8, 2);
    hst_sdpa_budget(&sdpa, (uint64_t)15 << 30);
    assert_int_equal(hst_sdpa_supports(&sdpa, &args.forward, true, NULL), 0);
    assert_int_equal(hst_sdpa_backward(&sdpa, NULL, &args, &failure), -ENOTSUP);
    assert_true(work_of(&args.forward) < HST_SDPA_WORK_BYTES); /* forward's */
    assert_int_equal(made().largest_bytes, 0);
    hst_sdpa_budget(&sdpa, (uint64_t)16 << 30);
    size_t work = work_of(&args.forward);
    assert_int_equal(made().largest_bytes, work);
    assert_true(work > 2 * HST_SDPA_WORK_BYTES && work < 3 * HST_SDPA_WORK_BYTES);
    assert_int_equal(hst_sdpa_backward(&sdpa, NULL, &args, &failure), 0);
    assert_int_equal(fake.runs_count, 2); /* a group each */
    hst_sdpa_budget(&sdpa, UINT64_MAX);   /* more than enough changes nothing */
    assert_int_equal(work_of(&args.forward), work);
    args = call(4, 2048, 8, 2);
    assert_true(work_of(&args.forward) <= HST_SDPA_WORK_BYTES);
    assert_int_equal(made().largest_bytes, work);
}

static void plans_are_counted_with_their_time(void **state)
{
    (void)state;
    struct hst_attention args = call(1, 64, 2, 2).forward;
    assert_int_equal(made().plans, 0);
    assert_true(made().plans_s == 0);
    assert_true(work_of(&args) > 0);
    double first_s = made().plans_s;
    assert_int_equal(made().plans, 2);
    assert_true(first_s > 0);
    assert_true(work_of(&args) > 0);
    assert_int_equal(made().plans, 2);
    fake.proposals[0][0].nondeterministic = true;
    args.seq = 65;
    assert_int_equal(hst_sdpa_supports(&sdpa, &args, false, NULL), 0);
    assert_int_equal(made().plans, 3); /* there is none, which took its time too */
    assert_true(made().plans_s > first_s);
}

static void an_empty_batch_runs_nothing(void **state)
{
    (void)state;
    struct hst_attention_backward args = call(0, 64, 2, 2);
    assert_int_equal(hst_sdpa_supports(&sdpa, &args.forward, true, NULL), 1);
    assert_int_equal(hst_sdpa_forward(&sdpa, NULL, &args.forward, NULL), 0);
    assert_int_equal(hst_sdpa_backward(&sdpa, NULL, &args, NULL), 0);
    assert_int_equal(fake.calls, 0);
}

static void a_plan_is_built_once(void **state)
{
    (void)state;
    struct hst_attention_backward args = call(1, 64, 2, 2);
    size_t work = work_of(&args.forward);
    assert_int_equal(fake.plans_built, 2); /* the forward's and the backward's */
    assert_true(work > 2 * 2 * 128 * 128 && work <= HST_SDPA_WORK_BYTES);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hst_sdpa_supports(&sdpa, &args.forward, true, NULL), 1);
        assert_int_equal(hst_sdpa_forward(&sdpa, NULL, &args.forward, &failure), 0);
        assert_int_equal(hst_sdpa_backward(&sdpa, NULL, &args, &failure), 0);
    }
    assert_int_equal(fake.plans_built, 2);
}

static void each_dtype_has_a_plan_of_its_own(void **state)
{
    (void)state;
    struct hst_attention args = call(3, 512, 8, 2).forward;
    assert_int_equal(hst_sdpa_forward(&sdpa, NULL, &args, &failure), 0);
    args.dtype = HST_F16;
    assert_int_equal(hst_sdpa_forward(&sdpa, NULL, &args, &failure), 0);
    assert_int_equal(fake.plans_built, 2);
    args.dtype = HST_BF16;
    assert_int_equal(hst_sdpa_forward(&sdpa, NULL, &args, &failure), 0);
    assert_int_equal(fake.plans_built, 2);
    args.dtype = HST_F32;
    assert_int_equal(hst_sdpa_supports(&sdpa, &args, false, NULL), 0);
}

static void what_is_refused_stays_refused(void **state)
{
    (void)state;
    struct hst_attention args = call(1, 64, 2, 2).forward;
    fake.proposals[0][0].nondeterministic = true;
    assert_int_equal(hst_sdpa_supports(&sdpa, &args, false, NULL), 0);
    size_t calls = fake.calls;
    assert_int_equal(hst_sdpa_supports(&sdpa, &args, false, NULL), 0);
    assert_int_equal(work_of(&args), 0);
    assert_int_equal(hst_sdpa_forward(&sdpa, NULL, &args, &failure), -ENOTSUP);
    assert_int_equal(failure.why, HST_DEV_LIBRARY);
    assert_true(fake.calls > calls); /* the backward was asked for by work_bytes */
    calls = fake.calls;
    assert_int_equal(work_of(&args), 0);
    assert_int_equal(fake.calls, calls);
}

static void short_memory_is_forgotten(void **state)
{
    (void)state;
    struct hst_attention args = call(1, 64, 2, 2).forward;
    fake.fail_at = 5;
    fake.fail_status = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    assert_int_equal(hst_sdpa_supports(&sdpa, &args, false, NULL), -ENOMEM);
    assert_int_equal(hst_sdpa_supports(&sdpa, &args, false, NULL), 1);
}

/* 0 would stand for a plan that is not there, and leave no room for the one that comes later. */
static void work_that_can_not_be_told_is_none_of_0_bytes(void **state)
{
    (void)state;
    const struct {
        int status, rc;
        enum hst_dev_why why;
    } cases[] = {{CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, -ENOMEM, HST_DEV_MEMORY},
                 {CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED, -ENODEV, HST_DEV_LIBRARY}};
    struct hst_attention args = call(1, 64, 2, 2).forward;
    for (size_t i = 0; i < 2; i++) {
        size_t bytes = 77;
        fake.calls = 0;
        fake.fail_at = 5;
        fake.fail_status = cases[i].status;
        assert_int_equal(hst_sdpa_work_bytes(&sdpa, &args, &bytes, &failure), cases[i].rc);
        assert_int_equal(bytes, 77);
        assert_int_equal(failure.why, cases[i].why);
        assert_int_equal(hst_sdpa_work_bytes(&sdpa, &args, &bytes, NULL), 0);
        assert_true(bytes > 2 * 2 * 128 * 128);
        args.seq = 128;
    }
}

static void a_cudnn_that_is_not_whole_is_no_answer_for_the_shape(void **state)
{
    (void)state;
    struct hst_attention args = call(1, 64, 2, 2).forward;
    fake.fail_lasts = true;
    fake.fail_status = CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED;
    for (size_t at = 1;; at++) { /* until the plan is built in fewer calls */
        fake.calls = 0;
        fake.fail_at = at;
        int rc = hst_sdpa_supports(&sdpa, &args, false, &failure);
        if (rc != -ENODEV) {
            assert_int_equal(rc, 1);
            assert_true(at > 20);
            break;
        }
        assert_int_equal(failure.why, HST_DEV_LIBRARY);
        assert_non_null(strstr(failure.text, "/fake/libcudnn.so.9 is not whole: "));
    }
}

static size_t waits;
static int wait_for_device(void)
{
    waits++;
    return 0;
}

static void the_plan_unused_for_longest_goes(void **state)
{
    (void)state;
    sdpa.cache.wait = wait_for_device;
    waits = 0;
    for (size_t i = 0; i < CACHE_PLANS; i++) {
        struct hst_attention args = call(1, 64 + i, 2, 2).forward;
        assert_int_equal(hst_sdpa_supports(&sdpa, &args, false, NULL), 1);
    }
    struct hst_attention first = call(1, 64, 2, 2).forward, second = call(1, 65, 2, 2).forward;
    struct hst_attention other = call(1, 1000, 2, 2).forward;
    assert_int_equal(hst_sdpa_supports(&sdpa, &first, false, NULL), 1);
    assert_int_equal(waits, 0);
    assert_int_equal(hst_sdpa_supports(&sdpa, &other, false, NULL), 1);
    assert_int_equal(waits, 1); /* its kernels may still have run */
    assert_int_equal(fake.plans_built, CACHE_PLANS + 1);
    assert_int_equal(hst_sdpa_supports(&sdpa, &first, false, NULL), 1);
    assert_int_equal(fake.plans_built, CACHE_PLANS + 1);
    assert_int_equal(hst_sdpa_supports(&sdpa, &second, false, NULL), 1);
    assert_int_equal(fake.plans_built, CACHE_PLANS + 2);
}

static void an_execution_that_fails_is_reported(void **state)
{
    (void)state;
    struct hst_attention args = call(1, 64, 2, 2).forward;
    fake.execute_status = CUDNN_STATUS_EXECUTION_FAILED;
    assert_int_equal(hst_sdpa_forward(&sdpa, NULL, &args, &failure), -EIO);
    assert_int_equal(failure.why, HST_DEV_EXECUTION);
    assert_int_equal(failure.native, CUDNN_STATUS_EXECUTION_FAILED);
    assert_non_null(strstr(failure.text, "FAKE_FAILURE"));
    assert_int_equal(hst_sdpa_forward(&sdpa, NULL, &args, NULL), -EIO);
}

/* Each call of the operands' descriptor fails in turn; the plan is there. */
static void operands_that_fail_leave_nothing_behind(void **state)
{
    (void)state;
    struct hst_attention args = call(1, 64, 2, 2).forward;
    assert_int_equal(hst_sdpa_supports(&sdpa, &args, false, NULL), 1);
    size_t live = fake.live, failed = 0;
    fake.fail_status = CUDNN_STATUS_BAD_PARAM;
    for (size_t n = 1; n < 10; n++) {
        fake.calls = 0;
        fake.fail_at = n;
        failed += hst_sdpa_forward(&sdpa, NULL, &args, &failure) == -EIO;
        assert_int_equal(fake.live, live);
    }
    assert_int_equal(failed, 5); /* one creation, three attributes, one finalization */
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_hopper, close_and_count)
    const struct CMUnitTest tests[] = {
        CASE(a_forward_that_fits_is_one_run),
        CASE(a_long_backward_goes_by_heads),
        CASE(a_wide_batch_goes_by_rows),
        CASE(a_budget_decides_who_makes_a_long_backward),
        CASE(plans_are_counted_with_their_time),
        CASE(an_empty_batch_runs_nothing),
        CASE(a_plan_is_built_once),
        CASE(each_dtype_has_a_plan_of_its_own),
        CASE(what_is_refused_stays_refused),
        CASE(short_memory_is_forgotten),
        CASE(work_that_can_not_be_told_is_none_of_0_bytes),
        CASE(a_cudnn_that_is_not_whole_is_no_answer_for_the_shape),
        CASE(the_plan_unused_for_longest_goes),
        CASE(an_execution_that_fails_is_reported),
        CASE(operands_that_fail_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
