/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_VIEWS_H
#define HOISTWAY_ENGINE_SESSION_VIEWS_H
/* This header tells where the client finds an acquired unit's parameters and gradients. */
#include "session/engine_state.h"

/** Fills engine->view for the unit that was reached; gradients in the backward alone. */
void views_set(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep);
/** Where the way at hand has its gradients, and whether a client that can is to write them. */
void views_set_grads(struct hst_engine *engine, uint32_t unit, bool fresh);
/** A parameter's f32 gradient accumulator. */
float *views_accumulator(const struct hst_engine *engine, const struct layout_param *param);

#endif
