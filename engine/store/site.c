/* SPDX-License-Identifier: Apache-2.0 */
/* This file tells whether the directories of --store can be used or made, and what is in them. */
#include "store/site.h"
#include "store/files.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(const struct store_site *site, int native, const char *what, const char *fix,
                  struct hst_error *error)
{
    return store_refuse(error, HST_E_STORE_DIR, native, "store directory %s %s: %s. Fix: %s",
                        site->path, what, strerror(-native), fix);
}

static int refuse_making(const struct store_site *site, int native, struct hst_error *error)
{
    return refuse(site, native, "cannot be created",
                  native == -ENAMETOOLONG ? "give a shorter one to --store"
                                          : "create its parent, or give another --store",
                  error);
}

/* ---- which directories ---- */

/* The path without links, "." and "..", also of what is not there yet: then of the part of it that
   is, and the rest as it was named. */
static int resolve(const char *path, char resolved[PATH_MAX])
{
    char head[PATH_MAX], tail[PATH_MAX] = "", joined[PATH_MAX];
    if (snprintf(head, sizeof head, "%s", path) >= (int)sizeof head)
        return -ENAMETOOLONG;
    while (!realpath(head, resolved)) {
        char last[PATH_MAX], above[PATH_MAX];
        if (errno != ENOENT || strcmp(head, "/") == 0 || strcmp(head, ".") == 0)
            return -errno;
        memcpy(last, head, sizeof last);
        memcpy(above, head, sizeof above);
        if (snprintf(joined, sizeof joined, "/%s%s", basename(last), tail) >= (int)sizeof joined)
            return -ENAMETOOLONG;
        memcpy(tail, joined, sizeof tail);
        snprintf(head, sizeof head, "%s", dirname(above));
    }
    const size_t bytes = strcmp(resolved, "/") == 0 ? 0 : strlen(resolved);
    if (bytes + strlen(tail) >= PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(resolved + bytes, tail, strlen(tail) + 1);
    if (!resolved[0])
        memcpy(resolved, "/", 2);
    return 0;
}

static bool is_within(const char *inner, const char *outer)
{
    const size_t bytes = strcmp(outer, "/") == 0 ? 0 : strlen(outer);
    return strncmp(inner, outer, bytes) == 0 && inner[bytes] == '/';
}

static int refuse_twice(const struct store_site *site, struct hst_error *error)
{
    return store_refuse(error, HST_E_VALUE, -EINVAL,
                        "--store names the directory %s twice. Fix: name it once", site->path);
}

static int refuse_within(const struct store_site *inner, const struct store_site *outer,
                         struct hst_error *error)
{
    return store_refuse(error, HST_E_STORE_TAKEN, -EEXIST,
                        "the store directory %s would be in the store directory %s, and a store "
                        "has its directories to itself. Fix: give one beside the other",
                        inner->path, outer->path);
}

/* Also where neither is there yet: made, the second would be in the way of the first. A path that
   cannot be resolved is told by who looks at it. */
static int check_apart(const struct store_site *one, const struct store_site *other,
                       struct hst_error *error)
{
    char first[PATH_MAX], second[PATH_MAX];
    if (resolve(one->path, first) || resolve(other->path, second))
        return 0;
    if (strcmp(first, second) == 0)
        return refuse_twice(other, error);
    if (is_within(second, first))
        return refuse_within(other, one, error);
    return is_within(first, second) ? refuse_within(one, other, error) : 0;
}

/* ---- one directory ---- */

static bool is_a_store(const char *directory)
{
    uint32_t d = 0;
    while (d < STRIPE_DRIVES_MAX && store_bytes_there(directory, 0, d) == 0)
        d++;
    return d < STRIPE_DRIVES_MAX;
}

static int look_at_parent(struct store_site *site, struct hst_error *error)
{
    struct stat status;
    if (is_a_store(site->parent))
        return store_refuse(error, HST_E_STORE_TAKEN, -EEXIST,
                            "%s would be in a store, which has its directory to itself. Fix: give "
                            "a directory beside it",
                            site->path);
    int rc = stat(site->parent, &status) ? -errno : S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
    rc = rc == 0 && access(site->parent, W_OK | X_OK) ? -errno : rc;
    site->file_system = status.st_dev;
    return rc ? refuse_making(site, rc, error) : 0;
}

static int look_at(struct store_site *site, struct hst_error *error)
{
    struct stat status;
    char above[PATH_MAX];
    size_t bytes = strlen(site->path);
    if (bytes >= sizeof above)
        return refuse_making(site, -ENAMETOOLONG, error);
    while (bytes > 1 && site->path[bytes - 1] == '/')
        bytes--; /* behind it a link is followed */
    memcpy(above, site->path, bytes);
    above[bytes] = '\0';
    site->there = lstat(above, &status) == 0;
    if (!site->there && errno == ENAMETOOLONG)
        return refuse_making(site, -ENAMETOOLONG, error);
    if (!site->there && errno == ENOENT) {
        snprintf(site->parent, sizeof site->parent, "%s", dirname(above));
        return look_at_parent(site, error);
    }
    const bool link = site->there && S_ISLNK(status.st_mode);
    if (stat(site->path, &status))
        return refuse(site, -errno,
                      link ? "is a symbolic link that leads to nothing" : "cannot be looked at",
                      "give another --store", error);
    if (!S_ISDIR(status.st_mode))
        return refuse(site, -ENOTDIR, S_ISREG(status.st_mode) ? "is a file" : "is no directory",
                      "give a directory to --store", error);
    site->file_system = status.st_dev;
    site->inode = status.st_ino;
    return access(site->path, W_OK | X_OK)
               ? refuse(site, -errno, "is not writable",
                        "chown or chmod it, or give another --store", error)
               : 0;
}

static bool is_same(const struct store_site *one, const struct store_site *other)
{
    return one->there && other->there && one->inode == other->inode &&
           one->file_system == other->file_system;
}

int store_sites_look(struct store_site *sites, uint32_t count, struct hst_error *error)
{
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        for (uint32_t other = 0; other < i && rc == 0; other++)
            rc = check_apart(&sites[other], &sites[i], error);
    }
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        rc = look_at(&sites[i], error);
        for (uint32_t other = 0; other < i && rc == 0; other++)
            if (is_same(&sites[other], &sites[i])) /* mounted at both */
                rc = refuse_twice(&sites[i], error);
    }
    return rc;
}

int store_sites_check(const struct store_site *sites, uint32_t count, uint32_t rank,
                      enum store_expected expected, struct hst_error *error)
{
    struct store_directory directories[STRIPE_DRIVES_MAX];
    int rc = 0;
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
        directories[d] =
            (struct store_directory){.path = d < count ? sites[d].path : NULL, .fd = -1};
    for (uint32_t d = 0; d < count && rc == 0; d++)
        if (sites[d].there)
            rc = store_directory_open(sites[d].path, &directories[d], error);
    rc = rc ? rc : store_directories_check(directories, count, rank, expected, error);
    for (uint32_t d = 0; d < count; d++)
        store_directory_close(&directories[d]);
    return rc;
}
