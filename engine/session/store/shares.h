/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_STORE_SHARES_H
#define HOISTWAY_ENGINE_SESSION_STORE_SHARES_H
/*
 * Files of a store, looked for before anything of it is opened: each rank's are found wherever
 * --store may mean, so that ranks get the numbers of the files that they find. Nothing is changed
 * before shares_name.
 */
#include "session/engine_state.h"
#include "store/files.h"

/* The directories of a rank's files. */
struct share_directories {
    char *text; /* between commas, as they were filled in */
    uint32_t drives;
    struct store_directory list[STRIPE_DRIVES_MAX];
};

/** Once ranks are joined: finds the files, and numbers the ranks by them. Errors: the transport's,
 * -ENOMEM (sticky). */
int shares_find(struct hst_engine *engine);
void shares_close(struct hst_engine *engine);

/** The store that is found is to be moved to as many ranks as there are, or to these with other
 * units. Replicas are not made of shards: who opens them refuses it. */
static inline bool shares_move(const struct hst_engine *engine)
{
    return (engine->shares.map.fate == SHARE_MOVE || engine->shares.recut) &&
           engine->shares.replicas == 0;
}

/** Errors: -ENOENT (not recorded) no files are found; -EINVAL, -ENODATA (E613, sticky) those of
 * some ranks are missing, or of several stores; why one cannot be read. */
int shares_check(struct hst_engine *engine);
/** Names the files that a kill kept from their names, of the store that is found. Errors:
 * shares_check's; the system's. */
int shares_name(struct hst_engine *engine);
/** Removes what is left of the store before this one, and of moves that were cut off. uuid, world:
 * of the store that holds. */
void shares_clean(struct hst_engine *engine, const struct store_id *uuid, uint32_t world);

/** shares ← what all ranks find by the words of `store`, and whose it is; no rank takes another
 * number for it. shares->replicas is read. To be freed after an error, too. Errors: the
 * transport's, -ENOMEM (sticky). */
int shares_look(struct hst_engine *engine, struct shares *shares, const char *store);
/** The nth file that is of this rank of the store that is found; UINT32_MAX: another finds it. */
uint32_t shares_nth(const struct shares *shares, uint32_t rank);

/* ---- without an engine ----------------------------------------------------------------------- */

/** shares ← what is found by the words of `store`; shares->replicas is read. place: the numbers of
 * words that the first of its directories has not got. To be freed after an error, too. Errors:
 * -ENOMEM. */
int shares_list(struct shares *shares, const char *store, const struct hst_store_place *place);
void shares_free(struct shares *shares);
/** Calls visit(context, path) of each directory that the first one of `store` may mean, until it
 * returns other than 0, which is returned. Errors: -ENOMEM. */
int shares_each_directory(const char *store, const struct hst_store_place *place,
                          int (*visit)(void *context, const char *path), void *context);
/** Opens the directories of the nth file. Errors: store_directory_open's. To be closed after an
 * error, too. */
int share_directories_open(const struct shares *shares, uint32_t nth,
                           struct share_directories *directories, struct hst_error *error);
void share_directories_close(struct share_directories *directories);

#endif
