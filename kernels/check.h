/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_CHECK_H
#define HST_KERNELS_CHECK_H
/* What the boundary asks of shapes, dtypes and pointers. Pure. */
#include <hoistway/kernels.h>

/* A dense tensor of these extents can exist. Counted as f32, which covers all with one rule. */
static inline bool fits(size_t a, size_t b, size_t c, size_t d)
{
    size_t bytes;
    return !__builtin_mul_overflow(a, b, &bytes) && !__builtin_mul_overflow(bytes, c, &bytes) &&
           !__builtin_mul_overflow(bytes, d, &bytes) && !__builtin_mul_overflow(bytes, 4, &bytes) &&
           bytes <= PTRDIFF_MAX;
}

static inline bool dtype_ok(enum hst_dtype dtype)
{
    return hst_dtype_bytes(dtype) != 0;
}

static inline bool tensor_ok(const void *data)
{
    return data && (uintptr_t)data % 16 == 0;
}

static inline bool apart(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x >= a_bytes : x - y >= b_bytes;
}

static inline bool same_or_apart(const void *a, const void *b, size_t bytes)
{
    return a == b || apart(a, bytes, b, bytes);
}
#endif
