/* SPDX-License-Identifier: Apache-2.0 */
/* The first unit: token ids in, residual stream out. It keeps nothing: the ids are on the device
 * in the backward too. */
#include "model/layer/blocks.h"

void embedding_forward(struct pass *p, const uint32_t *ids, void *x)
{
    pass_embedding(p, ids, 0, x);
}

void embedding_backward(struct pass *p, const uint32_t *ids, const void *dx)
{
    pass_embedding_backward(p, ids, 0, dx);
}
