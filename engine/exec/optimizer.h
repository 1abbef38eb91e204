/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_OPTIMIZER_H
#define HOISTWAY_ENGINE_EXEC_OPTIMIZER_H
/* The end of a step: gradient norm, clip factor, AdamW on every tile. */
#include "engine_state.h"

/**
 * Global norm of the rounded gradients at home, in the fixed order of DESIGN: f64 partials per
 * 4,096 elements, in order. May be non-finite.
 */
double optimizer_grad_norm(struct hst_engine *engine);
/**
 * Updates all weights and states. Errors: -EINVAL a learning rate that is no number ≥ 0; those of
 * transfers.
 */
int optimizer_update(struct hst_engine *engine, double grad_norm);

#endif
