/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_TABLES_H
#define HST_CPU_ADAM_TABLES_H
/* The files of this folder share this: the tables that kernels.c becomes, one for each instruction
   set it is compiled for, and a check. */
#include <hoistway/cpu_adam.h>

extern const struct hst_cpu_adam_ops hst_cpu_adam_ops_c;
/* on x86-64 */
extern const struct hst_cpu_adam_ops hst_cpu_adam_ops_avx2;
extern const struct hst_cpu_adam_ops hst_cpu_adam_ops_avx512;
extern const struct hst_cpu_adam_ops hst_cpu_adam_ops_avx512vbmi;
/* on aarch64 */
extern const struct hst_cpu_adam_ops hst_cpu_adam_ops_neon;

/** All numbers are finite, and eps is greater than 0. */
bool hst_adam_coef_is_sound(const struct hst_adam_coef *coef);

/* update.c: what hst_update_run_into checks. */
bool hst_update_can_run_into(const struct hst_update *update, const struct hst_adam_coef *coef,
                             const struct hst_update_arrays *from,
                             const struct hst_update_arrays *into, size_t n);

#endif
