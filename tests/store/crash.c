/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crash images: a toy run is recorded, write by write and sync by sync; at moments of it the files
 * become what a crash could have left, and an open must find a version that was begun, not older
 * than the last whose commit had returned, with every byte of it.
 *
 *     crash IMAGES [SEED]
 *
 * A third of them are crashes of a run from a store in order; each is opened, goes on and is
 * crashed again, and so once more: a quarter of all while they are opened. Each open wants another
 * size of room for scratch, and finds what a crash that was lengthening it may have left. A failure
 * prints its seed. In a build that leaves out a step of the protocol (STORE_LEAVE_OUT) a failure is
 * what is expected, and finding none is the failure.
 */
#include "images.h"
#include "store/room.h"
#include "store/store_state.h"
#include "writing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MARK_OPENED, MARK_BEGUN, MARK_RETURNED };

#define MOMENTS 8u /* images of one run */
#define DEPTH   3u /* crashes one after another */

/* What an open may find: a version of this range, and it may not be taken for closed in order. */
struct allowed {
    uint64_t least, most;
    bool closed;
};

static struct toy toy;
static struct store_room rooms[TOY_DRIVES];
static uint64_t seed_at_hand;
static unsigned long recoveries; /* that were crashed before they were done */

static int fail(const char *what, struct allowed allowed, uint64_t found)
{
    printf("seed %llu: %s; allowed versions %llu to %llu, found %llu\n",
           (unsigned long long)seed_at_hand, what, (unsigned long long)allowed.least,
           (unsigned long long)allowed.most, (unsigned long long)found);
    return 1;
}

static struct files files_after(const struct files *before, const struct fake_record *record,
                                uint64_t moment, uint64_t *random)
{
    struct files files = files_copy(before);
    const uint64_t drawn = toy_below(random, 8);
    const int how = drawn == 0 ? 1 : drawn == 1 ? 2 : 0;
    fake_crash(record, moment, toy_below(random, 2) ? 512 : 4096, how, toy_random(random),
               files.images);
    return files;
}

/* ---- room ---- */

static void room_path(uint32_t drive, char path[128])
{
    snprintf(path, 128, "%s/r00000.d%u.scratch", toy.directories[drive], drive);
}

/* It may be there as it was, or not, or cut at a sector, or without what its first sector had.
   Then: what the next open wants. */
static void draw_rooms(uint64_t *random)
{
    static const unsigned char ZEROS[512];
    char path[128];
    struct stat st;
    for (uint32_t d = 0; d < TOY_DRIVES; d++) {
        const uint64_t drawn = toy_below(random, 4);
        room_path(d, path);
        rooms[d].bytes = toy_below(random, 4) * STORE_PAGE_BYTES;
        if (drawn == 0)
            (void)unlink(path);
        const int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (drawn == 1 && pwrite(fd, ZEROS, sizeof ZEROS, 0) < 0)
            abort();
        if (drawn >= 2 &&
            (fstat(fd, &st) < 0 ||
             ftruncate(fd, 512 * (off_t)toy_below(random, (uint64_t)st.st_size / 512 + 1)) < 0))
            abort();
        close(fd);
    }
}

static bool rooms_are_whole(void)
{
    char path[128];
    struct stat st;
    for (uint32_t d = 0; d < TOY_DRIVES; d++) {
        room_path(d, path);
        if (rooms[d].bytes > 0 && (stat(path, &st) < 0 || !rooms[d].file ||
                                   st.st_size < (off_t)(STORE_ROOM_AT + rooms[d].bytes)))
            return false;
    }
    return true;
}

/* ---- a run ---- */

/* Some are written twice. */
static void writing_wait(struct writing *w, struct store *store, uint64_t *random)
{
    while (!writing_go_on(w, &toy, store))
        store_extents(store)->ops->progress(store_extents(store), UINT64_MAX);
    const uint32_t again = (uint32_t)toy_below(random, TOY_EXTENTS);
    for (uint32_t i = 0; i < TOY_EXTENTS; i++) {
        (void)extents_wait(store_extents(store), &w->transfers[i]);
        if (i == again && w->wanted[i] && toy_write(&toy, store, w->version, i, &w->transfers[i]))
            abort();
    }
}

/* While a version is on its way, the next one is written as far as the gate lets it: an update
   under the next forward. */
static void run_on(struct store *store, uint32_t versions, uint64_t *random)
{
    struct writing w;
    uint64_t version = store_version(store) + 1;
    const uint64_t end = version + versions;
    writing_plan(&w, &toy, version, random);
    for (; version < end; version++) {
        char text[32];
        const struct store_cursor cursor = toy_cursor(version, text);
        writing_wait(&w, store, random);
        fake_mark(MARK_BEGUN, version);
        if (store_commit_begin(store, &cursor))
            abort();
        struct writing done = w; /* the last of its writes may still be in flight */
        for (uint32_t i = 0; i < TOY_EXTENTS; i++)
            if (done.transfers[i].active)
                extents_wait(store_extents(store), &w.transfers[i]);
        writing_plan(&w, &toy, version + 1, random);
        while (store_commit_state(store) == STORE_COMMIT_UNDERWAY) {
            writing_go_on(&w, &toy, store);
            store_extents(store)->ops->progress(store_extents(store), UINT64_MAX);
        }
        if (store_commit_end(store))
            abort();
        fake_mark(MARK_RETURNED, version);
    }
    for (uint32_t i = 0; i < TOY_EXTENTS; i++)
        (void)extents_wait(store_extents(store), &w.transfers[i]);
}

/* Opens, compares, goes on for so many versions; then the process is gone. */
static int run(struct allowed allowed, uint32_t versions, uint64_t *random)
{
    struct store *store;
    struct store_found found;
    struct hst_error error = {0};
    int rc = store_open(&toy.config, &store, &found, &error);
    if (rc)
        return fail(error.message, allowed, 0);
    fake_mark(MARK_OPENED, found.version);
    const char *wrong = NULL;
    if (found.version < allowed.least || found.version > allowed.most)
        wrong = "a version that may not be found";
    else if (found.clean && !allowed.closed)
        wrong = "taken for closed in order, bytes unread";
    else if (found.stepped_back || found.repaired > 0)
        wrong = "a crash is taken for damage";
    else if (!rooms_are_whole())
        wrong = "room is not what was asked for";
    wrong = wrong ? wrong : toy_compare(&toy, store, found.version);
    if (!wrong && versions > 0)
        run_on(store, versions, random);
    store_rooms_close(rooms, TOY_DRIVES);
    toy_drop(store);
    return wrong ? fail(wrong, allowed, found.version) : 0;
}

/* ---- crashes of a run ---- */

static struct allowed allowed_at(const struct fake_record *record, uint64_t moment,
                                 struct allowed allowed)
{
    for (uint32_t i = 0; i < record->count && record->events[i].submitted < moment; i++) {
        const struct fake_event *event = &record->events[i];
        if (event->kind != FAKE_MARK)
            continue;
        if (event->mark == MARK_OPENED)
            allowed = (struct allowed){event->number, event->number, false};
        if (event->mark == MARK_BEGUN)
            allowed.most = event->number;
        if (event->mark == MARK_RETURNED)
            allowed.least = event->number;
    }
    return allowed;
}

static uint64_t opened_at(const struct fake_record *record)
{
    for (uint32_t i = 0; i < record->count; i++)
        if (record->events[i].kind == FAKE_MARK && record->events[i].mark == MARK_OPENED)
            return record->events[i].submitted;
    return record->now;
}

/* One run from these files, recorded, and crashes of it; each crash opened and run on in the same
   way, `depth` times. */
static int crash(const struct files *before, struct allowed allowed, uint32_t moments,
                 uint32_t depth, uint64_t *random)
{
    struct fake_record record = {0};
    uint64_t stamps[TOY_VERSIONS][TOY_EXTENTS];
    files_write(&toy, before);
    draw_rooms(random);
    fake_record(&record);
    int rc = run(allowed, depth > 0 ? 3 : 0, random);
    fake_record(NULL);
    fake_finish(&record);
    memcpy(stamps, toy.stamps, sizeof stamps);
    for (uint32_t i = 0; i < moments && depth > 0 && rc == 0; i++) {
        const uint64_t limit = toy_below(random, 4) ? record.now : opened_at(&record);
        const uint64_t moment = toy_below(random, limit + 1);
        recoveries += depth < DEPTH && moment < opened_at(&record);
        struct files after = files_after(before, &record, moment, random);
        memcpy(toy.stamps, stamps, sizeof stamps);
        rc = crash(&after, allowed_at(&record, moment, allowed), depth > 1, depth - 1, random);
        files_free(&after);
    }
    fake_free(&record);
    return rc;
}

int main(int argc, char **argv)
{
    const unsigned long images = argc > 1 ? strtoul(argv[1], NULL, 0) : 300;
    const bool given = argc > 2;
    uint64_t seed = given ? strtoull(argv[2], NULL, 0) : 1;
    int rc = 0;
    struct files base = toy_base(&toy, SHARE_ALL, NULL);
    for (uint32_t d = 0; d < TOY_DRIVES; d++)
        if (hst_aio_open(NULL, toy.directories[d], &rooms[d].aio, NULL))
            abort();
    toy.config.rooms = rooms;
    uint64_t stamps[2][TOY_EXTENTS];
    memcpy(stamps, toy.stamps, sizeof stamps);
    unsigned long made = 0;
    for (; made < images && rc == 0; made += DEPTH * MOMENTS, seed++) {
        uint64_t random = seed_at_hand = seed;
        fake_seed(seed);
        memcpy(toy.stamps, stamps, sizeof stamps);
        rc = crash(&base, (struct allowed){1, 1, true}, MOMENTS, DEPTH, &random);
    }
    files_free(&base);
    for (uint32_t d = 0; d < TOY_DRIVES; d++)
        hst_aio_close(&rooms[d].aio);
    toy_close(&toy);
    if (STORE_LEAVE_OUT == LEAVE_NOTHING) {
        printf("%lu images, %lu of them of a recovery that was cut off\n", made, recoveries);
        return rc || recoveries < made / 10;
    }
    printf("%s\n", rc ? "found" : "nothing was found, although a step is left out");
    return rc ? 0 : 1;
}
