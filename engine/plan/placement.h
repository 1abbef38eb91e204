/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_PLACEMENT_H
#define HOISTWAY_ENGINE_PLAN_PLACEMENT_H
/*
 * The home and the address of everything, within the budgets, and the memory table. Pure: it
 * decides before anything is allocated, and what it decided is all that is ever allocated.
 *
 * DRAM is one arena; an address is a byte offset in it, a multiple of 4 KiB. What lives on NVMe has
 * a drive and a byte offset in that drive's file. States are placed tile by tile, weights unit by
 * unit.
 */
#include "plan/layout.h"
#include "plan/record.h"

/** What --place says; a class that is not named is placed by the budgets. */
struct place_wish {
    bool fixed[HST_CLASS_COUNT];
    enum hst_tier tier[HST_CLASS_COUNT];
};
/** Parses "states=nvme,weights=dram". Errors: -EINVAL with `why` filled. */
int place_parse(const char *text, struct place_wish *wish, char *why, size_t why_bytes);

struct placement_in {
    const struct layout *layout;
    enum hst_precision precision;
    struct place_wish wish;
    bool has_nvme;                   /* there is a store directory */
    uint64_t dram_budget, nvme_budget; /* bytes */
    uint64_t batch_tokens, grain_tokens;
    uint64_t carry_bytes_per_token;
};

#define PLACEMENT_NO_ADDRESS UINT64_MAX

struct address {
    enum hst_tier tier;
    uint32_t drive;  /* NVMe: which file */
    uint64_t offset; /* bytes, in the arena or in the drive's file */
};

/* Where one unit's bytes are; tiles follow one another, so an address is arithmetic. */
struct unit_home {
    struct address weights;      /* of the unit's first tile */
    uint32_t nvme_states;        /* its first tiles, so many, have their states on NVMe */
    uint64_t nvme_states_at;     /* byte offset of the first of them, in the drive's file */
    uint64_t dram_states_at;     /* byte offset of the first of the others, in the arena */
    uint64_t grads;              /* arena offset of the rounded gradients */
    uint64_t acts;               /* arena offset of the checkpoints, or PLACEMENT_NO_ADDRESS */
};

struct placement {
    const struct layout *layout;
    enum hst_precision precision;
    struct unit_home *units;      /* [unit_count] */
    uint64_t carry, carry_grad;   /* arena offsets */
    uint64_t accumulator, tied;   /* arena offsets of the f32 gradient accumulators */
    uint64_t norm_partials;       /* arena offset, f64, one per 4,096 elements */
    uint64_t work, work_bytes;    /* the largest unit's workspace */
    uint64_t leases, lease_bytes; /* arena offset of lease 0, stride */
    uint32_t lease_count;         /* 0 where all weights are at home in DRAM */
    uint64_t slots, slot_bytes;   /* the tile ring: arena offset of slot 0, stride */
    uint64_t slot_record_at;      /* a slot is weights, then the record: bytes from its start */
    uint32_t slot_count;          /* 0 where nothing is on NVMe */
    uint32_t micro_count;
    uint64_t dram_bytes; /* of the arena */
    uint64_t nvme_bytes; /* of the file */
    uint64_t table[HST_CLASS_COUNT][HST_TIER_COUNT];
};

/**
 * Finds homes: as much as fits in DRAM, states leave first (they travel once each way per step,
 * weights twice in). The layout must outlive the placement. Cost: O(units), whatever their size.
 *
 * Errors: -ENOSPC the DRAM budget is too small, `why` names the smallest that would do; -EDQUOT the
 * NVMe budget is too small for what must leave DRAM; -EINVAL contradictory wish; -ENOMEM.
 */
int placement_plan(const struct placement_in *in, struct placement *placement, char *why,
                   size_t why_bytes);
void placement_free(struct placement *placement);

/** Where the weights and the state record of a tile are. */
struct address placement_weights(const struct placement *placement, uint32_t tile);
struct address placement_states(const struct placement *placement, uint32_t tile);

/** Tokens of micro-batch m: grain_tokens but for a shorter last. */
uint64_t placement_micro_tokens(const struct placement_in *in, uint32_t micro);
/** Bytes from one micro-batch's activations to the next's, per class of given bytes per token. */
uint64_t placement_micro_stride(const struct placement_in *in, uint64_t bytes_per_token);

/* ---- which tiles a unit needs: its own, and those with the parameters it is an alias of ------ */

struct gather {
    uint32_t first_tile, tile_count; /* consecutive, of one unit */
    uint64_t lease_at;               /* bytes from the start of the lease */
};
#define GATHER_MAX 8u
/** The runs of tiles a unit needs. Returns how many, or -EINVAL for more than GATHER_MAX. */
int placement_gather(const struct layout *layout, enum hst_precision precision, uint32_t unit,
                     struct gather gathers[GATHER_MAX]);

#endif
