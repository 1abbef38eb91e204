/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank has which files: see share_map.h. */
#include "session/store/share_map.h"

#include "store/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORES_MOST = 16, NAMES_MOST = 4 };

/* This is found of one store. */
struct one {
    struct share_found as; /* the first file of it */
    uint32_t ranks;        /* whose files are found, each counted once */
    bool named;            /* any of them */
    bool replaced;         /* by another one that is whole */
};

static const struct share_found *found_of(const struct share_map_in *in, uint32_t process,
                                          uint32_t i)
{
    return &in->found[(size_t)process * in->most + i];
}

static bool is_of(const struct share_found *found, const struct one *one)
{
    return store_id_equal(&found->uuid, &one->as.uuid) && found->world == one->as.world &&
           found->rank < found->world;
}

/* ---- which store ---- */

/* stores ← those that any file is of. Returns how many; more than STORES_MOST are not looked at. */
static uint32_t list_stores(const struct share_map_in *in, struct one stores[STORES_MOST])
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < in->processes; p++)
        for (uint32_t i = 0; i < in->counts[p]; i++) {
            const struct share_found *found = found_of(in, p, i);
            uint32_t s = 0;
            while (s < count && !is_of(found, &stores[s]))
                s++;
            if (s == count && count < STORES_MOST && found->rank < found->world)
                stores[count++] = (struct one){.as = *found};
            if (s < count)
                stores[s].named = stores[s].named || !found->forming;
        }
    return count;
}

/* has[rank] ← 1 where its file is found. */
static void mark_ranks(const struct share_map_in *in, struct one *one, unsigned char *has)
{
    memset(has, 0, one->as.world);
    for (uint32_t p = 0; p < in->processes; p++)
        for (uint32_t i = 0; i < in->counts[p]; i++) {
            const struct share_found *found = found_of(in, p, i);
            if (is_of(found, one) && !has[found->rank]) {
                has[found->rank] = 1;
                one->ranks++;
            }
        }
}

static bool is_whole(const struct one *one)
{
    return one->named && one->ranks == one->as.world;
}

/* A store that is whole was made of the one before it. */
static void mark_replaced(struct one *stores, uint32_t count)
{
    for (uint32_t s = 0; s < count; s++)
        for (uint32_t other = 0; other < count; other++) {
            const struct store_id next = store_moved_id(&stores[s].as.uuid, stores[other].as.world);
            if (other != s && is_whole(&stores[other]) &&
                store_id_equal(&next, &stores[other].as.uuid))
                stores[s].replaced = true;
        }
}

/* The one that is whole, or of those that are not the one of which most is there. */
static const struct one *choose(const struct one *stores, uint32_t count, enum share_fate *fate)
{
    const struct one *best = NULL;
    uint32_t whole = 0;
    for (uint32_t s = 0; s < count; s++) {
        const struct one *one = &stores[s];
        if (!one->named || one->replaced)
            continue;
        whole += is_whole(one);
        if (!best || (is_whole(one) && !is_whole(best)) ||
            (is_whole(one) == is_whole(best) && one->ranks > best->ranks))
            best = one;
    }
    *fate = !best ? SHARE_NONE : whole == 0 ? SHARE_MISSING : whole > 1 ? SHARE_SEVERAL : SHARE_OWN;
    return best;
}

/* ---- who finds what ---- */

static void see(const struct share_map_in *in, const struct one *one, struct share_map *map)
{
    for (uint32_t p = 0; p < in->processes; p++)
        for (uint32_t i = 0; i < in->counts[p]; i++) {
            const struct share_found *found = found_of(in, p, i);
            if (is_of(found, one))
                map->seen[(size_t)map->number[p] * map->world + found->rank] = 1;
        }
}

/* ---- numbers ---- */

/* The processes of a node, and the first number that they get. */
struct block {
    uint32_t first, count, at;
    bool placed;
};

static uint32_t list_nodes(const struct share_map_in *in, struct block *blocks)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < in->processes; p++) {
        if (p == 0 || in->nodes[p] != in->nodes[p - 1])
            blocks[count++] = (struct block){.first = p};
        blocks[count - 1].count++;
    }
    return count;
}

/* Its processes find the files of the ranks from `at` on, each its own. */
static bool fits(const struct share_map *map, const struct block *block, uint32_t at)
{
    bool all = at + block->count <= map->world;
    for (uint32_t i = 0; i < block->count && all; i++)
        all = map->seen[(size_t)(block->first + i) * map->world + at + i];
    return all;
}

static uint32_t count_seen(const struct share_map *map, const struct block *block)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < map->world; r++)
        count += map->seen[(size_t)block->first * map->world + r];
    return count;
}

/* The node that the next ranks are on: of those that can be, the one that finds least. */
static struct block *next_node(const struct share_map *map, struct block *blocks, uint32_t count,
                               uint32_t at)
{
    struct block *best = NULL;
    for (uint32_t b = 0; b < count; b++)
        if (!blocks[b].placed && fits(map, &blocks[b], at) &&
            (!best || count_seen(map, &blocks[b]) < count_seen(map, best)))
            best = &blocks[b];
    return best;
}

/* As they are, where each finds its own so; else node after node. */
static bool place_nodes(const struct share_map *map, struct block *blocks, uint32_t count)
{
    bool as_they_are = true;
    uint32_t at = 0;
    for (uint32_t b = 0; b < count; b++) {
        blocks[b].at = blocks[b].first;
        as_they_are = as_they_are && fits(map, &blocks[b], blocks[b].first);
    }
    while (!as_they_are && at < map->world) {
        struct block *block = next_node(map, blocks, count, at);
        if (!block)
            return false;
        block->placed = true;
        block->at = at;
        at += block->count;
    }
    return true;
}

/* `seen` is by the numbers of before, and afterwards by the new ones. */
static int number(const struct share_map_in *in, const struct one *one, struct share_map *map)
{
    struct block *blocks = calloc(in->processes, sizeof *blocks);
    if (!blocks)
        return -ENOMEM;
    const uint32_t count = list_nodes(in, blocks);
    if (place_nodes(map, blocks, count)) {
        for (uint32_t b = 0; b < count; b++)
            for (uint32_t i = 0; i < blocks[b].count; i++)
                map->number[blocks[b].first + i] = blocks[b].at + i;
        memset(map->seen, 0, (size_t)in->processes * map->world);
        see(in, one, map);
    } else {
        map->fate = SHARE_MOVE;
    }
    free(blocks);
    return 0;
}

static uint32_t find_other(const struct share_map_in *in, const struct one *one,
                           const struct share_map *map)
{
    for (uint32_t p = 0; p < in->processes; p++)
        for (uint32_t i = 0; i < in->counts[p]; i++) {
            const struct share_found *found = found_of(in, p, i);
            if (!found->forming && !is_of(found, one) && found->rank < one->as.world &&
                share_map_first(map, in->processes, found->rank) == UINT32_MAX)
                return found->rank;
        }
    return UINT32_MAX;
}

/* ---- the whole ---- */

static int build(const struct share_map_in *in, struct one *stores, struct share_map *map)
{
    const uint32_t count = list_stores(in, stores);
    for (uint32_t s = 0; s < count; s++) {
        unsigned char *has = malloc(stores[s].as.world);
        if (!has)
            return -ENOMEM;
        mark_ranks(in, &stores[s], has);
        free(has);
    }
    mark_replaced(stores, count);
    const struct one *one = choose(stores, count, &map->fate);
    if (!one)
        return 0;
    map->uuid = one->as.uuid;
    map->world = one->as.world;
    map->drives = one->as.drives;
    map->tile_elements = one->as.tile_elements;
    map->slices = one->as.slices;
    map->seen = calloc(in->processes, map->world);
    if (!map->seen)
        return -ENOMEM;
    see(in, one, map);
    if (map->fate == SHARE_OWN && map->world != in->processes)
        map->fate = SHARE_MOVE;
    if (map->fate == SHARE_MISSING)
        map->other = find_other(in, one, map);
    return map->fate == SHARE_OWN ? number(in, one, map) : 0;
}

int share_map(const struct share_map_in *in, struct share_map *map)
{
    struct one *stores = calloc(STORES_MOST, sizeof *stores);
    *map = (struct share_map){.number = calloc(in->processes, sizeof *map->number),
                              .other = UINT32_MAX};
    for (uint32_t p = 0; map->number && p < in->processes; p++)
        map->number[p] = p;
    int rc = stores && map->number ? build(in, stores, map) : -ENOMEM;
    free(stores);
    if (rc)
        share_map_free(map);
    return rc;
}

void share_map_free(struct share_map *map)
{
    free(map->number);
    free(map->seen);
    *map = (struct share_map){.fate = SHARE_NONE};
}

uint32_t share_map_first(const struct share_map *map, uint32_t processes, uint32_t rank)
{
    for (uint32_t p = 0; p < processes; p++)
        if (map->seen[(size_t)p * map->world + rank])
            return p;
    return UINT32_MAX;
}

void share_map_missing(const struct share_map *map, uint32_t processes, char *text, size_t bytes)
{
    uint32_t missing = 0;
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t r = 0; r < map->world; r++) {
        char name[STORE_NAME_BYTES];
        if (share_map_first(map, processes, r) != UINT32_MAX)
            continue;
        store_file_name(r, 0, false, name);
        if (missing++ < NAMES_MOST && n < bytes)
            n += (size_t)snprintf(text + n, bytes - n, "%s%s", n ? ", " : "", name);
    }
    if (missing > NAMES_MOST && n < bytes)
        snprintf(text + n, bytes - n, " and %u more", missing - NAMES_MOST);
}

/* Directories that two nodes have in common hold the same files for both. */
uint32_t share_map_twice(const struct share_map *map, uint32_t processes, const uint32_t *nodes)
{
    for (uint32_t r = 0; r < map->world; r++)
        for (uint32_t p = 1; p < processes; p++) {
            const uint32_t first = share_map_first(map, processes, r);
            if (first < p && nodes[first] != nodes[p] && map->seen[(size_t)p * map->world + r])
                return r;
        }
    return UINT32_MAX;
}
