/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_TABLES_H
#define HST_CPU_ADAM_TABLES_H
/* The tables that kernels.c becomes, one for each instruction set it is compiled for. */
#include <hoistway/cpu_adam.h>

extern const struct hst_cpu_adam_ops hst_cpu_adam_ops_c;
/* defined where HST_CPU_ADAM_X86 is set */
extern const struct hst_cpu_adam_ops hst_cpu_adam_ops_avx2;
extern const struct hst_cpu_adam_ops hst_cpu_adam_ops_avx512; /* likewise */

#endif
