/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_MOVES_H
#define HOISTWAY_ENGINE_EXEC_MOVES_H
/* This is where in memory a node finds its operands: see plan/graph/operand.h. */
#include "exec/program.h"

struct move {
    enum extent_kind kind;
    uint32_t index; /* of the extent */
    void *memory;
    bool write;
};

/** The buffer that a started node has of a buffer pool. */
unsigned char *moves_buffer(const struct executor *exec, struct scheduled at,
                            struct operand_end end);

/** It counts the extents that a node of LANE_READ or LANE_WRITE moves. */
uint32_t moves_count(const struct executor *exec, struct scheduled at);
/** The i-th of them, for a node that was started. */
struct move moves_at(const struct executor *exec, struct scheduled at, uint32_t i);

/* It has so many parts of so many bytes. They follow one another where they come from, and are so
   far apart where they go. */
struct copy {
    unsigned char *to;
    const unsigned char *from;
    uint64_t bytes, stride;
    uint32_t parts;
};
/** The copies that a started node of LANE_H2D or LANE_D2H makes. Returns how many. */
uint32_t moves_copies(const struct executor *exec, struct scheduled at,
                      struct copy copies[OPERANDS_MOST]);

/**
 * This is where a started node that works in place has its nth operand of a kind; null: it has
 * none. Of a visit: weights of its unit, then of each alias; rounded gradients; partials;
 * checkpoints.
 */
unsigned char *moves_work(const struct executor *exec, struct scheduled at, unsigned what,
                          uint32_t nth);
/** The slots in memory, of weights and states that have two. */
struct moves_slots {
    int from, into;
};
/** These are those that a started node reads and writes. */
struct moves_slots moves_slots(const struct executor *exec, const struct node *node);
/** A tile's part of an operand of a started node that works in place on tiles, in that slot. */
unsigned char *moves_part(const struct executor *exec, struct scheduled at, unsigned what,
                          uint32_t tile, int slot);
/** This is what DRAM, as home tier, has of a tile; slot 1: its second slot, where it has one. */
unsigned char *moves_home(const struct executor *exec, enum extent_kind kind, uint32_t tile,
                          int slot);

/** The partials of a unit's norm where the host adds them. */
double *moves_host_partials(const struct executor *exec, uint32_t unit);
/** And in a device's memory those of a unit that is resident. */
double *moves_device_partials(const struct executor *exec, uint32_t unit);

#endif
