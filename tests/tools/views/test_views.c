/* SPDX-License-Identifier: Apache-2.0 */
/* Views of lines that are made here. */
#include "views/history.h"
#include "views/views.h"

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

static const char RUN[] = "{\"kind\":\"run\",\"began\":1000,\"model\":\"m\",\"steps\":9}\n";

static void take(struct views *views, const char *line)
{
    views_take(views, line, strlen(line));
}

static void take_step(struct views *views, uint64_t step, double loss)
{
    char line[128];
    snprintf(line, sizeof line, "{\"kind\":\"step\",\"step\":%llu,\"loss\":%.9g,\"seconds\":0.5}\n",
             (unsigned long long)step, loss);
    take(views, line);
}

static struct history *history_of(uint64_t first, uint64_t count)
{
    struct history *history = calloc(1, sizeof *history);
    assert_non_null(history);
    for (uint64_t i = 0; i < count; i++) {
        struct record record = {.kind = RECORD_STEP, .step = first + i};
        for (enum measure m = 0; m < MEASURES; m++)
            record.values[m] = NAN;
        record.values[LOSS] = (double)(first + i);
        history_take(history, &record);
    }
    return history;
}

static void short_runs_keep_each_step(void **state)
{
    (void)state;
    struct history *history = history_of(5, HISTORY_POINTS);
    assert_int_equal(history->count, HISTORY_POINTS);
    for (size_t i = 0; i < history->count; i++) {
        assert_true(history_value(history, i, LOSS) == (double)(5 + i));
        assert_true(history_behind(history, i) == (double)i);
        assert_true(isnan(history_value(history, i, LR)));
    }
    free(history);
}

static void long_runs_keep_means_of_all_steps(void **state)
{
    (void)state;
    const uint64_t count = 10 * HISTORY_POINTS + 3;
    struct history *history = history_of(1, count);
    uint64_t steps = 0;
    assert_int_equal(history->stride, 16);
    for (size_t i = 0; i < history->count; i++)
        steps += history->points[i].counts[LOSS];
    assert_int_equal(steps, count);
    for (size_t i = 0; i + 1 < history->count; i++)
        assert_true(history_value(history, i, LOSS) == 1 + history_behind(history, i));
    free(history);
}

/* RFC 3720, B.4: 32 bytes of 0 have 0x8a9136aa; masked as a TFRecord has it. */
static void checksums_are_those_of_records(void **state)
{
    (void)state;
    const unsigned char zeros[32] = {0};
    const uint32_t crc = 0x8a9136aau;
    assert_int_equal(tfevents_masked_crc(zeros, sizeof zeros),
                     (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u));
}

static void lines_that_are_none_are_counted(void **state)
{
    (void)state;
    struct views views;
    struct hst_error error;
    const struct views_paths none = {.csv = NULL};
    assert_int_equal(views_open(&views, &none, &error), 0);
    take(&views, RUN);
    take(&views, "{\"kind\":\"step\",\"st");
    take(&views, "[]");
    take(&views, "{\"kind\":7}");
    views_take(&views, NULL, 0);
    take(&views, "{\"kind\":\"some other\"}");
    take(&views, "{\"kind\":\"step\",\"step\":3,\"loss\":null,\"stall_s\":7,"
                 "\"peak\":{\"hbm\":\"x\"}}");
    assert_int_equal(views.facts.odd_lines, 4);
    assert_int_equal(views.facts.steps, 1);
    assert_int_equal(views.facts.last_step, 3);
    assert_int_equal(views_close(&views, &error), 0);
}

static size_t lines_of(const char *path)
{
    FILE *file = fopen(path, "re");
    size_t lines = 0;
    assert_non_null(file);
    for (int c = getc(file); c != EOF; c = getc(file))
        lines += c == '\n';
    fclose(file);
    return lines;
}

/* A disk that is full: no file may have more than so many bytes. */
static void a_view_that_fails_is_told_and_the_others_go_on(void **state)
{
    (void)state;
    char folder[] = "views.XXXXXX", csv[64], events[64], page[64], file[128];
    assert_non_null(mkdtemp(folder));
    snprintf(csv, sizeof csv, "%s/a.csv", folder);
    snprintf(events, sizeof events, "%s/tb", folder);
    snprintf(page, sizeof page, "%s/a.html", folder);
    const struct views_paths paths = {csv, events, page};
    struct views views;
    struct hst_error error = {0};
    struct rlimit old;
    assert_int_equal(views_open(&views, &paths, &error), 0);
    views.live = true;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    const struct rlimit small = {2000, old.rlim_max};
    take(&views, RUN);
    for (uint64_t step = 1; step <= 20; step++)
        take_step(&views, step, 2);
    assert_int_equal(views.native, 0);
    setrlimit(RLIMIT_FSIZE, &small);
    for (uint64_t step = 21; step <= 40; step++)
        take_step(&views, step, 2); /* an event takes 61 bytes, a row 27: that has room */
    assert_int_equal(views.native, -EFBIG);
    assert_int_equal(views.error.code, 107);
    assert_non_null(strstr(views.error.message, events));
    setrlimit(RLIMIT_FSIZE, &old);
    take_step(&views, 41, 2);
    assert_int_equal(views_close(&views, &error), -EFBIG);
    assert_int_equal(error.code, 107);
    assert_int_equal(views_close(&views, &error), 0);
    assert_int_equal(lines_of(csv), 42);
    assert_true(lines_of(page) > 20);
    unlink(csv);
    unlink(page);
    snprintf(file, sizeof file, "%s/events.out.tfevents.hoistway", events);
    unlink(file);
    rmdir(events);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_runs_keep_each_step),
        cmocka_unit_test(long_runs_keep_means_of_all_steps),
        cmocka_unit_test(checksums_are_those_of_records),
        cmocka_unit_test(lines_that_are_none_are_counted),
        cmocka_unit_test(a_view_that_fails_is_told_and_the_others_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
