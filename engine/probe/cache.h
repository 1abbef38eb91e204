/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_CACHE_H
#define HOISTWAY_ENGINE_CACHE_H
/* Between identity.c, cache.c and their tests. */
#include <hoistway/machine.h>
#include <sys/stat.h>

#define IDENTITY_BYTES 16384u

/** Lines of text, one per thing that rates depend on. */
struct identity {
    char text[IDENTITY_BYTES];
    size_t used;
    bool cut; /* not all of it fits: two that differ may look the same */
};
void identity_of(const struct hst_probe *probe, struct identity *identity);

/** Why a file or folder of the cache is not trusted; null: it is. Pure. */
const char *cache_distrust(const struct stat *status, mode_t kind, uid_t user);

#endif
