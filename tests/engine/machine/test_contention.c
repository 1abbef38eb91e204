/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What else runs while rates are measured: what is counted between two moments, from when on it
 * disturbs, and that a probe beside two busy processes for each processor says so, each time.
 */
#include "probe/contention.h"

#include <hoistway/machine.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void what_was_counted_before_does_not_count(void **state)
{
    (void)state;
    const struct contention begin = {10, 4, 1, 100, 2}, end = {12, 7, 1.5, 104, 2};
    struct contention c = contention_between(&begin, &end);
    assert_true(c.passed_s == 2 && c.ran_s == 3 && c.waited_s == 0.5);
    assert_true(c.others_s == 1); /* 4 in all, 3 of this process */
    assert_int_equal(c.processors, 2);
    const struct contention ended = {12, 5, 0.5, 102, 2}; /* threads, with what they waited */
    c = contention_between(&begin, &ended);
    assert_true(c.ran_s == 1 && c.waited_s == 0 && c.others_s == 1);
    const struct contention moved = {12, 7, 1.5, 204, 4}; /* to other processors */
    c = contention_between(&begin, &moved);
    assert_true(c.processors == 0 && c.others_s == 0);
}

static void it_disturbs_from_a_tenth_of_waiting_or_a_quarter_of_the_processors_on(void **state)
{
    (void)state;
    static const struct {
        struct contention c;
        bool worked;
        const char *why;
    } cases[] = {
        {{1, 2, 0.001, 0.05, 2}, true, ""},
        {{1, 1.85, 0.15, 0.15, 2}, true, ""}, /* 7.5 % */
        {{1, 1.7, 0.3, 0.3, 2}, true, "threads waited for a processor for 15 % of their time"},
        {{1, 1.7, 0.3, 0.1, 2}, true, ""},  /* for each other, but for a third of it */
        {{1, 2, 1.9, 0, 2}, true, ""},      /* threads of ours, on too few processors */
        {{1, 0.02, 0.09, 1, 2}, false, ""}, /* asleep for the rest */
        {{1, 0.02, 0.25, 1, 2}, false, "threads waited for a processor for 25 % of their time"},
        {{1, 2, 0, 0.45, 2}, true, ""},
        {{1, 2, 0, 1.4, 2}, true, "other work had 1.4 of 2 processors"},
        {{2, 4, 0, 1.4, 2}, true, "other work had 0.7 of 2 processors"},
        {{1, 2, 0, 1.4, 8}, true, ""},      /* a sixth of them */
        {{1, 0.1, 0, 1.4, 2}, false, ""},   /* the kernel's own threads, for drives */
        {{0.1, 0.2, 0, 0.15, 2}, true, ""}, /* less than can be counted */
        {{1, 1.7, 0.3, 0, 0}, true, "threads waited for a processor for 15 % of their time"},
        {{1, 1, 0, 0, 0}, true, ""}, /* nothing can be read */
        {{0, 0, 0, 0, 2}, true, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[160] = "as before";
        const bool is = contention_disturbs(&cases[i].c, cases[i].worked, why, sizeof why);
        if (is != (cases[i].why[0] != '\0') || strcmp(why, cases[i].why) != 0)
            fail_msg("case %zu: '%s', not '%s'", i, why, cases[i].why);
    }
}

static void this_process_and_its_processors_are_counted(void **state)
{
    (void)state;
    cpu_set_t set;
    const struct contention begin = contention_now();
    struct contention end;
    do
        end = contention_now();
    while (end.passed_s < begin.passed_s + 0.3);
    const struct contention c = contention_between(&begin, &end);
    assert_true(c.passed_s >= 0.3 && c.ran_s > 0 && c.ran_s + c.waited_s <= 1.5 * c.passed_s);
    struct timespec ran;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ran), 0);
    assert_true(c.ran_s <= (double)ran.tv_sec + 1e-9 * (double)ran.tv_nsec);
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(c.processors, CPU_COUNT(&set));
}

/* ---- beside others ---- */

enum { BUSY_EACH = 2, BUSY_MOST = 256, PROBES = 3 };

static size_t start_busy(pid_t busy[BUSY_MOST])
{
    const size_t wish = BUSY_EACH * (size_t)sysconf(_SC_NPROCESSORS_ONLN);
    size_t count = 0;
    for (; count < wish && count < BUSY_MOST; count++) {
        busy[count] = fork();
        assert_true(busy[count] >= 0);
        if (busy[count] == 0)
            for (volatile unsigned i = 0;; i++)
                if (i == 0 && getppid() == 1) /* who should have ended it is gone */
                    _exit(0);
    }
    return count;
}

static void end_busy(const pid_t *busy, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        kill(busy[i], SIGKILL);
        waitpid(busy[i], NULL, 0);
    }
}

static void each_probe_beside_busy_processes_says_so(void **state)
{
    (void)state;
    char folder[] = "hst-busy-XXXXXX";
    assert_non_null(mkdtemp(folder));
    static const struct hst_gemm gemm = {.m = 512, .n = 512, .k = 512, .dtype = HST_F32};
    const struct hst_probe_drive drive = {.directory = folder};
    const struct hst_probe asked[] = {
        {.size = sizeof *asked, .parts = HST_PROBE_UPDATE, .memory_bytes = 64u << 20},
        {.size = sizeof *asked, .parts = HST_PROBE_COMPUTE, .gemms = &gemm, .gemm_count = 1},
        {.size = sizeof *asked,
         .parts = (unsigned)HST_PROBE_DRIVES | HST_PROBE_MEMORY,
         .memory_bytes = 64u << 20,
         .drives = &drive,
         .drive_count = 1,
         .drive_bytes = 20u << 20},
    };
    static struct hst_rates rates[3][PROBES];
    pid_t busy[BUSY_MOST];
    const size_t count = start_busy(busy);
    for (int i = 0; i < 3; i++)
        for (int n = 0; n < PROBES; n++)
            assert_int_equal(hst_probe(&asked[i], &rates[i][n]), 0);
    end_busy(busy, count);
    assert_int_equal(rmdir(folder), 0);
    for (int i = 0; i < 3; i++)
        for (int n = 0; n < PROBES; n++)
            if (!strstr(rates[i][n].disturbed, " of ")) /* each text says of how much */
                fail_msg("probe %d of parts %x: '%s'", n, asked[i].parts, rates[i][n].disturbed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_counted_before_does_not_count),
        cmocka_unit_test(it_disturbs_from_a_tenth_of_waiting_or_a_quarter_of_the_processors_on),
        cmocka_unit_test(this_process_and_its_processors_are_counted),
        cmocka_unit_test(each_probe_beside_busy_processes_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
