/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The final norm, between the last layer and the head. A unit of its own, so that the head is one
 * matrix and nothing else, which can be visited in blocks of rows. Like a layer it keeps its input
 * and computes the rest again: one value per token.
 */
#include "model/layer/blocks.h"

void norm_forward(struct pass *p, const struct norm_work *w, void *x)
{
    pass_rmsnorm(p, x, 0, x, w->rstd);
}

void norm_backward(struct pass *p, const struct norm_work *w, const void *checkpoint, void *dx)
{
    pass_rmsnorm(p, checkpoint, 0, w->y, w->rstd);
    pass_rmsnorm_backward(p, checkpoint, 0, w->rstd, dx, dx, false);
}
