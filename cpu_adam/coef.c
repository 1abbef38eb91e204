/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scalars around the kernels: one step's coefficients, the scale of its gradients, the sum of
 * norm partials.
 *
 * All in float64, and only with operations that IEEE 754 rounds exactly: pow() differs between
 * libms, and between CPUs under one libm, and a run resumed on another machine must go on with the
 * same bits.
 */
#include "noise.h"
#include "tables.h"

#include <errno.h>
#include <math.h>

/* β^t by squaring; its relative error grows with t while β^t shrinks, so 1 - β^t keeps 13 digits or
 * more. */
static double power(double base, uint64_t exponent)
{
    double result = 1.0;

    for (; exponent != 0; exponent >>= 1) {
        if (exponent & 1)
            result *= base;
        base *= base;
    }
    return result;
}

static bool hyper_is_valid(const struct hst_adam_hyper *h)
{
    /* Written so that a NaN fails. */
    return h->lr >= 0 && h->beta1 >= 0 && h->beta1 < 1 && h->beta2 >= 0 && h->beta2 < 1 &&
           (float)h->eps > 0 && h->weight_decay >= 0;
}

bool hst_adam_coef_is_sound(const struct hst_adam_coef *c)
{
    const float all[] = {
        c->grad_scale, c->beta1_hi,        c->beta1_lo, c->one_minus_beta1, c->beta2_hi,
        c->beta2_lo,   c->one_minus_beta2, c->eps,      c->inv_sqrt_bias2,  c->decay,
        c->l2,         c->step_size,
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!isfinite(all[i]))
            return false;
    return c->eps > 0;
}

/* The moments lack these by having begun as 0: their factors; 1 where that is not corrected. */
struct bias {
    double first, second;
};

static int coef_init(const struct hst_adam_hyper *hyper, uint64_t t, struct bias bias,
                     float grad_scale, struct hst_adam_coef *coef)
{
    if (t == 0 || !hyper_is_valid(hyper))
        return -EINVAL;

    const double beta1 = hyper->beta1, beta2 = hyper->beta2;
    const struct hst_adam_coef c = {
        .grad_scale = grad_scale,
        .beta1_hi = (float)beta1,
        .beta1_lo = (float)(beta1 - (double)(float)beta1),
        .one_minus_beta1 = (float)(1.0 - beta1),
        .beta2_hi = (float)beta2,
        .beta2_lo = (float)(beta2 - (double)(float)beta2),
        .one_minus_beta2 = (float)(1.0 - beta2),
        .inv_sqrt_bias2 = (float)(1.0 / sqrt(bias.second)),
        .eps = (float)hyper->eps,
        .decay = (float)(hyper->weight_decay * bias.first),
        .l2 = (float)hyper->weight_decay,
        .step_size = (float)(hyper->lr / bias.first),
        .noise = noise_hash(t),
    };
    if (!hst_adam_coef_is_sound(&c))
        return -EINVAL;
    *coef = c;
    return 0;
}

int hst_adam_coef_init(const struct hst_adam_hyper *hyper, uint64_t t, float grad_scale,
                       struct hst_adam_coef *coef)
{
    const struct bias bias = {1.0 - power(hyper->beta1, t), 1.0 - power(hyper->beta2, t)};
    return coef_init(hyper, t, bias, grad_scale, coef);
}

int hst_plain_coef_init(const struct hst_adam_hyper *hyper, uint64_t t, float grad_scale,
                        struct hst_adam_coef *coef)
{
    return coef_init(hyper, t, (struct bias){1.0, 1.0}, grad_scale, coef);
}

double hst_norm2_sum(const double *partial, size_t count)
{
    double sum = 0.0;

    for (size_t i = 0; i < count; i++)
        sum += partial[i];
    return sum;
}

int hst_grad_scale(const struct hst_grad_scale_in *in, float *scale)
{
    if (!isfinite(in->norm))
        return -EOVERFLOW;
    if (isnan(in->max_norm) || !isfinite(in->factor) || !(in->factor > 0))
        return -EINVAL;

    double clip = in->max_norm / (in->norm * in->factor + 1e-6);
    float rounded = (float)(in->max_norm > 0 && clip < 1.0 ? clip * in->factor : in->factor);
    if (in->norm * (double)rounded > HST_GRAD_NORM_MOST)
        return -EOVERFLOW;
    *scale = rounded;
    return 0;
}
