/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_VECTORS_VBMI_H
#define HST_CPU_ADAM_VECTORS_VBMI_H
/*
 * AVX-512 with VBMI, which finds 64 bytes in a table of 64 at once, and VBMI2, which shifts across
 * two registers. So codes of 8 bits are read as halves and written as bytes, 64 at a time, and
 * weights are split in one operation less. All else is that of AVX-512.
 */
#include "vector_avx512.h"

#include "codes_halves.h"

#define CODES_BY_64

enum { A_OR_B_AND_C = 0xf8 };

/* The order is EVEN_ODD. The weight is rounded where it has 16 bits already: a remainder below zero
 * adds one. */
INLINED void store_split(uint16_t *weight, int16_t *remainder, words low, words high)
{
    const words crossed = _mm512_shrdi_epi32(low, high, 16);
    const words lower = _mm512_mask_mov_epi16(low, ODD_HALVES, crossed);
    const words upper = _mm512_mask_mov_epi16(crossed, ODD_HALVES, high);
    _mm512_storeu_si512(remainder, lower);
    _mm512_storeu_si512(weight, _mm512_sub_epi16(upper, _mm512_srai_epi16(lower, 15)));
}

INLINED words byte_at(words index, const struct code_bytes *bytes, unsigned table)
{
    return _mm512_permutexvar_epi8(index, _mm512_load_si512(bytes->at[table]));
}

INLINED words byte_at_where(words other, __mmask64 where, words index,
                            const struct code_bytes *bytes, unsigned table)
{
    return _mm512_mask_permutexvar_epi8(other, where, index, _mm512_load_si512(bytes->at[table]));
}

#define EVERY_SECOND(first)                                                                        \
    first, (first) + 2, (first) + 4, (first) + 6, (first) + 8, (first) + 10, (first) + 12,         \
        (first) + 14

/* 64 codes, in the order in which store_halves makes them two pairs with the order EVEN_ODD. */
INLINED words load_64_codes(const uint8_t *codes)
{
    static const _Alignas(64) uint8_t order[64] = {EVERY_SECOND(0),  EVERY_SECOND(32),
                                                   EVERY_SECOND(16), EVERY_SECOND(48),
                                                   EVERY_SECOND(1),  EVERY_SECOND(33),
                                                   EVERY_SECOND(17), EVERY_SECOND(49)};
    return _mm512_permutexvar_epi8(_mm512_load_si512(order), _mm512_loadu_si512(codes));
}

INLINED void store_halves(uint16_t *halves, words low, words high)
{
    _mm512_store_si512(halves, _mm512_unpacklo_epi8(low, high));
    _mm512_store_si512(halves + 2 * LANES, _mm512_unpackhi_epi8(low, high));
}

/* It reads what 64 codes stand for: two pairs. */
INLINED void m_halves(const uint8_t *codes, uint16_t *halves)
{
    const words code = load_64_codes(codes);
    const __mmask64 upper = _mm512_test_epi8_mask(code, _mm512_set1_epi8(0x40));
    words low = byte_at(code, &m_low_bytes, 0), high = byte_at(code, &m_high_bytes, 0);

    low = byte_at_where(low, upper, code, &m_low_bytes, 1);
    high = byte_at_where(high, upper, code, &m_high_bytes, 1);
    high = _mm512_ternarylogic_epi32(high, code, all_words(0x80808080u), A_OR_B_AND_C);
    store_halves(halves, low, high);
}

/* The same of v, twice as large. */
INLINED void twice_v_halves(const uint8_t *codes, uint16_t *halves)
{
    const words code = load_64_codes(codes);
    const __mmask64 odd = _mm512_test_epi8_mask(code, _mm512_set1_epi8(0x40));
    const __mmask64 upper = _mm512_movepi8_mask(code), last = upper & odd;
    words low = byte_at(code, &v_low_bytes, 0), high = byte_at(code, &v_high_bytes, 0);

    low = byte_at_where(low, odd, code, &v_low_bytes, 1);
    high = byte_at_where(high, odd, code, &v_high_bytes, 1);
    low = byte_at_where(low, upper, code, &v_low_bytes, 2);
    high = byte_at_where(high, upper, code, &v_high_bytes, 2);
    low = byte_at_where(low, last, code, &v_low_bytes, 3);
    high = byte_at_where(high, last, code, &v_high_bytes, 3);
    store_halves(halves, low, high);
}

INLINED struct pair values_of_halves(const uint16_t *halves, floats scale)
{
    const struct pair x = load_f16(halves);
    return (struct pair){times(x.low, scale), times(x.high, scale)};
}

/* Bytes of two pairs' numbers below 256, and of their signs (the highest bit), as packs order
 * them. */
INLINED words packed_bytes(words a, words b, words c, words d)
{
    return _mm512_packus_epi16(_mm512_packus_epi32(a, b), _mm512_packus_epi32(c, d));
}

INLINED words packed_signs(struct pair x, struct pair y)
{
    return _mm512_packs_epi16(_mm512_packs_epi32(words_of(x.low), words_of(x.high)),
                              _mm512_packs_epi32(words_of(y.low), words_of(y.high)));
}

#define FOUR_AND_FOUR(first)                                                                       \
    first, (first) + 4, (first) + 1, (first) + 5, (first) + 2, (first) + 6, (first) + 3, (first) + 7

INLINED void store_packed_bytes(uint8_t *codes, words packed)
{
    static const _Alignas(64) uint8_t order[64] = {FOUR_AND_FOUR(0),  FOUR_AND_FOUR(16),
                                                   FOUR_AND_FOUR(32), FOUR_AND_FOUR(48),
                                                   FOUR_AND_FOUR(8),  FOUR_AND_FOUR(24),
                                                   FOUR_AND_FOUR(40), FOUR_AND_FOUR(56)};
    _mm512_storeu_si512(codes, _mm512_permutexvar_epi8(_mm512_load_si512(order), packed));
}

INLINED words with_sign_bits(words bytes, words signs)
{
    return _mm512_ternarylogic_epi32(bytes, signs, all_words(0x80808080u), A_OR_B_AND_C);
}

#endif
