/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GEMM of bf16 (gemm_bf16.h), compiled twice: with GEMM_DOT by VDPBF16PS, else by FMA. Both
 * operands are packed, a stretch of k at a time: op(A) into panels of 12 rows, op(B) into panels of
 * 32 columns. A tile of C, 12 by 32, is 24 registers, and a step along k reads two registers and
 * twelve numbers for 24 instructions. The panel of B stays in the nearest cache while panels of A
 * pass by.
 */
#include "gemm_bf16.h"
#if defined(GEMM_DOT)
#define GEMM_PAIRS
#endif
#include "gemm_bf16_pack.h"

enum {
    ROWS = GEMM_BF16_PANEL_ROWS,
    COLUMNS = GEMM_BF16_PANEL_COLUMNS,
};

#if defined(GEMM_DOT)
static inline __m512 broadcast(const word *x)
{
    return (__m512)_mm512_set1_epi32((int)*x);
}

static inline __m512 multiply_add(__m512 sum, __m512 x, __m512 y)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
}
#else
static inline __m512 broadcast(const word *x)
{
    return _mm512_set1_ps(*x);
}

static inline __m512 multiply_add(__m512 sum, __m512 x, __m512 y)
{
    return _mm512_fmadd_ps(x, y, sum);
}
#endif

/* ---- tiles ----------------------------------------------------------------------------------- */

/* A tile of C, of which so much is there: the rest is computed and not stored. */
struct tile {
    float *c;
    uint16_t *rounded; /* C goes there; null */
    size_t ld, rounded_ld, rows, columns;
    bool add;
};

static inline __m512 sum_of(bool add, __mmask16 stored, const float *c, __m512 sum)
{
    if (add)
        sum = _mm512_add_ps(_mm512_maskz_loadu_ps(stored, c), sum);
    return no_payload(sum);
}

static inline void store_row(const struct tile *t, size_t row, __m512 left, __m512 right)
{
    const __mmask16 first = lanes(t->columns);
    const __mmask16 second = t->columns > LANES ? lanes(t->columns - LANES) : 0;
    float *c = t->c + row * t->ld;
    left = sum_of(t->add, first, c, left);
    right = sum_of(t->add, second, c + LANES, right);
    if (t->rounded) {
        uint16_t *rounded = t->rounded + row * t->rounded_ld;
        _mm256_mask_storeu_epi16(rounded, first, round_to_bf16(left));
        _mm256_mask_storeu_epi16(rounded + LANES, second, round_to_bf16(right));
        return;
    }
    _mm512_mask_storeu_ps(c, first, left);
    _mm512_mask_storeu_ps(c + LANES, second, right);
}

/* `rows` is a constant wherever this is called, and sums are registers. */
static inline __attribute__((always_inline)) void
tile_of(const word *a, const word *b, size_t steps, const struct tile *t, const size_t rows)
{
    __m512 left[ROWS], right[ROWS];
#pragma GCC unroll 12
    for (size_t r = 0; r < rows; r++)
        left[r] = right[r] = _mm512_setzero_ps();
    for (size_t p = 0; p < steps; p++, a += ROWS, b += COLUMNS) {
        const __m512 first = (__m512)_mm512_loadu_si512(b);
        const __m512 second = (__m512)_mm512_loadu_si512(b + LANES);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            const __m512 x = broadcast(a + r);
            left[r] = multiply_add(left[r], x, first);
            right[r] = multiply_add(right[r], x, second);
        }
    }
#pragma GCC unroll 12
    for (size_t r = 0; r < rows; r++)
        if (r < t->rows)
            store_row(t, r, left[r], right[r]);
}

static void tile_12(const word *a, const word *b, size_t steps, const struct tile *t)
{
    tile_of(a, b, steps, t, 12);
}

static void tile_8(const word *a, const word *b, size_t steps, const struct tile *t)
{
    tile_of(a, b, steps, t, 8);
}

static void tile_4(const word *a, const word *b, size_t steps, const struct tile *t)
{
    tile_of(a, b, steps, t, 4);
}

static void tiles(const struct host_gemm_bf16 *g, const struct side *a, const struct side *b,
                  bool add, bool last)
{
    const size_t steps = pairs_of(a->terms) * PAIR_WORDS;
    for (size_t j = 0; j < g->n; j += COLUMNS)
        for (size_t i = 0; i < g->m; i += ROWS) {
            const struct tile t = {
                .c = g->c + i * g->c_ld + j,
                .rounded = last && g->rounded ? g->rounded + i * g->rounded_ld + j : NULL,
                .ld = g->c_ld,
                .rounded_ld = g->rounded_ld,
                .rows = g->m - i,
                .columns = g->n - j,
                .add = add};
            (t.rows > 8   ? tile_12
             : t.rows > 4 ? tile_8
                          : tile_4)(a->panels + i * steps, b->panels + j * steps, steps, &t);
        }
}

#if defined(GEMM_DOT)
void host_gemm_bf16_vdpbf16ps(const struct host_gemm_bf16 *g)
#else
void host_gemm_bf16_fma(const struct host_gemm_bf16 *g)
#endif
{
    const size_t b_words =
        (g->n + COLUMNS - 1) / COLUMNS * COLUMNS * pairs_of(least(g->k, GEMM_BF16_K)) * PAIR_WORDS;
    const unsigned mode = _mm_getcsr(), zeros = 0x8040; /* flush to zero, denormals are zeros */
    _mm_setcsr(mode | zeros);
    for (size_t k = 0; k < g->k; k += GEMM_BF16_K) {
        const size_t terms = least(g->k - k, GEMM_BF16_K);
        const struct side b = {.data = g->b + (g->b_transposed ? k : k * g->b_ld),
                               .ld = g->b_ld,
                               .count = g->n,
                               .terms = terms,
                               .pairs = pairs_of(terms),
                               .width = COLUMNS,
                               .panels = g->pack};
        const struct side a = {.data = g->a + (g->a_transposed ? k * g->a_ld : k),
                               .ld = g->a_ld,
                               .count = g->m,
                               .terms = terms,
                               .pairs = pairs_of(terms),
                               .width = ROWS,
                               .panels = b.panels + b_words};
        (g->b_transposed ? pack_rows : pack_columns)(&b);
        (g->a_transposed ? pack_columns : pack_rows)(&a);
        tiles(g, &a, &b, k || g->accumulate, k + terms == g->k);
    }
    _mm_setcsr(mode);
}
