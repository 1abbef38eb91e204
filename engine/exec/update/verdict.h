/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_UPDATE_VERDICT_H
#define HOISTWAY_ENGINE_EXEC_UPDATE_VERDICT_H
/*
 * This is what becomes of a step's update when the norm is known: it is left out, or made, or,
 * where it was made already as if nothing clipped (session/update_time.h), it stands or is made
 * again. Writes executor.verdict.
 */
#include "exec/executor.h"

/** Step windows begin anew, with such updates. */
void verdict_open(struct executor *exec, bool optimistic);
/** A step begins: the coefficients of an update that does not wait, and what it would leave.
 * Errors: optimizer_coefs. */
int verdict_step_begins(struct executor *exec);
/** Tiles are updated whose update does not wait for the norm. */
void verdict_early_begins(struct executor *exec);
/**
 * All partials of the norm are there: whether the step is skipped, what it leaves for the next step
 * window (verdict.left), in which slot the weights are, and which coefficients a redo has.
 * Errors (sticky): optimizer_check_norm, optimizer_coefs.
 */
int verdict_judge(struct executor *exec);

#endif
