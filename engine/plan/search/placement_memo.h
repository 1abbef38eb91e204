/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_PLACEMENT_MEMO_H
#define HOISTWAY_ENGINE_PLAN_PLACEMENT_MEMO_H
/*
 * What choices of homes take, of those that were laid out before. Searches of one input differ in
 * what leaves memory first, and so try many a choice again.
 */
#include "plan/placement/lay_out_again.h"

struct placement_memo;

/** All of its choices have to be of this input. Null where memory is short: nothing is kept. */
struct placement_memo *placement_memo_make(const struct placement_in *in);
/** Accepts null. */
void placement_memo_free(struct placement_memo *memo);

/**
 * *p ← bytes of both memories, the resident units and the number of buffers for weights on the
 * device, as lay_out_memory has them for the choice. All else of *p says nothing then. What is not
 * known is kept, while there is room. memo may be null.
 */
void placement_memo_measure(struct placement_memo *memo, const struct placement_in *in,
                            const struct choice *choice, struct placement *p);

/**
 * Bytes of all files on drives, as lay_out has them for the choice that *p is measured of. All but
 * what is measured says nothing then. memo may be null.
 */
uint64_t placement_memo_drives(struct placement_memo *memo, const struct placement_in *in,
                               const struct choice *choice, struct placement *p);

/** True where a search has found the choice before, and told so. memo may be null. */
bool placement_memo_was_found(const struct placement_memo *memo, const struct choice *choice);
/** It is told of a choice that was measured. memo may be null. */
void placement_memo_note_found(struct placement_memo *memo, const struct choice *choice);

#endif
