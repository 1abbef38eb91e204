/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_OPTIMIZER_H
#define HOISTWAY_ENGINE_EXEC_OPTIMIZER_H
/*
 * The end of a step: gradient norm, clip factor, AdamW on every tile. Where tiles are in DRAM or on
 * NVMe the workers do it (optimizer.c); where they are in HBM the device does (optimizer_device.c),
 * with the same bits.
 */
#include "engine_state.h"

/** One step's coefficients, for parameters with and without weight decay. */
struct optimizer_coefs {
    struct hst_adam_coef decayed, plain;
};
/** Errors: -EINVAL a learning rate that is no number ≥ 0. */
int optimizer_coefs(const struct hst_engine *engine, double grad_norm,
                    struct optimizer_coefs *coefs);

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

/**
 * Enqueues a unit's partials and their copy to the host, behind its rounded gradients, on the
 * unit's stream. Returns the device's error.
 */
int optimizer_device_norm(struct hst_engine *engine, uint32_t unit);
/** Their sum, when the stream has passed. */
double optimizer_device_grad_norm(struct hst_engine *engine);
/** Enqueues the update of everything on the step's stream. */
int optimizer_device_update(struct hst_engine *engine, double grad_norm);

#endif
