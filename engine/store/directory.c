/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which directory is a store's: one of this user's alone, and under its own name. One that is empty
 * is made so. What others could change or have put there is refused untouched.
 */
#include "store/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Behind a slash, or "/.", the system follows a link that O_NOFOLLOW would refuse. */
static int open_itself(const char *path)
{
    char bare[PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && (path[n - 1] == '/' || (path[n - 1] == '.' && path[n - 2] == '/')))
        n--;
    if (n >= sizeof bare)
        return -ENAMETOOLONG;
    memcpy(bare, path, n);
    bare[n] = '\0';
    const int fd = open(bare, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int refuse_open(const char *path, int rc, struct hst_error *error)
{
    if (rc == -ENOTDIR || rc == -ELOOP)
        return store_refuse(error, HST_E_STORE_ACCESS, rc,
                            "store directory %s is a symbolic link or no directory. Fix: name "
                            "the directory itself",
                            path);
    return store_refuse(error, HST_E_STORE_DIR, rc,
                        "store directory %s cannot be opened: %s. Fix: name one that can", path,
                        strerror(-rc));
}

bool store_name_is_nothing(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lost+found") == 0;
}

DIR *store_directory_list(const struct store_directory *directory, struct hst_error *error)
{
    const int fd = openat(directory->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    if (names)
        return names;
    store_refuse(error, HST_E_STORE_DIR, -errno,
                 "%s cannot be listed: %s. Fix: give another directory", directory->path,
                 strerror(errno));
    if (fd >= 0)
        close(fd);
    return NULL;
}

/* 0 where nothing is in it; else -EEXIST and the first that is, or the system's error. *ours: any
   is a store's; may be null. */
static int find_any(const struct store_directory *directory, char name[NAME_MAX + 1], bool *ours,
                    struct hst_error *error)
{
    DIR *names = store_directory_list(directory, error);
    int rc = names ? 0 : error->native;
    struct store_name parsed;
    for (const struct dirent *entry; (rc == 0 || ours) && names && (entry = readdir(names));) {
        if (store_name_is_nothing(entry->d_name))
            continue;
        if (rc == 0)
            memcpy(name, entry->d_name, strlen(entry->d_name) + 1);
        rc = -EEXIST;
        if (ours)
            *ours = *ours || store_name_parse(entry->d_name, &parsed) ||
                    strcmp(entry->d_name, STORE_UNFINISHED) == 0;
    }
    if (names)
        closedir(names);
    return rc;
}

int store_directory_holds_other(const struct store_directory *directory, struct hst_error *error)
{
    char name[NAME_MAX + 1];
    bool ours = false;
    const int rc = find_any(directory, name, &ours, error);
    if (rc != -EEXIST || ours)
        return rc == -EEXIST ? 0 : rc;
    return store_refuse(error, HST_E_STORE_TAKEN, -EEXIST,
                        "%s holds no file of a store, and %.60s is there: a store has its "
                        "directory to itself. Fix: name the directory of a store, or for a new one "
                        "an empty directory or one that is not there yet",
                        directory->path, name);
}

int store_directory_open(const char *path, struct store_directory *directory,
                         struct hst_error *error)
{
    struct stat st = {0};
    char name[NAME_MAX + 1];
    const int fd = open_itself(path);
    if (fd < 0)
        return refuse_open(path, fd, error);
    const struct store_directory opened = {path, fd};
    int rc = fstat(fd, &st) ? -errno : 0;
    if (rc)
        refuse_open(path, rc, error);
    else if (st.st_uid != geteuid())
        rc = store_refuse(error, HST_E_STORE_ACCESS, -EPERM,
                          "store directory %s belongs to user %u: a store is its owner's alone. "
                          "Fix: name a directory that is not there yet, or one of your own",
                          path, (unsigned)st.st_uid);
    else if ((st.st_mode & 077) && (rc = store_directory_holds_other(&opened, error)) == 0 &&
             (rc = find_any(&opened, name, NULL, error)) == -EEXIST)
        rc = store_refuse(error, HST_E_STORE_ACCESS, -EPERM,
                          "store directory %s has mode %04o and is not empty (%.60s is there): a "
                          "store is its owner's alone. Fix: chmod 700 it if all of it is yours, or "
                          "name an empty directory, or one that is not there yet",
                          path, (unsigned)st.st_mode & 07777, name);
    if (rc)
        close(fd);
    else
        *directory = opened;
    return rc;
}

int store_directory_take(const struct store_directory *directory, struct hst_error *error)
{
    struct stat st = {0};
    int rc = fstat(directory->fd, &st) ? -errno : 0;
    if (rc == 0 && (st.st_mode & 077) && fchmod(directory->fd, 0700) < 0)
        rc = -errno;
    if (rc == 0)
        return 0;
    return store_refuse(error, HST_E_STORE_ACCESS, rc,
                        "store directory %s has mode %04o and cannot be made its owner's alone: "
                        "%s. Fix: chmod 700 it, or name a directory that is not there yet",
                        directory->path, (unsigned)st.st_mode & 07777, strerror(-rc));
}

void store_directory_close(struct store_directory *directory)
{
    if (directory->fd >= 0)
        close(directory->fd);
    directory->fd = -1;
}

int store_directory_sync(const struct store_directory *directory, struct hst_error *error)
{
    if (fsync(directory->fd) == 0)
        return 0;
    return store_refuse(error, HST_E_WRITE, -errno,
                        "syncing the directory %s failed: %s. Fix: check the drive (dmesg, "
                        "smartctl -a), then start again",
                        directory->path, strerror(errno));
}

int store_directory_is_empty(const struct store_directory *directory, struct hst_error *error)
{
    char name[NAME_MAX + 1];
    int rc = store_unfinished_check(directory, 1, error);
    if (rc)
        return rc;
    rc = find_any(directory, name, NULL, error);
    if (rc != -EEXIST)
        return rc;
    return store_refuse(error, HST_E_STORE_TAKEN, -EEXIST,
                        "%s/%s is there: a new store has its directory to itself. Fix: give an "
                        "empty directory, or one that does not exist",
                        directory->path, name);
}
