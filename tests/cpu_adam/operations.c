/* SPDX-License-Identifier: Apache-2.0 */
/* See operations.h. The arrays of an update: weights, grads, and of m, v and master what it has. */
#include "operations.h"

#include "support.h"

#define CALL(name)                                                                                 \
    static size_t name(const struct operation *op, const struct hst_cpu_adam_ops *ops,             \
                       const struct hst_adam_coef *coef, void *const *a, uint64_t index, size_t n)

CALL(run_update)
{
    const struct hst_update_bytes *bytes = &ops->updates[op->index].bytes;
    /* as far ahead as the index says, of which no bit may tell */
    const uint32_t ahead = index % 2 ? HST_AHEAD_NONE : (uint32_t)(index % 700);
    struct hst_update_arrays arrays = {
        .weights = *a++, .grads = *a++, .index = index, .ahead = ahead};
    arrays.m = bytes->m ? *a++ : NULL;
    arrays.v = bytes->v ? *a++ : NULL;
    arrays.master = bytes->master ? *a++ : NULL;
    arrays.m_scales = ops->updates[op->index].kind.moments == HST_CPU_CODE ? *a++ : NULL;
    arrays.v_scales = arrays.m_scales ? *a++ : NULL;
    int rc = hst_update_run(&ops->updates[op->index], coef, &arrays, n);
    assert_true(rc >= 0);
    return (size_t)rc;
}

CALL(set_weights)
{
    (void)coef, (void)index;
    ops->updates[op->index].set_weights(a[0], a[1], a[2], n);
    return 0;
}

CALL(split_f32)
{
    (void)op, (void)coef, (void)index;
    ops->split_f32(a[0], a[1], a[2], n);
    return 0;
}

CALL(join_f32)
{
    (void)op, (void)coef, (void)index;
    ops->join_f32(a[0], a[1], a[2], n);
    return 0;
}

CALL(f32_from_bf16)
{
    (void)op, (void)coef, (void)index;
    ops->f32_from_bf16(a[0], a[1], n);
    return 0;
}

CALL(bf16_from_f32)
{
    (void)op, (void)coef, (void)index;
    ops->bf16_from_f32(a[0], a[1], n);
    return 0;
}

CALL(f32_from_f16)
{
    (void)op, (void)coef, (void)index;
    ops->f32_from_f16(a[0], a[1], n);
    return 0;
}

CALL(f16_from_f32)
{
    (void)op, (void)coef, (void)index;
    ops->f16_from_f32(a[0], a[1], n);
    return 0;
}

CALL(norm2)
{
    (void)coef, (void)index;
    ops->norm2[op->index](a[0], n, a[1]);
    return 0;
}

/* Bytes of the scales of m and of v, which are one for a block. */
static const unsigned char SCALES[] = {OPERATION_SCALE, OPERATION_SCALE};

static const struct operation others[] = {
    {"split_f32", {4, 2, 2}, 1, 0, split_f32},
    {"join_f32", {2, 2, 4}, 1, 0, join_f32},
    {"f32_from_bf16", {2, 4}, 1, 0, f32_from_bf16},
    {"bf16_from_f32", {4, 2}, 1, 0, bf16_from_f32},
    {"f32_from_f16", {2, 4}, 1, 0, f32_from_f16},
    {"f16_from_f32", {4, 2}, 1, 0, f16_from_f32},
    {"norm2 f32", {4, 8}, HST_NORM_BLOCK, HST_CPU_F32, norm2},
    {"norm2 bf16", {2, 8}, HST_NORM_BLOCK, HST_CPU_BF16, norm2},
    {"norm2 f16", {2, 8}, HST_NORM_BLOCK, HST_CPU_F16, norm2},
};

size_t operations_list(const struct hst_cpu_adam_ops *ops, struct operation out[OPERATIONS_MAX])
{
    size_t count = sizeof others / sizeof others[0];

    memcpy(out, others, sizeof others);
    assert_true(count + 2 * ops->update_count <= OPERATIONS_MAX);
    for (size_t i = 0; i < ops->update_count; i++) {
        const struct hst_update_bytes *b = &ops->updates[i].bytes;
        const unsigned char states[] = {b->m, b->v, b->master};
        struct operation update = {
            .name = ops->updates[i].name,
            .element_bytes = {b->weights, b->grads},
            .cut = ops->updates[i].granularity,
            .index = i,
            .call = run_update,
        };
        for (size_t s = 0, next = 2; s < sizeof states; s++)
            if (states[s])
                update.element_bytes[next++] = states[s];
        if (ops->updates[i].kind.moments == HST_CPU_CODE)
            memcpy(update.element_bytes + 5, SCALES, sizeof SCALES);
        out[count++] = update;
        out[count++] = (struct operation){
            .name = "set_weights",
            .element_bytes = {4, b->weights, b->master},
            .cut = 1,
            .index = i,
            .call = set_weights,
        };
    }
    return count;
}
