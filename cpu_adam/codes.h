/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_CODES_H
#define HST_CPU_ADAM_CODES_H
/*
 * Moments as codes of 8 bits: cpu_adam.h states the map and its source. Plain C (plain.h) and
 * vectors (codes_isa.h) share what stands here.
 *
 * The codes of a segment lie on a line, and the lines of all segments bend one way alone. So the
 * lowest line is the right one from a number to its code, the highest one back. Plain C takes it
 * of all of them, as that needs no index; vectors pick one by the operand's exponent, as that needs
 * fewer operations. Both give the same whole part, for every one of the 2^30 y.
 */
#include "numbers.h"

#include <float.h>

/* The segments of v, the lowest first, each eightfold the one before; m has one less. */
enum { SEGMENTS = 8, M_SEGMENTS = SEGMENTS - 1, V_SEGMENTS = SEGMENTS };

struct code_lines {
    float slope[SEGMENTS], start[SEGMENTS];
};

/* The upper end of segment i is 8^-`down`. */
#define TO(i, down)        ((float)((double)(1 << (i)) * (double)(1 << 3 * (down)) * 8 / 7))
#define TO_START(i, down)  ((float)((double)(1 << (i)) * 6 / 7))
#define FROM(i, down)      ((float)(7.0 / 8 / (double)(1 << (i)) / (double)(1 << 3 * (down))))
#define FROM_START(i, down)                                                                        \
    ((float)((0.5 - (double)(1 << (i)) * 6 / 7) * 7 / 8 / (double)(1 << (i)) /                     \
             (double)(1 << 3 * (down))))
#define OF_M(X) {X(0, 6), X(1, 5), X(2, 4), X(3, 3), X(4, 2), X(5, 1), X(6, 0)}
#define OF_V(X) {X(0, 7), X(1, 6), X(2, 5), X(3, 4), X(4, 3), X(5, 2), X(6, 1), X(7, 0)}

static const struct code_lines m_to_code = {OF_M(TO), OF_M(TO_START)},
                               v_to_code = {OF_V(TO), OF_V(TO_START)},
                               m_from_code = {OF_M(FROM), OF_M(FROM_START)},
                               v_from_code = {OF_V(FROM), OF_V(FROM_START)};

#define V_LEAST    0x1p-25f                       /* what v's code 0 stands for */
#define M_TO_SCALE ((float)(1 / (1.0 - 7.0 / 8 / 128))) /* 1 over what m's code 127 does */
#define V_TO_SCALE ((float)(1 / (1.0 - 7.0 / 8 / 256))) /* 1 over what v's code 255 does */

/* It is added to what is to be a code, so that its exponent is one of 32; no code is another then,
 * but for numbers this near to the end of an interval. */
#define Y_LEAST 0x1p-31f

/* A block's scale, by the bits of its largest magnitude, which order NaN behind infinity behind all
 * numbers. */
struct scale {
    float value;
    float inverse; /* 0: all codes are 0 */
};

static inline struct scale scale_of(uint32_t largest, float to_scale)
{
    const float scale = float_of(largest) * to_scale;
    if (!(scale <= FLT_MAX))
        return (struct scale){float_of(0x7fc00000u), 0};
    if (scale < FLT_MIN)
        return (struct scale){0, 0};
    return (struct scale){scale, 1 / scale};
}

#endif
