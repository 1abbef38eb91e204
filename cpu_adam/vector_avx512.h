/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_VECTORS_H
#define HST_CPU_ADAM_VECTORS_H
/* This header has what kernels.c needs of vectors, in AVX-512 (F, BW, CD, DQ, VL). vector_avx2.h
   has the meaning of each.
 */
#include <immintrin.h>

#define UPDATES_IN_STAGES /* its registers hold what is under way in both */

enum { LANES = 16 };
typedef __m512 floats;
typedef __m512i words;

struct pair {
    floats low, high;
};

#define ODD_HALVES 0xaaaaaaaau /* of 32, as a mask */

INLINED floats all(float x)
{
    return _mm512_set1_ps(x);
}

INLINED words all_words(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}

INLINED words words_of(floats x)
{
    return _mm512_castps_si512(x);
}

INLINED floats floats_of(words x)
{
    return _mm512_castsi512_ps(x);
}

INLINED floats times(floats a, floats b)
{
    return _mm512_mul_ps(a, b);
}

INLINED floats times_plus(floats a, floats b, floats c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINED floats over(floats a, floats b)
{
    return _mm512_div_ps(a, b);
}

INLINED floats root(floats a)
{
    return _mm512_sqrt_ps(a);
}

INLINED floats sign_of(floats a)
{
    __mmask16 some = _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    return _mm512_or_ps(_mm512_and_ps(a, all(-0.0f)), _mm512_maskz_mov_ps(some, all(1.0f)));
}

INLINED words plus_words(words a, words b)
{
    return _mm512_add_epi32(a, b);
}

INLINED words times_words(words a, words b)
{
    return _mm512_mullo_epi32(a, b);
}

INLINED words differing(words a, words b)
{
    return _mm512_xor_si512(a, b);
}

INLINED words shifted(words a, unsigned bits)
{
    return _mm512_srli_epi32(a, bits);
}

INLINED words lifted(words a, unsigned bits)
{
    return _mm512_slli_epi32(a, bits);
}

INLINED words both(words a, words b)
{
    return _mm512_and_si512(a, b);
}

INLINED floats floats_from(words a)
{
    return _mm512_cvtepi32_ps(a);
}

INLINED words words_from(floats a)
{
    return _mm512_cvttps_epi32(a);
}

INLINED words larger_words(words a, words b)
{
    return _mm512_max_epu32(a, b);
}

INLINED uint32_t largest_word(words a)
{
    return _mm512_reduce_max_epu32(a);
}

/* It leaves out a NaN, if only one of the two is none. */
INLINED words larger_magnitude(words a, floats x)
{
    enum { LARGER_MAGNITUDE = 3, NO_SIGN = 2 << 2 };
    return words_of(_mm512_range_ps(floats_of(a), x, LARGER_MAGNITUDE | NO_SIGN));
}

INLINED floats with_sign_changed(floats x, words by)
{
    enum { A_XOR_B_AND_C = 0x78 };
    return floats_of(_mm512_ternarylogic_epi32(words_of(x), by, all_words(0x80000000u),
                                               A_XOR_B_AND_C));
}

INLINED words with_bits(words a, words b, uint32_t of_b)
{
    enum { A_OR_B_AND_C = 0xf8 };
    return _mm512_ternarylogic_epi32(a, b, all_words(of_b), A_OR_B_AND_C);
}

INLINED words low_halves(words a)
{
    return _mm512_and_si512(a, all_words(0xffff));
}

INLINED words low_lanes(enum order order)
{
    const words straight = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return order == EVEN_ODD ? _mm512_add_epi32(straight, straight) : straight;
}

INLINED words high_lanes(enum order order)
{
    return _mm512_add_epi32(low_lanes(order), all_words(order == EVEN_ODD ? 1 : LANES));
}

INLINED bool some_nan(struct pair x)
{
    return _mm512_cmp_ps_mask(x.low, x.high, _CMP_UNORD_Q) != 0;
}

INLINED floats canonical_each(floats x)
{
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                              floats_of(all_words(0x7fc00000)));
}

INLINED unsigned count_beyond(struct pair x, float limit)
{
    unsigned low = _mm512_cmp_ps_mask(_mm512_abs_ps(x.low), all(limit), _CMP_NLT_UQ);
    unsigned high = _mm512_cmp_ps_mask(_mm512_abs_ps(x.high), all(limit), _CMP_NLT_UQ);
    return (unsigned)__builtin_popcount(low | high << 16);
}

/* ---- memory ---- */

INLINED struct pair load_f32(const float *x)
{
    return (struct pair){_mm512_loadu_ps(x), _mm512_loadu_ps(x + LANES)};
}

INLINED void store_f32(float *x, struct pair y)
{
    _mm512_storeu_ps(x, y.low);
    _mm512_storeu_ps(x + LANES, y.high);
}

/* These are aligned. */
INLINED floats load_vector(const float *x)
{
    return _mm512_load_ps(x);
}

INLINED void store_vector(float *x, floats y)
{
    _mm512_store_ps(x, y);
}

INLINED words load_widened(const uint16_t *x)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

INLINED struct pair load_upper(enum order order, const uint16_t *x)
{
    if (order == EVEN_ODD) {
        words both = _mm512_loadu_si512(x);
        return (struct pair){floats_of(_mm512_slli_epi32(both, 16)),
                             floats_of(_mm512_maskz_mov_epi16(ODD_HALVES, both))};
    }
    return (struct pair){floats_of(_mm512_slli_epi32(load_widened(x), 16)),
                         floats_of(_mm512_slli_epi32(load_widened(x + LANES), 16))};
}

/* Halves of w above those of r. */
INLINED struct pair interleaved(words r, words w)
{
#ifdef __AVX512VBMI2__
    const words crossed = _mm512_shrdi_epi32(r, w, 16);
    return (struct pair){floats_of(_mm512_mask_mov_epi16(r, ODD_HALVES, crossed)),
                         floats_of(_mm512_mask_mov_epi16(crossed, ODD_HALVES, w))};
#else
    return (struct pair){
        floats_of(_mm512_mask_mov_epi16(r, ODD_HALVES, _mm512_slli_epi32(w, 16))),
        floats_of(_mm512_mask_mov_epi16(_mm512_srli_epi32(r, 16), ODD_HALVES, w))};
#endif
}

INLINED struct pair load_joined(enum order order, const uint16_t *weight, const int16_t *remainder)
{
    const uint16_t *low_half = (const uint16_t *)remainder;
    if (order == EVEN_ODD) {
        words r = _mm512_loadu_si512(low_half);
        /* a negative remainder borrows from the weight */
        words w = _mm512_add_epi16(_mm512_loadu_si512(weight), _mm512_srai_epi16(r, 15));
        return interleaved(r, w);
    }
    struct pair upper = load_upper(order, weight);
    const __m256i *r = (const __m256i *)(const void *)low_half;
    return (struct pair){
        floats_of(plus_words(words_of(upper.low), _mm512_cvtepi16_epi32(_mm256_loadu_si256(r)))),
        floats_of(
            plus_words(words_of(upper.high), _mm512_cvtepi16_epi32(_mm256_loadu_si256(r + 1))))};
}

/* Interleaved by 128-bit lanes, as packus does it; the permutation puts the lanes in order. */
INLINED void store_packed(uint16_t *x, words low, words high)
{
    const words lanes = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    _mm512_storeu_si512(x, _mm512_permutexvar_epi64(lanes, _mm512_packus_epi32(low, high)));
}

INLINED void store_upper(enum order order, uint16_t *x, words low, words high)
{
    low = _mm512_srli_epi32(low, 16);
    if (order == EVEN_ODD)
        _mm512_storeu_si512(x, _mm512_mask_mov_epi16(low, ODD_HALVES, high));
    else
        store_packed(x, low, _mm512_srli_epi32(high, 16));
}

INLINED void store_lower(enum order order, uint16_t *x, words low, words high)
{
    if (order == EVEN_ODD)
        _mm512_storeu_si512(x, _mm512_mask_mov_epi16(low, ODD_HALVES, _mm512_slli_epi32(high, 16)));
    else
        store_packed(x, _mm512_maskz_mov_epi16(~ODD_HALVES, low),
                     _mm512_maskz_mov_epi16(~ODD_HALVES, high));
}

INLINED words load_two_codes(const uint8_t *x)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

INLINED void store_codes(uint8_t *x, words first, words second)
{
    store_packed((uint16_t *)(void *)x, first, second);
}

INLINED struct pair load_f16(const uint16_t *x)
{
    const __m256i *halves = (const __m256i *)(const void *)x;
    return (struct pair){_mm512_cvtph_ps(_mm256_loadu_si256(halves)),
                         _mm512_cvtph_ps(_mm256_loadu_si256(halves + 1))};
}

INLINED void store_f16(uint16_t *x, struct pair y)
{
    __m256i *halves = (__m256i *)(void *)x;
    _mm256_storeu_si256(halves, _mm512_cvtps_ph(y.low, _MM_FROUND_TO_NEAREST_INT));
    _mm256_storeu_si256(halves + 1, _mm512_cvtps_ph(y.high, _MM_FROUND_TO_NEAREST_INT));
}

/* ---- lines of codes (codes.h) ---- */

/* The part of the scale that a code stands for, and 256 times a code. */
INLINED floats part_of_first(const struct code_values *values, words code)
{
    const words zeros = _mm512_lzcnt_epi32(code);
    const floats slope = _mm512_permutexvar_ps(zeros, _mm512_load_ps(values->slope));
    const floats start = _mm512_permutexvar_ps(zeros, _mm512_load_ps(values->start));
    return times_plus(slope, floats_from(code), start);
}

INLINED floats part_of_second(const struct code_values *values, words code)
{
    return part_of_first(values, code);
}

/* One of 32 numbers, by the low five bits of an index. */
INLINED floats at_exponent(const float numbers[32], words index)
{
    return _mm512_permutex2var_ps(_mm512_load_ps(numbers), index, _mm512_load_ps(numbers + 16));
}

INLINED floats number_on_line(const struct number_lines *lines, floats y)
{
    const words index = shifted(words_of(y), 23);
    return times_plus(at_exponent(lines->slope, index), y, at_exponent(lines->start, index));
}

/* ---- the lanes of a norm ---- */

struct sums {
    __m512d eight[2];
};

INLINED struct sums load_sums(const double *lane)
{
    return (struct sums){{_mm512_loadu_pd(lane), _mm512_loadu_pd(lane + 8)}};
}

INLINED void store_sums(double *lane, const struct sums *s)
{
    _mm512_storeu_pd(lane, s->eight[0]);
    _mm512_storeu_pd(lane + 8, s->eight[1]);
}

INLINED __m512d plus_square(__m512d sum, __m256 x)
{
    __m512d wide = _mm512_cvtps_pd(x);
    return _mm512_fmadd_pd(wide, wide, sum); /* the product is exact: one rounding all the same */
}

/* Sixteen elements, one for each lane, then the next sixteen. */
INLINED void sums_add_squares(struct sums *s, struct pair x)
{
    s->eight[0] = plus_square(s->eight[0], _mm512_castps512_ps256(x.low));
    s->eight[1] = plus_square(s->eight[1], _mm512_extractf32x8_ps(x.low, 1));
    s->eight[0] = plus_square(s->eight[0], _mm512_castps512_ps256(x.high));
    s->eight[1] = plus_square(s->eight[1], _mm512_extractf32x8_ps(x.high, 1));
}

#endif
