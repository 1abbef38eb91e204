/* SPDX-License-Identifier: Apache-2.0 */
/* This file tells of the drive that a directory is on, how much of it may be taken, and whether two
 * directories are on one: what they would share is its rate and its room. */
#include "nvme_bench/drive.h"

#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <hoistway/machine.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEPT_FREE 10u /* one part in so many of the file system */

bool nb_drive_is_simulated(const char *path)
{
    return strncmp(path, "sim:", 4) == 0;
}

uint64_t nb_drive_room(uint64_t size_bytes, uint64_t free_bytes)
{
    uint64_t kept = size_bytes / KEPT_FREE;
    return free_bytes > kept ? free_bytes - kept : 0;
}

/* It tells whether space is reserved there without being written. True also where that cannot be
   tried: then no scratch file can be made either. */
static bool has_fallocate(const char *directory)
{
    char name[PATH_MAX];
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && snprintf(name, sizeof name, "%s/.hoistway-XXXXXX", directory) < PATH_MAX) {
        fd = mkostemp(name, O_CLOEXEC);
        if (fd >= 0)
            unlink(name);
    }
    if (fd < 0)
        return true;
    bool refused = fallocate(fd, 0, 0, 4096) && (errno == EOPNOTSUPP || errno == ENOSYS);
    close(fd);
    return !refused;
}

static void take(const struct hst_drive *found, struct nb_drive *drive)
{
    snprintf(drive->device, sizeof drive->device, "%s", found->device);
    snprintf(drive->model, sizeof drive->model, "%s", found->model);
    snprintf(drive->file_system, sizeof drive->file_system, "%s", found->file_system);
    snprintf(drive->mount, sizeof drive->mount, "%s", found->mount);
    snprintf(drive->link, sizeof drive->link, "%s", found->link);
    snprintf(drive->link_most, sizeof drive->link_most, "%s", found->link_most);
    snprintf(drive->disks, sizeof drive->disks, "%s", found->disks);
    drive->numa_node = found->node;
    drive->in_memory = found->in_memory;
    drive->size_bytes = found->size_bytes;
    drive->free_bytes = found->free_bytes;
    drive->device_major = found->device_major;
    drive->device_minor = found->device_minor;
    drive->zeroed = !has_fallocate(drive->path);
}

int nb_drive_identify(struct nb_drive *drive, struct hst_error *error)
{
    struct hst_drive found;
    drive->numa_node = -1;
    if (!utf8_all_shown(drive->path, strlen(drive->path)))
        return fail(error, FAIL_VALUE, -EINVAL,
                    "'%.200s' has characters that a report cannot show. Fix: give it another "
                    "name, or go there and name '.'.",
                    drive->path);
    if (nb_drive_is_simulated(drive->path)) {
        drive->simulated = true;
        snprintf(drive->model, sizeof drive->model, "simulated");
        return 0;
    }
    int rc = hst_drive_of(drive->path, &found);
    if (rc == -ENOTDIR)
        return fail(error, FAIL_STORE_DIR, rc,
                    "'%.200s' is not a directory. Fix: give a directory on the drive to be "
                    "measured, not the drive itself.",
                    drive->path);
    if (rc)
        return fail(error, FAIL_STORE_DIR, rc,
                    "the directory '%.200s' cannot be used: %s. Fix: give a directory on the "
                    "drive to be measured.",
                    drive->path, strerror(-rc));
    take(&found, drive);
    return 0;
}

/* ---- two drives ---- */

/* It tells whether a name stands in a list of names between commas. */
static bool has_name(const char *names, const char *name, size_t length)
{
    while (*names) {
        size_t n = strcspn(names, ",");
        if (n == length && strncmp(names, name, n) == 0)
            return true;
        names += n + (names[n] == ',');
    }
    return false;
}

const char *nb_drives_share(const struct nb_drive *a, const struct nb_drive *b, char dst[NB_TEXT])
{
    if (a->simulated || b->simulated)
        return NULL;
    if ((a->device_major || a->device_minor) && a->device_major == b->device_major &&
        a->device_minor == b->device_minor) {
        snprintf(dst, NB_TEXT, "one file system%s%.60s", a->device[0] ? ", " : "", a->device);
        return dst;
    }
    for (const char *name = a->disks; *name;) {
        size_t length = strcspn(name, ",");
        if (has_name(b->disks, name, length)) {
            snprintf(dst, NB_TEXT, "%.*s", (int)length, name);
            return dst;
        }
        name += length + (name[length] == ',');
    }
    return NULL;
}

bool nb_drives_share_controller(const struct nb_drive *a, const struct nb_drive *b)
{
    unsigned first, second, space;
    return sscanf(a->disks, "nvme%un%u", &first, &space) == 2 &&
           sscanf(b->disks, "nvme%un%u", &second, &space) == 2 && first == second;
}
