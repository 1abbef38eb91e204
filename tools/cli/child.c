/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a program without a shell, reads what it says, and ends it when its time is over. */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long left_ms(const struct timespec *begin, unsigned limit_ms)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long passed = (now.tv_sec - begin->tv_sec) * 1000 + (now.tv_nsec - begin->tv_nsec) / 1000000;
    return (long)limit_ms - passed;
}

/* It reads what comes until the other end is closed, the buffer is full or the time is over. */
static size_t read_all(int in, char *text, size_t room, unsigned limit_ms)
{
    struct timespec begin;
    size_t used = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long left; used < room && (left = left_ms(&begin, limit_ms)) > 0;) {
        struct pollfd ready = {.fd = in, .events = POLLIN};
        int polled = poll(&ready, 1, (int)left);
        ssize_t got = polled > 0 ? read(in, text + used, room - used) : polled;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    return used;
}

static int start(const char *const *arguments, const int ends[2], pid_t *child)
{
    posix_spawn_file_actions_t actions;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc)
        return rc;
    rc = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    rc = rc ? rc
            : posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    rc = rc ? rc
            : posix_spawnp(child, arguments[0], &actions, NULL, (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

bool child_read(const char *const *arguments, unsigned limit_ms, char *text, size_t room)
{
    int ends[2];
    pid_t child;
    *text = '\0';
    if (pipe2(ends, O_CLOEXEC))
        return false;
    int rc = start(arguments, ends, &child);
    close(ends[1]);
    size_t used = rc ? 0 : read_all(ends[0], text, room - 1, limit_ms);
    close(ends[0]);
    if (!rc) {
        kill(child, SIGKILL); /* it has said all, or its time is over */
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    text[used] = '\0';
    return !rc;
}
