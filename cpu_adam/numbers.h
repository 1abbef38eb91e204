/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_NUMBERS_H
#define HST_CPU_ADAM_NUMBERS_H
/*
 * Formats of numbers, one number at a time, in a shape that vectorises: no branch (both sides are
 * computed and one is selected), no table, 32-bit integers and f32 alone. What IEEE 754 leaves
 * open, the pattern of a NaN, is written out.
 */
#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_is_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

static inline float canonical(float x)
{
    uint32_t bits = bits_of(x);
    return float_of(bits_is_nan(bits) ? 0x7fc00000u : bits);
}

/* ---- bf16 ---- */

static inline float f32_of_bf16(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

static inline uint16_t bf16_nearest(float x)
{
    uint32_t bits = bits_of(x);
    uint32_t nan = ((bits >> 16) & 0x8000u) | 0x7fc0u;
    uint32_t nearest_even = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)(bits_is_nan(bits) ? nan : nearest_even);
}

/*
 * Up or down, as noise below 2^16 says: the bits that are cut off are the probability of up. A
 * number that bf16 holds has none set and stays, infinity and the one NaN too.
 */
static inline uint16_t bf16_noisy(float x, uint32_t noise)
{
    return (uint16_t)((bits_of(x) + noise) >> 16);
}

/* Split master of a number whose NaNs are canonical, which makes them weight 0x7fc0, remainder 0.
 * Adding half a unit rounds the magnitude, whatever the sign: ties go away from zero. */
static inline uint16_t split_weight(uint32_t bits)
{
    return (uint16_t)((bits + 0x8000u) >> 16);
}

/* bits - (weight << 16) is the low half of bits, read as signed. */
static inline int16_t split_remainder(uint32_t bits)
{
    return (int16_t)(uint16_t)bits;
}

static inline float join(uint16_t weight, int16_t remainder)
{
    return float_of(((uint32_t)weight << 16) + (uint32_t)(int32_t)remainder);
}

/* ---- f16 (IEEE binary16: 5 bits of exponent, 10 of fraction) ---- */

#define F16_TO_F32_EXPONENT (112u << 23) /* difference of the biases, 127 - 15 */
#define F16_LEAST_NORMAL    (113u << 23) /* 2^-14 as f32 */
#define F16_BEYOND          (143u << 23) /* 2^16 as f32 */

static inline float f32_of_f16(uint16_t x)
{
    uint32_t magnitude = (uint32_t)(x & 0x7fffu) << 13;
    uint32_t normal = magnitude + F16_TO_F32_EXPONENT;
    /* fraction·2^-24 as (1 + fraction/1024)·2^-14 - 2^-14: exact, and no operand is denormal */
    uint32_t tiny = bits_of(float_of(magnitude + F16_LEAST_NORMAL) - float_of(F16_LEAST_NORMAL));
    uint32_t special = magnitude | 0x7f800000u | (magnitude > 0x0f800000u ? 0x400000u : 0u);
    uint32_t bits = magnitude < 1u << 23 ? tiny : normal;
    bits = magnitude >= 0x0f800000u ? special : bits;
    return float_of(bits | (uint32_t)(x & 0x8000u) << 16);
}

static inline uint16_t f16_nearest(float x)
{
    uint32_t sign = bits_of(x) >> 16 & 0x8000u, magnitude = bits_of(x) & 0x7fffffffu;
    uint32_t normal = magnitude - F16_TO_F32_EXPONENT;
    normal = (normal + 0xfffu + (normal >> 13 & 1u)) >> 13;
    /* Beside 0.5 an f32's last bit is worth 2^-24, f16's least: the addition rounds. */
    uint32_t tiny = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t special = bits_is_nan(magnitude) ? 0x7e00u : 0x7c00u;
    uint32_t bits = magnitude < F16_LEAST_NORMAL ? tiny : normal;
    bits = magnitude >= F16_BEYOND ? special : bits;
    return (uint16_t)(bits | sign);
}

#endif
