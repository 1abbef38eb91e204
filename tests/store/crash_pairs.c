/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crash images of two ranks: a run of both is recorded, each rank's writes and syncs on one clock.
 * Each rank's files become what a crash at a moment of its own could have left, where the other one
 * can have come as far as it has. Then both open, and find one version: begun by both, not older
 * than the last that any was told to be on all, with every byte of it on each.
 *
 *     crash_pairs PAIRS [SEED]
 *
 * A third of them are crashes of a run from stores in order; each is opened, goes on and is crashed
 * again, and so once more. A failure prints its seed. In a build that leaves out a step of the
 * protocol (STORE_LEAVE_OUT, or WITHOUT_VOTE) a failure is what is expected, and finding none is
 * the failure.
 */
#include "images.h"
#include "store/store_state.h"
#include "writing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef WITHOUT_VOTE
#define WITHOUT_VOTE 0
#endif

#define RANKS    2u
#define MOMENTS  8u
#define DEPTH    3u
#define VERSIONS 3u /* that a run makes */
#define NEVER    UINT64_MAX

/* What an open may find: a version of this range; and whose files may be taken for closed in order:
   those that nobody has opened since. */
struct allowed {
    uint64_t least, most;
    bool closed[RANKS];
};

/* When it happened to a rank. */
struct times {
    uint64_t shared, opened; /* it has heard what the other has; its own superblock is there */
    uint64_t begun[TOY_VERSIONS], prepared[TOY_VERSIONS], returned[TOY_VERSIONS];
};

struct run {
    struct fake_record records[RANKS];
    struct times times[RANKS];
    uint64_t now, found;
};

enum state { WRITES, UNDERWAY, PREPARED, DONE };
struct rank {
    struct store *store;
    struct writing writing[2]; /* of even and of odd versions */
    uint64_t version;
    enum state state;
};

static struct toy toys[RANKS];
static struct store_candidates candidates[RANKS];
static uint64_t seed_at_hand;
static unsigned long apart; /* pairs whose ranks had come to different versions */

static int fail(const char *what, struct allowed allowed, uint64_t found)
{
    printf("seed %llu: %s; allowed versions %llu to %llu, found %llu\n",
           (unsigned long long)seed_at_hand, what, (unsigned long long)allowed.least,
           (unsigned long long)allowed.most, (unsigned long long)found);
    return 1;
}

/* ---- one clock for both records ---- */

static void on(struct run *run, uint32_t r)
{
    run->records[r].now = run->now;
    fake_record(&run->records[r]);
}

static void off(struct run *run, uint32_t r)
{
    run->now = run->records[r].now;
    fake_record(NULL);
}

static uint64_t moment_of(struct run *run, uint32_t r)
{
    return run->records[r].now++;
}

/* ---- an open of both ---- */

struct peer {
    struct run *run; /* null: it only looks at what there is */
    uint32_t rank;
    bool damaged;
};

static int share(void *context, const struct store_candidates *own, struct store_candidates *all)
{
    struct peer *peer = context;
    candidates[peer->rank] = *own;
    if (!peer->run)
        return -ECANCELED;
    memcpy(all, candidates, sizeof candidates);
    peer->run->times[peer->rank].shared = moment_of(peer->run, peer->rank);
    return 0;
}

static int damaged(void *context, bool own, bool *any)
{
    ((struct peer *)context)->damaged |= own;
    *any = own;
    return 0;
}

static int open_one(struct run *run, uint32_t r, struct store_found *found, struct store **store)
{
    struct peer peer = {run, r, false};
    const struct store_peers peers = {&peer, RANKS, share, damaged};
    struct hst_error error = {0};
    toys[r].config.peers = &peers;
    int rc = store_open(&toys[r].config, store, found, &error);
    toys[r].config.peers = NULL;
    if (rc && run)
        printf("rank %u: %s\n", r, error.message);
    if (rc == 0 && peer.damaged)
        found->stepped_back = true;
    return rc;
}

/* What the other one has is asked for before any of them writes, as it is where both run. */
static int open_both(struct run *run, struct rank ranks[RANKS], struct allowed allowed,
                     uint64_t *random)
{
    struct store_found found[RANKS];
    const uint32_t first = (uint32_t)toy_below(random, RANKS);
    const char *wrong = NULL;
    for (uint32_t r = 0; r < RANKS; r++)
        if (open_one(NULL, r, &found[r], &ranks[r].store) != -ECANCELED)
            return fail("what a rank has is not to be seen", allowed, r);
    apart += candidates[0].list[0].version != candidates[1].list[0].version;
    for (uint32_t i = 0; i < RANKS; i++) {
        const uint32_t r = (first + i) % RANKS;
        on(run, r);
        const int rc = open_one(run, r, &found[r], &ranks[r].store);
        run->times[r].opened = moment_of(run, r);
        off(run, r);
        if (rc) {
            if (i > 0)
                toy_drop(ranks[first].store);
            return fail("a rank that does not open", allowed, 0);
        }
    }
    run->found = found[0].version;
    for (uint32_t r = 0; r < RANKS && !wrong; r++) {
        if (found[r].version != run->found)
            wrong = "ranks go on from different versions";
        else if (run->found < allowed.least || run->found > allowed.most)
            wrong = "a version that may not be found";
        else if (found[r].clean && !allowed.closed[r])
            wrong = "taken for closed in order, bytes unread";
        else if (found[r].stepped_back || found[r].repaired > 0)
            wrong = "a crash is taken for damage";
        wrong = wrong ? wrong : toy_compare(&toys[r], ranks[r].store, found[r].version);
    }
    for (uint32_t r = 0; r < RANKS && wrong; r++)
        toy_drop(ranks[r].store);
    return wrong ? fail(wrong, allowed, run->found) : 0;
}

/* ---- a run of both ---- */

static void wait_for(struct rank *rank, struct writing *w)
{
    for (uint32_t i = 0; i < TOY_EXTENTS; i++)
        if (w->transfers[i].active)
            (void)extents_wait(store_extents(rank->store), &w->transfers[i]);
}

static void begin_commit(struct run *run, uint32_t r, struct rank *rank, uint64_t *random)
{
    char text[32];
    const struct store_cursor cursor = toy_cursor(rank->version, text);
    struct writing *next = &rank->writing[(rank->version + 1) % 2];
    run->times[r].begun[rank->version] = moment_of(run, r);
    if (store_commit_begin(rank->store, &cursor))
        abort();
    wait_for(rank, next); /* of the version before */
    writing_plan(next, &toys[r], rank->version + 1, random);
    rank->state = UNDERWAY;
}

/* It hears of the vote, which is over once both have prepared the version. */
static void hear(struct run *run, uint32_t r, struct rank *rank, uint64_t end)
{
    if (!WITHOUT_VOTE && run->times[1 - r].prepared[rank->version] == NEVER)
        return;
    if (store_commit_end(rank->store))
        abort();
    run->times[r].returned[rank->version++] = moment_of(run, r);
    rank->state = rank->version == end ? DONE : WRITES;
}

/* A little of what a rank does. */
static void go_on(struct run *run, uint32_t r, struct rank *rank, uint64_t end, uint64_t *random)
{
    struct extents *extents = store_extents(rank->store);
    struct writing *own = &rank->writing[rank->version % 2];
    const enum state was = rank->state;
    on(run, r);
    if (was == PREPARED)
        hear(run, r, rank, end);
    else if (was == UNDERWAY && store_commit_state(rank->store) != STORE_COMMIT_UNDERWAY) {
        run->times[r].prepared[rank->version] = moment_of(run, r);
        rank->state = PREPARED;
    } else if (was == UNDERWAY)
        writing_go_on(&rank->writing[(rank->version + 1) % 2], &toys[r], rank->store);
    else if (writing_go_on(own, &toys[r], rank->store) && was == WRITES)
        begin_commit(run, r, rank, random);
    if (was != PREPARED)
        extents->ops->progress(extents, UINT64_MAX);
    off(run, r);
}

/* While one is on its way to a version, the other may wait for it, or be over with the last. */
static void run_on(struct run *run, struct rank ranks[RANKS], uint64_t *random)
{
    const uint64_t end = run->found + 1 + VERSIONS, odds = 1 + toy_below(random, 15);
    for (uint32_t r = 0; r < RANKS; r++) {
        ranks[r].version = run->found + 1;
        ranks[r].state = WRITES;
        ranks[r].writing[run->found % 2] = (struct writing){.version = run->found};
        writing_plan(&ranks[r].writing[(run->found + 1) % 2], &toys[r], run->found + 1, random);
    }
    while (ranks[0].state != DONE || ranks[1].state != DONE) {
        const uint32_t r = toy_below(random, 16) < odds;
        go_on(run, r, &ranks[r], end, random);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        on(run, r);
        wait_for(&ranks[r], &ranks[r].writing[0]);
        wait_for(&ranks[r], &ranks[r].writing[1]);
        off(run, r);
    }
}

/* ---- crashes of it ---- */

/* Whether a rank can have come so far where the other one has: what it has heard was said. */
static bool can_be(const struct run *run, const uint64_t moments[RANKS])
{
    for (uint32_t r = 0; r < RANKS; r++) {
        const struct times *own = &run->times[r], *other = &run->times[1 - r];
        if (own->shared < moments[r] && other->shared >= moments[1 - r])
            return false;
        for (uint32_t v = 0; v < TOY_VERSIONS && !WITHOUT_VOTE; v++)
            if (own->returned[v] < moments[r] && other->prepared[v] >= moments[1 - r])
                return false;
    }
    return true;
}

static void draw_moments(const struct run *run, uint64_t moments[RANKS], uint64_t *random)
{
    const bool early = toy_below(random, 4) == 0;
    const uint64_t opened =
        run->times[0].opened > run->times[1].opened ? run->times[0].opened : run->times[1].opened;
    do
        for (uint32_t r = 0; r < RANKS; r++)
            moments[r] = toy_below(random, (early ? opened : run->now) + 1);
    while (!can_be(run, moments));
}

static struct allowed allowed_at(const struct run *run, const uint64_t moments[RANKS],
                                 struct allowed allowed)
{
    for (uint32_t r = 0; r < RANKS; r++)
        if (run->times[r].opened < moments[r]) {
            allowed.least = allowed.most = run->found;
            allowed.closed[r] = false;
        }
    uint64_t most[RANKS] = {allowed.most, allowed.most};
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t v = 0; v < TOY_VERSIONS; v++) {
            if (run->times[r].begun[v] < moments[r])
                most[r] = v;
            if (run->times[r].returned[v] < moments[r] && v > allowed.least)
                allowed.least = v;
        }
    allowed.most = most[0] < most[1] ? most[0] : most[1];
    return allowed;
}

static void files_after(const struct files before[RANKS], const struct run *run,
                        const uint64_t moments[RANKS], struct files after[RANKS], uint64_t *random)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        const uint64_t drawn = toy_below(random, 8);
        after[r] = files_copy(&before[r]);
        fake_crash(&run->records[r], moments[r], toy_below(random, 2) ? 512 : 4096,
                   drawn < 2 ? (int)drawn + 1 : 0, toy_random(random), after[r].images);
    }
}

/* Of each open the ranks agree on a number, before anything else. */
static void draw_incarnation(struct store_agreed *agreed, uint64_t *random)
{
    for (size_t i = 0; i < sizeof agreed->incarnation.bytes; i++)
        agreed->incarnation.bytes[i] = (unsigned char)toy_random(random);
}

static void stamps_take(uint64_t stamps[RANKS][TOY_VERSIONS][TOY_EXTENTS])
{
    for (uint32_t r = 0; r < RANKS; r++)
        memcpy(stamps[r], toys[r].stamps, sizeof toys[r].stamps);
}

static void stamps_put(uint64_t stamps[RANKS][TOY_VERSIONS][TOY_EXTENTS])
{
    for (uint32_t r = 0; r < RANKS; r++)
        memcpy(toys[r].stamps, stamps[r], sizeof toys[r].stamps);
}

/* A run from these files, and crashes of it; each is opened and run on in the same way, `depth`
   times. */
static int crash(const struct files before[RANKS], struct allowed allowed, uint32_t moments,
                 uint32_t depth, struct store_agreed *agreed, uint64_t *random)
{
    struct run run = {.now = 0};
    struct rank ranks[RANKS];
    uint64_t stamps[RANKS][TOY_VERSIONS][TOY_EXTENTS], cut[RANKS];
    memset(run.times, 0xff, sizeof run.times); /* NEVER */
    for (uint32_t r = 0; r < RANKS; r++)
        files_write(&toys[r], &before[r]);
    draw_incarnation(agreed, random);
    int rc = open_both(&run, ranks, allowed, random);
    if (rc == 0) {
        if (depth > 0)
            run_on(&run, ranks, random);
        for (uint32_t r = 0; r < RANKS; r++)
            toy_drop(ranks[r].store);
    }
    for (uint32_t r = 0; r < RANKS; r++)
        fake_finish(&run.records[r]);
    stamps_take(stamps);
    for (uint32_t i = 0; i < moments && depth > 0 && rc == 0; i++) {
        struct files after[RANKS];
        draw_moments(&run, cut, random);
        files_after(before, &run, cut, after, random);
        stamps_put(stamps);
        rc = crash(after, allowed_at(&run, cut, allowed), depth > 1, depth - 1, agreed, random);
        for (uint32_t r = 0; r < RANKS; r++)
            files_free(&after[r]);
    }
    for (uint32_t r = 0; r < RANKS; r++)
        fake_free(&run.records[r]);
    return rc;
}

int main(int argc, char **argv)
{
    const unsigned long pairs = argc > 1 ? strtoul(argv[1], NULL, 0) : 300;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    uint64_t stamps[RANKS][TOY_VERSIONS][TOY_EXTENTS];
    struct store_agreed agreed = {.uuid.bytes = "a store of two"};
    struct files base[RANKS];
    unsigned long made = 0;
    int rc = 0;
    for (uint32_t r = 0; r < RANKS; r++)
        base[r] = toy_base(&toys[r], (struct share){r, RANKS}, &agreed);
    stamps_take(stamps);
    for (; made < pairs && rc == 0; made += DEPTH * MOMENTS, seed++) {
        uint64_t random = seed_at_hand = seed;
        fake_seed(seed);
        stamps_put(stamps);
        rc = crash(base, (struct allowed){1, 1, {true, true}}, MOMENTS, DEPTH, &agreed, &random);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        files_free(&base[r]);
        toy_close(&toys[r]);
    }
    if (STORE_LEAVE_OUT == LEAVE_NOTHING && !WITHOUT_VOTE) {
        printf("%lu pairs of images, ranks of %lu had come to different versions\n", made, apart);
        return rc || apart < made / 10;
    }
    printf("%s\n", rc ? "found" : "nothing was found, although a step is left out");
    return rc ? 0 : 1;
}
