/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_CKPT_H
#define HOISTWAY_CKPT_H
/*
 * This header tells what a store holds, without the run that wrote it: its version and the copies
 * that were kept of earlier ones; whether every byte is as it was written; the weights; the same
 * version for another number of ranks. A store that is read here is never written to, not in its
 * superblock either.
 *
 * In order: hst_ckpt_open; hst_ckpt_info, and, as is wished, hst_ckpt_model, hst_ckpt_verify,
 * hst_ckpt_save or hst_ckpt_save_masters, hst_ckpt_reshard; hst_ckpt_close.
 *
 * Errors: 0 or negative errno, and then *error. Thread-safety: a handle belongs to one thread at a
 * time. Memory: 40 B per extent and 8 B per MiB of the version; what reads bytes has some dozen
 * extents beside that, whatever the size of the model.
 */
#include <hoistway/hoistway.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Copies what the client has left with the last version of a store (hst_engine_drain), found as
 * hst_store_ways finds it, for who decides by it how a model that goes on is described.
 * cursor: of `capacity`; as much as fits is written. *cursor_bytes: how many were left, may be 0.
 * Returns false where no version is found, or none can be read. Changes nothing, waits for nobody.
 */
bool hst_store_cursor(const char *store, const struct hst_store_place *place, void *cursor,
                      size_t capacity, size_t *cursor_bytes);

struct hst_ckpt;

struct hst_ckpt_config {
    size_t size;       /* sizeof(struct hst_ckpt_config) */
    const char *store; /* its directories between commas, in the order of their files; copied */
    /* of which step: a kept copy, or the store's last version where there is no copy, or where
       ranks find none that is whole; HST_NO_VERSION: the last version */
    uint64_t step;
    /* no run may begin to write meanwhile: what hst_ckpt_verify and what comes after it there need;
       a store in use is then refused */
    bool hold;
    enum hst_io io;
    /* which of the replicas that ranks of ZeRO stage 0 have left; 0: the first, or none are */
    uint32_t replica;
    bool copy; /* `step` is that of a copy: the store's last version will not do */
};

/**
 * Opens a store for reading. All ranks' files have to be in the directories.
 *
 * Errors: -ENOENT no version was ever committed (E617), or none of that step is there; -EBUSY in
 * use, where it is to be held (E611); -EPERM, -ELOOP not the caller's alone (E610); -ENOTSUP,
 * -EINVAL, -ENODATA, -EBADMSG no store, another format, files that do not belong together, cut, or
 * of which superblocks or manifests are damaged (E612 to E614); the system's; -ENOMEM.
 */
int hst_ckpt_open(const struct hst_ckpt_config *config, struct hst_ckpt **ckpt,
                  struct hst_error *error);
/** Null in *ckpt is accepted; sets it to null. */
void hst_ckpt_close(struct hst_ckpt **ckpt);

struct hst_ckpt_info {
    char uuid[33];          /* of the store, as hexadecimal digits */
    char commit_id[33];     /* equal: the same step of the same run */
    uint64_t version;       /* commits before it */
    uint64_t step, updates; /* of the optimizer; those that were not skipped: Adam's t */
    double loss_scale;
    uint32_t world, drives;
    bool kept;   /* a copy, not the store's last version */
    bool in_use; /* a run has it: what is told here is a moment's */
    bool clean;  /* it was closed in order; else a resumed run reads every byte first */
    bool stepped_back; /* the store's newest version has no whole table: this is an older one */
    uint64_t damaged_step; /* that of the newest, then */
    /* superblocks, manifests and headers that are damaged, with a copy that is not */
    uint32_t damaged_copies;
    uint64_t units, tiles, tile_elements, elements; /* elements: with padding */
    uint64_t weights_bytes, states_bytes; /* of the version; weights that follow from states: 0 */
    uint64_t file_bytes;                  /* of all files: two slots, and tables */
    enum hst_precision precision;
    enum hst_state state;
    /* Lines "name value", each with its newline: what a resumed run must have too. */
    const char *settings;
    /* The client's cursor. Both live as long as the handle. */
    const void *cursor;
    size_t cursor_bytes;
};
void hst_ckpt_info(const struct hst_ckpt *ckpt, struct hst_ckpt_info *info);

/*
 * A store of which several ranks find each some files.
 *
 * Ranks that a launcher has started together, on one node or several, join, open handles, and call
 * what is called of a handle alike and in the same order. verify reads what each finds, and tells
 * all of it to each. The writers of save and save_masters are called on the rank alone that the
 * launcher has numbered 0. reshard makes as many ranks' files as there are, or fewer, each its own
 * in directories whose words are its numbers; it may be killed in each of them until all have
 * theirs.
 */
struct hst_launch;
struct hst_ckpt_ranks;

struct hst_ckpt_ranks_config {
    size_t size;                     /* sizeof(struct hst_ckpt_ranks_config) */
    const struct hst_launch *launch; /* borrowed: this process among several (ranks.h) */
    const char *store; /* as hst_config.store: {rank}, {local} and {node} are any numbers */
    const char *work;  /* what they are to do, which must be the same for all */
    double peer_timeout_s; /* 0: 60 */
    /* other than 0 ends what waits for another rank, with -ECANCELED; may be null */
    int (*stopped)(void *context);
    void *context;
};

/**
 * Joins them and finds the files of all. Errors: E502, E504, E507 of comm; -EINVAL (E503) they
 * differ; -ENOENT (E617) no rank finds a store; -ENODATA, -EINVAL (E613) files of some ranks are
 * found by nobody, or those of two stores; -ENOMEM.
 * Ownership: *ranks is there after an error too, unless it is null: to be left or aborted.
 */
int hst_ckpt_ranks_join(const struct hst_ckpt_ranks_config *config, struct hst_ckpt_ranks **ranks,
                        struct hst_error *error);
/** As hst_ckpt_open, of ranks. config->store is not used; config->replica is one of those that
 * hst_ckpt_ranks_replicas has told last, of the same step. *error names the rank that it is of, and
 * its node. The ranks outlive the handle. */
int hst_ckpt_ranks_open(struct hst_ckpt_ranks *ranks, const struct hst_ckpt_config *config,
                        struct hst_ckpt **ckpt, struct hst_error *error);
/** As hst_ckpt_kept, of ranks: what rank 0's files have beside them. *count: how many. Errors: the
 * transport's. */
int hst_ckpt_ranks_kept(struct hst_ckpt_ranks *ranks, uint64_t *steps, size_t capacity,
                        size_t *count, struct hst_error *error);
/** The same of all files: steps of which any rank finds a copy, or a part of one. Opening it, with
 * config->copy, tells whether it is whole (E613). Errors: the transport's; -ENOMEM. */
int hst_ckpt_ranks_copies(struct hst_ckpt_ranks *ranks, uint64_t *steps, size_t capacity,
                          size_t *count, struct hst_error *error);
/** As hst_ckpt_replicas, of ranks: the numbers that any of them finds. *count: how many. Errors:
 * the transport's; -ENOMEM. */
int hst_ckpt_ranks_replicas(struct hst_ckpt_ranks *ranks, uint64_t step, uint32_t *numbers,
                            size_t capacity, size_t *count, struct hst_error *error);
/** The last error is the same on all of them, and they may go on together. What joins them fills
 * *error where it is empty: the handle's calls leave that to it. */
bool hst_ckpt_ranks_agreed(const struct hst_ckpt_ranks *ranks, int native,
                           struct hst_error *error);
/** Waits for all, and frees. With an error they are still there, to be aborted. Null in *ranks is
 * accepted. Errors: the transport's. */
int hst_ckpt_ranks_leave(struct hst_ckpt_ranks **ranks, struct hst_error *error);
/** Ends all of them and this process, with `status`. */
void hst_ckpt_ranks_abort(struct hst_ckpt_ranks *ranks, int status);

/**
 * The steps of which a store has kept copies, rising.
 *
 * store     its directories; the first is looked at
 * steps     [capacity], written
 *
 * Returns how many there are, of which at most `capacity` were written; 0 where there is no such
 * directory.
 */
size_t hst_ckpt_kept(const char *store, uint64_t *steps, size_t capacity);
/**
 * The numbers of a store's replicas but for the first, rising: ranks of ZeRO stage 0 have all of
 * the model each, in files that only their names tell apart.
 *
 * store     its directories; the first is looked at
 * step      of a kept copy; HST_NO_VERSION: of the store's last version
 * numbers   [capacity], written
 *
 * Returns how many there are, of which at most `capacity` were written.
 */
size_t hst_ckpt_replicas(const char *store, uint64_t step, uint32_t *numbers, size_t capacity);

/**
 * The model whose tensors these are: the units that were added to an engine which is not sealed.
 * hst_ckpt_save and hst_ckpt_save_masters need it; hst_ckpt_verify then names tensors. The engine
 * must outlive the handle's last use, and not be sealed before.
 * Errors: -EINVAL other units, tensors or precision than the store's (E615).
 */
int hst_ckpt_model(struct hst_ckpt *ckpt, struct hst_engine *engine, struct hst_error *error);

/* A place at which a version is not what was written. */
struct hst_ckpt_damage {
    const char *what;         /* "weights", "optimizer states" */
    const char *unit, *param; /* what lies there; null without a model, or in padding */
    uint64_t tile;            /* counted over all ranks */
    uint32_t rank;
    const char *directory, *file;
    uint64_t offset, bytes; /* in that file: a block, or what of it cannot be read */
    int error; /* -EBADMSG other bytes than were written; else why they cannot be read */
};

/* Called while bytes are read; may be null. Other than 0 ends the call with -ECANCELED. */
struct hst_ckpt_watch {
    int (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void (*damage)(void *context, const struct hst_ckpt_damage *damage); /* of verify; or null */
    void *context;
};

/**
 * Reads every byte of the version and compares it with its hash. Damage is told and does not end
 * it. *damaged: how many blocks. A handle that holds the store.
 * Errors: -ECANCELED; -EINVAL it is not held; those of hst_aio_open; -ENOMEM.
 */
int hst_ckpt_verify(struct hst_ckpt *ckpt, const struct hst_ckpt_watch *watch, uint64_t *damaged,
                    struct hst_error *error);

/**
 * Streams the working weights out, as hst_engine_save does after the version's step: the same
 * bytes in the same order. A handle with a model, that holds the store. watch may be null.
 * Errors: those of verify; -EBADMSG, -EIO the version is damaged (E614); the writer's, whose *error
 * is left to it.
 */
int hst_ckpt_save(struct hst_ckpt *ckpt, const struct hst_writer *writer,
                  const struct hst_ckpt_watch *watch, struct hst_error *error);
/** The same of the exact f32 masters, as hst_engine_save_masters gives them. */
int hst_ckpt_save_masters(struct hst_ckpt *ckpt, const struct hst_writer *writer,
                          const struct hst_ckpt_watch *watch, struct hst_error *error);

/**
 * Writes the version as a new store for `world` ranks, all of whose files are then in directories
 * that do not exist or are empty. A rank has its shard of every unit: ceil(B/world) of its B blocks
 * of 4,096 elements. Elements are read, compared with their hashes, and hashed anew in the rank's
 * tiles. Rank 0 is written last: where it is, all are. A handle that holds the store. watch may be
 * null; its total counts a tile once for each rank that reads of it.
 *
 * store   as in hst_config; made where they are missing
 *
 * Errors: those of save; -EEXIST a directory is not empty (E616); -EINVAL more ranks than the
 * largest unit has blocks, a directory that is named twice, of ranks one in the store (E402);
 * -ENOSPC, -EDQUOT. Nothing remains of the new store. Where the process ends meanwhile what remains
 * is marked, and refused by all (E617).
 */
int hst_ckpt_reshard(struct hst_ckpt *ckpt, const char *store, uint32_t world,
                     const struct hst_ckpt_watch *watch, struct hst_error *error);

#ifdef __cplusplus
}
#endif
#endif
