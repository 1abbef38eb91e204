/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps what choices take, by their numbers: a table of fixed size. What it says once stays so. */
#include "plan/search/placement_memo.h"

#include <stdlib.h>
#include <string.h>

#define ENTRIES 4096u /* a power of two; three quarters of them are used */

struct key {
    double streamed;
    uint32_t numbers[16];
};

struct entry {
    bool used;
    struct key key;
    uint64_t hbm_bytes, dram_bytes;
    uint64_t nvme_bytes; /* where it was asked for */
    bool knows_drives;
    bool was_found; /* by a search, as what fits */
    uint32_t resident_units, device_weights[UNIT_SIZES];
};

struct placement_memo {
    uint32_t count;
    struct lay_out_kept kept;
    struct entry entries[ENTRIES];
};

/* A choice has gaps between its fields, of which nothing is known. */
static struct key key_of(const struct choice *c)
{
    return (struct key){
        c->streamed,
        {c->resident.first, c->resident.count, c->acts_offloaded, c->leaves[LEAVE_STATES],
         c->leaves[LEAVE_ACTS], c->leaves[LEAVE_GRADS], c->leaves[LEAVE_WEIGHTS], c->segment,
         c->depths.slots, c->depths.reservations, c->depths.grads, c->depths.acts,
         c->device_depths.reservations, c->device_depths.grads, c->device_depths.acts, c->saved}};
}

static bool is_same(const struct key *a, const struct key *b)
{
    return a->streamed == b->streamed && memcmp(a->numbers, b->numbers, sizeof a->numbers) == 0;
}

/* The entry of the key, or the one that it would have. */
static uint32_t place_of(const struct placement_memo *memo, const struct key *key)
{
    uint64_t hash = (uint64_t)(key->streamed * 64);
    for (size_t i = 0; i < sizeof key->numbers / sizeof *key->numbers; i++)
        hash = (hash ^ key->numbers[i]) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t at = (uint32_t)(hash >> 32) % ENTRIES;
    while (memo->entries[at].used && !is_same(&memo->entries[at].key, key))
        at = (at + 1) % ENTRIES;
    return at;
}

struct placement_memo *placement_memo_make(const struct placement_in *in)
{
    struct placement_memo *memo = calloc(1, sizeof *memo);
    if (!memo)
        return NULL;
    memo->kept.begun.units =
        calloc((size_t)in->layout->unit_count + 1, sizeof *memo->kept.begun.units);
    if (memo->kept.begun.units)
        return memo;
    free(memo);
    return NULL;
}

void placement_memo_free(struct placement_memo *memo)
{
    if (memo)
        free(memo->kept.begun.units);
    free(memo);
}

static bool find(const struct placement_memo *memo, const struct choice *choice,
                 struct placement *p)
{
    const struct key key = key_of(choice);
    const struct entry *e = &memo->entries[place_of(memo, &key)];
    if (!e->used)
        return false;
    p->hbm_bytes = e->hbm_bytes;
    p->dram_bytes = e->dram_bytes;
    p->resident_units = e->resident_units;
    for (int i = 0; i < UNIT_SIZES; i++)
        p->device_weights[i].count = e->device_weights[i];
    return true;
}

static void add(struct placement_memo *memo, const struct choice *choice, const struct placement *p)
{
    const struct key key = key_of(choice);
    if (memo->count >= ENTRIES / 4 * 3)
        return;
    struct entry *e = &memo->entries[place_of(memo, &key)];
    memo->count += !e->used;
    *e = (struct entry){.used = true,
                        .key = key,
                        .hbm_bytes = p->hbm_bytes,
                        .dram_bytes = p->dram_bytes,
                        .resident_units = p->resident_units};
    for (int i = 0; i < UNIT_SIZES; i++)
        e->device_weights[i] = p->device_weights[i].count;
}

void placement_memo_measure(struct placement_memo *memo, const struct placement_in *in,
                            const struct choice *choice, struct placement *p)
{
    if (!memo) {
        lay_out_memory(in, choice, p);
        return;
    }
    if (find(memo, choice, p))
        return;
    lay_out_again(in, choice, &memo->kept, p);
    add(memo, choice, p);
}

uint64_t placement_memo_drives(struct placement_memo *memo, const struct placement_in *in,
                               const struct choice *choice, struct placement *p)
{
    const struct key key = key_of(choice);
    struct entry *e = memo ? &memo->entries[place_of(memo, &key)] : NULL;
    if (e && e->used && e->knows_drives)
        return e->nvme_bytes;
    lay_out(in, choice, p);
    if (e && e->used) {
        e->nvme_bytes = p->nvme_bytes;
        e->knows_drives = true;
    }
    return p->nvme_bytes;
}

bool placement_memo_was_found(const struct placement_memo *memo, const struct choice *choice)
{
    const struct key key = key_of(choice);
    return memo && memo->entries[place_of(memo, &key)].was_found;
}

void placement_memo_note_found(struct placement_memo *memo, const struct choice *choice)
{
    const struct key key = key_of(choice);
    struct entry *e = memo ? &memo->entries[place_of(memo, &key)] : NULL;
    if (e && e->used)
        e->was_found = true;
}
