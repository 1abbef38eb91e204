/* SPDX-License-Identifier: Apache-2.0 */
/* Decides the next step's loss scale: see loss_scale.h. */
#include "base/loss_scale.h"

static float within(double value)
{
    return (float)(value < LOSS_SCALE_LEAST  ? LOSS_SCALE_LEAST
                   : value > LOSS_SCALE_MOST ? LOSS_SCALE_MOST
                                             : value);
}

struct loss_scale loss_scale_after(struct loss_scale scale, bool finite)
{
    if (!finite)
        return (struct loss_scale){.value = within((double)scale.value / 2)};
    if (++scale.good_steps < LOSS_SCALE_STEPS)
        return scale;
    return (struct loss_scale){.value = within((double)scale.value * 2)};
}
