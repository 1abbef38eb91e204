/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_DRIVE_H
#define HOISTWAY_TOOLS_NVME_BENCH_DRIVE_H
/* Which drive a directory is on, as far as the system tells. */
#include "fail.h"
#include "nvme_bench/result.h"

/** Where the system tells it: "/sys" and "/proc/self/mountinfo", or a recorded machine's. */
struct nb_system {
    const char *sys, *mountinfo;
};

/** "sim:…" names a simulated drive, all else a directory. */
bool nb_drive_is_simulated(const char *path);

/**
 * Fills what is known of drive->path, a directory or "sim:…". Refuses what is not a directory or
 * not there (E105).
 */
int nb_drive_identify(const struct nb_system *system, struct nb_drive *drive,
                      struct hst_error *error);

/**
 * The parts that read files of the system, for numbers major:minor of a block device. What is not
 * known stays "" or -1.
 */
void nb_drive_read_block(const struct nb_system *system, unsigned major, unsigned minor,
                         struct nb_drive *drive);
/**
 * The mount with this number, or, 0, the first of major:minor: file system, and "/dev/…" where the
 * numbers are no drive's. The disks of file systems with numbers of their own: of the source, of an
 * overlay's upper directory, or the name of a ZFS pool.
 */
void nb_drive_read_mount(const struct nb_system *system, unsigned major, unsigned minor,
                         uint64_t mount_id, struct nb_drive *drive);
/**
 * Adds to drive->disks what lies under a block device: of a partition its disk, of device-mapper,
 * md and the like what they are made of, of a loop device the disk of its file.
 */
void nb_disks_add(const struct nb_system *system, unsigned major, unsigned minor,
                  struct nb_drive *drive);
/** The same by a name, "/dev/sda1": where a container has no such node. */
void nb_disks_add_named(const struct nb_system *system, const char *device, struct nb_drive *drive);

/** What two drives have in common, in words; null: nothing that is known. Pure. */
const char *nb_drives_share(const struct nb_drive *a, const struct nb_drive *b,
                            char dst[NB_TEXT]);
/** True where two name spaces of one NVMe controller are meant: perhaps one drive. Pure. */
bool nb_drives_share_controller(const struct nb_drive *a, const struct nb_drive *b);

/** Bytes that scratch files may take: what is free, but for a tenth of the file system. Pure. */
uint64_t nb_drive_room(uint64_t size_bytes, uint64_t free_bytes);
#endif
