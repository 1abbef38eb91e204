/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a version and its tables, from a store's files into those of a copy. */
#include "ckpt/keep_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DIRTY_BYTES (UINT64_C(64) << 20) /* in the page cache at most */

static bool is_full(int native)
{
    return native == -ENOSPC || native == -EDQUOT;
}

int keep_refuse(struct copying *c, uint32_t d, int native, const char *what)
{
    const bool full = is_full(native);
    return store_refuse(c->error, full ? HST_E_DISK_SPACE : HST_E_WRITE, native,
                        "%s in %s failed: %s. Fix: %s%s", what, c->directories[d].path,
                        strerror(-native),
                        full ? "free space there, or " : "check the drive (dmesg, smartctl -a)",
                        full ? c->keep->config.fewer : "");
}

/* ---- bytes ---- */

static int write_all(int fd, const void *bytes, uint64_t count, uint64_t offset)
{
    for (const char *at = bytes; count > 0;) {
        const ssize_t n = pwrite(fd, at, count, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += n;
        offset += (uint64_t)n;
        count -= (uint64_t)n;
    }
    return 0;
}

static int copy_by_hand(struct copying *c, int from, int to, uint64_t offset, uint64_t bytes)
{
    while (bytes > 0) {
        const uint64_t wanted = bytes < KEEP_PART_BYTES ? bytes : KEEP_PART_BYTES;
        const ssize_t got = pread(from, c->part, wanted, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -ENODATA;
        const int rc = write_all(to, c->part, (uint64_t)got, offset);
        if (rc)
            return rc;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return 0;
}

/* The kernel's copy where there is one: no byte passes through this process. */
static int copy_range(struct copying *c, uint32_t d, uint64_t offset, uint64_t bytes)
{
    const int from = c->look.fds[d], to = c->to[d];
    const struct file_clone_range range = {from, offset, bytes, offset};
    if (c->clone[d] && ioctl(to, FICLONERANGE, &range) == 0)
        return 0;
    c->clone[d] = false;
    c->keep->done.shared = false;
    for (off_t in = (off_t)offset, out = in; bytes > 0;) {
        const ssize_t n = copy_file_range(from, &in, to, &out, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EXDEV || errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS))
            return copy_by_hand(c, from, to, (uint64_t)in, bytes);
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        bytes -= (uint64_t)n;
    }
    return 0;
}

/* The run's memory is planned: pages of a copy are not to crowd it. A sync that failed is not told
   a second time: its error ends the copy. */
static int let_go(struct copying *c, uint32_t d, uint64_t offset, uint64_t bytes)
{
    if (c->clone[d])
        return 0;
    if (c->dirty_bytes[d] == 0)
        c->dirty_from[d] = offset;
    c->dirty_bytes[d] += bytes;
    if (c->dirty_bytes[d] < DIRTY_BYTES)
        return 0;
    const off_t from = (off_t)c->dirty_from[d], end = (off_t)(offset + bytes);
    if (fdatasync(c->to[d]) < 0)
        return -errno;
    (void)posix_fadvise(c->to[d], from, end - from, POSIX_FADV_DONTNEED);
    (void)posix_fadvise(c->look.fds[d], from, end - from, POSIX_FADV_DONTNEED);
    c->dirty_bytes[d] = 0;
    return 0;
}

bool keep_has_bytes(const struct store_entry *entry)
{
    return !(entry->flags & (STORE_ZERO | STORE_DERIVED));
}

int keep_copy_extents(struct copying *c)
{
    for (uint32_t i = 0; i < c->look.headers[0].extents; i++) {
        struct store_entry entry;
        store_entry_get(c->look.manifest, i, &entry);
        if (!keep_has_bytes(&entry))
            continue;
        if (atomic_load(&c->keep->stop))
            return store_refuse(c->error, HST_E_WRITE, -ECANCELED, "the run ended meanwhile");
        const uint64_t offset = look_offset(&c->look, &entry);
        int rc = copy_range(c, entry.drive, offset, entry.bytes);
        rc = rc ? rc : let_go(c, entry.drive, offset, entry.bytes);
        if (rc)
            return keep_refuse(c, entry.drive, rc, "copying");
        c->keep->done.bytes += entry.bytes;
    }
    return 0;
}

/* ---- tables: of a store that was closed in order with this version ---- */

int keep_write_tables(struct copying *c)
{
    const struct store_header *h = &c->look.headers[0];
    const struct store_superblock superblock = {
        .uuid = h->uuid,
        .rank = h->rank,
        .world = h->world,
        .seq = 0,
        .incarnation = c->look.about.incarnation,
        .state = STORE_CLEAN,
        .cur = c->look.ref,
        .prev = {.version = STORE_NO_VERSION},
        .written_bytes = c->look.newest.written_bytes,
    };
    unsigned char page[STORE_PAGE_BYTES];
    uint32_t d = 0;
    int rc = 0;
    for (unsigned copy = 0; copy < 2 && rc == 0; copy++) {
        for (d = 0; d < c->keep->config.drives && rc == 0; d++) {
            const struct store_header *of = &c->look.headers[d];
            store_header_encode(of, copy, page);
            rc = write_all(c->to[d], page, sizeof page, store_header_at(of, copy));
        }
        store_superblock_encode(&superblock, copy, page);
        rc = rc ? rc : write_all(c->to[0], page, sizeof page, store_superblock_at(h, 0, copy));
        rc = rc ? rc
                : write_all(c->to[0], c->look.manifest, c->look.ref.bytes,
                            store_manifest_at(h, c->look.ref.slot, copy));
    }
    return rc ? keep_refuse(c, 0, rc, "writing a copy's tables") : 0;
}
