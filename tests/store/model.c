/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of the store by itself, checked exhaustively in a small world: ranks with a few
 * shards each, all of them killed at any moment, every write that was not flushed there, not there
 * or garbage, one by one; recovery may be killed too. After each crash recovery has to find one
 * version on all ranks, of one run, not older than the last whose commit had returned, with its
 * bytes. Nothing here verifies hashes: the protocol has to be right without.
 *
 *     model [large]
 *
 * On each rank an update writes version t+1 while version t is being committed, as far as the gate
 * lets it: collective(t+1), at the end of step t+1's backward, is where ranks learn that all of
 * them have t (C5). Ranks meet nowhere else, so that a rank's own states can be found alone, and a
 * state of the world is any choice of them in which nobody has left a collective that another one
 * has not reached.
 */
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 3, CELLS = 8, MANIFEST = 4, SUPERBLOCK = 6, PENDING_MAX = 16 };
#define GARBAGE UINT32_MAX

struct config {
    const char *name;
    unsigned ranks, shards, steps, versions, crashes; /* steps: writes of each shard per version */
    bool in_place, no_data_flush, no_superblock_flush, one_superblock, one_manifest;
    bool no_collective, no_gate, no_prev, no_commit_id, no_roll_back, early;
    bool bad; /* it has to be found wrong */
};

struct disk {
    uint32_t cell[CELLS]; /* data of slot 0, of slot 1, manifests, superblocks */
};
struct world {
    struct disk disk[RANKS_MAX];
    uint32_t acked; /* version << 8 | run: the last whose commit had returned */
};

/* What is in cells. Data: version, step in it, run. */
static uint32_t data(unsigned version, unsigned step, unsigned run)
{
    return version << 16 | step << 8 | run;
}
struct manifest {
    unsigned version, commit_id, slot, run; /* run: for the judge alone */
};
static uint32_t manifest_put(struct manifest m)
{
    return m.version << 24 | m.commit_id << 16 | m.slot << 8 | m.run;
}
static struct manifest manifest_get(uint32_t c)
{
    return (struct manifest){c >> 24, c >> 16 & 255, c >> 8 & 255, c & 255};
}
struct ref {
    unsigned version, commit_id, slot; /* slot: of the manifest */
};
struct superblock {
    unsigned seq;
    struct ref cur, prev;
    bool has_prev;
};
static uint32_t superblock_put(struct superblock s)
{
    return s.seq << 20 | s.cur.version << 16 | s.cur.commit_id << 12 | s.cur.slot << 10 |
           s.prev.version << 6 | s.prev.commit_id << 2 | s.prev.slot << 1 | s.has_prev;
}
static struct superblock superblock_get(uint32_t c)
{
    return (struct superblock){c >> 20,
                               {c >> 16 & 15, c >> 12 & 15, c >> 10 & 1},
                               {c >> 6 & 15, c >> 2 & 15, c >> 1 & 1},
                               c & 1};
}

/* ---- recovery ---- */

struct found {
    struct superblock newest;
    struct ref refs[2];
    struct manifest manifests[2];
    unsigned count;
};

static struct found look(const struct disk *disk)
{
    struct found f = {.count = 0};
    bool any = false;
    for (unsigned slot = 0; slot < 2; slot++) {
        const uint32_t c = disk->cell[SUPERBLOCK + slot];
        if (c == GARBAGE || (any && superblock_get(c).seq <= f.newest.seq))
            continue;
        f.newest = superblock_get(c);
        any = true;
    }
    const struct ref refs[2] = {f.newest.cur, f.newest.prev};
    for (unsigned i = 0; any && i < 1u + f.newest.has_prev; i++) {
        const uint32_t c = disk->cell[MANIFEST + refs[i].slot];
        const struct manifest m = manifest_get(c);
        if (c == GARBAGE || m.version != refs[i].version || m.commit_id != refs[i].commit_id)
            continue;
        f.refs[f.count] = refs[i];
        f.manifests[f.count++] = m;
    }
    return f;
}

struct recovered {
    struct superblock newest;
    struct ref ref;
    struct manifest manifest;
};

/* Decides as an open does, then judges what was found. Returns null or what is wrong. */
static const char *recover(const struct config *c, const struct world *w,
                           struct recovered out[RANKS_MAX])
{
    struct found f[RANKS_MAX] = {{.count = 0}};
    int best = -1;
    for (unsigned r = 0; r < c->ranks; r++)
        f[r] = look(&w->disk[r]);
    for (unsigned i = 0; i < f[0].count; i++) {
        unsigned having = 1;
        for (unsigned r = 1; r < c->ranks; r++)
            for (unsigned j = 0; j < f[r].count; j++)
                having += f[r].refs[j].version == f[0].refs[i].version &&
                          f[r].refs[j].commit_id == f[0].refs[i].commit_id;
        if (having == c->ranks && (best < 0 || f[0].refs[i].version > f[0].refs[best].version))
            best = (int)i;
    }
    if (best < 0)
        return "no common version";
    const struct ref x = f[0].refs[best];
    for (unsigned r = 0; r < c->ranks; r++) {
        unsigned i = 0;
        while (f[r].refs[i].version != x.version || f[r].refs[i].commit_id != x.commit_id)
            i++;
        out[r] = (struct recovered){f[r].newest, f[r].refs[i], f[r].manifests[i]};
        const struct manifest m = f[r].manifests[i];
        for (unsigned s = 0; s < c->shards; s++)
            if (w->disk[r].cell[m.slot * c->shards + s] != data(m.version, c->steps - 1, m.run))
                return "other bytes";
        if (m.run != out[0].manifest.run)
            return "ranks of different runs";
    }
    if (x.version < w->acked >> 8)
        return "a version is lost whose commit had returned";
    if (x.version == w->acked >> 8 && out[0].manifest.run != (w->acked & 255))
        return "another run's version";
    return NULL;
}

/* ---- one rank, by itself ---- */

struct write {
    unsigned cell;
    uint32_t value;
};
struct local {
    struct disk durable;
    struct write pending[PENDING_MAX];
    unsigned pending_count;
    unsigned roll_back;       /* of R7: 0 to write, 1 to flush, 2 done */
    unsigned version, at;     /* that updates write; 0, 1: before, in the collective; then writes */
    unsigned commit, stage;   /* the version to commit next */
    unsigned arrived, passed; /* collectives */
    unsigned seq;
    struct ref cur;
};

struct rank {
    const struct config *c;
    struct recovered from;
    unsigned run;
    struct local *states;
    unsigned count, room;
};

/* Adds a value of `size` bytes to a list that has each once. Returns the list. */
static void *add_once(void *list, unsigned *count, unsigned *room, const void *value, size_t size)
{
    unsigned char *bytes = list;
    for (unsigned i = 0; i < *count; i++)
        if (memcmp(bytes + i * size, value, size) == 0)
            return list;
    if (*count == *room) {
        *room = *room ? 2 * *room : 256;
        bytes = realloc(list, *room * size);
        assert(bytes);
    }
    memcpy(bytes + (*count)++ * size, value, size);
    return bytes;
}

static void reach(struct rank *rank, const struct local *l)
{
    rank->states = add_once(rank->states, &rank->count, &rank->room, l, sizeof *l);
}

static void put(struct local *l, unsigned cell, uint32_t value)
{
    assert(l->pending_count < PENDING_MAX);
    l->pending[l->pending_count++] = (struct write){cell, value};
}

static void flush(struct local *l)
{
    for (unsigned i = 0; i < l->pending_count; i++)
        l->durable.cell[l->pending[i].cell] = l->pending[i].value;
    memset(l->pending, 0, sizeof l->pending);
    l->pending_count = 0;
}

static void put_superblock(const struct config *c, struct local *l, struct ref cur, bool prev)
{
    l->seq++;
    put(l, SUPERBLOCK + (c->one_superblock ? 0 : l->seq & 1),
        superblock_put((struct superblock){l->seq, cur, prev ? l->cur : (struct ref){0}, prev}));
    l->cur = cur;
}

/* R7: once, before anything else. Returns whether there was something to do. */
static bool roll_back(struct rank *rank, struct local l)
{
    if (l.roll_back == 2 || rank->c->no_roll_back)
        return false;
    if (l.roll_back++ == 0)
        put_superblock(rank->c, &l, rank->from.ref, false);
    else
        flush(&l);
    reach(rank, &l);
    return true;
}

static unsigned slot_of(const struct rank *rank, unsigned version)
{
    const unsigned from = rank->from.manifest.slot;
    return rank->c->in_place ? from : from ^ ((version - rank->from.ref.version) & 1);
}

/* The updates' next move. */
static void update(struct rank *rank, struct local l)
{
    const struct config *c = rank->c;
    if (l.version > c->versions + 1)
        return;
    if (l.at == 0) { /* C6: only with the version before on its slot here */
        if (!c->no_gate && l.commit < l.version)
            return;
        l.at = c->no_collective || (c->early && l.version == rank->from.ref.version + 1) ? 2 : 1;
        l.arrived += l.at == 1;
    } else if (l.at == 1) { /* whether the others are there is looked at in the world */
        l.passed++;
        l.at = 2;
    } else if (l.version > c->versions) {
        return; /* the last collective, after which nothing is written */
    } else {
        const unsigned step = (l.at - 2) / c->shards, shard = (l.at - 2) % c->shards;
        put(&l, slot_of(rank, l.version) * c->shards + shard, data(l.version, step, rank->run));
        if (++l.at == 2 + c->steps * c->shards) {
            l.version++;
            l.at = 0;
        }
    }
    reach(rank, &l);
}

/* The commit's next move. */
static void commit(struct rank *rank, struct local l)
{
    const struct config *c = rank->c;
    if (l.commit >= l.version)
        return; /* C1: its writes are not all there */
    const unsigned from = rank->from.ref.slot;
    const struct ref next = {l.commit, c->no_commit_id ? 0 : rank->run,
                             c->one_manifest ? 0
                                             : from ^ ((l.commit - rank->from.ref.version) & 1)};
    switch (l.stage++) {
    case 0: /* C2 */
        put(&l, MANIFEST + next.slot,
            manifest_put((struct manifest){next.version, next.commit_id,
                                           slot_of(rank, next.version), rank->run}));
        break;
    case 1: /* C3 */
        if (!c->no_data_flush)
            flush(&l);
        break;
    case 2: /* C4 */
        put_superblock(c, &l, next, !c->no_prev);
        break;
    default:
        if (!c->no_superblock_flush)
            flush(&l);
        l.stage = 0;
        l.commit++;
        break;
    }
    reach(rank, &l);
}

static void explore_rank(struct rank *rank, const struct disk *disk)
{
    struct local first;
    memset(&first, 0, sizeof first); /* states are compared as bytes */
    first.durable = *disk;
    first.version = first.commit = rank->from.ref.version + 1;
    first.seq = rank->from.newest.seq;
    first.cur = rank->from.ref;
    rank->count = 0;
    reach(rank, &first);
    for (unsigned i = 0; i < rank->count; i++) {
        const struct local l = rank->states[i];
        if (roll_back(rank, l))
            continue;
        update(rank, l);
        commit(rank, l);
    }
}

/* What a crash leaves of one rank, and how far it had come. */
struct image {
    struct disk disk;
    unsigned arrived, passed, committed;
};
struct images {
    struct image *list;
    unsigned count, room;
};

static void add_image(struct images *images, const struct image *image)
{
    images->list = add_once(images->list, &images->count, &images->room, image, sizeof *image);
}

/* Every cell with pending writes: as it was, any of them, or garbage. */
static void crash_rank(const struct local *l, unsigned cell, struct image *image,
                       struct images *images)
{
    if (cell == CELLS) {
        add_image(images, image);
        return;
    }
    bool touched = false;
    image->disk.cell[cell] = l->durable.cell[cell];
    crash_rank(l, cell + 1, image, images);
    for (unsigned i = 0; i < l->pending_count; i++)
        if (l->pending[i].cell == cell) {
            touched = true;
            image->disk.cell[cell] = l->pending[i].value;
            crash_rank(l, cell + 1, image, images);
        }
    if (touched) {
        image->disk.cell[cell] = GARBAGE;
        crash_rank(l, cell + 1, image, images);
    }
}

/* ---- the world ---- */

struct worlds { /* a set */
    struct world *slots;
    bool *used;
    size_t room, count;
};

static bool worlds_add(struct worlds *set, const struct world *w);

static void worlds_grow(struct worlds *set)
{
    struct worlds larger = {.room = set->room ? 2 * set->room : 1 << 12};
    larger.slots = malloc(larger.room * sizeof *larger.slots);
    larger.used = calloc(larger.room, sizeof *larger.used);
    assert(larger.slots && larger.used);
    for (size_t i = 0; i < set->room; i++)
        if (set->used[i])
            worlds_add(&larger, &set->slots[i]);
    free(set->slots);
    free(set->used);
    *set = larger;
}

static bool worlds_add(struct worlds *set, const struct world *w)
{
    if (2 * set->count >= set->room)
        worlds_grow(set);
    uint64_t hash = 0xcbf29ce484222325u;
    uint32_t words[sizeof *w / 4];
    memcpy(words, w, sizeof *w);
    for (size_t i = 0; i < sizeof *w / 4; i++)
        hash = (hash ^ words[i]) * 0x100000001b3u, hash ^= hash >> 29;
    size_t at = hash % set->room;
    for (; set->used[at]; at = (at + 1) % set->room)
        if (memcmp(&set->slots[at], w, sizeof *w) == 0)
            return false;
    set->used[at] = true;
    set->slots[at] = *w;
    set->count++;
    return true;
}

/* The last version whose commit had returned anywhere, given what each rank had reached. */
static uint32_t acked(const struct config *c, const struct image *const at[RANKS_MAX],
                      unsigned from, unsigned run, uint32_t before)
{
    unsigned version = 0, all = UINT32_MAX;
    for (unsigned r = 0; r < c->ranks; r++) {
        const unsigned passed = at[r]->passed + (c->early ? 1 : 0);
        const unsigned returned = at[r]->passed > 0 ? from + passed - 1 : 0;
        version = returned > version ? returned : version;
        all = at[r]->committed < all ? at[r]->committed : all;
    }
    if (c->no_collective || c->no_gate) /* then it has returned where all have it */
        version = all;
    return version > from ? version << 8 | run : before;
}

struct walk {
    const struct config *c;
    struct worlds next;
    struct images images[RANKS_MAX];
    const char *wrong;
    unsigned from, run;
    uint32_t acked;
};

/* All choices of an image for each rank. */
static void combine(struct walk *walk, unsigned rank, const struct image *at[RANKS_MAX],
                    struct world *w)
{
    const struct config *c = walk->c;
    if (rank == c->ranks) {
        struct recovered ignored[RANKS_MAX];
        w->acked = acked(c, at, walk->from, walk->run, walk->acked);
        if (worlds_add(&walk->next, w) && !walk->wrong)
            walk->wrong = recover(c, w, ignored);
        return;
    }
    assert(rank < RANKS_MAX);
    for (unsigned i = 0; i < walk->images[rank].count && !walk->wrong; i++) {
        const struct image *image = &walk->images[rank].list[i];
        bool possible = true;
        for (unsigned r = 0; r < rank; r++)
            possible =
                possible && image->passed <= at[r]->arrived && at[r]->passed <= image->arrived;
        if (!possible)
            continue;
        at[rank] = image;
        w->disk[rank] = image->disk;
        combine(walk, rank + 1, at, w);
    }
}

static void walk_from(struct walk *walk, const struct world *start, unsigned run)
{
    const struct config *c = walk->c;
    struct recovered from[RANKS_MAX] = {{.ref = {0}}};
    walk->wrong = recover(c, start, from);
    walk->from = from[0].ref.version;
    walk->run = run;
    walk->acked = start->acked;
    for (unsigned r = 0; r < c->ranks && !walk->wrong; r++) {
        struct rank rank = {.c = c, .from = from[r], .run = run};
        explore_rank(&rank, &start->disk[r]);
        walk->images[r].count = 0;
        for (unsigned i = 0; i < rank.count; i++) {
            struct image image;
            memset(&image, 0, sizeof image);
            image.arrived = rank.states[i].arrived;
            image.passed = rank.states[i].passed;
            image.committed = rank.states[i].commit - 1;
            crash_rank(&rank.states[i], 0, &image, &walk->images[r]);
        }
        free(rank.states);
    }
    const struct image *at[RANKS_MAX];
    struct world w;
    memset(&w, 0, sizeof w);
    if (!walk->wrong)
        combine(walk, 0, at, &w);
}

static struct world first_world(const struct config *c)
{
    struct world w;
    memset(&w, 0, sizeof w);
    for (unsigned r = 0; r < c->ranks; r++) {
        for (unsigned i = 0; i < CELLS; i++)
            w.disk[r].cell[i] = GARBAGE;
        for (unsigned s = 0; s < c->shards; s++)
            w.disk[r].cell[s] = data(0, c->steps - 1, 0);
        w.disk[r].cell[MANIFEST] = manifest_put((struct manifest){0, 0, 0, 0});
        w.disk[r].cell[SUPERBLOCK] =
            superblock_put((struct superblock){.seq = 0, .cur = {0, 0, 0}});
    }
    return w;
}

/* Returns what is wrong, or null; counts crashes. */
static const char *check(const struct config *c, size_t *crashes)
{
    struct walk walk = {.c = c};
    struct world start = first_world(c);
    struct worlds starts = {0};
    worlds_add(&starts, &start);
    *crashes = 0;
    for (unsigned crash = 1; crash <= c->crashes && !walk.wrong; crash++) {
        for (size_t i = 0; i < starts.room && !walk.wrong; i++)
            if (starts.used[i])
                walk_from(&walk, &starts.slots[i], crash);
        *crashes += walk.next.count;
        free(starts.slots);
        free(starts.used);
        starts = walk.next;
        walk.next = (struct worlds){0};
    }
    free(starts.slots);
    free(starts.used);
    for (unsigned r = 0; r < RANKS_MAX; r++)
        free(walk.images[r].list);
    return walk.wrong;
}

#define WORLD(r, s, k, v, n) .ranks = r, .shards = s, .steps = k, .versions = v, .crashes = n

static const struct config SMALL[] = {
    {"as it is", WORLD(2, 1, 1, 2, 2)},
    {"as it is, one rank", WORLD(1, 2, 1, 3, 3)},
    {"as it is, two steps per version", WORLD(2, 1, 2, 2, 1)},
    {"written in place", WORLD(2, 1, 1, 1, 1), .in_place = true, .bad = true},
    {"without the flush before the superblock", WORLD(2, 1, 1, 2, 1), .no_data_flush = true,
     .bad = true},
    {"without the flush behind it", WORLD(2, 1, 1, 2, 1), .no_superblock_flush = true, .bad = true},
    {"one superblock", WORLD(2, 1, 1, 2, 1), .one_superblock = true, .bad = true},
    {"one manifest", WORLD(2, 1, 1, 2, 1), .one_manifest = true, .bad = true},
    {"ranks that never meet", WORLD(2, 1, 1, 3, 1), .no_collective = true, .bad = true},
    {"updates that do not wait for the commit", WORLD(2, 1, 1, 3, 1), .no_gate = true, .bad = true},
    {"the same on one rank", WORLD(1, 1, 1, 3, 1), .no_gate = true, .bad = true},
    {"without the version before", WORLD(2, 1, 1, 2, 1), .no_prev = true, .bad = true},
    {"without commit ids and roll-back", WORLD(2, 1, 1, 2, 2), .no_commit_id = true,
     .no_roll_back = true, .bad = true},
    {"without commit ids, writing before ranks meet", WORLD(2, 1, 1, 2, 3), .no_commit_id = true,

     .early = true, .bad = true},
    /* each of the two is enough: both are kept */
    {"without commit ids alone", WORLD(2, 1, 1, 2, 2), .no_commit_id = true},
    {"without roll-back alone", WORLD(2, 1, 1, 2, 2), .no_roll_back = true},
};
static const struct config LARGE[] = {
    {"as it is, two shards, three versions", WORLD(2, 2, 1, 3, 2)},
    {"as it is, two steps per version", WORLD(2, 2, 2, 2, 2)},
    {"as it is, three ranks", WORLD(3, 1, 1, 2, 2)},
    {"as it is, three crashes", WORLD(2, 2, 1, 2, 3)},
    {"as it is, four versions", WORLD(2, 1, 1, 4, 3)},
};

int main(int argc, char **argv)
{
    const bool large = argc > 1 && strcmp(argv[1], "large") == 0;
    const struct config *configs = large ? LARGE : SMALL;
    const size_t count = large ? sizeof LARGE / sizeof LARGE[0] : sizeof SMALL / sizeof SMALL[0];
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        size_t crashes;
        const char *wrong = check(&configs[i], &crashes);
        const bool good = configs[i].bad == (wrong != NULL);
        printf("%-48s %10zu crashes  %s%s\n", configs[i].name, crashes, wrong ? wrong : "right",
               good ? "" : "  <-- not what it has to be");
        fflush(stdout);
        failed += !good;
    }
    return failed > 0;
}
