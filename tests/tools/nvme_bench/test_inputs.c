/* SPDX-License-Identifier: Apache-2.0 */
/* What a user may write: options, lists, endurance; and results that are read again, whole or
   broken. */
#include "nvme_bench/args.h"
#include "nvme_bench/measure.h"
#include "nvme_bench/report/report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int parse(struct nb_args *args, struct hst_error *error, size_t count, const char **words)
{
    char *argv[24];
    bool help;
    for (size_t i = 0; i < count; i++)
        argv[i] = (char *)(uintptr_t)words[i];
    return nb_args_parse((int)count, argv, args, &help, error);
}
#define PARSE(args, error, ...)                                                                    \
    parse(args, error, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),                     \
          (const char *[]){__VA_ARGS__})

static void test_directories_and_options_may_stand_in_any_order(void **state)
{
    struct nb_args a;
    struct hst_error e;
    (void)state;
    assert_int_equal(PARSE(&a, &e, "/a", "--quick", "/b", "--plan=8B", "--gpu-tflops", "150"), 0);
    assert_int_equal(a.paths.count, 2);
    assert_string_equal(a.paths.values[1], "/b");
    assert_true(a.quick && a.gpu_tflops == 150 && a.tokens == 65536 && a.target_percent == 90);
    assert_true(a.size_bytes == 512u << 20 && a.blocks.count == 2 && a.idle_s == 1);
    assert_int_equal(PARSE(&a, &e, "/a", "--idle", "0"), 0);
    assert_true(a.case_s == 0.4);
    assert_int_equal(PARSE(&a, &e, "/a", "--idle", "0", "--seconds", "60"), 0);
    assert_true(a.case_s == 60 && a.idle_s == 0 && a.blocks.count == 3 && a.threads.count == 2);
}

static void test_what_contradicts_itself_is_refused(void **state)
{
    struct nb_args a;
    struct hst_error e;
    (void)state;
    assert_int_not_equal(PARSE(&a, &e, "--quick"), 0);
    assert_int_equal(e.code, FAIL_MISSING);
    assert_int_not_equal(PARSE(&a, &e, "/a", "--plan", "8B"), 0);
    assert_int_equal(e.code, FAIL_MISSING);
    assert_int_not_equal(PARSE(&a, &e, "/a", "--gpu-tflops", "1"), 0);
    assert_int_equal(e.code, FAIL_MISSING);
    assert_int_not_equal(PARSE(&a, &e, "/a", "--from", "x"), 0);
    assert_int_equal(e.code, FAIL_VALUE);
    assert_int_not_equal(PARSE(&a, &e, "/a", "--compare"), 0);
    assert_int_not_equal(PARSE(&a, &e, "/a", "sim:read=1G,write=1G"), 0);
    assert_int_not_equal(PARSE(&a, &e, "/a", "--blocks", "1M,256K"), 0);
    assert_int_not_equal(PARSE(&a, &e, "/a", "--blocks", "1000"), 0);
    assert_int_not_equal(PARSE(&a, &e, "/a", "--depths", "4,"), 0);
    assert_int_not_equal(PARSE(&a, &e, "/a", "--depths", "4.000000000000000000000000000000K"), 0);
    assert_int_not_equal(PARSE(&a, &e, "/a", "--target", "100"), 0);
    assert_int_not_equal(PARSE(&a, &e, "/a", "-x"), 0);
    assert_int_equal(e.code, FAIL_USAGE);
    assert_int_not_equal(PARSE(&a, &e, "/a", "--bloks", "1M"), 0);
    assert_non_null(strstr(e.message, "Did you mean --blocks?"));
}

static void test_endurance_is_read_in_the_makers_units(void **state)
{
    double bytes;
    (void)state;
    assert_true(nb_endurance_parse("600TBW", &bytes) && bytes == 600e12);
    assert_true(nb_endurance_parse("1.2PBW", &bytes) && fabs(bytes - 1.2e15) < 1);
    assert_true(nb_endurance_parse("1DWPD,3.84TB,5Y", &bytes));
    assert_true(fabs(bytes - 3.84e12 * 5 * 365) < 1e3);
    assert_true(nb_endurance_parse("0.3dwpd,960gb,3y", &bytes));
    static const char *const bad[] = {"",        "600",    "600TB",          "TBW",
                                      "-1TBW",   "0TBW",   "1DWPD,3.84TB",   "1DWPD,5Y,3.84TB",
                                      "600TBW ", "1e3TBW", "1DWPD;3.84TB;5Y"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(nb_endurance_parse(bad[i], &bytes));
}

static void test_a_quick_run_writes_at_most_2_gib_per_drive(void **state)
{
    struct nb_args a;
    struct nb_budget b;
    struct hst_error e;
    (void)state;
    assert_int_equal(PARSE(&a, &e, "/a", "/b", "--quick"), 0);
    assert_int_equal(nb_budget_make(&a, false, &b, &e), 0);
    assert_true(b.written_bytes <= UINT64_C(2) << 30);
    uint64_t together =
        b.written_bytes; /* 96 MiB written and 48 of the mixed case more than alone */
    assert_int_equal(PARSE(&a, &e, "/a", "--quick"), 0);
    assert_int_equal(nb_budget_make(&a, false, &b, &e), 0);
    assert_true(together - b.written_bytes == UINT64_C(144) << 20);
    assert_int_equal(PARSE(&a, &e, "/a", "--size", "64M"), 0);
    assert_int_not_equal(nb_budget_make(&a, false, &b, &e), 0); /* 4 MiB x 16 x 2 do not fit */
    assert_int_equal(e.code, FAIL_VALUE);
    assert_non_null(strstr(e.message, "Fix: --size "));
    assert_int_equal(PARSE(&a, &e, "/a", "--depths", "256", "--threads", "2"), 0);
    assert_int_not_equal(nb_budget_make(&a, false, &b, &e), 0);
}

/* ---- results that are read again ---- */

static struct nb_result *example(void)
{
    struct nb_result *r = calloc(1, sizeof *r);
    struct nb_drive *d = &r->drives[0];
    assert_non_null(r);
    snprintf(r->version, sizeof r->version, "0.1.0");
    r->drive_count = 1;
    r->file_bytes = 1 << 30;
    snprintf(d->path, sizeof d->path, "/a \"quoted\" path");
    d->numa_node = -1;
    d->best = (struct nb_shape){1 << 20, 8, 1};
    d->sustained = (struct nb_sustained){.window_bytes = 1 << 26, .windows = 2, .idle_s = 1};
    d->sustained.rates[0] = 5e9;
    d->sustained.rates[1] = 4.5e9;
    d->sustained.recovered = NAN;
    for (uint32_t phase = 0; phase < 2; phase++)
        for (uint32_t k = 0; k < NB_KINDS; k++)
            r->points[r->point_count++] = (struct nb_point){.phase = (enum nb_phase)phase,
                                                            .kind = (enum nb_kind)k,
                                                            .shape = d->best,
                                                            .bytes = 1 << 28,
                                                            .seconds = 0.5,
                                                            .rate = 1e9 * (k + 1),
                                                            .cpu_s_per_gb = NAN};
    return r;
}

static __attribute__((noinline)) char *as_json(const struct nb_result *r, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    assert_non_null(out);
    nb_report_json(r, NULL, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static int load_text(const char *text, size_t size, struct nb_result *r, struct hst_error *error)
{
    char path[] = "/tmp/nvme_bench_load_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, size), size);
    close(fd);
    int rc = nb_result_load(path, r, error);
    unlink(path);
    return rc;
}

static void test_a_result_that_is_read_again_is_the_same(void **state)
{
    struct nb_result *first = example(), *second = calloc(1, sizeof *second);
    struct hst_error error = {0};
    size_t size, again_size;
    char *text = as_json(first, &size);
    (void)state;
    assert_int_equal(load_text(text, size, second, &error), 0);
    char *again = as_json(second, &again_size);
    assert_int_equal(first->point_count, second->point_count);
    nb_sustained_judge(&first->drives[0].sustained);
    free(text);
    text = as_json(first, &size);
    assert_string_equal(text, again);
    free(text);
    free(again);
    free(first);
    free(second);
}

/* Every byte replaced, removed or the text cut there: refused or read, never a crash; and refusals
   say what to do. */
static void test_broken_results_are_refused_clearly(void **state)
{
    struct nb_result *r = example(), *read = calloc(1, sizeof *read);
    size_t size, refused = 0;
    char *text = as_json(r, &size), *broken = malloc(size + 1);
    (void)state;
    assert_non_null(broken);
    static const char others[] = {'"', '0', '}', '-', '\0'};
    for (size_t i = 0; i < size; i += 3) {
        for (size_t k = 0; k < sizeof others; k++) {
            struct hst_error error = {0};
            memcpy(broken, text, size);
            broken[i] = others[k];
            if (load_text(broken, k == 4 ? i : size, read, &error)) {
                refused++;
                assert_int_equal(error.code, FAIL_VALUE);
                assert_non_null(strstr(error.message, "Fix: "));
            } else {
                assert_true(read->drive_count == 1 && read->point_count <= NB_MAX_POINTS);
            }
        }
    }
    assert_true(refused > size / 3);
    free(text);
    free(broken);
    free(r);
    free(read);
}

static void refuse_saying(const char *from, const char *to, const char *words)
{
    struct nb_result *r = example(), *read = calloc(1, sizeof *read);
    struct hst_error error = {0};
    size_t size;
    char *text = as_json(r, &size), *whole = malloc(size + 256);
    const char *found = strstr(text, from);
    assert_non_null(found);
    size_t before = (size_t)(found - text);
    int n = snprintf(whole, size + 256, "%.*s%s%s", (int)before, text, to,
                     &text[before + strlen(from)]);
    assert_int_not_equal(load_text(whole, (size_t)n, read, &error), 0);
    assert_int_equal(error.code, FAIL_VALUE);
    if (!strstr(error.message, words))
        fail_msg("'%s' is not said in: %s", words, error.message);
    free(text);
    free(whole);
    free(r);
    free(read);
}

static void refuse_with(const char *from, const char *to)
{
    refuse_saying(from, to, "Fix: ");
}

static void test_rates_that_no_drive_has_are_refused_with_the_value(void **state)
{
    static const char *const values[] = {"0",     "-1",     "0.99",  "1e-300", "-1e-300",
                                         "1e300", "1.1e15", "\"5\"", "true",   "[1]"};
    static const char *const places[][2] = {{"\"value\":1e+09", "\"value\":%s"},
                                            {"\"rates\":[5e+09", "\"rates\":[%s"},
                                            {"\"recovered\":null", "\"recovered\":%s"}};
    (void)state;
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            char to[64], words[96];
            snprintf(to, sizeof to, places[p][1], values[i]);
            snprintf(words, sizeof words, " is %s; a rate is 1 to 1e15 bytes/s",
                     i == 7 ? "5" : values[i]);
            refuse_saying(places[p][0], to, words);
        }
    }
    refuse_saying("\"value\":1e+09", "\"value\":1e999", "'value' is 1e999; a rate");
    refuse_saying("\"value\":1e+09", "\"value\":NaN", ": byte ");
    refuse_saying("\"value\":1e+09", "\"value\":Infinity", ": byte ");
    refuse_saying("\"value\":1e+09", "\"value\":1e+09,\"value\":2e+09", "twice: value)");
    refuse_saying("\"value\":1e+09", "\"value\":null", "'cases' is missing or has a bad value");
}

static void test_what_follows_a_nul_is_read_too(void **state)
{
    struct nb_result *r = example(), *read = calloc(1, sizeof *read);
    struct hst_error error = {0};
    size_t size;
    char *text = as_json(r, &size); /* and the NUL behind it */
    (void)state;
    assert_int_not_equal(load_text(text, size + 1, read, &error), 0);
    assert_int_equal(error.code, FAIL_VALUE);
    free(text);
    free(r);
    free(read);
}

static void test_values_that_can_not_be_are_refused(void **state)
{
    (void)state;
    refuse_with("\"format\":1", "\"format\":2");
    refuse_with("\"program\":\"nvme-bench\"", "\"program\":\"fio\"");
    refuse_with("\"value\":1e+09", "\"value\":-1");
    refuse_with("\"value\":1e+09", "\"value\":0");
    refuse_with("\"value\":1e+09", "\"value\":1e300");
    refuse_with("\"drive\":0", "\"drive\":1");
    refuse_with("\"drive\":0", "\"drive\":null");
    refuse_with("\"phase\":\"sweep\"", "\"phase\":\"swoop\"");
    refuse_with("\"block_bytes\":1048576,\"depth\":8,\"threads\":1,\"bytes\"",
                "\"block_bytes\":0,\"depth\":8,\"threads\":1,\"bytes\"");
    refuse_with("\"rates\":[5e+09", "\"rates\":[null");
    refuse_with("\"drives\":[", "\"drives\":[],\"others\":[");
    refuse_with("\"window_bytes\":67108864", "\"window_bytes\":900000000000000000");
    refuse_with("\"version\":\"", "\"version\":\"\\u001b[2J"); /* a terminal would obey these */
    refuse_with("\"version\":\"", "\"version\":\"\xc2\x9b"
                                  "2J");
    refuse_with("\"version\":\"", "\"version\":\"\xe2\x80\xae");
}

static void test_drives_are_compared_by_what_they_are_then_in_order(void **state)
{
    struct nb_result *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    struct nb_pair pairs[2 * NB_MAX_DRIVES];
    (void)state;
    a->drive_count = 3;
    b->drive_count = 2;
    snprintf(a->drives[1].disks, sizeof a->drives[1].disks, "nvme1n1");
    snprintf(a->drives[1].model, sizeof a->drives[1].model, "ACME");
    a->drives[1].size_bytes = 1000;
    b->drives[0] = a->drives[1];
    assert_int_equal(nb_pair_drives(a, b, pairs), 3);
    assert_true(pairs[0].a == 0 && pairs[0].b == 1 && !pairs[0].same); /* nothing is known */
    assert_true(pairs[1].a == 1 && pairs[1].b == 0 && pairs[1].same);
    assert_true(pairs[2].a == 2 && pairs[2].b == NB_NO_DRIVE);
    assert_int_equal(nb_pair_drives(b, a, pairs), 3);
    assert_true(pairs[0].b == 1 && pairs[0].same && pairs[1].b == 0);
    assert_true(pairs[2].a == NB_NO_DRIVE && pairs[2].b == 2);
    b->drives[0].size_bytes = 999; /* another drive of the model in the same slot */
    assert_int_equal(nb_pair_drives(a, b, pairs), 3);
    assert_true(pairs[0].b == 0 && pairs[1].b == 1 && !pairs[1].same);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_directories_and_options_may_stand_in_any_order),
        cmocka_unit_test(test_what_contradicts_itself_is_refused),
        cmocka_unit_test(test_endurance_is_read_in_the_makers_units),
        cmocka_unit_test(test_a_quick_run_writes_at_most_2_gib_per_drive),
        cmocka_unit_test(test_a_result_that_is_read_again_is_the_same),
        cmocka_unit_test(test_broken_results_are_refused_clearly),
        cmocka_unit_test(test_rates_that_no_drive_has_are_refused_with_the_value),
        cmocka_unit_test(test_drives_are_compared_by_what_they_are_then_in_order),
        cmocka_unit_test(test_what_follows_a_nul_is_read_too),
        cmocka_unit_test(test_values_that_can_not_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
