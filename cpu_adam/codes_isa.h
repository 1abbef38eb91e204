/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_CODES_ISA_H
#define HST_CPU_ADAM_CODES_ISA_H
/*
 * Updates of moments in codes, a block at a time: part of vector_isa.h. A block's scales follow
 * from all of its moments, so these wait as floats until the last one is there; their codes are
 * then written beside the updates of the next block. All arrays are in the order EVEN_ODD.
 */

struct moment_block {
    _Alignas(64) float at[HST_CODE_BLOCK]; /* in the order of pairs */
    words largest;                         /* magnitudes, as bits; of a NaN any */
    words nan;                             /* magnitudes of pairs that have a NaN */
};

struct moment_blocks {
    floats m_scale, v_scale;     /* of the codes that are read */
    floats m_inverse, v_inverse; /* of the scales that are written */
    uint8_t *m_codes, *v_codes;  /* where these go; null: they are there already */
    struct moment_block m, v;
};

INLINED words magnitude(floats x)
{
    return both(words_of(x), all_words(0x7fffffff));
}

INLINED struct pair magnitudes(struct pair x)
{
    return (struct pair){floats_of(magnitude(x.low)), floats_of(magnitude(x.high))};
}

/* m and v of a pair of codes: the even elements are the first bytes of 16 bits, the odd ones the
 * second. m's sign is the highest bit of its byte. */
INLINED struct pair m_values(const uint8_t *codes, floats scale)
{
    const words two = load_two_codes(codes);
    const words first = both(two, all_words(0x7f)), second = both(two, all_words(0x7f00));
    const floats low = times(part_of_first(&m_by_code, first), scale);
    const floats high = times(part_of_second(&m_by_code, second), scale);
    return (struct pair){with_sign_changed(low, lifted(two, 24)),
                         with_sign_changed(high, lifted(two, 16))};
}

INLINED struct pair v_values(const uint8_t *codes, floats scale)
{
    const words two = load_two_codes(codes);
    const floats low = part_of_first(&v_by_code, both(two, all_words(0xff)));
    const floats high = part_of_first(&v_by_code, shifted(two, 8));
    return (struct pair){times(low, scale), times(high, scale)};
}

typedef void write_fn(uint8_t *codes, struct pair first, struct pair second, floats inverse);

#ifdef CODES_BY_64
INLINED words code_of(const struct number_lines *lines, floats x, floats inverse)
{
    return words_from(number_on_line(lines, times_plus(x, inverse, all(Y_LEAST))));
}

INLINED words code_bytes(const struct number_lines *lines, struct pair x, struct pair y,
                         floats inverse)
{
    return packed_bytes(code_of(lines, x.low, inverse), code_of(lines, x.high, inverse),
                        code_of(lines, y.low, inverse), code_of(lines, y.high, inverse));
}

INLINED void write_m_codes(uint8_t *codes, struct pair x, struct pair y, floats inverse)
{
    const words bytes = code_bytes(&m_first_by_number, magnitudes(x), magnitudes(y), inverse);
    store_packed_bytes(codes, with_sign_bits(bytes, packed_signs(x, y)));
}

INLINED void write_v_codes(uint8_t *codes, struct pair x, struct pair y, floats inverse)
{
    store_packed_bytes(codes, code_bytes(&v_first_by_number, x, y, inverse));
}
#else
/* Both codes of a pair's elements, of x beside the scale; no x is negative. */
INLINED words two_codes(const struct number_lines *first, const struct number_lines *second,
                        struct pair x, floats inverse)
{
    const floats low = times_plus(x.low, inverse, all(Y_LEAST));
    const floats high = times_plus(x.high, inverse, all(Y_LEAST));
    return with_bits(words_from(number_on_line(first, low)),
                     words_from(number_on_line(second, high)), 0xff00);
}

INLINED words m_codes(struct pair x, floats inverse)
{
    words two = two_codes(&m_first_by_number, &m_second_by_number, magnitudes(x), inverse);
    two = with_bits(two, shifted(words_of(x.low), 24), 0x80);
    return with_bits(two, shifted(words_of(x.high), 16), 0x8000);
}

INLINED words v_codes(struct pair x, floats inverse)
{
    return two_codes(&v_first_by_number, &v_second_by_number, x, inverse);
}

INLINED void write_m_codes(uint8_t *codes, struct pair x, struct pair y, floats inverse)
{
    store_codes(codes, m_codes(x, inverse), m_codes(y, inverse));
}

INLINED void write_v_codes(uint8_t *codes, struct pair x, struct pair y, floats inverse)
{
    store_codes(codes, v_codes(x, inverse), v_codes(y, inverse));
}
#endif

/* The first n elements of a pair, zeros in place of the others. */
INLINED struct pair first_of_pair(struct pair x, size_t n)
{
    _Alignas(64) float each[PAIR];
    store_f32(each, x);
    for (size_t i = n; i < PAIR; i++)
        each[i / 2 + (i % 2 ? LANES : 0)] = 0;
    return load_f32(each);
}

INLINED void hold(struct moment_block *block, size_t nth, struct pair x)
{
    store_f32(block->at + nth * PAIR, x);
    block->largest = larger_magnitude(larger_magnitude(block->largest, x.low), x.high);
}

INLINED void note_nan(struct moment_block *block, struct pair x)
{
    const words larger = larger_words(magnitude(x.low), magnitude(x.high));
    block->nan = larger_words(block->nan, larger);
}

/* The pair's weights are updated, and its moments held; n of its elements are real. */
INLINED void update_coded_pair(struct hst_update_kind kind, const struct constants *k,
                               const struct hst_update_arrays *a, struct moment_blocks *blocks,
                               size_t nth, size_t n)
{
    const struct pair g = read_numbers(EVEN_ODD, kind.grads, a->grads);
    struct pair p = read_masters(EVEN_ODD, kind.weights, a);
    struct pair m = m_values(a->m, blocks->m_scale), v = v_values(a->v, blocks->v_scale);

    update_vector(kind.optimizer, k, &p.low, &m.low, &v.low, g.low);
    update_vector(kind.optimizer, k, &p.high, &m.high, &v.high, g.high);
    if (n < PAIR) {
        m = first_of_pair(m, n);
        v = first_of_pair(v, n);
    }
    if (some_nan(p)) {
        p = canonical_pair(p);
        v = magnitudes(v); /* a negative v is the root of a NaN: all others are numbers above 0 */
        note_nan(&blocks->m, m);
        note_nan(&blocks->v, v);
    }
    write_masters(EVEN_ODD, kind.weights, a, p);
    hold(&blocks->m, nth, m);
    hold(&blocks->v, nth, v);
}

/* n < PAIR elements, as update_rest. */
INLINED void update_coded_rest(struct hst_update_kind kind, const struct constants *k,
                               const struct hst_update_arrays *a, struct moment_blocks *blocks,
                               size_t nth, size_t n)
{
    _Alignas(64) uint16_t weights[PAIR] = {0}, master[PAIR] = {0}, grads[PAIR] = {0};
    _Alignas(64) uint8_t m[PAIR] = {0}, v[PAIR] = {0};

    memcpy(weights, a->weights, n * sizeof *weights);
    memcpy(master, a->master, n * sizeof *master);
    memcpy(grads, a->grads, n * sizeof *grads);
    memcpy(m, a->m, n);
    memcpy(v, a->v, n);
    const struct hst_update_arrays padded = {
        .weights = weights, .master = master, .m = m, .v = v, .grads = grads};
    update_coded_pair(kind, k, &padded, blocks, nth, n);
    memcpy(a->weights, weights, n * sizeof *weights);
    memcpy(a->master, master, n * sizeof *master);
}

/* Codes of two pairs of a block, from `i` and from `j` on. */
INLINED void write_code_pairs(const struct moment_block *block, size_t i, size_t j, write_fn *write,
                              floats inverse, uint8_t *codes)
{
    write(codes, load_f32(block->at + i), load_f32(block->at + j), inverse);
}

/* The codes of a block's first n elements; without an inverse they are 0. */
INLINED void write_codes(const struct moment_block *block, write_fn *write, float inverse,
                         uint8_t *codes, size_t n)
{
    uint8_t rest[2 * PAIR];
    size_t i = 0;

    if (inverse == 0) {
        memset(codes, 0, n);
        return;
    }
    for (; n - i >= 2 * PAIR; i += 2 * PAIR)
        write_code_pairs(block, i, i + PAIR, write, all(inverse), codes + i);
    if (i < n) {
        const size_t second = n - i > PAIR ? i + PAIR : i;
        write_code_pairs(block, i, second, write, all(inverse), rest);
        memcpy(codes + i, rest, n - i);
    }
}

INLINED void begin_blocks(struct moment_blocks *blocks, const struct hst_update_arrays *a)
{
    blocks->m_scale = all(*a->m_scales);
    blocks->v_scale = all(*a->v_scales);
    blocks->m.largest = blocks->v.largest = blocks->m.nan = blocks->v.nan = all_words(0);
}

INLINED struct scale scale_of_block(const struct moment_block *block, float to_scale)
{
    return scale_of(largest_word(larger_words(block->largest, block->nan)), to_scale);
}

/* The scales are known now. The codes of a whole block are left to the next one's updates, if all
 * of them are to be computed. */
INLINED void end_blocks(struct moment_blocks *blocks, const struct hst_update_arrays *a, size_t n)
{
    const struct scale m = scale_of_block(&blocks->m, M_TO_SCALE);
    const struct scale v = scale_of_block(&blocks->v, V_TO_SCALE);
    const bool later = n == HST_CODE_BLOCK && m.inverse != 0 && v.inverse != 0;

    *a->m_scales = m.value;
    *a->v_scales = v.value;
    blocks->m_inverse = all(m.inverse);
    blocks->v_inverse = all(v.inverse);
    blocks->m_codes = later ? a->m : NULL;
    blocks->v_codes = a->v;
    if (!later) {
        write_codes(&blocks->m, write_m_codes, m.inverse, a->m, n);
        write_codes(&blocks->v, write_v_codes, v.inverse, a->v, n);
    }
}

/* Codes that were left, two pairs of each. */
INLINED void write_left_pairs(const struct moment_blocks *b, size_t i)
{
    write_code_pairs(&b->m, i, i + PAIR, write_m_codes, b->m_inverse, b->m_codes + i);
    write_code_pairs(&b->v, i, i + PAIR, write_v_codes, b->v_inverse, b->v_codes + i);
}

INLINED void write_left(const struct moment_blocks *blocks)
{
    for (size_t i = 0; blocks->m_codes && i < HST_CODE_BLOCK; i += 2 * PAIR)
        write_left_pairs(blocks, i);
}

INLINED void update_coded_pairs(struct hst_update_kind kind, const struct constants *k,
                                const struct hst_update_arrays *a, struct moment_blocks *blocks,
                                size_t i)
{
    const struct hst_update_arrays first = arrays_at(kind, a, i);
    const struct hst_update_arrays second = arrays_at(kind, a, i + PAIR);
    update_coded_pair(kind, k, &first, blocks, i / PAIR, PAIR);
    update_coded_pair(kind, k, &second, blocks, i / PAIR + 1, PAIR);
}

/* A whole block, and the codes of the one before. Its updates wait for divisions and roots, in
 * whose time there is room for codes. */
INLINED void update_block(struct hst_update_kind kind, const struct constants *k,
                          const struct hst_update_arrays *a, struct moment_blocks *blocks,
                          const struct moment_blocks *before)
{
    begin_blocks(blocks, a);
    if (before->m_codes) {
        for (size_t i = 0; i < HST_CODE_BLOCK; i += 2 * PAIR) {
            update_coded_pairs(kind, k, a, blocks, i);
            write_left_pairs(before, i);
        }
    } else {
        for (size_t i = 0; i < HST_CODE_BLOCK; i += 2 * PAIR)
            update_coded_pairs(kind, k, a, blocks, i);
    }
    end_blocks(blocks, a, HST_CODE_BLOCK);
}

/* n is less than a block. */
INLINED void update_short_block(struct hst_update_kind kind, const struct constants *k,
                                const struct hst_update_arrays *a, struct moment_blocks *blocks,
                                size_t n)
{
    size_t i = 0;

    begin_blocks(blocks, a);
    for (; n - i >= PAIR; i += PAIR) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        update_coded_pair(kind, k, &here, blocks, i / PAIR, PAIR);
    }
    if (i < n) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        update_coded_rest(kind, k, &here, blocks, i / PAIR, n - i);
    }
    end_blocks(blocks, a, n);
}

#ifdef UPDATES_IN_STAGES
#include "codes_staged.h"
#else
INLINED void update_coded(struct hst_update_kind kind, const struct constants *k,
                          const struct hst_update_arrays *a, size_t n)
{
    struct moment_blocks blocks[2]; /* by turns; not set to zeros, which would take long */
    const size_t ahead = ahead_of(a);
    unsigned turn = 0;
    size_t i = 0;

    blocks[0].m_codes = blocks[1].m_codes = NULL;
    for (; n - i >= HST_CODE_BLOCK; i += HST_CODE_BLOCK, turn ^= 1) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        if (n - i >= ahead + HST_CODE_BLOCK)
            prefetch_all(kind, &here, HST_CODE_BLOCK, ahead);
        update_block(kind, k, &here, &blocks[turn], &blocks[turn ^ 1]);
    }
    write_left(&blocks[turn ^ 1]);
    if (i < n) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        update_short_block(kind, k, &here, &blocks[turn], n - i);
    }
}
#endif

#endif
