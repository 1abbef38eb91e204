/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_STORE_TOY_H
#define HST_TESTS_STORE_TOY_H
/* A small model on two drives, its store's directories, and the bytes that its extents had in each
 * version. */
#include "store/store.h"

#define TOY_DRIVES   2u
#define TOY_TILES    4u
#define TOY_EXTENTS  (STORE_KINDS * TOY_TILES)
#define TOY_VERSIONS 32u

struct toy {
    char root[64];
    char directories[TOY_DRIVES][80];
    struct layout layout;
    struct placement placement;
    struct hst_aio *aio[TOY_DRIVES];
    struct scratch_drive drives[TOY_DRIVES];
    struct store_config config;
    unsigned char *buffers[TOY_EXTENTS]; /* one for each extent, to write from */
    unsigned char *read;                 /* and one to read into */
    /* what each extent's bytes are made from, in each version; 0: zeros */
    uint64_t stamps[TOY_VERSIONS][TOY_EXTENTS];
    uint64_t last_stamp;
};

/**
 * Makes directories and placement; `drives` of them. The aio contexts are opened by the caller.
 * Returns 0 or negative errno.
 */
int toy_open(struct toy *toy, uint32_t drives);
/** The same, but so many tiles are frozen: the first ones. */
int toy_open_frozen(struct toy *toy, uint32_t drives, uint32_t frozen_tiles);
/** The same of one of several ranks, in directories of its own. */
int toy_open_share(struct toy *toy, uint32_t drives, struct share share);
void toy_close(struct toy *toy); /* removes all files */
void toy_empty(const struct toy *toy); /* removes the files alone */

uint64_t toy_bytes(const struct toy *toy, uint32_t extent);
static inline enum extent_kind toy_kind(uint32_t extent)
{
    return (enum extent_kind)(extent / TOY_TILES);
}
void toy_fill(const struct toy *toy, uint32_t extent, uint64_t stamp, unsigned char *bytes);
bool toy_holds(const struct toy *toy, uint32_t extent, uint64_t stamp, const unsigned char *bytes);

/** Cursor of a version: everything follows from its number. */
struct store_cursor toy_cursor(uint64_t version, char text[32]);
/**
 * Compares cursor and all extents with what the version was. Returns null, or what is wrong.
 * transfer: to read with.
 */
const char *toy_compare(struct toy *toy, struct store *store, uint64_t version);
/** Begins to write an extent's next bytes, of a version. Returns 0 or the error. */
int toy_write(struct toy *toy, struct store *store, uint64_t version, uint32_t extent,
              struct transfer *transfer);
/** Writes every extent of a version, waits, commits it. Returns 0 or the error. */
int toy_commit_all(struct toy *toy, struct store *store, uint64_t version);
/** Begins a commit and waits until it is prepared or fails; ends it. */
int toy_commit(struct store *store, uint64_t version);

static inline uint64_t toy_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
static inline uint64_t toy_below(uint64_t *state, uint64_t limit)
{
    return toy_random(state) % limit;
}

#endif
