/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_NCCL_MEET_FILE_H
#define HOISTWAY_ENGINE_COMM_NCCL_MEET_FILE_H
#include "comm/comm.h"

/** Ranks that meet by files of one directory. */
struct meet_file {
    const char *folder; /* that all of them see, and no link */
    const char *name;   /* that the files begin with, below 128 bytes */
    uint32_t rank, ranks;
    double limit_s; /* so long a rank waits for the others */
};

#define MEET_FILE_BYTES ((size_t)128)

/**
 * Brings rank 0's value to all ranks: value [bytes], at most MEET_FILE_BYTES, is read there and
 * written elsewhere. What another run has left in the directory is never taken. On return nothing
 * of this rank is left there, unless it was killed.
 * Errors: -EPIPE a rank does not come within limit_s, -EINVAL rank 0 is of a world of another size,
 * -EBUSY another process is the same rank of a run of that name, -EPERM a file there is not this
 * user's alone, -EIO the directory cannot be used, -ENOMEM; *failure is written, with a fix.
 * Thread-safety: safe. Cost: a file of each rank, read by rank 0 each 50 ms at least.
 */
int meet_by_file(const struct meet_file *in, void *value, size_t bytes,
                 struct comm_failure *failure);
#endif
