/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file finds out what works in a directory by doing it: feature flags and version numbers lie
 * (sandboxes, stacked file systems, network mounts), a write that can be read back does not.
 * Transfers go through the public calls, so the probe also exercises cutting and reaping.
 */
#include "internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static const uint32_t transfer_bytes[] = {4 << 10, 1 << 20, 4 << 20};
enum { TRANSFERS = sizeof transfer_bytes / sizeof *transfer_bytes };

/*
 * struct statx of the kernel since Linux 6.1, which older C libraries lack: what O_DIRECT needs.
 * Everything before it is looked at by nobody here.
 */
struct statx_direct {
    uint32_t mask;
    uint32_t before[37];
    uint32_t memory_align_bytes, offset_align_bytes;
    uint64_t after[12];
};
enum { STATX_DIRECT = 0x2000 };
static_assert(offsetof(struct statx_direct, memory_align_bytes) == 0x98, "as in linux/stat.h");
static_assert(sizeof(struct statx_direct) == 256, "as in linux/stat.h");

/*
 * O_DIRECT is not tried where the kernel says what it needs, and that is more than operations have:
 * some file systems take what is misaligned, through the page cache, and say nothing.
 */
static int check_alignment(int fd, struct hst_aio_info *info)
{
    struct statx_direct st = {0};
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIRECT, &st) < 0 ||
        !(st.mask & STATX_DIRECT))
        return 0; /* not known */
    info->direct_memory_align_bytes = st.memory_align_bytes;
    info->direct_offset_align_bytes = st.offset_align_bytes;
    if (st.memory_align_bytes > HST_AIO_ALIGN_BYTES || st.offset_align_bytes > HST_AIO_ALIGN_BYTES)
        return -EINVAL;
    return 0;
}

/* One block through O_DIRECT; in an empty file, for which there is no room, a read alone. Returns 0
 * or the error of the step that failed. */
static int try_direct(int fd, bool empty, void *block)
{
    int rc = 0;
    if (fcntl(fd, F_SETFL, O_DIRECT) < 0 ||
        (!empty && pwrite(fd, block, HST_AIO_ALIGN_BYTES, 0) < 0) ||
        pread(fd, block, HST_AIO_ALIGN_BYTES, 0) < 0)
        rc = -errno;
    return rc;
}

/* It tries what memory for I/O needs, before anything is blamed on the drive. */
static int try_memory(struct hst_aio_info *info, void **block)
{
    const int rc = hst_aio_buffer_alloc(HST_AIO_ALIGN_BYTES, block);
    if (rc == -EPERM || rc == -ENOSYS || rc == -EACCES)
        info->refused_call = "madvise";
    return rc;
}

static int open_and_try(struct hst_aio *aio, const char *directory, struct hst_aio_info *info,
                        void *block, struct hst_aio_file **out)
{
    struct hst_aio_file *file;
    int rc = hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, HST_AIO_PROBE_BYTES, &file);
    const bool full = (rc == -ENOSPC || rc == -EDQUOT) && aio->config.may_be_full;
    if (full)
        rc = hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, 0, &file);
    if (rc < 0)
        return rc;
    rc = aio->config.avoid & HST_AIO_AVOID_DIRECT ? -EOPNOTSUPP : check_alignment(file->fd, info);
    if (rc == 0)
        rc = try_direct(file->fd, full, block);
    info->direct_error = rc;
    info->direct = aio->direct = rc == 0;
    if (rc == -EINVAL || rc == -EOPNOTSUPP) /* no O_DIRECT here, or of larger blocks: buffered */
        rc = fcntl(file->fd, F_SETFL, 0) < 0 ? -errno : 0;
    if (rc < 0) {
        hst_aio_file_close(&file);
        return rc;
    }
    *out = file;
    return 0;
}

int hst_aio_probe_open(struct hst_aio *aio, const char *directory, struct hst_aio_info *info,
                       struct hst_aio_file **out)
{
    struct statfs fs;
    void *block;
    if (statfs(directory, &fs) < 0)
        return -errno;
    info->in_memory = fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
    int rc = try_memory(info, &block);
    if (rc < 0)
        return rc;
    rc = open_and_try(aio, directory, info, block, out);
    hst_aio_buffer_free(block, HST_AIO_ALIGN_BYTES);
    return rc;
}

static int run_one(struct hst_aio *aio, const struct hst_aio_op *op)
{
    struct hst_aio_completion completion;
    int rc = hst_aio_submit(aio, op, 1);
    if (rc < 0)
        return rc;
    rc = hst_aio_reap(aio, &completion, 1, 1, UINT64_MAX);
    return rc < 0 ? rc : completion.error;
}

static int run_all(struct hst_aio *aio, struct hst_aio_file *file, enum hst_aio_kind kind,
                   char *buffer)
{
    uint64_t offset = 0;
    int rc = 0;
    for (int i = 0; i < TRANSFERS && rc == 0; i++) {
        rc = run_one(aio, &(struct hst_aio_op){.kind = kind,
                                               .file = file,
                                               .offset = offset,
                                               .buffer = buffer + offset,
                                               .bytes = transfer_bytes[i]});
        offset += transfer_bytes[i];
    }
    return rc;
}

/*
 * Words that differ by place and by backend: one backend cannot pass with what another one wrote.
 */
static void fill(uint64_t *words, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t z = (seed << 32 | i) * 0x9e3779b97f4a7c15u;
        words[i] = z ^ z >> 29;
    }
}

static int sync_one(struct hst_aio *aio, struct hst_aio_file *file, const char **step)
{
    *step = "fdatasync";
    return run_one(aio, &(struct hst_aio_op){.kind = HST_AIO_SYNC, .file = file});
}

int hst_aio_probe_backend(struct hst_aio *aio, struct hst_aio_file *file, const char **step)
{
    void *written, *read;
    if (file->size_bytes == 0)
        return sync_one(aio, file, step);
    *step = "memory";
    int rc = hst_aio_buffer_alloc(HST_AIO_PROBE_BYTES, &written);
    if (rc < 0)
        return rc;
    rc = hst_aio_buffer_alloc(HST_AIO_PROBE_BYTES, &read);
    if (rc < 0)
        goto err_written;
    fill(written, HST_AIO_PROBE_BYTES / sizeof(uint64_t), aio->ops->id);

    *step = "write";
    rc = run_all(aio, file, HST_AIO_WRITE, written);
    if (rc < 0)
        goto out;
    rc = sync_one(aio, file, step);
    if (rc < 0)
        goto out;
    *step = "read";
    rc = run_all(aio, file, HST_AIO_READ, read);
    if (rc < 0)
        goto out;
    *step = "compare";
    size_t total_bytes = 0;
    for (int i = 0; i < TRANSFERS; i++)
        total_bytes += transfer_bytes[i];
    if (memcmp(written, read, total_bytes) != 0)
        rc = -EIO;
out:
    if (aio->broken)
        return rc; /* late requests may yet use the memory: it is left to them */
    hst_aio_buffer_free(read, HST_AIO_PROBE_BYTES);
err_written:
    hst_aio_buffer_free(written, HST_AIO_PROBE_BYTES);
    return rc;
}
