/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW: its numbers and its rows. */
#include "optimizer/row.h"

#define NAME          "adamw"
#define TOO_LARGE     "Adam's v may overflow"
#define MOMENTS(type) NUMBERS("m", type), NUMBERS("v", type)

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

static const struct optimizer rows[] = {ROWS_OF_F32_MOMENTS(ADAMW, MOMENTS, 2),
                                        ROW_OF_BF16_MOMENTS(ADAMW, MOMENTS, 2),
                                        ROW_OF_CODED_MOMENTS(ADAMW, MOMENTS)};

const struct optimizer_table optimizer_adamw = {
    .name = NAME,
    .rows = rows,
    .row_count = sizeof rows / sizeof *rows,
    .defaults = {.beta1 = 0.9,
                 .beta2 = 0.999,
                 .momentum = OPTIMIZER_NO_NUMBER,
                 .eps = 1e-8,
                 .weight_decay = 0.01},
};
