/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what stands in a block that is written, and whether a block read back is that one. */
#include "nvme_bench/stamp.h"

#include <string.h>

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

void nb_stamp_put(void *buffer, size_t bytes, const struct nb_stamp *from)
{
    struct nb_stamp stamp = *from;
    for (size_t at = 0; at < bytes; at += NB_SECTOR_BYTES) {
        stamp.offset = from->offset + at;
        stamp.check = check_of(&stamp);
        memcpy((char *)buffer + at, &stamp, sizeof stamp);
    }
}

bool nb_stamp_matches(const void *buffer, const struct nb_stamp *want, struct nb_stamp *found)
{
    memcpy(found, buffer, sizeof *found);
    return found->run == want->run && found->offset == want->offset &&
           found->drive == want->drive && found->file == want->file && found->pass == want->pass &&
           found->check == check_of(found);
}

void nb_stamp_fill(void *buffer, size_t bytes, uint64_t seed)
{
    for (size_t at = 0; at + sizeof seed <= bytes; at += sizeof seed) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t word = mix(seed);
        memcpy((char *)buffer + at, &word, sizeof word);
    }
}
