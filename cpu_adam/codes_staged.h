/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_CODES_STAGED_H
#define HST_CPU_ADAM_CODES_STAGED_H
/*
 * Updates of moments in codes in two stages, 64 elements at a time: part of codes_isa.h. The first
 * makes a block's moments, from which its scales follow; the second its weights and codes. One
 * block's second stage runs beside the next one's first, in an order in which what needs no root
 * and no quotient stands behind each of them: a processor looks some 100 operations ahead, and else
 * waits. What is rare is left to update_block, which knows all of it.
 */

struct staged {
    _Alignas(64) float m[HST_CODE_BLOCK], v[HST_CODE_BLOCK]; /* in the order of pairs */
    words m_largest, v_largest;                              /* magnitudes, as bits */
    floats doubt; /* it is finite where all moments are, and no product of two is too large */
    floats m_scale, v_scale, half_v_scale; /* that are read */
    struct scale m_written, v_written;
    struct hst_update_arrays at;
};

enum { STAGE = 2 * PAIR, QUARTERS = 4 };

/* v's codes are read twice as large beside half of the scale, which is exact where that is no
 * denormal. */
INLINED bool may_be_staged(struct hst_update_kind kind, const struct hst_update_arrays *a)
{
    const float scale = *a->v_scales;
    return kind.optimizer == HST_OPTIMIZER_ADAMW && (scale >= 2 * FLT_MIN || scale == 0);
}

INLINED void stage_begin(struct staged *s, const struct hst_update_arrays *a)
{
    s->m_largest = s->v_largest = all_words(0);
    s->doubt = all(0);
    s->m_scale = all(*a->m_scales);
    s->v_scale = all(*a->v_scales);
    s->half_v_scale = all(0.5f * *a->v_scales);
    s->at = *a;
}

INLINED void stage_vector(const struct constants *k, struct staged *s, size_t i, floats m, floats v,
                          floats grad)
{
    const struct element e =
        adam_moments(k, (struct element){.m = m, .v = v}, times(k->grad_scale, grad));
    store_vector(s->m + i, e.m);
    store_vector(s->v + i, e.v);
    s->m_largest = larger_magnitude(s->m_largest, e.m);
    s->v_largest = larger_magnitude(s->v_largest, e.v);
    s->doubt = times_plus(e.m, e.v, s->doubt);
}

/* It reads what the codes of two pairs stand for. */
#ifdef CODES_BY_64
struct stage_codes {
    _Alignas(64) uint16_t m[STAGE], v[STAGE];
};

INLINED void stage_read(const struct hst_update_arrays *a, struct stage_codes *codes)
{
    m_halves(a->m, codes->m);
    twice_v_halves(a->v, codes->v);
    /* They go by memory: there a conversion takes one operation less than between registers. */
    __asm__("" : "+m"(*codes));
}

INLINED struct pair stage_m(const struct staged *s, const struct stage_codes *codes, size_t i)
{
    return values_of_halves(codes->m + i, s->m_scale);
}

INLINED struct pair stage_v(const struct staged *s, const struct stage_codes *codes, size_t i)
{
    return values_of_halves(codes->v + i, s->half_v_scale);
}
#else
struct stage_codes {
    const uint8_t *m, *v;
};

INLINED void stage_read(const struct hst_update_arrays *a, struct stage_codes *codes)
{
    *codes = (struct stage_codes){a->m, a->v};
}

INLINED struct pair stage_m(const struct staged *s, const struct stage_codes *codes, size_t i)
{
    return m_values(codes->m + i, s->m_scale);
}

INLINED struct pair stage_v(const struct staged *s, const struct stage_codes *codes, size_t i)
{
    return v_values(codes->v + i, s->v_scale);
}
#endif

/* Moments of the block's elements from i on. */
INLINED void stage_first(struct hst_update_kind kind, const struct constants *k, struct staged *s,
                         size_t i)
{
    const struct hst_update_arrays a = arrays_at(kind, &s->at, i);
    struct stage_codes codes;

    stage_read(&a, &codes);
    for (size_t j = 0; j < STAGE; j += PAIR) {
        const struct pair g = read_numbers(EVEN_ODD, kind.grads, (const uint16_t *)a.grads + j);
        const struct pair m = stage_m(s, &codes, j), v = stage_v(s, &codes, j);
        stage_vector(k, s, i + j, m.low, v.low, g.low);
        stage_vector(k, s, i + j + LANES, m.high, v.high, g.high);
    }
}

/* All moments of the block are there. False: it is to be updated in another way. */
INLINED bool stage_scales(struct staged *s)
{
    s->m_written = scale_of(largest_word(s->m_largest), M_TO_SCALE);
    s->v_written = scale_of(largest_word(s->v_largest), V_TO_SCALE);
    return is_finite(s->doubt) && s->m_written.inverse != 0 && s->v_written.inverse != 0;
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

/* Weights and codes of one block's elements from i on, beside the moments of another's, if there is
 * one. */
INLINED void stage_second(struct hst_update_kind kind, const struct constants *k,
                          const struct staged *s, struct staged *next, size_t i)
{
    const struct hst_update_arrays first = arrays_at(kind, &s->at, i);
    const struct hst_update_arrays second = arrays_at(kind, &s->at, i + PAIR);
    floats divisor[QUARTERS], quotient[QUARTERS];

    for (int q = 0; q < QUARTERS; q++)
        divisor[q] = adam_divisor(k, load_vector(s->v + i + (size_t)q * LANES));
    if (next)
        stage_first(kind, k, next, i);
    for (int q = 0; q < QUARTERS; q++)
        quotient[q] = over(load_vector(s->m + i + (size_t)q * LANES), divisor[q]);
    write_v_codes(first.v, load_f32(s->v + i), load_f32(s->v + i + PAIR),
                  all(s->v_written.inverse));
    write_m_codes(first.m, load_f32(s->m + i), load_f32(s->m + i + PAIR),
                  all(s->m_written.inverse));
    write_pair(kind, k, &first, quotient[0], quotient[1]);
    write_pair(kind, k, &second, quotient[2], quotient[3]);
}

INLINED void stage_end(struct hst_update_kind kind, const struct constants *k,
                       const struct staged *s, struct staged *next)
{
    *s->at.m_scales = s->m_written.value;
    *s->at.v_scales = s->v_written.value;
    for (size_t i = 0; i < HST_CODE_BLOCK; i += STAGE)
        stage_second(kind, k, s, next, i);
}

/* Its first stage, and the second one of a block before it, if there is one. */
INLINED void stage_block(struct hst_update_kind kind, const struct constants *k,
                         const struct staged *before, struct staged *s)
{
    if (before) {
        stage_end(kind, k, before, s);
        return;
    }
    for (size_t i = 0; i < HST_CODE_BLOCK; i += STAGE)
        stage_first(kind, k, s, i);
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
    struct staged staged[2], *before = NULL;
    const size_t ahead = ahead_of(a);
    unsigned turn = 0;
    size_t i = 0;

    for (; n - i >= HST_CODE_BLOCK; i += HST_CODE_BLOCK, turn ^= 1) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        struct staged *s = &staged[turn];
        if (n - i >= ahead + HST_CODE_BLOCK)
            prefetch_all(kind, &here, HST_CODE_BLOCK, ahead);
        bool is_staged = may_be_staged(kind, &here);
        if (is_staged) {
            stage_begin(s, &here);
            stage_block(kind, k, before, s);
            is_staged = stage_scales(s);
        } else if (before) {
            stage_end(kind, k, before, NULL);
        }
        before = is_staged ? s : NULL;
        if (!is_staged)
            update_unstaged(kind, k, &here, blocks);
    }
    if (before)
        stage_end(kind, k, before, NULL);
    if (i < n) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        update_short_block(kind, k, &here, &blocks[0], n - i);
    }
}

#endif
