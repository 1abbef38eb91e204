/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_SYSTEM_H
#define HOISTWAY_TOOLS_CLI_SYSTEM_H
/* This header tells what the machine allows the process. */
#include <stdint.h>

#define SYSTEM_NO_LIMIT UINT64_MAX

struct system_memory {
    uint64_t physical, available; /* bytes; 0 where the system does not tell */
    uint64_t cgroup;              /* the least limit, bytes, or SYSTEM_NO_LIMIT */
    uint64_t cgroup_left;         /* what the fullest one leaves: train refuses more */
    uint64_t address_space;       /* RLIMIT_AS, bytes, or SYSTEM_NO_LIMIT */
    uint64_t locked;              /* RLIMIT_MEMLOCK, bytes, or SYSTEM_NO_LIMIT */
};
void system_memory(struct system_memory *memory);

/** "MemTotal" in the text of /proc/meminfo, in bytes; 0: not there. Pure. */
uint64_t system_meminfo(const char *text, const char *key);
/** A limit file of a cgroup: "max", or bytes; absurdly large values mean no limit. Pure. */
uint64_t system_cgroup_limit(const char *text);
/** It returns what a limit leaves: usage is without file pages that can be given back. Pure. */
uint64_t system_cgroup_left(uint64_t limit, uint64_t usage, uint64_t inactive_file);

#endif
