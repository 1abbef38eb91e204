/* SPDX-License-Identifier: Apache-2.0 */
/* Why io_uring is not used: each cause has its own text and one fix. */
#include "base/file_limit.h"
#include "base/io_reason.h"

#include <errno.h>
#include <hoistway/hoistway.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h> /* needs the ones before */

static void assert_told(struct io_refusal refusal, const char *part)
{
    char text[400];
    io_reason(&refusal, text, sizeof text);
    if (!strstr(text, part))
        fail_msg("\"%s\" lacks \"%s\"", text, part);
    assert_non_null(strstr(text, ". Fix: "));
    assert_non_null(strstr(text, "--io threads"));
}

static void each_cause_has_its_text_and_one_fix(void **state)
{
    (void)state;
    assert_told((struct io_refusal){.error = EPERM, .step = "io_uring_setup"},
                "io_uring is blocked (EPERM at io_uring_setup) by a sandbox; Docker's default "
                "seccomp profile");
    assert_told((struct io_refusal){.error = EPERM, .sysctl = 2},
                "kernel.io_uring_disabled is 2. Fix: sudo sysctl");
    assert_told((struct io_refusal){.error = ENOSYS, .sysctl = -1}, "older than 5.1");
    assert_told((struct io_refusal){.error = ENOMEM, .memlock_bytes = 8 << 20},
                "RLIMIT_MEMLOCK is 8.0 MiB");
    assert_told((struct io_refusal){.error = ENOMEM, .memlock_bytes = UINT64_MAX},
                "RLIMIT_MEMLOCK is unlimited");
    assert_told((struct io_refusal){.error = EIO}, "failed its probe (EIO at the probe)");
}

static void what_this_machine_says_is_taken_with_either_sign(void **state)
{
    (void)state;
    char a[400], b[400];
    hst_io_reason(-EIO, NULL, a, sizeof a);
    hst_io_reason(EIO, NULL, b, sizeof b);
    assert_string_equal(a, b);
    assert_non_null(strstr(a, "failed its probe (EIO at the probe)"));
}

static void a_file_that_is_too_large_is_so_for_a_limit_or_for_the_file_system(void **state)
{
    (void)state;
    struct rlimit before, limit;
    char text[FILE_LIMIT_BYTES];
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 5 << 20, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_string_equal(file_limit((6 << 20) + 1, text),
                        "a file of 6.1 MiB is needed, and ulimit -f allows files of 5.0 MiB. Fix: "
                        "ulimit -f unlimited");
    assert_string_equal(file_limit(5 << 20, text),
                        "the file system takes no file of 5.0 MiB. Fix: a directory on ext4 or "
                        "xfs, or more directories");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_is_too_large_is_so_for_a_limit_or_for_the_file_system),
        cmocka_unit_test(each_cause_has_its_text_and_one_fix),
        cmocka_unit_test(what_this_machine_says_is_taken_with_either_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
