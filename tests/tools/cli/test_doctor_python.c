/* SPDX-License-Identifier: Apache-2.0 */
/* What doctor learns from a Python about NVIDIA's folders, and from one that does not answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "verbs/doctor/doctor.h"

static char root[64], python[128];

/* A program in a Python's place. */
static void put_python(const char *script)
{
    FILE *file = fopen(python, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", script);
    fclose(file);
    assert_int_equal(chmod(python, 0700), 0);
}

static void folders_of_packages_are_told(void **state)
{
    (void)state;
    char text[PATH_MAX], command[1024], want[256];
    snprintf(command, sizeof command,
             "cd %s && mkdir -p nvidia/cu13/lib nvidia/cudnn/lib nvidia/empty/lib && "
             "touch nvidia/cu13/lib/libcublasLt.so.13 nvidia/cudnn/lib/libcudnn.so.9",
             root);
    assert_int_equal(system(command), 0);
    assert_int_equal(setenv("PYTHONPATH", root, 1), 0);
    assert_true(doctor_python_folders("python3", 5000, text, sizeof text));
    snprintf(want, sizeof want, "%s/nvidia/cu13/lib:%s/nvidia/cudnn/lib", root, root);
    assert_non_null(strstr(text, want));
    assert_null(strstr(text, "empty"));
    assert_int_equal(unsetenv("PYTHONPATH"), 0);
}

static void a_python_without_packages_tells_nothing(void **state)
{
    (void)state;
    static const char *const scripts[] = {"echo", "exit 1", "printf /cut/short", "exec /nowhere"};
    char text[PATH_MAX];
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        put_python(scripts[i]);
        assert_false(doctor_python_folders(python, 5000, text, sizeof text));
        assert_string_equal(text, "");
    }
    assert_false(doctor_python_folders("/nowhere/python3", 5000, text, sizeof text));
    assert_string_equal(text, "");
}

static void a_list_that_is_too_long_is_not_cut(void **state)
{
    (void)state;
    char text[16];
    put_python("echo /a/folder/that/is/longer/than/that");
    assert_false(doctor_python_folders(python, 5000, text, sizeof text));
    assert_string_equal(text, "");
}

/* The script's own child keeps the pipe open: the end of the script alone would not do. */
static void a_python_that_hangs_is_ended(void **state)
{
    (void)state;
    char text[PATH_MAX];
    struct timespec begin, end;
    put_python("sleep 20; echo /late");
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_false(doctor_python_folders(python, 200, text, sizeof text));
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_string_equal(text, "");
    assert_true(end.tv_sec - begin.tv_sec < 15);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/hst-python-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    snprintf(python, sizeof python, "%s/python3", root);
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_of_packages_are_told),
        cmocka_unit_test(a_python_without_packages_tells_nothing),
        cmocka_unit_test(a_list_that_is_too_long_is_not_cut),
        cmocka_unit_test(a_python_that_hangs_is_ended),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
