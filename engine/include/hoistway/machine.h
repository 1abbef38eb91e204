/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_MACHINE_H
#define HOISTWAY_MACHINE_H
/*
 * This header tells what machine this is and how fast it is. It has cores, NUMA nodes, GPUs and
 * drives; rates, from probes that take two or three seconds together; and a cache of such rates.
 * Nothing here needs an engine.
 *
 *   const struct hst_probe_drive drives[] = {{.directory = "/nvme/run1"}};
 *   const struct hst_probe probe = {.size = sizeof probe, .drives = drives, .drive_count = 1};
 *   struct hst_rates rates;
 *   hst_rates_get(&probe, NULL, 60, &rates);      // measured, or read where younger than a minute
 *   rates.figures[HST_RATE_READ].value            // bytes per second; 0: .how says why not
 *
 * A rate is what the machine did then, with whatever else ran on it: it is measured within a minute
 * of its use, and long benchmarks (hoistway bench, nvme-bench) say more.
 *
 * Thread-safety: safe, but two probes at once measure each other. The library prints nothing.
 */
#include <hoistway/aio.h>
#include <hoistway/kernels.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- topology -------------------------------------------------------------------------------- */

#define HST_TOPOLOGY_NODES_MAX   64u
#define HST_TOPOLOGY_DEVICES_MAX 64u
#define HST_DRIVES_MAX           8u /* of one probe, and of one store */

/** A NUMA node with memory. */
struct hst_topology_node {
    uint32_t number; /* of the machine, as in /sys/devices/system/node */
    uint32_t cores;  /* physical, on it, that this process may use */
    uint64_t memory_bytes;
    /* to nodes[i], as firmware tells it: 10 is its own memory, 20 takes twice as long; 0: not
       told */
    uint16_t distance[HST_TOPOLOGY_NODES_MAX];
};

enum hst_topology_kind { HST_TOPOLOGY_GPU = 1, HST_TOPOLOGY_DRIVE = 2 };

/** A PCI display or 3D controller, or a disk. */
struct hst_topology_device {
    enum hst_topology_kind kind;
    char name[32];  /* "0000:3b:00.0", "nvme0n1" */
    char model[64]; /* "" where it is not told */
    int node;       /* number of the NUMA node that it hangs on; -1: not told */
};

struct hst_topology {
    char cpu[64];   /* "Intel(R) Xeon(R) Processor" */
    char cpus[128]; /* logical processors that this process may use, "0-15,32-47" */
    uint32_t cores; /* physical, that this process may use */
    uint64_t memory_bytes, cache_bytes; /* of the machine; its last-level caches together */
    uint32_t node_count, device_count;  /* more than there is room for are left out */
    struct hst_topology_node nodes[HST_TOPOLOGY_NODES_MAX]; /* by rising number */
    struct hst_topology_device devices[HST_TOPOLOGY_DEVICES_MAX];
};

/**
 * Looks at the machine (hwloc). Errors: -ENOMEM, or those of hwloc; *topology is then untouched.
 * Cost: some 20 ms.
 */
int hst_topology_read(struct hst_topology *topology);

/** The drive that a directory is on; what the system does not tell is "", 0 or (node) -1. */
struct hst_drive {
    char device[128]; /* "nvme0n1p2": what is mounted */
    char model[128], serial[128];
    char file_system[64]; /* "ext4" */
    char mount[256];
    char link[128], link_most[128]; /* PCI Express, now and at most: "16.0 GT/s PCIe x4" */
    /* the disks under it, at the bottom of partitions, device-mapper, RAID: "sda,sdb"; or the name
       of a ZFS pool */
    char disks[256];
    uint32_t device_major, device_minor; /* of the file system */
    int node;                            /* number of the NUMA node that it hangs on */
    bool in_memory;                      /* tmpfs, ramfs */
    uint64_t size_bytes, free_bytes;     /* of the file system; free: to an unprivileged process */
    uint64_t file_system_id;             /* statfs(2)'s */
};

/** Errors, *drive being untouched: -ENOTDIR, those of stat(2) and statfs(2). */
int hst_drive_of(const char *directory, struct hst_drive *drive);

/* ---- rates ----------------------------------------------------------------------------------- */

/** These are measured of a machine. hst_rate_name and hst_rate_unit have text and unit. */
enum hst_rate {
    HST_RATE_DRAM = 0,    /* bytes of a null AdamW: it reads 4 arrays and writes 3 of them */
    HST_RATE_DRAM_COPY,   /* bytes read and written by memcpy, 1 MiB at a time */
    HST_RATE_UPDATE_FP32, /* elements, AdamW of cpu_adam, all workers, arrays in DRAM */
    HST_RATE_UPDATE_BF16, /* with a split master */
    HST_RATE_NORM_FP32,   /* elements of gradients */
    HST_RATE_NORM_BF16,
    HST_RATE_COMPUTE, /* FLOP of all GEMMs and operations together, as often as they say */
    HST_RATE_H2D,     /* bytes, page-locked memory to the device */
    HST_RATE_D2H,
    HST_RATE_COPY_BOTH,   /* bytes of both directions, at once */
    HST_RATE_DEVICE_FP32, /* elements, AdamW of the device, arrays in its memory */
    HST_RATE_DEVICE_BF16, /* with a split master */
    HST_RATE_HALF_FP32,   /* elements, UPDATE_FP32 by half of the workers, rounded up */
    HST_RATE_HALF_BF16,
    HST_RATE_SHARED, /* bytes of host memory: AdamW in bf16, all workers, beside copies both ways */
    HST_RATE_LOCK,   /* bytes of host memory that the device maps, zeroes and page-locks */
    HST_RATE_READ,   /* bytes, all drives at once */
    HST_RATE_WRITE,
    HST_RATE_MIXED,      /* bytes of both directions, half of them each */
    HST_RATE_MIXED_BUSY, /* the same while each processor of this process computes */
    /* Each of several ranks reaches these while all do the same; hst_probe has none. */
    HST_RATE_NET_GATHER,   /* bytes of weights of others of its node, that a gather brings */
    HST_RATE_NET_EXCHANGE, /* bytes of gradients of others of its node, that are added up */
    HST_RATE_NET_BETWEEN,  /* bytes that come from other nodes */
    HST_RATE_NET_OPERATIONS, /* operations that move next to nothing, in turn, in a node */
    HST_RATE_NET_OPERATIONS_BETWEEN, /* and between nodes */
    /* Messages that follow one another in an operation, of next to no bytes, in a node; nothing
       measures them, a machine file has them: an operation's are then beside those above. */
    HST_RATE_NET_MESSAGES,
    HST_RATE_NET_MESSAGES_BETWEEN, /* and between nodes */
    HST_RATE_COUNT
};
/** "dram", "update-fp32", …; null: no such rate. */
const char *hst_rate_name(enum hst_rate rate);
/** "B/s", "elements/s", "FLOP/s"; null: no such rate. */
const char *hst_rate_unit(enum hst_rate rate);

/** One measured rate. */
struct hst_figure {
    double value;       /* per second: median of the rounds; 0: not measured */
    double least, most; /* of the rounds */
    uint32_t rounds;
    char how[160]; /* what was done, or why it was not: one line; "" where nobody asked */
};

#define HST_GEMMS_MAX 16u

/** A matrix product as the model makes it: see struct hst_matmul. */
struct hst_gemm {
    size_t m, n, k;
    enum hst_dtype dtype; /* of A and B; C is f32 where accumulate, else the same */
    bool a_transposed, b_transposed, accumulate;
    uint32_t times; /* per step, or in any other proportion; 0: 1 */
    /* so many at once, with one A for all, or one B where A is transposed; 0: 1 */
    uint32_t batch;
};

#define HST_OPERATIONS_MAX     4u
#define HST_OPERATION_TEXT_MAX 140

/** It says where a part of an operation runs. */
struct hst_room {
    struct hst_dev *dev;
    struct hst_stream *stream;
    struct hst_work memory; /* the device's: has what GEMMs and earlier parts left in it */
    uint32_t width;         /* of the host's workers that share it; 0: another device, not told */
};

/**
 * A client computes this beside GEMMs, in calls of its own: attention, norms. It is measured at
 * a part of what a step has of it, as large as time and memory allow.
 */
struct hst_operation {
    /* one line, at most HST_OPERATION_TEXT_MAX bytes: the shapes, and what else its rate depends on
       beside the machine. It is part of the cache's key, and becomes the figure's `how` */
    const char *what;
    double amount;  /* of one time: FLOP, tokens; finite, above 0 */
    uint32_t times; /* per step, or in the GEMMs' proportion; 0: 1 */
    bool flop;      /* amounts count among the FLOP of the computation, else only its time does */
    /**
     * Enqueues a part of about `most`, or the least that there is, and sets *amount to what it was,
     * above 0. Called often, on the thread that probes; waits for nothing.
     * Errors: -ENOSPC where memory is too small for the least part, those of the calls.
     */
    int (*enqueue)(void *context, const struct hst_room *room, double most, double *amount);
    void *context;
};

struct hst_drive_rates {
    /* bytes/s of this drive while all that were given do the same: drives behind one link, or
       directories on one drive, share it */
    struct hst_figure read, write, mixed;
    /* both directions together are not faster than one: hst_half_duplex of the three */
    bool half_duplex;
    uint64_t written_bytes; /* by the probe */
    int error; /* 0, or the negative errno for which it was left out: the figures say where */
};

/**
 * The updates on the host whose prefetch is measured, by their kind of numbers; AdamW stands for
 * all. fp16's has that of fp32, whose bytes are nearly the same.
 */
enum hst_ahead_row {
    HST_AHEAD_FP32 = 0,
    HST_AHEAD_BF16, /* moments in fp32, */
    HST_AHEAD_BF16_MOMENTS,
    HST_AHEAD_CODES, /* of 8 bits */
    HST_AHEAD_COUNT
};
/** "fp32", "bf16", "bf16-state-bf16", "bf16-state-8bit"; null: no such row. */
const char *hst_ahead_name(enum hst_ahead_row row);

/** An update's rates, in elements per second, by all workers: the fastest of a few rounds. */
struct hst_ahead {
    double asking, silent; /* with a prefetch, and without; 0: not measured */
};
/** HST_AHEAD_USUAL or HST_AHEAD_NONE (cpu_adam.h), the faster of both; 0: not measured. Pure. */
uint32_t hst_ahead_elements(const struct hst_ahead *measured);

struct hst_rates {
    uint64_t taken_ms; /* when the last of them was measured, ms since 1970 */
    double seconds;    /* that measuring took */
    bool cached;       /* hst_rates_get found them in the cache */
    char note[200];    /* what hst_rates_get had to say about the cache; one line, or "" */
    struct hst_figure figures[HST_RATE_COUNT];
    uint32_t drive_count, gemm_count, operation_count; /* as they were given */
    struct hst_drive_rates drives[HST_DRIVES_MAX];
    struct hst_figure gemms[HST_GEMMS_MAX];           /* FLOP/s */
    struct hst_figure operations[HST_OPERATIONS_MAX]; /* of each one's amount */
    uint64_t figure_ms[HST_RATE_COUNT]; /* when each was measured, as taken_ms; 0: not measured */
    struct hst_ahead ahead[HST_AHEAD_COUNT];
    /* what else ran while they were measured, so that they may be too low: "other work had 1.4 of 2
       processors"; "": nothing that matters */
    char disturbed[160];
};

/**
 * It tells whether a drive moves both directions in turns. With equal halves, turns give the
 * harmonic mean of read and write (2/(1/read + 1/write)), two lanes up to twice the lesser one: the
 * answer is on which side of the geometric mean of the two `mixed` is. False where one of them is
 * 0. Pure.
 */
bool hst_half_duplex(double read, double write, double mixed);

/* ---- probes ---------------------------------------------------------------------------------- */

/** Parts of a probe, with the time that each keeps to on a drive or processor that answers. */
enum hst_probe_part {
    HST_PROBE_MEMORY = 1u << 0,  /* DRAM, DRAM_COPY: 0.15 s, and up to 0.3 s to touch memory */
    HST_PROBE_UPDATE = 1u << 1,  /* UPDATE_*, NORM_*, ahead: 0.5 s, memory as above, for both */
    HST_PROBE_DRIVES = 1u << 2,  /* READ, WRITE, MIXED, drives[]: 0.5 s, and 0.05 s to open each */
    HST_PROBE_COMPUTE = 1u << 3, /* COMPUTE, GEMMs[], operations[]: 0.8 and 0.4 s */
    HST_PROBE_COPIES = 1u << 4,  /* H2D, D2H, COPY_BOTH: 0.25 s; not on the host device */
    HST_PROBE_DEVICE = 1u << 5,  /* DEVICE_*, SHARED, HALF_*: 0.5 s, memory as MEMORY; nor there */
    HST_PROBE_LOCKING = 1u << 6, /* LOCK: 0.5 s; nor there */
    HST_PROBE_BUSY = 1u << 7,    /* MIXED_BUSY, with DRIVES: 0.15 s, in which processors compute */
};

struct hst_probe_drive {
    const char *directory; /* exists; gets an unnamed scratch file, which is gone afterwards */
    /* null: opened, and closed, by the probe. Else one of that directory, on this thread, idle,
       with a queue_depth of at least 16 */
    struct hst_aio *aio;
    const struct hst_aio_info *info; /* of aio; null: `how` does not tell what carries the bytes */
};

/**
 * It says what is to be measured, and with which handles. Where one is not given, the probe makes
 * its own and takes it down again.
 */
struct hst_probe {
    size_t size;                         /* sizeof(struct hst_probe) */
    unsigned parts;                      /* of enum hst_probe_part; 0: all */
    uint32_t threads;                    /* workers of its own; 0: physical cores */
    const struct hst_parallel *parallel; /* idle; runs MEMORY, UPDATE, SHARED; null: own workers */
    /* idle; runs COMPUTE, COPIES, DEVICE and LOCKING, with memory inside its budgets. null: the
       host device with own workers */
    struct hst_dev *dev;
    const struct hst_probe_drive *drives; /* all on real time, or all of one world */
    uint32_t drive_count;                 /* at most HST_DRIVES_MAX */
    enum hst_aio_backend backend;         /* with which directories are opened */
    const struct hst_gemm *gemms;
    uint32_t gemm_count; /* at most HST_GEMMS_MAX; COMPUTE needs one */
    const struct hst_operation *operations;
    uint32_t operation_count; /* at most HST_OPERATIONS_MAX */
    /* host memory held at a time, at most; 0: 640 MiB, or an eighth of what is free */
    uint64_t memory_bytes;
    /* written to each drive, at most, beside hst_aio_open's own 10 to 20 MiB where the probe opens
       it; at least 20 MiB; 0: 320 MiB, above which DRIVES may take longer in proportion. A fifth of
       it is the scratch file, with BUSY a sixth */
    uint64_t drive_bytes;
    /* Asked between rounds, figures and parts: other than 0 ends the probe. Null: nobody asks. */
    int (*stopped)(void *context);
    void *stopped_context;
    const char *host_math; /* of a host device that the probe opens: see struct hst_dev_config */
};

/**
 * Measures. Memory is touched and each case warmed up first; then come up to five rounds of some
 * milliseconds, of which a figure is the median. A part begins no round after its time; what the
 * drive or device then still works on is waited for.
 *
 * MEMORY, UPDATE  four arrays, together twice the last-level caches (128 to 512 MiB), or what can
 *                 be touched in time: `how` says how much, and where caches may have helped
 * DRIVES          after the file was written once, rounds of write, read and mixed by turns, 1 MiB
 *                 a request, 16 in flight on each drive (fewer where memory_bytes is small),
 *                 through a small ring of memory; mixed reads one half of the file and writes the
 *                 other. Short writes may go to a cache of the drive that a long run fills:
 *                 nvme-bench tells
 * COMPUTE         on the device, one after another; a product that takes too long, or too much
 *                 memory, is measured at a part of its extents, which `how` tells. On the host the
 *                 GEMMs of a step come first, for a second at most, and are not counted: an idle
 *                 processor begins above the clock that it keeps
 * COPIES          64 MiB each way
 * DEVICE          SHARED: what passes through host memory in all, until the copies are made.
 *                 HALF_*: none beside other workers than the probe's own, of which some can rest
 * LOCKING         64 MiB or more, so that once takes 0.2 s, within memory_bytes and an eighth of
 *                 what is free; more threads zero what is larger, so that it may be locked faster
 *
 * A figure that cannot be measured is 0 and says why: a full drive, a device without memory left,
 * a part without a handle to measure. The others do not suffer.
 *
 * Where other work had the processors meanwhile, rates->disturbed says it: threads of the process
 * that waited a tenth of their time, or a quarter of its processors at others while threads of the
 * probe compute. Ranks that probe at once are each other's other work.
 *
 * Errors: -EINVAL, *rates being untouched; -ECANCELED `stopped` has ended it, and *rates has no
 * figure.
 * Ownership: borrows all, keeps none.   Cost: 2 s for all parts, 3 s with COMPUTE on the host.
 */
int hst_probe(const struct hst_probe *probe, struct hst_rates *rates);

/* ---- the cache ------------------------------------------------------------------------------- */

/** A week: as long as rates that nothing disturbed are good enough to plan by. */
#define HST_RATES_BETTER_S (7.0 * 24 * 3600)

/**
 * Rates of this machine: from the cache where they are there and not older than max_age_s, else
 * measured, and put there where none of them failed. Those with `disturbed` are found for ten
 * minutes at most, and take no place of others that are younger than HST_RATES_BETTER_S.
 *
 * folder     null: $XDG_CACHE_HOME/hoistway, or $HOME/.cache/hoistway; made 0700 where it is not
 *            there. Nothing is cached where neither is set, or in a set-user-ID program
 * max_age_s  60 for a measurement; 0: measured anew
 *
 * What is asked for and what it is measured on is the key: CPU model, processors in use, memory
 * size, kernel, library version, instruction set, device, drives (model, serial, file system),
 * GEMMs, operations, parts. A file holds one key and is written beside and renamed, 0600; there
 * are at most 256. What is damaged, another machine's, another user's, a link, or writable by
 * others is never used: rates->note says so, in one line, and it is replaced where that is
 * possible.
 *
 * Errors, *rates being untouched: -EINVAL, also for a max_age_s that is negative or NaN;
 * -ECANCELED, and nothing is put into the cache. A cache that cannot be read or written is no
 * error.
 */
int hst_rates_get(const struct hst_probe *probe, const char *folder, double max_age_s,
                  struct hst_rates *rates);

/**
 * The same, but nothing is measured, made or written. Errors, *rates being untouched: -ENOENT they
 * are not there, or older; -EINVAL as above.   Cost: some 20 ms.
 */
int hst_rates_find(const struct hst_probe *probe, const char *folder, double max_age_s,
                   struct hst_rates *rates);

/** Enough for any rates as text. */
#define HST_RATES_TEXT_BYTES ((size_t)32 << 10)

/**
 * Rates as text, one figure per line, in no locale; values are rounded to a whole number per
 * second. text[text_bytes] is zero-terminated. Returns its length. Errors: -ENOSPC.
 */
int hst_rates_format(const struct hst_rates *rates, char *text, size_t text_bytes);
/**
 * The reverse. Errors, *rates being untouched: -EBADMSG it is not such a text, not whole, or says
 * what cannot be.
 */
int hst_rates_parse(const char *text, struct hst_rates *rates);

#ifdef __cplusplus
}
#endif
#endif
