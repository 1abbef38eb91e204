/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The versions that ranks open of a store without training: the store's last one, or a copy. See
 * <hoistway/ckpt.h>.
 */
#include "session/store/ckpt_ranks.h"

#include "session/store/copies.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- handles ---- */

/* A handle has this, and gives it back. */
struct opened {
    struct ckpt_shares shares;
    struct share_directories *own;              /* [world] */
    const struct store_directory **directories; /* [world] */
    unsigned char *seen;                        /* of `shares` */
    char *paths;                                /* between commas */
};

static void release(struct ckpt_shares *shares)
{
    struct opened *o = (struct opened *)shares;
    for (uint32_t rank = 0; o->own && rank < shares->world; rank++)
        share_directories_close(&o->own[rank]);
    free(o->own);
    free((void *)o->directories);
    free(o->seen);
    free(o->paths);
    free(o);
}

static int open_rank(const struct shares *shares, struct opened *o, uint32_t rank,
                     struct hst_error *error)
{
    const uint32_t nth = shares_nth(shares, rank);
    if (nth == UINT32_MAX)
        return 0;
    const int rc = share_directories_open(shares, nth, &o->own[rank], error);
    o->directories[rank] = o->own[rank].list;
    return rc;
}

/* It is for a store of one rank, or such a copy. */
static int open_replica(struct hst_ckpt_ranks *r, struct opened *o, uint32_t number,
                        struct hst_error *error)
{
    const uint32_t processes = r->engine.ranks.ranks;
    if (o->shares.world != 1)
        return store_refuse(error, HST_E_STORE_EMPTY, -ENOENT,
                            "what %s has is of %u ranks together, none of which is a replica. "
                            "Fix: hoistway ckpt list tells which copies are kept",
                            r->engine.config.store, o->shares.world);
    o->shares.replica = number;
    replicas_seen(&r->replicas, processes, number, o->seen);
    const int rc = replicas_open(&r->replicas, number, o->own, error);
    o->directories[0] = o->own[0].text ? o->own[0].list : NULL;
    return rc;
}

static int open_each(struct hst_ckpt_ranks *r, const struct shares *shares, struct opened *o,
                     uint32_t replica, struct hst_error *error)
{
    int rc = 0;
    if (replica > 0)
        return open_replica(r, o, replica, error);
    for (uint32_t rank = 0; rc == 0 && rank < o->shares.world; rank++)
        rc = open_rank(shares, o, rank, error);
    return rc;
}

/* It is of the first rank whose files it finds, or those that would be its own. */
static int write_paths(struct hst_ckpt_ranks *r, struct opened *o)
{
    const size_t bytes = (size_t)STRIPE_DRIVES_MAX * (PATH_MAX + KEPT_NAME_BYTES);
    struct hst_error ignored;
    uint32_t rank = 0;
    size_t n = 0;
    o->paths = malloc(bytes);
    if (!o->paths)
        return -ENOMEM;
    while (rank < o->shares.world && !o->directories[rank])
        rank++;
    if (rank == o->shares.world)
        return o->shares.fill(r, r->engine.store, o->paths, bytes, &ignored);
    for (uint32_t d = 0; d < o->own[rank].drives; d++)
        n += (size_t)snprintf(o->paths + n, bytes - n, "%s%s", d ? "," : "",
                              o->own[rank].list[d].path);
    return 0;
}

/* number: by which the map tells who sees what; null: by that of the processes. */
static int make_opened(struct hst_ckpt_ranks *r, const struct share_map *map,
                       const uint32_t *number, struct opened **opened, struct hst_error *error)
{
    const uint32_t processes = r->engine.ranks.ranks;
    struct opened *o = *opened = calloc(1, sizeof *o);
    if (!o)
        return ckpt_ranks_no_memory(error);
    o->shares = (struct ckpt_shares){
        .world = map->world,
        .drives = map->drives,
        .release = release,
    };
    ckpt_ranks_talk(r, &o->shares);
    o->own = calloc(map->world, sizeof *o->own);
    o->directories = calloc(map->world, sizeof *o->directories);
    o->shares.directories = o->directories;
    o->shares.seen = o->seen = calloc(processes, map->world);
    for (uint32_t p = 0; o->seen && p < processes; p++)
        memcpy(o->seen + (size_t)p * map->world,
               map->seen + (size_t)(number ? number[p] : p) * map->world, map->world);
    for (uint32_t rank = 0; o->own && rank < map->world; rank++)
        for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
            o->own[rank].list[d].fd = -1;
    return o->own && o->directories && o->seen ? 0 : ckpt_ranks_no_memory(error);
}

/* ---- copies ---- */

/* *kept ← the step, where any rank has a copy of it; else none. */
static int find_copy(struct hst_ckpt_ranks *r, uint64_t step, uint64_t *kept,
                     struct hst_error *error)
{
    uint64_t steps[COPIES_MOST];
    size_t count = 0;
    *kept = HST_NO_VERSION;
    const int rc =
        step == HST_NO_VERSION ? 0 : hst_ckpt_ranks_copies(r, steps, COPIES_MOST, &count, error);
    for (size_t i = 0; i < count && i < COPIES_MOST; i++)
        *kept = steps[i] == step ? step : *kept;
    return rc;
}

/* It is the same on all of them. */
static int refuse_copy(struct hst_ckpt_ranks *r, uint64_t step, struct hst_error *error)
{
    const struct share_map *map = &r->copy.map;
    char names[200];
    r->agreed = true;
    if (map->fate == SHARE_NONE)
        return store_refuse(error, HST_E_STORE_EMPTY, -ENOENT,
                            "the copy of step %llu in %s has gone meanwhile. Fix: hoistway ckpt "
                            "list tells which are kept",
                            (unsigned long long)step, r->engine.config.store);
    if (map->fate == SHARE_SEVERAL)
        return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                            "ranks find two copies of step %llu in %s. Fix: leave one of them "
                            "there",
                            (unsigned long long)step, r->engine.config.store);
    share_map_missing(map, r->engine.ranks.ranks, names, sizeof names);
    return store_refuse(error, HST_E_STORE_MIXED, -ENODATA,
                        "no rank finds %s of the copy of step %llu in %s. Fix: start ranks on the "
                        "nodes that have it, or bring it to one that takes part",
                        names, (unsigned long long)step, r->engine.config.store);
}

/* A copy may be of another number of ranks than the store: its files are looked for as a store's
 * are. */
static int look_at_copy(struct hst_ckpt_ranks *r, uint64_t step, struct hst_error *error)
{
    char *directories = kept_directories(r->engine.store, step);
    int rc = directories ? 0 : ckpt_ranks_no_memory(error);
    shares_free(&r->copy);
    rc = ckpt_ranks_agree(r, rc, error);
    if (rc == 0 && (rc = shares_look(&r->engine, &r->copy, directories)) != 0)
        ckpt_ranks_failed(r, rc, error);
    free(directories);
    if (rc)
        return rc;
    const struct share_map *map = &r->copy.map;
    if (map->fate == SHARE_MISSING && r->copy.error.code) { /* others do not know of it */
        *error = r->copy.error;
        rc = error->native;
    }
    rc = ckpt_ranks_agree(r, rc, error);
    return rc == 0 && map->fate != SHARE_OWN && map->fate != SHARE_MOVE
               ? refuse_copy(r, step, error)
               : rc;
}

static int refuse_step(const struct hst_ckpt_ranks *r, uint64_t is, uint64_t wanted,
                       struct hst_error *error)
{
    return store_refuse(error, HST_E_STORE_EMPTY, -ENOENT,
                        "the store in %s has no version of step %llu: its last one is of step "
                        "%llu. Fix: hoistway ckpt list tells which are kept",
                        r->engine.config.store, (unsigned long long)wanted, (unsigned long long)is);
}

/* ---- which of them ---- */

/* This is what is opened. */
struct chosen {
    const struct shares *shares;
    bool kept;
    struct hst_error in_part; /* code 0: or why it is not the copy of that step */
};

/* A copy; the store where there is none, or none that is whole where that will do. */
static int choose(struct hst_ckpt_ranks *r, const struct hst_ckpt_config *config,
                  struct chosen *chosen, struct hst_error *error)
{
    uint64_t kept;
    *chosen = (struct chosen){.shares = &r->engine.shares};
    int rc = find_copy(r, config->step, &kept, error);
    chosen->kept = kept != HST_NO_VERSION;
    if (rc)
        return rc;
    if (!chosen->kept && (!config->copy || config->step == HST_NO_VERSION))
        return 0;
    if (!chosen->kept) {
        r->agreed = true;
        return ckpt_refuse_no_copy(r->engine.config.store, config->step, error);
    }
    rc = look_at_copy(r, kept, error);
    if (rc == 0) {
        chosen->shares = &r->copy;
        return 0;
    }
    if (!r->agreed) /* others may not know of it */
        return rc;
    /* a replica's copy is whole, though rank 0 has none */
    if (config->replica > 0 && r->copy.map.fate == SHARE_NONE) {
        *error = (struct hst_error){0};
        return 0;
    }
    if (config->replica > 0 || config->copy ||
        (r->copy.map.fate != SHARE_NONE && r->copy.map.fate != SHARE_MISSING))
        return rc;
    chosen->kept = false;
    chosen->in_part = *error;
    *error = (struct hst_error){0};
    return 0;
}

int hst_ckpt_ranks_open(struct hst_ckpt_ranks *r, const struct hst_ckpt_config *config,
                        struct hst_ckpt **ckpt, struct hst_error *error)
{
    struct opened *o = NULL;
    struct hst_ckpt *made = NULL;
    struct chosen chosen;
    int rc = choose(r, config, &chosen, error);
    if (rc)
        return rc;
    const struct shares *shares = chosen.shares;
    rc = make_opened(r, &shares->map, shares == &r->copy ? shares->map.number : NULL, &o, error);
    rc = rc ? rc : open_each(r, shares, o, config->replica, error);
    if (rc == 0 && write_paths(r, o))
        rc = ckpt_ranks_no_memory(error);
    rc = ckpt_ranks_agree(r, rc, error);
    if (rc == 0) {
        o->shares.hold = config->hold;
        rc = ckpt_open_shares(&o->shares, o->paths, config->io, &made, error);
    }
    if (rc) {
        if (o)
            release(&o->shares);
        return ckpt_ranks_failed(r, rc, error);
    }
    made->kept = chosen.kept;
    if (config->step != HST_NO_VERSION && made->looks[0].ref.step != config->step) {
        rc = refuse_step(r, made->looks[0].ref.step, config->step, error);
        if (chosen.in_part.code) {
            *error = chosen.in_part;
            rc = error->native;
        }
        r->agreed = true;
        hst_ckpt_close(&made);
    }
    *ckpt = made;
    return rc;
}
