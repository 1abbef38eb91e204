/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file stands before a kernel: it finds it, and refuses what it could not survive. The checks
 * cost some 20 ns; a tile takes microseconds.
 */
#include "tables.h"

#include <errno.h>
#include <limits.h>

enum { ARRAYS = 7 };

/* One array of an update; bytes of a number, 0 where it has none; how many elements share it. */
struct array {
    uintptr_t start;
    size_t bytes, covers;
};

static bool has_scales(const struct hst_update *update)
{
    return update->kind.moments == HST_CPU_CODE;
}

static void list(const struct hst_update *update, const struct hst_update_arrays *a,
                 struct array out[ARRAYS])
{
    const struct hst_update_bytes *bytes = &update->bytes;
    const size_t m_scale = has_scales(update) && bytes->m ? sizeof *a->m_scales : 0;
    const size_t v_scale = has_scales(update) && bytes->v ? sizeof *a->v_scales : 0;
    out[0] = (struct array){(uintptr_t)a->weights, bytes->weights, 1};
    out[1] = (struct array){(uintptr_t)a->master, bytes->master, 1};
    out[2] = (struct array){(uintptr_t)a->m, bytes->m, 1};
    out[3] = (struct array){(uintptr_t)a->v, bytes->v, 1};
    out[4] = (struct array){(uintptr_t)a->m_scales, m_scale, HST_CODE_BLOCK};
    out[5] = (struct array){(uintptr_t)a->v_scales, v_scale, HST_CODE_BLOCK};
    out[6] = (struct array){(uintptr_t)a->grads, bytes->grads, 1};
}

static size_t bytes_of(const struct array *a, size_t n)
{
    return (n / a->covers + (n % a->covers > 0)) * a->bytes;
}

static bool overlap(const struct array *a, const struct array *b, size_t n)
{
    return a->start < b->start + bytes_of(b, n) && b->start < a->start + bytes_of(a, n);
}

static bool can_run(const struct array *arrays, int count, size_t n)
{
    for (int i = 0; i < count; i++) {
        const struct array *a = &arrays[i];
        if ((a->start != 0) != (a->bytes != 0))
            return false;
        if (a->bytes && (a->start % a->bytes != 0 || n > (UINTPTR_MAX - a->start) / a->bytes))
            return false;
        for (int j = 0; j < i; j++)
            if (overlap(a, &arrays[j], n))
                return false;
    }
    return true;
}

int hst_update_run(const struct hst_update *update, const struct hst_adam_coef *coef,
                   const struct hst_update_arrays *arrays, size_t n)
{
    struct array listed[ARRAYS];

    list(update, arrays, listed);
    if (!hst_adam_coef_is_sound(coef) || (n > 0 && !can_run(listed, ARRAYS, n)))
        return -EINVAL;
    size_t not_finite = update->kernel(coef, arrays, n);
    return not_finite < INT_MAX ? (int)not_finite : INT_MAX;
}

/* All arrays of both but for those that are one. */
bool hst_update_can_run_into(const struct hst_update *update, const struct hst_adam_coef *coef,
                             const struct hst_update_arrays *from,
                             const struct hst_update_arrays *into, size_t n)
{
    struct array listed[2 * ARRAYS], goals[ARRAYS];
    int count = ARRAYS;

    list(update, from, listed);
    list(update, into, goals);
    for (int i = 0; i < ARRAYS - 1; i++) /* the last are the gradients */
        if (goals[i].start != listed[i].start)
            listed[count++] = goals[i];
    return hst_adam_coef_is_sound(coef) && (n == 0 || can_run(listed, count, n));
}

static void *element(void *array, size_t bytes, size_t i)
{
    return bytes ? (char *)array + bytes * i : NULL;
}

struct hst_update_arrays hst_update_arrays_at(const struct hst_update *update,
                                              const struct hst_update_arrays *arrays, size_t first)
{
    const struct hst_update_bytes *bytes = &update->bytes;
    return (struct hst_update_arrays){
        .weights = element(arrays->weights, bytes->weights, first),
        .master = element(arrays->master, bytes->master, first),
        .m = element(arrays->m, bytes->m, first),
        .v = element(arrays->v, bytes->v, first),
        .grads = (const char *)arrays->grads + bytes->grads * first,
        .index = arrays->index + first,
        .m_scales = arrays->m_scales ? arrays->m_scales + first / HST_CODE_BLOCK : NULL,
        .v_scales = arrays->v_scales ? arrays->v_scales + first / HST_CODE_BLOCK : NULL,
        .ahead = arrays->ahead,
    };
}

const struct hst_update *hst_update_find(const struct hst_cpu_adam_ops *ops,
                                         struct hst_update_kind kind)
{
    for (size_t i = 0; i < ops->update_count; i++) {
        const struct hst_update *u = &ops->updates[i];
        if (u->kind.optimizer == kind.optimizer && u->kind.weights == kind.weights &&
            u->kind.moments == kind.moments && u->kind.grads == kind.grads)
            return u;
    }
    return NULL;
}
