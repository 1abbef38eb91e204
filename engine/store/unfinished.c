/* SPDX-License-Identifier: Apache-2.0 */
/* The mark of a store that a reshard is making: what it leaves where it does not end. */
#include "store/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static bool is_there(const struct store_directory *directory, const char *name)
{
    return faccessat(directory->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int refuse_unfinished(const struct store_directory *directory, struct hst_error *error)
{
    return store_refuse(error, HST_E_STORE_EMPTY, -EEXIST,
                        "%s is what a ckpt reshard makes that has not ended: it holds no whole "
                        "version. Fix: wait for it; if it was killed, remove the directory and "
                        "reshard again",
                        directory->path);
}

int store_unfinished_check(const struct store_directory *directories, uint32_t drives,
                           struct hst_error *error)
{
    char file[STORE_NAME_BYTES];
    for (uint32_t d = 0; d < drives; d++)
        for (uint32_t n = 0; n < STRIPE_DRIVES_MAX; n++) {
            store_file_name(0, n, false, file);
            if (is_there(&directories[d], file)) /* it has ended, and was killed then */
                return 0;
        }
    for (uint32_t d = 0; d < drives; d++)
        if (is_there(&directories[d], STORE_UNFINISHED))
            return refuse_unfinished(&directories[d], error);
    return 0;
}

int store_unfinished_begin(const struct store_directory *directory, struct hst_error *error)
{
    const int fd = openat(directory->fd, STORE_UNFINISHED,
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return refuse_unfinished(directory, error);
    if (fd < 0)
        return store_refuse(error, HST_E_STORE_DIR, -errno,
                            "%s/%s cannot be made: %s. Fix: another --out", directory->path,
                            STORE_UNFINISHED, strerror(errno));
    close(fd);
    int rc = store_directory_sync(directory, error);
    if (rc)
        (void)unlinkat(directory->fd, STORE_UNFINISHED, 0);
    return rc;
}

void store_unfinished_end(const struct store_directory *directory)
{
    struct hst_error ignored;
    (void)unlinkat(directory->fd, STORE_UNFINISHED, 0);
    (void)store_directory_sync(directory, &ignored);
}
