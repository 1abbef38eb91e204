/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides the type of an export. A model comes back in the type that it came in, unless something
 * else is asked for. Weights that were trained in that type go out as they are: those were used and
 * evaluated. All others are their f32 masters, rounded once.
 */
#include "verbs/ckpt/export_dtype.h"

enum hst_dtype export_dtype(enum export_choice choice, const struct hf_model *source,
                            enum hst_dtype working)
{
    enum hst_dtype dtype = working;
    if (choice == EXPORT_MODEL)
        hf_model_dtype(source, &dtype);
    return choice == EXPORT_FP32   ? HST_F32
           : choice == EXPORT_BF16 ? HST_BF16
           : choice == EXPORT_FP16 ? HST_F16
                                   : dtype;
}

const char *export_dtype_name(enum hst_dtype dtype)
{
    return export_choices[dtype == HST_F32    ? EXPORT_FP32
                          : dtype == HST_BF16 ? EXPORT_BF16
                                              : EXPORT_FP16];
}

void export_round(const struct hst_cpu_adam_ops *ops, const float *x, enum hst_dtype dtype,
                  uint16_t *y, size_t n)
{
    if (dtype == HST_BF16)
        ops->bf16_from_f32(x, y, n);
    else
        ops->f16_from_f32(x, y, n);
}

uint64_t export_infinite(const uint16_t *y, enum hst_dtype dtype, size_t n)
{
    const uint16_t infinity = dtype == HST_BF16 ? 0x7f80 : 0x7c00;
    uint64_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += (y[i] & 0x7fff) == infinity;
    return found;
}
