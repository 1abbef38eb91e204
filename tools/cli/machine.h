/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_MACHINE_H
#define HOISTWAY_TOOLS_CLI_MACHINE_H
/* What this machine allows this process. */
#include <stdint.h>

#define MACHINE_NO_LIMIT UINT64_MAX

struct machine_memory {
    uint64_t physical, available; /* bytes; 0 where the system does not tell */
    uint64_t cgroup;              /* bytes, or MACHINE_NO_LIMIT */
    uint64_t address_space;       /* RLIMIT_AS, bytes, or MACHINE_NO_LIMIT */
    uint64_t locked;              /* RLIMIT_MEMLOCK, bytes, or MACHINE_NO_LIMIT */
};
void machine_memory(struct machine_memory *memory);

/** The most memory that can ever be had: the least of physical, cgroup and address space. */
uint64_t machine_memory_limit(const struct machine_memory *memory);

/** Physical cores that this process may use, 0 where they can not be told. */
uint32_t machine_cores(void);

/** "MemTotal" in the text of /proc/meminfo, in bytes; 0: not there. Pure. */
uint64_t machine_meminfo(const char *text, const char *key);
/** A limit file of a cgroup: "max", or bytes; absurdly large values mean no limit. Pure. */
uint64_t machine_cgroup_limit(const char *text);

#endif
