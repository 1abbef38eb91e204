/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what an output may replace. */
#include "cli/log/output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BEGIN_MOST = 64, LOCK_TRIES = 200 }; /* 10 ms each */

int output_unwritable(const struct output_kind *kind, const char *path, struct hst_error *error)
{
    int native = errno;
    return fail(error, FAIL_WRITE, -native,
                "the %s '%.300s' cannot be written (%s). Fix: give %s a writable path.", kind->noun,
                path, strerror(native), kind->option);
}

/* Empty, or of this kind: anything else is somebody's data. */
static bool may_be_replaced(const struct output_kind *kind, int fd)
{
    char text[BEGIN_MOST];
    size_t bytes = kind->begin_bytes ? kind->begin_bytes : strlen(kind->begin);
    ssize_t n = pread(fd, text, bytes < sizeof text ? bytes : sizeof text, 0);
    return n == 0 || (n > 0 && memcmp(text, kind->begin, (size_t)n) == 0 && (size_t)n == bytes);
}

/*
 * For as long as it is open: the lines of two runs in one file would be nobody's. Where a file
 * system has no locks, there are none. A run that was killed holds its own until the kernel has
 * ended its last requests, and may be gone from the list of processes by then.
 */
static int lock(const struct output_kind *kind, const char *path, int fd, struct hst_error *error)
{
    for (int tries = 0; tries <= LOCK_TRIES; tries++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            return 0;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return fail(error, FAIL_WRITE, -EBUSY,
                "the %s '%.300s' is being written by another run. Fix: wait for it to end, or give "
                "%s another path.",
                kind->noun, path, kind->option);
}

bool output_parents_possible(const char *path)
{
    char at[PATH_MAX];
    struct stat st;
    if (snprintf(at, sizeof at, "%s", path) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    char *above = dirname(at);
    while (stat(above, &st) != 0 && errno == ENOENT)
        above = dirname(above); /* "." and "/" are there */
    return access(above, W_OK | X_OK) == 0;
}

int output_make_parents(const char *path)
{
    char at[PATH_MAX];
    if (snprintf(at, sizeof at, "%s", path) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *slash = at; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        if (mkdir(at, 0777) && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return 0;
}

/*
 * Opens what may be written to, and changes nothing in it. Links are not followed: what they point
 * at is not named on the command line. A character device (a terminal, /dev/null) has nothing to
 * lose. Returns the descriptor, 0 for a file that is missing and not to be created, or a negative
 * errno.
 */
static int open_old(const struct output_kind *kind, const char *path, bool create,
                    struct hst_error *error)
{
    struct stat st;
    bool missing = lstat(path, &st) != 0;
    if (missing && (errno != ENOENT || !create))
        return errno == ENOENT ? 0 : output_unwritable(kind, path, error);
    if (!missing && S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        return output_unwritable(kind, path, error);
    }
    if (missing && kind->makes_parents && output_make_parents(path))
        return output_unwritable(kind, path, error);
    bool device = !missing && S_ISCHR(st.st_mode);
    int flags = device ? O_WRONLY : create ? O_RDWR | O_CREAT : O_RDWR;
    if (!missing && !device && !S_ISREG(st.st_mode))
        return fail(error, FAIL_WRITE, -EINVAL,
                    "the %s '%.300s' is a link or not a regular file: nothing is written there. "
                    "Fix: give %s the path of a file.",
                    kind->noun, path, kind->option);
    int fd = open(path, flags | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0)
        return output_unwritable(kind, path, error);
    int native = device ? 0 : lock(kind, path, fd, error);
    if (!native && (device || may_be_replaced(kind, fd)))
        return fd;
    close(fd);
    return native ? native
                  : fail(error, FAIL_WRITE, -EEXIST,
                         "the %s '%.300s' is there and is not the %s of %s: it is kept. Fix: "
                         "give %s another path.",
                         kind->noun, path, kind->noun, kind->owner ? kind->owner : "a run",
                         kind->option);
}

int output_check(const struct output_kind *kind, const char *path, struct hst_error *error)
{
    if (!path)
        return 0;
    int fd = open_old(kind, path, false, error);
    if (fd > 0)
        close(fd);
    if (fd != 0)
        return fd < 0 ? fd : 0;
    if (kind->makes_parents && output_parents_possible(path))
        return 0;
    char parent[PATH_MAX];
    int n = snprintf(parent, sizeof parent, "%s", path);
    if (n > 0 && n < PATH_MAX && access(dirname(parent), W_OK | X_OK) == 0)
        return 0;
    return output_unwritable(kind, path, error);
}

static int open_stream(const struct output_kind *kind, const char *path, bool empty, FILE **file,
                       struct hst_error *error)
{
    int fd = open_old(kind, path, true, error);
    if (fd < 0)
        return fd;
    struct stat st;
    *file = NULL;
    if (fstat(fd, &st) == 0 && (!S_ISREG(st.st_mode) || !empty || ftruncate(fd, 0) == 0))
        *file = fdopen(fd, S_ISREG(st.st_mode) ? "r+" : "w");
    if (*file)
        return 0;
    int native = output_unwritable(kind, path, error);
    close(fd);
    return native;
}

int output_open(const struct output_kind *kind, const char *path, FILE **file,
                struct hst_error *error)
{
    return open_stream(kind, path, true, file, error);
}

int output_reopen(const struct output_kind *kind, const char *path, FILE **file,
                  struct hst_error *error)
{
    return open_stream(kind, path, false, file, error);
}
