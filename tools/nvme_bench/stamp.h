/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_STAMP_H
#define HOISTWAY_TOOLS_NVME_BENCH_STAMP_H
/*
 * Every 4 KiB that is written carries a stamp: which run, drive, file, offset and pass it belongs
 * to. Reading back then tells what was lost or put in the wrong place; what stands behind the stamp
 * is compared with where it came from (lane.c). Pure.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NB_SECTOR_BYTES 4096u

struct nb_stamp {
    uint64_t run; /* of this process: what an earlier run left is not ours */
    uint64_t offset;
    uint32_t drive, file, pass, check; /* check: a hash of all others */
};

/** Stamps each sector of buffer[bytes], which will be written at from->offset. */
void nb_stamp_put(void *buffer, size_t bytes, const struct nb_stamp *from);
/** The stamp with its `check`, as it stands in a sector. */
struct nb_stamp nb_stamp_seal(const struct nb_stamp *stamp);
/** True if the sector begins with a stamp, of whatever run and place; then it is in *found. */
bool nb_stamp_read(const void *sector, struct nb_stamp *found);
/** Fills memory with bytes that do not compress; the same ones for a seed. */
void nb_stamp_fill(void *buffer, size_t bytes, uint64_t seed);
#endif
