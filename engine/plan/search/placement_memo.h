/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_PLACEMENT_MEMO_H
#define HOISTWAY_ENGINE_PLAN_PLACEMENT_MEMO_H
/*
 * What choices of homes take, of those that were laid out before. Searches of one input differ in
 * what leaves memory first, and so try many a choice again.
 */
#include "plan/placement/lay_out.h"

struct placement_memo;

/** All of its choices have to be of one input. Null where memory is short: nothing is kept then. */
struct placement_memo *placement_memo_make(void);
/** Accepts null. */
void placement_memo_free(struct placement_memo *memo);

/**
 * *p ← bytes of both memories, the resident units and the number of buffers for weights on the
 * device, as lay_out_memory has them for the choice, all else being as it was. False where that is
 * not known. memo may be null.
 */
bool placement_memo_find(const struct placement_memo *memo, const struct choice *choice,
                         struct placement *p);
/** It keeps them of *p, laid out for the choice, while there is room. memo may be null. */
void placement_memo_add(struct placement_memo *memo, const struct choice *choice,
                        const struct placement *p);

#endif
