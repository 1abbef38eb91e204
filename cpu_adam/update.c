/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file stands before a kernel: it finds it, and refuses what it could not survive. The checks
 * cost some 20 ns; a tile takes microseconds.
 */
#include "tables.h"

#include <errno.h>
#include <limits.h>

enum { ARRAYS = 5 };

/* One array of an update; bytes per element, 0 where it has none. */
struct array {
    uintptr_t start;
    size_t bytes;
};

static void list(const struct hst_update *update, const struct hst_update_arrays *a,
                 struct array out[ARRAYS])
{
    const struct hst_update_bytes *bytes = &update->bytes;
    out[0] = (struct array){(uintptr_t)a->weights, bytes->weights};
    out[1] = (struct array){(uintptr_t)a->master, bytes->master};
    out[2] = (struct array){(uintptr_t)a->m, bytes->m};
    out[3] = (struct array){(uintptr_t)a->v, bytes->v};
    out[4] = (struct array){(uintptr_t)a->grads, bytes->grads};
}

static bool overlap(const struct array *a, const struct array *b, size_t n)
{
    return a->start < b->start + n * b->bytes && b->start < a->start + n * a->bytes;
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
