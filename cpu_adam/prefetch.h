/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_PREFETCH_H
#define HST_CPU_ADAM_PREFETCH_H
/* An update asks for this ahead of its elements, a block of them at a time. */
#include "kernel.h"

/*
 * The updates walk four or five arrays at once, more than the hardware's prefetcher keeps up with:
 * asking for lines 512 elements (2 KiB of f32) ahead brings them from some 20 % to some 5 % above
 * what the memory allows.
 */
enum { BLOCK = 64, AHEAD = 512, LINE_BYTES = 64 };

INLINED void prefetch(const void *array, size_t element_bytes, size_t count)
{
    const char *block = (const char *)array + AHEAD * element_bytes;
    for (size_t at = 0; at < count * element_bytes; at += LINE_BYTES)
        __builtin_prefetch(block + at);
}

INLINED void prefetch_all(struct hst_update_kind kind, const struct hst_update_arrays *a,
                          size_t count)
{
    const struct hst_update_bytes b = bytes_of(kind);
    if (kind.weights != HST_CPU_F16) /* those are written alone */
        prefetch(a->weights, b.weights, count);
    prefetch(a->master, b.master, count);
    prefetch(a->m, b.m, count);
    prefetch(a->v, b.v, count);
    prefetch(a->grads, b.grads, count);
}

#endif
