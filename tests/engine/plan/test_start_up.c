/* SPDX-License-Identifier: Apache-2.0 */
/* What a run moves before its first step, of tables that are given, and its seconds at made-up
 * rates. */
#include "plan/search/start_up.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define GIB (UINT64_C(1) << 30)

/* In GiB: of weights and states, in HBM, DRAM and on drives. */
static struct placement placement_of(const uint64_t weights[HST_TIER_COUNT],
                                     const uint64_t states[HST_TIER_COUNT])
{
    struct placement p = {.dram_bytes = 92 * GIB};
    for (int tier = 0; tier < HST_TIER_COUNT; tier++) {
        p.table[HST_CLASS_WEIGHTS][tier] = weights[tier] * GIB;
        p.table[HST_CLASS_STATES][tier] = states[tier] * GIB;
        p.table[HST_CLASS_ACTS][tier] = 7 * GIB; /* nothing of it at the start */
    }
    return p;
}

static void assert_bytes(const struct placement_in *in, const struct placement *p, bool resumes,
                         uint64_t locked, uint64_t read, uint64_t written)
{
    struct start_bytes bytes = start_up_bytes(in, p, 15 * GIB, resumes);
    assert_int_equal(bytes.locked, locked * GIB);
    assert_int_equal(bytes.read, read * GIB);
    assert_int_equal(bytes.written, written * GIB);
}

static const uint64_t order[HST_TIER_COUNT] = {
    [HST_TIER_HBM] = 2, [HST_TIER_DRAM] = 4, [HST_TIER_NVME] = 8};

static void only_a_gpu_has_memory_locked(void **state)
{
    (void)state;
    struct placement p = placement_of(order, order);
    struct placement_in in = {.compute_tier = HST_TIER_HBM};
    assert_bytes(&in, &p, false, 92, 15, 16);
    in.compute_tier = HST_TIER_DRAM;
    assert_bytes(&in, &p, false, 0, 15, 16);
}

static void each_tile_is_written_once_whatever_slots_it_has(void **state)
{
    (void)state;
    static const uint64_t twice[HST_TIER_COUNT] = {2, 8, 16};
    struct placement p = placement_of(twice, twice);
    const struct placement_in stored = {.compute_tier = HST_TIER_DRAM, .stored = true},
                              optimistic = {.compute_tier = HST_TIER_DRAM, .second_slots = true};
    assert_bytes(&stored, &p, false, 0, 15, 16);
    assert_bytes(&optimistic, &p, false, 0, 15, 16);
    /* in fp16 a store has its weights once, as they follow from the states */
    const struct placement_in f16 = {
        .compute_tier = HST_TIER_DRAM, .stored = true, .derived_weights = true};
    assert_bytes(&f16, &p, false, 0, 15, 16 + 8);
}

static void a_run_that_goes_on_reads_what_lives_in_memory(void **state)
{
    (void)state;
    struct placement p = placement_of(order, order);
    struct placement_in in = {.compute_tier = HST_TIER_HBM, .stored = true};
    assert_bytes(&in, &p, true, 92, 12, 0);
    in.second_slots = true;
    assert_bytes(&in, &p, true, 92, 8, 0);
}

static struct hst_rates rates_of(double lock, double read, double write)
{
    struct hst_rates rates = {.drive_count = 1};
    rates.figures[HST_RATE_LOCK].value = lock;
    rates.figures[HST_RATE_READ].value = read;
    rates.figures[HST_RATE_WRITE].value = write;
    return rates;
}

static const struct start_bytes all = {92 * GIB, 15 * GIB, 30 * GIB};

static void one_part_follows_another(void **state)
{
    (void)state;
    char text[HST_START_UP_TEXT_BYTES];
    struct hst_start_up s;
    struct hst_rates rates = rates_of(2.0 * GIB, 3.0 * GIB, 5.0 * GIB);
    start_up_seconds(&all, &rates, &s);
    assert_true(s.lock_s == 46 && s.read_s == 5 && s.write_s == 6 && s.seconds == 57);
    assert_true(s.lock_bytes == all.locked && s.read_bytes == all.read &&
                s.write_bytes == all.written);
    assert_string_equal(s.why, "");
    assert_string_equal(hst_start_up_text(&s, text),
                        "starting takes 57 s: page-locking 92.0 GiB 46 s, reading 15.0 GiB 5 s, "
                        "writing 30.0 GiB 6 s");
    start_up_seconds(&(struct start_bytes){.written = 30 * GIB}, &rates, &s);
    assert_string_equal(hst_start_up_text(&s, text), "starting takes 6 s: writing 30.0 GiB 6 s");
    rates = rates_of(0.05 * GIB, 3.0 * GIB, 3.0 * GIB);
    start_up_seconds(&(struct start_bytes){92 * GIB, .written = 20 * GIB}, &rates, &s);
    assert_string_equal(hst_start_up_text(&s, text), "starting takes 1847 s: page-locking 92.0 GiB "
                                                     "1840 s, writing 20.0 GiB 6.67 s");
}

static void what_has_no_rate_is_named_and_left_out(void **state)
{
    (void)state;
    char text[HST_START_UP_TEXT_BYTES];
    struct hst_start_up s;
    struct hst_rates rates = rates_of(2.0 * GIB, 0, 0);
    strcpy(rates.figures[HST_RATE_READ].how, "no drive is named");
    start_up_seconds(&all, &rates, &s);
    assert_true(s.seconds == 46 && s.lock_s == 46 && s.read_s == 0 && s.write_s == 0);
    assert_string_equal(hst_start_up_text(&s, text),
                        "starting takes 46 s: page-locking 92.0 GiB 46 s; reading is not counted, "
                        "its rate is not known: no drive is named");
    start_up_seconds(&all, NULL, &s);
    assert_true(s.seconds == 0);
    assert_string_equal(s.why, "page-locking is not counted, its rate is not known: it was not "
                               "measured");
    start_up_seconds(&(struct start_bytes){0}, NULL, &s); /* nothing needs no rate */
    assert_true(s.seconds == 0);
    assert_string_equal(s.why, "");
}

/* The longest reason and the longest numbers. */
static void the_text_has_an_end(void **state)
{
    (void)state;
    static const double longest[] = {1.23456e-101, 999999999.6, 1.23456e101};
    char text[HST_START_UP_TEXT_BYTES];
    for (size_t i = 0; i < sizeof longest / sizeof *longest; i++) {
        struct hst_start_up s = {.seconds = longest[i],
                                 .lock_s = longest[i],
                                 .read_s = longest[i],
                                 .write_s = longest[i],
                                 .lock_bytes = UINT64_MAX,
                                 .read_bytes = UINT64_MAX,
                                 .write_bytes = UINT64_MAX};
        memset(s.why, 'w', sizeof s.why - 1);
        assert_ptr_equal(hst_start_up_text(&s, text), text);
        assert_non_null(strstr(text, s.why));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_gpu_has_memory_locked),
        cmocka_unit_test(each_tile_is_written_once_whatever_slots_it_has),
        cmocka_unit_test(a_run_that_goes_on_reads_what_lives_in_memory),
        cmocka_unit_test(one_part_follows_another),
        cmocka_unit_test(what_has_no_rate_is_named_and_left_out),
        cmocka_unit_test(the_text_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
