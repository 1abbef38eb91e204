/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GEMM of bf16 (gemm_bf16.h), compiled twice: with GEMM_DOT by VDPBF16PS, else by FMA. Both
 * operands are packed, a stretch of k at a time: op(A) into panels of 12 rows, op(B) into panels of
 * 32 columns. A tile of C, 12 by 32, is 24 registers, and a step along k reads two registers and
 * twelve numbers for 24 instructions. The panel of B stays in the nearest cache while panels of A
 * pass by.
 *
 * A packed word is what a lane multiplies at once: a pair of terms for VDPBF16PS, one term as f32
 * for FMA, where the second term of a pair lies before the first because it is added first.
 */
#include "gemm_bf16.h"
#include <immintrin.h>

enum {
    LANES = 16,
    ROWS = GEMM_BF16_PANEL_ROWS,
    COLUMNS = GEMM_BF16_PANEL_COLUMNS,
    BAND = 4, /* pairs that are packed at once where terms are rows of memory */
};

#if defined(GEMM_DOT)
typedef uint32_t word;
enum { PAIR_WORDS = 1 };

static inline __m512 broadcast(const word *x)
{
    return (__m512)_mm512_set1_epi32((int)*x);
}

static inline __m512 multiply_add(__m512 sum, __m512 x, __m512 y)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
}

static inline void put(word *to, size_t width, __mmask16 stored, __m512i pairs)
{
    (void)width;
    _mm512_mask_storeu_epi32(to, stored, pairs);
}
#else
typedef float word;
enum { PAIR_WORDS = 2 };

static inline __m512 broadcast(const word *x)
{
    return _mm512_set1_ps(*x);
}

static inline __m512 multiply_add(__m512 sum, __m512 x, __m512 y)
{
    return _mm512_fmadd_ps(x, y, sum);
}

static inline void put(word *to, size_t width, __mmask16 stored, __m512i pairs)
{
    const __m512i second = _mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000));
    _mm512_mask_storeu_epi32(to, stored, second);
    _mm512_mask_storeu_epi32(to + width, stored, _mm512_slli_epi32(pairs, 16));
}
#endif

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static __mmask16 lanes(size_t count)
{
    return (__mmask16)((1u << least(count, LANES)) - 1);
}

static size_t pairs_of(size_t terms)
{
    return (terms + 1) / 2;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* One operand's stretch of k. Beyond its last row or column, and its last term, panels hold 0. */
struct side {
    const uint16_t *data;
    size_t ld;
    size_t count; /* rows of op(A), columns of op(B) */
    size_t terms;
    size_t width; /* of a panel */
    word *panels;
};

/* Sixteen rows of sixteen words become columns. */
static inline void turn(__m512i x[LANES])
{
    __m512i y[LANES];
    for (int i = 0; i < LANES; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[4 + i], 0x88);
        y[4 + i] = _mm512_shuffle_i32x4(x[i], x[4 + i], 0xdd);
        y[8 + i] = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0x88);
        y[12 + i] = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_shuffle_i32x4(y[i], y[8 + i], 0x88);
        x[4 + i] = _mm512_shuffle_i32x4(y[4 + i], y[12 + i], 0x88);
        x[8 + i] = _mm512_shuffle_i32x4(y[i], y[8 + i], 0xdd);
        x[12 + i] = _mm512_shuffle_i32x4(y[4 + i], y[12 + i], 0xdd);
    }
}

/* Sixteen rows of memory from `first` on, at column `at` of their panel. */
static void pack_turned(const struct side *s, word *panel, size_t first, size_t at)
{
    const size_t have = first < s->count ? least(s->count - first, LANES) : 0;
    const __mmask16 stored = lanes(s->width - at);
    for (size_t k = 0; k < s->terms; k += 2 * LANES) {
        const size_t left = least(s->terms - k, 2 * LANES);
        const __mmask32 read = (__mmask32)((UINT64_C(1) << left) - 1);
        word *to = panel + k / 2 * PAIR_WORDS * s->width + at;
        __m512i x[LANES];
        for (size_t i = 0; i < LANES; i++)
            x[i] = i < have ? _mm512_maskz_loadu_epi16(read, s->data + (first + i) * s->ld + k)
                            : _mm512_setzero_si512();
        turn(x);
        for (size_t p = 0; p < pairs_of(left); p++)
            put(to + p * PAIR_WORDS * s->width, s->width, stored, x[p]);
    }
}

/* Terms lie side by side in memory. */
static void pack_rows(const struct side *s)
{
    const size_t words = pairs_of(s->terms) * PAIR_WORDS;
    for (size_t first = 0; first < s->count; first += s->width)
        for (size_t at = 0; at < s->width; at += LANES)
            pack_turned(s, s->panels + first * words, first + at, at);
}

/* One pair of terms of the panel that begins with column `first` of memory. */
static void pack_pair(const struct side *s, size_t first, size_t pair)
{
    const uint16_t *from = s->data + 2 * pair * s->ld + first;
    word *to = s->panels + (first * pairs_of(s->terms) + pair * s->width) * PAIR_WORDS;
    for (size_t at = 0; at < s->width; at += LANES) {
        const __mmask16 read = first + at < s->count ? lanes(s->count - first - at) : 0;
        const __mmask16 read_second = 2 * pair + 1 < s->terms ? read : 0;
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(read, from + at));
        const __m512i high =
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(read_second, from + s->ld + at));
        put(to + at, s->width, lanes(s->width - at),
            _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

/* Terms are rows of memory: few of them at a time, so that rows are read as streams and panels are
   written by whole cache lines. */
static void pack_columns(const struct side *s)
{
    const size_t pairs = pairs_of(s->terms);
    for (size_t band = 0; band < pairs; band += BAND)
        for (size_t first = 0; first < s->count; first += s->width)
            for (size_t pair = band; pair < least(band + BAND, pairs); pair++)
                pack_pair(s, first, pair);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* A tile of C, of which so much is there: the rest is computed and not stored. */
struct tile {
    float *c;
    size_t ld, rows, columns;
    bool add;
};

static inline __m512 sum_of(bool add, __mmask16 stored, const float *c, __m512 sum)
{
    if (add)
        sum = _mm512_add_ps(_mm512_maskz_loadu_ps(stored, c), sum);
    const __mmask16 nan = _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q);
    return _mm512_mask_blend_ps(nan, sum, (__m512)_mm512_set1_epi32(0x7fc00000));
}

static inline void store_row(const struct tile *t, size_t row, __m512 left, __m512 right)
{
    const __mmask16 first = lanes(t->columns);
    const __mmask16 second = t->columns > LANES ? lanes(t->columns - LANES) : 0;
    float *c = t->c + row * t->ld;
    _mm512_mask_storeu_ps(c, first, sum_of(t->add, first, c, left));
    _mm512_mask_storeu_ps(c + LANES, second, sum_of(t->add, second, c + LANES, right));
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
                  bool add)
{
    const size_t steps = pairs_of(a->terms) * PAIR_WORDS;
    for (size_t j = 0; j < g->n; j += COLUMNS)
        for (size_t i = 0; i < g->m; i += ROWS) {
            const struct tile t = {.c = g->c + i * g->c_ld + j,
                                   .ld = g->c_ld,
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
                               .width = COLUMNS,
                               .panels = g->pack};
        const struct side a = {.data = g->a + (g->a_transposed ? k * g->a_ld : k),
                               .ld = g->a_ld,
                               .count = g->m,
                               .terms = terms,
                               .width = ROWS,
                               .panels = b.panels + b_words};
        (g->b_transposed ? pack_rows : pack_columns)(&b);
        (g->a_transposed ? pack_columns : pack_rows)(&a);
        tiles(g, &a, &b, k || g->accumulate);
    }
    _mm_setcsr(mode);
}
