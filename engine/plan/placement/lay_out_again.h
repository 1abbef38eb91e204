/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_LAY_OUT_AGAIN_H
#define HOISTWAY_ENGINE_PLAN_LAY_OUT_AGAIN_H
/* The parts that lay_out has one after the other, and what each of them takes of memory. Pure. */
#include "plan/placement/lay_out.h"

enum { PART_RESIDENT, PART_BUFFERS = 7, LAY_OUT_PARTS };

/* These decide how much memory a part takes, once those before it are laid out. */
enum {
    BY_RESIDENT = 1u << 0,
    BY_STATES = 1u << 1,
    BY_ACTS = 1u << 2,
    BY_GRADS = 1u << 3,
    BY_WEIGHTS = 1u << 4,
    BY_ANY_STATES = 1u << 5, /* whether any leave memory */
    BY_SEGMENT = 1u << 6,
    BY_SAVED = 1u << 7,
    BY_DEPTHS = 1u << 8,
    BY_STREAMED = 1u << 9,
};

struct lay_out_part {
    void (*lay)(const struct placement_in *in, const struct choice *choice, struct placement *p);
    unsigned by;
};
extern const struct lay_out_part LAY_OUT_PART[LAY_OUT_PARTS]; /* in lay_out.c */

/** All of *p but its array of units is as nothing is laid out yet. drives: 0 where what is on them
 * is not looked at. */
void lay_out_begin(const struct placement_in *in, uint32_t drives, struct placement *p);

/* Each part of a choice takes this, as lay_out_again has laid it out last. */
struct lay_out_kept {
    bool any;
    struct choice choice;
    struct placement begun; /* its units are those of the choice */
    uint64_t hbm_bytes[LAY_OUT_PARTS], dram_bytes[LAY_OUT_PARTS];
    uint32_t resident_units, segment, device_weights[UNIT_SIZES];
};

/**
 * Tells what lay_out_memory does: bytes of both memories, the resident units and how many buffers
 * the device's pools for weights have. Nothing else of *p is written. Only parts are laid out anew
 * that depend on what the choice has other than the one before. kept: all zero but for begun.units,
 * [unit_count], which are the caller's; then what an earlier call of the same input has left.
 */
void lay_out_again(const struct placement_in *in, const struct choice *choice,
                   struct lay_out_kept *kept, struct placement *p);

#endif
