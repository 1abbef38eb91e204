/* SPDX-License-Identifier: Apache-2.0 */
/* Which texts are values of which option, and how a refusal reads. */
#include <hoistway/hoistway.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct hst_option *option(const char *name)
{
    size_t count;
    const struct hst_option *options = hst_engine_options(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    fail_msg("no option %s", name);
    return NULL;
}

static void accept(const char *name, const char *text, struct hst_config *config)
{
    char why[256] = "";
    if (hst_option_parse(option(name), text, config, why, sizeof why) != 0)
        fail_msg("--%s %s: %s", name, text, why);
}

/* Refused with that errno, the value seen in the message, and nothing written. */
static void refuse(const char *name, const char *text, int error)
{
    struct hst_config config, before;
    char why[256] = "", quoted[64];
    memset(&config, 0x5a, sizeof config);
    memcpy(&before, &config, sizeof before);
    int got = hst_option_parse(option(name), text, &config, why, sizeof why);
    if (got != error)
        fail_msg("--%s '%s' gave %d, not %d", name, text, got, error);
    assert_memory_equal(&config, &before, sizeof before);
    snprintf(quoted, sizeof quoted, "(got '%.20s", text);
    assert_non_null(strstr(why, quoted));
    assert_non_null(strstr(why, "want "));
}

static void sizes_are_powers_of_1024(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"4096", 4096},
        {"4K", 4096},
        {"4k", 4096},
        {"1M", UINT64_C(1) << 20},
        {"2GiB", UINT64_C(2) << 30},
        {"2G", UINT64_C(2) << 30},
        {"1.5G", UINT64_C(3) << 29},
        {"0.5T", UINT64_C(1) << 39},
        {"5e8", 500000000},
        {"5E+8", 500000000},
        {"16MiB", UINT64_C(16) << 20},
        {"4096.9", 4096},
        {"0.1M", 104857},
        {"4503599627370495", UINT64_C(4503599627370495)},
        {"4096T", UINT64_C(1) << 52},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hst_config config = {0};
        accept("dram", cases[i].text, &config);
        assert_int_equal(config.dram_bytes, cases[i].bytes);
    }
}

static void text_that_is_not_wholly_a_number_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",     "0x",  "0x10", "-5",    "+5",     " 5",      "5 ",    "5K ",  "K",
        "2GBB", "2GB", "2Gi",  "2KIB",  "4kb",    "1..5",    "1.5.5", "e5",   ".",
        ".e5",  "1e",  "1e+",  "1e5e5", "nan",    "NaN",     "inf",   "-inf", "1_000",
        "1,5",  "5\n", "0b11", "1e5KK", "K4",     "4KM",     "five",  "--",   "1e5x",
        "٣",    "5%",  "5;6",  "INF4",  "4K4096", "4096\x7f"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        refuse("dram", bad[i], -EINVAL);
        refuse("threads", bad[i], -EINVAL);
        refuse("batch-tokens", bad[i], -EINVAL);
        refuse("clip", bad[i], -EINVAL);
    }
    refuse("clip", "4K", -EINVAL);
}

static void numbers_never_wrap_around(void **state)
{
    (void)state;
    static const char *const huge[] = {"4294967297",
                                       "4294967296",
                                       "18446744073709551616",
                                       "18446744073709551617",
                                       "9223372036854775808",
                                       "1e19",
                                       "1e308",
                                       "1e309",
                                       "1e999",
                                       "340282366920938463463374607431768211457",
                                       "17179869185G"};
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        refuse("threads", huge[i], -ERANGE);
        if (i > 1) {
            refuse("dram", huge[i], -ERANGE);
            refuse("batch-tokens", huge[i], -ERANGE);
        }
    }
    char long_number[100];
    memset(long_number, '1', sizeof long_number - 1);
    long_number[sizeof long_number - 1] = '\0';
    refuse("dram", long_number, -EINVAL);
}

static void a_count_is_whole_and_in_its_range(void **state)
{
    (void)state;
    struct hst_config config = {0};
    accept("batch-tokens", "1e6", &config);
    assert_int_equal(config.batch_tokens, 1000000);
    accept("batch-tokens", "4K", &config);
    assert_int_equal(config.batch_tokens, 4096);
    accept("batch-tokens", "1.5K", &config);
    assert_int_equal(config.batch_tokens, 1536);
    accept("threads", "1024", &config);
    assert_int_equal(config.threads, 1024);
    refuse("batch-tokens", "1.5", -EINVAL);
    refuse("batch-tokens", "0", -ERANGE);
    refuse("threads", "0", -ERANGE);
    refuse("threads", "1025", -ERANGE);
    refuse("dram", "0", -ERANGE);
    refuse("dram", "4095", -ERANGE);
}

static void reals_stay_in_their_range(void **state)
{
    (void)state;
    struct hst_config config = {0};
    accept("eps", "1e-8", &config);
    assert_true(config.eps == 1e-8);
    accept("clip", ".5", &config);
    assert_true(config.clip == 0.5);
    accept("betas", "0.85,0.95", &config);
    assert_true(config.beta1 == 0.85 && config.beta2 == 0.95);
    refuse("eps", "0", -ERANGE);
    refuse("eps", "1e-999", -ERANGE);
    refuse("clip", "1e999", -ERANGE);
    refuse("clip", "1e-999", -ERANGE); /* would be read as an explicit 0: no clipping */
    refuse("weight-decay", "101", -ERANGE);
    refuse("betas", "0.9,1", -ERANGE);
    refuse("betas", "1.5,0.9", -ERANGE);
    refuse("betas", "0.9", -EINVAL);
    refuse("betas", "0.9,", -EINVAL);
    refuse("betas", ",0.9", -EINVAL);
    refuse("betas", "0.9,0.99,0.999", -EINVAL);
    refuse("betas", "0.9,-0.1", -EINVAL);
    refuse("betas", "0.9,nan", -EINVAL);
    refuse("betas", "0.9 ,0.99", -EINVAL);
}

static void an_explicit_zero_is_not_the_default(void **state)
{
    (void)state;
    struct hst_config config = {0};
    accept("clip", "0", &config);
    accept("weight-decay", "0.0", &config);
    accept("betas", "0,0.5", &config);
    assert_true(config.clip == HST_NONE);
    assert_true(config.weight_decay == HST_NONE);
    assert_true(config.beta1 == HST_NONE && config.beta2 == 0.5);
}

static void a_share_is_a_count_or_a_percentage(void **state)
{
    (void)state;
    static const struct hst_option from_1 = {
        .name = "share", .type = HST_OPTION_SHARE, .least = 1, .greatest = 1000};
    static const struct hst_option from_0 = {
        .name = "share", .type = HST_OPTION_SHARE, .least = 0, .greatest = 1000};
    static const char *const bad[] = {"",    "%",   "1.5", "3%%", "%3",
                                      "-1%", "3 %", "1K%", "x%",  "nan%"};
    struct hst_share share = {7, 0};
    char why[256];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(hst_option_parse(&from_0, bad[i], &share, why, sizeof why), -EINVAL);
    assert_int_equal(hst_option_parse(&from_0, "1001", &share, why, sizeof why), -ERANGE);
    assert_int_equal(hst_option_parse(&from_0, "100.1%", &share, why, sizeof why), -ERANGE);
    assert_string_equal(why, "out of range (got '100.1%', want a whole number from 0 to 1000, or a "
                             "percentage of at most 100%)");
    assert_int_equal(hst_option_parse(&from_1, "0", &share, why, sizeof why), -ERANGE);
    assert_int_equal(hst_option_parse(&from_1, "0%", &share, why, sizeof why), -ERANGE);
    assert_true(share.count == 7 && share.percent == 0); /* nothing was written */
    assert_int_equal(hst_option_parse(&from_1, "2.5%", &share, why, sizeof why), 0);
    assert_true(share.count == 0 && share.percent == 2.5);
    assert_int_equal(hst_option_parse(&from_1, "1e2", &share, why, sizeof why), 0);
    assert_true(share.count == 100 && share.percent == 0);
    assert_int_equal(hst_option_parse(&from_0, "0%", &share, why, sizeof why), 0);
    assert_true(share.count == 0 && share.percent == 0);
}

static void choices_become_their_enum(void **state)
{
    (void)state;
    struct hst_config config = {.io = HST_IO_THREADS};
    accept("io", "auto", &config);
    assert_int_equal(config.io, HST_IO_AUTO);
    accept("io", "uring", &config);
    assert_int_equal(config.io, HST_IO_URING);
    accept("io", "threads", &config);
    assert_int_equal(config.io, HST_IO_THREADS);
    accept("precision", "fp32", &config);
    assert_int_equal(config.precision, HST_PRECISION_FP32);
    accept("precision", "bf16", &config);
    assert_int_equal(config.precision, HST_PRECISION_BF16);
    accept("precision", "fp16", &config);
    assert_int_equal(config.precision, HST_PRECISION_FP16);
    refuse("precision", "fp8", -EINVAL);
    refuse("precision", "BF16", -EINVAL);
    refuse("precision", "bf16 ", -EINVAL);
    refuse("io", "", -EINVAL);
    refuse("store", "", -EINVAL);
}

static void a_refusal_names_value_expectation_and_range(void **state)
{
    (void)state;
    struct hst_config config = {0};
    char why[256];
    hst_option_parse(option("threads"), "4294967297", &config, why, sizeof why);
    assert_string_equal(why, "out of range (got '4294967297', want a whole number from 1 to 1024)");
    hst_option_parse(option("dram"), "2GBB", &config, why, sizeof why);
    assert_string_equal(why, "not understood (got '2GBB', want a size like 4K, 1M, 2GiB or 5e8, "
                             "from 4K to 4096T)");
    hst_option_parse(option("betas"), "0.9,1", &config, why, sizeof why);
    assert_string_equal(why,
                        "out of range (got '0.9,1', want two numbers A,B, each from 0 to below 1)");
    hst_option_parse(option("io"), "", &config, why, sizeof why);
    assert_string_equal(why, "empty (got '', want one of auto, uring, threads)");
    char little[8];
    memset(little, 'x', sizeof little);
    hst_option_parse(option("dram"), "?", &config, little, sizeof little);
    assert_int_equal(strlen(little), sizeof little - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_powers_of_1024),
        cmocka_unit_test(text_that_is_not_wholly_a_number_is_refused),
        cmocka_unit_test(numbers_never_wrap_around),
        cmocka_unit_test(a_count_is_whole_and_in_its_range),
        cmocka_unit_test(reals_stay_in_their_range),
        cmocka_unit_test(an_explicit_zero_is_not_the_default),
        cmocka_unit_test(a_share_is_a_count_or_a_percentage),
        cmocka_unit_test(choices_become_their_enum),
        cmocka_unit_test(a_refusal_names_value_expectation_and_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
