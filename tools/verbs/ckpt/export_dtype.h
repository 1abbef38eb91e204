/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_CKPT_EXPORT_DTYPE_H
#define HOISTWAY_TOOLS_VERBS_CKPT_EXPORT_DTYPE_H
/* The type of an export's tensors, and how weights come to have it. */
#include "hf/hf.h"

#include <hoistway/cpu_adam.h>

/** What --export-dtype takes. */
enum export_choice { EXPORT_MODEL = 0, EXPORT_FP32, EXPORT_BF16, EXPORT_FP16 };
extern const char *const export_choices[]; /* by name, then null */
#define EXPORT_DTYPE_HELP "type of the exported weights; model: the model's own"

/**
 * It returns what an export of this model has. `working` is the type of the trained weights, which
 * stands in where neither config.json nor the model's files tell a type.
 */
enum hst_dtype export_dtype(enum export_choice choice, const struct hf_model *source,
                            enum hst_dtype working);
/** "bf16". */
const char *export_dtype_name(enum hst_dtype dtype);
/** Rounds x[n] to the nearest, ties to even. y: bf16 or f16, [n]. ops: of cpu_adam. Pure. */
void export_round(const struct hst_cpu_adam_ops *ops, const float *x, enum hst_dtype dtype,
                  uint16_t *y, size_t n);
/** It counts how many of bf16 or f16 y[n] are infinite. Pure. */
uint64_t export_infinite(const uint16_t *y, enum hst_dtype dtype, size_t n);

#endif
