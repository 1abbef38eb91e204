/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_KERNEL_H
#define HST_CPU_ADAM_KERNEL_H
/* All forms of the kernels share this: the sizes of elements, as constants of a kind. */
#include <hoistway/cpu_adam.h>

#include <string.h>

#define INLINED static inline __attribute__((always_inline))

enum { NORM_LANES = 16 };

#define TYPE_BYTES(type)   ((type) == HST_CPU_F32 ? 4 : (type) == HST_CPU_CODE ? 1 : 2)
#define MASTER_BYTES(type) ((type) == HST_CPU_F32 ? 0 : (type) == HST_CPU_BF16 ? 2 : 4)

#define M_BYTES(optimizer, type) (HST_OPTIMIZER_HAS_M(optimizer) ? TYPE_BYTES(type) : 0)
#define V_BYTES(optimizer, type) (HST_OPTIMIZER_HAS_V(optimizer) ? TYPE_BYTES(type) : 0)

/* struct hst_update_bytes of a kind with these types. */
#define ARRAY_BYTES(optimizer, weights_type, moments_type, grads_type)                             \
    {                                                                                              \
        .weights = TYPE_BYTES(weights_type), .master = MASTER_BYTES(weights_type),                 \
        .m = M_BYTES(optimizer, moments_type), .v = V_BYTES(optimizer, moments_type),              \
        .grads = TYPE_BYTES(grads_type)                                                            \
    }

INLINED struct hst_update_bytes bytes_of(struct hst_update_kind kind)
{
    return (struct hst_update_bytes)ARRAY_BYTES(kind.optimizer, kind.weights, kind.moments,
                                                kind.grads);
}

/* No array but scales is null here: one that the update has not is another one, and of no bytes. */
INLINED struct hst_update_arrays arrays_at(struct hst_update_kind kind,
                                           const struct hst_update_arrays *a, size_t first)
{
    const struct hst_update_bytes b = bytes_of(kind);
    return (struct hst_update_arrays){
        .weights = (char *)a->weights + b.weights * first,
        .master = (char *)a->master + b.master * first,
        .m = (char *)a->m + b.m * first,
        .v = (char *)a->v + b.v * first,
        .grads = (const char *)a->grads + b.grads * first,
        .index = a->index + first,
        .m_scales = kind.moments == HST_CPU_CODE ? a->m_scales + first / HST_CODE_BLOCK : NULL,
        .v_scales = kind.moments == HST_CPU_CODE ? a->v_scales + first / HST_CODE_BLOCK : NULL,
        .ahead = a->ahead,
    };
}

#endif
