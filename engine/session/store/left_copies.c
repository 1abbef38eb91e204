/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See left_copies.h. They are not removed: with those of the other ranks they are whole versions,
 * which the user has asked to keep.
 */
#include "session/store/left_copies.h"

#include "ckpt/ckpt.h"
#include "session/ranks/ranks.h"
#include "session/store/shares.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_TOLD = 4, STEPS_MOST = 1024 };

/* The first directory of a rank, on its node. */
struct own_place {
    uint32_t node;
    char path[PATH_MAX];
};

static bool is_ones_own(const struct hst_engine *engine, const struct own_place *all,
                        const char *path)
{
    bool own = false;
    for (uint32_t p = 0; p < engine->ranks.ranks; p++)
        own = own || (all[p].node == engine->ranks.node && strcmp(all[p].path, path) == 0);
    return own;
}

static void tell(struct hst_engine *engine, uint32_t rank, const char *path)
{
    uint64_t steps[STEPS_MOST];
    const size_t found = hst_ckpt_kept(path, steps, STEPS_MOST);
    char text[120] = "";
    size_t n = 0;
    for (size_t i = 0; i < found && i < STEPS_TOLD; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%sstep-%llu", i ? ", " : "",
                              (unsigned long long)steps[i]);
    if (found > STEPS_TOLD)
        snprintf(text + n, sizeof text - n, " and %zu more", found - STEPS_TOLD);
    if (found > 0)
        report_log(&engine->report, HST_LOG_WARNING,
                   "W623 copies of rank %u are left in %.200s, which no rank has any more: %s. "
                   "Fix: rm -r %.200s/step-*; or bring those of all ranks into one folder, where "
                   "ckpt reads them",
                   rank, path, text, path);
}

/* The first process that finds a rank's files tells. */
static void tell_of(struct hst_engine *engine, const struct own_place *all, uint32_t rank)
{
    struct shares *shares = &engine->shares;
    struct share_directories directories;
    struct hst_error ignored;
    const uint32_t nth = shares_nth(engine, rank);
    if (nth == UINT32_MAX ||
        share_map_first(&shares->map, engine->ranks.ranks, rank) != engine->ranks.rank)
        return;
    if (share_directories_open(shares, nth, &directories, &ignored) == 0 &&
        !is_ones_own(engine, all, directories.list[0].path))
        tell(engine, rank, directories.list[0].path);
    share_directories_close(&directories);
}

static int tell_all(struct hst_engine *engine, struct own_place *own, struct own_place *all)
{
    own->node = engine->ranks.node;
    snprintf(own->path, sizeof own->path, "%s", engine->drives[0].path);
    const int rc = ranks_share_all(engine, "directories", own, all, sizeof *own);
    for (uint32_t rank = 0; rc == 0 && rank < engine->shares.map.world; rank++)
        tell_of(engine, all, rank);
    return rc;
}

int left_copies_tell(struct hst_engine *engine)
{
    struct own_place *own = calloc(1, sizeof *own);
    struct own_place *all = calloc(engine->ranks.ranks, sizeof *all);
    int rc;
    if (own && all)
        rc = tell_all(engine, own, all);
    else
        rc = report_fail(&engine->report, HST_E_BUDGET, -ENOMEM,
                         "no memory for what ranks say. Fix: end other programs");
    free(own);
    free(all);
    return rc;
}
