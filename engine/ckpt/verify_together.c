/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See verify_together.h. Processes meet each time that one of them has read so much: who is
 * through meets the others until they are, so that a rank that has less to read waits no longer
 * than what joins them allows.
 */
#include "ckpt/verify_together.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MEET_BYTES (UINT64_C(256) << 20)
enum { DIRECTORY_BYTES = 4352, PLACES_AT_ONCE = 4096 };

/* Each rank says this when they meet. */
struct said {
    uint64_t done_bytes, total_bytes;
    uint64_t ended;
};

void together_open(struct together *t, const struct hst_ckpt *ckpt,
                   const struct hst_ckpt_watch *watch)
{
    const struct ckpt_reading reading = {
        .share = SHARE_ALL, .readers = CKPT_EACH_ITS_FILES, .weights = true, .states = true};
    *t = (struct together){.ckpt = ckpt, .watch = watch};
    t->total_bytes = ckpt_reading_bytes(ckpt, &reading);
}

void together_close(struct together *t)
{
    free(t->places);
    t->places = NULL;
}

static int make_room(struct together *t, uint64_t count)
{
    const uint64_t room = count > 2 * t->room ? count : 2 * t->room;
    if (count <= t->room)
        return 0;
    struct ckpt_place *places = realloc(t->places, room * sizeof *places);
    if (!places)
        return -ENOMEM;
    t->places = places;
    t->room = room;
    return 0;
}

int together_note(struct together *t, const struct ckpt_place *place)
{
    const int rc = make_room(t, t->count + 1);
    if (rc == 0)
        t->places[t->count++] = *place;
    return rc;
}

/* ---- while they read ---- */

/* *ended ← all of them are through. Errors: those of share; -ENOMEM. */
static int meet(struct together *t, bool end, bool *ended)
{
    const struct ckpt_shares *shares = t->ckpt->shares;
    struct said *all = calloc(shares->processes, sizeof *all);
    const struct said own = {t->done_bytes, t->total_bytes, end};
    if (!all)
        return -ENOMEM;
    const int rc = shares->share(shares->context, &own, all, sizeof own);
    *ended = true;
    t->others_done_bytes = t->others_total_bytes = 0;
    for (uint32_t p = 0; p < shares->processes && rc == 0; p++) {
        *ended = *ended && all[p].ended;
        t->others_done_bytes += p == shares->process ? 0 : all[p].done_bytes;
        t->others_total_bytes += p == shares->process ? 0 : all[p].total_bytes;
    }
    t->met_bytes = t->done_bytes;
    free(all);
    return rc;
}

static int show(const struct together *t)
{
    const struct hst_ckpt_watch *w = t->watch;
    return w && w->progress ? w->progress(w->context, t->done_bytes + t->others_done_bytes,
                                          t->total_bytes + t->others_total_bytes)
                            : 0;
}

int together_begin(struct together *t)
{
    bool ended;
    return meet(t, false, &ended);
}

int together_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct together *t = context;
    bool ended;
    (void)total_bytes;
    t->done_bytes = done_bytes;
    if (done_bytes - t->met_bytes >= MEET_BYTES && (t->lost = meet(t, false, &ended)) != 0)
        return 1;
    return show(t);
}

int together_end(struct together *t, int rc)
{
    bool ended = false;
    while (rc == 0 && !ended) {
        rc = meet(t, true, &ended);
        if (rc == 0 && show(t) && !ended)
            rc = -ECANCELED;
    }
    return t->lost ? t->lost : rc;
}

/* ---- what they have found ---- */

static int by_place(const void *left, const void *right)
{
    const struct ckpt_place *a = left, *b = right;
    const int tile = (a->tile > b->tile) - (a->tile < b->tile);
    const int kind = (a->kind > b->kind) - (a->kind < b->kind);
    return tile ? tile : kind ? kind : (a->offset > b->offset) - (a->offset < b->offset);
}

static int gather(struct together *t, struct hst_error *error)
{
    const struct ckpt_shares *shares = t->ckpt->shares;
    uint64_t *counts = calloc(shares->processes, sizeof *counts), all = 0, own_at = 0;
    int rc = counts ? shares->share(shares->context, &t->count, counts, sizeof *counts) : -ENOMEM;
    for (uint32_t p = 0; p < shares->processes && rc == 0; p++) {
        own_at = p == shares->process ? all : own_at;
        all += counts[p];
    }
    rc = rc ? rc : make_room(t, all);
    if (rc == 0 && t->count > 0)
        memmove(t->places + own_at, t->places, t->count * sizeof *t->places);
    uint64_t at = 0;
    for (uint32_t p = 0; p < shares->processes && rc == 0; p++)
        for (uint64_t i = 0; i < counts[p] && rc == 0; i += PLACES_AT_ONCE) {
            const uint64_t left = counts[p] - i;
            const uint64_t count = left < PLACES_AT_ONCE ? left : PLACES_AT_ONCE;
            rc = shares->take(shares->context, p, t->places + at, count * sizeof *t->places);
            at += count;
        }
    free(counts);
    if (rc == -ENOMEM)
        return store_refuse(error, HST_E_BUDGET, rc,
                            "no memory for the list of what is damaged. Fix: end other programs");
    t->count = rc ? t->count : all;
    return rc;
}

/* text ← the directory of a rank's file, as who has read it tells it. */
static int take_directory(const struct together *t, uint32_t rank, uint32_t drive, char *text)
{
    const struct ckpt_shares *shares = t->ckpt->shares;
    const uint32_t reader = ckpt_reader_of_rank(shares, rank);
    memset(text, 0, DIRECTORY_BYTES);
    if (reader == shares->process)
        shares->name(shares->context, shares->directories[rank][drive].path, text, DIRECTORY_BYTES);
    return shares->take(shares->context, reader, text, DIRECTORY_BYTES);
}

int together_tell(struct together *t,
                  int (*tell)(void *context, const struct ckpt_place *place, const char *directory),
                  void *context, struct hst_error *error)
{
    char directory[DIRECTORY_BYTES];
    uint32_t rank = UINT32_MAX, drive = 0; /* whose it is */
    int rc = gather(t, error);
    if (rc == 0 && t->count > 0)
        qsort(t->places, t->count, sizeof *t->places, by_place);
    for (uint64_t i = 0; i < t->count && rc == 0; i++) {
        const struct ckpt_place *place = &t->places[i];
        const struct ckpt_extent extent =
            ckpt_extent(t->ckpt, place->tile, (enum extent_kind)place->kind);
        const uint32_t of = (uint32_t)(extent.look - t->ckpt->looks);
        if (of != rank || extent.entry.drive != drive) {
            rank = of;
            drive = extent.entry.drive;
            rc = take_directory(t, rank, drive, directory);
        }
        rc = rc ? rc : tell(context, place, directory);
    }
    return rc;
}
