/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that shows what the program is at: where there is none, and by which name it is
 * known. It starts once in a process, hence a process for each case. */
#include "cli/message/activity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool none_left;

/* activity.c's call. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return none_left ? EAGAIN : real(thread, attributes, run, argument);
}

/* What a process tells on stderr that does this; it has to end with 0. */
static void told_by(int (*does)(void), char told[4096])
{
    FILE *file = tmpfile();
    int status;
    assert_non_null(file);
    const pid_t child = fork();
    if (child == 0) {
        dup2(fileno(file), STDERR_FILENO);
        _exit(does());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    rewind(file);
    told[fread(told, 1, 4095, file)] = '\0';
    fclose(file);
}

static int begin_without_a_thread(void)
{
    none_left = true;
    activity_begin("one thing");
    activity_begin("another");
    activity_show("a step", true);
    activity_end();
    return 0;
}

static void without_a_thread_it_is_told_and_all_else_goes_on(void **state)
{
    (void)state;
    char told[4096];
    told_by(begin_without_a_thread, told);
    assert_ptr_equal(strstr(told, "warning[W310] "), told);
    assert_non_null(strstr(told, strerror(EAGAIN)));
    assert_non_null(strstr(told, "Fix: "));
    assert_string_equal(strchr(told, '\n'), "\na step\n"); /* once, and no more of it */
}

/* 0: a thread of this process has the name. */
static int is_named(const char *name)
{
    DIR *tasks = opendir("/proc/self/task");
    int missing = 1;
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        char path[300], found[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = task->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (file && fgets(found, sizeof found, file) && strcmp(found, name) == 0)
            missing = 0;
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return missing;
}

static int look_for_the_thread(void)
{
    activity_begin("one thing");
    return is_named("hst-activity\n");
}

static void the_thread_has_a_name_as_others_have(void **state)
{
    (void)state;
    char told[4096];
    told_by(look_for_the_thread, told);
    assert_string_equal(told, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_thread_it_is_told_and_all_else_goes_on),
        cmocka_unit_test(the_thread_has_a_name_as_others_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
