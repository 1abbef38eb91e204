/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out which drive a directory is on: its numbers lead to /sys/dev/block, a partition to its
 * disk, the disk to its model and, further up, to the PCIe device it hangs on. Virtual disks and
 * device-mapper tell less; what is not told is left unknown, never guessed.
 */
#include "machine/drive.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LINE_BYTES 128u

/* The first line of a small file, without blanks at its ends. False: not there, or empty. */
static bool read_line(char *dst, size_t dst_bytes, const char *folder, const char *name)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return false;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    char line[LINE_BYTES] = "";
    bool got = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    size_t end = strlen(line), begin = 0;
    while (end && isspace((unsigned char)line[end - 1]))
        line[--end] = '\0';
    while (isspace((unsigned char)line[begin]))
        begin++;
    if (!got || begin == end)
        return false;
    snprintf(dst, dst_bytes, "%s", line + begin);
    return true;
}

static bool exists(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

/* Cuts the last part of a path. */
static bool go_up(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return false;
    *slash = '\0';
    return true;
}

static void format_link(char *dst, size_t dst_bytes, const char *folder, const char *which)
{
    char name[64], speed[48], width[16];
    snprintf(name, sizeof name, "%s_link_speed", which);
    if (!read_line(speed, sizeof speed, folder, name))
        return;
    snprintf(name, sizeof name, "%s_link_width", which);
    if (!read_line(width, sizeof width, folder, name))
        return;
    snprintf(dst, dst_bytes, "%s x%s", speed, width);
}

/* From the disk's device up to the first that has a PCIe link, or tells a node. */
static void read_bus(const char *disk, struct hst_drive *drive)
{
    char path[PATH_MAX], start[PATH_MAX], node[16];
    if (snprintf(path, sizeof path, "%s/device", disk) >= (int)sizeof path ||
        !realpath(path, start))
        return;
    do {
        if (drive->node < 0 && read_line(node, sizeof node, start, "numa_node"))
            drive->node = atoi(node); /* -1 says unknown too */
        if (exists(start, "current_link_speed")) {
            format_link(drive->link, sizeof drive->link, start, "current");
            format_link(drive->link_most, sizeof drive->link_most, start, "max");
            return;
        }
    } while (go_up(start));
}

static void read_model(const char *disk, struct hst_drive *drive)
{
    char part[LINE_BYTES], driver[PATH_MAX], target[PATH_MAX];
    if (read_line(drive->model, sizeof drive->model, disk, "device/model"))
        return;
    if (read_line(part, sizeof part, disk, "dm/name")) {
        snprintf(drive->model, sizeof drive->model, "device-mapper %.60s", part);
        return;
    }
    bool virtio = strncmp(drive->device, "vd", 2) == 0;
    if (snprintf(driver, sizeof driver, "%s/device/driver", disk) < (int)sizeof driver &&
        realpath(driver, target) && strstr(target, "/virtio_blk"))
        virtio = true;
    if (virtio)
        snprintf(drive->model, sizeof drive->model, "virtual disk (virtio)");
}

/* Which of a kind: an NVMe drive tells it on its controller, a SCSI disk as a world-wide name. */
static void read_serial(const char *disk, struct hst_drive *drive)
{
    static const char *const names[] = {"device/serial", "serial", "wwid", "device/wwid"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (read_line(drive->serial, sizeof drive->serial, disk, names[i]))
            return;
}

void drive_read_block(const struct drive_system *system, unsigned major, unsigned minor,
                      struct hst_drive *drive)
{
    char path[PATH_MAX], disk[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/dev/block/%u:%u", system->sys, major, minor) >=
            (int)sizeof path ||
        !realpath(path, disk))
        return;
    const char *name = strrchr(disk, '/');
    snprintf(drive->device, sizeof drive->device, "%.60s", name ? name + 1 : disk);
    if (exists(disk, "partition") && !go_up(disk))
        return;
    read_model(disk, drive);
    read_serial(disk, drive);
    read_bus(disk, drive);
}

/* upperdir= of an overlay's options, with the kernel's escapes (\040: a blank) undone. */
static bool find_upper(const char *options, char path[PATH_MAX])
{
    const char *at = strstr(options, "upperdir=");
    size_t n = 0;
    if (!at)
        return false;
    for (at += strlen("upperdir="); *at && *at != ',' && n < PATH_MAX - 1; at++) {
        path[n++] = *at;
        if (*at == '\\' && strspn(at + 1, "01234567") >= 3) {
            path[n - 1] = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + at[3] - '0');
            at += 3;
        }
    }
    path[n] = '\0';
    return true;
}

struct mount {
    const char *target, *type, *source, *options;
};

/* Line: "36 25 254:0 / /mnt rw - ext4 /dev/vda rw,…"; optional fields stand before the dash. Cuts
   it into words. */
static bool read_mount_line(char *line, unsigned major, unsigned minor, uint64_t mount_id,
                            struct mount *mount)
{
    uint64_t id;
    unsigned m, n;
    char *dash = strstr(line, " - "), *rest;
    if (!dash || sscanf(line, "%" SCNu64 " %*u %u:%u", &id, &m, &n) != 3 ||
        (mount_id ? id != mount_id : m != major || n != minor))
        return false;
    *dash = '\0';
    strtok_r(line, " ", &rest);
    for (int i = 0; i < 3; i++) /* parent, numbers, root */
        strtok_r(NULL, " ", &rest);
    mount->target = strtok_r(NULL, " ", &rest);
    mount->type = strtok_r(dash + 3, " \n", &rest);
    mount->source = strtok_r(NULL, " \n", &rest);
    mount->options = strtok_r(NULL, "\n", &rest);
    return mount->target && mount->type && mount->source;
}

/* It finds the disks where a file system has numbers of its own. */
static void find_disks(const struct drive_system *system, const struct mount *mount,
                       struct hst_drive *drive)
{
    struct stat st;
    char upper[PATH_MAX];
    if (strcmp(mount->type, "zfs") == 0) { /* its data sets share the pool */
        int length = (int)strcspn(mount->source, "/,");
        snprintf(drive->disks, sizeof drive->disks, "ZFS pool %.*s", length < 200 ? length : 200,
                 mount->source);
    } else if (strncmp(mount->source, "/dev/", 5) == 0) {
        if (stat(mount->source, &st) == 0)
            drive_disks_add(system, major(st.st_rdev), minor(st.st_rdev), drive);
        else
            drive_disks_add_named(system, mount->source, drive);
    } else if (mount->options && find_upper(mount->options, upper) && stat(upper, &st) == 0) {
        drive_disks_add(system, major(st.st_dev), minor(st.st_dev), drive);
    }
}

void drive_read_mount(const struct drive_system *system, unsigned major, unsigned minor,
                      uint64_t mount_id, struct hst_drive *drive)
{
    char *line = NULL;
    size_t line_bytes = 0;
    struct mount mount;
    FILE *file = fopen(system->mountinfo, "re");
    bool found = false;
    if (!file)
        return;
    while (!found && getline(&line, &line_bytes, file) > 0)
        found = read_mount_line(line, major, minor, mount_id, &mount);
    if (found) {
        snprintf(drive->file_system, sizeof drive->file_system, "%s", mount.type);
        snprintf(drive->mount, sizeof drive->mount, "%s", mount.target);
        if (!drive->device[0] && strncmp(mount.source, "/dev/", 5) == 0)
            snprintf(drive->device, sizeof drive->device, "%.100s", mount.source + 5);
        if (!drive->disks[0])
            find_disks(system, &mount, drive);
    }
    free(line);
    fclose(file);
}

static bool is_in_memory(const struct statfs *fs)
{
    return fs->f_type == TMPFS_MAGIC || fs->f_type == RAMFS_MAGIC;
}

int hst_drive_of(const char *directory, struct hst_drive *drive)
{
    static const struct drive_system here = {"/sys", "/proc/self/mountinfo"};
    struct hst_drive found = {.node = -1};
    struct statx more = {0};
    struct stat st;
    struct statfs fs;
    if (stat(directory, &st) || (S_ISDIR(st.st_mode) && statfs(directory, &fs)))
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    bool numbered =
        statx(AT_FDCWD, directory, 0, STATX_MNT_ID, &more) == 0 && more.stx_mask & STATX_MNT_ID;
    found.in_memory = is_in_memory(&fs);
    found.size_bytes = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
    found.free_bytes = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    memcpy(&found.file_system_id, &fs.f_fsid, sizeof found.file_system_id);
    found.device_major = major(st.st_dev);
    found.device_minor = minor(st.st_dev);
    drive_read_block(&here, found.device_major, found.device_minor, &found);
    drive_disks_add(&here, found.device_major, found.device_minor, &found);
    drive_read_mount(&here, found.device_major, found.device_minor, numbered ? more.stx_mnt_id : 0,
                     &found);
    *drive = found;
    return 0;
}
