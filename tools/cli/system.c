/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out how much memory this process may use; everything missing means "no limit". */
#include "cli/system.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define CGROUP_ROOT "/sys/fs/cgroup"

/* The start of a small file of the system, as text; empty where it cannot be read. */
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

/* The number in the row that begins with `key` and `separator`; 0 where there is none. */
static uint64_t row_number(const char *text, const char *key, char separator)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == separator)
            return strtoull(line + length + 1, NULL, 10);
    }
    return 0;
}

uint64_t system_meminfo(const char *text, const char *key)
{
    return row_number(text, key, ':') * 1024;
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

uint64_t system_cgroup_left(uint64_t limit, uint64_t usage, uint64_t inactive_file)
{
    uint64_t held = usage - least(usage, inactive_file); /* such pages are given back */
    return limit - least(limit, held);
}

struct cgroup_files {
    const char *line; /* what the group stands behind in /proc/self/cgroup */
    const char *root, *limit, *usage, *cache; /* cache: its row in memory.stat */
};

static void look_at_cgroup(const char *directory, const struct cgroup_files *files,
                           struct system_memory *memory)
{
    char path[PATH_MAX + 256], text[8192] = "";
    snprintf(path, sizeof path, "%.4200s/%.40s", directory, files->limit);
    read_text(path, text, sizeof text);
    uint64_t limit = system_cgroup_limit(text);
    if (limit == SYSTEM_NO_LIMIT)
        return;
    snprintf(path, sizeof path, "%.4200s/%.40s", directory, files->usage);
    read_text(path, text, sizeof text);
    uint64_t usage = strtoull(text, NULL, 10);
    snprintf(path, sizeof path, "%.4200s/memory.stat", directory);
    read_text(path, text, sizeof text);
    uint64_t left = system_cgroup_left(limit, usage, row_number(text, files->cache, ' '));
    memory->cgroup = least(memory->cgroup, limit);
    memory->cgroup_left = least(memory->cgroup_left, left);
}

/*
 * Our cgroup and all above it limit us; inside a container the path may be one of the host: then
 * the root.
 */
static void look_at_cgroups(const struct cgroup_files *files, struct system_memory *memory)
{
    char text[4096], directory[4096 + 64];
    read_text("/proc/self/cgroup", text, sizeof text);
    const char *group = strstr(text, files->line);
    group = group ? group + strlen(files->line) : "";
    snprintf(directory, sizeof directory, "%s%.*s", files->root, (int)strcspn(group, "\n"), group);
    for (;;) {
        look_at_cgroup(directory, files, memory);
        char *slash = strrchr(directory + strlen(files->root), '/');
        if (!slash)
            break;
        *slash = '\0';
    }
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
        .cgroup = SYSTEM_NO_LIMIT,
        .cgroup_left = SYSTEM_NO_LIMIT,
        .address_space = resource_limit(RLIMIT_AS),
        .locked = resource_limit(RLIMIT_MEMLOCK),
    };
    static const struct cgroup_files v1 = {":memory:", CGROUP_ROOT "/memory",
                                           "memory.limit_in_bytes", "memory.usage_in_bytes",
                                           "total_inactive_file"};
    static const struct cgroup_files v2 = {"0::", CGROUP_ROOT, "memory.max", "memory.current",
                                           "inactive_file"};
    look_at_cgroups(&v1, memory);
    look_at_cgroups(&v2, memory);
}
