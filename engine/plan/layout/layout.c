/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides where each parameter lies in its unit's row and how rows are cut into tiles. Everything
 * that is stored, updated or summed is addressed through this, so that results depend on it alone
 * and not on where the bytes live.
 */
#include "plan/layout/layout.h"

#include "base/saturate.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_PARAM_ELEMENTS (1ull << 40)
#define MAX_ELEMENTS       (1ull << 50) /* of all parameters: sums of bytes cannot overflow */

struct layout_name {
    const char *name; /* the parameter's */
    uint32_t number;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct layout_name *)a)->name, ((const struct layout_name *)b)->name);
}

/* The number of the parameter of that name, param_count where there is none. */
static uint32_t param_find(const struct layout *layout, const char *name)
{
    const struct layout_name wanted = {.name = name};
    void *found = tfind(&wanted, &layout->names, by_name);
    return found ? (*(struct layout_name **)found)->number : layout->param_count;
}

static int count_elements(const struct hst_param_desc *desc, uint64_t *count)
{
    uint64_t n = 1;
    if (desc->dim_count == 0 || desc->dim_count > HST_MAX_DIMS)
        return -EINVAL;
    for (uint32_t i = 0; i < desc->dim_count; i++) {
        if (desc->dims[i] == 0 || __builtin_mul_overflow(n, desc->dims[i], &n) ||
            n > MAX_PARAM_ELEMENTS)
            return -EINVAL;
    }
    *count = n;
    return 0;
}

static bool same_shape(const struct hst_param_desc *desc, const struct layout_param *owner)
{
    if (desc->dim_count != owner->dim_count)
        return false;
    return memcmp(desc->dims, owner->dims, desc->dim_count * sizeof desc->dims[0]) == 0;
}

/* Checks one parameter against what is there already, and against the earlier ones of the same
 * unit. */
static int check_param(const struct layout *layout, const struct hst_unit_desc *unit, uint32_t i,
                       char *why, size_t why_bytes)
{
    const struct hst_param_desc *desc = &unit->params[i];
    uint64_t count;
    if (!desc->name || !desc->name[0]) {
        snprintf(why, why_bytes, "parameter %u of unit \"%s\" has no name", i, unit->name);
        return -EINVAL;
    }
    bool duplicate = param_find(layout, desc->name) < layout->param_count;
    for (uint32_t j = 0; j < i && !duplicate; j++)
        duplicate = strcmp(unit->params[j].name, desc->name) == 0;
    if (duplicate) {
        snprintf(why, why_bytes, "parameter \"%s\" is described twice", desc->name);
        return -EINVAL;
    }
    if (count_elements(desc, &count)) {
        snprintf(why, why_bytes,
                 "parameter \"%s\" needs 1 to %u dimensions, each > 0, and at most 2^40 elements",
                 desc->name, HST_MAX_DIMS);
        return -EINVAL;
    }
    if (!desc->alias_of)
        return 0;
    uint32_t found = param_find(layout, desc->alias_of);
    if (found == layout->param_count) {
        snprintf(why, why_bytes,
                 "parameter \"%s\" is an alias of \"%s\", which no earlier unit has", desc->name,
                 desc->alias_of);
        return -EINVAL;
    }
    if (!same_shape(desc, &layout->params[found])) {
        snprintf(why, why_bytes, "parameter \"%s\" is an alias of \"%s\", which has another shape",
                 desc->name, desc->alias_of);
        return -EINVAL;
    }
    return 0;
}

static uint32_t room_for(uint32_t room, uint64_t wanted)
{
    uint64_t more = (uint64_t)room * 2 > 16 ? (uint64_t)room * 2 : 16;
    more = more > wanted ? more : wanted;
    return more < UINT32_MAX ? (uint32_t)more : UINT32_MAX;
}

static int grow(struct layout *layout, uint32_t more_params)
{
    if (layout->unit_count == layout->unit_room) {
        uint32_t room = room_for(layout->unit_room, (uint64_t)layout->unit_count + 1);
        struct layout_unit *units = realloc(layout->units, room * sizeof *units);
        if (!units)
            return -ENOMEM;
        layout->units = units;
        layout->unit_room = room;
    }
    uint64_t wanted = (uint64_t)layout->param_count + more_params;
    if (wanted > layout->param_room) {
        uint32_t room = room_for(layout->param_room, wanted);
        struct layout_param *params = realloc(layout->params, room * sizeof *params);
        if (!params)
            return -ENOMEM;
        layout->params = params;
        layout->param_room = room;
    }
    return 0;
}

/* forget_names takes back what was entered before memory ran out. */
static int enter_names(struct layout *layout, char **names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct layout_name *entry = malloc(sizeof *entry);
        if (!entry)
            return -ENOMEM;
        *entry = (struct layout_name){names[i], layout->param_count + i};
        if (!tsearch(entry, &layout->names, by_name)) {
            free(entry);
            return -ENOMEM;
        }
    }
    return 0;
}

static void forget_names(struct layout *layout, char **names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct layout_name wanted = {.name = names[i]};
        void *found = names[i] ? tfind(&wanted, &layout->names, by_name) : NULL;
        if (!found)
            continue;
        struct layout_name *entry = *(struct layout_name **)found;
        tdelete(&wanted, &layout->names, by_name);
        free(entry);
    }
}

static uint64_t padded(const struct layout *layout, uint64_t elements)
{
    return sat_round_up(elements, layout->param_align ? layout->param_align : LAYOUT_PARAM_ALIGN);
}

static void place_own(struct layout *layout, struct layout_unit *unit, struct layout_param *param)
{
    param->offset = unit->elements;
    unit->elements += padded(layout, param->count);
    layout->parameters += param->count;
}

static int check_total(const struct layout *layout, const struct hst_unit_desc *desc, char *why,
                       size_t why_bytes)
{
    uint64_t total = layout->parameters, count = 0;
    for (uint32_t i = 0; i < desc->param_count; i++) {
        count_elements(&desc->params[i], &count);
        total += count;
        if (total > MAX_ELEMENTS) {
            snprintf(why, why_bytes, "more than 2^50 elements in all, with unit \"%s\"",
                     desc->name);
            return -EINVAL;
        }
    }
    return 0;
}

static void copy_param(struct layout *layout, struct layout_unit *unit,
                       const struct hst_param_desc *desc, uint32_t index, char *name)
{
    uint32_t number = unit->first_param + index;
    struct layout_param *param = &layout->params[number];
    *param = (struct layout_param){.name = name,
                                   .unit = layout->unit_count,
                                   .index = index,
                                   .dim_count = desc->dim_count,
                                   .whole = number,
                                   .owner = number,
                                   .decay = (desc->flags & HST_PARAM_DECAY) != 0,
                                   .frozen = (desc->flags & HST_PARAM_FROZEN) != 0};
    memcpy(param->dims, desc->dims, desc->dim_count * sizeof desc->dims[0]);
    count_elements(desc, &param->count);
    if (!desc->alias_of) {
        place_own(layout, unit, param);
        return;
    }
    unit->borrows = true;
    param->owner = layout->params[param_find(layout, desc->alias_of)].owner;
    param->offset = layout->params[param->owner].offset;
    param->tied = layout->params[param->owner].tied = true;
    param->frozen = layout->params[param->owner].frozen |= param->frozen;
}

/* Slices are units like others: one matrix, that begins where a block of the norm does. */
static int check_blocks(const struct hst_unit_desc *desc, char *why, size_t why_bytes)
{
    unsigned long long rows = desc->slices.block_rows;
    uint64_t block;
    if (desc->param_count != 1 || desc->params->dim_count != 2 || desc->act_bytes_per_token > 0 ||
        (desc->flags & HST_UNIT_RECOMPUTE)) {
        snprintf(why, why_bytes,
                 "unit \"%s\" has blocks of %llu rows but is not one matrix without a checkpoint. "
                 "Fix: a unit of its own for the matrix, or slices.block_rows 0",
                 desc->name, rows);
        return -EINVAL;
    }
    if (__builtin_mul_overflow(desc->slices.block_rows, desc->params->dims[1], &block) ||
        block % LAYOUT_UNIT_ALIGN != 0) {
        snprintf(why, why_bytes,
                 "a block of unit \"%s\", %llu rows of %llu elements, is no multiple of %u "
                 "elements. Fix: slices.block_rows so that it is, or 0",
                 desc->name, rows, (unsigned long long)desc->params->dims[1], LAYOUT_UNIT_ALIGN);
        return -EINVAL;
    }
    return 0;
}

int layout_add(struct layout *layout, const struct hst_unit_desc *desc, char *why, size_t why_bytes)
{
    if (!desc->name || (desc->param_count > 0 && !desc->params)) {
        snprintf(why, why_bytes, "a unit needs a name, and parameters where it counts some");
        return -EINVAL;
    }
    if ((desc->flags & HST_UNIT_RECOMPUTE) && (desc->flags & HST_UNIT_NO_FORWARD)) {
        snprintf(why, why_bytes,
                 "unit \"%s\" has no forward that could be recomputed. Fix: leave out "
                 "HST_UNIT_RECOMPUTE",
                 desc->name);
        return -EINVAL;
    }
    if (desc->saved_bytes > 0 &&
        ((desc->flags & HST_UNIT_NO_FORWARD) || desc->slices.block_rows > 0)) {
        snprintf(why, why_bytes, "unit \"%s\" has saved_bytes and %s. Fix: leave saved_bytes 0",
                 desc->name, desc->slices.block_rows > 0 ? "can be cut into slices" : "no forward");
        return -EINVAL;
    }
    if (desc->slices.block_rows > 0 && check_blocks(desc, why, why_bytes))
        return -EINVAL;
    for (uint32_t i = 0; i < desc->param_count; i++) {
        int rc = check_param(layout, desc, i, why, why_bytes);
        if (rc)
            return rc;
    }
    if (check_total(layout, desc, why, why_bytes))
        return -EINVAL;
    snprintf(why, why_bytes, "out of memory while describing unit \"%s\"", desc->name);
    if (grow(layout, desc->param_count))
        return -ENOMEM;
    char **names = calloc((size_t)desc->param_count + 1, sizeof *names);
    if (!names)
        return -ENOMEM;
    bool complete = (names[desc->param_count] = strdup(desc->name)) != NULL;
    for (uint32_t i = 0; i < desc->param_count; i++)
        complete = (names[i] = strdup(desc->params[i].name)) && complete;
    if (!complete || enter_names(layout, names, desc->param_count)) {
        forget_names(layout, names, desc->param_count);
        for (uint32_t i = 0; i <= desc->param_count; i++)
            free(names[i]);
        free(names);
        return -ENOMEM;
    }
    struct layout_unit *unit = &layout->units[layout->unit_count];
    *unit = (struct layout_unit){.name = names[desc->param_count],
                                 .first_param = layout->param_count,
                                 .param_count = desc->param_count,
                                 .flops_per_token = desc->flops_per_token,
                                 .act_bytes_per_token = desc->act_bytes_per_token,
                                 .work_bytes = desc->work_bytes,
                                 .saved_bytes = desc->saved_bytes,
                                 .no_forward = (desc->flags & HST_UNIT_NO_FORWARD) != 0,
                                 .blind_backward = (desc->flags & HST_UNIT_BLIND_BACKWARD) != 0,
                                 .recompute = (desc->flags & HST_UNIT_RECOMPUTE) != 0,
                                 .writes_grads = (desc->flags & HST_UNIT_WRITES_GRADS) != 0,
                                 .block_rows = desc->slices.block_rows,
                                 .slice_work_bytes = desc->slices.work_bytes,
                                 .slice_token_bytes = desc->slices.token_bytes,
                                 .whole = layout->unit_count,
                                 .rows = desc->slices.block_rows ? desc->params->dims[0] : 0};
    for (uint32_t i = 0; i < desc->param_count; i++)
        copy_param(layout, unit, &desc->params[i], i, names[i]);
    free(names);
    unit->elements = sat_round_up(unit->elements, LAYOUT_UNIT_ALIGN);
    layout->param_count += desc->param_count;
    layout->unit_count++;
    return 0;
}

/* Known only when all units are there: a parameter turns tied when a later unit names it. */
static void place_gradients(struct layout *layout)
{
    for (uint32_t i = 0; i < layout->param_count; i++) {
        struct layout_param *param = &layout->params[i];
        struct layout_unit *unit = &layout->units[param->unit];
        uint64_t *end = param->tied ? &layout->tied_elements : &unit->grad_elements;
        if (param->owner != i) {
            param->grad_offset = layout->params[param->owner].grad_offset;
            continue;
        }
        if (param->frozen)
            continue;
        param->grad_offset = *end;
        *end += padded(layout, param->count);
    }
}

static bool is_frozen(const struct layout *layout, const struct layout_param *param)
{
    return layout->params[param->owner].frozen;
}

bool layout_is_mixed(const struct layout *layout, uint32_t unit, uint32_t two[2])
{
    const struct layout_unit *u = &layout->units[unit];
    bool has[2] = {false, false};
    for (uint32_t i = u->first_param; i < u->first_param + u->param_count; i++) {
        const bool frozen = is_frozen(layout, &layout->params[i]);
        two[frozen] = has[frozen] ? two[frozen] : i;
        has[frozen] = true;
    }
    return has[0] && has[1];
}

/* Slices of the unit that begins behind those that rest are all as good as its first. */
static bool is_first(const struct layout *layout, uint32_t unit)
{
    const uint32_t first = layout->resting_units;
    return unit == first ||
           (unit > first && layout_is_slice(layout, unit) && layout_is_slice(layout, first) &&
            layout->units[unit].whole == layout->units[first].whole);
}

/* A unit without parameters rests among others that do; where nothing is frozen none rests. */
void layout_rest(struct layout *layout)
{
    bool rests = true;
    layout->resting_units = 0;
    for (uint32_t i = 0; i < layout->param_count; i++)
        layout->params[i].frozen = is_frozen(layout, &layout->params[i]);
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        struct layout_unit *unit = &layout->units[u];
        uint32_t two[2];
        if (unit->param_count > 0)
            unit->frozen = is_frozen(layout, &layout->params[unit->first_param]) &&
                           !layout_is_mixed(layout, u, two);
        rests = rests && !unit->no_forward && (unit->frozen || unit->param_count == 0);
        if (rests && unit->frozen)
            layout->resting_units = u + 1;
    }
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        layout->units[u].rests = u < layout->resting_units;
        layout->units[u].first_backward = layout->resting_units > 0 && is_first(layout, u);
    }
}

static uint64_t tiles_in(uint64_t elements, uint32_t tile_elements)
{
    return elements / tile_elements + (elements % tile_elements > 0);
}

/* A row's first shards have so many elements: no tile goes on in the next shard. */
static uint64_t tiles_of_shards(uint64_t elements, uint64_t shard, uint32_t tile_elements)
{
    if (shard == 0)
        return 0;
    return elements / shard * tiles_in(shard, tile_elements) +
           tiles_in(elements % shard, tile_elements);
}

/* Behind those of the units before. False: there are too many. */
static bool number_tiles(struct layout *layout, struct layout_unit *unit)
{
    const uint64_t shard = shard_elements(unit->elements, layout->share.world);
    const uint32_t tile = layout->tile_elements;
    unit->shard = shard_of(unit->elements, layout->share);
    unit->first_of_all = layout->tiles_of_all + tiles_of_shards(unit->shard.first, shard, tile);
    layout->tiles_of_all += tiles_of_shards(unit->elements, shard, tile);
    if (layout->tiles_of_all >= UINT32_MAX)
        return false;
    unit->first_tile = layout->tile_count;
    unit->tile_count = (uint32_t)tiles_in(unit->shard.elements, tile);
    layout->tile_count += unit->tile_count;
    return true;
}

int layout_seal(struct layout *layout, uint32_t tile_elements, struct share share)
{
    layout->share = share;
    layout->tile_elements = tile_elements;
    layout->tile_count = 0;
    layout->tiles_of_all = layout->elements = layout->tied_elements = 0;
    for (uint32_t i = 0; i < layout->unit_count; i++) {
        struct layout_unit *unit = &layout->units[i];
        if (!number_tiles(layout, unit))
            return -EINVAL;
        unit->grad_elements = 0;
        unit->first_block = layout->elements / LAYOUT_UNIT_ALIGN;
        layout->elements += unit->elements;
    }
    layout_rest(layout);
    place_gradients(layout);
    return 0;
}

void layout_free(struct layout *layout)
{
    tdestroy(layout->names, free);
    for (uint32_t i = 0; i < layout->unit_count; i++)
        free(layout->units[i].name);
    for (uint32_t i = 0; i < layout->param_count; i++)
        free(layout->params[i].name);
    free(layout->units);
    free(layout->params);
    *layout = (struct layout){0};
}

/* Units are searched by halves: a trillion-parameter model has few units, but this runs per tile.
 */
static uint32_t unit_of_tile(const struct layout *layout, uint32_t tile)
{
    uint32_t low = 0, high = layout->unit_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (layout->units[middle].first_tile <= tile)
            low = middle;
        else
            high = middle;
    }
    /* Units without tiles share first_tile with their successor, which `low` is. */
    return low;
}

struct tile_range layout_tile(const struct layout *layout, uint32_t tile)
{
    const uint32_t number = unit_of_tile(layout, tile);
    const struct layout_unit *unit = &layout->units[number];
    const uint64_t before = (uint64_t)(tile - unit->first_tile) * layout->tile_elements;
    const uint64_t left = unit->shard.elements - before;
    return (struct tile_range){
        .unit = number,
        .offset = unit->shard.first + before,
        .elements = left < layout->tile_elements ? (uint32_t)left : layout->tile_elements,
    };
}

uint32_t layout_number_of_all(const struct layout *layout, uint32_t tile)
{
    const struct layout_unit *unit = &layout->units[unit_of_tile(layout, tile)];
    return (uint32_t)unit->first_of_all + tile - unit->first_tile;
}

/* Units without elements begin where their successor does. */
uint32_t layout_unit_at(const struct layout *layout, uint64_t element)
{
    uint32_t low = 0, high = layout->unit_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (layout->units[middle].first_block <= element / LAYOUT_UNIT_ALIGN)
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct tile_range layout_range_in(const struct layout *to, const struct layout *from,
                                  struct tile_range range)
{
    const uint64_t first = layout_first_element(from, range);
    range.unit = layout_unit_at(to, first);
    range.offset = first - to->units[range.unit].first_block * LAYOUT_UNIT_ALIGN;
    return range;
}

uint32_t layout_first_param_in(const struct layout *layout, struct tile_range range)
{
    const struct layout_unit *unit = &layout->units[range.unit];
    for (uint32_t i = unit->first_param; i < unit->first_param + unit->param_count; i++) {
        const struct layout_param *param = &layout->params[i];
        if (param->owner == i && param->offset + param->count > range.offset)
            return i;
    }
    return unit->first_param + unit->param_count;
}

struct hst_param_ref layout_param_ref(const struct layout *layout, uint32_t param)
{
    const struct layout *described = layout->whole ? layout->whole : layout;
    const struct layout_param *p = &described->params[layout->params[param].whole];
    return (struct hst_param_ref){
        .unit = p->unit,
        .param = p->index,
        .name = p->name,
        .dim_count = p->dim_count,
        .dims = p->dims,
    };
}

bool layout_begins_unit(const struct layout *layout, uint32_t tile)
{
    struct tile_range range = layout_tile(layout, tile);
    return range.offset == 0 &&
           (layout->units[range.unit].first_row == 0 || layout_stores_slices(layout));
}

bool layout_next_overlap(const struct layout *layout, struct tile_range range, uint32_t *next,
                         struct layout_overlap *overlap)
{
    const struct layout_unit *unit = &layout->units[range.unit];
    const uint64_t start = range.offset, end = start + range.elements;
    for (; *next < unit->first_param + unit->param_count; ++*next) {
        const struct layout_param *param = &layout->params[*next];
        if (param->owner != *next)
            continue;
        if (param->offset >= end)
            return false;
        const uint64_t from = param->offset > start ? param->offset : start;
        const uint64_t stop = param->offset + param->count;
        const uint64_t to = stop < end ? stop : end;
        *overlap = (struct layout_overlap){*next, param->first + from - param->offset, from - start,
                                           to - from};
        ++*next;
        return true;
    }
    return false;
}

uint32_t layout_largest_tile(const struct layout *layout)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < layout->unit_count; i++)
        if (layout->units[i].shard.elements > largest)
            largest = layout->units[i].shard.elements;
    return largest < layout->tile_elements ? (uint32_t)largest : layout->tile_elements;
}

static uint64_t digest(uint64_t seed, const void *bytes, size_t count)
{
    return XXH3_64bits_withSeed(bytes, count, seed);
}

uint64_t layout_digest(const struct layout *layout)
{
    uint64_t sum = digest(0, &layout->tile_elements, sizeof layout->tile_elements);
    layout = layout->whole ? layout->whole : layout;
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const struct layout_param *param = &layout->params[i];
        const uint64_t numbers[] = {param->unit, param->offset, param->owner, param->decay};
        sum = digest(sum, param->name, strlen(param->name));
        sum = digest(sum, param->dims, param->dim_count * sizeof *param->dims);
        sum = digest(sum, numbers, sizeof numbers);
    }
    return sum;
}

static const struct layout *described(const struct layout *layout)
{
    return layout->whole ? layout->whole : layout;
}

uint64_t layout_frozen_digest(const struct layout *layout)
{
    uint64_t sum = 0;
    layout = described(layout);
    for (uint32_t i = 0; i < layout->param_count; i++)
        if (is_frozen(layout, &layout->params[i]))
            sum = digest(sum, layout->params[i].name, strlen(layout->params[i].name));
    return sum;
}

uint64_t layout_frozen_elements(const struct layout *layout)
{
    uint64_t elements = 0;
    layout = described(layout);
    for (uint32_t i = 0; i < layout->param_count; i++)
        if (layout->params[i].owner == i && layout->params[i].frozen)
            elements += layout->params[i].count;
    return elements;
}
