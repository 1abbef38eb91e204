/* SPDX-License-Identifier: Apache-2.0 */
/* Decides when a report's file is touched: what cannot be written is found out before measuring,
   an earlier report is replaced only by a new one. */
#include "nvme_bench/target.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(const struct nb_target *target, int native, struct hst_error *error)
{
    return fail(error, FAIL_WRITE, -native,
                "--html '%.200s' cannot be written (%s). Fix: give a path that you may write to.",
                target->path, strerror(native));
}

int nb_target_check(const char *path, const char *source, struct hst_error *error)
{
    struct stat target, from;
    if (!path || !source || stat(path, &target) || stat(source, &from) ||
        target.st_dev != from.st_dev || target.st_ino != from.st_ino)
        return 0;
    return fail(error, FAIL_VALUE, -EINVAL,
                "--html '%.200s' is the file that --from reads. Fix: give another path.", path);
}

int nb_target_open(struct nb_target *target, const char *path, struct hst_error *error)
{
    *target = (struct nb_target){.path = path};
    if (!path)
        return 0;
    target->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    target->created = target->fd >= 0;
    if (!target->created && errno == EEXIST) /* also a link to what is not there yet */
        target->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (target->fd >= 0) /* a FIFO that nobody reads would have kept us waiting; one that is read
                            may keep the writes waiting */
        return fcntl(target->fd, F_SETFL, 0);
    int rc = refuse(target, errno, error);
    target->path = NULL;
    return rc;
}

FILE *nb_target_begin(struct nb_target *target, struct hst_error *error)
{
    struct stat st;
    bool regular = fstat(target->fd, &st) == 0 && S_ISREG(st.st_mode);
    FILE *stream = regular && ftruncate(target->fd, 0) ? NULL : fdopen(target->fd, "w");
    if (!stream)
        refuse(target, errno, error);
    return stream;
}

int nb_target_end(struct nb_target *target, FILE *stream, struct hst_error *error)
{
    bool bad = ferror(stream) || fflush(stream);
    int native = bad ? errno : 0;
    if (fclose(stream) && !bad) {
        bad = true;
        native = errno;
    }
    int rc = bad ? refuse(target, native, error) : 0;
    if (bad && target->created)
        unlink(target->path);
    target->path = NULL;
    return rc;
}

void nb_target_close(struct nb_target *target)
{
    if (!target->path)
        return;
    if (target->created)
        unlink(target->path);
    close(target->fd);
    target->path = NULL;
}

int nb_target_check_stdout(struct hst_error *error)
{
    bool writable = false;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int flags = fcntl(fd, F_GETFL);
        if (fd == STDOUT_FILENO)
            writable = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
        if (flags < 0 && open("/dev/null", O_RDWR) != fd) /* the lowest that is free */
            break;
    }
    return writable ? 0
                    : fail(error, FAIL_WRITE, -EBADF,
                           "stdout is closed, or not open for writing: there is nowhere to print "
                           "the results. Fix: leave it open, or > FILE.");
}
