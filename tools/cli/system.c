/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out how much memory and how many cores this process may use; everything missing means "no
 * limit".
 */
#include "cli/system.h"

#include <hwloc.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define CGROUP_ROOT "/sys/fs/cgroup"

/* The start of a small file of the system, as text; empty where it can not be read. */
static void read_text(const char *path, char *text, size_t text_bytes)
{
    size_t n = 0;
    FILE *file = fopen(path, "re");
    if (file) {
        n = fread(text, 1, text_bytes - 1, file);
        fclose(file);
    }
    text[n] = '\0';
}

uint64_t system_meminfo(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ':')
            return strtoull(line + length + 1, NULL, 10) * 1024;
    }
    return 0;
}

uint64_t system_cgroup_limit(const char *text)
{
    char *end;
    uint64_t limit = strtoull(text, &end, 10);
    /* cgroup v1 says "none" with the greatest multiple of a page in an int64. */
    return end == text || limit >= UINT64_C(1) << 62 ? SYSTEM_NO_LIMIT : limit;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/*
 * Our cgroup and all above it limit us; inside a container the path may be one of the host: then
 * the root.
 */
static uint64_t cgroup_limit(void)
{
    char text[4096], directory[4096] = "", path[PATH_MAX + 64];
    uint64_t limit = SYSTEM_NO_LIMIT;
    read_text("/proc/self/cgroup", text, sizeof text);
    const char *v2 = strstr(text, "0::/");
    if (v2)
        snprintf(directory, sizeof directory, "%.*s", (int)strcspn(v2 + 3, "\n"), v2 + 3);
    for (;;) {
        snprintf(path, sizeof path, CGROUP_ROOT "%s/memory.max", directory);
        read_text(path, text, sizeof text);
        limit = least(limit, system_cgroup_limit(text));
        char *slash = strrchr(directory, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
    read_text(CGROUP_ROOT "/memory/memory.limit_in_bytes", text, sizeof text);
    return least(limit, system_cgroup_limit(text));
}

static uint64_t resource_limit(__rlimit_resource_t resource)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SYSTEM_NO_LIMIT;
    return limit.rlim_cur;
}

void system_memory(struct system_memory *memory)
{
    char text[8192] = "";
    read_text("/proc/meminfo", text, sizeof text);
    *memory = (struct system_memory){
        .physical = system_meminfo(text, "MemTotal"),
        .available = system_meminfo(text, "MemAvailable"),
        .cgroup = cgroup_limit(),
        .address_space = resource_limit(RLIMIT_AS),
        .locked = resource_limit(RLIMIT_MEMLOCK),
    };
}

uint32_t system_cores(void)
{
    hwloc_topology_t topology;
    uint32_t count = 0;
    if (hwloc_topology_init(&topology) != 0)
        return 0;
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    if (allowed && hwloc_topology_load(topology) == 0 &&
        hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0) {
        hwloc_obj_t core = NULL;
        while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)))
            count += hwloc_bitmap_intersects(core->cpuset, allowed) ? 1 : 0;
    }
    hwloc_bitmap_free(allowed);
    hwloc_topology_destroy(topology);
    return count;
}
