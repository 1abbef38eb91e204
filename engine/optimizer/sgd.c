/* SPDX-License-Identifier: Apache-2.0 */
/* SGD with momentum: its numbers, PyTorch's but for a momentum that is on, and its rows. */
#include "optimizer/row.h"

#define NAME          "sgd"
#define TOO_LARGE     "no update takes such gradients,"
#define MOMENTS(type) NUMBERS("m", type)

static int coef(const struct optimizer_group *group, const struct optimizer_step *step,
                struct optimizer_coef *out)
{
    const struct hst_adam_hyper hyper = {
        .lr = step->lr,
        .beta1 = group->momentum,
        .eps = 1, /* it has none */
        .weight_decay = group->weight_decay,
    };
    return hst_plain_coef_init(&hyper, step->t, step->grad_scale, &out->host);
}

static const struct optimizer rows[] = {ROWS_OF_F32_MOMENTS(SGD, MOMENTS, 1),
                                        ROW_OF_BF16_MOMENTS(SGD, MOMENTS, 1)};

const struct optimizer_table optimizer_sgd = {
    .name = NAME,
    .rows = rows,
    .row_count = sizeof rows / sizeof *rows,
    .defaults = {.beta1 = OPTIMIZER_NO_NUMBER,
                 .beta2 = OPTIMIZER_NO_NUMBER,
                 .momentum = 0.9,
                 .eps = OPTIMIZER_NO_NUMBER,
                 .weight_decay = 0},
};
