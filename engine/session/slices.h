/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_SLICES_H
#define HOISTWAY_ENGINE_SESSION_SLICES_H
/*
 * Which slice a call is about: clients name units as they described them, all else in the engine is
 * about those of the layout, which may be cut.
 */
#include "session/engine_state.h"

#define NO_UNIT UINT32_MAX

/** The layout is sealed. Errors: -ENOMEM. */
int slices_open(struct hst_engine *engine);
void slices_close(struct hst_engine *engine);
/** It counts those of the client's units that have their gradients, all slices of them. */
uint32_t slices_ready(const struct hst_engine *engine);
/** The first slices are next: a step begins, or what went on between steps is over. */
void slices_begin(struct hst_engine *engine);

/**
 * The unit of the layout that is next in a sweep over the client's `unit`: itself where it is not
 * cut. NO_UNIT: all its slices were visited, or there is no such unit.
 */
uint32_t slices_next(const struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep);
/** It was acquired. */
void slices_pass(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep);
/** The acquired unit of the layout where it is the client's `unit`, or a slice of it; else NO_UNIT.
 */
uint32_t slices_held(const struct hst_engine *engine, uint32_t unit);

/** A unit of the layout as the client described it. */
static inline uint32_t slices_described(const struct hst_engine *engine, uint32_t unit)
{
    return engine->layout.units[unit].whole;
}

#endif
