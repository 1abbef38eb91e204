/* SPDX-License-Identifier: Apache-2.0 */
/* See adam_arrays.h. */
#include "bench/adam/arrays.h"

#include <stddef.h>
#include <unistd.h>

/* CACHE_LEAST is the second-level cache of the smallest cores of these instruction sets: it counts
 * where the system tells none. */
enum { PAGE = 4096, CACHE_LEAST = 256 << 10 };

struct adam_part adam_part(uint64_t elements, unsigned thread, unsigned threads)
{
    uint64_t each = elements / threads / HST_NORM_BLOCK * HST_NORM_BLOCK, first = each * thread;
    return (struct adam_part){first, thread + 1 == threads ? elements - first : each};
}

void *adam_array(struct adam_layout *layout, uint64_t elements, unsigned element_bytes)
{
    if (element_bytes == 0)
        return NULL;
    uintptr_t page = ((uintptr_t)layout->end + PAGE - 1) / PAGE * PAGE;
    unsigned char *at = (unsigned char *)page + layout->arrays++ * layout->stagger % PAGE;
    layout->end = at + elements * element_bytes;
    return at;
}

struct hst_update_arrays adam_arrays(struct adam_layout *layout, uint64_t elements,
                                     const struct hst_update *update)
{
    const struct hst_update_bytes bytes = update->bytes;
    const unsigned scale = update->kind.moments == HST_CPU_CODE ? sizeof(float) : 0;
    const uint64_t blocks = (elements + HST_CODE_BLOCK - 1) / HST_CODE_BLOCK;
    struct hst_update_arrays a = {0};
    a.weights = adam_array(layout, elements, bytes.weights);
    a.master = adam_array(layout, elements, bytes.master);
    a.m = adam_array(layout, elements, bytes.m);
    a.v = adam_array(layout, elements, bytes.v);
    a.grads = adam_array(layout, elements, bytes.grads);
    a.m_scales = adam_array(layout, blocks, scale);
    a.v_scales = adam_array(layout, blocks, scale);
    return a;
}

uint64_t adam_arrays_bytes(uint64_t elements, unsigned element_bytes, unsigned arrays)
{
    return elements * element_bytes + 2ull * PAGE * arrays;
}

static uint64_t half_of_cache(void)
{
    long bytes = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return (uint64_t)(bytes > CACHE_LEAST ? bytes : CACHE_LEAST) / 2;
}

uint64_t adam_cached_elements(const struct hst_update *update)
{
    const struct hst_update_bytes b = update->bytes;
    const uint64_t each = b.weights + b.master + b.m + b.v + b.grads;
    return half_of_cache() / each / HST_NORM_BLOCK * HST_NORM_BLOCK;
}

uint64_t adam_cached_bytes(unsigned arrays)
{
    /* Scales, a 256th of the elements, are not counted among those that fill the half. */
    return adam_arrays_bytes(half_of_cache(), 2, arrays);
}

struct filling {
    const struct hst_update *update;
    const struct hst_update_arrays *arrays;
    uint64_t elements;
};

static void fill_part(void *array, enum hst_cpu_type type, float value, struct adam_part part)
{
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_C);
    uint16_t half = 0;

    if (type == HST_CPU_F16)
        ops->f16_from_f32(&value, &half, 1);
    if (type == HST_CPU_BF16)
        ops->bf16_from_f32(&value, &half, 1);
    for (uint64_t i = part.first; i < part.first + part.count; i++)
        if (type == HST_CPU_F32)
            ((float *)array)[i] = value;
        else
            ((uint16_t *)array)[i] = half;
}

/* Codes of all sizes, as they are in training; scales are the size of what others begin as. */
static void fill_codes(uint8_t *codes, float *scales, float size, struct adam_part part)
{
    const uint64_t end = part.first + part.count;
    for (uint64_t i = part.first; i < end; i++)
        codes[i] = (uint8_t)(i * 37);
    for (uint64_t i = part.first; i < end; i += HST_CODE_BLOCK) /* parts begin at blocks */
        scales[i / HST_CODE_BLOCK] = size;
}

static void fill_share(void *arg, unsigned thread, unsigned threads)
{
    const struct filling *f = arg;
    const struct hst_update_kind kind = f->update->kind;
    struct adam_part part = adam_part(f->elements, thread, threads);

    fill_part(f->arrays->weights, kind.weights, 0.5f, part);
    if (f->update->bytes.master == 4)
        fill_part(f->arrays->master, HST_CPU_F32, 0.5f, part);
    if (f->update->bytes.master == 2) /* a remainder of 0 */
        fill_part(f->arrays->master, HST_CPU_BF16, 0, part);
    if (kind.moments == HST_CPU_CODE) {
        fill_codes(f->arrays->m, f->arrays->m_scales, 1e-3f, part);
        fill_codes(f->arrays->v, f->arrays->v_scales, 1e-6f, part);
    } else {
        if (f->update->bytes.m)
            fill_part(f->arrays->m, kind.moments, 1e-3f, part);
        if (f->update->bytes.v)
            fill_part(f->arrays->v, kind.moments, 1e-6f, part);
    }
    fill_part((void *)(uintptr_t)f->arrays->grads, kind.grads, 1e-3f, part);
}

void adam_fill(struct team *team, const struct hst_update *update,
               const struct hst_update_arrays *arrays, uint64_t elements)
{
    struct filling filling = {update, arrays, elements};
    team_run(team, team_threads(team), fill_share, &filling);
}
