/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tables this machine may run: a ladder of feature bits with an early return at the first
 * that is missing. Two parties are asked: the CPU (CPUID) and the operating system, which must save
 * the wider registers (XGETBV). Never the CPU's model: hypervisors make it up.
 */
#include "tables.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <stdatomic.h>

enum level { LEVEL_C, LEVEL_AVX2, LEVEL_AVX512, LEVEL_AVX512VBMI };

/* Bits of XCR0: state that the operating system saves. */
enum { XCR0_YMM = 0x06, XCR0_ZMM = 0xe6 };

static bool has_all(uint32_t value, uint32_t bits)
{
    return (value & bits) == bits;
}

static uint32_t xcr0_low(void)
{
    uint32_t low, high;

    /* The intrinsic would need -mxsave, and with it the compiler could use XSAVE anywhere. */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static enum level read_level(void)
{
    const uint32_t avx2_1c = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const uint32_t avx512_7b =
        bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    uint32_t a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_all(c, avx2_1c))
        return LEVEL_C;
    uint32_t saved = xcr0_low();
    if (!has_all(saved, XCR0_YMM))
        return LEVEL_C;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_all(b, bit_AVX2))
        return LEVEL_C;
    if (!has_all(b, avx512_7b) || !has_all(saved, XCR0_ZMM))
        return LEVEL_AVX2;
    return has_all(c, bit_AVX512VBMI | bit_AVX512VBMI2) ? LEVEL_AVX512VBMI : LEVEL_AVX512;
}

/* It is read once: in a virtual machine each CPUID leaves to the host, for tens of microseconds. */
static enum level cpu_level(void)
{
    static atomic_uint known; /* level + 1 */
    unsigned level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level == 0) {
        level = (unsigned)read_level() + 1;
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return (enum level)(level - 1);
}

const struct hst_cpu_adam_ops *hst_cpu_adam_ops(enum hst_cpu_isa isa)
{
    static const struct hst_cpu_adam_ops *const tables[] = {
        [LEVEL_C] = &hst_cpu_adam_ops_c,
        [LEVEL_AVX2] = &hst_cpu_adam_ops_avx2,
        [LEVEL_AVX512] = &hst_cpu_adam_ops_avx512,
        [LEVEL_AVX512VBMI] = &hst_cpu_adam_ops_avx512vbmi,
    };
    enum level best = cpu_level();

    switch (isa) {
    case HST_CPU_ISA_AUTO:
        return tables[best];
    case HST_CPU_ISA_C:
        return tables[LEVEL_C];
    case HST_CPU_ISA_AVX2:
        return best >= LEVEL_AVX2 ? tables[LEVEL_AVX2] : NULL;
    case HST_CPU_ISA_AVX512:
        return best >= LEVEL_AVX512 ? tables[LEVEL_AVX512] : NULL;
    case HST_CPU_ISA_AVX512VBMI:
        return best >= LEVEL_AVX512VBMI ? tables[LEVEL_AVX512VBMI] : NULL;
    case HST_CPU_ISA_NEON:
        break;
    }
    return NULL;
}

#elif defined(__aarch64__)

/* Advanced SIMD and fused multiply-add are part of every aarch64. */
const struct hst_cpu_adam_ops *hst_cpu_adam_ops(enum hst_cpu_isa isa)
{
    switch (isa) {
    case HST_CPU_ISA_AUTO:
    case HST_CPU_ISA_NEON:
        return &hst_cpu_adam_ops_neon;
    case HST_CPU_ISA_C:
        return &hst_cpu_adam_ops_c;
    case HST_CPU_ISA_AVX2:
    case HST_CPU_ISA_AVX512:
    case HST_CPU_ISA_AVX512VBMI:
        break;
    }
    return NULL;
}

#else

const struct hst_cpu_adam_ops *hst_cpu_adam_ops(enum hst_cpu_isa isa)
{
    return isa == HST_CPU_ISA_AUTO || isa == HST_CPU_ISA_C ? &hst_cpu_adam_ops_c : NULL;
}

#endif
