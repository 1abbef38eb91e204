/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_TOY_CLIENT_H
#define HOISTWAY_TESTS_TOY_CLIENT_H
/*
 * A client of the engine that needs no model: five units, the last tied to the first, and the
 * gradient of each parameter is the parameter itself, so what a step does depends on weights having
 * arrived where they belong. Every function returns the first code that is not 0.
 */
#include <hoistway/hoistway.h>

#define TOY_UNITS    5u
#define TOY_ELEMENTS 400000u /* more than all parameters together */

struct toy_unit {
    const struct hst_param_desc *params;
    uint32_t count;
};
extern const struct toy_unit toy_units[TOY_UNITS];

uint64_t toy_elements(const struct hst_param_desc *param);
/** Initial value of element i of a unit's parameter. */
float toy_initial(uint32_t unit, uint64_t i);

/** saved_bytes of the units between the first and the last one; 0 until it is set. */
extern uint64_t toy_saved_bytes;
/** Which parameters have HST_PARAM_FROZEN; null: none. */
extern bool (*toy_is_frozen)(const char *name);
/** Describes the units; the engine is then ready to be sealed. */
int toy_describe(struct hst_engine *engine);
int toy_load(struct hst_engine *engine);
int toy_seal_and_load(struct hst_engine *engine);
/** A whole step, of a learning rate of TOY_LR: forward (the head left out) and backward. */
#define TOY_LR 1e-3
int toy_sweep(struct hst_engine *engine, float loss_scale); /* between its begin and its end */
int toy_step(struct hst_engine *engine, struct hst_step_stats *stats);

struct toy_saved {
    unsigned char bytes[TOY_ELEMENTS * sizeof(float)];
    size_t used;
};
int toy_save(struct hst_engine *engine, struct toy_saved *saved);
/** What it computes on; null: the engine's. */
extern struct hst_stream *toy_stream;
/** The unit in whose gradients toy_add_gradients puts toy_poison (NaN, unless set); -1: none. */
extern int toy_poisoned;
extern float toy_poison;
/** Adds the unit's weights, times the loss scale, to their gradients. */
int toy_add_gradients(struct hst_engine *engine, uint32_t unit, const struct hst_unit_view *view,
                      float loss_scale);

#endif
