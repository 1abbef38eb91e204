/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_GEMM_BF16_H
#define HST_KERNELS_GEMM_BF16_H
/* GEMMs of bf16 matrices by own kernels, and the choice among those that serve. */
#include <hoistway/kernels.h>

/*
 * C ← op(A)·op(B), or C ← C + op(A)·op(B) where `accumulate`; row-major, on this thread.
 *
 * c       f32[m, n]; a and b are bf16 and begin at any element; no extent is 0
 * rounded bf16[m, n], or null: C goes there, rounded to nearest even. Then c is written, too, where
 *         k is greater than host_gemm_bf16_k says, with what is not told, and nothing accumulates
 * pack    host_gemm_bf16_pack_bytes of m, n and k, written; must not overlap. That by AMX takes no
 *         more for many rows than for one
 *
 * An element's bits depend on its row of op(A), its column of op(B), on k and, where it
 * accumulates, on what it held. In each stretch of GEMM_BF16_K terms the sum begins with 0 and
 * takes pairs of terms in rising k, of a pair the second term first. A term is multiplied and added
 * with one rounding, to nearest even. The stretches' sums are added up, and to C, in rising order.
 * What is below 2^-126 is a zero of its sign, in operands, sums and C. That is how VDPBF16PS
 * computes; the other kernel does the same by FMA. So both have the same bytes, but for the sign
 * and payload of a NaN, which is 0x7fc00000 in both.
 *
 * Thread-safety: safe with another `pack` and another part of C. Errors: none.
 */
struct host_gemm_bf16 {
    size_t m, n, k;
    const uint16_t *a, *b;
    float *c;
    uint16_t *rounded;
    size_t a_ld, b_ld, c_ld, rounded_ld;
    bool a_transposed, b_transposed, accumulate;
    void *pack;
};
typedef void host_gemm_bf16_function(const struct host_gemm_bf16 *args);
/* They work by AVX512_BF16, and by AVX-512's FMA alone: on x86-64, where the processor has them. */
host_gemm_bf16_function host_gemm_bf16_vdpbf16ps, host_gemm_bf16_fma;
/*
 * It works by AMX, where host_gemm_bf16_choose has found that it serves, and has other bits, which
 * depend on the same. An element begins with 0, or with what it held. To it are added, in rising k,
 * the sums of GEMM_BF16_AMX_STEP terms each, behind the last of which are terms 0·0. Such a sum is
 * that of its even terms plus that of its odd terms. Each of the two begins with 0 and takes terms
 * in rising k, which are multiplied and added with one rounding. All else is as above.
 *
 * That is how TDPBF16PS is defined (Intel's manual, volume 2), whatever MXCSR says, and how it
 * computes on Emerald Rapids.
 */
host_gemm_bf16_function host_gemm_bf16_amx;
/* The same by FMA, slow, and with neither operand transposed: what that by AMX is compared with. */
host_gemm_bf16_function host_gemm_bf16_amx_defined;

enum {
    GEMM_BF16_K = 256,            /* terms of a stretch: part of the numbers; even */
    GEMM_BF16_PANEL_ROWS = 12,    /* of C stay in registers: so many rows … */
    GEMM_BF16_PANEL_COLUMNS = 32, /* … of so many columns */
    GEMM_BF16_AMX_STEP = 32,      /* terms of one instruction: part of the numbers */
    GEMM_BF16_AMX_K = 1024,       /* terms that are packed at once: no part of them */
    GEMM_BF16_AMX_SIDE = 32,      /* rows and columns of C that stay in registers */
};

/* It never falls as an extent grows. Pure. */
size_t host_gemm_bf16_pack_bytes(size_t m, size_t n, size_t k);

enum host_bf16 {
    HOST_BF16_VDPBF16PS,
    HOST_BF16_FMA,
    HOST_BF16_AMX,
    HOST_BF16_BLAS,
    HOST_BF16_ANY
};

/* What --host-math names. */
struct host_wish {
    char core[24];         /* of OpenBLAS; "": none */
    enum host_bf16 kernel; /* of GEMMs of bf16 */
};
/*
 * Reads "CORE", "KERNEL" (amx, vdpbf16ps, fma, blas) or both with a comma; text may be null.
 * Whether there is such a core is not looked at. Errors: -ENODEV with *failure. Pure.
 */
int host_wish_read(const char *text, struct host_wish *wish, struct hst_dev_failure *failure);

/*
 * *gemm is the kernel that serves, or null where bf16 is widened for OpenBLAS: where the processor
 * has no AVX-512, or a core is named whose processors have none. It is that by AMX where the
 * processor has it, the system gives its registers to this process, a trial has the sums that are
 * defined, and no core is named whose processors lack it. Of the other two it is the quicker, by a
 * trial of a millisecond: they have the same bytes, and the trial compares them.
 * Errors: -ENODEV with *failure (a kernel that is named and cannot be had), -ENOMEM.
 */
int host_gemm_bf16_choose(const struct host_wish *wish, host_gemm_bf16_function **gemm,
                          struct hst_dev_failure *failure);

/* It returns the same kernel where it also makes attention's GEMMs, of 64 by 64, and null where
   OpenBLAS is quicker at them. Pure. */
host_gemm_bf16_function *host_gemm_bf16_small(host_gemm_bf16_function *gemm);

/* Terms that it sums without a store of C between. Pure. */
size_t host_gemm_bf16_k(host_gemm_bf16_function *gemm);

/* The words that hst_dev_math has for it, behind OpenBLAS's name; null is allowed. Pure. */
const char *host_gemm_bf16_words(host_gemm_bf16_function *gemm);

#endif
