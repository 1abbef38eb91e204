/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_GEMM_BF16_PACK_H
#define HST_KERNELS_GEMM_BF16_PACK_H
/*
 * GEMMs of bf16 pack their operands: into panels of so many rows or columns, in which a word of
 * each follows a word of the one before. A word is what a lane multiplies at once: a pair of terms,
 * where GEMM_PAIRS is defined, or one term as f32, where the second term of a pair lies before the
 * first because it is added first.
 */
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LANES = 16,
    BAND = 4, /* pairs that are packed at once where terms are rows of memory */
};

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline __mmask16 lanes(size_t count)
{
    return (__mmask16)((1u << least(count, LANES)) - 1);
}

/* The mask of a row of 32 terms, of which so many are there. */
static inline __mmask32 halves(size_t terms)
{
    return (__mmask32)((UINT64_C(1) << least(terms, 2 * LANES)) - 1);
}

static inline size_t pairs_of(size_t terms)
{
    return (terms + 1) / 2;
}

/* A loop of _mm_prefetch alone is taken for one without effect, and left out. */
static inline void fetch_line(uintptr_t at)
{
    __asm__ volatile("prefetcht1 (%0)" : : "r"(at));
}

static inline void fetch_to_write(uintptr_t at)
{
    __asm__ volatile("prefetchw (%0)" : : "r"(at));
}

static inline __m512 no_payload(__m512 sums)
{
    const __mmask16 nan = _mm512_cmp_ps_mask(sums, sums, _CMP_UNORD_Q);
    return _mm512_mask_blend_ps(nan, sums, (__m512)_mm512_set1_epi32(0x7fc00000));
}

/* Sums without a payload, rounded to nearest even. */
static inline __m256i round_to_bf16(__m512 sums)
{
    const __m512i bits = (__m512i)sums, one = _mm512_set1_epi32(1);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}

#if defined(GEMM_PAIRS)
typedef uint32_t word;
enum { PAIR_WORDS = 1 };

static inline void put(word *to, size_t width, __mmask16 stored, __m512i pairs)
{
    (void)width;
    _mm512_mask_storeu_epi32(to, stored, pairs);
}
#else
typedef float word;
enum { PAIR_WORDS = 2 };

static inline void put(word *to, size_t width, __mmask16 stored, __m512i pairs)
{
    const __m512i second = _mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000));
    _mm512_mask_storeu_epi32(to, stored, second);
    _mm512_mask_storeu_epi32(to + width, stored, _mm512_slli_epi32(pairs, 16));
}
#endif

/* One operand's stretch of k. Beyond its last row or column, and its last term, panels hold 0. */
struct side {
    const uint16_t *data;
    size_t ld;
    size_t count; /* rows of op(A), columns of op(B) */
    size_t terms;
    size_t pairs; /* of terms in a panel: those of the terms, or a few more */
    size_t width; /* of a panel */
    word *panels;
};

/* Sixteen rows of sixteen words become columns, between registers. */
static inline __attribute__((always_inline)) void turn(__m512i x[LANES])
{
    __m512i y[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[4 + i], 0x88);
        y[4 + i] = _mm512_shuffle_i32x4(x[i], x[4 + i], 0xdd);
        y[8 + i] = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0x88);
        y[12 + i] = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_shuffle_i32x4(y[i], y[8 + i], 0x88);
        x[4 + i] = _mm512_shuffle_i32x4(y[4 + i], y[12 + i], 0x88);
        x[8 + i] = _mm512_shuffle_i32x4(y[i], y[8 + i], 0xdd);
        x[12 + i] = _mm512_shuffle_i32x4(y[4 + i], y[12 + i], 0xdd);
    }
}

/* Sixteen rows of memory from `first` on, at column `at` of their panel. */
static inline void pack_turned(const struct side *s, word *panel, size_t first, size_t at)
{
    const size_t have = first < s->count ? least(s->count - first, LANES) : 0;
    const __mmask16 stored = lanes(s->width - at);
    for (size_t k = 0; k < s->terms; k += 2 * LANES) {
        const __mmask32 read = halves(s->terms - k);
        word *to = panel + k / 2 * PAIR_WORDS * s->width + at;
        __m512i x[LANES];
#pragma GCC unroll 16
        for (size_t i = 0; i < LANES; i++)
            x[i] = i < have ? _mm512_maskz_loadu_epi16(read, s->data + (first + i) * s->ld + k)
                            : _mm512_setzero_si512();
        turn(x);
        for (size_t p = 0; p < least(s->pairs - k / 2, LANES); p++)
            put(to + p * PAIR_WORDS * s->width, s->width, stored, x[p]);
    }
}

/* Terms lie side by side in memory. */
static inline void pack_rows(const struct side *s)
{
    const size_t words = s->pairs * PAIR_WORDS;
    for (size_t first = 0; first < s->count; first += s->width)
        for (size_t at = 0; at < s->width; at += LANES)
            pack_turned(s, s->panels + first * words, first + at, at);
}

/* Pair `pair` of sixteen columns from `first` on. */
static inline __m512i pair_of(const struct side *s, size_t first, size_t pair)
{
    const uint16_t *from = s->data + 2 * pair * s->ld + first;
    const __mmask16 there = first < s->count ? lanes(s->count - first) : 0;
    const __mmask16 read = 2 * pair < s->terms ? there : 0;
    const __mmask16 read_second = 2 * pair + 1 < s->terms ? there : 0;
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(read, from));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(read_second, from + s->ld));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* One pair of terms of the panel that begins with column `first` of memory. */
static inline void pack_pair(const struct side *s, size_t first, size_t pair)
{
    word *to = s->panels + (first * s->pairs + pair * s->width) * PAIR_WORDS;
    for (size_t at = 0; at < s->width; at += LANES)
        put(to + at, s->width, lanes(s->width - at), pair_of(s, first + at, pair));
}

/* Terms are rows of memory: few of them at a time, so that rows are read as streams and panels are
   written by whole cache lines. The next band is fetched meanwhile. */
static inline void pack_columns(const struct side *s)
{
    const size_t ld = s->ld * sizeof *s->data;
    for (size_t band = 0; band < s->pairs; band += BAND)
        for (size_t first = 0; first < s->count; first += s->width)
            for (size_t pair = band; pair < least(band + BAND, s->pairs); pair++) {
                const uintptr_t later =
                    (uintptr_t)s->data + first * sizeof *s->data + (pair + BAND) * 2 * ld;
                fetch_line(later);
                fetch_line(later + ld);
                pack_pair(s, first, pair);
            }
}

#endif
