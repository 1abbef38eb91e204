/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_TALL_CLIENT_H
#define HOISTWAY_TESTS_TALL_CLIENT_H
/*
 * A client whose embedding and head are matrices far larger than its layers, and may be cut: as the
 * toy client it takes each parameter for its gradient. It makes the visits that the engine lists.
 */
#include <hoistway/hoistway.h>

#define TALL_ROWS    5000u
#define TALL_COLUMNS 64u
#define TALL_BLOCK   256u /* rows */
#define TALL_UNITS   5u
#define TALL_BYTES   ((size_t)4 * 2 * 400000)

extern bool tall_tied;    /* the head is the embedding */
extern bool tall_whole;   /* nothing may be cut */
extern bool tall_swapped; /* the second and the third unit change places in the forward */

struct tall_saved {
    unsigned char bytes[TALL_BYTES]; /* of each parameter at its own place */
    size_t used;
};

/** What a token keeps in the head's slices, 12 bytes of which are used. */
extern uint64_t tall_token_bytes;

int tall_describe(struct hst_engine *engine);
int tall_load(struct hst_engine *engine);
/** A step. *visits: how many, may be null. Checks what it is given. */
int tall_step(struct hst_engine *engine, struct hst_step_stats *stats, size_t *visits);
/** An evaluation of all units, each slice of them. */
int tall_evaluate(struct hst_engine *engine);
int tall_save(struct hst_engine *engine, struct tall_saved *saved);

#endif
