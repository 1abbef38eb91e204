/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_cases.h"

#include <assert.h>
#include <errno.h>
#include <hoistway/plan.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint64_t draw(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint32_t pick(uint64_t *seed, uint32_t count)
{
    assert(count > 0);
    return (uint32_t)(draw(seed) >> 32) % count;
}

struct seeds seeds_of(int argc, char **argv, uint64_t count)
{
    if (argc < 2)
        return (struct seeds){1, count};
    return (struct seeds){strtoull(argv[1], NULL, 10), 1};
}

/* ---- the list ---- */

static const char *const shapes[] = {"1B", "3B", "7B", "8B", "13B", "33B", "65B", "70B"};

static const struct {
    const char *name;
    bool apart;
    struct sim_rates rates;
} machines[] = {
    {"8 cores",
     false,
     {.flops_per_s = 0.6e12, .update = 1.4e9, .norm = 10e9, .dram = 40e9, .shared_cores = true}},
    {"64 cores",
     false,
     {.flops_per_s = 6e12, .update = 8e9, .norm = 60e9, .dram = 250e9, .shared_cores = true}},
    {"small GPU",
     true,
     {.flops_per_s = 80e12, .h2d = 25e9, .d2h = 25e9, .update = 2e9, .norm = 15e9, .dram = 60e9}},
    {"large GPU",
     true,
     {.flops_per_s = 400e12, .h2d = 50e9, .d2h = 50e9, .update = 8e9, .norm = 60e9, .dram = 250e9}},
};

static const struct {
    const char *name;
    double read, write, mixed;
} drives[] = {
    {"fast", 28e9, 20e9, 40e9},
    {"slow", 3e9, 2e9, 4.5e9},
    {"half duplex", 7e9, 5e9, 6e9},
};

/* What all units are made of. */
struct sizes {
    uint64_t table, layer; /* elements: of the embedding, and of a head of its own; of a layer */
    uint64_t slice;        /* of the table at most, where it is cut: whole blocks of rows */
    double tokens, flops;  /* of a step; of a layer's forward */
    bool wide;
};

static struct sizes sizes_of(const struct hst_shape *s, double tokens)
{
    uint64_t table = (uint64_t)s->vocab * s->hidden, block = UINT64_C(8192) * s->hidden;
    uint64_t layer = (hst_shape_params(s) - (s->tied ? 1 : 2) * table - s->hidden) / s->layers;
    return (struct sizes){
        .table = table,
        .layer = layer,
        .slice = layer > block ? layer / block * block : block,
        .tokens = tokens,
        .flops = 2 * ((double)layer + (double)s->heads * s->head_dim * 4096) * tokens,
        .wide = table > layer + layer / 2,
    };
}

static struct graph_unit *add_unit(struct graph_case *c, struct graph_unit unit)
{
    assert(c->in.unit_count < CASE_UNITS_MAX);
    c->units[c->in.unit_count] = unit;
    return &c->units[c->in.unit_count++];
}

static void add_layers(struct graph_case *c, const struct hst_shape *s, const struct sizes *sizes)
{
    for (uint32_t i = 0; i < s->layers; i++)
        add_unit(c, (struct graph_unit){.elements = sizes->layer,
                                        .act_bytes = (uint64_t)(sizes->tokens * s->hidden * 2),
                                        .forward_flops = sizes->flops,
                                        .backward_flops = 3 * sizes->flops});
}

static void tie(const struct graph_case *c, struct graph_unit *unit, uint32_t to, uint64_t elements)
{
    unit->alias_count = 1;
    unit->alias_of[0] = to;
    unit->alias_bytes[0] = (uint64_t)((double)elements * c->in.weight_bytes);
}

/* The embedding, the layers, the head: with a matrix of its own, or the embedding's. */
static void add_whole(struct graph_case *c, const struct hst_shape *s, const struct sizes *sizes)
{
    add_unit(c, (struct graph_unit){.elements = sizes->table, .blind_backward = true});
    add_layers(c, s, sizes);
    struct graph_unit *head =
        add_unit(c, (struct graph_unit){.elements = s->hidden + (s->tied ? 0 : sizes->table),
                                        .backward_flops = 6 * (double)sizes->table * sizes->tokens,
                                        .no_forward = true});
    if (s->tied)
        tie(c, head, 0, sizes->table);
    /* as a plan chooses: less than 3 buffers as large as they are */
    c->units[0].size = head->size = sizes->wide ? UNIT_WIDE : UNIT_USUAL;
}

static uint64_t slice_elements(const struct sizes *sizes, uint64_t first)
{
    return sizes->table - first < sizes->slice ? sizes->table - first : sizes->slice;
}

/* The same with embedding and head in slices: the norm between them has a checkpoint, and logits
 * are made in both sweeps. */
static void add_slices(struct graph_case *c, const struct hst_shape *s, const struct sizes *sizes)
{
    for (uint64_t at = 0; at < sizes->table; at += sizes->slice)
        add_unit(
            c, (struct graph_unit){.elements = slice_elements(sizes, at), .blind_backward = true});
    add_layers(c, s, sizes);
    add_unit(c, (struct graph_unit){.elements = s->hidden,
                                    .act_bytes = (uint64_t)(sizes->tokens * s->hidden * 2)});
    for (uint64_t at = 0; at < sizes->table; at += sizes->slice) {
        uint64_t elements = slice_elements(sizes, at);
        double flops = 2 * (double)elements * sizes->tokens;
        struct graph_unit *head =
            add_unit(c, (struct graph_unit){.elements = s->tied ? 0 : elements,
                                            .forward_flops = flops,
                                            .backward_flops = 3 * flops});
        if (s->tied)
            tie(c, head, (uint32_t)(at / sizes->slice), elements);
    }
}

static void add_units(struct graph_case *c, const struct hst_shape *s, const struct sizes *sizes,
                      bool cut)
{
    (cut ? add_slices : add_whole)(c, s, sizes);
    for (uint32_t i = 0; i < c->in.unit_count; i++) {
        c->forward[i] = i;
        c->backward[i] = c->in.unit_count - 1 - i;
    }
    c->in.tile_elements = (uint32_t)(sizes->layer / 12 / 4096 + 1) * 4096;
    c->in.buffers[POOL_WIDE_WEIGHTS] = c->in.buffers[POOL_DEVICE_WIDE_WEIGHTS] = 1;
    c->in.buffers[POOL_WIDE_GRADS] = c->in.buffers[POOL_DEVICE_WIDE_GRADS] = 1;
}

static const char *const tiers[] = {"hbm", "dram", "nvme"};

static void choose_homes(struct graph_case *c, uint64_t *seed, char *text, size_t text_bytes)
{
    enum hst_tier weights = HST_TIER_DRAM + pick(seed, 2), grads = HST_TIER_DRAM + pick(seed, 2);
    enum hst_tier acts = HST_TIER_DRAM + pick(seed, 2);
    uint32_t states = pick(seed, 3); /* in halves, on NVMe */
    if (c->in.apart && pick(seed, 2))
        acts = HST_TIER_HBM;
    if (c->in.apart && pick(seed, 12) == 0) {
        weights = grads = acts = HST_TIER_HBM;
        states = 0;
    }
    snprintf(text, text_bytes, "weights %s, grads %s, acts %s, %u/2 of the states nvme",
             tiers[weights], tiers[grads], tiers[acts], states);
    uint32_t tile = 0;
    for (uint32_t i = 0; i < c->in.unit_count; i++) {
        struct graph_unit *u = &c->units[i];
        u->first_tile = tile;
        u->tile_count = (uint32_t)((u->elements + c->in.tile_elements - 1) / c->in.tile_elements);
        tile += u->tile_count;
        u->nvme_states = u->tile_count * states / 2;
        u->weights = weights;
        u->grads = grads;
        u->acts = acts;
    }
}

/* Rarely too few, mostly few, sometimes plenty. */
static uint32_t some(uint64_t *seed, uint32_t few)
{
    static const uint32_t more[] = {0, 0, 0, 1, 1, 2, 4};
    return pick(seed, 20) == 0 ? few - 1 : few + more[pick(seed, 7)];
}

/* Fewer than 3 units' weights, 2 units' gradients, 4 tiles, in either memory. */
static bool has_small_pools(const struct graph *g)
{
    static const uint32_t least[POOL_COUNT] = {[POOL_WEIGHTS] = 3,
                                               [POOL_DEVICE_WEIGHTS] = 3,
                                               [POOL_GRADS] = 2,
                                               [POOL_DEVICE_GRADS] = 2,
                                               [POOL_TILES] = 4};
    for (int p = 0; p < POOL_COUNT; p++)
        if (g->pool_count[p] > 0 && g->buffers[p] < least[p])
            return true;
    return false;
}

/* What the buffers of wide units took holds so many more of the others'. */
static void share_out(struct graph_case *c, const struct sizes *sizes)
{
    static const enum pool pools[] = {POOL_WEIGHTS, POOL_GRADS, POOL_DEVICE_WEIGHTS,
                                      POOL_DEVICE_GRADS};
    uint64_t larger = sizes->layer > sizes->slice ? sizes->layer : sizes->slice;
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        c->in.buffers[pools[i]] += (uint32_t)(sizes->table / larger);
}

static void make_case(uint32_t number, bool cut, struct graph_case *c)
{
    uint64_t seed = number;
    uint32_t machine = pick(&seed, 4), drive = pick(&seed, 3);
    const char *shape = shapes[pick(&seed, 8)];
    double tokens = (double)(1024u << pick(&seed, 8));
    bool wide = pick(&seed, 2);
    char homes[80];
    *c = (struct graph_case){.rates = machines[machine].rates};
    c->rates.read = drives[drive].read;
    c->rates.write = drives[drive].write;
    c->rates.mixed = drives[drive].mixed;
    c->in = (struct graph_in){.units = c->units,
                              .forward = c->forward,
                              .backward = c->backward,
                              .weight_bytes = wide ? 4 : 2,
                              .state_bytes = wide ? 8 : 10,
                              .grad_bytes = wide ? 4 : 2,
                              .deferred = pick(&seed, 2),
                              .apart = machines[machine].apart};
    struct sizes sizes = sizes_of(hst_shape_find(shape), tokens);
    add_units(c, hst_shape_find(shape), &sizes, cut);
    choose_homes(c, &seed, homes, sizeof homes);
    c->in.buffers[POOL_WEIGHTS] = some(&seed, 3);
    c->in.buffers[POOL_GRADS] = some(&seed, 2);
    c->in.buffers[POOL_TILES] = some(&seed, 4);
    c->in.buffers[POOL_ACTS] = some(&seed, 2);
    c->in.buffers[POOL_DEVICE_WEIGHTS] = some(&seed, 3);
    c->in.buffers[POOL_DEVICE_GRADS] = some(&seed, 2);
    c->in.buffers[POOL_DEVICE_ACTS] = some(&seed, 2);
    if (cut)
        share_out(c, &sizes);
    snprintf(c->name, sizeof c->name, "%u: %s, %s, %.0fK tokens, %s drives, %s%s", number, shape,
             machines[machine].name, tokens / 1024, drives[drive].name, homes,
             c->in.deferred ? ", clip" : "");
}

void graph_case(uint32_t number, struct graph_case *c)
{
    struct graph g;
    make_case(number, false, c);
    if (graph_build(&c->in, &g) == 0) {
        c->small_pools = has_small_pools(&g);
        graph_free(&g);
    }
}

bool graph_case_cut(uint32_t number, struct graph_case *c)
{
    make_case(number, false, c);
    if (c->units[0].size != UNIT_WIDE)
        return false;
    make_case(number, true, c);
    return true;
}

/* ---- even ---- */

void even_case(struct graph_case *c, uint32_t count, const struct graph_unit *unit)
{
    *c = (struct graph_case){.in = {.units = c->units,
                                    .unit_count = count,
                                    .forward = c->forward,
                                    .backward = c->backward,
                                    .tile_elements = EVEN_TILE,
                                    .weight_bytes = 2,
                                    .state_bytes = 10,
                                    .grad_bytes = 2,
                                    .deferred = true}};
    for (uint32_t i = 0; i < count; i++) {
        c->units[i] = *unit;
        c->units[i].first_tile = unit->tile_count * i;
        c->units[i].elements = (uint64_t)unit->tile_count * EVEN_TILE;
        c->forward[i] = i;
        c->backward[i] = count - 1 - i;
    }
}

void one_tier_case(struct graph_case *c, enum hst_tier home, bool apart)
{
    static const uint32_t buffers[POOL_COUNT] = {
        [POOL_WEIGHTS] = 3,        [POOL_WIDE_WEIGHTS] = 1,
        [POOL_GRADS] = 2,          [POOL_WIDE_GRADS] = 1,
        [POOL_TILES] = 4,          [POOL_ACTS] = 2,
        [POOL_DEVICE_WEIGHTS] = 2, [POOL_DEVICE_WIDE_WEIGHTS] = 1,
        [POOL_DEVICE_GRADS] = 2,   [POOL_DEVICE_WIDE_GRADS] = 1,
        [POOL_DEVICE_ACTS] = 1,    [POOL_DEVICE_TILES] = 2};
    const struct graph_unit unit = {.tile_count = 4,
                                    .weights = home,
                                    .grads = home,
                                    .acts = home,
                                    .nvme_states = home == HST_TIER_NVME ? 4 : 0,
                                    .act_bytes = 1000,
                                    .forward_flops = 1,
                                    .backward_flops = 3};
    even_case(c, ONE_TIER_UNITS, &unit);
    c->in.apart = apart;
    memcpy(c->in.buffers, buffers, sizeof buffers);
}

/* ---- random ---- */

enum unit_size size_of_pool(int pool)
{
    static const int usual[] = {POOL_WEIGHTS, POOL_GRADS, POOL_DEVICE_WEIGHTS, POOL_DEVICE_GRADS};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (pool >= usual[i] && pool < usual[i] + (int)UNIT_SIZES)
            return (enum unit_size)(pool - usual[i]);
    return UNIT_USUAL;
}

#define RANDOM_TILE 4096u

static enum hst_tier any_tier(bool resident, uint64_t *seed)
{
    if (resident)
        return HST_TIER_HBM;
    return pick(seed, 2) ? HST_TIER_NVME : HST_TIER_DRAM;
}

static struct graph_unit random_unit(const struct graph_case *c, uint32_t number, bool resident,
                                     uint64_t *seed)
{
    uint32_t tiles = pick(seed, 5) ? 1 + pick(seed, 6) : 0;
    struct graph_unit u = {
        .tile_count = tiles,
        .elements = tiles ? (uint64_t)tiles * RANDOM_TILE - RANDOM_TILE / 2 * pick(seed, 2) : 0,
        .weights = any_tier(resident, seed),
        .grads = any_tier(resident, seed),
        .acts = c->in.apart && pick(seed, 2) ? HST_TIER_HBM : any_tier(resident, seed),
        .act_bytes = pick(seed, 4) ? 1000 + pick(seed, 9000) : 0,
        .forward_flops = pick(seed, 1000),
        .backward_flops = pick(seed, 3000),
        .no_forward = pick(seed, 6) == 0,
    };
    u.nvme_states = resident ? 0 : pick(seed, 3) * tiles / 2;
    if (number > 0 && pick(seed, 4) == 0) {
        u.alias_of[0] = pick(seed, number);
        u.alias_bytes[0] =
            (uint64_t)((double)c->units[u.alias_of[0]].elements * c->in.weight_bytes);
        /* they are where it is */
        u.alias_count = (c->units[u.alias_of[0]].weights == HST_TIER_HBM) == resident;
    }
    return u;
}

/* All units are resident, or none is, or some are. */
static bool any_residence(uint32_t kind, uint64_t *seed)
{
    return kind == 0 || (kind == 1 && pick(seed, 2));
}

/* Some units keep no checkpoint, where the backward mirrors the forward. */
static void random_segments(struct graph_case *c, uint64_t *seed)
{
    uint32_t n = c->in.unit_count, chance = pick(seed, 4);
    for (uint32_t i = 1; i < n; i++) {
        struct graph_unit *u = &c->units[c->forward[i]];
        bool may = !u->no_forward && !c->units[c->forward[i - 1]].no_forward &&
                   c->backward[n - 1 - i] == c->forward[i] &&
                   c->backward[n - i] == c->forward[i - 1];
        if (!may || pick(seed, 4) >= chance)
            continue;
        u->recomputed = true;
        u->act_bytes = 0;
    }
}

/* Of what has all at home in DRAM the device updates some, or all. */
static void random_streams(struct graph_case *c, uint64_t *seed)
{
    for (uint32_t i = 0; i < c->in.unit_count && c->in.apart; i++) {
        struct graph_unit *u = &c->units[i];
        bool home = u->weights == HST_TIER_DRAM && u->grads == HST_TIER_DRAM;
        if (home && pick(seed, 3))
            u->streamed_tiles = pick(seed, u->tile_count - u->nvme_states + 1);
    }
}

/* Mirrored, or with two units that have changed places in a sweep. */
static void random_orders(struct graph_case *c, uint64_t *seed)
{
    uint32_t n = c->in.unit_count;
    for (uint32_t i = 0; i < n; i++) {
        c->forward[i] = i;
        c->backward[i] = n - 1 - i;
    }
    if (pick(seed, 3))
        return;
    uint32_t *order = pick(seed, 2) ? c->forward : c->backward, a = pick(seed, n),
             b = pick(seed, n), unit = order[a];
    order[a] = order[b];
    order[b] = unit;
}

/* Of one case in three some units are frozen, and the first ones of these rest, where the backward
 * comes to them last. One trains. */
static void random_frozen(struct graph_case *c, uint64_t *seed)
{
    const uint32_t n = c->in.unit_count, trains = pick(seed, n);
    bool rest = pick(seed, 3) > 0;
    if (pick(seed, 3) > 0)
        return;
    for (uint32_t i = 0; i < n; i++) {
        struct graph_unit *u = &c->units[c->backward[n - 1 - i]];
        u->frozen = i < trains || (i > trains && pick(seed, 2));
        u->rests = rest = rest && i < trains && !u->no_forward;
        if (!u->frozen)
            continue;
        u->nvme_states = u->streamed_tiles = 0;
        u->act_bytes = u->rests ? 0 : u->act_bytes;
        u->recomputed = u->recomputed && !u->rests;
    }
    /* a segment begins with a checkpoint that is kept */
    for (uint32_t i = 0; i + 1 < n; i++)
        if (c->units[c->forward[i]].rests)
            c->units[c->forward[i + 1]].recomputed = false;
}

/* Of one case in two some units are narrow, often every second one. Each pool of theirs has some
 * buffers, or none. */
static void random_narrow(struct graph_case *c, uint64_t *seed)
{
    enum { NONE = 2, ANY = 2, SECOND };
    const uint32_t kind = pick(seed, 4);
    for (uint32_t i = 0; i < c->in.unit_count && kind >= NONE; i++) {
        const bool narrow = kind == ANY ? pick(seed, 2) : i % 2 == 1;
        if (narrow && c->units[i].size == UNIT_USUAL)
            c->units[i].size = UNIT_NARROW;
    }
    for (int p = 0; p < POOL_COUNT && kind >= NONE; p++)
        if (size_of_pool(p) == UNIT_NARROW)
            c->in.buffers[p] = pick(seed, 5);
}

void random_case(uint64_t seed, struct graph_case *c)
{
    *c = (struct graph_case){0};
    snprintf(c->name, sizeof c->name, "seed %llu", (unsigned long long)seed);
    c->in = (struct graph_in){.units = c->units,
                              .forward = c->forward,
                              .backward = c->backward,
                              .unit_count = 1 + pick(&seed, 6),
                              .tile_elements = RANDOM_TILE,
                              .weight_bytes = 2,
                              .state_bytes = 10,
                              .grad_bytes = 2,
                              .deferred = pick(&seed, 2),
                              .late_share = pick(&seed, 4) / 3.0,
                              .apart = pick(&seed, 2)};
    uint32_t kind = c->in.apart ? pick(&seed, 4) : 2, tiles = 0;
    for (uint32_t i = 0; i < c->in.unit_count; i++) {
        bool resident = any_residence(kind, &seed);
        c->units[i] = random_unit(c, i, resident, &seed);
        c->units[i].first_tile = tiles;
        tiles += c->units[i].tile_count;
    }
    random_orders(c, &seed);
    uint64_t segments = seed + 1; /* a sequence of its own */
    random_segments(c, &segments);
    random_streams(c, &segments);
    for (int p = 0; p < POOL_COUNT; p++)
        if (size_of_pool(p) != UNIT_NARROW)
            c->in.buffers[p] = 1 + pick(&seed, 4);
    for (int p = 0; p < POOL_COUNT; p++)
        if (size_of_pool(p) == UNIT_WIDE && pick(&seed, 4) == 0)
            c->in.buffers[p] = 0; /* wide units take turns with the others */
    double *rates[] = {&c->rates.read, &c->rates.write,        &c->rates.h2d,
                       &c->rates.d2h,  &c->rates.flops_per_s,  &c->rates.update,
                       &c->rates.norm, &c->rates.device_update};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        *rates[i] = 100 + pick(&seed, 900);
    c->rates.mixed = (c->rates.read + c->rates.write) * (0.5 + 0.25 * pick(&seed, 3));
    c->rates.dram = 300.0 * pick(&seed, 8);
    c->rates.shared_cores = pick(&seed, 2);
    c->in.stored = pick(&seed, 2);
    c->in.derived_weights = c->in.stored && pick(&seed, 3) == 0;
    c->in.optimistic = c->in.deferred && kind > 0 && pick(&seed, 2);
    c->in.deferred = c->in.deferred && !c->in.optimistic;
    c->in.derived_weights = c->in.derived_weights && !c->in.optimistic;
    for (uint32_t i = 0; i < c->in.unit_count; i++)
        c->units[i].blind_backward = pick(&seed, 5) == 0;
    c->units[0].size = pick(&seed, 2) ? UNIT_WIDE : UNIT_USUAL;
    if (pick(&seed, 2))
        c->units[c->in.unit_count - 1].size = UNIT_WIDE;
    random_frozen(c, &segments);
    random_narrow(c, &segments);
}

void for_random_graphs(struct seeds seeds,
                       void (*check)(const struct graph_case *c, const struct graph *graph))
{
    struct graph_case *c = malloc(sizeof *c);
    assert_non_null(c);
    for (uint64_t i = 0; i < seeds.count; i++) {
        struct graph graph;
        random_case(seeds.first + i, c);
        const int rc = graph_build(&c->in, &graph);
        assert_true(rc == 0 || rc == -EINVAL);
        if (rc)
            continue;
        check(c, &graph);
        graph_free(&graph);
    }
    free(c);
}
