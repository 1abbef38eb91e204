/* SPDX-License-Identifier: Apache-2.0 */
/* Which copies a store has kept: each is a store of its own, in a directory of the store's. */
#include "ckpt/ckpt.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool kept_is_copy(const char *store)
{
    char path[PATH_MAX], file[PATH_MAX];
    uint64_t step;
    char *first = strndup(store, strcspn(store, ","));
    char *slash = first && realpath(first, path) ? strrchr(path, '/') : NULL;
    free(first);
    if (!slash || !kept_parse(slash + 1, &step))
        return false;
    *slash = '\0';
    const int n = snprintf(file, sizeof file, "%s/r00000.d0.blk", path);
    return n < (int)sizeof file && access(file, F_OK) == 0;
}

char *kept_directories(const char *store, uint64_t step)
{
    char copy[KEPT_NAME_BYTES];
    const size_t bytes = strlen(store) + (size_t)(KEPT_NAME_BYTES + 1) * STRIPE_DRIVES_MAX;
    char *text = calloc(1, bytes);
    size_t n = 0;
    kept_name(step, copy);
    for (uint32_t d = 0; text && d < STRIPE_DRIVES_MAX && *store; d++) {
        const size_t length = strcspn(store, ",");
        size_t plain = length;
        while (plain > 1 && store[plain - 1] == '/')
            plain--;
        n += (size_t)snprintf(text + n, bytes - n, "%s%.*s/%s", d ? "," : "", (int)plain, store,
                              copy);
        store += length + (store[length] == ',');
    }
    return text;
}

static int by_step(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

size_t hst_ckpt_kept(const char *store, uint64_t *steps, size_t capacity)
{
    char *first = strndup(store, strcspn(store, ","));
    DIR *names = first ? opendir(first) : NULL;
    size_t count = 0;
    uint64_t step;
    free(first);
    if (!names)
        return 0;
    for (const struct dirent *entry; (entry = readdir(names)) != NULL;) {
        if (!kept_parse(entry->d_name, &step))
            continue;
        if (count < capacity)
            steps[count] = step;
        count++;
    }
    closedir(names);
    qsort(steps, count < capacity ? count : capacity, sizeof *steps, by_step);
    return count;
}
