/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers, superblocks and manifests of a store, from a good store of two drives and a list of
 * changes: twelve bytes each, {page, width, place u16, value u64}. Checksums are made anew (unless
 * the page's bit 7 says not to), so that a change is judged by its value. What is accepted is what
 * would have been written: encoded again, it is the same bytes. A byte more: a store whose first
 * tile is frozen.
 */
#include "fuzz.h"

#include "store/bytes.h"
#include "store/choose.h"

#include <xxhash.h>

#define TILES        2u
#define DRIVES       2u
#define EXTENTS      (STORE_KINDS * TILES)
#define EXTENT_BYTES (512u << 10)
#define CHANGE_BYTES 12u
#define FIELDS_BYTES 256u /* of a header or superblock: what has a meaning, and some of the rest */
#define RANK         1u
#define WORLD        3u

enum page { HEADER_0, HEADER_1, SUPERBLOCK_0, SUPERBLOCK_1, MANIFEST, PAGE_COUNT };

struct image {
    struct store_header headers[DRIVES];
    unsigned char pages[MANIFEST][STORE_PAGE_BYTES];
    unsigned char *manifest;
    uint64_t manifest_bytes;
    bool sealed[PAGE_COUNT];
    bool fixed; /* its first tile is frozen */
};

static struct store_header a_header(uint32_t drive, bool fixed)
{
    struct store_header h = {
        .uuid = {"fuzzed store"},
        .rank = RANK,
        .world = WORLD,
        .drive = drive,
        .drives = DRIVES,
        .align_bytes = STORE_PAGE_BYTES,
        .extents = EXTENTS,
        .tile_elements = 262144,
        .blocks = EXTENTS - fixed,
        .fixed = fixed,
        .slot_bytes = (2 - fixed) * EXTENT_BYTES,
        .derived_bytes = drive > 0 ? 0
                         : fixed   ? EXTENT_BYTES
                                   : 16384,
    };
    h.manifest_bytes = store_manifest_room(h.extents, h.blocks, h.align_bytes);
    return h;
}

/* The last extent of weights is derived; the first of states was never written. */
static void fill_entries(struct image *m)
{
    uint64_t next[DRIVES] = {store_data_at(&m->headers[0]), store_data_at(&m->headers[1])};
    for (uint32_t i = 0; i < EXTENTS; i++) {
        const bool derived = i == TILES - 1, zero = i == TILES;
        struct store_entry e = {.tile = i % TILES,
                                .kind = (uint8_t)(i / TILES),
                                .drive = (uint8_t)(i / TILES),
                                .slot = i == 0,
                                .flags = derived ? STORE_DERIVED
                                         : zero  ? STORE_ZERO
                                                 : 0,
                                .bytes = derived ? 16384 : EXTENT_BYTES,
                                .first_block = i,
                                .version = zero ? 0 : i};
        e.offset = derived ? store_derived_at(&m->headers[0]) : next[e.drive];
        next[e.drive] += derived ? 0 : e.bytes;
        store_entry_put(m->manifest, i, &e);
    }
}

/* A frozen tile has weights of one slot, and states without bytes. */
static void fill_fixed(struct image *m)
{
    const struct store_header *h = m->headers;
    const struct store_entry entries[EXTENTS] = {
        {.flags = STORE_FIXED, .bytes = EXTENT_BYTES, .offset = store_derived_at(&h[0])},
        {.tile = 1,
         .slot = 1,
         .bytes = EXTENT_BYTES,
         .first_block = 1,
         .version = 1,
         .offset = store_data_at(&h[0])},
        {.kind = 1,
         .drive = 1,
         .flags = STORE_FIXED | STORE_ZERO,
         .first_block = 2,
         .offset = store_derived_at(&h[1])},
        {.tile = 1,
         .kind = 1,
         .drive = 1,
         .slot = 1,
         .bytes = EXTENT_BYTES,
         .first_block = 2,
         .version = 1,
         .offset = store_data_at(&h[1])}};
    for (uint32_t i = 0; i < EXTENTS; i++)
        store_entry_put(m->manifest, i, &entries[i]);
}

static void make_good(struct image *m)
{
    for (uint32_t drive = 0; drive < DRIVES; drive++) {
        m->headers[drive] = a_header(drive, m->fixed);
        store_header_encode(&m->headers[drive], 0, m->pages[drive]);
    }
    m->manifest = calloc(1, m->headers[0].manifest_bytes);
    MUST(m->manifest);
    if (m->fixed)
        fill_fixed(m);
    else
        fill_entries(m);
    const struct store_manifest manifest = {
        .uuid = m->headers[0].uuid,
        .commit_id = {"five"},
        .incarnation = {"a run"},
        .rank = RANK,
        .world = WORLD,
        .version = 5,
        .cursor = {
            .step = 50, .updates = 49, .loss_scale = 1024, .opaque = "cursor", .opaque_bytes = 6}};
    m->manifest_bytes = store_manifest_encode(&manifest, &m->headers[0], m->manifest);
    struct store_superblock s = {
        .uuid = m->headers[0].uuid,
        .rank = RANK,
        .world = WORLD,
        .seq = 6,
        .incarnation = {"a run"},
        .state = STORE_OPEN,
        .cur = {.version = 5,
                .step = 50,
                .commit_id = {"five"},
                .slot = 1,
                .bytes = m->manifest_bytes,
                .digest = store_digest(m->manifest, m->manifest_bytes)},
        .prev = {.version = STORE_NO_VERSION},
    };
    for (int slot = 0; slot < 2; slot++, s.seq++)
        store_superblock_encode(&s, 0, m->pages[SUPERBLOCK_0 + slot]);
}

static void change(struct image *m, const uint8_t *at)
{
    const unsigned page = (at[0] & 0x7fu) % PAGE_COUNT, width = 1 + at[1] % 8u;
    const size_t room = page == MANIFEST ? m->manifest_bytes : FIELDS_BYTES;
    unsigned char *bytes = page == MANIFEST ? m->manifest : m->pages[page];
    put_number(bytes + get_number(at + 2, 2) % (room - 8), get_number(at + 4, 8), width);
    m->sealed[page] = !(at[0] & 0x80u);
}

static void seal(unsigned char *page, unsigned slot)
{
    memset(page + 16, 0, 16);
    const XXH128_hash_t hash = XXH3_128bits_withSeed(page, STORE_PAGE_BYTES, slot << 4);
    put_u64(page + 16, hash.low64);
    put_u64(page + 24, hash.high64);
}

/* A flaw has words and leaves no half of a value; what has none is what would be written. */
static void check_flaw(struct store_flaw flaw)
{
    MUST(flaw.error == 0 ? flaw.what == NULL : flaw.error < 0 && flaw.what && flaw.what[0]);
}

static bool read_headers(const struct image *m, struct store_header headers[DRIVES])
{
    bool good = true;
    for (uint32_t drive = 0; drive < DRIVES; drive++) {
        unsigned char again[STORE_PAGE_BYTES];
        struct store_flaw flaw = store_header_decode(m->pages[drive], 0, &headers[drive]);
        check_flaw(flaw);
        good = good && !flaw.error;
        if (flaw.error)
            continue;
        const struct store_header *h = &headers[drive];
        store_header_encode(h, 0, again);
        /* A minor version says only that there is more to know. */
        memcpy(again + 14, m->pages[drive] + 14, 2);
        seal(again, 0);
        MUST(memcmp(again, m->pages[drive], sizeof again) == 0);
        const uint64_t end = store_file_bytes(h);
        MUST(end > 0 && end <= INT64_MAX && store_header_at(h, 1) + STORE_PAGE_BYTES == end);
        MUST(store_derived_at(h) + h->derived_bytes <= end);
    }
    /* As an open does: the files of one store. */
    return good && headers[0].drive == 0 && headers[1].drive == 1 && headers[0].drives == DRIVES &&
           headers[1].drives == DRIVES && headers[0].manifest_bytes <= 1u << 20;
}

static bool read_superblock(const struct image *m, const struct store_header *header,
                            struct store_superblock *newest)
{
    struct store_superblocks all;
    bool trusted;
    for (unsigned slot = 0; slot < 2; slot++) {
        const unsigned char *page = m->pages[SUPERBLOCK_0 + slot];
        struct store_superblock *read = &all.read[slot][0];
        all.flaw[slot][0] = store_superblock_decode(page, slot, 0, header, read);
        all.flaw[slot][1] = (struct store_flaw){-1, "no copy"};
        check_flaw(all.flaw[slot][0]);
        if (all.flaw[slot][0].error == 0)
            MUST(read->cur.bytes <= header->manifest_bytes && read->cur.slot <= 1);
    }
    return store_choose_superblock(&all, newest, &trusted);
}

static void check_entries(const unsigned char *manifest, const struct store_header *headers)
{
    for (uint32_t i = 0; i < headers[0].extents; i++) {
        struct store_entry e, other;
        store_entry_get(manifest, i, &e);
        MUST(e.drive < DRIVES && e.offset >= store_data_at(&headers[e.drive]));
        MUST(e.first_block + store_blocks_of(e.bytes) <= headers[0].blocks);
        const uint64_t end =
            e.offset + e.bytes + (store_entry_has_one_slot(&e) ? 0 : headers[e.drive].slot_bytes);
        MUST(end <= store_derived_at(&headers[e.drive]) + headers[e.drive].derived_bytes);
        for (uint32_t j = 0; j < i; j++) {
            store_entry_get(manifest, j, &other);
            MUST(e.drive != other.drive || e.offset >= other.offset + other.bytes ||
                 other.offset >= e.offset + e.bytes);
        }
    }
}

/* In a block of its own size, so that a read beyond it is seen. */
static bool read_manifest(const struct image *m, const struct store_header *headers,
                          struct store_ref *ref)
{
    unsigned char *bytes = calloc(1, ref->bytes);
    MUST(bytes);
    memcpy(bytes, m->manifest, ref->bytes < m->manifest_bytes ? ref->bytes : m->manifest_bytes);
    if (m->sealed[MANIFEST])
        ref->digest = store_digest(bytes, ref->bytes);
    struct store_manifest manifest;
    const struct store_flaw flaw = store_manifest_decode(bytes, ref, headers, &manifest);
    check_flaw(flaw);
    if (flaw.error == 0)
        check_entries(bytes, headers);
    free(bytes);
    return flaw.error == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct image m = {.sealed = {true, true, true, true, true}, .fixed = size % CHANGE_BYTES == 1};
    make_good(&m);
    for (size_t at = 0; at + CHANGE_BYTES <= size; at += CHANGE_BYTES)
        change(&m, data + at);
    for (unsigned page = 0; page < MANIFEST; page++)
        if (m.sealed[page])
            seal(m.pages[page], page == SUPERBLOCK_1);
    struct store_header headers[DRIVES];
    struct store_superblock newest;
    const bool good = read_headers(&m, headers) && read_superblock(&m, &headers[0], &newest) &&
                      read_manifest(&m, headers, &newest.cur);
    MUST(good || size >= CHANGE_BYTES); /* what nothing has changed is accepted */
    free(m.manifest);
    return 0;
}
