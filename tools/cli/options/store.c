/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a directory can hold the store, before anything is written, and tells how its I/O
 * runs.
 */
#include "cli/options/store.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

static int refuse(struct hst_error *error, const char *directory, int native)
{
    switch (native) {
    case -ENOSPC:
    case -EDQUOT:
        return fail(error, FAIL_DISK_SPACE, native,
                    "the store directory '%.250s' has no space left (%s). Fix: free some, or give "
                    "--store a directory on another drive.",
                    directory, strerror(-native));
    case -ENOENT:
        return fail(error, FAIL_STORE_DIR, native,
                    "the store directory '%.250s' cannot be created: the directory above it does "
                    "not exist. Fix: mkdir -p it.",
                    directory);
    case -ENOTDIR:
        return fail(error, FAIL_STORE_DIR, native,
                    "the store '%.250s' is not a directory. Fix: give --store a directory; it is "
                    "created if missing.",
                    directory);
    case -EFBIG:
        return fail(error, FAIL_STORE_DIR, native,
                    "the store directory '%.250s' cannot be used: the greatest file size is "
                    "limited (RLIMIT_FSIZE). Fix: ulimit -f unlimited.",
                    directory);
    default:
        return fail(error, FAIL_STORE_DIR, native,
                    "the store directory '%.250s' cannot be used: %s. Fix: give --store a "
                    "directory on a local drive that you may write to.",
                    directory, strerror(-native));
    }
}

/* The directory to probe: itself, or the one that it will be created in. */
static int probed_directory(const char *directory, char path[PATH_MAX])
{
    struct stat st;
    if (snprintf(path, PATH_MAX, "%s", directory) >= PATH_MAX)
        return -ENAMETOOLONG;
    if (stat(directory, &st) == 0)
        return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    if (errno != ENOENT)
        return -errno;
    const char *parent = dirname(path);
    memmove(path, parent, strlen(parent) + 1);
    if (stat(path, &st) != 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

/* Other machines may write to a network file system, and it fails in ways of its own. */
static bool is_network(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 &&
           (fs.f_type == NFS_SUPER_MAGIC || fs.f_type == SMB_SUPER_MAGIC ||
            fs.f_type == (long)0xff534d42 /* cifs */);
}

bool store_next(struct store_list *list)
{
    if (!list->rest)
        return false;
    size_t length = strcspn(list->rest, ",");
    snprintf(list->directory, sizeof list->directory, "%.*s", (int)length, list->rest);
    list->rest = list->rest[length] ? list->rest + length + 1 : NULL;
    return true;
}

int store_alone(const char **store, char filled[STORE_TEXT_BYTES], struct hst_error *error)
{
    const struct hst_store_place alone = {.rank = 0};
    int words = *store ? hst_store_words(*store, &alone, NULL, 0, error) : 0;
    if (words > 0)
        words = hst_store_words(*store, &alone, filled, STORE_TEXT_BYTES, error);
    if (words > 0)
        *store = filled;
    return words < 0 ? words : 0;
}

bool store_has_words(const char *store)
{
    const struct hst_store_place any = {.rank = 0};
    return store && hst_store_words(store, &any, NULL, 0, NULL) > 0;
}

int store_check_local(const char *directory, struct hst_error *error)
{
    char path[PATH_MAX];
    if (probed_directory(directory, path) != 0 || !is_network(path))
        return 0;
    return fail(error, FAIL_STORE_DIR, -ENOTSUP,
                "the store directory '%.250s' is on a network file system. Fix: give --store a "
                "directory on a local drive.",
                directory);
}

int store_check(const char *directory, struct hst_aio_info *info, struct hst_error *error)
{
    char path[PATH_MAX];
    struct hst_aio *aio = NULL;
    int native = probed_directory(directory, path);
    if (native)
        return refuse(error, directory, native);
    native = store_check_local(directory, error);
    if (native)
        return native;
    *info = (struct hst_aio_info){.refused_call = NULL};
    native = hst_aio_open(NULL, path, &aio, info);
    hst_aio_close(&aio);
    if (native && info->refused_call)
        return fail(error, FAIL_STORE_DIR, native,
                    "the store directory '%.250s' cannot be used: a sandbox refuses %s (%s). Fix: "
                    "a seccomp profile that allows %s.",
                    directory, info->refused_call, strerror(-native), info->refused_call);
    if (native == -ENOENT || native == -EOPNOTSUPP || native == -EISDIR)
        return fail(error, FAIL_STORE_DIR, native,
                    "the store directory '%.250s' cannot be used: '%.100s' is on a file system "
                    "that takes no files (%s). Fix: give --store a directory on a local drive.",
                    directory, path, strerror(-native));
    return native ? refuse(error, directory, native) : 0;
}

void store_rung(const struct hst_aio_info *info, char *dst, size_t dst_bytes)
{
    snprintf(dst, dst_bytes, "%s, %s", info->backend == HST_AIO_URING ? "io_uring" : "threads",
             info->direct ? "O_DIRECT" : "page cache");
}
