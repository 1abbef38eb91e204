/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_ADAMW_ARGS_H
#define HOISTWAY_ENGINE_BASE_ADAMW_ARGS_H
#include <hoistway/cpu_adam.h>
#include <hoistway/kernels.h>

/** A device's AdamW with these coefficients; arrays are still to be named. Pure. */
struct hst_adamw adamw_args(const struct hst_adam_coef *coef);

#endif
