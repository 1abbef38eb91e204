/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_DRIVE_H
#define HOISTWAY_ENGINE_DRIVE_H
/* Between drive.c, disks.c and their test: the parts that read files of the system. What is not
   told stays as it is. */
#include <hoistway/machine.h>

/** The system tells it here: "/sys" and "/proc/self/mountinfo", or a recorded machine's. */
struct drive_system {
    const char *sys, *mountinfo;
};

/** It fills device, model, serial, link and node of block device major:minor. */
void drive_read_block(const struct drive_system *system, unsigned major, unsigned minor,
                      struct hst_drive *drive);
/**
 * The mount with this number, or, 0, the first of major:minor: file system, and "/dev/…" where the
 * numbers are no drive's. The disks of file systems with numbers of their own: of the source, of an
 * overlay's upper directory, or the name of a ZFS pool.
 */
void drive_read_mount(const struct drive_system *system, unsigned major, unsigned minor,
                      uint64_t mount_id, struct hst_drive *drive);
/**
 * Adds to drive->disks what lies under a block device: of a partition its disk, of device-mapper,
 * md and the like what they are made of, of a loop device the disk of its file.
 */
void drive_disks_add(const struct drive_system *system, unsigned major, unsigned minor,
                     struct hst_drive *drive);
/** The same by a name, "/dev/sda1": where a container has no such node. */
void drive_disks_add_named(const struct drive_system *system, const char *device,
                           struct hst_drive *drive);

#endif
