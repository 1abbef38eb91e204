/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_PLACEMENT_H
#define HOISTWAY_ENGINE_PLAN_PLACEMENT_H
/*
 * The home and the address of everything, within the budgets, and the memory table. Pure: it
 * decides before anything is allocated, and what it decided is all that is ever allocated.
 *
 * HBM and DRAM are one arena each; an address is a byte offset in it, a multiple of 4 KiB. What
 * lives on NVMe has a drive and a byte offset in that drive's file. States are placed tile by tile,
 * weights unit by unit.
 *
 * The compute tier is the one whose memory the device computes in: DRAM on the host, HBM on a GPU.
 * On a GPU a unit is resident: its weights, gradients and states are at home in HBM, and the GPU
 * updates them. Or it is offloaded: they are in DRAM and on NVMe, the host updates them, and
 * weights and gradients are copied. Of what it has in DRAM the GPU may update a share too: those
 * tiles are streamed, each copied to the GPU, updated there and copied back. Checkpoints may stay
 * in HBM in either case. The hidden state and what is accumulated in are always where the device
 * computes.
 */
#include "plan/layout/layout.h"
#include "plan/layout/stripe.h"
#include "plan/placement/record.h"

/** It holds what --place says; a class that is not named is placed by the budgets. */
struct place_wish {
    bool fixed[HST_CLASS_COUNT];
    enum hst_tier tier[HST_CLASS_COUNT];
};
/** Parses "states=nvme,weights=dram". Errors: -EINVAL with `why` filled. */
int place_parse(const char *text, struct place_wish *wish, char *why, size_t why_bytes);

/** A unit is as large as this beside the others: see unit_sizes.h. */
enum unit_size {
    UNIT_USUAL = 0,
    UNIT_WIDE,   /* the first or the last one, larger than all between them */
    UNIT_NARROW, /* clearly smaller than those it alternates with */
    UNIT_SIZES
};

struct placement_in {
    const struct layout *layout;
    const struct optimizer *optimizer; /* says what an element has beside its weight */
    struct place_wish wish;
    bool has_nvme; /* there is a store directory */
    /* one file on each drive: how many (0 as 1), how fast each, how much each may hold */
    uint32_t drive_count;
    double drive_rates[STRIPE_DRIVES_MAX];
    uint64_t drive_budgets[STRIPE_DRIVES_MAX];     /* bytes */
    enum hst_tier compute_tier;                    /* HST_TIER_DRAM or HST_TIER_HBM */
    uint64_t hbm_budget, dram_budget, nvme_budget; /* bytes */
    /* that --hbm and --dram may be, because no more is free; 0: they may be anything */
    uint64_t hbm_most, dram_most;
    /* ranks of this node: the budgets of memory and drives are one's part of the node's, which is
       what messages tell; 0 as 1 */
    uint32_t sharers;
    /* 1 and the rank that has the least of nvme_budget, by which all plan; 0: all have as much */
    uint32_t scarcest;
    /* the client's own memory, in the compute tier and in DRAM */
    uint64_t client_device_bytes, client_host_bytes;
    uint64_t batch_tokens, micro_batch_tokens; /* the rank's part of them; no more than a way's */
    /* Each of several ranks has whole rows of these in memory: ZeRO stages 2, 1 and 0; 1 and 0. */
    bool whole_weights, whole_grads;
    bool joined; /* ranks' devices are, so that gathers and exchanges may be in their memory */
    /* Weights are computed with as they travel between ranks, as integers: of one rank, too, they
       come to lie in a buffer for that. At home they are exact, in memory unless the layout has
       room for exact ones beside, or devices are joined, where the host's buffer has those. */
    bool quantised;
    /* So many ranks of a node, which are numbered one after another, keep gathered rows from the
       forward to the backward, each as much as the others; 0: they keep none. */
    uint32_t secondary;
    /* So many ranks have all of all, tiles too: ZeRO stage 0. The layout's share is then all of
       it; else the ranks are the share's, and this is 0. */
    uint32_t replicas;
    uint32_t ways; /* that the rank's part is; 0 as 1 */
    enum hst_dtype way_dtype; /* of the sum of these: ways_type; with one rank of no matter */
    uint32_t way_buffers; /* as large as any unit's gradients in f32: ways_buffers */
    uint64_t hidden_bytes_per_token;
    bool deferred; /* the update depends on all gradients: those have to be kept */
    /* Weights and states in DRAM are there twice, and those on NVMe, where there is no store. */
    bool second_slots;
    /* There is a store: on drives all weights and states have two slots, wherever their home is,
       but weights that follow from the states have one, and none where their home is in memory. */
    bool stored, derived_weights;
    /* of the store's file on each drive: bytes beside its extents, the bytes that it takes where it
       is there already (0: none), and what each zone of extents is a multiple of (0: nothing) */
    uint64_t store_fixed[STRIPE_DRIVES_MAX], store_there[STRIPE_DRIVES_MAX];
    uint32_t store_align;
    uint32_t store_room_fixed; /* bytes of a drive's file of scratch beside its extents */
    bool host_updates; /* the device has no update for these types: nothing of it is in HBM */
    bool recompute;    /* no unit keeps its activations for the backward */
    bool streams;      /* so much is streamed, and no other share */
    double stream_share;
};

#define PLACEMENT_NO_ADDRESS UINT64_MAX

struct address {
    enum hst_tier tier;
    uint32_t drive;  /* NVMe: which file */
    uint64_t offset; /* bytes, in the arena or in the drive's file */
};

/* It says where one unit's bytes are; tiles follow one another, so an address is arithmetic. */
struct unit_placement {
    bool offloaded;          /* from the device's memory; on the host no unit is */
    struct address weights;  /* of the unit's first tile; on NVMe see weights_at */
    /* Its tiles as they were planned, which of several ranks are rank 0's: no other has more. */
    uint32_t first_tile, tile_count;
    uint32_t nvme_states;    /* its first tiles, so many, have their states on NVMe */
    uint32_t streamed_tiles; /* its last tiles, so many, are updated by the GPU, though offloaded */
    /* Where gradients are exchanged in buckets (buckets.h), of which `grads` is then the start:
       its bucket, its shard in each part of that, and elements of a part. */
    uint32_t bucket;
    uint64_t bucket_first, bucket_elements;
    /* where rows come together, in DRAM or HBM: the rank's part of what its node keeps of the
       unit's row */
    uint64_t secondary;
    bool gathers_near;    /* its backward gathers what the node has kept of rows that it reads */
    uint64_t states_at;   /* of the first of the others, in memory */
    /* rounded gradients; of resident units that do not wait one place, or none: of several ranks
       the sum stays in its buffer, unless replicas put it together */
    struct address grads;
    struct address acts;  /* checkpoints; PLACEMENT_NO_ADDRESS where there are none */
    uint64_t act_bytes;   /* of all its checkpoints that are kept, whole pages */
    /* They are not kept but recomputed, from those of the nearest unit before that is not
       recomputed: `acts` is where that leaves them, near the computation. */
    bool recomputed;
    uint32_t first_act_block; /* those on NVMe are moved in blocks of PLACEMENT_ACT_BYTES */
    enum unit_size size;      /* of the buffers that it takes turns at: see buffer pools */
    uint64_t kept;            /* of a slice, in the compute tier's arena: its unit's token_bytes */
    uint64_t saved; /* there: its activations, or PLACEMENT_NO_ADDRESS; see struct hst_unit_desc */
    /* Byte offsets in each drive's file of the unit's first extent there (stripe: which drive).
       They come last: searches look at all of the others, over and over, and not at these. */
    uint64_t weights_at[STRIPE_DRIVES_MAX], nvme_states_at[STRIPE_DRIVES_MAX];
    uint64_t grads_at[STRIPE_DRIVES_MAX], acts_at[STRIPE_DRIVES_MAX];
};

/* Bytes of a block of checkpoints on NVMe; a unit's last one may be shorter. */
#define PLACEMENT_ACT_BYTES (4u << 20)

/* Buffers of one kind, one after another in an arena; none (count 0) where nothing needs them. */
struct buffer_pool {
    uint64_t at, bytes; /* of the first; from one to the next */
    uint32_t count;
};

/* These live on drives, or in a GPU's memory while the host works on it: one extent each. */
enum extent_kind {
    EXTENT_WEIGHTS = 0, /* of a tile */
    EXTENT_STATES,      /* a tile's record */
    EXTENT_GRADS,       /* of a tile, rounded */
    EXTENT_ACTS,        /* a block of checkpoints */
    EXTENT_KIND_COUNT
};

struct placement {
    const struct layout *layout;
    const struct optimizer *optimizer; /* says what an element has beside its weight */
    enum hst_tier compute_tier;
    bool whole_weights;  /* homes of weights are rows of all shards */
    bool buckets;        /* those of gradients are (buckets.h): ZeRO stage 1 */
    struct buffer_pool secondary; /* in DRAM of one rank all that its node keeps: one */
    uint32_t replicas;   /* as in placement_in */
    bool device_rows, device_sums; /* as in graph_in */
    uint64_t hand_bytes; /* of an element as ranks hand it over */
    uint32_t resident_units; /* so many are, on a GPU */
    uint32_t saved_units;    /* so many keep their activations */
    uint32_t streamed_tiles; /* of all units */
    /* Bytes from what is in DRAM of these to its second slot; 0: it has one. */
    uint64_t weights_slot, states_slot;
    /* And from what is in a drive's scratch file of these to its second slot there. */
    uint64_t weights_slot_on[STRIPE_DRIVES_MAX], states_slot_on[STRIPE_DRIVES_MAX];
    struct unit_placement *units; /* [unit_count] */
    /* Offsets in the compute tier's arena: */
    uint64_t hidden, hidden_grad;
    uint64_t accumulator, tied; /* the f32 gradient accumulators */
    uint64_t tied_of_ways;      /* of each of several ways, what is in `tied` while it is
                                   computed */
    struct buffer_pool way_sums; /* sums of ways of one unit */
    uint64_t norm_partials;     /* of what the device has at home */
    uint64_t work, work_bytes;  /* the largest unit's workspace */
    uint64_t client_device;
    /* Offsets in the DRAM arena: */
    uint64_t host_partials; /* of all, as the host reads them */
    uint64_t load_values;   /* f32 of one tile; may be the accumulator */
    uint64_t client_host;
    /* A buffer is as large as the largest unit that takes one. Where that is the embedding or the
       head alone, or every second unit is smaller, those have buffer pools of their own, by enum
       unit_size, if these take hardly more memory. Units whose pool has no buffers take usual ones.
       Buffer pools in DRAM: */
    struct buffer_pool reservations[UNIT_SIZES]; /* one unit's weights that come from NVMe */
    struct buffer_pool slots; /* one tile: its weights or gradients, then its record */
    uint64_t slot_record_at;  /* bytes from a slot's start */
    struct buffer_pool grad_buffers[UNIT_SIZES]; /* one unit's rounded gradients, on their way to
                                                    NVMe */
    struct buffer_pool act_buffers; /* one unit's checkpoints, on their way to and from NVMe */
    /* Buffer pools in HBM, of a unit whose home is elsewhere: */
    struct buffer_pool device_weights[UNIT_SIZES]; /* all weights that its computation reads */
    struct buffer_pool device_grads[UNIT_SIZES]; /* its rounded gradients, behind them their norm's
                                                    partials */
    struct buffer_pool device_acts;      /* its checkpoints */
    struct buffer_pool device_tiles;     /* a streamed tile: its weights, its gradients, its
                                            record */
    uint64_t device_tile_grads_at, device_tile_record_at; /* bytes from a buffer's start */
    uint32_t act_blocks;                                  /* on NVMe, of all units */
    /* Units to one kept checkpoint, where forwards are recomputed; else 1. */
    uint32_t segment;
    /* An update that does not wait for the norm leaves this to the next forward all the same: so
       many eighths of the tiles whose gradients last until then. The planner's choice. */
    uint32_t late_eighths;
    /* Threads that update beside a device with memory of its own, 0: all; [1] where the update is
       optimistic. Where DRAM is too slow for all that moves, fewer leave more of it to drives
       and copies. The planner's choice. */
    uint32_t update_threads[2];
    uint32_t micro_count;
    uint64_t hbm_bytes, dram_bytes;          /* of the arenas */
    uint64_t nvme_bytes;                     /* of all files */
    uint64_t drive_bytes[STRIPE_DRIVES_MAX]; /* of each scratch file */
    uint64_t store_bytes[STRIPE_DRIVES_MAX]; /* of the store; of scratch its first page */
    struct stripe stripe;
    uint64_t table[HST_CLASS_COUNT][HST_TIER_COUNT];
    uint64_t frozen_bytes[HST_TIER_COUNT]; /* of its weights those that are frozen: in one slot */
};

/**
 * Finds homes: as much as fits in the compute tier. From HBM checkpoints leave first, as many as
 * must, then units, no more than must: the first ones stay, which a step begins and ends with. What
 * HBM has room for after that holds checkpoints again, then others' weights from the forward to the
 * backward; and what is left then, on the host of DRAM, holds activations that units keep. Units
 * that share tied parameters stay if all do. From DRAM states leave first, then
 * checkpoints and gradients (each travels once each way per step), then weights (twice in). Where
 * nothing fits so and `wish` leaves checkpoints to the budgets, some are not kept: of units that
 * may be recomputed every second one's are, or every third one's, until it fits. The layout
 * must outlive the placement. Cost: O(units), whatever their size, for each length of such a
 * segment.
 *
 * Errors: -ENOSPC the HBM or DRAM budget is too small, `why` names the smallest that would do;
 * -EDQUOT the NVMe budget is too small for what must leave DRAM; -EINVAL contradictory wish;
 * -ENOMEM.
 */
int placement_plan(const struct placement_in *in, struct placement *placement, char *why,
                   size_t why_bytes);
/** As placement_plan; with -ENOSPC and -EDQUOT *placement is the smallest one, which does not fit.
 */
int placement_try(const struct placement_in *in, struct placement *placement, char *why,
                  size_t why_bytes);
void placement_free(struct placement *placement);

/** True where the device updates the unit, in its own memory. */
static inline bool placement_is_resident(const struct placement *placement, uint32_t unit)
{
    return placement->compute_tier == HST_TIER_HBM && !placement->units[unit].offloaded;
}
/** The tier of a unit's weights, gradients and states that are in memory. */
static inline enum hst_tier placement_memory(const struct placement *placement, uint32_t unit)
{
    return placement->units[unit].offloaded ? HST_TIER_DRAM : placement->compute_tier;
}
/** True where a unit's checkpoints are. */
static inline bool placement_copies_acts(const struct placement *placement, uint32_t unit)
{
    const struct unit_placement *home = &placement->units[unit];
    return placement->compute_tier == HST_TIER_HBM && home->acts.tier != HST_TIER_HBM &&
           home->act_bytes > 0;
}

/* A part of the DRAM arena that other ranks read, whole pages. */
struct exposed {
    uint64_t at, bytes;
};
#define EXPOSED_MAX 4u
/** Lists what other ranks may read: buffers of weights and gradients, homes of either that are
 * whole.
 * Returns how many parts. */
uint32_t placement_exposed(const struct placement *placement, struct exposed parts[EXPOSED_MAX]);

/** Units that could keep their activations. */
uint32_t placement_savable_units(const struct placement_in *in);
/** Bytes of a unit's activations, of all micro-batches. */
uint64_t placement_saved_bytes(const struct placement *placement, uint32_t unit);

/** Tiles of units that are offloaded, whose states are in DRAM. */
uint32_t placement_tiles_in_dram(const struct placement *placement);

/** It tells where the weights and the state record of a tile are. What is frozen has no record. */
struct address placement_weights(const struct placement *placement, uint32_t tile);
struct address placement_states(const struct placement *placement, uint32_t tile);
/** It tells where an extent is, and how large. */
struct address placement_extent(const struct placement *placement, enum extent_kind kind,
                                uint32_t index, uint64_t *bytes);
/** Bytes from an extent of that kind on a drive to its second slot; 0: it has one. */
uint64_t placement_second(const struct placement *placement, enum extent_kind kind, uint32_t index,
                          uint32_t drive);
/** And from weights or states in DRAM. */
uint64_t placement_second_in_dram(const struct placement *placement, enum extent_kind kind,
                                  uint32_t index);
/** Bytes of the states of a tile; 0: its unit is frozen. */
uint64_t placement_record_bytes(const struct placement *placement, struct tile_range range);
/** Extents of a kind are numbered from 0 to this. */
uint32_t placement_extents(const struct placement *placement, enum extent_kind kind);

/** It counts the bytes of the f64 partials of so many elements' norm: one per 4,096. */
static inline uint64_t placement_partials_bytes(uint64_t elements)
{
    return elements / LAYOUT_UNIT_ALIGN * sizeof(double);
}

/** Bytes from one micro-batch's activations to the next's, per class of given bytes per token. */
uint64_t placement_micro_stride(const struct placement_in *in, uint64_t bytes_per_token);

/* ---- which tiles a unit needs: its own, and those with the parameters it is an alias of ------ */

struct gather {
    uint32_t unit;                   /* that owns it */
    uint32_t first_tile, tile_count; /* consecutive; of several ranks the rank's, all of them */
    uint64_t first;                  /* element of the owner's row; of several ranks 0 */
    uint64_t reservation_at, bytes;  /* in the reservation; of several ranks a row's */
};
#define GATHER_MAX 8u
/** The runs of tiles a unit needs; of several ranks whole rows, of which the rank has its shard.
 * Returns how many, or -EINVAL for more than GATHER_MAX. */
int placement_gather(const struct layout *layout, uint64_t element_bytes, uint32_t unit,
                     struct gather gathers[GATHER_MAX]);
/** Ranks that train together: those that have shards, or replicas. */
static inline uint32_t placement_ranks(const struct placement_in *in)
{
    return in->replicas > 0 ? in->replicas : in->layout->share.world;
}
/** They exchange gradients in buckets. */
static inline bool placement_has_buckets(const struct placement_in *in)
{
    return in->whole_grads && in->replicas == 0;
}
/** Rows of weights come together in the memory of devices, where none has them whole at home. */
static inline bool placement_joins_rows(const struct placement_in *in)
{
    return in->joined && in->layout->share.world > 1 && !in->whole_weights;
}
/** And rows of gradients are exchanged there, but for those in buckets, whose home is DRAM. */
static inline bool placement_joins_sums(const struct placement_in *in)
{
    return in->joined && placement_ranks(in) > 1 && !placement_has_buckets(in);
}
/** The device may have units at home: of several ranks where all that these hand each other of them
 * is in devices' memory; of one where it computes with weights as they are. */
static inline bool placement_may_be_resident(const struct placement_in *in)
{
    return placement_ranks(in) > 1 ? placement_joins_sums(in) : !in->quantised;
}
/** Elements of a unit's row of gradients as ranks cut it: a part for each, as large as any. */
uint64_t placement_exchange_elements(const struct placement_in *in, uint32_t unit);
/** And its bytes, as a rank hands it to the others. */
uint64_t placement_exchange_bytes(const struct placement_in *in, uint32_t unit);
/** Elements of the rank's shard in memory: the same for all ranks. Searches of homes ask so often
 * that a division, or a call, would be felt. */
static inline uint64_t placement_shard_elements(const struct layout *layout, uint32_t unit)
{
    const uint64_t elements = layout->units[unit].elements;
    return layout->share.world == 1 ? elements / LAYOUT_UNIT_ALIGN * LAYOUT_UNIT_ALIGN
                                    : shard_elements(elements, layout->share.world);
}
/** Elements of a unit's row as a gather has it: shards of all ranks, maybe longer than the row. */
static inline uint64_t placement_row_elements(const struct layout *layout, uint32_t unit)
{
    return placement_shard_elements(layout, unit) * layout->share.world;
}
/** Bytes behind such a row in its buffer: the rank's own exact ones, where layouts have them. */
uint64_t placement_exact_bytes(const struct layout *layout, const struct gather *gather);

/* ---- gradients in buckets (buckets.h) ---- */

/* Where a unit's row of gradients is at home: element e, of the shard of rank r = e / shard, is
 * r·stride + e % shard elements behind `at`. An element has so many bytes as this rank hands over:
 * hand_bytes, or fewer on a last rank whose ways are a shorter group (ways_type). */
struct bucket_row {
    uint64_t at; /* bytes, in the DRAM arena */
    uint64_t shard, stride;
};
struct bucket_row bucket_row(const struct placement *p, uint32_t unit, uint64_t element_bytes);

/* This is exchanged with the unit: [ranks · elements] at `at`, [elements] of sums at `sum_at`. */
struct bucket {
    uint64_t at, sum_at;
    uint64_t elements; /* of a part */
};
struct bucket bucket_of(const struct placement *p, uint32_t unit);

#endif
