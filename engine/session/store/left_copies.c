/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See left_copies.h. They are not removed: with those of the other ranks they are whole versions,
 * which the user has asked to keep, until the ranks that go on remove theirs.
 */
#include "session/store/left_copies.h"

#include "ckpt/ckpt.h"
#include "session/ranks/ranks.h"
#include "session/store/shares.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { STEPS_TOLD = 4, STEPS_MOST = 1024, NAMED_BYTES = 110 };

struct directory_id {
    dev_t device;
    ino_t inode;
};

/* The directories of a rank, on its node; each has one name or several. */
struct own_places {
    uint32_t node, count;
    struct directory_id directories[STRIPE_DRIVES_MAX];
};

static struct directory_id id_of(const struct stat *st)
{
    return (struct directory_id){st->st_dev, st->st_ino};
}

static bool is_ones_own(const struct hst_engine *engine, const struct own_places *all, int fd)
{
    struct stat st;
    bool own = false;
    if (fstat(fd, &st) < 0)
        return true; /* nobody is told to remove what cannot be seen */
    const struct directory_id id = id_of(&st);
    for (uint32_t p = 0; p < engine->ranks.ranks; p++)
        for (uint32_t d = 0; d < all[p].count && all[p].node == engine->ranks.node; d++)
            own = own || (all[p].directories[d].device == id.device &&
                          all[p].directories[d].inode == id.inode);
    return own;
}

/* A command that a shell is given has all of a path, as it is, or none of it. */
static void advice(const char *path, char text[NAMED_BYTES + 32])
{
    bool plain = strlen(path) <= NAMED_BYTES;
    for (const unsigned char *c = (const unsigned char *)path; *c; c++)
        plain = plain && *c >= ' ' && *c != 127 && *c != '\'';
    if (plain)
        snprintf(text, NAMED_BYTES + 32, "rm -r '%s'/step-*", path);
    else
        snprintf(text, NAMED_BYTES + 32, "remove them there");
}

static void tell(struct hst_engine *engine, uint32_t rank, const char *path)
{
    uint64_t steps[STEPS_MOST];
    const size_t found = hst_ckpt_kept(path, steps, STEPS_MOST);
    char text[120] = "", fix[NAMED_BYTES + 32];
    size_t n = 0;
    for (size_t i = 0; i < found && i < STEPS_TOLD; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%sstep-%llu", i ? ", " : "",
                              (unsigned long long)steps[i]);
    if (found > STEPS_TOLD)
        snprintf(text + n, sizeof text - n, " and %zu more", found - STEPS_TOLD);
    advice(path, fix);
    if (found > 0)
        report_log(&engine->report, HST_LOG_WARNING,
                   "W623 copies of rank %u are left in %s, which no rank has any more: %s. Fix: "
                   "%s; or leave them: hoistway ckpt reads them until --keep removes the others' "
                   "part",
                   rank, path, text, fix);
}

/* The first one of those that find a rank's files tells. Each drive has a part of each copy. */
static void tell_of(struct hst_engine *engine, const struct own_places *all, uint32_t rank)
{
    struct shares *shares = &engine->shares;
    struct share_directories directories;
    struct hst_error ignored;
    const uint32_t nth = shares_nth(&engine->shares, rank);
    if (nth == UINT32_MAX ||
        share_map_first(&shares->map, engine->ranks.ranks, rank) != engine->ranks.rank)
        return;
    const int rc = share_directories_open(shares, nth, &directories, &ignored);
    for (uint32_t d = 0; rc == 0 && d < directories.drives; d++)
        if (!is_ones_own(engine, all, directories.list[d].fd))
            tell(engine, rank, directories.list[d].path);
    share_directories_close(&directories);
}

static int tell_all(struct hst_engine *engine, struct own_places *own, struct own_places *all)
{
    struct stat st;
    own->node = engine->ranks.node;
    for (uint32_t d = 0; d < engine->drive_count; d++)
        if (stat(engine->drives[d].path, &st) == 0)
            own->directories[own->count++] = id_of(&st);
    const int rc = ranks_share_all(engine, "directories", own, all, sizeof *own);
    for (uint32_t rank = 0; rc == 0 && rank < engine->shares.map.world; rank++)
        tell_of(engine, all, rank);
    return rc;
}

int left_copies_tell(struct hst_engine *engine)
{
    struct own_places *own = calloc(1, sizeof *own);
    struct own_places *all = calloc(engine->ranks.ranks, sizeof *all);
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
