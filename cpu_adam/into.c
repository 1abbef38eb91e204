/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An update whose results go elsewhere: a block at a time is brought into the cache, updated there
 * in place, by the kernels that all updates use, and streamed out past the cache. So old values
 * are read once and new ones written once; a store through the cache would read its line first.
 */
#include "tables.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Elements: of all arrays this many fit into the first-level cache of a core with two threads. */
enum { BLOCK = 1024, SCALES = BLOCK / HST_CODE_BLOCK };

enum { LINE_BYTES = 64 };

struct block {
    _Alignas(LINE_BYTES) unsigned char weights[BLOCK * 4];
    _Alignas(LINE_BYTES) unsigned char master[BLOCK * 4];
    _Alignas(LINE_BYTES) unsigned char m[BLOCK * 4];
    _Alignas(LINE_BYTES) unsigned char v[BLOCK * 4];
    float m_scales[SCALES], v_scales[SCALES];
};

#ifdef __SSE2__
static void stream_out(unsigned char *to, const unsigned char *from, size_t bytes)
{
    const size_t head = (LINE_BYTES - (uintptr_t)to % LINE_BYTES) % LINE_BYTES;
    size_t i = head < bytes ? head : bytes;
    memcpy(to, from, i);
    for (; i + LINE_BYTES <= bytes; i += LINE_BYTES)
        for (size_t at = i; at < i + LINE_BYTES; at += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(void *)(to + at),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + at)));
    memcpy(to + i, from + i, bytes - i);
}

static void fence(void)
{
    _mm_sfence();
}
#else
static void stream_out(unsigned char *to, const unsigned char *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static void fence(void)
{
}
#endif

/* It brings what an array of the block is made of; it is in place where both are one. */
static void *bring(void *staged, void *from, const void *into, size_t bytes)
{
    if (from == into || bytes == 0)
        return from;
    memcpy(staged, from, bytes);
    return staged;
}

static void send(void *into, const void *staged, size_t bytes)
{
    if (into != staged && bytes > 0)
        stream_out(into, staged, bytes);
}

/* Scales are too few for their lines to be written whole. */
static void send_scales(float *into, const float *staged, size_t bytes)
{
    if (into != staged && bytes > 0)
        memcpy(into, staged, bytes);
}

static bool is_in_place(const struct hst_update_arrays *from, const struct hst_update_arrays *into)
{
    return from->weights == into->weights && from->master == into->master && from->m == into->m &&
           from->v == into->v && from->m_scales == into->m_scales &&
           from->v_scales == into->v_scales;
}

int hst_update_run_into(const struct hst_update *update, const struct hst_adam_coef *coef,
                        const struct hst_update_arrays *from, const struct hst_update_arrays *into,
                        size_t n)
{
    const struct hst_update_bytes *size = &update->bytes;
    const size_t scales = update->kind.moments == HST_CPU_CODE ? sizeof(float) : 0;
    const size_t most = is_in_place(from, into) ? n : BLOCK; /* whole, it prefetches to its end */
    struct block block;
    int not_finite = 0;

    if (!hst_update_can_run_into(update, coef, from, into, n))
        return -EINVAL;
    for (size_t i = 0, count; i < n; i += count) {
        count = n - i < most ? n - i : most;
        const size_t scale_bytes = scales * ((count + HST_CODE_BLOCK - 1) / HST_CODE_BLOCK);
        const struct hst_update_arrays f = hst_update_arrays_at(update, from, i);
        const struct hst_update_arrays t = hst_update_arrays_at(update, into, i);
        const struct hst_update_arrays here = {
            .weights = bring(block.weights, f.weights, t.weights, count * size->weights),
            .master = bring(block.master, f.master, t.master, count * size->master),
            .m = bring(block.m, f.m, t.m, count * size->m),
            .v = bring(block.v, f.v, t.v, count * size->v),
            .grads = f.grads,
            .index = f.index,
            .ahead = f.ahead,
            .m_scales = bring(block.m_scales, f.m_scales, t.m_scales, scale_bytes),
            .v_scales = bring(block.v_scales, f.v_scales, t.v_scales, scale_bytes),
        };
        const size_t found = update->kernel(coef, &here, count);
        not_finite = found < (size_t)(INT_MAX - not_finite) ? not_finite + (int)found : INT_MAX;
        send(t.weights, here.weights, count * size->weights);
        send(t.master, here.master, count * size->master);
        send(t.m, here.m, count * size->m);
        send(t.v, here.v, count * size->v);
        send_scales(t.m_scales, here.m_scales, scale_bytes);
        send_scales(t.v_scales, here.v_scales, scale_bytes);
    }
    fence();
    return not_finite;
}
