/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_AIO_SANDBOX_H
#define HST_TESTS_AIO_SANDBOX_H
/* Cases that change what their process may do: each runs in a child of its own. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
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

/*
 * Refuses one system call where `test`, a jump of BPF, holds between the low half of an argument
 * and `value`.
 */
static inline void refuse(int call, int argument, unsigned short test, uint32_t value, int error)
{
    const uint32_t low = (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (size_t)argument);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low),
        BPF_JUMP(BPF_JMP | test | BPF_K, value, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
}

static inline void refuse_always(int call, int error)
{
    refuse(call, 0, BPF_JGE, 0, error);
}
#endif
