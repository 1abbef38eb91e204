/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_SEAL_H
#define HOISTWAY_ENGINE_PLAN_SEAL_H
/*
 * The plan of a run, as a value: how its model is cut into tiles and slices, and where all of it
 * lives. It is made of what was described, what there is room for and what is known of the machine.
 * Nothing is opened, read or changed for it: whoever asked takes it or leaves it.
 */
#include "plan/search/homes.h"
#include "plan/search/update_wish.h"

/** All that is saved stays on drives although memory has room where that wins so much of a step. */
#define PLAN_DRIVES_GAIN_LEAST 0.05

/** How a store of several ranks has large units: its ranks have shards of these. */
enum plan_units { PLAN_UNITS_ANY = 0, PLAN_UNITS_WHOLE, PLAN_UNITS_SLICED };

/** This is what a plan is made of. */
struct plan_in {
    const struct layout *layout; /* the units as they were described; any tiles are not looked at */
    /* Budgets, wishes, drives, tokens. What the plan decides is not looked at: layout, second_slots
       and store_fixed. */
    struct placement_in placement;
    struct share share;     /* of each row, that is this rank's; world 0: SHARE_ALL */
    uint32_t tile_elements; /* 0: they are chosen, see plan_seal */
    enum plan_units there; /* others only where these do not fit; ANY: the better ones */
    struct update_wish update;
    /* Bytes of a store's file on each drive beside its extents, once the tiles are known; null:
       there is no store. Pure, too. */
    void (*store_fixed)(const struct layout *layout, const struct optimizer *optimizer,
                        uint32_t drives, uint64_t fixed_bytes[STRIPE_DRIVES_MAX]);
    /* True where all rates of the machine are known that a step could need; else the usual homes
       are taken. */
    bool is_known;
    struct planner_machine machine;
    unsigned phases, phases_on_drives; /* see struct planner_in */
};

struct plan {
    /* With tiles, and with large units in slices where layout->whole is not null: it is the layout
       of plan_in then, which has to outlive this one. */
    struct layout *layout;
    struct homes homes; /* of that layout */
    char why[384];      /* one line where it failed, with a fix; "" for want of memory */
};

/** Elements of a tile where none are asked for. Small for the drive's buffer pool, large against
 * what a version writes for it; larger where each tile is a launch on a GPU. */
#define PLAN_TILE_HOST   262144u
#define PLAN_TILE_DEVICE (4u << 20)

/**
 * Decides in this order, each from what came before:
 *
 * 1. tiles: as asked for; else PLAN_TILE_DEVICE where a GPU then updates any and no tile is on a
 *    drive, PLAN_TILE_HOST elsewhere. Large units are in slices where they do not fit as they are;
 * 2. the usual homes (placement_plan), with second slots where an optimistic update is asked for,
 *    or where one may be chosen and there is room for the slots beside all else;
 * 3. where the machine is known the fastest homes (planner_improve), and those for the sake of an
 *    optimistic update where their second slots are worth it (homes_slots_are_worth). Where the
 *    host computes, all weights and states on drives are tried for it as well, where a version has
 *    slots for them: more memory is no reason for a much slower plan;
 * 4. then large units in slices, where homes that are found so are better (homes_are_better), and
 *    no store says how they are.
 *
 * Errors: -ENOSPC memory or -EDQUOT drives are too small: *plan is the smallest way, whole or in
 * slices, and `why` says what it lacks; -EINVAL a contradictory wish, or more than 2^32 tiles:
 * `why` alone; -ENOMEM: nothing.
 * Ownership: *plan, whatever is returned, is the caller's to free; it borrows in->layout.
 * Cost: that of planner_improve up to four times, and as often on a graph of few tiles.
 */
int plan_seal(const struct plan_in *in, struct plan *plan);
/** Accepts one that has nothing. */
void plan_free(struct plan *plan);

#endif
