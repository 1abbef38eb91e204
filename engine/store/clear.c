/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file tells what a run finds in its store's directories: a store to go on from, what an
 * unfinished creation left, or what has to be refused untouched. Nothing is removed that is not
 * known to be ours.
 */
#include "store/bytes.h"
#include "store/files.h"
#include "store/kept_name.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse_name(const struct store_directory *directory, const char *name, int code,
                       int native, const char *what, struct hst_error *error)
{
    return store_refuse(error, code, native, "%s/%s %s", directory->path, name, what);
}

/* A look at what is there, then the removal: where anything is refused, all is left. Rooms are
   looked at when no store was found: that of a run which goes on would be waited for. */
struct clearing {
    const struct store_directory *directories;
    uint32_t rank;
    const struct store_config *config; /* null: what is in use is left to who waits for it */
    bool rooms, remove;
    bool copies; /* are left where they are: those of a store that goes on */
    struct hst_error *error;
};

static bool same_store(const struct store_directory *directories, const struct store_name *name)
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
                        const struct store_name *name)
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
    return refuse_name(directory, name, HST_E_STORE_TAKEN, -EEXIST,
                       "holds a committed version. Fix: --resume goes on from it, with the "
                       "directories in the order of their files (d0, d1, ...); or give another "
                       "--store",
                       error);
}

/* The dead writer's requests may still be on their way: they hold its lock. */
static int wait_lock(const struct clearing *c, const struct store_directory *directory,
                     const char *name, int fd)
{
    const struct store_config *config = c->config;
    const uint32_t ms = config->lock_timeout_ms ? config->lock_timeout_ms : STORE_LOCK_TIMEOUT_MS;
    const uint32_t quiet_ms = ms < STORE_QUIET_MS ? ms : STORE_QUIET_MS;
    int rc = store_lock_wait(fd, LOCK_EX, quiet_ms);
    if (rc != -EBUSY || ms == quiet_ms)
        return rc;
    if (config->waits)
        config->waits(config->waits_context, directory->path, name, (ms - quiet_ms) / 1000);
    return store_lock_wait(fd, LOCK_EX, ms - quiet_ms);
}

/* Its bytes begin with our magic, or nothing of it was ever on the drive. While its lock was waited
   for its writer may have gone on and committed, so what it is is looked at again. */
static int clear_leftover(const struct clearing *c, uint32_t drive, const char *text)
{
    const struct store_directory *directory = &c->directories[drive];
    struct hst_error *error = c->error;
    struct store_name name;
    struct stat st = {0}, now = {0};
    unsigned char page[STORE_PAGE_BYTES] = {0};
    const int fd = store_file_open_own(directory, text, &st, error);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int rc = c->config ? wait_lock(c, directory, text, fd) : 0;
    if (rc)
        rc = refuse_name(directory, text, HST_E_STORE_BUSY, rc,
                         "is in use by another process. Fix: wait for that run to end, or give "
                         "another --store",
                         error);
    else if (fstatat(directory->fd, text, &now, AT_SYMLINK_NOFOLLOW) < 0 ||
             now.st_ino != st.st_ino || now.st_dev != st.st_dev || !store_name_parse(text, &name) ||
             !is_leftover(c->directories, drive, &name))
        rc = refuse_committed(directory, text, error);
    else if (pread(fd, page, sizeof page, 0) < 0 ||
             (!is_zero(page, sizeof page) &&
              page_check(page, name.room ? &PAGE_ROOM : &PAGE_HEADER).error == -ENOENT))
        rc = refuse_name(directory, text, HST_E_STORE_TAKEN, -EEXIST,
                         "has the name of a store's file and is none. Fix: move it away, or give "
                         "another directory",
                         error);
    else if (c->remove && unlinkat(directory->fd, text, 0) < 0)
        rc = store_refuse(error, HST_E_STORE_DIR, -errno,
                          "%s/%s cannot be removed: %s. Fix: give another directory",
                          directory->path, text, strerror(errno));
    close(fd);
    return rc;
}

static int refuse_copy(const struct store_directory *directory, const char *name,
                       struct hst_error *error)
{
    return refuse_name(directory, name, HST_E_STORE_TAKEN, -EEXIST,
                       "is a kept copy of a version, and no file of its store is here. Fix: bring "
                       "that store's files back; or give another --store",
                       error);
}

static int refuse_stranger(const struct store_directory *directory, const char *name,
                           struct hst_error *error)
{
    return refuse_name(directory, name, HST_E_STORE_TAKEN, -EEXIST,
                       "is not a store's: a store has its directory to itself. Fix: give an "
                       "empty directory, or one that does not exist",
                       error);
}

static int clear_name(const struct clearing *c, uint32_t drive, const char *text)
{
    const struct store_directory *directory = &c->directories[drive];
    struct store_name name;
    uint64_t step;
    if (store_name_is_nothing(text) || strcmp(text, STORE_UNFINISHED) == 0)
        return 0;
    if (kept_parse(text, &step) || kept_is_forming(text))
        return c->copies ? 0 : refuse_copy(directory, text, c->error);
    if (!store_name_parse(text, &name))
        return c->config && c->config->replaces ? 0 : refuse_stranger(directory, text, c->error);
    if (name.rank != c->rank || (name.room && !c->rooms))
        return 0;
    if (!is_leftover(c->directories, drive, &name))
        return c->config && c->config->replaces ? 0 : refuse_committed(directory, text, c->error);
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

/* ---- what is said before anything is made ---- */

/* A name in a directory says this of a store there. */
struct told {
    bool own;    /* its file is final, of this rank, and no leftover; or a replica of all */
    bool others; /* it is of another rank */
};

/* Before it is known what the directory holds. */
static int check_name(const struct clearing *c, uint32_t drive, const char *text, struct told *told)
{
    const struct store_directory *directory = &c->directories[drive];
    struct hst_error ignored = {0};
    struct store_name name;
    struct store_header header;
    unsigned bad_copies;
    *told = (struct told){.own = false};
    if (!store_name_parse(text, &name))
        return 0;
    const bool final = !name.forming && !name.room, own = final && name.rank == c->rank;
    int rc = own ? store_file_look(directory, text, &header, &bad_copies, c->error)
                 : store_file_check_kind(directory, text, c->error);
    told->own = rc == 0 && own && !is_leftover(c->directories, drive, &name);
    told->others = rc == 0 && final && !own &&
                   store_file_look(directory, text, &header, &bad_copies, &ignored) == 0;
    told->own = told->own || (told->others && header.world == 1);
    return rc == -ENOENT ? 0 : rc; /* it has gone meanwhile */
}

/* One directory's names. Where a store is found and a run would begin, that is refused. */
static int check_directory(const struct clearing *c, uint32_t drive, bool begins, struct told *all)
{
    const struct store_directory *directory = &c->directories[drive];
    DIR *names = store_directory_list(directory, c->error);
    int rc = names ? 0 : c->error->native;
    for (const struct dirent *entry; names && rc == 0 && (entry = readdir(names)) != NULL;) {
        struct told told;
        rc = check_name(c, drive, entry->d_name, &told);
        all->own = all->own || told.own;
        all->others = all->others || told.others;
        if (told.own && begins)
            rc = refuse_committed(directory, entry->d_name, c->error);
    }
    if (names)
        closedir(names);
    return rc;
}

int store_directories_check(const struct store_directory *directories, uint32_t drives,
                            uint32_t rank, enum store_expected expected, struct hst_error *error)
{
    struct clearing c = {directories, rank, NULL, true, false, expected == STORE_GOES_ON, error};
    const bool begins = expected == STORE_BEGINS;
    struct told all = {.own = false};
    int rc = 0;
    for (uint32_t d = 0; d < drives && rc == 0; d++)
        if (directories[d].fd >= 0)
            rc = check_directory(&c, d, begins, &all);
    if (rc || all.own)
        return rc;
    rc = store_unfinished_check(directories, drives, error);
    if (all.others && !begins) /* other files may lie beside those of a store */
        return rc;
    for (uint32_t d = drives; d-- > 0 && rc == 0;)
        if (directories[d].fd >= 0)
            rc = clear_directory(&c, d);
    return rc;
}

/* ---- creation ---- */

int store_directories_clear(const struct store_directory *directories, uint32_t drives,
                            uint32_t rank, const struct store_config *config,
                            struct hst_error *error)
{
    struct clearing c = {directories, rank, config, false, false, config->replaces, error};
    int rc = 0;
    for (int pass = 0; pass < 3; pass++) {
        c.rooms = pass > 0;
        c.remove = pass == 2;
        for (uint32_t d = drives; d-- > 0 && rc == 0;) /* drive 0's tells what the others are */
            rc = clear_directory(&c, d);
    }
    return rc;
}
