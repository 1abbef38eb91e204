/* SPDX-License-Identifier: Apache-2.0 */
#include "writing.h"

#include <stdlib.h>
#include <string.h>

void writing_plan(struct writing *w, struct toy *toy, uint64_t version, uint64_t *random)
{
    *w = (struct writing){.version = version};
    memcpy(toy->stamps[version], toy->stamps[version - 1], sizeof toy->stamps[0]);
    for (uint32_t i = 0; i < TOY_EXTENTS; i++)
        w->wanted[i] = toy_below(random, 4) > 0;
}

bool writing_go_on(struct writing *w, struct toy *toy, struct store *store)
{
    bool all = true;
    for (uint32_t i = 0; i < TOY_EXTENTS; i++) {
        if (!w->wanted[i] || w->begun[i])
            continue;
        if (store_may_write(store, toy_kind(i), i % TOY_TILES)) {
            w->begun[i] = true;
            if (toy_write(toy, store, w->version, i, &w->transfers[i]))
                abort();
        }
        all = all && w->begun[i];
    }
    return all;
}
