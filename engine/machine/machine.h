/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_MACHINE_H
#define HOISTWAY_ENGINE_MACHINE_H
/* This header tells what the machine lets the process use: cores and memory. It reads the system,
   and decides which cores threads stay on. */
#include <hoistway/machine.h>
#include <pthread.h>
#include <stdint.h>

/** Physical cores in this process's CPU affinity (hwloc); at least 1. */
unsigned machine_cores(void);

/**
 * What hst_topology_read tells but for the devices: in a virtual machine each device of a PCI bus
 * takes some 10 ms to be read. Errors: -ENOMEM, hwloc's.   Cost: some ms.
 */
int topology_processors(struct hst_topology *topology);

/**
 * Binds threads that help the calling one to the cores of NUMA nodes: memory is where the caller
 * touches it first, so its node comes first. Nothing where the machine has one node.
 * Errors: -ENOMEM, hwloc's; some threads may be bound then, all of them run.   Cost: some 10 ms.
 */
int machine_bind(const pthread_t *threads, unsigned count);

struct machine_memory {
    uint64_t available_bytes;    /* MemAvailable */
    /* least of limit - usage over the process's cgroup and its parents; UINT64_MAX: no limit */
    uint64_t cgroup_left_bytes;
    uint64_t address_left_bytes; /* RLIMIT_AS less what is mapped; UINT64_MAX: no limit */
};
/** Errors: -EIO where /proc/meminfo cannot be read. */
int machine_memory(struct machine_memory *memory);
/** The least of the three. */
uint64_t machine_memory_left(const struct machine_memory *memory);

/**
 * Bytes that an unprivileged process can still write in a directory's file system. Errors:
 * statvfs's.
 */
int machine_disk_left(const char *directory, uint64_t *left_bytes);

#endif
