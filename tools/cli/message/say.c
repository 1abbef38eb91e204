/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how long a write waits for its reader; see say.h. It waits in poll(2), a moment at a
 * time, and not in write(2): a signal reaches one thread of the process, which need not be the one
 * that waits.
 */
#include "cli/message/say.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOMENT_MS = 50, PATIENCE_MOMENTS = 20 };

static _Atomic bool hurried;
static _Atomic int moments_left = PATIENCE_MOMENTS; /* of all writes after say_hurry */

/* A moment has passed in which nothing was taken. False: the last one that there is time for. */
static bool may_wait_on(void)
{
    return !hurried || atomic_fetch_sub(&moments_left, 1) > 0;
}

/* Waits until a descriptor takes bytes, or says in write(2) why it does not. */
static bool wait_for_room(int fd)
{
    struct pollfd wanted = {.fd = fd, .events = POLLOUT};
    while (poll(&wanted, 1, hurried && moments_left <= 0 ? 0 : MOMENT_MS) <= 0)
        if (!may_wait_on())
            return false;
    return true;
}

/*
 * Another way to the pipe or terminal at stderr, on which write(2) never waits: that poll(2) has
 * seen room does not mean room for all of a text, nor that another process has left it there. The
 * descriptor itself is shared with other processes, and so are its flags. -1: there is none.
 */
static int open_beside(void)
{
    struct stat st;
    if (fstat(STDERR_FILENO, &st) != 0 || !(S_ISFIFO(st.st_mode) || isatty(STDERR_FILENO)))
        return -1;
    return open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static void put(const char *text, size_t bytes)
{
    const int beside = open_beside(), fd = beside >= 0 ? beside : STDERR_FILENO;
    size_t done = 0;
    while (done < bytes && wait_for_room(fd)) {
        const ssize_t n = write(fd, text + done, bytes - done);
        if (n > 0)
            done += (size_t)n;
        else if ((errno != EAGAIN && errno != EINTR) ||
                 (poll(NULL, 0, MOMENT_MS) == 0 && !may_wait_on()))
            break; /* there is nobody to tell, or there was room, and not enough of it */
    }
    if (beside >= 0)
        close(beside);
}

void say(const char *format, ...)
{
    char text[SAY_BYTES];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n > 0)
        put(text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

int say_flush(FILE *file)
{
    if (__fpending(file) > 0 && !wait_for_room(fileno(file))) {
        __fpurge(file);
        errno = EAGAIN;
        return -EAGAIN;
    }
    errno = EIO; /* of an error that was seen before */
    return fflush(file) == 0 && !ferror(file) ? 0 : -errno;
}

void say_hurry(void)
{
    hurried = true;
}

void say_at_once(const char *text, size_t bytes)
{
    struct pollfd wanted = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&wanted, 1, 0) > 0 && write(STDERR_FILENO, text, bytes) < 0)
        return; /* there is nobody to tell */
}
