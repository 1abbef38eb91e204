/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_CODES_ISA_H
#define HST_CPU_ADAM_CODES_ISA_H
/*
 * Updates of moments in codes, a block at a time: part of vector_isa.h. A block's scales follow
 * from all of its moments, so these wait as floats until the last one is there. All of its arrays
 * are in the order EVEN_ODD.
 */

struct moment_block {
    _Alignas(64) float at[HST_CODE_BLOCK]; /* in the order of pairs */
    words largest;                         /* magnitudes, as bits */
};

struct moment_blocks {
    floats m_scale, v_scale; /* of the codes that are read */
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

/* A block's scale, and the codes of its first n elements. */
INLINED void write_codes(const struct moment_block *block, float to_scale, code_fn *code,
                         uint8_t *codes, float *scale, size_t n)
{
    const struct scale s = scale_of(largest_word(block->largest), to_scale);
    const floats inverse = all(s.inverse);

    *scale = s.value;
    if (s.inverse == 0) {
        memset(codes, 0, n);
        return;
    }
    for (size_t i = 0; i < n; i += PAIR) {
        const struct pair x = load_f32(block->at + i);
        const struct word_pair c = {code(x.low, inverse), code(x.high, inverse)};
        uint8_t rest[PAIR];
        store_codes(n - i < PAIR ? rest : codes + i, c);
        if (n - i < PAIR)
            memcpy(codes + i, rest, n - i);
    }
}

/* n is at most a block. */
INLINED void update_block(struct hst_update_kind kind, const struct constants *k,
                          const struct hst_update_arrays *a, size_t n)
{
    struct moment_blocks blocks; /* not set to zeros, which would take long */
    size_t i = 0;

    blocks.m_scale = all(*a->m_scales);
    blocks.v_scale = all(*a->v_scales);
    blocks.m.largest = blocks.v.largest = all_words(0);
    for (; n - i >= PAIR; i += PAIR) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        update_coded_pair(kind, k, &here, &blocks, i / PAIR, PAIR);
    }
    if (i < n) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        update_coded_rest(kind, k, &here, &blocks, i / PAIR, n - i);
    }
    write_codes(&blocks.m, M_TO_SCALE, m_code, a->m, a->m_scales, n);
    write_codes(&blocks.v, V_TO_SCALE, v_code, a->v, a->v_scales, n);
}

#endif
