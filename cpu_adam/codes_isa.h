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
    words largest;                         /* magnitudes, as bits */
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

/* The line of a code is that of its highest bit, which is its exponent as a float; 0 has another,
 * which is lower than `least`. */
INLINED floats value_of(const struct code_lines *lines, words code, float least)
{
    const floats x = floats_from(code);
    const words index = shifted(words_of(x), 23);
    const floats line = times_plus(at_line(lines->slope, index), x, at_line(lines->start, index));
    return most(line, all(least));
}

INLINED floats m_value(words code, floats scale)
{
    const words sign = both(code, all_words(0x80));
    const floats z = value_of(&m_by_code, differing(code, sign), 0);
    return floats_of(differing(words_of(times(z, scale)), lifted(sign, 24)));
}

INLINED floats v_value(words code, floats scale)
{
    return times(value_of(&v_by_code, code, V_LEAST), scale);
}

/* A number's code, from its magnitude over the scale. */
INLINED words code_of(const struct number_lines *lines, floats x, floats inverse)
{
    const floats y = times_plus(floats_of(magnitude(x)), inverse, all(Y_LEAST));
    return words_from(number_on_line(lines, y));
}

INLINED words m_code(floats x, floats inverse)
{
    const words sign = both(shifted(words_of(x), 24), all_words(0x80));
    return differing(code_of(&m_by_number, x, inverse), sign);
}

INLINED words v_code(floats x, floats inverse)
{
    return code_of(&v_by_number, x, inverse);
}

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
    const words larger = larger_words(magnitude(x.low), magnitude(x.high));
    store_f32(block->at + nth * PAIR, x);
    block->largest = larger_words(block->largest, larger);
}

/* The pair's weights are updated, and its moments held; n of its elements are real. */
INLINED void update_coded_pair(struct hst_update_kind kind, const struct constants *k,
                               const struct hst_update_arrays *a, struct moment_blocks *blocks,
                               size_t nth, size_t n)
{
    const struct word_pair m_codes = load_codes(a->m), v_codes = load_codes(a->v);
    const struct pair g = read_numbers(EVEN_ODD, kind.grads, a->grads);
    struct pair p = read_masters(EVEN_ODD, kind.weights, a);
    struct pair m = {m_value(m_codes.low, blocks->m_scale), m_value(m_codes.high, blocks->m_scale)};
    struct pair v = {v_value(v_codes.low, blocks->v_scale), v_value(v_codes.high, blocks->v_scale)};

    update_vector(kind.optimizer, k, &p.low, &m.low, &v.low, g.low);
    update_vector(kind.optimizer, k, &p.high, &m.high, &v.high, g.high);
    if (some_nan(p))
        p = canonical_pair(p);
    write_masters(EVEN_ODD, kind.weights, a, p);
    hold(&blocks->m, nth, n < PAIR ? first_of_pair(m, n) : m);
    hold(&blocks->v, nth, n < PAIR ? first_of_pair(v, n) : v);
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

typedef words code_fn(floats x, floats inverse);

INLINED void write_code_pair(const struct moment_block *block, size_t i, code_fn *code,
                             floats inverse, uint8_t *codes)
{
    const struct pair x = load_f32(block->at + i);
    const struct word_pair c = {code(x.low, inverse), code(x.high, inverse)};
    store_codes(codes, c);
}

/* The codes of a block's first n elements; without an inverse they are 0. */
INLINED void write_codes(const struct moment_block *block, code_fn *code, float inverse,
                         uint8_t *codes, size_t n)
{
    uint8_t rest[PAIR];
    size_t i = 0;

    if (inverse == 0) {
        memset(codes, 0, n);
        return;
    }
    for (; n - i >= PAIR; i += PAIR)
        write_code_pair(block, i, code, all(inverse), codes + i);
    if (i < n) {
        write_code_pair(block, i, code, all(inverse), rest);
        memcpy(codes + i, rest, n - i);
    }
}

INLINED void begin_blocks(struct moment_blocks *blocks, const struct hst_update_arrays *a)
{
    blocks->m_scale = all(*a->m_scales);
    blocks->v_scale = all(*a->v_scales);
    blocks->m.largest = blocks->v.largest = all_words(0);
}

/* The scales are known now. The codes of a whole block are left to the next one's updates, if all
 * of them are to be computed. */
INLINED void end_blocks(struct moment_blocks *blocks, const struct hst_update_arrays *a, size_t n)
{
    const struct scale m = scale_of(largest_word(blocks->m.largest), M_TO_SCALE);
    const struct scale v = scale_of(largest_word(blocks->v.largest), V_TO_SCALE);
    const bool later = n == HST_CODE_BLOCK && m.inverse != 0 && v.inverse != 0;

    *a->m_scales = m.value;
    *a->v_scales = v.value;
    blocks->m_inverse = all(m.inverse);
    blocks->v_inverse = all(v.inverse);
    blocks->m_codes = later ? a->m : NULL;
    blocks->v_codes = a->v;
    if (!later) {
        write_codes(&blocks->m, m_code, m.inverse, a->m, n);
        write_codes(&blocks->v, v_code, v.inverse, a->v, n);
    }
}

/* Codes that were left, a pair of each. */
INLINED void write_left_pair(const struct moment_blocks *blocks, size_t i)
{
    write_code_pair(&blocks->m, i, m_code, blocks->m_inverse, blocks->m_codes + i);
    write_code_pair(&blocks->v, i, v_code, blocks->v_inverse, blocks->v_codes + i);
}

INLINED void write_left(const struct moment_blocks *blocks)
{
    for (size_t i = 0; blocks->m_codes && i < HST_CODE_BLOCK; i += PAIR)
        write_left_pair(blocks, i);
}

/* A whole block, and the codes of the one before. Its updates wait for divisions and roots, in
 * whose time there is room for codes. */
INLINED void update_block(struct hst_update_kind kind, const struct constants *k,
                          const struct hst_update_arrays *a, struct moment_blocks *blocks,
                          const struct moment_blocks *before)
{
    begin_blocks(blocks, a);
    if (before->m_codes) {
        for (size_t i = 0; i < HST_CODE_BLOCK; i += PAIR) {
            const struct hst_update_arrays here = arrays_at(kind, a, i);
            update_coded_pair(kind, k, &here, blocks, i / PAIR, PAIR);
            write_left_pair(before, i);
        }
    } else {
        for (size_t i = 0; i < HST_CODE_BLOCK; i += PAIR) {
            const struct hst_update_arrays here = arrays_at(kind, a, i);
            update_coded_pair(kind, k, &here, blocks, i / PAIR, PAIR);
        }
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

INLINED void update_coded(struct hst_update_kind kind, const struct constants *k,
                          const struct hst_update_arrays *a, size_t n)
{
    struct moment_blocks blocks[2]; /* by turns; not set to zeros, which would take long */
    unsigned turn = 0;
    size_t i = 0;

    blocks[0].m_codes = blocks[1].m_codes = NULL;
    for (; n - i >= HST_CODE_BLOCK; i += HST_CODE_BLOCK, turn ^= 1) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        if (n - i >= AHEAD + HST_CODE_BLOCK)
            prefetch_all(kind, &here, HST_CODE_BLOCK);
        update_block(kind, k, &here, &blocks[turn], &blocks[turn ^ 1]);
    }
    write_left(&blocks[turn ^ 1]);
    if (i < n) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        update_short_block(kind, k, &here, &blocks[turn], n - i);
    }
}

#endif
