/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the files of a store wherever the words of --store may mean: a number was another one for
 * the run that made them, where nodes come back in another order or ranks are others. What to do
 * with them is decided by share_map.h.
 */
#include "session/store/shares.h"

#include "ckpt/ckpt.h"
#include "comm/report.h"
#include "session/ranks/ranks.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FOUND_MOST = (1 << 20) / sizeof(struct share_found) }; /* what is shared at once */

/* ---- which directories ---- */

/* The numbers that a directory has for the words. */
struct words {
    bool rank, local, node; /* which there are */
    struct hst_store_place place;
};

static uint32_t *number_of(struct words *words, const char *word, size_t length)
{
    if (length == 6 && memcmp(word, "{rank}", 6) == 0)
        return words->rank = true, &words->place.rank;
    if (length == 7 && memcmp(word, "{local}", 7) == 0)
        return words->local = true, &words->place.local;
    if (length == 6 && memcmp(word, "{node}", 6) == 0)
        return words->node = true, &words->place.node;
    return NULL;
}

static size_t word_length(const char *at)
{
    const size_t length = *at == '{' ? strcspn(at, "}") : 0;
    return length > 0 && at[length] == '}' ? length + 1 : 0;
}

/* The first of the directories between commas, with digits for words; the caller's to free. */
static char *pattern_of(const char *store)
{
    const size_t length = strcspn(store, ",");
    char *pattern = malloc(2 * length + sizeof "[0-9]*"), *to = pattern;
    struct words ignored;
    for (const char *at = store; pattern && at < store + length;) {
        const size_t word = word_length(at);
        if (word > 0 && number_of(&ignored, at, word)) {
            to = stpcpy(to, "[0-9]*");
            at += word;
            continue;
        }
        if (strchr("*?[\\", *at))
            *to++ = '\\';
        *to++ = *at++;
    }
    if (pattern)
        *to = '\0';
    return pattern;
}

/* The path is the first directory with these numbers in place of its words. */
static bool is_filled(const char *store, const char *path, struct words *words)
{
    struct words found = *words;
    found.rank = found.local = found.node = false;
    while (*store && *store != ',') {
        const size_t word = word_length(store);
        struct words before = found;
        uint32_t *number = word > 0 ? number_of(&found, store, word) : NULL;
        if (!number) {
            if (*store++ != *path++)
                return false;
            continue;
        }
        const bool again = (number == &found.place.rank && before.rank) ||
                           (number == &found.place.local && before.local) ||
                           (number == &found.place.node && before.node);
        char *end;
        const unsigned long read =
            isdigit((unsigned char)*path) ? strtoul(path, &end, 10) : UINT32_MAX;
        if (read >= UINT32_MAX || (path[0] == '0' && end - path > 1) || (again && read != *number))
            return false;
        *number = (uint32_t)read;
        path = end;
        store += word;
    }
    *words = found;
    return *path == '\0';
}

/* ---- which files ---- */

static int add(struct shares *shares, const struct share_found *found,
               const struct hst_store_place *place)
{
    if (shares->count == shares->room) {
        const uint32_t room = shares->room ? 2 * shares->room : 8;
        struct share_found *own = realloc(shares->own, room * sizeof *own);
        shares->own = own ? own : shares->own;
        struct hst_store_place *places = realloc(shares->places, room * sizeof *places);
        shares->places = places ? places : shares->places;
        if (!own || !places)
            return -ENOMEM;
        shares->room = room;
    }
    shares->own[shares->count] = *found;
    shares->places[shares->count++] = *place;
    return 0;
}

/* What says so is told where a file is missed that all replicas have. */
static void note_part(struct shares *shares, const struct store_directory *directory,
                      uint32_t world)
{
    if (shares->error.code == 0)
        store_refuse(&shares->error, HST_E_STORE_MIXED, -EINVAL,
                     "the store in %s is of %u ranks that have a part of it each, and with "
                     "--zero-stage 0 each has all. Fix: --zero-stage 1, 2 or 3; or give another "
                     "--store",
                     directory->path, world);
}

/* A file that is where another rank's should be is nobody's: who misses it tells. */
static void note_stray(struct shares *shares, const struct store_directory *directory,
                       const struct store_name *name, const struct words *words)
{
    struct store_header h = {.world = 0};
    struct hst_error ignored = {0};
    char file[STORE_NAME_BYTES];
    if (shares->stray.code || name->forming ||
        store_first_look(directory, name->rank, false, &h, &ignored))
        return;
    const bool replica = h.world == 1 && shares->replicas > 0;
    const uint32_t rank = replica ? name->rank : h.rank;
    store_file_name(name->rank, 0, false, file);
    if (rank != name->rank && h.world > 1)
        store_refuse(&shares->stray, HST_E_STORE_MIXED, -EINVAL,
                     "%s/%s has the name of rank %u's file, and is rank %u's. Fix: give each file "
                     "the name of its rank",
                     directory->path, file, name->rank, rank);
    else if (words->rank && words->place.rank != rank && (h.world > 1 || replica))
        store_refuse(&shares->stray, HST_E_STORE_MIXED, -EINVAL,
                     "%s/%s is rank %u's file, in the directory of rank %u. Fix: move each file to "
                     "the directory of its rank",
                     directory->path, file, rank, words->place.rank);
    shares->stray_rank = rank; /* which means nothing without a code */
}

/* A first file that cannot be read is noted; who misses it tells. */
static int look_at_file(struct shares *shares, const struct store_directory *directory,
                        const struct store_name *name, const struct hst_store_place *place)
{
    struct store_header h = {.world = 0};
    struct hst_error error = {0};
    struct hst_store_place own = *place;
    int rc = store_first_look(directory, name->rank, name->forming, &h, &error);
    if (rc && rc != -ENOENT && !name->forming && shares->error.code == 0)
        shares->error = error;
    const bool one = h.world == 1 && h.rank == 0, replica = one && name->rank < shares->replicas;
    if (!rc && one && name->rank > 0 && !name->forming && shares->replicas == 0)
        shares->lone = name->rank;
    const bool part = !rc && h.world > 1 && shares->replicas > 0 && shares->replicas != UINT32_MAX;
    if (part && !name->forming)
        note_part(shares, directory, h.world);
    if (rc || part || (h.rank != name->rank && !replica) || h.world > CKPT_RANKS_MAX ||
        shares->count == FOUND_MOST)
        return 0;
    own.rank = name->rank;
    const struct share_found found = {.uuid = h.uuid,
                                      .rank = name->rank,
                                      .world = replica ? shares->replicas : h.world,
                                      .drives = h.drives,
                                      .tile_elements = (uint32_t)h.tile_elements,
                                      .slices = h.slices,
                                      .forming = name->forming};
    return add(shares, &found, &own);
}

static int look_in(void *context, const char *path, const struct words *words)
{
    struct shares *shares = context;
    struct store_directory directory;
    struct hst_error error = {0};
    if (store_directory_open(path, &directory, &error)) {
        if (error.code == HST_E_STORE_ACCESS && shares->error.code == 0)
            shares->error = error; /* who misses a file tells that it may be there */
        return 0;
    }
    DIR *names = store_directory_list(&directory, &error);
    int rc = 0;
    for (const struct dirent *entry; names && rc == 0 && (entry = readdir(names)) != NULL;) {
        struct store_name name;
        if (!store_name_parse(entry->d_name, &name) || name.drive > 0 || name.room)
            continue;
        note_stray(shares, &directory, &name, words);
        if (!words->rank || words->place.rank == name.rank)
            rc = look_at_file(shares, &directory, &name, &words->place);
    }
    if (names)
        closedir(names);
    store_directory_close(&directory);
    return rc;
}

/* Each directory that the first one of `store` may mean. */
static int each(const char *store, const struct hst_store_place *place,
                int (*visit)(void *context, const char *path, const struct words *words),
                void *context)
{
    glob_t found = {0};
    char *pattern = pattern_of(store);
    int rc = pattern ? 0 : -ENOMEM;
    if (rc == 0 && glob(pattern, GLOB_NOSORT, NULL, &found) == GLOB_NOSPACE)
        rc = -ENOMEM;
    for (size_t i = 0; i < found.gl_pathc && rc == 0; i++) {
        struct words words = {.place = *place};
        if (is_filled(store, found.gl_pathv[i], &words))
            rc = visit(context, found.gl_pathv[i], &words);
    }
    globfree(&found);
    free(pattern);
    return rc;
}

int shares_list(struct shares *shares, const char *store, const struct hst_store_place *place)
{
    shares->store = strdup(store);
    return shares->store ? each(store, place, look_in, shares) : -ENOMEM;
}

/* It is for those who have no use for numbers. */
struct visitor {
    int (*visit)(void *context, const char *path);
    void *context;
};

static int visit_path(void *context, const char *path, const struct words *words)
{
    const struct visitor *visitor = context;
    (void)words;
    return visitor->visit(visitor->context, path);
}

int shares_each_directory(const char *store, const struct hst_store_place *place,
                          int (*visit)(void *context, const char *path), void *context)
{
    struct visitor visitor = {visit, context};
    return each(store, place, visit_path, &visitor);
}

void shares_free(struct shares *shares)
{
    share_map_free(&shares->map);
    free(shares->store);
    free(shares->own);
    free(shares->places);
    *shares = (struct shares){.count = 0};
}

int share_directories_open(const struct shares *shares, uint32_t nth,
                           struct share_directories *directories, struct hst_error *error)
{
    const size_t bytes = 2 * strlen(shares->store) + 64; /* a word has six letters, a number ten */
    *directories = (struct share_directories){.text = malloc(bytes)};
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
        directories->list[d].fd = -1;
    if (!directories->text)
        return store_refuse(error, HST_E_BUDGET, -ENOMEM,
                            "no memory for the names of directories. Fix: end other programs");
    int rc = hst_store_words(shares->store, &shares->places[nth], directories->text, bytes, error);
    rc = rc < 0 ? rc : 0;
    for (char *at = directories->text; rc == 0 && at;) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma = '\0';
        if (directories->drives == STRIPE_DRIVES_MAX)
            break; /* told by who splits --store */
        rc = store_directory_open(at, &directories->list[directories->drives++], error);
        at = comma ? comma + 1 : NULL;
    }
    return rc;
}

void share_directories_close(struct share_directories *directories)
{
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
        store_directory_close(&directories->list[d]);
    free(directories->text);
    directories->text = NULL;
}

/* ---- whose they are ---- */

static int no_memory(struct hst_engine *engine)
{
    return report_fail(&engine->report, HST_E_BUDGET, -ENOMEM,
                       "no memory for what ranks find of a store. Fix: end other programs");
}

/* It gathers what all processes find; *in is the caller's to free. */
static int gather(struct hst_engine *engine, const struct shares *shares, struct share_map_in *in,
                  uint32_t *nodes, uint32_t *counts)
{
    struct share_found *own, *all;
    const uint32_t ranks = in->processes;
    int rc = ranks_share_all(engine, "nodes", &engine->ranks.node, nodes, sizeof *nodes);
    rc = rc ? rc : ranks_share_all(engine, "files found", &shares->count, counts, sizeof *counts);
    for (uint32_t p = 0; p < ranks && rc == 0; p++)
        in->most = counts[p] > in->most ? counts[p] : in->most;
    if (rc || in->most == 0)
        return rc;
    own = calloc(in->most, sizeof *own);
    all = calloc((size_t)ranks * in->most, sizeof *all);
    in->found = all;
    if (!own || !all) {
        free(own);
        return no_memory(engine);
    }
    if (shares->count > 0)
        memcpy(own, shares->own, shares->count * sizeof *own);
    rc = ranks_share_all(engine, "files", own, all, in->most * sizeof *own);
    free(own);
    return rc;
}

/* All ranks know what each has found, and are refused alike. */
static int refuse_order(struct hst_engine *engine, uint32_t process, uint32_t wish)
{
    return report_fail(&engine->report, HST_E_STORE_MIXED, -EINVAL,
                       "rank %u finds the files of rank %u: nodes are in another order than "
                       "before, and a rank keeps the number that %s gave it. Fix: start the nodes "
                       "in the order of their files, or use mpirun",
                       process, wish, engine->config.launch->launcher);
}

static int take_number(struct hst_engine *engine)
{
    const struct share_map *map = &engine->shares.map;
    const uint32_t ranks = engine->ranks.ranks, wish = map->number[engine->ranks.rank];
    uint32_t other = 0;
    while (other < ranks && map->number[other] == other)
        other++;
    if (other == ranks)
        return 0;
    if (!engine->config.launch->mpi)
        return refuse_order(engine, other, map->number[other]);
    int rc = comm_number(engine->comm, wish);
    if (rc)
        return comm_report(engine->comm, &engine->report, 0, rc);
    comm_info(engine->comm, &engine->ranks);
    if (ranks_tells(engine))
        report_log(&engine->report, HST_LOG_INFO,
                   "I501 ranks have the numbers of the files that they find: nodes are in another "
                   "order than before");
    return 0;
}

int shares_look(struct hst_engine *engine, struct shares *shares, const char *store)
{
    const struct comm_info *ranks = &engine->ranks;
    const struct hst_store_place place = {ranks->rank, ranks->local, ranks->node};
    if (shares_list(shares, store, &place))
        return no_memory(engine);
    struct share_map_in in = {.processes = ranks->ranks};
    uint32_t *nodes = calloc(in.processes, sizeof *nodes);
    uint32_t *counts = calloc(in.processes, sizeof *counts);
    in.nodes = nodes;
    in.counts = counts;
    int rc = nodes && counts ? gather(engine, shares, &in, nodes, counts) : no_memory(engine);
    if (rc == 0 && share_map(&in, &shares->map))
        rc = no_memory(engine);
    if (rc == 0 && shares->map.seen)
        shares->twice = share_map_twice(&shares->map, in.processes, nodes);
    free((void *)(uintptr_t)in.found);
    free(nodes);
    free(counts);
    return rc;
}

int shares_find(struct hst_engine *engine)
{
    const struct comm_info *ranks = &engine->ranks;
    const struct hst_store_place place = {ranks->rank, ranks->local, ranks->node};
    if (!engine->store || !engine->plan_in.stored || engine->config.plan)
        return 0;
    if (hst_store_words(engine->store, &place, NULL, 0, NULL) < 0)
        return 0; /* it is told where they are filled in */
    engine->shares.replicas = ranks_are_replicas(engine) ? ranks->ranks : 0;
    const int rc = shares_look(engine, &engine->shares, engine->store);
    return rc ? rc : take_number(engine);
}

void shares_close(struct hst_engine *engine)
{
    shares_free(&engine->shares);
}

uint32_t shares_nth(const struct shares *shares, uint32_t rank)
{
    for (uint32_t i = 0; i < shares->count; i++)
        if (shares->own[i].rank == rank && shares->own[i].world == shares->map.world &&
            store_id_equal(&shares->own[i].uuid, &shares->map.uuid))
            return i;
    return UINT32_MAX;
}

/* ---- what is missing ---- */

static int refuse_missing(struct hst_engine *engine)
{
    const struct shares *shares = &engine->shares;
    const struct share_map *map = &shares->map;
    const uint32_t ranks = engine->ranks.ranks;
    char names[200], more[160] = "", other[STORE_NAME_BYTES];
    if (shares->error.code) /* one that is there, and cannot be read */
        return report_fail_as(&engine->report, &shares->error);
    if (shares->stray.code && shares->stray_rank < map->world &&
        share_map_first(map, ranks, shares->stray_rank) == UINT32_MAX)
        return report_fail_as(&engine->report, &shares->stray);
    share_map_missing(map, ranks, names, sizeof names);
    if (map->other != UINT32_MAX) {
        store_file_name(map->other, 0, false, other);
        snprintf(more, sizeof more, " of that store: the %s that is there is another store's",
                 other);
    } else if (shares->twice != UINT32_MAX) {
        snprintf(more, sizeof more, ", and two nodes find a file of rank %u", shares->twice);
    }
    if (shares->replicas > 0)
        return report_fail(&engine->report, HST_E_STORE_MIXED, -ENODATA,
                           "each of %u ranks of --zero-stage 0 goes on with a file of its own in "
                           "%s, and no rank finds %s%s. Fix: cp another rank's file under that "
                           "name, into a directory that is made with mkdir -m 700",
                           ranks, shares->store, names, more);
    return report_fail(&engine->report, HST_E_STORE_MIXED, -ENODATA,
                       "the store in %s is of %u ranks, and no rank finds %s%s. Fix: start ranks "
                       "on the nodes that have these files, or bring them to one that takes part",
                       shares->store, map->world, names, more);
}

static int refuse_lone(struct hst_engine *engine)
{
    const unsigned rank = engine->shares.lone;
    return report_fail(&engine->report, HST_E_STORE_MIXED, -ENODATA,
                       "%s holds r%05u.d0.blk, which is one of several replicas (--zero-stage 0), "
                       "and no r00000.d0.blk. Fix: cp it under that name, of each directory",
                       engine->shares.store, rank);
}

static int refuse_several(struct hst_engine *engine)
{
    return report_fail(&engine->report, HST_E_STORE_MIXED, -EINVAL,
                       "ranks find the files of two stores in %s, each of them whole. Fix: name or "
                       "keep the directories of one of them",
                       engine->shares.store);
}

/* Files get their names once all ranks have voted for the first version. So where some of a store
 * have theirs, the version holds, and those that a kill kept from theirs get them now. */
static int name_all(struct hst_engine *engine)
{
    struct shares *shares = &engine->shares;
    struct share_directories directories;
    struct hst_error error = {0};
    int rc = 0;
    for (uint32_t i = 0; i < shares->count && rc == 0; i++) {
        uint32_t named;
        if (!store_id_equal(&shares->own[i].uuid, &shares->map.uuid))
            continue;
        rc = share_directories_open(shares, i, &directories, &error);
        rc = rc ? rc
                : store_files_finish(directories.list, directories.drives, shares->own[i].rank,
                                     &shares->map.uuid, &named, &error);
        share_directories_close(&directories);
        shares->own[i].forming = false;
    }
    return rc ? report_fail_as(&engine->report, &error) : 0;
}

int shares_check(struct hst_engine *engine)
{
    switch (engine->shares.map.fate) {
    case SHARE_NONE:
        return engine->shares.lone > 0 ? refuse_lone(engine) : -ENOENT;
    case SHARE_MISSING:
        return refuse_missing(engine);
    case SHARE_SEVERAL:
        return refuse_several(engine);
    default:
        return 0;
    }
}

int shares_name(struct hst_engine *engine)
{
    int rc = shares_check(engine);
    rc = rc ? rc : name_all(engine);
    return rc ? rc : ranks_meet(engine);
}

void shares_clean(struct hst_engine *engine, const struct store_id *uuid, uint32_t world)
{
    const struct shares *shares = &engine->shares;
    for (uint32_t i = 0; i < shares->count; i++) {
        const struct share_found *found = &shares->own[i];
        struct share_directories directories;
        struct hst_error ignored;
        /* this one was made of it, or it was to be made of this one */
        const struct store_id after = store_moved_id(&found->uuid, world);
        const struct store_id next = store_moved_id(uuid, found->world);
        const bool before = store_id_equal(&after, uuid);
        if (store_id_equal(&found->uuid, uuid) ||
            (!before && !(found->forming && store_id_equal(&next, &found->uuid))))
            continue;
        if (share_directories_open(shares, i, &directories, &ignored) == 0)
            store_files_discard(directories.list, directories.drives, found->rank, &found->uuid,
                                found->forming);
        share_directories_close(&directories);
    }
}
