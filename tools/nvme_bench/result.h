/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_RESULT_H
#define HOISTWAY_TOOLS_NVME_BENCH_RESULT_H
/*
 * Everything that a run measured: what is reported, stored as JSON, and planned from. Plain values.
 * What was not measured or is not known is NAN, -1 or "".
 */
#include <stdbool.h>
#include <stdint.h>

#define NB_MAX_DRIVES   8u
#define NB_MAX_POINTS   1024u
#define NB_MAX_WINDOWS  128u
#define NB_TEXT         128u
#define NB_ALL_DRIVES   UINT32_MAX /* point.drive: all at once */
#define NB_BYTES_PER_GB 1e9

enum nb_kind { NB_READ = 0, NB_WRITE = 1, NB_MIXED = 2 };
#define NB_KINDS 3u
extern const char *const nb_kind_names[NB_KINDS]; /* "read", "write", "mixed" */

enum nb_phase { NB_SWEEP = 0, NB_STEADY = 1, NB_STRIPED = 2 };
#define NB_PHASES 3u
extern const char *const nb_phase_names[NB_PHASES]; /* "sweep", "steady", "striped" */

enum nb_percentile { NB_P50, NB_P90, NB_P99, NB_P999, NB_MAX };
#define NB_PERCENTILES 5u
extern const char *const nb_percentile_names[NB_PERCENTILES]; /* "p50" … "max" */

/** It says how requests are made. */
struct nb_shape {
    uint32_t block_bytes, depth, threads; /* depth: of each thread */
};

/** One measured case. Rates of `mixed` are the sum of both directions. */
struct nb_point {
    enum nb_phase phase;
    enum nb_kind kind;
    uint32_t drive; /* NB_ALL_DRIVES: striped */
    struct nb_shape shape;
    uint64_t bytes;
    double seconds, rate; /* rate: bytes/s */
    double latency_ns[NB_PERCENTILES];
    double cpu_s_per_gb;
};

/** A long write on one drive, in windows of equal bytes, and what an idle pause gave back. */
struct nb_sustained {
    uint64_t window_bytes;
    uint32_t windows;
    double rates[NB_MAX_WINDOWS]; /* bytes/s */
    /* judged from the windows */
    double first, last;   /* bytes/s before and after a drop; equal without one */
    uint64_t drop_bytes;  /* written before it; 0: no drop seen */
    bool flat;            /* the last windows are alike */
    double idle_s, recovered; /* the pause, and the rate right after it */
};

struct nb_drive {
    char path[256]; /* as given */
    /* of the file system; 0, 0: unknown */
    uint32_t device_major, device_minor;
    /* The disks under it, at the bottom of partitions, device-mapper and RAID: "sda,sdb"; "": not
       known. */
    char disks[256];
    char device[NB_TEXT], model[NB_TEXT], file_system[NB_TEXT], mount[256];
    char link[NB_TEXT], link_most[NB_TEXT]; /* "16.0 GT/s PCIe x4"; "": unknown */
    int numa_node;                          /* -1: unknown */
    bool simulated, in_memory, direct;
    bool zeroed; /* no fallocate there: scratch files are written with zeros once */
    char backend[16];
    uint64_t size_bytes, free_bytes; /* of the file system; 0: unknown */
    uint64_t verified_bytes;
    struct nb_shape best; /* chosen from the sweep */
    struct nb_sustained sustained;
};

struct nb_result {
    char version[32], date[32], kernel[NB_TEXT];
    bool quick;
    uint32_t cores;
    uint32_t drive_count, point_count;
    uint64_t file_bytes;    /* scratch per drive */
    uint64_t written_bytes; /* to all drives */
    struct nb_drive drives[NB_MAX_DRIVES];
    struct nb_point points[NB_MAX_POINTS];
};

/** The point of a phase, or null: drive NB_ALL_DRIVES for striped. The best shape's in a sweep. */
const struct nb_point *nb_find(const struct nb_result *result, enum nb_phase phase,
                               enum nb_kind kind, uint32_t drive);
/** The sweep's point of a shape, or null. */
const struct nb_point *nb_find_swept(const struct nb_result *result, enum nb_kind kind,
                                     uint32_t drive, const struct nb_shape *shape);
/** Greatest rate of a kind in a drive's sweep, bytes/s; 0: none. The ceiling of its cases. */
double nb_ceiling(const struct nb_result *result, enum nb_kind kind, uint32_t drive);

#endif
