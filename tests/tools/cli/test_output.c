/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written for people and for programs: JSON, step lines, quantities, the learning rate
 * behind them.
 */
#include "base/text.h"
#include "cli/forecast.h"
#include "cli/log/json.h"
#include "cli/log/runlog.h"
#include "cli/message/activity.h"
#include "cli/message/progress.h"
#include "cli/rates_text.h"
#include "cli/system.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- messages ---- */

static void what_a_terminal_would_obey_is_escaped(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"a\nb\x1b[2J\x7f", "a\\x0a"
                            "b\\x1b[2J\\x7f"},
        {"\xc2\x9b"
         "2J\xc2\xa0",
         "\\xc2\\x9b"
         "2J\xc2\xa0"},
        {"\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xae\xe2\x80\xaf",
         "\xe2\x80\xa7\\xe2\\x80\\xa8\\xe2\\x80\\xae\xe2\x80\xaf"},
        {"\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa",
         "\xe2\x81\xa5\\xe2\\x81\\xa6\\xe2\\x81\\xa9\xe2\x81\xaa"},
        {"\xc3\xa9\xf0\x9f\x98\x80 \xff \xed\xa0\x80 \xe2\x82",
         "\xc3\xa9\xf0\x9f\x98\x80 \\xff \\xed\\xa0\\x80 \\xe2\\x82"},
    };
    struct hst_error error;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        (fail)(&error, FAIL_VALUE, -EINVAL, "%s", texts[i][0]);
        assert_string_equal(error.message, texts[i][1]);
    }
}

/* ---- JSON ---- */

static void json_is_written_with_9_digits_and_escapes(void **state)
{
    (void)state;
    char text[1024] = "";
    struct json_writer json = {.out = fmemopen(text, sizeof text, "w")};
    json_put_object(&json, NULL);
    json_put_text(&json, "plain", "a\"b\\c\n\t\x01\x7f");
    json_put_text(&json, "utf8", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    json_put_text(&json, "not utf8", "\xff|\xc0\x80|\xed\xa0\x80|\xe2\x82|\xf4\x90\x80\x80");
    json_put_text(&json, "none", NULL);
    json_put_array(&json, "reals");
    json_put_real(&json, NULL, 1.0 / 3);
    json_put_real(&json, NULL, 12345678901.0);
    json_put_real(&json, NULL, -1e-5);
    json_put_real(&json, NULL, 0);
    json_put_real(&json, NULL, NAN);
    json_put_real(&json, NULL, INFINITY);
    json_put_end(&json);
    json_put_object(&json, "empty");
    json_put_end(&json);
    json_put_whole(&json, "whole", UINT64_MAX);
    json_put_bool(&json, "yes", true);
    json_put_null(&json, "null");
    json_put_end(&json);
    fclose(json.out);
    assert_string_equal(
        text, "{\"plain\":\"a\\\"b\\\\c\\u000a\\u0009\\u0001\\u007f\","
              "\"utf8\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\","
              "\"not utf8\":\"\\ufffd|\\ufffd\\ufffd|\\ufffd\\ufffd\\ufffd|\\ufffd\\ufffd|"
              "\\ufffd\\ufffd\\ufffd\\ufffd\","
              "\"none\":null,"
              "\"reals\":[0.333333333,1.23456789e+10,-1e-05,0,null,null],\"empty\":{},"
              "\"whole\":18446744073709551615,\"yes\":true,\"null\":null}");
}

/* ---- the run log ---- */

static const struct hst_step_stats stats = {
    .step = 7,
    .grad_norm = 0.91,
    .seconds = 0.5,
    .stall_s = {.nvme = 0.015, .copy = 0.001},
    .bytes =
        {.nvme_read = 11, .nvme_write = 22, .h2d = 33, .d2h = 44, .net = 55, .net_between = 66},
    .peak = {.hbm = 1, .dram = 2, .nvme = 3},
};

static const struct step_report step = {.step = 120,
                                        .steps = 1000,
                                        .tokens = 9100,
                                        .loss = 2.4131,
                                        .lr = 1e-5,
                                        .elapsed_s = 114.5,
                                        .stats = &stats};

static void assert_file(const char *path, const char *expected)
{
    char text[4096] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    assert_string_equal(text, expected);
}

#define STEP_LINE_OF(bound)                                                                        \
    "{\"kind\":\"step\",\"step\":120,\"loss\":2.4131,\"grad_norm\":0.91,\"lr\":1e-05,"             \
    "\"tokens\":9100,\"seconds\":0.5,\"tok_s\":18200,"                                             \
    "\"stall_s\":{\"nvme\":0.015,\"copy\":0.001,\"update\":0,\"net\":0},"                          \
    "\"bytes\":{\"nvme_read\":11,\"nvme_write\":22,\"h2d\":33,\"d2h\":44,\"net\":55,"              \
    "\"net_between\":66},"                                                                         \
    "\"peak\":{\"hbm\":1,\"dram\":2,\"nvme\":3},\"bound_s\":" bound ",\"update\":\"deferred\"}\n"
#define STEP_LINE STEP_LINE_OF("null")

static void put_file(char *template, const char *text)
{
    int fd = mkstemp(template);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

static void each_log_line_is_in_the_file_at_once(void **state)
{
    (void)state;
    char path[] = "/tmp/hoistway-test-XXXXXX";
    struct hst_error error = {0};
    struct run_log log = {0};
    const char earlier[] = "{\"kind\":\"run\",\"version\":\"0\"}\n";
    put_file(path, earlier);
    assert_int_equal(run_log_check(path, &error), 0);
    assert_file(path, earlier);
    assert_int_equal(run_log_open(&log, path, &error), 0);
    assert_file(path, "");
    assert_int_equal(run_log_check(path, &error), -EBUSY);
    assert_int_equal(run_log_step(&log, &step, &error), 0);
    assert_file(path, STEP_LINE);
    struct step_report bounded = step;
    bounded.bound_s = 0.125;
    const struct run_summary summary = {
        .steps = 1000, .measured_step_s = 0.25, .predicted_step_s = 0.5, .bound_by = "read"};
    const struct run_summary unknown = {.steps = 1, .measured_step_s = 0.25};
    assert_int_equal(run_log_step(&log, &bounded, &error), 0);
    assert_int_equal(run_log_drain(&log, 4096, &error), 0);
    assert_int_equal(run_log_summary(&log, &summary, &error), 0);
    assert_int_equal(run_log_summary(&log, &unknown, &error), 0);
    assert_file(path, STEP_LINE STEP_LINE_OF(
                          "0.125") "{\"kind\":\"drain\",\"bytes\":4096}\n"
                                   "{\"kind\":\"summary\",\"steps\":1000,\"predicted_step_s\":0.5,"
                                   "\"measured_step_s\":0.25,\"bound_by\":\"read\"}\n"
                                   "{\"kind\":\"summary\",\"steps\":1,\"predicted_step_s\":null,"
                                   "\"measured_step_s\":0.25,\"bound_by\":null}\n");
    run_log_close(&log);
    unlink(path);
}

static void a_prediction_is_off_where_all_steps_say_so(void **state)
{
    (void)state;
    static const struct {
        double predicted_s, steps_s[2];
        bool off;
    } cases[] = {
        {1, {1, 1}, false},      {1, {1.25, 1.3}, false}, {1, {1.26, 1.3}, true},
        {1, {0.79, 0.78}, true}, {1, {0.8, 0.7}, false},  {1, {0.5, 2}, false},
        {0, {1, 1}, false}, /* nothing was predicted */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(forecast_is_off(cases[i].predicted_s, cases[i].steps_s, 2), cases[i].off);
    assert_false(forecast_is_off(1, cases[2].steps_s, 0));
}

static void each_rate_is_told_with_unit_and_age(void **state)
{
    (void)state;
    enum { MINUTE = 60000, HOUR = 60 * MINUTE, DAY = 24 * HOUR };
    const uint64_t now = UINT64_C(1795272000123);
    static const struct {
        uint64_t age_ms;
        const char *text;
    } ages[] = {{0, "just now"},         {MINUTE - 1, "just now"},
                {MINUTE, "1 min ago"},   {2 * HOUR - 1, "119 min ago"},
                {2 * HOUR, "2 h ago"},   {47 * HOUR, "47 h ago"},
                {2 * DAY, "2 days ago"}, {UINT64_C(20000) * DAY, "as given"}};
    char text[RATES_TEXT_BYTES], age[TEXT_BYTES];
    for (size_t i = 0; i < sizeof ages / sizeof *ages; i++)
        assert_string_equal(rates_age_text(now - ages[i].age_ms, now, age), ages[i].text);
    assert_string_equal(rates_age_text(now + HOUR, now, age), "just now"); /* set back since */
    assert_string_equal(rates_age_text(0, now, age), "as given");
    assert_true(rates_age_s(now - 1500, now) == 1.5 && rates_age_s(now + 1, now) == 0);
    static struct hst_rates rates;
    assert_string_equal(rates_text(&rates, now, text), "");
    rates.figures[HST_RATE_UPDATE_FP32].value = 5.2e8;
    rates.figures[HST_RATE_COMPUTE].value = 2.034e11;
    rates.figure_ms[HST_RATE_UPDATE_FP32] = rates.figure_ms[HST_RATE_COMPUTE] = now - 3 * DAY;
    rates.figures[HST_RATE_READ].value = 2.1e9;
    rates.figure_ms[HST_RATE_READ] = now;
    rates.figures[HST_RATE_NET_OPERATIONS].value = 950;
    assert_string_equal(rates_text(&rates, now, text),
                        "update-fp32 520 M elements/s, compute 203 GFLOP/s, 3 days ago; "
                        "read 2.1 GB/s, just now; net-operations 950 operations/s, as given");
    snprintf(rates.figures[HST_RATE_READ].how, sizeof rates.figures[0].how, "assumed by us");
    assert_string_equal(rates_figure_text(&rates, HST_RATE_READ, now, age), "assumed");
    rates.figures[HST_RATE_READ].value = 0; /* nothing is assumed of what is not known */
    assert_string_equal(rates_figure_text(&rates, HST_RATE_READ, now, age), "just now");
    for (int r = 0; r < HST_RATE_COUNT; r++) { /* the longest that there can be */
        rates.figures[r].value = 9.99e16;
        rates.figure_ms[r] = now - (r % 2 ? 119 : 118) * (uint64_t)MINUTE;
    }
    assert_true(strlen(rates_text(&rates, now, text)) < RATES_TEXT_BYTES - 100);
}

static void a_forecast_says_what_was_measured_and_what_would_help(void **state)
{
    (void)state;
    char text[FORECAST_TEXT_BYTES];
    struct hst_prediction p = {.step_s = 0.8,
                               .bound_s = 0.75,
                               .bound_by = "read",
                               .helps = {{"drives", 0.5}},
                               .help_count = 1};
    assert_string_equal(forecast_text(&p, 0.82, text),
                        "bounded by read: a step took 0.82 s, 0.8 s predicted (+2.5 %), at least "
                        "0.75 s; drives twice as fast would make it 1.60 times as fast");
    p.helps[0].step_s = 0.79;
    assert_string_equal(forecast_text(&p, 0.76, text),
                        "bounded by read: a step took 0.76 s, 0.8 s predicted (-5.0 %), at least "
                        "0.75 s; no part of the machine alone would make it faster");
    assert_string_equal(forecast_text(&p, 0.7, text),
                        "bounded by read: a step took 0.7 s, 0.8 s predicted (-12.5 %); no part of "
                        "the machine alone would make it faster");
    assert_non_null(strstr(forecast_text(&p, 0.75, text), "at least 0.75 s"));
    p = (struct hst_prediction){.why = "the drives' rates are not known: the drive is full"};
    assert_string_equal(forecast_text(&p, 12.3456, text),
                        "a step took 12.3 s; not predicted: the drives' rates are not known: the "
                        "drive is full");
}

static void a_log_that_can_not_be_written_is_refused(void **state)
{
    (void)state;
    struct hst_error error = {0};
    struct run_log log = {0};
    assert_int_equal(run_log_check("/nowhere/at/all.jsonl", &error), -ENOENT);
    assert_int_equal(error.code, FAIL_WRITE);
    assert_int_equal(run_log_check("/tmp", &error), -EISDIR);
    assert_int_equal(run_log_open(&log, "/dev/full", &error), 0);
    assert_int_equal(run_log_step(&log, &step, &error), -ENOSPC);
    assert_null(log.file);
    assert_int_equal(run_log_step(&log, &step, &error), 0); /* no more lines */
    run_log_close(&log);
}

static void a_log_whose_disk_is_full_ends_with_a_whole_line(void **state)
{
    (void)state;
    char path[] = "/tmp/hoistway-test-XXXXXX";
    struct hst_error error = {0};
    struct run_log log = {0};
    struct rlimit before, limit;
    put_file(path, "");
    assert_int_equal(run_log_open(&log, path, &error), 0);
    assert_int_equal(run_log_step(&log, &step, &error), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){sizeof STEP_LINE + 50, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int native = run_log_step(&log, &step, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(native, -EFBIG);
    assert_file(path, STEP_LINE);
    unlink(path);
    run_log_close(&log);
}

static void assert_kept(const char *path, int native)
{
    struct hst_error error = {0};
    struct run_log log = {0};
    assert_int_equal(run_log_check(path, &error), native);
    assert_int_equal(error.code, FAIL_WRITE);
    assert_non_null(strstr(error.message, "Fix: "));
    assert_int_equal(run_log_open(&log, path, &error), native);
    run_log_close(&log);
}

static void what_is_not_a_log_is_neither_replaced_nor_followed(void **state)
{
    (void)state;
    char path[] = "/tmp/hoistway-test-XXXXXX", link[sizeof path + 5];
    const char config[] = "{\"kind\": \"llama\"}\n";
    put_file(path, config);
    assert_kept(path, -EEXIST);
    assert_file(path, config);
    assert_int_equal(truncate(path, 5), 0); /* shorter than what a log begins with */
    assert_kept(path, -EEXIST);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(run_log_check(path, NULL), 0);
    snprintf(link, sizeof link, "%s.link", path);
    assert_int_equal(symlink(path, link), 0);
    assert_kept(link, -EINVAL);
    unlink(path);
    assert_kept(link, -EINVAL); /* and what a dangling one names is not created */
    assert_int_not_equal(access(path, F_OK), 0);
    unlink(link);
}

static void without_a_path_nothing_is_logged(void **state)
{
    (void)state;
    struct hst_error error = {0};
    struct run_log log = {0};
    assert_int_equal(run_log_check(NULL, &error), 0);
    assert_int_equal(run_log_open(&log, NULL, &error), 0);
    assert_int_equal(run_log_step(&log, &step, &error), 0);
    run_log_close(&log);
}

/* ---- step lines ---- */

static void the_step_line_reads_as_documented(void **state)
{
    (void)state;
    char line[PROGRESS_LINE_BYTES];
    progress_format(&step, line);
    assert_string_equal(line, "step 120/1000 12% | loss 2.413 | norm 0.91 | 18.2k tok/s | stall "
                              "nvme 3% | eta 14m");
    struct hst_step_stats slow = stats;
    slow.stall_s.update = 0.25;
    slow.grad_norm = NAN;
    struct step_report last = step;
    last.stats = &slow;
    last.step = 1000;
    progress_format(&last, line);
    assert_string_equal(line, "step 1000/1000 100% | loss 2.413 | norm nan | 18.2k tok/s | stall "
                              "update 50% | eta 0s");
}

static void what_is_left_of_a_resumed_run_is_told_by_its_own_steps(void **state)
{
    (void)state;
    char line[PROGRESS_LINE_BYTES];
    struct step_report resumed = step; /* 10 steps in 100 s: 500 are left */
    resumed.began = 490;
    resumed.step = 500;
    resumed.elapsed_s = 100;
    progress_format(&resumed, line);
    assert_non_null(strstr(line, "step 500/1000 50% "));
    assert_non_null(strstr(line, "| eta 1h23m"));
}

static void what_a_run_is_at_reads_as_documented(void **state)
{
    (void)state;
    char line[ACTIVITY_LINE_BYTES];
    const struct {
        struct activity activity;
        const char *line;
    } cases[] = {
        {{"verify step 120", 3u << 29, 1ull << 32, 12.9, NULL},
         "verify step 120 0:12 | 1.5 GiB of 4.0 GiB 37% | 119.1 MiB/s | eta 22s"},
        {{"exporting", 0, 1ull << 32, 3, NULL}, "exporting 0:03 | 0 B of 4.0 GiB 0%"},
        {{"exporting", (1ull << 32) - 1, 1ull << 32, 64, ""},
         "exporting 1:04 | 4.0 GiB of 4.0 GiB 99% | 64.0 MiB/s | eta 0s"},
        {{"resuming", 1ull << 32, 1ull << 32, 64, ""}, "resuming 1:04 | 4.0 GiB of 4.0 GiB 100%"},
        {{"reserving memory", 0, 0, 7229, NULL}, "reserving memory 120:29"},
        {{"step 4", 0, 0, 61, "step 3/10 30% | loss 2.4"},
         "step 4 1:01 | step 3/10 30% | loss 2.4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        activity_format(&cases[i].activity, line);
        assert_string_equal(line, cases[i].line);
    }
    /* of what is too long, as much as there is room for */
    char name[1000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const struct activity all = {name, 1000, UINT64_MAX, 1, name};
    activity_format(&all, line);
    assert_true(strlen(line) < sizeof line);
}

static void without_a_terminal_a_line_comes_every_10_seconds(void **state)
{
    (void)state;
    struct step_report s = step;
    s.elapsed_s = 109.9;
    assert_false(progress_due(&s, 100));
    s.elapsed_s = 110;
    assert_true(progress_due(&s, 100));
    s.elapsed_s = 100.1;
    s.step = 1;
    assert_true(progress_due(&s, 100));
    s.step = s.steps;
    assert_true(progress_due(&s, 100));
    s.began = 500; /* of a resumed run too the first is told */
    s.step = 501;
    assert_true(progress_due(&s, 100));
    s.step = 502;
    assert_false(progress_due(&s, 100));
}

static uint64_t typed(const char *text)
{
    static const struct hst_option size = {
        .name = "size", .type = HST_OPTION_SIZE, .least = 0, .greatest = 0x1p62};
    char why[400];
    uint64_t bytes = 0;
    assert_int_equal(hst_option_parse(&size, text, &bytes, why, sizeof why), 0);
    return bytes;
}

static void a_size_to_be_typed_is_short(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *down, *up;
    } rows[] = {
        {0, "0", "0"},
        {1023, "1023", "1023"},
        {1024, "1K", "1K"},
        {1025, "1K", "1.01K"},
        {UINT64_C(19) << 20, "19M", "19M"},
        {UINT64_C(1536) << 20, "1.5G", "1.5G"},
        {UINT64_C(1152) << 20, "1152M", "1152M"},
        {(UINT64_C(1152) << 20) + 1, "1.12G", "1.13G"},
        {(UINT64_C(1887362) << 20) + 1, "1.79T", "1.8T"},
        {UINT64_C(123456) << 20, "120G", "121G"},
        {(UINT64_C(1) << 30) - 1, "1023M", "1G"},
        {(UINT64_C(1) << 40) + 1, "1T", "1.01T"},
        {UINT64_C(5000) << 40, "5000T", "5000T"},
    };
    char text[TEXT_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(text_typed_down(rows[i].bytes, text), rows[i].down);
        assert_string_equal(text_typed_up(rows[i].bytes, text), rows[i].up);
    }
}

static void check_typed(uint64_t bytes)
{
    char text[TEXT_BYTES];
    const uint64_t down = typed(text_typed_down(bytes, text));
    assert_true(strlen(text) <= strlen("1023G") && down <= bytes);
    const uint64_t up = typed(text_typed_up(bytes, text));
    assert_true(strlen(text) <= strlen("1023G") && up >= bytes);
    assert_true((double)(up - down) <= 0.011 * (double)bytes);
    /* what was typed is told as that */
    assert_int_equal(typed(text_typed_up(up, text)), up);
    assert_int_equal(typed(text_typed_down(down, text)), down);
}

/* All sizes that an option takes. */
static void a_size_to_be_typed_suffices_or_is_there(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 100000; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        const uint64_t bytes = seed >> (12 + (seed >> 32) % 52);
        check_typed(bytes);
        check_typed(bytes & ~UINT64_C(1023));
    }
    for (int bit = 10; bit < 52; bit++) {
        const uint64_t bytes = UINT64_C(1) << bit;
        check_typed(bytes - 1);
        check_typed(bytes + 1);
        for (uint64_t count = 1; count <= 9 && bit < 49; count++) {
            char text[TEXT_BYTES];
            assert_int_equal(typed(text_typed_up(count * bytes, text)), count * bytes);
            assert_int_equal(typed(text_typed_down(count * bytes, text)), count * bytes);
        }
    }
}

static void quantities_have_the_unit_that_fits(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    assert_string_equal(text_size(0, text), "0 B");
    assert_string_equal(text_size(1023, text), "1023 B");
    assert_string_equal(text_size(1536, text), "1.5 KiB");
    assert_string_equal(text_size((1 << 20) - 1, text), "1.0 MiB");
    assert_string_equal(text_size(UINT64_MAX, text), "16.0 EiB");
    assert_string_equal(text_count(0, text), "0");
    assert_string_equal(text_count(999, text), "999");
    assert_string_equal(text_count(999.6, text), "1.0k");
    assert_string_equal(text_count(18234, text), "18.2k");
    assert_string_equal(text_count(999960, text), "1.0M");
    assert_string_equal(text_count(8.03e9, text), "8.0B");
    assert_string_equal(text_duration(0.4, text), "0s");
    assert_string_equal(text_duration(59.4, text), "59s");
    assert_string_equal(text_duration(14 * 60 + 5, text), "14m");
    assert_string_equal(text_duration(7500, text), "2h05m");
    assert_string_equal(text_duration(3 * 86400 + 4 * 3600, text), "3d04h");
    assert_string_equal(text_duration(NAN, text), "?");
    assert_string_equal(text_duration(INFINITY, text), "?");
}

/* ---- the machine ---- */

static void limits_are_read_from_the_system_files(void **state)
{
    (void)state;
    const char *meminfo = "MemTotal:       24689664 kB\nMemFree:  1 kB\nMemAvailable:   2048 kB\n";
    assert_int_equal(system_meminfo(meminfo, "MemTotal"), UINT64_C(24689664) * 1024);
    assert_int_equal(system_meminfo(meminfo, "MemAvailable"), 2048 * 1024);
    assert_int_equal(system_meminfo(meminfo, "Mem"), 0);
    assert_int_equal(system_meminfo("", "MemTotal"), 0);
    assert_true(system_cgroup_limit("max\n") == SYSTEM_NO_LIMIT);
    assert_true(system_cgroup_limit("") == SYSTEM_NO_LIMIT);
    assert_true(system_cgroup_limit("9223372036854771712\n") == SYSTEM_NO_LIMIT);
    assert_int_equal(system_cgroup_limit("1073741824\n"), 1073741824);
    assert_int_equal(system_cgroup_left(100, 70, 20), 50);
    assert_int_equal(system_cgroup_left(100, 20, 70), 100);
    assert_int_equal(system_cgroup_left(100, 170, 20), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_terminal_would_obey_is_escaped),
        cmocka_unit_test(json_is_written_with_9_digits_and_escapes),
        cmocka_unit_test(each_log_line_is_in_the_file_at_once),
        cmocka_unit_test(a_prediction_is_off_where_all_steps_say_so),
        cmocka_unit_test(each_rate_is_told_with_unit_and_age),
        cmocka_unit_test(a_forecast_says_what_was_measured_and_what_would_help),
        cmocka_unit_test(a_log_that_can_not_be_written_is_refused),
        cmocka_unit_test(a_log_whose_disk_is_full_ends_with_a_whole_line),
        cmocka_unit_test(what_is_not_a_log_is_neither_replaced_nor_followed),
        cmocka_unit_test(without_a_path_nothing_is_logged),
        cmocka_unit_test(the_step_line_reads_as_documented),
        cmocka_unit_test(what_is_left_of_a_resumed_run_is_told_by_its_own_steps),
        cmocka_unit_test(what_a_run_is_at_reads_as_documented),
        cmocka_unit_test(without_a_terminal_a_line_comes_every_10_seconds),
        cmocka_unit_test(a_size_to_be_typed_is_short),
        cmocka_unit_test(a_size_to_be_typed_suffices_or_is_there),
        cmocka_unit_test(quantities_have_the_unit_that_fits),
        cmocka_unit_test(limits_are_read_from_the_system_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
