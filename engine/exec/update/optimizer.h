/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_OPTIMIZER_H
#define HOISTWAY_ENGINE_EXEC_OPTIMIZER_H
/*
 * The arithmetic behind a backward: gradient norms, the clip factor, updates of tiles. Where tiles
 * are in DRAM or on NVMe the workers do it (optimizer.c); where they are in HBM, or are streamed
 * through it, the device does (optimizer_device.c), with the same bits.
 */
#include "comm/exact.h"
#include "exec/executor.h"

/**
 * The coefficients of the update that follows those made so far. stored_norm: of the gradients as
 * they are stored, the loss scale in them. Errors: -EINVAL a learning rate that is no number ≥ 0.
 */
int optimizer_coefs(const struct executor *exec, double stored_norm,
                    struct optimizer_coefs *coefs);

/**
 * For a started NORM: f64 partials of the unit's rounded gradients per 4,096 elements, in the fixed
 * order of cpu_adam.h; of a device with memory of its own they are there already. Errors:
 * -EOVERFLOW where the update does not wait for the other units and the gradients of this one are
 * not finite, or too large for the states.
 */
int optimizer_norm(struct executor *exec, struct scheduled at);
/** Adds the rank's part of the squared norm of the stored gradients, exactly. */
void optimizer_sum_norm(struct executor *exec, struct exact_sum *sum);
/** Errors: -EOVERFLOW (sticky) a norm that is not finite, or too large for the states. */
int optimizer_check_norm(struct executor *exec, double stored_norm);
/** True where that norm leaves the step without an update: a lower loss scale may do. */
bool optimizer_skips(const struct executor *exec, double stored_norm);

/** Updates the tiles of a started node. */
void optimizer_update(struct executor *exec, struct scheduled at);

/**
 * Enqueues a unit's partials behind its rounded gradients, on the unit's stream, and where these
 * stay in the device's memory the copy of the partials to the host. Returns the device's error.
 */
int optimizer_device_norm(struct executor *exec, uint32_t unit);
/** Likewise a started NORM's of what ranks have summed on the device, on that stream. Returns the
 * device's error. */
int optimizer_sum_device_norm(struct executor *exec, struct scheduled at,
                              struct hst_stream *stream);
/** Enqueues the update of a started node's tiles, which are resident, on the unit's stream. Errors:
 * the device's (sticky). */
int optimizer_device_update(struct executor *exec, struct scheduled at);
/** Enqueues that of a streamed tile, or of what ranks have summed, on a stream of its own. Errors:
 * the device's (sticky). */
int optimizer_streamed_update(struct executor *exec, struct scheduled at);

#endif
