/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which disks are under a block device. Partitions lead to their disk, device-mapper, md and the
 * like to what they are made of, a loop device to the disk of its file, down to what stands on
 * nothing else.
 */
#include "machine/drive.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DEEPEST 8 /* storeys of block devices on one another */

/* ---- names between commas ---- */

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

/* It leaves out what has no room. */
static void add_name(struct hst_drive *drive, const char *name)
{
    size_t used = strlen(drive->disks), length = strlen(name);
    if (has_name(drive->disks, name, length) || used + length + 2 > sizeof drive->disks)
        return;
    snprintf(drive->disks + used, sizeof drive->disks - used, "%s%s", used ? "," : "", name);
}

/* ---- /sys ---- */

static bool find_block(const struct drive_system *system, unsigned major, unsigned minor,
                       char disk[PATH_MAX])
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/dev/block/%u:%u", system->sys, major, minor) <
               (int)sizeof path &&
           realpath(path, disk);
}

/* The file of a loop device leads to the disk that it is on. */
static bool find_backing(const struct drive_system *system, const char *disk, char below[PATH_MAX])
{
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/loop/backing_file", disk) >= (int)sizeof path)
        return false;
    FILE *file = fopen(path, "re");
    bool got = file && fgets(path, sizeof path, file);
    if (file)
        fclose(file);
    if (!got)
        return false;
    path[strcspn(path, "\n")] = '\0';
    return stat(path, &st) == 0 && find_block(system, major(st.st_dev), minor(st.st_dev), below);
}

static int is_no_dot(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void descend(const struct drive_system *system, char *disk, struct hst_drive *drive,
                    int depth)
{
    char path[PATH_MAX], below[PATH_MAX];
    bool bottom = true;
    if (snprintf(path, sizeof path, "%s/partition", disk) < (int)sizeof path &&
        access(path, F_OK) == 0)
        *strrchr(disk, '/') = '\0';
    if (depth < DEEPEST && find_backing(system, disk, below)) {
        descend(system, below, drive, depth + 1);
        return;
    }
    struct dirent **slaves = NULL;
    int count = -1;
    if (depth < DEEPEST && snprintf(path, sizeof path, "%s/slaves", disk) < (int)sizeof path)
        count = scandir(path, &slaves, is_no_dot, alphasort);
    for (int i = 0; i < count; i++) {
        if (snprintf(path, sizeof path, "%s/slaves/%s", disk, slaves[i]->d_name) <
                (int)sizeof path &&
            realpath(path, below)) {
            descend(system, below, drive, depth + 1);
            bottom = false;
        }
        free(slaves[i]);
    }
    free(slaves);
    if (bottom)
        add_name(drive, strrchr(disk, '/') + 1);
}

void drive_disks_add_named(const struct drive_system *system, const char *device,
                           struct hst_drive *drive)
{
    char path[PATH_MAX], disk[PATH_MAX];
    const char *name = strrchr(device, '/');
    if (snprintf(path, sizeof path, "%s/class/block/%s", system->sys, name ? name + 1 : device) <
            (int)sizeof path &&
        realpath(path, disk))
        descend(system, disk, drive, 0);
}

void drive_disks_add(const struct drive_system *system, unsigned major, unsigned minor,
                     struct hst_drive *drive)
{
    char disk[PATH_MAX];
    if (find_block(system, major, minor, disk))
        descend(system, disk, drive, 0);
}
