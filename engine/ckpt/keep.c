/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a copy under a name that nobody opens, syncs it, and renames it: drive 0's directory last,
 * by which it is found. Removes in the other order.
 */
#include "ckpt/keep.h"

#include "base/clock.h"
#include "base/size_text.h"
#include "ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NAME_BYTES  (KEPT_NAME_BYTES + 4)
#define PART_BYTES  (UINT64_C(1) << 20)
#define DIRTY_BYTES (UINT64_C(64) << 20) /* in the page cache at most */

struct keep {
    struct keep_config config;
    pthread_t thread;
    bool begun; /* and not yet joined */
    atomic_bool finished, stop;
    uint64_t instead_of; /* the step of the copy that goes */
    struct keep_done done;
};

/* Of the thread. */
struct copying {
    struct keep *keep;
    struct store_directory directories[STRIPE_DRIVES_MAX];
    struct look look;
    int to[STRIPE_DRIVES_MAX];     /* the copy's files; -1 */
    bool clone[STRIPE_DRIVES_MAX]; /* the file system may share bytes */
    uint64_t dirty_from[STRIPE_DRIVES_MAX], dirty_bytes[STRIPE_DRIVES_MAX];
    unsigned char *part; /* PART_BYTES, where the system copies nothing by itself */
    struct hst_error *error;
};

static bool is_full(int native)
{
    return native == -ENOSPC || native == -EDQUOT;
}

static int refuse(struct copying *c, uint32_t d, int native, const char *what)
{
    const bool full = is_full(native);
    return store_refuse(c->error, full ? HST_E_DISK_SPACE : HST_E_WRITE, native,
                        "%s in %s failed: %s. Fix: %s%s", what, c->directories[d].path,
                        strerror(-native),
                        full ? "free space there, or " : "check the drive (dmesg, smartctl -a)",
                        full ? c->keep->config.fewer : "");
}

/* ---- names ---- */

static void forming_name(uint64_t step, char name[NAME_BYTES])
{
    char whole[KEPT_NAME_BYTES];
    kept_name(step, whole);
    snprintf(name, NAME_BYTES, "%s.new", whole);
}

static bool is_forming(const char *name)
{
    char whole[NAME_BYTES];
    uint64_t step;
    const size_t n = strlen(name);
    if (n < 5 || n >= sizeof whole || strcmp(name + n - 4, ".new") != 0)
        return false;
    snprintf(whole, sizeof whole, "%.*s", (int)(n - 4), name);
    return kept_parse(whole, &step);
}

static bool is_there(const struct store_directory *directory, const char *name)
{
    return faccessat(directory->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A directory of ours with the one file that is in it. */
static void remove_directory(const struct copying *c, uint32_t d, const char *name)
{
    char file[STORE_NAME_BYTES];
    const int fd =
        openat(c->directories[d].fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    store_file_name(0, d, false, file);
    if (fd < 0)
        return;
    (void)unlinkat(fd, file, 0);
    close(fd);
    (void)unlinkat(c->directories[d].fd, name, AT_REMOVEDIR);
}

/* It removes what was not finished; on later drives, what the first does not have. */
static void remove_leftovers(const struct copying *c)
{
    for (uint32_t d = 0; d < c->keep->config.drives; d++) {
        const int fd = openat(c->directories[d].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *names = fd < 0 ? NULL : fdopendir(fd);
        uint64_t step;
        for (const struct dirent *e; names && (e = readdir(names)) != NULL;)
            if (is_forming(e->d_name) ||
                (d > 0 && kept_parse(e->d_name, &step) && !is_there(&c->directories[0], e->d_name)))
                remove_directory(c, d, e->d_name);
        if (names)
            closedir(names);
        else if (fd >= 0)
            close(fd);
    }
}

static void remove_copy(const struct copying *c, uint64_t step)
{
    char name[KEPT_NAME_BYTES], forming[NAME_BYTES];
    kept_name(step, name);
    forming_name(step, forming);
    (void)renameat(c->directories[0].fd, name, c->directories[0].fd, forming);
    (void)fsync(c->directories[0].fd);
    remove_directory(c, 0, forming);
    for (uint32_t d = 1; d < c->keep->config.drives; d++)
        remove_directory(c, d, name);
}

/* The oldest, until so many are left. False: there are no more than that. */
static bool remove_oldest(const struct copying *c, size_t left)
{
    uint64_t steps[1024];
    const size_t count = hst_ckpt_kept(c->directories[0].path, steps, 1024);
    const size_t most = count < 1024 ? count : 1024;
    for (size_t i = 0; i < most && count - i > left; i++)
        remove_copy(c, steps[i]);
    return count > left;
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
        const uint64_t wanted = bytes < PART_BYTES ? bytes : PART_BYTES;
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

static bool has_bytes(const struct store_entry *entry)
{
    return !(entry->flags & (STORE_ZERO | STORE_DERIVED));
}

static int copy_extents(struct copying *c)
{
    for (uint32_t i = 0; i < c->look.headers[0].extents; i++) {
        struct store_entry entry;
        store_entry_get(c->look.manifest, i, &entry);
        if (!has_bytes(&entry))
            continue;
        if (atomic_load(&c->keep->stop))
            return store_refuse(c->error, HST_E_WRITE, -ECANCELED, "the run ended meanwhile");
        const uint64_t offset = look_offset(&c->look, &entry);
        int rc = copy_range(c, entry.drive, offset, entry.bytes);
        rc = rc ? rc : let_go(c, entry.drive, offset, entry.bytes);
        if (rc)
            return refuse(c, entry.drive, rc, "copying");
        c->keep->done.bytes += entry.bytes;
    }
    return 0;
}

/* ---- tables: of a store that was closed in order with this version ---- */

static int write_tables(struct copying *c)
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
    return rc ? refuse(c, 0, rc, "writing a copy's tables") : 0;
}

/* ---- files ---- */

static int make_file(struct copying *c, uint32_t d, const char *forming)
{
    char file[STORE_NAME_BYTES], path[NAME_BYTES + STORE_NAME_BYTES];
    const int at = c->directories[d].fd;
    store_file_name(0, d, false, file);
    snprintf(path, sizeof path, "%s/%s", forming, file);
    if (mkdirat(at, forming, 0700) < 0)
        return refuse(c, d, -errno, "making a copy's directory");
    c->to[d] = openat(at, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (c->to[d] < 0 || ftruncate(c->to[d], (off_t)store_file_bytes(&c->look.headers[d])) < 0)
        return refuse(c, d, -errno, "making a copy's file");
    return 0;
}

/* No bytes are needed where they are shared: the first extent tells. */
static int check_space(struct copying *c)
{
    uint64_t needed[STRIPE_DRIVES_MAX] = {0};
    struct statvfs fs;
    for (uint32_t i = 0; i < c->look.headers[0].extents; i++) {
        struct store_entry entry;
        store_entry_get(c->look.manifest, i, &entry);
        if (!has_bytes(&entry))
            continue;
        const uint64_t offset = look_offset(&c->look, &entry);
        const struct file_clone_range range = {c->look.fds[entry.drive], offset, entry.bytes,
                                               offset};
        if (needed[entry.drive] == 0)
            c->clone[entry.drive] = ioctl(c->to[entry.drive], FICLONERANGE, &range) == 0;
        needed[entry.drive] += entry.bytes;
    }
    for (uint32_t d = 0; d < c->keep->config.drives; d++) {
        if (c->clone[d] || fstatvfs(c->to[d], &fs) < 0)
            continue;
        const uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
        char left[SIZE_TEXT_BYTES], need[SIZE_TEXT_BYTES];
        if (free_bytes < needed[d] + PART_BYTES)
            return store_refuse(c->error, HST_E_DISK_SPACE, -ENOSPC,
                                "%s has %s free, and a copy of the version needs %s there. Fix: "
                                "free space there, or %s",
                                c->directories[d].path, size_text(free_bytes, left),
                                size_text_up(needed[d], need), c->keep->config.fewer);
    }
    return 0;
}

/* From then on it is kept. */
static int publish(struct copying *c, const char *forming, const char *name)
{
    for (uint32_t d = c->keep->config.drives; d-- > 0;) {
        const int at = c->directories[d].fd;
        const int inside = openat(at, forming, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const bool good = fsync(c->to[d]) == 0 && inside >= 0 && fsync(inside) == 0 &&
                          renameat(at, forming, at, name) == 0 && fsync(at) == 0;
        const int native = -errno;
        if (inside >= 0)
            close(inside);
        if (!good)
            return refuse(c, d, native, "finishing a copy");
        (void)posix_fadvise(c->to[d], 0, 0, POSIX_FADV_DONTNEED);
    }
    return 0;
}

/* ---- the whole ---- */

static int open_all(struct copying *c)
{
    const struct keep_config *config = &c->keep->config;
    int rc = 0;
    for (uint32_t d = 0; d < config->drives && rc == 0; d++)
        rc = store_directory_open(config->paths[d], &c->directories[d], c->error);
    rc = rc ? rc : look_open(c->directories, config->drives, 0, false, &c->look, c->error);
    const uint64_t version = rc ? 0 : c->look.newest.cur.version;
    const struct store_candidate last = {.version = version};
    rc = rc ? rc : look_load(&c->look, &last, c->error);
    if (rc == 0 && c->look.ref.step != c->keep->done.step)
        rc = store_refuse(c->error, HST_E_STORE_MIXED, -EINVAL,
                          "the store's last version is of step %llu",
                          (unsigned long long)c->look.ref.step);
    c->part = malloc(PART_BYTES);
    if (rc == 0 && !c->part)
        rc = store_refuse(c->error, HST_E_BUDGET, -ENOMEM, "no memory for a copy");
    return rc;
}

static void close_files(struct copying *c)
{
    for (uint32_t d = 0; d < c->keep->config.drives; d++) {
        if (c->to[d] >= 0)
            close(c->to[d]);
        c->to[d] = -1;
    }
}

static void close_all(struct copying *c)
{
    close_files(c);
    for (uint32_t d = 0; d < c->keep->config.drives; d++)
        store_directory_close(&c->directories[d]);
    look_close(&c->look);
    free(c->part);
}

static int make_files(struct copying *c, const char *forming)
{
    int rc = 0;
    for (uint32_t d = 0; d < c->keep->config.drives && rc == 0; d++)
        rc = make_file(c, d, forming);
    return rc ? rc : check_space(c);
}

/* A second time, where what would go anyway was in the way. */
static int make_files_again(struct copying *c, const char *forming)
{
    close_files(c);
    remove_leftovers(c);
    *c->error = (struct hst_error){0};
    return make_files(c, forming);
}

/* True where there was one that makes room. */
static bool remove_others(const struct copying *c, size_t left)
{
    const struct keep *keep = c->keep;
    char name[KEPT_NAME_BYTES];
    if (keep->config.count > 0)
        return remove_oldest(c, left);
    kept_name(keep->instead_of, name);
    if (keep->instead_of == HST_NO_VERSION || keep->instead_of == keep->done.step ||
        !is_there(&c->directories[0], name))
        return false;
    remove_copy(c, keep->instead_of);
    return true;
}

/* One that is there already is of the run before: the same bytes. */
static int make_copy(struct copying *c)
{
    char name[KEPT_NAME_BYTES], forming[NAME_BYTES];
    const uint32_t count = c->keep->config.count;
    int rc = open_all(c);
    if (rc)
        return rc;
    kept_name(c->keep->done.step, name);
    forming_name(c->keep->done.step, forming);
    remove_leftovers(c);
    if (!is_there(&c->directories[0], name)) {
        rc = make_files(c, forming);
        if (is_full(rc) && remove_others(c, count - 1))
            rc = make_files_again(c, forming);
        rc = rc ? rc : copy_extents(c);
        rc = rc ? rc : write_tables(c);
        rc = rc ? rc : publish(c, forming, name);
    }
    if (rc)
        remove_leftovers(c);
    else
        (void)remove_others(c, count);
    return rc;
}

static void *keep_main(void *context)
{
    struct keep *keep = context;
    struct copying c = {.keep = keep, .error = &keep->done.error};
    const double begin_s = clock_seconds();
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++) {
        c.directories[d].fd = c.to[d] = c.look.fds[d] = -1;
        c.clone[d] = true;
    }
    (void)make_copy(&c);
    close_all(&c);
    keep->done.seconds = clock_seconds() - begin_s;
    atomic_store(&keep->finished, true);
    return NULL;
}

int keep_open(const struct keep_config *config, struct keep **out)
{
    struct keep *keep = calloc(1, sizeof *keep);
    if (!keep)
        return -ENOMEM;
    keep->config = *config;
    *out = keep;
    return 0;
}

int keep_begin(struct keep *keep, uint64_t step, uint64_t instead_of)
{
    keep->instead_of = instead_of;
    keep->done = (struct keep_done){.step = step, .shared = true};
    atomic_store(&keep->finished, false);
    const int rc = -pthread_create(&keep->thread, NULL, keep_main, keep);
    keep->begun = rc == 0;
    if (rc == 0)
        pthread_setname_np(keep->thread, "hst-keep");
    return rc;
}

bool keep_is_copying(const struct keep *keep)
{
    return keep->begun && !atomic_load(&keep->finished);
}

bool keep_ended(struct keep *keep, bool wait, struct keep_done *done)
{
    if (!keep->begun || (!wait && !atomic_load(&keep->finished)))
        return false;
    pthread_join(keep->thread, NULL);
    keep->begun = false;
    *done = keep->done;
    return true;
}

void keep_close(struct keep **keep)
{
    struct keep_done ignored;
    if (!*keep)
        return;
    atomic_store(&(*keep)->stop, true);
    (void)keep_ended(*keep, true, &ignored);
    free(*keep);
    *keep = NULL;
}
