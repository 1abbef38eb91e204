/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_LANE_H
#define HOISTWAY_TOOLS_NVME_BENCH_LANE_H
/*
 * A lane is one queue to one drive: a context, its unnamed scratch file, the memory for what is in
 * flight, and what stands where in the file. A job keeps `depth` requests of a lane in flight until
 * its time or its bytes are over.
 */
#include "nvme_bench/judge.h"
#include "nvme_bench/result.h"
#include "nvme_bench/stamp.h"

#include <hoistway/aio.h>
#include <signal.h>

struct nb_job {
    enum nb_kind kind;
    uint32_t block_bytes, depth;
    uint64_t most_bytes; /* moved, multiple of block_bytes not needed */
    uint64_t most_ns;    /* UINT64_MAX: no limit */
    uint64_t window_bytes; /* 0: no windows */
    bool stop_when_flat;   /* after a drop: nothing more is learnt by writing on */
};

struct nb_slot {
    uint64_t offset, submitted_ns;
    bool write;
};

/** A 4 KiB of the file: which pass wrote it last (0: none), from which 4 KiB of `source`. */
struct nb_written {
    uint32_t pass, origin;
};

/** It says where a lane's data is not what was written. */
struct nb_mismatch {
    uint64_t offset;  /* of the first wrong byte, or of the sector that is another one */
    bool is_other;    /* another sector stands there, that of *found; else single bytes differ */
    struct nb_stamp found;
    unsigned char byte, wanted; /* there */
};

struct nb_lane {
    struct hst_aio *aio;
    struct hst_aio_file *file;
    uint32_t drive, index; /* of the drive; of the file on it */
    uint64_t run, file_bytes;
    struct nb_written *written; /* per 4 KiB of the file */
    uint32_t pass;
    /* Reads go to `buffer`, writes come from `source`, which nothing but stamps ever changes: that
       is what the data read back is compared with. buffer_bytes each, of one allocation. */
    char *buffer, *source;
    size_t buffer_bytes;
    int register_error; /* 0, or why they are not registered with the ring */
    struct nb_slot *slots;
    uint32_t *free_slots;
    struct nb_latencies latencies;
    const volatile sig_atomic_t *stopped; /* a signal asked to end */

    /* of the job that runs */
    const struct nb_job *job;
    uint32_t free_count;
    uint64_t cursor[2]; /* next block of reads, of writes */
    uint64_t submitted_bytes, moved_bytes, written_bytes, operations;
    uint64_t start_ns, end_ns, window_start_ns, window_base;
    struct nb_sustained *sustained; /* filled where the job has windows */
    bool over; /* nothing more is submitted */
    int error; /* first, negative errno */
    struct nb_slot failed; /* the request with that error */
};

#define NB_MAX_DEPTH 256u

/** Memory for buffer_bytes in flight, twice. -ENOMEM. aio, file and file_bytes are set before. */
int nb_lane_open(struct nb_lane *lane, size_t buffer_bytes);
void nb_lane_close(struct nb_lane *lane); /* accepts a zeroed lane */

void nb_lane_begin(struct nb_lane *lane, const struct nb_job *job);
/** Submits what the job allows; false where nothing is left to do and nothing is in flight. */
bool nb_lane_feed(struct nb_lane *lane);
/** Collects completions: at least `least` (0 or 1). */
void nb_lane_collect(struct nb_lane *lane, size_t least);
/** A job on this lane alone, to its end. 0 or the lane's error. */
int nb_lane_run(struct nb_lane *lane, const struct nb_job *job);

/**
 * Reads all that was ever written to the file and compares every byte of it. *bytes: compared.
 * 0, the lane's error, or -EBADMSG with *mismatch.
 */
int nb_lane_verify(struct nb_lane *lane, uint64_t *bytes, struct nb_mismatch *mismatch);

#endif
