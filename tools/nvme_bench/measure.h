/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_MEASURE_H
#define HOISTWAY_TOOLS_NVME_BENCH_MEASURE_H
/* Measures drives: files are opened (bench_open), cases run (measure_all), nothing is left. */
#include "nvme_bench/args.h"
#include "nvme_bench/lane.h"
#include "nvme_bench/result.h"

#include <signal.h>

#define NB_MAX_THREADS 16u

/** It holds what a run does to each drive, decided before it starts. */
struct nb_budget {
    uint64_t file_bytes;  /* of each lane */
    uint32_t lanes;       /* of each drive */
    uint32_t most_depth;  /* of lane 0, which also runs what has several threads elsewhere */
    uint64_t point_bytes, point_ns; /* a case ends with whichever comes first */
    uint64_t sustain_bytes, window_bytes, steady_ns, recovery_bytes, idle_ns;
    uint64_t written_bytes; /* at most, on each drive, the probe's included; zeros come to it */
    uint64_t least_bytes;   /* of files: with less the sweep would not fit */
    uint32_t most_block, sweep_points;
};
/**
 * Pure. E402 where --size is too small for the sweep, or more requests are asked for than there may
 * be.
 */
int nb_budget_make(const struct nb_args *args, bool simulated, struct nb_budget *budget,
                   struct hst_error *error);

struct nb_bench {
    const struct nb_args *args;
    const volatile sig_atomic_t *stopped;
    struct nb_budget budget;
    struct nb_result *result;
    struct hst_aio_world *world; /* of simulated drives */
    struct nb_lane lanes[NB_MAX_DRIVES][NB_MAX_THREADS];
    uint64_t *scratch; /* for percentiles */
    struct hst_error *error;
};

/** Pure. What a run writes to a drive at most, zeros of file systems without fallocate included. */
uint64_t nb_budget_written(const struct nb_budget *budget, const struct nb_drive *drive);

/** Pure. Memory that a run takes for a drive. */
uint64_t nb_budget_memory(const struct nb_budget *budget, const struct nb_drive *drive);

/**
 * Refuses identified drives, before anything is written: too little room (E301), RAM without
 * --force, one disk twice (E402), more memory than is free (E201). Warns where it is not known
 * whether two are one disk.
 */
int nb_bench_check(const struct nb_bench *bench);
/**
 * Opens files and memory, which writes: the probe, and where there is no fallocate zeros. Refuses
 * directories that take no files (E105), io_uring that was forced (E101).
 */
int nb_bench_open(struct nb_bench *bench);
void nb_bench_close(struct nb_bench *bench);

/** All phases. 0, or negative errno with *error; -ECANCELED where a signal stopped it. */
int nb_measure(struct nb_bench *bench);

/**
 * Runs a job on several lanes at once: each on a thread of its own, or, simulated, all in turn on
 * their common clock. `shape` tells what stands in the point. Fills *point's bytes, seconds, rate,
 * latencies, CPU time.
 */
int nb_run_lanes(struct nb_bench *bench, struct nb_lane *const *lanes, const struct nb_job *jobs,
                 uint32_t count, struct nb_point *point);
/** Tells that a lane's request failed. Returns its error. */
int nb_lane_fail(struct nb_bench *bench, const struct nb_lane *lane);

#endif
