/* SPDX-License-Identifier: Apache-2.0 */
/* Room for scratch, beside a store's files: see room.h. */
#include "store/room.h"
#include "base/file_limit.h"
#include "base/size_text.h"
#include "store/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int refuse_room(const struct store_directory *directory, const char *name, uint64_t bytes,
                       int native, struct hst_error *error)
{
    char size[SIZE_TEXT_BYTES], limit[FILE_LIMIT_BYTES];
    const bool full = native == -ENOSPC || native == -EDQUOT;
    if (native == -EFBIG)
        return store_refuse(error, HST_E_STORE_DIR, native,
                            "%s/%s cannot be made for gradients and activations: %s",
                            directory->path, name, file_limit(bytes, limit));
    return store_refuse(error,
                        full               ? HST_E_DISK_SPACE
                        : native == -EBUSY ? HST_E_STORE_BUSY
                                           : HST_E_STORE_DIR,
                        native,
                        "%s/%s cannot have the %s that gradients and activations take: %s. "
                        "Fix: %s",
                        directory->path, name, size_text_up(bytes, size), strerror(-native),
                        full               ? "free space there, or --place grads=dram,acts=dram"
                        : native == -EBUSY ? "wait for the run that has it to end"
                                           : "check the drive (dmesg, smartctl -a)");
}

#define DRIVES_AT 32u
#define RATES_AT  40u

static void put_page(unsigned char *page, const double *rates, uint32_t drives)
{
    page_begin(page, &PAGE_ROOM);
    put_u32(page + DRIVES_AT, drives);
    for (uint32_t d = 0; rates && d < drives; d++) {
        uint64_t bits;
        memcpy(&bits, &rates[d], sizeof bits);
        put_u64(page + RATES_AT + d * sizeof bits, bits);
    }
    page_seal(page, 0, 0);
}

/* It tells whether a page is what room begins with, or would once it has reached the drive. */
static struct store_flaw check_page(const unsigned char *page)
{
    const uint32_t drives = get_u32(page + DRIVES_AT);
    if (is_zero(page, STORE_PAGE_BYTES))
        return flaw(0, NULL);
    const struct store_flaw found = page_verify(page, &PAGE_ROOM, 0, 0);
    if (found.error)
        return found;
    if (drives == 0 || drives > STRIPE_DRIVES_MAX || get_u32(page + DRIVES_AT + 4) != 0)
        return flaw(-EINVAL, "its number of drives");
    const uint32_t end = RATES_AT + drives * (uint32_t)sizeof(uint64_t);
    return is_zero(page + end, STORE_PAGE_BYTES - end)
               ? flaw(0, NULL)
               : flaw(-EINVAL, "bytes behind its fields are not zero");
}

bool store_room_rates(const char *directory, uint32_t rank, uint32_t drive, uint32_t drives,
                      double *rates)
{
    char name[STORE_NAME_BYTES], path[PATH_MAX];
    unsigned char page[STORE_PAGE_BYTES];
    store_room_name(rank, drive, name);
    const int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    const int fd = n > 0 && n < PATH_MAX
                       ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
                       : -1;
    if (fd < 0)
        return false;
    const bool read = pread(fd, page, sizeof page, 0) == (ssize_t)sizeof page;
    close(fd);
    if (!read || check_page(page).error || get_u32(page + DRIVES_AT) != drives)
        return false;
    for (uint32_t d = 0; d < drives; d++) {
        const uint64_t bits = get_u64(page + RATES_AT + d * sizeof bits);
        memcpy(&rates[d], &bits, sizeof bits);
    }
    return true;
}

/* Before it is opened for writing. -ENOENT, *error untouched: there is none. */
static int look(const struct store_directory *directory, const char *name, struct hst_error *error)
{
    struct stat status;
    unsigned char page[STORE_PAGE_BYTES] = {0}; /* it may be shorter: it was never finished */
    const int fd = store_file_open_own(directory, name, &status, error);
    if (fd < 0)
        return fd;
    const int rc = pread(fd, page, sizeof page, 0) < 0 ? -errno : 0;
    close(fd);
    if (rc)
        return refuse_room(directory, name, (uint64_t)status.st_size, rc, error);
    const struct store_flaw found = check_page(page);
    if (found.error == 0)
        return 0;
    return store_refuse(error, HST_E_STORE_FORMAT, found.error == -ENOENT ? -EINVAL : found.error,
                        "%s/%s cannot be read as a store's room for gradients and activations: "
                        "%s. Fix: move it away: a store keeps nothing there between runs",
                        directory->path, name, found.what);
}

/* Says whose it is, and makes sure that what was taken is still there after a crash. */
static int finish(const struct store_directory *directory, const char *name,
                  const unsigned char *page)
{
    const int fd = openat(directory->fd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    const ssize_t written = pwrite(fd, page, STORE_PAGE_BYTES, 0);
    int rc = written < 0 ? -errno : written < (ssize_t)STORE_PAGE_BYTES ? -EIO : 0;
    rc = rc == 0 && fsync(fd) < 0 ? -errno : rc;
    close(fd);
    return rc;
}

static int open_room(struct store_room *room, const struct store_directory *directory,
                     const char *name, const unsigned char *page, struct hst_error *error)
{
    char path[STORE_PATH_BYTES];
    const uint64_t bytes = STORE_ROOM_AT + room->bytes;
    int rc = look(directory, name, error);
    if (rc && rc != -ENOENT)
        return rc;
    const unsigned flags = rc == -ENOENT ? HST_AIO_CREATE : 0;
    store_file_path(directory, name, path);
    rc = hst_aio_file_open(room->aio, path, flags, bytes, &room->file);
    room->made = rc == 0 && flags == HST_AIO_CREATE;
    rc = rc ? rc : finish(directory, name, page);
    if (rc) /* -ENOENT would say that there is no store */
        return refuse_room(directory, name, bytes, rc == -ENOENT ? -EIO : rc, error);
    return room->made ? store_directory_sync(directory, error) : 0;
}

int store_rooms_open(struct store_room *rooms, const struct store_directory *directories,
                     uint32_t drives, uint32_t rank, const double *rates, struct hst_error *error)
{
    char name[STORE_NAME_BYTES];
    unsigned char page[STORE_PAGE_BYTES];
    int rc = 0;
    put_page(page, rates, drives);
    for (uint32_t d = 0; rooms && d < drives && rc == 0; d++) {
        store_room_name(rank, d, name);
        if (rooms[d].bytes > 0)
            rc = open_room(&rooms[d], &directories[d], name, page, error);
    }
    if (rc)
        store_rooms_undo(rooms, directories, drives, rank);
    return rc;
}

void store_rooms_undo(struct store_room *rooms, const struct store_directory *directories,
                      uint32_t drives, uint32_t rank)
{
    char name[STORE_NAME_BYTES];
    for (uint32_t d = 0; rooms && d < drives; d++) {
        store_room_name(rank, d, name);
        if (rooms[d].made)
            (void)unlinkat(directories[d].fd, name, 0);
    }
    store_rooms_close(rooms, drives);
}

void store_rooms_close(struct store_room *rooms, uint32_t drives)
{
    for (uint32_t d = 0; rooms && d < drives; d++) {
        hst_aio_file_close(&rooms[d].file);
        rooms[d].made = false;
    }
}
