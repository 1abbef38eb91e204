/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which instruction sets may be used. Feature bits of CPUID say what the processor has, XGETBV what
 * the kernel saves over a context switch; both must agree. Never the processor's model: virtual
 * machines lie about it.
 */
#include "host.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

static uint64_t saved_state(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static unsigned read_level(void)
{
    unsigned a, b, c, d;
    /* fma is for OpenBLAS: our own code has no fused products. */
    const unsigned fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    const unsigned need = fma | osxsave | avx | f16c;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need) != need)
        return 0;
    uint64_t state = saved_state();
    if ((state & 0x6) != 0x6)
        return 0; /* xmm, ymm */
    const unsigned avx2 = 1u << 5, f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & avx2))
        return 0;
    bool avx512 = (b & (f | dq | bw | vl)) == (f | dq | bw | vl);
    return avx512 && (state & 0xe0) == 0xe0 ? 2 : 1; /* opmask, zmm */
}

/* It is read once: in a virtual machine each CPUID leaves to the host, for tens of microseconds. */
static unsigned level(void)
{
    static atomic_uint known; /* level + 1 */
    unsigned level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level == 0) {
        level = read_level() + 1;
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return level - 1;
}

const struct host_math *const *host_math_usable(void)
{
    static const struct host_math *const all[] = {&host_math_avx512, &host_math_avx2,
                                                  &host_math_baseline, NULL};
    return all + (2 - level());
}
#else
const struct host_math *const *host_math_usable(void)
{
    static const struct host_math *const all[] = {&host_math_baseline, NULL};
    return all;
}
#endif
