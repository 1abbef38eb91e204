/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_CODES_STAGED_H
#define HST_CPU_ADAM_CODES_STAGED_H
/*
 * Updates of moments in codes in stages, 64 elements at a time: part of codes_isa.h. The first
 * reads what codes stand for (with VBMI). The second makes moments, from which scales follow.
 * The third makes its weights and codes. All run side by side, on three blocks behind each other.
 * What a processor holds at once then waits for memory, a root or a quotient, and seldom for all
 * that stands before it. What is rare is left to update_block, which knows all of it.
 */

/* The largest magnitudes of a block, as bits; a number that is not finite is larger than others. */
struct largest {
    words m, v;
};

struct staged {
    _Alignas(64) float m[HST_CODE_BLOCK], v[HST_CODE_BLOCK]; /* in the order of pairs */
#ifdef CODES_BY_64
    uint16_t m_halves[HST_CODE_BLOCK], v_halves[HST_CODE_BLOCK]; /* what codes stand for */
#endif
    floats m_scale, v_scale, half_v_scale; /* that are read */
    struct scale m_written, v_written;
    struct hst_update_arrays at;
};

enum { STAGE = 2 * PAIR, QUARTERS = 4 };

/* v's codes are read twice as large beside half of the scale, which is exact where that is no
 * denormal. */
INLINED bool may_be_staged(struct hst_update_kind kind, const struct staged *s)
{
    const float scale = *s->at.v_scales;
    return kind.optimizer == HST_OPTIMIZER_ADAMW && (scale >= 2 * FLT_MIN || scale == 0);
}

INLINED void stage_begin(struct staged *s, const struct hst_update_arrays *a)
{
    s->m_scale = all(*a->m_scales);
    s->v_scale = all(*a->v_scales);
    s->half_v_scale = all(0.5f * *a->v_scales);
    s->at = *a;
}

/* It reads what the block's codes of two pairs from i on stand for. They go by memory: there a
 * conversion takes one operation less than between registers. */
#ifdef CODES_BY_64
INLINED void stage_codes(struct staged *s, size_t i)
{
    m_halves((const uint8_t *)s->at.m + i, s->m_halves + i);
    twice_v_halves((const uint8_t *)s->at.v + i, s->v_halves + i);
}

INLINED struct pair stage_m(const struct staged *s, size_t i)
{
    return values_of_halves(s->m_halves + i, s->m_scale);
}

INLINED struct pair stage_v(const struct staged *s, size_t i)
{
    return values_of_halves(s->v_halves + i, s->half_v_scale);
}
#else
INLINED void stage_codes(struct staged *s, size_t i)
{
    (void)s, (void)i; /* the second stage reads them */
}

INLINED struct pair stage_m(const struct staged *s, size_t i)
{
    return m_values((const uint8_t *)s->at.m + i, s->m_scale);
}

INLINED struct pair stage_v(const struct staged *s, size_t i)
{
    return v_values((const uint8_t *)s->at.v + i, s->v_scale);
}
#endif

INLINED void stage_vector(const struct constants *k, struct staged *s, struct largest *largest,
                          size_t i, floats m, floats v, floats grad)
{
    const struct element e =
        adam_moments(k, (struct element){.m = m, .v = v}, times(k->grad_scale, grad));
    store_vector(s->m + i, e.m);
    store_vector(s->v + i, e.v);
    largest->m = larger_words(largest->m, magnitude(e.m));
    largest->v = larger_words(largest->v, words_of(e.v)); /* only a NaN's sign is set */
}

/* Moments of the block's elements from i on. */
INLINED void stage_moments(struct hst_update_kind kind, const struct constants *k, struct staged *s,
                           struct largest *largest, size_t i)
{
    for (size_t j = i; j < i + STAGE; j += PAIR) {
        const uint16_t *grads = (const uint16_t *)s->at.grads + j;
        const struct pair g = read_numbers(EVEN_ODD, kind.grads, grads);
        const struct pair m = stage_m(s, j), v = stage_v(s, j);
        stage_vector(k, s, largest, j, m.low, v.low, g.low);
        stage_vector(k, s, largest, j + LANES, m.high, v.high, g.high);
    }
}

INLINED void stage_divisors(const struct constants *k, const struct staged *s, size_t i,
                            floats divisor[QUARTERS])
{
    for (int q = 0; q < QUARTERS; q++)
        divisor[q] = adam_divisor(k, load_vector(s->v + i + (size_t)q * LANES));
}

INLINED void write_pair(struct hst_update_kind kind, const struct constants *k,
                        const struct hst_update_arrays *a, floats low, floats high)
{
    struct pair p = read_masters(EVEN_ODD, kind.weights, a);
    p.low = adam_weight(true, k, p.low, low);
    p.high = adam_weight(true, k, p.high, high);
    if (some_nan(p))
        p = canonical_pair(p);
    write_masters(EVEN_ODD, kind.weights, a, p);
}

/* Weights and codes of the block's elements from i on. */
INLINED void stage_results(struct hst_update_kind kind, const struct constants *k,
                           const struct staged *s, size_t i, const floats divisor[QUARTERS])
{
    const struct hst_update_arrays first = arrays_at(kind, &s->at, i);
    const struct hst_update_arrays second = arrays_at(kind, &s->at, i + PAIR);
    floats quotient[QUARTERS];

    for (int q = 0; q < QUARTERS; q++)
        quotient[q] = over(load_vector(s->m + i + (size_t)q * LANES), divisor[q]);
    write_v_codes(first.v, load_f32(s->v + i), load_f32(s->v + i + PAIR),
                  all(s->v_written.inverse));
    write_m_codes(first.m, load_f32(s->m + i), load_f32(s->m + i + PAIR),
                  all(s->m_written.inverse));
    write_pair(kind, k, &first, quotient[0], quotient[1]);
    write_pair(kind, k, &second, quotient[2], quotient[3]);
}

/* The blocks of the three stages, each of which may be missing; if `ahead` is 0, nothing is
 * asked for. */
struct stages {
    struct staged *codes, *moments;
    const struct staged *results;
    size_t ahead;
};

/* What stands behind a root and a quotient does not wait for them. `all_there`: none is missing,
 * which the compiler is told, and leaves the conditions out. */
INLINED struct largest stages_run(struct hst_update_kind kind, const struct constants *k,
                                  struct stages b, bool all_there)
{
    struct largest largest = {all_words(0), all_words(0)};

    for (size_t i = 0; i < HST_CODE_BLOCK; i += STAGE) {
        floats divisor[QUARTERS] = {all(1), all(1), all(1), all(1)}; /* used with results alone */
        if (all_there || b.results)
            stage_divisors(k, b.results, i, divisor);
        if (all_there || b.codes) {
            const struct hst_update_arrays here = arrays_at(kind, &b.codes->at, i);
            stage_codes(b.codes, i);
            if (b.ahead)
                prefetch_all(kind, &here, STAGE, b.ahead);
        }
        if (all_there || b.moments)
            stage_moments(kind, k, b.moments, &largest, i);
        if (all_there || b.results)
            stage_results(kind, k, b.results, i, divisor);
    }
    return largest;
}

/* True: there is a block of moments, and it may go on to the third stage. */
INLINED bool stages_pass(struct hst_update_kind kind, const struct constants *k, struct stages b)
{
    if (b.results) {
        *b.results->at.m_scales = b.results->m_written.value;
        *b.results->at.v_scales = b.results->v_written.value;
    }
    const bool all_there = b.codes && b.moments && b.results;
    const struct largest largest =
        all_there ? stages_run(kind, k, b, true) : stages_run(kind, k, b, false);
    if (!b.moments)
        return false;
    b.moments->m_written = scale_of(largest_word(largest.m), M_TO_SCALE);
    b.moments->v_written = scale_of(largest_word(largest.v), V_TO_SCALE);
    return b.moments->m_written.inverse != 0 && b.moments->v_written.inverse != 0;
}

INLINED void update_unstaged(struct hst_update_kind kind, const struct constants *k,
                             const struct hst_update_arrays *a, struct moment_blocks blocks[2])
{
    blocks[0].m_codes = blocks[1].m_codes = NULL;
    update_block(kind, k, a, &blocks[0], &blocks[1]);
    write_left(&blocks[0]);
}

INLINED void update_coded(struct hst_update_kind kind, const struct constants *k,
                          const struct hst_update_arrays *a, size_t n)
{
    struct moment_blocks blocks[2]; /* not set to zeros, nor what follows, which would take long */
    struct staged staged[3], *codes, *moments = NULL, *results = NULL;
    const size_t whole = n - n % HST_CODE_BLOCK, ahead = ahead_of(a);
    unsigned turn = 0;

    for (size_t i = 0; i < whole || moments || results; i += HST_CODE_BLOCK, moments = codes) {
        codes = i < whole ? &staged[turn++ % 3] : NULL;
        if (codes) {
            const struct hst_update_arrays here = arrays_at(kind, a, i);
            stage_begin(codes, &here);
        }
        const bool is_far = codes && n - i >= ahead + HST_CODE_BLOCK;
        const bool may = moments && may_be_staged(kind, moments);
        const bool done =
            stages_pass(kind, k,
                        (struct stages){.codes = codes,
                                        .moments = may ? moments : NULL,
                                        .results = results,
                                        .ahead = is_far ? ahead : 0});
        if (moments && !done)
            update_unstaged(kind, k, &moments->at, blocks);
        results = done ? moments : NULL;
    }
    if (whole < n) {
        const struct hst_update_arrays here = arrays_at(kind, a, whole);
        update_short_block(kind, k, &here, &blocks[0], n - whole);
    }
}

#endif
