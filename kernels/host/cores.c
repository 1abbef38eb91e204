/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which of OpenBLAS's cores this processor can run. OpenBLAS itself does not ask: a core
 * that is named to it runs, and an instruction that the processor has not got ends the process. The
 * rows hold what the kernels were compiled with (Makefile.x86_64: -mavx2 -mfma up to Zen, -march
 * from SkylakeX on), so also what a compiler may put between them.
 */
#include "cores.h"
#include <stddef.h>
#include <strings.h>

enum feature {
    SSE3,
    SSSE3,
    SSE4_1,
    SSE4_2,
    POPCNT,
    AVX,
    FMA,
    AVX2,
    MOVBE,
    LZCNT,
    BMI1,
    BMI2,
    AVX512F,
    AVX512CD,
    AVX512BW,
    AVX512DQ,
    AVX512VL,
    AVX512_VNNI,
    AVX512_BF16,
    AVX512_FP16,
    AMX_TILE,
    AMX_BF16,
    FEATURES
};

#define BIT(f) (UINT64_C(1) << (f))

#define OLD     (BIT(SSE3) | BIT(SSSE3) | BIT(SSE4_1) | BIT(SSE4_2))
#define FUSED   (OLD | BIT(POPCNT) | BIT(AVX) | BIT(FMA) | BIT(AVX2))
#define WIDE    (BIT(AVX512F) | BIT(AVX512CD) | BIT(AVX512BW) | BIT(AVX512DQ) | BIT(AVX512VL))
#define SKYLAKE (FUSED | WIDE | BIT(MOVBE) | BIT(LZCNT) | BIT(BMI1) | BIT(BMI2))
#define COOPER  (SKYLAKE | BIT(AVX512_VNNI) | BIT(AVX512_BF16))

static const struct host_core cores[] = {
    {"Prescott", BIT(SSE3)},
    {"Core2", BIT(SSE3) | BIT(SSSE3)},
    {"Penryn", BIT(SSE3) | BIT(SSSE3) | BIT(SSE4_1)},
    {"Nehalem", OLD},
    {"Sandybridge", OLD | BIT(AVX)},
    {"Haswell", FUSED},
    {"Zen", FUSED},
    {"SkylakeX", SKYLAKE},
    {"Cooperlake", COOPER},
    {"SapphireRapids", COOPER | BIT(AVX512_FP16) | BIT(AMX_TILE) | BIT(AMX_BF16)},
};

const struct host_core *host_core_find(const char *name)
{
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        if (strcasecmp(cores[i].name, name) == 0)
            return &cores[i];
    return NULL;
}

const char *host_core_names(void)
{
    return "Prescott, Core2, Penryn, Nehalem, Sandybridge, Haswell, Zen, SkylakeX, Cooperlake, "
           "SapphireRapids";
}

const char *host_core_lacks(const struct host_core *core, uint64_t features)
{
    static const char *const names[FEATURES] = {
        "SSE3",        "SSSE3",       "SSE4.1",   "SSE4.2",   "POPCNT",   "AVX",
        "FMA",         "AVX2",        "MOVBE",    "LZCNT",    "BMI1",     "BMI2",
        "AVX512F",     "AVX512CD",    "AVX512BW", "AVX512DQ", "AVX512VL", "AVX512_VNNI",
        "AVX512_BF16", "AVX512_FP16", "AMX-TILE", "AMX-BF16"};
    for (int f = 0; f < FEATURES; f++)
        if (core->needs & ~features & BIT(f))
            return names[f];
    return NULL;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

enum { EBX, ECX, EDX, EAX };

/* CPUID tells of a feature here; the kernel must save these registers for it (XCR0). */
static const struct {
    uint32_t leaf, part, word, bit, state;
} places[FEATURES] = {
    [SSE3] = {1, 0, ECX, 0, 0},
    [SSSE3] = {1, 0, ECX, 9, 0},
    [SSE4_1] = {1, 0, ECX, 19, 0},
    [SSE4_2] = {1, 0, ECX, 20, 0},
    [POPCNT] = {1, 0, ECX, 23, 0},
    [AVX] = {1, 0, ECX, 28, 0x6},
    [FMA] = {1, 0, ECX, 12, 0x6},
    [AVX2] = {7, 0, EBX, 5, 0x6},
    [MOVBE] = {1, 0, ECX, 22, 0},
    [LZCNT] = {0x80000001, 0, ECX, 5, 0},
    [BMI1] = {7, 0, EBX, 3, 0},
    [BMI2] = {7, 0, EBX, 8, 0},
    [AVX512F] = {7, 0, EBX, 16, 0xe6},
    [AVX512CD] = {7, 0, EBX, 28, 0xe6},
    [AVX512BW] = {7, 0, EBX, 30, 0xe6},
    [AVX512DQ] = {7, 0, EBX, 17, 0xe6},
    [AVX512VL] = {7, 0, EBX, 31, 0xe6},
    [AVX512_VNNI] = {7, 0, ECX, 11, 0xe6},
    [AVX512_BF16] = {7, 1, EAX, 5, 0xe6},
    [AVX512_FP16] = {7, 0, EDX, 23, 0xe6},
    [AMX_TILE] = {7, 0, EDX, 24, 0x60000},
    [AMX_BF16] = {7, 0, EDX, 22, 0x60000},
};

/* Registers that the kernel saves: XCR0, 0 where it cannot be read. */
static uint32_t saved_state(void)
{
    unsigned a, b, c, d;
    uint32_t low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static uint64_t read_features(void)
{
    const uint32_t saved = saved_state();
    uint64_t found = 0;
    for (int f = 0; f < FEATURES; f++) {
        unsigned words[4] = {0};
        if (!__get_cpuid_count(places[f].leaf, places[f].part, &words[EAX], &words[EBX],
                               &words[ECX], &words[EDX]))
            continue;
        bool there = words[places[f].word] >> places[f].bit & 1;
        if (there && (saved & places[f].state) == places[f].state)
            found |= BIT(f);
    }
    return found;
}

/* They are read once, as the level in isa.c is; none at all is read again. */
uint64_t host_cpu_features(void)
{
    static _Atomic uint64_t known;
    uint64_t features = atomic_load_explicit(&known, memory_order_relaxed);
    if (features == 0) {
        features = read_features();
        atomic_store_explicit(&known, features, memory_order_relaxed);
    }
    return features;
}
#else
/* These cores are of x86-64: elsewhere none of them can be named. */
uint64_t host_cpu_features(void)
{
    return 0;
}
#endif
