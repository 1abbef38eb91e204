/* SPDX-License-Identifier: Apache-2.0 */
#include "session/store/copies.h"

#include "ckpt/ckpt.h"

#include <errno.h>
#include <stdlib.h>

static bool has(const struct copies *copies, uint64_t step)
{
    bool found = false;
    for (uint64_t i = 0; i < copies->count; i++)
        found = found || copies->steps[i] == step;
    return found;
}

static int by_step(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int add_those_in(void *context, const char *directory)
{
    struct copies *copies = context;
    uint64_t *steps = calloc(COPIES_MOST, sizeof *steps);
    if (!steps)
        return -ENOMEM;
    const size_t found = hst_ckpt_kept(directory, steps, COPIES_MOST);
    for (size_t i = 0; i < found && i < COPIES_MOST && copies->count < COPIES_MOST; i++)
        if (!has(copies, steps[i]))
            copies->steps[copies->count++] = steps[i];
    free(steps);
    return 0;
}

int copies_look(struct copies *copies, const char *store, const struct hst_store_place *place)
{
    copies->count = 0;
    const int rc = shares_each_directory(store, place, add_those_in, copies);
    qsort(copies->steps, copies->count, sizeof *copies->steps, by_step);
    return rc;
}

size_t copies_of_all(const struct copies *all, uint32_t processes, uint64_t *steps, size_t capacity)
{
    size_t count = 0;
    for (uint64_t next = 0; next != HST_NO_VERSION; count++) { /* the least that is not below it */
        uint64_t step = HST_NO_VERSION;
        for (uint32_t p = 0; p < processes; p++)
            for (uint64_t i = 0; i < all[p].count; i++)
                if (all[p].steps[i] >= next && all[p].steps[i] < step)
                    step = all[p].steps[i];
        if (step == HST_NO_VERSION)
            break;
        if (count < capacity)
            steps[count] = step;
        next = step + 1;
    }
    return count;
}
