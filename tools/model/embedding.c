/* SPDX-License-Identifier: Apache-2.0 */
/* The first unit: token ids in, residual stream out. It keeps nothing: the ids are at hand in
 * the backward. */
#include "model/blocks.h"

void embedding_forward(struct pass *p, const struct embedding_work *w, const uint32_t *ids, void *x)
{
    pass_copy(p, w->ids, ids, p->tokens * sizeof *ids);
    pass_embedding(p, w->ids, 0, x);
}

void embedding_backward(struct pass *p, const struct embedding_work *w, const uint32_t *ids,
                        const void *dx)
{
    pass_copy(p, w->ids, ids, p->tokens * sizeof *ids);
    pass_embedding_backward(p, w->ids, 0, dx);
}
