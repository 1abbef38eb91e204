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
/** The mount that holds major:minor: file system, and "/dev/…" where the numbers are no drive's. */
void nb_drive_read_mount(const struct nb_system *system, unsigned major, unsigned minor,
                         struct nb_drive *drive);

/** Bytes that scratch files may take: what is free, but for a tenth of the file system. Pure. */
uint64_t nb_drive_room(uint64_t size_bytes, uint64_t free_bytes);
#endif
