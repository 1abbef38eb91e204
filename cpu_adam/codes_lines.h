/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_CODES_LINES_H
#define HST_CPU_ADAM_CODES_LINES_H
/*
 * The lines of codes.h where a vector finds them. Line i, which ends at 8^-down, is X(i, down).
 *
 * Codes lie in pairs of bytes, of which the second stays where it is if it can: its number is then
 * 256 times the code, and so are the line's slope there, or what the line gives. A power of two
 * changes no rounding.
 */
#include "codes.h"

/* It is indexed by the low three bits of a code's exponent: 0 for 2 to 3, and 7 for 1. */
#define M_BY_CODE(X)                                                                               \
    {                                                                                              \
       X(1, 5), X(2, 4), X(3, 3), X(4, 2), X(5, 1), X(6, 0), X(6, 0), X(0, 6)                      \
    }
#define V_BY_CODE(X)                                                                               \
    {                                                                                              \
       X(1, 6), X(2, 5), X(3, 4), X(4, 3), X(5, 2), X(6, 1), X(7, 0), X(0, 7)                      \
    }

/* It is indexed by the low four bits of how many zeros stand before a code's highest bit, of 32:
 * none of a code of 0, which is the last argument; 9 to 15 of m's and 8 to 15 of v's, 1 to 7 of m's
 * in the second byte. */
#define M_BY_ZEROS(X, Y, ZERO)                                                                     \
    {                                                                                              \
        ZERO, Y(6, 0), Y(5, 1), Y(4, 2), Y(3, 3), Y(2, 4), Y(1, 5), Y(0, 6), ZERO, X(6, 0),        \
            X(5, 1), X(4, 2), X(3, 3), X(2, 4), X(1, 5), X(0, 6)                                   \
    }
#define V_BY_ZEROS(X, ZERO)                                                                        \
    {                                                                                              \
        ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, X(7, 0), X(6, 1), X(5, 2), X(4, 3),        \
            X(3, 4), X(2, 5), X(1, 6), X(0, 7)                                                     \
    }

#define FROM_256(i, down)     (FROM(i, down) / 256)
#define TO_256(i, down)       (TO(i, down) * 256)
#define TO_START_256(i, down) (TO_START(i, down) * 256)

struct code_values {
    _Alignas(64) float slope[16], start[16]; /* by zeros */
    struct code_lines first, second;         /* by the exponent of a code, and of 256 times one */
    float least;
};

static const struct code_values
    m_by_code = {.slope = M_BY_ZEROS(FROM, FROM_256, 0),
                 .start = M_BY_ZEROS(FROM_START, FROM_START, 0),
                 .first = {M_BY_CODE(FROM), M_BY_CODE(FROM_START)},
                 .second = {M_BY_CODE(FROM_256), M_BY_CODE(FROM_START)}},
    v_by_code = {.slope = V_BY_ZEROS(FROM, 0),
                 .start = V_BY_ZEROS(FROM_START, V_LEAST),
                 .first = {V_BY_CODE(FROM), V_BY_CODE(FROM_START)},
                 .least = V_LEAST};

/* It is indexed by the low five bits of a number's exponent, which are 0 for 2^-31. A segment has
 * three exponents. */
#define M_BY_EXPONENT(X)                                                                           \
    {                                                                                              \
       X(0, 6), X(0, 6), X(0, 6), X(0, 6), X(0, 6), X(0, 6), X(0, 6), X(0, 6), X(0, 6),            \
       X(0, 6), X(0, 6), X(0, 6), X(0, 6), X(1, 5), X(1, 5), X(1, 5), X(2, 4), X(2, 4),            \
       X(2, 4), X(3, 3), X(3, 3), X(3, 3), X(4, 2), X(4, 2), X(4, 2), X(5, 1), X(5, 1),            \
       X(5, 1), X(6, 0), X(6, 0), X(6, 0), X(6, 0)                                                 \
    }
#define V_BY_EXPONENT(X)                                                                           \
    {                                                                                              \
       X(0, 7), X(0, 7), X(0, 7), X(0, 7), X(0, 7), X(0, 7), X(0, 7), X(0, 7), X(0, 7),            \
       X(0, 7), X(1, 6), X(1, 6), X(1, 6), X(2, 5), X(2, 5), X(2, 5), X(3, 4), X(3, 4),            \
       X(3, 4), X(4, 3), X(4, 3), X(4, 3), X(5, 2), X(5, 2), X(5, 2), X(6, 1), X(6, 1),            \
       X(6, 1), X(7, 0), X(7, 0), X(7, 0), X(7, 0)                                                 \
    }

/* The low three bits of a third of it, rounded up: 2 for the highest segment. */
#define M_BY_THIRD(X)                                                                              \
    {                                                                                              \
       X(4, 2), X(5, 1), X(6, 0), X(0, 6), X(0, 6), X(1, 5), X(2, 4), X(3, 3)                      \
    }
#define V_BY_THIRD(X)                                                                              \
    {                                                                                              \
       X(5, 2), X(6, 1), X(7, 0), X(0, 7), X(1, 6), X(2, 5), X(3, 4), X(4, 3)                      \
    }

struct number_lines {
    _Alignas(64) float slope[32], start[32]; /* by exponent */
    struct code_lines third;
    float lowest_slope, lowest_start;
};

#define M_BY_NUMBER(SLOPE, START)                                                                  \
    {                                                                                              \
        .slope = M_BY_EXPONENT(SLOPE), .start = M_BY_EXPONENT(START),                              \
        .third = {M_BY_THIRD(SLOPE), M_BY_THIRD(START)}, .lowest_slope = SLOPE(0, 6),              \
        .lowest_start = START(0, 6)                                                                \
    }
#define V_BY_NUMBER(SLOPE, START)                                                                  \
    {                                                                                              \
        .slope = V_BY_EXPONENT(SLOPE), .start = V_BY_EXPONENT(START),                              \
        .third = {V_BY_THIRD(SLOPE), V_BY_THIRD(START)}, .lowest_slope = SLOPE(0, 7),              \
        .lowest_start = START(0, 7)                                                                \
    }

/* These are of the first byte of a pair, and of the second, times 256. */
static const struct number_lines m_first_by_number = M_BY_NUMBER(TO, TO_START),
                                 m_second_by_number = M_BY_NUMBER(TO_256, TO_START_256),
                                 v_first_by_number = V_BY_NUMBER(TO, TO_START),
                                 v_second_by_number = V_BY_NUMBER(TO_256, TO_START_256);

#endif
