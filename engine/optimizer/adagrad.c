/* SPDX-License-Identifier: Apache-2.0 */
/* Adagrad: its numbers, PyTorch's, and its rows. No moments in bf16: its sum only grows. */
#include "optimizer/row.h"

#define NAME          "adagrad"
#define TOO_LARGE     "Adagrad's sum of squares may overflow"
#define MOMENTS(type) NUMBERS("v", type)

static int coef(const struct optimizer_group *group, const struct optimizer_step *step,
                struct optimizer_coef *out)
{
    const struct hst_adam_hyper hyper = {
        .lr = step->lr,
        .eps = group->eps,
        .weight_decay = group->weight_decay,
    };
    return hst_plain_coef_init(&hyper, step->t, step->grad_scale, &out->host);
}

static const struct optimizer rows[] = {ROWS_OF_F32_MOMENTS(ADAGRAD, MOMENTS, 1)};

const struct optimizer_table optimizer_adagrad = {
    .name = NAME,
    .rows = rows,
    .row_count = sizeof rows / sizeof *rows,
    .defaults = {.beta1 = OPTIMIZER_NO_NUMBER,
                 .beta2 = OPTIMIZER_NO_NUMBER,
                 .momentum = OPTIMIZER_NO_NUMBER,
                 .eps = 1e-10,
                 .weight_decay = 0},
};
