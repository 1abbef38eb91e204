/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file tells how much memory and disk is left. A container's limit is usually lower than the
 * machine's memory, and a parent cgroup's may be lower than the own one's: all of them count.
 */
#include "machine/machine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Reads the first number of a file; "max" and unreadable files say nothing. */
static bool read_number(const char *path, uint64_t *value)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool found = fscanf(file, "%" SCNu64, value) == 1;
    fclose(file);
    return found;
}

static int mem_available(uint64_t *bytes)
{
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file)
        return -EIO;
    char line[128];
    uint64_t kib;
    int rc = -EIO;
    while (rc && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1) {
            *bytes = kib * 1024;
            rc = 0;
        }
    }
    fclose(file);
    return rc;
}

struct cgroup_files {
    const char *root, *limit, *usage, *cache; /* cache: its row in memory.stat */
};

static const struct cgroup_files CGROUP_V2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                              "inactive_file %" SCNu64};
static const struct cgroup_files CGROUP_V1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                              "memory.usage_in_bytes",
                                              "total_inactive_file %" SCNu64};

/* File pages that the kernel gives back when memory is asked for: used, but not lost. */
static uint64_t reclaimable(const struct cgroup_files *files, const char *group)
{
    char path[4352], line[128];
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "%s%s/memory.stat", files->root, group);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, files->cache, &bytes) == 1)
            break;
    if (file)
        fclose(file);
    return bytes;
}

/* Climbs from the process's group to the root; `group` is cut shorter on the way. */
static void least_of_cgroups(const struct cgroup_files *files, char *group, uint64_t *left)
{
    for (;;) {
        char path[4352];
        uint64_t limit, usage;
        snprintf(path, sizeof path, "%s%s/%s", files->root, group, files->limit);
        bool limited = read_number(path, &limit);
        snprintf(path, sizeof path, "%s%s/%s", files->root, group, files->usage);
        if (limited && read_number(path, &usage)) {
            uint64_t cache = reclaimable(files, group);
            uint64_t held = usage > cache ? usage - cache : 0;
            uint64_t here = limit > held ? limit - held : 0;
            *left = here < *left ? here : *left;
        }
        char *slash = strrchr(group, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

static uint64_t cgroup_left(void)
{
    uint64_t left = UINT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[4200];
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *group = strrchr(line, ':');
        if (!group)
            continue;
        if (strncmp(line, "0::", 3) == 0)
            least_of_cgroups(&CGROUP_V2, group + 1, &left);
        else if (strstr(line, ":memory:"))
            least_of_cgroups(&CGROUP_V1, group + 1, &left);
    }
    if (file)
        fclose(file);
    return left;
}

static uint64_t address_space_left(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    uint64_t pages = 0;
    read_number("/proc/self/statm", &pages);
    uint64_t mapped = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > mapped ? limit.rlim_cur - mapped : 0;
}

int machine_memory(struct machine_memory *memory)
{
    struct machine_memory m = {.cgroup_left_bytes = cgroup_left(),
                               .address_left_bytes = address_space_left()};
    int rc = mem_available(&m.available_bytes);
    if (rc)
        return rc;
    *memory = m;
    return 0;
}

uint64_t machine_memory_left(const struct machine_memory *memory)
{
    uint64_t left = memory->available_bytes;
    if (memory->cgroup_left_bytes < left)
        left = memory->cgroup_left_bytes;
    if (memory->address_left_bytes < left)
        left = memory->address_left_bytes;
    return left;
}

int machine_disk_left(const char *directory, uint64_t *left_bytes)
{
    struct statvfs fs;
    if (statvfs(directory, &fs))
        return -errno;
    *left_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    return 0;
}
