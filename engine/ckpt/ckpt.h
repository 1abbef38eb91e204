/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_CKPT_H
#define HOISTWAY_ENGINE_CKPT_H
/* This header says what a handle of <hoistway/ckpt.h> holds, for the files of this folder. */
#include "plan/placement/placement.h"
#include "store/kept_name.h"
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

/* A store whose files several processes find, each some of them. All of them open it together, and
 * read it together. */
struct ckpt_shares {
    uint32_t world, drives;
    uint32_t processes, process;
    uint32_t node; /* of this process. Of reshard alone */
    /* [world]: the directories of a rank's files, [drives]; null: others have them */
    const struct store_directory *const *directories;
    const unsigned char *seen; /* [processes · world]: 1: the process has the rank's files */
    uint32_t writer;           /* the process that visits all where one does */
    bool hold;                 /* see hst_ckpt_config */
    uint64_t below;            /* the version is one before this one; 0: the last */
    uint32_t replica;          /* see hst_ckpt_config; of a world of one */
    /* memory ← that of a process, for all of them. Its errors are what opening and reading return,
       *error untouched. */
    int (*take)(void *context, uint32_t process, void *memory, size_t bytes);
    /* all[processes · bytes] ← each one's own. As take. Of verify and reshard
       alone. */
    int (*share)(void *context, const void *own, void *all, size_t bytes);
    /* rc, *error ← those of the first process for which rc is not 0, on all of them: none goes on
       before all are here. Null: what fails on one ends all. */
    int (*agree)(void *context, int rc, struct hst_error *error);
    /* text ← the directories that `store` means for this process. Errors: -EINVAL. Of reshard alone
     */
    int (*fill)(void *context, const char *store, char *text, size_t bytes,
                struct hst_error *error);
    /* text ← a directory of this process's, as the others are told of it. Of verify alone. */
    void (*name)(void *context, const char *directory, char *text, size_t bytes);
    void *context;
    void (*release)(struct ckpt_shares *shares); /* with the handle; null: the caller's */
};

struct hst_ckpt {
    char *paths[STRIPE_DRIVES_MAX]; /* of the directories */
    struct store_directory directories[STRIPE_DRIVES_MAX];
    uint32_t drives, world;
    uint32_t replica; /* see hst_ckpt_config */
    bool held, kept;
    bool stepped_back; /* some rank's newest version has no whole manifest: this is an older one */
    uint64_t damaged_step; /* that of the newest, then */
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
    struct ckpt_shares *shares; /* null: all files are here */
};

/** Opens the last version of such a store, as hst_ckpt_open does. store: for messages, and whose
 * directories are read by what their drives can. shares: borrowed until the handle is closed, which
 * releases it; the caller's after an error. Errors: hst_ckpt_open's; take's. */
int ckpt_open_shares(struct ckpt_shares *shares, const char *store, enum hst_io io,
                     struct hst_ckpt **ckpt, struct hst_error *error);

/** The files of its ranks are here. */
static inline bool ckpt_is_here(const struct hst_ckpt *ckpt, uint32_t rank)
{
    return !ckpt->shares || ckpt->shares->directories[rank];
}
/** Chooses the version that all ranks have, and loads the manifests that are here. Errors: E613,
 * look_load's. */
int ckpt_load_version(struct hst_ckpt *ckpt, struct hst_error *error);
/** Opens the files that are here; has what is told of all others, too, with the version loaded.
 * shares.c. Errors: hst_ckpt_open's; take's. */
int ckpt_look_at_shares(struct hst_ckpt *ckpt, struct hst_error *error);
/** Of a handle of several processes: all go on, or none. rc, *error: this one's, and then those of
 * the first that has any. shares.c. */
int ckpt_agree(const struct hst_ckpt *ckpt, int rc, struct hst_error *error);

/** There is no copy of that step, and the last version will not do. Returns -ENOENT (E617). */
int ckpt_refuse_no_copy(const char *store, uint64_t step, struct hst_error *error);

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

/* Who visits what of a handle that several processes have. */
enum ckpt_readers {
    CKPT_EACH_ITS_SHARE, /* `share`, whose rank is its number where there is such a rank */
    CKPT_WRITER_ALL,     /* one of them all, the others nothing */
    CKPT_EACH_ITS_FILES, /* what it finds, and each file once */
};

struct ckpt_reading {
    struct share share;   /* the tiles that hold any element of this shard; SHARE_ALL: all */
    const struct layout *layout; /* whose units have these shards; null: the handle's */
    enum ckpt_readers readers;
    bool weights, states; /* which kinds; what is derived is left out */
    uint64_t piece_bytes; /* whole blocks: how much is visited at once; 0: a whole extent */
    uint32_t depth;       /* extents on their way at once; 0: as many as serve */
    /* What is damaged comes to the others all the same: the visit notes it on who has read it, and
       they all ask before they use any of it. */
    bool damaged_come;
    ckpt_visit *visit;
    void *context;
    const struct hst_ckpt_watch *watch; /* or null */
};

/** The bytes that it reads. Cost: O(tiles). */
uint64_t ckpt_reading_bytes(const struct hst_ckpt *ckpt, const struct ckpt_reading *reading);
/**
 * Visits tiles in the order of the model, weights before states. A handle that holds the store.
 * Of one that several processes have open each visits what reading.readers says; what it does not
 * find comes from one that does.
 * Errors, with *error but for what a visit returned: -EINVAL it does not; the backend's; -ENOMEM;
 * -ECANCELED the watch's wish.
 */
int ckpt_read(const struct hst_ckpt *ckpt, const struct ckpt_reading *reading,
              struct hst_error *error);
/** The process that reads a rank's files where each reads its own: of those that find them, by
 * turns. */
uint32_t ckpt_reader_of_rank(const struct ckpt_shares *shares, uint32_t rank);
/** The version is damaged where it was read for its bytes. Returns part->error. */
int ckpt_refuse_part(const struct ckpt_part *part, struct hst_error *error);

/* ---- save.c, own.c: a rank's own tiles ---------------------------------------------------- */

/** Tile `tile` of the handle: its weights, or their masters. Other than 0 ends the reading. */
typedef int ckpt_take(void *context, uint32_t tile, const void *values);
/** As hst_ckpt_save and hst_ckpt_save_masters, tile by tile. A handle that holds the store. */
int ckpt_save_tiles(struct hst_ckpt *ckpt, bool masters, ckpt_take *take, void *context,
                    struct hst_error *error);

/* This is what a rank knows of a kept copy of its store. */
struct ckpt_own {
    const char *const *paths; /* [drives], the store's directories */
    uint32_t drives;
    uint64_t step;               /* of the copy */
    uint32_t rank;               /* of the files: the layout's, or a replica's number */
    const struct layout *layout; /* sealed, with the rank's share */
    enum hst_precision precision;
    const struct optimizer *optimizer;
};
/** Gives the rank's own tiles of the copy, in their order, without the files of other ranks.
 * Errors, with *error but for what `take` returned: -ENOENT there is no such copy (E617);
 * look_open's; -EINVAL it is cut in another way (E612); those of hst_ckpt_save. */
int ckpt_own_save(const struct ckpt_own *own, bool masters, ckpt_take *take, void *context,
                  struct hst_error *error);
/** It says whether there is such a copy, cut as the layout is. */
bool ckpt_own_is_there(const struct ckpt_own *own);

/* ---- kept.c ---------------------------------------------------------------------------------- */

/** It tells whether the first of a store's directories is a copy that the store around it keeps. */
bool kept_is_copy(const char *store);
/** The directories of a store's copy of that step, between commas as the store's are. The caller's
 * to free; null: no memory. */
char *kept_directories(const char *store, uint64_t step);

/* ---- ckpt.c ---------------------------------------------------------------------------------- */

/** Splits "a,b" into copies. Returns how many; -ENOMEM, -EINVAL none or too many. */
int ckpt_split(const char *store, char *paths[STRIPE_DRIVES_MAX]);

#endif
