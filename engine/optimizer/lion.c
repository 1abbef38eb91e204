/* SPDX-License-Identifier: Apache-2.0 */
/* Lion: its numbers, of which the betas are the paper's, and its rows. */
#include "optimizer/row.h"

#define NAME          "lion"
#define TOO_LARGE     "no update takes such gradients,"
#define MOMENTS(type) NUMBERS("m", type)

static int coef(const struct optimizer_group *group, const struct optimizer_step *step,
                struct optimizer_coef *out)
{
    const struct hst_adam_hyper hyper = {
        .lr = step->lr,
        .beta1 = group->beta1,
        .beta2 = group->beta2,
        .eps = 1, /* it has none */
        .weight_decay = group->weight_decay,
    };
    return hst_plain_coef_init(&hyper, step->t, step->grad_scale, &out->host);
}

static const struct optimizer rows[] = {ROWS_OF_F32_MOMENTS(LION, MOMENTS, 1),
                                        ROW_OF_BF16_MOMENTS(LION, MOMENTS, 1)};

const struct optimizer_table optimizer_lion = {
    .name = NAME,
    .rows = rows,
    .row_count = sizeof rows / sizeof *rows,
    .defaults = {.beta1 = 0.9,
                 .beta2 = 0.99,
                 .momentum = OPTIMIZER_NO_NUMBER,
                 .eps = OPTIMIZER_NO_NUMBER,
                 .weight_decay = 0.01},
};
