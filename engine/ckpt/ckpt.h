/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_CKPT_H
#define HOISTWAY_ENGINE_CKPT_H
/* This header says what a handle of <hoistway/ckpt.h> holds, for the files of this folder. */
#include "plan/placement/placement.h"
#include "store/look.h"
#include "tier/extent.h"

#include <hoistway/ckpt.h>

#define CKPT_RANKS_MAX      4096u
#define CKPT_SETTINGS_BYTES 4096u

/* A tile of some rank: which of its tiles, and which elements. */
struct ckpt_tile {
    uint32_t rank, index;
    struct tile_range range;
};

struct hst_ckpt {
    char *paths[STRIPE_DRIVES_MAX]; /* of the directories */
    struct store_directory directories[STRIPE_DRIVES_MAX];
    uint32_t drives, world;
    bool held, kept;
    enum hst_io io;
    struct look *looks; /* [world]; each with the manifest of the version */
    /* The model as far as the files tell: units without names and parameters, sealed for one rank.
     */
    struct layout layout;
    struct ckpt_tile *tiles; /* [tile_count], of all ranks, as layout_number_of_all counts them */
    uint32_t tile_count;
    bool derived_weights;    /* they have no bytes in the version */
    enum hst_precision precision;
    enum hst_state state;
    const struct optimizer *optimizer; /* of both */
    char settings[CKPT_SETTINGS_BYTES];
    const void *cursor; /* the client's, in a manifest */
    size_t cursor_bytes;
    const struct layout *model; /* sealed, with the same units; null: not known */
};

/** The model of a handle: sealed by the tiles of ckpt->layout, kept by the caller for as long as
 * the handle. Errors: -EINVAL (E615): another one's digest. */
int ckpt_take_model(struct hst_ckpt *ckpt, enum hst_precision precision, const struct layout *model,
                    struct hst_error *error);

/* ---- read.c: all extents of the version, one after another, several on their way ------------- */

struct ckpt_extent {
    uint32_t tile;           /* of ckpt->tiles */
    struct tile_range range; /* its elements */
    enum extent_kind kind;
    const struct look *look; /* of the rank that has it */
    struct store_entry entry;
};

/** The handle's version is loaded. tile < ckpt->tile_count. */
struct ckpt_extent ckpt_extent(const struct hst_ckpt *ckpt, uint32_t tile, enum extent_kind kind);

/* One that has been read, or a piece of it. */
struct ckpt_part {
    struct ckpt_extent extent;
    uint64_t at, size; /* of the extent's bytes: 0 and entry.bytes, but for pieces */
    /* size; zeros where it was never written. The visit may change them */
    unsigned char *bytes;
    int error;            /* 0, or why they are not what was written */
    uint64_t bad_offset, bad_bytes; /* as of struct hst_aio_completion */
};

/* Other than 0 ends the reading, and is what it returns. */
typedef int ckpt_visit(void *context, struct ckpt_part *part);

struct ckpt_reading {
    struct share share;   /* the tiles that hold any element of this shard; SHARE_ALL: all */
    bool weights, states; /* which kinds; what is derived is left out */
    uint64_t piece_bytes; /* whole blocks: how much is visited at once; 0: a whole extent */
    ckpt_visit *visit;
    void *context;
    const struct hst_ckpt_watch *watch; /* or null */
};

/** The bytes that it reads. Cost: O(tiles). */
uint64_t ckpt_reading_bytes(const struct hst_ckpt *ckpt, const struct ckpt_reading *reading);
/**
 * Visits tiles in the order of the model, weights before states. A handle that holds the store.
 * Errors, with *error but for what a visit returned: -EINVAL it does not; the backend's; -ENOMEM;
 * -ECANCELED the watch's wish.
 */
int ckpt_read(const struct hst_ckpt *ckpt, const struct ckpt_reading *reading,
              struct hst_error *error);
/** The version is damaged where it was read for its bytes. Returns part->error. */
int ckpt_refuse_part(const struct ckpt_part *part, struct hst_error *error);

/* ---- kept.c ---------------------------------------------------------------------------------- */

/** The directory of a kept copy, in a directory of the store; "step-120". */
#define KEPT_NAME_BYTES 32u
void kept_name(uint64_t step, char name[KEPT_NAME_BYTES]);
/** False where it is no such name. */
bool kept_parse(const char *name, uint64_t *step);
/** It tells whether the first of a store's directories is a copy that the store around it keeps. */
bool kept_is_copy(const char *store);

/* ---- ckpt.c ---------------------------------------------------------------------------------- */

/** Splits "a,b" into copies. Returns how many; -ENOMEM, -EINVAL none or too many. */
int ckpt_split(const char *store, char *paths[STRIPE_DRIVES_MAX]);

#endif
