/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STORE_FORMAT_H
#define HOISTWAY_ENGINE_STORE_FORMAT_H
/*
 * The bytes of a store's files: file header, superblock, manifest. Pure: encodes, decodes, and
 * refuses every value that would not have been written, whatever its checksum says.
 *
 * Numbers are little-endian. Each page begins with the same 32 bytes: magic[8], endian mark u32,
 * major u16, minor u16, XXH3-128 of all else in the page (zero in a manifest, whose digest is in
 * the superblock). Its seed names kind, slot and copy, so that a page in another one's place is not
 * taken for it.
 *
 * A file (metadata on drive 0 only; `align` between the parts that a torn write should not share):
 *
 *   header | superblocks 0, 1 | manifests 0, 1 | data of slot 0 | of slot 1 | derived and fixed
 *          | manifests 0, 1, superblocks 0, 1, header once more; the header in the last 4 KiB
 */
#include "plan/layout/stripe.h"

#include <hoistway/aio.h>

#define STORE_PAGE_BYTES   4096u
#define STORE_BLOCK_BYTES  HST_AIO_HASH_BYTES
#define STORE_ALIGN_MAX    (2u << 20)
#define STORE_CURSOR_MAX   (64u << 10) /* bytes of the client's cursor */
#define STORE_NO_VERSION   UINT64_MAX
#define STORE_MAJOR        1u
#define STORE_MINOR        0u
/* Extents have two kinds: weights and states. An extent's number is kind·tiles + tile. */
#define STORE_KINDS        2u

struct store_id {
    unsigned char bytes[16];
};

/* It says what is wrong with bytes that were read: a negative errno and a few words.
     -ENOENT    no such page was ever written here: another magic
     -ENOTSUP   a byte order, version or feature that this code does not know
     -EBADMSG   a checksum
     -EINVAL    a value that cannot be */
struct store_flaw {
    int error; /* 0: none */
    const char *what;
};

/* ---- file header: written once -------------------------------------------------------------- */

struct store_header {
    struct store_id uuid;
    uint32_t rank, world;
    uint32_t drive, drives;
    uint32_t align_bytes;          /* of the parts: a power of two, 4 KiB to STORE_ALIGN_MAX */
    uint32_t extents;              /* in the manifest, of all drives */
    uint64_t blocks;               /* hashes in the manifest */
    uint64_t manifest_bytes;       /* room for one; the same in all files of a store */
    uint64_t slot_bytes;           /* of this drive's extents in one slot */
    uint64_t derived_bytes;        /* of those that have only one: derived ones, and fixed ones */
    uint64_t tile_elements;        /* of a whole tile; a unit's last one may be shorter */
    bool slices;                   /* its units may be slices: plan/layout/layout.h */
    bool fixed;                    /* it may have extents that are written once */
};

/* Pages are STORE_PAGE_BYTES. */
void store_header_encode(const struct store_header *header, unsigned copy,
                         unsigned char *page);
struct store_flaw store_header_decode(const unsigned char *page, unsigned copy,
                                      struct store_header *header);

/** Room for a manifest; 0: too large. */
uint64_t store_manifest_room(uint32_t extents, uint64_t blocks, uint32_t align_bytes);
/** The whole file; 0: too large. The offsets below hold where this is not 0. */
uint64_t store_file_bytes(const struct store_header *header);
uint64_t store_header_at(const struct store_header *header, unsigned copy);
uint64_t store_superblock_at(const struct store_header *header, unsigned slot, unsigned copy);
uint64_t store_manifest_at(const struct store_header *header, unsigned slot, unsigned copy);
uint64_t store_data_at(const struct store_header *header); /* of slot 0; 1 is behind it */
uint64_t store_derived_at(const struct store_header *header);

/* ---- superblock ------------------------------------------------------------------------------ */

enum store_state { STORE_CLEAN = 1, STORE_OPEN = 2 };

/* A committed version, as the superblock names it. */
struct store_ref {
    uint64_t version; /* STORE_NO_VERSION: none; the rest is zero then */
    uint64_t step;
    struct store_id commit_id;
    uint32_t slot;    /* of its manifest */
    uint64_t bytes;   /* of its manifest */
    struct store_id digest;
};

struct store_superblock {
    struct store_id uuid;
    uint32_t rank, world;
    uint64_t seq;      /* rises by one with each; seq & 1 is its slot */
    struct store_id incarnation; /* of the open that wrote it */
    uint32_t state;
    struct store_ref cur, prev;
    uint64_t written_bytes; /* in the store's life: what endurance is judged by */
};

void store_superblock_encode(const struct store_superblock *superblock, unsigned copy,
                             unsigned char *page);
/** `header`: of the drive that it was read from. */
struct store_flaw store_superblock_decode(const unsigned char *page, unsigned slot,
                                          unsigned copy, const struct store_header *header,
                                          struct store_superblock *superblock);

struct store_id store_digest(const void *bytes, uint64_t count); /* XXH3-128 */
/** Equal only where run, version and step, and those of all versions before, are. */
struct store_id store_commit_id(const struct store_id *before, const struct store_id *incarnation,
                                uint64_t version, uint64_t step);
bool store_id_equal(const struct store_id *a, const struct store_id *b);

/* ---- manifest ---------------------------------------------------------------------------------
 *
 * page | entry (32 B) of each extent | XXH3-64 of each block | cursor, to the end of its page
 *
 * In memory the same bytes: entries and hashes are worked on where they will be written from.
 */

enum store_flag {
    STORE_ZERO = 1u << 0,    /* never written: reads as zeros, no drive is asked */
    STORE_DERIVED = 1u << 1, /* has one slot and no bytes in a version: rebuilt after an open */
    STORE_UNIT = 1u << 2,    /* the first tile of a unit, or of such a slice: on rank 0 alone */
    /* A tile may be frozen: its weights have one slot, that version 0 alone writes, and its
       states no bytes. */
    STORE_FIXED = 1u << 3,
    /* in memory only: a write is in flight. No manifest is written while there is any */
    STORE_WRITING = 1u << 7,
};

struct store_entry {
    uint32_t tile; /* its number among those of all ranks (layout_number_of_all) */
    uint8_t kind, drive, slot, flags;
    uint64_t offset;  /* in the drive's file, in slot 0; slot 1 is slot_bytes behind */
    uint32_t bytes;
    uint32_t first_block; /* its first hash */
    uint64_t version; /* that it was written in */
};

/* It says where training stands: what a resumed run goes on from. */
struct store_cursor {
    uint64_t step;       /* optimizer steps, skipped ones included */
    uint64_t updates;    /* Adam's t */
    float loss_scale;
    uint32_t good_steps; /* since the scale changed */
    const void *opaque;  /* the client's; of a decoded one: in the manifest */
    uint32_t opaque_bytes;
};

struct store_manifest {
    struct store_id uuid, commit_id, incarnation;
    uint32_t rank, world;
    uint64_t version;
    struct store_cursor cursor;
};

/** It lies in the zone behind both slots. */
static inline bool store_entry_has_one_slot(const struct store_entry *entry)
{
    return (entry->flags & (STORE_DERIVED | STORE_FIXED)) != 0;
}

#define STORE_ENTRIES_AT STORE_PAGE_BYTES
uint64_t store_hashes_at(uint32_t extents); /* bytes from the manifest's start; a multiple of 8 */
void store_entry_get(const unsigned char *manifest, uint32_t extent, struct store_entry *entry);
void store_entry_put(unsigned char *manifest, uint32_t extent, const struct store_entry *entry);
static inline uint64_t store_blocks_of(uint64_t bytes)
{
    return (bytes + STORE_BLOCK_BYTES - 1) / STORE_BLOCK_BYTES;
}

/**
 * Writes page and cursor around the entries and hashes that are there. `header`: drive 0's. Returns
 * the manifest's bytes, whole pages.
 */
uint64_t store_manifest_encode(const struct store_manifest *manifest,
                               const struct store_header *header, unsigned char *bytes);
/**
 * Checks the manifest that `ref` names: its digest, then every value. Extents must lie behind one
 * another in their drive's zones, in order: no two can overlap. `bytes` has room for
 * ref->bytes, which store_superblock_decode has checked. headers: [drives].
 */
struct store_flaw store_manifest_decode(const unsigned char *bytes, const struct store_ref *ref,
                                        const struct store_header *headers,
                                        struct store_manifest *manifest);

#endif
