/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_RECUT_H
#define HOISTWAY_ENGINE_RECUT_H
/*
 * Elements of tiles that were cut in one way, put together as the tiles of another: those of a
 * rank. They come in the order of the rank's elements, from tiles that may begin before its own and
 * end behind them; each tile of the rank is written once, when its last element has come. The two
 * layouts are of one model, whose large units either may have in slices.
 */
#include "ckpt/ckpt.h"

/* It holds tiles of one kind. While one tile is written the next is put together. */
struct recut_lane {
    uint32_t next;       /* the rank's tile that is put together */
    uint64_t elements;   /* of it, that have come */
    bool holds_bytes;    /* any of them was ever written: else it reads as zeros without */
    unsigned char *bytes[2];
    struct transfer write[2];
    unsigned at; /* which of the two */
};

struct recut {
    const struct layout *layout; /* sealed for the rank */
    const struct layout *from;   /* sealed: of what comes */
    const struct optimizer *optimizer;
    struct extents *extents; /* where the rank's tiles are written */
    unsigned char *memory;
    uint64_t memory_bytes;
    struct recut_lane lanes[STORE_KINDS];
};

/** layout, from, extents: borrowed until recut_close. Errors: -ENOMEM. */
int recut_open(struct recut *recut, const struct layout *layout, const struct layout *from,
               const struct optimizer *optimizer, struct extents *extents);
/**
 * Takes what the rank has of a tile; its range is one of `from`. `zero`: it was never written, and
 * `bytes` are zeros. `bytes` are not needed any more when it returns. Errors: the extents', of a
 * write that it waited for.
 */
int recut_take(struct recut *recut, enum extent_kind kind, struct tile_range range,
               const unsigned char *bytes, bool zero);
/** Waits for what is being written. Returns its error. */
int recut_close(struct recut *recut);

#endif
