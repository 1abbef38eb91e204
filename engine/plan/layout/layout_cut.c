/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts units that are larger than all that cannot be cut. Where a slice ends depends on the model
 * and the tile alone, never on a budget: of a model there is one layout that is cut, and one that
 * is whole.
 */
#include "plan/layout/layout.h"

#include "base/saturate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICES_MOST 65536u /* of all units */

struct cutter {
    const struct layout *whole;
    struct layout *cut;
    uint64_t *rows;        /* [units of the whole] of a slice; 0: the unit stays as it is */
    uint32_t *first_param; /* [parameters of the whole] its number, or that of its first slice */
};

/* Its computation reads this: its own parameter, or the one it is an alias of. */
static const struct layout_param *matrix_of(const struct layout *layout, uint32_t unit)
{
    return &layout->params[layout->units[unit].first_param];
}

static uint64_t largest_that_stays(const struct layout *layout)
{
    uint64_t most = 0;
    for (uint32_t u = 0; u < layout->unit_count; u++)
        if (layout->units[u].block_rows == 0 && layout->units[u].elements > most)
            most = layout->units[u].elements;
    return most;
}

static bool makes_tiles(uint64_t blocks, uint64_t block, uint32_t tile_elements)
{
    return blocks * block % tile_elements == 0;
}

/* It returns as many blocks as stay below `most` and make whole tiles; where none do, as few as
 * make some; 0 where all are needed. */
static uint64_t slice_rows(const struct layout *layout, uint32_t unit, uint64_t most,
                           uint32_t tile_elements)
{
    const struct layout_unit *u = &layout->units[unit];
    const struct layout_param *matrix = matrix_of(layout, unit);
    if (u->block_rows == 0 || matrix->count <= most)
        return 0;
    uint64_t block = u->block_rows * matrix->dims[1], fit = most / block, blocks = fit;
    while (blocks > 0 && !makes_tiles(blocks, block, tile_elements))
        blocks--;
    if (blocks == 0)
        blocks = fit + 1;
    while (blocks * u->block_rows < matrix->dims[0] && !makes_tiles(blocks, block, tile_elements))
        blocks++;
    return blocks * u->block_rows < matrix->dims[0] ? blocks * u->block_rows : 0;
}

/* An alias is cut where its owner is, or neither of them. */
static void match_aliases(struct cutter *c)
{
    const struct layout *whole = c->whole;
    for (uint32_t i = 0; i < whole->param_count; i++) {
        const struct layout_param *param = &whole->params[i];
        uint32_t owner = whole->params[param->owner].unit;
        if (c->rows[owner] != c->rows[param->unit])
            c->rows[owner] = 0;
    }
    for (uint32_t i = 0; i < whole->param_count; i++)
        if (c->rows[whole->params[whole->params[i].owner].unit] == 0)
            c->rows[whole->params[i].unit] = 0;
}

static uint64_t count_slices(const struct cutter *c)
{
    uint64_t count = 0;
    for (uint32_t u = 0; u < c->whole->unit_count; u++)
        if (c->rows[u] > 0)
            count += (matrix_of(c->whole, u)->dims[0] + c->rows[u] - 1) / c->rows[u];
    return count;
}

/* ---- what becomes of a unit ---- */

static void copy_unit(struct cutter *c, uint32_t unit)
{
    const struct layout_unit *from = &c->whole->units[unit];
    struct layout *cut = c->cut;
    struct layout_unit *to = &cut->units[cut->unit_count];
    *to = *from;
    to->name = strdup(from->name);
    to->first_param = cut->param_count;
    for (uint32_t i = from->first_param; i < from->first_param + from->param_count; i++) {
        struct layout_param *param = &cut->params[cut->param_count];
        *param = c->whole->params[i];
        param->name = strdup(param->name);
        param->unit = cut->unit_count;
        c->first_param[i] = cut->param_count++;
        param->owner = c->first_param[param->owner];
    }
    cut->unit_count++;
}

/* Null: no memory. */
static char *slice_name(const char *unit, uint64_t row)
{
    size_t bytes = strlen(unit) + 32;
    char *name = malloc(bytes);
    if (name)
        snprintf(name, bytes, "%s rows %llu", unit, (unsigned long long)row);
    return name;
}

static void add_slice(struct cutter *c, uint32_t unit, uint64_t row)
{
    const struct layout_unit *from = &c->whole->units[unit];
    const struct layout_param *matrix = matrix_of(c->whole, unit);
    struct layout *cut = c->cut;
    struct layout_unit *to = &cut->units[cut->unit_count];
    struct layout_param *param = &cut->params[cut->param_count];
    *to = *from;
    to->first_row = row;
    to->rows = matrix->dims[0] - row < c->rows[unit] ? matrix->dims[0] - row : c->rows[unit];
    to->first_param = cut->param_count;
    to->work_bytes = from->slice_work_bytes;
    to->no_forward = false;
    to->flops_per_token =
        (uint64_t)((double)from->flops_per_token * (double)to->rows / (double)matrix->dims[0]);
    to->name = slice_name(from->name, row);
    *param = *matrix;
    param->name = strdup(matrix->name);
    param->unit = cut->unit_count;
    param->dims[0] = to->rows;
    param->count = to->rows * matrix->dims[1];
    param->first = row * matrix->dims[1];
    if (row == 0)
        c->first_param[from->first_param] = cut->param_count;
    param->owner = c->first_param[matrix->owner] + (uint32_t)(row / c->rows[unit]);
    bool own = param->owner == cut->param_count;
    to->elements = own ? sat_round_up(param->count, LAYOUT_UNIT_ALIGN) : 0;
    cut->unit_count++;
    cut->param_count++;
}

static int cut_units(struct cutter *c)
{
    struct layout *cut = c->cut;
    for (uint32_t u = 0; u < c->whole->unit_count; u++) {
        if (c->rows[u] == 0)
            copy_unit(c, u);
        for (uint64_t row = 0; c->rows[u] > 0 && row < matrix_of(c->whole, u)->dims[0];
             row += c->rows[u])
            add_slice(c, u, row);
    }
    for (uint32_t u = 0; u < cut->unit_count; u++)
        if (!cut->units[u].name)
            return -ENOMEM;
    for (uint32_t i = 0; i < cut->param_count; i++)
        if (!cut->params[i].name)
            return -ENOMEM;
    return 0;
}

/* ---- the whole ---- */

static int open_cut(struct cutter *c, uint64_t slices)
{
    struct layout *cut = c->cut;
    *cut = (struct layout){.whole = c->whole,
                           .parameters = c->whole->parameters,
                           .param_align = c->whole->param_align,
                           .exact_beside = c->whole->exact_beside};
    cut->unit_room = c->whole->unit_count + (uint32_t)slices;
    cut->param_room = c->whole->param_count + (uint32_t)slices;
    cut->units = calloc((size_t)cut->unit_room + 1, sizeof *cut->units);
    cut->params = calloc((size_t)cut->param_room + 1, sizeof *cut->params);
    return cut->units && cut->params ? 0 : -ENOMEM;
}

static int open_cutter(struct cutter *c)
{
    *c->cut = (struct layout){0};
    c->rows = calloc((size_t)c->whole->unit_count + 1, sizeof *c->rows);
    c->first_param = calloc((size_t)c->whole->param_count + 1, sizeof *c->first_param);
    return c->rows && c->first_param ? 0 : -ENOMEM;
}

/* With what it made where that failed. */
static int close_cutter(struct cutter *c, int rc)
{
    free(c->rows);
    free(c->first_param);
    if (rc)
        layout_free(c->cut);
    return rc;
}

int layout_cut(const struct layout *whole, uint32_t tile_elements, struct layout *cut)
{
    struct cutter c = {.whole = whole, .cut = cut};
    uint64_t most = largest_that_stays(whole);
    int rc = open_cutter(&c);
    for (uint32_t u = 0; rc == 0 && u < whole->unit_count; u++)
        c.rows[u] = slice_rows(whole, u, most, tile_elements);
    if (rc == 0) {
        match_aliases(&c);
        uint64_t slices = count_slices(&c);
        rc = slices == 0 || slices > SLICES_MOST ? -ERANGE : open_cut(&c, slices);
    }
    rc = rc ? rc : cut_units(&c);
    return close_cutter(&c, rc);
}

int layout_copy(const struct layout *layout, struct layout *copy)
{
    struct cutter c = {.whole = layout, .cut = copy};
    int rc = open_cutter(&c); /* no unit has rows to be cut at */
    rc = rc ? rc : open_cut(&c, 0);
    rc = rc ? rc : cut_units(&c);
    copy->whole = layout->whole;
    return close_cutter(&c, rc);
}

void layout_count_slices(const struct layout *layout, uint32_t *cut_units, uint32_t *slices)
{
    *cut_units = *slices = 0;
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        if (!layout_is_slice(layout, u))
            continue;
        *cut_units += layout->units[u].first_row == 0;
        ++*slices;
    }
}
