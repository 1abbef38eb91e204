/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files: opened once, preallocated, private.
 *
 * Space is taken here so that no write can lack it later. RLIMIT_FSIZE is checked before the kernel
 * would: it would send SIGXFSZ, and a leaf neither handles signals nor lets the caller die of one.
 * O_DIRECT is set after the open: an open that fails on it may leave the created name behind,
 * F_SETFL does not.
 */
#include "internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ZEROS_BYTES = 1 << 20 };

static int open_scratch(const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    /* EISDIR: a kernel or a file system that takes O_TMPFILE for O_DIRECTORY */
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd >= 0 ? fd : -errno;
    char *name;
    if (asprintf(&name, "%s/.hoistway-XXXXXX", directory) < 0)
        return -ENOMEM;
    fd = mkostemp(name, O_CLOEXEC);
    int rc = fd >= 0 ? fd : -errno;
    if (fd >= 0 && unlink(name) < 0) {
        rc = -errno;
        close(fd);
    }
    free(name);
    return rc;
}

static int open_named(const char *path, unsigned flags)
{
    /* O_NONBLOCK: the open of a FIFO must fail, not wait; prepare() clears it. */
    int mode = O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
    mode |= flags & HST_AIO_READONLY ? O_RDONLY : O_RDWR;
    mode |= flags & HST_AIO_CREATE ? O_CREAT | O_EXCL : 0;
    int fd = open(path, mode, 0600);
    return fd < 0 ? -errno : fd;
}

/* It writes once what lies beyond the old end, where there is no fallocate. */
static int write_zeros(int fd, uint64_t from_bytes, uint64_t to_bytes)
{
    int rc = 0;
    char *zeros = calloc(1, ZEROS_BYTES);
    if (!zeros)
        return -ENOMEM;
    while (rc == 0 && from_bytes < to_bytes) {
        const uint64_t left_bytes = to_bytes - from_bytes;
        const size_t chunk_bytes = left_bytes < ZEROS_BYTES ? (size_t)left_bytes : ZEROS_BYTES;
        const ssize_t n = pwrite(fd, zeros, chunk_bytes, (off_t)from_bytes);
        if (n > 0)
            from_bytes += (uint64_t)n;
        if (n == 0)
            rc = -ENOSPC;
        if (n < 0 && errno != EINTR)
            rc = -errno;
    }
    free(zeros);
    return rc;
}

static int preallocate(int fd, uint64_t old_bytes, uint64_t size_bytes)
{
    int rc;
    do {
        rc = fallocate(fd, 0, 0, (off_t)size_bytes) < 0 ? -errno : 0;
    } while (rc == -EINTR);
    if (rc == -EOPNOTSUPP || rc == -ENOSYS)
        rc = write_zeros(fd, old_bytes, size_bytes);
    /* A failure may have left a longer file; the caller is promised that nothing is left behind. */
    if (rc < 0 && ftruncate(fd, (off_t)old_bytes) < 0)
        return rc;
    return rc;
}

/* From an open descriptor to a file of the right kind, size and mode of access. */
static int prepare(const struct hst_aio *aio, struct hst_aio_file *file, unsigned flags,
                   uint64_t size_bytes)
{
    struct stat st;
    if (fstat(file->fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    const uint64_t old_bytes = (uint64_t)st.st_size;
    if (file->readonly) {
        if (size_bytes == 0)
            size_bytes = old_bytes;
        if (size_bytes % HST_AIO_ALIGN_BYTES)
            return -EINVAL;
        if (size_bytes > old_bytes)
            return -ENODATA;
    } else {
        const unsigned created = flags & (HST_AIO_CREATE | HST_AIO_SCRATCH);
        /* the umask may have taken bits away; else a sandbox may refuse the call */
        if (created && (st.st_mode & 07777) != 0600 && fchmod(file->fd, 0600) < 0)
            return -errno;
        int rc = size_bytes > 0 ? preallocate(file->fd, old_bytes, size_bytes) : 0;
        if (rc < 0)
            return rc;
    }
    if (fcntl(file->fd, F_SETFL, aio->direct ? O_DIRECT : 0) < 0)
        return -errno;
    file->size_bytes = size_bytes;
    return 0;
}

static int check_request(const struct hst_aio *aio, unsigned flags, uint64_t size_bytes)
{
    const bool readonly = flags & HST_AIO_READONLY;
    if (flags & ~(unsigned)(HST_AIO_SCRATCH | HST_AIO_CREATE | HST_AIO_READONLY))
        return -EINVAL;
    if (flags & (flags - 1))
        return -EINVAL; /* they exclude each other */
    if (size_bytes % HST_AIO_ALIGN_BYTES)
        return -EINVAL;
    /* the probe's, before there is a backend, may be empty */
    if (size_bytes == 0 && !readonly && aio->ops)
        return -EINVAL;
    if (size_bytes > INT64_MAX)
        return -EFBIG;
    if (aio->ops && aio->ops->file_open)
        return 0;
    /* where a sandbox refuses to tell, none is known */
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    if (!readonly && limit.rlim_cur != RLIM_INFINITY && size_bytes > limit.rlim_cur)
        return -EFBIG;
    return 0;
}

/*
 * Excludes other processes, and the ghost of a killed one: its requests hold the file, and with it
 * the lock, until the drive has answered them.
 */
static int lock(struct hst_aio_file *file, uint32_t timeout_ms)
{
    const int kind = file->readonly ? LOCK_SH : LOCK_EX;
    const uint64_t begin_ns = hst_aio_now_ns();
    uint64_t pause_ns = 1000000;
    while (flock(file->fd, kind | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return errno == ENOLCK || errno == EOPNOTSUPP ? -ENOLCK : -errno;
        if (hst_aio_now_ns() - begin_ns >= (uint64_t)timeout_ms * 1000000)
            return -EBUSY;
        nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
        if (pause_ns < 50000000)
            pause_ns *= 2;
    }
    file->locked = true;
    return 0;
}

static int open_on_system(const struct hst_aio *aio, struct hst_aio_file *file, const char *path,
                          unsigned flags, uint64_t size_bytes)
{
    file->fd = flags & HST_AIO_SCRATCH ? open_scratch(path) : open_named(path, flags);
    if (file->fd < 0)
        return file->fd;
    int rc = 0;
    if (!(flags & HST_AIO_SCRATCH))
        rc = lock(file, aio->config.lock_timeout_ms);
    if (rc == 0)
        rc = prepare(aio, file, flags, size_bytes);
    if (rc < 0) {
        if (flags & HST_AIO_CREATE)
            unlink(path);
        close(file->fd);
    }
    return rc;
}

int hst_aio_file_open(struct hst_aio *aio, const char *path, unsigned flags, uint64_t size_bytes,
                      struct hst_aio_file **out)
{
    if (!aio || !path || !out)
        return -EINVAL;
    int rc = check_request(aio, flags, size_bytes);
    if (rc < 0)
        return rc;
    struct hst_aio_file *file = calloc(1, sizeof *file);
    if (!file)
        return -ENOMEM;
    file->aio = aio;
    file->readonly = flags & HST_AIO_READONLY;
    file->owner = getpid();
    if (aio->ops && aio->ops->file_open)
        rc = aio->ops->file_open(aio, file, path, flags, size_bytes);
    else
        rc = open_on_system(aio, file, path, flags, size_bytes);
    if (rc < 0) {
        free(file);
        return rc;
    }
    file->next = aio->files;
    if (file->next)
        file->next->previous = file;
    aio->files = file;
    if (aio->ops && aio->ops->file_added)
        aio->ops->file_added(aio, file);
    *out = file;
    return 0;
}

void hst_aio_file_close(struct hst_aio_file **out)
{
    struct hst_aio_file *file = *out;
    if (!file)
        return;
    assert(file->in_flight == 0);
    struct hst_aio *aio = file->aio;
    const bool mine = file->owner == getpid(); /* a forked child has a descriptor, no more */
    if (aio && mine) {                         /* not closed before */
        if (file->previous)
            file->previous->next = file->next;
        else
            aio->files = file->next;
        if (file->next)
            file->next->previous = file->previous;
        if (aio->ops && aio->ops->file_removed)
            aio->ops->file_removed(aio, file);
        if (aio->ops && aio->ops->file_close)
            aio->ops->file_close(file);
    }
    const bool free_now =
        !file->lost; /* else a late write would meet another one's lock, or file */
    if (file->locked && mine && free_now)
        flock(file->fd, LOCK_UN); /* a ring that goes away later may still hold the file */
    if (file->fd >= 0 && free_now)
        close(file->fd);
    free(file);
    *out = NULL;
}

uint64_t hst_aio_file_size(const struct hst_aio_file *file)
{
    return file->size_bytes;
}
