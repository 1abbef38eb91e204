/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_PRECISION_H
#define HOISTWAY_ENGINE_BASE_PRECISION_H
#include <hoistway/hoistway.h>
#include <hoistway/kernels.h>

/** It tells which type weights, gradients and activations have in such a run. Pure. */
static inline enum hst_dtype precision_dtype(enum hst_precision precision)
{
    return precision == HST_PRECISION_BF16   ? HST_BF16
           : precision == HST_PRECISION_FP16 ? HST_F16
                                             : HST_F32;
}

#endif
