/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_PREFETCH_H
#define HST_CPU_ADAM_PREFETCH_H
/* An update asks for this ahead of its elements, a block of them at a time. */
#include "kernel.h"

enum { BLOCK = 64, LINE_BYTES = 64 };

/*
 * The updates walk four or five arrays at once. Some processors' own prefetcher keeps up with
 * fewer: asking for lines 512 elements (2 KiB of f32) ahead brought them from some 20 % to some 5 %
 * above what the memory allows. Others keep up, and are slower by what is asked for twice. So the
 * caller may say how far, and elements so far from the end that none is beyond it are asked for.
 */
INLINED size_t ahead_of(const struct hst_update_arrays *a)
{
    return a->ahead == HST_AHEAD_NONE ? SIZE_MAX / 2 : a->ahead ? a->ahead : HST_AHEAD_USUAL;
}

/* Lines go into the first cache, or into the second one alone. What is asked for ahead shares the
 * first one's few requests to memory with the loads themselves. By the second cache fp32 took
 * 0.89 to 1.01 of its time on a Xeon with AMX (nine runs, of which one took longer), while bf16 and
 * fp16 mostly lost, up to 4 %. On Zen 5 codes lost 1 to 3 % (docs/results/2026-11-28-host.md). */
INLINED bool is_for_second_cache(struct hst_update_kind kind)
{
    return kind.weights == HST_CPU_F32;
}

INLINED void prefetch(bool second_cache, const void *array, size_t element_bytes, size_t count,
                      size_t ahead)
{
    const char *block = (const char *)array + ahead * element_bytes;
    for (size_t at = 0; at < count * element_bytes; at += LINE_BYTES)
        if (second_cache)
            __builtin_prefetch(block + at, 0, 2);
        else
            __builtin_prefetch(block + at);
}

INLINED void prefetch_all(struct hst_update_kind kind, const struct hst_update_arrays *a,
                          size_t count, size_t ahead)
{
    const struct hst_update_bytes b = bytes_of(kind);
    const bool second = is_for_second_cache(kind);
    if (kind.weights != HST_CPU_F16) /* those are written alone */
        prefetch(second, a->weights, b.weights, count, ahead);
    prefetch(second, a->master, b.master, count, ahead);
    prefetch(second, a->m, b.m, count, ahead);
    prefetch(second, a->v, b.v, count, ahead);
    prefetch(second, a->grads, b.grads, count, ahead);
}

#endif
