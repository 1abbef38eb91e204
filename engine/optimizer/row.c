/* SPDX-License-Identifier: Apache-2.0 */
/* This is what all rows share: which of their states cpu_adam and the devices call what. */
#include "optimizer/row.h"

#include "base/precision.h"

/* The moments follow the master, where there is one, and their scales follow them. */
struct moments {
    void *m, *v;               /* null: the optimizer has none */
    void *m_scales, *v_scales; /* null: they are no codes */
};

static struct moments moments_of(const struct optimizer *o, const struct optimizer_arrays *a)
{
    const bool codes = o->host.moments == HST_CPU_CODE;
    const bool m = HST_OPTIMIZER_HAS_M(o->host.optimizer);
    const bool v = HST_OPTIMIZER_HAS_V(o->host.optimizer);
    struct moments moments = {NULL};
    uint32_t next = o->has_master;
    if (m)
        moments.m = a->states[next++];
    if (v)
        moments.v = a->states[next++];
    if (codes && m)
        moments.m_scales = a->states[next++];
    if (codes && v)
        moments.v_scales = a->states[next];
    return moments;
}

struct hst_update_arrays row_host_arrays(const struct optimizer *optimizer,
                                         const struct optimizer_arrays *a)
{
    const struct moments moments = moments_of(optimizer, a);
    return (struct hst_update_arrays){
        .weights = a->weights,
        .master = optimizer->has_master ? a->states[0] : NULL,
        .m = moments.m,
        .v = moments.v,
        .grads = a->grads,
        .index = a->index,
        .m_scales = moments.m_scales,
        .v_scales = moments.v_scales,
    };
}

int row_device(const struct optimizer *optimizer, struct hst_stream *stream,
               const struct optimizer_coef *coef, const struct optimizer_arrays *a, size_t n)
{
    const struct hst_adam_coef *c = &coef->host;
    const struct moments moments = moments_of(optimizer, a);
    const enum hst_dtype dtype = precision_dtype(optimizer->precision);
    const struct hst_optimize args = {
        .count = n,
        .dtype = dtype,
        .optimizer = optimizer->host.optimizer,
        .weight = a->weights,
        .remainder = dtype == HST_BF16 ? a->states[0] : NULL,
        .master = dtype == HST_F16 ? a->states[0] : NULL,
        .m = moments.m,
        .v = moments.v,
        .grad = a->grads,
        .grad_scale = c->grad_scale,
        .beta1_hi = c->beta1_hi,
        .beta1_lo = c->beta1_lo,
        .one_minus_beta1 = c->one_minus_beta1,
        .beta2_hi = c->beta2_hi,
        .beta2_lo = c->beta2_lo,
        .one_minus_beta2 = c->one_minus_beta2,
        .inv_sqrt_bias2 = c->inv_sqrt_bias2,
        .eps = c->eps,
        .decay = c->decay,
        .l2 = c->l2,
        .step_size = c->step_size,
        .m_scales = moments.m_scales,
        .v_scales = moments.v_scales,
    };
    return hst_op_optimize(stream, &args);
}
