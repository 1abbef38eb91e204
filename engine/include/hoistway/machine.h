/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_MACHINE_H
#define HOISTWAY_MACHINE_H
/*
 * What machine this is: cores, NUMA nodes, GPUs and drives. Nothing here needs an engine.
 *
 * Thread-safety: safe. The library prints nothing.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- topology -------------------------------------------------------------------------------- */

#define HST_TOPOLOGY_NODES_MAX   64u
#define HST_TOPOLOGY_DEVICES_MAX 64u

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
    int node;              /* number of the NUMA node that it hangs on */
    bool in_memory;        /* tmpfs, ramfs */
    uint64_t size_bytes, free_bytes; /* of the file system; free: to an unprivileged process */
    uint64_t file_system_id;         /* statfs(2)'s */
};

/** Errors, *drive being untouched: -ENOTDIR, those of stat(2) and statfs(2). */
int hst_drive_of(const char *directory, struct hst_drive *drive);

#ifdef __cplusplus
}
#endif
#endif
