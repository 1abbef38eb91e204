/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_CODES_HALVES_H
#define HST_CPU_ADAM_CODES_HALVES_H
/*
 * What codes stand for (codes.h), as halves (binary16), for vectors that find a byte in a table of
 * 64. A half holds each of them exactly, of v twice the number, as 2^-25 is beyond it.
 */
#include <stdint.h>

#define LOG2(x) (31u - (unsigned)__builtin_clz(x))

/* A number of a code above 0 in units of 2^-24, which are a half's least: 14·c + 7 - 12·2^i, with i
 * the place of the code's highest bit, lies 2·i bits above v's lowest segment. */
#define UNITS(code, up) ((14 * (code) + 7 - (12u << LOG2(code))) << (2 * LOG2(code) + (up)))
#define HALF_OF(units, log)   ((((log)-10) << 10) + ((units) >> ((log)-10)))
#define HALF(units)           HALF_OF(units, LOG2((units) | 1024))
#define M_HALF(code)          ((code) ? HALF(UNITS((code) | !(code), 2)) : 0)
#define TWICE_V_HALF(code)    ((code) ? HALF(UNITS((code) | !(code), 0)) : 1)
#define M_LOW_BYTE(code)      (M_HALF(code) & 0xff)
#define M_HIGH_BYTE(code)     (M_HALF(code) >> 8)
#define V_LOW_BYTE(code)      (TWICE_V_HALF(code) & 0xff)
#define V_HIGH_BYTE(code)     (TWICE_V_HALF(code) >> 8)

#define FOUR(X, first)        X(first), X((first) + 1), X((first) + 2), X((first) + 3)
#define SIXTEEN(X, first)                                                                          \
    FOUR(X, first), FOUR(X, (first) + 4), FOUR(X, (first) + 8), FOUR(X, (first) + 12)
#define SIXTY_FOUR(X, first)                                                                       \
    SIXTEEN(X, first), SIXTEEN(X, (first) + 16), SIXTEEN(X, (first) + 32), SIXTEEN(X, (first) + 48)

enum { TABLE = 64 };

struct code_bytes {
    _Alignas(64) uint8_t at[4][TABLE]; /* by the upper two bits of a code, then by the others */
};

#define OF_128(X) {{SIXTY_FOUR(X, 0u)}, {SIXTY_FOUR(X, 64u)}}
#define OF_256(X)                                                                                  \
    {                                                                                              \
        {SIXTY_FOUR(X, 0u)}, {SIXTY_FOUR(X, 64u)}, {SIXTY_FOUR(X, 128u)}, {SIXTY_FOUR(X, 192u)}    \
    }

static const struct code_bytes m_low_bytes = {OF_128(M_LOW_BYTE)},
                               m_high_bytes = {OF_128(M_HIGH_BYTE)},
                               v_low_bytes = {OF_256(V_LOW_BYTE)},
                               v_high_bytes = {OF_256(V_HIGH_BYTE)};

#endif
