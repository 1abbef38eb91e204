/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_UPDATE_WISH_H
#define HOISTWAY_ENGINE_PLAN_UPDATE_WISH_H
/*
 * True where an update may be made in the backward (optimistic) on given homes. It needs second
 * slots: in memory those of the placement; on drives those of a store that makes a version of each
 * step, or without a store those of the placement too. Pure.
 */
#include "plan/placement/placement.h"

/** This is what was asked for, of an update that waits for its norm; else all are false. */
struct update_wish {
    bool optimistic; /* no other */
    bool either;     /* whichever is faster; no copies of versions are kept, which hold slots */
    bool frees;      /* what is on drives has a free slot in each step */
    bool frees_all;  /* it would have one, were all weights and states on drives */
};

/** Weights or states are on drives. */
bool update_uses_drives(const struct placement *placement);
/** The host updates any unit. */
bool update_uses_host(const struct placement *placement);
/** True where steps may change from one update to the other, as far as drives are concerned. */
bool update_may_change(const struct update_wish *wish, const struct placement *placement);
/** True where second slots would be of use. Not where the host computes: its threads are busy in
 * the backward. */
bool update_could_use_slots(const struct update_wish *wish, const struct placement *placement);

#endif
