/* SPDX-License-Identifier: Apache-2.0 */
#include "base/adamw_args.h"

struct hst_adamw adamw_args(const struct hst_adam_coef *c)
{
    return (struct hst_adamw){
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
}
