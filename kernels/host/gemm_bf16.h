/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_GEMM_BF16_H
#define HST_KERNELS_GEMM_BF16_H
/* GEMMs of bf16 matrices by own kernels, and the choice among those that serve. */
#include <hoistway/kernels.h>

/*
 * C ← op(A)·op(B), or C ← C + op(A)·op(B) where `accumulate`; row-major, on this thread.
 *
 * c       f32[m, n]; a and b are bf16 and begin at any element; no extent is 0
 * pack    host_gemm_bf16_pack_bytes of m, n and k, written; must not overlap
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
    size_t a_ld, b_ld, c_ld;
    bool a_transposed, b_transposed, accumulate;
    void *pack;
};
typedef void host_gemm_bf16_function(const struct host_gemm_bf16 *args);
/* They work by AVX512_BF16, and by AVX-512's FMA alone: on x86-64, where the processor has them. */
host_gemm_bf16_function host_gemm_bf16_vdpbf16ps, host_gemm_bf16_fma;

enum {
    GEMM_BF16_K = 256,            /* terms of a stretch: part of the numbers; even */
    GEMM_BF16_PANEL_ROWS = 12,    /* of C stay in registers: so many rows … */
    GEMM_BF16_PANEL_COLUMNS = 32, /* … of so many columns */
};

/* It never falls as an extent grows. Pure. */
size_t host_gemm_bf16_pack_bytes(size_t m, size_t n, size_t k);

enum host_bf16 { HOST_BF16_VDPBF16PS, HOST_BF16_FMA, HOST_BF16_BLAS, HOST_BF16_ANY };

/* What --host-math names. */
struct host_wish {
    char core[24];         /* of OpenBLAS; "": none */
    enum host_bf16 kernel; /* of GEMMs of bf16 */
};
/*
 * Reads "CORE", "KERNEL" (vdpbf16ps, fma, blas) or both with a comma; text may be null. Whether
 * there is such a core is not looked at. Errors: -ENODEV with *failure. Pure.
 */
int host_wish_read(const char *text, struct host_wish *wish, struct hst_dev_failure *failure);

/*
 * *gemm is the kernel that serves, or null where bf16 is widened for OpenBLAS: where the processor
 * has no AVX-512, or a core is named whose processors have none. Of two kernels it is the quicker,
 * by a trial of a millisecond: they have the same bytes, and the trial compares them.
 * Errors: -ENODEV with *failure (a kernel that is named and cannot be had), -ENOMEM.
 */
int host_gemm_bf16_choose(const struct host_wish *wish, host_gemm_bf16_function **gemm,
                          struct hst_dev_failure *failure);

#endif
