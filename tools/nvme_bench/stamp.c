/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what stands in a block that is written, and which one a block read back is. */
#include "nvme_bench/stamp.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(struct nb_stamp) == 32, "every byte of it is compared");

/* splitmix64's mixer (Steele et al. 2014) */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint32_t check_of(const struct nb_stamp *s)
{
    uint64_t x = mix(s->run + UINT64_C(0x9e3779b97f4a7c15));
    x = mix(x ^ s->offset);
    x = mix(x ^ ((uint64_t)s->drive << 32 | s->file));
    return (uint32_t)(mix(x ^ s->pass) >> 32);
}

struct nb_stamp nb_stamp_seal(const struct nb_stamp *stamp)
{
    struct nb_stamp sealed = *stamp;
    sealed.check = check_of(stamp);
    return sealed;
}

void nb_stamp_put(void *buffer, size_t bytes, const struct nb_stamp *from)
{
    struct nb_stamp stamp = *from;
    for (size_t at = 0; at < bytes; at += NB_SECTOR_BYTES) {
        stamp.offset = from->offset + at;
        stamp.check = check_of(&stamp);
        memcpy((char *)buffer + at, &stamp, sizeof stamp);
    }
}

bool nb_stamp_read(const void *sector, struct nb_stamp *found)
{
    struct nb_stamp there;
    memcpy(&there, sector, sizeof there);
    bool whole = there.check == check_of(&there);
    if (whole)
        *found = there;
    return whole;
}

void nb_stamp_fill(void *buffer, size_t bytes, uint64_t seed)
{
    for (size_t at = 0; at + sizeof seed <= bytes; at += sizeof seed) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t word = mix(seed);
        memcpy((char *)buffer + at, &word, sizeof word);
    }
}
