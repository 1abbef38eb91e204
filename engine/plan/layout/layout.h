/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_LAYOUT_H
#define HOISTWAY_ENGINE_PLAN_LAYOUT_H
/*
 * Parameters → units → shards → tiles. Pure: values in, values out.
 *
 * A unit's own parameters lie one after another in one flat row of elements, each at a multiple of
 * LAYOUT_PARAM_ALIGN or more; the row is padded to a multiple of LAYOUT_UNIT_ALIGN. A rank has its
 * shard of each row (share.h), cut into tiles, which are numbered through all units, in the rank. A
 * tied parameter belongs to the first unit that names it; later units hold an alias.
 *
 * A layout may be cut (layout_cut): a unit that is one matrix is then several, its slices, each of
 * them rows of it. Tiles and blocks of the norm have the same numbers and the same elements as in
 * the whole, so nothing that is stored or summed knows of it.
 */
#include "plan/layout/share.h"

#include <hoistway/hoistway.h>

#define LAYOUT_PARAM_ALIGN 64u /* elements: 128 bytes of bf16, wide enough for any vector load */
#define LAYOUT_UNIT_ALIGN                                                                          \
    4096u /* elements: the block of the norm; tiles stay multiples of 4 KiB on disk */

struct layout_param {
    char *name;
    uint32_t unit, index; /* where it is; in a layout that is not cut, where it was described */
    uint32_t dim_count;
    uint64_t dims[HST_MAX_DIMS];
    uint64_t count; /* elements */
    uint32_t whole; /* its number in the layout that was cut */
    uint64_t first; /* element of that one that it begins with */
    /* elements from the start of its owner's row (aliases: of the owner's unit) */
    uint64_t offset;
    /* number of the parameter that has the storage: itself, or the one it is an alias of */
    uint32_t owner;
    uint32_t group; /* whose numbers of the optimizer are its own; 0: those of all others */
    bool decay;
    bool frozen; /* it is not trained (set on the owner and on the aliases) */
    bool tied; /* another unit uses it too (set on the owner and on the aliases) */
    /* elements from the start of the unit's gradient accumulator, or of the tied buffer */
    uint64_t grad_offset;
};

struct layout_unit {
    char *name;
    uint32_t first_param, param_count; /* in layout.params */
    uint64_t elements;                 /* of its own row, padded: of all ranks */
    struct shard shard;                /* what of the row the rank's tiles hold */
    /* of its accumulator: own parameters that are not tied, padded each */
    uint64_t grad_elements;
    uint32_t first_tile, tile_count; /* of the rank */
    /* the number that its first tile has where those of all ranks are counted */
    uint64_t first_of_all;
    uint64_t first_block; /* of the norm: its first partial */
    uint64_t flops_per_token, act_bytes_per_token, work_bytes;
    uint64_t saved_bytes; /* of a micro-batch's activations, where it can keep them; else 0 */
    bool no_forward;      /* in training: its backward computes the forward too */
    bool blind_backward;  /* its backward reads no weights */
    bool recompute;       /* its checkpoint is the hidden state, and may be recomputed */
    bool writes_grads;    /* a way's first gradient is written, not added to zeros */
    bool borrows;         /* it has a parameter whose owner is another one */
    /* All its parameters are frozen: it has weights, and nothing else of its own. A layout without
       parameters, as a store's, is told. */
    bool frozen;
    bool rests; /* likewise all units before it: it has no backward */
    bool first_backward; /* all units before it rest, and there are some: a slice's, before all */
    uint64_t block_rows;  /* it may be cut between so many rows; 0: never */
    /* of a slice: in place of work_bytes; kept for each token of a step */
    uint64_t slice_work_bytes, slice_token_bytes;
    uint32_t whole;           /* its number in the layout that was cut */
    uint64_t first_row, rows; /* of its matrix, where it has block_rows: what is here of it */
};

struct layout {
    struct layout_unit *units;
    uint32_t unit_count, unit_room; /* room: what the arrays have memory for */
    struct layout_param *params;
    uint32_t param_count, param_room;
    /* tsearch(3) tree of struct layout_name: finds what is named twice, and aliases */
    void *names;
    struct share share;
    uint32_t tile_elements, tile_count; /* tiles of the rank */
    uint64_t tiles_of_all;              /* ranks */
    uint64_t parameters;        /* elements without padding, tied ones once */
    uint64_t tied_elements;     /* of the buffer that holds the gradients of tied parameters */
    uint64_t elements;          /* of all units, with padding */
    /* Parameters begin at multiples of it in their rows: of LAYOUT_PARAM_ALIGN, which 0 stands for,
       and of the optimizer's granularity. Set before units are added. */
    uint32_t param_align;
    const struct layout *whole; /* what it was cut from, which it borrows; null: it is not cut */
    bool slices; /* its units are those of a store that has slices for units of their own */
    uint32_t resting_units; /* so many of the first ones rest */
    /* Weights are computed with as integers give them back, and come from drives exact: in a buffer
       the rank's own exact ones lie behind each row. Set before it is cut. */
    bool exact_beside;
};

struct tile_range {
    uint32_t unit;
    uint64_t offset; /* elements from the start of the unit's row: of all ranks */
    uint32_t elements; /* a multiple of 4,096 */
};

/**
 * Copies one unit's description behind the others. Errors: -EINVAL with `why` filled; -ENOMEM. The
 * layout is unchanged then.
 */
int layout_add(struct layout *layout, const struct hst_unit_desc *desc, char *why,
               size_t why_bytes);
/**
 * Gives every unit its tiles, anew where it had some. tile_elements: a multiple of 4,096; the last
 * tile of a shard may be shorter. Errors: -EINVAL more than 2^32-1 tiles, of all ranks.
 */
int layout_seal(struct layout *layout, uint32_t tile_elements, struct share share);
void layout_free(struct layout *layout);

/** Once it is known which parameters are frozen, of their owners or aliases: which units are, and
 * which of them rest. Sealing does it, too. */
void layout_rest(struct layout *layout);
/** True where a parameter of the unit is frozen and another one is not: *two ← one of each kind. */
bool layout_is_mixed(const struct layout *layout, uint32_t unit, uint32_t two[2]);

/**
 * Cuts the units that may be and have more elements than any that may not, into slices of whole
 * blocks and whole tiles, no larger than those where that can be. *cut is to be sealed; `whole`,
 * which is not changed, must outlive it. Errors: -ERANGE there is nothing to be cut, or only into
 * more than 65,536 slices; -ENOMEM.
 */
int layout_cut(const struct layout *whole, uint32_t tile_elements, struct layout *cut);

/** The same units, which may have other tiles; none can be added to them. Errors: -ENOMEM. */
int layout_copy(const struct layout *layout, struct layout *copy);

struct tile_range layout_tile(const struct layout *layout, uint32_t tile);
/**
 * The number of the rank's tile where those of all ranks are counted: unit by unit, rank by rank.
 * With one rank it is the tile's own. Cost: O(log units).
 */
uint32_t layout_number_of_all(const struct layout *layout, uint32_t tile);
/** The range's first element, counted over all rows: the same however units and tiles are cut. */
static inline uint64_t layout_first_element(const struct layout *layout, struct tile_range range)
{
    return layout->units[range.unit].first_block * LAYOUT_UNIT_ALIGN + range.offset;
}
/** The unit whose row has that element, of those that have any. Cost: O(log units). */
uint32_t layout_unit_at(const struct layout *layout, uint64_t element);
/** The same elements in `to`, which is the same model cut in another way. One unit has them all. */
struct tile_range layout_range_in(const struct layout *to, const struct layout *from,
                                  struct tile_range range);
/**
 * The first own parameter of the tile's unit that ends behind the tile's start; param numbers rise
 * with offsets.
 */
uint32_t layout_first_param_in(const struct layout *layout, struct tile_range range);
static inline bool layout_is_slice(const struct layout *layout, uint32_t unit)
{
    const struct layout_unit *u = &layout->units[unit];
    return layout->whole && u->rows < layout->whole->units[u->whole].rows;
}
/** Its checkpoint may be recomputed; its activations may be kept: for a backward, if it has one. */
static inline bool layout_may_recompute(const struct layout_unit *unit)
{
    return unit->recompute && !unit->rests;
}
static inline bool layout_may_save(const struct layout_unit *unit)
{
    return unit->saved_bytes > 0 && !unit->rests;
}
/** It counts the units that were cut, and the slices that they are now. */
void layout_count_slices(const struct layout *layout, uint32_t *cut_units, uint32_t *slices);
/**
 * A store of it has slices for units of their own. With one rank tiles are those of the whole, and
 * no store knows of slices; of several each has a shard of each slice, so that a gather brings no
 * more than a slice.
 */
static inline bool layout_stores_slices(const struct layout *layout)
{
    return layout->whole ? layout->share.world > 1 : layout->slices;
}
/** True where a unit begins with the tile, as a store has them: on rank 0 alone. */
bool layout_begins_unit(const struct layout *layout, uint32_t tile);
/** A parameter as clients described it; borrows its name and shape. */
struct hst_param_ref layout_param_ref(const struct layout *layout, uint32_t param);

/* It tells what of a stored parameter a tile has, in elements; in_param: of it as described. */
struct layout_overlap {
    uint32_t param;
    uint64_t in_param, in_tile, count;
};
/**
 * The parts of a tile in order of offset: *next begins as layout_first_param_in. False: there is no
 * more.
 */
bool layout_next_overlap(const struct layout *layout, struct tile_range range, uint32_t *next,
                         struct layout_overlap *overlap);
/** The unit's largest tile, over all units, in elements. */
uint32_t layout_largest_tile(const struct layout *layout);

/** It covers all parameters: names, shapes, owners, where they lie. A cut changes nothing. */
uint64_t layout_digest(const struct layout *layout);
/** And this which of them are frozen; elements of all of these, without padding. */
uint64_t layout_frozen_digest(const struct layout *layout);
uint64_t layout_frozen_elements(const struct layout *layout);

#endif
