/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides who makes GEMMs of bf16: an own kernel, by VDPBF16PS or by FMA, or OpenBLAS. Whether an
 * own kernel serves decides bits, so it follows from the processor and from what was named. Which
 * of the two decides none, so it may follow from time. It has to: VDPBF16PS does two terms at once,
 * but takes four times as long as FMA on Emerald Rapids (measured), and CPUID does not tell.
 */
#include "base/failure.h"
#include "cores.h"
#include "gemm_bf16.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#if defined(__x86_64__)
#define OF_X86(gemm) gemm
#else
#define OF_X86(gemm) NULL
#endif

/* An own kernel needs what those of this core of OpenBLAS need. */
static const struct kernel {
    const char *name, *core;
    host_gemm_bf16_function *gemm;
} kernels[] = {
    [HOST_BF16_VDPBF16PS] = {"vdpbf16ps", "Cooperlake", OF_X86(host_gemm_bf16_vdpbf16ps)},
    [HOST_BF16_FMA] = {"fma", "SkylakeX", OF_X86(host_gemm_bf16_fma)},
    [HOST_BF16_BLAS] = {"blas", NULL, NULL},
};

size_t host_gemm_bf16_pack_bytes(size_t m, size_t n, size_t k)
{
    const size_t rows = (m + GEMM_BF16_PANEL_ROWS - 1) / GEMM_BF16_PANEL_ROWS;
    const size_t columns = (n + GEMM_BF16_PANEL_COLUMNS - 1) / GEMM_BF16_PANEL_COLUMNS;
    const size_t terms = k < GEMM_BF16_K ? (k + 1) / 2 * 2 : GEMM_BF16_K;
    return (rows * GEMM_BF16_PANEL_ROWS + columns * GEMM_BF16_PANEL_COLUMNS) * terms *
           sizeof(float);
}

/* ---- what is named --------------------------------------------------------------------------- */

static enum host_bf16 kernel_named(const char *word, size_t length)
{
    enum host_bf16 kernel = 0;
    while (kernel < HOST_BF16_ANY && (strlen(kernels[kernel].name) != length ||
                                      strncasecmp(kernels[kernel].name, word, length) != 0))
        kernel++;
    return kernel;
}

int host_wish_read(const char *text, struct host_wish *wish, struct hst_dev_failure *failure)
{
    *wish = (struct host_wish){.kernel = HOST_BF16_ANY};
    for (const char *word = text; word;) {
        const size_t length = strcspn(word, ",");
        const enum host_bf16 kernel = kernel_named(word, length);
        if (kernel != HOST_BF16_ANY ? wish->kernel != HOST_BF16_ANY
                                    : *wish->core || !length || length >= sizeof wish->core)
            return dev_fail(failure, -ENODEV, HST_DEV_CORE, 0,
                            "host math is \"%.40s\", which is no core that is known here (%s), no "
                            "kernel of bf16 (vdpbf16ps, fma, blas), and not both with a comma",
                            text, host_core_names());
        if (kernel != HOST_BF16_ANY)
            wish->kernel = kernel;
        else
            memcpy(wish->core, word, length); /* the rest is zeros */
        word = word[length] ? word + length + 1 : NULL;
    }
    return 0;
}

/* ---- what serves ----------------------------------------------------------------------------- */

static const char *kernel_lacks(enum host_bf16 kernel, uint64_t features)
{
    return host_core_lacks(host_core_find(kernels[kernel].core), features);
}

#if defined(__x86_64__)
enum { TRIAL_M = 36, TRIAL_N = 64, TRIAL_K = 2 * GEMM_BF16_K, TRIALS = 8 };

struct trial {
    uint16_t a[TRIAL_M * TRIAL_K], b[TRIAL_K * TRIAL_N];
    float c[2][TRIAL_M * TRIAL_N];
    float pack[];
};

/*
 * Numbers of both signs between 2^-7 and 1; in the first rows of A others: so small that sums are
 * not normal, so large that they overflow, not finite, and of no magnitude in common. The first sum
 * is 2^-126 - 2^-150, which rounds to 2^-126 among subnormals and is zero to 24 bits.
 */
static void trial_fill(struct trial *t)
{
    static const uint16_t least[] = {1, 0x6000, 0x7f80, 0},
                          spread[] = {0x1ff, 0x1f80, 0x7f, 0x7f80};
    uint32_t seed = 1;
    for (size_t i = 0; i < sizeof t->a / sizeof *t->a + sizeof t->b / sizeof *t->b; i++) {
        seed = seed * 1664525 + 1013904223;
        const size_t row = i / TRIAL_K;
        const uint16_t bits = (uint16_t)(seed >> 9 & 0x7fff), sign = seed >> 31 ? 0x8000 : 0;
        const uint16_t usual = (uint16_t)(0x3c00 + bits % 0x380);
        if (row < 5)
            t->a[i] = sign | (uint16_t)(least[row % 4] + bits % spread[row % 4]);
        else if (row < TRIAL_M)
            t->a[i] = sign | usual;
        else
            t->b[i - sizeof t->a / sizeof *t->a] = sign | usual;
    }
    memset(t->a, 0, TRIAL_K * sizeof *t->a);
    t->a[0] = 0x0080;          /* 2^-126 */
    t->b[0] = 0x3f80;          /* 1 */
    t->a[2] = 0x8000 | 0x1a00; /* -2^-75 */
    t->b[(size_t)2 * TRIAL_N] = 0x1a00;
}

static double seconds_of(const struct kernel *kernel, struct trial *t, float *c)
{
    const struct host_gemm_bf16 gemm = {.m = TRIAL_M,
                                        .n = TRIAL_N,
                                        .k = TRIAL_K,
                                        .a = t->a,
                                        .b = t->b,
                                        .c = c,
                                        .a_ld = TRIAL_K,
                                        .b_ld = TRIAL_N,
                                        .c_ld = TRIAL_N,
                                        .pack = t->pack};
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    kernel->gemm(&gemm);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

/* 1: VDPBF16PS is the quicker one; 0: it is not, or has other bytes and so is not what it is taken
   for; -ENOMEM. */
static int trial_run(bool *equal)
{
    double least[2] = {1, 1};
    struct trial *t = calloc(1, sizeof *t + host_gemm_bf16_pack_bytes(TRIAL_M, TRIAL_N, TRIAL_K));
    if (!t)
        return -ENOMEM;
    trial_fill(t);
    for (int i = 0; i < 2 * TRIALS; i++) {
        const double s = seconds_of(&kernels[i % 2], t, t->c[i % 2]);
        least[i % 2] = s < least[i % 2] ? s : least[i % 2];
    }
    const void *one = t->c[0], *other = t->c[1]; /* bits: a NaN is equal to itself, -0 not to 0 */
    *equal = memcmp(one, other, sizeof t->c[0]) == 0;
    free(t);
    return *equal && least[HOST_BF16_VDPBF16PS] < least[HOST_BF16_FMA];
}
#else
static int trial_run(bool *equal)
{
    return *equal = false;
}
#endif

/* It checks a kernel that is named. */
static int kernel_check(enum host_bf16 kernel, struct hst_dev_failure *failure)
{
    const char *lacks = kernel_lacks(kernel, host_cpu_features());
    if (lacks)
        return dev_fail(failure, -ENODEV, HST_DEV_CORE, 0,
                        "host math is to be %s, which needs %s, which this processor has not got",
                        kernels[kernel].name, lacks);
    bool equal = true;
    int rc = kernel == HOST_BF16_VDPBF16PS ? trial_run(&equal) : 0;
    if (rc >= 0 && !equal)
        return dev_fail(failure, -ENODEV, HST_DEV_CORE, 0,
                        "host math is to be vdpbf16ps, whose sums on this processor are not those "
                        "that the instruction is defined to have");
    return rc < 0 ? rc : 0;
}

/* It says whether processors with no more than the named core's instructions have an own kernel,
   too. */
static bool core_has_own(const char *name)
{
    const struct host_core *core = host_core_find(name);
    return core && !kernel_lacks(HOST_BF16_FMA, core->needs);
}

int host_gemm_bf16_choose(const struct host_wish *wish, host_gemm_bf16_function **gemm,
                          struct hst_dev_failure *failure)
{
    const uint64_t features = host_cpu_features();
    enum host_bf16 kernel = wish->kernel;
    bool equal;
    int rc = 0;
    if (kernel == HOST_BF16_VDPBF16PS || kernel == HOST_BF16_FMA) {
        rc = kernel_check(kernel, failure);
    } else if (kernel == HOST_BF16_ANY) {
        const bool own = !*wish->core || core_has_own(wish->core);
        kernel = own && !kernel_lacks(HOST_BF16_FMA, features) ? HOST_BF16_FMA : HOST_BF16_BLAS;
        if (kernel == HOST_BF16_FMA && !kernel_lacks(HOST_BF16_VDPBF16PS, features))
            rc = trial_run(&equal);
        kernel = rc > 0 ? HOST_BF16_VDPBF16PS : kernel;
    }
    if (rc >= 0)
        *gemm = kernels[kernel].gemm;
    return rc < 0 ? rc : 0;
}
