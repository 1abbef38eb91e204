/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_DRIVE_H
#define HOISTWAY_TOOLS_NVME_BENCH_DRIVE_H
/* Which drive a directory is on, as far as the system tells. */
#include "base/fail.h"
#include "nvme_bench/result.h"

/** "sim:…" names a simulated drive, all else a directory. */
bool nb_drive_is_simulated(const char *path);

/**
 * Fills what is known of drive->path, a directory or "sim:…" (whose words nb_bench_check reads).
 * Refuses what is not a directory or not there (E105), and a name that no report could show (E402).
 */
int nb_drive_identify(struct nb_drive *drive, struct hst_error *error);

/** It tells what two drives have in common, in words; null: nothing that is known. Pure. */
const char *nb_drives_share(const struct nb_drive *a, const struct nb_drive *b,
                            char dst[NB_TEXT]);
/** True where two name spaces of one NVMe controller are meant: perhaps one drive. Pure. */
bool nb_drives_share_controller(const struct nb_drive *a, const struct nb_drive *b);

/** Bytes that scratch files may take: what is free, but for a tenth of the file system. Pure. */
uint64_t nb_drive_room(uint64_t size_bytes, uint64_t free_bytes);
#endif
