/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories and names of a store: what is ours, what is left from an unfinished creation, and
 * what has to be refused untouched. Nothing is removed that is not known to be ours.
 */
#include "store/files.h"
#include "store/bytes.h"
#include "store/message.h"

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

struct name {
    uint32_t rank, drive;
    bool forming, room;
};

/* Names that store_file_name and store_room_name make, and no others. */
static bool name_parse(const char *text, struct name *name)
{
    char same[STORE_NAME_BYTES];
    *name = (struct name){0};
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

/* ---- one file ---- */

static int refuse_file(const struct store_directory *directory, const char *name, int code,
                       int native, const char *what, struct hst_error *error)
{
    return store_refuse(error, code, native, "%s/%s %s", directory->path, name, what);
}

/* What is neither a file nor a link; null of these. */
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
static int check_kind(const struct store_directory *directory, const char *name,
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
    int rc = check_kind(directory, name, error);
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
        return store_refuse(error, HST_E_READ, rc, "%s/%s can not be opened: %s. Fix: check it",
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
                        "%s/%s can not be read as a store's file: %s. Fix: %s", directory->path,
                        name, flaw.what, fix);
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
        flaws[copy] = (struct store_flaw){-EBADMSG, "it is too short, or can not be read"};
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
    struct store_header header;
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

static int refuse_place(const struct store_set *set, uint32_t d, const struct store_header *h,
                        struct hst_error *error)
{
    char name[STORE_NAME_BYTES];
    store_file_name(set->rank, d, false, name);
    if (set->world > 0 && h->world != set->world)
        return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                            "%s/%s was written as rank %u of %u, drive %u of %u, and is opened as "
                            "rank %u of %u. Fix: hoistway ckpt reshard %s --world %u --out DIR, "
                            "or as many ranks",
                            set->directories[d].path, name, h->rank, h->world, h->drive, h->drives,
                            set->rank, set->world, set->directories[0].path, set->world);
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
    if (store_file_astray(set->directories, set->drives, set->rank, &other, &drive)) {
        store_file_name(set->rank, drive, false, astray);
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

static int look(const struct store_set *set, uint32_t d, struct store_header *headers,
                unsigned *bad_copies, struct hst_error *error)
{
    const char *directory = set->directories[d].path;
    const struct store_header *h = &headers[d], *first = &headers[0];
    char name[STORE_NAME_BYTES];
    store_file_name(set->rank, d, false, name);
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
    if (h->rank != set->rank || (set->world > 0 && h->world != set->world) || h->drive != d ||
        h->drives != set->drives)
        return refuse_place(set, d, h, error);
    if (h->extents != first->extents || h->blocks != first->blocks || h->world != first->world ||
        h->align_bytes != first->align_bytes || h->tile_elements != first->tile_elements)
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

/* The dead writer's requests may still be on their way: they hold its lock. */
static int wait_lock(int fd, uint32_t timeout_ms)
{
    for (uint32_t waited_ms = 0;; waited_ms += 10) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (waited_ms >= timeout_ms)
            return -EBUSY;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

/* A look at what is there, then the removal: where anything is refused, all is left. Rooms are
   looked at when no store was found: that of a run which goes on would be waited for. */
struct clearing {
    const struct store_directory *directories;
    uint32_t rank, lock_timeout_ms;
    bool rooms, remove;
    struct hst_error *error;
};

static bool same_store(const struct store_directory *directories, const struct name *name)
{
    char forming[STORE_NAME_BYTES], published[STORE_NAME_BYTES];
    struct store_header first, other;
    struct hst_error ignored;
    unsigned bad_copies;
    store_file_name(name->rank, 0, true, forming);
    store_file_name(name->rank, name->drive, false, published);
    return store_file_look(&directories[0], forming, &first, &bad_copies, &ignored) == 0 &&
           store_file_look(&directories[name->drive], published, &other, &bad_copies, &ignored) ==
               0 &&
           store_id_equal(&first.uuid, &other.uuid);
}

/* A file under its final name is left over where the first one of the same store is not: it had
   got its name, and the first one never did. Room is left over where the first one is not. */
static bool is_leftover(const struct store_directory *directories, uint32_t drive,
                        const struct name *name)
{
    char first[STORE_NAME_BYTES];
    store_file_name(name->rank, 0, false, first);
    if (name->room)
        return faccessat(directories[0].fd, first, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
    return name->forming || (drive > 0 && name->drive == drive && same_store(directories, name));
}

static int refuse_committed(const struct store_directory *directory, const char *name,
                            struct hst_error *error)
{
    return refuse_file(directory, name, HST_E_STORE_TAKEN, -EEXIST,
                       "holds a committed version. Fix: --resume goes on from it, with the "
                       "directories in the order of their files (d0, d1, ...); or give another "
                       "--store",
                       error);
}

/* Its bytes begin with our magic, or nothing of it was ever on the drive. While its lock was waited
   for its writer may have gone on and committed, so what it is is looked at again. */
static int clear_leftover(const struct clearing *c, uint32_t drive, const char *text)
{
    const struct store_directory *directory = &c->directories[drive];
    struct hst_error *error = c->error;
    struct name name;
    struct stat st = {0}, now = {0};
    unsigned char page[STORE_PAGE_BYTES] = {0};
    const int fd = store_file_open_own(directory, text, &st, error);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int rc = wait_lock(fd, c->lock_timeout_ms);
    if (rc)
        rc = refuse_file(directory, text, HST_E_STORE_BUSY, rc,
                         "is in use by another process. Fix: wait for that run to end, or give "
                         "another --store",
                         error);
    else if (fstatat(directory->fd, text, &now, AT_SYMLINK_NOFOLLOW) < 0 ||
             now.st_ino != st.st_ino || now.st_dev != st.st_dev || !name_parse(text, &name) ||
             !is_leftover(c->directories, drive, &name))
        rc = refuse_committed(directory, text, error);
    else if (pread(fd, page, sizeof page, 0) < 0 ||
             (!is_zero(page, sizeof page) &&
              page_check(page, name.room ? &PAGE_ROOM : &PAGE_HEADER).error == -ENOENT))
        rc = refuse_file(directory, text, HST_E_STORE_TAKEN, -EEXIST,
                         "has the name of a store's file and is none. Fix: move it away, or give "
                         "another directory",
                         error);
    else if (c->remove && unlinkat(directory->fd, text, 0) < 0)
        rc = store_refuse(error, HST_E_STORE_DIR, -errno,
                          "%s/%s can not be removed: %s. Fix: give another directory",
                          directory->path, text, strerror(errno));
    close(fd);
    return rc;
}

static int refuse_stranger(const struct store_directory *directory, const char *name,
                           struct hst_error *error)
{
    return refuse_file(directory, name, HST_E_STORE_TAKEN, -EEXIST,
                       "is not a store's: a store has its directory to itself. Fix: give an "
                       "empty directory, or one that does not exist",
                       error);
}

static int clear_name(const struct clearing *c, uint32_t drive, const char *text)
{
    const struct store_directory *directory = &c->directories[drive];
    struct name name;
    if (store_name_is_nothing(text) || strcmp(text, STORE_UNFINISHED) == 0)
        return 0;
    if (!name_parse(text, &name))
        return refuse_stranger(directory, text, c->error);
    if (name.rank != c->rank || (name.room && !c->rooms))
        return 0;
    if (!is_leftover(c->directories, drive, &name))
        return refuse_committed(directory, text, c->error);
    return clear_leftover(c, drive, text);
}

static int clear_directory(const struct clearing *c, uint32_t drive)
{
    DIR *names = store_directory_list(&c->directories[drive], c->error);
    int rc = 0;
    if (!names)
        return c->error->native;
    for (const struct dirent *entry; rc == 0 && (entry = readdir(names)) != NULL;)
        rc = clear_name(c, drive, entry->d_name);
    closedir(names);
    return rc;
}

/* Refuses the first name that is not ours, or is ours and no file. *committed: one is final. */
static int check_names(const struct store_directory *directory, bool strangers, bool *committed,
                       struct hst_error *error)
{
    struct name name;
    DIR *names = store_directory_list(directory, error);
    int rc = 0;
    if (!names)
        return error->native;
    for (const struct dirent *entry; rc == 0 && (entry = readdir(names)) != NULL;) {
        const bool ours = name_parse(entry->d_name, &name);
        *committed = *committed || (ours && !name.forming && !name.room);
        if (ours && !strangers) {
            rc = check_kind(directory, entry->d_name, error);
            rc = rc == -ENOENT ? 0 : rc; /* it has gone meanwhile */
        }
        if (strangers && !ours && !store_name_is_nothing(entry->d_name) &&
            strcmp(entry->d_name, STORE_UNFINISHED) != 0)
            rc = refuse_stranger(directory, entry->d_name, error);
    }
    closedir(names);
    return rc;
}

int store_directory_check(const struct store_directory *directory, struct hst_error *error)
{
    bool committed = false;
    int rc = check_names(directory, false, &committed, error);
    return rc || committed ? rc : check_names(directory, true, &committed, error);
}

int store_directories_clear(const struct store_directory *directories, uint32_t drives,
                            uint32_t rank, uint32_t lock_timeout_ms, struct hst_error *error)
{
    struct clearing c = {directories, rank, lock_timeout_ms, false, false, error};
    int rc = 0;
    for (int pass = 0; pass < 3; pass++) {
        c.rooms = pass > 0;
        c.remove = pass == 2;
        for (uint32_t d = drives; d-- > 0 && rc == 0;) /* drive 0's tells what the others are */
            rc = clear_directory(&c, d);
    }
    return rc;
}

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
    if (renameat(directory->fd, forming, directory->fd, published) < 0)
        return store_refuse(error, HST_E_STORE_DIR, -errno,
                            "%s/%s can not be named %s: %s. Fix: give another directory",
                            directory->path, forming, published, strerror(errno));
    return store_directory_sync(directory, error);
}

int store_files_publish(const struct store_directory *directories, uint32_t drives, uint32_t rank,
                        struct hst_error *error)
{
    int rc = 0;
    for (uint32_t d = drives; d-- > 0 && rc == 0;)
        rc = publish_one(&directories[d], rank, d, error);
    return rc;
}

void store_files_remove(const struct store_directory *directories, uint32_t drives, uint32_t rank)
{
    char name[STORE_NAME_BYTES];
    store_file_name(rank, 0, true, name);
    if (faccessat(directories[0].fd, name, F_OK, 0) < 0)
        return; /* it has its name, and with it they all are a store */
    for (uint32_t d = drives; d-- > 0;) {
        store_room_name(rank, d, name);
        (void)unlinkat(directories[d].fd, name, 0);
        store_file_name(rank, d, false, name);
        if (d > 0)
            (void)unlinkat(directories[d].fd, name, 0);
        store_file_name(rank, d, true, name);
        (void)unlinkat(directories[d].fd, name, 0);
    }
}
