/* SPDX-License-Identifier: Apache-2.0 */
/* How calls are cut into runs: everything once, nothing beyond the bound. */
#include "cut.h"

#include "../work_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct hst_attention call(size_t batch, size_t seq, size_t heads, size_t kv_heads,
                                 size_t head_dim)
{
    return (struct hst_attention){.batch = batch,
                                  .seq = seq,
                                  .heads = heads,
                                  .kv_heads = kv_heads,
                                  .head_dim = head_dim,
                                  .dtype = HST_BF16};
}

static bool served(enum sdpa_form form, struct hst_attention args)
{
    struct cut cut;
    return cut_find(form, &args, HST_SDPA_WORK_BYTES, &cut);
}

static void what_fits_is_one_run(void **state)
{
    (void)state;
    struct hst_attention args = call(4, 1024, 8, 2, 64);
    struct cut cut;
    const enum sdpa_form forms[] = {SDPA_FORWARD, SDPA_BACKWARD_STORED, SDPA_BACKWARD_ORDERED};
    for (size_t i = 0; i < 3; i++) {
        assert_true(cut_find(forms[i], &args, HST_SDPA_WORK_BYTES, &cut));
        assert_int_equal(cut_count(&cut, &args), 1);
        struct run run = cut_run(&cut, &args, 0);
        assert_int_equal(run.shape.batch, 4);
        assert_int_equal(run.shape.heads, 8);
    }
}

/* Every (row, kv head) in exactly one run; query heads go with theirs; no run beyond the bound. */
static void check_cover(enum sdpa_form form, const struct hst_attention *args)
{
    struct cut cut;
    if (!cut_find(form, args, HST_SDPA_WORK_BYTES, &cut))
        return;
    assert_true(cut.work_bytes <= HST_SDPA_WORK_BYTES);
    unsigned char *seen = calloc(args->batch, args->kv_heads);
    size_t count = cut_count(&cut, args);
    for (size_t i = 0; i < count; i++) {
        struct run run = cut_run(&cut, args, i);
        const struct sdpa_shape *s = &run.shape;
        assert_true(s->batch > 0 && s->kv_heads > 0);
        assert_int_equal(s->heads, s->kv_heads * (int64_t)(args->heads / args->kv_heads));
        assert_int_equal(s->all_heads, args->heads);
        assert_int_equal(s->all_kv_heads, args->kv_heads);
        assert_true(cut_work_bytes(form, s) + WORK_ALIGN_BYTES <= cut.work_bytes);
        for (size_t row = run.row; row < run.row + (size_t)s->batch; row++)
            for (size_t g = run.group; g < run.group + (size_t)s->kv_heads; g++) {
                assert_true(row < args->batch && g < args->kv_heads);
                seen[row * args->kv_heads + g]++;
            }
    }
    for (size_t i = 0; i < args->batch * args->kv_heads; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
}

static void every_row_and_head_is_in_one_run(void **state)
{
    (void)state;
    const size_t seqs[] = {2, 333, 2048, 4096, 8192, 11000}, kv[] = {1, 5, 8};
    for (size_t s = 0; s < 6; s++)
        for (size_t k = 0; k < 3; k++)
            for (size_t batch = 1; batch < 14; batch += 3)
                for (size_t group = 1; group < 5; group += 3)
                    for (int form = SDPA_FORWARD; form <= SDPA_BACKWARD_ORDERED; form++) {
                        struct hst_attention args = call(batch, seqs[s], kv[k] * group, kv[k], 128);
                        check_cover((enum sdpa_form)form, &args);
                    }
}

static void long_sequences_go_by_heads(void **state)
{
    (void)state;
    struct hst_attention args = call(2, 4096, 32, 32, 128);
    struct cut cut;
    assert_true(cut_find(SDPA_BACKWARD_STORED, &args, HST_SDPA_WORK_BYTES, &cut));
    assert_int_equal(cut.rows, 1);
    assert_int_equal(cut.groups, 7); /* 34 MB each: 7 fit, and 5 runs of 7 are as many as of more */
    assert_int_equal(cut_count(&cut, &args), 10);
    struct run last = cut_run(&cut, &args, 9);
    assert_int_equal(last.row, 1);
    assert_int_equal(last.group, 28);
    assert_int_equal(last.shape.heads, 4);
}

static void a_budget_gives_a_group_a_sixteenth_in_powers_of_two(void **state)
{
    (void)state;
    const size_t mib = (size_t)1 << 20, gib = 1024 * mib;
    assert_int_equal(cut_large_bytes(0), 256 * mib);
    assert_int_equal(cut_large_bytes(8 * gib - 1), 256 * mib);
    assert_int_equal(cut_large_bytes(8 * gib), 512 * mib);
    assert_int_equal(cut_large_bytes(22 * gib), gib);
    assert_int_equal(cut_large_bytes(71 * gib), 4 * gib);
    assert_int_equal(cut_large_bytes(UINT64_MAX), 4 * gib);
}

/* As on every other card where it fits: there the cut is not the budget's. */
static void only_what_does_not_fit_follows_the_budget(void **state)
{
    (void)state;
    const size_t large = (size_t)1 << 30;
    for (size_t seq = 1024; seq <= 5120; seq += 1024) {
        struct hst_attention args = call(3, seq, 32, 8, 128);
        struct cut small, wide;
        assert_true(cut_find(SDPA_BACKWARD_STORED, &args, HST_SDPA_WORK_BYTES, &small));
        assert_true(cut_find(SDPA_BACKWARD_STORED, &args, large, &wide));
        assert_memory_equal(&small, &wide, sizeof small);
    }
    struct hst_attention args = call(3, 8192, 32, 8, 128);
    struct cut cut;
    assert_false(cut_find(SDPA_BACKWARD_STORED, &args, large / 2, &cut));
    assert_true(cut_find(SDPA_BACKWARD_STORED, &args, large, &cut));
    assert_int_equal(cut.rows, 1);
    assert_int_equal(cut.groups, 1);
    assert_int_equal(cut_count(&cut, &args), 24);
    struct run last = cut_run(&cut, &args, 23);
    assert_int_equal(last.shape.heads, 4);
    assert_true(cut_work_bytes(SDPA_BACKWARD_STORED, &last.shape) + WORK_ALIGN_BYTES ==
                cut.work_bytes);
    assert_true(cut.work_bytes > HST_SDPA_WORK_BYTES && cut.work_bytes <= large);
    args = call(1, 32768, 4, 4, 64);
    assert_true(cut_find(SDPA_BACKWARD_STORED, &args, cut_large_bytes(UINT64_MAX), &cut));
    assert_true(2 * args.seq * args.seq <= UINT32_MAX); /* fewer than 2³¹ of 16 bits */
    args.heads = 8;
    assert_false(cut_find(SDPA_BACKWARD_STORED, &args, cut_large_bytes(UINT64_MAX), &cut));
}

static void workspace_grows_with_the_batch(void **state)
{
    (void)state;
    for (int form = SDPA_FORWARD; form <= SDPA_BACKWARD_ORDERED; form++) {
        size_t before = 0;
        for (size_t batch = 1; batch < 40; batch++) {
            struct hst_attention args = call(batch, 1536, 12, 4, 64);
            struct cut cut;
            assert_true(cut_find((enum sdpa_form)form, &args, HST_SDPA_WORK_BYTES, &cut));
            assert_true(cut.work_bytes >= before);
            before = cut.work_bytes;
        }
    }
}

/* A plan for a GPU that is not here has no less, and no more than calls are cut to. */
static void a_planned_gpu_has_room_for_each_cut(void **state)
{
    (void)state;
    const size_t seqs[] = {2, 128, 333, 2048, 8192, 11000, 32768}, kv[] = {1, 5, 8};
    const uint64_t budgets[] = {(uint64_t)8 << 30, (uint64_t)80 << 30};
    for (size_t i = 0; i < 7 * 3 * 2 * 2 * 4; i++) {
        const size_t seq = seqs[i % 7], groups = kv[i / 7 % 3], each = i / 21 % 2 ? 4 : 1;
        const uint64_t budget = budgets[i / 42 % 2];
        struct hst_attention args = call(1 + 3 * (i / 84), seq, groups * each, groups, 128);
        const size_t planned =
            work_cudnn_attention_bytes(args.batch, args.heads, groups, seq, 128, budget);
        const enum sdpa_form forms[] = {SDPA_BACKWARD_STORED, SDPA_BACKWARD_ORDERED};
        struct cut cut;
        size_t most = 0;
        for (int f = 0; f < 2; f++)
            if (cut_find(forms[f], &args, cut_large_bytes(budget), &cut) && cut.work_bytes > most)
                most = cut.work_bytes;
        assert_true(planned >= most);
        assert_true(planned <= (most > HST_SDPA_WORK_BYTES ? most : HST_SDPA_WORK_BYTES));
        assert_true(most == 0 || planned <= 2 * most);
    }
}

static void what_is_not_served(void **state)
{
    (void)state;
    struct hst_attention f32 = call(1, 128, 1, 1, 64);
    assert_true(served(SDPA_FORWARD, f32));
    f32.dtype = HST_F32;
    assert_false(served(SDPA_FORWARD, f32));
    assert_false(served(SDPA_NONE, call(1, 128, 1, 1, 64)));
    assert_false(served(SDPA_FORWARD, call(1, 1, 1, 1, 64)));
    assert_false(served(SDPA_FORWARD, call(1, 128, 1, 1, 60)));
    assert_true(served(SDPA_FORWARD, call(1, 128, 1, 1, 256)));
    assert_false(served(SDPA_FORWARD, call(1, 128, 1, 1, 264)));
    assert_true(served(SDPA_BACKWARD_STORED, call(1, 11000, 1, 1, 64)));
    assert_false(served(SDPA_BACKWARD_STORED, call(1, 12000, 1, 1, 64)));
    assert_true(served(SDPA_BACKWARD_ORDERED, call(1, 131072, 1, 1, 64)));
    assert_true(served(SDPA_FORWARD, call(8, 131072, 127, 127, 128)));
    assert_false(served(SDPA_FORWARD, call(1, 131072, 128, 128, 128))); /* 2³¹ elements in a row */
    assert_false(served(SDPA_FORWARD, call(1, (size_t)1 << 33, 1, 1, 8)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_one_run),
        cmocka_unit_test(every_row_and_head_is_in_one_run),
        cmocka_unit_test(long_sequences_go_by_heads),
        cmocka_unit_test(a_budget_gives_a_group_a_sixteenth_in_powers_of_two),
        cmocka_unit_test(only_what_does_not_fit_follows_the_budget),
        cmocka_unit_test(workspace_grows_with_the_batch),
        cmocka_unit_test(a_planned_gpu_has_room_for_each_cut),
        cmocka_unit_test(what_is_not_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
