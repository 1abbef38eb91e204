/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of a version: where each extent's bytes are, their hashes, and where training
 * stands. Kept in memory in the form in which it is written, so that a commit copies nothing and
 * the store's bookkeeping is 32 B per extent and 8 B per block.
 */
#include "plan/placement/placement.h"
#include "store/bytes.h"

#include <errno.h>

#define ENTRY_BYTES 32u
#define PAGE_END    120u

uint64_t store_hashes_at(uint32_t extents)
{
    return STORE_ENTRIES_AT + (uint64_t)extents * ENTRY_BYTES;
}

static uint64_t cursor_at(const struct store_header *header)
{
    return store_hashes_at(header->extents) + header->blocks * 8;
}

void store_entry_get(const unsigned char *manifest, uint32_t extent, struct store_entry *entry)
{
    const unsigned char *at = manifest + STORE_ENTRIES_AT + (uint64_t)extent * ENTRY_BYTES;
    *entry = (struct store_entry){
        .tile = get_u32(at),
        .kind = at[4],
        .drive = at[5],
        .slot = at[6],
        .flags = at[7],
        .offset = get_u64(at + 8),
        .bytes = get_u32(at + 16),
        .first_block = get_u32(at + 20),
        .version = get_u64(at + 24),
    };
}

void store_entry_put(unsigned char *manifest, uint32_t extent, const struct store_entry *entry)
{
    unsigned char *at = manifest + STORE_ENTRIES_AT + (uint64_t)extent * ENTRY_BYTES;
    put_u32(at, entry->tile);
    at[4] = entry->kind;
    at[5] = entry->drive;
    at[6] = entry->slot;
    at[7] = entry->flags;
    put_u64(at + 8, entry->offset);
    put_u32(at + 16, entry->bytes);
    put_u32(at + 20, entry->first_block);
    put_u64(at + 24, entry->version);
}

/* ---- cursor: items of tag u32, bytes u32, value padded to 8; in this order, each once ---- */

enum { TAG_STEP = 1, TAG_UPDATES, TAG_LOSS_SCALE, TAG_GOOD_STEPS, TAG_OPAQUE, TAG_END };
static const uint32_t TAG_BYTES[TAG_END] = {
    [TAG_STEP] = 8, [TAG_UPDATES] = 8, [TAG_LOSS_SCALE] = 4, [TAG_GOOD_STEPS] = 4};

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

static unsigned char *put_item(unsigned char *at, uint32_t tag, const void *value, uint32_t bytes)
{
    put_u32(at, tag);
    put_u32(at + 4, bytes);
    if (bytes > 0)
        memcpy(at + 8, value, bytes);
    memset(at + 8 + bytes, 0, padded(bytes) - bytes); /* a longer cursor may have been there */
    return at + 8 + padded(bytes);
}

static unsigned char *put_number_item(unsigned char *at, uint32_t tag, uint64_t number)
{
    unsigned char value[8];
    put_u64(value, number);
    return put_item(at, tag, value, TAG_BYTES[tag]);
}

static unsigned char *put_cursor(unsigned char *at, const struct store_cursor *cursor)
{
    uint32_t scale_bits;
    memcpy(&scale_bits, &cursor->loss_scale, sizeof scale_bits);
    at = put_number_item(at, TAG_STEP, cursor->step);
    at = put_number_item(at, TAG_UPDATES, cursor->updates);
    at = put_number_item(at, TAG_LOSS_SCALE, scale_bits);
    at = put_number_item(at, TAG_GOOD_STEPS, cursor->good_steps);
    return put_item(at, TAG_OPAQUE, cursor->opaque, cursor->opaque_bytes);
}

static bool get_cursor(const unsigned char *at, const unsigned char *end,
                       struct store_cursor *cursor)
{
    uint64_t numbers[TAG_END] = {0};
    for (uint32_t tag = TAG_STEP; tag < TAG_END; tag++) {
        if (end - at < 8 || get_u32(at) != tag)
            return false;
        const uint32_t bytes = get_u32(at + 4);
        const uint64_t left_bytes = (uint64_t)(end - at) - 8;
        const bool opaque = tag == TAG_OPAQUE;
        if (opaque ? bytes > STORE_CURSOR_MAX : bytes != TAG_BYTES[tag])
            return false;
        if (padded(bytes) > left_bytes || !is_zero(at + 8 + bytes, padded(bytes) - bytes))
            return false;
        if (opaque)
            *cursor = (struct store_cursor){.opaque = at + 8, .opaque_bytes = bytes};
        else
            numbers[tag] = get_number(at + 8, bytes);
        at += 8 + padded(bytes);
    }
    const uint32_t scale_bits = (uint32_t)numbers[TAG_LOSS_SCALE];
    memcpy(&cursor->loss_scale, &scale_bits, sizeof scale_bits);
    cursor->step = numbers[TAG_STEP];
    cursor->updates = numbers[TAG_UPDATES];
    cursor->good_steps = (uint32_t)numbers[TAG_GOOD_STEPS];
    return at == end;
}

/* ---- the whole ---- */

uint64_t store_manifest_encode(const struct store_manifest *m, const struct store_header *header,
                               unsigned char *bytes)
{
    const uint64_t first = cursor_at(header);
    const uint64_t cursor_bytes =
        (uint64_t)(put_cursor(bytes + first, &m->cursor) - (bytes + first));
    const uint64_t used = first + cursor_bytes;
    const uint64_t total = (used + STORE_PAGE_BYTES - 1) / STORE_PAGE_BYTES * STORE_PAGE_BYTES;
    memset(bytes + used, 0, total - used);
    page_begin(bytes, &PAGE_MANIFEST);
    put_id(bytes + 32, &m->uuid);
    put_u32(bytes + 48, m->rank);
    put_u32(bytes + 52, m->world);
    put_u64(bytes + 56, m->version);
    put_id(bytes + 64, &m->commit_id);
    put_id(bytes + 80, &m->incarnation);
    put_u32(bytes + 96, header->extents);
    put_u32(bytes + 100, (uint32_t)cursor_bytes);
    put_u64(bytes + 104, header->blocks);
    put_u64(bytes + 112, total);
    return total;
}

/* It holds where the next extent of each drive has to begin, and the next hash. */
struct place {
    uint64_t slot[STRIPE_DRIVES_MAX], derived[STRIPE_DRIVES_MAX];
    uint64_t block;
};

/* States alone, of what is fixed, have no bytes, and these are never written. */
static bool size_is_possible(const struct store_entry *e)
{
    const bool none = (e->flags & STORE_FIXED) && e->kind == EXTENT_STATES;
    return none ? e->bytes == 0 && (e->flags & STORE_ZERO)
                : e->bytes > 0 && e->bytes % STORE_PAGE_BYTES == 0;
}

static bool flags_are_possible(const struct store_entry *e, const struct store_header *header)
{
    const unsigned known = STORE_ZERO | STORE_DERIVED | STORE_UNIT | STORE_FIXED;
    const bool fixed = e->flags & STORE_FIXED, derived = e->flags & STORE_DERIVED;
    return (e->flags & ~known) == 0 && !(fixed && derived) && (!fixed || header->fixed);
}

static const char *check_entry(const struct store_entry *e, const struct store_header *headers,
                               uint64_t version, struct place *next)
{
    if (e->drive >= headers[0].drives || e->slot > 1)
        return "an extent's drive or slot";
    if (!flags_are_possible(e, &headers[0]))
        return "an extent's flags";
    if (!size_is_possible(e))
        return "an extent's size";
    const struct store_header *h = &headers[e->drive];
    const bool one_slot = store_entry_has_one_slot(e);
    uint64_t *at = one_slot ? &next->derived[e->drive] : &next->slot[e->drive];
    const uint64_t zone_end =
        one_slot ? store_derived_at(h) + h->derived_bytes : store_data_at(h) + h->slot_bytes;
    if (e->offset != *at || e->bytes > zone_end - *at)
        return "an extent's offset";
    *at += e->bytes;
    if (e->first_block != next->block)
        return "an extent's hashes";
    next->block += store_blocks_of(e->bytes);
    if (e->version > version || (one_slot && e->slot != 0) ||
        ((e->flags & (STORE_ZERO | STORE_FIXED)) && (e->slot != 0 || e->version != 0)))
        return "an extent's version";
    return NULL;
}

/* Numbers of tiles rise; one rank has them all; states are those of the same tiles, which are fixed
 * or not. */
static bool tile_is_possible(const unsigned char *bytes, const struct store_header *header,
                             uint32_t extent, const struct store_entry *entry)
{
    const uint32_t tiles = header->extents / STORE_KINDS;
    struct store_entry other;
    if (entry->kind != extent / tiles)
        return false;
    if (entry->kind > 0) {
        store_entry_get(bytes, extent - tiles, &other);
        if ((entry->flags ^ other.flags) & STORE_FIXED)
            return false;
    }
    if (header->world == 1)
        return entry->tile == extent % tiles;
    if (extent % tiles == 0 && entry->kind == 0)
        return true;
    store_entry_get(bytes, entry->kind == 0 ? extent - 1 : extent - tiles, &other);
    return entry->kind == 0 ? entry->tile > other.tile : entry->tile == other.tile;
}

static const char *check_entries(const unsigned char *bytes, const struct store_header *headers,
                                 uint64_t version)
{
    struct place next = {.block = 0};
    for (uint32_t d = 0; d < headers[0].drives; d++) {
        next.slot[d] = store_data_at(&headers[d]);
        next.derived[d] = store_derived_at(&headers[d]);
    }
    for (uint32_t i = 0; i < headers[0].extents; i++) {
        struct store_entry entry;
        store_entry_get(bytes, i, &entry);
        if (!tile_is_possible(bytes, &headers[0], i, &entry))
            return "the order of its extents";
        const char *what = check_entry(&entry, headers, version, &next);
        if (what)
            return what;
    }
    return next.block == headers[0].blocks ? NULL : "its number of hashes";
}

struct store_flaw store_manifest_decode(const unsigned char *bytes, const struct store_ref *ref,
                                        const struct store_header *headers,
                                        struct store_manifest *manifest)
{
    const struct store_header *h = &headers[0];
    const struct store_id digest = store_digest(bytes, ref->bytes);
    if (!store_id_equal(&digest, &ref->digest))
        return flaw(-EBADMSG, "its checksum");
    struct store_flaw found = page_check(bytes, &PAGE_MANIFEST);
    if (found.error)
        return found;
    struct store_manifest m = {
        .uuid = get_id(bytes + 32),
        .rank = get_u32(bytes + 48),
        .world = get_u32(bytes + 52),
        .version = get_u64(bytes + 56),
        .commit_id = get_id(bytes + 64),
        .incarnation = get_id(bytes + 80),
    };
    if (!store_id_equal(&m.uuid, &h->uuid) || m.rank != h->rank || m.world != h->world)
        return flaw(-EINVAL, "it is of another store or rank");
    if (m.version != ref->version || !store_id_equal(&m.commit_id, &ref->commit_id))
        return flaw(-EINVAL, "it is of another version");
    const uint64_t used = cursor_at(h) + get_u32(bytes + 100);
    if (get_u32(bytes + 96) != h->extents || get_u64(bytes + 104) != h->blocks ||
        get_u64(bytes + 112) != ref->bytes || used > ref->bytes)
        return flaw(-EINVAL, "its counts");
    if (!is_zero(bytes + 16, 16) || !is_zero(bytes + PAGE_END, STORE_PAGE_BYTES - PAGE_END) ||
        !is_zero(bytes + used, ref->bytes - used))
        return flaw(-EINVAL, "bytes beside its fields are not zero");
    if (!get_cursor(bytes + cursor_at(h), bytes + used, &m.cursor) || m.cursor.step != ref->step)
        return flaw(-EINVAL, "its cursor");
    const char *what = check_entries(bytes, headers, m.version);
    if (what)
        return flaw(-EINVAL, what);
    *manifest = m;
    return flaw(0, NULL);
}
