/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_LOSS_SCALE_H
#define HOISTWAY_ENGINE_BASE_LOSS_SCALE_H
/*
 * The dynamic loss scale of fp16: as large as the gradients allow, so that small ones are not
 * rounded to zero. Pure.
 * Source: Micikevicius et al. 2018, arXiv:1710.03740, §3.2; the numbers are those of PyTorch's
 * GradScaler.
 */
#include <stdbool.h>
#include <stdint.h>

#define LOSS_SCALE_FIRST 65536.0
#define LOSS_SCALE_LEAST 1.0
#define LOSS_SCALE_MOST  0x1p32 /* gradients that do not overflow there are all below 2^-16 */
#define LOSS_SCALE_STEPS 2000u  /* good ones in a row, then it is doubled */

struct loss_scale {
    float value;
    uint32_t good_steps; /* since it changed */
};

/** The scale of the step after one whose gradients were finite, or were not. */
struct loss_scale loss_scale_after(struct loss_scale scale, bool finite);

#endif
