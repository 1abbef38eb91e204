/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_CODES_LINES_H
#define HST_CPU_ADAM_CODES_LINES_H
/*
 * The lines of codes.h where a vector finds them: by bits of the exponent that their operand has as
 * a float. Line i, which ends at 8^-down, is X(i, down).
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

static const struct code_lines m_by_code = {M_BY_CODE(FROM), M_BY_CODE(FROM_START)},
                               v_by_code = {V_BY_CODE(FROM), V_BY_CODE(FROM_START)};

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

static const struct number_lines
    m_by_number = {.slope = M_BY_EXPONENT(TO), .start = M_BY_EXPONENT(TO_START),
                   .third = {M_BY_THIRD(TO), M_BY_THIRD(TO_START)},
                   .lowest_slope = TO(0, 6), .lowest_start = TO_START(0, 6)},
    v_by_number = {.slope = V_BY_EXPONENT(TO), .start = V_BY_EXPONENT(TO_START),
                   .third = {V_BY_THIRD(TO), V_BY_THIRD(TO_START)},
                   .lowest_slope = TO(0, 7), .lowest_start = TO_START(0, 7)};

#endif
