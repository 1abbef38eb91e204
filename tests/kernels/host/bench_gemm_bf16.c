/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the own GEMMs of bf16 reach on one core, by turns with sgemm on operands that are f32
 * already: GFLOP per second of CPU, the median and the best of the rounds, in per cent of what the
 * instruction reaches between registers alone, which is measured in each round too.
 *
 *   bench_gemm_bf16 [rounds]
 */
#include "host/blas.h"
#include "host/cores.h"
#include "host/host.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS_MAX = 101, MOST = 2048, REPEATS = 200000 };

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- between registers: 24 sums, as a tile has ----------------------------------------------- */

#define FOUR(one, a, b, c, d) one(a) one(b) one(c) one(d)
#define ALL(one)                                                                                   \
    FOUR(one, 0, 1, 2, 3)                                                                          \
    FOUR(one, 4, 5, 6, 7)                                                                          \
    FOUR(one, 8, 9, 10, 11)                                                                        \
    FOUR(one, 12, 13, 14, 15) FOUR(one, 16, 17, 18, 19) FOUR(one, 20, 21, 22, 23)
#define CLEAR(i) "vpxord %%zmm" #i ", %%zmm" #i ", %%zmm" #i "\n"
#define DOT(i)   "vdpbf16ps %%zmm30, %%zmm31, %%zmm" #i "\n"
#define FUSED(i) "vfmadd231ps %%zmm30, %%zmm31, %%zmm" #i "\n"
#define LOOP(one)                                                                                  \
    __asm__ volatile(ALL(CLEAR) CLEAR(30) CLEAR(31) "1:\n" ALL(one) ALL(one) "dec %0\njnz 1b\n"    \
                     : "+r"(left)                                                                  \
                     :                                                                             \
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",     \
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16",      \
                       "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm30",     \
                       "xmm31", "cc")

enum { BY_AMX, BY_DOT, BY_FMA, BY_SGEMM, CASES };

/* Four sums of 32 rows and columns, as a tile of that kernel has. Terms are numbers: of zeros it is
   half as quick again. */
static void multiply_tiles(unsigned long left, const uint16_t *terms)
{
    static const struct {
        uint8_t palette, zero[15];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } tiles = {
        1, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}}; /* of eight */
    __asm__ volatile("ldtilecfg %1\n"
                     "tileloadd (%2,%3,1), %%tmm4\ntileloadd (%2,%3,1), %%tmm5\n"
                     "tileloadd (%2,%3,1), %%tmm6\ntileloadd (%2,%3,1), %%tmm7\n"
                     "1: tdpbf16ps %%tmm6, %%tmm4, %%tmm0\ntdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
                     "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\ntdpbf16ps %%tmm7, %%tmm5, %%tmm3\n"
                     "dec %0\njnz 1b\ntilerelease"
                     : "+r"(left)
                     : "m"(tiles), "r"(terms), "r"(64L)
                     : "cc", "memory");
}

static double registers(int by, const uint16_t *terms)
{
    unsigned long left = REPEATS;
    const double flop_of[CASES] = {4.0 * 2 * 16 * 16 * 32, 48 * 64, 48 * 32, 48 * 32};
    const double begin = cpu_s();
    if (by == BY_AMX)
        multiply_tiles(left, terms);
    else if (by == BY_DOT)
        LOOP(DOT);
    else
        LOOP(FUSED);
    return REPEATS * flop_of[by] / (cpu_s() - begin) * 1e-9;
}

/* ---- products -------------------------------------------------------------------------------- */

struct bench {
    uint16_t *a, *b;
    float *wide_a, *wide_b, *c;
    void *pack;
};

static const char *const names[CASES] = {"amx", "vdpbf16ps", "fma", "sgemm, of f32"};

static host_gemm_bf16_function *gemms[CASES]; /* null: this processor has none, or OpenBLAS's */

static double rate_of(const struct bench *x, int by, size_t m, size_t n, size_t k, int form)
{
    const bool a_transposed = form & 1, b_transposed = form & 2;
    const struct host_gemm_bf16 own = {.m = m,
                                       .n = n,
                                       .k = k,
                                       .a = x->a,
                                       .b = x->b,
                                       .c = x->c,
                                       .a_ld = a_transposed ? m : k,
                                       .b_ld = b_transposed ? k : n,
                                       .c_ld = n,
                                       .a_transposed = a_transposed,
                                       .b_transposed = b_transposed,
                                       .pack = x->pack};
    const struct host_gemm wide = {.m = m,
                                   .n = n,
                                   .k = k,
                                   .a = x->wide_a,
                                   .b = x->wide_b,
                                   .c = x->c,
                                   .a_ld = own.a_ld,
                                   .b_ld = own.b_ld,
                                   .c_ld = n,
                                   .alpha = 1,
                                   .a_transposed = a_transposed,
                                   .b_transposed = b_transposed};
    const double begin = cpu_s();
    if (by == BY_SGEMM)
        host_gemm(&wide);
    else
        gemms[by](&own);
    return 2e-9 * (double)m * (double)n * (double)k / (cpu_s() - begin);
}

static int by_rate(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_shape(const struct bench *x, size_t m, size_t n, size_t k, int form, int rounds)
{
    static const char *const forms[] = {"A B", "At B", "A Bt", "At Bt"};
    static double rate[CASES][ROUNDS_MAX], peak[CASES][ROUNDS_MAX];
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < CASES; i++) {
            const int by = r & 1 ? CASES - 1 - i : i;
            if (!gemms[by] && by != BY_SGEMM)
                continue;
            peak[by][r] = registers(by, x->a);
            rate[by][r] = rate_of(x, by, m, n, k, form);
        }
    for (int by = 0; by < CASES; by++) {
        if (!gemms[by] && by != BY_SGEMM)
            continue;
        qsort(rate[by], (size_t)rounds, sizeof **rate, by_rate);
        qsort(peak[by], (size_t)rounds, sizeof **peak, by_rate);
        const double median = rate[by][rounds / 2], most = peak[by][rounds / 2];
        printf("%4zu x %4zu x %4zu %-5s %-14s %6.1f (best %6.1f) of %6.1f GFLOP/s, %3.0f %%\n", m,
               n, k, forms[form], names[by], median, rate[by][rounds - 1], most,
               100 * median / most);
    }
}

int main(int argc, char **argv)
{
    static const size_t shapes[][3] = {
        {256, 256, 1024}, {512, 512, 512}, {512, 512, 2048}, {2048, 512, 1024}};
    const int asked = argc > 1 ? atoi(argv[1]) : 15;
    const int rounds = asked < 1 ? 1 : asked < ROUNDS_MAX ? asked : ROUNDS_MAX;
    const size_t count = (size_t)MOST * MOST;
    struct hst_dev_failure failure;
    if (host_core_lacks(host_core_find("SkylakeX"), host_cpu_features())) {
        printf("skipped: this processor has no AVX-512\n");
        return 77;
    }
    if (host_blas_open(NULL, 1, &failure)) {
        printf("failed: %s\n", failure.text);
        return 1;
    }
    for (int by = 0; by < BY_SGEMM; by++) {
        struct host_wish wish;
        if (host_wish_read(names[by], &wish, &failure) ||
            host_gemm_bf16_choose(&wish, &gemms[by], &failure))
            printf("%s: %s\n", names[by], failure.text);
    }
    struct bench x = {malloc(2 * count), malloc(2 * count),
                      malloc(4 * count), malloc(4 * count),
                      malloc(4 * count), malloc(host_gemm_bf16_pack_bytes(MOST, MOST, MOST))};
    if (!x.a || !x.b || !x.wide_a || !x.wide_b || !x.c || !x.pack)
        return 1;
    for (size_t i = 0; i < count; i++) {
        x.a[i] = x.b[i] = (uint16_t)(0x3c00 + i * 7919 % 0x380);
        x.wide_a[i] = x.wide_b[i] = (float)(i % 97) * 0.01f;
    }
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int form = 0; form < 3; form++)
            print_shape(&x, shapes[s][0], shapes[s][1], shapes[s][2], form, rounds);
    free(x.a);
    free(x.b);
    free(x.wide_a);
    free(x.wide_b);
    free(x.c);
    free(x.pack);
    return 0;
}
