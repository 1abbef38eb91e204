/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_AIO_SANDBOX_H
#define HST_TESTS_AIO_SANDBOX_H
/* Cases that change what their process may do: each runs in a child of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIP = 77 };

/* Ends the child; cmocka's assertions work in the parent only. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Runs `body` in a child and returns its exit status, 1 for a death by signal. */
static inline int in_child(void (*body)(void))
{
    int status;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        body();
        exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 1;
    return WEXITSTATUS(status);
}
#endif
