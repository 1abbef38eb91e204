/* SPDX-License-Identifier: Apache-2.0 */
/* Rates as text and back, and what is refused; when a drive works in turns. */
#include <errno.h>
#include <hoistway/cpu_adam.h>
#include <hoistway/machine.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct hst_figure some = {2.5e9, 1e9, 3.25e9, 5, "so, and so; 100 %"};

/* Something of everything. */
static void fill(struct hst_rates *r)
{
    *r = (struct hst_rates){.taken_ms = 1795272000123, .seconds = 1.25};
    snprintf(r->disturbed, sizeof r->disturbed, "other work had 1.5 of 2 processors");
    r->drive_count = 2;
    r->gemm_count = 2;
    r->figures[HST_RATE_DRAM] = some;
    r->figures[HST_RATE_H2D] = (struct hst_figure){.how = "not here"};
    r->figures[HST_RATE_MIXED] = r->figures[HST_RATE_MIXED_BUSY] = some;
    r->figures[HST_RATE_NET_GATHER] = r->figures[HST_RATE_NET_OPERATIONS_BETWEEN] = some;
    r->drives[1].read = r->drives[1].write = some;
    r->drives[1].mixed = (struct hst_figure){2.5e9, 2.5e9, 2.5e9, 1, "x"};
    r->drives[1].half_duplex = true;
    r->drives[1].written_bytes = 320u << 20;
    r->gemms[0] = (struct hst_figure){7e14, 6e14, 8e14, 3, "8192x8192x8192 bf16"};
    r->gemms[1] = (struct hst_figure){.how = "failed"};
    r->ahead[HST_AHEAD_BF16] = (struct hst_ahead){.asking = 3e9, .silent = 2e9};
    r->operation_count = 2;
    r->operations[0] = (struct hst_figure){3e13, 2e13, 4e13, 5, "attention"};
    r->operations[1] = (struct hst_figure){5e4, 5e4, 5e4, 1, "norms, a part"};
}

static void assert_figures_equal(const struct hst_figure *a, const struct hst_figure *b)
{
    assert_true(a->value == b->value && a->least == b->least && a->most == b->most);
    assert_int_equal(a->rounds, b->rounds);
    assert_string_equal(a->how, b->how);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    static char text[HST_RATES_TEXT_BYTES], again[HST_RATES_TEXT_BYTES];
    struct hst_rates r, back;
    fill(&r);
    int length = hst_rates_format(&r, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_int_equal(hst_rates_parse(text, &back), 0);
    assert_true(back.taken_ms == r.taken_ms && back.seconds == r.seconds && !back.cached);
    assert_string_equal(back.disturbed, r.disturbed);
    assert_int_equal(back.drive_count, 2);
    assert_int_equal(back.gemm_count, 2);
    assert_int_equal(back.operation_count, 2);
    for (int i = 0; i < HST_RATE_COUNT; i++)
        assert_figures_equal(&back.figures[i], &r.figures[i]);
    for (int i = 0; i < HST_AHEAD_COUNT; i++)
        assert_true(back.ahead[i].asking == r.ahead[i].asking &&
                    back.ahead[i].silent == r.ahead[i].silent);
    for (int i = 0; i < 2; i++) {
        assert_figures_equal(&back.drives[i].read, &r.drives[i].read);
        assert_figures_equal(&back.drives[i].write, &r.drives[i].write);
        assert_figures_equal(&back.drives[i].mixed, &r.drives[i].mixed);
        assert_int_equal(back.drives[i].half_duplex, r.drives[i].half_duplex);
        assert_true(back.drives[i].written_bytes == r.drives[i].written_bytes);
        assert_figures_equal(&back.gemms[i], &r.gemms[i]);
        assert_figures_equal(&back.operations[i], &r.operations[i]);
    }
    assert_int_equal(hst_rates_format(&back, again, sizeof again), length);
    assert_string_equal(text, again);
}

static void the_faster_of_prefetch_and_none_is_taken(void **state)
{
    (void)state;
    assert_int_equal(hst_ahead_elements(&(struct hst_ahead){0}), 0);
    assert_int_equal(hst_ahead_elements(&(struct hst_ahead){.asking = 1}), 0);
    assert_int_equal(hst_ahead_elements(&(struct hst_ahead){1, 2}), HST_AHEAD_NONE);
    assert_int_equal(hst_ahead_elements(&(struct hst_ahead){2, 1}), HST_AHEAD_USUAL);
    assert_int_equal(hst_ahead_elements(&(struct hst_ahead){2, 2}), HST_AHEAD_USUAL);
    for (int i = 0; i < HST_AHEAD_COUNT; i++)
        assert_non_null(hst_ahead_name((enum hst_ahead_row)i));
    assert_null(hst_ahead_name(HST_AHEAD_COUNT));
}

static void the_longest_rates_fit_and_no_room_is_told(void **state)
{
    (void)state;
    static char text[HST_RATES_TEXT_BYTES];
    static struct hst_rates r;
    struct hst_figure longest = {1e17, 1e17, 1e17, UINT32_MAX, ""};
    memset(longest.how, 'h', sizeof longest.how - 1);
    memset(r.disturbed, 'd', sizeof r.disturbed - 1);
    r.drive_count = HST_DRIVES_MAX;
    r.gemm_count = HST_GEMMS_MAX;
    for (int i = 0; i < HST_RATE_COUNT; i++)
        r.figures[i] = longest;
    for (int i = 0; i < HST_AHEAD_COUNT; i++)
        r.ahead[i] = (struct hst_ahead){1e17, 1e17};
    for (uint32_t i = 0; i < HST_DRIVES_MAX; i++)
        r.drives[i] = (struct hst_drive_rates){longest, longest, longest, true, UINT32_MAX, 0};
    for (uint32_t i = 0; i < HST_GEMMS_MAX; i++)
        r.gemms[i] = longest;
    r.operation_count = HST_OPERATIONS_MAX;
    for (uint32_t i = 0; i < HST_OPERATIONS_MAX; i++)
        r.operations[i] = longest;
    int length = hst_rates_format(&r, text, sizeof text);
    assert_true(length > 0);
    assert_int_equal(hst_rates_parse(text, &r), 0);
    for (int room = 1; room <= length; room += 97)
        assert_int_equal(hst_rates_format(&r, text, (size_t)room), -ENOSPC);
}

static void any_damage_is_found_and_nothing_is_written(void **state)
{
    (void)state;
    static char text[HST_RATES_TEXT_BYTES];
    struct hst_rates r, back, before;
    fill(&r);
    int length = hst_rates_format(&r, text, sizeof text);
    memset(&back, 0x5a, sizeof back);
    memcpy(&before, &back, sizeof before);
    for (int i = 0; i < length; i++)
        for (int bit = 0; bit < 7; bit++) { /* with the eighth it would not end there */
            text[i] ^= (char)(1 << bit);
            assert_int_equal(hst_rates_parse(text, &back), -EBADMSG);
            text[i] ^= (char)(1 << bit);
        }
    for (int i = length - 1; i >= 0; i--) {
        text[i] = '\0';
        assert_int_equal(hst_rates_parse(text, &back), -EBADMSG);
    }
    assert_memory_equal(&back, &before, sizeof back);
}

/* Puts a right checksum under a text, so that only what it says is judged. */
static int parse_signed(const char *body)
{
    char text[1024];
    struct hst_rates r;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (const char *c = body; *c; c++)
        sum = (sum ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    snprintf(text, sizeof text, "%send %016llx\n", body, (unsigned long long)sum);
    return hst_rates_parse(text, &r);
}

#define OLD   "hoistway rates 2\ntaken_ms 5\ntook_ms 6\ndrives 1\nproducts 1\noperations 1\n"
#define OLD_3 "hoistway rates 3\ntaken_ms 5\ntook_ms 6\ndrives 1\nproducts 1\noperations 1\n"
#define HEAD  "hoistway rates 4\ntaken_ms 5\ntook_ms 6\ndrives 1\nproducts 1\noperations 1\n"

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const char *const good[] = {
        HEAD,
        HEAD "net-gather 2 1 3 5 x\nnet-operations-between 2 1 3 5 x\n",
        OLD "dram 2 1 3 5 x\nmixed 2 1 3 5 x\n", /* of the versions before */
        OLD_3 "net-gather 2 1 3 5 x\n",
        HEAD "prefetch fp32 2 3\nprefetch bf16-state-8bit 1 1\n",
        HEAD "dram 2 1 3 5 x\n",
        HEAD "disturbed by others\ndram 2 1 3 5 x\n",
        HEAD "drive 0 read 2 2 2 1 x\ndrive 0 written 0\nproduct 0 0 0 0 0 why\n",
        HEAD "operation 0 2 1 3 5 attention\n",
    };
    static const char *const bad[] = {
        "",
        OLD "net-gather 2 1 3 5 x\n", /* which knew no network, */
        OLD_3 "prefetch fp32 2 3\n",  /* or no prefetch */
        HEAD "prefetch fp32 2 3\nprefetch fp32 2 3\n",
        HEAD "prefetch fp32 0 3\n",
        HEAD "prefetch fp32 3\n",
        HEAD "prefetch fp64 2 3\n",
        "hoistway rates 5\ntaken_ms 5\ntook_ms 6\ndrives 1\nproducts 1\noperations 1\n",
        "hoistway rates 1\ntaken_ms 5\ntook_ms 6\ndrives 1\nproducts 1\noperations 1\n",
        "hoistway rates 4\ntaken_ms 5\ntook_ms 6\ndrives 1\nproducts 1\n",
        "hoistway rates 4\ntaken_ms 5\ntook_ms 6\ndrives 9\nproducts 1\noperations 1\n",
        "hoistway rates 4\ntaken_ms 5\ntook_ms 6\ndrives 1\nproducts 17\noperations 1\n",
        "hoistway rates 4\ntaken_ms 5\ntook_ms 6\ndrives 1\nproducts 1\noperations 5\n",
        "hoistway rates 4\ntaken_ms -5\ntook_ms 6\ndrives 1\nproducts 1\noperations 1\n",
        HEAD "dram 2 1 3 5 \n", /* no words */
        HEAD "dram 2 1 3 5\n",
        HEAD "dram 2 3 3 5 x\n", /* least above the median */
        HEAD "dram 2 1 1 5 x\n", /* most below it */
        HEAD "dram 2 1 3 0 x\n", /* of no rounds */
        HEAD "dram 0 0 3 0 x\n",
        HEAD "dram 0 0 0 1 x\n",
        HEAD "dram 1000000000000000000 1 1000000000000000000 5 x\n", /* too fast */
        HEAD "dram 99999999999999999999 1 3 5 x\n",
        HEAD "dram 2.5 1 3 5 x\n",
        HEAD "dram 2 1 3 5 x\ndram 2 1 3 5 x\n", /* twice */
        HEAD "sram 2 1 3 5 x\n",
        HEAD "drive 1 read 2 2 2 1 x\n",
        HEAD "drive 0 seek 2 2 2 1 x\n",
        HEAD "product 1 2 2 2 1 x\n",
        HEAD "operation 1 2 2 2 1 x\n",
        HEAD "disturbed \n", /* no words */
        HEAD "disturbed by others\ndisturbed by more\n",
        HEAD "\n",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (parse_signed(good[i]))
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse_signed(bad[i]) != -EBADMSG)
            fail_msg("taken: %s", bad[i]);
}

static void no_locale_and_no_control_character_comes_into_it(void **state)
{
    (void)state;
    static char text[HST_RATES_TEXT_BYTES], other[HST_RATES_TEXT_BYTES];
    struct hst_rates r;
    fill(&r);
    snprintf(r.gemms[1].how, sizeof r.gemms[1].how, "two\nlines\tand\x01more");
    snprintf(r.disturbed, sizeof r.disturbed, "others\nand more");
    r.figures[HST_RATE_H2D].value = 0; /* still 0 */
    assert_true(hst_rates_format(&r, text, sizeof text) > 0);
    if (setlocale(LC_ALL, "de_DE.UTF-8")) {
        assert_true(hst_rates_format(&r, other, sizeof other) > 0);
        assert_string_equal(text, other);
        setlocale(LC_ALL, "C");
    }
    assert_int_equal(hst_rates_parse(text, &r), 0);
    assert_string_equal(r.gemms[1].how, "two lines and more");
    assert_string_equal(r.disturbed, "others and more");
}

static void every_rate_has_a_name_of_its_own_and_a_unit(void **state)
{
    (void)state;
    for (int i = 0; i < HST_RATE_COUNT; i++) {
        assert_non_null(hst_rate_unit((enum hst_rate)i));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(hst_rate_name((enum hst_rate)i),
                                    hst_rate_name((enum hst_rate)j));
    }
    assert_null(hst_rate_name(HST_RATE_COUNT));
    assert_null(hst_rate_unit(HST_RATE_COUNT));
}

static void a_drive_works_in_turns_where_both_are_no_faster_than_one(void **state)
{
    (void)state;
    assert_true(hst_half_duplex(3e9, 3e9, 3e9));   /* turns */
    assert_true(hst_half_duplex(3e9, 1e9, 1.5e9)); /* the harmonic mean */
    assert_true(hst_half_duplex(3e9, 3e9, 4e9));
    assert_false(hst_half_duplex(3e9, 3e9, 6e9)); /* two lanes */
    assert_false(hst_half_duplex(3e9, 3e9, 4.5e9));
    assert_false(hst_half_duplex(7e9, 5e9, 9.5e9));
    assert_false(hst_half_duplex(3e9, 3e9, 0)); /* not known */
    assert_false(hst_half_duplex(0, 3e9, 3e9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(the_faster_of_prefetch_and_none_is_taken),
        cmocka_unit_test(the_longest_rates_fit_and_no_room_is_told),
        cmocka_unit_test(any_damage_is_found_and_nothing_is_written),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(no_locale_and_no_control_character_comes_into_it),
        cmocka_unit_test(every_rate_has_a_name_of_its_own_and_a_unit),
        cmocka_unit_test(a_drive_works_in_turns_where_both_are_no_faster_than_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
