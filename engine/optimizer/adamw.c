/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW's rows, and what they share: which of their states cpu_adam and the devices call what. */
#include "base/precision.h"
#include "optimizer/optimizer.h"

/* The two moments follow the master, where there is one. */
enum { FIRST, SECOND };

static void *moment(const struct optimizer *optimizer, const struct optimizer_arrays *a, int which)
{
    return a->states[(int)optimizer->has_master + which];
}

static int coef(const struct optimizer_group *group, const struct optimizer_step *step,
                struct optimizer_coef *out)
{
    const struct hst_adam_hyper hyper = {
        .lr = step->lr,
        .beta1 = group->beta1,
        .beta2 = group->beta2,
        .eps = group->eps,
        .weight_decay = group->weight_decay,
    };
    return hst_adam_coef_init(&hyper, step->t, step->grad_scale, &out->host);
}

static struct hst_update_arrays host_arrays(const struct optimizer *optimizer,
                                            const struct optimizer_arrays *a)
{
    return (struct hst_update_arrays){
        .weights = a->weights,
        .master = optimizer->has_master ? a->states[0] : NULL,
        .m = moment(optimizer, a, FIRST),
        .v = moment(optimizer, a, SECOND),
        .grads = a->grads,
        .index = a->index,
    };
}

static int device(const struct optimizer *optimizer, struct hst_stream *stream,
                  const struct optimizer_coef *coef, const struct optimizer_arrays *a, size_t n)
{
    const struct hst_adam_coef *c = &coef->host;
    const enum hst_dtype dtype = precision_dtype(optimizer->precision);
    const struct hst_adamw args = {
        .count = n,
        .dtype = dtype,
        .weight = a->weights,
        .remainder = dtype == HST_BF16 ? a->states[0] : NULL,
        .master = dtype == HST_F16 ? a->states[0] : NULL,
        .m = moment(optimizer, a, FIRST),
        .v = moment(optimizer, a, SECOND),
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
        .step_size = c->step_size,
    };
    return hst_op_adamw(stream, &args);
}

/* ---- the rows ---- */

#define NUMBERS(state_name, type)                                                                  \
    {                                                                                              \
        .name = (state_name), .number = OPTIMIZER_##type, .covers = 1                              \
    }
#define MOMENTS(type) NUMBERS("m", type), NUMBERS("v", type)
#define KIND(weight, moments_)                                                                     \
    {                                                                                              \
        .optimizer = HST_OPTIMIZER_ADAMW, .weights = HST_CPU_##weight,                             \
        .moments = HST_CPU_##moments_, .grads = HST_CPU_##weight                                   \
    }
#define RATES(of)                                                                                  \
    .update_rate = HST_RATE_UPDATE_##of, .half_rate = HST_RATE_HALF_##of,                          \
    .device_rate = HST_RATE_DEVICE_##of
#define ADAMW                                                                                      \
    .name = "adamw", .granularity = 1, .too_large = "Adam's v may overflow", .coef = coef,         \
    .host_arrays = host_arrays

const struct optimizer optimizer_adamw[] = {
    {ADAMW, .precision = HST_PRECISION_FP32, .state = HST_STATE_FP32, .host = KIND(F32, F32),
     .states = {MOMENTS(F32)}, .state_count = 2, RATES(FP32), .device = device},
    {ADAMW, .precision = HST_PRECISION_BF16, .state = HST_STATE_FP32, .host = KIND(BF16, F32),
     .states = {NUMBERS("remainder", I16), MOMENTS(F32)}, .state_count = 3, .has_master = true,
     RATES(BF16), .device = device},
    {ADAMW, .precision = HST_PRECISION_BF16, .state = HST_STATE_BF16, .host = KIND(BF16, BF16),
     .states = {NUMBERS("remainder", I16), MOMENTS(BF16)}, .state_count = 3, .has_master = true,
     RATES(BF16)}, /* no device rounds moments to bf16 */
    {ADAMW, .precision = HST_PRECISION_FP16, .state = HST_STATE_FP32, .host = KIND(F16, F32),
     .states = {NUMBERS("master", F32), MOMENTS(F32)}, .state_count = 3, .has_master = true,
     RATES(FP32), /* it has none of its own, and moves nearly as many bytes */
     .device = device},
};
const size_t optimizer_adamw_count = sizeof optimizer_adamw / sizeof *optimizer_adamw;
