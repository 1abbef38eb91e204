/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides who makes GEMMs of bf16: an own kernel, by AMX, by VDPBF16PS or by FMA, or OpenBLAS.
 * Whether an own kernel serves, and whether it is the one by AMX, decides bits. That follows from
 * the processor, from what was named, and for AMX from whether the system lets this process use it.
 * So hst_dev_math says which of them it is. Which of the other two serves decides no bits, so it
 * may follow from time. It has to: VDPBF16PS does two terms at once, but takes four times as long
 * as FMA on Emerald Rapids (measured), and CPUID does not tell.
 */
#include "base/failure.h"
#include "cores.h"
#include "gemm_bf16.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OF_X86(gemm) gemm
#else
#define OF_X86(gemm) NULL
#endif
#if defined(HOST_AMX)
#define OF_AMX(gemm) gemm
#else
#define OF_AMX(gemm) NULL
#endif

/* An own kernel needs what those of this core of OpenBLAS need. */
static const struct kernel {
    const char *name, *core;
    host_gemm_bf16_function *gemm;
} kernels[] = {
    [HOST_BF16_VDPBF16PS] = {"vdpbf16ps", "Cooperlake", OF_X86(host_gemm_bf16_vdpbf16ps)},
    [HOST_BF16_FMA] = {"fma", "SkylakeX", OF_X86(host_gemm_bf16_fma)},
    [HOST_BF16_AMX] = {"amx", "SapphireRapids", OF_AMX(host_gemm_bf16_amx)},
    [HOST_BF16_BLAS] = {"blas", NULL, NULL},
};

static size_t panels_of(size_t count, size_t width)
{
    return (count + width - 1) / width * width;
}

static size_t amx_pack_bytes(size_t n, size_t k)
{
    const size_t terms = panels_of(k, GEMM_BF16_AMX_STEP);
    const size_t rows = 2 * GEMM_BF16_AMX_SIDE + panels_of(n, GEMM_BF16_AMX_SIDE);
    return 64 + rows * (terms < GEMM_BF16_AMX_K ? terms : GEMM_BF16_AMX_K) * sizeof(uint16_t);
}

size_t host_gemm_bf16_pack_bytes(size_t m, size_t n, size_t k)
{
    const size_t rows = panels_of(m, GEMM_BF16_PANEL_ROWS) + panels_of(n, GEMM_BF16_PANEL_COLUMNS);
    const size_t terms = k < GEMM_BF16_K ? (k + 1) / 2 * 2 : GEMM_BF16_K;
    const size_t wide = rows * terms * sizeof(float), amx = amx_pack_bytes(n, k);
    return wide > amx ? wide : amx;
}

/* Of 64 by 64 by 64 sgemm packs nothing, and reaches what FMA does between registers. */
host_gemm_bf16_function *host_gemm_bf16_small(host_gemm_bf16_function *gemm)
{
    return gemm == kernels[HOST_BF16_AMX].gemm ? gemm : NULL;
}

size_t host_gemm_bf16_k(host_gemm_bf16_function *gemm)
{
    return gemm && gemm == kernels[HOST_BF16_AMX].gemm ? GEMM_BF16_AMX_K : GEMM_BF16_K;
}

const char *host_gemm_bf16_words(host_gemm_bf16_function *gemm)
{
    return !gemm                                 ? ""
           : gemm == kernels[HOST_BF16_AMX].gemm ? ", own GEMMs of bf16 by AMX, attention by AMX"
                                                 : ", own GEMMs of bf16";
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
                            "kernel of bf16 (amx, vdpbf16ps, fma, blas), and not both with a comma",
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

static const char OTHER_SUMS[] =
    "whose sums on this processor are not those that the instruction is defined to have";

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

static struct host_gemm_bf16 trial_gemm(struct trial *t, float *c)
{
    return (struct host_gemm_bf16){.m = TRIAL_M,
                                   .n = TRIAL_N,
                                   .k = TRIAL_K,
                                   .a = t->a,
                                   .b = t->b,
                                   .c = c,
                                   .a_ld = TRIAL_K,
                                   .b_ld = TRIAL_N,
                                   .c_ld = TRIAL_N,
                                   .pack = t->pack};
}

static double seconds_of(const struct kernel *kernel, struct trial *t, float *c)
{
    const struct host_gemm_bf16 gemm = trial_gemm(t, c);
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    kernel->gemm(&gemm);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

static struct trial *trial_open(void)
{
    struct trial *t = calloc(1, sizeof *t + host_gemm_bf16_pack_bytes(TRIAL_M, TRIAL_N, TRIAL_K));
    if (t)
        trial_fill(t);
    return t;
}

/* Bits: a NaN is equal to itself, -0 not to 0. */
static bool trial_agrees(const struct trial *t)
{
    const void *one = t->c[0], *other = t->c[1];
    return memcmp(one, other, sizeof t->c[0]) == 0;
}

/* 1: VDPBF16PS is the quicker one; 0: it is not, or has other bytes and so is not what it is taken
   for; -ENOMEM. */
static int trial_run(bool *equal)
{
    double least[2] = {1, 1};
    struct trial *t = trial_open();
    if (!t)
        return -ENOMEM;
    for (int i = 0; i < 2 * TRIALS; i++) {
        const double s = seconds_of(&kernels[i % 2], t, t->c[i % 2]);
        least[i % 2] = s < least[i % 2] ? s : least[i % 2];
    }
    *equal = trial_agrees(t);
    free(t);
    return *equal && least[HOST_BF16_VDPBF16PS] < least[HOST_BF16_FMA];
}
#else
static int trial_run(bool *equal)
{
    return *equal = false;
}
#endif

#if defined(HOST_AMX)
/*
 * *fault is why AMX cannot serve on a processor that has it, null where it can. The kernel gives
 * its registers to who asks, once for a process. An emulator or hypervisor may compute otherwise
 * than the instruction is defined, and then bits would depend on it. Errors: -ENOMEM.
 */
static int amx_trial(const char **fault)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    *fault = "whose registers this system does not let a process use";
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0)
        return 0;
    struct trial *t = trial_open();
    if (!t)
        return -ENOMEM;
    struct host_gemm_bf16 gemm = trial_gemm(t, t->c[0]), defined = trial_gemm(t, t->c[1]);
    *fault = NULL;
    for (int i = 0; i < 2; i++) { /* then on top of what C holds, as gradients are */
        host_gemm_bf16_amx(&gemm);
        host_gemm_bf16_amx_defined(&defined);
        *fault = trial_agrees(t) ? *fault : OTHER_SUMS;
        gemm.accumulate = defined.accumulate = true;
    }
    free(t);
    return 0;
}
#else
static int amx_trial(const char **fault)
{
    *fault = "which the compiler of this build did not know";
    return 0;
}
#endif

/* It checks a kernel that is named. */
static int kernel_check(enum host_bf16 kernel, struct hst_dev_failure *failure)
{
    const char *lacks = kernel_lacks(kernel, host_cpu_features()), *fault = NULL;
    if (lacks)
        return dev_fail(failure, -ENODEV, HST_DEV_CORE, 0,
                        "host math is to be %s, which needs %s, which this processor has not got",
                        kernels[kernel].name, lacks);
    bool equal = true;
    int rc = kernel == HOST_BF16_AMX         ? amx_trial(&fault)
             : kernel == HOST_BF16_VDPBF16PS ? trial_run(&equal)
                                             : 0;
    if (rc < 0)
        return rc;
    fault = equal ? fault : OTHER_SUMS;
    return fault ? dev_fail(failure, -ENODEV, HST_DEV_CORE, 0, "host math is to be %s, %s",
                            kernels[kernel].name, fault)
                 : 0;
}

/* It says whether processors with no more than the named core's instructions have this kernel,
   too. */
static bool core_has(const char *name, enum host_bf16 kernel)
{
    const struct host_core *core = host_core_find(name);
    return !*name || (core && !kernel_lacks(kernel, core->needs));
}

/* It chooses where none is named. */
static int kernel_choose(const char *core, enum host_bf16 *kernel)
{
    const uint64_t features = host_cpu_features();
    const char *fault = "";
    bool equal;
    int rc = 0;
    *kernel = HOST_BF16_BLAS;
    if (!core_has(core, HOST_BF16_FMA) || kernel_lacks(HOST_BF16_FMA, features))
        return 0;
    if (core_has(core, HOST_BF16_AMX) && !kernel_lacks(HOST_BF16_AMX, features))
        rc = amx_trial(&fault);
    if (rc == 0 && fault && !kernel_lacks(HOST_BF16_VDPBF16PS, features))
        rc = trial_run(&equal);
    *kernel = !fault ? HOST_BF16_AMX : rc > 0 ? HOST_BF16_VDPBF16PS : HOST_BF16_FMA;
    return rc < 0 ? rc : 0;
}

int host_gemm_bf16_choose(const struct host_wish *wish, host_gemm_bf16_function **gemm,
                          struct hst_dev_failure *failure)
{
    enum host_bf16 kernel = wish->kernel;
    int rc = 0;
    if (kernel == HOST_BF16_ANY)
        rc = kernel_choose(wish->core, &kernel);
    else if (kernel != HOST_BF16_BLAS)
        rc = kernel_check(kernel, failure);
    if (rc == 0)
        *gemm = kernels[kernel].gemm;
    return rc;
}
