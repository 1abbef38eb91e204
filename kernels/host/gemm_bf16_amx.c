/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GEMM of bf16 (gemm_bf16.h) by AMX, whose registers are tiles of 16 rows of 64 bytes. Four of
 * them hold 32 by 32 sums of C, two hold terms of op(A), two of op(B): each that is loaded takes
 * part in two products. op(B) is packed a stretch of k at a time, for all rows. A panel of 32 rows
 * of op(A) is packed just before it meets all of op(B), and what will be the next panel is fetched
 * meanwhile: at this rate memory is what one waits for.
 */
#define GEMM_PAIRS
#include "gemm_bf16.h"
#include "gemm_bf16_pack.h"

enum {
    HALF = 16, /* rows of a tile, and pairs of terms in a row of it */
    SIDE = GEMM_BF16_AMX_SIDE,
    STEP = GEMM_BF16_AMX_STEP,
    ROW_BYTES = 64,
    TILE_WORDS = HALF * ROW_BYTES / 4,
    A_STEP_WORDS = 2 * TILE_WORDS,
    B_STEP_WORDS = HALF * SIDE,
    NEAREST = 0x1f80, /* no exceptions */
    ZEROS = 0x8040,   /* flush to zero, denormals are zeros */
};

/* The compiler does not see that tiles read memory: before they do, it must be written. */
#define WRITTEN() __asm__ volatile("" ::: "memory")

/* ---- packing op(A): some steps of 32 rows ---------------------------------------------------- */

struct steps {
    size_t begin, end;
};

/* Each row of memory is a row of a tile in each step. Where there is none, the tile's row stays
   as it was: its sums are not stored. */
static void pack_a_rows(const struct side *s, size_t row, struct steps steps, word *panel)
{
    for (size_t step = steps.begin; step < steps.end; step++) {
        const uint16_t *from = s->data + row * s->ld + step * STEP;
        const __mmask32 read = halves(s->terms - step * STEP);
        const size_t have = least(s->count - row, SIDE);
        word *to = panel + step * A_STEP_WORDS;
        for (size_t i = 0; i < have; i++, from += s->ld)
            _mm512_store_si512(to + i * LANES, _mm512_maskz_loadu_epi16(read, from));
    }
}

/* Terms 2·pair and one more of 32 columns, interleaved: of each eight the first four are in *low.
 */
static inline void pair_of_side(const struct side *s, size_t row, size_t pair, __m512i *low,
                                __m512i *high)
{
    const uint16_t *from = s->data + 2 * pair * s->ld + row;
    const __mmask32 there = halves(s->count - row);
    const __m512i first = _mm512_maskz_loadu_epi16(2 * pair < s->terms ? there : 0, from);
    const __m512i second =
        _mm512_maskz_loadu_epi16(2 * pair + 1 < s->terms ? there : 0, from + s->ld);
    *low = _mm512_unpacklo_epi16(first, second);
    *high = _mm512_unpackhi_epi16(first, second);
}

static void pack_a_columns(const struct side *s, size_t row, struct steps steps, word *panel)
{
    for (size_t step = steps.begin; step < steps.end; step++) {
        word *to = panel + step * A_STEP_WORDS;
        __m512i low[LANES], high[LANES];
#pragma GCC unroll 16
        for (size_t i = 0; i < LANES; i++)
            pair_of_side(s, row, step * LANES + i, &low[i], &high[i]);
        turn(low);
        turn(high);
#pragma GCC unroll 16
        for (size_t i = 0; i < LANES; i++) {
            const size_t column = i / 4 * 8 + i % 4;
            _mm512_store_si512(to + column * LANES, low[i]);
            _mm512_store_si512(to + (column + 4) * LANES, high[i]);
        }
    }
}

/* ---- packing op(B) whose terms are rows of memory -------------------------------------------- */

/* One pair of terms of the panel that begins with column `first` of memory. */
static inline void pack_b_pair(const struct side *s, size_t first, size_t pair)
{
    const __m512i left = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i right = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    word *to = s->panels + first * s->pairs + pair * SIDE;
    __m512i low, high;
    pair_of_side(s, first, pair, &low, &high);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi64(low, left, high));
    _mm512_storeu_si512(to + LANES, _mm512_permutex2var_epi64(low, right, high));
}

/* As pack_columns. */
static void pack_b_columns(const struct side *s)
{
    const size_t ld = s->ld * sizeof *s->data;
    for (size_t band = 0; band < s->pairs; band += BAND)
        for (size_t first = 0; first < s->count; first += SIDE)
            for (size_t pair = band; pair < least(band + BAND, s->pairs); pair++) {
                const uintptr_t later =
                    (uintptr_t)s->data + first * sizeof *s->data + (pair + BAND) * 2 * ld;
                fetch_line(later);
                fetch_line(later + ld);
                pack_b_pair(s, first, pair);
            }
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Memory to fetch while a tile is computed: lines of memory, in groups, and the tile of C. */
struct ahead {
    uintptr_t from;
    size_t line_bytes, group_bytes; /* from a line to the next, and from a group to the next */
    size_t lines, lines_of_step;
    uintptr_t c;
    size_t row_bytes, rows_of_step;
};

static inline void fetch(const struct ahead *next, size_t step)
{
    const size_t end = least((step + 1) * next->lines_of_step, next->lines);
    for (size_t i = step * next->lines_of_step; i < end; i++)
        fetch_line(next->from + i % SIDE * next->line_bytes + i / SIDE * next->group_bytes);
    uintptr_t row = next->c + step * next->rows_of_step * next->row_bytes;
    for (size_t i = 0; i < next->rows_of_step; i++, row += next->row_bytes) {
        fetch_to_write(row);
        fetch_to_write(row + ROW_BYTES);
    }
}

/* `low` and `right` are constants wherever this is called: whether there are more than 16 rows and
   more than 16 columns. */
static inline __attribute__((always_inline)) void multiply(const word *a, const word *b,
                                                           size_t steps, const struct ahead *next,
                                                           const bool low, const bool right)
{
    for (size_t i = 0; i < steps; i++, a += A_STEP_WORDS, b += B_STEP_WORDS) {
        _tile_loadd(4, a, ROW_BYTES);
        _tile_loadd(6, b, 2 * ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (right) {
            _tile_loadd(7, b + LANES, 2 * ROW_BYTES);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (low) {
            _tile_loadd(5, a + TILE_WORDS, ROW_BYTES);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (low && right)
            _tile_dpbf16ps(3, 5, 7);
        fetch(next, i);
    }
}

/* A tile of C, of which so much is there: the rest is computed and not stored. */
struct tile {
    float *c;
    uint16_t *rounded; /* C goes there; null */
    size_t ld, rounded_ld, rows, columns;
    bool add, last; /* to what is there; of the stretches */
};

static void load_sums(const float *from, size_t ld)
{
    const size_t bytes = ld * sizeof *from;
    WRITTEN();
    _tile_loadd(0, from, bytes);
    _tile_loadd(1, from + LANES, bytes);
    _tile_loadd(2, from + HALF * ld, bytes);
    _tile_loadd(3, from + HALF * ld + LANES, bytes);
}

static void store_sums(float *to, size_t ld)
{
    const size_t bytes = ld * sizeof *to;
    _tile_stored(0, to, bytes);
    _tile_stored(1, to + LANES, bytes);
    _tile_stored(2, to + HALF * ld, bytes);
    _tile_stored(3, to + HALF * ld + LANES, bytes);
}

static void begin(const struct tile *t, float sums[SIDE * SIDE])
{
    if (!t->add) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else if (t->rows >= SIDE && t->columns >= SIDE) {
        load_sums(t->c, t->ld);
    } else {
        const __mmask16 left = lanes(t->columns);
        const __mmask16 right = t->columns > LANES ? lanes(t->columns - LANES) : 0;
        for (size_t r = 0; r < SIDE; r++) {
            const bool there = r < t->rows;
            const float *c = t->c + (there ? r : 0) * t->ld;
            float *to = sums + r * SIDE;
            _mm512_store_ps(to, _mm512_maskz_loadu_ps(there ? left : 0, c));
            _mm512_store_ps(to + LANES, _mm512_maskz_loadu_ps(there ? right : 0, c + LANES));
        }
        load_sums(sums, SIDE);
    }
}

/* Few sums are NaNs, so that rows are looked at and hardly ever written. */
static void take_payloads(float *c, size_t ld)
{
    WRITTEN();
    for (size_t r = 0; r < SIDE; r++, c += ld) {
        const __m512 first = _mm512_loadu_ps(c), second = _mm512_loadu_ps(c + LANES);
        if (_mm512_cmp_ps_mask(first, second, _CMP_UNORD_Q)) { /* either is a NaN */
            _mm512_storeu_ps(c, no_payload(first));
            _mm512_storeu_ps(c + LANES, no_payload(second));
        }
    }
}

static void end(const struct tile *t, float sums[SIDE * SIDE])
{
    if (!t->rounded && t->rows >= SIDE && t->columns >= SIDE) {
        store_sums(t->c, t->ld);
        if (t->last)
            take_payloads(t->c, t->ld);
        return;
    }
    const __mmask16 left = lanes(t->columns);
    const __mmask16 right = t->columns > LANES ? lanes(t->columns - LANES) : 0;
    store_sums(sums, SIDE);
    for (size_t r = 0; r < least(t->rows, SIDE); r++) {
        const __m512 first = no_payload(_mm512_load_ps(sums + r * SIDE));
        const __m512 second = no_payload(_mm512_load_ps(sums + r * SIDE + LANES));
        if (t->rounded) {
            uint16_t *to = t->rounded + r * t->rounded_ld;
            _mm256_mask_storeu_epi16(to, left, round_to_bf16(first));
            _mm256_mask_storeu_epi16(to + LANES, right, round_to_bf16(second));
        } else {
            float *to = t->c + r * t->ld;
            _mm512_mask_storeu_ps(to, left, first);
            _mm512_mask_storeu_ps(to + LANES, right, second);
        }
    }
}

static void tile_of(const word *a, const word *b, size_t steps, const struct ahead *next,
                    const struct tile *t)
{
    float sums[SIDE * SIDE] __attribute__((aligned(ROW_BYTES)));
    begin(t, sums);
    if (t->rows > HALF && t->columns > HALF)
        multiply(a, b, steps, next, true, true);
    else if (t->rows > HALF)
        multiply(a, b, steps, next, true, false);
    else if (t->columns > HALF)
        multiply(a, b, steps, next, false, true);
    else
        multiply(a, b, steps, next, false, false);
    end(t, sums);
}

/* ---- a stretch of k -------------------------------------------------------------------------- */

struct stretch {
    struct side a, b;
    word *panels[2]; /* of op(A): that in use, and the next */
    bool first, last;
};

static void pack_a(const struct host_gemm_bf16 *g, const struct stretch *s, size_t row,
                   struct steps steps)
{
    (g->a_transposed ? pack_a_columns : pack_a_rows)(&s->a, row, steps, s->panels[row / SIDE % 2]);
}

/* The part of the next panel that is packed after the tile of column `column`: all have all. */
static struct steps part_of(const struct stretch *s, size_t column)
{
    const size_t steps = s->b.pairs / LANES, tiles = (s->b.count + SIDE - 1) / SIDE;
    const size_t part = (steps + tiles - 1) / tiles, begin = least(column / SIDE * part, steps);
    return (struct steps){begin, least(begin + part, steps)};
}

static struct ahead ahead_of(const struct host_gemm_bf16 *g, const struct stretch *s, size_t row,
                             struct steps part)
{
    const size_t steps = s->b.pairs / LANES, lines = (part.end - part.begin) * SIDE;
    const size_t ld = s->a.ld * sizeof *s->a.data, group = g->a_transposed ? SIDE * ld : ROW_BYTES;
    const size_t place = row * (g->a_transposed ? sizeof *s->a.data : ld);
    return (struct ahead){.from = (uintptr_t)s->a.data + place + part.begin * group,
                          .line_bytes = ld,
                          .group_bytes = group,
                          .lines = row < g->m ? lines : 0,
                          .lines_of_step = (lines + steps - 1) / steps,
                          .rows_of_step = (SIDE + steps - 1) / steps};
}

static void rows_of(const struct host_gemm_bf16 *g, const struct stretch *s, size_t row)
{
    const size_t steps = s->b.pairs / LANES;
    for (size_t column = 0; column < g->n; column += SIDE) {
        const bool more = column + SIDE < g->n;
        const struct steps part = part_of(s, column);
        struct ahead ahead =
            ahead_of(g, s, row + (more ? 1 : 2) * SIDE, part_of(s, more ? column + SIDE : 0));
        const struct tile t = {
            .c = g->c + row * g->c_ld + column,
            .rounded = s->last && g->rounded ? g->rounded + row * g->rounded_ld + column : NULL,
            .ld = g->c_ld,
            .rounded_ld = g->rounded_ld,
            .rows = g->m - row,
            .columns = g->n - column,
            .add = g->accumulate || !s->first,
            .last = s->last};
        ahead.c = t.rounded ? (uintptr_t)t.rounded : (uintptr_t)t.c;
        ahead.row_bytes = t.rounded ? t.rounded_ld * sizeof *t.rounded : t.ld * sizeof *t.c;
        WRITTEN();
        tile_of(s->panels[row / SIDE % 2], s->b.panels + column * s->b.pairs, steps, &ahead, &t);
        if (row + SIDE < g->m)
            pack_a(g, s, row + SIDE, part);
    }
}

static void configure(void)
{
    struct {
        uint8_t palette, start_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } tiles = {.palette = 1};
    _Static_assert(sizeof tiles == 64, "LDTILECFG reads 64 bytes");
    for (int i = 0; i < 8; i++) {
        tiles.row_bytes[i] = ROW_BYTES;
        tiles.rows[i] = HALF;
    }
    WRITTEN();
    _tile_loadconfig(&tiles);
}

void host_gemm_bf16_amx(const struct host_gemm_bf16 *g)
{
    const size_t steps_most = GEMM_BF16_AMX_K / STEP, steps = (g->k + STEP - 1) / STEP;
    word *panel = (word *)(((uintptr_t)g->pack + ROW_BYTES - 1) / ROW_BYTES * ROW_BYTES);
    configure();
    for (size_t step = 0; step < steps; step += steps_most) {
        const size_t k = step * STEP, count = least(steps - step, steps_most);
        struct stretch s = {.first = !step, .last = step + count == steps};
        s.a = (struct side){.data = g->a + (g->a_transposed ? k * g->a_ld : k),
                            .ld = g->a_ld,
                            .count = g->m,
                            .terms = least(g->k - k, count * STEP),
                            .pairs = count * LANES,
                            .width = SIDE};
        s.b = s.a;
        s.b.data = g->b + (g->b_transposed ? k : k * g->b_ld);
        s.b.ld = g->b_ld;
        s.b.count = g->n;
        s.panels[0] = panel;
        s.panels[1] = panel + count * A_STEP_WORDS;
        s.b.panels = panel + 2 * count * A_STEP_WORDS;
        (g->b_transposed ? pack_rows : pack_b_columns)(&s.b);
        pack_a(g, &s, 0, (struct steps){0, count});
        for (size_t row = 0; row < g->m; row += SIDE)
            rows_of(g, &s, row);
    }
    _tile_release();
}

/* ---- the definition -------------------------------------------------------------------------- */

/* Sixteen sums of one instruction: from terms [k, k + 32) of one row, and of columns from `b` on.
 */
static __m512 sums_of(const struct host_gemm_bf16 *g, const uint16_t *a, const uint16_t *b,
                      size_t k, __mmask16 there)
{
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (size_t i = k; i < least(k + STEP, g->k); i++) {
        const __m512i terms =
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, b + i * g->b_ld));
        const __m512 x = (__m512)_mm512_set1_epi32((int)((uint32_t)a[i] << 16));
        sums[i % 2] = _mm512_fmadd_ps(x, (__m512)_mm512_slli_epi32(terms, 16), sums[i % 2]);
    }
    return _mm512_add_ps(sums[0], sums[1]);
}

void host_gemm_bf16_amx_defined(const struct host_gemm_bf16 *g)
{
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(NEAREST | ZEROS);
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j += LANES) {
            const __mmask16 there = lanes(g->n - j);
            float *c = g->c + i * g->c_ld + j;
            __m512 total = _mm512_maskz_loadu_ps(g->accumulate ? there : 0, c);
            for (size_t k = 0; k < g->k; k += STEP)
                total = _mm512_add_ps(total, sums_of(g, g->a + i * g->a_ld, g->b + j, k, there));
            _mm512_mask_storeu_ps(c, there, no_payload(total));
        }
    _mm_setcsr(mode);
}
