/* SPDX-License-Identifier: Apache-2.0 */
/* Which null kernel has an update's traffic. */
#include "bench/adam/null.h"

#include <string.h>

static const struct adam_null_table *table_of(const char *isa)
{
    static const struct adam_null_table *const tables[] = {
#if defined(__x86_64__)
        &adam_null_avx512vbmi,
        &adam_null_avx512,
        &adam_null_avx2,
#elif defined(__aarch64__)
        &adam_null_neon,
#endif
        &adam_null_c,
    };
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (strcmp(tables[i]->isa, isa) == 0)
            return tables[i];
    return NULL;
}

adam_null *adam_null_find(const char *isa, struct hst_update_kind kind, enum adam_null_way way)
{
    const struct adam_null_table *t = table_of(isa);
    const bool one = !HST_OPTIMIZER_HAS_M(kind.optimizer) || !HST_OPTIMIZER_HAS_V(kind.optimizer);
    if (t && one && kind.weights == HST_CPU_BF16 && kind.moments == HST_CPU_F32)
        return t->bf16_one[way];
    if (!t || one)
        return NULL;
    if (kind.weights == HST_CPU_F32)
        return t->f32[way];
    if (kind.weights == HST_CPU_F16)
        return t->f16[way];
    return kind.moments == HST_CPU_F32    ? t->bf16[way]
           : kind.moments == HST_CPU_CODE ? t->bf16_codes[way]
                                          : t->bf16_moments[way];
}
