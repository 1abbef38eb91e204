/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories and names of a store: what is ours, what is left from an unfinished creation, and
 * what has to be refused untouched. Nothing is removed that is not known to be ours.
 */
#include "store/files.h"
#include "base/message.h"
#include "store/bytes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int store_refuse(struct hst_error *error, int code, int native, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message_write(error->message, sizeof error->message, format, args);
    va_end(args);
    error->code = code;
    error->native = native;
    return native;
}

int store_draw_id(struct store_id *id, struct hst_error *error)
{
    if (getrandom(id->bytes, sizeof id->bytes, 0) == (ssize_t)sizeof id->bytes)
        return 0;
    return store_refuse(error, HST_E_STORE_DIR, -EIO,
                        "getrandom gives no numbers for the store's ids. Fix: check what the "
                        "sandbox allows");
}

/* ---- names ---- */

void store_file_name(uint32_t rank, uint32_t drive, bool forming, char name[STORE_NAME_BYTES])
{
    snprintf(name, STORE_NAME_BYTES, "r%05u.d%u.blk%s", rank, drive, forming ? ".new" : "");
}

void store_room_name(uint32_t rank, uint32_t drive, char name[STORE_NAME_BYTES])
{
    snprintf(name, STORE_NAME_BYTES, "r%05u.d%u.scratch", rank, drive);
}

static uint64_t bytes_there(const char *directory, const char *name)
{
    char path[PATH_MAX];
    struct stat status;
    int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    bool seen = n > 0 && n < PATH_MAX && lstat(path, &status) == 0 && S_ISREG(status.st_mode);
    return seen ? (uint64_t)status.st_blocks * 512 : 0;
}

uint64_t store_bytes_there(const char *directory, uint32_t rank, uint32_t drive)
{
    char name[STORE_NAME_BYTES];
    store_file_name(rank, drive, false, name);
    return bytes_there(directory, name);
}

uint64_t store_bytes_forming(const char *directory, uint32_t rank, uint32_t drive)
{
    char name[STORE_NAME_BYTES];
    store_file_name(rank, drive, true, name);
    return bytes_there(directory, name);
}

uint64_t store_room_there(const char *directory, uint32_t rank, uint32_t drive)
{
    char name[STORE_NAME_BYTES];
    store_room_name(rank, drive, name);
    return bytes_there(directory, name);
}

bool store_file_astray(const struct store_directory *directories, uint32_t drives, uint32_t rank,
                       uint32_t *directory, uint32_t *drive)
{
    char name[STORE_NAME_BYTES];
    for (*directory = 0; *directory < drives; ++*directory)
        for (*drive = 0; *drive < STRIPE_DRIVES_MAX; ++*drive) {
            store_file_name(rank, *drive, false, name);
            if (*drive != *directory && faccessat(directories[*directory].fd, name, F_OK, 0) == 0)
                return true;
        }
    return false;
}

void store_file_path(const struct store_directory *directory, const char *name,
                     char path[STORE_PATH_BYTES])
{
    snprintf(path, STORE_PATH_BYTES, "/proc/self/fd/%d/%s", directory->fd, name);
}

bool store_name_parse(const char *text, struct store_name *name)
{
    char same[STORE_NAME_BYTES];
    *name = (struct store_name){0};
    if (sscanf(text, "r%5u.d%3u.", &name->rank, &name->drive) != 2)
        return false;
    store_room_name(name->rank, name->drive, same);
    name->room = strcmp(same, text) == 0;
    if (name->room)
        return true;
    for (int forming = 0; forming < 2; forming++) {
        name->forming = forming;
        store_file_name(name->rank, name->drive, name->forming, same);
        if (strcmp(same, text) == 0)
            return true;
    }
    return false;
}

uint32_t store_rank_there(const char *directory)
{
    uint32_t least = UINT32_MAX;
    DIR *names = opendir(directory);
    for (const struct dirent *entry; names && (entry = readdir(names)) != NULL;) {
        struct store_name name;
        if (store_name_parse(entry->d_name, &name) && !name.room && !name.forming &&
            name.rank < least)
            least = name.rank;
    }
    if (names)
        closedir(names);
    return least;
}

/* ---- one file ---- */

static int refuse_file(const struct store_directory *directory, const char *name, int code,
                       int native, const char *what, struct hst_error *error)
{
    return store_refuse(error, code, native, "%s/%s %s", directory->path, name, what);
}

/* It names what is neither a file nor a link; null of these. */
static const char *kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "a directory";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    case S_IFCHR:
    case S_IFBLK:
        return "a device";
    default:
        return NULL;
    }
}

/* Before it is opened: the open of a device may already do something, that of a socket fails.
   -ENOENT says nothing. */
int store_file_check_kind(const struct store_directory *directory, const char *name,
                          struct hst_error *error)
{
    struct stat st;
    if (fstatat(directory->fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? -ENOENT : 0; /* else the open tells */
    const char *kind = kind_of(st.st_mode);
    if (kind)
        return store_refuse(error, HST_E_STORE_ACCESS, -EPERM,
                            "%s/%s is %s, where a store has a file. Fix: remove it, or give the "
                            "directory of a store, or an empty one",
                            directory->path, name, kind);
    if (S_ISLNK(st.st_mode))
        return refuse_file(directory, name, HST_E_STORE_ACCESS, -ELOOP,
                           "is a symbolic link: a store's files are where they are named. Fix: "
                           "put the file itself there",
                           error);
    return 0;
}

/* For reading, and only where it is a file of this user's alone. -ENOENT says nothing. */
int store_file_open_own(const struct store_directory *directory, const char *name, struct stat *st,
                        struct hst_error *error)
{
    int rc = store_file_check_kind(directory, name, error);
    if (rc)
        return rc;
    const int fd =
        openat(directory->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    rc = fd < 0 ? -errno : 0;
    if (rc == -ENOENT)
        return rc;
    if (rc == 0 && fstat(fd, st) < 0)
        rc = -errno;
    if (rc == 0 && S_ISREG(st->st_mode) && st->st_uid == geteuid() && st->st_nlink == 1 &&
        !(st->st_mode & 077))
        return fd;
    if (fd >= 0)
        close(fd);
    if (rc)
        return store_refuse(error, HST_E_READ, rc, "%s/%s cannot be opened: %s. Fix: check it",
                            directory->path, name, strerror(-rc));
    return store_refuse(error, HST_E_STORE_ACCESS, -EPERM,
                        "%s/%s is not a file of its owner's alone (user %u, mode %04o, %u names). "
                        "Fix: chmod 600, as its owner; remove its other names",
                        directory->path, name, (unsigned)st->st_uid, (unsigned)st->st_mode & 07777,
                        (unsigned)st->st_nlink);
}

static int refuse_header(const struct store_directory *directory, const char *name,
                         struct store_flaw flaw, struct hst_error *error)
{
    const char *fix = flaw.error == -ENOTSUP  ? "use the version of hoistway that wrote it"
                      : flaw.error == -ENOENT ? "give the directory of a store, or an empty one"
                                              : "restore the file from a copy";
    return store_refuse(error, HST_E_STORE_FORMAT, flaw.error == -ENOENT ? -EINVAL : flaw.error,
                        "%s/%s cannot be read as a store's file: %s. Fix: %s", directory->path,
                        name, flaw.what, fix);
}

int store_lock_wait(int fd, int kind, uint32_t timeout_ms)
{
    for (uint32_t waited_ms = 0;; waited_ms += 10) {
        if (flock(fd, kind | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (waited_ms >= timeout_ms)
            return -EBUSY;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

bool store_file_wait(const struct store_directory *directory, const char *name, uint32_t timeout_ms)
{
    const int fd =
        openat(directory->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return true;
    const int rc = store_lock_wait(fd, LOCK_SH, timeout_ms);
    close(fd); /* and with it the lock */
    return rc != -EBUSY;
}

int store_file_look(const struct store_directory *directory, const char *name,
                    struct store_header *header, unsigned *bad_copies, struct hst_error *error)
{
    struct stat st = {0};
    struct store_flaw flaws[2];
    struct store_header copies[2];
    unsigned char page[STORE_PAGE_BYTES];
    const int fd = store_file_open_own(directory, name, &st, error);
    if (fd < 0)
        return fd;
    *bad_copies = 0;
    for (unsigned copy = 0; copy < 2; copy++) {
        const off_t at = copy == 0 ? 0 : st.st_size - (off_t)sizeof page;
        flaws[copy] = (struct store_flaw){-EBADMSG, "it is too short, or cannot be read"};
        if (at >= 0 && pread(fd, page, sizeof page, at) == (ssize_t)sizeof page)
            flaws[copy] = store_header_decode(page, copy, &copies[copy]);
        *bad_copies |= flaws[copy].error ? 1u << copy : 0;
    }
    close(fd);
    if (*bad_copies == 3)
        return refuse_header(directory, name, flaws[0], error);
    *header = copies[*bad_copies & 1];
    if ((uint64_t)st.st_size != store_file_bytes(header))
        return store_refuse(error, HST_E_STORE_MIXED, -ENODATA,
                            "%s/%s has %lld bytes, and its header says %llu. Fix: restore the "
                            "file from a copy",
                            directory->path, name, (long long)st.st_size,
                            (unsigned long long)store_file_bytes(header));
    return 0;
}

uint32_t store_tile_elements_there(const char *directory, uint32_t rank)
{
    char name[STORE_NAME_BYTES];
    struct store_directory there = {.fd = -1};
    struct store_header header = {.tile_elements = 0};
    struct hst_error ignored;
    unsigned bad_copies;
    if (store_directory_open(directory, &there, &ignored))
        return 0;
    store_file_name(rank, 0, false, name);
    int rc = store_file_look(&there, name, &header, &bad_copies, &ignored);
    store_directory_close(&there);
    return rc ? 0 : (uint32_t)header.tile_elements;
}

/* ---- the files of a rank ---- */

void store_set_name(const struct store_set *set, uint32_t drive, char name[STORE_NAME_BYTES])
{
    store_file_name(set->number, drive, set->forming, name);
    if (set->forming && faccessat(set->directories[drive].fd, name, F_OK, AT_SYMLINK_NOFOLLOW))
        store_file_name(set->number, drive, false, name);
}

static int refuse_place(const struct store_set *set, uint32_t d, const struct store_header *h,
                        struct hst_error *error)
{
    char name[STORE_NAME_BYTES];
    store_file_name(set->number, d, false, name);
    if (set->world > 0 && h->world != set->world)
        return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                            "%s/%s was written as rank %u of %u, drive %u of %u, and is opened as "
                            "rank %u of %u. Fix: hoistway ckpt reshard %s --world %u --out DIR, "
                            "or as many ranks%s",
                            set->directories[d].path, name, h->rank, h->world, h->drive, h->drives,
                            set->rank, set->world, set->directories[0].path, set->world,
                            h->world == 1 ? ", or --zero-stage 0, whose ranks have such files"
                                          : "");
    return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                        "%s/%s was written as rank %u of %u, drive %u of %u, and is opened as "
                        "rank %u, drive %u of %u. Fix: the same ranks, and all directories in the "
                        "order of their files (d0, d1, ...)",
                        set->directories[d].path, name, h->rank, h->world, h->drive, h->drives,
                        set->rank, d, set->drives);
}

/* No file of this drive in its directory. */
static int refuse_missing(const struct store_set *set, uint32_t d, const char *name,
                          struct hst_error *error)
{
    uint32_t other, drive;
    char astray[STORE_NAME_BYTES];
    int rc = store_unfinished_check(set->directories, set->drives, error);
    if (rc)
        return rc;
    if (store_file_astray(set->directories, set->drives, set->number, &other, &drive)) {
        store_file_name(set->number, drive, false, astray);
        return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                            "%s is named as directory %u of %u, and holds %s, the file of "
                            "directory %u. Fix: name all the store's directories, in the order of "
                            "their files (d0, d1, ...)",
                            set->directories[other].path, other + 1, set->drives, astray,
                            drive + 1);
    }
    if (d == 0)
        return store_refuse(error, HST_E_STORE_EMPTY, -ENOENT,
                            "%s holds no committed version: %s is not there. Fix: none needed to "
                            "start at step 0",
                            set->directories[d].path, name);
    return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                        "%s/%s is missing, and the store has a file for drive 0. Fix: name all "
                        "its directories, in the order of their files (d0, d1, ...)",
                        set->directories[d].path, name);
}

/* A replica says what the file of one rank says, whatever its name. */
static uint32_t rank_wanted(const struct store_set *set, const struct store_header *h)
{
    if (set->world > 0)
        return set->rank;
    return h->world == 1 ? 0 : set->number;
}

static int look(const struct store_set *set, uint32_t d, struct store_header *headers,
                unsigned *bad_copies, struct hst_error *error)
{
    const char *directory = set->directories[d].path;
    const struct store_header *h = &headers[d], *first = &headers[0];
    char name[STORE_NAME_BYTES];
    store_set_name(set, d, name);
    int rc = store_file_look(&set->directories[d], name, &headers[d], bad_copies, error);
    if (rc == -ENOENT)
        return refuse_missing(set, d, name, error);
    if (rc)
        return rc;
    if (!store_id_equal(&h->uuid, &first->uuid))
        return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                            "%s/%s is of another store than the file in %s. Fix: name the "
                            "directories of one store",
                            directory, name, set->directories[0].path);
    if (h->rank != rank_wanted(set, h) || (set->world > 0 && h->world != set->world) ||
        h->drive != d || h->drives != set->drives)
        return refuse_place(set, d, h, error);
    if (h->extents != first->extents || h->blocks != first->blocks || h->world != first->world ||
        h->align_bytes != first->align_bytes || h->tile_elements != first->tile_elements ||
        h->slices != first->slices)
        return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                            "%s/%s contradicts the store's first file. Fix: restore it from a copy",
                            directory, name);
    return 0;
}

int store_files_look(const struct store_set *set, struct store_header *headers,
                     unsigned *bad_copies, struct hst_error *error)
{
    int rc = 0;
    for (uint32_t d = 0; d < set->drives && rc == 0; d++)
        rc = look(set, d, headers, &bad_copies[d], error);
    return rc;
}

/* ---- creation ---- */

static int publish_one(const struct store_directory *directory, uint32_t rank, uint32_t drive,
                       struct hst_error *error)
{
    char forming[STORE_NAME_BYTES], published[STORE_NAME_BYTES];
    store_file_name(rank, drive, true, forming);
    store_file_name(rank, drive, false, published);
    /* the directory may be as new as its files; where it is not ours to open, it is not */
    const int parent = openat(directory->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent >= 0) {
        (void)fsync(parent);
        close(parent);
    }
    /* it may have been named before a kill, and others not */
    if (renameat(directory->fd, forming, directory->fd, published) < 0 &&
        (errno != ENOENT || faccessat(directory->fd, published, F_OK, 0) < 0))
        return store_refuse(error, HST_E_STORE_DIR, -errno,
                            "%s/%s cannot be named %s: %s. Fix: give another directory",
                            directory->path, forming, published, strerror(errno));
    return store_directory_sync(directory, error);
}

int store_files_publish(const struct store_directory *directories, uint32_t drives, uint32_t rank,
                        bool replaces, struct hst_error *error)
{
    int rc = 0;
    for (uint32_t i = 0; i < drives && rc == 0; i++) {
        const uint32_t d = replaces ? i : drives - 1 - i;
        rc = publish_one(&directories[d], rank, d, error);
    }
    return rc;
}

void store_files_remove(const struct store_directory *directories, uint32_t drives, uint32_t rank,
                        bool replaces)
{
    char name[STORE_NAME_BYTES];
    store_file_name(rank, 0, true, name);
    if (faccessat(directories[0].fd, name, F_OK, 0) < 0)
        return; /* it has its name, and with it they all are a store */
    for (uint32_t d = drives; d-- > 0;) {
        store_room_name(rank, d, name);
        if (!replaces)
            (void)unlinkat(directories[d].fd, name, 0);
        store_file_name(rank, d, false, name);
        if (d > 0 && !replaces)
            (void)unlinkat(directories[d].fd, name, 0);
        store_file_name(rank, d, true, name);
        (void)unlinkat(directories[d].fd, name, 0);
    }
}
