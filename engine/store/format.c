/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File headers and superblocks. A header holds sizes alone and every offset follows from them, so
 * that there is no offset to be wrong; a superblock points at manifests by slot.
 */
#include "plan/layout/layout.h"
#include "store/bytes.h"

#include <errno.h>
#include <xxhash.h>

#define ENDIAN_MARK 0x01020304u

const struct page_kind PAGE_HEADER = {"HSTSTORE", "no file of a store"};
const struct page_kind PAGE_SUPERBLOCK = {"HSTSUPER", "no superblock"};
const struct page_kind PAGE_MANIFEST = {"HSTMANIF", "no manifest"};
const struct page_kind PAGE_ROOM = {"HSTROOMS", "no room of a store"};

/* ---- pages ---- */

void page_begin(unsigned char *page, const struct page_kind *kind)
{
    memset(page, 0, STORE_PAGE_BYTES);
    memcpy(page, kind->magic, sizeof kind->magic);
    put_u32(page + 8, ENDIAN_MARK);
    put_u16(page + 12, STORE_MAJOR);
    put_u16(page + 14, STORE_MINOR);
}

struct store_flaw page_check(const unsigned char *page, const struct page_kind *kind)
{
    if (memcmp(page, kind->magic, sizeof kind->magic) != 0)
        return flaw(-ENOENT, kind->stranger);
    if (get_u32(page + 8) == __builtin_bswap32(ENDIAN_MARK))
        return flaw(-ENOTSUP, "it was written in the other byte order");
    if (get_u32(page + 8) != ENDIAN_MARK)
        return flaw(-EINVAL, "its mark of the byte order is damaged");
    if (get_u16(page + 12) != STORE_MAJOR)
        return flaw(-ENOTSUP, "its format is of another version");
    return flaw(0, NULL);
}

static struct store_id id_of(XXH128_hash_t hash)
{
    struct store_id id;
    put_u64(id.bytes, hash.low64);
    put_u64(id.bytes + 8, hash.high64);
    return id;
}

/* It covers all but itself: no bit of a page is outside. */
static struct store_id page_checksum(const unsigned char *page, unsigned slot, unsigned copy)
{
    unsigned char bytes[STORE_PAGE_BYTES];
    memcpy(bytes, page, sizeof bytes);
    memset(bytes + 16, 0, 16);
    return id_of(XXH3_128bits_withSeed(bytes, sizeof bytes, slot << 4 | copy));
}

void page_seal(unsigned char *page, unsigned slot, unsigned copy)
{
    struct store_id checksum = page_checksum(page, slot, copy);
    put_id(page + 16, &checksum);
}

struct store_flaw page_verify(const unsigned char *page, const struct page_kind *kind,
                              unsigned slot, unsigned copy)
{
    struct store_flaw found = page_check(page, kind);
    if (found.error)
        return found;
    struct store_id checksum = page_checksum(page, slot, copy), said = get_id(page + 16);
    return store_id_equal(&checksum, &said) ? flaw(0, NULL) : flaw(-EBADMSG, "its checksum");
}

/* ---- ids ---- */

bool store_id_equal(const struct store_id *a, const struct store_id *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

struct store_id store_digest(const void *bytes, uint64_t count)
{
    return id_of(XXH3_128bits(bytes, count));
}

struct store_id store_commit_id(const struct store_id *before, const struct store_id *incarnation,
                                uint64_t version, uint64_t step)
{
    unsigned char bytes[48];
    put_id(bytes, before);
    put_id(bytes + 16, incarnation);
    put_u64(bytes + 32, version);
    put_u64(bytes + 40, step);
    return store_digest(bytes, sizeof bytes);
}

/* ---- sizes and offsets ---- */

static bool add(uint64_t *sum, uint64_t count, uint64_t each)
{
    uint64_t product;
    return !__builtin_mul_overflow(count, each, &product) &&
           !__builtin_add_overflow(*sum, product, sum);
}

static bool round_up(uint64_t *bytes, uint64_t multiple)
{
    if (!add(bytes, 1, multiple - 1))
        return false;
    *bytes -= *bytes % multiple;
    return true;
}

#define CURSOR_ROOM (STORE_CURSOR_MAX + STORE_PAGE_BYTES) /* the client's, and the engine's */

uint64_t store_manifest_room(uint32_t extents, uint64_t blocks, uint32_t align_bytes)
{
    uint64_t bytes = STORE_PAGE_BYTES + CURSOR_ROOM;
    bool fits = add(&bytes, extents, 32) && add(&bytes, blocks, 8) && round_up(&bytes, align_bytes);
    return fits ? bytes : 0;
}

/* Before the data: header, and superblocks and manifests where this drive has them. */
static uint64_t head_bytes(const struct store_header *h)
{
    return h->drive == 0 ? UINT64_C(3) * h->align_bytes + 2 * h->manifest_bytes : h->align_bytes;
}

uint64_t store_file_bytes(const struct store_header *h)
{
    uint64_t bytes = 0;
    bool fits = add(&bytes, h->drive == 0 ? 6 : 2, h->align_bytes) &&
                add(&bytes, h->drive == 0 ? 4 : 0, h->manifest_bytes) &&
                add(&bytes, 2, h->slot_bytes) && add(&bytes, 1, h->derived_bytes);
    return fits && bytes <= INT64_MAX ? bytes : 0;
}

uint64_t store_data_at(const struct store_header *h)
{
    return head_bytes(h);
}

uint64_t store_derived_at(const struct store_header *h)
{
    return head_bytes(h) + 2 * h->slot_bytes;
}

static uint64_t tail_at(const struct store_header *h)
{
    return store_derived_at(h) + h->derived_bytes;
}

uint64_t store_header_at(const struct store_header *h, unsigned copy)
{
    return copy == 0 ? 0 : store_file_bytes(h) - STORE_PAGE_BYTES;
}

uint64_t store_superblock_at(const struct store_header *h, unsigned slot, unsigned copy)
{
    uint64_t first = copy == 0 ? h->align_bytes : tail_at(h) + 2 * h->manifest_bytes;
    return first + slot * (uint64_t)h->align_bytes;
}

uint64_t store_manifest_at(const struct store_header *h, unsigned slot, unsigned copy)
{
    uint64_t first = copy == 0 ? UINT64_C(3) * h->align_bytes : tail_at(h);
    return first + slot * h->manifest_bytes;
}

/* ---- file header ---- */

#define HEADER_END 128u

/* A reader must know: ranks have shards of blocks (plan/layout/share.h). Without it the ranks of a
   store have whole tiles of the model, which only `ckpt reshard` of older versions made. */
#define FEATURE_SHARDS 1u
/* A reader must know: slices of a unit are units of their own, of which ranks have shards. */
#define FEATURE_SLICES 2u
/* A reader must know: extents of frozen tiles have one slot, and records of no bytes. */
#define FEATURE_FIXED 4u

static uint32_t features_of(const struct store_header *h)
{
    return (h->world > 1 ? FEATURE_SHARDS : 0) | (h->slices ? FEATURE_SLICES : 0) |
           (h->fixed ? FEATURE_FIXED : 0);
}

void store_header_encode(const struct store_header *h, unsigned copy, unsigned char *page)
{
    page_begin(page, &PAGE_HEADER);
    put_id(page + 32, &h->uuid);
    put_u32(page + 48, h->rank);
    put_u32(page + 52, h->world);
    put_u32(page + 56, h->drive);
    put_u32(page + 60, h->drives);
    put_u32(page + 64, features_of(h));
    put_u32(page + 68, h->align_bytes);
    put_u32(page + 72, STORE_BLOCK_BYTES);
    put_u32(page + 76, h->extents);
    put_u64(page + 80, h->blocks);
    put_u64(page + 88, h->manifest_bytes);
    put_u64(page + 96, h->slot_bytes);
    put_u64(page + 104, h->derived_bytes);
    put_u64(page + 112, store_file_bytes(h));
    put_u64(page + 120, h->tile_elements);
    page_seal(page, 0, copy);
}

static struct store_flaw check_header(const unsigned char *page, const struct store_header *h)
{
    if (h->rank >= h->world)
        return flaw(-EINVAL, "its rank is not below its world size");
    if (get_u32(page + 64) == 0 && features_of(h))
        return flaw(-ENOTSUP, "its ranks have whole tiles, and are made one (ckpt reshard --world "
                              "1) by the version that wrote it alone");
    if (get_u32(page + 64) != features_of(h))
        return flaw(-ENOTSUP, "it uses a feature that this version does not know");
    if (h->drives == 0 || h->drives > STRIPE_DRIVES_MAX || h->drive >= h->drives)
        return flaw(-EINVAL, "its number of drives");
    if (h->align_bytes < STORE_PAGE_BYTES || h->align_bytes > STORE_ALIGN_MAX ||
        (h->align_bytes & (h->align_bytes - 1)))
        return flaw(-EINVAL, "its alignment");
    if (get_u32(page + 72) != STORE_BLOCK_BYTES)
        return flaw(-EINVAL, "its block size");
    if (h->extents == 0 ? h->world == 1 || h->blocks > 0 : h->extents % STORE_KINDS > 0)
        return flaw(-EINVAL, "its number of extents");
    if (h->blocks < h->extents / (h->fixed ? STORE_KINDS : 1) || h->blocks > UINT32_MAX ||
        h->manifest_bytes == 0 ||
        h->manifest_bytes != store_manifest_room(h->extents, h->blocks, h->align_bytes))
        return flaw(-EINVAL, "the size of its manifests");
    if (h->slot_bytes % h->align_bytes || h->derived_bytes % h->align_bytes)
        return flaw(-EINVAL, "the size of its zones");
    uint64_t file_bytes = store_file_bytes(h);
    if (file_bytes == 0 || file_bytes != get_u64(page + 112))
        return flaw(-EINVAL, "its file size");
    if (h->tile_elements == 0 || h->tile_elements > UINT32_MAX ||
        h->tile_elements % LAYOUT_UNIT_ALIGN)
        return flaw(-EINVAL, "its elements per tile");
    if (!is_zero(page + HEADER_END, STORE_PAGE_BYTES - HEADER_END))
        return flaw(-EINVAL, "bytes behind its fields are not zero");
    return flaw(0, NULL);
}

struct store_flaw store_header_decode(const unsigned char *page, unsigned copy,
                                      struct store_header *header)
{
    struct store_flaw found = page_verify(page, &PAGE_HEADER, 0, copy);
    if (found.error)
        return found;
    const struct store_header h = {
        .uuid = get_id(page + 32),
        .rank = get_u32(page + 48),
        .world = get_u32(page + 52),
        .drive = get_u32(page + 56),
        .drives = get_u32(page + 60),
        .align_bytes = get_u32(page + 68),
        .extents = get_u32(page + 76),
        .blocks = get_u64(page + 80),
        .manifest_bytes = get_u64(page + 88),
        .slot_bytes = get_u64(page + 96),
        .derived_bytes = get_u64(page + 104),
        .tile_elements = get_u64(page + 120),
        .slices = (get_u32(page + 64) & FEATURE_SLICES) != 0,
        .fixed = (get_u32(page + 64) & FEATURE_FIXED) != 0,
    };
    found = check_header(page, &h);
    if (found.error == 0)
        *header = h;
    return found;
}

/* ---- superblock ---- */

#define REF_BYTES      64u
#define SUPERBLOCK_END 224u

static void put_ref(unsigned char *at, const struct store_ref *ref)
{
    put_u64(at, ref->version);
    put_u64(at + 8, ref->step);
    put_id(at + 16, &ref->commit_id);
    put_u32(at + 32, ref->slot);
    put_u64(at + 40, ref->bytes);
    put_id(at + 48, &ref->digest);
}

static struct store_ref get_ref(const unsigned char *at)
{
    return (struct store_ref){
        .version = get_u64(at),
        .step = get_u64(at + 8),
        .commit_id = get_id(at + 16),
        .slot = get_u32(at + 32),
        .bytes = get_u64(at + 40),
        .digest = get_id(at + 48),
    };
}

void store_superblock_encode(const struct store_superblock *s, unsigned copy, unsigned char *page)
{
    page_begin(page, &PAGE_SUPERBLOCK);
    put_id(page + 32, &s->uuid);
    put_u32(page + 48, s->rank);
    put_u32(page + 52, s->world);
    put_u64(page + 56, s->seq);
    put_id(page + 64, &s->incarnation);
    put_u32(page + 80, s->state);
    put_u64(page + 88, s->written_bytes);
    put_ref(page + 96, &s->cur);
    put_ref(page + 96 + REF_BYTES, &s->prev);
    page_seal(page, s->seq & 1, copy);
}

static bool ref_is_possible(const unsigned char *at, const struct store_header *header)
{
    const struct store_ref ref = get_ref(at);
    return ref.slot <= 1 && get_u32(at + 36) == 0 && ref.bytes % STORE_PAGE_BYTES == 0 &&
           ref.bytes > STORE_PAGE_BYTES && ref.bytes <= header->manifest_bytes;
}

static struct store_flaw check_superblock(const unsigned char *page, unsigned slot,
                                          const struct store_header *header,
                                          const struct store_superblock *s)
{
    const unsigned char *prev = page + 96 + REF_BYTES;
    if (!store_id_equal(&s->uuid, &header->uuid))
        return flaw(-EINVAL, "it is of another store");
    if (s->rank != header->rank || s->world != header->world)
        return flaw(-EINVAL, "it is of another rank");
    if ((s->seq & 1) != slot || s->seq > INT64_MAX) /* there are always more */
        return flaw(-EINVAL, "its sequence number");
    if (s->state != STORE_CLEAN && s->state != STORE_OPEN)
        return flaw(-EINVAL, "its state");
    if (s->cur.version > INT64_MAX || !ref_is_possible(page + 96, header))
        return flaw(-EINVAL, "the version it names");
    if (s->prev.version == STORE_NO_VERSION
            ? !is_zero(prev + 8, REF_BYTES - 8)
            : s->prev.version >= s->cur.version || s->prev.slot == s->cur.slot ||
                  !ref_is_possible(prev, header))
        return flaw(-EINVAL, "the version before, that it names");
    if (get_u32(page + 84) != 0 ||
        !is_zero(page + SUPERBLOCK_END, STORE_PAGE_BYTES - SUPERBLOCK_END))
        return flaw(-EINVAL, "bytes beside its fields are not zero");
    return flaw(0, NULL);
}

struct store_flaw store_superblock_decode(const unsigned char *page, unsigned slot, unsigned copy,
                                          const struct store_header *header,
                                          struct store_superblock *superblock)
{
    struct store_flaw found = page_verify(page, &PAGE_SUPERBLOCK, slot, copy);
    if (found.error)
        return found;
    const struct store_superblock s = {
        .uuid = get_id(page + 32),
        .rank = get_u32(page + 48),
        .world = get_u32(page + 52),
        .seq = get_u64(page + 56),
        .incarnation = get_id(page + 64),
        .state = get_u32(page + 80),
        .written_bytes = get_u64(page + 88),
        .cur = get_ref(page + 96),
        .prev = get_ref(page + 96 + REF_BYTES),
    };
    found = check_superblock(page, slot, header, &s);
    if (found.error == 0)
        *superblock = s;
    return found;
}
