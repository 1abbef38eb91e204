/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_VECTORS_H
#define HST_CPU_ADAM_VECTORS_H
/*
 * This header has what kernels.c needs of vectors, in AVX2 with FMA and F16C. The work is done on
 * pairs: 2·LANES consecutive elements of each array. In the order STRAIGHT `low` has the first half
 * of them, `high` the second. In the order EVEN_ODD, for arrays of 16-bit elements alone, `low` has
 * the even ones and `high` the odd ones: a 32-bit word of memory is one element of each, so they
 * need no shuffle.
 */
#include <immintrin.h>

enum { LANES = 8 };
typedef __m256 floats;
typedef __m256i words; /* 32 bits each */

struct pair {
    floats low, high;
};

#define ODD_HALVES 0xaa /* of 8, in each half of a vector, as an immediate */

INLINED floats all(float x)
{
    return _mm256_set1_ps(x);
}

INLINED words all_words(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}

INLINED words words_of(floats x)
{
    return _mm256_castps_si256(x);
}

INLINED floats floats_of(words x)
{
    return _mm256_castsi256_ps(x);
}

INLINED floats times(floats a, floats b)
{
    return _mm256_mul_ps(a, b);
}

/* a·b + c, rounded once */
INLINED floats times_plus(floats a, floats b, floats c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINED floats over(floats a, floats b)
{
    return _mm256_div_ps(a, b);
}

INLINED floats root(floats a)
{
    return _mm256_sqrt_ps(a);
}

INLINED floats sign_of(floats a)
{
    floats some = _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NEQ_UQ);
    return _mm256_or_ps(_mm256_and_ps(a, all(-0.0f)), _mm256_and_ps(some, all(1.0f)));
}

INLINED words plus_words(words a, words b)
{
    return _mm256_add_epi32(a, b);
}

INLINED words times_words(words a, words b)
{
    return _mm256_mullo_epi32(a, b);
}

INLINED words differing(words a, words b)
{
    return _mm256_xor_si256(a, b);
}

/* Down, zeros coming in. */
INLINED words shifted(words a, int bits)
{
    return _mm256_srli_epi32(a, bits);
}

/* Up. */
INLINED words lifted(words a, int bits)
{
    return _mm256_slli_epi32(a, bits);
}

INLINED words both(words a, words b)
{
    return _mm256_and_si256(a, b);
}

/* Whole numbers to floats, and back without the fraction. */
INLINED floats floats_from(words a)
{
    return _mm256_cvtepi32_ps(a);
}

INLINED words words_from(floats a)
{
    return _mm256_cvttps_epi32(a);
}

/* The larger of each, without a sign; the largest of all. */
INLINED words larger_words(words a, words b)
{
    return _mm256_max_epu32(a, b);
}

INLINED uint32_t largest_word(words a)
{
    __m128i x = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(x);
}

/* It returns, of the bits of a magnitude and of x without its sign the larger ones. */
INLINED words larger_magnitude(words a, floats x)
{
    return larger_words(a, both(words_of(x), all_words(0x7fffffff)));
}

/* x's sign is changed where the other's highest bit is set. */
INLINED floats with_sign_changed(floats x, words by)
{
    return floats_of(differing(words_of(x), both(by, all_words(0x80000000u))));
}

/* These bits of b beside all of a. */
INLINED words with_bits(words a, words b, uint32_t of_b)
{
    return _mm256_or_si256(a, both(b, all_words(of_b)));
}

INLINED words low_halves(words a)
{
    return _mm256_and_si256(a, all_words(0xffff));
}

/* Which elements of a pair are in its `low` and in its `high`. */
INLINED words low_lanes(enum order order)
{
    const words straight = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return order == EVEN_ODD ? _mm256_add_epi32(straight, straight) : straight;
}

INLINED words high_lanes(enum order order)
{
    return _mm256_add_epi32(low_lanes(order), all_words(order == EVEN_ODD ? 1 : LANES));
}

INLINED bool some_nan(struct pair x)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x.low, x.high, _CMP_UNORD_Q)) != 0;
}

INLINED floats canonical_each(floats x)
{
    return _mm256_blendv_ps(x, floats_of(all_words(0x7fc00000)), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* It counts how many are not within ±limit, the limit itself and NaNs being beyond it. */
INLINED unsigned count_beyond(struct pair x, float limit)
{
    floats sign = all(-0.0f);
    floats low = _mm256_cmp_ps(_mm256_andnot_ps(sign, x.low), all(limit), _CMP_NLT_UQ);
    floats high = _mm256_cmp_ps(_mm256_andnot_ps(sign, x.high), all(limit), _CMP_NLT_UQ);
    unsigned mask = (unsigned)_mm256_movemask_ps(low) | (unsigned)_mm256_movemask_ps(high) << 8;
    return (unsigned)__builtin_popcount(mask);
}

/* ---- memory ---- */

INLINED struct pair load_f32(const float *x)
{
    return (struct pair){_mm256_loadu_ps(x), _mm256_loadu_ps(x + LANES)};
}

INLINED void store_f32(float *x, struct pair y)
{
    _mm256_storeu_ps(x, y.low);
    _mm256_storeu_ps(x + LANES, y.high);
}

INLINED words load_widened(const uint16_t *x)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
}

INLINED words load_halves(const uint16_t *x)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}

INLINED void store_halves(uint16_t *x, words y)
{
    _mm256_storeu_si256((__m256i *)(void *)x, y);
}

/* 16-bit elements as the upper halves of words, over zeros: bf16 as f32. */
INLINED struct pair load_upper(enum order order, const uint16_t *x)
{
    if (order == EVEN_ODD) {
        words both = load_halves(x);
        return (struct pair){
            floats_of(_mm256_slli_epi32(both, 16)),
            floats_of(_mm256_blend_epi16(_mm256_setzero_si256(), both, ODD_HALVES))};
    }
    return (struct pair){floats_of(_mm256_slli_epi32(load_widened(x), 16)),
                         floats_of(_mm256_slli_epi32(load_widened(x + LANES), 16))};
}

/* Split masters: (weight << 16) + remainder. */
INLINED struct pair load_joined(enum order order, const uint16_t *weight, const int16_t *remainder)
{
    const uint16_t *low_half = (const uint16_t *)remainder;
    if (order == EVEN_ODD) {
        words r = load_halves(low_half);
        /* a negative remainder borrows from the weight */
        words w = _mm256_add_epi16(load_halves(weight), _mm256_srai_epi16(r, 15));
        return (struct pair){
            floats_of(_mm256_blend_epi16(r, _mm256_slli_epi32(w, 16), ODD_HALVES)),
            floats_of(_mm256_blend_epi16(_mm256_srli_epi32(r, 16), w, ODD_HALVES))};
    }
    struct pair upper = load_upper(order, weight);
    const __m128i *r = (const __m128i *)(const void *)low_half;
    return (struct pair){
        floats_of(plus_words(words_of(upper.low), _mm256_cvtepi16_epi32(_mm_loadu_si128(r)))),
        floats_of(plus_words(words_of(upper.high), _mm256_cvtepi16_epi32(_mm_loadu_si128(r + 1))))};
}

/* Interleaved by 128-bit lanes, as packus does it; the permutation puts the lanes in order. */
INLINED void store_packed(uint16_t *x, words low, words high)
{
    store_halves(x, _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8));
}

/* The upper, or the lower, halves of words, in the order in which they were loaded. */
INLINED void store_upper(enum order order, uint16_t *x, words low, words high)
{
    low = _mm256_srli_epi32(low, 16);
    if (order == EVEN_ODD)
        store_halves(x, _mm256_blend_epi16(low, high, ODD_HALVES));
    else
        store_packed(x, low, _mm256_srli_epi32(high, 16));
}

INLINED void store_lower(enum order order, uint16_t *x, words low, words high)
{
    words zero = _mm256_setzero_si256();
    if (order == EVEN_ODD)
        store_halves(x, _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), ODD_HALVES));
    else
        store_packed(x, _mm256_blend_epi16(low, zero, ODD_HALVES),
                     _mm256_blend_epi16(high, zero, ODD_HALVES));
}

/* Two bytes to a word. */
INLINED words load_two_codes(const uint8_t *x)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
}

/* Words below 2^16, of two pairs. */
INLINED void store_codes(uint8_t *x, words first, words second)
{
    store_packed((uint16_t *)(void *)x, first, second);
}

INLINED struct pair load_f16(const uint16_t *x)
{
    const __m128i *halves = (const __m128i *)(const void *)x;
    return (struct pair){_mm256_cvtph_ps(_mm_loadu_si128(halves)),
                         _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}

INLINED void store_f16(uint16_t *x, struct pair y)
{
    __m128i *halves = (__m128i *)(void *)x;
    _mm_storeu_si128(halves, _mm256_cvtps_ph(y.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(y.high, _MM_FROUND_TO_NEAREST_INT));
}

/* ---- lines of codes (codes.h) ---- */

/* One of eight numbers, by the low three bits of an index. */
INLINED floats at_line(const float lines[8], words index)
{
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(lines), index);
}

/* The line of a code is that of its highest bit, which is its exponent as a float; 0 has another,
 * which is lower than the least. */
INLINED floats at_code(const struct code_lines *lines, words code, float least)
{
    const floats x = floats_from(code);
    const words index = shifted(words_of(x), 23);
    const floats line = times_plus(at_line(lines->slope, index), x, at_line(lines->start, index));
    return _mm256_max_ps(line, all(least));
}

/* The part of the scale that a code stands for, and 256 times a code. */
INLINED floats part_of_first(const struct code_values *values, words code)
{
    return at_code(&values->first, code, values->least);
}

INLINED floats part_of_second(const struct code_values *values, words code)
{
    return at_code(&values->second, code, values->least);
}

/*
 * The number's line at it. The line is that of a third of the exponent, which is 96 to 126, rounded
 * up. Below all segments that is another one, above the lowest, which is the right one there.
 */
INLINED floats number_on_line(const struct number_lines *lines, floats y)
{
    const words exponent = shifted(words_of(y), 23);
    const words third =
        shifted(plus_words(_mm256_mullo_epi16(exponent, all_words(171)), all_words(342)), 9);
    const floats picked = times_plus(at_line(lines->third.slope, third), y,
                                     at_line(lines->third.start, third));
    const floats lowest = times_plus(all(lines->lowest_slope), y, all(lines->lowest_start));
    return _mm256_min_ps(picked, lowest);
}

/* ---- the lanes of a norm ---- */

struct sums {
    __m256d four[4];
};

INLINED struct sums load_sums(const double *lane)
{
    return (struct sums){{_mm256_loadu_pd(lane), _mm256_loadu_pd(lane + 4),
                          _mm256_loadu_pd(lane + 8), _mm256_loadu_pd(lane + 12)}};
}

INLINED void store_sums(double *lane, const struct sums *s)
{
    for (int i = 0; i < 4; i++)
        _mm256_storeu_pd(lane + 4 * i, s->four[i]);
}

INLINED __m256d plus_square(__m256d sum, __m128 x)
{
    __m256d wide = _mm256_cvtps_pd(x);
    return _mm256_fmadd_pd(wide, wide, sum); /* the product is exact: one rounding all the same */
}

/* Sixteen elements: one for each lane. */
INLINED void sums_add_squares(struct sums *s, struct pair x)
{
    s->four[0] = plus_square(s->four[0], _mm256_castps256_ps128(x.low));
    s->four[1] = plus_square(s->four[1], _mm256_extractf128_ps(x.low, 1));
    s->four[2] = plus_square(s->four[2], _mm256_castps256_ps128(x.high));
    s->four[3] = plus_square(s->four[3], _mm256_extractf128_ps(x.high, 1));
}

#endif
